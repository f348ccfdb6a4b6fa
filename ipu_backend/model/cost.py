"""What a vertex of a codelet takes: what its own `cycles=` says, or else what the equations of its jaxpr take."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable, Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.target import VertexCycles
from codelet.tracing.defined_at import defined_at
from codelet.tracing.traced_codelet import TracedCodelet
from ipu_backend.model.body_cycles import JaxprCycles, jaxpr_cycles
from ipu_backend.model.costs import CyclesError, Mode, UnknownCyclesWarning
from ipu_backend.model.interleaved_fields import fields_in_interleaved_memory

if TYPE_CHECKING:
    from ipu_backend.model.machine import Machine


def _said(traced: TracedCodelet, own: Callable[..., int], name: str) -> int:
    """What a user's own function of a codelet's input fields and static values says: a number from 0, rounded up.

    Raises:
        CyclesError: it fails, or returns something else.
    """
    fields = {name: kind.struct() for name, kind in traced.inputs.items()}
    types = ", ".join(f"{name}: {kind}" for name, kind in traced.inputs.items())
    names = ", ".join((*traced.inputs, *traced.static))
    try:
        found = own(**fields, **traced.static)
    except Exception as error:
        raise CyclesError(
            f"the {name} of codelet {traced.name!r} cannot be computed: {type(error).__name__}: {error}",
            given=types,
            expected=f"{name}=lambda {names}: ..., from fields with a shape, a size and a dtype, and static values",
        ) from error
    is_number = isinstance(found, (int, float, np.integer, np.floating)) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or found < 0:
        raise CyclesError(
            f"the {name} of codelet {traced.name!r} are not a number of {name}",
            given=f"{found!r}, for {types}",
            expected="a number from 0",
        )
    return math.ceil(found)


_TOLD: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""Of the code of each codelet's function, or of a codelet of jaxprs, what its user has been told."""


def _tell(traced: TracedCodelet, causes: Iterable[str]) -> None:
    """Warn of what nobody knows of a codelet, at the line that defines it: of each cause once."""
    line = defined_at(traced.codelet)
    where, file, number = "", "codelet", 1
    code = line.code if line is not None and isinstance(line.code, CodeType) else None
    if line is not None and code is not None:
        file, number, where = code.co_filename, line.number, f" ({line.place})"
    told = _TOLD.setdefault(traced.codelet if code is None else code, set())
    for cause in causes:
        if cause not in told:
            told.add(cause)
            warnings.warn_explicit(f"codelet {traced.name!r}{where}: {cause}", UnknownCyclesWarning, file, number)


def _workers(traced: TracedCodelet, machine: Machine) -> int:
    return min(traced.codelet.hints.workers, machine.num_workers)


def _counted(traced: TracedCodelet, machine: Machine) -> JaxprCycles:
    """What the equations of a codelet take."""
    hints = traced.codelet.hints
    turns = _said(traced, own, "trip_count") if callable(own := hints.trip_count) else own
    mode = Mode(machine, _workers(traced, machine), hints.issue == "compiled", hints.vectorised, turns)
    opened = traced.jaxpr.jaxpr
    fields = dict(zip(traced.inputs, opened.invars, strict=True))
    over = [fields.get(name) for name in traced.outputs]
    return jaxpr_cycles(opened, mode, over, supposes=hints.issue is None)


def codelet_cycles(traced: TracedCodelet, machine: Machine) -> VertexCycles:
    """What a vertex of a codelet takes: what it says itself, or else the rules.

    Args:
        traced: for fields whose lengths are known; see `TracedCodelet.at`.
        machine: on what.

    Raises:
        CyclesError: the codelet's own `cycles=` or `trip_count=` fails.
    """
    hints = traced.codelet.hints
    if hints.cycles is not None:
        return VertexCycles(_said(traced, hints.cycles, "cycles"), shared=_workers(traced, machine) > 1)
    cost, if_assembly, mode = _counted(traced, machine)
    if mode.causes:
        _tell(traced, mode.causes)
    other = None if if_assembly is None else if_assembly.counted
    return VertexCycles(cost.worker, cost.supervisor, mode.workers > 1, cost.fitted, cost.guessed, other)


def interleaved_fields(traced: TracedCodelet, machine: Machine) -> tuple[str, ...]:
    """The fields of a codelet that must lie in interleaved memory for what it takes.

    Args:
        traced: for fields whose lengths are known.
        machine: on what.
    """
    if traced.codelet.hints.cycles is not None:
        return ()
    return fields_in_interleaved_memory(traced, _counted(traced, machine).mode)
