"""Scatters side by side: what is updated in parts of the rows of a table, as updates of all of them.

Where no number of rows divides a table, its last block is smaller than the others, and emits as a scatter of its own:
both go over all updates, and drop those of the other's rows. In comes a concatenation of what such scatters make, each
by the same indices less the number of its first row; out comes one scatter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers
from codelet.jaxprs.primitives import SCATTERS, is_understood
from codelet.views.digits import merged, row_major_digits
from lowering.arrays import transpose
from lowering.jaxprs.blocks_of_rows import known_value
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.remade import Remade
from lowering.jaxprs.summed import dtype_of, shape_of
from lowering.jaxprs.tables_of_updates import is_zero, repeated

_DROPS = lax.GatherScatterMode.FILL_OR_DROP


class _RowUpdates(NamedTuple):
    """What one scatter makes of some rows.

    Attributes:
        eqn: the scatter.
        digits: by which what is concatenated is a rearrangement of what it makes.
        first: the number of its first row.
        batches: for each dimension of what is concatenated the dimension of the indices that goes with it, counted
            without those of one element; None for the rows and windows, and where there is one element.
        windows: the dimensions of what is concatenated that updates have whole.
        order: the dimensions of the updates: those that the indices have, in order, and those of the windows.
        updates: what tells its indices, but for the first row, and its updates from others.
    """

    eqn: jax_core.JaxprEqn
    digits: tuple[Any, ...]
    first: int
    batches: tuple[int | None, ...]
    windows: tuple[int, ...]
    order: tuple[int, ...]
    updates: Any


def _longer(shape: Sequence[int]) -> list[int]:
    """The dimensions of more than one element."""
    return [d for d, n in enumerate(shape) if n > 1]


def _kind(atom: Atomic, makers: Makers, order: Sequence[int] | None = None) -> Any:
    """What two values have in common that are equal but for dimensions of one element, their others in some order."""
    view, shape = rearrangement(atom, makers, stop=lambda _: False), shape_of(atom)
    chosen = [d for d in (range(len(shape)) if order is None else order) if shape[d] > 1]
    number = repeated(atom, makers)
    if number is not None:
        return number.tobytes(), (), tuple(shape[d] for d in chosen)
    digits = merged(digit for d in chosen for digit in view.dims[d])
    return view.root, tuple(digits), tuple(shape[d] for d in chosen)


def _counted(indices: Atomic, makers: Makers, constants: dict[Any, Any]) -> tuple[Any, int]:
    """What indices have in common that differ by a number alone; and the number, negative."""
    view = rearrangement(indices, makers, stop=lambda _: False)
    maker = makers.of(view.root)
    if maker is not None and is_understood(maker, "sub") and not isinstance(maker.invars[0], jax_core.Literal):
        counted, less = maker.invars
        known = known_value(less, makers, constants)
        if known is not None and known.size and (known == known.flat[0]).all():
            kind = _kind(counted, makers)
            return kind if view.is_in_order else (kind, tuple(merged(view.digits))), int(known.flat[0])
    return _kind(indices, makers), 0


def _updates_rows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is a scatter of rows, or of parts of them, along one dimension that drops what is for others.

    One of `lax.scatter_apply` is not: each may be another function of what is there.
    """
    if not is_understood(eqn, *SCATTERS) or eqn.params["mode"] != _DROPS:
        return False
    if any(isinstance(own, jax_core.Literal) or 0 in shape_of(own) for own in eqn.invars):
        return False
    numbers = eqn.params["dimension_numbers"]
    along, inserted = set(map(int, numbers.scatter_dims_to_operand_dims)), set(map(int, numbers.inserted_window_dims))
    is_applied = eqn.primitive.name == "scatter" and eqn.params["update_jaxpr"] is not None
    return len(along) == 1 and along <= inserted and not is_applied


def _place(view: Rearrangement, d: int, extent: int) -> int:
    """Which dimension of its root a dimension of a value is, -1 for none and where there is one element."""
    digits = row_major_digits(shape_of(view.root))
    own = view.dims[d]
    return digits.index(own[0]) if extent > 1 and len(own) == 1 and own[0] in digits else -1


def _rows(
    atom: Atomic, along: int, makers: Makers, constants: dict[Any, Any], uses: Counter[Any]
) -> _RowUpdates | None:
    """What is concatenated along a dimension, as rows that a scatter makes; None where it is not."""
    if isinstance(atom, jax_core.Literal) or uses[atom] > 1:
        return None
    view, shape = rearrangement(atom, makers, stop=lambda own: uses[own] > 1), shape_of(atom)
    eqn = makers.of(view.root)
    if eqn is None or uses[view.root] > 1 or not _updates_rows(eqn):
        return None
    numbers, given = eqn.params["dimension_numbers"], eqn.invars
    rows, batch = list(map(int, numbers.scatter_dims_to_operand_dims)), list(map(int, numbers.operand_batching_dims))
    inserted = set(map(int, numbers.inserted_window_dims))
    extents = shape_of(view.root)
    of_window = [k for k in range(len(extents)) if k not in inserted and k not in batch]
    windows = dict(zip(of_window, map(int, numbers.update_window_dims), strict=True))
    longer = _longer(shape_of(given[1])[:-1])
    places = [_place(view, d, n) for d, n in enumerate(shape)]
    batches, whole = list[int | None](), list[int]()
    for d, (n, own) in enumerate(zip(shape, places, strict=True)):
        in_batch = n > 1 and d != along and own in batch
        in_window = n > 1 and own in windows and shape_of(given[2])[windows[own]] == n
        is_row = d == along and n == extents[rows[0]] and (n == 1 or own == rows[0])
        if not (is_row if d == along else n == 1 or in_batch or in_window):
            return None
        if in_window:
            whole.append(d)
        index = int(numbers.scatter_indices_batching_dims[batch.index(own)]) if in_batch else None
        batches.append(None if index is None else longer.index(index))
    counted, first = _counted(given[1], makers, constants)
    of_indices = [d for d in range(len(shape_of(given[2]))) if d not in numbers.update_window_dims]
    order = (*of_indices, *(windows[places[d]] for d in whole))
    updates = counted, _kind(given[2], makers, order)
    return _RowUpdates(eqn, view.digits, first, tuple(batches), tuple(whole), order, updates)


def one_of_all_rows(
    eqn: jax_core.JaxprEqn, makers: Makers, constants: dict[Any, Any], uses: Counter[Any]
) -> Remade | None:
    """A concatenation of what scatters make of some rows each as what one makes of all; None where it is none."""
    along = int(eqn.params["dimension"])
    parts = [_rows(atom, along, makers, constants, uses) for atom in eqn.invars]
    found = [own for own in parts if own is not None]
    if len(found) != len(parts) or len(found) < 2:
        return None
    shapes = [shape_of(atom) for atom in eqn.invars]
    firsts = np.cumsum([0, *(shape[along] for shape in shapes[:-1])])
    if [own.first for own in found] != firsts.tolist():
        return None
    kinds = [(own.eqn.primitive, own.batches, own.windows, own.updates, dtype_of(own.eqn.outvars[0])) for own in found]
    if any(kind != kinds[0] for kind in kinds):
        return None
    (scatter, _, _, batches, windows, order, _), shape = found[0], shape_of(eqn.outvars[0])
    _, indices, updates = scatter.invars
    longer = _longer(shape_of(indices)[:-1])
    of_indices = {d: longer[at] for d, at in enumerate(batches) if at is not None}
    alone = tuple(d for d in range(len(shape)) if d not in of_indices and d not in windows)
    lead = len(order) - len(windows)
    numbers = lax.ScatterDimensionNumbers(
        tuple(range(lead, len(order))), alone, (along,), tuple(of_indices), tuple(of_indices.values())
    )
    ones = [d for d in range(len(shape_of(updates))) if d not in order]
    promises = ("indices_are_sorted", "unique_indices")
    promised = {name: all(own.eqn.params[name] for own in found) for name in promises}
    params = {**scatter.params, **promised, "dimension_numbers": numbers}
    tables = () if all(is_zero(own.eqn.invars[0], makers) for own in found) else [own.eqn.invars[0] for own in found]

    def run(indices: Any, updates: Any, *tables: Any) -> list[Any]:
        lying = [rearrange(table, own.digits, n) for table, own, n in zip(tables, found, shapes, strict=False)]
        table = lax.concatenate(lying, along) if lying else jnp.zeros(shape, dtype_of(scatter.outvars[0]))
        given = transpose(lax.squeeze(updates, ones), [d - sum(one < d for one in ones) for d in order])
        return [scatter.primitive.bind(table, indices, given, **params)]

    return Remade((indices, updates, *tables), run)
