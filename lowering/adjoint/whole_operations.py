"""Whole operations: those that a graph remembers, each with the gradient that its rule says.

In come the steps of a body. Out come those in a row that are all that an operation added, and for each what goes back
through it: the gradients of its operands, added and planned as operations themselves. Its vertices are what it is known
by: where one was added to its compute sets, where something beside it reads or writes what it keeps to itself, or asks
for the gradient of that, its vertices' adjoints are taken, as of any others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation, vertices_of
from codelet.ops.gradient_rules import OperationCall, Rule, rule_of
from codelet.programs.compute_sets import ComputeSet
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.adjoint.fields import is_injective
from lowering.adjoint.flows import is_float
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
    for own in operations:
        if rule_of(own) is not None:
            yield own
        yield from _with_rules(own.parts)


class WholeOperations:
    """The operations of a graph as the steps of a plan run them.

    Args:
        graph: the graph.
        plan: the plan.
    """

    def __init__(self, graph: Graph, plan: Plan):
        self._begins: dict[ComputeSet, list[Operation]] = {}
        every = [*_with_rules(graph.operations)]
        counts = vertices_of(graph, {own for each in every for own in each.compute_sets})
        for own in every:
            if all(counts[each] == count for each, count in own.num_vertices.items()):
                self._begins.setdefault(own.compute_sets[0], []).append(own)
        self._touched: dict[Variable, set[Step]] = {}
        for step in all_steps(plan.steps) if self._begins else ():
            for touch in step.touches():
                for variable in touch.variables:
                    self._touched.setdefault(variable, set()).add(step)

    def of_body(self, steps: Sequence[Step]) -> dict[int, WholeOperation]:
        """Those of a body, by the place of their last steps."""
        found: dict[int, WholeOperation] = {}
        number = 0
        while number < len(steps):
            whole = next(self._at(steps, number), None)
            if whole is not None:
                found[whole.last] = whole
            number = number + 1 if whole is None else whole.last + 1
        return found

    def _at(self, steps: Sequence[Step], first: int) -> Iterator[WholeOperation]:
        """The operations that begin at a step, the outermost first."""
        begun = _compute_set(steps[first])
        for own in self._begins.get(begun, []) if begun is not None else ():
            mine = [each for each in steps[first : first + len(own.compute_sets)] if isinstance(each, ExecuteStep)]
            is_it = [*map(_compute_set, mine)] == own.compute_sets
            whole = self._whole(own, mine, first) if is_it else None
            if whole is not None:
                yield whole

    def _whole(self, own: Operation, steps: Sequence[ExecuteStep], first: int) -> WholeOperation | None:
        """An operation as its steps are; None where others touch what it keeps, or it returned what is not its own."""
        written, returned = ElementSet(), ElementSet()
        for touch in (touch for step in steps for touch in step.touches()):
            if touch.is_written:
                written.add(touch.tensor, touch.axes)
        for result in own.results.values():
            if not isinstance(result.source, Variable) or not is_injective(result.index):
                return None
            if result.source in returned.variables:
                return None
            returned.add(result, ())
        kept = tuple(variable for variable in written.variables if variable not in returned.variables)
        operands = {variable for own in own.operands.values() for variable in source_variables(own.source)}
        is_alone = all(self._touched[variable].issubset(steps) for variable in kept)
        is_all = all(written.of(variable).equals(returned.of(variable)) for variable in returned.variables)
        if not is_alone or not is_all or not operands.isdisjoint(written.variables):
            return None
        rule = rule_of(own)
        assert rule is not None
        return WholeOperation(own, rule, first, first + len(steps) - 1, kept)


def _compute_set(step: Step) -> ComputeSet | None:
    """The compute set that a step runs."""
    return step.families[0].compute_set if isinstance(step, ExecuteStep) and step.families else None


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tensor)]


def go_back_as_whole(back: Backward, body: Body, whole: WholeOperation) -> bool:
    """Go back through an operation by its rule; False where the adjoints of its vertices are to be taken.

    Args:
        back: the backward pass.
        body: the body that its steps are in.
        whole: the operation.
    """
    own, present = whole.operation, back.present
    if any(present.of(variable).first is not None for variable in whole.kept):
        return False
    wanted = frozenset(
        name
        for name, argument in own.arguments.items()
        if any(_is_varied(back, tensor) for tensor in _tensors(argument))
    )
    returned = ElementSet()
    for result in own.results.values():
        returned.add(result, ())
    given = functools.partial(_cotangent, back)
    has = [not (back.flows.elements(result) & present).is_empty for result in own.results.values()]
    if not any(has) or not wanted:
        back.present = present - returned
        return True
    written = functools.reduce(ElementSet.__or__, map(back.written, body.steps[whole.first : whole.last + 1]))
    later = back.later | written
    before = lambda tensor: back.given(body, whole.first, tensor, (), later)  # noqa: E731
    after = lambda tensor: back.given(body, whole.last + 1, tensor, (), back.later)  # noqa: E731
    tree = lambda one, own: jax.tree.map(lambda leaf: one(leaf) if isinstance(leaf, Tensor) else leaf, own)  # noqa: E731
    call = OperationCall(
        own.arguments,
        lambda name: tree(before, own.arguments[name]),
        lambda: tree(after, own.result),
        tree(given, own.result),
        wanted,
    )
    made: dict[str, Any] = {}

    def make(graph: Graph) -> None:
        made.update(whole.rule(graph, call) or {})

    programs, num_variables = len(back.sums.programs), len(back.graph.variables)
    back.fill(ElementSet({v: e for v, e in ((v, returned.of(v)) for v in returned.variables) if is_float(v)}))
    back.sums.recorded(own.scope, make)
    if not made:
        del back.sums.programs[programs:]
        back.present = present
        return False
    back.present = back.present - returned
    for name, slopes in made.items():
        pairs = zip(jax.tree.leaves(own.arguments[name]), _leaves_like(own.arguments[name], slopes), strict=True)
        for tensor, slope in pairs:
            if slope is None or not isinstance(tensor, Tensor) or not _is_varied(back, tensor):
                continue
            if body.around is not None or not back.adopt(tensor, slope, num_variables):
                back.contribute(f"{own.scope}/{name}", slope, tensor)
    return True


def _leaves_like(tree: Any, given: Any) -> list[Any]:
    """The leaves of a pytree at the places of another's, where None may be for a leaf."""
    return jax.tree.structure(tree).flatten_up_to(given)


def _is_varied(back: Backward, tensor: Tensor) -> bool:
    """Whether a gradient is asked for by a tensor."""
    return any(variable in back.flows.varied for variable in source_variables(tensor.source))


def _cotangent(back: Backward, result: Tensor) -> Tensor | None:
    """The cotangent of a result; None where it has none, as one that is not of floats."""
    is_there = not (back.flows.elements(result) & back.present).is_empty
    return back.cotangents_of(result) if is_there else None
