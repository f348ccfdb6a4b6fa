"""Where the points of a picture lie: by levels, from the groups to every point, by the forces of links.

Compute sets start on an arc, in the order of the layers, the phases at different radii, and find their places by many
cheap steps. Stretches of their points start there and find theirs; those of a mesh start unfolded. Points start in
small discs about their stretches, and move two steps among all the others: more of those would flatten the detail.

Nothing is random: places that look random follow the golden angle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codelet.draw.coarse import CoarseGraph, coarsen
from codelet.draw.forces import Mesh, attract_links, attract_pairs, step
from codelet.draw.groups import Groups, LayerOf, group_points, with_small_layers_joined
from codelet.draw.libraries import SHARES, compiled, shares_of, side_by_side
from codelet.draw.links import Links
from codelet.draw.unfolded import unfolded

ARC = np.radians(300)
REPULSION = 0.5
OPEN, PACKED = 0.03, 0.3
SHIFT = 0.7
"""How far groups that are parts of one mesh are shifted, of what groups are apart."""
MOST_FORCES = 1 << 27
"""At how many links the forces on single points are summed over a regular sample of the links."""
_GOLDEN = math.pi * (3 - math.sqrt(5))


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """Where the points of links lie.

    Attributes:
        links: the links.
        groups: the groups of the points.
        tile: of every vertex, as `tiles_of` gives it.
        place: float32 of shape (points, 2), in a square from 0 to 1; y grows downwards.
    """

    links: Links
    groups: Groups
    tile: np.ndarray | None
    place: np.ndarray

    def __repr__(self) -> str:
        return f"<Layout of {len(self.place):,} points and {self.links.num_links:,} links>"


def lay_out(
    links: Links,
    gravity: float = 0.1,
    note: Callable[[str], None] = lambda stage: None,
    layer_of: LayerOf | None = None,
    tile: np.ndarray | None = None,
) -> Layout:
    """The layout of links.

    Args:
        links: the links to lay out.
        gravity: how strongly all is held together in the end, from `OPEN` to `PACKED`.
        note: called with the name of each stage.
        layer_of: as `group_points` takes it.
        tile: as `tiles_of` gives it: vertices of near tiles lie together.
    """
    note("place layers")
    groups = group_points(links, layer_of)
    coarse = coarsen(links, groups, tile)
    between = _by_group(coarse, len(groups.sizes))
    groups = with_small_layers_joined(groups, between)
    centres = _place_groups(groups, coarse, between)
    note("place stretches")
    nodes = _place_nodes(coarse, centres, gravity)
    note("place vertices")
    place = _expand(coarse, nodes)
    del coarse
    _refine(links, place, gravity)
    low, high = np.percentile(place[:: max(1, len(place) // 200_000)], [0.02, 99.98], axis=0)
    side = float((high - low).max()) * (1 + 2 * MARGIN) or 1.0
    place -= ((low + high) / 2).astype(np.float32)
    place *= np.float32(1 / side)
    place += np.float32(0.5)
    np.clip(place, 0, np.nextafter(np.float32(1), np.float32(0)), out=place)
    return Layout(links, groups, tile, place)


MARGIN = 0.09
"""The share of the picture's side left free on each side."""


def _by_group(coarse: CoarseGraph, count: int) -> np.ndarray:
    """The number of links between each two groups, symmetric."""
    weights = np.zeros((count, count))
    np.add.at(weights, (coarse.group[coarse.source], coarse.group[coarse.target]), coarse.weight)
    return weights + weights.T


def _walk(
    place: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray, np.ndarray],
    mass: np.ndarray,
    *,
    steps: int,
    mesh: int,
    gravity: tuple[float, float],
    longest: tuple[float, float],
) -> np.ndarray:
    """Places after steps that grow shorter while gravity grows, on meshes that grow as fine as steps are short."""
    place = np.ascontiguousarray(place, np.float32)
    finest = _fine_enough(len(place), mesh)
    grid, pulls = Mesh(mesh_of_step(finest, longest[0] / longest[1])), np.zeros((SHARES, len(place), 2), np.float32)
    mass = mass.astype(np.float32)
    for turn in range(steps):
        share = turn / max(1, steps - 1)
        size = mesh_of_step(finest, (longest[0] / longest[1]) ** (1 - share))
        if size != grid.size:
            grid = Mesh(size)
        pulls[:] = 0
        side_by_side(
            lambda own: attract_pairs(place, *ends, *own[0], own[1]),
            zip(shares_of(len(ends[0])), pulls, strict=True),
        )
        step(
            place,
            pulls,
            mass,
            grid,
            repulsion=REPULSION / max(1.0, float(mass.sum())),
            gravity=gravity[0] * (gravity[1] / gravity[0]) ** share,
            longest=longest[0] * (longest[1] / longest[0]) ** share,
        )
    return place


def _fine_enough(count: int, most: int) -> int:
    """The size of a mesh whose cells are not much larger than the area of the picture that a point has; at
    most `most`.
    """
    return min(most, max(64, 1 << int(np.ceil(np.log2(2 * np.sqrt(count) + 1)))))


def mesh_of_step(finest: int, long: float) -> int:
    """The size of a mesh for steps that are `long` times as long as the last: `finest` for that, at least 64.

    Against a step its cells are no wider than those of the finest against the last step. Where points end differs
    from a walk on the finest mesh alone by 0 to 5 % of the side in the median, of five graphs.
    """
    return min(finest, max(64, 1 << int(np.ceil(np.log2(finest / long) - 1e-6))))


def _place_groups(groups: Groups, coarse: CoarseGraph, weights: np.ndarray) -> np.ndarray:
    """A place for each group."""
    mass = np.bincount(coarse.group, coarse.degree, len(groups.sizes))
    # Layers take of the arc what they have of the links' square root, so that small ones are not lost.
    share = np.sqrt(np.bincount(groups.layer, mass, len(groups.layers)) + 1)
    middle = (np.cumsum(share) - share / 2) / share.sum()
    angle = np.pi / 2 + (2 * np.pi - ARC) / 2 + ARC * middle[groups.layer]
    radius = 1 + 0.25 * groups.phase + 0.1 * groups.is_input
    # Apart from each other, since what lies on one spot is never parted.
    apart = 0.02 * np.sqrt(np.arange(len(mass)) / max(1, len(mass)))
    spin = np.arange(len(mass)) * _GOLDEN
    start = np.stack([radius * np.cos(angle) + apart * np.cos(spin), radius * np.sin(angle) + apart * np.sin(spin)], 1)
    source, target = np.nonzero(np.triu(weights, 1))
    ends = source.astype(np.int32), target.astype(np.int32), weights[source, target].astype(np.float32)
    walk = lambda own: _walk(own, ends, mass, steps=250, mesh=128, gravity=(0.005, 0.005), longest=(0.15, 0.01))  # noqa: E731
    # By one thread: steps of so few points take less time than two threads take to begin.
    return side_by_side(walk, [start])[0]


def _place_nodes(coarse: CoarseGraph, centres: np.ndarray, gravity: float) -> np.ndarray:
    """A place for each node, from those of the groups on."""
    ends = coarse.source, coarse.target, coarse.weight
    spread = float(centres.std()) or 1.0
    mesh = unfolded(coarse)
    if mesh is not None:
        # Groups over each other, each shifted to where it belongs, as sheets of glass; long steps would crumple them.
        start = spread * mesh + SHIFT * (centres - centres.mean(axis=0))[coarse.group]
        longest = 0.01 * spread, 0.003 * spread
        return _walk(start, ends, coarse.degree, steps=60, mesh=512, gravity=(gravity, gravity), longest=longest)
    begins = np.searchsorted(coarse.group, np.arange(len(centres)))
    within = np.arange(coarse.num_nodes) - begins[coarse.group]
    counts = np.bincount(coarse.group, minlength=len(centres))[coarse.group]
    start = centres[coarse.group] + 0.1 * spread * _disc(within, counts)
    longest = 0.15 * spread, 0.01 * spread
    return _walk(start, ends, coarse.degree, steps=200, mesh=512, gravity=(0.005, gravity), longest=longest)


def _disc(number: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The places of some of `count` points each, evenly in the unit disc, by the golden angle."""
    radius = np.sqrt((number + 0.5) / count)
    return np.stack([radius * np.cos(number * _GOLDEN), radius * np.sin(number * _GOLDEN)], 1).astype(np.float32)


@compiled
def _scatter(
    node: np.ndarray, order: np.ndarray, centre: np.ndarray, radius: np.ndarray, size: np.ndarray, place: np.ndarray
) -> None:
    """Put points into discs about their nodes, node by node in the order of `CoarseGraph.order`."""
    number = 0
    before = -1
    for n in range(len(node)):
        point = order[n] if n < len(order) else n
        own = node[point]
        number = number + 1 if own == before else 0
        before = own
        r = radius[own] * np.sqrt((number + 0.5) / size[own])
        place[point, 0] = centre[own, 0] + r * np.cos(number * _GOLDEN)
        place[point, 1] = centre[own, 1] + r * np.sin(number * _GOLDEN)


def _expand(coarse: CoarseGraph, nodes: np.ndarray) -> np.ndarray:
    """A place for every point, in a disc about its node; all discs together take a little of the picture."""
    extent = np.ptp(np.percentile(nodes, [1, 99], axis=0), axis=0)
    radius = np.sqrt(coarse.size * float(extent.prod()) * 0.06 / (max(1, len(coarse.node)) * np.pi))
    place = np.empty((len(coarse.node), 2), np.float32)
    _scatter(coarse.node, coarse.order, nodes, radius.astype(np.float32), coarse.size, place)
    return place


def _refine(links: Links, place: np.ndarray, gravity: float, turns: int = 2) -> None:
    """Move every point among all the others, two steps."""
    mass = np.zeros(len(place), np.float32)
    mass[: links.num_vertices] = np.diff(links.first)
    _count_sources(links.source, mass)
    pulls = np.zeros((SHARES, len(place), 2), np.float32)
    grid = Mesh(_fine_enough(len(place), 2048))
    stride = -(-links.num_links // MOST_FORCES) or 1
    extent = float(np.ptp(np.percentile(place[:: max(1, len(place) // 200_000)], [1, 99], axis=0), axis=0).max())
    for _ in range(turns):
        pulls[:] = 0
        side_by_side(
            lambda own: attract_links(place, links.first, links.source, *own[0], stride, own[1]),
            zip(links.shares(SHARES), pulls, strict=True),
        )
        step(
            place,
            pulls,
            mass,
            grid,
            repulsion=REPULSION / max(1.0, float(mass.sum(dtype=np.float64))),
            gravity=gravity,
            longest=0.02 * extent,
        )


@compiled
def _count_sources(source: np.ndarray, mass: np.ndarray) -> None:
    """Add to the mass of each point the number of links that come from it."""
    for k in range(len(source)):
        mass[source[k]] += 1
