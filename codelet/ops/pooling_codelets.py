"""The codelets of poolings: functions of a patch of a tensor, or of the slopes of its windows."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.ops.pairs import Pair, both


def least(dtype: Any) -> Any:
    """A value no greater than any number of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return -np.inf
    return np.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.integer) else False


def greatest_of(dtype: Any) -> Any:
    """A value no less than any number of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.inf
    return np.iinfo(dtype).max if jnp.issubdtype(dtype, jnp.integer) else True


def _sums(x, window, strides, dilation=None):
    none = np.zeros((), x.dtype)[()]
    return lax.reduce_window(x, none, lax.add, window, strides, "VALID", window_dilation=dilation)


def greatest(x, *, window, strides):
    """The greatest element of each window of a patch."""
    return lax.reduce_window(x, np.asarray(least(x.dtype), x.dtype)[()], lax.max, window, strides, "VALID")


def total(x, *, window, strides, dilation):
    """The sum of each window of a patch, whose taps are apart by a dilation."""
    return _sums(x, window, strides, dilation)


def largest(x, *, window, strides, dilation):
    """The greatest element of such a window."""
    least_of = np.asarray(least(x.dtype), x.dtype)[()]
    return lax.reduce_window(x, least_of, lax.max, window, strides, "VALID", window_dilation=dilation)


def smallest(x, *, window, strides, dilation):
    """The least element of such a window."""
    most = np.asarray(greatest_of(x.dtype), x.dtype)[()]
    return lax.reduce_window(x, most, lax.min, window, strides, "VALID", window_dilation=dilation)


def average(x, *, window, strides, count):
    """The sum of each window of a patch, divided by a count."""
    return _sums(x, window, strides) / count


def average_of_counts(x, counts, *, window, strides):
    """The sum of each window of a patch, divided by how many elements it has."""
    return _sums(x, window, strides) / counts


def _taps(x, window, strides, results, dilation=None):
    """The elements at each position of the window, of all windows of a patch."""
    apart = (1,) * len(window) if dilation is None else dilation
    for tap in itertools.product(*map(range, window)):
        starts = [t * d for t, d in zip(tap, apart, strict=True)]
        stops = [start + s * (n - 1) + 1 for start, s, n in zip(starts, strides, results, strict=True)]
        yield lax.slice(x, starts, stops, strides)


def first_greatest(x, *, window, strides):
    """Which position of each window of a patch has the greatest element: the first of those."""
    results = [(n - k) // s + 1 for n, k, s in zip(x.shape, window, strides, strict=True)]
    value, *others = _taps(x, window, strides, results)
    number = lax.full(value.shape, 0, np.int32)
    for k, other in enumerate(others):
        stays = value >= other
        value, number = lax.select(stays, value, other), lax.select(stays, number, lax.full_like(number, k + 1))
    return number


def _tangents(x, t, start, stays, window, strides, dilation):
    """The tangent where the first element of each window stays, of those that begin with a start and 0."""
    reaches = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    results = [(n - reach) // s + 1 for n, reach, s in zip(x.shape, reaches, strides, strict=True)]
    value, slope = jnp.full(results, start, x.dtype), jnp.zeros(results, t.dtype)
    pairs = zip(_taps(x, window, strides, results, dilation), _taps(t, window, strides, results, dilation), strict=True)
    for other, own in pairs:
        chosen = stays(value, other)
        value, slope = jnp.where(chosen, value, other), jnp.where(chosen, slope, own)
    return slope


def tangents_of_largest(x, t, *, window, strides, dilation):
    """The tangent where the greatest element of each window of a patch is: the first of those."""
    return _tangents(x, t, least(x.dtype), lax.ge, window, strides, dilation)


def tangents_of_smallest(x, t, *, window, strides, dilation):
    """The tangent where the least element is."""
    return _tangents(x, t, greatest_of(x.dtype), lax.le, window, strides, dilation)


def slopes_of_chosen(g, chosen, *, window, numbers):
    """The sum of the slopes of those windows that have chosen an element, for a patch of them.

    The windows that meet an element are a window themselves; `numbers` says which position the element has in each.
    """
    results, ones = [n - k + 1 for n, k in zip(g.shape, window, strict=True)], (1,) * g.ndim
    taps = zip(_taps(g, window, ones, results), _taps(chosen, window, ones, results), numbers, strict=True)
    none = lax.full(results, 0, g.dtype)
    return functools.reduce(lax.add, (lax.select(own == number, slope, none) for slope, own, number in taps))


def slopes_of_sums(g, *, window, count):
    """The sum of the slopes of the windows that meet an element, divided by a count, for a patch of them."""
    return _sums(g, window, (1,) * g.ndim) / count


def slopes_of_counts(g, counts, *, window):
    """The same, each slope divided by how many elements its window has."""
    return _sums(g / counts, window, (1,) * g.ndim)


CODELETS: dict[str, Pair] = {
    function.__name__: both(function)
    for function in (
        greatest,
        total,
        largest,
        smallest,
        average,
        average_of_counts,
        first_greatest,
        tangents_of_largest,
        tangents_of_smallest,
        slopes_of_chosen,
        slopes_of_sums,
        slopes_of_counts,
    )
}
"""Each pair by the name of what it computes."""
