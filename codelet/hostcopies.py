"""Copies of arrays of the host: the one place where an array that somebody else may write to becomes one of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

ALIGNMENT = 64
"""Bytes; `jax.device_put` to a CPU takes memory that begins at a multiple as its own, whatever `may_alias` says."""


def own_copy(value: Any) -> np.ndarray:
    """A copy of an array of the host, with the dtype that JAX has for it, in memory that nobody else knows.

    It is aligned, so that a CPU's device takes it as it is: then it must not be written to.
    """
    array = np.asarray(value)
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype)) if array.dtype.kind in "biufc" else array.dtype
    num_bytes = array.size * dtype.itemsize
    room = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    copy = room[start : start + num_bytes].view(dtype).reshape(array.shape)
    np.copyto(copy, array, casting="unsafe")
    return copy


def on_device(value: Any) -> jax.Array:
    """A value as a JAX array, which nothing that is done to an array of the host changes any more.

    An array of the host is copied before this returns, once: devices of a CPU share memory with it, others read it
    while the program goes on. (`jnp.asarray` of a NumPy array would compile a program for every shape.)
    """
    if isinstance(value, (jax.Array, np.generic)) or hasattr(value, "__jax_array__"):
        return jnp.asarray(value)
    if not hasattr(value, "__array__") and not isinstance(value, memoryview):
        return jnp.asarray(value)
    array = np.asarray(value)
    return jax.device_put(array if array.dtype.hasobject else own_copy(array))


def lies_here(value: Any) -> bool:
    """Whether the numbers of a value are known, and of this process: those of a traced value are not."""
    return not isinstance(value, Tracer) and getattr(value, "is_fully_addressable", True)


def copied(array: jax.Array) -> jax.Array:
    """A copy of an array, on the same devices: `jnp.array` would compile a program for every shape."""
    of_this_process = isinstance(array, Tracer) or array.is_fully_addressable
    return jax.device_put(array, None if of_this_process else array.sharding, may_alias=False)
