"""Accesses by brute force: what one means, place by place, and generators of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from codelet.views.access import Access
from codelet.views.grids import Grid, Key
from codelet.views.line import Line
from codelet.views.terms import Lookup, Term


def grids(extents: Mapping[Key, int]) -> dict[Key, np.ndarray]:
    """The place along each key, at all places of all of them."""
    arrays = np.meshgrid(*map(np.arange, extents.values()), indexing="ij")
    return dict(zip(extents, arrays, strict=True))


def line_at(line: Line, extents: Mapping[Key, int]) -> list[int | None]:
    """The position at all places in row-major order; None at holes."""
    shape = tuple(extents.values())
    position, is_there = (np.broadcast_to(own, shape).ravel() for own in line.at(grids(extents)))
    return [int(n) if own else None for n, own in zip(position, is_there, strict=True)]


def table_of(own: Access) -> dict[frozenset[tuple[Key, int]], tuple[int | None, ...]]:
    """What an access means: for the places along all keys the position along each dimension, None at a hole."""
    columns = [line_at(line, own.extents) for line in own.lines]
    rows = zip(*columns, strict=True) if columns else [()] * math.prod(own.extents.values())
    places = np.ndindex(*own.extents.values())
    return {frozenset(zip(own.extents, at, strict=True)): row for at, row in zip(places, rows, strict=True)}


@st.composite
def extents(draw, most=3):
    """Keys and how many places there are along each: axes, and the dimensions of a field."""
    fields = draw(st.lists(st.integers(1, 5), max_size=most - 1))
    sizes = draw(st.lists(st.integers(1, 5), min_size=0 if fields else 1, max_size=most - len(fields)))
    own = Grid([range(n) for n in sizes]).axes
    return {**{axis: axis.extent for axis in own}, **dict(enumerate(fields))}


@st.composite
def lines(draw, keys, *, divided=True, rounded=False, tabled=False):
    """A line over keys of some extents."""
    steps = {key: draw(st.integers(-4, 4)) for key in keys}
    tables = ()
    if tabled and draw(st.booleans()):
        own = tuple(draw(st.lists(st.sampled_from(list(keys)), min_size=1, max_size=2, unique=True)))
        shape = tuple(keys[key] for key in own)
        values = np.array(draw(st.lists(st.integers(0, 9), min_size=math.prod(shape), max_size=math.prod(shape))))
        tables = (Term(own, shape, 1, 9, Lookup(values.reshape(shape), 1, 0)),)
    divisor = draw(st.integers(1, 4)) if divided and not tables else 1
    return Line.of(draw(st.integers(-6, 12)), steps, divisor, rounded=rounded and draw(st.booleans()), tables=tables)


@st.composite
def accesses(draw, *, divided=True, rounded=False, tabled=False):
    """An access to an array of up to three dimensions."""
    keys = draw(extents())
    own = draw(st.lists(lines(keys, divided=divided, rounded=rounded, tabled=tabled), min_size=1, max_size=3))
    shape = tuple(draw(st.integers(1, 20)) for _ in own)
    return Access(shape, tuple(own), keys)
