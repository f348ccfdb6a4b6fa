"""Dataflow: which variables every step reads and writes, and which elements are written when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from codelet.index import Axis, Index
from codelet.tensor import Tensor, Variable, source_variables
from lowering.plan import CopyStep, ExecuteStep, Plan, RotateStep, Step


def _ordered(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    return tuple(sorted(set(variables), key=lambda variable: variable.number))


def flow_step(step: Step) -> Step:
    """A step with its reads and writes filled in, those of a body included."""
    if isinstance(step, ExecuteStep):
        connected = [(f, f.tensor.source) for family in step.families for f in family.fields if f.tensor is not None]
        reads = [variable for f, source in connected if f.is_read for variable in source_variables(source)]
        writes = [variable for f, source in connected if f.is_written for variable in source_variables(source)]
        return replace(step, reads=_ordered(reads), writes=_ordered(writes))
    if isinstance(step, CopyStep):
        return replace(
            step, reads=source_variables(step.source.source), writes=source_variables(step.destination.source)
        )
    if isinstance(step, RotateStep):
        return step
    body = tuple(map(flow_step, step.body))
    counted = [] if step.index is None else [step.index]
    reads = _ordered(variable for part in body for variable in part.reads)
    writes = _ordered([variable for part in body for variable in part.writes] + counted)
    return replace(step, body=body, reads=reads, writes=writes)


def flow(plan: Plan) -> Plan:
    """The plan with reads and writes of every step, in order."""
    seen: dict[int, Step] = {}
    for step in plan.steps:
        seen.setdefault(id(step), flow_step(step))
    return replace(plan, steps=tuple(seen[id(step)] for step in plan.steps))


# --- elements -----------------------------------------------------------------------------------------


class ElementSet:
    """A set of elements of the graph, as one flag for each element of each variable that has any."""

    def __init__(self) -> None:
        self._flags: dict[Variable, np.ndarray | bool] = {}  # True alone stands for all of a variable

    def copy(self) -> ElementSet:
        """A set with the same elements."""
        made = ElementSet()
        made._flags = {v: flags if flags is True else flags.copy() for v, flags in self._flags.items()}  # type: ignore[union-attr]
        return made

    def add_variable(self, variable: Variable) -> None:
        """Add all elements of a variable."""
        self._flags[variable] = True

    def add(self, tensor: Tensor, axes: tuple[Axis, ...]) -> None:
        """Add the elements of a view at all positions of the grid."""
        if isinstance(tensor.source, Variable):
            variable = tensor.source
            flags = self._flags.get(variable, False)
            if flags is True:
                return
            if flags is False:
                flags = np.zeros(variable.size, bool)
            assert isinstance(flags, np.ndarray)
            _mark(flags, tensor.index, axes)
            self._flags[variable] = True if flags.all() else flags
            return
        marked = np.zeros(tensor.source.size, bool)
        _mark(marked, tensor.index, axes)
        for part, box in tensor.source.regions():
            chosen = marked.reshape(tensor.source.shape)[box]
            if chosen.all():
                self.add(part, ())
            elif chosen.any():
                self.add(part.flatten()[np.flatnonzero(chosen)], ())

    def first_missing(self, tensor: Tensor, axes: tuple[Axis, ...]) -> int | None:
        """The graph's number of an element of a view that is not in the set; None when all are."""
        flags = [self._flags.get(variable, False) for variable in source_variables(tensor.source)]
        if all(flag is True for flag in flags):
            return None
        needed = ElementSet()
        needed.add(tensor, axes)
        for variable, wanted in needed._flags.items():
            have = self._flags.get(variable, False)
            if have is True:
                continue
            missing = np.broadcast_to(wanted, variable.size) & ~np.broadcast_to(have, variable.size)
            if missing.any():
                return variable.first_element + int(np.argmax(missing))
        return None


def _mark(flags: np.ndarray, index: Index, axes: tuple[Axis, ...]) -> None:
    """Set the flags an index names, at all positions of the grid."""
    keys = index.keys
    if 0 in index.shape or any(axis.extent == 0 for axis in axes):
        return
    if index.tables:
        flags[index.values_over(keys)] = True
        return
    index.strided_view(flags, keys)[...] = True
