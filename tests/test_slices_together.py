"""Slices of an array, made together: their slopes, of every order, are those of the slices by themselves."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core
from jax.sharding import PartitionSpec

import codelet as cl
from codelet.jaxprs.slices_together import with_slices_together
from tests.examples import examples
from tests.meshes import mesh_of
from tests.test_added_in_place import primitives


@st.composite
def parts(draw, shape):
    """Slices and reshapes in a row, of an array of a shape, as a function of it."""
    moves = []
    for _ in range(draw(st.integers(1, 3))):
        starts = [draw(st.integers(0, n - 1)) for n in shape]
        steps = [draw(st.sampled_from((1, 1, 2, 3))) for _ in shape]
        stops = [draw(st.integers(a + 1, n)) for a, n in zip(starts, shape, strict=True)]
        moves.append(partial(lax.slice, start_indices=starts, limit_indices=stops, strides=steps))
        shape = [-(-(z - a) // s) for a, z, s in zip(starts, stops, steps, strict=True)]
        if draw(st.booleans()):
            shape = draw(st.sampled_from(([math.prod(shape)], [1, *shape], [*shape, 1])))
            moves.append(partial(lax.reshape, new_sizes=tuple(shape)))

    def part(x):
        for move in moves:
            x = move(x)
        return x

    return part


@st.composite
def programs(draw):
    """A function of an array that reads small parts of it, and changes it, in turn; and the array's shape."""
    shape = draw(st.sampled_from(((64,), (9, 8), (3, 5, 7), (40, 2))))
    steps, is_split = draw(st.integers(1, 4)), draw(st.booleans())
    taken = [draw(st.lists(parts(shape), min_size=1, max_size=3)) for _ in range(steps)]
    places = [tuple(draw(st.integers(0, n - 1)) for n in shape) for _ in range(steps)]
    within = draw(st.sampled_from(("alone", "a loop", "computed again", "a function")))

    def turn(x):
        sums = []
        for own, place in zip(taken, places, strict=True):
            values = [jnp.sin(part(x)) for part in own]
            if is_split:
                values += [jnp.cos(part) for part in lax.split(x, [1, len(x) - 2, 1])[::2]]
            sums.append(sum(jnp.sum(value**2) for value in values))
            x = lax.dynamic_update_slice(x, jnp.full((1,) * x.ndim, sums[-1]) * values[0].reshape(-1)[0], place)
        return x, jnp.stack(sums)

    def function(x):
        if within == "a loop":
            x, sums = lax.scan(lambda x, _: turn(x), x, None, length=2)
            return [x, sums]
        run = {"alone": turn, "computed again": jax.checkpoint(turn), "a function": jax.jit(turn)}[within]
        return list(run(x))

    return function, shape


def check_slopes(drawn, seed):
    function, shape = drawn
    random = np.random.default_rng(seed)
    x, y, weights = (jnp.asarray(random.normal(size=shape), jnp.float32) for _ in range(3))
    closed = jax.make_jaxpr(function)(x)
    made = jax_core.jaxpr_as_fun(with_slices_together(closed))

    def loss(run):
        def of(x):
            whole, sums = run(x)
            return jnp.sum(weights * whole**2) + jnp.sum(jnp.cos(sums))

        return of

    def every(run):
        """All orders of slopes, as one program."""
        of = loss(run)
        return (
            run(x),
            jax.grad(of)(x),
            jax.grad(lambda x: jnp.sum(run(x)[1]))(x),
            jax.jvp(of, (x,), (y,)),
            jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(of)(x))))(x),
            jax.vmap(jax.grad(of))(jnp.stack([x, y])),
            jax.vmap(jax.vmap(jax.grad(of)), in_axes=-1, out_axes=-1)(jnp.stack([jnp.stack([x, y, -x])] * 2, -1)),
        )

    before, after = jax.jit(lambda: (every(function), every(made)))()
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@examples(2)
@given(programs(), st.integers(0, 9))
def test_slopes_are_those_of_the_slices(drawn, seed):
    check_slopes(drawn, seed)


@pytest.mark.slow
@examples(60)
@given(programs(), st.integers(0, 9))
def test_slopes_of_many_are_those_of_the_slices(drawn, seed):
    check_slopes(drawn, seed)


def waves(x, y):
    """What is added to some of an array, of what lies before it, in turn."""
    for k in range(1, 7):
        x = lax.dynamic_update_slice(x, x[k : k + 1, :3] + jnp.sin(x[k - 1 : k, 2:5]) * y, (k, 0))
    return x


def test_small_slices_alone_are_made_together():
    x, y = jnp.ones((8, 16)), jnp.float32(2)
    of = lambda function, *given: with_slices_together(jax.make_jaxpr(function)(*given))  # noqa: E731
    assert "slices_together" in primitives(of(waves, x, y).jaxpr)
    same = (
        lambda x: (jnp.sin(x[:4]), x),  # much of the array
        lambda x: jnp.sin(x[0]),  # which nothing else takes
        lambda x: jnp.sin(x),
        lambda x: (x[:1, :3], jnp.sin(x)),  # which is computed with
        lambda x: (x[:1, :3], x[2:], lax.dynamic_update_slice(x, x[:1, 3:5], (0, 0))),  # of which much is taken too
        lambda x: (jnp.sin(x[..., ::-1][0]), x),  # no slice of the array
    )
    for function in same:
        closed = jax.make_jaxpr(function)(x)
        assert with_slices_together(closed) is closed
    integers = jax.make_jaxpr(lambda x: lax.dynamic_update_slice(x, x[:1, :3] + 1, (1, 0)))(x.astype(int))
    assert with_slices_together(integers) is integers


def by_hand(n):
    """A wavefront: anti-diagonals of a square, each of those before it."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a = graph.add_variable("a", (n, n))
    three = cl.codelet(lambda here, up, left: {"here": jnp.sin(here + up + left)})
    for wave in range(2, 2 * n - 1):
        i = cl.grid(range(max(1, wave - n + 1), min(n - 1, wave - 1) + 1))
        j = wave - i
        graph.add_vertex(f"wave {wave}", three, here=a[i, j], up=a[i - 1, j], left=a[i, j - 1])
    run = cl.lower(graph, inputs=[a], outputs=[a])
    return lambda x: run({"a": x})["a"]


def by_rows(x):
    """The same, in plain JAX."""

    def row(above, own):
        def point(left, both):
            made = jnp.sin(sum(both) + left)
            return made, made

        row = jnp.concatenate([own[:1], lax.scan(point, own[0], (own[1:], above[1:]))[1]])
        return row, row

    return jnp.concatenate([x[:1], lax.scan(row, x[0], x[1:])[1]])


def test_gradients_of_many_compute_sets_on_one_variable():
    n = 32
    run = by_hand(n)
    x, y = jnp.asarray(np.random.default_rng(0).normal(size=(2, n, n)), jnp.float32)
    loss = lambda f: lambda x: jnp.sum(f(x) ** 2)  # noqa: E731
    found, expected = jax.jit(lambda x: (jax.grad(loss(run))(x), jax.grad(loss(by_rows))(x)))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    eqns = [eqn.primitive.name for eqn in jax.make_jaxpr(jax.grad(loss(run)))(x).jaxpr.eqns]
    assert "pad" not in eqns, "what is added is added in place"
    traced = cl.trace(lambda x, y: jax.jvp(run, (x,), (y,)), x, y, target=cl.IPU(num_tiles=4))
    found, expected = jax.jit(lambda x, y: (traced(x, y), jax.jvp(by_rows, (x,), (y,))))(x, y)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("differentiated", [False, True])
def test_within_a_function_of_several_devices(differentiated):
    """What they make varies over the devices as the array does; JAX asks that no gradient checks it."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(12, 16)), jnp.float32)

    def plain(x):
        return [jnp.sin(x[1:2, :3]) * jnp.cos(x[:1, 2:5]), x]

    def function(run):
        return jax.grad(lambda x: sum(jnp.sum(own**2) for own in run(x))) if differentiated else run

    closed = with_slices_together(jax.make_jaxpr(plain)(x[:6]))
    assert "slices_together" in primitives(closed.jaxpr)
    spec = PartitionSpec("a")
    how = {"mesh": mesh_of(2), "in_specs": spec, "out_specs": spec, "check_vma": not differentiated}
    over = lambda run: jax.shard_map(function(run), **how)  # noqa: E731
    found, expected = jax.jit(lambda x: (over(jax_core.jaxpr_as_fun(closed))(x), over(plain)(x)))(x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
