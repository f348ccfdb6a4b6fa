"""The data of an interactive view: a picture as a pyramid of tiles, its layers, names, and points that are named."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.draw.colouring import cycles_of
from codelet.draw.colours import to_hex
from codelet.draw.labels import place_labels
from codelet.draw.layer_light import SIDE, shares_of_light
from codelet.draw.libraries import need
from codelet.draw.names import names_seen
from codelet.graphs.phases import PHASES

if TYPE_CHECKING:
    from codelet.draw.picture import Picture

SCRIPT = "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("points.js", "view.js"))
"""What shows the data, in a page and in a notebook."""

SHEET = Path(__file__).with_name("view.css").read_text(encoding="utf-8")
"""How that looks."""

TILE = 512
"""The side of a tile in pixels."""

MOST_POINTS = 100_000
"""How many points are named at most; of more a regular sample."""

GROUNDS = {"dark": "#000000", "light": "#ffffff"}
WHOLE = (0.0, 0.0, 1.0)
"""All of a picture, as a window."""

_LABELS_SIDE = 2048


def as_webp(pixels: np.ndarray, *, lossless: bool = False) -> bytes:
    """Pixels, uint8 of shape (height, width, 3), as a file in WebP."""
    written = io.BytesIO()
    kind: dict[str, Any] = {"lossless": True} if lossless else {"quality": 88, "method": 2}
    need("PIL.Image").fromarray(np.ascontiguousarray(pixels)).save(written, "WEBP", **kind)
    return written.getvalue()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def pyramid_of(pixels: np.ndarray) -> list[dict[str, Any]]:
    """A picture in tiles, and halved until it is one tile: the smallest first, tiles by row and column."""
    image = need("PIL.Image").fromarray(pixels)
    levels = []
    while True:
        own, side = np.asarray(image), image.width
        cuts = range(0, side, TILE)
        tiles = [[_text(as_webp(own[y : y + TILE, x : x + TILE])) for x in cuts] for y in cuts]
        levels.append({"side": side, "tiles": tiles})
        if side <= TILE:
            return levels[::-1]
        image = image.resize(((side + 1) // 2,) * 2, need("PIL.Image").Resampling.BOX)


class NamedPoints:
    """The properties of points, of which a sample is described.

    Attributes:
        tile: int, the tile of every vertex, -1 where nobody says.
        cycles: float32, the cycles of each alone on its tile, -1 where nobody knows.
    """

    def __init__(self, picture: Picture):
        self.layout = picture.layout
        # The graph makes these anew whenever it is asked.
        self._families, self._variables = picture.layout.links.graph.families, picture.layout.links.graph.sources
        links = picture.layout.links
        tile = picture.layout.tile
        self.tile = np.full(links.num_vertices, -1, np.int16) if tile is None else tile
        self.cycles = cycles_of(links).astype(np.float32)

    def within(self, window: Sequence[float], most: int = MOST_POINTS) -> tuple[dict[str, Any], list[bytes]]:
        """A regular sample of the points in a window.

        Args:
            window: its left and upper edge and its side, in shares of the whole's.
            most: how many points the sample has at most.

        Returns:
            How many they are, of how many; the window; and layer, compute set, codelet, phase and, of values that
            nobody wrote, the variable, of each group of points. And columns: x and y, uint16 within the window; the
            number of the group, uint32; the tile, int32; the cycles, float32.
        """
        links, groups = self.layout.links, self.layout.groups
        low = np.array(window[:2], np.float32)
        high = low + np.float32(window[2])
        x, y = self.layout.place.T
        inside = np.flatnonzero((x >= low[0]) & (x < high[0]) & (y >= low[1]) & (y < high[1]))
        count = min(len(inside), most)
        chosen = inside[np.arange(count) * len(inside) // max(1, count)]
        own = np.searchsorted(groups.first, chosen, side="right") - 1
        used, number = np.unique(own, return_inverse=True)
        vertex = chosen < links.num_vertices
        known = np.where(vertex, chosen, 0)
        place = (self.layout.place[chosen] - low) / np.float32(window[2])
        columns = [
            *np.clip(place * 65536, 0, 65535).astype("<u2").T,
            number.astype("<u4"),
            np.where(vertex, self.tile[known], -1).astype("<i4"),
            np.where(vertex, self.cycles[known], -1).astype("<f4"),
        ]
        about = {
            "count": count,
            "of": len(inside),
            "window": [float(edge) for edge in window],
            "groups": [self._group(int(group)) for group in used],
        }
        return about, [column.tobytes() for column in columns]

    def _group(self, group: int) -> list[Any]:
        links, groups = self.layout.links, self.layout.groups
        family = self._families[groups.family[group]]
        variable = None
        if groups.is_input[group]:
            number = links.input_variable[groups.first[group] - links.num_vertices]
            variable = self._variables[number].name
        phase = PHASES[groups.phase[group]]
        return [int(groups.layer[group]), family.compute_set.name, family.codelet.name, phase, variable]


def view_of(picture: Picture, points: NamedPoints | None = None) -> dict[str, Any]:
    """All that a view of a picture shows, as JSON has it; places are shares of the picture's side."""
    about, columns = (points or NamedPoints(picture)).within(picture.window)
    layers = _layers(picture)
    return {
        "title": picture.title,
        "counts": picture.counts,
        "style": picture.style,
        "ground": GROUNDS[picture.style],
        "tile": TILE,
        "pyramid": pyramid_of(picture.pixels),
        "layers": layers,
        "key": _key(picture, [layer["name"] for layer in layers]),
        "shares": _shares(picture),
        "labels": _labels(picture),
        "points": {**about, "window": list(WHOLE), "columns": [_text(column) for column in columns]},
    }


def _layers(picture: Picture) -> list[dict[str, Any]]:
    """The name of each layer, its number of points, and its colour: the mean of those that its points have."""
    colouring, groups = picture.colouring, picture.layout.groups
    counts = np.bincount(colouring.which, minlength=len(colouring.colours))
    found = []
    for layer, name in enumerate(groups.layers):
        own = np.flatnonzero(colouring.layer == layer)
        weights = counts[own] if counts[own].any() else np.ones(len(own))
        colour = np.average(colouring.colours[own], axis=0, weights=weights) if len(own) else np.zeros(3)
        points = int(groups.sizes[groups.layer == layer].sum())
        found.append({"name": name or "others", "colour": to_hex(colour), "points": points})
    return found


def _key(picture: Picture, layers: list[str]) -> list[dict[str, str]]:
    """The property that colours show, where it is not the layer."""
    legend = picture.colouring.legend
    if [name for name, _ in legend] == layers:
        return []
    return [{"name": name, "colour": to_hex(picture.colouring.colours[own])} for name, own in legend]


def _shares(picture: Picture) -> dict[str, Any]:
    """The share of layers in the light of pixels, in sixteen
    steps: three layers in the channels of each image.
    """
    shares = shares_of_light(picture)
    images = []
    for begin in range(0, len(shares), 3):
        channels = np.zeros((SIDE, SIDE, 3), np.uint8)
        own = np.round(shares[begin : begin + 3] * 15).astype(np.uint8) * 17
        channels[..., : len(own)] = own.transpose(1, 2, 0)
        images.append(_text(as_webp(channels, lossless=True)))
    return {"side": SIDE, "images": images}


def _labels(picture: Picture) -> list[dict[str, Any]]:
    """The names and the leaders to them, as the picture has them."""
    share = lambda place: [round(float(own) / _LABELS_SIDE, 6) for own in place]  # noqa: E731
    return [
        {
            "text": label.text,
            "layer": label.layer,
            "letter": round(label.height / _LABELS_SIDE, 6),
            "start": share(label.leader[0]),
            "tip": share(label.leader[1]),
            "box": share(label.box),
        }
        for label in place_labels(names_seen(picture.layout, picture.window), _LABELS_SIDE)
    ]
