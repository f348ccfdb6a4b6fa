"""Rules for what a library computes by an algorithm of its own: sorting, linear algebra, transforms, random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ipu_backend.model.costs import FREE, Cost, Mode, ceil_div, sourced
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.dtypes import software_factor
from ipu_backend.model.equations import Equation, itemsize_of, size_of
from ipu_backend.model.poplibs_linear_algebra import (
    cholesky_cycles,
    fft_operations,
    lu_operations,
    qr_cycles,
    shared_solve_cycles,
    svd_operations,
    triangular_solve_cycles,
)
from ipu_backend.model.poplibs_moves import bitonic_sort_cycles, heap_sort_cycles, top_k_cycles
from ipu_backend.model.shared import as_guess, guess_shared, shared, tile_cycles

GAMMA_CYCLES = 2000
"""Of one number of the gamma distribution, drawn and rejected until one is kept: a guess."""

THREEFRY_CYCLES = 120
"""For one block of two random words: 20 rounds of five instructions, and the keys (a count, not a measurement)."""

OPERATION_CYCLES = 4
"""Of one floating-point operation of an algorithm that no library of the machine's has.

A guess: half of a multiply-add in compiled code, which takes 2 operations, 2 loads and 3 to go round.
"""

# --- sorting -------------------------------------------------------------------------------------------


@rule("sort")
def _sort(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' heap or its network, for each line; workers share the lines, or the pairs of each.

    PopLibs sorts one operand, or two of which one follows the other: more are a guess, and so are other dtypes.
    """
    dtype = eqn.operands[0].aval.dtype
    length = eqn.operands[0].aval.shape[eqn.params["dimension"]]
    if length < 2 or not eqn.size:
        return FREE
    count, operands, factor = eqn.size // length, len(eqn.operands), software_factor(eqn.dtype)
    alone = min(heap_sort_cycles(length, operands), bitonic_sort_cycles(length, operands, dtype)[0])
    forms = [shared(mode.share(count) * alone * factor, mode)]
    if mode.workers > 1:
        cycles, sets = bitonic_sort_cycles(length, operands, dtype, mode.workers)
        forms.append(sourced(count * cycles * factor, 19 * count * sets))
    found = min(forms, key=lambda cost: tile_cycles(cost, mode))
    return found if operands <= 2 and factor == 1 else as_guess(found)


@rule("top_k", "approx_top_k")
def _top_k(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' heap for each line."""
    shape = eqn.operands[0].aval.shape
    axis = eqn.params.get("axis", eqn.params.get("reduction_dimension", -1))
    length, k = shape[axis], eqn.params["k"]
    if not eqn.size:
        return FREE
    lines = mode.share(math.prod(shape) // length)
    return shared(lines * top_k_cycles(length, k) * software_factor(eqn.dtype), mode)


# --- linear algebra -------------------------------------------------------------------------------------


def _matrices(eqn: Equation) -> tuple[int, int, int]:
    """How many matrices the first operand is, their rows and columns."""
    *many, rows, columns = eqn.operands[0].aval.shape
    return math.prod(many), rows, columns


@rule("cholesky")
def _cholesky(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' vertex, one for each matrix: its workers share matrices, not one."""
    many, n, _ = _matrices(eqn)
    if not many * n:
        return FREE
    of_tile = cholesky_cycles(n, half=eqn.dtype == np.float16) * software_factor(eqn.dtype)
    each = ceil_div(of_tile, mode.machine.num_workers)
    return shared(mode.share(many) * each, mode)


@rule("triangular_solve")
def _triangular_solve(eqn: Equation, mode: Mode) -> Cost:
    """PopLibs' vertices, for each right side; a transposed matrix is one of the other triangle."""
    many, n, _ = _matrices(eqn)
    sides = size_of(eqn.operands[1]) // max(1, n)
    lower, half = eqn.params["lower"] != bool(eqn.params["transpose_a"]), eqn.dtype == np.float16
    lower = lower if eqn.params["left_side"] else not lower
    if not many * n * sides:
        return FREE
    factor = software_factor(eqn.dtype)
    each = ceil_div(triangular_solve_cycles(n, lower=lower, half=half) * factor, mode.machine.num_workers)
    by_side = shared(mode.share(sides) * each, mode)
    if mode.workers == 1:
        return by_side
    worker, supervisor = (sides * part for part in shared_solve_cycles(n, mode.workers, lower=lower, half=half))
    together = Cost(worker * factor, supervisor)
    return min(by_side, together, key=lambda cost: tile_cycles(cost, mode))


@rule("qr", "geqrf", "geqp3")
def _qr(eqn: Equation, mode: Mode) -> Cost:
    many, rows, columns = _matrices(eqn)
    worker, supervisor = (many * part * software_factor(eqn.dtype) for part in qr_cycles(rows, columns, mode.workers))
    return Cost(worker, supervisor if mode.workers > 1 else 0) + Cost(
        0 if mode.workers > 1 else ceil_div(supervisor, mode.machine.num_workers)
    )


_OPERATIONS: dict[str, Callable[[int, int, bool], int]] = {
    "lu": lambda m, n, _: lu_operations(m, n),
    "lu_pivots_to_permutation": lambda m, n, _: 4 * n,
    "householder_product": lambda m, n, _: 4 * m * n * min(m, n),
    "ormqr": lambda m, n, _: 4 * m * n * min(m, n),
    "symmetric_product": lambda m, n, _: 2 * m * m * n,
    "cholesky_update": lambda m, n, _: 6 * n * n,
    "hessenberg": lambda m, n, _: 10 * n**3 // 3,
    "tridiagonal": lambda m, n, _: 4 * n**3 // 3,
    "eigh": lambda m, n, vectors: 9 * n**3 if vectors else 4 * n**3 // 3,
    "eig": lambda m, n, vectors: 25 * n**3 if vectors else 10 * n**3,
    "schur": lambda m, n, vectors: 25 * n**3 if vectors else 10 * n**3,
    "svd": lambda m, n, vectors: svd_operations(m, n, vectors=vectors),
}
"""Operations of what PopLibs has no estimate of, for a matrix of m by n: with its vectors, or without."""


@rule(*_OPERATIONS)
def _factorization(eqn: Equation, mode: Mode) -> Cost:
    """A bound by its count of operations."""
    shape = eqn.operands[0].aval.shape
    *many, m, n = (1, 1, *shape)
    vectors = len(eqn.results) > 1 or bool(eqn.params.get("compute_uv"))
    operations = math.prod(many) * _OPERATIONS[eqn.primitive](m, n, vectors)
    return guess_shared(17 + mode.share(operations) * OPERATION_CYCLES * software_factor(eqn.dtype), mode)


@rule("tridiagonal_solve")
def _tridiagonal_solve(eqn: Equation, mode: Mode) -> Cost:
    """Thomas' algorithm, 8 operations and a division a row."""
    each = (8 * OPERATION_CYCLES + 10) * software_factor(eqn.dtype)
    return guess_shared(17 + each * mode.share(size_of(eqn.operands[-1])), mode)


@rule("fft")
def _fft(eqn: Equation, mode: Mode) -> Cost:
    """A bound by its count of operations, half of them where one side is real."""
    lengths = eqn.params["fft_lengths"]
    points = math.prod(lengths)
    most = max(eqn.size, size_of(eqn.operands[0]))
    operations = fft_operations(points) * (most // max(1, points))
    real = 2 if "R" in str(getattr(eqn.params["fft_type"], "name", eqn.params["fft_type"])) else 1
    double = 30 if eqn.results[0].aval.dtype in (np.complex128, np.float64) else 1
    return guess_shared(17 + ceil_div(mode.share(operations), real) * OPERATION_CYCLES * double, mode)


# --- random numbers ------------------------------------------------------------------------------------


@rule("random_bits", "threefry2x32", "random_split", "random_fold_in", "rng_bit_generator", "rng_uniform")
def _random(eqn: Equation, mode: Mode) -> Cost:
    """Threefry as JAX computes it, for reproducible numbers; the machine's own generator is not used."""
    results = eqn.results[-1] if eqn.primitive == "rng_bit_generator" else eqn.results[0]
    per_block = 1 if eqn.primitive in ("random_split", "random_fold_in") else 2
    words = size_of(results) * (max(1, itemsize_of(results.aval.dtype) // 4) if per_block == 2 else 1)
    return guess_shared(THREEFRY_CYCLES * mode.share(ceil_div(words, per_block)), mode)


@rule("random_gamma")
def _random_gamma(eqn: Equation, mode: Mode) -> Cost:
    return guess_shared(GAMMA_CYCLES * mode.share(eqn.size), mode)
