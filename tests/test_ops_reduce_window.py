"""Reductions of windows as an operation, beside `jax.lax.reduce_window`: holes, elements apart, edges cut off."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from codelet import ops
from tests.examples import few
from tests.ops_cases import Case, array, check

KINDS = {"sum": (lax.add, 0), "max": (lax.max, -np.inf), "min": (lax.min, np.inf)}

WINDOWS = [
    ((2, 3), (2, 1), ((1, -1), (0, 2)), (2, 1), (1, 2)),
    ((3, 1), (1, 2), ((2, 2), (0, 0)), (1, 3), (2, 1)),
    ((1, 2), (3, 3), ((-1, 3), (1, 1)), (3, 2), (2, 2)),
    ((1, 1), (2, 2), ((1, 1), (-1, -1)), (2, 2), (1, 1)),
]
"""Windows, strides, padding, dilations of what they move over and of themselves."""


@few("grain", [None, 3], quick=["3"])
def test_windows_are_reduced_as_by_jax(grain):
    rows = [(kind, windows) for kind in KINDS for windows in WINDOWS]

    def build(graph, x, n):
        whole = cl.ops.reduce_window(graph, n, "max", (2, 2), padding="SAME", grain=grain)
        return [whole, *(cl.ops.reduce_window(graph, x, kind, *windows, grain=grain) for kind, windows in rows)]

    def plain(x, n):
        whole = lax.reduce_window(n, np.int32(np.iinfo(np.int32).min), lax.max, (2, 2), (1, 1), "SAME")
        own = [(*KINDS[kind], windows) for kind, windows in rows]
        return [whole, *(lax.reduce_window(x, np.float32(start), op, *windows) for op, start, windows in own)]

    check(Case(build, plain, (array((5, 6)), array((3, 4), jnp.int32)), slopes=False), on_tiles=grain is None)


@few("grain", [None, 3], quick=["3"])
def test_derivatives_of_windows_are_those_of_jax(grain):
    """Of equal elements the first, of which XLA takes one or another, as it was compiled."""
    rows: list[tuple[str, Any]] = [(kind, windows) for kind in ("max", "min") for windows in WINDOWS]
    same: Any = ((2, 3), (1, 2), "SAME")

    def in_windows(own, fill):
        padded = jnp.pad(own, ((0, 1), (0, 1)), constant_values=fill)
        return jnp.stack([padded[i : i + 5, j : j + 5 : 2] for i in range(2) for j in range(3)])

    def of_the_first(t, x):
        places = jnp.argmax(in_windows(x, -np.inf), axis=0, keepdims=True)
        return jnp.take_along_axis(in_windows(t, 0.0), places, axis=0)[0]

    def build(graph, t, x):
        equal = ops.cast(graph, ops.cast(graph, x, dtype="int32"), dtype="float32")
        given = [(x, *row) for row in rows] + [(equal, "max", same)]
        return [ops.reduce_window_tangent(graph, t, own, kind, *windows, grain=grain) for own, kind, windows in given]

    def plain(t, x):
        def derivative(own, kind, windows):
            op, start = KINDS[kind]
            return jax.jvp(lambda y: lax.reduce_window(y, np.float32(start), op, *windows), (own,), (t,))[1]

        return [*(derivative(x, *row) for row in rows), of_the_first(t, jnp.trunc(x))]

    arguments = array((5, 6)), array((5, 6), seed=1, low=-4, high=4)
    check(Case(build, plain, arguments, slopes=False), on_tiles=grain is None)
    if grain is None:  # JAX has no gradients of those with holes: products with cotangents are those of its derivatives

        @jax.jit
        def products(t, x):
            results, pull = jax.vjp(lambda own: cl.lower(build)(own, x), t)
            cotangents = [jnp.cos(own) for own in results]
            both = sum(jnp.vdot(own, c) for own, c in zip(plain(t, x), cotangents, strict=True))
            return jnp.vdot(pull(cotangents)[0], t), both

        np.testing.assert_allclose(*products(*arguments), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": "mean"}, r"no such kind(?s:.*)\"sum\", \"max\" or \"min\""),
        ({"window_dimensions": (2,)}, "window_dimensions of ops.reduce_window does not fit"),
        ({"base_dilation": (0, 1)}, "base_dilation of ops.reduce_window does not fit"),
        ({"padding": "ALL"}, "padding of ops.reduce_window is of no known name"),
        ({"x": "truths"}, "the sum of ops.reduce_window is not one of its dtypes"),
    ],
)
def test_windows_that_do_not_fit_are_told(options: dict[str, Any], told: str):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    named = {"x": graph.add_variable("x", (3, 4)), "truths": graph.add_variable("truths", (3, 4), bool)}
    given = {"x": "x", "kind": "sum", "window_dimensions": (2, 2), **options}
    with pytest.raises(cl.OperationError, match=told):
        cl.ops.reduce_window(graph, named[given.pop("x")], **given)


def test_derivatives_that_do_not_fit_are_told():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, t = graph.add_variable("x", (3, 4)), graph.add_variable("t", (4, 3))
    with pytest.raises(cl.OperationError, match=r"the tangent of ops\.reduce_window_tangent has not the shape"):
        ops.reduce_window_tangent(graph, t, x, "max", (2, 2))
    with pytest.raises(cl.OperationError, match=r"no such kind(?s:.*)expected: \"max\" or \"min\""):
        ops.reduce_window_tangent(graph, x, x, "sum", (2, 2))
