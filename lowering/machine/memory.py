"""Memory: what every tile's memory holds, at which address.

In come live ranges. Out comes an address for each of them on each tile, so that no two that are live at once
overlap there. What is always live lies at the bottom, side by side; above it, what
`lowering/machine/offsets.py` places.

Beside variables a tile holds, by these rules:

- vertex state: each vertex its copy of its constants, in the field's dtype.
- edge pointers: `EDGE_BYTES` an edge; or, for a field whose edges are evenly nested, as the rows of a block, those of
  the first and `LEVEL_BYTES` for each level: what a codelet needs to step from one to the next.
- code: each codelet once on every tile that runs it, for each combination of dtypes and static values:
  `CODELET_BYTES`, and `EQUATION_BYTES` an equation. Shapes are data of the vertices, as in Poplar.
- exchange code: on each tile `EXCHANGE_BYTES` for each step in which it takes part, and `MESSAGE_BYTES` for each
  message that it sends or receives there: a run of consecutive elements, or as many as a long one is split into.
- host exchange code: what the target says, on each tile whose variables a stream reads or writes.
- control code: what the target says, on every tile, and `VERTEX_BYTES` a vertex.
- stack: what the target says, on every tile.
- exchange buffers: what arrives in a step, and what is sent home, while the step computes.

Not counted: alignment to more than a word, and the headers of the host's packets.

Source of what is no guess: Poplar's report of a program that adds two variables on 1,216 tiles of a Mk1 (user guide of
its TensorFlow), in bytes a tile: stack 3,168, control code 700, host exchange code 289, vertex code 140, internal
exchange code 50, vertices 12; with variables 4,404 in all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend import core as jax_core

from codelet.errors import OutOfInterleavedMemoryError, OutOfTileMemoryError
from codelet.graphs.edge_counts import counted_together, edges_of_field
from codelet.graphs.family import Family, counted
from codelet.jaxprs.equations import inner_jaxprs
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.machine.interleaved import interleaved_bytes
from lowering.machine.liveness import Liveness, LiveRange, whole_words
from lowering.machine.offsets import assign_offsets
from lowering.machine.placement import checked_tile
from lowering.plan.steps import StreamStep

EDGE_BYTES = 4
"""Where an edge begins, and how long it is: the report's 12 bytes are a vertex of three edges."""

LEVEL_BYTES = 8
"""How often a loop over edges goes round, and how far it steps: as vertices of PopLibs' convolutions have strides
beside their pointers (lib/poplin/codelets/ConvPartialnx1.cpp)."""

VERTEX_BYTES = 8
"""What starts a vertex: two instructions, with the address of its code and that of its edges. A guess."""

EQUATION_BYTES = 48
"""An equation of a codelet: the loop over its elements. A guess, of a dozen instructions of 4 bytes."""

CODELET_BYTES = 140 - EQUATION_BYTES
"""Entry and exit of a codelet's code, and the division of its work: what is left of the report's code of an adder."""

EXCHANGE_BYTES = 40
"""What a tile runs to sync and set its pointers before an exchange. A guess, of ten instructions: with a message in and
one out it is 48 of the 50 bytes of the report, which does not say how many there are."""

MESSAGE_BYTES = 4
"""One instruction, which sends or awaits a run of consecutive words. A guess."""

KINDS = (
    "variables, always live",
    "vertex state",
    "edge pointers",
    "code",
    "exchange code",
    "host exchange code",
    "control code",
    "stack",
    "variables, not always live",
    "exchange buffers",
)
"""What memory is counted by; all but the last two are always live."""


@dataclass(frozen=True, eq=False)
class Occupant:
    """Something that takes memory.

    Attributes:
        name: what it is called in print.
        kind: one of `KINDS`.
        num_bytes: what it takes on each tile, int64 of shape (num_tiles,).
        addresses: the byte at which it begins on each tile, int64 of shape (num_tiles,); -1 where it takes nothing.
        moments: at which moments of the program it is live, bool of shape (moments,); None when always.
        variables: those that are there, one after another.
    """

    name: str
    kind: str
    num_bytes: np.ndarray
    addresses: np.ndarray
    moments: np.ndarray | None
    variables: tuple[Variable, ...] = ()


@dataclass(frozen=True, eq=False)
class Memory:
    """What every tile's memory holds.

    Attributes:
        liveness: what is live when.
        occupants: all that takes memory; what is always live first.
        bytes_by_tile: how much of each tile's memory is used, int64 of shape (num_tiles,).
        most_live_bytes: the most bytes in use at once on each tile, which no plan can do with less than.
        bytes_per_tile: what a tile has.
    """

    liveness: Liveness
    occupants: tuple[Occupant, ...]
    bytes_by_tile: np.ndarray
    most_live_bytes: np.ndarray
    bytes_per_tile: int

    @functools.cached_property
    def interleaved_by_tile(self) -> np.ndarray:
        """How many bytes of it must lie in interleaved memory, int64 of shape (num_tiles,).

        Raises:
            CyclesError: a codelet's own `cycles=` or `trip_count=` fails.
        """
        return interleaved_bytes(self.liveness)

    @property
    def bytes_by_kind(self) -> Mapping[str, np.ndarray]:
        """Bytes of each of `KINDS` on each tile, int64 of shape (num_tiles,).

        An address that several share, one after another, counts for each.
        """
        found = {kind: np.zeros(len(self.bytes_by_tile), np.int64) for kind in KINDS}
        for own in self.occupants:
            found[own.kind] += own.num_bytes
        return found

    @property
    def tiles_over(self) -> np.ndarray:
        """The tiles that would have to hold more than they can, the fullest first."""
        order = np.argsort(-self.bytes_by_tile, kind="stable")
        return order[self.bytes_by_tile[order] > self.bytes_per_tile]

    def occupant(self, variable: Variable) -> Occupant | None:
        """Where a variable is; None where the program does not name it."""
        return next((own for own in self.occupants if variable in own.variables), None)

    def _check_tile(self, tile: int) -> None:
        checked_tile(tile, self.liveness.placement.plan.graph.target)

    def fullest_moment(self, tile: int) -> int | None:
        """The moment at which most of what is not always live is on a tile; None where there is no such thing.

        Raises:
            TileError: a tile that does not exist.
        """
        self._check_tile(tile)
        sometimes = [int(own.num_bytes[tile]) * own.moments for own in self.occupants if own.moments is not None]
        live = sum(sometimes, np.zeros(len(self.liveness.timeline.moments), np.int64))
        return int(live.argmax()) if live.any() else None

    def largest_on(self, tile: int, count: int = 5, moment: int | None = None) -> list[Occupant]:
        """What takes most on a tile, the largest first: at one moment, default: or at any.

        Raises:
            TileError: a tile that does not exist.
        """
        self._check_tile(tile)
        held = [own for own in self.occupants if own.num_bytes[tile]]
        if moment is not None:
            held = [own for own in held if own.moments is None or own.moments[moment]]
        return sorted(held, key=lambda own: -int(own.num_bytes[tile]))[:count]

    def tile_text(self, tile: int) -> str:
        """A tile's memory: what lies at which address, and when.

        Raises:
            TileError: a tile that does not exist.
        """
        self._check_tile(tile)
        held = sorted((own for own in self.occupants if own.num_bytes[tile]), key=lambda own: int(own.addresses[tile]))
        rows = [f"tile {tile}: {self.bytes_by_tile[tile]:,} of {self.bytes_per_tile:,} bytes"]
        for own in held:
            start, size = int(own.addresses[tile]), int(own.num_bytes[tile])
            live = "always" if own.moments is None else f"moments {np.flatnonzero(own.moments).tolist()}"
            rows.append(f"  {start:8,} to {start + size:8,}  {own.name} ({own.kind.split(',')[0]}), {live}")
        return "\n".join(rows)

    def __repr__(self) -> str:
        most = int(self.bytes_by_tile.max(initial=0))
        return f"<Memory: at most {most:,} of {self.bytes_per_tile:,} bytes on a tile>"

    def __str__(self) -> str:
        used = self.bytes_by_tile
        rows = [f"memory of {counted(len(used), 'tile', 'tiles')}: {int(used.sum()):,} bytes"]
        for kind, own in self.bytes_by_kind.items():
            rows.append(f"  {kind:26} {int(own.sum()):14,} bytes, at most {int(own.max(initial=0)):,} on a tile")
        fullest = np.argsort(-used, kind="stable")[:5]
        rows.append("  fullest: " + ", ".join(f"tile {t} with {used[t]:,}" for t in fullest))
        if self.interleaved_by_tile.any():
            most, tile = int(self.interleaved_by_tile.max()), int(self.interleaved_by_tile.argmax())
            there = self.liveness.placement.plan.graph.target.interleaved_bytes
            rows.append(f"  in interleaved memory: at most {most:,} of {there:,} bytes, on tile {tile}")
        if len(self.tiles_over):
            rows.append(f"  out of memory: {counted(len(self.tiles_over), 'tile', 'tiles')}")
        return "\n".join(rows)


# --- what is there beside variables -------------------------------------------------------------------


def _count_equations(jaxpr: jax_core.Jaxpr) -> int:
    """Equations of a jaxpr, those of the jaxprs in their parameters among them."""
    return len(jaxpr.eqns) + sum(_count_equations(inner) for eqn in jaxpr.eqns for inner in inner_jaxprs(eqn))


def _levels(tensor: Tensor) -> int | None:
    """How many loops go through the edges of a field, one within another; None where they are not evenly nested."""
    is_tabled = any(isinstance(key, int) for table in tensor.index.tables for key in table.keys)
    if tensor.rows is not None or not isinstance(tensor.source, Variable) or is_tabled:
        return None
    extents, strides = tensor.index.shape, tensor.index.strides
    loops: list[tuple[int, int]] = []
    for extent, stride in reversed([own for own in zip(extents, strides, strict=True) if own[0] > 1]):
        if loops and stride == loops[-1][0] * loops[-1][1]:
            loops[-1] = loops[-1][0] * extent, loops[-1][1]
        else:
            loops.append((extent, stride))
    return len(loops) - bool(loops and loops[0][1] == 1)


def _edge_bytes(family: Family, tiles: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Pointers of a family's vertices on each tile."""
    each = np.zeros([1] * len(family.axes), np.int64)
    for field in family.fields:
        levels = None if field.tensor is None else _levels(field.tensor)
        pointers = EDGE_BYTES * np.asarray(edges_of_field(family, field))
        each = each + (pointers if levels is None else np.minimum(pointers, EDGE_BYTES + LEVEL_BYTES * levels))
    if each.size == 1:
        return counts * int(each.reshape(-1)[0])
    every = np.broadcast_to(each, family.extents).reshape(-1)
    return np.bincount(tiles, every, len(counts)).astype(np.int64)


def _code(vertex_tiles: Mapping[Family, np.ndarray], num_tiles: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """Code on each tile: vertices of one codelet with the same dtypes and static values run the same code."""
    sizes: dict[tuple, int] = {}
    used: dict[tuple, np.ndarray] = {}
    for family, tiles in vertex_tiles.items():
        traced = family.codelet
        key = traced.codelet, traced.variant, *(kind.dtype for kind in traced.inputs.values())
        size = CODELET_BYTES + EQUATION_BYTES * _count_equations(traced.jaxpr.jaxpr)
        sizes[key] = max(size, sizes.get(key, 0))
        used.setdefault(key, np.zeros(num_tiles, bool))[tiles] = True
    for key, size in sizes.items():
        yield f"code of {key[0].name}", "code", used[key] * size


def _streaming(liveness: Liveness) -> np.ndarray:
    """Whether anything on a tile comes from the host or goes there while the program runs: bool, (num_tiles,)."""
    placement = liveness.placement
    takes_part = np.zeros(placement.num_tiles, bool)
    for moment in liveness.timeline.moments:
        if isinstance(moment.step, StreamStep):
            takes_part[placement.element_tiles[moment.step.tensor.elements()]] = True
    return takes_part


def _fixed(liveness: Liveness) -> Iterator[tuple[str, str, np.ndarray]]:
    """What is always there beside variables: name, kind, and bytes on each tile."""
    placement, exchange = liveness.placement, liveness.exchange
    num_tiles, target = placement.num_tiles, placement.plan.graph.target
    control = np.full(num_tiles, target.control_code_bytes)
    for family in counted_together(placement.vertex_tiles):
        tiles = placement.vertex_tiles[family]
        name = f"{family.compute_set.name} / {family.codelet.name}"
        counts = np.bincount(tiles, minlength=num_tiles)
        constants = [field.type for field in family.fields if field.state is not None]
        state_bytes = sum(math.prod(kind.shape) * kind.dtype.itemsize for kind in constants)
        yield f"state of {name}", "vertex state", counts * state_bytes
        yield f"edges of {name}", "edge pointers", _edge_bytes(family, tiles, counts)
        control += VERTEX_BYTES * counts
    yield from _code(placement.vertex_tiles, num_tiles)
    names = {exchange.of(moment.step): moment.name for moment in reversed(liveness.timeline.moments)}
    for step, name in reversed(names.items()):
        num_bytes = np.zeros(num_tiles, np.int64)
        for transfer in (step.before, step.after):
            messages = transfer.received_messages + transfer.sent_messages
            num_bytes += MESSAGE_BYTES * messages + EXCHANGE_BYTES * (messages > 0)
        yield f"exchange code of {name}", "exchange code", num_bytes
    yield "exchange code of streams", "host exchange code", target.host_code_bytes * _streaming(liveness)
    yield "control code", "control code", control
    yield "stack", "stack", np.full(num_tiles, target.stack_bytes)


# --- the plan -----------------------------------------------------------------------------------------


def _stacked(named: Sequence[tuple[str, str, np.ndarray, tuple[Variable, ...]]], base: np.ndarray) -> list[Occupant]:
    """What is always live, side by side from the bottom; `base`, where it ends, is added to."""
    found = []
    for name, kind, num_bytes, variables in named:
        addresses = np.where(num_bytes > 0, base, -1)
        found.append(Occupant(name, kind, num_bytes, addresses, None, variables))
        base += num_bytes
    return found


def _shared(ranges: Sequence[LiveRange], base: np.ndarray) -> list[Occupant]:
    """What is live at times, above what always is."""
    if not ranges:
        return []
    sizes, moments = np.stack([own.num_bytes for own in ranges]), np.stack([own.moments for own in ranges])
    offsets = assign_offsets(sizes, moments)
    found = []
    for own, offset in zip(ranges, offsets, strict=True):
        kind = "variables, not always live" if own.variables else "exchange buffers"
        addresses = np.where(own.num_bytes > 0, base + offset, -1)
        found.append(Occupant(own.name, kind, own.num_bytes, addresses, own.moments, own.variables))
    return found


def _check_interleaved(memory: Memory) -> None:
    """No tile has to hold more in interleaved memory than it has of it."""
    target = memory.liveness.placement.plan.graph.target
    needed = memory.interleaved_by_tile
    tile = int(needed.argmax())
    if needed[tile] <= target.interleaved_bytes:
        return
    raise OutOfInterleavedMemoryError(
        f"tile {tile} is out of interleaved memory by {int(needed[tile]) - target.interleaved_bytes:,} bytes",
        given=f"{int(needed[tile]):,} bytes that a matrix unit loads as weights, or adds to",
        expected=f"at most {target.interleaved_bytes:,} bytes on a tile of {target}",
        fix="spread the weights over more tiles, or see all with allow_out_of_memory=True",
    )


def check_capacity(memory: Memory) -> None:
    """No tile has to hold more than it can.

    Raises:
        OutOfTileMemoryError: naming the fullest tile, the bytes over, and its five largest occupants at the moment
            at which most is live there.
        OutOfInterleavedMemoryError: there is room enough, but not of that kind.
    """
    over = memory.tiles_over
    if not len(over):
        return _check_interleaved(memory)
    tile = int(over[0])
    more = int(memory.bytes_by_tile[tile]) - memory.bytes_per_tile
    moment = memory.fullest_moment(tile)
    when = ", most of them for"
    if moment is not None:
        when = f"; when {memory.liveness.timeline.moments[moment].name!r} runs, most are for"
    largest = memory.largest_on(tile, moment=moment)
    held = [f"{int(own.num_bytes[tile]):,} bytes: {own.name} ({own.kind})" for own in largest]
    others = f", and {counted(len(over) - 1, 'other tile', 'other tiles')}" if len(over) > 1 else ""
    raise OutOfTileMemoryError(
        f"tile {tile} is out of memory by {more:,} bytes{others}",
        given="\n".join([f"{int(memory.bytes_by_tile[tile]):,} bytes{when}", *held]),
        expected=f"at most {memory.bytes_per_tile:,} bytes on a tile of {memory.liveness.placement.plan.graph.target}",
        fix="spread the largest over more tiles, or see all with allow_out_of_memory=True",
    )


def plan_memory(liveness: Liveness, *, allow_out_of_memory: bool = False) -> Memory:
    """An address on each tile for all that lives there.

    Args:
        liveness: what is live when, and where.
        allow_out_of_memory: report what a tile cannot hold, in the result, rather than refuse it.

    Raises:
        OutOfTileMemoryError: a tile would have to hold more than its memory.
        OutOfInterleavedMemoryError: or more than its interleaved memory of what must lie there.
        CyclesError: a codelet's own `cycles=` or `trip_count=` fails.
    """
    placement = liveness.placement
    base = np.zeros(placement.num_tiles, np.int64)
    always = [(own.name, KINDS[0], own.num_bytes, own.variables) for own in liveness.ranges if own.always]
    always += [(name, kind, whole_words(own), ()) for name, kind, own in _fixed(liveness) if own.any()]
    occupants = _stacked(always, base)
    sometimes = [own for own in (*liveness.ranges, *liveness.buffers) if not own.always]
    occupants += _shared(sometimes, base)
    used = base.copy()
    for own in occupants:
        np.maximum(used, own.addresses + own.num_bytes, out=used, where=own.num_bytes > 0)
    most = base + liveness.live_bytes(sometimes).max(axis=0, initial=0) if sometimes else base
    of_tile = placement.plan.graph.target.bytes_per_tile
    memory = Memory(liveness, tuple(occupants), used, most, of_tile)
    if not allow_out_of_memory:
        check_capacity(memory)
    return memory
