"""Points and lines as light on pixels, in linear units: a point gives its weight, a line its weight spread along it.

Lines are drawn class by class, each into one number a pixel, coloured when a class is done. Half of a line is of the
class of one end, half of that of the other. While they are drawn, pixels lie in blocks of 16 x 16 in memory, which
lines in any direction cross about alike.

Where lines are many, the long ones are drawn on coarser pixels, which are smoothly enlarged in the end: a long line of
millions is no more than a haze. Lines between the same two pixels are drawn once, as heavy as all together.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from codelet.draw.libraries import SHARES, compiled, shares_of, side_by_side, summed
from codelet.draw.links import Links

MANY = 1 << 22
"""From how many links on the long ones are drawn on coarser pixels."""

COARSE = (32, 64, 192)
"""From how many pixels on a line is long: drawn at half the resolution, at a quarter, and at an eighth."""

CHUNK = 4096
"""How many vertices are looked through together, or not at all, for lines of a class."""


@compiled
def _splat(
    place: np.ndarray,
    which: np.ndarray,
    weight: np.ndarray,
    colours: np.ndarray,
    radius: float,
    begin: int,
    end: int,
    out: np.ndarray,
) -> None:
    """Add points to the pixels around each, in parts that sum to their weight: four pixels, or a soft disc."""
    height, width, _ = out.shape
    reach = max(radius, 1.0)
    for n in range(begin, end):
        x = place[n, 0] - 0.5
        y = place[n, 1] - 0.5
        if x < -reach or y < -reach or x > width - 1 + reach or y > height - 1 + reach:
            continue
        left = int(np.ceil(x - reach))
        right = int(np.floor(x + reach))
        top = int(np.ceil(y - reach))
        bottom = int(np.floor(y + reach))
        total = 0.0
        for turn in range(2):
            for line in range(top, bottom + 1):
                for column in range(left, right + 1):
                    if radius <= 1.0:
                        part = max(0.0, 1 - abs(x - column)) * max(0.0, 1 - abs(y - line))
                    else:
                        part = max(0.0, 1 - ((x - column) ** 2 + (y - line) ** 2) / (radius * radius))
                    if turn == 0:
                        total += part
                    elif 0 <= line < height and 0 <= column < width:
                        w = np.float32(weight[n] * part / total)
                        for c in range(3):
                            out[line, column, c] += w * colours[which[n], c]


def draw_points(
    place: np.ndarray,
    which: np.ndarray,
    weight: np.ndarray,
    colours: np.ndarray,
    size: tuple[int, int],
    radius: float = 0.0,
) -> np.ndarray:
    """Points as light.

    Args:
        place: float32 of shape (points, 2): x and y in pixels.
        which: the class of each point.
        weight: float32, how much light each gives.
        colours: float32 of shape (classes, 3), linear.
        size: height and width in pixels.
        radius: of the disc that a point is, in pixels; up to 1 it is the four pixels around it.

    Returns:
        float32 of shape (height, width, 3).
    """

    def draw(share: tuple[int, int]) -> np.ndarray:
        out = np.zeros((*size, 3), np.float32)
        _splat(place, which, weight, colours, radius, *share, out)
        return out

    return summed(draw, shares_of(len(place)))


@compiled
def _draw_line(
    buffer: np.ndarray, begin_at: int, blocks: int, x0: int, y0: int, x1: int, y1: int, weight: float, half: int
) -> None:
    """Add a line to pixels in blocks, from a place in a buffer on: all of it, or the half at its first (1) or second
    (2) end.
    """
    dx = x1 - x0
    dy = y1 - y0
    count = max(abs(dx), abs(dy)) + 1
    each = np.float32(weight / count)
    step_x = np.int64(dx * 65536.0 / count)
    step_y = np.int64(dy * 65536.0 / count)
    x = np.int64(x0) * 65536 + 32768
    y = np.int64(y0) * 65536 + 32768
    begin = 0
    end = count
    if half == 1:
        end = (count + 1) // 2
    elif half == 2:
        begin = (count + 1) // 2
    x += step_x * begin
    y += step_y * begin
    for _ in range(begin, end):
        column = x >> 16
        line = y >> 16
        pixel = (((line >> 4) * blocks + (column >> 4)) << 8) + ((line & 15) << 4) + (column & 15)
        buffer[begin_at + pixel] += each
        x += step_x
        y += step_y


@compiled
def _half_of(source: int, target: int, wanted: int) -> int:
    """The part of a line that is of a class: all of it (0), the half at its source (1) or its target (2), or nothing
    (-1).
    """
    if source == wanted:
        return 0 if target == wanted else 1
    return 2 if target == wanted else -1


@compiled
def _draw_class(
    pixel: np.ndarray,
    which: np.ndarray,
    layer: np.ndarray,
    wanted: int,
    first: np.ndarray,
    source: np.ndarray,
    order: np.ndarray,
    chunks: np.ndarray,
    chunk: int,
    boost: float,
    blocks: np.ndarray,
    starts: np.ndarray,
    long: tuple[int, int, int],
    keys: np.ndarray,
    counts: np.ndarray,
    slots: np.ndarray,
    buffer: np.ndarray,
) -> None:
    """Draw the lines, or halves of lines, of one class, of the vertices in some chunks.

    Args:
        pixel: int16 of shape (points, 2): column and line of each.
        which: the class of each point.
        layer: the layer of each class.
        wanted: the class.
        first: where the links to each vertex begin.
        source: where each link comes from.
        order: the vertices in the order in which they are gone through; empty where that is the order of numbers.
        chunks: the numbers of the chunks.
        chunk: how many vertices a chunk has.
        boost: how many times as heavy lines between layers are.
        blocks: how many blocks of pixels stand side by side, at each resolution.
        starts: where the pixels of each resolution start in the buffer.
        long: from which lengths on lines are drawn on coarser pixels, two, four and eight times as large.
        keys: int64, a hash table of lines; all -1, and left so. Its length is a power of two.
        counts: int32 of the same length, how often each is there.
        slots: int32, half as long: the places of the table that are taken, in the order in which they were.
        buffer: the array drawn into.
    """
    mask = len(keys) - 1
    num_vertices = len(first) - 1
    for chunk_number in chunks:
        start = chunk_number * chunk
        stop = min(start + chunk, num_vertices)
        n = start
        while n < stop:
            taken = 0
            # As many vertices as the table has room for; one with more links is drawn line by line.
            while n < stop:
                v = order[n] if len(order) else n
                if taken + (first[v + 1] - first[v]) > len(slots):
                    break
                own = which[v]
                for k in range(first[v], first[v + 1]):
                    u = source[k]
                    other = which[u]
                    half = _half_of(other, own, wanted)
                    if half >= 0:
                        x0, y0 = np.int64(pixel[u, 0]), np.int64(pixel[u, 1])
                        x1, y1 = np.int64(pixel[v, 0]), np.int64(pixel[v, 1])
                        length = max(abs(x0 - x1), abs(y0 - y1))
                        level = (length >= long[0]) + (length >= long[1]) + (length >= long[2])
                        ends = ((((x0 >> level) << 14 | y0 >> level) << 14 | x1 >> level) << 14) | y1 >> level
                        joins = 1 if layer[own] != layer[other] else 0
                        key = (((((ends << 2) | level) << 2) | half) << 1) | joins
                        mixed = (key ^ (key >> 29)) * np.int64(0x1F58476D1CE4E5B9)
                        slot = (mixed ^ (mixed >> 32)) & mask
                        while keys[slot] != -1 and keys[slot] != key:
                            slot = (slot + 1) & mask
                        if keys[slot] == -1:
                            keys[slot] = key
                            counts[slot] = 0
                            slots[taken] = slot
                            taken += 1
                        counts[slot] += 1
                n += 1
            for filled in range(taken):
                slot = slots[filled]
                key = keys[slot]
                keys[slot] = -1
                weight = counts[slot] * (boost if key & 1 else 1.0)
                ends = key >> 5
                low = np.int64((1 << 14) - 1)
                level = (key >> 3) & 3
                x0, y0 = (ends >> 42) & low, (ends >> 28) & low
                x1, y1 = (ends >> 14) & low, ends & low
                _draw_line(buffer, starts[level], blocks[level], x0, y0, x1, y1, weight, (key >> 1) & 3)
            if taken == 0 and n < stop:
                v = order[n] if len(order) else n
                own = which[v]
                for k in range(first[v], first[v + 1]):
                    u = source[k]
                    other = which[u]
                    half = _half_of(other, own, wanted)
                    if half >= 0:
                        x0, y0 = np.int64(pixel[u, 0]), np.int64(pixel[u, 1])
                        x1, y1 = np.int64(pixel[v, 0]), np.int64(pixel[v, 1])
                        weight = boost if layer[own] != layer[other] else 1.0
                        _draw_line(buffer, starts[0], blocks[0], x0, y0, x1, y1, weight, half)
                n += 1


def _classes_by_chunk(which: np.ndarray, links: Links, order: np.ndarray, classes: int) -> np.ndarray:
    """Whether each chunk of vertices has, at either end of any of its links, a point of each class."""
    count = -(-links.num_vertices // CHUNK)
    found = np.zeros((count, classes), bool)

    def look(share: tuple[int, int]) -> None:
        _look(which, links.first, links.source, order, CHUNK, *share, found)

    side_by_side(look, shares_of(count))
    return found


@compiled
def _look(
    which: np.ndarray,
    first: np.ndarray,
    source: np.ndarray,
    order: np.ndarray,
    chunk: int,
    begin: int,
    end: int,
    found: np.ndarray,
) -> None:
    """Note which classes the ends of the links of chunks are of."""
    for number in range(begin, end):
        for n in range(number * chunk, min((number + 1) * chunk, len(first) - 1)):
            v = order[n] if len(order) else n
            if first[v + 1] > first[v]:
                found[number, which[v]] = True
            for k in range(first[v], first[v + 1]):
                found[number, which[source[k]]] = True


@compiled
def _colour(
    buffer: np.ndarray, begin_at: int, colour: np.ndarray, blocks: int, begin: int, end: int, out: np.ndarray
) -> None:
    """Add the light drawn in blocks of pixels to lines `begin` to `end` of a picture, in a colour, and clear it.

    The pixels begin at a place in each row of `buffer`.
    """
    for y in range(begin, end):
        for x in range(out.shape[1]):
            place = begin_at + (((y >> 4) * blocks + (x >> 4)) << 8) + ((y & 15) << 4) + (x & 15)
            light = np.float32(0)
            for share in range(len(buffer)):
                light += buffer[share, place]
            if light != 0:
                for share in range(len(buffer)):
                    buffer[share, place] = 0
                for c in range(3):
                    out[y, x, c] += light * colour[c]


def pixels_of(place: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The pixels that places lie in.

    Args:
        place: float32 of shape (points, 2), from 0 to 1: x and y of the width and height.
        size: height and width in pixels, at most 16,384.

    Returns:
        int16 of shape (points, 2): the column and line of each.
    """
    pixel = np.empty(place.shape, np.int16)
    sides = np.array(size[::-1], np.float32)
    for begin in range(0, len(place), 1 << 16):
        own = slice(begin, begin + (1 << 16))
        pixel[own] = np.minimum(place[own] * sides, sides - 1)
    return pixel


def draw_links(
    pixel: np.ndarray,
    links: Links,
    which: np.ndarray,
    layer: np.ndarray,
    colours: np.ndarray,
    size: tuple[int, int],
    boost: float = 10.0,
    many: int = MANY,
    order: np.ndarray | None = None,
) -> np.ndarray:
    """Links as light, each the same, along a line between its ends.

    Args:
        pixel: int16 of shape (points, 2): the column and line of the pixel that each lies in.
        links: the links.
        which: the class of each point.
        layer: the layer of each class.
        colours: float32 of shape (classes, 3), linear.
        size: height and width in pixels, multiples of 64 and at most 16,384.
        boost: how many times as much light links between layers give.
        many: from how many links on the long ones are drawn on coarser pixels.
        order: int32, the vertices so that neighbours lie near each other, if their numbers are not in such an order.

    Returns:
        float32 of shape (height, width, 3).
    """
    height, width = size
    long = COARSE if links.num_links >= many else (1 << 20,) * len(COARSE)
    levels = range(len(COARSE) + 1 if long == COARSE else 1)
    lights = [np.zeros((height >> level, width >> level, 3), np.float32) for level in levels]
    down, across = ([-(-(own >> level) // 16) for level in levels] for own in size)
    *starts, room = accumulate((256 * lines * blocks for lines, blocks in zip(down, across, strict=True)), initial=0)
    buffer = np.zeros((SHARES, room), np.float32)
    tables = [
        (np.full(1 << 17, -1, np.int64), np.empty(1 << 17, np.int32), np.empty(1 << 16, np.int32))
        for _ in range(SHARES)
    ]
    order = np.zeros(0, np.int32) if order is None else order
    present = _classes_by_chunk(which, links, order, len(colours))
    for wanted in range(len(colours)):
        chunks = np.flatnonzero(present[:, wanted])
        if not len(chunks):
            continue

        def draw(share: tuple[np.ndarray, int]) -> None:
            own, number = share  # chunks in turn, so that shares take about as long
            lines = pixel, which, layer, wanted, links.first, links.source, order, own, CHUNK, boost
            _draw_class(*lines, np.array(across), np.array(starts), long, *tables[number], buffer[number])

        side_by_side(draw, ((chunks[number::SHARES], number) for number in range(SHARES)))
        colour = colours[wanted].astype(np.float32)
        for light, start, blocks in zip(lights, starts, across, strict=True):
            add = lambda share: _colour(buffer, start, colour, blocks, *share, light)  # noqa: E731
            side_by_side(add, shares_of(len(light)))
    for large, small in reversed(list(pairwise(lights))):
        side_by_side(lambda share: _enlarge(small, *share, large), shares_of(len(large)))
    return lights[0]


@compiled
def _enlarge(small: np.ndarray, begin: int, end: int, large: np.ndarray) -> None:
    """Add a picture of half the size to lines of one, between its pixels as they lie: as much light as it has."""
    height, width, _ = small.shape
    for y in range(begin, end):
        # Of the four pixels around, the nearest counts three quarters along each side.
        near_y = y >> 1
        far_y = min(max(near_y + (1 if y & 1 else -1), 0), height - 1)
        for x in range(large.shape[1]):
            near_x = x >> 1
            far_x = min(max(near_x + (1 if x & 1 else -1), 0), width - 1)
            for c in range(3):
                near = np.float32(0.75) * small[near_y, near_x, c] + np.float32(0.25) * small[near_y, far_x, c]
                far = np.float32(0.75) * small[far_y, near_x, c] + np.float32(0.25) * small[far_y, far_x, c]
                large[y, x, c] += np.float32(0.25) * (np.float32(0.75) * near + np.float32(0.25) * far)
