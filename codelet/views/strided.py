"""Strided views, as fast as a graph that is built one vertex at a time needs them.

Views of one source that have the same shape and strides, and differ in their offset alone, share a `Layout`. Indexing
by plain numbers and slices is a walk from layout to layout, item by item, that adds up an offset. Each way is found
once and taken from then on by a look-up, so that a view costs no arithmetic on shapes.

Layouts are compared by identity: a source has one of each shape and strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codelet.views.sources import Source


class Place:
    """On the way through the items of an indexing: the layout after the items so far.

    Attributes:
        extent: of the dimension that the next item indexes; 0 where there is none left.
        stride: of that dimension.
        point: where a number leads; None until one was met.
        spans: where a slice of step one leads, by its length.
        layout: the layout of the view when no more items come; None until one was met.
    """

    __slots__ = ("_base", "_dimension", "_kept", "extent", "layout", "point", "spans", "stride")

    def __init__(self, base: Layout, dimension: int, kept: tuple[tuple[int, int], ...]):
        self._base = base
        self._dimension = dimension
        self._kept = kept
        is_left = dimension < len(base.shape)
        self.extent: int = base.shape[dimension] if is_left else 0
        self.stride: int = base.strides[dimension] if is_left else 0
        self.point: Place | None = None
        self.spans: dict[int, Place] = {}
        self.layout: Layout | None = None

    def after_number(self) -> Place:
        """Where a number leads."""
        self.point = Place(self._base, self._dimension + 1, self._kept)
        return self.point

    def after_slice(self, length: int) -> Place:
        """Where a slice of step one leads, of a length other than 0."""
        made = self.spans[length] = Place(self._base, self._dimension + 1, (*self._kept, (length, self.stride)))
        return made

    def end(self) -> Layout:
        """The layout when no more items come."""
        base, at = self._base, self._dimension
        shape = (*(extent for extent, _ in self._kept), *base.shape[at:])
        strides = (*(stride for _, stride in self._kept), *base.strides[at:])
        self.layout = layout_of(base.source, shape, strides)
        return self.layout


class Layout:
    """The common part of strided views of a source that differ in their offset alone.

    Attributes:
        source: the viewed array.
        shape: the extents of the view.
        strides: by how many elements of the source the positions along each dimension are apart.
        first: where the walk through the items of an indexing begins.
    """

    __slots__ = ("first", "shape", "source", "strides")

    def __init__(self, source: Source, shape: tuple[int, ...], strides: tuple[int, ...]):
        self.source = source
        self.shape = shape
        self.strides = strides
        self.first = Place(self, 0, ())


Layouts = dict[tuple[tuple[int, ...], tuple[int, ...]], Layout]
"""The layouts of a source's views, by shape and strides."""


def layout_of(source: Source, shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    """The layout of a source's views of this shape and these strides; there is one."""
    found = source.layouts.get((shape, strides))
    if found is None:
        found = source.layouts[shape, strides] = Layout(source, shape, strides)
    return found
