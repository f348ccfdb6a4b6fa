"""Which small updates are scattered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from lowering.jaxprs.small_updates import scatter_small_updates
from tests.test_added_in_place import primitives

# --- scatter_small_updates --------------------------------------------------------------------------------------------


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
