"""Calls in a row: one function called on different tensors, as one loop over them.

In come steps, out the same with calls of one function that follow each other as `Calls`: what they all name is
read once, what differs is stacked and scanned over, what one call writes and the next reads is carried. XLA
then compiles the body once. Calls whose arguments overlap in another way stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codelet.views.index import Index
from codelet.views.patchwork import joined
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.plan.steps import CallStep, FunctionBody, Step

FEWEST = 3
"""Calls in a row that become a loop; fewer are compiled one by one."""


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of one function, one after another.

    Attributes:
        function: what is called.
        count: how often.
        shared: parameters that get the same tensor in every call and are only read.
        stacked: parameters that get another tensor in each call, with these stacked along a first dimension.
        carried: parameters whose value goes from one call to the next, with what the first call gets.
        passed_on: for some of these, the parameter that the call before has written it through, if another.
        collected: those of the stacked parameters that the function writes.
    """

    function: FunctionBody
    count: int
    shared: dict[Variable, Tensor]
    stacked: dict[Variable, Tensor]
    carried: dict[Variable, Tensor]
    passed_on: dict[Variable, Variable]
    collected: dict[Variable, Tensor]


def _same(a: Tensor, b: Tensor) -> bool:
    if a is b:
        return True
    if a.source is not b.source or a.shape != b.shape:
        return False
    if a.index.is_strided and b.index.is_strided:
        return (a.index.offset, a.index.strides) == (b.index.offset, b.index.strides)
    return bool(np.array_equal(a.index.values(), b.index.values()))


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape, stacked along a new first dimension."""
    first = tensors[0]
    alike = all(t.source is first.source and t.index.is_strided for t in tensors)
    if alike and all(t.index.strides == first.index.strides for t in tensors):
        offsets = np.asarray([t.index.offset for t in tensors])
        shape, strides = (len(tensors), *first.shape), first.index.strides
        steps = np.diff(offsets)
        if (steps == steps[0]).all():
            return Tensor(first.source, Index(int(offsets[0]), shape, (int(steps[0]), *strides)))
        return Tensor(first.source, Index(0, shape, (0, *strides), (), Index.from_values(offsets, (0,), shape).tables))
    return whole_view(joined([tensor.expand(0) for tensor in tensors], 0))


def _elements(tensors: Sequence[Tensor]) -> np.ndarray:
    return np.concatenate([tensor.elements().reshape(-1) for tensor in tensors] or [np.zeros(0, np.int64)])


def _overlap(written: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether an element of one list of tensors is in the other."""
    variables = {variable for tensor in written for variable in source_variables(tensor.source)}
    near = [tensor for tensor in others if variables & set(source_variables(tensor.source))]
    return bool(near) and bool(np.isin(_elements(near), _elements(written)).any())


def _grouped(calls: Sequence[CallStep]) -> Calls | None:
    """Calls of one function as one loop; None where their arguments do not allow it."""
    function = calls[0].function
    given = {p: [call.arguments[k] for call in calls] for k, p in enumerate(function.parameters)}
    constant = {p for p, own in given.items() if all(_same(own[0], other) for other in own[1:])}
    writes = [p for p in given if p in function.writes]
    shared: dict[Variable, Tensor] = {}
    stacked: dict[Variable, Tensor] = {}
    carried: dict[Variable, Tensor] = {}
    passed_on: dict[Variable, Variable] = {}
    collected: dict[Variable, Tensor] = {}
    for p, own in given.items():
        if p in constant:
            (carried if p in writes else shared)[p] = own[0]
            continue
        source = next((q for q in writes if all(map(_same, own[1:], given[q][:-1]))), None)
        if p not in writes and source is not None:
            carried[p], passed_on[p] = own[0], source
            continue
        stacked[p] = _stack(own)
        if p in writes:
            collected[p] = stacked[p]
    places = [*collected.values(), *(carried[p] for p in carried if p in writes)]
    read = [*shared.values(), *(stacked[p] for p in stacked if p not in writes), *(carried[p] for p in passed_on)]
    elements = _elements(places)
    if len(np.unique(elements)) < len(elements) or _overlap(places, read):
        return None
    # Besides what they get, the calls read and write variables of the graph: these must be others.
    written = {v for v in function.writes if v not in given}
    touched = {variable for tensor in (*places, *read) for variable in source_variables(tensor.source)}
    named = {variable for tensor in places for variable in source_variables(tensor.source)}
    if touched & written or named & set(function.reads):
        return None
    return Calls(function, len(calls), shared, stacked, carried, passed_on, collected)


def group_calls(steps: Sequence[Step]) -> Iterator[Step | Calls]:
    """Steps, those calls together that are one loop."""
    k = 0
    while k < len(steps):
        step, end = steps[k], k + 1
        if isinstance(step, CallStep):
            while end < len(steps):
                following = steps[end]
                if not isinstance(following, CallStep) or following.function is not step.function:
                    break
                end += 1
            own = [call for call in steps[k:end] if isinstance(call, CallStep)]
            calls = _grouped(own) if len(own) >= FEWEST else None
            if calls is not None:
                yield calls
            else:
                yield from own
        else:
            yield step
        k = end
