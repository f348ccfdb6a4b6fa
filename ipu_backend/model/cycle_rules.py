"""Rules for cycles: what one equation takes of one worker, by its primitive.

In comes an equation, out come cycles, or for an elementwise one the loop it is, which joins that of its neighbours
(`body_cycles.py`). The forms are those of `poplibs.py`. Products have a file of their own, `product_cycles.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend import core as jax_core

from ipu_backend.model.equations import Equation, itemsize_of, size_of
from ipu_backend.model.poplibs import (
    CONVERT_CYCLES,
    Loop,
    ceil_div,
    elementwise_loops,
    kind_of,
    loop_of,
    reduce_cycles,
    software_factor,
)

if TYPE_CHECKING:
    from ipu_backend.model.ipu import IPU

THREEFRY_CYCLES = 120
"""For one block of two random words: 20 rounds of five instructions, and the keys (a count, not a measurement)."""

INDEX_CYCLES = 10
"""To compute and clamp one dynamic position: a guess."""

Rule = Callable[[Equation, "IPU"], "int | Loop"]
"""From an equation to the cycles of one worker, or to the loop of an elementwise one."""

cycle_rules: dict[str, Rule] = {}
"""The rule of each JAX primitive, by its name. A rule that returns 0 says that the equation is free."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """What puts a function into the table, as the rule of some primitives."""

    def add(function: Rule) -> Rule:
        cycle_rules.update(dict.fromkeys(primitives, function))
        return function

    return add


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, jax_core.Literal) and not np.any(atom.val)


@rule(*elementwise_loops.keys() - {"cast", "select", "relu", "max"})
def _elementwise(eqn: Equation, ipu: IPU) -> Loop:
    return loop_of(eqn.primitive, eqn.dtype)


@rule("max")
def _maximum(eqn: Equation, ipu: IPU) -> Loop:
    rectifies = kind_of(eqn.dtype) in ("half", "float") and any(map(_is_zero, eqn.operands))
    return loop_of("relu" if rectifies else "max", eqn.dtype)


@rule("select_n")
def _select(eqn: Equation, ipu: IPU) -> Loop:
    return loop_of("select", eqn.results[0].aval.dtype)


@rule("clamp")
def _clamp(eqn: Equation, ipu: IPU) -> Loop:
    once = loop_of("max", eqn.results[0].aval.dtype)
    return once._replace(cycles=2 * once.cycles)


@rule("integer_pow")
def _integer_pow(eqn: Equation, ipu: IPU) -> Loop:
    """Products by squaring: one for each binary digit after the first, and one for each that is set."""
    power, once = abs(eqn.params["y"]), loop_of("mul", eqn.dtype)
    products = max(1, power.bit_length() - 1 + power.bit_count() - 1)
    reciprocal = loop_of("div", eqn.dtype).cycles if eqn.params["y"] < 0 else 0
    return once._replace(cycles=products * once.cycles + reciprocal)


@rule("convert_element_type")
def _convert(eqn: Equation, ipu: IPU) -> Loop | int:
    before, after = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype
    if eqn.converted and before != after:
        return loop_of("cast", np.int32)._replace(cycles=CONVERT_CYCLES)
    if before == after:  # only its weakness changes
        return 0
    floats = {"half", "float"} >= {kind_of(before), kind_of(after)}
    return loop_of("cast", before if floats else np.int32)


@rule(
    *("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "split", "stop_gradient", "copy", "copy_p"),
    *("bitcast_convert_type", "random_wrap", "random_unwrap", "random_seed", "optimization_barrier", "name"),
    *("device_put", "sharding_constraint", "debug_callback", "debug_print", "create_token", "after_all"),
)
def _free(eqn: Equation, ipu: IPU) -> int:
    return 0


@rule("iota", "concatenate", "stack", "pad", "empty", "empty2")
def _moved(eqn: Equation, ipu: IPU) -> int:
    """A fill or copy of the result; each further piece is set up as the first."""
    pieces = max(1, len(eqn.operands) if eqn.primitive in ("concatenate", "stack") else 1)
    return 23 * pieces + ceil_div(eqn.size, eqn.bytes_width(ipu))


@rule("transpose", "rev")
def _rearranged(eqn: Equation, ipu: IPU) -> int:
    """One element after the other, a load and a store each: a guess. Free where the order stays."""
    shape = eqn.operands[0].aval.shape
    moved = eqn.params["permutation" if eqn.primitive == "transpose" else "dimensions"]
    real = [d for d in moved if shape[d] != 1]
    in_order = real == sorted(real) if eqn.primitive == "transpose" else not real
    return 0 if in_order else 17 + 2 * eqn.size


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation, ipu: IPU) -> int:
    return INDEX_CYCLES * (len(eqn.operands) - 1) + 23 + ceil_div(eqn.size, eqn.bytes_width(ipu))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation, ipu: IPU) -> int:
    return INDEX_CYCLES * (len(eqn.operands) - 2) + 23 + ceil_div(size_of(eqn.operands[1]), eqn.bytes_width(ipu))


@rule("gather")
def _gather(eqn: Equation, ipu: IPU) -> int:
    """Each position computed, then its slice copied."""
    indices = eqn.operands[1].aval.shape
    slices = math.prod(indices[:-1])
    return 17 + slices * (INDEX_CYCLES * max(1, indices[-1])) + eqn.size * 2


@rule("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "scatter_min", "scatter_max")
def _scatter(eqn: Equation, ipu: IPU) -> int:
    """Each position computed, then each element of its update loaded, combined and stored."""
    indices, updates = eqn.operands[1].aval.shape, size_of(eqn.operands[2])
    return 17 + math.prod(indices[:-1]) * (INDEX_CYCLES * max(1, indices[-1])) + updates * 3


cycle_rules["scatter-min"] = cycle_rules["scatter-max"] = _scatter


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation, ipu: IPU) -> int:
    """As if what is reduced were neighbours. Integers take 3 cycles to load, combine and go round: a guess."""
    each = size_of(eqn.operands[0]) // max(1, eqn.size)
    cycles = 1 if kind_of(eqn.dtype) in ("half", "float") else 3
    return reduce_cycles(eqn.size, each, eqn.dtype, cycles_per_operation=cycles, vector_bytes=ipu.vector_bytes)


@rule("argmax", "argmin")
def _arg_reduce(eqn: Equation, ipu: IPU) -> int:
    """One element after the other, compared and its position kept: a guess, 4 cycles each."""
    return 17 + 12 * eqn.size + 4 * size_of(eqn.operands[0])


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation, ipu: IPU) -> int:
    """One element after the other: a load, the operation, a store. A guess."""
    cycles = 30 if eqn.primitive == "cumlogsumexp" else 3
    return 17 + cycles * eqn.size * software_factor(eqn.dtype)


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", "select_and_gather_add")
def _reduce_window(eqn: Equation, ipu: IPU) -> int:
    window = math.prod(eqn.params["window_dimensions"])
    return reduce_cycles(eqn.size, window, eqn.dtype, vector_bytes=ipu.vector_bytes)


@rule("select_and_scatter_add")
def _select_and_scatter(eqn: Equation, ipu: IPU) -> int:
    """The gradient of a pooling: each window searched one element after the other, then one added to: a guess."""
    windows = size_of(eqn.operands[0])
    return 17 + windows * (12 + 4 * math.prod(eqn.params["window_dimensions"]) + 3)


@rule("sort", "top_k", "approx_top_k")
def _sort(eqn: Equation, ipu: IPU) -> int:
    """A heap sort of n log2 n steps, 10 cycles for each operand: a guess."""
    shape = eqn.operands[0].aval.shape
    n = shape[eqn.params.get("dimension", -1)]
    steps = size_of(eqn.operands[0]) * max(1, (n - 1).bit_length())
    return 17 + 10 * steps * len(eqn.operands)


@rule("random_bits", "threefry2x32", "random_split", "random_fold_in")
def _random(eqn: Equation, ipu: IPU) -> int:
    """Threefry as JAX computes it, for reproducible numbers; the machine's own generator is not used."""
    per_block = 1 if eqn.primitive in ("random_split", "random_fold_in") else 2
    words = eqn.size * (max(1, itemsize_of(eqn.results[0].aval.dtype) // 4) if per_block == 2 else 1)
    return THREEFRY_CYCLES * ceil_div(words, per_block)


MOVING = {
    *("iota", "concatenate", "stack", "pad", "empty", "empty2", "transpose", "rev", "gather", "scatter"),
    *("dynamic_slice", "dynamic_update_slice"),
}
"""Primitives that move elements without computing with them: what their dtype is does not matter."""
