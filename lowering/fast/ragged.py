"""Ragged: emission of families with ragged fields.

All elements of all rows are one flat dimension. Where the codelet allows it, it runs on all rows at once
(`lowering/fast/segments.py`), but for those of lengths at which it does something else; any other codelet runs once
for each length that occurs, on all rows of that length together. Where every row is only reduced, and all its
fields are read through one table that names each element once, the elements are taken in the order in which they
lie in memory, so that nothing has to be gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.tracing.field_types import Lengths
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.integers import blocks_of, narrowed
from codelet.views.rows import Rows, together
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays, arranged, constant, take
from lowering.fast.inputs import Input, Inputs
from lowering.fast.over_grid import Operand, mapped_axes, over_axes
from lowering.fast.row_rules import NoRule
from lowering.fast.segments import BY_ELEMENT, BY_ROW, SHARED, RowsValue, Segments, run_segments

# --- the order of the elements --------------------------------------------------------------------------


def _table_of(tensor: Tensor) -> np.ndarray | None:
    """The table through which the ragged dimension of a view is read, if nothing else depends on that."""
    index, key = tensor.index, (tensor.ragged_dimension,)
    tables = [table for table in index.tables if tensor.ragged_dimension in table.keys]
    if len(tables) != 1 or tables[0].keys != key or index.coefficient(key[0]):
        return None
    return tables[0].values


class MemoryOrder(NamedTuple):
    """An order of the elements in which the table that they are read through rises in equal steps.

    Attributes:
        order: the number of the element that comes at each place, int32.
        first: what the table has for the first of them.
        step: by how much it rises.
    """

    order: np.ndarray
    first: int
    step: int


def _rising(table: np.ndarray) -> MemoryOrder | None:
    """The order that makes a table rise in equal steps, if it holds each number of such a row once."""
    low, high = int(table.min()), int(table.max())
    step = (high - low) // max(1, len(table) - 1)
    if high - low != step * (len(table) - 1) or (len(table) > 1 and not step):
        return None
    order, number = np.full(len(table), -1, np.int32), 0
    for (block,) in blocks_of(table):
        places = (block - low) // max(1, step)
        if step > 1 and (places * step != block - low).any():
            return None
        order[places] = np.arange(number, number + len(block))
        number += len(block)
    return None if (order < 0).any() else MemoryOrder(order, low, step)


def memory_order(family: Family) -> MemoryOrder | None:
    """The order of the elements in which all ragged fields are read from one end to the other, if there is one."""
    ragged = [(f, f.tensor) for f in family.fields if f.tensor is not None and f.tensor.rows is not None]
    tables = [None if field.is_written else _table_of(tensor) for field, tensor in ragged]
    first = tables[0] if tables else None
    if first is None or not first.size or any(own is None or not np.array_equal(own, first) for own in tables[1:]):
        return None
    return _rising(first)


def _in_order(family: Family, order: MemoryOrder) -> Family:
    """A family with the elements of its ragged fields in another order."""
    fields = []
    for field in family.fields:
        tensor = field.tensor
        if tensor is not None and tensor.rows is not None:
            # Of all its tables one is along the elements, and along nothing else; see `_table_of`.
            index, at = tensor.index, tensor.ragged_dimension
            (scale,) = (table.scale for table in index.tables if table.keys == (at,))
            strides = (*index.strides[:at], scale * order.step, *index.strides[at + 1 :])
            others = tuple(table for table in index.tables if table.keys != (at,))
            moved = Index(index.offset + scale * order.first, index.shape, strides, index.symbols, others)
            field = replace(field, tensor=Tensor(tensor.source, moved, tensor.rows, at))
        fields.append(field)
    return replace(family, fields=tuple(fields))


# --- operands ---------------------------------------------------------------------------------------------


def _ragged(field: Field) -> int | None:
    return field.tensor.ragged_dimension if field.tensor is not None and field.tensor.rows is not None else None


def _by_vertex(field: Field, operand: Operand, axes: Sequence[Axis]) -> RowsValue:
    """An operand with its elements, or rows over `axes`, first; where it is ragged, without an extent of 1 there."""
    array, keys = operand
    shape = field.tensor.shape if field.tensor is not None else field.type.shape
    dimensions, ragged = list(range(len(shape))), _ragged(field)
    if ragged is not None:
        order = [ragged, *(d for d in dimensions if d != ragged)]
        return RowsValue(arranged(array, keys, order, [shape[d] for d in order]), BY_ELEMENT, ragged)
    if not set(keys) & set(axes):
        return RowsValue(arranged(array, keys, dimensions, shape), SHARED)
    extents = [axis.extent for axis in axes]
    spread = arranged(array, keys, [*axes, *dimensions], [*extents, *shape])
    return RowsValue(spread.reshape(-1, *shape), BY_ROW)


def _inputs(family: Family, operands: Sequence[Operand], axes: Sequence[Axis]) -> list[RowsValue]:
    """The codelet's inputs, each with its elements or rows first."""
    return [_by_vertex(field, operand, axes) for field, operand in zip(family.inputs, operands, strict=True)]


def _each_ragged(family: Family, results: Sequence[Array], change: Callable[[Array, int], Array]) -> list[Array]:
    """The outputs of a family, those that are ragged changed, given in which dimension they are."""
    places = map(_ragged, family.outputs)
    return [result if at is None else change(result, at) for result, at in zip(results, places, strict=True)]


def _at_once(family: Family, segments: Segments, inputs: Sequence[RowsValue]) -> list[Array]:
    """The codelet on rows all at once: outputs by row, and ragged ones by element."""
    single = lambda array, at: array if at is None else jnp.expand_dims(array, at + 1)  # noqa: E731
    values = [value._replace(array=single(value.array, value.ragged)) for value in inputs]
    results = run_segments(family.codelet, segments, values)
    return _each_ragged(family, results, lambda result, at: jnp.squeeze(result, at + 1))


def _in_codelets_order(family: Family, results: Sequence[Array]) -> list[Array]:
    """Results with the dimension that is ragged, which comes first, in its place."""
    return _each_ragged(family, results, lambda result, at: jnp.moveaxis(result, 0, at))


def _segmented(family: Family, axes: Sequence[Axis], segments: Segments) -> Callable[..., list[Array]]:
    """The codelet on all rows at once."""
    return lambda operands: _in_codelets_order(family, _at_once(family, segments, _inputs(family, operands, axes)))


def _bucketed(family: Family, axes: Sequence[Axis], at_once: bool) -> Callable[..., list[Array]]:
    """The codelet once for each length, on all rows of that length together.

    With `at_once`, the rows of lengths for which the codelet's jaxpr stands are run together.
    """
    kinds = together(family.rows.values())
    number_of = {rows.key: k for k, rows in enumerate(family.rows.values())}
    lengths, group_of = kinds.lengths, kinds.group_of
    numbers = [kinds.numbers(k) for k in range(len(kinds.kinds))]
    alone = [k for k, own in enumerate(lengths.tolist()) if not at_once or tuple(own) in family.codelet.apart]
    groups = [(np.flatnonzero(group_of == k), dict(zip(family.rows, lengths[k].tolist(), strict=True))) for k in alone]
    others = np.flatnonzero(~np.isin(group_of, alone))

    def some(rows: Rows, vertices: np.ndarray) -> tuple[Rows, np.ndarray]:
        """The rows of some vertices, and the numbers of their elements."""
        own = numbers[number_of[rows.key]][vertices]
        chosen = Rows(Grid([range(len(vertices))]).axes, rows.counts[own])
        return chosen, chosen.places + np.repeat(rows.offsets[own], chosen.lengths)

    def elements(field: Field, vertices: np.ndarray) -> np.ndarray:
        assert field.tensor is not None
        assert field.tensor.rows is not None
        return some(field.tensor.rows, vertices)[1]

    def taken(inputs: Sequence[RowsValue], vertices: np.ndarray) -> Iterator[RowsValue]:
        """The inputs of some vertices."""
        for field, value in zip(family.inputs, inputs, strict=True):
            if value.level != SHARED:
                numbers = vertices if value.ragged is None else elements(field, vertices)
                value = value._replace(array=take(value.array, constant(narrowed(numbers))))
            yield value

    def call(inputs: Sequence[RowsValue], vertices: np.ndarray, length: Lengths) -> list[Array]:
        """What vertices whose rows are of one length compute."""
        arrays = []
        for field, (array, _, at) in zip(family.inputs, taken(inputs, vertices), strict=True):
            if at is not None:
                each = array.reshape(len(vertices), length[field.type.shape[at]], *array.shape[1:])
                array = jnp.moveaxis(each, 1, at + 1)
            arrays.append(array)
        mapped = tuple(None if value.level == SHARED else 0 for value in inputs)
        codelet = family.codelet.at(length)
        results = jax.vmap(lambda *own: list(codelet.call(*own).values()), in_axes=mapped)(*arrays)

        def flat(result: Array, at: int) -> Array:
            moved = jnp.moveaxis(result, at + 1, 1)
            return moved.reshape(moved.shape[0] * moved.shape[1], *moved.shape[2:])

        return _each_ragged(family, results, flat)

    def run(operands: Sequence[Operand]) -> list[Array]:
        inputs = _inputs(family, operands, axes)
        parts = [call(inputs, vertices, length) for vertices, length in groups]
        chosen = [vertices for vertices, _ in groups]
        if others.size:
            (rows,) = family.rows.values()
            parts.append(_at_once(family, Segments(some(rows, others)[0], None), list(taken(inputs, others))))
            chosen.append(others)
        results = []
        for field, own in zip(family.outputs, zip(*parts, strict=True), strict=True):
            places = [vertices if _ragged(field) is None else elements(field, vertices) for vertices in chosen]
            back = np.argsort(np.concatenate(places))
            results.append(take(jnp.concatenate(own), constant(narrowed(back))))
        return _in_codelets_order(family, results)

    return run


# --- families -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowsTogether:
    """A family with ragged fields, many of its rows at once.

    Attributes:
        inputs: of each input of the codelet.
        jaxpr: what all vertices compute of them.
        keys: of each dimension of every output.
        how: the rows are taken, in words.
    """

    family: Family
    inputs: tuple[Input, ...]
    jaxpr: jax_core.ClosedJaxpr
    keys: Mapping[str, tuple[Key, ...]]
    how: str

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """What every output computes, from the arrays before the compute set, with the keys of its dimensions."""
        results = jax_core.jaxpr_as_fun(self.jaxpr)(*(each.of(arrays) for each in self.inputs))
        return {name: (result, keys) for (name, keys), result in zip(self.keys.items(), results, strict=True)}

    @property
    def reads(self) -> dict[str, str]:
        """How each field is read, in words."""
        return dict(zip(self.family.codelet.inputs, map(str, self.inputs), strict=True))

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        return self.how


def _lengths_text(count: int) -> str:
    return "once for one length" if count == 1 else f"once for each of {count:,} lengths"


def as_segments(family: Family, inputs: Inputs) -> RowsTogether | str:
    """A family with ragged fields, all its rows at once, but for those of lengths told apart; or why that cannot be."""
    if not family.rows:
        return ""
    kinds, apart = list(family.rows.values()), len(family.codelet.apart)
    if len(kinds) > 1:
        return "its fields have rows of several lengths"
    if apart and apart >= len(kinds[0].occurring):
        return "the codelet does something else at each length"
    axes = together(kinds).axes
    try:
        if apart:
            how = f"all rows at once, by segments, but {_lengths_text(apart)} at which the codelet does something else"
            return _traced(family, inputs, axes, _bucketed(family, axes, at_once=True), how)
        order = memory_order(family)
        how = "all rows at once, by segments"
        if order is not None:
            family, how = _in_order(family, order), how + ", elements in the order of memory"
        return _traced(family, inputs, axes, _segmented(family, axes, Segments(kinds[0], order and order.order)), how)
    except NoRule as why:
        return str(why)


def as_buckets(family: Family, inputs: Inputs) -> RowsTogether | str:
    """A family with ragged fields, all rows of one length at once."""
    if not family.rows:
        return ""
    kinds = together(family.rows.values())
    how = f"rows of one length at once, {_lengths_text(len(kinds.lengths))}"
    return _traced(family, inputs, kinds.axes, _bucketed(family, kinds.axes, at_once=False), how)


def _traced(
    family: Family,
    inputs: Inputs,
    axes: tuple[Axis, ...],
    run: Callable[[Sequence[Operand]], list[Array]],
    how: str,
) -> RowsTogether:
    """A family as `run` computes it from operands, mapped over the axes that choose no row."""
    own = tuple(inputs.of(field, family.axes) for field in family.inputs)
    keys = [each.keys for each in own]
    free = [axis for axis in mapped_axes(keys, family.axes) if axis not in axes]
    inner = [tuple(key for key in each if key not in free) for each in keys]
    function: Callable[..., list[Array]] = lambda *arrays: run(list(zip(arrays, inner, strict=True)))  # noqa: E731
    function = over_axes(function, keys, free)
    outputs: dict[str, tuple[Key, ...]] = {}
    shapes: list[tuple[int, ...] | None] = []
    for field in family.outputs:
        tensor = field.tensor
        assert tensor is not None
        leading = free if tensor.rows is not None else [*free, *axes]
        outputs[field.name] = (*leading, *range(tensor.ndim))
        shapes.append(None if tensor.rows is not None else (*(axis.extent for axis in leading), *tensor.shape))

    def results(*arrays: Array) -> list[Array]:
        made = zip(function(*arrays), shapes, strict=True)
        return [result if shape is None else result.reshape(shape) for result, shape in made]

    structs = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in own]
    return RowsTogether(family, own, jax.make_jaxpr(results)(*structs), outputs, how)
