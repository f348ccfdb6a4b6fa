"""Compose parts: a family that adds up what several families multiplied, each of a part of what is summed.

Where no number of parts divides what a convolution sums over, the partial sums of the last part are written by a family
of their own, of fewer channels or rows of the kernel. In come a family of sums, and the families of inner products that
wrote what it adds up. Out comes one of inner products over all that they sum: each part is composed by itself with the
sums of its own results (`compose.py`), and what they read goes on, part behind part, as in `join_families.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.fast.compose import Products, compose
from lowering.fast.join_families import LatticeBox, join_boxes
from lowering.fast.lines import strided_index
from lowering.plan.access import run_of, take_apart


class _Run(NamedTuple):
    """A dimension of a view that runs along one of its source, one element after another; None along none."""

    dimension: int | None
    stride: int
    extent: int


def _runs(stride: int, extent: int, shape: Sequence[int]) -> list[_Run]:
    """A dimension of a view by those of its source, of a shape: several where it runs on from one into the next."""
    weights = row_major_strides(shape)
    at = next((d for d, weight in enumerate(weights) if weight == stride and shape[d] > 1), None)
    if at is None or extent <= shape[at]:
        return [_Run(at, stride, extent)]
    if extent % shape[at]:
        return [_Run(None, stride, extent)]
    return [*_runs(stride * shape[at], extent // shape[at], shape), _Run(at, stride, shape[at])]


def _region(out: Tensor) -> list[tuple[int, int]] | None:
    """The region of a variable that products write, from where to where along each dimension; None if it is none."""
    access = take_apart(out.source.shape, out.index)
    runs = [run_of(*dimension) for dimension in access.dimensions]
    found = [run for run in runs if run is not None]
    return found if len(found) == len(runs) and access.shape == out.source.shape else None


def _within(read: Tensor, region: Sequence[tuple[int, int]]) -> Index | None:
    """What sums read of a region, or nothing of it; None where that is no regular part of what they read."""
    index, shape = read.index, read.source.shape
    runs = [run for stride, n in zip(index.strides, index.shape, strict=True) for run in _runs(stride, n, shape)]
    strides = [run.stride for run in runs]
    access = take_apart(shape, strided_index(index.offset, [run.extent for run in runs], strides, dict(index.symbols)))
    if access.shape != shape or access.reversed_keys:
        return None
    offset, extents = index.offset, []
    for dimension, stride, extent in runs:
        first, last = 0, extent
        if dimension is not None and region[dimension] != (0, shape[dimension]):
            if len(access.dimensions[dimension].terms) > 1:
                return None  # which part of it is read depends on the vertex
            start = access.dimensions[dimension].start
            first = min(max(region[dimension][0] - start, 0), extent)
            last = max(min(region[dimension][1] - start, extent), first)
        offset += first * stride
        extents.append(last - first)
    return strided_index(offset, extents, strides, dict(index.symbols))


def _alike(products: Products) -> tuple[object, ...]:
    """What products have in common that differ in what they sum alone."""
    axes = [axis for axis, _ in products.axes]
    indices = [products.out.index, *(factor.index for factor in products.factors)]
    along = tuple(tuple(index.coefficient(axis) for axis in axes) for index in indices)
    sources = tuple(factor.source for factor in products.factors)
    extents = tuple(axis.extent for axis in axes)
    return extents, along, sources, products.out.index.offset, products.summed_in, products.precision


def _joined(parts: Sequence[Products]) -> Products | None:
    """Products that differ in what they sum, over all of that; None where it does not go on from part to part."""
    first, boxes = parts[0], []
    if any(_alike(own) != _alike(first) for own in parts):
        return None
    for number, own in enumerate(parts):
        indices = [factor.index for factor in own.factors]
        directions = list(zip(*(index.strides for index in indices), strict=True))
        extents = dict(zip(directions, indices[0].shape, strict=True))
        if len(extents) < len(directions) or not all(map(any, directions)):
            return None
        box = {direction: n for direction, n in extents.items() if n != 1}
        boxes.append(LatticeBox(tuple(index.offset for index in indices), box, (number,)))
    one = join_boxes(boxes)
    if len(one) > 1:
        return None
    shape, factors = tuple(one[0].extents.values()), []
    for k, factor in enumerate(first.factors):
        strides = [direction[k] for direction in one[0].extents]
        index = strided_index(one[0].start[k], shape, strides, dict(factor.index.symbols))
        factors.append(Tensor(factor.source, index))
    return first._replace(factors=tuple(factors))


def compose_parts(sums: Products, parts: tuple[Products, ...]) -> Products | None:
    """Sums of what sums of products wrote, each a part of it, as sums of products; None where they do not fit."""
    if len(parts) == 1:
        return compose(sums, parts[0])
    (read,) = sums.factors
    made, count = [], 0
    for part in parts:
        region = _region(part.out)
        index = None if region is None else _within(read, region)
        if index is None:
            return None
        if index.size:
            count += index.size
            made.append(compose(sums._replace(factors=(Tensor(read.source, index),)), part))
    found = [own for own in made if own is not None]
    if not found or len(found) < len(made) or count != math.prod(read.shape):
        return None
    return _joined(found)
