"""Whole programs of `measurements.py`, built with codelet for the chip that they were measured on.

In comes an argument, a size or a kind; out come the figures of its profile, by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping

import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.measured_vertices import C600, F16, F32, MK1, MK2, PROGRAMS, Figures, one_tile, program
from ipu_backend.jobs.matvec import dot_vertex_cycles


def figures_of(name: str, argument: Hashable) -> Mapping[str, float]:
    """The figures of a program for one argument; built and profiled once."""
    return _figures(name, argument)


@functools.cache
def _figures(name: str, argument: Hashable) -> Figures:
    return PROGRAMS[name](argument)


@program
def matrix_vector(kind: str) -> Figures:
    """Poplar's matrix-vector tutorial: 10,000 x 1,000 in 7 parts of columns, matrix and vectors through streams."""
    rows, columns, parts = 10_000, 1_000, 7
    as_estimated = kind != "compiled"
    dot = cl.codelet(lambda x, w: jnp.dot(x, w), issue="compiled")
    total = cl.codelet(lambda partials: jnp.sum(partials), issue="compiled")
    if as_estimated:
        dot = cl.codelet(dot.function, cycles=lambda x, w: dot_vertex_cycles(x.size))
        total = cl.codelet(total.function, cycles=lambda partials: dot_vertex_cycles(partials.size))
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


# --- copies, halos, streams, memory ----------------------------------------------------------------------


def _copied(source: Callable[[cl.Tensor], cl.Tensor], shape: tuple[int, ...], length: int) -> Figures:
    graph = cl.Graph(one_tile(MK1))
    x, y = graph.add_variable("x", shape), graph.add_variable("y", (length,))
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 0)
    profile = cl.Engine(graph, cl.Copy(source(x), y)).profile()
    return {"compute of its vertices": profile.compute_cycles - profile.launch_cycles}


@program
def strided_copy(n: int) -> Figures:
    """A column of a matrix copied on its tile."""
    return _copied(lambda x: x[:, 0], (n, 100), n)


@program
def short_copy(n: int) -> Figures:
    """A row of a matrix copied on its tile."""
    return _copied(lambda x: x[0], (4, n), n)


@program
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


@program
def stream_in(kind: str) -> Figures:
    """From the host."""
    return _streamed(kind, False)


@program
def stream_out(kind: str) -> Figures:
    """To the host."""
    return _streamed(kind, True)


@program
def adder(kind: str) -> Figures:
    """Three vectors of two numbers from the host, their sum back to it; and, as there, a seed for every tile."""
    graph = cl.Graph(MK1)
    parts = [graph.add_variable(name, (2,)) for name in "abc"]
    total = graph.add_variable("total", (2,))
    seeds, state = (graph.add_variable(name, (MK1.num_tiles, 2), dtype=np.uint32) for name in ("seeds", "state"))
    add = cl.codelet(lambda a, b, c: a + b + c, workers=6, issue="assembly")
    set_seed = cl.codelet(lambda seed: seed ^ np.uint32(1), workers=6, issue="assembly")
    with graph.record() as step:
        graph.add_vertex("add", add, a=parts[0], b=parts[1], c=parts[2], out=total, tile=0)
    i = cl.grid(MK1.num_tiles)
    with graph.record() as seeding:
        graph.add_vertex("set seeds", set_seed, seed=seeds[i], out=state[i], tile=i)
    for tensor, tile in [*((own, 0) for own in (*parts, total)), (seeds[i], i), (state[i], i)]:
        graph.set_tile_mapping(tensor, tile)
    into = [
        cl.Copy(graph.add_input_stream(f"to {own.name}", own.shape, dtype=own.dtype), own) for own in (*parts, seeds)
    ]
    program = [*into, seeding, step, cl.Copy(total, graph.add_output_stream("out", (2,)))]
    profile = cl.Engine(graph, program).profile()
    memory = profile.memory_by_tile
    kinds = {f"bytes of {name}, mean of tiles": float(own.mean()) for name, own in profile.memory.items()}
    return {"bytes, mean of tiles": float(memory.mean()), "bytes, fullest tile": float(memory.max()), **kinds}


# --- reductions over many tiles ----------------------------------------------------------------------------


@program
def two_stage_reduction(kind: tuple[int, int, int, int, int, str]) -> Figures:
    """Over axes 1 and 3 of float16: on the tiles where it lies, then on the tiles of the results."""
    a, b, c, d, e, operation = kind
    reduce = {"max": jnp.max, "sum": lambda x, axis: jnp.sum(x, axis, dtype=x.dtype)}[operation]
    graph = cl.Graph(cl.IPU("mk2", num_tiles=1024))
    x = graph.add_variable("x", (a, b, c, d, e), dtype=F16)
    part, y = graph.add_variable("part", (a, b, c, e), dtype=F16), graph.add_variable("y", (a, c, e), dtype=F16)
    first = cl.codelet(lambda x: reduce(x, axis=0), workers=6, issue="assembly")
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


@program
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
