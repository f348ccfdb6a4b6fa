"""A placer: the tiles known so far of a plan, and the rules by which what is known tells more.

Elements follow the vertices that write them, or that alone read them; vertices go where most of their bytes live;
copies go where what they copy lives; the rest is laid on the tiles in order.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import partial

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
from lowering.machine.footprint import middle_value
from lowering.machine.placement import Placement, num_elements, tile_dtype
from lowering.machine.votes import wanted_tiles
from lowering.plan.plan import Plan
from lowering.plan.runs import Runs
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline


def tiles_in_order(family: Family, target: Target) -> np.ndarray:
    """The tiles that the graph gives the vertices of a family, or those that they have laid out in order."""
    if family.tile is None:
        return linear_tiles(family.num_vertices, target.num_tiles, grain=1, least=target.num_workers)
    return np.ascontiguousarray(family.tile.values_over(family.axes, np.int32)).reshape(-1)


class Placer:
    """The tiles known so far.

    Attributes:
        plan: what is placed, without calls.
        elements: the tile of each element, -1 for none yet.
        vertices: the tiles of the vertices of the families that have them.
        known: the variables of which any element has a tile.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.num_tiles = plan.graph.target.num_tiles
        self.num_workers = plan.graph.target.num_workers
        self.elements = np.empty(num_elements(plan), tile_dtype(self.num_tiles))
        self.known: set[Variable] = set()
        self._placed: set[Variable] = set()
        # A variable is set to -1 when it is first looked at: most are written at once, and may be large.
        self._unset = set() if plan.graph.has_tile_mapping else set(plan.variables)
        end = 0
        for variable in sorted(plan.variables, key=lambda variable: variable.first_element):
            self.elements[end : variable.first_element] = -1
            end = variable.first_element + variable.size
        self.elements[end:] = -1
        if plan.graph.has_tile_mapping:
            # The graph may have grown since; what is mapped is all that was there, or the check says so.
            self.elements[:] = plan.graph.element_tiles[: len(self.elements)]
            self.known = {v for v in plan.variables if self._of(v).max(initial=-1) >= 0}
        self.vertices: dict[Family, np.ndarray] = {}
        for family in plan.families:
            if family.tile is not None:
                self.put(family, tiles_in_order(family, plan.graph.target))

    def _of(self, variable: Variable) -> np.ndarray:
        own = self.elements[variable.first_element :][: variable.size]
        if variable in self._unset:
            own[:] = -1
            self._unset.discard(variable)
        return own

    def _set(self, source: Source) -> None:
        """See that the elements of a source have a tile, or -1."""
        for variable in source_variables(source):
            self._of(variable)

    def _is_placed(self, variable: Variable) -> bool:
        """Whether all of a variable has a tile."""
        if variable in self.known and variable not in self._placed and self._of(variable).min(initial=0) >= 0:
            self._placed.add(variable)
        return variable in self._placed

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
            lay = partial(linear_tiles, variable.size, self.num_tiles, grain=grain, least=least)
            if variable in self.known:
                own = self._of(variable)
                np.copyto(own, lay(), where=own < 0)
            else:
                self._unset.discard(variable)
                lay(out=self._of(variable))
            self.known.add(variable)
            self._placed.add(variable)

    def _follow(self, tensor: Tensor, axes: Sequence[Axis], tiles: np.ndarray) -> None:
        """Put what a view names over some axes, and has no tile yet, on the tiles along them."""
        spread = tiles.reshape((*tiles.shape, *[1] * tensor.ndim))
        known = self.knows(tensor)
        self.known.update(source_variables(tensor.source))
        if isinstance(tensor.source, Variable) and not tensor.index.tables:
            view = tensor.index.strided_view(self._of(tensor.source), (*axes, *range(tensor.ndim)))
            if known:
                np.copyto(view, spread, where=view < 0)
            else:
                view[...] = spread
        else:
            elements = tensor.elements(axes)
            self._put(tensor.source, elements, np.broadcast_to(spread, elements.shape))

    def _put(self, source: Source, elements: np.ndarray, tiles: np.ndarray) -> None:
        self._set(source)
        elements, tiles = elements.reshape(-1), np.broadcast_to(tiles, elements.shape).reshape(-1)
        free = (elements >= 0) & (self.elements[elements] < 0)
        # Of several that want an element the first has it.
        self.elements[elements[free][::-1]] = tiles[free][::-1]

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
                self.known.update(source_variables(tensor.source))
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
            self.known.update(source_variables(tensor.source))
            self._put(tensor.source, elements, np.broadcast_to(own, elements.shape))

    def follow_copy(self, step: CopyStep) -> None:
        """Put what a copy writes, and has no tile yet, where what it copies lives."""
        if step.whole_variables is not None:
            source, destination = map(self._of, step.whole_variables)
            np.copyto(destination, source, where=destination < 0)
            self.known.add(step.whole_variables[1])
        elif step.source.size:
            to, elements = step.destination.elements().reshape(-1), step.source.elements().reshape(-1)
            self._set(step.source.source)
            self._put(step.destination.source, to, np.where(elements < 0, -1, self.elements[elements]))
            self.known.update(source_variables(step.destination.source))

    def follow_copies(self) -> None:
        """Put what copies write, and has no tile yet, where what they copy lives."""
        for moment in timeline(self.plan).moments:
            if isinstance(moment.step, CopyStep) and self.knows(moment.step.source):
                self.follow_copy(moment.step)

    def put_runs(self, runs: Runs, tiles: np.ndarray) -> None:
        """Put stretches of elements, what of them has no tile yet, on the tile of each."""
        for variable in self.plan.variables:
            self._of(variable)
        elements = runs.numbers()
        free = self.elements[elements] < 0
        self.elements[elements[free]] = np.repeat(tiles, runs.lengths)[free]
        self.known.update(v for v in self.plan.variables if v not in self.known and self._of(v).max(initial=-1) >= 0)

    def fill(self, num_bytes: np.ndarray) -> None:
        """Lay what has no tile yet on the tiles with most room, in order.

        Args:
            num_bytes: what each tile holds already, int64 of shape (num_tiles,).
        """
        for variable in self.plan.variables:
            (free,) = np.nonzero(self._of(variable) < 0)
            if not len(free):
                continue
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
                for field in family.fields:
                    if field.tensor is not None:
                        self._set(field.tensor.source)
                wanted = wanted_tiles(family, self.elements)
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
        tiles = {family: self.vertices[family] for family in self.plan.families}
        return Placement(self.plan, self.num_tiles, self.elements, tiles)
