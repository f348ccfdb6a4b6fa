"""Which colour each point has: classes of points, and the words of the legend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from codelet.draw.colours import KIND_SHIFTS, class_colours, ramp, shades
from codelet.draw.groups import Groups
from codelet.draw.links import Links
from codelet.errors import DrawError
from codelet.graphs.phases import PHASES
from codelet.graphs.vertex_cycles import family_cycles

KINDS = ("layer", "codelet", "tile", "cycles")
"""What may be told apart by colour."""

STEPS = 32
"""How many colours tiles, and cycles, have."""


@dataclass(frozen=True, eq=False)
class Colouring:
    """Classes of points of one colour each.

    Attributes:
        which: uint16, the class of every point.
        of_links: uint16, for each class the one whose colour links have at its points.
        layer: int32, the layer of each class, or the group that stands for one: links between two of them are tracts.
        colours: float32 of shape (classes, 3), linear sRGB.
        legend: the name and class of each colour, in order.
    """

    which: np.ndarray
    of_links: np.ndarray
    layer: np.ndarray
    colours: np.ndarray
    legend: tuple[tuple[str, int], ...]

    @property
    def links_which(self) -> np.ndarray:
        """The class of the links at every point, uint16."""
        return self.of_links[self.which]


def colour_by(
    kind: str, links: Links, groups: Groups, tile: np.ndarray | None = None, *, style: str, palette: str
) -> Colouring:
    """The classes of points by layer, codelet, tile or cycles.

    Args:
        kind: one of `KINDS`.
        links: the links.
        groups: the groups of the points.
        tile: as `tiles_of` gives it; needed where tiles are distinguished.
        style: "dark" or "light".
        palette: "hue" or "colour-blind".
    """
    families = links.graph.families
    if kind == "layer":
        phases, kinds = len(PHASES), len(KIND_SHIFTS)
        own = (groups.layer * phases + groups.phase) * kinds + _kind_of_groups(links, groups)
        colours = class_colours(len(groups.layers), phases, style, palette, kinds)
        legend = [(name or "others", place * phases * kinds) for place, name in enumerate(groups.layers)]
        layer = np.repeat(np.arange(len(groups.layers)), phases * kinds)
        # A pass over many links for each kind would take long, and would hardly be seen.
        of_links = np.arange(len(colours)) // kinds * kinds
        return _colouring(_by_group(own, groups), layer, colours, legend, of_links)
    if kind == "codelet":
        names = sorted({family.codelet.name for family in families})
        own = np.array([names.index(family.codelet.name) for family in families], np.int32)[groups.family]
        # Codelets are told apart by colour, tracts by layer: a class for each pair that there is.
        pairs, which = np.unique(np.stack([own, groups.layer]), axis=1, return_inverse=True)
        colours = class_colours(len(names), 1, style, palette)[pairs[0]]
        legend = [(name, int(np.flatnonzero(pairs[0] == place)[0])) for place, name in enumerate(names)]
        return _colouring(_by_group(which.reshape(-1), groups), pairs[1], colours, legend)
    values = tile if kind == "tile" else cycles_of(links)
    assert values is not None
    return _by_number(kind, links, groups, values, style, palette)


def _by_number(kind: str, links: Links, groups: Groups, values: np.ndarray, style: str, palette: str) -> Colouring:
    """Classes of tiles, or of cycles by their logarithm; points without one are grey."""
    known = values >= 0
    scale = np.log1p(values) if kind == "cycles" else values.astype(float)
    low, high = (scale[known].min(), scale[known].max()) if known.any() else (0.0, 1.0)
    step = np.clip((scale - low) / max(high - low, 1e-9) * STEPS, 0, STEPS - 1).astype(np.int64)
    number = np.full(links.num_points, STEPS, np.int64)
    number[: links.num_vertices] = np.where(known, step, STEPS)
    layer = np.repeat(groups.layer, groups.sizes)
    pairs, which = np.unique(number * len(groups.layers) + layer, return_inverse=True)
    step_of, layer_of = np.divmod(pairs, len(groups.layers))
    colours = np.concatenate([ramp(STEPS, style) if kind == "cycles" else shades(STEPS, style, palette), [[0.2] * 3]])
    ends = [(0, low), (STEPS // 2, (low + high) / 2), (STEPS - 1, high)]
    text = lambda value: f"{np.expm1(value):,.0f} cycles" if kind == "cycles" else f"tile {value:,.0f}"  # noqa: E731
    legend = [
        (text(value), int(np.flatnonzero(step_of == place)[0])) for place, value in ends if (step_of == place).any()
    ]
    return _colouring(which.astype(np.uint16), layer_of, colours[step_of], legend)


def _kind_of_groups(links: Links, groups: Groups) -> np.ndarray:
    """The kind of each group, a place in `KIND_SHIFTS`: of a layer's codelets in a phase those with the most vertices.

    The last is of points that nobody wrote, the last but one of all codelets without a class.
    """
    families = links.graph.families
    counts: dict[tuple[int, int], dict[str, int]] = {}
    where = [(int(layer), int(phase)) for layer, phase in zip(groups.layer, groups.phase, strict=True)]
    for family, place, size in zip(families, where, groups.sizes.tolist(), strict=False):
        own = counts.setdefault(place, {})
        own[family.codelet.name] = own.get(family.codelet.name, 0) + size
    ranked = {place: sorted(own, key=lambda name: -own[name]) for place, own in counts.items()}
    most = len(KIND_SHIFTS) - 1
    kinds = [
        min(ranked[place].index(family.codelet.name), most - 1) for family, place in zip(families, where, strict=False)
    ]
    return np.array(kinds + [most] * (len(where) - len(kinds)), np.int64)


def _colouring(
    which: np.ndarray,
    layer: np.ndarray,
    colours: np.ndarray,
    legend: list[tuple[str, int]],
    of_links: np.ndarray | None = None,
) -> Colouring:
    """Classes of points, and of links as well where no others are given."""
    of_links = np.arange(len(colours)) if of_links is None else of_links
    types = layer.astype(np.int32), colours.astype(np.float32)
    return Colouring(which, of_links.astype(np.uint16), *types, tuple(legend))


def _by_group(own: np.ndarray, groups: Groups) -> np.ndarray:
    return np.repeat(own.astype(np.uint16), groups.sizes)


def highlighted(colouring: Colouring, pattern: str, links: Links, groups: Groups) -> Colouring:
    """Colours of the parts that a pattern names, as before; of all else grey and a little of them.

    Args:
        colouring: the classes.
        pattern: for names of compute sets, in which `*` stands for anything.
        links: the links.
        groups: the groups of the points.

    Raises:
        DrawError: no compute set has such a name.
    """
    names = [family.compute_set.name for family in links.graph.families]
    wanted = np.array([fnmatchcase(name, pattern) for name in names], bool)
    if not wanted.any():
        raise DrawError(
            "a highlight names no compute set",
            given=repr(pattern),
            expected="a name, or a pattern such as 'conv2/*', of " + ", ".join(names[:8]) + ", ..." * (len(names) > 8),
        )
    classes = len(colouring.colours)
    dim = 0.06 * colouring.colours.mean(axis=1, keepdims=True) + 0.02 * colouring.colours
    which = colouring.which + np.repeat(np.where(wanted[groups.family], 0, classes), groups.sizes).astype(np.uint16)
    return replace(
        colouring,
        which=which,
        of_links=np.concatenate([colouring.of_links, colouring.of_links + classes]).astype(np.uint16),
        layer=np.concatenate([colouring.layer, colouring.layer]),
        colours=np.concatenate([colouring.colours, dim]).astype(np.float32),
    )


def cycles_of(links: Links) -> np.ndarray:
    """The cycles of every vertex alone on its tile, int64."""
    target = links.graph.target
    found = [np.zeros(0, np.int64)]
    for family in links.graph.families:
        cycles = family_cycles(family, target)
        found.append(cycles.of_each(family.num_vertices, lambda own: own.tile_cycles(target.num_workers)))
    return np.concatenate(found)
