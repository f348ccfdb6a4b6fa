"""Products of arrays over the field: matrix products, convolutions, and sums and sets of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import arithmetic
from codelet.field.algebra import chosen
from codelet.field.meanings import Field, all_residues, dtype_of, meaning, summed
from codelet.field.moves import as_extreme
from codelet.field.order import alike, compared, without_bounds
from codelet.field.pairs import numbers_of
from codelet.field.values import Extreme, Unknown, Value, named, residues

Array = np.ndarray

MOST_ELEMENTS = 1 << 24
"""Of patches of an image that are laid out at once."""


@meaning(
    "dot_general",
    "dimension_numbers",
    "preferred_element_type",
    "out_sharding",
    said="a product",
    degree=summed,
    is_exact=True,
    takes_complex=True,
)
def dot_general(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    (summed, batch), (first, second) = eqn.params["dimension_numbers"], all_residues(field, (a, b))
    return [Unknown(product(numbers_of(dtype_of(eqn)), first, second, summed, batch), dtype_of(eqn))]


def product(numbers: Any, a: Array, b: Array, summed: Any, batch: Any) -> Array:
    """The product of (draws, ...) by (draws, ...), summed over and in batches of dimensions behind the draws.

    Args:
        numbers: the arithmetic of the residues, or pairs of them.
        a: of the left.
        b: of the right.
        summed: dimensions of each that are summed over.
        batch: dimensions of each that are those of the other.
    """
    sides = []
    for own, along, beside, is_left in ((a, summed[0], batch[0], True), (b, summed[1], batch[1], False)):
        along, beside = [1 + int(d) for d in along], [1 + int(d) for d in beside]
        free = [d for d in range(1, own.ndim) if d not in along and d not in beside]
        order = [0, *beside, *free, *along] if is_left else [0, *beside, *along, *free]
        counts = [math.prod(own.shape[d] for d in group) for group in (along, beside, free)]
        shape = (own.shape[0], counts[1], *((counts[2], counts[0]) if is_left else (counts[0], counts[2])))
        sides.append(
            (own.transpose(order).reshape(shape), [own.shape[d] for d in beside], [own.shape[d] for d in free])
        )
    made = numbers.matrix_product(sides[0][0], sides[1][0])
    return made.reshape(len(a), *sides[0][1], *sides[0][2], *sides[1][2])


# --- windows ------------------------------------------------------------------------------------------------


def laid_apart(x: Array, lead: int, padding: Sequence[Any], between: Sequence[int], fill: Any) -> Array:
    """An array with its last dimensions dilated, and padded, or cut where widths are negative."""
    shape = x.shape[lead:]
    sizes = [(n - 1) * step + 1 if n else 0 for n, step in zip(shape, between, strict=True)]
    whole = np.empty(
        (*x.shape[:lead], *(n + max(0, lo) + max(0, hi) for n, (lo, hi) in zip(sizes, padding, strict=True))), np.int64
    )
    whole[...] = fill
    items = [slice(max(0, lo), max(0, lo) + n, step) for n, (lo, _), step in zip(sizes, padding, between, strict=True)]
    whole[(slice(None),) * lead + tuple(items)] = x
    cut = [slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(whole.shape[lead:], padding, strict=True)]
    return whole[(slice(None),) * lead + tuple(cut)]


def windows_of(x: Array, lead: int, taps: Sequence[int], strides: Sequence[int], apart: Sequence[int]) -> Array:
    """(..., results along each dimension, taps along each): a view of an array, over its last dimensions."""
    counts = []
    for n, k, s, d in zip(x.shape[lead:], taps, strides, apart, strict=True):
        counts.append(max(0, (n - ((k - 1) * d + 1 if k else 0)) // s + 1))
    steps = x.strides[lead:]
    view = [
        *(st * s for st, s in zip(steps, strides, strict=True)),
        *(st * d for st, d in zip(steps, apart, strict=True)),
    ]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:lead], *counts, *taps), (*x.strides[:lead], *view), writeable=False
    )


@meaning(
    "conv_general_dilated",
    *("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count"),
    *("batch_group_count", "preferred_element_type"),
    said="a product",
    degree=summed,
    is_exact=True,
)
def convolution(field: Field, eqn: Any, x: Value, w: Value) -> Sequence[Value]:
    params, (image, kernel) = eqn.params, all_residues(field, (x, w))
    numbers, groups, batches = (params[k] for k in ("dimension_numbers", "feature_group_count", "batch_group_count"))
    image = image.transpose(0, *(1 + d for d in numbers.lhs_spec))  # draws, batch, channels, field
    kernel = kernel.transpose(0, *(1 + d for d in numbers.rhs_spec))  # draws, results, channels, taps
    image = laid_apart(image, 3, params["padding"], params["lhs_dilation"], 0)
    taps = kernel.shape[3:]
    views = windows_of(image, 3, taps, params["window_strides"], params["rhs_dilation"])
    draws, count, channels = views.shape[:3]
    rank = len(taps)
    over = views.shape[3 : 3 + rank]
    parts = max(groups, batches)
    # (draws, parts, images, channels of a group, results..., taps...)
    if batches > 1:
        views = views.reshape(draws, batches, count // batches, channels, *over, *taps)
    else:
        views = np.moveaxis(views.reshape(draws, count, groups, channels // groups, *over, *taps), 2, 1)
    own = kernel.reshape(draws, parts, kernel.shape[1] // parts, -1)
    images, per = views.shape[2], views.shape[3]
    made = np.empty((draws, images, parts, own.shape[2], math.prod(over)), np.int64)
    order = (0, 1, *(3 + k for k in range(rank)), 2, *(3 + rank + k for k in range(rank)))
    step = max(1, MOST_ELEMENTS // max(1, draws * parts * per * math.prod(over) * math.prod(taps)))
    for first in range(0, images, step):
        part = views[:, :, first : first + step]
        laid = part.transpose(0, 1, *(1 + d for d in order[1:])).reshape(draws, parts, -1, per * math.prod(taps))
        result = arithmetic.matrix_product(laid, own.swapaxes(2, 3)).reshape(
            draws, parts, part.shape[2], -1, own.shape[2]
        )
        made[:, first : first + step] = result.transpose(0, 2, 1, 4, 3)
    result = made.reshape(draws, images, parts * own.shape[2], *over)
    back = np.argsort(numbers.out_spec)
    return [Unknown(result.transpose(0, *(1 + d for d in back)), dtype_of(eqn))]


def _window(eqn: Any) -> tuple[Any, ...]:
    params = eqn.params
    return tuple(
        params[k] for k in ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    )


_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


@meaning("reduce_window_sum", *_WINDOW, said="a sum", is_exact=True)
def window_sum(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    taps, strides, padding, between, apart = _window(eqn)
    own = laid_apart(residues(x, field.draws), 1, padding, between, 0)
    views = windows_of(own, 1, taps, strides, apart)
    return [Unknown(arithmetic.total(views, range(views.ndim - len(taps), views.ndim)), dtype_of(eqn))]


@meaning("reduce_window_max reduce_window_min", *_WINDOW, said="a set")
def window_extreme(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    taps, strides, padding, between, apart = _window(eqn)
    kind = eqn.primitive.name[-3:]
    members = as_extreme(field, kind, x).members
    none = named("-inf" if kind == "max" else "inf", field.draws).reshape(-1, *(1,) * (members.ndim - 1))
    own = laid_apart(members, 2, padding, between, none)
    views = windows_of(own, 2, taps, strides, apart)
    rank = len(taps)
    moved = views.transpose(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    moved = moved.reshape(len(own), -1, *moved.shape[2 + rank :])
    return [Extreme(kind, without_bounds(field, kind, moved), dtype_of(eqn))]


@meaning(
    "select_and_scatter_add",
    "select_prim",
    "window_dimensions",
    "window_strides",
    "padding",
    said="comparisons of each window's elements in their order, and a sum",
    degree=lambda eqn, degrees: 1 + degrees[0],
    hashes=(1,),
)
def select_and_scatter_add(field: Field, eqn: Any, source: Value, operand: Value) -> Sequence[Value]:
    """Each window's cotangent goes to the element that is left when each is compared with the one that was so far."""
    params = eqn.params
    taps, strides, padding = (params[k] for k in ("window_dimensions", "window_strides", "padding"))
    name, rank = params["select_prim"].name, len(taps)
    own, given = all_residues(field, (operand, source))
    none = named("-inf" if name == "ge" else "inf", field.draws).reshape(-1, *(1,) * rank)
    whole = laid_apart(own, 1, padding, (1,) * rank, none)
    views = windows_of(whole, 1, taps, strides, (1,) * rank)
    flat = views.reshape(*views.shape[: 1 + rank], -1)
    best, place = flat[..., 0], np.zeros(flat.shape[:-1], np.int64)
    for k in range(1, flat.shape[-1]):
        stays = compared(name, best, flat[..., k])
        best = chosen(stays, flat[..., k], best, operand.dtype)
        place = chosen(stays, np.full_like(place, k), place, operand.dtype)
    made = np.zeros_like(whole)
    for k, tap in enumerate(np.ndindex(*taps)):
        share = arithmetic.multiply(alike(place, np.full_like(place, k)), given)
        items = tuple(slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(tap, given.shape[1:], strides, strict=True))
        made[(slice(None), *items)] = arithmetic.add(made[(slice(None), *items)], share)
    cut = tuple(slice(lo, n - hi) for n, (lo, hi) in zip(made.shape[1:], padding, strict=True))
    return [Unknown(made[(slice(None), *cut)], dtype_of(eqn))]
