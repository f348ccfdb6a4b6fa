"""Narrow products run as convolutions on a CPU, and only those."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

from lowering.jaxprs.narrow_products import multiply_narrowly
from tests.examples import few
from tests.ops_cases import array, assert_alike

OVER_FIRST = (((0,), (0,)), ((), ()))


def rewritten(function, *arguments):
    """A function after the rule, and whether the rule applied."""
    closed = jax.make_jaxpr(function)(*arguments)
    found = multiply_narrowly(closed)
    return lambda *own: jax_core.jaxpr_as_fun(found)(*own)[0], found is not closed


@few("sides", [(512, 2), (700, 196)], quick=["(512, 2)"])
def test_values_and_slopes(sides):
    a, b = (array((130, n), seed=n) for n in sides)
    function, applied = rewritten(lambda a, b: lax.dot_general(a, b, OVER_FIRST), a, b)
    assert applied
    assert "conv_general_dilated" in str(jax.make_jaxpr(function)(a, b))
    assert_alike(jax.jit(function)(a, b), a.T @ b)
    ours, plain = (jax.grad(lambda a, b: jnp.sum(f(a, b) ** 2), (0, 1))(a, b) for f in (function, lambda a, b: a.T @ b))
    for mine, other in zip(ours, plain, strict=True):
        assert_alike(mine, other, 1e-4)


@pytest.mark.parametrize(
    ("shapes", "numbers", "dtype", "precision"),
    [
        (((130, 512), (130, 1)), OVER_FIRST, np.float32, None),
        (((130, 512), (130, 197)), OVER_FIRST, np.float32, None),
        (((120, 512), (120, 8)), OVER_FIRST, np.float32, None),
        (((130, 500), (130, 8)), OVER_FIRST, np.float32, None),
        (((130, 8), (130, 512)), OVER_FIRST, np.float32, None),
        (((130, 512), (130, 8)), OVER_FIRST, np.float16, None),
        (((130, 512), (130, 8)), OVER_FIRST, np.float32, lax.Precision.HIGHEST),
        (((512, 130), (130, 8)), (((1,), (0,)), ((), ())), np.float32, None),
        (((2, 130, 512), (2, 130, 8)), (((1,), (1,)), ((0,), (0,))), np.float32, None),
    ],
)
def test_others_stay(shapes, numbers, dtype, precision):
    a, b = (array(shape, dtype) for shape in shapes)
    _, applied = rewritten(lambda a, b: lax.dot_general(a, b, numbers, precision=precision), a, b)
    assert not applied


def test_sums_in_another_dtype_stay():
    a, b = array((130, 512), np.float16), array((130, 8), np.float16)
    function = lambda a, b: lax.dot_general(a, b, OVER_FIRST, preferred_element_type=jnp.float32)  # noqa: E731
    assert not rewritten(function, a, b)[1]
