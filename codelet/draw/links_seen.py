"""The links that a window sees of a layout, as light: of many a regular sample, cut at the window's edges."""

from __future__ import annotations

import numpy as np

from codelet.draw.libraries import SHARES, compiled, summed
from codelet.draw.links import Links


@compiled
def _draw_seen(
    place: np.ndarray,
    which: np.ndarray,
    layer: np.ndarray,
    first: np.ndarray,
    source: np.ndarray,
    begin: int,
    end: int,
    stride: int,
    boost: float,
    colours: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw the links within a window, of every `stride`-th link to vertices from `begin` to `end`, each
    `stride` times.
    """
    height, width, _ = out.shape
    right = np.float32(width - 1.01)
    bottom = np.float32(height - 1.01)
    for v in range(begin, end):
        bx = place[v, 0]
        by = place[v, 1]
        for k in range(first[v] + (-first[v]) % stride, first[v + 1], stride):
            u = source[k]
            ax = place[u, 0]
            ay = place[u, 1]
            if (
                (ax < 0 and bx < 0)
                or (ay < 0 and by < 0)
                or (ax > right and bx > right)
                or (ay > bottom and by > bottom)
            ):
                continue
            dx = bx - ax
            dy = by - ay
            # From where to where of the way it is within the window. Source: Liang and Barsky (1984).
            enters = np.float32(0)
            leaves = np.float32(1)
            if dx != 0:
                enters = max(enters, min(-ax / dx, (right - ax) / dx))
                leaves = min(leaves, max(-ax / dx, (right - ax) / dx))
            if dy != 0:
                enters = max(enters, min(-ay / dy, (bottom - ay) / dy))
                leaves = min(leaves, max(-ay / dy, (bottom - ay) / dy))
            if enters > leaves:
                continue
            count = int(max(abs(dx), abs(dy))) + 1
            own = which[u]
            other = which[v]
            each = np.float32(stride / count * (boost if layer[own] != layer[other] else 1.0))
            for step in range(int(enters * count), min(int(leaves * count) + 1, count)):
                share = (step + np.float32(0.5)) / count
                x = int(ax + dx * share)
                y = int(ay + dy * share)
                if 0 <= x < width and 0 <= y < height:
                    nearer = own if share < 0.5 else other
                    for c in range(3):
                        out[y, x, c] += each * colours[nearer, c]


def draw_links_seen(
    place: np.ndarray,
    links: Links,
    which: np.ndarray,
    layer: np.ndarray,
    colours: np.ndarray,
    size: tuple[int, int],
    most: int = 1 << 25,
    boost: float = 10.0,
) -> np.ndarray:
    """The links within a window, as light; of more than `most` links a regular sample of as many.

    Args:
        place: float32 of shape (points, 2): x and y in pixels, which may lie outside.
        links: the links.
        which: the class of each point.
        layer: the layer of each class.
        colours: float32 of shape (classes, 3), linear.
        size: height and width of the window in pixels.
        most: of how many links at most.
        boost: how many times as much light links between layers give.

    Returns:
        float32 of shape (height, width, 3).
    """
    stride = -(-links.num_links // most) or 1

    def draw(share: tuple[int, int]) -> np.ndarray:
        out = np.zeros((*size, 3), np.float32)
        _draw_seen(place, which, layer, links.first, links.source, *share, stride, boost, colours, out)
        return out

    return summed(draw, links.shares(SHARES))
