"""Whole operations: those that a graph remembers, each with the gradient that its rule says.

In come the steps of a body. Out come those in a row that are all vertices of an operation, and for each its adjoint
through it. These are the gradients of its operands, added and planned as operations themselves. Its vertices are those
it is known by. The adjoints of its vertices are taken, as of any others, where one was added to its compute sets. So
they are where something beside it reads or writes its private variables, or asks for the gradient of those.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation, recorded, vertices_of
from codelet.ops.gradient_rules import OperationCall, Rule, rule_of
from codelet.programs.compute_sets import ComputeSet
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.adjoint.fields import is_injective
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import ExecuteStep, Step
from lowering.plan.walk import all_steps

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward
    from lowering.adjoint.saved import Body


@dataclass(frozen=True, eq=False)
class WholeOperation:
    """An operation that is gone back through as a whole.

    Attributes:
        operation: it.
        rule: its gradient.
        first: the place of its first step in the body, `last` that of its last.
        kept: the variables that it keeps to itself.
    """

    operation: Operation
    rule: Rule
    first: int
    last: int
    kept: tuple[Variable, ...]


def _with_rules(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations that have a rule, those around others before them."""
    for operation in operations:
        if rule_of(operation) is not None:
            yield operation
        yield from _with_rules(operation.parts)


def _compute_set(step: Step) -> ComputeSet | None:
    """The compute set that a step runs."""
    return step.families[0].compute_set if isinstance(step, ExecuteStep) and step.families else None


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tensor)]


class WholeOperations:
    """The operations of a graph as the steps of a plan run them.

    Args:
        graph: the graph.
        plan: the plan.
    """

    def __init__(self, graph: Graph, plan: Plan):
        self._beginning: dict[ComputeSet, list[Operation]] = {}
        self._touching: dict[Variable, set[Step]] = {}
        operations = [*_with_rules(recorded(graph))]
        counts = vertices_of(graph, {each for operation in operations for each in operation.compute_sets})
        for operation in operations:
            if all(counts[each] == count for each, count in operation.num_vertices.items()):
                self._beginning.setdefault(operation.compute_sets[0], []).append(operation)
        for step in all_steps(plan.steps) if self._beginning else ():
            for touch in step.touches():
                for variable in touch.variables:
                    self._touching.setdefault(variable, set()).add(step)

    def of_body(self, steps: Sequence[Step]) -> dict[int, WholeOperation]:
        """Those of a body, by the place of their last steps."""
        by_last: dict[int, WholeOperation] = {}
        number = 0
        while number < len(steps):
            whole = next(self._at(steps, number), None)
            if whole is not None:
                by_last[whole.last] = whole
            number = number + 1 if whole is None else whole.last + 1
        return by_last

    def _at(self, steps: Sequence[Step], first: int) -> Iterator[WholeOperation]:
        """The operations that begin at a step, the outermost first."""
        compute_set = _compute_set(steps[first])
        for operation in self._beginning.get(compute_set, []) if compute_set is not None else ():
            stretch = steps[first : first + len(operation.compute_sets)]
            executed = [step for step in stretch if isinstance(step, ExecuteStep)]
            runs_it = [*map(_compute_set, executed)] == operation.compute_sets
            whole = self._whole(operation, executed, first) if runs_it else None
            if whole is not None:
                yield whole

    def _whole(self, operation: Operation, steps: Sequence[ExecuteStep], first: int) -> WholeOperation | None:
        """An operation as its steps are; None where others touch its private variables, or it returned another's."""
        written, returned = ElementSet(), ElementSet()
        for touch in (touch for step in steps for touch in step.touches()):
            if touch.is_written:
                written.add(touch.tensor, touch.axes)
        for result in operation.results.values():
            is_plain = isinstance(result.source, Variable) and is_injective(result.index)
            if not is_plain or result.source in returned.variables:
                return None
            returned.add(result, ())
        kept = tuple(variable for variable in written.variables if variable not in returned.variables)
        operands = {v for operand in operation.operands.values() for v in source_variables(operand.source)}
        is_alone = all(self._touching[variable].issubset(steps) for variable in kept)
        is_all = all(written.of(variable).equals(returned.of(variable)) for variable in returned.variables)
        rule = rule_of(operation)
        if not is_alone or not is_all or not operands.isdisjoint(written.variables) or rule is None:
            return None
        return WholeOperation(operation, rule, first, first + len(steps) - 1, kept)


def go_back_as_whole(back: Backward, body: Body, whole: WholeOperation) -> bool:
    """Go back through an operation by its rule; False where the adjoints of its vertices are to be taken.

    Args:
        back: the backward pass.
        body: the body that its steps are in.
        whole: the operation.

    Raises:
        OperationError: the rule leaves out a gradient, or gives one of another shape or dtype.
    """
    operation, present = whole.operation, back.present
    if any(present.of(variable).first is not None for variable in whole.kept):
        return False
    arguments, results = operation.arguments, operation.results.values()
    is_varied = lambda tensor: not back.flows.varied.isdisjoint(source_variables(tensor.source))  # noqa: E731
    wanted = frozenset(name for name, argument in arguments.items() if any(map(is_varied, _tensors(argument))))
    returned, received = ElementSet(), ElementSet()
    for result in results:
        elements = back.flows.elements(result)
        returned = returned | elements
        if not (elements & present).is_empty:
            received = received | elements
    programs, num_variables = len(back.sums.programs), len(back.graph.sources)
    if wanted and not received.is_empty:
        back.fill(received)
        call = _call(back, body, whole, wanted, received)
        gradients = back.sums.recorded(operation.scope, lambda graph: whole.rule(graph, call))
        if gradients is None:
            del back.sums.programs[programs:]
            back.present = present
            return False
        back.present = back.present - returned
        for name, tensor, slope in _by_operand(operation, wanted, gradients):
            if is_varied(tensor) and (body.around is not None or not back.adopt(tensor, slope, num_variables)):
                back.contribute(f"{operation.scope}/{name}", slope, tensor)
    else:
        back.present = present - returned
    return True


def _call(
    back: Backward, body: Body, whole: WholeOperation, wanted: frozenset[str], received: ElementSet
) -> OperationCall:
    """The call of an operation, as its rule sees it."""
    operation = whole.operation
    written = functools.reduce(ElementSet.__or__, map(back.written, body.steps[whole.first : whole.last + 1]))
    later = back.later | written

    def cotangent(result: Tensor) -> Tensor | None:
        is_there = not (back.flows.elements(result) & received).is_empty
        return back.cotangents_of(result) if is_there else None

    before = lambda tensor: back.given(body, whole.first, tensor, (), later)  # noqa: E731
    after = lambda tensor: back.given(body, whole.last + 1, tensor, (), back.later)  # noqa: E731
    each = lambda of, tree: jax.tree.map(lambda leaf: of(leaf) if isinstance(leaf, Tensor) else leaf, tree)  # noqa: E731
    return OperationCall(
        operation.arguments,
        lambda name: each(before, operation.arguments[name]),
        lambda: each(after, operation.result),
        lambda: each(after, operation.intermediates),
        each(cotangent, operation.result),
        wanted,
    )


def _by_operand(
    operation: Operation, wanted: frozenset[str], gradients: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The gradients that a rule gives: the argument, the operand, and the gradient by it, where that is not None.

    Raises:
        OperationError: one that is left out, or of another shape or dtype.
    """
    if missing := sorted(wanted - gradients.keys()):
        raise OperationError(
            f"the gradient rule of operation {operation.kind!r} leaves out what is asked for",
            given=f"gradients by {', '.join(gradients) or 'nothing'}",
            expected=f"one by {', '.join(missing)}, or None for one that is zero",
        )
    for name, gradient in gradients.items():
        operands, structure = jax.tree.flatten(operation.arguments[name])
        for operand, slope in zip(operands, structure.flatten_up_to(gradient), strict=True):
            if slope is None or not isinstance(operand, Tensor):
                continue
            if not isinstance(slope, Tensor) or (slope.shape, slope.dtype) != (operand.shape, operand.dtype):
                raise OperationError(
                    f"the gradient rule of operation {operation.kind!r} gives something else by {name!r}",
                    given=slope,
                    expected=f"a tensor of {operand.dtype}{list(operand.shape)}, or None for one that is zero",
                )
            yield name, operand, slope
