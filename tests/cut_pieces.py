"""Operations as pieces, cut at any grain, and spoilt: what joins is held against them, point by point.

An operation is a whole over axes: products of matrices, convolutions of any strides and dilations, the gradients of
these by their images (whose lines are divided), stencils, and products that are read by blocks of channels.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from codelet.views.access import Access
from codelet.views.grids import Axis, Grid, Key
from codelet.views.line import Line, phases
from lowering.join.lattice_pieces import Piece
from tests.accesses import grids

Terms = Counter[tuple[int, ...]]
"""Each point by the positions of all fields, those at which an operand is a hole left out."""


def _whole(axes: Sequence[Axis], lines: Sequence[Sequence[Line]], shapes: Sequence[tuple[int, ...]]) -> Piece:
    extents: dict[Key, int] = {axis: axis.extent for axis in axes}
    accesses = tuple(Access(shape, tuple(own), extents) for shape, own in zip(shapes, lines, strict=True))
    return Piece(extents, accesses, 1)


def _plain(axis: Axis) -> Line:
    """A line that is an axis alone."""
    return Line.of(0, {axis: 1})


def matmul(m: int, k: int, n: int) -> Piece:
    """A product of matrices: rows, columns, and what is summed over."""
    row, column, inner = Grid([range(m), range(n), range(k)]).axes
    lines = [[_plain(row), _plain(column)], [_plain(row), _plain(inner)], [_plain(inner), _plain(column)]]
    return _whole((row, column, inner), lines, [(m, n), (m, k), (k, n)])


def convolution(channels: int, filters: int, size: int, taps: int, stride: int, spread: int) -> Piece:
    """A convolution of one dimension, without padding."""
    count = (size - spread * (taps - 1) - 1) // stride + 1
    f, y, c, t = Grid([range(filters), range(count), range(channels), range(taps)]).axes
    lines = [[_plain(f), _plain(y)], [_plain(c), Line.of(0, {y: stride, t: spread})], [_plain(f), _plain(c), _plain(t)]]
    return _whole((f, y, c, t), lines, [(filters, count), (channels, size), (filters, channels, taps)])


def input_gradient(channels: int, filters: int, size: int, taps: int, stride: int, low: int) -> Piece:
    """The gradient of a convolution by its image: at most positions few taps meet a slope."""
    count = (size + 2 * low - taps) // stride + 1
    c, x, f, t = Grid([range(channels), range(size), range(filters), range(taps)]).axes
    lines = [
        [_plain(c), _plain(x)],
        [_plain(f), Line.of(low, {x: 1, t: -1}, stride)],
        [_plain(f), _plain(c), _plain(t)],
    ]
    return _whole((c, x, f, t), lines, [(channels, size), (filters, count), (filters, channels, taps)])


def stencil(height: int, width: int) -> Piece:
    """A map over the inside of a grid, which reads four neighbours."""
    i, j = Grid([range(height), range(width)]).axes
    at = lambda a, b: [Line.of(a, {i: 1}), Line.of(b, {j: 1})]  # noqa: E731
    lines = [at(1, 1), at(0, 1), at(2, 1), at(1, 0), at(1, 2)]
    return _whole((i, j), lines, [(height + 2, width + 2)] * 5)


@st.composite
def operations(draw, most: int = 9) -> Piece:
    """An operation of any kind."""
    n = lambda low=1, high=most: draw(st.integers(low, high))  # noqa: E731
    kind = draw(st.sampled_from(["matmul", "convolution", "gradient", "stencil"]))
    if kind == "matmul":
        return matmul(n(), n(), n())
    if kind == "stencil":
        return stencil(n(), n())
    taps = n(1, 4)
    if kind == "convolution":
        spread = n(1, 2)
        return convolution(n(1, 3), n(1, 3), n(spread * (taps - 1) + 1, 4 + 2 * most), taps, n(1, 3), spread)
    return input_gradient(n(1, 3), n(1, 3), n(taps, 4 + most), taps, n(1, 3), draw(st.integers(0, taps - 1)))


# --- cut --------------------------------------------------------------------------------------------------


def _cut(piece: Piece, key: Key, grain: int) -> list[Piece]:
    """A piece in blocks along a key, and what is left over."""
    if piece.extents.get(key, 1) == 1:
        return [piece]
    (block,) = Grid([range(-(-piece.extents[key] // grain))]).axes
    parts = zip(*(access.cut(key, grain, block) for access in piece.accesses), strict=True)
    return [replace(piece, extents=accesses[0].extents, accesses=tuple(accesses)) for accesses in parts]


def _in_phases(piece: Piece) -> list[Piece]:
    """A piece whose lines are divided as pieces whose lines are not, each of a phase that meets any tap."""
    divided = [line for access in piece.accesses for line in access.lines if line.divisor > 1]
    if not divided:
        return [piece]
    (line,) = divided
    axis, tap = (key for key in piece.extents if key in line.keys)
    found = []
    for phase in phases(line, axis, piece.extents[axis], tap, piece.extents[tap]):
        if phase.taps:
            inner = {axis: Line.of(phase.first, {axis: phase.apart}), tap: Line.of(phase.tap, {tap: phase.tap_step})}
            extents = {**piece.extents, axis: phase.count, tap: phase.taps}
            accesses = []
            for access in piece.accesses:
                lines = tuple(phase.line if own is line else own.after(inner) for own in access.lines)
                accesses.append(Access(access.shape, lines, extents))  # type: ignore[arg-type]
            found.append(replace(piece, extents=extents, accesses=tuple(accesses)))
    return found


def without_single_places(piece: Piece) -> Piece:
    """A piece without keys of one place, as families have them."""
    extents = {key: n for key, n in piece.extents.items() if n > 1}
    accesses = [
        Access(a.shape, tuple(line.simplified(piece.extents) for line in a.lines), extents) for a in piece.accesses
    ]
    return replace(piece, extents=extents, accesses=tuple(accesses))


def cut(whole: Piece, grains: Sequence[int]) -> list[Piece]:
    """An operation in pieces: its phases, and each of these in blocks of a grain along each axis."""
    pieces = _in_phases(whole)
    for key, grain in zip(whole.extents, grains, strict=True):
        pieces = [part for piece in pieces for part in _cut(piece, key, grain)]
    return list(map(without_single_places, pieces))


@st.composite
def cuts(draw, most: int = 9) -> tuple[Piece, list[Piece]]:
    """An operation, and pieces of it in any order."""
    whole = draw(operations(most))
    pieces = cut(whole, [draw(st.integers(1, n)) for n in whole.extents.values()])
    return whole, draw(st.permutations(pieces))


@st.composite
def spoilt(draw) -> list[Piece]:
    """Pieces of an operation, of which one is left out, there twice, moved, longer, shorter or stretched."""
    _, pieces = draw(cuts())
    at = draw(st.integers(0, len(pieces) - 1))
    piece, rest = pieces[at], [*pieces[:at], *pieces[at + 1 :]]
    how = draw(st.sampled_from(["left out", "twice", "moved", "moved", "longer", "shorter", "stretched"]))
    if how == "left out" and rest:
        return rest
    if how == "twice":
        return [*pieces, piece]
    if how in ("longer", "shorter") and piece.extents:
        key = draw(st.sampled_from(list(piece.extents)))
        extents = {**piece.extents, key: piece.extents[key] + (1 if how == "longer" else -1)}
        accesses = tuple(replace(access, extents=extents) for access in piece.accesses)
        return [*rest, without_single_places(replace(piece, extents=extents, accesses=accesses))]
    number = draw(st.integers(0, len(piece.accesses) - 1))
    access = piece.accesses[number]
    d = draw(st.integers(0, len(access.lines) - 1))
    line = access.lines[d]
    if how == "stretched" and line.steps:
        line = replace(line, steps=tuple((key, step * 2) for key, step in line.steps))
    else:
        line = line.moved(draw(st.sampled_from([-1, 1, 2])))
    lines = (*access.lines[:d], line, *access.lines[d + 1 :])
    accesses = list(piece.accesses)
    accesses[number] = replace(access, lines=lines)
    return [*rest, replace(piece, accesses=tuple(accesses))]


# --- point by point ---------------------------------------------------------------------------------------


def terms(pieces: Sequence[Piece]) -> Terms:
    """All points of pieces, each as often as it is there."""
    found: Terms = Counter()
    for piece in pieces:
        places = grids(piece.extents)
        shape, columns = tuple(piece.extents.values()), []
        is_there = np.ones(shape, bool)
        for number, access in enumerate(piece.accesses):
            for line, extent in zip(access.lines, access.shape, strict=True):
                position, exact = (np.broadcast_to(own, shape) for own in line.at(places))
                columns.append(position.ravel())
                is_there &= exact
                if number >= piece.results:
                    is_there &= (position >= 0) & (position < extent)
        for row, there in zip(zip(*columns, strict=True), is_there.ravel(), strict=True):
            if there:
                found[tuple(map(int, row))] += 1
    return found


def in_every_order(piece: Piece) -> itertools.chain[tuple[int, ...]]:
    """Results first, then the operands forwards and backwards."""
    count = len(piece.accesses)
    return itertools.chain([tuple(range(count))], [(0, *range(count - 1, 0, -1))])
