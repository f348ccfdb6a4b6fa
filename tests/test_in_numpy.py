"""What NumPy computes of known values in the place of JAX: the same, of every dtype that it takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from codelet.field.computed_in_numpy import computed_in_numpy
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
    if not is_truth:
        checked(lambda own: (lax.sign(own), lax.square(own)), a)
    if dtype.kind == "i":
        checked(lax.abs, a)
    target = data.draw(st.sampled_from([to for to in TO if to != dtype]))
    checked(lambda own: lax.convert_element_type(own, target), a)
    checked(lambda own: jnp.where(own > 1, own, 3) if not is_truth else lax.select_n(own, own, ~own), a)


FLOAT_FUNCTIONS = (
    *(*BINARY, lax.div, lax.nextafter),
    *(lax.neg, lax.abs, lax.sign, lax.square, lax.sqrt, lax.ceil, lax.floor, lax.is_finite, lax.stop_gradient),
    *(lambda own, to=to: lax.convert_element_type(own, to) for to in (*TO, "bfloat16", "float16")),
    lambda own: lax.convert_element_type(lax.convert_element_type(own, jnp.int32), jnp.float32),
    lambda a, b: lax.select_n(a < b, a, b),
)
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.0**24 + 2, 2.0**31, 3e38, np.inf, -np.inf, np.nan, 1e-38, 1.2e-38, -1e-45, 0.1]


def by_numpy(function, *values):
    """What NumPy computes of the last equation of a function, to the bit as JAX; None where that is left to JAX."""
    traced = jax.make_jaxpr(function)(*values)
    given = dict(zip(traced.jaxpr.invars, values, strict=True))
    for eqn in traced.eqns:
        operands = [given[atom] for atom in eqn.invars]
        made, expected = computed_in_numpy(eqn, operands), bind(eqn, operands)
        if made is not None:
            for own, other in zip(made, expected, strict=True):
                assert own.dtype == other.dtype
                assert own.shape == other.shape
                assert own.tobytes() == np.asarray(other).tobytes(), (eqn, operands)
        given.update(zip(eqn.outvars, map(np.asarray, expected), strict=True))
    return made


@pytest.mark.parametrize("bits", [pytest.param(False, id="special"), pytest.param(True, id="any")])
@examples(60)
@given(st.data())
def test_functions_of_floats(bits, data):
    if bits:
        drawn = [np.uint32(data.draw(st.integers(0, 2**32 - 1))).view(np.float32) for _ in range(2)]
    else:
        drawn = [np.float32(data.draw(st.sampled_from(SPECIAL))) for _ in range(2)]
    function = data.draw(st.sampled_from(FLOAT_FUNCTIONS))
    count = 2 if function in (*BINARY, lax.div, lax.nextafter, FLOAT_FUNCTIONS[-1]) else 1
    shape = data.draw(st.sampled_from([(), (3,)]))
    by_numpy(function, *(np.full(shape, own) for own in drawn[:count]))


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 3.0 - x / 7.0, lambda x: jnp.where(x > 1, jnp.sqrt(x), -x), jax.nn.relu, lambda x: x.astype(int)],
    ids=["arithmetic", "choice", "derivative rule", "whole"],
)
def test_numbers_that_are_plain_are_left_to_numpy(function):
    called = jax.jit(function)
    assert by_numpy(called, np.asarray([2.0, 9.0, 25.0], np.float32)) is not None


@pytest.mark.parametrize("value", [np.nan, 1e-40, 1.5e-38], ids=["not a number", "subnormal", "nearly so"])
def test_floats_that_are_left_to_jax(value):
    given = np.asarray(value, np.float32)
    assert by_numpy(lax.neg, given) is None
    assert by_numpy(lambda x: x.astype(jnp.bfloat16), given) is None
    assert by_numpy(jnp.log, np.float32(2)) is None
    assert by_numpy(lambda x: lax.convert_element_type(x, jnp.int32), np.asarray(2.5, np.float32)) is None


def test_numbers_that_are_everywhere_stay_numbers():
    function = jax.jit(lambda x, y: jnp.where(x > 0, lax.broadcast(y, (5,)) * x, 2.0))
    (eqn,) = jax.make_jaxpr(function)(np.ones(5, np.float32), np.float32(3)).eqns
    made = computed_in_numpy(eqn, [np.asarray(4, np.float32), np.asarray(3, np.float32)], are_numbers=True)
    assert made is not None
    assert (made[0].shape, made[0]) == ((), 12)


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
