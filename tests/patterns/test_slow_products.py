"""Which products XLA is slow at run in other ways, with the same values and slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

from lowering.jaxprs.narrow_products import multiply_narrowly
from lowering.jaxprs.thin_products import multiply_thinly
from tests.examples import few
from tests.ops_cases import array, assert_alike
from tests.patterns.slow_products import OVER_LAST

# --- multiply_narrowly ------------------------------------------------------------------------------------------------


OVER_FIRST = (((0,), (0,)), ((), ()))


def narrowly(function, *arguments):
    """A function after the rule, and whether the rule applied."""
    closed = jax.make_jaxpr(function)(*arguments)
    found = multiply_narrowly(closed)
    return lambda *own: jax_core.jaxpr_as_fun(found)(*own)[0], found is not closed


@few("sides", [(512, 2), (700, 196)], quick=["(512, 2)"])
def test_values_and_slopes_of_narrow_products(sides):
    a, b = (array((130, n), seed=n) for n in sides)
    function, applied = narrowly(lambda a, b: lax.dot_general(a, b, OVER_FIRST), a, b)
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
def test_other_than_narrow_products_stay(shapes, numbers, dtype, precision):
    a, b = (array(shape, dtype) for shape in shapes)
    _, applied = narrowly(lambda a, b: lax.dot_general(a, b, numbers, precision=precision), a, b)
    assert not applied


def test_sums_in_another_dtype_stay():
    a, b = array((130, 512), np.float16), array((130, 8), np.float16)
    function = lambda a, b: lax.dot_general(a, b, OVER_FIRST, preferred_element_type=jnp.float32)  # noqa: E731
    assert not narrowly(function, a, b)[1]


# --- multiply_thinly --------------------------------------------------------------------------------------------------


def turned(numbers, form=lambda x: x):
    """A function that transposes its first argument, and multiplies it."""
    return lambda x, w: lax.dot_general(form(jnp.transpose(x * 2, (0, 2, 1)).reshape(len(x), -1)), w, numbers)


def thinly(function, *arguments):
    """A function after the rule, and whether the rule applied."""
    closed = jax.make_jaxpr(function)(*arguments)
    found = multiply_thinly(closed)
    return lambda *own: jax_core.jaxpr_as_fun(found)(*own)[0], found is not closed


@few("case", [(4, 2), (5, 16), (64, 3)], quick=["(4, 2)"])
@pytest.mark.parametrize("numbers", [OVER_FIRST, OVER_LAST], ids=["first", "last"])
def test_values_and_slopes_of_thin_products(numbers, case):
    summed, columns = case
    x = array((summed, 8, 300), seed=1)
    w = array((summed, columns) if numbers is OVER_FIRST else (columns, summed), seed=2)
    plain = turned(numbers)
    function, applied = thinly(plain, x, w)
    assert applied
    assert_alike(jax.jit(function)(x, w), plain(x, w), 1e-5)
    ours, others = (jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), (0, 1))(x, w) for f in (function, plain))
    for own, other in zip(ours, others, strict=True):
        assert_alike(own, other, 1e-4)


def test_in_loops_and_of_complex_numbers():
    x = array((4, 8, 300)) + 1j * array((4, 8, 300), seed=3)
    w = array((4, 4)).astype(np.complex64)

    def looped(x, w):
        return lax.fori_loop(0, 3, lambda _, x: turned(OVER_LAST)(x, w).reshape(4, 8, 300), x)

    function, applied = thinly(looped, x, w)
    assert applied
    assert_alike(jax.jit(function)(x, w), looped(x, w), 1e-4)


@pytest.mark.parametrize(
    ("shape", "columns", "dtype"),
    [
        ((3, 8, 300), 4, np.float32),
        ((65, 8, 300), 4, np.float32),
        ((4, 8, 300), 17, np.float32),
        ((4, 8, 300), 1, np.float32),
        ((4, 8, 200), 4, np.float32),
        ((4, 1, 2053), 4, np.float32),
        ((4, 8, 300), 4, np.int32),
        ((9, 8, 300), 4, np.complex64),
    ],
)
def test_other_than_thin_products_stay(shape, columns, dtype):
    x, w = array(shape).astype(dtype), array((columns, shape[0])).astype(dtype)
    assert not thinly(turned(OVER_LAST), x, w)[1]


def test_what_is_made_by_element_is_written_so():
    x, w = array((4, 2400)), array((4, 4), seed=2)
    plain = lambda x, w: lax.dot_general(jnp.sin(x), w, OVER_LAST)  # noqa: E731
    function, applied = thinly(plain, x, w)
    assert applied
    assert_alike(jax.jit(function)(x, w), plain(x, w), 1e-5)


def test_what_is_there_as_it_is_stays():
    """It would have to be transposed first."""
    x, w = array((4, 2400)), array((4, 4))
    assert not thinly(lambda x, w: lax.dot_general(x, w, OVER_LAST), x, w)[1]
    assert not thinly(lambda x, w: lax.dot_general(lax.cumsum(x, 1), w, OVER_LAST), x, w)[1]


def test_one_of_several_dimensions_stays():
    x, w = array((4, 8, 300)), array((4, 4))
    assert not thinly(turned(OVER_LAST, lambda x: x.reshape(4, 8, 300)), x, w)[1]
