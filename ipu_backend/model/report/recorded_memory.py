"""What a record has of memory: what lies on each tile, at which address and when; the tiles; what is live when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from codelet.target import Target
from ipu_backend.model.report.record import Columns, columns_of
from ipu_backend.model.report.recorded_steps import regions_of
from lowering.machine.memory import Memory
from lowering.plan.runs import stretches

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile

ROWS_OF_TILES = 32
"""In how many rows the tiles of a chip are shown. How they lie on it is not published."""


def occupants_table(memory: Memory) -> Columns:
    """A row for each thing that takes memory: variables that share a place, code, buffers."""
    rows = [
        {
            "name": own.name,
            "kind": own.kind,
            "is_always_live": own.moments is None,
            "variable": own.variables[0].number if own.variables else -1,
            "bytes": int(own.num_bytes.sum()),
            "most_bytes": int(own.num_bytes.max(initial=0)),
            "fullest_tile": int(own.num_bytes.argmax()) if own.num_bytes.any() else -1,
            "tiles": int(np.count_nonzero(own.num_bytes)),
        }
        for own in memory.occupants
    ]
    types: dict[str, type] = {"name": str, "kind": str, "is_always_live": bool}
    return columns_of(rows, types | dict.fromkeys(("variable", "bytes", "most_bytes", "fullest_tile", "tiles"), int))


def residents_table(memory: Memory) -> Columns:
    """A row for each thing on each tile on which it takes memory: where it begins, and its bytes."""
    found: list[np.ndarray] = [np.zeros((4, 0), np.int64)]
    for number, own in enumerate(memory.occupants):
        (tiles,) = np.nonzero(own.num_bytes)
        found.append(np.stack([np.full(len(tiles), number), tiles, own.addresses[tiles], own.num_bytes[tiles]]))
    return dict(zip(("occupant", "tile", "address", "bytes"), np.concatenate(found, axis=1), strict=True))


def lives_table(memory: Memory) -> Columns:
    """A row for each stretch of moments in which something is live that is not always: the first, and the last."""
    rows: list[tuple[int, int, int]] = []
    for number, own in enumerate(memory.occupants):
        if own.moments is not None:
            runs, is_live = stretches(own.moments)
            ends = zip(runs.starts.tolist(), runs.stops.tolist(), is_live, strict=True)
            rows += [(number, begin, end - 1) for begin, end, live in ends if live]
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return dict(zip(("occupant", "first_moment", "last_moment"), columns, strict=True))


def live_bytes(memory: Memory) -> np.ndarray:
    """Bytes live at each moment on all tiles, all kinds together, int64 of shape (moments,)."""
    total = np.zeros(len(memory.liveness.timeline.moments), np.int64)
    for own in memory.occupants:
        num_bytes = int(own.num_bytes.sum())
        total += num_bytes if own.moments is None else num_bytes * own.moments
    return total


def tiles_table(profile: Profile, memory: Memory, step_tiles: Columns, turns: np.ndarray) -> Columns:
    """A row for each tile: where it is shown, what it computes, receives and sends in all, and its memory by kind."""
    target = profile.target
    moved = {}
    for name in ("received_bytes", "sent_bytes"):
        by_step = step_tiles[name] * turns[step_tiles["step"]]
        moved[name] = np.bincount(step_tiles["tile"], by_step, target.num_tiles).astype(np.int64)
    frame = profile.tile_frame
    place = _places(target)
    return {**place, **frame, **moved, "most_live_bytes": memory.most_live_bytes}


def _places(target: Target) -> Columns:
    """The chip, row, column and region of each tile as they are shown."""
    tile = np.arange(target.num_tiles)
    each = target.num_tiles // target.num_chips
    rows = min(ROWS_OF_TILES, each)
    chip, own = np.divmod(tile, each)
    return {"chip": chip, "row": own % rows, "column": own // rows, "region": regions_of(target.num_tiles)}
