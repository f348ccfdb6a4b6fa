"""Operations: functions of two arrays that apply one of JAX's operations with drawn parameters.

They are drawn so that every parameter of every primitive that a rule of the lowering looks through takes values
that are not its default: layouts, groups, orders, precisions, accumulation types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

import codelet as cl


class Operation(NamedTuple):
    """A function of two arrays, which must be of these shapes."""

    function: Callable[[Any, Any], Any]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]


SIZES = st.integers(1, 3)


def _shape(draw: Any, least: int = 1, most: int = 3) -> tuple[int, ...]:
    return tuple(draw(st.lists(SIZES, min_size=least, max_size=most)))


def _order(draw: Any, count: int) -> tuple[int, ...]:
    return tuple(draw(st.permutations(range(count))))


def _precision(draw: Any) -> Any:
    return draw(st.sampled_from([None, lax.Precision.HIGHEST, (lax.Precision.HIGH, lax.Precision.DEFAULT)]))


def _reshaped(draw: Any) -> Operation:
    """A product with a reshape that reads dimensions in another order, as order="F" does."""
    shape = _shape(draw, 2)
    order = _order(draw, len(shape)) if draw(st.booleans()) else None
    size = math.prod(shape)
    cut = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    axis = draw(st.sampled_from([None, 0, 1]))

    def function(a: Any, b: Any) -> Any:
        if order is None:
            laid = a.reshape((cut, size // cut), order="F")
        else:
            laid = lax.reshape(a, (cut, size // cut), dimensions=order)
        return (laid * b.reshape((cut, size // cut), order="F")).sum(axis)

    return Operation(function, (shape, shape))


def _transposed(draw: Any) -> Operation:
    shape = _shape(draw)
    order = _order(draw, len(shape))
    places = tuple(sorted(draw(st.permutations(range(len(shape) + 1)))[: len(shape)]))

    def function(a: Any, b: Any) -> Any:
        turned = a.transpose(order)
        full = list(turned.shape)
        full.insert(next(k for k in range(len(shape) + 1) if k not in places), 2)
        return lax.broadcast_in_dim(turned, tuple(full), places) * b.transpose(order).sum()

    return Operation(function, (shape, shape))


def _reduced(draw: Any) -> Operation:
    shape = _shape(draw)
    axes = tuple(d for d in range(len(shape)) if draw(st.booleans()))
    kind = draw(st.sampled_from([jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean]))
    keepdims = draw(st.booleans())
    return Operation(lambda a, b: kind(a * b, axis=axes, keepdims=keepdims), (shape, shape))


def _dotted(draw: Any) -> Operation:
    """A dot with batches, in any order of dimensions, of any precision and accumulation."""
    batch, inner, left, right = (_shape(draw, 0, 2) for _ in range(4))
    a, b = (*batch, *inner, *left), (*batch, *inner, *right)
    orders = _order(draw, len(a)), _order(draw, len(b))
    places = [tuple(order.index(k) for k in range(len(batch) + len(inner))) for order in orders]
    numbers: Any = (
        tuple(place[len(batch) :] for place in places),
        tuple(place[: len(batch)] for place in places),
    )
    precision, accumulate = _precision(draw), draw(st.booleans())

    def function(x: Any, y: Any) -> Any:
        kind = jnp.float32 if accumulate and jnp.issubdtype(x.dtype, jnp.floating) else None
        made = lax.dot_general(x, y, numbers, precision=precision, preferred_element_type=kind)
        return made.astype(x.dtype)

    return Operation(function, tuple(tuple(s[k] for k in order) for s, order in zip((a, b), orders, strict=True)))  # type: ignore[arg-type]


def _convolved(draw: Any) -> Operation:
    """A convolution with groups, batch groups, strides, dilations, padding, in any layout."""
    groups, batch_groups = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2)]))
    windows = draw(st.integers(1, 2))
    batch, inner, outer = (draw(st.integers(1, 2)) for _ in range(3))
    spatial = [draw(st.integers(3, 5)) for _ in range(windows)]
    kernel = [draw(st.integers(1, 3)) for _ in range(windows)]
    image = (batch * batch_groups, inner * groups, *spatial)
    kernels = (outer * groups * batch_groups, inner, *kernel)
    specs = tuple(_order(draw, windows + 2) for _ in range(3))
    numbers = lax.ConvDimensionNumbers(*specs)
    parameters = {
        "window_strides": [draw(st.integers(1, 2)) for _ in spatial],
        "padding": [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in spatial],
        "lhs_dilation": [draw(st.integers(1, 2)) for _ in spatial],
        "rhs_dilation": [1 for _ in spatial],
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
        "precision": _precision(draw),
    }
    laid = [tuple(s[spec.index(d)] for d in range(len(s))) for s, spec in zip((image, kernels), specs, strict=False)]
    return Operation(lambda a, b: lax.conv_general_dilated(a, b, dimension_numbers=numbers, **parameters), tuple(laid))  # type: ignore[arg-type]


def _transposed_convolution(draw: Any) -> Operation:
    layout = draw(st.sampled_from([("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")]))
    sizes = {"N": 1, "C": 2, "I": 2, "O": 3, "H": 3, "W": 2}
    stride, same, flip = draw(st.integers(1, 2)), draw(st.sampled_from(["SAME", "VALID"])), draw(st.booleans())
    image = tuple(sizes[letter] for letter in layout[0])
    kernel = tuple(
        {"I": 3, "O": 2}.get(letter, 2) if flip else sizes.get(letter, 2) if letter in "IO" else 2
        for letter in layout[1]
    )
    return Operation(
        lambda a, b: lax.conv_transpose(a, b, (stride,) * 2, same, dimension_numbers=layout, transpose_kernel=flip),
        (image, kernel),
    )


def _correlated(draw: Any) -> Operation:
    kind = draw(st.sampled_from([jnp.convolve, jnp.correlate]))
    mode = draw(st.sampled_from(["full", "same", "valid"]))
    return Operation(lambda a, b: kind(a, b, mode=mode), ((draw(st.integers(3, 5)),), (draw(st.integers(1, 3)),)))


def _accumulated(draw: Any) -> Operation:
    kind = draw(st.sampled_from([lax.cumsum, lax.cumprod, lax.cummax]))
    shape = _shape(draw, 2)
    axis, reverse = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
    return Operation(lambda a, b: kind(a, axis, reverse=reverse) * b, (shape, shape))


def _windowed(draw: Any) -> Operation:
    pads = [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2)), draw(st.integers(0, 1))) for _ in range(2)]

    def function(a: Any, b: Any) -> Any:
        wide = lax.pad(a, jnp.zeros((), a.dtype), pads)
        return lax.reduce_window(wide, a.dtype.type(0), lax.add, (2, 2), (1, 2), "SAME").sum() * b

    return Operation(function, ((3, 3), (2,)))


def _gathered(draw: Any) -> Operation:
    axis, mode = draw(st.integers(0, 1)), draw(st.sampled_from(["wrap", "clip", "fill"]))
    at = draw(st.lists(st.integers(-4, 4), min_size=1, max_size=3))
    which = draw(st.booleans())

    def function(a: Any, b: Any) -> Any:
        taken = jnp.take(a, jnp.asarray(at), axis=axis, mode=mode, fill_value=7) if which else jnp.sort(a, axis)
        return taken.sum(axis) * b.sum()

    return Operation(function, ((3, 2), (2,)))


def _sliced(draw: Any) -> Operation:
    """The taps of a stencil: slices of one array that start here and there, with one stride."""
    stride, reach, left = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 1))
    taps = draw(st.lists(st.tuples(st.integers(0, reach), st.integers(0, left)), min_size=1, max_size=3))
    length = 2 * stride + 1

    def function(a: Any, b: Any) -> Any:
        own = [lax.slice(a, (t, u), (t + length, u + 3 - left), (stride, 1)) for t, u in taps]
        return sum(own[1:], own[0]) * b.sum()

    return Operation(function, ((length + reach, 3), (2,)))


def _repeated(draw: Any) -> Operation:
    """Arrays of which each is of one element along some dimensions, and repeated along them."""
    shape = _shape(draw)
    ones = [tuple(1 if draw(st.booleans()) else n for n in shape) for _ in range(2)]
    axes = tuple(d for d in range(len(shape)) if draw(st.booleans()))

    def function(a: Any, b: Any) -> Any:
        made = (a[:, None] + 1) * b[:, None]
        return made.sum(tuple(d + (d > 0) for d in axes))

    return Operation(function, (ones[0], ones[1]))


KINDS = [
    _reshaped,
    _transposed,
    _reduced,
    _dotted,
    _convolved,
    _transposed_convolution,
    _correlated,
    _accumulated,
    _windowed,
    _gathered,
    _sliced,
    _repeated,
]


@st.composite
def operations(draw: Any) -> Operation:
    """An operation of any kind."""
    return draw(st.sampled_from(KINDS))(draw)


def as_codelet(operation: Operation) -> cl.Codelet:
    """A codelet that applies an operation."""
    return cl.codelet(lambda a, b: operation.function(a, b))
