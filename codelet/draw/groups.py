"""Groups of points that are drawn alike: the vertices of a family, or inputs that a family reads first; their layers.

A layer is what the names of compute sets say: the first parts of a name, as many as tell a stretch of the program
from all others. What is small beside the whole belongs to the layer that it has most links with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from codelet.draw.links import Links

PHASES = ("forward", "backward", "update")
SMALL = 1 / 400
"""Below which share of all points a layer is no layer of its own."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of points, in columns; the points of each are a stretch of all points.

    Attributes:
        first: int64, one more than there are groups: the points of group `g` are from `first[g]` to `first[g + 1]`.
        family: int32, the place in `graph.families` of what it is, or of what reads it first.
        is_input: bool, whether it is points that nobody wrote.
        layer: int32, the place in `layers` of its layer.
        phase: int32, the place in `PHASES` of what it is done for.
        layers: the names of the layers, in the order of the program.
    """

    first: np.ndarray
    family: np.ndarray
    is_input: np.ndarray
    layer: np.ndarray
    phase: np.ndarray
    layers: tuple[str, ...]

    @property
    def sizes(self) -> np.ndarray:
        """The number of points of each, int64."""
        return np.diff(self.first)


def phase_of(name: str) -> int:
    """The place in `PHASES` of a compute set, by its name."""
    parts = re.split(r"[/ ]", name)
    return next((place for place in (2, 1) if PHASES[place] in parts), 0)


def group_points(links: Links) -> Groups:
    """The groups of the points of links."""
    families = links.graph.families
    sizes = [family.num_vertices for family in families]
    cuts = np.flatnonzero(np.diff(links.input_family, prepend=-1) | np.diff(links.input_variable, prepend=-1))
    stretches = pairwise([*cuts.tolist(), len(links.input_family)])
    sizes += [stop - start for start, stop in stretches]
    family = np.concatenate([np.arange(len(families)), links.input_family[cuts]]).astype(np.int32)
    names = [own.compute_set.name for own in families]
    layer, layers = _layers(names)
    return Groups(
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        family,
        np.arange(len(family)) >= len(families),
        np.array(layer, np.int32)[family],
        np.array([phase_of(name) for name in names], np.int32)[family],
        layers,
    )


def _layers(names: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """The layer of each compute set, and the layers' names, by the names of the compute sets in program order."""
    paths = [tuple(part for part in name.split("/") if part not in PHASES) for name in names]
    own = [phase_of(name) == 0 for name in names]
    chosen: dict[tuple[str, ...], None] = {}
    for depth in range(1, 1 + max(map(len, paths), default=0)):
        runs = [key for key, _ in groupby(path[:depth] for path, forward in zip(paths, own, strict=True) if forward)]
        for key in runs:
            covered = any(key[:k] in chosen for k in range(1, depth))
            if not covered and runs.count(key) == 1:
                chosen[key] = None
    found: dict[tuple[str, ...], int] = {}
    for path in paths:
        key = next((path[:k] for k in range(1, 1 + len(path)) if path[:k] in chosen), path)
        found.setdefault(key, len(found))
    keys = [next((path[:k] for k in range(1, 1 + len(path)) if path[:k] in chosen), path) for path in paths]
    return [found[key] for key in keys], tuple("/".join(key) for key in found)


def with_small_layers_joined(groups: Groups, weights: np.ndarray) -> Groups:
    """Groups where layers of few points are part of the layer that they have most links with.

    Args:
        groups: the groups.
        weights: the number of links between each two of them, symmetric, of shape (groups, groups).
    """
    count = len(groups.layers)
    between = np.zeros((count, count))
    np.add.at(between, (groups.layer[:, None], groups.layer[None, :]), weights)
    np.fill_diagonal(between, 0)
    sizes = np.bincount(groups.layer, groups.sizes, count)
    joined = np.arange(count)
    least = SMALL * sizes.sum()
    # The smallest first, and what comes of two is as large as both.
    waiting = {layer for layer in range(count) if sizes[layer] < least}
    while waiting:
        layer = min(waiting, key=lambda own: (sizes[own], own))
        waiting.remove(layer)
        if between[layer].any():
            into = int(between[layer].argmax())
            joined[joined == layer] = into
            sizes[into] += sizes[layer]
            between[into] += between[layer]
            between[:, into] += between[:, layer]
            between[layer] = between[:, layer] = 0
            between[into, into] = 0
            if sizes[into] >= least:
                waiting.discard(into)
    kept, number = np.unique(joined, return_inverse=True)
    return Groups(
        groups.first,
        groups.family,
        groups.is_input,
        number[groups.layer].astype(np.int32),
        groups.phase,
        tuple(groups.layers[k] for k in kept),
    )
