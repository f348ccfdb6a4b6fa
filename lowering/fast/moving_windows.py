"""Moving windows: how the window that a field is moves over the array it is of, dimension by dimension.

In comes a field that is a view; out comes along which axis it moves along each dimension of the array, and which
dimension of the field runs inside it, as poolings and convolutions ask; or why it cannot be told.
"""

from __future__ import annotations

from dataclasses import dataclass

from codelet.graphs.family import Field
from codelet.views.grids import Axis
from lowering.plan.access import Dimension, take_apart


@dataclass(frozen=True)
class Moving:
    """How a window lies along one dimension of an array.

    Attributes:
        along: the axis along which it moves, and by how many elements; None where it does not.
        inside: the field's dimension that runs along it, and by how many elements; None where it is one element wide.
    """

    along: tuple[Axis, int] | None
    inside: tuple[int, int] | None


@dataclass(frozen=True)
class MovingWindows:
    """The windows of a field: the access to each dimension of the array, and how they move along it."""

    dimensions: tuple[Dimension, ...]
    moving: tuple[Moving, ...]


def moving_windows(field: Field) -> MovingWindows | str:
    """The windows that a field is, or why it cannot be told how they move."""
    assert field.tensor is not None
    access = take_apart(field.tensor.source.shape, field.tensor.index)
    if access.reversed_keys or access.shape != field.tensor.source.shape:
        return "its windows run backwards or across dimensions"
    found = []
    for _, terms in access.dimensions:
        if any(term.table is not None for term in terms):
            return "its windows move by a table"
        steps = [(key, term.grain) for term in terms for key in term.keys]
        along = [(key, step) for key, step in steps if isinstance(key, Axis)]
        inside = [(key, step) for key, step in steps if isinstance(key, int)]
        if len(along) > 1 or len(inside) > 1:
            return "its windows move by several symbols along one dimension"
        found.append(Moving(along[0] if along else None, inside[0] if inside else None))
    return MovingWindows(tuple(access.dimensions), tuple(found))
