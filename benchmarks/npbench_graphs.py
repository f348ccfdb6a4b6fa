"""Kernels of `npbench` as graphs of vertices that are written by hand.

Points of stencils, pairs of nodes and bins are a vertex each; Durbin's recursion is a loop inside of one vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

import codelet as cl
from benchmarks import npbench_kernels


class ByHand(NamedTuple):
    """A graph of a kernel.

    Attributes:
        graph: its vertices.
        program: what runs when.
        inputs: the variables of the arguments, in order.
        outputs: those of the results, in order.
    """

    graph: cl.Graph
    program: cl.Program
    inputs: Sequence[cl.Tensor]
    outputs: Sequence[cl.Tensor]


# --- means of neighbours, there and back ----------------------------------------------------------------


@cl.codelet
def mean_of_three(here, west, east):
    """A point of `jacobi_1d`."""
    return (west + here + east) / 3


def jacobi_1d(n: int, steps: int) -> ByHand:
    """A vertex for each inner point."""
    graph = cl.Graph()
    a, b = graph.add_variable("a", (n,)), graph.add_variable("b", (n,))
    i = cl.grid(range(1, n - 1))
    with graph.record() as turn:
        for name, x, y in (("there", a, b), ("back", b, a)):
            graph.add_vertex(name, mean_of_three, here=x[i], west=x[i - 1], east=x[i + 1], out=y[i])
    return ByHand(graph, cl.Repeat(steps, turn), [a, b], [a, b])


@cl.codelet
def mean_of_five(here, north, south, west, east):
    """A point of `jacobi_2d`."""
    return 0.2 * (here + (west + east + south + north))


def jacobi_2d(n: int, steps: int) -> ByHand:
    """A vertex for each inner point."""
    graph = cl.Graph()
    a, b = graph.add_variable("a", (n, n)), graph.add_variable("b", (n, n))
    i, j = cl.grid(range(1, n - 1), range(1, n - 1))
    with graph.record() as turn:
        for name, x, y in (("there", a, b), ("back", b, a)):
            graph.add_vertex(
                name,
                mean_of_five,
                here=x[i, j],
                north=x[i - 1, j],
                south=x[i + 1, j],
                west=x[i, j - 1],
                east=x[i, j + 1],
                out=y[i, j],
            )
    return ByHand(graph, cl.Repeat(steps, turn), [a, b], [a, b])


@cl.codelet
def warmed(here, x0, x1, y0, y1, z0, z1):
    """A point of `heat_3d`, of its neighbours along three dimensions."""
    return here + 0.125 * ((x1 - 2 * here + x0) + (y1 - 2 * here + y0) + (z1 - 2 * here + z0))


def heat_3d(n: int, steps: int) -> ByHand:
    """A vertex for each inner point."""
    graph = cl.Graph()
    a, b = graph.add_variable("a", (n, n, n)), graph.add_variable("b", (n, n, n))
    i, j, k = cl.grid(*[range(1, n - 1)] * 3)
    with graph.record() as turn:
        for name, x, y in (("there", a, b), ("back", b, a)):
            graph.add_vertex(
                name,
                warmed,
                here=x[i, j, k],
                x0=x[i - 1, j, k],
                x1=x[i + 1, j, k],
                y0=x[i, j - 1, k],
                y1=x[i, j + 1, k],
                z0=x[i, j, k - 1],
                z1=x[i, j, k + 1],
                out=y[i, j, k],
            )
    return ByHand(graph, cl.Repeat(steps, turn), [a, b], [a, b])


# --- points that are read and written -------------------------------------------------------------------


@cl.codelet
def picked(values, k):
    """One of several numbers."""
    return values[k]


@cl.codelet
def electric(e, here, before):
    """A component of the electric field, half a step later."""
    return {"e": e - 0.5 * (here - before)}


@cl.codelet
def magnetic(h, x0, x1, y0, y1):
    """The magnetic field a step later, of the electric field around it."""
    return {"h": h - 0.7 * (x1 - x0 + y1 - y0)}


def fdtd_2d(nx: int, ny: int, steps: int) -> ByHand:
    """A vertex for each point of a field, and one that picks the source of the turn, which counts itself."""
    graph = cl.Graph()
    ex, ey, hz = (graph.add_variable(name, (nx, ny)) for name in ("ex", "ey", "hz"))
    source, turns = graph.add_variable("source", (steps,)), graph.add_variable("turns", (), "int32")
    with graph.record() as turn:
        driven = graph.add_vertex("source of turn", picked, values=source, k=turns)
        j = cl.grid(ny)
        graph.add_vertex("drive", cl.codelet(lambda x: x), x=driven, out=ey[0, j])
        i, j = cl.grid(range(1, nx), ny)
        graph.add_vertex("electric y", electric, e=ey[i, j], here=hz[i, j], before=hz[i - 1, j])
        i, j = cl.grid(nx, range(1, ny))
        graph.add_vertex("electric x", electric, e=ex[i, j], here=hz[i, j], before=hz[i, j - 1])
        i, j = cl.grid(nx - 1, ny - 1)
        graph.add_vertex("magnetic", magnetic, h=hz[i, j], x0=ex[i, j], x1=ex[i, j + 1], y0=ey[i, j], y1=ey[i + 1, j])
    return ByHand(graph, cl.Repeat(steps, turn, index=turns), [ex, ey, hz, source], [ex, ey, hz])


@cl.codelet
def mean_of_nine(here, north, south, west, east):
    """A point of `seidel_2d`: the three above and below it are fields of three."""
    return {"here": (here + west + east + north.sum() + south.sum()) / 9}


def seidel_2d(n: int, steps: int) -> ByHand:
    """Wavefronts: the points of one `2 i + j`, which need none of each other, are a compute set."""
    graph = cl.Graph()
    a = graph.add_variable("a", (n, n))
    with graph.record() as sweep:
        for wave in range(3, 3 * (n - 2) + 1):
            i = cl.grid(range(max(1, (wave - n + 3) // 2), min(n - 2, (wave - 1) // 2) + 1))
            j = wave - 2 * i
            graph.add_vertex(
                f"wave {wave}",
                mean_of_nine,
                here=a[i, j],
                north=a[i - 1, j - 1 : j + 2],
                south=a[i + 1, j - 1 : j + 2],
                west=a[i, j - 1],
                east=a[i, j + 1],
            )
    return ByHand(graph, cl.Repeat(steps, sweep), [a], [a])


@cl.codelet
def shorter(path, first, second):
    """The way that is known between two nodes, or that through a third."""
    return {"path": jnp.minimum(path, first + second)}


def floyd_warshall(n: int) -> ByHand:
    """A vertex for each pair of nodes; ways from and to the node of the turn are sliced first."""
    graph = cl.Graph()
    path, node = graph.add_variable("path", (n, n)), graph.add_variable("node", (), "int32")
    i, j = cl.grid(n, n)
    with graph.record() as turn:
        ways_to = cl.ops.dynamic_slice(graph, path, (0, node), (n, 1))
        ways_from = cl.ops.dynamic_slice(graph, path, (node, 0), (1, n))
        graph.add_vertex("shorter", shorter, path=path[i, j], first=ways_to[i, 0], second=ways_from[0, j])
    return ByHand(graph, cl.Repeat(n, turn, index=node), [path], [path])


# --- vertices of whole arrays ---------------------------------------------------------------------------


@cl.codelet
def largest(radius):
    """The largest radius."""
    return radius.max()


@cl.codelet
def mean_between(data, radius, end, low, high, bins):
    """The mean of the data of a bin, whose edges are parts of the largest radius."""
    is_here = (end * low / bins <= radius) & (radius < end * high / bins)
    return jnp.sum(jnp.where(is_here, data, 0.0)) / jnp.maximum(jnp.sum(is_here), 1)


def azimint_naive(n: int, bins: int) -> ByHand:
    """A vertex for each bin, which looks at all data."""
    graph = cl.Graph()
    data, radius = graph.add_variable("data", (n,)), graph.add_variable("radius", (n,))
    end = graph.add_vertex("largest", largest, radius=radius)
    k = cl.grid(bins)
    means = graph.add_vertex("means", mean_between, data=data, radius=radius, end=end, low=k, high=k + 1, bins=bins)
    return ByHand(graph, graph.default_program, [data, radius], [means])


def durbin(n: int) -> ByHand:
    """One vertex, which loops by itself."""
    graph = cl.Graph()
    r = graph.add_variable("r", (n,))
    y = graph.add_vertex("durbin", cl.codelet(npbench_kernels.durbin), r=r)
    return ByHand(graph, graph.default_program, [r], [y])


GRAPHS: dict[str, Callable[..., ByHand]] = {
    graph.__name__: graph
    for graph in (jacobi_1d, jacobi_2d, heat_3d, fdtd_2d, seidel_2d, floyd_warshall, azimint_naive, durbin)
}
"""By the names of kernels: from the numbers of a size to the graph."""
