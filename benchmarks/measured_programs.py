"""The programs of `measurements.py`, built with codelet for the chip that they were measured on.

In comes an argument, a size or a kind; out come the figures of its profile, by name. A program is written as its
source says it is: assembly or compiled, scalar or in vectors, on one worker or on all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from ipu_backend.jobs.matvec import dot_vertex_cycles

Figures = dict[str, float]
PROGRAMS: dict[str, Callable[[Any], Figures]] = {}

BOW, MK1, MK2 = cl.IPU("bow"), cl.IPU("mk1"), cl.IPU("mk2")
C600 = cl.IPU("mk2", clock_hertz=1.5e9)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def _program(function: Callable[..., Figures]) -> Callable[..., Figures]:
    PROGRAMS[function.__name__] = function
    return function


def figures_of(program: str, argument: Hashable) -> Mapping[str, float]:
    """The figures of a program for one argument; built and profiled once."""
    return _figures(program, argument)


@functools.cache
def _figures(program: str, argument: Hashable) -> Figures:
    return PROGRAMS[program](argument)


# --- one vertex on one tile ---------------------------------------------------------------------------

Fields = Mapping[str, "tuple[tuple[int, ...], Any]"]


def _one_tile(chip: cl.IPU) -> cl.IPU:
    return cl.IPU(chip.chip, num_tiles=1, clock_hertz=chip.clock_hertz)


def _alone(function: Callable[..., Any], fields: Fields, chip: cl.IPU = BOW, copies: int = 1, **how: Any) -> Figures:
    """The cycles that a tile computes for, of some vertices of one codelet and nothing else."""
    graph = cl.Graph(_one_tile(chip))
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


@_program
def matrix_unit(rows: int) -> Figures:
    """Rows of 16 numbers by a block of 16 by 16 weights."""
    return _by_all(lambda x, w: lax.dot(x, w), {"x": ((rows, 16), F16), "w": ((16, 16), F16)})


@_program
def scaled_add(n: int) -> Figures:
    """PopLibs' scaled add, in place."""
    return _by_all(lambda x, y, s: {"x": x + s * y}, {**_vectors(F32, x=n, y=n), "s": ((), F32)})


@_program
def add_float(n: int) -> Figures:
    """PopLibs' addition; of 1,024 elements on 4 tiles, each has so many."""
    return _by_all(lambda x, y: x + y, _vectors(F32, x=n, y=n))


@_program
def householder_update(n: int) -> Figures:
    """A multiple of a vector taken from a row, in pairs of numbers."""
    fields = {**_vectors(F32, x=n, v=n), "s": ((), F32), "t": ((), F32)}
    return _by_all(lambda x, v, s, t: {"x": x - (s * t) * v}, fields, issue="compiled", vectorised=True)


def _rotated(c: Any, s: Any, p: Any, q: Any) -> dict[str, Any]:
    return {"p_out": c * p - s * q, "q_out": s * p + c * q}


@_program
def rotation(n: int) -> Figures:
    """Two rows rotated, in a loop whose bundles were written by hand."""
    return _by_all(lambda c, s, p, q: _rotated(c, s, p, q), {"c": ((), F32), "s": ((), F32), **_vectors(F32, p=n, q=n)})


@_program
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


@_program
def schur_of_two(n: int) -> Figures:
    """The rotation that makes a matrix of two rows diagonal, on one worker."""

    def schur(p, q):
        return jnp.stack(_schur(p[3], q[n // 2], p[n // 2]))

    return _alone(schur, _vectors(F32, p=n, q=n), issue="compiled")


@_program
def jacobi_first_step(n: int) -> Figures:
    """That rotation, and two columns rotated by it."""

    def step(p, q):
        return _rotated(*_schur(p[3], q[n // 2], p[n // 2]), p, q)

    return _by_all(step, _vectors(F32, p=n, q=n), issue="compiled", vectorised=True)


@_program
def correction_vector(n: int) -> Figures:
    """A column without its first numbers, the norm of the rest, and the scale that follows from it."""

    def correct(r, sign):
        v = jnp.where(jnp.arange(n) < 16, 0, r)
        square = jnp.sum(v * v)
        own = r[16] - jnp.sqrt(square) * sign
        return {"v": v, "own": own, "scale": 2 / (square - r[16] * r[16] + own * own)}

    return _by_all(correct, {**_vectors(F32, r=n), "sign": ((), F32)}, issue="compiled", vectorised=True)


@_program
def dot_of_workers(n: int) -> Figures:
    """A dot product by six workers, in pairs of numbers."""
    return _by_all(lambda x, y: jnp.dot(x, y), _vectors(F32, x=n, y=n), issue="compiled", vectorised=True)


@_program
def tile_copy(n: int) -> Figures:
    """A copy, one number after the other."""
    return _alone(lambda x: x, _vectors(F32, x=n), issue="compiled")


@_program
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


@_program
def cholesky(n: int) -> Figures:
    """A matrix factorised by one vertex."""
    return _by_all(lax.linalg.cholesky, {"a": ((n, n), F32)})


def _solve(n: int, lower: bool) -> Figures:
    def solve(a, b):
        return lax.linalg.triangular_solve(a, b, left_side=True, lower=lower)

    return _by_all(solve, {"a": ((n, n), F32), "b": ((n, 1), F32)})


@_program
def solve_lower(n: int) -> Figures:
    """A lower triangular system of one right side, by one vertex."""
    return _solve(n, True)


@_program
def solve_upper(n: int) -> Figures:
    """An upper triangular system of one right side, by one vertex."""
    return _solve(n, False)


# --- compiled C++ -------------------------------------------------------------------------------------


@_program
def matrix_vector(kind: str) -> Figures:
    """Poplar's matrix-vector tutorial: 10,000 x 1,000 in 7 parts of columns, matrix and vectors through streams."""
    rows, columns, parts = 10_000, 1_000, 7
    as_estimated = kind != "compiled"
    how = [
        {"cycles": lambda x, w: dot_vertex_cycles(x.size)},
        {"cycles": lambda partials: dot_vertex_cycles(partials.size)},
    ]
    dot_how, total_how = how if as_estimated else [{"issue": "compiled"}] * 2
    dot = cl.codelet(lambda x, w: jnp.dot(x, w), **dot_how)
    total = cl.codelet(lambda partials: jnp.sum(partials), **total_how)
    graph = cl.Graph(MK2)
    x, w = graph.add_variable("x", (columns,)), graph.add_variable("w", (rows, columns))
    partial, y = graph.add_variable("partial", (rows, parts)), graph.add_variable("y", (rows,))
    streams = [graph.add_input_stream("to x", (columns,)), graph.add_input_stream("to w", (rows, columns))]
    back = graph.add_output_stream("from y", (rows,))
    row, part = cl.grid(rows, parts)
    here = slice(part * columns // parts, (part + 1) * columns // parts)
    of_part = MK2.num_tiles // parts
    tile = part * of_part + row * of_part // rows
    with graph.record() as multiply:
        graph.add_vertex("multiply", dot, x=x[here], w=w[row, here], out=partial[row, part], tile=tile)
    graph.set_tile_mapping(w[row, here], tile)
    graph.set_tile_mapping(partial[row, part], tile)
    row, column = cl.grid(rows), cl.grid(columns)
    tile = row * MK2.num_tiles // rows
    with graph.record() as add_up:
        graph.add_vertex("add up", total, partials=partial[row], out=y[row], tile=tile)
    graph.set_tile_mapping(x[column], column)
    graph.set_tile_mapping(y[row], tile)
    program = [cl.Copy(streams[0], x), cl.Copy(streams[1], w), multiply, add_up, cl.Copy(y, back)]
    profile = cl.Engine(graph, program).profile()
    return {
        "compute, mean of tiles": float(profile.compute_by_tile.mean()),
        "exchange": profile.exchange_cycles,
        "sync": profile.sync_cycles,
        "host": profile.host_cycles,
        "total": profile.total_cycles,
    }


@_program
def transform_4x4(kind: str) -> Figures:
    """2,004 vectors of four numbers, each by one matrix, by six workers."""

    def transform(m, x, y, z, w):
        return {
            name: m[4 * i] * x + m[4 * i + 1] * y + m[4 * i + 2] * z + m[4 * i + 3] * w for i, name in enumerate("abcd")
        }

    fields = {"m": ((16,), F32), **_vectors(F32, x=2004, y=2004, z=2004, w=2004)}
    return _by_all(transform, fields, MK2, issue="compiled", vectorised=kind == "vectorised")


@_program
def gaussian_blur(kind: str) -> Figures:
    """Nine neighbours of every number of four channels; on a tile six vertices of 13 by 26 (338.3 were measured)."""
    dtype = F16 if kind.startswith("float16") else F32

    def blur(x):
        nw, n, ne, w, m, e, sw, s, se = (x[i : i + 13, j : j + 26] for i in range(3) for j in range(3))
        return (nw + ne + sw + se) * (1 / 16) + m * (1 / 4) + (e + w + s + n) * (1 / 8)

    return _alone(blur, {"x": ((15, 28, 4), dtype)}, MK1, 6, issue="compiled", vectorised=kind != "float32")


@_program
def added_in_place(kind: str) -> Figures:
    """`x[i] += c`, as the compiler makes it, on one worker: what another thousand elements take."""
    dtype = np.dtype(np.int32) if kind == "int32" else F32
    longer, shorter = (
        _alone(lambda x: {"x": x + 1}, {"x": ((n,), dtype)}, MK2, issue="compiled", vectorised=kind != "int32")
        for n in (2000, 1000)
    )
    return {"worker, 2,000 elements less 1,000": (longer["compute"] - shorter["compute"]) / MK2.num_workers}


# --- copies, halos, streams, memory ----------------------------------------------------------------------


def _copied(source: Callable[[cl.Tensor], cl.Tensor], shape: tuple[int, ...], length: int) -> Figures:
    graph = cl.Graph(_one_tile(MK1))
    x, y = graph.add_variable("x", shape), graph.add_variable("y", (length,))
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 0)
    return {"worker": cl.Engine(graph, cl.Copy(source(x), y)).profile().compute_cycles / MK1.num_workers}


@_program
def strided_copy(n: int) -> Figures:
    """A column of a matrix copied on its tile."""
    return _copied(lambda x: x[:, 0], (n, 100), n)


@_program
def short_copy(n: int) -> Figures:
    """A row of a matrix copied on its tile."""
    return _copied(lambda x: x[0], (4, n), n)


@_program
def halos(side: int) -> Figures:
    """Blocks on tiles, each with what surrounds it, in codelets of 100 cycles; 4 by 4 of the chip's 32 by 38."""
    across = 4
    chip = cl.IPU("mk1", num_tiles=across**2)
    graph = cl.Graph(chip)
    a, b = (graph.add_variable(name, (across * side, across * side)) for name in "ab")
    i, j = cl.grid(across, across)
    here = slice(side * i, side * (i + 1)), slice(side * j, side * (j + 1))
    around = slice(side * i, side * (i + 1) + 2), slice(side * j, side * (j + 1) + 2)
    smooth = cl.codelet(lambda x: x[1:-1, 1:-1], cycles=lambda x: 100)
    graph.add_vertex("phase", smooth, x=a.pad(1, mode="wrap")[around], out=b[here], tile=across * i + j)
    for variable in (a, b):
        graph.set_tile_mapping(variable[here], across * i + j)
    [step] = cl.Engine(graph).profile().steps
    return {f"{kind} of a phase": getattr(step, f"{kind}_cycles") for kind in ("compute", "exchange", "sync")}


def _streamed(kind: str, to_host: bool) -> Figures:
    is_image = kind.endswith("image")
    shape = (1122, 2200, 4) if is_image else ()
    dtype = np.int32 if "int32" in kind else F16 if "float16" in kind else F32
    graph = cl.Graph(MK1 if is_image else MK2)
    x = graph.add_variable("x", shape, dtype=dtype)
    if to_host:
        program = cl.Copy(x, graph.add_output_stream("out", shape, dtype=dtype))
    else:
        program = cl.Copy(graph.add_input_stream("in", shape, dtype=dtype), x)
    if is_image:
        [i] = (cl.grid(1122),)
        graph.set_tile_mapping(x[i], i)
    else:
        graph.set_tile_mapping(x, 0)
    return {"host": cl.Engine(graph, program).profile().host_cycles}


@_program
def stream_in(kind: str) -> Figures:
    """From the host."""
    return _streamed(kind, False)


@_program
def stream_out(kind: str) -> Figures:
    """To the host."""
    return _streamed(kind, True)


@_program
def adder(kind: str) -> Figures:
    """Three vectors of two numbers from the host, their sum back to it."""
    graph = cl.Graph(MK1)
    parts = [graph.add_variable(name, (2,)) for name in "abc"]
    total = graph.add_variable("total", (2,))
    add = cl.codelet(lambda a, b, c: a + b + c, workers=6, issue="assembly")
    with graph.record() as step:
        graph.add_vertex("add", add, a=parts[0], b=parts[1], c=parts[2], out=total)
    into = [cl.Copy(graph.add_input_stream(f"to {part.name}", (2,)), part) for part in parts]
    profile = cl.Engine(graph, [*into, step, cl.Copy(total, graph.add_output_stream("out", (2,)))]).profile()
    memory = profile.memory_by_tile
    return {"bytes, mean of tiles": float(memory.mean()), "bytes, fullest tile": float(memory.max())}


# --- reductions over many tiles ----------------------------------------------------------------------------


@_program
def two_stage_reduction(kind: tuple[int, int, int, int, int, str]) -> Figures:
    """Over axes 1 and 3 of float16: on the tiles where it lies, then on the tiles of the results."""
    a, b, c, d, e, operation = kind
    reduce = {"max": jnp.max, "sum": lambda x, axis: jnp.sum(x, axis, dtype=x.dtype)}[operation]
    graph = cl.Graph(cl.IPU("mk2", num_tiles=1024))
    x = graph.add_variable("x", (a, b, c, d, e), dtype=F16)
    part, y = graph.add_variable("part", (a, b, c, e), dtype=F16), graph.add_variable("y", (a, c, e), dtype=F16)
    how: dict[str, Any] = {"workers": 6, "issue": "assembly"}
    first = cl.codelet(lambda x: reduce(x, axis=0), **how)
    i, j, k = cl.grid(a, b, c)
    tile = ((i * b + j) * c + k) * 1024 // (a * b * c)
    graph.add_vertex("on each tile", first, x=x[i, j, k], out=part[i, j, k], tile=tile)
    graph.set_tile_mapping(x[i, j, k], tile)
    graph.set_tile_mapping(part[i, j, k], tile)
    i, k = cl.grid(a, c)
    tile = (i * c + k) * 1024 // (a * c)
    graph.add_vertex("together", first, x=part[i, :, k], out=y[i, k], tile=tile)
    graph.set_tile_mapping(y[i, k], tile)
    return {"total": cl.Engine(graph).profile().total_cycles}


# --- kernels written by hand, on a C600 ----------------------------------------------------------------------


@_program
def kernel_add(n: int) -> Figures:
    """An addition of float16."""
    return _by_all(lambda x, y: x + y, _vectors(F16, x=n, y=n), C600)


@_program
def kernel_gelu(n: int) -> Figures:
    """The activation by a hyperbolic tangent, float16."""
    return _by_all(lambda x: jax.nn.gelu(x), _vectors(F16, x=n), C600)


@_program
def kernel_reduction(shape: tuple[int, int]) -> Figures:
    """A sum over partial sums in float16."""
    return _by_all(lambda x: jnp.sum(x, 0, dtype=F16), {"x": (shape, F16)}, C600)


@_program
def kernel_layer_norm(n: int) -> Figures:
    """A row less its mean over its deviation, scaled and moved."""

    def normalise(x, scale, offset):
        mean = jnp.mean(x, dtype=F32)
        square = jnp.mean(jnp.square(x), dtype=F32) - mean * mean
        return (x - mean.astype(F16)) * lax.rsqrt(square + 1e-5).astype(F16) * scale + offset

    return _by_all(normalise, _vectors(F16, x=n, scale=n, offset=n), C600)


@_program
def kernel_softmax(n: int) -> Figures:
    """Exponentials over their sum, float16."""
    return _by_all(lambda x: jax.nn.softmax(x), _vectors(F16, x=n), C600)


def _product(shape: tuple[int, int, int], dtype: Any) -> Figures:
    rows, depth, columns = shape

    def product(x, w):
        return lax.dot(x, w, preferred_element_type=F16)

    return _by_all(product, {"x": ((rows, depth), dtype), "w": ((depth, columns), dtype)}, C600)


@_program
def product_float16(shape: tuple[int, int, int]) -> Figures:
    """Matrices of float16, (rows, summed over, columns)."""
    return _product(shape, F16)


@_program
def product_float8(shape: tuple[int, int, int]) -> Figures:
    """Matrices of float8."""
    return _product(shape, jnp.float8_e4m3fn)


@_program
def paired_send(words: int) -> Figures:
    """From one tile to both tiles of a pair."""
    graph = cl.Graph(C600)
    x, y = graph.add_variable("x", (words,)), graph.add_variable("y", (2,))
    graph.set_tile_mapping(x, 0)
    i = cl.grid(2)
    first = cl.codelet(lambda x: x[0], cycles=lambda x: 0)
    graph.add_vertex("receive", first, x=x, out=y[i], tile=2 + i)
    graph.set_tile_mapping(y[i], 2 + i)
    return {"exchange": cl.Engine(graph).profile().exchange_cycles}
