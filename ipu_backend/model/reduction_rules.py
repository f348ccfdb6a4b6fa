"""Rules for reductions by the axes that they are along, for prefix sums, positions of extrema, and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codelet.tracing.cases import least, where
from ipu_backend.model.compiled_loops import RESULT_CYCLES, compiled_loop, in_turns, turn_overhead
from ipu_backend.model.costs import FREE, Cost, Mode, ceil_div, sourced
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.dtypes import software_factor, vector_width
from ipu_backend.model.equations import Equation, size_of
from ipu_backend.model.poplibs_moves import arg_reduce_cycles, fill_cycles
from ipu_backend.model.poplibs_reductions import (
    histogram_cycles,
    pooling_cycles,
    reduce_continuous_cycles,
    reduce_logical_cycles,
    reduce_strided_cycles,
    reduce_to_one_cycles,
)
from ipu_backend.model.shared import as_guess, cheapest, guess_shared, shared

Runs = list[tuple[bool, int]]
"""Neighbouring axes of one array, all reduced or all kept: which, and how many elements. Of one element, none."""


def _runs(shape: Sequence[int], axes: Sequence[int]) -> Runs:
    found: Runs = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if found and found[-1][0] == (axis in axes):
            found[-1] = (found[-1][0], found[-1][1] * size)
        else:
            found.append((axis in axes, size))
    return found


def _kept(runs: Runs) -> int:
    return math.prod(size for reduced, size in runs if not reduced)


def _cut(runs: Runs, which: bool, parts: int, vector: int = 1) -> Runs:
    """One of as many parts, cut along the longest run of those that are reduced, or of the others.

    A run of whole vectors is cut between them, as PopLibs' reductions are (lib/popops/reduction, their grain).
    """
    longest = max((k for k, run in enumerate(runs) if run[0] == which), key=lambda k: runs[k][1], default=None)
    if longest is None:
        return runs
    size = runs[longest][1]
    part = where(size % vector == 0, ceil_div(size // vector, parts) * vector, ceil_div(size, parts))
    return [(which, part) if k == longest else own for k, own in enumerate(runs)]


def _reduced(runs: Runs, eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' vertices: one for each run that is reduced, the last run first."""
    dtype, out, wide = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype, mode.machine.vector_bytes
    is_sum, is_logical = eqn.primitive == "reduce_sum", dtype == np.bool_
    runs, total = list(runs), 0
    while any(reduced for reduced, _ in runs):
        last = max(k for k, (reduced, _) in enumerate(runs) if reduced)
        each, inner = runs.pop(last)[1], runs[last:]
        outer, outputs = math.prod(size for _, size in runs[:last]), _kept(inner)
        if is_logical:
            region = (1, each) if not inner else (each, outputs)
            total += reduce_logical_cycles(outer, *region)
        elif inner:
            total += outer * reduce_strided_cycles(outputs, each, dtype, out, is_sum=is_sum, vector_bytes=wide)
        elif outer == 1:
            total += reduce_to_one_cycles(each, dtype, out, is_sum=is_sum, vector_bytes=wide)
        else:
            total += reduce_continuous_cycles(outer, each, dtype, wide)
        dtype = out
    return shared(total, mode)


def _by_elements(runs: Runs, eqn: Equation, mode: Mode) -> Cost:
    """A worker's loop for each result, over what is reduced to it."""
    before, after = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype
    each = math.prod(size for reduced, size in runs if reduced)
    turns = in_turns(each, vector_width(eqn.dtype, mode.machine.vector_bytes), mode)
    arithmetic = 1 + (before != after) + bool(eqn.params.get("squared"))
    return compiled_loop(_kept(runs) * turns, arithmetic * software_factor(eqn.dtype) + 1, mode, results=_kept(runs))


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' vertices by which axes are reduced; what these have no form for, as compiled.

    Workers share the results; or what is reduced, after which one of them reduces what they have found. What takes
    less is taken.
    """
    shape = eqn.operands[0].aval.shape
    runs, results = _runs(shape, eqn.params["axes"]), eqn.size
    if not results or (0 not in shape and not any(reduced for reduced, _ in runs)):
        return FREE
    if 0 in shape:
        return shared(fill_cycles(mode.share(results), eqn.results[0].aval.dtype), mode)
    bits = eqn.primitive in ("reduce_and", "reduce_or", "reduce_xor")
    logical = eqn.dtype == np.bool_ and eqn.primitive != "reduce_xor"
    has_form = not bits or logical
    by_library = has_form and not mode.compiled and software_factor(eqn.dtype) == 1
    cost_of = _reduced if by_library else _by_elements
    strided = bool(runs) and not runs[-1][0]  # then a vector of results is reduced at a time
    vector = vector_width(eqn.dtype, mode.machine.vector_bytes) if by_library and strided else 1
    forms = [cost_of(_cut(runs, False, mode.workers, vector), eqn, mode)]
    if mode.workers > 1:
        found: Runs = [(True, mode.workers), *([(False, results)] if results > 1 else [])]
        forms.append(cost_of(_cut(runs, True, mode.workers), eqn, mode) + cost_of(found, eqn, mode))
        forms = forms[1:] if results == 1 else forms
    best = cheapest(forms, mode)
    return best if by_library or (has_form and mode.compiled) else as_guess(best)


@rule("reduce")
def _reduce_by(eqn: Equation, mode: Mode) -> Cost:
    """By a function of the user's: a bound, 10 cycles an equation and element."""
    operations = sum(len(jaxpr.eqns) for jaxpr in eqn.jaxprs)
    elements = mode.share(size_of(eqn.operands[0]))
    return guess_shared(17 + RESULT_CYCLES * mode.share(eqn.size) + elements * (5 + 10 * operations), mode)


@rule("histogram")
def _histogram(eqn: Equation, mode: Mode) -> Cost:
    """`Histogram1D`, whose workers share the limits; or compiled a loop over the data for each limit."""
    data, limits = map(size_of, eqn.operands)
    share = mode.share(limits)
    if mode.compiled:  # compare, and count
        return compiled_loop(share * data, (2 + 1) * software_factor(eqn.dtype), mode, results=share)
    return sourced(histogram_cycles(share, limits, data, eqn.dtype))


@rule("argmax", "argmin")
def _arg_reduce(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' `ReduceMaxClassGather` for each result; then `ReduceMaxClassSparse` of what workers have found."""
    dtype, results = eqn.operands[0].aval.dtype, eqn.size
    each = size_of(eqn.operands[0]) // max(1, results)
    if not results:
        return FREE
    if mode.compiled:  # compare, and choose both of two
        turn = 2 * software_factor(dtype) + 1
        own = mode.share(results)
        alone = compiled_loop(own * each, turn, mode, results=own)
        if mode.workers == 1:
            return alone
        parts = compiled_loop(results * mode.share(each), turn, mode, results=results)
        parts += compiled_loop(results * mode.workers, turn, mode, results=results)
        return cheapest((alone, parts), mode)
    one_by_one = mode.share(results) * arg_reduce_cycles(each, dtype)
    if mode.workers == 1:
        return shared(one_by_one, mode)
    together = results * (arg_reduce_cycles(mode.share(each), dtype) + 27 + 3 * (mode.workers - 1))
    return Cost(least(one_by_one, together), 9)


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation, mode: Mode) -> Cost:
    """One element after another: a load, the operation, a store. A guess: PopLibs has none.

    Workers share the lines; or one line, which takes a second pass to add what came before.
    """
    if not eqn.size:
        return FREE
    length = eqn.operands[0].aval.shape[eqn.params["axis"]]
    operation = (27 if eqn.primitive == "cumlogsumexp" else 1) * software_factor(eqn.dtype)
    turn = operation + 2 + (turn_overhead(mode, stores=True) if mode.compiled else 0)
    elements = mode.share(eqn.size // length) * length
    if mode.workers > 2:
        elements = least(elements, 2 * mode.share(eqn.size))
    return guess_shared(17 + turn * elements, mode)


# --- pooling -------------------------------------------------------------------------------------------


def _pooled(eqn: Equation, shape: Sequence[int], mode: Mode, *, is_sum: bool, backward: bool = False) -> Cost:
    """Pooling to results of a shape: lines of them along the last axis that has a window.

    Channels are the axes behind those that have one; or where there are none the axis before them, since PopLibs
    groups channels in memory wherever JAX has them.
    """
    window = eqn.params["window_dimensions"]
    if not math.prod(shape):
        return FREE
    along = [axis for axis, size in enumerate(window) if size > 1] or [len(shape) - 1]
    behind = list(range(along[-1] + 1, len(shape)))
    channels = behind if math.prod(shape[axis] for axis in behind) > 1 else [max(0, along[0] - 1)]
    channels = [axis for axis in channels if axis not in along]
    count = math.prod(shape[axis] for axis in channels)
    width, positions = shape[along[-1]], math.prod(window)
    lines = math.prod(shape) // (count * width)
    if mode.compiled:
        results = mode.share(math.prod(shape))
        return compiled_loop(results * positions, 1 + 1 + (2 if backward else 0), mode, results=results)
    several = lines >= mode.workers
    lines, width = where(several, mode.share(lines), 1), where(several, width, mode.share(lines * width))
    dtype = eqn.operands[0].aval.dtype
    vectors = ceil_div(count, vector_width(dtype, mode.machine.vector_bytes))
    worker = pooling_cycles(lines, width, vectors, positions, is_sum=is_sum, backward=backward)
    return Cost(worker * software_factor(dtype), 7 + 6 if mode.workers > 1 else 0)


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _reduce_window(eqn: Equation, mode: Mode) -> Cost:
    return _pooled(eqn, eqn.results[0].aval.shape, mode, is_sum=eqn.primitive == "reduce_window_sum")


@rule("select_and_gather_add")
def _select_and_gather(eqn: Equation, mode: Mode) -> Cost:
    """A pooling that takes what lies where the extremum does: a guess, as long as its gradient."""
    found = _pooled(eqn, eqn.results[0].aval.shape, mode, is_sum=False, backward=True)
    return as_guess(found)


@rule("select_and_scatter_add", "select_and_scatter")
def _select_and_scatter(eqn: Equation, mode: Mode) -> Cost:
    """The gradient of a pooling, of which the windows are the first operand's elements."""
    return _pooled(eqn, eqn.operands[0].aval.shape, mode, is_sum=False, backward=True)


@rule("reduce_window")
def _reduce_window_by(eqn: Equation, mode: Mode) -> Cost:
    """By a function of the user's: a bound, 10 cycles an equation and element of a window."""
    operations = sum(len(jaxpr.eqns) for jaxpr in eqn.jaxprs)
    elements = mode.share(eqn.size) * math.prod(eqn.params["window_dimensions"])
    return guess_shared(17 + RESULT_CYCLES * mode.share(eqn.size) + elements * (5 + 10 * operations), mode)
