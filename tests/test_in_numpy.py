"""What NumPy computes of known values in the place of JAX: the same, of every dtype that it takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from codelet.field.evaluate import Evaluation
from codelet.field.in_numpy import _BY_ELEMENT, _OTHERS, in_numpy, is_in_numpy
from codelet.field.meanings import MEANINGS, MOVE
from codelet.jaxprs.equations import bind
from codelet.jaxprs.primitives import UNDERSTOOD
from tests.examples import examples, few

WHOLE = ("int8", "int32", "uint8", "uint32")
BINARY = (lax.add, lax.sub, lax.mul, lax.max, lax.min, lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)
BITS = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
TO = ("bool", *WHOLE)
ENDS = [-128, -127, -1, 0, 1, 2, 127, 128, 255, 2**31 - 1, -(2**31), 2**32 - 1]


def checked(function, *values):
    """The equations of a function of known values, all by NumPy and by JAX."""
    found = dict(zip((jaxpr := jax.make_jaxpr(function)(*values).jaxpr).invars, values, strict=True))
    assert jaxpr.eqns
    for eqn in jaxpr.eqns:
        assert is_in_numpy(eqn), eqn
        operands = [np.asarray(a.val, a.aval.dtype) if hasattr(a, "val") else found[a] for a in eqn.invars]
        made, expected = in_numpy(Evaluation(4), eqn, operands), bind(eqn, operands)
        for var, own, other in zip(eqn.outvars, made, expected, strict=True):
            assert own.dtype == other.dtype == var.aval.dtype
            assert own.shape == other.shape
            np.testing.assert_array_equal(own, other)
            found[var] = own
    return {eqn.primitive.name for eqn in jaxpr.eqns}


@pytest.mark.slow
@examples(40)
@given(st.data())
def test_functions_of_whole_numbers(data):
    dtype = np.dtype(data.draw(st.sampled_from(TO)))
    number = st.integers(-(2**33), 2**33) | st.sampled_from(ENDS)
    drawn = [np.array(data.draw(st.lists(number, min_size=6, max_size=6))).astype(dtype) for _ in range(2)]
    a, b = (own.reshape(2, 3) if data.draw(st.booleans()) else own[0] for own in drawn)
    a, b = np.broadcast_arrays(a, b)
    is_truth = dtype.kind == "b"
    if is_truth:
        functions = (*BINARY[3:], *BITS)
    else:
        functions = (*BINARY, *BITS)
        checked(lax.neg, a)
    checked(data.draw(st.sampled_from(functions)), a, b)
    checked(lax.bitwise_not, a)
    target = data.draw(st.sampled_from([to for to in TO if to != dtype]))
    checked(lambda own: lax.convert_element_type(own, target), a)
    checked(lambda own: jnp.where(own > 1, own, 3) if not is_truth else lax.select_n(own, own, ~own), a)


@pytest.mark.parametrize("dtype", [*TO, "float32", "bfloat16", "complex64"])
@few("shape", [(), (5,), (3, 4)], quick=["(3, 4)"])
def test_moves(dtype, shape):
    x = jnp.arange(np.prod(shape)).reshape(shape).astype(dtype)

    def function(x):
        whole = jnp.stack([x, x]).reshape(-1)[::-1][: x.size]
        padded = lax.pad(whole, whole[0], [(2, -1, 1)])
        return lax.concatenate([padded, whole], 0), jnp.broadcast_to(x, (2, *x.shape)).T

    checked(function, np.asarray(x))


@pytest.mark.parametrize("dtype", [*WHOLE, "float32"])
def test_counts(dtype):
    make = lambda: lax.broadcasted_iota(dtype, (3, 4), 1)  # noqa: E731
    (eqn,) = jax.make_jaxpr(make)().jaxpr.eqns
    assert is_in_numpy(eqn) == (dtype != "float32")
    if dtype != "float32":
        assert checked(make) == {"iota"}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        jnp.sin,
        lambda x: x.astype(jnp.int32),
        lambda x: lax.select_n(jnp.array([0, 2, 1]), x, x, x),
        lambda x: jax.random.wrap_key_data(jnp.array([1, 2], jnp.uint32)).reshape(1),
    ],
    ids=["sum", "sine", "rounding", "choice by number", "key"],
)
def test_what_is_left_to_jax(function):
    eqns = jax.make_jaxpr(function)(np.ones(3, np.float32)).jaxpr.eqns
    assert not is_in_numpy(eqns[-1])


def test_the_table_is_of_primitives_that_are_there():
    moves = {name for name, own in MEANINGS.items() if own.said == MOVE}
    assert moves >= {"reshape", "transpose", "broadcast_in_dim", "slice", "pad", "concatenate", "rev"}
    assert not moves & {*_BY_ELEMENT, *_OTHERS}
    assert {*_BY_ELEMENT, *_OTHERS} <= {*UNDERSTOOD}
