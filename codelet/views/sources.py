"""Sources: what tensors view.

A source is a `Variable`; or a `Join` of several tensors laid end to end, so that a view over several variables is an
ordinary view of their join; or a `Pad`, a tensor among positions that are elements of no variable and all hold one
value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.views.padding import Widths
from codelet.views.strided import Layouts

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph
    from codelet.views.tensor import Tensor


class Variable:
    """State of a graph: an array by name.

    Attributes:
        graph: the graph it belongs to.
        name: unique within the graph, scopes included.
        shape: its shape.
        dtype: its NumPy dtype.
        number: its place in the order in which the graph's variables were made.
        first_element: the number of its first element among all elements of the graph; between two
            variables one number is left out, so that no run of numbers spans both.
        value: the value of a constant, None for a variable.
        layouts: those of its views that were met, by shape and strides; see `codelet/views/strided.py`.
    """

    __slots__ = ("dtype", "first_element", "graph", "layouts", "name", "number", "shape", "value")

    def __init__(
        self,
        graph: Graph,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        number: int,
        first_element: int,
        value: np.ndarray | None = None,
    ):
        self.graph = graph
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.number = number
        self.first_element = first_element
        self.value = value
        self.layouts: Layouts = {}

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


Box = tuple[slice, ...]
"""A slice of every dimension, its start and stop given."""


class Join:
    """Tensors of one dtype laid end to end along a dimension: what a view over several variables views.

    Attributes:
        parts: the tensors, with no symbols: those of the joined tensors are leading dimensions here.
        dimension: along which they are joined.
    """

    __slots__ = ("dimension", "dtype", "graph", "layouts", "parts", "shape")

    def __init__(self, parts: tuple[Tensor, ...], dimension: int):
        self.parts = parts
        self.dimension = dimension
        self.graph = parts[0].graph
        self.dtype = parts[0].dtype
        shape = list(parts[0].shape)
        shape[dimension] = sum(part.shape[dimension] for part in parts)
        self.shape = tuple(shape)
        self.layouts: Layouts = {}

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def regions(self) -> Iterator[tuple[Tensor, Box]]:
        """Every part, with the box of the join that it fills."""
        start = 0
        for part in self.parts:
            corner = [0] * part.ndim
            corner[self.dimension] = start
            yield part, tuple(slice(a, a + n) for a, n in zip(corner, part.shape, strict=True))
            start += part.shape[self.dimension]

    def __repr__(self) -> str:
        return source_text(self)


class Pad:
    """A tensor with padding around it: positions that are elements of no variable and hold one value.

    Attributes:
        part: the tensor, with no symbols: those of the padded tensor are leading dimensions here.
        widths: how many positions of padding stand before and after it in each dimension.
        value: what the padding holds, a NumPy scalar of the tensor's dtype.
    """

    __slots__ = ("dtype", "graph", "layouts", "part", "shape", "value", "widths")

    def __init__(self, part: Tensor, widths: Widths, value: Any):
        self.part = part
        self.widths = widths
        self.value = value
        self.graph = part.graph
        self.dtype = part.dtype
        self.shape = tuple(a + n + b for (a, b), n in zip(widths, part.shape, strict=True))
        self.layouts: Layouts = {}

    @property
    def size(self) -> int:
        """The number of elements and of positions of padding."""
        return math.prod(self.shape)

    @property
    def parts(self) -> tuple[Tensor]:
        """The tensor alone."""
        return (self.part,)

    def regions(self) -> Iterator[tuple[Tensor, Box]]:
        """The tensor, with the box of the padded one that it fills."""
        yield self.part, tuple(slice(a, a + n) for (a, _), n in zip(self.widths, self.part.shape, strict=True))

    def __repr__(self) -> str:
        return source_text(self)


Source = Variable | Join | Pad


def type_text(dtype: np.dtype, shape: Sequence[object]) -> str:
    """A shape and dtype as one word: `float32[4,8]`."""
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def source_text(source: Source) -> str:
    """What a tensor views, by name: `x`, `concat(x, y)`, or `pad(x, 0.0)`."""
    if isinstance(source, Variable):
        return source.name
    if isinstance(source, Pad):
        return f"pad({source_text(source.part.source)}, {source.value})"
    return f"concat({', '.join(source_text(part.source) for part in source.parts)})"


class _Numbers:
    """The element numbers of a variable, as a thing to be indexed without an array being made."""

    def __init__(self, first: int):
        self.first = first

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        return positions + self.first


def source_elements(source: Source) -> Any:
    """What gives the graph's element number for flat positions of a source, by indexing; -1 for padding."""
    if isinstance(source, Variable):
        return _Numbers(source.first_element)
    numbers = np.full(source.shape, -1, np.int64)
    for part, box in source.regions():
        numbers[box] = part.elements()
    return numbers.reshape(-1)


def source_variables(source: Source) -> tuple[Variable, ...]:
    """The variables a source holds elements of, each once, in the order in which they were made."""
    if isinstance(source, Variable):
        return (source,)
    found = {variable for part in source.parts for variable in source_variables(part.source)}
    return tuple(sorted(found, key=lambda variable: variable.number))


def has_padding(source: Source) -> bool:
    """Whether any position of a source is padding."""
    return isinstance(source, Pad) or (
        isinstance(source, Join) and any(has_padding(part.source) for part in source.parts)
    )
