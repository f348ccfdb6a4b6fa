"""Slopes of the greatest and the least, whatever XLA computes twice: beside the same run operation by operation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.winners import with_steady_winners
from tests.examples import few

SHAPE = (6, 8)


@cl.codelet
def is_positive(a):
    return a > 0


@cl.codelet
def wave(a, b):
    return jnp.sin(a) * (b / (1 + b * b)) + a / 10


@cl.codelet
def inner_product(z, w):
    return jnp.sum(z * w)


@cl.codelet
def of_squares(x):
    return jnp.max(x * x, 0, keepdims=True)


@cl.codelet
def running(x):
    return lax.cummin(x * 0.9, 1, reverse=True)


@cl.codelet
def greater(a, b):
    return jnp.maximum(a * 1.1, b)


@cl.codelet
def greatest(x):
    return jnp.max(x)


def of_windows(graph, t):
    """The greatest of windows of three by one, a vertex each."""
    i, j = cl.grid(*SHAPE)
    around = cl.concatenate([t[-1:], t, t[:1]], 0)
    return graph.add_vertex("windows", greatest, x=around[i : i + 3, j : j + 1]).reshape(SHAPE)


def of_two(graph, t):
    i = cl.grid(SHAPE[0])
    return graph.add_vertex("each", greater, a=t[i], b=t[SHAPE[0] - 1 - i])


EXTREMES = {
    "of columns": lambda graph, t: cl.ops.max(graph, t, axis=0, keepdims=True),
    "of rows": lambda graph, t: cl.ops.min(graph, t, axis=1, keepdims=True),
    "of all": lambda graph, t: cl.ops.max(graph, t, keepdims=True),
    "so far": lambda graph, t: cl.ops.cummax(graph, t, 0),
    "of two": lambda graph, t: cl.ops.map(graph, jnp.minimum, t, t[::-1]),
    "and a number": lambda graph, t: cl.ops.map(graph, lambda a: jnp.maximum(a * a, 0.1), t),
    "of windows": lambda graph, t: cl.ops.max_pool(graph, t, (2, 3), 1, "SAME", axis=(0, 1)),
    "in a codelet": lambda graph, t: graph.add_vertex("in one", of_squares, x=t),
    "so far, in a codelet": lambda graph, t: graph.add_vertex("in one", running, x=t),
    "of two, in a codelet": of_two,
    "of windows of vertices": of_windows,
}


def waves(graph, extreme, source, out):
    """A layer: what is compared is made of products and sums, and the results are used again."""
    i, j = cl.grid(*SHAPE)
    truth = graph.add_vertex("mask", is_positive, a=source[i, j]).reshape(SHAPE)
    t = cl.ops.map(graph, lambda m, a: jnp.where(m, a, 0.2 * a), truth, source)
    most = EXTREMES[extreme](graph, t).broadcast_to(SHAPE)
    t = cl.ops.map(graph, lambda a, b: a * b, t, most)
    graph.add_vertex("wave", wave, a=t[i, j], b=t[(i + 1) % SHAPE[0], j], out=out[i, j])


def program_of(extreme, dtype):
    """Calls, the last ones in a branch: of x and w, a number."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y, z, w, source, out = (graph.add_variable(n, SHAPE, dtype) for n in ("x", "y", "z", "w", "source", "out"))
    again, total = graph.add_variable("again", (), "bool"), graph.add_variable("total", (), dtype)
    with graph.record(aside=True) as body:
        waves(graph, extreme, source, out)
    layer = graph.add_function(cl.Sequence(*body.compute_sets), [source, out])
    call = lambda source, out: cl.Call(layer, source=source, out=out)  # noqa: E731
    with graph.record(aside=True) as last:
        graph.add_vertex("add up", inner_product, z=z, w=w, out=total)
    branch = cl.If(again, [call(z, y), call(y, z)], [])
    return graph, cl.Sequence(call(x, y), call(y, z), branch, *last.compute_sets)


@few(
    "dtype, extreme",
    [(dtype, own) for own in EXTREMES for dtype in ("float32", "float64")],
    quick=["float32, of two", "float64, of windows of vertices"],
)
def test_no_slope_is_lost(dtype, extreme):
    with jax.enable_x64(dtype == "float64"):
        graph, program = program_of(extreme, dtype)
        run = cl.lower(graph, program, inputs=["x", "w", "again"], outputs=["total"])
        found = cl.gradient(graph, of="total", wrt=["x"], program=program)
        added = cl.lower(graph, [found.forward, found.backward], inputs=["x", "w", "again"], outputs=[found["x"]])

        def by_jax(x, w, again):
            return jax.grad(lambda x: run({"x": x, "w": w, "again": again})["total"])(x)

        def by_vertices(x, w, again):
            return added({"x": x, "w": w, "again": again})[found["x"].source.name]

        compiled = [jax.jit(own, static_argnums=2) for own in (by_jax, by_vertices)]
        for seed in range(3):
            random = np.random.default_rng(seed)
            x, w = (jnp.asarray(scale * random.normal(size=SHAPE), dtype) for scale in (0.9, 1))
            for again in (False, True):
                expected = np.asarray(by_jax(x, w, again))
                for function in compiled:
                    error = np.abs(np.asarray(function(x, w, again)) - expected).max()
                    assert error <= 1e-3 * np.abs(expected).max() + 1e-9, (seed, again)


PLAIN = {
    "greatest": lambda x: jnp.max(x, 1),
    "of several axes": lambda x: jnp.min(x.reshape(2, 2, 5), (0, 2)),
    "of axes apart": lambda x: jnp.max(x.reshape(2, 2, 5), (2, 0)),
    "of no axis": lambda x: lax.reduce_max(x, ()),
    "so far": lambda x: lax.cummax(x, 1),
    "so far, from behind": lambda x: lax.cummin(x, 0, reverse=True),
    "of two": lambda x: jnp.maximum(x, x[::-1]),
    "and a number": lambda x: jnp.minimum(x, 1),
    "in a loop": lambda x: lax.scan(lambda c, row: (jnp.maximum(c, row), jnp.max(c * row)), x[0], x),
    "in a choice": lambda x: lax.cond(x[0, 0] > 9, lambda x: x[0], lambda x: jnp.max(x, 0), x),
    "in a function": lambda x: jax.jit(lambda x: jnp.max(x, 0))(x) + jax.checkpoint(lambda x: jnp.min(x, 0))(x),
    "of integers": lambda x: x[0] * jnp.max(jnp.arange(3)),
    "of nothing": lambda x: jnp.max(x[:, :0].reshape(0, 4), 1).sum() + x,
}


@few(
    "name",
    PLAIN,
    quick=["greatest", "of two"],
)
def test_slopes_are_those_of_jax(name):
    """With ties, NaN and infinities; backward, forward, of the second order and mapped."""
    x = jnp.array([[1, 2, 2, -3, 2], [0, -0.0, -1, 0, -2], [jnp.inf, 1, jnp.inf, -jnp.inf, 3], [1, 1, jnp.nan, 4, 1]])
    plain = lambda x: jax.tree.leaves(PLAIN[name](x))  # noqa: E731
    closed = with_steady_winners(jax.make_jaxpr(plain)(x))
    ours = lambda x: jax_core.jaxpr_as_fun(closed)(x)  # noqa: E731

    def all_of(function, x):
        cubes = lambda x: sum(jnp.sum(own**3) for own in function(x))  # noqa: E731
        values, back = jax.vjp(function, x)
        yield values, back([jnp.cos(jnp.arange(own.size, dtype=own.dtype)).reshape(own.shape) for own in values])
        yield jax.jvp(function, (x,), (jnp.sin(x),))
        yield jax.jvp(jax.grad(cubes), (x,), (jnp.sin(x),))
        yield jax.vmap(jax.grad(cubes))(jnp.stack([x, 2 * x]))

    for found, expected in zip(*jax.jit(lambda x: [[*all_of(own, x)] for own in (ours, plain)])(x), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


@few("reduce", [lax.reduce_max, lax.reduce_min], quick=["reduce_min"])
def test_reductions_by_halves_share_among_ties(reduce):
    """Of few numbers, so that many tie."""
    x = np.random.default_rng(0).integers(-2, 3, (2, 5, 1 << 15)).astype(np.float32)
    graph = cl.Graph()
    y = graph.add_vertex("reduce", cl.codelet(lambda x: reduce(x, (0, 1))), x=graph.add_variable("x", x.shape))
    run = cl.lower(graph, inputs=["x"], outputs=[y])
    weights = jnp.cos(jnp.arange(x.shape[-1]))
    ours = jax.jit(jax.grad(lambda x: jnp.vdot(run({"x": x})[y.name], weights)))(x)
    expected = jax.jit(jax.grad(lambda x: jnp.vdot(reduce(x, (0, 1)), weights)))(x)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
