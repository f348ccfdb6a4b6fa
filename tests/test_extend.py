"""Neighbours beyond the ends of an array, and small windows."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from lowering.fast.extend import Reach, extend
from tests.at_once import at_once
from tests.drawn_views import combined, neighbourhood, neighbours
from tests.examples import examples


def standing(reach: Reach) -> np.ndarray:
    """What stands at the coordinates of a reach; -1 where it does not matter."""
    line = np.arange(reach.low, reach.high + 1)
    line[reach.outside - reach.low] = reach.beyond
    return line


@examples(80)
@given(neighbours())
def test_views_of_extensions_are_the_views(views):
    extensions, moved = extend(views)
    by_source = {id(extension): extension for extension in extensions}
    for view, seen in moved.items():
        extension = by_source[id(seen.source)]
        assert math.prod(extension.shape) <= 2 * sum(v.size * np.prod([a.extent for a in v.axes]) for v in moved)
        # The elements of the source that stand in the extension, -1 where nothing reads.
        lines = [standing(reach) for reach in extension.reaches]
        numbers = np.arange(view.source.size).reshape(view.source.shape)[np.ix_(*lines)]
        for at, line in enumerate(lines):
            numbers[(slice(None),) * at + (line < 0,)] = -1
        values = numbers.reshape(-1)[seen.index.values_over((*view.axes, *range(view.ndim)))]
        np.testing.assert_array_equal(values, view.index.values(view.axes))


def test_what_is_read_within_beside_an_extension_is_copied_where_all_is():
    graph = cl.Graph()
    x, y, i = graph.add_variable("x", (2, 6)), graph.add_variable("y", (6,)), cl.grid(6)
    beyond, within, of_another = x[1, (i + 1) % 6], x[0, i], y[i]
    each = [beyond, within, of_another]
    assert set(extend(each)[1]) == {beyond}
    extensions, views = extend(each, each)
    assert set(views) == {beyond, within}
    assert all(own.is_shared for own in extensions)
    assert sorted(own.shape for own in extensions) == [(1, 6), (1, 7)]
    assert extend([within], [within]) == ([], {})


def agrees(views):
    """Vertices over views do what `interpret` says, and their gradient is that of gathers."""
    y, x = neighbourhood(views), views[0].graph.variable("x")
    (family,) = y.graph.families
    run = cl.lower(y.graph, inputs=[x], outputs=[y])
    random = np.random.default_rng(0)
    values = {"x": random.integers(-3, 4, x.shape).astype(x.dtype)}
    ((name, expected),) = cl.interpret(y.graph, values=values, outputs=[y]).items()
    if x.dtype.kind != "f":
        np.testing.assert_array_equal(jax.jit(run)(values)[name], expected)
        return
    weights = random.integers(-2, 3, y.shape).astype(np.float32)

    def by_gathers(array):
        flat = jnp.append(array, np.float32(0))  # the last is what padding reads
        fields = [flat[np.broadcast_to(v.elements(family.axes), (*family.extents, *v.shape))] for v in views]
        vertex = combined
        for _ in family.axes:
            vertex = jax.vmap(vertex)
        return (weights * vertex(*fields)).sum()

    ours = jax.value_and_grad(lambda v: (weights * run(v)[name]).sum())
    (value, slope), plain = at_once(ours, lambda v: jax.grad(by_gathers)(v["x"]))(values)
    np.testing.assert_allclose(value, (weights * expected).sum(), rtol=1e-5)
    np.testing.assert_allclose(slope["x"], plain, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@examples(4)
@given(neighbours(most=12))
def test_neighbours_and_their_gradient(views):
    agrees(views)


@examples(4)
@given(neighbours(np.int8, most=12))
def test_neighbours_of_bytes(views):
    agrees(views)


@pytest.mark.slow
@examples(200)
@given(neighbours(most=40))
def test_more_neighbours_and_their_gradient(views):
    agrees(views)


@pytest.mark.parametrize("extreme", [jnp.max, jnp.min])
def test_the_extremes_of_a_window_that_tie_share_the_slope(extreme):
    graph = cl.Graph()
    x, i = graph.add_variable("x", (6,)), cl.grid(6)
    y = graph.add_variable("y", (6,))
    graph.add_vertex("extreme", cl.codelet(lambda a: extreme(a)), a=x.pad((1, 1), "wrap")[i : i + 3], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    values, weights = jnp.array([2.0, 2, 2, 5, 1, 1]), jnp.arange(1.0, 7)
    ours = lambda v: run({"x": v})["y"]  # noqa: E731
    plain = lambda v: extreme(jnp.stack([jnp.roll(v, 1), v, jnp.roll(v, -1)]), axis=0)  # noqa: E731
    slopes = jax.jit(lambda v: [jax.grad(lambda u: (weights * f(u)).sum())(v) for f in (plain, ours)])
    np.testing.assert_allclose(*slopes(values), rtol=1e-6)
