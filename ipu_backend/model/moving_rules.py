"""Rules for what moves elements without computing with them: copies, slices, gathers and scatters."""

from __future__ import annotations

import math

from ipu_backend.model.costs import FREE, Cost, Mode, ceil_div, guessed
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation, size_of

INDEX_CYCLES = 10
"""To compute and clamp one dynamic position: a guess."""


@rule(
    *("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "split", "stop_gradient", "copy", "copy_p"),
    *("bitcast_convert_type", "random_wrap", "random_unwrap", "random_seed", "optimization_barrier", "name"),
    *("device_put", "sharding_constraint", "debug_callback", "debug_print", "create_token", "after_all"),
)
def _free(eqn: Equation, mode: Mode) -> Cost:
    return FREE


@rule("iota", "concatenate", "stack", "pad", "empty", "empty2")
def _moved(eqn: Equation, mode: Mode) -> Cost:
    """A fill or copy of the result; each further piece is set up as the first."""
    pieces = max(1, len(eqn.operands) if eqn.primitive in ("concatenate", "stack") else 1)
    return guessed(23 * pieces + ceil_div(eqn.size, eqn.bytes_width(mode.machine)))


@rule("transpose", "rev")
def _rearranged(eqn: Equation, mode: Mode) -> Cost:
    """One element after the other, a load and a store each: a guess. Free where the order stays."""
    shape = eqn.operands[0].aval.shape
    moved = eqn.params["permutation" if eqn.primitive == "transpose" else "dimensions"]
    real = [d for d in moved if shape[d] != 1]
    in_order = real == sorted(real) if eqn.primitive == "transpose" else not real
    return FREE if in_order else guessed(17 + 2 * eqn.size)


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation, mode: Mode) -> Cost:
    return guessed(INDEX_CYCLES * (len(eqn.operands) - 1) + 23 + ceil_div(eqn.size, eqn.bytes_width(mode.machine)))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation, mode: Mode) -> Cost:
    return guessed(
        INDEX_CYCLES * (len(eqn.operands) - 2) + 23 + ceil_div(size_of(eqn.operands[1]), eqn.bytes_width(mode.machine))
    )


@rule("gather")
def _gather(eqn: Equation, mode: Mode) -> Cost:
    """Each position computed, then its slice copied."""
    indices = eqn.operands[1].aval.shape
    slices = math.prod(indices[:-1])
    return guessed(17 + slices * (INDEX_CYCLES * max(1, indices[-1])) + eqn.size * 2)


@rule(
    "scatter",
    "scatter-add",
    "scatter_add",
    "scatter-mul",
    "scatter_mul",
    "scatter_min",
    "scatter_max",
    "scatter-min",
    "scatter-max",
)
def _scatter(eqn: Equation, mode: Mode) -> Cost:
    """Each position computed, then each element of its update loaded, combined and stored."""
    indices, updates = eqn.operands[1].aval.shape, size_of(eqn.operands[2])
    return guessed(17 + math.prod(indices[:-1]) * (INDEX_CYCLES * max(1, indices[-1])) + updates * 3)
