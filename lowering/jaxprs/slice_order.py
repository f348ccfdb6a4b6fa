"""Slice order: gathers and scatters of blocks of columns side by side, in the order in which rows lie in memory.

A family of vertices that look up columns of a table, each its own, is emitted as a gather of the transposed table,
whose result is transposed back; its gradient would be a scatter that walks through all of the table for every row. In
come gathers and scatters of rearranged operands. Out come the same of operands in the order of memory, and what is
gathered rearranged instead, which `contract` then finds to be no rearrangement at all.

Only dimensions that every slice has all of, and that no index is for, are moved or put together. The gradient of an
embedding of 4,096 rows of 256 in single columns takes 3.7 times what plain JAX takes without, and as long with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, has_any
from codelet.jaxprs.primitives import SCATTERS, is_understood
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import Rearrangement, rearrangement
from lowering.jaxprs.remade import Remade, with_remade


@dataclass(frozen=True)
class _DimensionPart:
    """A part of a dimension of what is indexed, whose elements lie `step` apart; all of it where it is not free."""

    dimension: int
    extent: int
    step: float
    is_free: bool


@dataclass(frozen=True)
class _Order:
    """Parts of the dimensions of what is indexed, in order, and which of them, in the order of memory, are together."""

    parts: tuple[_DimensionPart, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> list[int]:
        """The parts in the order of memory."""
        return [k for group in self.groups for k in group]

    def place(self, dimension: int) -> int:
        """The place in the order of memory of a dimension that is not free."""
        own = [k for k, part in enumerate(self.parts) if part.dimension == dimension and not part.is_free]
        return next(place for place, group in enumerate(self.groups) if own[0] in group)

    def moved(self, operand: Any) -> Any:
        """What is indexed in the order of memory."""
        apart = transpose(reshape(operand, [part.extent for part in self.parts]), self.order)
        return reshape(apart, [math.prod(self.parts[k].extent for k in group) for group in self.groups])

    def back(self, made: Any, shape: Sequence[int]) -> Any:
        """What was in the order of memory as it was."""
        apart = reshape(made, [self.parts[k].extent for k in self.order])
        return reshape(transpose(apart, [self.order.index(k) for k in range(len(self.parts))]), shape)


def _ordered(shape: Sequence[int], free: dict[int, Sequence[Any]], steps: dict[int, float]) -> _Order | None:
    """Dimensions in the order of memory; None where it is the order they are in.

    Args:
        shape: of what is indexed.
        free: the digits of the free dimensions.
        steps: how far apart elements of the others lie.
    """
    parts: list[_DimensionPart] = []
    for d, extent in enumerate(shape):
        if d in free:
            parts += [_DimensionPart(d, digit.extent, digit.step, True) for digit in free[d]]
        else:
            parts.append(_DimensionPart(d, extent, steps[d], False))
    order = sorted(range(len(parts)), key=lambda k: -parts[k].step)
    groups: list[tuple[int, ...]] = []
    for k in order:
        last = parts[groups[-1][-1]] if groups else None
        if last is not None and last.is_free and parts[k].is_free and last.step == parts[k].step * parts[k].extent:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return _Order(tuple(parts), tuple(groups)) if order != sorted(order) else None


def _is_whole(view: Rearrangement) -> bool:
    """Whether a value has each element of its root once."""
    return all(digit.step for digit in view.digits)


def _order_of_operand(view: Rearrangement, shape: Sequence[int], free: set[int]) -> _Order | None:
    """The order in which what is indexed lies in memory; None where dimensions that are not free lie apart."""
    steps: dict[int, float] = {}
    for d, digits in enumerate(view.dims):
        if d not in free:
            if len(digits) > 1:
                return None
            steps[d] = digits[0].step if digits else math.inf
    return _ordered(shape, {d: view.dims[d] for d in free}, steps) if _is_whole(view) else None


def _order_of_updates(
    view: Rearrangement, shape: Sequence[int], windows: dict[int, int], free: set[int]
) -> _Order | None:
    """The same by how updates lie: free dimensions before or after all the others, as before or after the indices."""
    if not _is_whole(view):
        return None
    beside = [digit.step for u, digits in enumerate(view.dims) if u not in windows.values() for digit in digits]
    steps = dict.fromkeys(set(range(len(shape))) - free, float(max(beside, default=math.inf)))
    return _ordered(shape, {d: view.dims[windows[d]] for d in free}, steps)


def _slices_back(order: _Order, made: Any, kept: Sequence[int], offset: Sequence[int], sizes: Any) -> Any:
    """What was gathered in the order of memory, with (indices, slices), as it is in the order of the operand."""
    rank = made.ndim
    leading = rank - sum(any(order.parts[k].dimension in kept for k in group) for group in order.groups)
    slices = [k for k in order.order if order.parts[k].dimension in kept]
    extent = lambda k: order.parts[k].extent if order.parts[k].is_free else sizes[order.parts[k].dimension]  # noqa: E731
    apart = reshape(made, [*made.shape[:leading], *map(extent, slices)])
    beside, places, shape = iter(range(leading)), [], []
    left = iter(kept)
    for d in range(leading + len(kept)):
        own = [next(beside)] if d not in offset else _of(order, slices, next(left), leading)
        places += own
        shape.append(math.prod(apart.shape[place] for place in own))
    return reshape(transpose(apart, places), shape)


def _of(order: _Order, slices: Sequence[int], dimension: int, leading: int) -> list[int]:
    """The places of the parts of a dimension among those of slices, in their order."""
    return [leading + slices.index(k) for k, part in enumerate(order.parts) if part.dimension == dimension]


def _slices_moved(order: _Order, updates: Any, kept: Sequence[int], offset: Sequence[int], sizes: Any) -> Any:
    """Updates with (indices, slices in the order of memory)."""
    parts, places = [], {}
    beside = []
    left = iter(kept)
    for d, extent in enumerate(updates.shape):
        if d not in offset:
            beside.append(len(parts))
            parts.append(extent)
            continue
        dimension = next(left)
        for k, part in enumerate(order.parts):
            if part.dimension == dimension:
                places[k] = len(parts)
                parts.append(part.extent if part.is_free else sizes[dimension])
    groups = [group for group in order.groups if order.parts[group[0]].dimension in kept]
    apart = transpose(reshape(updates, parts), [*beside, *(places[k] for group in groups for k in group)])
    together = [math.prod(parts[places[k]] for k in group) for group in groups]
    return reshape(apart, [*(parts[k] for k in beside), *together])


def _numbers(order: _Order, numbers: Any, gone: Sequence[int], indexed: Sequence[int], batches: Any) -> tuple[Any, ...]:
    """The dimension numbers in the order of memory: offset, gone, indexed, batch of the operand, and of the indices."""
    batch, of_indices = batches
    pairs = sorted((order.place(d), k) for d, k in zip(batch, of_indices, strict=True))
    return (
        tuple(sorted(order.place(d) for d in gone)),
        tuple(order.place(d) for d in indexed),
        tuple(place for place, _ in pairs),
        tuple(k for _, k in pairs),
    )


def _gather(eqn: jax_core.JaxprEqn, makers: Makers) -> Any:
    """What takes the place of a gather; None where it stays."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = eqn.invars[0].aval.shape  # type: ignore[attr-defined]
    gone = {int(d) for d in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)}
    kept = [d for d in range(len(shape)) if d not in gone]
    free = {d for d in kept if d not in map(int, numbers.start_index_map) and sizes[d] == shape[d]}
    view = rearrangement(eqn.invars[0], makers, stop=lambda _: False)
    order = _order_of_operand(view, shape, free)
    if order is None:
        return None

    def run(operand: Any, indices: Any) -> list[Any]:
        collapsed, indexed, batch, of_indices = _numbers(
            order,
            numbers,
            numbers.collapsed_slice_dims,
            numbers.start_index_map,
            (numbers.operand_batching_dims, numbers.start_indices_batching_dims),
        )
        parts = [order.parts[group[0]] for group in order.groups]
        own = tuple(
            math.prod(order.parts[k].extent for k in group) if part.is_free else sizes[part.dimension]
            for part, group in zip(parts, order.groups, strict=True)
        )
        leading = indices.ndim - 1
        count = sum(part.dimension in kept for part in parts)
        offset = tuple(range(leading, leading + count))
        params = {
            "dimension_numbers": lax.GatherDimensionNumbers(offset, collapsed, indexed, batch, of_indices),
            "slice_sizes": own,
        }
        moved = eqn.replace(params={**eqn.params, **params})
        made = moved.primitive.bind(order.moved(operand), indices, **moved.params)
        return [_slices_back(order, made, kept, [int(d) for d in numbers.offset_dims], sizes)]

    return run


def _scatter(eqn: jax_core.JaxprEqn, makers: Makers) -> Any:
    """What takes the place of a scatter; None where it stays."""
    numbers = eqn.params["dimension_numbers"]
    shape, updated = (eqn.invars[k].aval.shape for k in (0, 2))  # type: ignore[attr-defined]
    gone = {int(d) for d in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)}
    kept = [d for d in range(len(shape)) if d not in gone]
    windows = dict(zip(kept, map(int, numbers.update_window_dims), strict=True))
    sizes = {d: updated[u] for d, u in windows.items()}
    indexed = set(map(int, numbers.scatter_dims_to_operand_dims))
    free = {d for d in kept if d not in indexed and sizes[d] == shape[d]}
    look = partial(rearrangement, makers=makers, stop=lambda _: False)
    # Of one slice all that is written lies where the operand lies; of several, each is read as the updates lie.
    count = math.prod(eqn.invars[1].aval.shape[:-1])  # type: ignore[attr-defined]
    order = _order_of_updates(look(eqn.invars[2]), shape, windows, free) if count > 1 else None
    order = order or _order_of_operand(look(eqn.invars[0]), shape, free)
    if order is None:
        return None

    def run(operand: Any, indices: Any, updates: Any) -> list[Any]:
        inserted, to, batch, of_indices = _numbers(
            order,
            numbers,
            numbers.inserted_window_dims,
            numbers.scatter_dims_to_operand_dims,
            (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
        )
        leading = indices.ndim - 1
        count = sum(order.parts[group[0]].dimension in kept for group in order.groups)
        window = tuple(range(leading, leading + count))
        own = lax.ScatterDimensionNumbers(window, inserted, to, batch, of_indices)
        moved = eqn.replace(params={**eqn.params, "dimension_numbers": own})
        slices = _slices_moved(order, updates, kept, list(windows.values()), sizes)
        made = moved.primitive.bind(order.moved(operand), indices, slices, **moved.params)
        return [order.back(made, shape)]

    return run


def _rule(eqn: jax_core.JaxprEqn, makers: Makers) -> Any:
    if any(0 in getattr(atom.aval, "shape", (0,)) for atom in (*eqn.invars, *eqn.outvars)):
        return None
    if is_understood(eqn, "gather"):
        return _gather(eqn, makers)
    return _scatter(eqn, makers) if is_understood(eqn, *SCATTERS) else None


def slices_in_order(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with its gathers and scatters in the order of memory, in the bodies of loops as well."""
    if not has_any(closed.jaxpr, "gather", *SCATTERS):
        return closed
    makers = Makers(closed.jaxpr.eqns)
    rules = {eqn: _rule(eqn, makers) for eqn in closed.jaxpr.eqns}
    found = {eqn: Remade(eqn.invars, rule) for eqn, rule in rules.items() if rule is not None}
    return with_remade(closed, found, slices_in_order)
