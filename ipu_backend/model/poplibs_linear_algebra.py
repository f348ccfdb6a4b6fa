"""PopLibs' forms for linear algebra, and where it has none counts of operations.

In come sizes; out come cycles, or floating-point operations. The polynomials are of a tile on which one worker runs, as
it was measured: a worker's cycles are a sixth. (`TriangularSolve` at 64 takes 17,538 cycles; what PopLibs says of the
same with all workers, 12,549, would else be eight times faster than with one.)

Sources: PopLibs, lib/poplin/poplinCycleEstimators.cpp @ f9d7e152, whose polynomials interpolate what Graphcore measured
on hardware. Counts of operations: Golub and Van Loan, "Matrix Computations"; each is the leading term alone.
"""

from __future__ import annotations

from ipu_backend.model.costs import ceil_div

# --- PopLibs' vertices -----------------------------------------------------------------------------------


def cholesky_cycles(n: int, *, half: bool = False) -> int:
    """`Cholesky` of a matrix of n by n: of the tile.

    >>> cholesky_cycles(64)
    686502
    """
    if half:
        return n**3 // 2 + 795 * n**2 // 4 + 191 * n // 2 + 426
    return n**3 + 102 * n**2 + 101 * n + 102


def triangular_solve_cycles(n: int, *, lower: bool, half: bool = False) -> int:
    """`TriangularSolve` of n equations, one right side: of the tile."""
    if lower:
        found = 3 * n**2 // 4 + 318 * n - 150 if half else 3 * n**2 // 2 + 180 * n - 126
    else:
        found = 135 * n**2 // 16 + 1089 * n // 4 + 12 if half else 27 * n**2 // 4 + 327 * n // 2 + 54
    return found


def shared_solve_cycles(n: int, workers: int, *, lower: bool, half: bool = False) -> tuple[int, int]:
    """`TriangularSolveMultiWorker`, one right side: of each worker, and of the supervisor.

    Blocks of four rows; fewer rows are one block.
    """
    blocks, more = max(1, n // 4), max(0, n - 4)
    rate, each = ((17, 4), 112 if lower else 145) if half else ((11 if lower else 10, 2), 74 if lower else 99)
    worker = blocks * (rate[0] * more // (rate[1] * workers) + each)
    return worker, 9 * blocks + 21 if lower else 6 * blocks + 42


def qr_cycles(rows: int, columns: int, workers: int) -> tuple[int, int]:
    """Householder's QR by PopLibs' vertices: of each worker, and of the supervisor.

    For each column `PartialSquareElements` and `Householder` of what is below it, then `Update` of the rows of both
    factors. How these follow one another on one tile is our reading.
    """
    worker = supervisor = 0
    for column in range(min(rows - 1, columns)):
        n = rows - column
        worker += 41 + 47 + 10 * ceil_div(n, workers)
        of_row = 76 + 7 * ceil_div(max(0, n - 16), workers) if workers > 1 else 76 + 7 * max(0, n - 16)
        worker += ceil_div(rows + columns - column, workers) * of_row
        supervisor += 80
    return worker, supervisor


# --- counts of operations -------------------------------------------------------------------------------


def lu_operations(rows: int, columns: int) -> int:
    """LU with partial pivoting: two thirds of n cubed for a square matrix."""
    least, most = min(rows, columns), max(rows, columns)
    return least**2 * (3 * most - least) // 3


def svd_operations(rows: int, columns: int, *, vectors: bool) -> int:
    """Golub and Kahan's SVD; with the vectors by Golub and Reinsch."""
    least, most = min(rows, columns), max(rows, columns)
    return 14 * most * least**2 + 8 * least**3 if vectors else 4 * most * least**2 - 4 * least**3 // 3


def fft_operations(n: int) -> int:
    """Cooley and Tukey's transform of n complex numbers: 5 n log2 n.

    >>> fft_operations(8)
    120
    """
    return 5 * n * max(1, (n - 1).bit_length())
