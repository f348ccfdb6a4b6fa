"""Cycles of a vertex of a codelet: what its own `cycles=` says, or else what the equations of its jaxpr take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from codelet.errors import CodeletError
from codelet.tracing.codelets import TracedCodelet
from ipu_backend.model.body_cycles import jaxpr_cycles

if TYPE_CHECKING:
    from ipu_backend.model.ipu import IPU


class CyclesError(CodeletError):
    """A codelet's own `cycles=` that fails, or returns something else than a number of cycles."""


def own_cycles(traced: TracedCodelet) -> int:
    """What a codelet's own `cycles=` says, of its input fields and static values.

    Raises:
        CyclesError: it fails, or returns something else than a number from 0.
    """
    assert traced.codelet.cycles is not None
    fields = {name: kind.struct() for name, kind in traced.inputs.items()}
    types = ", ".join(f"{name}: {kind}" for name, kind in traced.inputs.items())
    names = ", ".join((*traced.inputs, *traced.static))
    try:
        found = traced.codelet.cycles(**fields, **traced.static)
    except Exception as error:
        raise CyclesError(
            f"the cycles of codelet {traced.name!r} cannot be computed: {type(error).__name__}: {error}",
            given=types,
            expected=f"cycles=lambda {names}: ..., from fields with a shape, a size and a dtype, and static values",
        ) from error
    is_number = isinstance(found, (int, float, np.integer, np.floating)) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or found < 0:
        raise CyclesError(
            f"the cycles of codelet {traced.name!r} are not a number of cycles",
            given=f"{found!r}, for {types}",
            expected="a number from 0",
        )
    return math.ceil(found)


def codelet_cycles(traced: TracedCodelet, ipu: IPU) -> int:
    """Cycles of one worker for a vertex of a codelet: what it says itself, or else the rules.

    Args:
        traced: for fields whose lengths are known; see `TracedCodelet.at`.
        ipu: the machine.

    Raises:
        CyclesError: the codelet's own `cycles=` fails.
    """
    if traced.codelet.cycles is not None:
        return own_cycles(traced)
    return jaxpr_cycles(traced.jaxpr, ipu)
