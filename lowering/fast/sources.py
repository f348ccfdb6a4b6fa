"""Sources: variables and patchworks as arrays, and views of them read and written as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.sources import Patch, Patchwork, Source, Variable, source_elements
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays, arranged, constant, reshape, take
from lowering.fast.extend import extend
from lowering.fast.mixed_radix import split_digits
from lowering.fast.patchwork import assemble, within_zeros
from lowering.fast.views import read, write_access
from lowering.plan.access import covers, take_apart


def source_array(arrays: Arrays, source: Source) -> Array:
    """The elements of a source as an array of its shape."""
    if not isinstance(source, Variable):
        return assemble(source, lambda patch: read_patch(arrays, patch))
    if source not in arrays:
        arrays[source] = jnp.zeros(source.shape, source.dtype)
    return arrays[source]


def read_patch(arrays: Arrays, patch: Patch) -> Array:
    """The elements of a patch that is no padding, as an array of its shape."""
    assert patch.variable is not None
    return read_view(arrays, Tensor(patch.variable, patch.index))


def array_within_zeros(arrays: Arrays, source: Source, kept: Sequence[int]) -> tuple[Array, list[tuple[int, int]]]:
    """A source without the zeros around it, and how many of them stand before and after each dimension.

    Along dimensions that are `kept` zeros are elements of the array, and none stand around it.
    """
    if isinstance(source, Variable):
        return source_array(arrays, source), [(0, 0)] * len(source.shape)
    region = within_zeros(source, kept)
    array = assemble(source, lambda patch: read_patch(arrays, patch), region)
    return array, [(start, n - stop) for (start, stop), n in zip(region, source.shape, strict=True)]


def read_view(arrays: Arrays, tensor: Tensor) -> Array:
    """The elements of a view without symbols, as an array of its shape."""
    if not tensor.size:
        return jnp.zeros(tensor.shape, tensor.dtype)
    array = source_array(arrays, tensor.source)
    if tensor.is_whole_source:
        return array
    extensions, views = extend([tensor])
    if extensions:
        array, tensor = extensions[0].make(array), views[tensor]
    array, keys = read(array, tensor.index)
    return arranged(array, keys, range(tensor.ndim), tensor.shape)


def _repeats(source: Patchwork) -> bool:
    """Whether an element stands at several positions of a source."""
    numbers = source_elements(source)
    numbers = numbers[numbers >= 0]
    return bool(numbers.size) and bool((np.bincount(numbers - numbers.min()) > 1).any())


def _write_elements(arrays: Arrays, source: Patchwork, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write to the elements of variables one by one: the other positions of a source would bring back old values."""
    numbers = source_elements(source)[index.values_over(keys)].reshape(-1)
    value = reshape(value, (value.size,))
    for variable in source.variables:
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
    if isinstance(source, Patchwork) and _repeats(source):
        _write_elements(arrays, source, index, value, keys)
        return
    digits = split_digits(index)
    if digits is not None:
        value, keys = digits.opened(value, keys)
        index = digits.index
    access = take_apart(source.shape, index)
    before = None if covers(access) else source_array(arrays, source)
    after = reshape(write_access(before, access, value, keys), source.shape)
    if isinstance(source, Variable):
        arrays[source] = after
        return
    for patch in source.patches:
        if patch.variable is not None:
            write_view(arrays, patch.variable, patch.index, *read(after, patch.places))


def write_tensor(arrays: Arrays, tensor: Tensor, value: Array) -> None:
    """Write an array to all of a view without symbols."""
    write_view(arrays, tensor.source, tensor.index, value, range(tensor.ndim))
