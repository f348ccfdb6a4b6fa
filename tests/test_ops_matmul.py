"""Matrix products as operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

import codelet as cl
from tests.ops_cases import Case, array, check

NUMBERS = {
    "matrices": ((5, 7), (7, 3), (((1,), (0,)), ((), ()))),
    "both transposed": ((7, 5), (3, 7), (((0,), (1,)), ((), ()))),
    "batches": ((2, 5, 4), (2, 4, 3), (((2,), (1,)), ((0,), (0,)))),
    "batches inside": ((5, 2, 4), (4, 3, 2), (((2,), (0,)), ((1,), (2,)))),
    "two summed": ((3, 4, 5), (5, 4, 6), (((1, 2), (1, 0)), ((), ()))),
    "outer": ((3,), (4,), (((), ()), ((), ()))),
    "inner": ((13,), (13,), (((0,), (0,)), ((), ()))),
    "vector": ((13, 8), (8,), (((1,), (0,)), ((), ()))),
    "ones": ((1, 1), (1, 1), (((1,), (0,)), ((), ()))),
    "nothing summed": ((3, 0), (0, 4), (((1,), (0,)), ((), ()))),
    "no rows": ((0, 3), (3, 4), (((1,), (0,)), ((), ()))),
}


@pytest.mark.parametrize("grain", [None, 1, 6], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_dot_general(name, grain):
    a, b, numbers = NUMBERS[name]
    case = Case(
        lambda graph, a, b: cl.ops.dot_general(graph, a, b, numbers, grain=grain),
        lambda a, b: lax.dot_general(a, b, numbers),
        (array(a), array(b, seed=1)),
    )
    check(case, interpreted=True, on_tiles=grain is None)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.int32], ids=lambda dtype: dtype.__name__)
def test_dtypes(dtype):
    numbers = (((1,), (0,)), ((), ()))
    case = Case(
        lambda graph, a, b: cl.ops.dot_general(graph, a, b, numbers, grain=40),
        lambda a, b: lax.dot_general(a, b, numbers),
        (array((9, 50), dtype), array((50, 11), dtype, seed=1)),
    )
    check(case, interpreted=True)
