"""Windows that a codelet reduces by `lax.reduce_window`: one reduction of windows, whatever the patches are."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from tests.at_once import at_once, with_slopes
from tests.examples import few

REDUCTIONS = {"max": (lax.max, -np.inf), "min": (lax.min, np.inf), "sum": (lax.add, 0.0)}


@cl.codelet
def reduced(x, *, kind, window, strides):
    """Each window of a patch, doubled."""
    function, start = REDUCTIONS[kind]
    return 2 * lax.reduce_window(x, start, function, window, strides, "VALID")


def pool(graph, x, *, kind, size, stride, sizes):
    """A reduction of windows by patches of some rows and columns of results, with a frame that changes nothing."""
    around = x.pad(((0, 0), (1, 2), (0, 1)), value=REDUCTIONS[kind][1])
    channels = x.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in around.shape[1:])
    y = graph.add_variable("y", (channels, rows, columns))
    step = graph.add_compute_set("pool")
    for first, count, height in blocks(rows, sizes[0]):
        for start, several, width in blocks(columns, sizes[1]):
            c, i, j = cl.grid(channels, count, several)
            places = []
            windows = []
            for a, b, n in ((first, i, height), (start, j, width)):
                at = a + n * b
                places.append(slice(at, at + n))
                windows.append(slice(stride * at, stride * at + stride * (n - 1) + size))
            static = {"kind": kind, "window": (size, size), "strides": (stride, stride)}
            graph.add_vertex(step, reduced, x=around[(c, *windows)], out=y[(c, *places)], **static)
    return y


def blocks(extent, size):
    even, left = divmod(extent, size)
    return [(0, even, size)] * (even > 0) + [(even * size, 1, left)] * (left > 0)


@few(
    "of, sizes",
    product([("max", 3, 2), ("min", 2, 1), ("sum", 3, 1), ("max", 2, 3)], [(1, 1), (2, 3), (20, 20)]),
    quick=["(max, 3, 2), (20, 20)"],
)
def test_windows_are_reduced_as_one(of, sizes):
    kind, size, stride = of
    x = jnp.round(jnp.asarray(np.random.default_rng(0).uniform(-3, 3, (2, 9, 8)), jnp.float32))
    lowered = cl.lower(pool)
    given = {"kind": kind, "size": size, "stride": stride, "sizes": sizes}
    names = [eqn.primitive.name for eqn in lowered.at(x, **given).jaxpr.jaxpr.eqns]
    assert [name for name in names if name.startswith("reduce_window")] == [f"reduce_window_{kind}"]
    assert not set(names) & {"gather", "concatenate", "pad"}

    def plain(x):
        function, start = REDUCTIONS[kind]
        around = ((0, 0), (1, 2), (0, 1))
        return 2 * lax.reduce_window(x, start, function, (1, size, size), (1, stride, stride), around)

    (value, slopes), (expected, others) = at_once(with_slopes(lambda x: lowered(x, **given)), with_slopes(plain))(x)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), slopes, others)


def test_another_frame_is_made():
    def build(graph, x):
        around = x.pad(((1, 1),), value=1.0)
        i = cl.grid(5)
        static = {"kind": "max", "window": (3,), "strides": (1,)}
        return graph.add_vertex("pool", reduced, x=around[i : i + 3], **static)

    x = np.arange(-5, 0, dtype=np.float32)
    lowered = cl.lower(build)
    assert "reduce_window_max" in [eqn.primitive.name for eqn in lowered.at(x).jaxpr.jaxpr.eqns]
    np.testing.assert_array_equal(jax.jit(lowered)(x)[..., 0], [2, -6, -4, -2, 2])
