"""Counters: values of the forward pass that are made of the counters of loops and of constants, made again in the
backward pass.

The backward pass knows which iteration it is: it goes through the same iterations. So the variable in which a `Repeat`
counts is not saved, nor is the value that one vertex made of such variables and of constants, as the place of a row in
a scan that goes backwards, or a number of a known array at that place. Rows that are taken or put at such places are
known to be one an iteration, in the backward pass as in the forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.tracing.statics import restored
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_vertices, variable_of
from lowering.adjoint.counting import counted_from
from lowering.plan.steps import ExecuteStep, RepeatStep

if TYPE_CHECKING:
    from lowering.adjoint.saved import Body


SMALL = 64
"""Elements; what is larger is saved."""


class Counters:
    """The counters of loops in the backward pass.

    Attributes:
        graph: where it is made.
        found: the variable with a value that is made before a step of a body; None where it is of something else, too.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.found: dict[tuple[Body, int, Variable], Variable | None] = {}

    def value(self, body: Body, number: int, variable: Variable) -> Variable | None:
        """The variable with a value that the step before a place of a body made, or that a body begins with.

        None where it is made of anything else, or the forward pass runs again before it is read.
        """
        key = body, number, variable
        if key not in self.found:
            own = None if body.is_again else self._counted(body, variable) if number == 0 else self._of(*key)
            self.found[key] = own
        return self.found[key]

    def _counted(self, body: Body, variable: Variable) -> Variable | None:
        """The counter of a loop's iterations in the backward pass; None where it does not count."""
        loop = body.loop
        if loop is None or not isinstance(loop.step, RepeatStep) or loop.step.index is not variable:
            return None
        first = loop.step.first
        if not isinstance(first, int):
            return None
        if first == 0 and variable.dtype == loop.back.dtype:
            return variable_of(loop.back)
        fields = {"turn": loop.back, "first": first, "dtype": str(variable.dtype)}
        counting, held = new_vertices(self.graph, "count", counted_from, **fields)
        body.prelude.append(counting)
        return variable_of(held)

    def _of(self, body: Body, number: int, variable: Variable) -> Variable | None:
        """The value that one vertex made of counters and constants."""
        family = _maker(body, number, variable)
        if family is None:
            return None
        fields: dict[str, object] = {**family.codelet.static}
        for field in family.fields:
            if field.is_written:
                continue
            tensor = field.tensor
            assert tensor is not None
            source = variable_of(tensor)
            held = source if source.value is not None else self.value(*body.made(number - 1, source), source)
            if held is None:
                return None
            fields[field.name] = Tensor(held, tensor.index)
        with restored(family.codelet.settings):
            making, out = new_vertices(self.graph, family.compute_set.name, family.codelet.codelet, **fields)
        body.prelude.append(making)
        return variable_of(out)


def _maker(body: Body, number: int, variable: Variable) -> Family | None:
    """The single vertex that makes all of a variable in the step before a place, of single variables."""
    step = body.steps[number - 1]
    if not isinstance(step, ExecuteStep):
        return None
    makers = [
        family
        for family in step.families
        if any(own.is_written and variable in source_variables(own.tensor.source) for own in family.fields)  # type: ignore[union-attr]
    ]
    if len(makers) != 1 or makers[0].num_vertices != 1 or makers[0].codelet.has_effects or makers[0].rows:
        return None
    (family,) = makers
    views = {field.name: field.tensor for field in family.fields}
    outs = [field.name for field in family.fields if field.is_written]
    if family.axes or any(view is None or not isinstance(view.source, Variable) for view in views.values()):
        return None
    if any(field.kind == "inout" for field in family.fields) or len(outs) != 1 or len(views) == 1:
        return None
    out = views[outs[0]]
    return family if out is not None and out.is_whole_variable and variable.size <= SMALL else None
