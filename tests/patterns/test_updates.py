"""Which small updates are scattered, and which updates are known where they are read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from lowering.jaxprs.forward_updates import forward_updates
from lowering.jaxprs.in_place import update_safely
from lowering.jaxprs.small_updates import scatter_small_updates
from lowering.platforms import lowering_for
from tests import same_jaxprs
from tests.patterns.pattern import simplified
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


# --- update_safely ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("size", [(1, 6), (4, 1), (1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (9, 9)])
def test_late_updates_for_gpus_are_chosen_by_comparisons(size, place, dtype):
    def function(x, *starts):
        array = 2 * x
        own = array.reshape(-1)[: size[0] * size[1]].reshape(size) + 1
        return lax.dynamic_update_slice(array, own, starts, allow_negative_indices=False)

    x = jnp.arange(24.0).reshape(4, 6)
    starts = [dtype(own) for own in place]
    for platform, chosen in (("gpu", True), ("cpu", False)):
        with lowering_for(platform):
            names = same_jaxprs.primitives(same_jaxprs.after(update_safely, function, x, *starts))
        is_thin = all(n in (1, whole) for n, whole in zip(size, x.shape, strict=True))
        assert size == (1, 1) or ("iota" in names) is chosen
        assert size == (1, 1) or ("dynamic_update_slice" in names) is not (chosen and is_thin)


# --- forward_updates --------------------------------------------------------------------------------------------------

X = jnp.arange(15.0).reshape(5, 3)


def take(x, k, size=1):
    return lax.dynamic_slice(x, (k, 0), (size, 3), allow_negative_indices=False)


def put(x, own, k):
    return lax.dynamic_update_slice(x, own, (k, 0), allow_negative_indices=False)


def slices(function, *arguments):
    """How many slices are taken and put after the rule."""
    names = same_jaxprs.primitives(same_jaxprs.after(forward_updates, function, *arguments))
    return sum(name in ("dynamic_slice", "slice") for name in names), names.count("dynamic_update_slice")


FORWARDED = {
    "what was put": (lambda x, k: take(put(x, jnp.sin(x[:1]), k), k), (1, 0)),
    "two updates": (lambda x, k: put(put(x, jnp.sin(x[:1]), k), jnp.cos(x[1:2]), k), (1, 1)),
    "what lies there": (lambda x, k: put(x, take(x, k), k), (0, 0)),
    "at a literal": (lambda x, k: put(x, jnp.sin(x[:1]), 4)[4:] + x[:1], (2, 0)),
    "clamped alike": (lambda x, k: take(put(x, jnp.sin(x[:1]), 9), 4), (1, 0)),
    "moved": (
        lambda x, k: put(put(x, jnp.zeros((1, 3)), k), take(put(x, jnp.zeros((1, 3)), k), k) + take(x, k), k),
        (0, 0),
    ),
}


@pytest.mark.parametrize("name", FORWARDED)
def test_what_is_read_of_an_update_is_what_was_put(name):
    function, expected = FORWARDED[name]
    assert slices(function, X, np.int32(2)) == expected


KEPT = {
    "at another place": (lambda x, k: take(put(x, jnp.sin(x[:1]), k), k + 1), (2, 1)),
    "a part of it": (lambda x, k: take(put(x, jnp.sin(x[:2]), k), k), (2, 1)),
    "more than it": (lambda x, k: take(put(x, jnp.sin(x[:1]), k), k, 2), (2, 1)),
    "and elsewhere": (lambda x, k: take(own := put(x, jnp.sin(x[:1]), k), k) + own.sum(), (2, 1)),
    "with strides": (lambda x, k: put(x, jnp.sin(x[:1]), 0)[:1:2] + put(x, jnp.cos(x[:1]), 0)[::5], (4, 2)),
    "of what was there before": (lambda x, k: put(put(x, jnp.sin(x[:1]), 0), take(x, k), k), (2, 2)),
    "at places that differ in one dimension": (
        lambda x, k: lax.dynamic_slice(lax.dynamic_update_slice(x, x[:1, :1] + 1, (k, 0)), (k, 1), (1, 1)),
        (2, 1),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_read_of_an_update_elsewhere_is_read(name):
    function, expected = KEPT[name]
    assert slices(function, X, np.int32(2)) == expected


def test_zeros_that_were_put_are_not_added():
    added = lambda x, k: jnp.sin(take(put(x, jnp.zeros((1, 3)), k), k) + take(x, k))  # noqa: E731
    made = same_jaxprs.after(forward_updates, added, X, np.int32(2))
    assert same_jaxprs.primitives(made) == ["dynamic_slice", "sin"]


@pytest.mark.parametrize("reverse", [False, True])
def test_places_that_loops_count_alike_are_one(reverse):
    """A gradient's places come by several arrays, which a loop stacked."""

    def function(x, of=lambda k: k):
        places = lax.scan(lambda k, _: (k + 1, (k, of(k))), jnp.int32(0), None, length=5)[1]

        def turn(x, at):
            own = take(x, at[0])
            x = put(x, jnp.zeros((1, 3)), at[0])
            return put(x, take(x, at[1]) + 0.5 * own, at[1]), None

        return lax.scan(turn, x, places, reverse=reverse)[0]

    rule = lambda closed: simplified(closed)  # noqa: E731
    names = same_jaxprs.primitives(same_jaxprs.after(rule, function, X))
    assert names.count("dynamic_update_slice") == 1
    assert names.count("add") < 3
    others = same_jaxprs.after(rule, lambda x: function(x, lambda k: (3 * k) % 5), X)
    assert same_jaxprs.primitives(others).count("dynamic_update_slice") == 2
