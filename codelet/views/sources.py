"""Sources: the arrays behind tensors. Variables, and patchworks of elements of several variables and of padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from codelet.views.index import Index
from codelet.views.strided import Layouts

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


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
        is_aside: whether it was added with a program that runs only where it is named, as a gradient is.
        layouts: those of its views that were met, by shape and strides; see `codelet/views/strided.py`.
    """

    graph: Graph
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    number: int
    first_element: int
    value: np.ndarray | None = None
    is_aside: bool = False
    layouts: Layouts = field(default_factory=dict, init=False)
    has_padding: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def mend(self) -> str:
        """The fix where an element of it is read that has no value."""
        if self.is_aside:
            return (
                "run the `forward` of the gradient in place of the program, which also saves what its `backward` reads"
            )
        return f"inputs=[{self.name!r}, ...] where the graph is lowered, or engine.write({{{self.name!r}: ...}})"

    def __repr__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Part of a patchwork: elements of a variable, or padding.

    Attributes:
        variable: whose elements; None for padding.
        value: the value of the padding, a NumPy scalar of the dtype; None for elements of a variable.
        index: the flat positions of the elements in the variable, without symbols; of padding all 0.
        places: the flat positions in the patchwork where they lie, of the same shape, each another.
    """

    variable: Variable | None
    value: Any
    index: Index
    places: Index

    def part_of(self, array: np.ndarray) -> np.ndarray:
        """The elements of a flat array for the patchwork at its places; of places without tables a view."""
        places = self.places
        return places.strided_view(array, range(places.ndim)) if places.is_strided else array[places.values()]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Patchwork:
    """An array put together of patches: the source of a view of several variables, or of padding.

    Every position is that of a patch, and no patch is empty. Patches of variables do not overlap; padding may lie under
    patches that come after it, which count: so a tensor with padding around it is two patches.

    Attributes:
        graph: the graph its elements belong to.
        shape: its shape; symbols of joined or padded tensors are leading dimensions.
        dtype: its NumPy dtype.
        patches: its parts, none of them another patchwork; see `codelet/views/patchwork.py`.
        layouts: as of a variable.
        variables: those it holds elements of, each once, in the order in which they were made.
    """

    graph: Graph
    dtype: np.dtype
    shape: tuple[int, ...]
    patches: tuple[Patch, ...]
    layouts: Layouts = field(default_factory=dict, init=False)
    variables: tuple[Variable, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = {patch.variable for patch in self.patches if patch.variable is not None}
        object.__setattr__(self, "variables", tuple(sorted(found, key=lambda variable: variable.number)))

    @property
    def has_padding(self) -> bool:
        """Whether any patch is padding."""
        return any(patch.variable is None for patch in self.patches)

    @property
    def size(self) -> int:
        """The number of elements and of positions of padding."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return source_text(self)


Source = Variable | Patchwork


def source_variables(source: Source) -> tuple[Variable, ...]:
    """The variables a source holds elements of, each once, in the order in which they were made."""
    return (source,) if isinstance(source, Variable) else source.variables


def type_text(dtype: np.dtype, shape: Sequence[object]) -> str:
    """A shape and dtype as one word: `float32[4,8]`."""
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def source_text(source: Source) -> str:
    """The source of a tensor, by name: `x`, `concat(x, y)`, `pad(x, 0.0)`, `pad(concat(x, y), 0.0)`."""
    if isinstance(source, Variable):
        return source.name
    names = [patch.variable.name for patch in source.patches if patch.variable is not None]
    values = dict.fromkeys(str(patch.value) for patch in source.patches if patch.variable is None)
    inside = names[0] if values and len(names) == 1 else f"concat({', '.join(names)})"
    return f"pad({', '.join([inside, *values])})" if values else inside


class _ElementNumbers:
    """The element numbers of a variable, as a thing to be indexed without an array being made."""

    def __init__(self, first: int):
        self.first = first

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        return positions + self.first


def assembled(
    source: Patchwork,
    dtype: np.dtype,
    of_variable: Callable[[Variable, np.ndarray], np.ndarray],
    of_padding: Callable[[Any], Any],
) -> np.ndarray:
    """The values at every position of a patchwork, in one dimension.

    Args:
        source: the patchwork.
        dtype: of the values there.
        of_variable: gives the values at flat positions of a variable.
        of_padding: gives the value of padding.
    """
    made = np.zeros(source.size, dtype)
    for patch in source.patches:
        variable = patch.variable
        stands = of_padding(patch.value) if variable is None else of_variable(variable, patch.index.values())
        if patch.places.is_strided:
            patch.part_of(made)[...] = stands
        else:
            made[patch.places.values()] = stands
    return made


def source_elements(source: Source) -> Any:
    """An object that gives the graph's element number for flat positions of a source, by indexing; -1 for padding."""
    if isinstance(source, Variable):
        return _ElementNumbers(source.first_element)
    return assembled(source, np.dtype(np.int64), lambda own, positions: positions + own.first_element, lambda _: -1)
