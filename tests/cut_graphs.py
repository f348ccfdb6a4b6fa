"""Graphs that are cut over meshes, which tests of one and of several processes run."""

from typing import Any

import numpy as np
from jax.sharding import Mesh

import codelet as cl
from benchmarks.heat import diffuse


def heat(size: int, turns: int, tiles: int | None = None) -> tuple[cl.Graph, cl.Program]:
    """A five-point stencil there and back."""
    graph = cl.Graph() if tiles is None else cl.Graph(cl.IPU(num_tiles=tiles))
    u, v = graph.add_variable("u", (size, size)), graph.add_variable("v", (size, size))
    i, j = cl.grid(range(1, size - 1), range(1, size - 1))
    with graph.record() as both:
        for name, a, b in (("there", u, v), ("back", v, u)):
            near = {"north": a[i - 1, j], "south": a[i + 1, j], "west": a[i, j - 1], "east": a[i, j + 1]}
            where = {} if tiles is None else {"tile": i * tiles // size}
            graph.add_vertex(name, diffuse, here=a[i, j], out=b[i, j], **near, **where)
    if tiles is not None:
        for variable in (u, v):
            graph.set_tile_mapping(variable, np.repeat(np.arange(size) * tiles // size, size).reshape(size, size))
    return graph, cl.Sequence(cl.Copy(u, v), cl.Repeat(turns, both))


@cl.codelet
def added(total, x):
    return {"total": total + x}


def adding(shape: tuple[int, int], cut: int, mesh: Mesh | None, count: int, **options: Any) -> cl.Engine:
    """Values of a stream, added up where they arrive: by the tiles cut in blocks along a dimension."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    stream = graph.add_input_stream("in", shape)
    x, total = graph.add_variable("x", shape), graph.add_variable("total", shape)
    ij = cl.grid(*shape)
    with graph.record() as body:
        graph.add_vertex("add", added, total=total[ij], x=x[ij], tile=ij[cut] // -(-shape[cut] // 8))
    for variable in (x, total):
        graph.set_tile_mapping(variable, np.indices(shape)[cut] // -(-shape[cut] // 8))
    return cl.Engine(graph, cl.Repeat(count, cl.Sequence(cl.Copy(stream, x), body)), mesh=mesh, **options)
