"""Text on a picture: the layers' names beside them, with leaders, none over another; a title, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.draw.layout import Layout
from codelet.draw.libraries import need

LETTER = 64 / 4096
"""The height of a layer's name, as a share of the picture's side."""
_EDGE = 40 / 4096
_SAMPLE = 400_000


class Label(NamedTuple):
    """Where a name stands: its box, left, top, right, bottom, and its leader from the layer to the box, in pixels."""

    text: str
    box: tuple[float, float, float, float]
    leader: tuple[tuple[float, float], tuple[float, float]]


def font(height: float) -> Any:
    """A font of a height in pixels: the one that matplotlib brings, so that pictures are the same everywhere."""
    directory = need("matplotlib").get_data_path()
    return need("PIL.ImageFont").truetype(f"{directory}/fonts/ttf/DejaVuSans.ttf", max(6, round(height)))


def _apart(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def _anchor(points: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The outermost part of some points, seen from a centre, and the direction that it lies in."""
    middle = np.median(points, axis=0)
    away = middle - centre
    length = float(np.hypot(*away))
    away = away / length if length > 1e-6 else np.array([0.0, -1.0])
    along = (points - middle) @ away
    across = np.abs((points - middle) @ np.array([-away[1], away[0]]))
    score = along - 0.9 * across
    outer = np.argsort(score, kind="stable")[-max(1, len(score) // 300) :]
    return np.median(points[outer], axis=0), away


def place_labels(layout: Layout, side: int, taken: Sequence[tuple[float, float, float, float]] = ()) -> list[Label]:
    """A place for the name of every layer that has one: the largest first, each as near as is free.

    Args:
        layout: the layout.
        side: of the picture, in pixels.
        taken: boxes that are kept free.
    """
    groups = layout.groups
    height = letter_height(layout, side)
    letters = font(height)
    stride = max(1, len(layout.place) // _SAMPLE)
    points = layout.place[::stride] * side
    layer = np.repeat(groups.layer, groups.sizes)[::stride]
    counts = np.bincount(layer, minlength=len(groups.layers))
    # How many points lie in cells of the picture: names stand where there are few.
    cells = 128
    cell = np.clip((points / side * cells).astype(int), 0, cells - 1)
    crowd = np.zeros((cells, cells))
    np.add.at(crowd, (cell[:, 1], cell[:, 0]), 1)
    crowd = np.log1p(crowd)
    centre = np.full(2, side / 2)
    boxes = list(taken)
    found = []
    for own in np.argsort(-counts, kind="stable"):
        name = groups.layers[own]
        if not counts[own] or not name:
            continue
        anchor, away = _anchor(points[layer == own], centre)
        left, top, right, bottom = letters.getbbox(name)
        width, tall = right - left, bottom - top
        best = None
        for turn in np.radians([0, 15, -15, 30, -30, 50, -50, 75, -75, 105, -105, 140, -140, 180]):
            towards = np.array(
                [away[0] * np.cos(turn) - away[1] * np.sin(turn), away[0] * np.sin(turn) + away[1] * np.cos(turn)]
            )
            for reach in (1.6, 2.6, 4, 6, 9):
                tip = anchor + towards * reach * height
                # The box touches the leader's tip with the side that looks at the layer.
                x = tip[0] - width * (0.5 - 0.5 * np.clip(towards[0] * 1.6, -1, 1))
                y = tip[1] - tall * (0.5 - 0.5 * np.clip(towards[1] * 1.6, -1, 1))
                x = float(np.clip(x, _EDGE * side, max(_EDGE * side, side * (1 - _EDGE) - width)))
                y = float(np.clip(y, _EDGE * side, max(_EDGE * side, side * (1 - _EDGE) - tall)))
                room = 0.25 * height
                box = (x - room, y - room, x + width + room, y + tall + room)
                if all(_apart(box, other) for other in boxes):
                    scale = cells / side
                    under = crowd[
                        max(0, int(box[1] * scale)) : int(box[3] * scale) + 1,
                        max(0, int(box[0] * scale)) : int(box[2] * scale) + 1,
                    ]
                    cost = reach + 3 * abs(turn) + 2.5 * float(under.mean())
                    if best is None or cost < best[0]:
                        start = anchor + towards * 0.2 * height
                        best = cost, Label(name, box, ((start[0], start[1]), (tip[0], tip[1])))
        if best is not None:
            boxes.append(best[1].box)
            found.append(best[1])
    return found


def letter_height(layout: Layout, side: int) -> float:
    """The height of the layers' names, in pixels: less where one would be longer than a third of the side."""
    longest = max((font(LETTER * side).getlength(name) for name in layout.groups.layers), default=0.0)
    return LETTER * side * min(1.0, side / 3 / max(1.0, longest))


def write_labels(picture: Any, layout: Layout, title: str, counts: str, *, ink: tuple[int, int, int]) -> list[Label]:
    """Write names, a title and counts on a picture of PIL, and say where the names stand."""
    side = picture.size[0]
    pen = need("PIL.ImageDraw").Draw(picture, "RGBA")
    large, small = font(96 / 4096 * side), font(44 / 4096 * side)
    x, edge = 90 / 4096 * side, side - 90 / 4096 * side
    line = small.getbbox(counts)
    top = large.getbbox(title or " ")
    y_counts = edge - line[3]
    y_title = y_counts - 0.35 * (top[3] - top[1]) - top[3]
    written = [(x, y_counts + line[1], x + line[2], edge)] if counts else []
    if title:
        written.append((x, y_title + top[1], x + top[2], y_title + top[3]))
    labels = place_labels(layout, side, written)
    height = letter_height(layout, side)
    letters = font(height)
    for label in labels:
        pen.line(label.leader, fill=(*ink, 120), width=max(1, round(3 / 4096 * side)))
        left, above, _, _ = letters.getbbox(label.text)
        room = 0.25 * height
        where = label.box[0] + room - left, label.box[1] + room - above
        pen.text(where, label.text, font=letters, fill=(*ink, 235))
    if title:
        pen.text((x, y_title), title, font=large, fill=(*ink, 235))
    if counts:
        pen.text((x, y_counts), counts, font=small, fill=(*ink, 200))
    return labels
