"""Reductions as operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import codelet as cl
from tests.ops_cases import Case, array, check

OPERATIONS = ["sum", "prod", "max", "min", "all", "any"]

SHAPES = {
    "minor": ((5, 7), 1),
    "major": ((13, 6), 0),
    "all of a matrix": ((9, 11), None),
    "middle": ((3, 17, 4), 1),
    "outer and inner": ((4, 3, 5), (0, 2)),
    "a vector": ((101,), -1),
    "no axis": ((3, 4), ()),
    "a number": ((), None),
    "ones": ((1, 1, 1), (0, 2)),
    "no results": ((0, 3), 1),
}


def both(operation, **options):
    """An operation and its namesake."""
    ours, plain = getattr(cl.ops, operation), getattr(jnp, operation)
    own = {key: value for key, value in options.items() if key != "grain"}
    return lambda graph, x: ours(graph, x, **options), lambda x: plain(x, **own)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_reductions(operation, name):
    shape, axis = SHAPES[name]
    x = array(shape, bool if operation in ("all", "any") else jnp.float32)
    check(Case(*both(operation, axis=axis), (x,)), interpreted=True, on_tiles=name in ("middle", "all of a matrix"))
