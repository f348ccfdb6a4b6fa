"""Text on a picture: names beside the things they name, with leaders, none over another; a title, and a caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.draw.layout import Layout
from codelet.draw.libraries import need
from codelet.draw.names import SMALLER, Name, Seen, names_seen

LETTER = 64 / 4096
"""The height of a layer's name, as a share of the picture's side."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""

_EDGE = 40 / 4096
_DIRECTIONS = np.radians(np.arange(0, 360, 22.5))
_TURNS = np.radians([0, 20, -20, 45, -45, 75, -75])
_REACHES = np.array([1.6, 2.6, 4, 6, 9, 13])
_CELLS = 128
_POINTS = 400_000
_MOST_POINTS = 4000
_SWEEPS = 3
_FURTHEST = 30.0
"""At which cost a name within a layer is left off."""


class Label(NamedTuple):
    """Where a name stands: its box, and its leader from the named thing to the box, in pixels."""

    text: str
    layer: int
    is_layer: bool
    height: float
    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]]


class _LabelPlaces(NamedTuple):
    """Places that a name may have, in rows: its box, the leader's start and tip, and the cost but for other names."""

    boxes: np.ndarray
    starts: np.ndarray
    tips: np.ndarray
    costs: np.ndarray


def font(height: float) -> Any:
    """A font of a height in pixels: the one that matplotlib brings, so that pictures are the same everywhere."""
    directory = need("matplotlib").get_data_path()
    return need("PIL.ImageFont").truetype(f"{directory}/fonts/ttf/DejaVuSans.ttf", max(6, round(height)))


class _Crowd:
    """How many points lie where: names stand where there are few, and leaders begin where most are those named."""

    def __init__(self, points: np.ndarray, side: int):
        self._scale = _CELLS / side
        self._counts = self._histogram(points * side)
        total = np.zeros((_CELLS + 1, _CELLS + 1))
        # As if there were as many points in every picture.
        total[1:, 1:] = np.log1p(self._counts * (_POINTS / max(1, len(points)))).cumsum(axis=0).cumsum(axis=1)
        self._total = total

    def _cells(self, place: np.ndarray) -> np.ndarray:
        return np.clip((place * self._scale).astype(int), 0, _CELLS - 1)

    def _histogram(self, place: np.ndarray) -> np.ndarray:
        x, y = self._cells(place).T
        return np.bincount(y * _CELLS + x, minlength=_CELLS**2).reshape(_CELLS, _CELLS)

    def under(self, boxes: np.ndarray) -> np.ndarray:
        """The mean of the logarithm of the points in the cells of each box."""
        (left, top), (right, bottom) = self._cells(boxes[:, :2]).T, self._cells(boxes[:, 2:]).T + 1
        total = self._total
        whole = total[bottom, right] - total[top, right] - total[bottom, left] + total[top, left]
        return whole / ((right - left) * (bottom - top))

    def strangers(self, points: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of the points about each place, the share that is not of those given, of which not all need be there."""
        x, y = self._cells(places).T
        own = self._histogram(points)[y, x] / max(1, len(points))
        others = self._counts[y, x] / max(1, self._counts.sum())
        return 1 - own / np.maximum(own + others, 1e-30)


def _outermost(points: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """In each of the directions from the middle, the outermost part of some points: of shape (directions, 2)."""
    towards = np.stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)])
    along = (points - middle) @ towards
    across = np.abs((points - middle) @ np.stack([-towards[1], towards[0]]))
    outer = np.argsort(across * 0.9 - along, axis=0, kind="stable")[: max(1, len(points) // 300)]
    return np.median(points[outer], axis=0)


def _places(name: Name, side: int, height: float, crowd: _Crowd) -> _LabelPlaces:
    """The places that a name may have, about the outermost of its points in all directions."""
    points = name.points[:: max(1, len(name.points) // _MOST_POINTS)] * side
    middle = np.median(points, axis=0)
    anchors = _outermost(points, middle)
    away = middle - side / 2
    off_centre, spread = float(np.hypot(*away)), float(np.median(np.hypot(*(points - middle).T)))
    # What lies at a side of the picture is named from outside, what lies in the middle from anywhere.
    preferred = np.arctan2(away[1], away[0]) if off_centre > 1e-6 else -np.pi / 2
    sidedness = off_centre / max(1e-9, off_centre + spread)
    turned = np.abs((_DIRECTIONS - preferred + np.pi) % (2 * np.pi) - np.pi)
    wrong = 4 * sidedness * turned + 3 * crowd.strangers(points, anchors)
    direction, turn, reach = (
        own.reshape(-1) for own in np.meshgrid(np.arange(len(_DIRECTIONS)), _TURNS, _REACHES, indexing="ij")
    )
    towards = np.stack([np.cos(_DIRECTIONS[direction] + turn), np.sin(_DIRECTIONS[direction] + turn)], 1)
    tips = anchors[direction] + towards * (reach * height)[:, None]
    left, top, right, bottom = font(height).getbbox(name.text)
    extent = np.array([right - left, bottom - top])
    # The side of the box that looks at the points touches the leader's tip.
    corner = tips - extent * (0.5 - 0.5 * np.clip(towards * 1.6, -1, 1))
    corner = np.clip(corner, _EDGE * side, np.maximum(_EDGE * side, side * (1 - _EDGE) - extent))
    room = 0.25 * height
    boxes = np.concatenate([corner - room, corner + extent + room], axis=1)
    starts = anchors[direction] + towards * 0.2 * height
    tips = np.clip(starts, boxes[:, :2], boxes[:, 2:])
    length = np.hypot(*(tips - starts).T) / height
    costs = length + 3 * np.abs(turn) + wrong[direction] + 4 * crowd.under(boxes)
    # A name over the place that it names hides it.
    costs[length < 0.5] += 10
    return _LabelPlaces(boxes, starts, tips, costs)


def overlap(boxes: np.ndarray, box: Any) -> np.ndarray:
    """Which of some boxes lie over another."""
    left, top, right, bottom = boxes.T
    return (left < box[2]) & (box[0] < right) & (top < box[3]) & (box[1] < bottom)


def cross(starts: np.ndarray, tips: np.ndarray, start: Any, tip: Any) -> np.ndarray:
    """Which of some lines cross another."""

    def side(a: np.ndarray, b: np.ndarray, of: np.ndarray) -> np.ndarray:
        one, two = b - a, of - a
        return np.sign(one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0])

    start, tip = np.asarray(start), np.asarray(tip)
    apart = side(starts, tips, start) * side(starts, tips, tip) < 0
    return apart & (side(start, tip, starts) * side(start, tip, tips) < 0)


def _through(starts: np.ndarray, tips: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Which lines go through boxes, row by row."""
    left, top, right, bottom = boxes.T
    one, other = np.stack([left, top], -1), np.stack([right, bottom], -1)
    two, last = np.stack([right, top], -1), np.stack([left, bottom], -1)
    return cross(one, other, starts, tips) | cross(two, last, starts, tips)


def _disturbed(places: _LabelPlaces, label: Label, height: float) -> np.ndarray:
    """The cost of each place because of another name that stands where it does; infinite where one would lie over the
    other.
    """
    box, start, tip = np.array(label.box), np.array(label.leader[0]), np.array(label.leader[1])
    apart = np.hypot(*((places.boxes[:, :2] + places.boxes[:, 2:] - box[:2] - box[2:]) / 2).T)
    costs = 2 * np.exp(-apart / (4 * height)) + 12 * cross(places.starts, places.tips, start, tip)
    costs += 12 * _through(places.starts, places.tips, box) + 12 * _through(start, tip, places.boxes)
    costs[overlap(places.boxes, box)] = np.inf
    return costs


def place_labels(seen: Seen, side: int, taken: Sequence[Box] = ()) -> list[Label]:
    """A place for every name: of layers the largest first, then again each among all the others; any other name that
    has room.

    Args:
        seen: the names, and the points that they stand among.
        side: of the picture, in pixels.
        taken: boxes that are kept free.
    """
    crowd = _Crowd(seen.points, side)
    layers = letter_height([name.text for name in seen.names if name.is_layer], side)
    within = SMALLER * letter_height([name.text for name in seen.names if not name.is_layer], side)
    heights = [layers if name.is_layer else min(within, SMALLER * layers) for name in seen.names]
    choices = [_places(name, side, height, crowd) for name, height in zip(seen.names, heights, strict=True)]
    for choice in choices:
        for box in taken:
            choice.costs[overlap(choice.boxes, box)] = np.inf
    found: dict[int, Label] = {}
    for sweep in range(_SWEEPS):
        for number, (name, height, choice) in enumerate(zip(seen.names, heights, choices, strict=True)):
            others = [_disturbed(choice, found[other], height) for other in found if other != number]
            costs = choice.costs + sum(others, np.zeros(len(choice.costs)))
            best = int(costs.argmin())
            if costs[best] < (np.inf if name.is_layer else _FURTHEST):
                leader = tuple(choice.starts[best].tolist()), tuple(choice.tips[best].tolist())
                found[number] = Label(
                    name.text, name.layer, name.is_layer, height, tuple(choice.boxes[best].tolist()), leader
                )
            elif sweep:
                found.pop(number, None)
    return [found[number] for number in sorted(found)]


def letter_height(names: Sequence[str], side: int) -> float:
    """The height of names, in pixels: less where one would be longer than a third of the side."""
    longest = max((font(LETTER * side).getlength(name) for name in names), default=0.0)
    return LETTER * side * min(1.0, side / 3 / max(1.0, longest))


def write_labels(
    picture: Any,
    layout: Layout,
    window: Sequence[float],
    title: str,
    about: str,
    *,
    ink: tuple[int, int, int],
    ground: tuple[int, int, int],
) -> list[Label]:
    """Write names, a title and the caption on a picture of PIL, and say where the names stand."""
    side = picture.size[0]
    pen = need("PIL.ImageDraw").Draw(picture, "RGBA")
    large, small = 96 / 4096 * side, 44 / 4096 * side
    x, edge = 90 / 4096 * side, side - 90 / 4096 * side
    line = font(small).getbbox(about)
    top = font(large).getbbox(title or " ")
    y_about = edge - line[3]
    y_title = y_about - 0.35 * (top[3] - top[1]) - top[3]
    written = [(x, y_about + line[1], x + line[2], edge)] if about else []
    if title:
        written.append((x, y_title + top[1], x + top[2], y_title + top[3]))
    labels = place_labels(names_seen(layout, window), side, written)

    def write(text: str, where: tuple[float, float], height: float, opaque: int) -> None:
        letters = font(height)
        # Letters over what is bright have a rim.
        rim = {"stroke_width": max(1, round(height / 10)), "stroke_fill": (*ground, 220)}
        pen.text(where, text, font=letters, fill=(*ink, 0), **rim)
        pen.text(where, text, font=letters, fill=(*ink, opaque))

    for label in labels:
        pen.line(label.leader, fill=(*ink, 120), width=max(1, round(3 / 4096 * side)))
    for label in labels:
        room = 0.25 * label.height
        left, above, _, _ = font(label.height).getbbox(label.text)
        write(label.text, (label.box[0] + room - left, label.box[1] + room - above), label.height, 235)
    write(title, (x, y_title), large, 235)
    write(about, (x, y_about), small, 200)
    return labels
