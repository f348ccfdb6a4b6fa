"""Calls in a row: one function called on different tensors, as one loop over them.

In come steps, out the same with calls of one function that follow each other as one `CallsStep`. Arguments that they
all name are read once, those that differ are stacked and scanned over, and results of one call that the next reads are
carried. XLA then compiles the body once. Calls whose arguments overlap in another way, or would be copied to lie side
by side, stay as they are.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from codelet.views.index import Index
from codelet.views.patchwork import joined
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.plan.steps import CallsStep, CallStep, FunctionBody, Step

FEWEST = 3
"""Calls in a row that become a loop; fewer are compiled one by one."""

MOST_COPIED = 1 << 16
"""Elements that may have to be put side by side first, since each call gets them of another variable: with more, the
copies take longer than compiling the calls one by one."""


def _same(a: Tensor, b: Tensor) -> bool:
    if a is b:
        return True
    if a.source is not b.source or a.shape != b.shape:
        return False
    if a.index.is_strided and b.index.is_strided:
        return (a.index.offset, a.index.strides) == (b.index.offset, b.index.strides)
    return bool(np.array_equal(a.index.values(), b.index.values()))


def _evenly(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are views of one source that differ in their offsets alone, so that stacked they are a view."""
    first = tensors[0]
    alike = all(t.source is first.source and t.index.is_strided for t in tensors)
    return alike and all(t.index.strides == first.index.strides for t in tensors)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape, stacked along a new first dimension."""
    first = tensors[0]
    if _evenly(tensors):
        offsets = np.asarray([t.index.offset for t in tensors])
        shape, strides = (len(tensors), *first.shape), first.index.strides
        steps = np.diff(offsets)
        if (steps == steps[0]).all():
            return Tensor(first.source, Index(int(offsets[0]), shape, (int(steps[0]), *strides)))
        return Tensor(first.source, Index(0, shape, (0, *strides), (), Index.from_values(offsets, (0,), shape).tables))
    return whole_view(joined([tensor.expand(0) for tensor in tensors], 0))


def _elements(tensors: Sequence[Tensor]) -> np.ndarray:
    return np.concatenate([tensor.elements().reshape(-1) for tensor in tensors] or [np.zeros(0, np.int64)])


def _touching(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """Those of some tensors that are of a variable which others are of."""
    variables = {variable for tensor in others for variable in source_variables(tensor.source)}
    return [tensor for tensor in tensors if not variables.isdisjoint(source_variables(tensor.source))]


def _overlap(written: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether an element of one list of tensors is in the other."""
    near = _touching(others, written)
    return bool(near) and bool(np.isin(_elements(near), _elements(_touching(written, near))).any())


def _meet(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors have an element in common, or one has an element twice."""
    counts = Counter(variable for tensor in tensors for variable in source_variables(tensor.source))
    # A whole variable that is there once cannot meet anything.
    near = [t for t in tensors if not t.is_whole_variable or counts[next(iter(source_variables(t.source)))] > 1]
    elements = _elements(near)
    return len(np.unique(elements)) < len(elements)


def _grouped(calls: Sequence[CallStep]) -> CallsStep | None:
    """Calls of one function as one loop; None where their arguments do not allow it."""
    function = calls[0].function
    given = {p: [call.arguments[k] for call in calls] for k, p in enumerate(function.parameters)}
    constant = {p for p, own in given.items() if all(_same(own[0], other) for other in own[1:])}
    writes = [p for p in given if p in function.writes]
    shared: dict[Variable, Tensor] = {}
    apart: dict[Variable, list[Tensor]] = {}
    carried: dict[Variable, Tensor] = {}
    passed_on: dict[Variable, Variable] = {}
    for p, own in given.items():
        if p in constant:
            (carried if p in writes else shared)[p] = own[0]
            continue
        source = next((q for q in writes if all(map(_same, own[1:], given[q][:-1]))), None)
        if p not in writes and source is not None:
            carried[p], passed_on[p] = own[0], source
            continue
        apart[p] = own
    if (
        sum(
            tensor.size
            for own in apart.values()
            if not (isinstance(own[0].source, Variable) and _evenly(own))
            for tensor in own
        )
        > MOST_COPIED
    ):
        return None
    stacked = {p: _stack(own) for p, own in apart.items()}
    collected = {p: stacked[p] for p in stacked if p in writes}
    places = [own for p in collected for own in given[p]] + [carried[p] for p in carried if p in writes]
    read = [*shared.values(), *(own for p in stacked if p not in writes for own in given[p])]
    read += [carried[p] for p in passed_on]
    if _meet(places) or _overlap(places, read):
        return None
    # Besides what they get, the calls read and write variables of the graph: these must be others.
    written = {v for v in function.writes if v not in given}
    touched = {variable for tensor in (*places, *read) for variable in source_variables(tensor.source)}
    named = {variable for tensor in places for variable in source_variables(tensor.source)}
    if touched & written or named & set(function.reads):
        return None
    return CallsStep(
        tuple(calls),
        shared,
        stacked,
        carried,
        passed_on,
        collected,
        reads=tuple(dict.fromkeys(variable for call in calls for variable in call.reads)),
        writes=tuple(dict.fromkeys(variable for call in calls for variable in call.writes)),
    )


def group_calls(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps, those calls together that are one loop."""
    made: list[Step] = []

    def called(step: Step) -> FunctionBody | None:
        return step.function if isinstance(step, CallStep) and step.function.derivative is None else None

    for function, row in itertools.groupby(steps, called):
        own = list(row)
        calls = [step for step in own if isinstance(step, CallStep)] if function is not None else []
        grouped = _grouped(calls) if len(calls) >= FEWEST else None
        made += own if grouped is None else [grouped]
    return tuple(made)
