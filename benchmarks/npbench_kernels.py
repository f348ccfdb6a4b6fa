"""Kernels of the NPBench suite in plain JAX, as one who knows JAX writes them, and how their arguments are drawn.

Each is written from its mathematics. Loops that depend on what they made before are `lax.scan` and `lax.fori_loop`,
all else is whole arrays. `KERNELS` has them by name, each at three sizes: `""`, at which plain JAX takes 1 to 100 ms on
one core; `odd`, as large, with extents that are prime or one more than a multiple of 64; and `small`, at which
nearly all is overhead. All is in float32, complex64 and int32.

Source: A. N. Ziogas et al., NPBench: a benchmarking suite for high-performance NumPy (ICS 2021), which has Polybench's
kernels among others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Kernel:
    """A function of arrays, at several sizes.

    Attributes:
        function: of arrays, and of static numbers by keyword.
        draw: makes the arrays, from a generator and the numbers of a size.
        sizes: by name, the numbers of which `draw` takes all and `function` those that are its keywords.
        wrt: which arguments its gradient is by; none where it has no gradient.
        tolerance: how far results of two ways to compute it may be apart, as a part of the largest.
        gradient_tolerance: the same of gradients.
    """

    function: Callable[..., Any]
    draw: Callable[..., tuple[Any, ...]]
    sizes: Mapping[str, Mapping[str, int]]
    wrt: tuple[int, ...]
    tolerance: float
    gradient_tolerance: float

    def at(self, size: str) -> Callable[..., Any]:
        """The function of arrays alone."""
        parameters = inspect.signature(self.function).parameters.values()
        static = {own.name for own in parameters if own.kind is own.KEYWORD_ONLY}
        numbers = {name: number for name, number in self.sizes[size].items() if name in static}
        return partial(self.function, **numbers) if numbers else self.function

    def arguments(self, size: str, random: np.random.Generator) -> tuple[Any, ...]:
        """Arrays for it, on the host."""
        return self.draw(random, **self.sizes[size])


KERNELS: dict[str, Kernel] = {}


def _kernel(
    draw: Callable[..., tuple[Any, ...]],
    *,
    medium: Mapping[str, int],
    odd: Mapping[str, int],
    small: Mapping[str, int],
    wrt: Sequence[int] = (0,),
    tolerance: float = 1e-5,
    gradient_tolerance: float = 1e-4,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a kernel under its function's name."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        sizes = {"": medium, "odd": odd, "small": small}
        KERNELS[function.__name__] = Kernel(function, draw, sizes, tuple(wrt), tolerance, gradient_tolerance)
        return function

    return enter


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def _uniform(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.random(shape, np.float32)


def _complex(random: np.random.Generator, *shape: int) -> np.ndarray:
    return (_normal(random, *shape) + 1j * _normal(random, *shape)).astype(np.complex64)


# --- products of matrices and vectors -------------------------------------------------------------------


@_kernel(
    lambda random, m, n: (_normal(random, m, n), _normal(random, n)),
    medium={"m": 3000, "n": 2500},
    odd={"m": 3001, "n": 2497},
    small={"m": 13, "n": 7},
    wrt=(0, 1),
)
def atax(a, x):
    """A matrix, transposed, times itself times a vector."""
    return (a @ x) @ a


@_kernel(
    lambda random, m, n: (_normal(random, m, n), _normal(random, n), _normal(random, m)),
    medium={"m": 3000, "n": 2500},
    odd={"m": 3001, "n": 2497},
    small={"m": 13, "n": 7},
    wrt=(0, 1, 2),
)
def bicg(a, p, r):
    """The two products of a step of biconjugate gradients."""
    return r @ a, a @ p


@_kernel(
    lambda random, n: (_normal(random, n, n), *(_normal(random, n) for _ in range(4))),
    medium={"n": 3200},
    odd={"n": 3203},
    small={"n": 11},
    wrt=(0, 1, 2, 3, 4),
)
def mvt(a, x1, x2, y1, y2):
    """A matrix times a vector, and transposed times another."""
    return x1 + a @ y1, x2 + y2 @ a


@_kernel(
    lambda random, n: (_normal(random, n, n), *(_normal(random, n) for _ in range(6))),
    medium={"n": 1800},
    odd={"n": 1801},
    small={"n": 11},
    wrt=(0, 1, 2, 5),
    gradient_tolerance=3e-4,
)
def gemver(a, u1, v1, u2, v2, y, z):
    """A matrix with two outer products added, times vectors from both sides."""
    a = a + jnp.outer(u1, v1) + jnp.outer(u2, v2)
    x = 1.2 * (y @ a) + z
    return a, x, 1.5 * (a @ x)


@_kernel(
    lambda random, m, n: (_normal(random, m, n), _normal(random, m, m), _normal(random, m, n)),
    medium={"m": 640, "n": 500},
    odd={"m": 641, "n": 499},
    small={"m": 9, "n": 5},
    wrt=(0, 1, 2),
)
def symm(c, a, b):
    """A product with a symmetric matrix, of which the lower half is given."""
    symmetric = jnp.tril(a) + jnp.tril(a, -1).T
    return 1.5 * (symmetric @ b) + 1.2 * c


@_kernel(
    lambda random, m, n: (_normal(random, n, n), _normal(random, n, m)),
    medium={"m": 400, "n": 500},
    odd={"m": 383, "n": 449},
    small={"m": 5, "n": 9},
    wrt=(0, 1),
)
def syrk(c, a):
    """The lower half of a matrix with the product of another and its transpose added; the upper half stays."""
    return jnp.where(jnp.tri(len(c), dtype=bool), 1.5 * (a @ a.T) + 1.2 * c, c)


@_kernel(
    lambda random, r, q, p: (_normal(random, r, q, p), _normal(random, p, p)),
    medium={"r": 80, "q": 80, "p": 128},
    odd={"r": 79, "q": 83, "p": 129},
    small={"r": 3, "q": 5, "p": 7},
    wrt=(0, 1),
)
def doitgen(a, c4):
    """A product along the last dimension of three."""
    return jnp.einsum("rqs,sp->rqp", a, c4)


@_kernel(
    lambda random, n, m: (_normal(random, n, m),),
    medium={"n": 1200, "m": 400},
    odd={"n": 1201, "m": 401},
    small={"n": 11, "m": 5},
)
def covariance(data):
    """The covariance of columns."""
    data = data - data.mean(0)
    return data.T @ data / (len(data) - 1)


@_kernel(
    lambda random, n, m: (_normal(random, n, m),),
    medium={"n": 1200, "m": 400},
    odd={"n": 1201, "m": 401},
    small={"n": 11, "m": 5},
)
def correlation(data):
    """The correlation of columns; one that hardly varies is not scaled."""
    spread = jnp.std(data, 0)
    data = (data - data.mean(0)) / (jnp.sqrt(float(len(data))) * jnp.where(spread <= 0.1, 1.0, spread))
    count = data.shape[1]
    return (data.T @ data).at[jnp.arange(count), jnp.arange(count)].set(1.0)


@_kernel(
    lambda random, m, n: (*(10 * _normal(random, m, n) for _ in range(2)), *(_normal(random) for _ in range(3))),
    medium={"m": 2000, "n": 2000},
    odd={"m": 1999, "n": 2003},
    small={"m": 7, "n": 5},
    wrt=(0, 1),
)
def compute(x, y, a, b, c):
    """One elementwise formula, with numbers that are kept between two others."""
    return jnp.clip(x, 2.0, 10.0) * a + y * b + c


def _draw_csr(random: np.random.Generator, rows: int, columns: int, nonzeros: int) -> tuple[np.ndarray, ...]:
    """Starts of rows, columns, values, and a vector; some rows are empty."""
    ends = np.sort(random.integers(0, nonzeros + 1, rows - 1))
    starts = np.concatenate([[0], ends, [nonzeros]]).astype(np.int32)
    return (
        _normal(random, nonzeros),
        _normal(random, columns),
        random.integers(0, columns, nonzeros).astype(np.int32),
        starts,
    )


@_kernel(
    _draw_csr,
    medium={"rows": 20_000, "columns": 20_000, "nonzeros": 400_000},
    odd={"rows": 20_011, "columns": 19_969, "nonzeros": 400_009},
    small={"rows": 11, "columns": 7, "nonzeros": 29},
    wrt=(0, 1),
)
def spmv(values, x, columns, starts):
    """A sparse matrix by compressed rows times a vector."""
    count = len(starts) - 1
    rows = jnp.repeat(jnp.arange(count), jnp.diff(starts), total_repeat_length=len(values))
    return jax.ops.segment_sum(values * x[columns], rows, count, indices_are_sorted=True)


# --- factorizations and triangular systems --------------------------------------------------------------


def _dominant(random: np.random.Generator, n: int) -> np.ndarray:
    """A matrix with a diagonal that outweighs its rows."""
    return _uniform(random, n, n) + n * np.eye(n, dtype=np.float32)


@_kernel(
    lambda random, n: (_dominant(random, n),),
    medium={"n": 150},
    odd={"n": 129},
    small={"n": 7},
)
def lu(a):
    """An LU factorization without pivoting, column by column, in place."""
    rows = jnp.arange(len(a))

    def eliminate(k, a):
        factors = jnp.where(rows > k, a[:, k] / a[k, k], 0.0)
        a = a - jnp.outer(factors, jnp.where(rows > k, a[k], 0.0))
        return a.at[:, k].set(jnp.where(rows > k, factors, a[:, k]))

    return lax.fori_loop(0, len(a), eliminate, a)


def _draw_positive(random: np.random.Generator, n: int) -> tuple[np.ndarray]:
    drawn = _normal(random, n, n)
    return (drawn @ drawn.T / n + np.eye(n, dtype=np.float32),)


@_kernel(
    _draw_positive,
    medium={"n": 260},
    odd={"n": 257},
    small={"n": 7},
)
def cholesky(a):
    """A Cholesky factorization, column by column from those before."""
    rows = jnp.arange(len(a))

    def column(k, factor):
        own = a[:, k] - factor @ factor[k]
        return factor.at[:, k].set(jnp.where(rows >= k, own / jnp.sqrt(own[k]), 0.0))

    return lax.fori_loop(0, len(a), column, jnp.zeros_like(a))


@_kernel(
    lambda random, m, n: (_normal(random, m, n),),
    medium={"m": 260, "n": 200},
    odd={"m": 257, "n": 199},
    small={"m": 7, "n": 5},
)
def gramschmidt(a):
    """A QR factorization by the modified Gram-Schmidt process."""
    columns = jnp.arange(a.shape[1])

    def turn(k, state):
        a, q, r = state
        length = jnp.sqrt(a[:, k] @ a[:, k])
        unit = a[:, k] / length
        row = jnp.where(columns > k, unit @ a, 0.0)
        return a - jnp.outer(unit, row), q.at[:, k].set(unit), r.at[k].set(row.at[k].set(length))

    _, q, r = lax.fori_loop(0, len(columns), turn, (a, jnp.zeros_like(a), jnp.zeros((len(columns),) * 2, a.dtype)))
    return q, r


@_kernel(
    lambda random, n: (_dominant(random, n), _normal(random, n)),
    medium={"n": 2000},
    odd={"n": 1985},
    small={"n": 7},
    wrt=(0, 1),
)
def trisolv(a, b):
    """A lower triangular system, row by row."""

    def row(x, own):
        k, a, b = own
        return x.at[k].set((b - a @ x) / a[k]), None

    return lax.scan(row, jnp.zeros_like(b), (jnp.arange(len(b)), a, b))[0]


def _before(x, k):
    """`x[k - 1], ..., x[0]`, and zeros."""
    return lax.dynamic_slice(jnp.concatenate([x[::-1], jnp.zeros_like(x)]), (len(x) - k,), x.shape)


@_kernel(
    lambda random, n: ((2 * _uniform(random, n) - 1) / (2 + np.arange(n, dtype=np.float32)),),
    medium={"n": 1500},
    odd={"n": 1409},
    small={"n": 9},
    gradient_tolerance=3e-4,
)
def durbin(r):
    """The Yule-Walker equations by Durbin's recursion."""
    is_before = jnp.arange(len(r))

    def turn(k, state):
        y, alpha, beta = state
        beta = (1 - alpha * alpha) * beta
        alpha = -(r[k] + _before(r, k) @ y) / beta
        return (y + alpha * jnp.where(is_before < k, _before(y, k), 0.0)).at[k].set(alpha), alpha, beta

    start = jnp.zeros_like(r).at[0].set(-r[0]), -r[0], jnp.ones((), r.dtype)
    return lax.fori_loop(1, len(r), turn, start)[0]


def _draw_contour(random: np.random.Generator, points: int, slabs: int, size: int, columns: int) -> tuple[Any, ...]:
    angles = 2 * np.pi * (np.arange(points) + 0.5) / points
    radii = np.where(np.arange(points) % 2, 0.5, 2.0)
    hamiltonian = _complex(random, slabs + 1, size, size) / np.float32(4 * np.sqrt(size))
    hamiltonian += np.eye(size, dtype=np.float32)
    return hamiltonian, _complex(random, size, columns), (radii * np.exp(1j * angles)).astype(np.complex64)


@_kernel(
    _draw_contour,
    medium={"points": 32, "slabs": 2, "size": 40, "columns": 32},
    odd={"points": 31, "slabs": 2, "size": 37, "columns": 33},
    small={"points": 3, "slabs": 2, "size": 5, "columns": 3},
    tolerance=1e-4,
    gradient_tolerance=1e-3,
)
def contour_integral(hamiltonian, y, points):
    """Moments of the inverse of a matrix polynomial along two circles."""
    slabs = len(hamiltonian) - 1

    def at(z):
        powers = z ** (slabs / 2 - jnp.arange(slabs + 1))
        x = jnp.linalg.solve(jnp.einsum("n,nij->ij", powers, hamiltonian), y)
        return jnp.where(jnp.abs(z) < 1, -x, x)

    each = jax.vmap(at)(points)
    return each.sum(0), jnp.einsum("z,zij->ij", points, each)


# --- stencils -------------------------------------------------------------------------------------------


@_kernel(
    lambda random, n, steps: (_uniform(random, n), _uniform(random, n)),
    medium={"n": 30_000, "steps": 400},
    odd={"n": 30_011, "steps": 401},
    small={"n": 13, "steps": 3},
    wrt=(0, 1),
)
def jacobi_1d(a, b, *, steps):
    """Means of three neighbours on a line, there and back."""

    def mean(x, into):
        return into.at[1:-1].set((x[:-2] + x[1:-1] + x[2:]) / 3)

    def turn(_, both):
        a, b = both
        b = mean(a, b)
        return mean(b, a), b

    return lax.fori_loop(0, steps, turn, (a, b))


@_kernel(
    lambda random, n, steps: (_uniform(random, n, n), _uniform(random, n, n)),
    medium={"n": 250, "steps": 100},
    odd={"n": 257, "steps": 97},
    small={"n": 7, "steps": 3},
    wrt=(0, 1),
)
def jacobi_2d(a, b, *, steps):
    """Means of five neighbours on a square, there and back."""

    def mean(x, into):
        around = x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]
        return into.at[1:-1, 1:-1].set(0.2 * (x[1:-1, 1:-1] + around))

    def turn(_, both):
        a, b = both
        b = mean(a, b)
        return mean(b, a), b

    return lax.fori_loop(0, steps, turn, (a, b))


@_kernel(
    lambda random, n, steps: (_uniform(random, n, n, n), _uniform(random, n, n, n)),
    medium={"n": 40, "steps": 60},
    odd={"n": 41, "steps": 59},
    small={"n": 5, "steps": 2},
    wrt=(0, 1),
)
def heat_3d(a, b, *, steps):
    """The heat equation in a cube by seven points, there and back."""

    def step(x, into):
        here, low, high = slice(1, -1), slice(None, -2), slice(2, None)
        inner = x[here, here, here]
        second = (
            (x[high, here, here] - 2 * inner + x[low, here, here])
            + (x[here, high, here] - 2 * inner + x[here, low, here])
            + (x[here, here, high] - 2 * inner + x[here, here, low])
        )
        return into.at[here, here, here].set(inner + 0.125 * second)

    def turn(_, both):
        a, b = both
        b = step(a, b)
        return step(b, a), b

    return lax.fori_loop(0, steps, turn, (a, b))


@_kernel(
    lambda random, nx, ny, steps: (*(_uniform(random, nx, ny) for _ in range(3)), _uniform(random, steps)),
    medium={"nx": 200, "ny": 220, "steps": 120},
    odd={"nx": 193, "ny": 211, "steps": 127},
    small={"nx": 5, "ny": 7, "steps": 3},
    wrt=(0, 1, 2),
)
def fdtd_2d(ex, ey, hz, source):
    """Maxwell's equations in the plane by finite differences in time, with a source along one side."""

    def step(fields, driven):
        ex, ey, hz = fields
        ey = ey.at[0].set(driven).at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        curl = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
        return (ex, ey, hz.at[:-1, :-1].add(-0.7 * curl)), None

    return lax.scan(step, (ex, ey, hz), source)[0]


@_kernel(
    lambda random, n, steps: (_uniform(random, n, n),),
    medium={"n": 64, "steps": 60},
    odd={"n": 61, "steps": 67},
    small={"n": 6, "steps": 2},
)
def seidel_2d(a, *, steps):
    """Means of nine neighbours on a square, each with those before it already new."""

    def row(above, own):
        here, below = own
        known = above[:-2] + above[1:-1] + above[2:] + here[1:-1] + here[2:] + below[:-2] + below[1:-1] + below[2:]

        def point(left, known):
            return ((known + left) / 9,) * 2

        new = here.at[1:-1].set(lax.scan(point, here[0], known)[1])
        return new, new

    def sweep(_, a):
        return a.at[1:-1].set(lax.scan(row, a[0], (a[1:-1], a[2:]))[1])

    return lax.fori_loop(0, steps, sweep, a)


@_kernel(
    lambda random, i, j, k: (_uniform(random, i + 4, j + 4, k), _uniform(random, i, j, k)),
    medium={"i": 256, "j": 256, "k": 40},
    odd={"i": 257, "j": 251, "k": 41},
    small={"i": 3, "j": 5, "k": 2},
    wrt=(0, 1),
)
def hdiff(x, rate):
    """Horizontal diffusion of weather models: the Laplacian's fluxes, limited."""
    laplacian = 4 * x[1:-1, 1:-1] - (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])

    def flux(slope, change):
        return jnp.where(slope * change > 0, 0.0, slope)

    along = flux(laplacian[1:, 1:-1] - laplacian[:-1, 1:-1], x[2:-1, 2:-2] - x[1:-2, 2:-2])
    across = flux(laplacian[1:-1, 1:] - laplacian[1:-1, :-1], x[2:-2, 2:-1] - x[2:-2, 1:-2])
    return x[2:-2, 2:-2] - rate * (along[1:] - along[:-1] + across[:, 1:] - across[:, :-1])


def _draw_vadv(random: np.random.Generator, i: int, j: int, k: int) -> tuple[Any, ...]:
    fields = [_uniform(random, i, j, k) for _ in range(4)]
    wind = np.float32(0.1) * _uniform(random, i + 1, j, k)  # so weak that diagonals outweigh their rows
    return *fields, wind, np.float32(3.0 / 20)


@_kernel(
    _draw_vadv,
    medium={"i": 60, "j": 60, "k": 64},
    odd={"i": 61, "j": 67, "k": 61},
    small={"i": 3, "j": 5, "k": 4},
    wrt=(0, 1, 2, 3, 4),
)
def vadv(stage_tendency, stage, position, tendency, wind, rate):
    """Vertical advection of weather models, implicit: a tridiagonal system in every column."""
    levels = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    u = levels(stage)
    # What goes through the lower face of every level but the lowest, a quarter of the winds on both sides.
    through = 0.25 * levels(wind[1:] + wind[:-1])[1:]
    none = jnp.zeros_like(u[:1])
    before, behind = jnp.concatenate([none, -through]), jnp.concatenate([through, none])
    lower, upper = 0.5 * before, 0.5 * behind
    steps = jnp.concatenate([none, u[1:] - u[:-1]]), jnp.concatenate([u[1:] - u[:-1], none])
    known = levels(rate * position + tendency + stage_tendency) + lower * steps[0] - upper * steps[1]

    def down(above, own):
        factor, value = above
        lower, diagonal, upper, known = own
        scale = 1 / (diagonal - factor * lower)
        both = upper * scale, (known - value * lower) * scale
        return both, both

    def up(below, own):
        factor, value = own
        new = value - factor * below
        return new, new

    zeros = jnp.zeros_like(u[0])
    eliminated = lax.scan(down, (zeros, zeros), (lower, rate - lower - upper, upper, known))[1]
    solved = lax.scan(up, zeros, eliminated, reverse=True)[1]
    return rate * (jnp.moveaxis(solved, 0, -1) - position)


def _implicit(known, off, diagonal):
    """Tridiagonal systems along the first dimension, of the same three numbers everywhere, between ends of 1."""

    def down(above, known):
        factor, value = above
        scale = 1 / (off * factor + diagonal)
        both = -off * scale, (known - off * value) * scale
        return both, both

    def up(below, own):
        factor, value = own
        new = factor * below + value
        return new, new

    ones = jnp.ones_like(known[0])
    eliminated = lax.scan(down, (jnp.zeros((), known.dtype), ones), known)[1]
    return lax.scan(up, ones, eliminated, reverse=True)[1]


@_kernel(
    lambda random, n, steps: (_uniform(random, n, n),),
    medium={"n": 200, "steps": 10},
    odd={"n": 193, "steps": 11},
    small={"n": 6, "steps": 2},
)
def adi(u, *, steps):
    """The heat equation by alternating directions, implicit along columns and then along rows."""
    by_columns, by_rows = -2.0, -1.0  # a step of time is twice the square of the distance between points
    inner = slice(1, -1)

    def turn(_, u):
        def explicit(x, off):
            return -off * x[:, :-2] + (1 + 2 * off) * x[:, inner] - off * x[:, 2:]

        def solved(known, off):
            inside = _implicit(known, off, 1 - 2 * off)
            ones = jnp.ones_like(inside[:1])
            return jnp.concatenate([ones, inside, ones])

        columns = solved(explicit(u[inner], by_rows), by_columns)
        return u.at[inner].set(solved(explicit(columns.T, by_columns), by_rows).T)

    return lax.fori_loop(0, steps, turn, u)


def _recursion(drive, reverse=False):
    """`y[j] = drive[j] + c1 y[j - 1] + c2 y[j - 2]` along the first dimension."""

    def row(state, drive):
        last, one_before = state
        new = drive + 2.0**-0.25 * last - np.exp(-0.5) * one_before
        return (new, last), new

    zeros = jnp.zeros_like(drive[0])
    return lax.scan(row, (zeros, zeros), drive, reverse=reverse)[1]


@_kernel(
    lambda random, w, h: (_uniform(random, w, h),),
    medium={"w": 640, "h": 480},
    odd={"w": 641, "h": 479},
    small={"w": 7, "h": 5},
)
def deriche(image):
    """Deriche's smoothing of a picture: recursions along both dimensions, each in both directions."""
    alpha = 0.25
    decay = np.exp(-alpha)
    gain = (1 - decay) ** 2 / (1 + 2 * alpha * decay - np.exp(-2 * alpha))

    def smoothed(x):
        padded = jnp.pad(x, ((1, 2), (0, 0)))
        forward = gain * x + gain * decay * (alpha - 1) * padded[:-3]
        backward = gain * decay * (alpha + 1) * padded[2:-1] - gain * decay**2 * padded[3:]
        return _recursion(forward) + _recursion(backward, reverse=True)

    return smoothed(smoothed(image.T).T)


# --- fluids ---------------------------------------------------------------------------------------------

_STEP, _DENSITY, _VISCOSITY = 0.001, 1.0, 0.1
"""Of time, of the fluid, and of the fluid again."""


def _pressure_source(ue, uw, vn, vs, un, us, ve, vw, dx, dy):
    """The right side of the equation of pressure, of the neighbours of both velocities."""
    along, across = (ue - uw) / (2 * dx), (vn - vs) / (2 * dy)
    return _DENSITY * (
        (along + across) / _STEP - along**2 - 2 * (un - us) / (2 * dy) * (ve - vw) / (2 * dx) - across**2
    )


def _relaxed(pe, pw, pn, ps, b, dx, dy):
    """A step of Jacobi's iteration for the pressure, of its neighbours."""
    return ((pe + pw) * dy**2 + (pn + ps) * dx**2 - dx**2 * dy**2 * b) / (2 * (dx**2 + dy**2))


def _moved(x, neighbours, u, v, slope, dx, dy):
    """A velocity one step later: advection against the wind, the slope of the pressure, viscosity."""
    east, west, north, south = neighbours
    carried = u * (x - west) / dx + v * (x - south) / dy
    spread = (east - 2 * x + west) / dx**2 + (north - 2 * x + south) / dy**2
    return x + _STEP * (_VISCOSITY * spread - carried - slope / _DENSITY)


def _inside(x):
    """The neighbours of inner points: east, west, north, south."""
    return x[1:-1, 2:], x[1:-1, :-2], x[2:, 1:-1], x[:-2, 1:-1]


@_kernel(
    lambda random, ny, nx, steps, sweeps: tuple(np.float32(0.1) * _uniform(random, ny, nx) for _ in range(3)),
    medium={"ny": 61, "nx": 61, "steps": 40, "sweeps": 10},
    odd={"ny": 65, "nx": 67, "steps": 37, "sweeps": 11},
    small={"ny": 6, "nx": 7, "steps": 2, "sweeps": 2},
    wrt=(0, 1, 2),
)
def cavity_flow(u, v, p, *, steps, sweeps):
    """A fluid in a box whose lid moves: its velocities and its pressure."""
    ny, nx = u.shape
    dx, dy = 2 / (nx - 1), 2 / (ny - 1)
    inner = (slice(1, -1), slice(1, -1))

    def turn(_, state):
        u, v, p = state
        (ue, uw, un, us), (ve, vw, vn, vs) = _inside(u), _inside(v)
        b = _pressure_source(ue, uw, vn, vs, un, us, ve, vw, dx, dy)

        def sweep(_, p):
            p = p.at[inner].set(_relaxed(*_inside(p), b, dx, dy))
            p = p.at[:, -1].set(p[:, -2])
            p = p.at[0].set(p[1])
            return p.at[:, 0].set(p[:, 1]).at[-1].set(0.0)

        p = lax.fori_loop(0, sweeps, sweep, p)
        pe, pw, pn, ps = _inside(p)
        along = _moved(u[inner], _inside(u), u[inner], v[inner], (pe - pw) / (2 * dx), dx, dy)
        across = _moved(v[inner], _inside(v), u[inner], v[inner], (pn - ps) / (2 * dy), dx, dy)
        u = jnp.pad(along, 1).at[-1].set(1.0)
        return u, jnp.pad(across, 1), p

    return lax.fori_loop(0, steps, turn, (u, v, p))


@_kernel(
    lambda random, ny, nx, sweeps: tuple(np.float32(0.1) * _uniform(random, ny, nx) for _ in range(3)),
    medium={"ny": 61, "nx": 61, "sweeps": 10},
    odd={"ny": 65, "nx": 67, "sweeps": 11},
    small={"ny": 6, "nx": 7, "sweeps": 2},
    wrt=(),
    tolerance=1e-4,
)
def channel_flow(u, v, p, *, sweeps):
    """A fluid driven along a channel without ends, until its speed changes little from step to step."""
    ny, nx = u.shape
    dx, dy = 2 / (nx - 1), 2 / (ny - 1)

    def around(x):
        rows = x[1:-1]
        return jnp.roll(rows, -1, 1), jnp.roll(rows, 1, 1), x[2:], x[:-2]

    def turn(state):
        u, v, p, _ = state
        (ue, uw, un, us), (ve, vw, vn, vs) = around(u), around(v)
        b = _pressure_source(ue, uw, vn, vs, un, us, ve, vw, dx, dy)

        def sweep(_, p):
            p = p.at[1:-1].set(_relaxed(*around(p), b, dx, dy))
            return p.at[0].set(p[1]).at[-1].set(p[-2])

        p = lax.fori_loop(0, sweeps, sweep, p)
        pe, pw, pn, ps = around(p)
        inner, walls = slice(1, -1), ((1, 1), (0, 0))
        along = _moved(u[inner], around(u), u[inner], v[inner], (pe - pw) / (2 * dx), dx, dy) + _STEP
        across = _moved(v[inner], around(v), u[inner], v[inner], (pn - ps) / (2 * dy), dx, dy)
        new = jnp.pad(along, walls)
        return new, jnp.pad(across, walls), p, jnp.abs((new.sum() - u.sum()) / new.sum())

    return lax.while_loop(lambda state: state[3] > 0.01, turn, (u, v, p, jnp.ones((), u.dtype)))[:3]


# --- particles, paths, histograms -----------------------------------------------------------------------


def _draw_bodies(random: np.random.Generator, n: int, steps: int) -> tuple[Any, ...]:
    return _normal(random, n, 3), _normal(random, n, 3), (20 / n * (0.5 + _uniform(random, n))).astype(np.float32)


@_kernel(
    _draw_bodies,
    medium={"n": 200, "steps": 20},
    odd={"n": 193, "steps": 19},
    small={"n": 5, "steps": 3},
    wrt=(0, 1, 2),
    tolerance=1e-4,
    gradient_tolerance=1e-3,
)
def nbody(position, velocity, mass, *, steps):
    """Bodies that attract each other, by leapfrog steps: where they are, and their energies at every step."""
    step, softening = 0.01, 0.1
    is_pair = ~jnp.eye(len(mass), dtype=bool)

    def apart(x):
        difference = x[None, :] - x[:, None]
        return difference, jnp.sum(difference**2, -1) + softening**2

    def attraction(x):
        difference, squared = apart(x)
        return jnp.einsum("ijk,ij,j->ik", difference, squared**-1.5, mass)

    def energies(x, v):
        kinetic = 0.5 * jnp.sum(mass[:, None] * v**2)
        each = jnp.where(is_pair, mass[:, None] * mass / jnp.sqrt(apart(x)[1]), 0.0)
        return kinetic, -0.5 * jnp.sum(each)

    def turn(state, _):
        x, v, a = state
        v = v + 0.5 * step * a
        x = x + step * v
        a = attraction(x)
        v = v + 0.5 * step * a
        return (x, v, a), energies(x, v)

    velocity = velocity - jnp.sum(mass[:, None] * velocity, 0) / jnp.sum(mass)
    (x, _, _), found = lax.scan(turn, (position, velocity, attraction(position)), None, length=steps)
    return x, *found


@_kernel(
    lambda random, n: (1 + 100 * _uniform(random, n, n),),
    medium={"n": 220},
    odd={"n": 211},
    small={"n": 7},
)
def floyd_warshall(path):
    """The shortest ways between all nodes, through one more node at every turn."""
    return lax.fori_loop(0, len(path), lambda k, path: jnp.minimum(path, path[:, k, None] + path[k]), path)


@_kernel(
    lambda random, n, bins: (_uniform(random, n), _uniform(random, n)),
    medium={"n": 40_000, "bins": 100},
    odd={"n": 40_009, "bins": 97},
    small={"n": 29, "bins": 3},
)
def azimint_naive(data, radius, *, bins):
    """Means of data by radius, each bin by itself."""
    edges = radius.max() * jnp.arange(bins + 1) / bins

    def mean(low, high):
        is_here = (low <= radius) & (radius < high)
        return jnp.sum(jnp.where(is_here, data, 0.0)) / jnp.maximum(jnp.sum(is_here), 1)

    return jax.vmap(mean)(edges[:-1], edges[1:])


@_kernel(
    lambda random, n, bins: (_uniform(random, n), _uniform(random, n)),
    medium={"n": 1_000_000, "bins": 1000},
    odd={"n": 1_000_003, "bins": 997},
    small={"n": 29, "bins": 3},
)
def azimint_hist(data, radius, *, bins):
    """Means of data by radius, all by one histogram."""
    bin_of = jnp.minimum((radius / radius.max() * bins).astype(jnp.int32), bins - 1)
    counts = jnp.zeros(bins, data.dtype).at[bin_of].add(1.0)
    return jnp.zeros(bins, data.dtype).at[bin_of].add(data) / jnp.maximum(counts, 1.0)


@_kernel(
    lambda random, ny, nx, turns: (
        np.linspace(-2, 0.5, nx, dtype=np.float32),
        np.linspace(-1.25, 1.25, ny, dtype=np.float32),
    ),
    medium={"ny": 250, "nx": 250, "turns": 50},
    odd={"ny": 257, "nx": 251, "turns": 50},
    small={"ny": 5, "nx": 7, "turns": 5},
    wrt=(),
)
def mandelbrot(x, y, *, turns):
    """How many turns points of the plane stay near."""
    c = lax.complex(*jnp.broadcast_arrays(x, y[:, None]))

    def turn(_, state):
        z, count = state
        is_near = z.real**2 + z.imag**2 < 4.0
        return jnp.where(is_near, z * z + c, z), count + is_near

    return lax.fori_loop(0, turns, turn, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1]


@_kernel(
    lambda random, n: (random.integers(0, 4, n).astype(np.int32),),
    medium={"n": 220},
    odd={"n": 193},
    small={"n": 7},
    wrt=(),
)
def nussinov(sequence):
    """The most pairs that a strand can fold into, by growing stretches of it."""
    n = len(sequence)
    start, cut = jnp.arange(n), jnp.arange(n)[:, None]

    def turn(length, best):  # best[d, i] is that of sequence[i : i + d + 1]
        end = jnp.minimum(start + length, n - 1)
        pairs = (sequence + sequence[end] == 3) & (length > 1)
        inside = best[jnp.maximum(length - 2, 0), jnp.minimum(start + 1, n - 1)]
        rest = best[jnp.maximum(length - 1 - cut, 0), jnp.minimum(start + cut + 1, n - 1)]
        parts = jnp.max(jnp.where(cut < length, best + rest, 0), 0)
        new = jnp.maximum(parts, jnp.where(length > 1, inside + pairs, 0))
        return best.at[length].set(jnp.where(start + length < n, new, 0))

    best = lax.fori_loop(1, n, turn, jnp.zeros((n, n), jnp.int32))
    return jnp.where(cut <= start, best[jnp.maximum(start - cut, 0), cut], 0)


@_kernel(
    lambda random, n: (random.integers(0, 256, n).astype(np.int32),),
    medium={"n": 200_000},
    odd={"n": 200_003},
    small={"n": 9},
    wrt=(),
)
def crc16(data):
    """The checksum of bytes by the polynomial 0x8408, bit by bit."""

    def byte(remainder, own):
        remainder = remainder ^ own
        for _ in range(8):
            remainder = jnp.where(remainder & 1, (remainder >> 1) ^ 0x8408, remainder >> 1)
        return remainder, None

    found = ~lax.scan(byte, jnp.int32(0xFFFF), data)[0] & 0xFFFF
    return ((found & 0xFF) << 8) | (found >> 8)


# --- Fourier transforms and physics ---------------------------------------------------------------------


@_kernel(
    lambda random, radix, digits: (_complex(random, radix**digits),),
    medium={"radix": 4, "digits": 9},
    odd={"radix": 3, "digits": 11},
    small={"radix": 2, "digits": 4},
)
def stockham_fft(x, *, radix, digits):
    """A Fourier transform by Stockham's steps, each of which leaves its results in order."""
    digit = np.arange(radix)
    small = np.exp(-2j * np.pi * np.outer(digit, digit) / radix).astype(np.complex64)
    for k in range(digits):
        rest = radix ** (digits - 1 - k)
        turned = np.exp(-2j * np.pi * np.outer(np.arange(rest), digit) / (radix * rest)).astype(np.complex64)
        x = jnp.einsum("sr,rpq->psq", small, x.reshape(radix, rest, -1)) * turned[:, :, None]
    return x.reshape(-1)


def _draw_self_energies(
    random: np.random.Generator, momenta: int, energies: int, shifts: int, atoms: int, bonds: int, orbitals: int
) -> tuple[Any, ...]:
    return (
        _complex(random, momenta, energies, atoms, orbitals, orbitals),
        _complex(random, atoms, bonds, 3, orbitals, orbitals),
        _complex(random, momenta, shifts, atoms, bonds, 3, 3),
        random.integers(0, atoms, (atoms, bonds)).astype(np.int32),
    )


@_kernel(
    _draw_self_energies,
    medium={"momenta": 4, "energies": 20, "shifts": 3, "atoms": 30, "bonds": 4, "orbitals": 4},
    odd={"momenta": 3, "energies": 23, "shifts": 3, "atoms": 31, "bonds": 4, "orbitals": 5},
    small={"momenta": 2, "energies": 3, "shifts": 2, "atoms": 3, "bonds": 2, "orbitals": 2},
    wrt=(0, 1),
)
def scattering_self_energies(green, slope, phonons, neighbours):
    """Self-energies of electrons that phonons scatter, over momenta and shifts of energy."""
    scattered = jnp.einsum("wabij,abjmn->wabimn", phonons.sum(0), slope)
    sigma = jnp.zeros_like(green)
    for shift, own in enumerate(scattered):
        near = green[:, : green.shape[1] - shift][:, :, neighbours]
        left = jnp.einsum("keablm,abimn->keabiln", near, slope)
        sigma = sigma.at[:, shift:].add(jnp.einsum("keabilm,abimn->kealn", left, own))
    return sigma


# --- networks -------------------------------------------------------------------------------------------


def _scaled(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights, whose last dimension is that of outputs."""
    return _normal(random, *shape) / np.float32(np.sqrt(np.prod(shape[:-1])))


def _convolved(x, w, padding="VALID"):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


@_kernel(
    lambda random, n, side, channels, filters, window: (
        _normal(random, n, side, side, channels),
        _scaled(random, window, window, channels, filters),
        _normal(random, filters),
    ),
    medium={"n": 8, "side": 56, "channels": 32, "filters": 16, "window": 3},
    odd={"n": 3, "side": 65, "channels": 13, "filters": 17, "window": 3},
    small={"n": 2, "side": 6, "channels": 3, "filters": 4, "window": 3},
    wrt=(0, 1, 2),
)
def conv2d_bias(x, w, bias):
    """A convolution of pictures whose channels are last, and a bias."""
    return _convolved(x, w) + bias


@_kernel(
    lambda random, *, n, heads, size: (_normal(random, n, heads, size, size),),
    medium={"n": 16, "heads": 8, "size": 128},
    odd={"n": 13, "heads": 8, "size": 129},
    small={"n": 2, "heads": 3, "size": 5},
)
def softmax(x):
    """A softmax along the last of four dimensions."""
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _draw_layers(random: np.random.Generator, n: int, **sizes: int) -> tuple[Any, ...]:
    widths = list(sizes.values())
    made = [_normal(random, n, widths[0])]
    for before, after in pairwise(widths):
        made += [_scaled(random, before, after), _normal(random, after)]
    return tuple(made)


@_kernel(
    _draw_layers,
    medium={"n": 256, "width": 500, "first": 400, "second": 300, "classes": 100},
    odd={"n": 257, "width": 509, "first": 385, "second": 321, "classes": 97},
    small={"n": 3, "width": 7, "first": 5, "second": 6, "classes": 4},
    wrt=(0, 1, 2, 3, 4, 5, 6),
)
def mlp(x, w1, b1, w2, b2, w3, b3):
    """Three dense layers, rectifiers and a softmax."""
    x = jax.nn.relu(x @ w1 + b1)
    x = jax.nn.relu(x @ w2 + b2)
    return jax.nn.softmax(x @ w3 + b3)


def _draw_lenet(random: np.random.Generator, n: int, height: int, width: int) -> tuple[Any, ...]:
    flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    shapes = (5, 5, 1, 6), (5, 5, 6, 16), (flat, 120), (120, 84), (84, 10)
    made = [_normal(random, n, height, width, 1)]
    for shape in shapes:
        made += [_scaled(random, *shape), _normal(random, shape[-1])]
    return tuple(made)


@_kernel(
    _draw_lenet,
    medium={"n": 32, "height": 28, "width": 28},
    odd={"n": 29, "height": 31, "width": 37},
    small={"n": 2, "height": 16, "width": 17},
    wrt=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
)
def lenet(x, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5):
    """LeNet-5: two convolutions with poolings, and three dense layers."""
    for w, bias in ((w1, b1), (w2, b2)):
        x = jax.nn.relu(_convolved(x, w) + bias)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ w3 + b3)
    x = jax.nn.relu(x @ w4 + b4)
    return x @ w5 + b5


@_kernel(
    lambda random, n, side, channels, narrow: (
        _normal(random, n, side, side, channels),
        _scaled(random, 1, 1, channels, narrow),
        _scaled(random, 3, 3, narrow, narrow),
        _scaled(random, 1, 1, narrow, channels),
    ),
    medium={"n": 8, "side": 28, "channels": 64, "narrow": 16},
    odd={"n": 7, "side": 29, "channels": 65, "narrow": 17},
    small={"n": 2, "side": 5, "channels": 6, "narrow": 3},
    wrt=(0, 1, 2, 3),
    gradient_tolerance=3e-4,
)
def resnet(x, w1, w2, w3):
    """A bottleneck of a residual network, normalised over the batch."""

    def normalised(x):
        return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)

    inner = jax.nn.relu(normalised(_convolved(x, w1)))
    inner = jax.nn.relu(normalised(_convolved(inner, w2, "SAME")))
    return jax.nn.relu(normalised(_convolved(inner, w3)) + x)
