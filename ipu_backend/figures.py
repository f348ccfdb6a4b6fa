"""Figures of a profile, drawn with matplotlib, which the extra `figures` brings.

In come a profile and, where one has them, axes to draw into; out come the axes. They show what Poplar's
PopVision Graph Analyser shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import MissingExtraError

if TYPE_CHECKING:
    from ipu_backend.profile import Profile

_COLOURS = {"compute": "tab:red", "exchange": "tab:blue", "sync": "tab:gray"}


def _new_axes(axes: Any) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError(
            "figures need a library that is not installed",
            given="a Python without matplotlib",
            expected="the extra `figures`",
            fix="pip install 'codelet[figures]' (in a checkout: pip install -e '.[figures]')",
        ) from None
    return plt.subplots(figsize=(8, 3), layout="constrained")[1] if axes is None else axes


def _tile_edges(profile: Profile) -> np.ndarray:
    """Where each tile starts on an axis that has their numbers in their middles, and where the last one ends."""
    return np.arange(profile.target.num_tiles + 1) - 0.5


def plot_memory(profile: Profile, axes: Any = None) -> Any:
    """Bytes on each tile, by kind, with what a tile has as a line."""
    axes = _new_axes(axes)
    edges = _tile_edges(profile)
    below = np.zeros(profile.target.num_tiles, np.int64)
    for kind, by_tile in profile.memory.items():
        axes.stairs(below + by_tile, edges, baseline=below, fill=True, label=kind)
        below = below + by_tile
    axes.axhline(profile.target.bytes_per_tile, color="black", linestyle="--", label="memory of a tile")
    axes.set(xlabel="tile", ylabel="bytes", title="Memory by tile", xlim=(edges[0], edges[-1]))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def plot_live(profile: Profile, axes: Any = None) -> Any:
    """Bytes live in each step on all tiles together: what the step uses itself, and what is live besides."""
    axes = _new_axes(axes)
    frame = profile.step_frame()
    steps = np.arange(len(profile.steps))
    axes.bar(steps, frame["other_live_bytes"], width=1, color="tab:gray", label="live besides")
    axes.bar(
        steps,
        frame["used_bytes"],
        width=1,
        bottom=frame["other_live_bytes"],
        color="tab:orange",
        label="used by the step",
    )
    axes.set(xlabel="step", ylabel="bytes", title="Live bytes by step")
    if len(steps) <= 12:
        axes.set_xticks(steps, frame["name"].tolist(), rotation=30, ha="right")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def plot_timeline(profile: Profile, axes: Any = None) -> Any:
    """Sync, exchange and compute of each step over time; a step that repeats is one block."""
    axes = _new_axes(axes)
    frame = profile.step_frame()
    starts = np.cumsum(frame["total_cycles"]) - frame["total_cycles"]
    for row, phase in enumerate(("sync", "exchange", "compute")):
        cycles = frame[f"{phase}_cycles"]
        spans = list(zip(starts.tolist(), cycles.tolist(), strict=True))
        axes.broken_barh(spans, (row - 0.4, 0.8), color=_COLOURS[phase], edgecolor="white", linewidth=0.5)
        starts = starts + cycles
    axes.set_yticks(range(3), ("sync", "exchange", "compute"))
    axes.set(xlabel="cycles", title="Steps over time", xlim=(0, max(1, profile.total_cycles)))
    return axes


def plot_balance(profile: Profile, axes: Any = None) -> Any:
    """Cycles that each tile computes for, beside those that all wait for the slowest."""
    axes = _new_axes(axes)
    edges = _tile_edges(profile)
    axes.stairs(profile.compute_by_tile, edges, fill=True, color=_COLOURS["compute"])
    axes.axhline(profile.compute_cycles, color="black", linestyle="--", label="the slowest tile of every step")
    axes.axhline(profile.compute_by_tile.mean(), color="tab:blue", label="mean")
    title = f"Tile balance: {100 * profile.tile_balance:.1f}%"
    axes.set(xlabel="tile", ylabel="cycles", title=title, xlim=(edges[0], edges[-1]), ylim=(0, None))
    axes.legend(loc="lower right")
    return axes


figures: dict[str, Callable[..., Any]] = {
    "memory": plot_memory,
    "live": plot_live,
    "timeline": plot_timeline,
    "balance": plot_balance,
}
"""The figures of a profile, by name."""
