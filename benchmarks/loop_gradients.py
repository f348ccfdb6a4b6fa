"""Gradients of loops by hand, beside JAX's of plain JAX: by `cl.gradient`, and by `jax.grad` of what is lowered.

An acoustic wave in three dimensions, with all turns kept or so many states at once; heat in blocks with halos; and
conjugate gradients, a loop that goes on until the residual is small: its gradient should cost the turns that ran,
whatever its bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.adjoint import Forward, compare_gradients
from benchmarks.blocks import Grid, blocks_graph, plain_steps
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


class DifferentiatedLoop(NamedTuple):
    """A program with a loop whose gradient is taken.

    Attributes:
        build: makes it.
        plain: the same in JAX.
        arguments: what it is of.
        bar: what the ratio may be at most.
    """

    build: Callable[[], Forward]
    plain: Callable[..., jax.Array]
    arguments: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    bar: float = 1.2


def _normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    return lambda random: tuple(random.standard_normal(shape, np.float32) for shape in shapes)


# --- a wave -------------------------------------------------------------------------------------------------

SPEED = 0.1


@cl.codelet
def swing(c, l, r, f, b, u, d, before):
    """A point of a wave one step later, from it, those around it, and what it was one step earlier."""
    return 2 * c - before + SPEED * (l + r + f + b + u + d - 6 * c)


def build_wave(side: int, turns: int, checkpoint: cl.Revolve | None = None) -> Forward:
    """A wave in a cube whose walls stay, by its two first steps."""
    graph = cl.Graph()
    now, before, after = (graph.add_variable(name, (side,) * 3) for name in ("now", "before", "after"))
    i, j, k = (symbol + 1 for symbol in cl.grid(side - 2, side - 2, side - 2))
    around = {"l": now[i - 1, j, k], "r": now[i + 1, j, k], "f": now[i, j - 1, k], "b": now[i, j + 1, k]}
    around |= {"u": now[i, j, k - 1], "d": now[i, j, k + 1]}
    with graph.record() as turn:
        graph.add_vertex("swing", swing, c=now[i, j, k], **around, before=before[i, j, k], out=after[i, j, k])
    inside = (slice(1, -1),) * 3
    body = cl.Sequence(turn, cl.Copy(now, before), cl.Copy(after[inside], now[inside]))
    return Forward(graph, now, [now, before], cl.Repeat(turns, body, recompute=checkpoint))


def plain_wave(now: jax.Array, before: jax.Array, turns: int) -> jax.Array:
    """The same in JAX."""

    def step(_: Any, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, b = at
        c = a[1:-1, 1:-1, 1:-1]
        around = a[:-2, 1:-1, 1:-1] + a[2:, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1] + a[1:-1, 2:, 1:-1]
        around = around + a[1:-1, 1:-1, :-2] + a[1:-1, 1:-1, 2:]
        return a.at[1:-1, 1:-1, 1:-1].set(2 * c - b[1:-1, 1:-1, 1:-1] + SPEED * (around - 6 * c)), a

    return lax.fori_loop(0, turns, step, (now, before))[0]


# --- heat in blocks -----------------------------------------------------------------------------------------


def build_blocks(grid: Grid, turns: int) -> Forward:
    """Steps of heat on a grid in blocks with halos, by its start."""
    graph, program = blocks_graph(grid, "lengths", turns)
    u = graph.variable("u")
    return Forward(graph, u, [u], program)


# --- conjugate gradients --------------------------------------------------------------------------------------

SMALL = 1e-10
"""Of the square of the first residual, what that of the last may be."""


@cl.codelet
def stencil(c, l, r, u, d):
    """A point of a matrix times a vector: nearly a Laplacian."""
    return 4.01 * c - l - r - u - d


@cl.codelet
def dot(a, b):
    """The product of two rows."""
    return jnp.sum(a * b)


@cl.codelet
def total(x):
    """The sum of those of all rows."""
    return jnp.sum(x)


@cl.codelet
def ratio(a, b):
    """One number by another."""
    return a / b


@cl.codelet
def add_times(y, a, x, *, sign=1.0):
    """So many times a number more, or less."""
    return {"y": y + sign * a * x}


@cl.codelet
def times_add(p, b, r):
    """So many times itself, and a number more."""
    return {"p": r + b * p}


@cl.codelet
def is_large(rr, first):
    """Whether the residual is not small yet."""
    return rr > SMALL * first


def build_conjugate_gradients(side: int, max_iterations: int) -> Forward:
    """The solution of a system of a stencil, by its right side."""
    graph = cl.Graph()
    b, x, r, q = (graph.add_variable(name, (side, side)) for name in "bxrq")
    p = graph.add_variable("p", (side + 2, side + 2))
    rr, new, first = (graph.add_variable(name, ()) for name in ("rr", "new", "first"))
    (i, j), row, inner = cl.grid(side, side), cl.grid(side), p[1:-1, 1:-1]

    def multiply(name: str, a: cl.Tensor, b: cl.Tensor, out: cl.Tensor) -> None:
        parts = graph.add_vertex(name, dot, a=a[row], b=b[row])
        graph.add_vertex(f"{name}/total", total, x=parts, out=out)

    with graph.record() as start:
        multiply("begin", r, r, rr)
    with graph.record() as turn:
        around = {"l": p[i, j + 1], "r": p[i + 2, j + 1], "u": p[i + 1, j], "d": p[i + 1, j + 2]}
        graph.add_vertex("stencil", stencil, c=p[i + 1, j + 1], **around, out=q[i, j])
        pq = graph.add_variable("pq", ())
        multiply("along", inner, q, pq)
        alpha = graph.add_vertex("alpha", ratio, a=rr, b=pq)
        graph.add_vertex("step x", add_times, y=x[i, j], a=alpha, x=p[i + 1, j + 1])
        graph.add_vertex("step r", add_times, y=r[i, j], a=alpha, x=q[i, j], sign=-1.0)
        multiply("left", r, r, new)
        beta = graph.add_vertex("beta", ratio, a=new, b=rr)
        graph.add_vertex("step p", times_add, p=p[i + 1, j + 1], b=beta, r=r[i, j])
    with graph.record() as look:
        goes_on = graph.add_vertex("look", is_large, rr=rr, first=first)
    begin = [cl.Copy(0.0, x), cl.Copy(b, r), cl.Copy(0.0, p), cl.Copy(b, inner), start, cl.Copy(rr, first)]
    loop = cl.RepeatWhile(look, goes_on, cl.Sequence(turn, cl.Copy(new, rr)), max_iterations=max_iterations)
    return Forward(graph, x, [b], cl.Sequence(*begin, loop))


def right_side(side: int) -> np.ndarray:
    """Of the system: the same whenever it is asked for, since plain JAX has to know its number of turns."""
    return np.random.default_rng(0).standard_normal((side, side), np.float32)


def _turn(at: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    x, r, p, rr = at
    around = jnp.pad(p, 1)
    q = 4.01 * p - around[:-2, 1:-1] - around[2:, 1:-1] - around[1:-1, :-2] - around[1:-1, 2:]
    alpha = rr / jnp.sum(p * q)
    x, r = x + alpha * p, r - alpha * q
    new = jnp.sum(r * r)
    return x, r, r + new / rr * p, new


def _start(b: Any) -> tuple[jax.Array, ...]:
    return jnp.zeros_like(b), b, b, jnp.sum(b * b)


@functools.cache
def turns_of(side: int) -> int:
    """How many turns conjugate gradients have for that right side."""
    with jax.ensure_compile_time_eval():
        start = _start(jnp.asarray(right_side(side)))
        more = lambda at: (_turn(at[0]), at[1] + 1)  # noqa: E731
        return int(lax.while_loop(lambda at: at[0][3] > SMALL * start[3], more, (start, 0))[1])


def plain_conjugate_gradients(b: jax.Array, turns: int) -> jax.Array:
    """The same in JAX, for so many turns."""
    return lax.scan(lambda at, _: (_turn(at), None), _start(b), None, length=turns)[0][0]


def loops_of(side: int, blocks: Mapping[str, Grid], system: int, turns: int) -> dict[str, DifferentiatedLoop]:
    """The loops, for a wave and a system of so many points along each dimension, and grids of heat."""
    cube, square = (side,) * 3, (system, system)
    wave = functools.partial(plain_wave, turns=turns)
    found = {
        "wave": DifferentiatedLoop(functools.partial(build_wave, side, turns), wave, _normal(cube, cube), 1.3),
        "wave/revolve": DifferentiatedLoop(
            functools.partial(build_wave, side, turns, cl.Revolve(6)), wave, _normal(cube, cube)
        ),
    }
    for name, grid in blocks.items():
        found[f"heat/{name}"] = DifferentiatedLoop(
            functools.partial(build_blocks, grid, turns),
            functools.partial(plain_steps, turns=turns),
            _normal((grid[0],) * len(grid[1])),
        )
    for times in (1, 2, 4):
        found[f"conjugate_gradients/bound_{times}"] = DifferentiatedLoop(
            lambda times=times: build_conjugate_gradients(system, times * turns_of(system) + 20),
            lambda b: plain_conjugate_gradients(b, turns_of(square[0])),
            lambda random: (right_side(system),),
            1.5,
        )
    return found


BLOCKS: Mapping[str, Grid] = {"even": (50, (4, 4, 4)), "uneven": (64, (5, 7, 3))}


@benchmark
def loop_gradients(
    side: int = 40, blocks: Mapping[str, Grid] = BLOCKS, system: int = 96, turns: int = 60, names: Sequence[str] = ()
) -> Generator[Comparison | Row, Row, None]:
    """Gradients of a wave, of heat in blocks and of conjugate gradients: by vertices, and by `jax.grad`."""
    for name, own in loops_of(side, blocks, system, turns).items():
        if names and name not in names:
            continue

        def held(own: DifferentiatedLoop) -> tuple[Any, ...]:
            forward = own.build()
            return (cl.lower(forward.graph, forward.program, inputs=forward.wrt, outputs=[forward.of]),)

        forward = Comparison(
            name,
            ours=lambda lowered, *arguments: lowered.flat(arguments)[0],
            plain=jax.jit(own.plain),
            arguments=own.arguments,
            ours_held=functools.partial(held, own),
        )
        by_vertices = compare_gradients(forward, own.build, own.bar)
        yield replace(by_vertices, name=f"loop_gradients/{name}")
        yield replace(gradient_of(forward, own.bar), name=f"loop_gradients/{name}/jax_grad")
