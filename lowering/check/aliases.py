"""Aliases: no copy, and no call, writes an element twice.

A copy reads its source whole and then writes; a call copies its arguments to the parameters, runs, and copies back
those that the body writes. Neither says in which order, so elements written at once must each be named once. These are
the elements of the destination of a copy or of a stream, and of all arguments together whose parameters the body
writes. What is only read may overlap with anything: it was copied before. (Fields of vertices are checked with their
races.)

Answers are exact: by arithmetic for affine views, by enumeration for tables and joins.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from codelet.errors import Line, ProgramError, SelfAliasError
from codelet.graphs.graph import Graph
from codelet.programs.checks import check_variables
from codelet.views.grids import Axis
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, views_padding
from lowering.check.races import Image, aliased_address, shared_by_families
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep
from lowering.plan.walk import all_steps


def affine_image(tensor: Tensor, axes: Sequence[Axis] = ()) -> Image | None:
    """The affine form of a view over a grid; None for tables, joins and pads."""
    index = tensor.index
    if index.tables or tensor.rows is not None or not isinstance(tensor.source, Variable):
        return None
    vertex, inside = (tuple(map(index.digit, keys)) for keys in (axes, range(index.ndim)))
    return Image(index.offset + tensor.source.first_element, vertex, inside)


def _repeated(elements: np.ndarray) -> int | None:
    """A number that is there twice."""
    ordered = np.sort(elements, axis=None)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[again[0]]) if len(again) else None


def _named_twice(tensor: Tensor) -> int | None:
    """An element that a view names twice."""
    if tensor.is_whole_variable or tensor.size < 2:
        return None
    image = affine_image(tensor)
    return _repeated(tensor.elements()) if image is None else aliased_address(image)


def _shared(a: Tensor, b: Tensor) -> int | None:
    """An element that two views, neither of which names any twice, both name."""
    if not (a.size and b.size) or not set(source_variables(a.source)) & set(source_variables(b.source)):
        return None
    images = affine_image(a), affine_image(b)
    if images[0] is not None and images[1] is not None:
        return shared_by_families(images[0], images[1])
    return _repeated(np.concatenate([a.elements().reshape(-1), b.elements().reshape(-1)]))


def _check_destination(graph: Graph, tensor: Tensor, line: Line | None) -> None:
    element = _named_twice(tensor)
    if element is not None:
        raise SelfAliasError(
            f"a copy writes {graph.element_text(element)} twice",
            given=f"destination {tensor}",
            expected="a destination that names every element once",
            fix="copy to the part of it that is there once, before it was broadcast, joined or gathered",
            line=line,
        )


def _check_arguments(graph: Graph, step: CallStep) -> None:
    function = step.function
    names = {k: function.parameters[k].name for k in function.written}
    for k, name in names.items():
        check_variables(step.arguments[k], f"a call of {function.name!r}", step.line)
        if views_padding(step.arguments[k]):
            raise ProgramError(
                f"a call of {function.name!r} writes padding, through parameter {name!r}",
                given=f"argument {step.arguments[k]}",
                expected="arguments of elements of variables alone, where a function writes",
                fix="give the tensor that was padded, or slice the padding off",
                line=step.line,
            )
        element = _named_twice(step.arguments[k])
        if element is not None:
            raise SelfAliasError(
                f"a call of {function.name!r} writes {graph.element_text(element)} twice through parameter {name!r}",
                given=f"argument {step.arguments[k]}",
                expected="that what a function writes names every element once",
                fix="give a view that was not broadcast, joined or gathered so",
                line=step.line,
            )
    _check_apart(graph, step, names)


def _check_apart(graph: Graph, step: CallStep, names: dict[int, str]) -> None:
    for (j, first), (k, second) in itertools.combinations(names.items(), 2):
        element = _shared(step.arguments[j], step.arguments[k])
        if element is not None:
            raise SelfAliasError(
                f"a call of {step.function.name!r} writes {graph.element_text(element)} "
                f"through two parameters, {first!r} and {second!r}",
                given=f"arguments {step.arguments[j]} and {step.arguments[k]}",
                expected="that the arguments which a function writes share no element: which would count is not said",
                fix="give each what is its own; an argument that is only read may overlap",
                line=step.line,
            )


def check_aliases(plan: Plan) -> None:
    """The elements that a copy or a call writes at once are each named once.

    Raises:
        SelfAliasError: naming an element that is written twice.
        VariableError, ProgramError: a function that writes a constant or padding through a parameter.
    """
    for step in all_steps(plan.steps):
        if isinstance(step, CallStep):
            _check_arguments(plan.graph, step)
            continue
        for touch in step.touches():
            if touch.is_written and touch.family is None:
                _check_destination(plan.graph, touch.tensor, touch.line)
