"""Running sums and their like as operations: whole rows and blocks, both ways, and the gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check

NAMES = ["cumsum", "cumprod", "cummax", "cummin"]


@few("shape, axis", [((5, 7), 1), ((90, 2), 0), ((97,), 0)], quick=["(5, 7), 1"])
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


@few("shape, axis", [((2, 5), 1), ((17, 2), 0), ((2, 0), 1)], quick=["(17, 2), 0"])
def test_gradients(shape, axis):
    x, cotangent = array(shape, low=-2, high=2).round(), array(shape, seed=1)  # ties, and zeros
    kinds = [(name, axis == (name != "cummin")) for name in NAMES[1:]]

    def build(graph, cotangent, x):
        gradient = {name: getattr(cl.ops, f"{name}_gradient") for name, _ in kinds}
        return [gradient[name](graph, cotangent, x, axis, reverse=reverse) for name, reverse in kinds]

    def plain(cotangent, x):
        run = lambda name, reverse: lambda x: getattr(lax, name)(x, axis=axis, reverse=reverse)  # noqa: E731
        return [jax.vjp(run(*kind), x)[1](cotangent)[0] for kind in kinds]

    check(Case(build, plain, (cotangent, x), slopes=False), interpreted=shape == (2, 5))


@few("dtype", [jnp.float16, jnp.bfloat16], quick=["float16"])
def test_gradients_of_short_floats(dtype):
    x, cotangent = array((4, 6), dtype), array((4, 6), dtype, seed=1)
    names = NAMES[1:]
    build = lambda graph, g, x: [getattr(cl.ops, f"{name}_gradient")(graph, g, x, 1, grain=7) for name in names]  # noqa: E731
    plain = lambda g, x: [jax.vjp(lambda x, n=n: getattr(lax, n)(x, axis=1), x)[1](g)[0] for n in names]  # noqa: E731
    check(Case(build, plain, (cotangent, x), slopes=False))


def test_whole_numbers_and_an_axis_that_there_is_not():
    x = array((96,), jnp.int32, low=-9, high=9)
    build = lambda graph, x: [getattr(cl.ops, name)(graph, x) for name in NAMES]  # noqa: E731
    check(Case(build, lambda x: [getattr(lax, name)(x) for name in NAMES], (x,)))
    graph = cl.Graph()
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.cummax(graph, graph.add_variable("y", (3,)), 1)
    x = graph.add_variable("x", (3, 2))
    with pytest.raises(OperationError, match="is not like the result"):
        cl.ops.cumprod_gradient(graph, x[0], x)
    assert not graph.compute_sets
