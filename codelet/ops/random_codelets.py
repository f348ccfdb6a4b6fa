"""From counters to random numbers: the codelets of `random.py`, each of a stretch of counters.

Threefry-2x32 with 20 rounds makes a block of two words of a key and a counter (Salmon et al., Parallel random numbers:
as easy as 1, 2, 3, SC 2011); how numbers are made of the words is `jax.random`'s.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from codelet.ops.pairs import both
from codelet.tracing.codelets import codelet


def _blocks(key, counter):
    """The two words that Threefry makes of each counter."""
    high = (counter >> 16 >> 16).astype(jnp.uint32)  # in two steps: no number of 32 bits can be shifted by 32
    return threefry2x32_p.bind(key[0], key[1], high, counter.astype(jnp.uint32))


def _bits(key, counter, num_bits):
    first, second = _blocks(key, counter)
    if num_bits == 64:
        return (first.astype(jnp.uint64) << 32) | second.astype(jnp.uint64)
    return (first ^ second).astype(f"uint{num_bits}")


def _uniform(key, counter, minval, maxval, dtype):
    """Random bits as the mantissa of numbers from 1 to 2, as `jax.random.uniform` makes them."""
    info = jnp.finfo(dtype)
    drawn = 8 if info.nmant < 8 else info.bits
    bits = _bits(key, counter, drawn).astype(f"uint{info.bits}")
    one = np.array(1, dtype)
    floats = (bits >> (drawn - info.nmant)) | one.view(bits.dtype)
    floats = lax.bitcast_convert_type(floats, dtype) - one
    low, high = jnp.asarray(minval, dtype), jnp.asarray(maxval, dtype)
    return jnp.maximum(low, floats * (high - low) + low)


def _normal(key, counter, dtype):
    """By the inverse of the error function, as `jax.random.normal` makes them."""
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    return np.array(np.sqrt(2), dtype) * lax.erf_inv(_uniform(key, counter, low, 1, dtype))


def _bernoulli(key, counter, p, count, mode):
    """Whether a uniform number is below p: with mode "high" one of twice as many bits, a second array of them."""
    p = jnp.asarray(p)
    first = _uniform(key, counter, 0, 1, p.dtype)
    if mode == "low":
        return first < p
    second = _uniform(key, counter + count, 0, 1, p.dtype)
    return second * 2.0 ** -jnp.finfo(p.dtype).nmant < p - first


# --- codelets ---------------------------------------------------------------------------------------------


@both
def draw_bits(key, counter, *, dtype):
    """Random bits of a stretch of counters."""
    return _bits(key, counter, np.dtype(dtype).itemsize * 8)


@both
def draw_uniform(key, counter, *, minval, maxval, dtype):
    """Uniform numbers between numbers."""
    return _uniform(key, counter, minval, maxval, np.dtype(dtype))


@both
def draw_between(key, counter, minval, maxval, *, dtype):
    """Uniform numbers, each between two bounds."""
    return _uniform(key, counter, minval, maxval, np.dtype(dtype))


@both
def draw_normal(key, counter, *, dtype):
    """Normal numbers of a stretch of counters."""
    return _normal(key, counter, np.dtype(dtype))


@both
def draw_truth(key, counter, *, p, count, mode, dtype):
    """Booleans, true with a probability."""
    return _bernoulli(key, counter, np.array(p, dtype), count, mode)


@both
def draw_truths(key, counter, p, *, count, mode):
    """Booleans, each true with its probability."""
    return _bernoulli(key, counter, p, count, mode)


@both
def drop(key, counter, x, *, kept, dtype):
    """A stretch of elements, some of them 0, the others as much larger."""
    mask = _bernoulli(key, counter, np.array(kept, dtype), 0, "low")
    return jnp.where(mask, x / kept, 0)


@both
def make_keys(key, counter):
    """Keys of a stretch of counters."""
    return jnp.stack(_blocks(key, counter), -1)


@codelet(issue="assembly")
def fold(key, data):
    """The key that Threefry makes of a number."""
    low = data.astype(jnp.uint32)
    return jnp.stack(threefry2x32_p.bind(key[0], key[1], jnp.zeros_like(low), low))
