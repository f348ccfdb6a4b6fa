"""The named parts of a picture, and their points: layers, phases that lie apart from their layer, compute sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from codelet.draw.layout import Layout
from codelet.graphs.phases import PHASES

SMALLER = 0.75
"""The letters of names within layers, beside those of layers."""

APART = 1.0
"""How far the middles of two phases are apart, in the sum of their spreads, if each has a name."""

_SAMPLE = 400_000
_LEAST = 1 / 200
"""Which share of the points seen a layer has that is named in a part."""
_FEW_LAYERS, _MOST_COMPUTE_SETS, _LEAST_COMPUTE_SET = 4, 8, 1 / 50


class Name(NamedTuple):
    """A name, and the kind of thing that it names.

    Attributes:
        text: the name.
        layer: the number of the layer that it is, or is of.
        points: of shape (points, 2), a regular sample of its points, in shares of the window's side.
        is_layer: whether it is a layer.
    """

    text: str
    layer: int
    points: np.ndarray
    is_layer: bool = True


class Seen(NamedTuple):
    """The names in a window, the most important first, and a sample of all its points, in shares of its side."""

    names: list[Name]
    points: np.ndarray


def names_seen(layout: Layout, window: Sequence[float]) -> Seen:
    """The names in a window: of the whole all layers, and phases that lie apart; of a part compute sets, too.

    Args:
        layout: the layout.
        window: its left and upper edge and its side, in shares of the whole's.
    """
    groups = layout.groups
    stride = max(1, int(len(layout.place) * min(1.0, window[2]) ** 2) // _SAMPLE)
    points = (layout.place[::stride] - np.array(window[:2], np.float32)) / np.float32(window[2])
    group = np.repeat(np.arange(len(groups.sizes)), groups.sizes)[::stride]
    inside = ((points >= 0) & (points < 1)).all(axis=1)
    points, group = points[inside].astype(float), group[inside]
    layer = groups.layer[group]
    counts = np.bincount(layer, minlength=len(groups.layers))
    whole = window[2] >= 1
    least = 1 if whole else max(1, _LEAST * len(points))
    order = [int(own) for own in np.argsort(-counts, kind="stable") if counts[own] >= least]
    names = [Name(groups.layers[own], own, points[layer == own]) for own in order if groups.layers[own]]
    if whole:
        names += [part for own in names for part in _phases_apart(own, groups.phase[group[layer == own.layer]])]
    elif len(order) <= _FEW_LAYERS:
        names += _compute_sets(layout, group, points)
    return Seen(names, points)


def _phases_apart(layer: Name, phase: np.ndarray) -> Iterator[Name]:
    """The phases of a layer of which each lies apart from all the others."""
    parts = {own: layer.points[phase == own] for own in np.unique(phase).tolist()}
    if len(parts) < 2:
        return
    middle = {own: np.median(part, axis=0) for own, part in parts.items()}
    spread = {own: float(np.median(np.hypot(*(part - middle[own]).T))) for own, part in parts.items()}
    for own, part in parts.items():
        others = [other for other in parts if other != own]
        if len(part) >= len(layer.points) / 20 and all(
            np.hypot(*(middle[own] - middle[other])) > APART * (spread[own] + spread[other]) for other in others
        ):
            yield Name(f"{layer.text} {PHASES[own]}", layer.layer, part, False)


def _compute_sets(layout: Layout, group: np.ndarray, points: np.ndarray) -> Iterator[Name]:
    """The largest of the compute sets seen, with the points that their vertices read first."""
    groups, families = layout.groups, layout.links.graph.families
    numbers: dict[str, int] = {}
    of_group = np.array([numbers.setdefault(families[own].compute_set.name, len(numbers)) for own in groups.family])
    own = of_group[group]
    counts = np.bincount(own, minlength=len(numbers))
    texts = list(numbers)
    for number in np.argsort(-counts, kind="stable")[:_MOST_COMPUTE_SETS].tolist():
        if counts[number] < max(1, _LEAST_COMPUTE_SET * len(points)):
            return
        member = own == number
        layer = int(groups.layer[group[member][0]])
        if texts[number] != groups.layers[layer]:
            yield Name(texts[number], layer, points[member], False)
