"""Softmax, its logarithm and logarithms of sums of exponentials as operations, with whole rows and with cut ones."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check

SHAPES = {
    "matrix": ((5, 7), -1),
    "major": ((6, 3), 0),
    "two axes": ((3, 4, 5), (0, 2)),
    "vector": ((11,), 0),
    "no rows": ((0, 3), 1),
}


def case(extents, axis, grain, dtype=jnp.float32, high=2.0, slopes=True):
    """All three operations and their gradients, and the same of their namesakes."""
    x = array(extents, dtype, low=-high, high=high)
    cotangents = array(extents, dtype, seed=1), array(jax.nn.logsumexp(x, axis).shape, dtype, seed=2)

    def build(graph, x, all_of, of_rows):
        found = []
        for name in ("softmax", "log_softmax", "logsumexp"):
            ours, slope = getattr(cl.ops, name), getattr(cl.ops, f"{name}_gradient")
            y = ours(graph, x, axis, grain=grain)
            given = (of_rows, x, y) if name == "logsumexp" else (all_of, y)
            found += [y, slope(graph, *given, axis, grain=grain)]
        return found

    def plain(x, all_of, of_rows):
        found = []
        for function in (jax.nn.softmax, jax.nn.log_softmax, jax.nn.logsumexp):
            y, pull = jax.vjp(lambda x, function=function: function(x, axis), x)
            found += [y, *pull(of_rows if function is jax.nn.logsumexp else all_of)]
        return found

    return Case(build, plain, (x, *cotangents), slopes=slopes)


@few("shape, grain", product(SHAPES, [None, 2]), quick=["matrix, None", "no rows, 2"])
def test_values_and_gradients(shape, grain):
    extents, axis = SHAPES[shape]
    check(
        case(extents, axis, grain, slopes=grain is None or shape == "two axes"),
        interpreted=True,
        on_tiles=shape == "matrix",
    )


@few("dtype, grain", product([jnp.float16, jnp.bfloat16], [None, 3]), quick=["float16, 3"])
def test_dtypes(dtype, grain):
    check(case((4, 9), 1, grain, dtype, slopes=False))


@few("grain", [None, 2], quick=["2"])
def test_large_numbers_and_those_that_are_not_finite(grain):
    x = jnp.array([[1e4, -1e4, 9.9e3], [-jnp.inf, 1.0, 2.0], [-jnp.inf] * 3, [jnp.nan, 0.0, 1.0]])
    names = "softmax", "log_softmax", "logsumexp"
    build = lambda graph, x: [getattr(cl.ops, name)(graph, x, 1, grain=grain) for name in names]  # noqa: E731
    plain = lambda x: [getattr(jax.nn, name)(x, 1) for name in names]  # noqa: E731
    check(Case(build, plain, (x,), slopes=False))


@pytest.mark.slow
def test_long_rows_are_cut():
    graph = cl.Graph(cl.IPU("mk2"))
    x = graph.add_variable("x", (4, 60_000))
    cl.ops.softmax(graph, x)
    assert max(cl.Engine(graph).profile().memory_by_tile) < cl.IPU("mk2").bytes_per_tile
    assert len(graph.compute_sets) > 3
    rows = cl.Graph(cl.IPU("mk2"))
    cl.ops.softmax(rows, rows.add_variable("x", (4096, 64)))
    assert len(rows.compute_sets) == 1


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x, n = graph.add_variable("x", (2, 3)), graph.add_variable("n", (2, 3), jnp.int32)
    with pytest.raises(OperationError, match="not of floating point"):
        cl.ops.softmax(graph, n)
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.log_softmax(graph, x, 2)
    with pytest.raises(OperationError, match="several shapes"):
        cl.ops.softmax_gradient(graph, x, x[:, :2])
    with pytest.raises(OperationError, match="one element for each row"):
        cl.ops.logsumexp_gradient(graph, x, x, x[:, 0], 1)
    assert not graph.compute_sets
