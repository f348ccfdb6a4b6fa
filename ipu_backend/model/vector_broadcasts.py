"""What PopLibs' vertices take that combine a matrix with a vector: one number for each row, or a row for all rows.

In come rows and columns, of which workers share the rows, out comes what it takes. Source: PopLibs,
lib/popops/popopsCycleEstimators.cpp @ 82cd24e5 (BroadcastVectorOuterByRow1D; BroadcastVectorInner1D and InPlace), and
for what the latter call an earlier version of the same file (SDK 3.0 or later). To a product with a row the source adds
the constants of two forms; we add those of one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from codelet.tracing.cases import where
from ipu_backend.model.costs import Cost, Mode, sourced
from ipu_backend.model.equations import Equation
from ipu_backend.model.shared import shared

OPERATIONS = {"add": "add", "sub": "add", "mul": "mul", "div": "div"}
"""The operations that have such vertices, by JAX's name, as the one whose form they take."""


def number_to_each_row(rows: int, columns: int, half: bool) -> int:
    """Of sums and products, a number to each row; 18 more a row where rows do not begin at whole vectors.

    >>> number_to_each_row(4, 64, half=False)
    303
    """
    v = 4 if half else 2
    return 15 + rows * (where(columns % v != 0, 25, 7) + 2 * (columns + v - 1) // v)


def _added_row(rows: int, columns: int, half: bool) -> int:
    if not half:
        return 7 + columns * (8 + 2 * rows)
    if columns % 8 == 0 and columns <= 2048:
        turns = columns // 8
        return 5 + 2 + (3 + 7 * turns + 1 if rows == 1 else 4 + turns * (15 + 2 * (rows - 1)) + 1)
    if columns % 4 == 0 and columns <= 2048 and rows >= 2:
        return 9 + 5 + columns // 4 * (7 + 2 * (rows // 2 - 1) + 6 + rows % 2) + 1
    return (3 if columns > 2048 else 7 if rows < 2 else 9) + 5 + columns * (5 + 9 * rows) + 1


def _multiplied_row(rows: int, columns: int, half: bool, in_place: bool) -> int:
    if not half:
        return 7 + columns * (8 + 2 * rows)
    if columns % 4:
        return 3 + 4 + columns * (5 + 9 * rows) + 1
    if in_place or columns > 2044 or rows < 2:
        checks = 5 if columns > 2044 else 7 if rows < 2 else 9
        return checks + 3 + columns // 4 * (7 + 2 * rows) + 1
    return 9 + 3 + columns // 4 * (9 + rows) + 1


def row_to_all_rows(operation: str, rows: int, columns: int, half: bool, *, in_place: bool = False) -> int | None:
    """One row to all rows; None for a division in float16, of which no form is known.

    >>> row_to_all_rows("add", 4, 64, half=False)
    1048
    """
    if rows == 0:
        return 2
    form = OPERATIONS[operation]
    if form == "div":
        if half:
            return None
        odd, again = columns % 2, rows - 1
        return 19 + where(odd, 9 + columns * (9 + 4 * again), 10 + columns // 2 * (11 + 6 * again))
    entry = (19 if half else 17) + 7 * (columns % 2)
    if form == "add":
        return entry + _added_row(rows, columns, half)
    return entry + _multiplied_row(rows, columns, half, in_place)


class MatrixAndVector(NamedTuple):
    """An operation on a matrix and a vector.

    Attributes:
        operation: JAX's name for it.
        rows: of the matrix.
        columns: of the matrix.
        of_row: whether the vector is a row for all rows; else it has a number for each.
        half: whether it is of float16; else of float32.
    """

    operation: str
    rows: int
    columns: int
    of_row: bool
    half: bool

    def cost(self, in_place: bool, mode: Mode) -> Cost | None:
        """What it takes; None where PopLibs has no such vertex, or no form of it is known."""
        own, rows, shares = OPERATIONS[self.operation], mode.share(self.rows), mode.workers > 1
        if not self.of_row:
            return None if own == "div" else shared(number_to_each_row(rows, self.columns, self.half), mode)
        worker = row_to_all_rows(self.operation, rows, self.columns, self.half, in_place=in_place)
        if own == "div":
            ending = 2 if in_place else 5
        else:
            ending = 2 * mode.workers if in_place == (own == "add") else 6 + 3 * mode.workers
        return None if worker is None else sourced(worker, 13 + ending if shares else 0)


def matrix_and_vector(eqn: Equation) -> MatrixAndVector | None:
    """An equation as an operation on a matrix, and on a vector that is repeated; None where it is not that."""
    shape, dtype = eqn.results[0].aval.shape, eqn.results[0].aval.dtype
    if eqn.primitive not in OPERATIONS or dtype not in (np.float16, np.float32) or len(shape) < 2:
        return None
    left, right = (operand.aval.shape for operand in eqn.operands)
    vector = right if left == shape else left if right == shape and eqn.primitive in ("add", "mul") else shape
    columns, rows = shape[-1], math.prod(shape[:-1])
    is_row = vector[-1:] == (columns,) and math.prod(vector) == columns
    is_column = vector == (*shape[:-1], 1)
    if is_row == is_column or rows == 1 or columns == 1:
        return None
    return MatrixAndVector(eqn.primitive, rows, columns, is_row, dtype == np.float16)
