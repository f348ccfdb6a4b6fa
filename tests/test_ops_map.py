"""Elementwise operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import codelet as cl
from tests.ops_cases import Case, array, check

GELU = jax.nn.gelu
MAPS = {
    "one": (jnp.tanh, (array((37,)),)),
    "flat": (lambda a, b: a * b + jnp.sin(a), (array((5, 7)), array((5, 7), seed=1))),
    "bias": (lambda x, b: x * b, (array((9, 11)), array((11,), seed=1))),
    "rows": (lambda x, b: jnp.exp(x) + b, (array((9, 11)), array((9, 1), seed=1))),
    "channels": (lambda x, s, b: x * s + b, (array((3, 4, 5, 2)), array((4, 1, 1), seed=1), array((1, 4, 1, 1), seed=2))),
    "outer": (lambda a, b: jnp.maximum(a, b), (array((7, 1)), array((1, 5), seed=1))),
    "scalars": (lambda a, b: a - b, (array(()), array((), seed=1))),
    "one of many": (lambda a, b: a - b, (array((1, 13)), array((1,), seed=1))),
    "empty": (lambda a, b: a * b, (array((0, 3)), array((3,), seed=1))),
    "mixed": (lambda a, k: a * k, (array((6, 5)), array((6, 5), jnp.int32, seed=1))),
    "lax": (lambda a, b: lax.atan2(a, b), (array((6, 1)), array((5,), seed=1))),
    "several": (lambda a, b: {"sum": a + b, "both": (a * b, a > b)}, (array((6, 5)), array((5,), seed=1))),
}


def _plain(function):
    def run(*arguments):
        rank = max(jnp.ndim(own) for own in arguments)
        spread = jnp.broadcast_arrays(*arguments)
        for _ in range(rank):
            function_of = run.function
            run.function = jax.vmap(function_of)
        result = run.function(*spread)
        run.function = function
        return result

    run.function = function
    return run


@pytest.mark.parametrize("name", MAPS)
def test_map(name):
    function, arguments = MAPS[name]
    case = Case(lambda graph, *own: cl.ops.map(graph, function, *own), _plain(function), arguments)
    check(case, interpreted=True, on_tiles=True)
    check(case._replace(build=lambda graph, *own: cl.ops.map(graph, function, *own, grain=4)), on_tiles=True)
