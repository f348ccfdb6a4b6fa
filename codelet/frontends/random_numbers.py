"""Keys and random bits: the numbers that JAX draws from the same keys."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet import ops
from codelet.frontends.by_element import threefry
from codelet.frontends.for_each import add_for_each, rebound
from codelet.frontends.one_vertex import add_one_vertex
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type, key_type

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


@rule("random_wrap", by="nothing: keys are their data")
def random_wrap(walk: Walk, data: Value, *, impl: Any) -> Any:
    """Keys of their data."""
    return data


@rule("random_unwrap", by="nothing: keys are their data")
def random_unwrap(walk: Walk, keys: Value) -> Any:
    """The data of keys."""
    return keys


_config: Any = jax.config


def _is_threefry(walk: Walk) -> bool:
    """Whether the keys of the equation are Threefry's, whose numbers depend on the place alone."""
    aval: Any = walk.equation.invars[0].aval
    return key_type(aval.dtype).generator == "threefry2x32" and bool(_config.jax_threefry_partitionable)


def _number_of_keys(walk: Walk) -> int:
    aval: Any = walk.equation.invars[0].aval
    return math.prod(aval.shape)


@rule("random_bits", by="`ops.random_bits` of a key of Threefry, `ops.map` of many; else one vertex")
def random_bits(walk: Walk, keys: Value, *, bit_width: int, shape: tuple[int, ...]) -> Any:
    """Random bits."""
    if not _is_threefry(walk):
        return NotImplemented
    made: Any = walk.equation.outvars[0].aval
    tensor, count = walk.tensor(keys), math.prod(shape)
    if _number_of_keys(walk) == 1:
        own = ops.random_bits(walk.graph, shape, key=tensor.reshape(2), dtype=f"uint{bit_width}", grain=walk.grain)
        return own.reshape(made.shape)
    words = tensor.reshape(math.prod(made.shape[: made.ndim - len(shape)]), 1, 2)
    high, low = np.divmod(np.arange(count, dtype=np.uint64), np.uint64(1 << 32))
    places = [walk.tensor(own.astype(np.uint32)[None]) for own in ([low] if count < 1 << 32 else [low, high])]
    bits = functools.partial(_bits, width=bit_width)
    drawn = ops.map(walk.graph, bits, words[..., 0], words[..., 1], *places, grain=walk.grain, name="random_bits")
    return drawn.reshape(made.shape)


def _bits(first: Any, second: Any, low: Any, high: Any = None, *, width: int) -> Any:
    """Bits of a place, of the words of a key."""
    a, b = threefry(first, second, jnp.zeros_like(low) if high is None else high, low)
    if width == 64:
        return (a.astype(jnp.uint64) << 32) | b.astype(jnp.uint64)
    return (a ^ b).astype(f"uint{width}")


@rule("random_split", by="`ops.split_key` of a key of Threefry; else a vertex for each key")
def random_split(walk: Walk, keys: Value, *, shape: tuple[int, ...]) -> Any:
    """Keys of a key."""
    if _is_threefry(walk) and _number_of_keys(walk) == 1 and math.prod(shape) > FEW:
        made: Any = walk.equation.outvars[0].aval
        own = ops.split_key(walk.graph, walk.tensor(keys).reshape(2), shape, grain=walk.grain)
        return own.reshape(data_type(made)[0])
    return derived_keys(walk, keys)


FEW = 16
"""Keys that one vertex makes of a key."""


@rule("random_seed", "random_fold_in", by="a vertex for each key")
def derived_keys(walk: Walk, *operands: Value, impl: Any = None) -> Any:
    """Keys made of keys."""
    made: Any = walk.equation.outvars[0].aval
    own: Any = walk.equation.invars[0].aval
    each = NotImplemented
    if own.ndim and made.size:
        each = add_for_each(walk, operands, own.ndim, functools.partial(rebound, walk.equation))
    return add_one_vertex(walk, walk.equation, operands, as_planned=True) if each is NotImplemented else each


@rule("random_gamma", by="a vertex for each key")
def random_gamma(walk: Walk, keys: Value, alpha: Value, *, log_space: bool) -> Any:
    """Random numbers of gamma distributions."""
    own: Any = walk.equation.invars[0].aval
    if not _is_threefry(walk) or not own.ndim or not alpha.size:
        return NotImplemented
    return add_for_each(walk, (keys, alpha), own.ndim, functools.partial(rebound, walk.equation))
