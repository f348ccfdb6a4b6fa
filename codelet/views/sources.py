"""Sources: what tensors view. Variables, tensors laid end to end, and tensors with padding around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from codelet.views.padding import Widths
from codelet.views.strided import Layouts

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph
    from codelet.views.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    graph: Graph
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    number: int
    first_element: int
    value: np.ndarray | None = None
    layouts: Layouts = field(default_factory=dict, init=False)
    has_padding: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


Box = tuple[slice, ...]
"""A slice of every dimension, its start and stop given."""


def source_variables(source: Source) -> tuple[Variable, ...]:
    """The variables a source holds elements of, each once, in the order in which they were made."""
    return (source,) if isinstance(source, Variable) else source.variables


def _variables_of(parts: Sequence[Tensor]) -> tuple[Variable, ...]:
    found = {variable for part in parts for variable in source_variables(part.source)}
    return tuple(sorted(found, key=lambda variable: variable.number))


class Join:
    """Tensors of one dtype laid end to end along a dimension: what a view over several variables views.

    Attributes:
        parts: the tensors, with no symbols: those of the joined tensors are leading dimensions here.
        dimension: along which they are joined.
        variables: those it holds elements of, each once, in the order in which they were made.
        has_padding: whether any position is padding.
    """

    __slots__ = ("dimension", "dtype", "graph", "has_padding", "layouts", "parts", "shape", "variables")

    def __init__(self, parts: tuple[Tensor, ...], dimension: int):
        self.parts = parts
        self.dimension = dimension
        self.graph = parts[0].graph
        self.dtype = parts[0].dtype
        shape = list(parts[0].shape)
        shape[dimension] = sum(part.shape[dimension] for part in parts)
        self.shape = tuple(shape)
        self.variables = _variables_of(parts)
        self.has_padding = any(part.source.has_padding for part in parts)
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
        variables: those the tensor views elements of, each once, in the order in which they were made.
    """

    __slots__ = ("dtype", "graph", "layouts", "part", "shape", "value", "variables", "widths")
    has_padding = True

    def __init__(self, part: Tensor, widths: Widths, value: Any):
        self.part = part
        self.widths = widths
        self.value = value
        self.graph = part.graph
        self.dtype = part.dtype
        self.shape = tuple(a + n + b for (a, b), n in zip(widths, part.shape, strict=True))
        self.variables = _variables_of((part,))
        self.layouts: Layouts = {}

    @property
    def size(self) -> int:
        """The number of elements and of positions of padding."""
        return math.prod(self.shape)

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


def assembled(
    source: Join | Pad,
    dtype: np.dtype,
    of_variable: Callable[[Variable, np.ndarray], np.ndarray],
    of_padding: Callable[[Any], Any],
) -> np.ndarray:
    """What stands at every position of a source, in one dimension.

    Args:
        source: of several tensors, or with padding.
        dtype: of what stands there.
        of_variable: what stands at flat positions of a variable.
        of_padding: what stands for padding of a value.
    """
    made = np.full(source.shape, of_padding(source.value) if isinstance(source, Pad) else 0, dtype)
    for part, box in source.regions():
        own, positions = part.source, part.index.values()
        if isinstance(own, Variable):
            made[box] = of_variable(own, positions)
        else:
            made[box] = assembled(own, dtype, of_variable, of_padding)[positions]
    return made.reshape(-1)


def source_elements(source: Source) -> Any:
    """What gives the graph's element number for flat positions of a source, by indexing; -1 for padding."""
    if isinstance(source, Variable):
        return _Numbers(source.first_element)
    return assembled(source, np.dtype(np.int64), lambda own, positions: positions + own.first_element, lambda _: -1)
