"""Single vertices of `measurements.py`, each alone on a tile of the chip that it was measured on.

In comes an argument, a size or a kind; out come the figures of its profile, by name. A vertex is written as its
source says it is: assembly or compiled, scalar or in vectors, on one worker or on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl

Figures = dict[str, float]
PROGRAMS: dict[str, Callable[[Any], Figures]] = {}
"""Those of `measured_programs.py` as well."""

BOW, MK1, MK2 = cl.IPU("bow"), cl.IPU("mk1"), cl.IPU("mk2")
C600 = cl.IPU("bow", clock_hertz=1.5e9)  # which has the unit for float8
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def program(function: Callable[..., Figures]) -> Callable[..., Figures]:
    """What puts a function among the programs."""
    PROGRAMS[function.__name__] = function
    return function


Fields = Mapping[str, "tuple[tuple[int, ...], Any]"]


def one_tile(chip: cl.IPU) -> cl.IPU:
    return cl.IPU(chip.chip, num_tiles=1, clock_hertz=chip.clock_hertz)


def _alone(function: Callable[..., Any], fields: Fields, chip: cl.IPU = BOW, copies: int = 1, **how: Any) -> Figures:
    """The cycles that a tile computes for, of some vertices of one codelet and nothing else."""
    graph = cl.Graph(one_tile(chip))
    [i] = (cl.grid(copies),)
    views = {
        name: graph.add_variable(name, (copies, *shape), dtype=dtype)[i] for name, (shape, dtype) in fields.items()
    }
    graph.add_vertex("compute", cl.codelet(function, **how), **views, tile=0)
    compute = cl.Engine(graph).profile().compute_cycles
    return {"compute": compute, "compute, mean of tiles": compute}


def _by_all(function: Callable[..., Any], fields: Fields, chip: cl.IPU = BOW, **how: Any) -> Figures:
    return _alone(function, fields, chip, workers=6, **{"issue": "assembly", **how})


def _vectors(dtype: Any, **sizes: int) -> Fields:
    return {name: ((size,), dtype) for name, size in sizes.items()}


@program
def matrix_unit(rows: int) -> Figures:
    """Rows of 16 numbers by a block of 16 by 16 weights."""
    return _by_all(lambda x, w: lax.dot(x, w), {"x": ((rows, 16), F16), "w": ((16, 16), F16)})


@program
def scaled_add(n: int) -> Figures:
    """PopLibs' scaled add, in place."""
    return _by_all(lambda x, y, s: {"x": x + s * y}, {**_vectors(F32, x=n, y=n), "s": ((), F32)})


@program
def add_float(n: int) -> Figures:
    """PopLibs' addition; of 1,024 elements on 4 tiles, each has so many."""
    return _by_all(lambda x, y: x + y, _vectors(F32, x=n, y=n))


@program
def householder_update(n: int) -> Figures:
    """A multiple of a vector taken from a row, in pairs of numbers."""
    fields = {**_vectors(F32, x=n, v=n), "s": ((), F32), "t": ((), F32)}
    return _by_all(lambda x, v, s, t: {"x": x - (s * t) * v}, fields, issue="compiled", vectorised=True)


def _rotated(c: Any, s: Any, p: Any, q: Any) -> dict[str, Any]:
    return {"p_out": c * p - s * q, "q_out": s * p + c * q}


@program
def rotation(n: int) -> Figures:
    """Two rows rotated, in a loop whose bundles were written by hand."""
    return _by_all(lambda c, s, p, q: _rotated(c, s, p, q), {"c": ((), F32), "s": ((), F32), **_vectors(F32, p=n, q=n)})


@program
def jacobi_eigenvectors(n: int) -> Figures:
    """The same, as the compiler made it."""
    fields = {"c": ((), F32), "s": ((), F32), **_vectors(F32, p=n, q=n)}
    return _by_all(lambda c, s, p, q: _rotated(c, s, p, q), fields, issue="compiled", vectorised=True)


def _schur(app: Any, aqq: Any, apq: Any) -> tuple[Any, Any]:
    c, d = 2 * apq, aqq - app
    norm = jnp.sqrt(c * c + d * d)
    t = c / jnp.where(d >= 0, d + norm, d - norm)
    cosine = 1 / jnp.sqrt(1 + t * t)
    return cosine, t * cosine


@program
def schur_of_two(n: int) -> Figures:
    """The rotation that makes a matrix of two rows diagonal, on one worker."""

    def schur(p, q):
        return jnp.stack(_schur(p[3], q[n // 2], p[n // 2]))

    return _alone(schur, _vectors(F32, p=n, q=n), issue="compiled")


@program
def jacobi_first_step(n: int) -> Figures:
    """That rotation, and two columns rotated by it."""

    def step(p, q):
        return _rotated(*_schur(p[3], q[n // 2], p[n // 2]), p, q)

    return _by_all(step, _vectors(F32, p=n, q=n), issue="compiled", vectorised=True)


@program
def correction_vector(n: int) -> Figures:
    """A column without its first numbers, the norm of the rest, and the scale that follows from it."""

    def correct(r, sign):
        v = jnp.where(jnp.arange(n) < 16, 0, r)
        square = jnp.sum(v * v)
        own = r[16] - jnp.sqrt(square) * sign
        return {"v": v, "own": own, "scale": 2 / (square - r[16] * r[16] + own * own)}

    return _by_all(correct, {**_vectors(F32, r=n), "sign": ((), F32)}, issue="compiled", vectorised=True)


@program
def dot_of_workers(n: int) -> Figures:
    """A dot product by six workers, in pairs of numbers."""
    return _by_all(lambda x, y: jnp.dot(x, y), _vectors(F32, x=n, y=n), issue="compiled", vectorised=True)


@program
def tile_copy(n: int) -> Figures:
    """A copy, one number after the other."""
    return _alone(lambda x: x, _vectors(F32, x=n), issue="compiled")


@program
def tridiagonal(n: int) -> Figures:
    """A system of three diagonals solved, by one worker: there by a division and two products a row, back by one."""

    def forward(carry, row):
        before, right = carry
        lower, diagonal, upper, b = row
        w = lower / before
        now = diagonal - w * upper, b - w * right
        return now, now

    def back(x, row):
        diagonal, right, upper = row
        x = (right - upper * x) / diagonal
        return x, x

    def solve(lower, diagonal, upper, b):
        _, (d, r) = lax.scan(forward, (diagonal[0], b[0]), (lower, diagonal, upper, b))
        return lax.scan(back, r[-1] / d[-1], (d, r, upper), reverse=True)[1]

    return _alone(solve, _vectors(F32, lower=n, diagonal=n, upper=n, b=n), issue="compiled")


@program
def cholesky(n: int) -> Figures:
    """A matrix factorised by one vertex."""
    return _alone(lambda a: lax.linalg.cholesky_p.bind(a), {"a": ((n, n), F32)}, issue="assembly")


def _solve(n: int, lower: bool) -> Figures:
    def solve(a, b):
        return lax.linalg.triangular_solve(a, b, left_side=True, lower=lower)

    return _alone(solve, {"a": ((n, n), F32), "b": ((n, 1), F32)}, issue="assembly")


@program
def solve_lower(n: int) -> Figures:
    """A lower triangular system of one right side, by one vertex."""
    return _solve(n, True)


@program
def solve_upper(n: int) -> Figures:
    """An upper triangular system of one right side, by one vertex."""
    return _solve(n, False)


# --- compiled C++ -------------------------------------------------------------------------------------


@program
def transform_4x4(kind: str) -> Figures:
    """2,004 vectors of four numbers, each by one matrix, by six workers."""

    def transform(m, x, y, z, w):
        return {
            name: m[4 * i] * x + m[4 * i + 1] * y + m[4 * i + 2] * z + m[4 * i + 3] * w for i, name in enumerate("abcd")
        }

    fields = {"m": ((16,), F32), **_vectors(F32, x=2004, y=2004, z=2004, w=2004)}
    return _by_all(transform, fields, MK2, issue="compiled", vectorised=kind == "vectorised")


@program
def gaussian_blur(kind: str) -> Figures:
    """Nine neighbours of every number of four channels; on a tile six vertices of 13 by 26 (338.3 were measured)."""
    dtype = F16 if kind.startswith("float16") else F32

    def blur(x):
        nw, n, ne, w, m, e, sw, s, se = (x[i : i + 13, j : j + 26] for i in range(3) for j in range(3))
        return (nw + ne + sw + se) * (1 / 16) + m * (1 / 4) + (e + w + s + n) * (1 / 8)

    return _alone(blur, {"x": ((15, 28, 4), dtype)}, MK1, 6, issue="compiled", vectorised=kind != "float32")


@program
def added_in_place(kind: str) -> Figures:
    """`x[i] += c`, as the compiler makes it, on one worker: what another thousand elements take."""
    dtype = np.dtype(np.int32) if kind == "int32" else F32
    longer, shorter = (
        _alone(lambda x: {"x": x + 1}, {"x": ((n,), dtype)}, MK2, issue="compiled", vectorised=kind != "int32")
        for n in (2000, 1000)
    )
    return {"worker, 2,000 elements less 1,000": (longer["compute"] - shorter["compute"]) / MK2.num_workers}


@program
def quadrature(how: tuple[int, str]) -> Figures:
    """A sum of 4 / (1 + x * x) over so many x, on one worker, which is pi; what compiled it differs."""
    n = how[0]

    def area(first, width):
        def turn(j, total):
            x = (first + j.astype(F32) - 0.5) * width
            return total + 4 / (1 + x * x)

        return lax.fori_loop(0, n, turn, jnp.float32(0))

    return _alone(area, {"first": ((), F32), "width": ((), F32)}, issue="compiled")


# --- kernels written by hand, on a C600 ----------------------------------------------------------------------


@program
def kernel_add(n: int) -> Figures:
    """An addition of float16."""
    return _by_all(lambda x, y: x + y, _vectors(F16, x=n, y=n), C600)


@program
def kernel_gelu(n: int) -> Figures:
    """The activation by a hyperbolic tangent, float16."""
    return _by_all(lambda x: jax.nn.gelu(x), _vectors(F16, x=n), C600)


@program
def kernel_reduction(shape: tuple[int, int]) -> Figures:
    """A sum over partial sums in float16."""
    return _by_all(lambda x: jnp.sum(x, 0, dtype=F16), {"x": (shape, F16)}, C600)


@program
def kernel_layer_norm(n: int) -> Figures:
    """A row less its mean over its deviation, scaled and moved."""

    def normalise(x, scale, offset):
        mean = jnp.mean(x, dtype=F32)
        square = jnp.mean(jnp.square(x), dtype=F32) - mean * mean
        return (x - mean.astype(F16)) * lax.rsqrt(square + 1e-5).astype(F16) * scale + offset

    return _by_all(normalise, _vectors(F16, x=n, scale=n, offset=n), C600)


@program
def kernel_softmax(n: int) -> Figures:
    """Exponentials over their sum, float16."""
    return _by_all(lambda x: jax.nn.softmax(x), _vectors(F16, x=n), C600)


def _product(shape: tuple[int, int, int], dtype: Any) -> Figures:
    rows, depth, columns = shape

    def product(x, w):
        return lax.dot(x, w, preferred_element_type=F16)

    return _by_all(product, {"x": ((rows, depth), dtype), "w": ((depth, columns), dtype)}, C600)


@program
def product_float16(shape: tuple[int, int, int]) -> Figures:
    """Matrices of float16, (rows, summed over, columns)."""
    return _product(shape, F16)


@program
def product_float8(shape: tuple[int, int, int]) -> Figures:
    """Matrices of float8."""
    return _product(shape, jnp.float8_e4m3fn)
