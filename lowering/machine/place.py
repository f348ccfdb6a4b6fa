"""Placement: the tile of every element and of every vertex.

In comes a checked plan, out what the graph leaves open. What the user has mapped stays where it is. For
the rest there are two ways.

`linear`: every variable is cut into ranges of equal length, laid on the tiles in order, and so are the
vertices of every family. Source: `poputil::mapTensorLinearly` of Poplar's API reference, and
`calcLinearTileMapping` of the open PopLibs.

`balanced`: a vertex is put where most of the bytes of its fields live, as PopLibs does for its reductions
and elementwise operations, as far as that makes no tile compute for longer than it must; what is over goes to the
tiles with the least to do. Cycles are those the graph's target estimates. Elements follow the vertex that writes
them first; those that are read before anything has written them are mapped linearly. Where the linear way takes
fewer cycles, of compute, exchange and sync together, that is what is chosen.

In both, what vertices that were given tiles write lives with its writer, unless it was mapped.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from codelet.errors import ProgramError, TileError
from codelet.graphs.family import Family, Field
from codelet.graphs.vertices import free_axes, over_axes, vertex_numbers
from codelet.views.sources import Variable, source_elements
from codelet.views.tensor import Tensor
from lowering.check.sizes import check_host_size
from lowering.machine.balance import balanced, least_bound, load_of
from lowering.machine.exchange import Exchange, plan_exchange
from lowering.machine.placement import Placement, num_elements
from lowering.machine.step_cycles import least_cycles, total_cycles
from lowering.machine.vertex_cycles import family_cycles
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline, without_calls

Method = Literal["balanced", "linear"]
"""How to place what the graph leaves open."""

Place = Method | Callable[[Plan], Placement]
"""How a plan is placed: by a method, or a function, which is given the plan without calls."""

GRAIN_BYTES = 8
"""Linear ranges are multiples of this: what one vector instruction takes (PopLibs: the vector width)."""

MIN_BYTES = 128
"""A tile that holds any of a variable holds this much, where there is as much (PopLibs: minBytesPerTile)."""

SAMPLES = 4
"""At how many places, evenly spaced, a field is asked where it lives: exact for fields no larger."""

_VERTICES = 1 << 16
"""Of so many vertices the votes are counted at once."""


# --- linear mapping -----------------------------------------------------------------------------------


def linear_tiles(size: int, num_tiles: int, *, grain: int, least: int) -> np.ndarray:
    """The tiles of things in a row, in ranges of nearly equal length: int32 of shape (size,).

    Args:
        size: how many there are.
        num_tiles: tiles to use, from 0.
        grain: a range is a multiple of this, but for the last.
        least: a tile that has any has so many, where there are as many.

    Source: `calcLinearTileMapping` and `splitRegions` of the open PopLibs.

    >>> linear_tiles(10, 4, grain=2, least=0).tolist()
    [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    """
    grains = -(-size // grain)
    most = -(-grains // num_tiles)
    if least and grains:
        ranges = max(1, grains // -(-least // grain))
        most = max(most, -(-grains // ranges))
    used = -(-grains // most) if grains else 0
    ends = [min(size, (k + 1) * grains // used * grain) for k in range(used)]
    return np.repeat(np.arange(used, dtype=np.int32), np.diff([0, *ends]))


# --- where most of a vertex's bytes live --------------------------------------------------------------


_Vote = tuple[np.ndarray, float]
"""For each vertex a tile, over the family's axes or with extents of 1, or -1; and how many bytes speak for it."""


def _element_tiles_at(positions: np.ndarray, tensor: Tensor, element_tiles: np.ndarray) -> np.ndarray:
    """The tiles of elements at flat positions of a tensor's source; -1 for padding and what has none yet."""
    if isinstance(tensor.source, Variable):
        first = tensor.source.first_element
        return element_tiles[first : first + tensor.source.size][positions]
    numbers = source_elements(tensor.source)[positions]
    return np.where(numbers < 0, -1, element_tiles[numbers])


def _votes_of_rows(family: Family, field: Field, tensor: Tensor, element_tiles: np.ndarray) -> list[_Vote]:
    """What a ragged field says: a few places of each row."""
    rows, free = tensor.rows, free_axes(family, tensor)
    assert rows is not None
    if 0 in tensor.shape or not rows.total:
        return []
    corner = tuple(slice(None) if d == tensor.ragged_dimension else 0 for d in range(tensor.ndim))
    along = tensor.index[corner].values(free)
    each = rows.lengths.mean() * math.prod(n for d, n in enumerate(tensor.shape) if d != tensor.ragged_dimension)
    votes = []
    for part in np.linspace(0, 1, SAMPLES):
        place = rows.offsets[:-1] + np.maximum(0, ((rows.lengths - 1) * part).astype(np.int64))
        tiles = _element_tiles_at(along[..., np.minimum(place, rows.total - 1)], tensor, element_tiles)
        tiles = np.where(rows.lengths > 0, tiles, -1)
        tiles = over_axes(tiles, (*free, *rows.axes), family.axes)
        votes.append((tiles, each * field.type.dtype.itemsize / SAMPLES))
    return votes


def _votes(family: Family, field: Field, element_tiles: np.ndarray) -> list[_Vote]:
    """What a field says about where the vertices of a family should be."""
    tensor = field.tensor
    assert tensor is not None
    if tensor.rows is not None:
        return _votes_of_rows(family, field, tensor, element_tiles)
    index, axes = tensor.index, tensor.index.axes
    if not index.size:
        return []
    places = np.unique(np.linspace(0, index.size - 1, min(index.size, SAMPLES)).round().astype(np.int64))
    at = index[np.unravel_index(places, index.shape)] if index.shape else index.broadcast_to((1,))
    positions = np.moveaxis(at.values(axes), -1, 0)
    tiles = _element_tiles_at(positions, tensor, element_tiles)
    each = index.size * field.type.dtype.itemsize / len(places)
    return [(over_axes(own, axes, family.axes), each) for own in tiles]


def _sharing(family: Family, field: Field) -> int:
    """How many vertices name the same elements: of as many bytes those that fewest share speak first."""
    assert field.tensor is not None
    return math.prod(axis.extent for axis in family.axes if axis not in field.tensor.axes)


def _majority(tiles: Sequence[np.ndarray], weights: np.ndarray, extents: tuple[int, ...]) -> np.ndarray:
    """The tile with the most bytes for each vertex, the first named of those with as many; -1 where none is named.

    Args:
        tiles: that each vote names, over the axes or with extents of 1.
        weights: bytes of each vote, float32.
        extents: of the axes.
    """
    count = math.prod(extents)
    if count > _VERTICES:
        if extents[0] == 1:
            return _majority([own[0] for own in tiles], weights, extents[1:])
        half = extents[0] // 2
        parts = (slice(0, half), half), (slice(half, None), extents[0] - half)
        halves = [([own[part] if len(own) > 1 else own for own in tiles], (n, *extents[1:])) for part, n in parts]
        return np.concatenate([_majority(own, weights, shape) for own, shape in halves])
    best, most, first = np.full(count, -1, np.int32), np.zeros(count, np.float32), np.zeros(count, np.int32)
    if not tiles:
        return best
    # Votes for one tile stand together, in the order in which they are named.
    kind = np.int32 if len(tiles) * max(int(own.max(initial=0)) + 1 for own in tiles) < 2**31 else np.int64
    keys = np.empty((count, len(tiles)), kind)
    for k, named in enumerate(tiles):
        keys.reshape(*extents, len(tiles))[..., k] = named * kind(len(tiles)) + kind(k)
    keys.sort(axis=1)
    tile, since, own = np.full(count, -1, kind), first, most
    for column in keys.T:
        before, (tile, vote) = tile, np.divmod(column, kind(len(tiles)))
        again = tile == before
        own, since = np.where(again, own, 0) + weights[vote], np.where(again, since, vote)
        better = ((own > most) | ((own == most) & (since < first))) & (tile >= 0)
        best, most, first = (np.where(better, *both) for both in ((tile, best), (own, most), (since, first)))
    return best.astype(np.int32)


# --- placing ------------------------------------------------------------------------------------------


class _Placer:
    """The tiles known so far."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.num_tiles = plan.graph.target.num_tiles
        self.num_workers = plan.graph.target.num_workers
        self.elements = np.full(num_elements(plan), -1, np.int32)
        if plan.graph.has_tile_mapping:
            # The graph may have grown since; what is mapped is all that was there, or the check says so.
            self.elements[:] = plan.graph.tile_mapping()[: len(self.elements)]
        self.vertices: dict[Family, np.ndarray] = {}
        for family in plan.families:
            if family.tile is not None:
                given = family.tile.values_over(family.axes, np.int32)
                self.vertices[family] = np.ascontiguousarray(given).reshape(-1)

    def map_linearly(self, variables: Sequence[Variable]) -> None:
        """Map what has no tile yet of some variables linearly."""
        for variable in variables:
            own, itemsize = self.elements[variable.first_element :][: variable.size], variable.dtype.itemsize
            if own.size and own.min() < 0:
                grain, least = max(1, GRAIN_BYTES // itemsize), MIN_BYTES // itemsize
                np.copyto(own, linear_tiles(own.size, self.num_tiles, grain=grain, least=least), where=own < 0)

    def follow_writer(self, family: Family) -> None:
        """Put what the vertices of a family write, and has no tile yet, on their tiles."""
        tiles = self.vertices[family].reshape(family.extents)
        for field in family.fields:
            tensor = field.tensor
            if not field.is_written or tensor is None or not tensor.size:
                continue
            spread = tiles.reshape((*family.extents, *[1] * tensor.ndim))
            if tensor.rows is not None:
                elements = tensor.elements(free_axes(family, tensor))
                own = np.broadcast_to(vertex_numbers(family, tensor), elements.shape)
                self._put(elements, tiles.reshape(-1)[own])
            elif isinstance(tensor.source, Variable) and not tensor.index.tables:
                keys = (*family.axes, *range(tensor.ndim))
                first = tensor.source.first_element
                view = tensor.index.strided_view(self.elements[first : first + tensor.source.size], keys)
                np.copyto(view, spread, where=view < 0)
            else:
                elements = tensor.elements(family.axes)
                self._put(elements, np.broadcast_to(spread, elements.shape))

    def _put(self, elements: np.ndarray, tiles: np.ndarray) -> None:
        known = self.elements[elements]
        self.elements[elements] = np.where(known < 0, tiles, known)

    def follow_source(self, step: CopyStep) -> None:
        """Put what a copy writes, and has no tile yet, where what it copies lives."""
        to, elements = step.destination.elements().reshape(-1), step.source.elements().reshape(-1)
        self._put(to, np.where(elements < 0, -1, self.elements[elements]))

    def place_vertices(self, step: ExecuteStep) -> None:
        """Place the vertices of a step that have no tile."""
        families = [family for family in step.families if family.num_vertices]
        cycles = {family: family_cycles(family, self.plan.graph.target) for family in families}
        load = np.zeros(self.num_tiles, np.int64)
        for family in families:
            if family in self.vertices:
                each = cycles[family].of_each(family.num_vertices, load_of(self.num_workers))
                load += np.bincount(self.vertices[family], each, self.num_tiles).astype(np.int64)
        counts = [family.num_vertices for family in families]
        bound = least_bound(list(cycles.values()), counts, load, self.num_workers)
        for family in families:
            if family not in self.vertices:
                connected = sorted((f for f in family.fields if f.tensor is not None), key=partial(_sharing, family))
                votes = [vote for field in connected for vote in _votes(family, field, self.elements)]
                weights = np.array([num_bytes for _, num_bytes in votes], np.float32)
                wanted = _majority([tiles for tiles, _ in votes], weights, family.extents)
                spread = linear_tiles(family.num_vertices, self.num_tiles, grain=1, least=self.num_workers)
                wanted = np.where(wanted < 0, spread, wanted)
                self.vertices[family] = balanced(wanted, cycles[family], load, bound, self.num_workers).astype(np.int32)

    def place_by_bytes(self) -> None:
        """Go through the program and place what each step needs."""
        for moment in timeline(self.plan).moments:
            self.map_linearly(moment.reads)
            if isinstance(moment.step, ExecuteStep):
                if any(family not in self.vertices for family in moment.step.families):
                    self.place_vertices(moment.step)
                for family in moment.step.families:
                    self.follow_writer(family)
            elif isinstance(moment.step, CopyStep) and moment.step.source.size:
                self.follow_source(moment.step)

    def place_linearly(self) -> None:
        """Lay the vertices that have no tile on the tiles in order."""
        for family in self.plan.families:
            if family not in self.vertices:
                count = family.num_vertices
                self.vertices[family] = linear_tiles(count, self.num_tiles, grain=1, least=self.num_workers)


def place_by(plan: Plan, method: Method) -> Placement:
    """Where everything lives by one of the two ways alone; see the module's docstring.

    Args:
        plan: without calls.
        method: the way.

    Raises:
        SizeError: it would take more memory than this computer has.
    """
    check_host_size(plan)
    placer = _Placer(plan)
    for family in plan.families:
        if family.tile is not None:
            placer.follow_writer(family)
    if method == "balanced":
        placer.place_by_bytes()
    placer.place_linearly()  # the linear method, and families that no moment runs
    placer.map_linearly(plan.variables)
    tiles = {family: placer.vertices[family] for family in plan.families}
    return Placement(plan, placer.num_tiles, placer.elements, tiles)


def _are_same(a: Placement, b: Placement) -> bool:
    """Whether two placements of one plan put everything on the same tiles."""
    return np.array_equal(a.element_tiles, b.element_tiles) and all(
        np.array_equal(tiles, b.vertex_tiles[family]) for family, tiles in a.vertex_tiles.items()
    )


def place_and_exchange(plan: Plan, method: Method = "balanced") -> Exchange:
    """Where everything lives, as `place` says it, and what moves between tiles then.

    Args:
        plan: the unfused plan. What is placed is the plan without calls.
        method: how to place what the graph leaves open.

    Raises:
        ProgramError: an unknown method.
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.
    """
    if method not in ("balanced", "linear"):
        raise ProgramError("there is no such placement", given=repr(method), expected="'balanced' or 'linear'")
    plan = without_calls(plan)
    found = plan_exchange(place_by(plan, method))
    if method == "linear":
        return found
    other = place_by(plan, "linear")
    cycles = total_cycles(found)
    if cycles <= least_cycles(other) or _are_same(found.placement, other):
        return found
    compared = plan_exchange(other)
    return compared if total_cycles(compared) < cycles else found


def place(plan: Plan, method: Method = "balanced") -> Placement:
    """Where every element and every vertex of a checked plan lives. The same plan is always placed the same way.

    Args:
        plan: the unfused plan. What is placed is the plan without calls.
        method: how to place what the graph leaves open; see the module's docstring.

    Raises:
        ProgramError: an unknown method.
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.

    >>> import codelet as cl
    >>> from lowering.pipeline import plan_engine
    >>> @cl.codelet
    ... def double(x):
    ...     return 2 * x
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x = graph.add_variable("x", (128,))
    >>> i = cl.grid(128)
    >>> y = graph.add_vertex("double", double, x=x[i])
    >>> print(place(plan_engine(graph, graph.default_program)))
    placement on 4 tiles
      x: float32[128]: 128 elements on 4 tiles from 0 to 3, at most 32 on one
      double/out: float32[128]: 128 elements on 4 tiles from 0 to 3, at most 32 on one
      double / double: 128 vertices on 4 tiles from 0 to 3, at most 32 on one
    """
    return place_by(without_calls(plan), method) if method == "linear" else place_and_exchange(plan, method).placement


def placed_by(how: Callable[[Plan], Placement], plan: Plan) -> Placement:
    """What a user's function says where a plan lives.

    Args:
        how: the function.
        plan: without calls.

    Raises:
        ProgramError: it returns something else than a placement of the plan: every element and vertex on a tile that
            there is.
    """
    expected = "a lowering.machine.placement.Placement of the plan that it is given"
    try:
        inspect.signature(how).bind(plan)
    except ValueError:  # one that does not tell its parameters
        pass
    except TypeError as error:
        raise ProgramError(
            f"a function that places a plan does not take the plan alone: {error}",
            given=f"{how!r:.80}",
            expected="a function of a plan, which returns " + expected,
            fix="def placement(plan): ...; options for it by functools.partial",
        ) from None
    placement = how(plan)
    if not isinstance(placement, Placement):
        raise ProgramError(
            "a function that places a plan returns no placement", given=type(placement).__name__, expected=expected
        )
    missing = [family for family in plan.families if family not in placement.vertex_tiles]
    lengths = [(len(placement.vertex_tiles[f]), f.num_vertices) for f in plan.families if f not in missing]
    if missing or any(own != count for own, count in lengths) or len(placement.element_tiles) < num_elements(plan):
        raise ProgramError(
            "a function that places a plan leaves something without a tile",
            given=f"{placement!r}, {len(placement.element_tiles):,} elements, {len(placement.vertex_tiles):,} families",
            expected=expected,
        )
    tiles = [placement.element_tiles, *placement.vertex_tiles.values()]
    most = max((int(own.max(initial=-1)) for own in tiles), default=-1)
    own = [placement.tiles_of(variable) for variable in plan.variables]
    if most >= plan.graph.target.num_tiles or any(part.min(initial=0) < 0 for part in own):
        raise TileError(
            "a function that places a plan names a tile that does not exist",
            given=most if most >= plan.graph.target.num_tiles else -1,
            expected=f"0 to {plan.graph.target.num_tiles - 1}, on {plan.graph.target}",
        )
    return placement
