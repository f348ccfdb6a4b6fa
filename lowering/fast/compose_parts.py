"""Compose parts: sums of what several families of products wrote, each a box of it, as one family of products.

Where no block divides what is summed over, what is left over has fewer terms, and is a family of its own. What is added
up is cut at the ends of these boxes, each cut is composed with its family (`compose.py`), and the sums of products that
come out are joined wherever one goes on where another ends: along a direction, by so much in each of the factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Grid, Key
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.fast.compose import Products, compose
from lowering.fast.lines import strided_index
from lowering.fast.partition import boxes_of

Direction = tuple[int, ...]
"""By how much each factor steps along a dimension."""


# --- cut -------------------------------------------------------------------------------------------------


def _by_dimensions(sums: Products) -> Products | None:
    """Sums whose every key runs along one dimension of what they read; None where they cannot be put so."""
    source = sums.factors[0].source
    axes = Grid([range(n) for n in source.shape]).axes
    place = strided_index(0, (), (), dict(zip(axes, row_major_strides(source.shape), strict=True)))
    whole = Products(sums.family, (), (Tensor(source, place),), Tensor(source, place), sums.summed_in)
    return compose(sums, whole, merge=False)


def _within(sums: Products, part: Products) -> Products | None:
    """What sums read of what one family wrote, perhaps nothing; None where that is not some of each dimension."""
    source, index = sums.factors[0].source, sums.factors[0].index
    access = Access.of(index, source.shape)
    boxes = boxes_of(source.shape, {part: Access.of(part.out.index, source.shape)})
    if boxes is None or access.shape != source.shape or access.reversed_keys:
        return None
    items = [slice(None)] * index.ndim
    for (start, terms), (low, high) in zip(access.dimensions, boxes[part], strict=True):
        last = start + sum(term.reach for term in terms)
        if low <= start and last < high:
            continue
        if last < low or start >= high:
            items = [slice(0, 0)] * index.ndim
            break
        ((key,), (extent,), step, _, _), *others = terms
        if others or not isinstance(key, int):
            return None
        items[key] = slice(max(0, -(-(low - start) // step)), min(extent, (high - 1 - start) // step + 1))
    return sums._replace(factors=(Tensor(source, index[tuple(items)]),))


# --- joined ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SumBox:
    """Sums of products by where they begin in each factor, and how far they go along directions, more than once."""

    start: Direction
    extents: dict[Direction, int]

    def towards(self, other: _SumBox) -> Direction:
        """From where it begins to where another does."""
        return tuple(b - a for a, b in zip(self.start, other.start, strict=True))

    def joined(self, other: _SumBox, directions: Iterable[Direction]) -> tuple[_SumBox, Direction] | None:
        """It and one that goes on where it ends along a direction, as one; None where the other does not."""
        apart = self.towards(other)
        for direction in directions:
            count, more = self.extents.get(direction, 1), other.extents.get(direction, 1)
            rest = [{d: n for d, n in own.extents.items() if d != direction} for own in (self, other)]
            if rest[0] == rest[1] and apart == tuple(step * count for step in direction):
                return _SumBox(self.start, {**self.extents, direction: count + more}), direction
        return None


def _as_box(products: Products) -> _SumBox | None:
    """Sums of products as a box; None where they step alike along two dimensions."""
    indices = [factor.index for factor in products.factors]
    steps = list(zip(*(index.strides for index in indices), strict=True))
    sizes = [(step, n) for step, n in zip(steps, indices[0].shape, strict=True) if n > 1]
    extents = dict(sizes)
    return _SumBox(tuple(index.offset for index in indices), extents) if len(extents) == len(sizes) else None


def _over(products: Products, like: Products) -> Products | None:
    """Sums of products over the axes of others; None where they write something else, or step otherwise."""
    if [axis.extent for axis, _ in products.axes] != [axis.extent for axis, _ in like.axes]:
        return None
    names: dict[Key, Key] = {own: axis for (own, _), (axis, _) in zip(products.axes, like.axes, strict=True)}
    moved = lambda tensor: Tensor(tensor.source, tensor.index.rekeyed(names, tensor.index.shape))  # noqa: E731
    factors, out = tuple(map(moved, products.factors)), moved(products.out)
    same = [(tensor.source, tensor.index.symbols) for tensor in (*factors, out)]
    expected = [(tensor.source, tensor.index.symbols) for tensor in (*like.factors, like.out)]
    alike = (products.summed_in, products.precision) == (like.summed_in, like.precision)
    if same != expected or not alike or out.index.offset != like.out.index.offset:
        return None
    return products._replace(axes=like.axes, factors=factors, out=out)


def _joined(made: Sequence[Products]) -> Products | None:
    """Sums of products that are to be added up as one; None where they do not go on in each other."""
    first = made[0]
    boxes = []
    for products in made:
        own = _over(products, first)
        box = None if own is None else _as_box(own)
        if box is None:
            return None
        boxes.append(box)
    along: Direction | None = None  # as far as that goes: parts of a grid are its rows first
    while len(boxes) > 1:
        pairs = ((a, b) for a in boxes for b in boxes if a is not b)
        tried = ((a, b, a.joined(b, (*a.extents, a.towards(b)) if along is None else (along,))) for a, b in pairs)
        a, b, one = next((own for own in tried if own[2] is not None), (None, None, None))
        if one is not None:
            boxes, along = [box for box in boxes if box is not a and box is not b] + [one[0]], one[1]
        elif along is not None:
            along = None
        else:
            return None
    (box,) = boxes
    shape = tuple(box.extents.values())
    indices: list[Index] = []
    for k, factor in enumerate(first.factors):
        steps = [direction[k] for direction in box.extents]
        indices.append(strided_index(box.start[k], shape, steps, dict(factor.index.symbols)))
    return first._replace(
        factors=tuple(Tensor(own.source, index) for own, index in zip(first.factors, indices, strict=True))
    )


def compose_parts(sums: Products, parts: tuple[Products, ...]) -> Products | None:
    """Sums of what several families of sums of products wrote, as one of these; None where they are none.

    Of what they wrote the sums may read a part, but nothing else. See `compose`.
    """
    if len(parts) == 1:
        return compose(sums, parts[0])
    whole = _by_dimensions(sums) if isinstance(sums.factors[0].source, Variable) else None
    if whole is None:
        return None
    made, count = [], 0
    for part in parts:
        inside = _within(whole, part)
        if inside is None:
            return None
        if inside.factors[0].size:
            one = compose(inside, part)
            if one is None:
                return None
            made.append(one)
            count += math.prod(inside.factors[0].shape)
    return _joined(made) if made and count == whole.factors[0].size else None
