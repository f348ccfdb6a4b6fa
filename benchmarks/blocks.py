"""Stencils in blocks with halos, as Poplar's users write them: blocks of equal lengths, and of lengths that differ.

A block and a vertex for it are what one has who tells a program which tile holds which part of a grid. No number of
tiles divides every grid, so the lengths of blocks differ by one. Such blocks are written in three ways: by a family of
vertices for each length, by loops of Python with a vertex a turn, and by loops in which a halo and what it surrounds
are put together by `cl.concatenate`.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Measurement, Row, benchmark
from codelet.jaxprs.equations import inner_jaxprs

RATE = 0.1

MOST_SECONDS = 2.0
"""What lowering, and compiling, may take."""

MOST_EQUATIONS = 100


@cl.codelet
def star(u):
    """A block of a grid of any rank one step later, given with a halo of one point."""
    return _stepped(u)


def _stepped(u: Any) -> Any:
    inside = (slice(1, -1),) * u.ndim
    around = 0
    for d in range(u.ndim):
        for moved in (slice(None, -2), slice(2, None)):
            around = around + u[(*inside[:d], moved, *inside[d + 1 :])]
    return u[inside] + RATE * (around - 2 * u.ndim * u[inside])


Block = tuple[tuple[int, int], ...]
"""Along each dimension where a block begins, counted from the first inner point, and its length."""


def _lengths(extent: int, count: int) -> list[tuple[int, int]]:
    """An extent in so many parts whose lengths differ by one at most: where each begins, and its length."""
    ends = [extent * k // count for k in range(count + 1)]
    return [(start, stop - start) for start, stop in itertools.pairwise(ends)]


def _blocks(side: int, counts: Sequence[int]) -> Iterator[Block]:
    return itertools.product(*(_lengths(side - 2, count) for count in counts))


def _written(block: Block) -> tuple[slice, ...]:
    return tuple(slice(1 + start, 1 + start + length) for start, length in block)


def _read(block: Block) -> tuple[slice, ...]:
    return tuple(slice(start, start + length + 2) for start, length in block)


def by_lengths(graph: cl.Graph, step: cl.ComputeSet, u: cl.Tensor, v: cl.Tensor, counts: Sequence[int]) -> None:
    """A family for each shape of blocks, which begin where tables say."""
    ways = [_lengths(side - 2, count) for side, count in zip(u.shape, counts, strict=True)]
    for shape in itertools.product(*(sorted({length for _, length in own}) for own in ways)):
        starts = [[start for start, length in own if length == n] for own, n in zip(ways, shape, strict=True)]
        symbols = cl.grid(*map(len, starts))
        at = [cl.table(np.array(own))[i] for own, i in zip(starts, symbols, strict=True)]
        read = tuple(slice(start, start + n + 2) for start, n in zip(at, shape, strict=True))
        written = tuple(slice(start + 1, start + n + 1) for start, n in zip(at, shape, strict=True))
        graph.add_vertex(step, star, u=u[read], out=v[written])


def by_loops(graph: cl.Graph, step: cl.ComputeSet, u: cl.Tensor, v: cl.Tensor, counts: Sequence[int]) -> None:
    """A vertex a turn of a loop."""
    for block in _blocks(u.shape[0], counts):
        graph.add_vertex(step, star, u=u[_read(block)], out=v[_written(block)])


def by_concat(graph: cl.Graph, step: cl.ComputeSet, u: cl.Tensor, v: cl.Tensor, counts: Sequence[int]) -> None:
    """A vertex a turn, which reads what is put together of the rows before a block, those of it, and those behind."""
    for block in _blocks(u.shape[0], counts):
        (start, length), *_ = block
        rest = _read(block)[1:]
        stretches = ((start, start + 1), (start + 1, start + 1 + length), (start + 1 + length, start + 2 + length))
        rows = [u[(slice(a, b), *rest)] for a, b in stretches]
        graph.add_vertex(step, star, u=cl.concatenate(rows, 0), out=v[_written(block)])


BUILDS = {"lengths": by_lengths, "loops": by_loops, "concat": by_concat}

Grid = tuple[int, tuple[int, ...]]
"""The side of a grid, with the points around it that stay, and in how many blocks each dimension is cut."""

GRIDS: dict[str, Grid] = {
    "stencil/10x10": (202, (10, 10)),
    "stencil/11x11": (202, (11, 11)),
    "stencil/7x13": (202, (7, 13)),
    "heat/216": (24, (6, 6, 6)),
    "heat/1260": (100, (9, 10, 14)),
}


def blocks_graph(grid: Grid, build: str, turns: int) -> tuple[cl.Graph, cl.Program]:
    """Steps of a stencil on a grid, there and back, whose blocks are written in one of the ways of `BUILDS`."""
    side, counts = grid
    graph = cl.Graph()
    u, v = (graph.add_variable(name, (side,) * len(counts)) for name in "uv")
    there, back = graph.add_compute_set("there"), graph.add_compute_set("back")
    BUILDS[build](graph, there, u, v, counts)
    BUILDS[build](graph, back, v, u, counts)
    return graph, cl.Sequence(cl.Copy(u, v), cl.Repeat(turns // 2, cl.Sequence(there, back)))


def plain_steps(u: jax.Array, turns: int) -> jax.Array:
    """Two buffers, a step from one to the other and back in each turn: see `benchmarks/heat.py`."""

    def step(u: jax.Array, v: jax.Array) -> jax.Array:
        return v.at[(slice(1, -1),) * u.ndim].set(_stepped(u))

    def turn(_: Any, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, v = both
        v = step(u, v)
        return step(v, u), v

    return lax.fori_loop(0, turns // 2, turn, (u, u))[0]


def num_equations(jaxpr: Any) -> int:
    """Of a jaxpr and all within it."""
    own = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(1 + sum(map(num_equations, inner_jaxprs(eqn))) for eqn in own.eqns)


def what_it_takes(grid: Grid, build: str, turns: int) -> tuple[float, float, int]:
    """The seconds of lowering, of which building is no part, those of compiling, and how many equations are emitted."""
    graph, program = blocks_graph(grid, build, turns)
    jax.devices()  # starting XLA is no part of it
    side, counts = grid
    start = time.perf_counter()
    run = cl.lower(graph, program, inputs=["u"], outputs=["u"])
    kind = jax.ShapeDtypeStruct((side,) * len(counts), np.float32)
    made = jax.jit(lambda u: run({"u": u})["u"]).lower(kind)
    lowered = time.perf_counter() - start
    made.compile()
    return lowered, time.perf_counter() - start - lowered, num_equations(run.jaxpr)


@benchmark
def blocks(grids: Mapping[str, Grid] = GRIDS, turns: int = 50) -> Generator[Comparison | Measurement | Row, Row, None]:
    """Fifty steps of stencils on grids in blocks, even and uneven, written in three ways."""
    for (name, grid), build in itertools.product(grids.items(), BUILDS):
        side, counts = grid

        def arguments(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
            return (random.standard_normal(shape, np.float32),)

        def held(grid: Grid, build: str) -> tuple[Any, ...]:
            return (cl.lower(*blocks_graph(grid, build, turns), inputs=["u"], outputs=["u"]),)

        yield Comparison(
            f"blocks/{name}/{build}",
            ours=jax.jit(lambda lowered, u: lowered({"u": u})["u"]),
            plain=jax.jit(lambda u: plain_steps(u, turns)),
            arguments=functools.partial(arguments, shape=(side,) * len(counts)),
            bar=1.1,
            ours_held=functools.partial(held, grid, build),
        )

        def measured(row: str, grid: Grid, build: str, which: int) -> Row:
            found = in_fresh_process(what_it_takes, grid, build, turns)[which]
            if which < 2:
                return Row(row, found, None, found / MOST_SECONDS, 1.0, f"to {MOST_SECONDS:.0f} s")
            return Row(row, None, None, found / MOST_EQUATIONS, 1.0, f"equations, to {MOST_EQUATIONS}")

        for which, what in enumerate(("lowering", "compiling", "equations")):
            measure = functools.partial(measured, grid=grid, build=build, which=which)
            yield Measurement(f"blocks/{name}/{build}/{what}", measure)
