"""Values: the meaning of a variable of a jaxpr while its equations are added to a graph.

A value is a tensor of the graph, or an array that is known. A known array whose elements are all one number has no
strides, so that it takes no memory whatever its shape. Typed PRNG keys are their data, arrays of uint32 with one
dimension more.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind, literal_value
from codelet.views.tensor import Tensor

Value = Tensor | np.ndarray

LARGEST_KNOWN = 1 << 16
"""The most elements of an array that is computed while a function is traced."""


def is_key(dtype: Any) -> bool:
    """Whether a dtype is that of typed PRNG keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


class KeyType(NamedTuple):
    """The type of arrays of keys: which generator they are of, and the shape of the data of one."""

    generator: str
    shape: tuple[int, ...]


@functools.cache
def key_type(dtype: Any) -> KeyType:
    """The type of keys behind a dtype."""
    found: list[Any] = []

    def look(keys: jax.Array) -> jax.Array:
        found.append(jax.random.key_impl(keys))
        return jax.random.key_data(keys)

    data = jax.eval_shape(look, jax.ShapeDtypeStruct((), dtype))
    return KeyType(found[0], data.shape)


def data_type(aval: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype in which a value of a jaxpr is stored."""
    if is_key(aval.dtype):
        return (*aval.shape, *key_type(aval.dtype).shape), np.dtype(np.uint32)
    return tuple(aval.shape), np.dtype(aval.dtype)


def wrapped(data: Any, aval: Any) -> Any:
    """The value of a jaxpr from its stored form, in JAX."""
    return jax.random.wrap_key_data(data, impl=key_type(aval.dtype).generator) if is_key(aval.dtype) else data


@functools.cache
def _weakening(dtype: np.dtype) -> jax_core.JaxprEqn:
    """An equation that makes of a number one that yields its dtype to others, as Python's numbers do."""
    other = np.dtype(np.int8 if dtype != np.int8 else np.int16)
    (eqn,) = jax.make_jaxpr(lambda own: jax.lax.convert_element_type(own, dtype))(np.zeros((), other)).eqns
    return eqn.replace(params={**eqn.params, "weak_type": True})


def returned(data: Any, aval: Any) -> Any:
    """A result of a jaxpr from its stored form: keys as such, and weakly typed numbers stay weakly typed."""
    value = wrapped(data, aval)
    return bind(_weakening(value.dtype), [value])[0] if aval.weak_type and not value.weak_type else value


def unwrapped(value: Any) -> Any:
    """The stored form of a value of a jaxpr, in JAX."""
    return jax.random.key_data(value) if is_key(value.dtype) else value


def known(value: Any) -> np.ndarray:
    """A literal or constant of a jaxpr as a known array; one number in all its places has no strides."""
    if not hasattr(value, "dtype"):  # a plain number; `jnp.asarray` of it is traced where others are
        value = np.asarray(value, jax.dtypes.canonicalize_dtype(np.asarray(value).dtype))
    array = np.asarray(unwrapped(value))
    if array.ndim and array.size and not any(array.strides):
        return array
    if array.size > 1 and (array.reshape(-1)[:1] == array.reshape(-1)).all() and array.dtype.kind not in "fcV":
        return np.broadcast_to(array.reshape(-1)[0], array.shape)
    return array


def of_literal(literal: jax_core.Literal) -> np.ndarray:
    """A literal of a jaxpr as a known array, of its dtype."""
    return known(literal.val if hasattr(literal.val, "dtype") else literal_value(literal))


def number_of(array: np.ndarray) -> np.generic | None:
    """The number that a known array has in all its places; None where it may have several."""
    if array.size == 1 or (array.size and not any(array.strides)):
        return array.reshape(-1)[0] if array.ndim == 0 else array[(0,) * array.ndim]
    return None


def reshaped(value: Value, shape: Sequence[int]) -> Value:
    """The same elements in another shape."""
    if isinstance(value, Tensor):
        return value.reshape(tuple(shape))
    number = number_of(value)
    return value.reshape(tuple(shape)) if number is None else np.broadcast_to(number, tuple(shape))
