"""Compute sets and copies, emitted on arrays of variables.

Every variable is one array in logical order. A family runs as its codelet under nested `vmap`, one for
each axis of its grid, on operands as they lie in memory, so that XLA sees matrix products where there are
some. Random numbers are drawn ahead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax.numpy as jnp

from codelet.graphs.family import Family, Field
from codelet.views.index import Axis, Index, Key
from codelet.views.tensor import Tensor, Variable
from lowering.arrays import Array, Arrays, arranged, constant
from lowering.fast.convolutions import Convolution, as_convolution, convolve
from lowering.fast.draws import draw_ahead
from lowering.fast.extend import extend_families, made
from lowering.fast.interleave import find_interleaving, interleave
from lowering.fast.over_grid import Operand, mapped_axes, over_grid
from lowering.fast.partition import divide, join, split, within
from lowering.fast.ragged import call_rows
from lowering.fast.short_axes import merge_short_axes
from lowering.fast.small_windows import elements_of, is_small_window, take_jaxpr_apart
from lowering.fast.sources import array_within_zeros, read_view, source_array, write_tensor, write_view
from lowering.fast.views import boxed, computed, read, read_access, write_access
from lowering.plan.access import Access, take_apart
from lowering.plan.steps import CopyStep, ExecuteStep

Pieces = dict[Field, tuple[Array, Access]]
"""For some fields, the piece of a divided variable that they read, and the access to it."""

SMALL = 64
"""Elements; constants of at most this many stand in the jaxpr itself."""


# --- families -----------------------------------------------------------------------------------------


def _state_array(field: Field, axes: tuple[Axis, ...]) -> tuple[Any, tuple[Key, ...]]:
    """Vertex state as an array, and the key of each of its dimensions."""
    assert field.state is not None
    index, array = field.state.index, field.state.array
    if index is not None:
        values, keys = computed(index)
        return values.astype(field.type.dtype), keys
    assert array is not None
    own = axes if array.ndim > len(field.type.shape) else ()
    value = array if array.size <= SMALL and not own else constant(array)
    return value, (*own, *range(len(field.type.shape)))


def _operand(arrays: Arrays, field: Field, axes: tuple[Axis, ...], pieces: Pieces) -> tuple[Any, tuple[Key, ...]]:
    """An input as an array in memory order, and the key of each of its dimensions."""
    if field.tensor is None:
        return _state_array(field, axes)
    if not field.tensor.size:
        return jnp.zeros(field.tensor.shape, field.tensor.dtype), tuple(range(field.tensor.ndim))
    if field in pieces:
        return read_access(*pieces[field])
    return read(source_array(arrays, field.tensor.source), field.tensor.index)


def _call_family(arrays: Arrays, family: Family, pieces: Pieces) -> dict[str, tuple[Array, tuple[Key, ...]]]:
    """What every output field of a family computes, with the keys of its dimensions."""
    if family.rows:
        return call_rows(family, lambda field: _operand(arrays, field, family.axes, pieces))
    convolution = as_convolution(family)
    if convolution is not None:
        return _convolve_family(arrays, family, convolution)
    by_name = {field.name: field for field in family.fields}
    fields = [by_name[name] for name in family.codelet.inputs]
    windows = [field not in pieces and is_small_window(field) for field in fields]
    jaxpr = take_jaxpr_apart(family.codelet.jaxpr, windows) if any(windows) else None
    operands: list[Operand] = []
    for field, is_window in zip(fields, windows, strict=True):
        if jaxpr is not None and is_window:
            assert field.tensor is not None
            array = source_array(arrays, field.tensor.source)
            operands += [read(array, element.index) for element in elements_of(field.tensor)]
        else:
            operands.append(_operand(arrays, field, family.axes, pieces))
    jaxpr, operands = draw_ahead(jaxpr or family.codelet.jaxpr, operands, family.axes)
    mapped = mapped_axes(operands, family.axes)
    results = over_grid(jaxpr, operands, mapped)
    return {
        name: (result, (*mapped, *range(len(kind.shape))))
        for (name, kind), result in zip(family.codelet.outputs.items(), results, strict=True)
    }


def _convolve_family(arrays: Arrays, family: Family, found: Convolution) -> dict[str, tuple[Array, tuple[Key, ...]]]:
    """What a family that is a convolution computes."""
    assert found.image.tensor is not None
    ((name, kind),) = family.codelet.outputs.items()
    image, widths = array_within_zeros(arrays, found.image.tensor.source, found.unpadded)
    kernel, keys = _operand(arrays, found.kernel, family.axes, {})
    return {name: convolve(found, image, widths, kernel, keys, kind.dtype)}


def _spread(array: Array, keys: tuple[Key, ...], field: Field, axes: tuple[Axis, ...]) -> tuple[Array, tuple[Key, ...]]:
    """A result repeated along the axes that no input depends on but that the output is written along."""
    assert field.tensor is not None
    wanted = [axis for axis in axes if axis in keys or axis in field.tensor.index.axes]
    order = (*wanted, *range(field.tensor.ndim))
    extents = (*(axis.extent for axis in wanted), *field.tensor.shape)
    return arranged(array, keys, order, extents), order


# --- compute sets -------------------------------------------------------------------------------------


def _pieces(arrays: Arrays, families: Sequence[Family]) -> Pieces:
    """For fields that together divide a variable they read, the piece that each reads, and how."""
    reads: dict[Variable, dict[Field, Index]] = {}
    for family in families:
        for field in family.fields:
            if field.is_read and field.tensor is not None and field.tensor.size:
                source = field.tensor.source
                if isinstance(source, Variable):
                    reads.setdefault(source, {})[field] = field.tensor.index
    pieces: Pieces = {}
    for variable, indices in reads.items():
        if len(indices) == 1:
            continue
        accesses: dict[Hashable, Access] = {f: take_apart(variable.shape, index) for f, index in indices.items()}
        division = divide(variable.shape, accesses)
        if division is not None:
            parts = split(source_array(arrays, variable), division)
            for field, access in accesses.items():
                place = division.place[field]
                assert isinstance(field, Field)
                pieces[field] = parts[place], within(access, division, place)
    return pieces


def _write_all(arrays: Arrays, writes: Sequence[tuple[Tensor, Array, tuple[Key, ...]]]) -> None:
    """Write what a compute set computed: parts that divide a variable as one, the rest one by one."""
    by_variable: dict[Variable, dict[int, Index]] = {}
    for k, (tensor, value, _) in enumerate(writes):
        if isinstance(tensor.source, Variable) and value.size:
            by_variable.setdefault(tensor.source, {})[k] = tensor.index
    done: set[Hashable] = set()
    for variable, indices in by_variable.items():
        if len(indices) == 1:
            continue
        accesses: dict[Hashable, Access] = {k: take_apart(variable.shape, index) for k, index in indices.items()}
        division = divide(variable.shape, accesses)
        if division is not None:
            values = {}
            for k, access in accesses.items():
                assert isinstance(k, int)
                _, value, keys = writes[k]
                values[division.place[k]] = write_access(None, within(access, division, division.place[k]), value, keys)
            before = None if len(values) == len(division.sizes) else source_array(arrays, variable)
            arrays[variable] = join(before, division, values)
            done.update(accesses)
            continue
        found = find_interleaving(variable.shape, accesses) if len(accesses) > 1 else None
        if found is not None:
            values = {k: boxed(accesses[k], *writes[k][1:]) for k in accesses}  # type: ignore[call-overload]
            before = None if found.is_whole else source_array(arrays, variable)
            arrays[variable] = interleave(before, variable.shape, found, values)
            done.update(accesses)
    for k, (tensor, value, keys) in enumerate(writes):
        if k not in done:
            write_view(arrays, tensor.source, tensor.index, value, keys)


def execute(arrays: Arrays, step: ExecuteStep) -> None:
    """Run a compute set: all families read the state as it was before; then all write. The state is changed."""
    before = dict(arrays)
    extensions, families = extend_families([merge_short_axes(family) for family in step.families])
    before.update(made(extensions, lambda source: source_array(before, source)))
    pieces = _pieces(before, families)
    results = [_call_family(before, family, pieces) for family in families]
    writes = []
    for family, result in zip(families, results, strict=True):
        for field in family.fields:
            if field.is_written:
                assert field.tensor is not None
                writes.append((field.tensor, *_spread(*result[field.name], field, family.axes)))
    _write_all(arrays, writes)


def copy(arrays: Arrays, step: CopyStep) -> None:
    """Copy a view to another. The state is changed."""
    write_tensor(arrays, step.destination, read_view(arrays, step.source))
