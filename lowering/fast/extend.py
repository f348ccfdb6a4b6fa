"""Extend: neighbours beyond the ends of an array are slices of the array extended.

`x[(i + 1) % n]`, a view of `x.pad(1, "wrap")` and those of the modes "edge" and "reflect" are affine but for some
positions: with those elements put before and behind the array, they are affine throughout. In come the families of a
compute set, or a view; out come the same with such fields reading an extension, which is made once for all of them and
cut to the part that they read. Later rules then see slices: windows, convolutions.

An index vector for each dimension instead, a gather, does not fuse with its reader, and its transpose is a scatter, an
element at a time. Measured on two CPU cores, a step in a loop: nine neighbours of 1024 x 1024 float32 extended 0.9 ms,
with index vectors 2.1, with rolls 6.7; of int8 0.13, 1.4 and 0.74. Five of 2048 x 2048 float32: 4.8, 4.2 and 14.5, and
the gradient 56, 203 and 7.

What a codelet of many operations reads of such an array within its ends is read of an extension as well, or copied: a
turn of `lattice_boltzmann/one` copies the one direction of nine that rests, and all nine are made where they lay.

An extension that several slices read stands behind an `optimization_barrier`. Otherwise XLA takes every slice apart
into those of its pieces, and concatenates these anew each time (0.4 ms for the nine of int8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.views.access import Access
from codelet.views.digits import are_nested
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import affine_length
from codelet.views.line import Line, open_grid
from codelet.views.sources import Source, source_text
from codelet.views.tensor import Tensor
from lowering.arrays import Array, join, slice_
from lowering.fast.partition import divide_boxes, split
from lowering.jaxprs.recompute import LIGHT

MAX_POSITIONS = 1 << 22
"""Of one dimension; what is read through more of them is not looked at."""

MAX_RUNS = 8
"""Pieces that a dimension is put together of: every one is an operand of a concatenation."""

MAX_GROWTH = 2
"""How many elements an extension has at most for each that is read of it."""

_SAMPLE = 64  # places along a dimension at which its step is guessed; what comes out is checked


# --- reaches -----------------------------------------------------------------------------------------


class Reach(NamedTuple):
    """The elements along a dimension: beyond its ends those read there, between them the dimension itself.

    Attributes:
        extent: of the dimension.
        low, high: the first and the last coordinate.
        beyond: the position of the element at each coordinate that is `outside`; -1 where it does not matter.
    """

    extent: int
    low: int
    high: int
    beyond: np.ndarray = np.empty(0, np.int64)

    @property
    def outside(self) -> np.ndarray:
        """The coordinates beyond the ends, in order."""
        before, after = (self.low, min(self.high + 1, 0)), (max(self.low, self.extent), self.high + 1)
        return np.concatenate([np.arange(*before), np.arange(*after)])

    @property
    def is_within(self) -> bool:
        """Whether nothing is beyond the ends."""
        return self.low >= 0 and self.high < self.extent

    @property
    def length(self) -> int:
        """The number of coordinates."""
        return self.high - self.low + 1

    def widened(self) -> Reach:
        """One that holds all of the dimension, where something is beyond its ends."""
        if self.is_within or self.high < 0 or self.low >= self.extent:
            return self
        return self._replace(low=min(self.low, 0), high=max(self.high, self.extent - 1))


class Extended(NamedTuple):
    """The access to a dimension as an affine one: in coordinates of a reach."""

    line: Line
    reach: Reach


def _guess(counts: np.ndarray) -> int | None:
    """The number that at least half of an array holds; of two, the one nearer to zero."""
    values, times = np.unique(counts, return_counts=True)
    most = times.max()
    return int(min(values[times == most], key=abs)) if 2 * most >= counts.size else None


def _steps(positions: np.ndarray) -> tuple[int, ...] | None:
    """The step that positions mostly take along each dimension; None where along one they mostly take none."""
    found: list[int] = []
    for at, length in enumerate(positions.shape):
        step = 0
        if length > 1:
            places = np.unique(np.linspace(0, length - 2, min(length - 1, _SAMPLE)).astype(np.int64))
            near = (slice(0, None, 1 if d == at else max(1, n // 4)) for d, n in enumerate(positions.shape))
            few = positions[tuple(near)]
            step = _guess(few.take(places + 1, at).astype(np.int64) - few.take(places, at))
            if not step:
                return None
        found.append(step)
    return tuple(found)


def _reach(extent: int, coordinates: np.ndarray, positions: np.ndarray) -> Reach | None:
    """The elements if each position is that of the element at its coordinate; None where two disagree."""
    low, high = int(coordinates.min()), int(coordinates.max())
    if high - low >= 2 * extent + 2 * positions.size:
        return None
    line = np.full(high - low + 1, -1, np.int64)
    line[coordinates - low] = positions
    inside = np.arange(max(low, 0), min(high, extent - 1) + 1)
    kept = line[inside - low]
    if (line[coordinates - low] != positions).any() or ((kept >= 0) & (kept != inside)).any():
        return None
    reach = Reach(extent, low, high)
    return reach._replace(beyond=line[reach.outside - low])


def _extended(extent: int, line: Line, extents: Mapping[Key, int]) -> Extended | None:
    """The access to a dimension as an affine one; None when it is none."""
    if not line.tables:
        return Extended(line, Reach(extent, *line.ends(extents)))
    keys = [key for key in extents if key in line.keys]
    if math.prod(extents[key] for key in keys) > MAX_POSITIONS:
        return None
    steps = line.by
    for table in line.tables:
        assert table.table is not None
        own = _steps(table.table.values)
        if own is None:
            return None
        steps.update({key: step * table.table.scale for key, step in zip(table.keys, own, strict=True)})
    places = open_grid(keys, extents)
    total, affine = line.at(places)[0], Line.of(0, steps).at(places)[0]
    first = _guess((total - affine)[tuple(slice(0, None, max(1, n // _SAMPLE)) for n in total.shape)])
    reach = None if first is None else _reach(extent, affine + first, total)
    return None if first is None or reach is None else Extended(Line.of(first, steps), reach)


def _by_dimension(shape: tuple[int, ...], index: Index, may_stay: bool = False) -> tuple[Extended, ...] | None:
    """An access map as an affine one for each dimension, some of which leave it; None when it is no such thing.

    Args:
        shape: of the source.
        index: the access map.
        may_stay: whether none has to leave its dimension.
    """
    if (not index.tables and not may_stay) or 0 in index.shape or any(not axis.extent for axis in index.axes):
        return None
    if any(_steps(table.values) is None for table in index.tables):
        return None
    access = Access.of(index, shape)
    if access.shape != shape:
        return None
    found = [_extended(extent, line, access.extents) for extent, line in zip(shape, access.lines, strict=True)]
    known = tuple(own for own in found if own is not None)
    stays = all(own.reach.is_within for own in known)
    return None if len(known) < len(found) or (stays and not may_stay) else known


# --- extensions ---------------------------------------------------------------------------------------


def _joined(a: Reach, b: Reach) -> Reach | None:
    """Two reaches as one; None where they disagree."""
    joined = Reach(a.extent, min(a.low, b.low), max(a.high, b.high))
    beyond = np.full(len(joined.outside), -1, np.int64)
    for own in (a, b):
        at = np.searchsorted(joined.outside, own.outside)
        known = beyond[at]
        if ((known >= 0) & (own.beyond >= 0) & (known != own.beyond)).any():
            return None
        beyond[at] = np.maximum(known, own.beyond)
    return joined._replace(beyond=beyond)


def _runs(reach: Reach) -> list[tuple[int, int, int]]:
    """A reach as pieces of the dimension: the first position, the step and the length of each; some of too many."""
    runs: list[tuple[int, int, int]] = []

    def add(line: np.ndarray) -> None:
        while len(line) and len(runs) <= MAX_RUNS:
            length = affine_length(line)
            runs.append((int(line[0]), int(line[1] - line[0]) if length > 1 else 1, length))
            line = line[length:]

    # What stands where nothing reads does not matter: what a torus has there makes few pieces.
    outside = reach.outside
    beyond = np.where(reach.beyond < 0, outside % reach.extent, reach.beyond)
    add(beyond[outside < 0])
    first, last = max(reach.low, 0), min(reach.high, reach.extent - 1)
    if first <= last:
        runs.append((first, 1, last - first + 1))
    add(beyond[outside >= 0])
    return runs


@dataclass(frozen=True, eq=False)
class Extension:
    """An array extended beyond its ends, which views view as they do a source.

    Attributes:
        source: whose elements it holds.
        reaches: of each dimension.
        is_shared: whether several slices of it are read.
    """

    source: Source
    reaches: tuple[Reach, ...]
    is_shared: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(reach.length for reach in self.reaches)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its elements."""
        return self.source.dtype

    def __str__(self) -> str:
        return f"{source_text(self.source)}, extended to {' x '.join(map(str, self.shape))}"

    @property
    def inside(self) -> tuple[tuple[int, int], ...]:
        """Which part of the source it holds: the first position of each dimension, and that behind the last."""
        return tuple((max(0, r.low), min(r.extent, r.high + 1)) if r.is_within else (0, r.extent) for r in self.reaches)

    def make(self, array: Array) -> Array:
        """The extension of the source's array."""
        starts, stops = zip(*self.inside, strict=True)
        return self.extended(slice_(array, starts, stops))

    def extended(self, part: Array) -> Array:
        """The extension of the part of the source that it holds."""
        for at, reach in enumerate(self.reaches):
            if not reach.is_within:
                part = join(part, at, _runs(reach))
        return lax.optimization_barrier(part) if self.is_shared else part

    def view(self, tensor: Tensor, dimensions: Sequence[Extended]) -> Tensor:
        """A view of the source, by the extensions of its dimensions, as one of the extension."""
        lines = [own.line.moved(-reach.low) for own, reach in zip(dimensions, self.reaches, strict=True)]
        return Tensor(self, Access(self.shape, tuple(lines), dict(enumerate(tensor.shape))).index())  # type: ignore[arg-type]


class _ViewGroup:
    """Views of one source that one extension serves, as they are found; whole where it holds all of the source."""

    def __init__(self, source: Source, is_whole: bool):
        self.source = source
        self.is_whole = is_whole
        self.reaches: tuple[Reach, ...] = ()
        self.num_read = 0
        self.members: list[tuple[Tensor, tuple[Extended, ...]]] = []

    def accepts(self, tensor: Tensor, lines: tuple[Extended, ...]) -> bool:
        """Whether a view can join; if so it has. One of another part of the source would gain nothing by it."""
        for own, line in zip(self.reaches, lines, strict=False):
            if line.reach.high < own.low or own.high < line.reach.low:
                return False
        if self.members:
            joined = [_joined(own, line.reach) for own, line in zip(self.reaches, lines, strict=True)]
        else:
            joined = [line.reach.widened() if self.is_whole else line.reach for line in lines]
        reaches = tuple(reach for reach in joined if reach is not None)
        num_read = self.num_read + tensor.size * math.prod(axis.extent for axis in tensor.index.axes)
        if (
            len(reaches) < len(joined)
            or math.prod(reach.length for reach in reaches) > MAX_GROWTH * num_read
            or any(len(_runs(reach)) > MAX_RUNS for reach in reaches if not reach.is_within)
        ):
            return False
        self.reaches, self.num_read = reaches, num_read
        self.members.append((tensor, lines))
        return True

    def extension(self) -> Extension:
        """The extension that serves all its views."""
        first, lines = self.members[0]
        # Positions along a line that coincide are those of windows.
        apart = all(are_nested((step, first.index.extent(key)) for key, step in own.line.steps) for own in lines)
        is_shared = self.is_whole or len(self.members) > 1 or not apart
        return Extension(self.source, self.reaches, is_shared)


def extend(tensors: Sequence[Tensor], whole: Collection[Tensor] = ()) -> tuple[list[Extension], dict[Tensor, Tensor]]:
    """The extensions that serve some of several views, and these as views of them.

    Args:
        tensors: the views.
        whole: those whose extension is to have all of the source, and to be a separate array, where that is no more
            than MAX_GROWTH allows.
    """
    groups: dict[Source, list[_ViewGroup]] = {}

    def serve(tensor: Tensor, ways: Sequence[bool], may_stay: bool = False) -> bool:
        """Whether an extension serves a view: one that there is, or a new one, whole or not, the first that may be."""
        if tensor.rows is not None or not tensor.size:
            return False
        lines = _by_dimension(tensor.source.shape, tensor.index, may_stay)
        if lines is None:
            return False
        own = groups.setdefault(tensor.source, [])
        if any(group.accepts(tensor, lines) for group in own):
            return True
        fresh = (_ViewGroup(tensor.source, is_whole) for is_whole in ways)
        found = next((group for group in fresh if group.accepts(tensor, lines)), None)
        own += [] if found is None else [found]
        return found is not None

    each = list(dict.fromkeys(tensors))
    served = {tensor for tensor in each if serve(tensor, (True, False) if tensor in whole else (False,))}
    for tensor in each:
        # Where nothing reads the source itself, what is made of it may lie there.
        if tensor in whole and tensor not in served and groups.get(tensor.source):
            serve(tensor, (True,), may_stay=True)
    extensions, views = [], {}
    for group in (group for own in groups.values() for group in own):
        extension = group.extension()
        extensions.append(extension)
        views.update({tensor: extension.view(tensor, lines) for tensor, lines in group.members})
    return extensions, views


def made(extensions: Sequence[Extension], array_of: Callable[[Source], Array]) -> dict[Extension, Array]:
    """The arrays of extensions."""
    arrays: dict[Extension, Array] = {}
    for source in dict.fromkeys(extension.source for extension in extensions):
        own, array = [extension for extension in extensions if extension.source is source], array_of(source)
        # One split of what they hold: slices would each have a cotangent as large as the array, to be added up.
        division = divide_boxes(array.shape, {extension: extension.inside for extension in own})
        parts = [] if division is None else split(array, division)
        for extension in own:
            part = None if division is None else parts[division.place[extension]]
            arrays[extension] = extension.make(array) if part is None else extension.extended(part)
    return arrays


def extend_families(families: Sequence[Family]) -> tuple[list[Extension], tuple[Family, ...]]:
    """The extensions that serve the families of a compute set, and the families, reading them."""
    tensors: list[Tensor] = []
    whole: set[Tensor] = set()
    for family in families:
        own = [field.tensor for field in family.fields if field.kind == "in" and field.tensor is not None]
        tensors += own
        if len(family.codelet.jaxpr.jaxpr.eqns) > LIGHT:
            whole.update(own)
    extensions, views = extend(tensors, whole)
    if not extensions:
        return [], tuple(families)

    def moved(field: Field) -> Field:
        seen = views.get(field.tensor) if field.kind == "in" and field.tensor is not None else None
        return field if seen is None else replace(field, tensor=seen)

    return extensions, tuple(replace(family, fields=tuple(map(moved, family.fields))) for family in families)
