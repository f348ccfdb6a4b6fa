"""Updates of small parts at known places, of what lies there: scattered, with the same values and slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.small_updates import scatter_small_updates
from tests.examples import examples
from tests.test_added_in_place import primitives

SHAPES = ((2048,), (64, 40), (12, 20, 9))


@st.composite
def programs(draw):
    """A function of an array and a number that updates parts of the array in turn, and the array's shape."""
    shape = draw(st.sampled_from(SHAPES))
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        sizes = [draw(st.sampled_from((1, min(3, n), max(1, n // 3), n))) for n in shape]
        starts = [draw(st.integers(0, n - m)) for n, m in zip(shape, sizes, strict=True)]
        moved = [draw(st.sampled_from((0, 0, 0, 1))) for _ in shape]
        elsewhere = [min(a + b, n - m) for a, b, n, m in zip(starts, moved, shape, sizes, strict=True)]
        late = draw(st.sampled_from((None, None, np.int32, np.uint16)))
        if late is not None:  # out of bounds now and then, where it is clamped
            limits = [min(n, np.iinfo(late).max) for n in shape]
            starts = [draw(st.integers(0 if late is np.uint16 else -2, n)) for n in limits]
        steps.append((starts, elsewhere, sizes, draw(st.sampled_from(("map", "flat", "split", "sum", "old"))), late))
    in_loop = draw(st.booleans())

    def turn(x, s):
        first = x
        for starts, elsewhere, sizes, way, late in steps:
            stops = [a + n for a, n in zip(elsewhere, sizes, strict=True)]
            own = lax.slice(first if way == "old" else x, elsewhere, stops)
            if way == "split" and list(sizes[1:]) == list(shape[1:]):
                own = lax.split(x, [elsewhere[0], sizes[0], len(x) - stops[0]])[1]
            if way == "flat":
                own = jnp.sin(own.reshape(-1)).reshape(own.shape)
            elif way == "sum":
                own = own + jnp.sum(own)
            if late is None:
                x = lax.dynamic_update_slice(x, s * own + 0.25, starts)
                continue
            known_late = [late(start) + (s > 1e6).astype(late) for start in starts]
            x = lax.dynamic_update_slice(2 * x, s * own + 0.25, known_late, allow_negative_indices=False)
        return x

    def function(x, s):
        return [lax.fori_loop(0, 3, lambda _, x: turn(x, s), x) if in_loop else turn(x, s)]

    return function, shape


def check_updates(drawn, seed):
    function, shape = drawn
    random = np.random.default_rng(seed)
    x, weights = (jnp.asarray(random.normal(size=shape), jnp.float32) for _ in range(2))
    made = jax_core.jaxpr_as_fun(scatter_small_updates(jax.make_jaxpr(function)(x, jnp.float32(0.5))))

    def every(run):
        loss = lambda x, s: jnp.sum(weights * run(x, s)[0] ** 2)  # noqa: E731
        return run(x, jnp.float32(0.5)), jax.grad(loss, (0, 1))(x, jnp.float32(0.5))

    before, after = jax.jit(lambda: (every(function), every(made)))()
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@examples(10)
@given(programs(), st.integers(0, 9))
def test_values_and_slopes_stay(drawn, seed):
    check_updates(drawn, seed)


@pytest.mark.slow
@examples(200)
@given(programs(), st.integers(0, 9))
def test_values_and_slopes_of_many_stay(drawn, seed):
    check_updates(drawn, seed)


def updated(start, size, values):
    return lambda x: [lax.dynamic_update_slice(x, values(x[start : start + size]), (start,))]


def test_small_updates_of_their_own_place_alone_are_scattered():
    x = jnp.ones(4096)
    of = lambda function, x=x: scatter_small_updates(jax.make_jaxpr(function)(x))  # noqa: E731
    assert "scatter" in primitives(of(updated(5, 20, jnp.sin)).jaxpr)
    assert "scatter" in primitives(of(updated(4076, 20, lambda own: 2 * own.reshape(-1) + 1)).jaxpr)
    same = (
        lambda x: [lax.dynamic_update_slice(x, jnp.sin(x[:20]), (20,))],  # of another place
        lambda x: [lax.dynamic_update_slice(x, jnp.cumsum(x[5:25]), (5,))],  # not by element
        updated(5, 1, jnp.sin),
        updated(5, 2000, jnp.sin),
        lambda x: [lax.fori_loop(0, 9, lambda k, x: x.at[k].set(jnp.sin(x[k])), x)],
    )
    for function in same:
        closed = jax.make_jaxpr(function)(x)
        assert scatter_small_updates(closed) is closed
    small = jax.make_jaxpr(updated(5, 20, jnp.sin))(x[:1000])
    assert scatter_small_updates(small) is small


def test_small_updates_at_a_late_place_of_what_is_new_are_scattered():
    def of(shape, size, new=jnp.sin, starts=None):
        def function(x, k):
            return [lax.dynamic_update_slice(new(x), jnp.ones(size), starts or [k] * len(shape))]

        closed = jax.make_jaxpr(function)(jnp.ones(shape), 0)
        made = scatter_small_updates(closed)
        return None if made is closed else primitives(made.jaxpr)

    for shape, size in (((1500,), (1,)), ((1500,), (1000,)), ((300, 300), (8, 8)), ((300, 4, 1), (1, 2, 1))):
        made = of(shape, size)
        assert made is not None
        assert "scatter" in made
        assert "dynamic_update_slice" not in made
    assert of((300, 300), (1, 300)) is None  # whole rows
    assert of((500,), (1,)) is None  # of little
    assert of((1500,), (0,)) is None
    assert of((1500,), (1,), lambda x: x) is None  # of what is there: in place
    assert of((1500,), (1,), jnp.cumsum) is None  # of what is made apart
    assert of((1500,), (1,), starts=[3]) is None  # at a known place


@pytest.mark.parametrize("size", [7, 100])
def test_a_compute_set_that_changes_part_of_a_variable_writes_that_part(size):
    """Its values are scattered there: of a slice of the place XLA would make a loop over the whole variable."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a = graph.add_variable("a", (5000,))
    change = cl.codelet(lambda x: {"x": jnp.sin(x)})
    for k in range(4):
        graph.add_vertex(f"part {k}", change, x=a[k * size + cl.grid(size)])
    run = cl.lower(graph, inputs=[a], outputs=[a])
    x = jnp.linspace(0, 1, 5000)
    np.testing.assert_allclose(run({"a": x})["a"], x.at[: 4 * size].set(jnp.sin(x[: 4 * size])), rtol=1e-6)
    assert primitives(run.jaxpr.jaxpr) & {"scatter", "dynamic_update_slice"} == {"scatter"}
