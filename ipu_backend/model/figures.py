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
    from ipu_backend.model.profile import Profile

_COLOURS = {
    "compute": "#3b6fb6",
    "exchange": "#f0a030",
    "sync": "#9a9a9a",
    "host": "#3a9a5b",
    "external exchange": "#c04f2f",
    "external sync": "#5f5f5f",
}
_LIGHT = "#d4d4d4"
_LETTER = 0.011  # what a letter takes of the width of new axes, roughly
_KINDS = "cividis"  # from dark to light, so that what lies side by side differs on grey paper too


def _new_axes(axes: Any) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError(
            "figures need a library that is not installed",
            given="a Python without matplotlib",
            expected="the extra `figures`",
            fix="pip install 'codelet-graphs[figures]' (in a checkout: pip install -e '.[figures]')",
        ) from None
    return plt.subplots(figsize=(8, 3), layout="constrained")[1] if axes is None else axes


def _byte_unit(largest: int) -> tuple[int, str]:
    """In what to give numbers up to so many bytes: how many bytes that is, and its name."""
    return next(unit for unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes")) if largest >= unit[0])


def _write_whole_numbers(axis: Any) -> None:
    """Label an axis of cycles 20,000 rather than 2.0 and, at its end, 1e4."""
    axis.set_major_formatter("{x:,.0f}")


def _tile_edges(profile: Profile) -> np.ndarray:
    """Where each tile starts on an axis that has their numbers in their middles, and where the last one ends."""
    return np.arange(profile.target.num_tiles + 1) - 0.5


def plot_memory(profile: Profile, axes: Any = None) -> Any:
    """Memory taken on each tile, by kind, with what a tile has as a line."""
    axes = _new_axes(axes)
    from matplotlib import colormaps

    edges = _tile_edges(profile)
    unit, name = _byte_unit(profile.target.bytes_per_tile)
    below = np.zeros(profile.target.num_tiles)
    colours = colormaps[_KINDS](np.linspace(0.1, 0.95, len(profile.memory)))
    for (kind, by_tile), colour in zip(profile.memory.items(), colours, strict=True):
        axes.stairs(below + by_tile / unit, edges, baseline=below, fill=True, label=kind, color=colour)
        below = below + by_tile / unit
    axes.axhline(profile.target.bytes_per_tile / unit, color="black", linestyle="--", label="memory of a tile")
    axes.set(xlabel="tile", ylabel=name, title="Memory by tile", xlim=(edges[0], edges[-1]), ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)  # in the order of the stack
    return axes


def plot_live(profile: Profile, axes: Any = None) -> Any:
    """Memory live in each step on all tiles together: what the step uses itself, and what is live besides."""
    axes = _new_axes(axes)
    frame = profile.step_frame
    steps = np.arange(len(profile.steps))
    unit, name = _byte_unit(max(1, int((frame["other_live_bytes"] + frame["used_bytes"]).max(initial=0))))
    besides, used = frame["other_live_bytes"] / unit, frame["used_bytes"] / unit
    axes.bar(steps, besides, width=0.9, color=_LIGHT, label="live besides")
    axes.bar(steps, used, width=0.9, bottom=besides, color=_COLOURS["compute"], label="used by the step")
    axes.set(xlabel="step", ylabel=f"{name} on all tiles", title="Live memory by step")
    if len(steps) <= 12:
        axes.set_xticks(steps, frame["name"].tolist(), rotation=30, ha="right", rotation_mode="anchor")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    return axes


def plot_timeline(profile: Profile, axes: Any = None) -> Any:
    """Sync, exchange and compute of each step over time; a step that repeats is one block.

    A step is named where its name has room on the time in which it computes.
    """
    axes = _new_axes(axes)
    total = max(1, profile.total_cycles)
    spans: dict[str, list[tuple[int, int]]] = {"sync": [], "exchange": [], "compute": []}
    start = 0
    for step in profile.steps:
        for phase in step.phases:
            cycles = step.prolongs(phase)
            if cycles:
                spans.setdefault(phase.kind, []).append((start, cycles))
            if phase.kind == "compute" and cycles > _LETTER * len(step.name) * total:
                axes.text(start + cycles / 2, 2, step.name, size=8, color="white", ha="center", va="center")
            start += cycles
    for row, (kind, own) in enumerate(spans.items()):
        # An edge of its own colour, so that what is short beside the rest is still seen.
        axes.broken_barh(own, (row - 0.4, 0.8), color=_COLOURS[kind], linewidth=0.5)
    axes.set_yticks(range(len(spans)), list(spans))
    axes.set(xlabel="cycles", title="Steps over time", xlim=(0, total), ylim=(-0.6, len(spans) - 0.4))
    _write_whole_numbers(axes.xaxis)
    return axes


def plot_balance(profile: Profile, axes: Any = None) -> Any:
    """Cycles that each tile computes for, beside those that all wait for the slowest."""
    axes = _new_axes(axes)
    edges = _tile_edges(profile)
    axes.stairs(profile.compute_by_tile, edges, fill=True, color=_COLOURS["compute"], alpha=0.6, label="computing")
    axes.axhline(profile.compute_cycles, color="black", linestyle="--", label="slowest tile, by steps")
    axes.axhline(profile.compute_by_tile.mean(), color="black", linestyle=":", label="mean")
    title = f"Tile balance: {100 * profile.tile_balance:.1f}%"
    axes.set(xlabel="tile", ylabel="cycles", title=title, xlim=(edges[0], edges[-1]), ylim=(0, None))
    _write_whole_numbers(axes.yaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def plot_traffic(profile: Profile, axes: Any = None) -> Any:
    """Bytes that each tile sends to each other, over all steps and iterations; of many tiles, regions of neighbours."""
    axes = _new_axes(axes)
    tables = profile.tables()
    steps, tiles, traffic = (tables.table(name) for name in ("steps", "tiles", "traffic"))
    num_regions = int(tiles["region"].max(initial=0)) + 1
    sent = np.zeros((num_regions, num_regions))
    np.add.at(sent, (traffic["sender"], traffic["receiver"]), traffic["bytes"] * steps["turns"][traffic["step"]])
    unit, name = _byte_unit(max(1, int(sent.max())))
    of = "tile" if num_regions == profile.target.num_tiles else "region of tiles"
    axes.figure.colorbar(axes.imshow(sent / unit, cmap=_KINDS), ax=axes, label=name)
    axes.set(xlabel=f"{of} that receives", ylabel=f"{of} that sends", title="Traffic between tiles")
    return axes


figures: dict[str, Callable[..., Any]] = {
    "memory": plot_memory,
    "live": plot_live,
    "timeline": plot_timeline,
    "balance": plot_balance,
    "traffic": plot_traffic,
}
"""The figures of a profile, by name."""
