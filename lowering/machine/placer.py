"""A placer: the tiles known so far of a plan, and the rules by which what is known tells more.

Elements follow the vertices that write them, or that alone read them; vertices go where most of their bytes live;
copies go where what they copy lives; the rest is laid on the tiles in order.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.linear import GRAIN_BYTES, MIN_BYTES, linear_tiles
from codelet.graphs.vertex_cycles import family_cycles
from codelet.graphs.vertices import free_axes, vertex_numbers
from codelet.target import Target
from codelet.views.grids import Axis
from codelet.views.sources import Source, Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.machine.balance import balanced, least_bound, level_of, load_of
from lowering.machine.element_tiles import (
    ElementTiles,
    VariableTiles,
    elements_by_variable,
    in_order,
    on_tiles_in_order,
    tile_dtype,
)
from lowering.machine.footprint import middle_value
from lowering.machine.placement import Placement, num_elements
from lowering.machine.votes import wanted_tiles
from lowering.plan.plan import Plan
from lowering.plan.runs import Runs
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline

_MOST_OPEN = 1 << 28
"""Bytes of tiles of single elements, after which variables that have all of theirs are looked for."""


def tiles_in_order(family: Family, target: Target) -> np.ndarray:
    """The tiles that the graph gives the vertices of a family, or those that they have laid out in order."""
    if family.tile is None:
        return linear_tiles(family.num_vertices, target.num_tiles, grain=1, least=target.num_workers)
    return np.ascontiguousarray(family.tile.values_over(family.axes, np.int32)).reshape(-1)


GivenTiles = Mapping[Variable, VariableTiles]
"""The tiles of the variables of which any element was given one by hand."""


def given_tiles(plan: Plan) -> GivenTiles:
    """The tiles that the graph of a plan gives elements."""
    if not plan.graph.has_tile_mapping:
        return {}
    tiles, found = plan.graph.element_tiles, {}
    for variable in plan.variables:
        own = tiles[variable.first_element : variable.first_element + variable.size]
        if own.max(initial=-1) >= 0:
            found[variable] = VariableTiles.of(own.astype(tile_dtype(plan.graph.target.num_tiles)))
    return found


class Placer:
    """The tiles known so far.

    Args:
        plan: what is placed, without calls.
        given: the tiles that its graph gives elements, if they are known already.

    Attributes:
        plan: what is placed, without calls.
        vertices: the tiles of the vertices of the families that have them.
        known: the variables of which any element has a tile.
    """

    def __init__(self, plan: Plan, given: GivenTiles | None = None):
        self.plan = plan
        self.num_tiles = plan.graph.target.num_tiles
        self.num_workers = plan.graph.target.num_workers
        self._dtype = tile_dtype(self.num_tiles)
        self._num_elements = num_elements(plan)
        given = given_tiles(plan) if given is None else given
        self.known: set[Variable] = set(given)
        # Variables that have all their tiles, and those that have some: a tile for each element, -1 for none yet.
        self._placed = {variable: own for variable, own in given.items() if own.tiles.min() >= 0}
        self._open = {variable: own.values().copy() for variable, own in given.items() if variable not in self._placed}
        self._opened = 0
        self.vertices: dict[Family, np.ndarray] = {}
        for family in plan.families:
            if family.tile is not None:
                self.put(family, tiles_in_order(family, plan.graph.target))

    def _of(self, variable: Variable) -> np.ndarray:
        """A tile for each element of a variable that has not all yet, to write to."""
        assert variable not in self._placed
        if variable not in self._open:
            self._open[variable] = np.full(variable.size, -1, self._dtype)
            self._opened += self._open[variable].nbytes
        return self._open[variable]

    def _held(self, variable: Variable) -> VariableTiles:
        """The tiles that the elements of a variable have so far."""
        if variable in self._placed:
            return self._placed[variable]
        if variable in self._open:
            return VariableTiles(variable.size, self._open[variable])
        return VariableTiles.nowhere(variable.size, self._dtype)

    def _is_placed(self, variable: Variable) -> bool:
        """Whether all of a variable has a tile; then its tiles are held as they are from now on."""
        if variable in self._open and self._open[variable].min(initial=0) >= 0:
            self._placed[variable] = VariableTiles.of(self._open.pop(variable))
        return variable in self._placed

    def _close(self) -> None:
        """See that what has all its tiles is held in stretches, before what is open takes much memory."""
        if self._opened > _MOST_OPEN:
            for variable in list(self._open):
                self._is_placed(variable)
            self._opened = 0

    def _tiles_of(self, sources: Iterable[Source]) -> ElementTiles:
        """The tiles that the elements of some sources have so far."""
        held = {variable: self._held(variable) for source in sources for variable in source_variables(source)}
        return ElementTiles(self._num_elements, held, self._dtype)

    def knows(self, tensor: Tensor) -> bool:
        """Whether what a view views has tiles, some of it at least."""
        return all(variable in self.known for variable in source_variables(tensor.source))

    # --- elements -------------------------------------------------------------------------------------

    def map_linearly(self, variables: Iterable[Variable], *, spread: bool = False) -> None:
        """Map what has no tile yet of some variables linearly.

        Args:
            variables: which.
            spread: on as many tiles as there are, however few elements each then has.
        """
        for variable in variables:
            if self._is_placed(variable):
                continue
            itemsize = variable.dtype.itemsize
            grain, least = (1, 1) if spread else (max(1, GRAIN_BYTES // itemsize), MIN_BYTES // itemsize)
            laid = on_tiles_in_order(variable.size, self.num_tiles, grain=grain, least=least)
            if variable in self._open:
                own = self._open.pop(variable)
                np.copyto(own, laid.values(), where=own < 0)
                laid = VariableTiles.of(own)
            self.known.add(variable)
            self._placed[variable] = laid

    def _follow(self, tensor: Tensor, axes: Sequence[Axis], tiles: np.ndarray) -> None:
        """Put what a view names over some axes, and has no tile yet, on the tiles along them."""
        spread = tiles.reshape((*tiles.shape, *[1] * tensor.ndim))
        if not isinstance(tensor.source, Variable) or tensor.index.tables:
            elements = tensor.elements(axes)
            self._put(tensor.source, elements, np.broadcast_to(spread, elements.shape))
        elif not self._is_placed(tensor.source):
            view = tensor.index.strided_view(self._of(tensor.source), (*axes, *range(tensor.ndim)))
            if tensor.source in self.known:
                np.copyto(view, spread, where=view < 0)
            else:
                view[...] = spread
            self.known.add(tensor.source)
            if view.size >= tensor.source.size:
                self._is_placed(tensor.source)

    def _put(self, source: Source, elements: np.ndarray, tiles: np.ndarray) -> None:
        elements, tiles = elements.reshape(-1), np.broadcast_to(tiles, elements.shape).reshape(-1)
        variables = source_variables(source)
        for variable, chosen, positions in elements_by_variable(in_order(variables), elements):
            if not self._is_placed(variable):
                own = self._of(variable)
                free = own[positions] < 0
                # Of several that want an element the first has it.
                own[positions[free][::-1]] = tiles[chosen][free][::-1]
        self.known.update(variables)

    def follow_writer(self, family: Family) -> None:
        """Put what the vertices of a family write, and has no tile yet, on their tiles."""
        tiles = self.vertices[family]
        for field in family.fields:
            tensor = field.tensor
            if not field.is_written or tensor is None or not tensor.size:
                continue
            if tensor.rows is None:
                self._follow(tensor, family.axes, tiles.reshape(family.extents))
            else:
                elements = tensor.elements(free_axes(family, tensor))
                own = np.broadcast_to(vertex_numbers(family, tensor), elements.shape)
                self._put(tensor.source, elements, tiles[own])

    def follow_reader(self, family: Family) -> None:
        """Put what the vertices of a family read on one tile alone, and has no tile yet, there.

        Of windows that overlap the middle comes first, and of several fields that which is in the middle of them.
        """
        tiles = self.vertices[family].reshape(family.extents)
        by_source: dict[Source, list[Tensor]] = {}
        for field in family.fields:
            tensor = field.tensor
            if not field.is_read or tensor is None or not tensor.size or tensor.rows is not None:
                continue
            if not all(map(self._is_placed, source_variables(tensor.source))):
                by_source.setdefault(tensor.source, []).append(tensor)
        for tensors in by_source.values():
            starts = [middle_value(family, tensor.index) for tensor in tensors]
            center = statistics.median_low(starts)
            ordered = [tensors[k] for k in sorted(range(len(starts)), key=lambda k: abs(starts[k] - center))]
            middles = [
                Tensor(own.source, own.index[tuple(slice((n - 1) // 2, (n - 1) // 2 + 1) for n in own.shape)])
                for own in ordered
                if own.index.size > 1 and not own.index.is_one_to_one
            ]
            for tensor in (*middles, *ordered):
                axes = [axis for axis in family.axes if axis in tensor.axes]
                first = tiles[tuple(slice(None) if axis in axes else slice(0, 1) for axis in family.axes)]
                if (tiles == first).all():
                    self._follow(tensor, axes, first.reshape([axis.extent for axis in axes]))

    def follow_first_reader(self, family: Family) -> None:
        """Put what the vertices of a family read, and has no tile yet, with the first vertex that reads it."""
        tiles = self.vertices[family].reshape(family.extents)
        for field in family.fields:
            tensor = field.tensor
            if not field.is_read or tensor is None or not tensor.size:
                continue
            if all(map(self._is_placed, source_variables(tensor.source))):
                continue
            if tensor.rows is None:
                axes = [axis for axis in family.axes if axis in tensor.axes]
                first = tiles[tuple(slice(None) if axis in axes else slice(0, 1) for axis in family.axes)]
                elements, own = tensor.elements(axes), first.reshape([axis.extent for axis in axes])
                own = own.reshape((*own.shape, *[1] * tensor.ndim))
            else:
                elements = tensor.elements(free_axes(family, tensor))
                own = self.vertices[family][np.broadcast_to(vertex_numbers(family, tensor), elements.shape)]
            self._put(tensor.source, elements, np.broadcast_to(own, elements.shape))

    def follow_copy(self, step: CopyStep) -> None:
        """Put what a copy writes, and has no tile yet, where what it copies lives."""
        if step.whole_variables is not None:
            source, destination = step.whole_variables
            if not self._is_placed(destination):
                if self._is_placed(source) and destination not in self._open:
                    self._placed[destination] = self._placed[source]
                else:
                    own = self._of(destination)
                    np.copyto(own, self._held(source).values(), where=own < 0)
            self.known.add(destination)
        elif step.source.size:
            to, elements = step.destination.elements().reshape(-1), step.source.elements().reshape(-1)
            self._put(step.destination.source, to, self._tiles_of([step.source.source])[elements])

    def follow_copies(self) -> None:
        """Put what copies write, and has no tile yet, where what they copy lives."""
        for moment in timeline(self.plan).moments:
            if isinstance(moment.step, CopyStep) and self.knows(moment.step.source):
                self.follow_copy(moment.step)

    def put_runs(self, runs: Runs, tiles: np.ndarray) -> None:
        """Put stretches of elements, what of them has no tile yet, on the tile of each."""
        elements, tiles = runs.numbers(), np.repeat(tiles, runs.lengths)
        for variable, chosen, positions in elements_by_variable(in_order(self.plan.variables), elements):
            if not self._is_placed(variable):
                own = self._of(variable)
                free = own[positions] < 0
                own[positions[free]] = tiles[chosen][free]
                self.known.add(variable)

    def fill(self, num_bytes: np.ndarray) -> None:
        """Lay what has no tile yet on the tiles with most room, in order.

        Args:
            num_bytes: what each tile holds already, int64 of shape (num_tiles,).
        """
        for variable in self.plan.variables:
            if self._is_placed(variable):
                continue
            (free,) = np.nonzero(self._of(variable) < 0)
            itemsize = variable.dtype.itemsize
            room = np.maximum(level_of(num_bytes, len(free) * itemsize) - num_bytes, 0)
            to = np.searchsorted(np.cumsum(room), np.arange(len(free)) * itemsize, side="right")
            to = np.minimum(to, self.num_tiles - 1)
            self._of(variable)[free] = to
            self.known.add(variable)
            num_bytes = num_bytes + itemsize * np.bincount(to, minlength=self.num_tiles)

    # --- vertices -------------------------------------------------------------------------------------

    def put(self, family: Family, tiles: np.ndarray) -> None:
        """Put the vertices of a family on tiles, and what they write with them."""
        self.vertices[family] = tiles
        self.follow_writer(family)
        self._close()

    def follow_bytes(self, step: ExecuteStep, families: Iterable[Family], slack: float = 0.0) -> None:
        """Put the vertices of families of a step, those that have no tile, where most of their bytes live.

        Args:
            step: what they are run by: it is its tiles that are balanced.
            families: which of its families.
            slack: by how much, of what the fullest tile must compute, one may compute more before vertices move.
        """
        every = [family for family in step.families if family.num_vertices]
        cycles = {family: family_cycles(family, self.plan.graph.target) for family in every}
        load = np.zeros(self.num_tiles, np.int64)
        for family in every:
            if family in self.vertices:
                each = cycles[family].of_each(family.num_vertices, load_of(self.num_workers))
                load += np.bincount(self.vertices[family], each, self.num_tiles).astype(np.int64)
        counts = [family.num_vertices for family in every]
        bound = int((1 + slack) * least_bound(list(cycles.values()), counts, load, self.num_workers))
        for family in every:
            if family in families and family not in self.vertices:
                sources = [field.tensor.source for field in family.fields if field.tensor is not None]
                wanted = wanted_tiles(family, self._tiles_of(sources))
                spread = tiles_in_order(family, self.plan.graph.target)
                wanted = np.where(wanted < 0, spread, wanted)
                tiles = balanced(wanted, cycles[family], load, bound, self.num_workers).astype(np.int32)
                self.put(family, tiles)

    # --- all ------------------------------------------------------------------------------------------

    def placement(self) -> Placement:
        """Where everything lives: what has no tile yet is laid on the tiles in order."""
        for family in self.plan.families:
            if family not in self.vertices:
                self.vertices[family] = tiles_in_order(family, self.plan.graph.target)
        self.map_linearly(self.plan.variables)
        elements = ElementTiles(self._num_elements, self._placed, self._dtype)
        tiles = {family: self.vertices[family] for family in self.plan.families}
        return Placement(self.plan, self.num_tiles, elements, tiles)
