"""Sources: variables and patchworks as arrays, and views of them read and written as a whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from codelet.views.boxes import Box, lengths_of
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.sources import Patch, Patchwork, Source, Variable, source_elements, source_text
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays, arranged, constant, reshape, take
from lowering.fast.extend import Extension, extend
from lowering.fast.partition import Division
from lowering.fast.patchwork import Placed, assemble, between_zeros, patchwork_array, without_zeros
from lowering.fast.reads import Read, as_it_lies, plan_read, plan_view
from lowering.fast.writes import plan_write

# --- what is read ---------------------------------------------------------------------------------------


class SplitPiece(NamedTuple):
    """A part of a variable that several fields divide among them."""

    variable: Variable
    division: Division
    number: int

    def __str__(self) -> str:
        parts = f"part {self.number + 1} of {len(self.division.sizes)}"
        return f"{self.variable.name}, {parts} along dimension {self.division.dimension}"


@dataclass(frozen=True, eq=False)
class WithinZeros:
    """A patchwork without zeros that stand around it: a region of it, and its patches."""

    source: Patchwork
    region: Box
    patches: tuple[Placed, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return lengths_of(self.region)

    def __str__(self) -> str:
        return f"{source_text(self.source)} within its zeros"


Origin = Source | Extension | WithinZeros | SplitPiece
"""What is read. Pieces are made before."""


def origin_array(arrays: Arrays, origin: Origin) -> Array:
    """What is read, as an array, which is added to those of the variables before a step."""
    if origin not in arrays:
        match origin:
            case Extension():
                arrays[origin] = origin.make(origin_array(arrays, origin.source))
            case WithinZeros(source, region, patches):
                arrays[origin] = assemble(source.shape, region, patches, _values(arrays, source), source.dtype)
            case Variable() | Patchwork():
                arrays[origin] = source_array(arrays, origin)
    return arrays[origin]


def _values(arrays: Arrays, source: Patchwork) -> dict[Patch, Array]:
    """The elements of the patches that are no padding."""
    own = [(patch, patch.variable) for patch in source.patches]
    return {p: plan_view_of(Tensor(v, p.index)).of(arrays) for p, v in own if v is not None}


def source_array(arrays: Arrays, source: Source) -> Array:
    """The elements of a source as an array of its shape."""
    if isinstance(source, Patchwork):
        return patchwork_array(source, _values(arrays, source))
    if source not in arrays:
        arrays[source] = jnp.zeros(source.shape, source.dtype)
    return arrays[source]


@dataclass(frozen=True, eq=False)
class Viewed:
    """What is read through an access map.

    Attributes:
        origin: of what; None of nothing, where there are no elements.
        read: how.
        dtype: of its elements.
    """

    origin: Origin | None
    read: Read
    dtype: np.dtype

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of each dimension of the array."""
        return self.read.keys

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.read.shape

    def of(self, arrays: Arrays) -> Array:
        """The array, from those before, to which what is made on the way is added."""
        if self.origin is None:
            return jnp.zeros(self.shape, self.dtype)
        return self.read.of(origin_array(arrays, self.origin))

    def __str__(self) -> str:
        if self.origin is None:
            return "nothing"
        name = source_text(self.origin) if isinstance(self.origin, (Variable, Patchwork)) else str(self.origin)
        return f"{name}, {self.read}"


def nothing(shape: tuple[int, ...], dtype: np.dtype) -> Viewed:
    """What is read where there are no elements."""
    return Viewed(None, as_it_lies(shape), dtype)


def plan_view_of(tensor: Tensor) -> Viewed:
    """How a view without symbols is read, as an array of its shape."""
    if not tensor.size:
        return nothing(tensor.shape, tensor.dtype)
    if tensor.is_whole_source:
        return Viewed(tensor.source, as_it_lies(tensor.shape), tensor.dtype)
    extensions, views = extend([tensor])
    origin = extensions[0] if extensions else tensor.source
    return Viewed(origin, plan_view(origin.shape, views.get(tensor, tensor).index), tensor.dtype)


class AmongZeros(NamedTuple):
    """A source without the zeros around it and between its elements.

    Attributes:
        view: what is left of it.
        widths: how many zeros stand before and after each dimension.
        steps: by how many positions the elements along each dimension are apart.
    """

    view: Viewed
    widths: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]


def plan_among_zeros(source: Source, kept: Collection[int]) -> AmongZeros:
    """All of a source without the zeros around it and between its elements.

    Along dimensions that are `kept` zeros are elements of it, and none stand around it.
    """
    plain = (1,) * len(source.shape)
    if not isinstance(source, Patchwork):
        return AmongZeros(Viewed(source, as_it_lies(source.shape), source.dtype), ((0, 0),) * len(source.shape), plain)
    dilated = between_zeros(source)
    if dilated is not None and all(dilated.index.shape[d] == source.shape[d] for d in kept):
        variable, index, starts, steps = dilated
        along = zip(source.shape, starts, steps, index.shape, strict=True)
        widths = tuple((start, n - start - step * (count - 1) - 1) for n, start, step, count in along)
        return AmongZeros(plan_view_of(Tensor(variable, index)), widths, steps)
    region, patches = without_zeros(source, kept)
    widths = tuple((start, n - stop) for (start, stop), n in zip(region, source.shape, strict=True))
    origin = source if lengths_of(region) == source.shape else WithinZeros(source, region, tuple(patches))
    return AmongZeros(Viewed(origin, as_it_lies(origin.shape), source.dtype), widths, plain)


def steps_among_zeros(source: Source) -> tuple[int, ...]:
    """By how many positions the elements along each dimension of a source are apart, with zeros between them."""
    dilated = between_zeros(source) if isinstance(source, Patchwork) else None
    return (1,) * len(source.shape) if dilated is None else dilated.steps


def read_view(arrays: Arrays, tensor: Tensor) -> Array:
    """The elements of a view without symbols, as an array of its shape."""
    return plan_view_of(tensor).of(dict(arrays))


# --- what is written ------------------------------------------------------------------------------------


def _written(arrays: Arrays, source: Source, index: Index, value: Array, keys: Sequence[Key]) -> Array:
    """A source as an array, after a write."""
    write = plan_write(source.shape, index)
    before = None if write.is_whole else source_array(arrays, source)
    return write.into(before, source.shape, value, keys)


def repeats(source: Patchwork) -> bool:
    """Whether an element stands at several positions of a source."""
    numbers = source_elements(source)
    numbers = numbers[numbers >= 0]
    return bool(numbers.size) and bool((np.bincount(numbers - numbers.min()) > 1).any())


def _write_elements(arrays: Arrays, source: Patchwork, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write to the elements of variables one by one: the other positions of a source would bring back old values."""
    order = (*index.axes, *range(index.ndim))
    numbers = source_elements(source)[index.values_over(order)].reshape(-1)
    value = reshape(arranged(value, keys, order, [index.extent(key) for key in order]), numbers.shape)
    for variable in source.variables:
        positions = numbers - variable.first_element
        inside = np.flatnonzero((positions >= 0) & (positions < variable.size))
        if inside.size:
            target = Index.from_values(positions[inside], (0,), inside.shape)
            every = inside.size == value.size
            own = value if every else take(value, constant(narrowed(inside)))
            arrays[variable] = _written(arrays, variable, target, own, (0,))


def write_view(arrays: Arrays, source: Source, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write `value`, with one dimension for each of `keys`, through an access map."""
    if 0 in value.shape:
        return
    if isinstance(source, Variable):
        arrays[source] = _written(arrays, source, index, value, keys)
    elif repeats(source):
        _write_elements(arrays, source, index, value, keys)
    else:
        after = _written(arrays, source, index, value, keys)
        for patch in source.patches:
            if patch.variable is not None:
                read = plan_read(source.shape, patch.places)
                arrays[patch.variable] = _written(arrays, patch.variable, patch.index, read.of(after), read.keys)


def write_tensor(arrays: Arrays, tensor: Tensor, value: Array) -> None:
    """Write an array to all of a view without symbols."""
    write_view(arrays, tensor.source, tensor.index, value, range(tensor.ndim))
