"""Elements: which of a variable's or of a graph's elements, as runs where they are few and as flags where many.

What vertices and copies touch is mostly a few long stretches, found from an access map by its strides: no number of
elements is too many for that. What is touched in pieces, or through tables, takes a flag an element.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from codelet.views.digits import ends, stretch
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.integers import blocks_of, integer_dtype
from codelet.views.sources import Variable, source_text, source_variables
from codelet.views.tensor import Tensor
from lowering.host_memory import check_host_memory
from lowering.plan.runs import NONE, Runs, difference, intersection, runs_of, union

_LEAST_RUNS = 16
"""So many runs are kept whatever a variable's size; more, where a flag for each element would take more."""


def _most_runs(size: int) -> int:
    """How many runs take as much memory as a flag for each element."""
    return max(_LEAST_RUNS, size // 16)


def affine_runs(index: Index, axes: Sequence[Axis], most: int) -> Runs | None:
    """The positions that an index without tables names over some axes; None where they are more than `most` runs.

    >>> from codelet.views.index import row_major
    >>> affine_runs(row_major((4, 6))[1:3, 2:4], (), 10)
    Runs(starts=array([ 8, 14]), stops=array([10, 16]))
    """
    assert not index.tables
    if 0 in index.shape or any(axis.extent == 0 for axis in axes):
        return NONE
    digits = list(map(index.digit, index.keys))
    length, apart = stretch(digits)
    starts = np.array([ends(digits, index.offset)[0]], np.int64)
    for step, extent in apart:
        if len(starts) * extent > most:
            return None
        starts = (np.arange(extent, dtype=np.int64)[:, None] * step + starts).reshape(-1)
    starts.sort(kind="stable")  # of stretches that are in order each
    return union(starts, starts + length)


def _stretches(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Numbers in order as those at equal distances: the first, how many, and how far apart."""
    k = 0
    while k < len(numbers):
        step, end = numbers[k + 1] - numbers[k] if k + 1 < len(numbers) else 0, k + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        yield numbers[k], end - k, step
        k = end


@dataclass(frozen=True, eq=False)
class Elements:
    """Some elements of a variable.

    Attributes:
        size: how many elements the variable has.
        runs: of their positions; None where they are flags.
        flags: for each element whether it is one of them, bool of shape (size,), never written to; None where they are
            runs.
    """

    size: int
    runs: Runs | None
    flags: np.ndarray | None = None

    @staticmethod
    @functools.lru_cache(1024)
    def everything(size: int) -> Elements:
        """All of them."""
        return Elements(size, Runs(np.array([0]), np.array([size])) if size else NONE)

    @staticmethod
    def nothing(size: int) -> Elements:
        """None of them."""
        return Elements(size, NONE)

    @staticmethod
    def of_flags(flags: np.ndarray) -> Elements:
        """Those that have a flag."""
        return Elements.everything(len(flags)) if flags.all() else Elements(len(flags), None, flags)

    @staticmethod
    def of_view(index: Index, axes: Sequence[Axis], size: int, name: str) -> Elements:
        """Those that an index names over some axes.

        Args:
            index: positions in a source.
            axes: of the grid.
            size: of the source.
            name: what the source is called in print.

        Raises:
            SizeError: they are too many to be told apart one by one.
        """
        if 0 in index.shape or any(axis.extent == 0 for axis in axes):
            return Elements.nothing(size)
        runs = None if index.tables else affine_runs(index, axes, _most_runs(size))
        if runs is not None:
            return Elements(size, runs)
        check_host_memory(size, f"what is read and written of {name!r}, a flag for each of {size:,} elements")
        flags = np.zeros(size, bool)
        if index.tables:
            for (block,) in blocks_of(index.values_over(index.keys, integer_dtype(0, size))):
                flags[block] = True
        else:
            index.strided_view(flags, index.keys)[...] = True
        return Elements.of_flags(flags)

    @functools.cached_property
    def is_all(self) -> bool:
        """Whether they are all elements of the variable."""
        if self.runs is None:
            return False
        return not self.size or (len(self.runs.starts) == 1 and int(self.runs.lengths[0]) == self.size)

    def as_flags(self) -> np.ndarray:
        """For each element of the variable whether it is one of them: bool of shape (size,), not to be written to."""
        if self.runs is None:
            assert self.flags is not None
            return self.flags
        check_host_memory(self.size, f"a flag for each of {self.size:,} elements")
        ends = np.zeros(self.size + 1, np.int8)
        ends[self.runs.starts], ends[self.runs.stops] = 1, -1
        return np.cumsum(ends[:-1], dtype=np.int8).view(bool)

    def as_runs(self) -> Runs:
        """Them as runs, however many these are."""
        return runs_of(np.flatnonzero(self.as_flags())) if self.runs is None else self.runs

    @property
    def count(self) -> int:
        """How many elements there are."""
        return int(self.as_flags().sum()) if self.runs is None else int(self.runs.lengths.sum())

    def _combined(self, other: Elements, of_runs, of_flags) -> Elements:
        if self.runs is not None and other.runs is not None:
            runs = of_runs(self.runs, other.runs)
            if len(runs.starts) <= _most_runs(self.size):
                return Elements(self.size, runs)
        return Elements.of_flags(of_flags(self.as_flags(), other.as_flags()))

    def __or__(self, other: Elements) -> Elements:
        if self is other or self.is_all or other.is_all:
            return self if self.is_all else other
        both = lambda a, b: union(np.concatenate([a.starts, b.starts]), np.concatenate([a.stops, b.stops]))  # noqa: E731
        return self._combined(other, both, np.logical_or)

    def __and__(self, other: Elements) -> Elements:
        if self is other or self.is_all or other.is_all:
            return other if self.is_all else self
        return self._combined(other, intersection, np.logical_and)

    def __sub__(self, other: Elements) -> Elements:
        if other.is_all:
            return Elements.nothing(self.size)
        return self._combined(other, difference, lambda a, b: a & ~b)

    @property
    def first(self) -> int | None:
        """The least of their positions; None where there are none."""
        if self.runs is not None:
            return int(self.runs.starts[0]) if len(self.runs.starts) else None
        assert self.flags is not None
        return int(self.flags.argmax()) if self.flags.any() else None

    def indices(self) -> Iterator[Index]:
        """Indices of their positions, each position in one: what is alike at equal distances is one, again and again.

        >>> from codelet.views.index import row_major
        >>> inside = Elements.of_view(row_major((3, 4, 6))[1:, 1:3, 2:4], (), 72, "x")
        >>> [str(own) for own in inside.indices()]
        ['Index(32 + 24*f0 + 6*f1 + f2, shape=(2, 2, 2))']
        """
        if self.runs is None:
            chosen = np.flatnonzero(self.as_flags())
            yield Index.from_values(chosen, (0,), chosen.shape)
            return
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}  # where they start, by extents and steps
        for start, length in zip(self.runs.starts.tolist(), self.runs.lengths.tolist(), strict=True):
            alike.setdefault(((length, 1),), []).append(start)
        is_less = True
        while is_less:
            further: dict[tuple[tuple[int, int], ...], list[int]] = {}
            for digits, starts in alike.items():
                for start, count, step in _stretches(starts):
                    further.setdefault(((count, step), *digits) if count > 1 else digits, []).append(start)
            is_less = sum(map(len, further.values())) < sum(map(len, alike.values()))
            alike = further
        for digits, starts in alike.items():
            shape, strides = zip(*digits, strict=True)
            yield from (Index(start, shape, strides) for start in starts)

    def equals(self, other: Elements) -> bool:
        """Whether two are the same elements."""
        if self is other:
            return True
        if self.runs is not None and other.runs is not None:
            pairs = zip(self.runs, other.runs, strict=True)
            return all(np.array_equal(one, another) for one, another in pairs)
        return bool((self.as_flags() == other.as_flags()).all())


class ElementSet:
    """A set of elements of the graph: of each variable that has any, which."""

    def __init__(self, held: Mapping[Variable, Elements] = MappingProxyType({})) -> None:
        self._held = dict(held)

    @staticmethod
    def of_variables(variables: Iterable[Variable]) -> ElementSet:
        """All elements of some variables."""
        return ElementSet({variable: Elements.everything(variable.size) for variable in variables})

    @staticmethod
    def of_views(views: Iterable[tuple[Tensor, tuple[Axis, ...]]]) -> ElementSet:
        """The elements of views, each at all positions of a grid."""
        elements = ElementSet()
        for tensor, axes in views:
            elements.add(tensor, axes)
        return elements

    def copy(self) -> ElementSet:
        """A set with the same elements."""
        return ElementSet(self._held)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Those of which it holds any element, or held some."""
        return tuple(self._held)

    def of(self, variable: Variable) -> Elements:
        """Which elements of a variable are in the set."""
        return self._held.get(variable) or Elements.nothing(variable.size)

    def add_variable(self, variable: Variable) -> None:
        """Add all elements of a variable."""
        self._held[variable] = Elements.everything(variable.size)

    def remove_variable(self, variable: Variable) -> None:
        """Remove all elements of a variable."""
        self._held.pop(variable, None)

    def flags(self, variable: Variable) -> np.ndarray:
        """Which elements of a variable are in the set, bool of shape (size,); not to be written to."""
        return self.of(variable).as_flags()

    def add(self, tensor: Tensor, axes: tuple[Axis, ...]) -> None:
        """Add the elements of a view at all positions of the grid.

        Raises:
            SizeError: they are too many to be told apart one by one.
        """
        source = tensor.source
        if tensor.is_whole_variable and not any(axis.extent == 0 for axis in axes):
            self.add_variable(source)  # type: ignore[arg-type]
            return
        if isinstance(source, Variable):
            self._add(source, tensor.index, axes)
            return
        touched = Elements.of_view(tensor.index, axes, source.size, source_text(source))
        marked = None if touched.is_all else touched.as_flags()
        for patch in source.patches:
            if patch.variable is not None:
                chosen = None if marked is None else patch.part_of(marked)
                if chosen is None or chosen.all():
                    self._add(patch.variable, patch.index, ())
                elif chosen.any():
                    self._add(patch.variable, patch.index.reshape((chosen.size,))[np.flatnonzero(chosen)], ())

    def _add(self, variable: Variable, index: Index, axes: tuple[Axis, ...]) -> None:
        held = self.of(variable)
        if not held.is_all:
            self._held[variable] = held | Elements.of_view(index, axes, variable.size, variable.name)

    def remove(self, tensor: Tensor, axes: tuple[Axis, ...] = ()) -> None:
        """Remove the elements of a view at all positions of the grid."""
        gone = ElementSet()
        gone.add(tensor, axes)
        self._held = (self - gone)._held

    def bind(self, source: Tensor, destination: Tensor) -> None:
        """Hold of each element of `destination` what is held of that of `source`; padding counts as present."""
        variables = source_variables(source.source)
        if all(self.of(variable).is_all for variable in variables):
            self.add(destination, ())
            return
        if not source.source.has_padding and not any(variable in self._held for variable in variables):
            if destination.is_whole_variable:
                self.remove_variable(destination.source)  # type: ignore[arg-type]
            else:
                self.remove(destination)
            return
        elements = source.elements().reshape(-1)
        held = elements < 0
        for variable in source_variables(source.source):
            inside = (elements >= variable.first_element) & (elements < variable.first_element + variable.size)
            held[inside] = self.flags(variable)[elements[inside] - variable.first_element]
        targets = destination.elements().reshape(-1)
        for variable in source_variables(destination.source):
            inside = (targets >= variable.first_element) & (targets < variable.first_element + variable.size)
            flags = self.flags(variable).copy()
            flags[targets[inside] - variable.first_element] = held[inside]
            self._held[variable] = Elements.of_flags(flags)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no element."""
        return all(elements.first is None for elements in self._held.values())

    def equals(self, other: ElementSet) -> bool:
        """Whether two sets hold the same elements."""
        return all(self.of(variable).equals(other.of(variable)) for variable in {*self._held, *other._held})

    def __and__(self, other: ElementSet) -> ElementSet:
        held = other._held
        return ElementSet({variable: own & held[variable] for variable, own in self._held.items() if variable in held})

    def __or__(self, other: ElementSet) -> ElementSet:
        both = {
            variable: own | other._held[variable] for variable, own in self._held.items() if variable in other._held
        }
        return ElementSet({**self._held, **other._held, **both})

    def __sub__(self, other: ElementSet) -> ElementSet:
        held = other._held
        return ElementSet({v: own - held[v] if v in held else own for v, own in self._held.items()})

    def includes(self, other: ElementSet) -> bool:
        """Whether it holds all that the other set holds."""
        return all((others - self.of(variable)).first is None for variable, others in other._held.items())

    def missing(self, tensor: Tensor, axes: tuple[Axis, ...]) -> dict[Variable, int]:
        """Of each variable of which a view names elements that are not in the set the place of the first of them.

        Raises:
            SizeError: they are too many to be told apart one by one.
        """
        if all(self.of(variable).is_all for variable in source_variables(tensor.source)):
            return {}
        needed = ElementSet()
        needed.add(tensor, axes)
        firsts = {variable: (wanted - self.of(variable)).first for variable, wanted in needed._held.items()}
        return {variable: first for variable, first in firsts.items() if first is not None}

    def first_missing(self, tensor: Tensor, axes: tuple[Axis, ...]) -> int | None:
        """The graph's number of an element of a view that is not in the set; None when all are. As `missing`."""
        return next((variable.first_element + k for variable, k in self.missing(tensor, axes).items()), None)
