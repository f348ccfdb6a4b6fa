"""Sources: variables, joins and padded views as arrays, and views of them read and written as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.sources import Pad, Source, Variable, source_elements, source_text, source_variables
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays, arranged, constant, reshape, take
from lowering.fast.extend import Extension, extend
from lowering.fast.partition import Division
from lowering.fast.reads import Read, plan_view
from lowering.fast.writes import plan_write


class Piece(NamedTuple):
    """A part of a variable that several fields divide among them."""

    variable: Variable
    division: Division
    number: int


Origin = Source | Extension | Piece
"""What is read; a piece, and an extension that several read, are made before."""


def origin_text(origin: Origin) -> str:
    """What is read, in words."""
    match origin:
        case Extension():
            return f"{source_text(origin.source)}, extended to {' x '.join(map(str, origin.shape))}"
        case Piece(variable, division, number):
            parts = f"part {number + 1} of {len(division.sizes)}"
            return f"{variable.name}, {parts} along dimension {division.dimension}"
    return source_text(origin)


def origin_array(arrays: Arrays, origin: Origin) -> Array:
    """What is read, as an array, which is added to those of the variables before a step."""
    if origin not in arrays:
        assert not isinstance(origin, Piece)
        is_extension = isinstance(origin, Extension)
        source = source_array(arrays, origin.source if is_extension else origin)
        arrays[origin] = origin.make(source) if is_extension else source
    return arrays[origin]


def source_array(arrays: Arrays, source: Source) -> Array:
    """The elements of a source as an array of its shape."""
    if isinstance(source, Variable):
        if source not in arrays:
            arrays[source] = jnp.zeros(source.shape, source.dtype)
        return arrays[source]
    if isinstance(source, Pad):
        return lax.pad(read_view(arrays, source.part), source.value, [(a, b, 0) for a, b in source.widths])
    return lax.concatenate([read_view(arrays, part) for part in source.parts], source.dimension)


@dataclass(frozen=True, eq=False)
class View:
    """How a view without symbols is read, as an array of its shape; with no read where it has no elements."""

    tensor: Tensor
    origin: Origin
    read: Read | None

    def of(self, arrays: Arrays) -> Array:
        """The elements of the view."""
        if self.read is None:
            return jnp.zeros(self.tensor.shape, self.tensor.dtype)
        return self.read.of(origin_array(arrays, self.origin))

    def __str__(self) -> str:
        return "nothing" if self.read is None else f"{origin_text(self.origin)}, {self.read}"


def plan_tensor_read(tensor: Tensor) -> View:
    """How a view without symbols is read."""
    if not tensor.size:
        return View(tensor, tensor.source, None)
    extensions, views = ([], {}) if tensor.is_whole_variable else extend([tensor])
    origin = extensions[0] if extensions else tensor.source
    return View(tensor, origin, plan_view(origin.shape, views.get(tensor, tensor).index))


def read_view(arrays: Arrays, tensor: Tensor) -> Array:
    """The elements of a view without symbols, as an array of its shape."""
    return plan_tensor_read(tensor).of(dict(arrays))


def _repeats(source: Source) -> bool:
    """Whether an element stands at several positions of a source."""
    numbers = source_elements(source)
    numbers = numbers[numbers >= 0]
    return bool(numbers.size) and bool((np.bincount(numbers - numbers.min()) > 1).any())


def _write_elements(arrays: Arrays, source: Source, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write to the elements of variables one by one: the other positions of a source would bring back old values."""
    order = (*index.axes, *range(index.ndim))
    numbers = source_elements(source)[index.values_over(order)].reshape(-1)
    value = reshape(arranged(value, keys, order, [index.extent(key) for key in order]), numbers.shape)
    for variable in source_variables(source):
        positions = numbers - variable.first_element
        inside = np.flatnonzero((positions >= 0) & (positions < variable.size))
        if inside.size:
            target = Index.from_values(positions[inside], (0,), inside.shape)
            every = inside.size == value.size
            own = value if every else take(value, constant(narrowed(inside)))
            write_view(arrays, variable, target, own, (0,))


def write_view(arrays: Arrays, source: Source, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write `value`, with one dimension for each of `keys`, through an access map."""
    if 0 in value.shape:
        return
    if not isinstance(source, Variable) and _repeats(source):
        _write_elements(arrays, source, index, value, keys)
        return
    write = plan_write(source.shape, index)
    after = write.into(None if write.is_whole else source_array(arrays, source), source.shape, value, keys)
    if isinstance(source, Variable):
        arrays[source] = after
        return
    for part, box in source.regions():
        piece = lax.slice(after, [side.start for side in box], [side.stop for side in box])
        write_view(arrays, part.source, part.index, piece, range(part.ndim))


def write_tensor(arrays: Arrays, tensor: Tensor, value: Array) -> None:
    """Write an array to all of a view without symbols."""
    write_view(arrays, tensor.source, tensor.index, value, range(tensor.ndim))
