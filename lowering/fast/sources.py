"""Sources: variables and patchworks as arrays, and views of them read and written as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from lowering.fast.patchwork import assemble, patchwork_array, without_zeros
from lowering.fast.views import read, write_access
from lowering.plan.access import covers, take_apart


def _variable_array(arrays: Arrays, variable: Variable) -> Array:
    if variable not in arrays:
        arrays[variable] = jnp.zeros(variable.shape, variable.dtype)
    return arrays[variable]


def _viewed(array: Array, tensor: Tensor) -> Array:
    """The elements of a view without symbols of a source that is an array."""
    if tensor.is_whole_source:
        return array
    extensions, views = extend([tensor])
    if extensions:
        array, tensor = extensions[0].make(array), views[tensor]
    array, keys = read(array, tensor.index)
    return arranged(array, keys, range(tensor.ndim), tensor.shape)


def _values(arrays: Arrays, source: Patchwork) -> dict[Patch, Array]:
    """The elements of the patches that are no padding."""
    own = [(patch, patch.variable) for patch in source.patches]
    return {p: _viewed(_variable_array(arrays, v), Tensor(v, p.index)) for p, v in own if v is not None}


def source_array(arrays: Arrays, source: Source) -> Array:
    """The elements of a source as an array of its shape."""
    if isinstance(source, Variable):
        return _variable_array(arrays, source)
    return patchwork_array(source, _values(arrays, source))


def array_within_zeros(arrays: Arrays, source: Source, kept: Sequence[int]) -> tuple[Array, Sequence[tuple[int, int]]]:
    """A source without the zeros around it, and how many of them stand before and after each dimension.

    Along dimensions that are `kept` zeros are elements of the array, and none stand around it.
    """
    if isinstance(source, Variable):
        return _variable_array(arrays, source), [(0, 0)] * len(source.shape)
    region, patches = without_zeros(source, kept)
    array = assemble(source.shape, region, patches, _values(arrays, source), source.dtype)
    return array, [(start, n - stop) for (start, stop), n in zip(region, source.shape, strict=True)]


def read_view(arrays: Arrays, tensor: Tensor) -> Array:
    """The elements of a view without symbols, as an array of its shape."""
    if not tensor.size:
        return jnp.zeros(tensor.shape, tensor.dtype)
    return _viewed(source_array(arrays, tensor.source), tensor)


def _repeats(source: Patchwork) -> bool:
    """Whether an element stands at several positions of a source."""
    numbers = source_elements(source)
    numbers = numbers[numbers >= 0]
    return bool(numbers.size) and bool((np.bincount(numbers - numbers.min()) > 1).any())


def _written(
    before: Callable[[], Array], shape: tuple[int, ...], index: Index, value: Array, keys: Sequence[Key]
) -> Array:
    """An array of `shape` after a write through an access map; what was before is asked for where any of it is left."""
    digits = split_digits(index)
    if digits is not None:
        value, keys = digits.opened(value, keys)
        index = digits.index
    access = take_apart(shape, index)
    return reshape(write_access(None if covers(access) else before(), access, value, keys), shape)


def _write_variable(arrays: Arrays, variable: Variable, index: Index, value: Array, keys: Sequence[Key]) -> None:
    before = lambda: _variable_array(arrays, variable)  # noqa: E731
    arrays[variable] = _written(before, variable.shape, index, value, keys)


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
            _write_variable(arrays, variable, target, own, (0,))


def write_view(arrays: Arrays, source: Source, index: Index, value: Array, keys: Sequence[Key]) -> None:
    """Write `value`, with one dimension for each of `keys`, through an access map."""
    if 0 in value.shape:
        return
    if isinstance(source, Variable):
        _write_variable(arrays, source, index, value, keys)
    elif _repeats(source):
        _write_elements(arrays, source, index, value, keys)
    else:
        after = _written(lambda: source_array(arrays, source), source.shape, index, value, keys)
        for patch in source.patches:
            if patch.variable is not None:
                _write_variable(arrays, patch.variable, patch.index, *read(after, patch.places))


def write_tensor(arrays: Arrays, tensor: Tensor, value: Array) -> None:
    """Write an array to all of a view without symbols."""
    write_view(arrays, tensor.source, tensor.index, value, range(tensor.ndim))
