"""Rules for what moves elements without computing with them: copies, slices, gathers and scatters.

These are vertices of PopLibs, or copies of Poplar's own; a compiled codelet moves one element after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.jaxprs.primitives import SCATTERS
from ipu_backend.model.compiled_loops import compiled_loop
from ipu_backend.model.costs import FREE, Cost, Mode, ceil_div, guessed, sourced
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation, size_of
from ipu_backend.model.poplibs_moves import (
    copy_cycles,
    dynamic_slice_cycles,
    fill_cycles,
    iota_cycles,
    itemsize,
    multi_slice_cycles,
    multi_update_cycles,
    permute_cycles,
    transpose_in_pieces,
)
from ipu_backend.model.shared import fit_shared, shared

MOVE = 1 + 1
"""Instructions to move an element: a load and a store."""

INDEX_CYCLES = 10
"""To compute and clamp one more position of an index of several: a guess."""


@rule(
    *("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "split", "stop_gradient", "copy", "copy_p"),
    *("bitcast_convert_type", "random_wrap", "random_unwrap", "random_seed", "optimization_barrier", "name"),
    *("device_put", "sharding_constraint", "debug_callback", "debug_print", "create_token", "after_all"),
    *("empty", "empty2", "tile", "unstack", "platform_index"),
)
def _free(eqn: Equation, mode: Mode) -> Cost:
    return FREE


def _run(shape: Sequence[int], part: Sequence[int]) -> int:
    """Elements of a part of an array that lie side by side in it."""
    run = 1
    for size, own in zip(reversed(shape), reversed(part), strict=True):
        run *= own
        if own != size:
            break
    return run


def _copied(runs: int, run: int, dtype: Any, mode: Mode) -> int:
    """Cycles of the worker with most of a copy: workers share its runs, or the one run."""
    return copy_cycles(1, mode.share(run), dtype) if runs == 1 else copy_cycles(mode.share(runs), run, dtype)


def run_of_view(eqn: Equation) -> int:
    """Elements of the result of an equation that is free which lie side by side in its operand."""
    shape, result = eqn.operands[0].aval.shape, eqn.results[0].aval.shape
    if eqn.primitive == "slice":
        strides = eqn.params["strides"] or (1,) * len(shape)
        strided = [axis for axis, by in enumerate(strides) if by != 1 and result[axis] > 1]
        behind = max(strided, default=-1) + 1
        return min(_run(shape, result), math.prod(result[behind:]))
    if eqn.primitive == "split":
        return _run(shape, result)
    if eqn.primitive == "broadcast_in_dim":
        axes, run = eqn.params["broadcast_dimensions"], 1
        for axis in reversed(range(len(result))):
            if axis not in axes or shape[axes.index(axis)] != result[axis]:
                break
            run *= result[axis]
        return max(1, run)
    return max(1, eqn.size)


def copy_out(value: Any, run: int, *, is_number: bool, mode: Mode) -> Cost:
    """What leaves a vertex as a view of what it reads, in runs: a copy, or a fill of one number."""
    size, dtype = math.prod(value.aval.shape), getattr(value.aval, "dtype", np.dtype(np.float32))
    if size <= 1:
        return sourced(2 * size)
    if mode.compiled:
        return compiled_loop(mode.share(size), 1 if is_number else MOVE, mode)
    if is_number:
        return shared(fill_cycles(mode.share(size), dtype), mode)
    return fit_shared(_copied(ceil_div(size, run), run, dtype, mode), mode)


def _compiled(elements: int, mode: Mode) -> Cost:
    return compiled_loop(mode.share(elements), MOVE, mode)


@rule("iota")
def _iota(eqn: Equation, mode: Mode) -> Cost:
    if mode.compiled:  # to count, and to store
        return compiled_loop(mode.share(eqn.size), 1 + 1, mode)
    return shared(iota_cycles(mode.share(eqn.size)), mode)


@rule("concatenate", "stack")
def _joined(eqn: Equation, mode: Mode) -> Cost:
    """A copy of each piece, in as many runs as it has in the result; pieces of nothing aside."""
    if mode.compiled:
        return _compiled(eqn.size, mode)
    shape = eqn.results[0].aval.shape
    axis = eqn.params["dimension"] if eqn.primitive == "concatenate" else eqn.params.get("axis", 0)
    outer = math.prod(shape[:axis])
    total = 0
    for piece in eqn.operands:
        run = size_of(piece) // max(1, outer)
        total += _copied(outer, run, eqn.results[0].aval.dtype, mode)
    return fit_shared(total, mode)


@rule("pad")
def _pad(eqn: Equation, mode: Mode) -> Cost:
    """A fill of what is padding, and a copy of the rest."""
    if mode.compiled:
        return _compiled(eqn.size, mode)
    before, after = (own.aval.shape for own in (eqn.operands[0], eqn.results[0]))
    dtype = eqn.results[0].aval.dtype
    apart = [config[2] for config in eqn.params["padding_config"]]
    run = _run(after, before) if not any(apart) else 1
    held = size_of(eqn.operands[0])
    padding = mode.share(max(0, eqn.size - held))
    copied = _copied(held // max(1, run), run, dtype, mode) if held else 0
    return fit_shared(fill_cycles(padding, dtype) + copied, mode)


@rule("transpose")
def _transpose(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' vertex where whole matrices are transposed; else by the bytes that stay together. Free in order."""
    shape, dtype = eqn.operands[0].aval.shape, eqn.results[0].aval.dtype
    moved = [axis for axis in eqn.params["permutation"] if shape[axis] != 1]
    axes = sorted(moved)
    if moved == axes or not eqn.size:
        return FREE
    if mode.compiled:
        return _compiled(eqn.size, mode)
    kept = next(k for k in range(len(axes)) if moved[k] != axes[k])
    matrices, inner = math.prod(shape[axis] for axis in axes[:kept]), axes[kept:]
    turned = moved[kept:]
    cut = inner.index(turned[0])
    if turned == inner[cut:] + inner[:cut]:
        rows, columns = (math.prod(shape[axis] for axis in part) for part in (inner[:cut], inner[cut:]))
        if itemsize(dtype) in (2, 4):
            by_matrix = transpose_in_pieces(mode.share(matrices), rows, columns, dtype)
            by_rows = transpose_in_pieces(matrices, mode.share(rows), columns, dtype)
            return shared(min(by_matrix, by_rows), mode)
    together = _tail(moved, axes, shape)
    return shared(permute_cycles(mode.share(eqn.size), together, dtype), mode)


def _tail(moved: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> int:
    """Elements that stay neighbours: of the last axes, which do not move."""
    together = 1
    for own, axis in zip(reversed(moved), reversed(axes), strict=True):
        if own != axis:
            break
        together *= shape[axis]
    return together


@rule("rev")
def _reversed(eqn: Equation, mode: Mode) -> Cost:
    """A copy with a stride: of single elements where the last axis is reversed."""
    shape, turned = eqn.operands[0].aval.shape, eqn.params["dimensions"]
    last = max((axis for axis in turned if shape[axis] != 1), default=None)
    if last is None or not eqn.size:
        return FREE
    if mode.compiled:
        return _compiled(eqn.size, mode)
    run = math.prod(shape[last + 1 :])
    return fit_shared(_copied(eqn.size // run, run, eqn.results[0].aval.dtype, mode), mode)


# --- positions that are known late ----------------------------------------------------------------------


def _sliced(eqn: Equation, whole: Sequence[int], part: Sequence[int], mode: Mode) -> Cost:
    """`DynamicSlice1D`: the runs of a part of an array. Workers share each run; or the runs, where these are short."""
    count, dtype = math.prod(part), eqn.results[0].aval.dtype
    if not count:
        return FREE
    if mode.compiled:
        return _compiled(count, mode) + guessed(INDEX_CYCLES * len(part))
    run = _run(whole, part)
    runs = count // run
    forms = [dynamic_slice_cycles(runs, mode.share(run), dtype), dynamic_slice_cycles(mode.share(runs), run, dtype)]
    found = shared(min(forms), mode)
    return Cost(found.worker, found.supervisor + (14 if mode.workers > 1 else 0))


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation, mode: Mode) -> Cost:
    return _sliced(eqn, eqn.operands[0].aval.shape, eqn.results[0].aval.shape, mode)


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation, mode: Mode) -> Cost:
    """Its update alone: as if the array it updates were never needed again."""
    return _sliced(eqn, eqn.operands[0].aval.shape, eqn.operands[1].aval.shape, mode)


def _rows(table: Sequence[int], indices: Sequence[int], elements: int, part: Sequence[int]) -> tuple[int, int, int]:
    """Runs of a table that are looked up, how long they are, and cycles to compute their positions."""
    slices = math.prod(indices[:-1])
    run = max(1, _run(table, part))
    return elements // run, run, slices * INDEX_CYCLES * max(0, indices[-1] - 1)


def _compiled_rows(elements: int, turn: int, offsets: int, positions: int, mode: Mode) -> Cost:
    """A compiled loop over the elements of rows of a table, each row's position computed first."""
    index = (INDEX_CYCLES + positions // max(1, offsets)) * mode.share(offsets)
    return compiled_loop(mode.share(elements), turn, mode) + guessed(index)


@rule("gather")
def _gather(eqn: Equation, mode: Mode) -> Cost:
    """`multiSlice` of each run of each slice: a run is a row of a table."""
    if not eqn.size:
        return FREE
    table, indices = (own.aval.shape for own in eqn.operands)
    offsets, run, positions = _rows(table, indices, eqn.size, eqn.params["slice_sizes"])
    if mode.compiled:
        return _compiled_rows(eqn.size, MOVE, offsets, positions, mode)
    worker = multi_slice_cycles(offsets, run, eqn.results[0].aval.dtype)
    return Cost(worker + positions, guessed=positions)


@rule(*SCATTERS)
def _scatter(eqn: Equation, mode: Mode) -> Cost:
    """`multiUpdate`, or with an operation `multiUpdateAdd`, of each run of each update."""
    table, indices, updates = (own.aval.shape for own in eqn.operands[:3])
    elements = math.prod(updates)
    if not elements:
        return FREE
    numbers = eqn.params["dimension_numbers"]
    sizes = [updates[axis] for axis in numbers.update_window_dims]
    one = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    part = [1 if axis in one else sizes.pop(0) for axis in range(len(table))]
    offsets, run, positions = _rows(table, indices, elements, part)
    dtype = eqn.results[0].aval.dtype
    if mode.compiled:
        turn = MOVE + (0 if eqn.primitive == "scatter" else 2)  # what it is added to is loaded too
        return _compiled_rows(elements, turn, offsets, positions, mode)
    if eqn.primitive == "scatter":
        worker = multi_slice_cycles(offsets, run, dtype, update=True)
    else:
        worker = multi_update_cycles(offsets, run, dtype)
    return Cost(worker + positions, guessed=positions)
