"""Cycles of products: matrix products and convolutions, on the vector unit or on the matrix unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ipu_backend.model.costs import Cost, Mode, ceil_div, sourced
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation, itemsize_of
from ipu_backend.model.poplibs import dot_cycles, fill_cycles, matrix_unit, outer_product_cycles


def product_cycles(rows: int, depth: int, columns: int, kernel: int, groups: int, dtype: Any, mode: Mode) -> Cost:
    """A product of (rows, depth) by (depth, columns), `kernel` of them summed, for each of `groups`.

    On the vector unit: a dot product for each result, of which those after the first pay 12 cycles as the
    results of a reduction do (that they do is a guess). On the matrix unit: for each block of weights the
    load of it, 16 bytes a cycle of the tile, and the pass of all rows. The cheaper of the two is taken, as
    PopLibs' planner does; the matrix unit only where both operands have something to share.
    """
    results = groups * rows * columns
    if not results or not depth:
        return sourced(fill_cycles(results, vector_bytes=mode.machine.vector_bytes))
    if depth * kernel == 1 and rows > 1 and columns > 1 and dtype == np.float32:
        return sourced(outer_product_cycles(rows, columns, groups))
    first = dot_cycles(depth * kernel, dtype, vector_bytes=mode.machine.vector_bytes)
    again = first - dot_cycles(0, dtype, vector_bytes=mode.machine.vector_bytes) + 12
    on_vectors = first + (results - 1) * again
    unit = matrix_unit(
        dtype, mode.machine.float16_macs_per_cycle if dtype == np.float16 else mode.machine.float32_macs_per_cycle
    )
    if unit is None or rows == 1 or columns == 1:
        return sourced(on_vectors)
    passes = groups * kernel * ceil_div(depth, unit.inputs) * ceil_div(columns, unit.outputs)
    load = ceil_div(unit.inputs * unit.outputs * itemsize_of(dtype), 16)
    return sourced(min(on_vectors, passes * (7 + load + unit.worker_cycles(rows))))


@rule("dot_general")
def _dot_general(eqn: Equation, mode: Mode) -> Cost:
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left, right = (operand.aval.shape for operand in eqn.operands)
    depth = math.prod(left[d] for d in contracted)
    groups = math.prod(left[d] for d in batch)
    shared = max(1, depth * groups)
    return product_cycles(math.prod(left) // shared, depth, math.prod(right) // shared, 1, groups, eqn.dtype, mode)


@rule("conv_general_dilated")
def _convolution(eqn: Equation, mode: Mode) -> Cost:
    """A product for each position of the kernel, as PopLibs plans it: the rows are the field and the batch."""
    out_features, depth, *kernel = (eqn.operands[1].aval.shape[d] for d in eqn.params["dimension_numbers"].rhs_spec)
    groups = eqn.params["feature_group_count"] * eqn.params["batch_group_count"]
    columns = out_features // groups
    rows = eqn.size // max(1, out_features)
    return product_cycles(rows, depth, columns, math.prod(kernel), groups, eqn.dtype, mode)
