"""Groups of points that are drawn alike: the vertices of a family, or inputs that a family reads first; their layers.

A layer follows from the names of compute sets: the first parts of a name, as many as distinguish a stretch of the
program from all others. A part that is small beside the whole belongs to the layer that it has most links with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from codelet.draw.links import Links
from codelet.graphs.phases import phase_of, without_phase

MOST_LAYERS = 24
"""How many layers may have names of several parts."""

LayerOf = Callable[[str], str]
"""The layer of a compute set by its name, "" where it is of none."""

SMALL = 1 / 400
"""Below which share of all points a layer is no layer of its own."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of points, in columns; the points of each are a stretch of all points.

    Attributes:
        first: int64, one more than there are groups: the points of group `g` are from `first[g]` to `first[g + 1]`.
        family: int32, the place in `graph.families` of its family, or of the family that reads it first.
        is_input: bool, whether it is points that nobody wrote.
        layer: int32, the place in `layers` of its layer.
        phase: int32, the place in `PHASES` of its purpose.
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


def group_points(links: Links, layer_of: LayerOf | None = None) -> Groups:
    """The groups of the points of links.

    Args:
        links: the links.
        layer_of: the layer of a compute set by its name, "" for none; default: by the parts of names.
    """
    families = links.graph.families
    sizes = [family.num_vertices for family in families]
    changes = (np.diff(links.input_family, prepend=-1) != 0) | (np.diff(links.input_variable, prepend=-1) != 0)
    cuts = np.flatnonzero(changes)
    sizes += np.diff(np.append(cuts, len(links.input_family))).tolist()
    family = np.concatenate([np.arange(len(families)), links.input_family[cuts]]).astype(np.int32)
    names = [own.compute_set.name for own in families]
    layer, layers = _layers(names, layer_of or layers_by_name(names))
    return Groups(
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        family,
        np.arange(len(family)) >= len(families),
        np.array(layer, np.int32)[family],
        np.array([phase_of(name) for name in names], np.int32)[family],
        layers,
    )


def layers_by_name(names: Sequence[str]) -> LayerOf:
    """The layers that names tell: their first parts, as many as tell a stretch of the forward pass from all others.

    Args:
        names: of compute sets, in the order of the program.

    Returns:
        The layer of a name, "" where it is of none.
    """
    paths = [_parts(name) for name in names if phase_of(name) == 0]
    chosen: set[tuple[str, ...]] = set()
    for depth in range(1, 1 + max(map(len, paths), default=0)):
        runs = [key for key, _ in groupby(path[:depth] for path in paths)]
        once = {key for key, count in Counter(runs).items() if count == 1}
        chosen |= {key for key in once if not any(key[:k] in chosen for k in range(1, depth))}

    def layer_of(name: str) -> str:
        path = _parts(name)
        return next(("/".join(path[:k]) for k in range(1, 1 + len(path)) if path[:k] in chosen), "")

    return layer_of


def _parts(name: str) -> tuple[str, ...]:
    return tuple(without_phase(name))


def _layers(names: Sequence[str], layer_of: LayerOf) -> tuple[list[int], tuple[str, ...]]:
    """The layer of each compute set, and the layers' names; a point without one is a group by itself, without a name.

    A name that comes again in the forward pass after others is that of no layer: it is of a kind.
    """
    given = _shortened([layer_of(name) for name in names])
    forward = [layer for layer, name in zip(given, names, strict=True) if layer and phase_of(name) == 0]
    runs = Counter(layer for layer, _ in groupby(forward))
    places: dict[object, int] = {}
    layers, found = [], []
    for number, layer in enumerate(given):
        key = layer if layer and runs[layer] <= 1 else number
        if key not in places:
            places[key] = len(layers)
            layers.append(layer if key is layer else "")
        found.append(places[key])
    return found, tuple(layers)


def _shortened(layers: Sequence[str]) -> list[str]:
    """Names of layers, of as many parts as leave no more than `MOST_LAYERS` of them."""
    paths = [layer.split("/") for layer in layers]
    cut = lambda depth: ["/".join(path[:depth]) for path in paths]  # noqa: E731
    depths = range(max(map(len, paths), default=1), 1, -1)
    return next((own for own in map(cut, depths) if len(set(own)) <= MOST_LAYERS), cut(1))


def with_small_layers_joined(groups: Groups, weights: np.ndarray) -> Groups:
    """Groups where layers without a name, or of few points, are part of the layer that they have most links with.

    Args:
        groups: the groups.
        weights: the number of links between each two of them, symmetric, of shape (groups, groups).
    """
    count = len(groups.layers)
    between = np.zeros((count, count))
    np.add.at(between, (groups.layer[:, None], groups.layer[None, :]), weights)
    np.fill_diagonal(between, 0)
    sizes = np.bincount(groups.layer, groups.sizes, count)
    named = np.array([bool(name) for name in groups.layers])
    least = SMALL * sizes.sum()
    joined = np.arange(count)
    # The smallest first, and what comes of two is as large as both.
    waiting = {layer for layer in range(count) if sizes[layer] < least or not named[layer]}
    while waiting:
        layer = min(waiting, key=lambda own: (sizes[own], own))
        waiting.remove(layer)
        if between[layer].any():
            # Of two without a name, or with one, either may be joined to the other.
            into = int(between[layer].argmax())
            joined[joined == layer] = into
            sizes[into] += sizes[layer]
            between[into] += between[layer]
            between[:, into] += between[:, layer]
            between[layer] = between[:, layer] = 0
            between[into, into] = 0
            if named[into] and sizes[into] >= least:
                waiting.discard(into)
    kept, number = np.unique(joined, return_inverse=True)
    layers = tuple(groups.layers[k] for k in kept)
    return replace(groups, layer=number[groups.layer].astype(np.int32), layers=layers)
