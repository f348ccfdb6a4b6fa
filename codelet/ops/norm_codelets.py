"""The codelets of norms: statistics, normalized elements, and gradients, of blocks and of whole rows.

`axes` are those of a block along which its elements are normalized together, `spread` those along which they are scaled
alike.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from codelet.ops.pairs import both


def _normal(x, mean, variance, axes, eps):
    """Numbers without their mean, by their deviation."""
    return (x - jnp.expand_dims(mean, axes)) * jnp.expand_dims(lax.rsqrt(variance + eps), axes)


def _moments_of_rows(x, axes):
    mean = jnp.mean(x, axes)
    return mean, jnp.mean(lax.square(x - jnp.expand_dims(mean, axes)), axes)


@both
def cast(x, *, dtype):
    """Numbers in another dtype."""
    return x.astype(dtype)


@both
def sum_moments(x, *, axes, partials):
    """The sum and the sum of the squares."""
    x = x.astype(partials)
    return {"total": jnp.sum(x, axes), "squares": jnp.sum(x * x, axes)}


@both
def divide_moments(total, squares, *, count):
    """The mean and the variance from the sum and the sum of the squares of so many."""
    mean = total / count
    return {"mean": mean, "variance": jnp.maximum(squares / count - mean * mean, 0)}


@both
def normalize(x, mean, variance, scale, offset, *, axes, spread, eps):
    """Numbers normalized by given statistics, scaled and moved."""
    y = _normal(x.astype(mean.dtype), mean, variance, axes, eps)
    return (y * jnp.expand_dims(scale, spread) + jnp.expand_dims(offset, spread)).astype(x.dtype)


@both
def normalize_rows(x, scale, offset, *, axes, spread, eps, partials):
    """Rows normalized by their statistics, scaled and moved."""
    wide = x.astype(partials)
    y = _normal(wide, *_moments_of_rows(wide, axes), axes, eps)
    return (y * jnp.expand_dims(scale, spread) + jnp.expand_dims(offset, spread)).astype(x.dtype)


@both
def moments_of_rows(x, *, axes, partials):
    """The mean and the variance of rows."""
    mean, variance = _moments_of_rows(x.astype(partials), axes)
    return {"mean": mean, "variance": variance}


@both
def sum_slopes(cotangent, x, mean, variance, *, axes, spread, eps):
    """The summands of the gradients with respect to scale and offset: `axes` are those of the statistics, `spread`
    those summed.
    """
    wide = cotangent.astype(mean.dtype)
    normal = _normal(x.astype(mean.dtype), mean, variance, axes, eps)
    return {"scale": jnp.sum(wide * normal, spread), "offset": jnp.sum(wide, spread)}


@both
def sum_scaled_slopes(cotangent, x, mean, variance, scale, *, axes, spread, eps):
    """The sums of the scaled slopes of rows, and of their products with the normalized elements."""
    wide = cotangent.astype(mean.dtype) * jnp.expand_dims(scale, spread)
    normal = _normal(x.astype(mean.dtype), mean, variance, axes, eps)
    return {"products": jnp.sum(wide * normal, axes), "total": jnp.sum(wide, axes)}


@both
def move_slopes(cotangent, x, mean, variance, scale, products, total, *, axes, spread, eps, count):
    """The slopes by the elements, from the sums of scaled slopes of their rows."""
    wide = cotangent.astype(mean.dtype) * jnp.expand_dims(scale, spread)
    normal = _normal(x.astype(mean.dtype), mean, variance, axes, eps)
    moved = wide - jnp.expand_dims(total / count, axes) - normal * jnp.expand_dims(products / count, axes)
    return (moved * jnp.expand_dims(lax.rsqrt(variance + eps), axes)).astype(x.dtype)


@both
def move_slopes_by_channel(cotangent, x, mean, variance, scale, products, total, *, axes, eps, count):
    """The slopes by the elements, from sums that are not scaled, where each row has one scale."""
    wide = cotangent.astype(mean.dtype)
    normal = _normal(x.astype(mean.dtype), mean, variance, axes, eps)
    moved = wide - jnp.expand_dims(total / count, axes) - normal * jnp.expand_dims(products / count, axes)
    return (moved * jnp.expand_dims(scale * lax.rsqrt(variance + eps), axes)).astype(x.dtype)


@both
def slopes_of_rows(cotangent, x, scale, *, axes, spread, eps, partials):
    """The slopes by the elements of whole rows, and the rows' statistics."""
    wide, own = x.astype(partials), cotangent.astype(partials) * jnp.expand_dims(scale, spread)
    mean, variance = _moments_of_rows(wide, axes)
    normal = _normal(wide, mean, variance, axes, eps)
    moved = own - jnp.mean(own, axes, keepdims=True) - normal * jnp.mean(own * normal, axes, keepdims=True)
    slopes = moved * jnp.expand_dims(lax.rsqrt(variance + eps), axes)
    return {"out": slopes.astype(x.dtype), "mean": mean, "variance": variance}
