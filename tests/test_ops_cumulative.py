"""Running sums and their like as operations: whole rows and blocks, both ways, and the gradient of sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import codelet as cl
from codelet.errors import OperationError
from tests.ops_cases import Case, array, check

NAMES = ["cumsum", "cumprod", "cummax", "cummin"]


@pytest.mark.parametrize(("shape", "axis"), [((5, 7), 1), ((90, 2), 0), ((97,), 0)], ids=str)
def test_running_results(shape, axis):
    x = array(shape, low=0.5, high=1.5)
    kinds = [(name, reverse) for name in NAMES for reverse in (False, True)]

    def build(graph, x):
        found = [getattr(cl.ops, name)(graph, x, axis, reverse=reverse) for name, reverse in kinds]
        return found, cl.ops.cumsum_gradient(graph, x, axis)

    def plain(x):
        found = [getattr(lax, name)(x, axis=axis, reverse=reverse) for name, reverse in kinds]
        return found, jax.vjp(lambda x: lax.cumsum(x, axis=axis), x)[1](x)[0]

    check(Case(build, plain, (x,), slopes=False, tolerance=1e-4), interpreted=True)


def test_whole_numbers_and_an_axis_that_there_is_not():
    x = array((96,), jnp.int32, low=-9, high=9)
    build = lambda graph, x: [getattr(cl.ops, name)(graph, x) for name in NAMES]  # noqa: E731
    check(Case(build, lambda x: [getattr(lax, name)(x) for name in NAMES], (x,)))
    graph = cl.Graph()
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.cummax(graph, graph.add_variable("x", (3,)), 1)
