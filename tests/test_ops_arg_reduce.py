"""Where the largest and the smallest are, as operations: ties, NaN, rows whole and cut."""

from __future__ import annotations

from itertools import product

import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check


@few("dtype, grain", product([jnp.float32, jnp.int32], [3, None]), quick=["int32, 3"])
def test_places(dtype, grain):
    x = array((3, 7, 2), dtype).round()  # ties
    own = [(name, axis) for name in ("argmax", "argmin") for axis in (0, 1, -1, None)]
    build = lambda graph, x: [getattr(cl.ops, name)(graph, x, axis, grain=grain) for name, axis in own]  # noqa: E731
    plain = lambda x: [getattr(jnp, name)(x, axis) for name, axis in own]  # noqa: E731
    check(Case(build, plain, (x,), slopes=False), interpreted=True)


def test_the_first_nan_and_kept_dimensions():
    x = jnp.array([[1.0, jnp.nan, 3.0, jnp.nan], [0.0, 0.0, -1.0, -1.0]])
    build = lambda graph, x: [cl.ops.argmax(graph, x, 1, keepdims=True, grain=g) for g in (None, 2)]  # noqa: E731
    check(Case(build, lambda x: [jnp.argmax(x, 1, keepdims=True)] * 2, (x,), slopes=False))


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x = graph.add_variable("x", (3, 0))
    with pytest.raises(OperationError, match="nothing to choose from"):
        cl.ops.argmin(graph, x, 1)
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.argmax(graph, x, 2)
