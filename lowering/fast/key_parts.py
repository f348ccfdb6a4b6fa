"""Parts of keys: where a view runs along the digits of its source; a key is split where it runs on into the next.

In come digits, the dimensions of an array or the axes of its writer, and an access map; out comes, for each digit,
where the map begins along it and which keys step along it. An image of (height, width, channels) is so read by windows
whose width and channels are one key: a part of that key steps along the width, the other along the channels.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from codelet.views.digits import are_nested, row_major_strides
from codelet.views.index import Index
from codelet.views.line import Line, Part

Name = TypeVar("Name", bound=Hashable)


class Place(NamedTuple, Generic[Name]):
    """A digit by its name: by how much it steps, and how many positions it has."""

    name: Name
    step: int
    extent: int


def reach_of(line: Line) -> int:
    """From the first position to the last of a line over parts of keys."""
    return sum(step * (part.extent - 1) for part, step in line.steps)


def _split(part: Part, digits: Sequence[Place[Name]]) -> list[tuple[Place[Name], Part]] | None:
    """A key in parts that each step along one digit; None where it cannot be split so."""
    if part.extent == 1:
        return []
    at = next((k for k, digit in enumerate(digits) if digit.step <= part.stride), None)  # the largest step of them
    if at is None:
        return None
    _, step, extent = digits[at]
    times, rest = divmod(part.stride, step)
    if rest:
        return None
    if times * (part.extent - 1) < extent:
        return [(digits[at], part)]
    inner = extent // times
    if extent % times or part.extent % inner or at == 0 or digits[at - 1].step != step * extent:
        return None
    outer = Part(part.key, part.weight * inner, part.stride * inner, part.extent // inner)
    rest_of = _split(outer, digits)
    return None if rest_of is None else [*rest_of, (digits[at], part._replace(extent=inner))]


def parts_along(places: Sequence[Place[Name]], offset: int, read: Index) -> dict[Name, Line] | None:
    """The lines of an access map along digits, by parts of its keys, longest steps first; None where it is not affine.

    Digits of one position are left out.

    Args:
        places: the digits.
        offset: their beginning.
        read: the access map, without tables.
    """
    digits = sorted((own for own in places if own.extent > 1), key=lambda own: -own.step)
    if not are_nested((own.step, own.extent) for own in digits) or any(own.step < 1 for own in digits):
        return None
    offset, starts = read.offset - offset, {}
    for name, step, _ in digits:
        starts[name], offset = divmod(offset, step)
    found: dict[Name, list[tuple[Part, int]]] = {own.name: [] for own in digits}
    for key in read.keys:
        stride, extent = read.digit(key)
        parts = _split(Part(key, 1, stride, extent), digits)
        if parts is None:
            return None
        for (name, step, _), part in parts:
            found[name].append((part, part.stride // step))
    along = {name: Line.of(starts[name], dict(own)) for name, own in found.items()}
    fits = all(0 <= along[own.name].start < own.extent - reach_of(along[own.name]) for own in digits)
    return along if fits and not offset else None


def parts_by_dimension(shape: Sequence[int], read: Index) -> tuple[Line, ...] | None:
    """Where an access map stands along each dimension of an array; None where that is not affine.

    >>> from codelet.views.index import Index
    >>> width, channels = parts_by_dimension((5, 2), Index(2, (6,), (1,)))
    >>> width.start, [(part.weight, part.extent) for part, _ in (*width.steps, *channels.steps)]
    (1, [(2, 3), (1, 2)])
    """
    places = [Place(d, step, n) for d, (step, n) in enumerate(zip(row_major_strides(shape), shape, strict=True))]
    found = None if read.tables else parts_along(places, 0, read)
    return None if found is None else tuple(found.get(d, Line(0)) for d in range(len(shape)))
