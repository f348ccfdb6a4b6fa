"""Blocks of rows: what vertices look up, or update, each in some of the rows of a table, as done once in all rows.

A vertex of a block takes all indices, less the number of its first row: those of others lead beyond its ends, where a
gather gives zero and a scatter does nothing. So the indices of the block at place b along the batches are b * rows less
than those of the first, which are those into all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.field.computed_in_numpy import computed_in_numpy
from codelet.jaxprs.equations import Atomic, Makers, bind
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit, row_major_digits
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.remade import Remade
from lowering.jaxprs.summed import Sum, shape_of

_DROPS = lax.GatherScatterMode.FILL_OR_DROP
_MOST_KNOWN = 1 << 16
"""Elements of what is evaluated at most to find where blocks of rows begin."""


_EVALUATED = ("iota", "mul", "add", "convert_element_type", "reshape", "broadcast_in_dim", "squeeze")


def _whole_dimension(view: Rearrangement, d: int) -> int | None:
    """The dimension of the root that a dimension of a rearrangement is, all of it; None where it is none."""
    whole = row_major_digits(shape_of(view.root))
    return whole.index(view.dims[d][0]) if len(view.dims[d]) == 1 and view.dims[d][0] in whole else None


def _digits_without(view: Rearrangement, d: int) -> list[Digit]:
    """The digits of a rearrangement without a dimension that is one of the root, of the root without that."""
    ((step, extent),) = view.dims[d]
    rest = (own for k, dim in enumerate(view.dims) if k != d for own in dim)
    return [Digit(own.step // extent if own.step > step else own.step, own.extent) for own in rest]


@dataclass(frozen=True)
class _RepeatedArray:
    """An array that is the same all along a dimension, as one without that dimension.

    Attributes:
        sources: what it is made from.
        run: the array without the dimension, of these.
    """

    sources: tuple[Atomic, ...]
    run: Callable[..., Any]


def _repeated(atom: Atomic, d: int, makers: Makers) -> _RepeatedArray | None:
    """An array without a dimension along which it is the same; None where it is not known to be."""
    view, shape = rearrangement(atom, makers, stop=lambda _: False), shape_of(atom)
    left = [n for k, n in enumerate(shape) if k != d]
    if all(not digit.step for digit in view.dims[d]):
        rest = [own for k, dim in enumerate(view.dims) if k != d for own in dim]
        return _RepeatedArray((view.root,), lambda root: rearrange(root, rest, left))
    maker, along = makers.of(view.root), _whole_dimension(view, d)
    if maker is None or along is None or not is_understood(maker, "dynamic_update_slice"):
        return None
    held, update, *starts = maker.invars
    parts = [_repeated(own, along, makers) for own in (held, update)]
    if not all(isinstance(start, jax_core.Literal) for start in starts) or None in parts:
        return None
    if shape_of(update)[along] != shape[d]:
        return None
    under, over = (own for own in parts if own is not None)
    digits = _digits_without(view, d)
    places = [int(start.val) for k, start in enumerate(starts) if k != along]  # type: ignore[union-attr]
    count = len(under.sources)

    def run(*given: Any) -> Any:
        made = lax.dynamic_update_slice(under.run(*given[:count]), over.run(*given[count:]), places)
        return rearrange(made, digits, left)

    return _RepeatedArray((*under.sources, *over.sources), run)


def known_value(atom: Atomic, makers: Makers, constants: dict[Any, Any]) -> np.ndarray | None:
    """The value of an array that depends on no input; None where it does, or is large."""
    if isinstance(atom, jax_core.Literal):
        return np.asarray(atom.val)  # type: ignore[attr-defined]
    if math.prod(shape_of(atom)) > _MOST_KNOWN:
        return None
    if atom in constants:
        return np.asarray(constants[atom])
    maker = makers.of(atom)
    if maker is None or not is_understood(maker, *_EVALUATED):
        return None
    given = [known_value(own, makers, constants) for own in maker.invars]
    if any(own is None for own in given):
        return None
    made = computed_in_numpy(maker, given)
    if made is not None:
        return made[0]
    with jax.ensure_compile_time_eval():
        return np.asarray(bind(maker, given)[0])


def _counts_down(
    indices: Atomic, d: int, rows: int, makers: Makers, constants: dict[Any, Any]
) -> _RepeatedArray | None:
    """The indices of the first block, where those of each block along a dimension are `rows` less; else None."""
    view, shape = rearrangement(indices, makers, stop=lambda _: False), shape_of(indices)
    maker = makers.of(view.root)
    along = _whole_dimension(view, d)
    if maker is None or along is None or not is_understood(maker, "sub"):
        return None
    counted, first = maker.invars
    extents = shape_of(view.root)
    known = known_value(first, makers, constants)
    if isinstance(counted, jax_core.Literal) or len(shape_of(counted)) != len(extents):
        return None
    if known is None or known.ndim != len(extents):
        return None
    steps = np.arange(extents[along], dtype=np.int64) * rows
    own = [n if k == along else 1 for k, n in enumerate(extents)]
    found = _repeated(counted, along, makers)
    if found is None or not (known.astype(np.int64) == steps.reshape(own)).all():
        return None
    digits = _digits_without(view, d)
    of_root, left = ([n for k, n in enumerate(own) if k != gone] for own, gone in ((extents, along), (shape, d)))

    def run(*given: Any) -> Any:
        return rearrange(jnp.broadcast_to(found.run(*given), of_root), digits, left)

    return _RepeatedArray(found.sources, run)


def _rows_of(
    numbers: Any, shape: Sequence[int], gone: Any, indexed: Any, of_indices: Any
) -> dict[int, tuple[int, int]]:
    """For each batch the dimension of the indices that goes with it, where indices are for single rows; and these."""
    own, collapsed = list(map(int, indexed)), list(map(int, gone))
    if len(own) != 1 or own[0] not in collapsed:
        return {}
    return {int(batch): (int(k), own[0]) for batch, k in zip(numbers.operand_batching_dims, of_indices, strict=True)}


def _all_rows(table: Any, batch: int, rows: int) -> Any:
    """A table with the batches of rows one after another, in the place of the rows."""
    order = [d for d in range(table.ndim) if d != batch]
    at = order.index(rows)
    order.insert(at, batch)
    moved = transpose(table, order)
    return reshape(moved, (*moved.shape[:at], moved.shape[at] * moved.shape[at + 1], *moved.shape[at + 2 :]))


def _batches_without(numbers: Any, of_indices: Sequence[int], batch: int, k: int) -> tuple[tuple[int, ...], ...]:
    """The batches of a table, and those of its indices, without one."""
    lower = lambda d, gone: int(d) - (int(d) > gone)  # noqa: E731
    pairs = [(d, i) for d, i in zip(numbers.operand_batching_dims, of_indices, strict=True) if int(d) != batch]
    return tuple(lower(d, batch) for d, _ in pairs), tuple(lower(i, k) for _, i in pairs)


def one_gather(own: Sum, makers: Makers, constants: dict[Any, Any]) -> Remade | None:
    """A sum of what is looked up in each block of rows as what is looked up in all; None where it is none."""
    maker, params = own.maker, own.maker.params
    numbers = params["dimension_numbers"]
    table, indices = maker.invars
    fill = params["fill_value"]
    if params["mode"] != _DROPS or fill is None or np.any(fill) or len(own.summed) != 1:
        return None
    of_indices = list(map(int, numbers.start_indices_batching_dims))
    found = _rows_of(numbers, shape_of(table), numbers.collapsed_slice_dims, numbers.start_index_map, of_indices)
    offset = set(map(int, numbers.offset_dims))
    beside = [d for d in range(len(shape_of(own.array))) if d not in offset]
    batch = next((b for b, (k, _) in found.items() if beside[k] == own.summed[0]), None)
    if batch is None:
        return None
    k, rows = found[batch]
    counted = _counts_down(indices, k, shape_of(table)[rows], makers, constants)
    if counted is None:
        return None
    lower = lambda d, gone: int(d) - (int(d) > gone)  # noqa: E731
    batches = _batches_without(numbers, of_indices, batch, k)
    of_table = lax.GatherDimensionNumbers(
        tuple(lower(d, own.summed[0]) for d in numbers.offset_dims),
        tuple(lower(d, batch) for d in numbers.collapsed_slice_dims),
        tuple(lower(d, batch) for d in numbers.start_index_map),
        *batches,
    )
    sizes = tuple(n for d, n in enumerate(params["slice_sizes"]) if d != batch)
    order = [d for d in range(len(shape_of(own.array))) if d != own.summed[0]]

    def run(table: Any, *given: Any) -> list[Any]:
        made = lax.gather(
            _all_rows(table, batch, rows), counted.run(*given), of_table, sizes, mode=_DROPS, fill_value=fill
        )
        return [own.back(made, order)]

    return Remade((table, *counted.sources), run)


def one_scatter(eqn: jax_core.JaxprEqn, makers: Makers, constants: dict[Any, Any]) -> Remade | None:
    """A scatter into blocks of rows, each of which drops what is for others, as one into all; None where it is none."""
    params = eqn.params
    numbers = params["dimension_numbers"]
    table, indices, updates = eqn.invars
    if params["mode"] != _DROPS or any(0 in shape_of(own) for own in eqn.invars):
        return None
    of_indices = list(map(int, numbers.scatter_indices_batching_dims))
    window = set(map(int, numbers.update_window_dims))
    beside = [d for d in range(len(shape_of(updates))) if d not in window]
    indexed = numbers.scatter_dims_to_operand_dims
    found = _rows_of(numbers, shape_of(table), numbers.inserted_window_dims, indexed, of_indices)

    def in_blocks(own: tuple[int, int]) -> _RepeatedArray | None:
        return _counts_down(indices, own[0], shape_of(table)[own[1]], makers, constants)

    batch = next((d for d, own in found.items() if in_blocks(own) is not None), None)
    if batch is None:
        return None
    k, rows = found[batch]
    counted, given = in_blocks((k, rows)), _repeated(updates, beside[k], makers)
    if counted is None or given is None:
        return None
    lower = lambda d, gone: int(d) - (int(d) > gone)  # noqa: E731
    batches = _batches_without(numbers, of_indices, batch, k)
    of_table = lax.ScatterDimensionNumbers(
        tuple(lower(d, beside[k]) for d in numbers.update_window_dims),
        tuple(lower(d, batch) for d in numbers.inserted_window_dims),
        tuple(lower(d, batch) for d in indexed),
        *batches,
    )
    shape = shape_of(table)
    # Each index is for one block, in which it is sorted and unique where all are.
    own = eqn.replace(params={**params, "dimension_numbers": of_table})
    rest = [d for d in range(len(shape)) if d != batch]
    at = rest.index(rows)

    count = len(counted.sources)

    def run(table: Any, *values: Any) -> list[Any]:
        parts = counted.run(*values[:count]), given.run(*values[count:])
        made = own.primitive.bind(_all_rows(table, batch, rows), *parts, **own.params)
        apart = reshape(made, (*made.shape[:at], shape[batch], shape[rows], *made.shape[at + 1 :]))
        order = [*rest[:at], batch, *rest[at:]]
        return [transpose(apart, [order.index(d) for d in range(len(order))])]

    return Remade((table, *counted.sources, *given.sources), run)
