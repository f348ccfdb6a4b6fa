"""Rules for reductions, running sums and pooling."""

from __future__ import annotations

import math

from ipu_backend.model.costs import Cost, Mode, guessed, sourced
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation, size_of
from ipu_backend.model.dtypes import kind_of, software_factor
from ipu_backend.model.poplibs import reduce_cycles


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation, mode: Mode) -> Cost:
    """As if what is reduced were neighbours. Integers take 3 cycles to load, combine and go round: a guess."""
    each = size_of(eqn.operands[0]) // max(1, eqn.size)
    cycles = 1 if kind_of(eqn.dtype) in ("half", "float") else 3
    return sourced(
        reduce_cycles(eqn.size, each, eqn.dtype, cycles_per_operation=cycles, vector_bytes=mode.machine.vector_bytes)
    )


@rule("argmax", "argmin")
def _arg_reduce(eqn: Equation, mode: Mode) -> Cost:
    """One element after the other, compared and its position kept: a guess, 4 cycles each."""
    return guessed(17 + 12 * eqn.size + 4 * size_of(eqn.operands[0]))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation, mode: Mode) -> Cost:
    """One element after the other: a load, the operation, a store. A guess."""
    cycles = 30 if eqn.primitive == "cumlogsumexp" else 3
    return guessed(17 + cycles * eqn.size * software_factor(eqn.dtype))


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", "select_and_gather_add")
def _reduce_window(eqn: Equation, mode: Mode) -> Cost:
    window = math.prod(eqn.params["window_dimensions"])
    return sourced(reduce_cycles(eqn.size, window, eqn.dtype, vector_bytes=mode.machine.vector_bytes))


@rule("select_and_scatter_add")
def _select_and_scatter(eqn: Equation, mode: Mode) -> Cost:
    """The gradient of a pooling: each window searched one element after the other, then one added to: a guess."""
    windows = size_of(eqn.operands[0])
    return guessed(17 + windows * (12 + 4 * math.prod(eqn.params["window_dimensions"]) + 3))
