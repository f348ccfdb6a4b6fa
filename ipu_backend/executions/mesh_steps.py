"""Mesh steps: the tables of tile steps, dealt to the devices of a mesh.

In come the tables of a compute set or a copy on tiles, of all rows together. Out come crossings in place of selections,
and for each batch of vertices the rows that every device computes: those of its tiles. Where devices have different
numbers of rows, those with fewer compute their last again; those with none compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.sources import Variable
from ipu_backend.executions.tile_copies import CopySet, Taking
from ipu_backend.executions.tile_layout import Layouts, NewWords, RowSelection
from ipu_backend.executions.tile_receiving import Bringing
from ipu_backend.executions.tile_steps import ComputeSet, Operand, Result, TileBatch
from lowering.arrays import Array
from lowering.mesh.crossing import Crossing
from lowering.mesh.dealt import Dealt, DealtSelection, by_device, deal, narrowed_rows
from lowering.mesh.devices import Devices
from lowering.plan.pieces import Pieces, pieces_of, side_by_side


class Rows(NamedTuple):
    """The rows of an array, dealt, and how many words each has."""

    dealt: Dealt
    width: int


class MeshBringing(NamedTuple):
    """What is brought to the rows of each device: from which variables, how, and which padding stands behind."""

    variables: tuple[Variable, ...]
    crossing: Crossing
    padding: tuple[Any, ...]


class DealtPlaces:
    """Words of the rows of each device, by their places in them."""

    def __init__(self, own: RowSelection, rows: np.ndarray):
        self.own = own
        self.positions = None if own.is_even else narrowed_rows(own.places, rows)

    def of(self, rows: Array, devices: Devices) -> Array:
        """The words of this device's rows."""
        if self.positions is None:
            return self.own.of(rows)
        return self.own.by(rows, self.positions.array(devices))


class MeshOperand(NamedTuple):
    """A field of a batch as an operand; as `Operand`, but with rows by device.

    Attributes:
        operand: of all rows.
        places: where in this device's.
        value: of a constant, of shape (devices, rows, lanes..., *field).
    """

    operand: Operand
    places: DealtPlaces | None
    value: np.ndarray | None


@dataclass(frozen=True, eq=False)
class MeshBatch:
    """A batch of vertices on the tiles of each device.

    Attributes:
        codelet: what they run.
        lengths: of the lane axes.
        dealt: its rows.
        rows: which rows of the step they are, as words of these; None for all. By the number of what is brought.
        operands: by the name of the field.
    """

    codelet: TracedCodelet
    lengths: tuple[int, ...]
    dealt: Dealt
    rows: Sequence[DealtSelection | None]
    operands: Mapping[str, MeshOperand]


class MeshPutting(NamedTuple):
    """New words of a variable: of sources, with the variable's own array before behind them where it keeps any."""

    variable: Variable
    keeps: bool
    crossing: Crossing


class MeshStoring(NamedTuple):
    """What is stored of a variable after tiles have computed; as `Storing`."""

    results: tuple[Result, ...]
    putting: MeshPutting


@dataclass(frozen=True, eq=False)
class MeshComputeSet:
    """A compute set on the tiles of each device."""

    bringings: tuple[MeshBringing, ...]
    batches: tuple[MeshBatch, ...]
    storings: tuple[MeshStoring, ...]


@dataclass(frozen=True, eq=False)
class MeshCopySet:
    """A copy on the tiles of each device."""

    source: MeshBringing | Taking
    puttings: tuple[MeshPutting, ...]


def _words_of(own: TileBatch, name: str) -> int:
    """How many words of a field each row of a batch writes."""
    return math.prod([*own.lanes.lengths, *own.batch.codelet.outputs[name].shape])


class MeshLayouts:
    """The arrays of tiles by words of the variables of a placement, their rows dealt to devices in order.

    Args:
        layouts: of all rows.
        count: how many devices there are.
    """

    def __init__(self, layouts: Layouts, count: int):
        self.layouts = layouts
        self.count = count
        tiles = len(layouts.placement.tiles)
        self.dealt = deal(np.arange(tiles) // max(1, -(-tiles // count)), count)

    def shape(self, variable: Variable) -> tuple[int, int]:
        """Of the array of a variable on each device."""
        return self.dealt.most, self.layouts.of(variable).shape[1]

    def of(self, variable: Variable) -> Rows:
        """The rows of a variable."""
        return Rows(self.dealt, self.layouts.of(variable).shape[1])

    def deal_tiles(self, tiles: np.ndarray) -> Dealt:
        """Rows by the devices of their tiles."""
        return deal(self.dealt.devices[np.searchsorted(self.layouts.placement.tiles, tiles)], self.count)

    def crossing(self, shape: tuple[int, ...], at: Pieces, words: Pieces, sources: Sequence[Rows | int]) -> Crossing:
        """Words brought to the devices that have them.

        Args:
            shape: of each device's part.
            at: for each of its words, by address, which of the words it is.
            words: where these are in the sources end to end, flat.
            sources: the rows of sharded ones, and the sizes of those that all devices have.
        """
        held = sum(own.dealt.most * own.width for own in sources if isinstance(own, Rows))
        known = self.count * held
        addresses, flat, base = [], 0, 0
        for own in sources:
            if isinstance(own, Rows):
                addresses.append(own.dealt.addresses(own.width, held, base).moved(flat, 0))
                flat, base = flat + len(own.dealt.devices) * own.width, base + own.dealt.most * own.width
            else:
                addresses.append(pieces_of([flat], [known], own))
                flat, known = flat + own, known + own
        found = at.then(words).then(side_by_side(addresses))
        return Crossing(shape, found, held, known - self.count * held, self.count)

    def everywhere(self, shape: tuple[int, ...], words: Pieces, sources: Sequence[Rows | int]) -> Crossing:
        """Words brought to all devices; the arguments are as of `crossing`."""
        size, every = math.prod(shape), np.arange(self.count)
        return self.crossing(shape, pieces_of(every * size, np.zeros_like(every), size), words, sources)

    def to_rows(self, variable: Variable, words: Pieces, sources: Sequence[Rows | int]) -> Crossing:
        """Words brought to the rows of a variable; the arguments are as of `crossing`."""
        size = math.prod(self.shape(variable))
        at = self.dealt.addresses(self.of(variable).width, size).inverse()
        return self.crossing(self.shape(variable), at, words, sources)

    def put(self, own: NewWords, sources: Sequence[Rows | int]) -> MeshPutting:
        """Words of a variable put from sources, and from itself where it keeps any."""
        kept = [self.of(own.variable)] if own.keeps else []
        return MeshPutting(own.variable, own.keeps, self.to_rows(own.variable, own.words.pieces, [*sources, *kept]))

    # --- steps --------------------------------------------------------------------------------------------

    def _bring(self, own: Bringing, dealt: Dealt) -> MeshBringing:
        sources = [self.of(variable) for variable in own.variables]
        if own.words is not None:
            width, words = own.words.shape[1], own.words.pieces
        else:
            width = sources[0].width
            rows = np.arange(len(dealt.devices)) if own.rows is None else own.rows
            words = pieces_of(np.arange(len(rows)) * width, rows * width, width)
        crossing = self.crossing((dealt.most, width), dealt.filled(width), words, sources)
        return MeshBringing(own.variables, crossing, own.padding)

    def _batch(self, own: TileBatch, step: Dealt, widths: Sequence[int]) -> MeshBatch:
        dealt = self.deal_tiles(own.lanes.tiles)
        rows: list[DealtSelection | None] = [None] * len(widths)
        if own.rows is not None and widths:
            # The row of the step in each place of each device, by its place there.
            places = np.where(dealt.rows < 0, -1, step.places[own.rows][dealt.rows]).reshape(-1)
            filled = np.flatnonzero(places >= 0)
            for k, width in enumerate(widths):
                words = pieces_of(filled * width, places[filled] * width, width)
                size = dealt.most * width
                rows[k] = DealtSelection((dealt.most, width), by_device(words, size, self.count), step.most * width)
        operands = {}
        for name, operand in own.operands.items():
            value, places = operand.value, None
            if operand.places is not None:
                places = DealtPlaces(operand.places, dealt.rows)
            elif value is not None and value.size:
                value = value[dealt.rows.clip(0)]
            operands[name] = MeshOperand(operand, places, value)
        return MeshBatch(own.batch.codelet, own.lanes.lengths, dealt, rows, operands)

    def compute_set(self, own: ComputeSet) -> MeshComputeSet:
        """The tables of a compute set."""
        tiles = own.bringings[0].tiles if own.bringings else np.zeros(0, np.int64)
        step = self.deal_tiles(tiles)
        bringings = tuple(self._bring(each, step) for each in own.bringings)
        widths = [each.crossing.shape[1] + len(each.padding) for each in bringings]
        batches = tuple(self._batch(each, step, widths) for each in own.batches)
        storings = []
        for each in own.storings:
            sources = [Rows(batches[k].dealt, _words_of(own.batches[k], name)) for k, name, _ in each.results]
            storings.append(MeshStoring(each.results, self.put(each.putting, sources)))
        return MeshComputeSet(bringings, batches, tuple(storings))

    def copy_set(self, own: CopySet) -> MeshCopySet:
        """The tables of a copy."""
        source, sources = self.source(own.source)
        return MeshCopySet(source, tuple(self.put(each, sources) for each in own.puttings))

    def source(self, own: Bringing | Taking) -> tuple[MeshBringing | Taking, list[Rows | int]]:
        """What words are put from, and as sources of crossings."""
        if isinstance(own, Bringing):
            source = self._bring(own, self.dealt)
            return source, [Rows(self.dealt, source.crossing.shape[1] + len(source.padding))]
        return own, [*map(self.of, own.variables), *([len(own.padding)] if own.padding else [])]
