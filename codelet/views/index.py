"""Integer arrays that depend on grid symbols: users' index expressions, and the access maps of views.

As the expression `16*p + 3` an `Index` is written by a user between brackets; as the `index` of a tensor it maps a
position in the view to a flat element of the source. As data it is an `AffineMap` (`affine.py`); it has the arithmetic
of these, the operators of integers, and NumPy's rules of indexing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.core import Tracer

from codelet.errors import SymbolError
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis
from codelet.views.index_text import index_text
from codelet.views.indexing import take
from codelet.views.integer_operators import IntegerOperators
from codelet.views.integers import narrowed
from codelet.views.inverse import Inverse, inverted
from codelet.views.operators import NoNumber


def take_basic(index: Index, items: object) -> Index | None:
    """Indexing of a strided index by plain numbers and slices; None when it is anything else.

    Graphs of single vertices are built of little else: it is written to be fast.
    """
    if type(items) is not tuple:
        items = (items,)
    shape, strides, offset = index.shape, index.strides, index.offset
    if len(items) > len(shape):
        return None
    kept_shape: list[int] = []
    kept_strides: list[int] = []
    d = 0
    for item in items:
        extent = shape[d]
        if type(item) is int:
            if item < 0:
                item += extent
            if not 0 <= item < extent:
                return None
            offset += item * strides[d]
        elif type(item) is slice:
            start, stop, step = item.start, item.stop, item.step
            if step is not None or type(start) is not int or type(stop) is not int or not 0 <= start < stop <= extent:
                try:
                    start, stop, step = item.indices(extent)
                except (TypeError, ValueError, SymbolError):
                    return None
                length = len(range(start, stop, step))
                start = start if length else 0
                kept_shape.append(length)
                kept_strides.append(step * strides[d])
            else:
                kept_shape.append(stop - start)
                kept_strides.append(strides[d])
            offset += start * strides[d]
        else:
            return None
        d += 1
    return Index(offset, (*kept_shape, *shape[d:]), (*kept_strides, *strides[d:]))


class Index(IntegerOperators):
    """An index expression: an integer array that depends on grid symbols, or on none. `AffineMap` has its attributes.

    Made by `cl.grid`, by arithmetic with integers and other expressions, and by lookups in a `cl.table`.

    >>> import codelet as cl
    >>> i, j = cl.grid(i=2, j=3)
    >>> index = 3 * i + j
    >>> index, index.shape, index.values([*i.axes, *j.axes]).tolist()
    (Index(3*i + j), (), [[0, 1, 2], [3, 4, 5]])
    """

    __slots__ = ()

    @classmethod
    def operand(cls, other: object) -> Index | None:
        """Any operand of arithmetic as an index, or `None`.

        Args:
            other: a number, an integer array or an index.

        >>> import codelet as cl
        >>> cl.Index.operand(3), cl.Index.operand("x")
        (Index(3), None)
        """
        return as_index(other)

    def __len__(self) -> int:
        if not self.shape:
            raise self._refuse("`len`", f"len({self.text()})")
        return self.shape[0]

    def __iter__(self) -> Iterator[Index]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, items: object) -> Any:
        """Part of the index, by NumPy's rules of indexing.

        The result is a `Ragged` if the number of positions depends on a symbol.

        Args:
            items: as of `Tensor.__getitem__`.

        Raises:
            OutOfBoundsError: a position outside of it.
        """
        if self.is_strided:
            basic = take_basic(self, items)
            if basic is not None:
                return basic
        return take(self, items)

    def blocks(self, axes: Sequence[Axis], limit: int = 1 << 22) -> Iterator[tuple[int, np.ndarray]]:
        """Its values for all positions of `axes`, in blocks of about `limit` elements.

        Args:
            axes: the grid axes to evaluate it over.
            limit: about how many elements a block has.

        Yields:
            The number of the block's first position, in row-major order, and an array of shape
            `(positions in the block, *self.shape)`.

        >>> import codelet as cl
        >>> i = cl.grid(4)
        >>> [(first, block.tolist()) for first, block in (10 * i).blocks(i.axes, limit=2)]
        [(0, [0, 10]), (2, [20, 30])]
        """
        per_position = max(1, self.size)
        count = math.prod(axis.extent for axis in axes)
        if not axes or count * per_position <= limit:
            if count:
                yield 0, self.values(axes).reshape(count, *self.shape)
            return
        first, rest = axes[0], axes[1:]
        inside = count // first.extent
        lifted = self.lifted([first])
        step = max(1, limit // (inside * per_position))
        for start in range(0, first.extent, step):
            part = lifted[start : start + step]
            if inside * per_position <= limit:
                # The lifted axis follows those of the rest: bring it to the front.
                moved = np.moveaxis(part.values(rest), len(rest), 0)
                yield start * inside, moved.reshape(len(moved) * inside, *self.shape)
            else:
                for number, block in part[0].blocks(rest, limit):
                    yield start * inside + number, block

    def inverse(self) -> Inverse:
        """The grid position and dimension position of each element that it names.

        Raises:
            ViewError: an element that it names twice.

        >>> import codelet as cl
        >>> i = cl.grid(3)
        >>> x = cl.Graph().add_variable("x", (20,))
        >>> inverse = x[6 * i + 1 : 6 * i + 5].index.inverse()  # four elements of six
        >>> inverse.elements.values().tolist()
        [[1, 2, 3, 4], [7, 8, 9, 10], [13, 14, 15, 16]]
        >>> inverse.places[i.axes[0]].values().tolist(), inverse.places[0].values()[0].tolist()
        ([[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]], [0, 1, 2, 3])
        >>> found = inverse.at(x[9:13].index)
        >>> found.places[0].values().tolist(), found.is_named.index.values().tolist()
        ([2, 3, 3, 3], [1, 1, 0, 0])
        """
        return inverted(self)

    def __repr__(self) -> str:
        return f"Index({self.text()})" if not self.shape else f"Index({self.text()}, shape={self.shape})"

    def text(self, names: dict[Axis, str] | None = None) -> str:
        """The expression in symbols and dimensions, as text.

        Args:
            names: printed names of the symbols of grid axes. Default: the names given to `cl.grid`, or i0, i1, ...

        >>> import codelet as cl
        >>> (2 * cl.grid(i=4) + 1).text()
        '1 + 2*i'
        """
        return index_text(self, names)


def row_major(shape: tuple[int, ...]) -> Index:
    """The positions of an array of `shape`, numbered in row-major order."""
    return Index(0, shape, row_major_strides(shape))


def as_index(value: object) -> Index | None:
    """A number, an integer array or an index as an `Index`; None when it is none of these."""
    if isinstance(value, Index):
        return value
    if isinstance(value, (bool, np.bool_, NoNumber, Tracer)):
        return None
    if isinstance(value, (int, np.integer)):
        return Index(int(value))
    if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.int64)
        if np.issubdtype(array.dtype, np.integer):
            held = narrowed(array)
            held = held.copy() if np.may_share_memory(held, array) else held  # the user may write to theirs
            return Index.from_values(held, tuple(range(array.ndim)), array.shape)
    return None
