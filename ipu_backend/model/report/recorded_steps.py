"""What a record has of the steps of a program: their cycles, by step and tile, and what they move between tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import written
from codelet.graphs.phases import PHASES, phase_of
from ipu_backend.model.report.record import Columns, columns_of
from lowering.machine.exchange import Exchange, Transfer
from lowering.machine.liveness import Liveness
from lowering.machine.step_cycles import MovingStep, moving_moments
from lowering.machine.touched import Touches
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import Moment

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile

MOST_REGIONS = 64
"""In how many regions the tiles are told, at most, where what moves is told by pairs of them."""

LayerOf = Callable[[str], str]

_CYCLES = (
    "exchange_before",
    "compute",
    "exchange_after",
    "sync",
    "external_exchange",
    "external_sync",
    "host",
    "total",
    "launch",
    "fitted",
    "guessed",
)


def _kind(moment: Moment) -> str:
    if isinstance(moment.step, ExecuteStep):
        return "compute"
    return "copy" if isinstance(moment.step, CopyStep) else "host"


def _line(moment: Moment) -> str:
    step = moment.step
    line = step.families[0].compute_set.line if isinstance(step, ExecuteStep) and step.families else None
    return written(line)


def steps_table(profile: Profile, liveness: Liveness, layer_of: LayerOf) -> Columns:
    """A row for each step that computes or moves something, in the order of the program."""
    rows: list[dict[str, Any]] = []
    for moment, step in zip(moving_moments(liveness.timeline), profile.steps, strict=True):
        by_tile = step.compute_by_tile
        row: dict[str, Any] = {f"{name}_cycles": getattr(step, f"{name}_cycles") for name in _CYCLES}
        row |= {
            "name": step.name,
            "kind": _kind(moment),
            "layer": layer_of(step.name) if _kind(moment) == "compute" else "",
            "phase": PHASES[phase_of(step.name)],
            "line": _line(moment),
            "moment": moment.number,
            "depth": moment.depth,
            "turns": step.iterations,
            "turns_are_guessed": step.turns_are_guessed,
            "vertices": step.num_vertices,
            "balance": step.balance,
            "slowest_tile": int(by_tile.argmax()) if by_tile.any() else -1,
            "computing_tiles": int(np.count_nonzero(by_tile)),
            "received_bytes": step.received_bytes,
            "used_bytes": step.used_bytes,
            "other_live_bytes": step.other_live_bytes,
        }
        rows.append(row)
    types: dict[str, type] = {"name": str, "kind": str, "layer": str, "phase": str, "line": str}
    types |= dict.fromkeys(("moment", "depth", "turns"), int) | {"turns_are_guessed": bool, "vertices": int}
    types |= dict.fromkeys((f"{name}_cycles" for name in _CYCLES), int) | {"balance": float}
    whole = ("slowest_tile", "computing_tiles", "received_bytes", "used_bytes", "other_live_bytes")
    return columns_of(rows, types | dict.fromkeys(whole, int))


def moments_table(liveness: Liveness) -> Columns:
    """A row for each place of the program, loops among them: the program as a tree, by depth."""
    numbers = {moment.number: k for k, moment in enumerate(moving_moments(liveness.timeline))}
    rows = [
        {
            "name": moment.name.split(" reads ")[0].split(" writes ")[0],
            "depth": moment.depth + len(moment.branches),
            "turns": moment.turns,
            "step": numbers.get(moment.number, -1),
        }
        for moment in liveness.timeline.moments
    ]
    return columns_of(rows, {"name": str, "depth": int, "turns": int, "step": int})


def _transfers(moment: Moment, exchange: Exchange) -> Iterator[Transfer]:
    if isinstance(moment.step, ExecuteStep | CopyStep):
        moved = exchange.of(moment.step)
        yield from (moved.before, moved.after)


def step_tiles_table(profile: Profile, liveness: Liveness) -> Columns:
    """A row for each step and tile that computes or moves something in one iteration of it."""
    found: list[np.ndarray] = [np.zeros((5, 0), np.int64)]
    for number, (moment, step) in enumerate(zip(moving_moments(liveness.timeline), profile.steps, strict=True)):
        columns = np.zeros((3, profile.target.num_tiles), np.int64)
        columns[0] = step.compute_by_tile
        for transfer in _transfers(moment, liveness.exchange):
            columns[1] += transfer.received_bytes
            columns[2] += transfer.sent_bytes
        (tiles,) = np.nonzero(columns.any(axis=0))
        found.append(np.concatenate([np.full((1, len(tiles)), number), tiles[None], columns[:, tiles]]))
    names = ("step", "tile", "compute_cycles", "received_bytes", "sent_bytes")
    return dict(zip(names, np.concatenate(found, axis=1), strict=True))


def regions_of(num_tiles: int) -> np.ndarray:
    """The region of each tile: stretches of tiles of about one length, at most `MOST_REGIONS`."""
    return np.arange(num_tiles) * min(MOST_REGIONS, num_tiles) // max(1, num_tiles)


_TRAFFIC: tuple[str, ...] = ("step", "sender", "receiver", "bytes")
_MOVES: tuple[str, ...] = ("step", "variable", "bytes", "different_bytes")


def moved_tables(liveness: Liveness) -> tuple[Columns, Columns]:
    """What moves in one turn of each step: from region to region, and by variable.

    Returns:
        A row for each step and two regions of which one sends to the other, and a row for each step and variable that
        moves: how many bytes arrive, and how many of them are of different elements.
    """
    exchange, placement = liveness.exchange, liveness.placement
    region, count = regions_of(placement.num_tiles), min(MOST_REGIONS, placement.num_tiles)
    pairs: list[np.ndarray] = [np.zeros((4, 0), np.int64)]
    moves: list[tuple[int, int, int, int]] = []
    known: dict[Any, tuple[np.ndarray, list[tuple[int, int, int]]]] = {}
    for number, moment in enumerate(moving_moments(liveness.timeline)):
        assert isinstance(moment.step, MovingStep)
        for transfer in _transfers(moment, exchange):
            if transfer not in known:
                known[transfer] = _moved(transfer, region, count)
            between, by_variable = known[transfer]
            pairs.append(np.concatenate([np.full((1, between.shape[1]), number), between]))
            moves += [(number, *own) for own in by_variable]
    traffic: Columns = dict(zip(_TRAFFIC, np.concatenate(pairs, axis=1), strict=True))
    return traffic, dict(zip(_MOVES, np.array(moves, np.int64).reshape(-1, 4).T, strict=True))


def _moved(transfer: Transfer, region: np.ndarray, count: int) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Of what moves at one time: sender, receiver and bytes, by region; variable, bytes, and those that differ."""
    if not transfer.received_bytes.any():
        return np.zeros((3, 0), np.int64), []
    touched = transfer.touching(Touches(transfer.placement))
    away = touched.away()
    num_bytes = touched.sizes(away.starts, away.stops)
    here, there = region[away.tiles], region[away.homes]
    sender, receiver = (here, there) if transfer.to_home else (there, here)
    total = np.bincount(sender * count + receiver, num_bytes, count * count).astype(np.int64)
    (found,) = np.nonzero(total)
    between = np.stack([*np.divmod(found, count), total[found]])
    by_variable = []
    number = len(transfer.placement.element_tiles) or 1
    for variable, runs in touched.by_variable(away).items():
        size = variable.dtype.itemsize
        starts = runs.starts % number - variable.first_element
        ends = np.zeros(variable.size + 1, np.int64)
        np.add.at(ends, starts, 1)
        np.add.at(ends, starts + (runs.stops - runs.starts), -1)
        different = int(np.count_nonzero(np.cumsum(ends[:-1])))
        arrives = int((runs.stops - runs.starts).sum())
        by_variable.append((variable.number, arrives * size, different * size))
    return between, by_variable
