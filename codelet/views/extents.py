"""Shapes, dimensions and orders of them, as users give them to views: by NumPy's rules, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.errors import ViewError
from codelet.schema import is_whole


def as_integers(given: object, what: str) -> tuple[int, ...]:
    """Several integers: as separate arguments, or as one tuple, list or array of them.

    Args:
        given: the user's value.
        what: its role, for the error: "the shape of a reshape".

    Raises:
        ViewError: anything else.
    """
    listed: Any = given[0] if isinstance(given, tuple) and len(given) == 1 else given
    if isinstance(listed, np.ndarray):
        listed = list(listed) if listed.ndim else listed[()]
    items: Sequence[Any] = listed if isinstance(listed, (tuple, list)) else (listed,)
    if not all(map(is_whole, items)):
        floats = any(isinstance(n, (float, np.floating)) for n in items)
        raise ViewError(
            f"{what} is not of integers",
            given=f"{given[0] if isinstance(given, tuple) and len(given) == 1 else given!r}",
            expected="integers, or one tuple or list of them",
            fix="`//` divides integers, where `/` gives a fraction" if floats else None,
        )
    return tuple(int(n) for n in items)


def as_dimension(given: object, count: int) -> int:
    """The number of a dimension of `count`, from the end where it is negative.

    Raises:
        ViewError: one that does not exist.
    """
    (dimension,) = found if len(found := as_integers((given,), "a dimension")) == 1 else (count,)
    if not -count <= dimension < count:
        raise ViewError("a dimension does not exist", given=given, expected=f"{-count} to {count - 1}")
    return dimension % count


def as_shape(given: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape for as many elements; one extent may be -1.

    Raises:
        ViewError: one of another size.
    """
    wanted, size = as_integers(given, "the shape of a reshape"), math.prod(shape)
    known = math.prod(n for n in wanted if n != -1)
    full = tuple(size // known if n == -1 and known else n for n in wanted)
    if wanted.count(-1) > 1 or min(full, default=0) < 0 or math.prod(full) != size:
        raise ViewError(
            "a reshape changes the number of elements",
            given=f"{shape} to {wanted}",
            expected=f"extents whose product is {size}, one of which may be -1",
        )
    return full


def as_order(given: Sequence[object], count: int) -> tuple[int, ...]:
    """An order of `count` dimensions; the reverse when none is given.

    Raises:
        ViewError: one that does not name each once.
    """
    if not given or (len(given) == 1 and given[0] is None):
        return tuple(range(count))[::-1]
    order = as_integers(given, "the order of a transpose")
    positive = tuple(d + count if d < 0 else d for d in order)
    if sorted(positive) != list(range(count)):
        raise ViewError(
            "a transpose does not name each dimension once",
            given=order,
            expected=f"each of 0 to {count - 1} once" if count else "no dimensions: the tensor has none",
        )
    return positive
