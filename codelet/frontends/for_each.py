"""A vertex for each: primitives that do the same to every matrix, line or key of a batch, by one vertex for each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.extend import core as jax_core

from codelet.frontends.one_vertex import warn_of_one_vertex
from codelet.frontends.values import Value, unwrapped, wrapped
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr
from codelet.views.symbols import grid
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def rebound(eqn: jax_core.JaxprEqn, *operands: Any, **changed: Any) -> list[Any]:
    """The results of an equation for operands without the dimensions of a batch, given and returned as data.

    Args:
        eqn: which.
        operands: of the batch one.
        changed: parameters that are others.
    """
    given = [wrapped(own, atom.aval) for own, atom in zip(operands, eqn.invars, strict=True)]
    results = eqn.primitive.bind(*given, **{**eqn.params, **changed})
    return list(map(unwrapped, results if eqn.primitive.multiple_results else [results]))


def add_for_each(
    walk: Walk,
    operands: Sequence[Value],
    leading: int,
    function: Callable[..., Sequence[Any]],
    shared: Sequence[Value] = (),
) -> Any:
    """Add a vertex for each of a batch.

    Args:
        walk: where.
        operands: of the same leading dimensions, those of the batch.
        leading: how many these are.
        function: of one of each operand, and of the shared operands.
        shared: the operands of all.

    Returns:
        The results, with the same leading dimensions; `NotImplemented` for a batch of one or none.
    """
    tensors = [walk.tensor(own) for own in operands]
    batch = tensors[0].shape[:leading]
    if math.prod(batch) <= 1 or any(0 in own.shape or own.shape[:leading] != batch for own in tensors):
        return NotImplemented
    return add_for_each_view(walk, tensors, batch, lambda places: places, function, shared)


def add_for_each_view(
    walk: Walk,
    tensors: Sequence[Tensor],
    batch: Sequence[int],
    index: Callable[[tuple[Any, ...]], tuple[Any, ...]],
    function: Callable[..., Sequence[Any]],
    shared: Sequence[Value] = (),
) -> Any:
    """Add a vertex for each place of a grid.

    Args:
        walk: where.
        tensors: of which each vertex has a view.
        batch: the grid, of one place at least; a single vertex where it has no dimensions.
        index: that of the view, of all tensors, by the symbols of the grid.
        function: of one view of each tensor, and of the shared operands.
        shared: the operands of all.

    Returns:
        The results, with the grid as leading dimensions; `NotImplemented` for those without elements.
    """
    symbols: Any = grid(*batch) if batch else ()
    chosen = index(symbols if isinstance(symbols, tuple) else (symbols,))
    given = [*(own[chosen] for own in tensors), *map(walk.tensor, shared)]
    jaxpr = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(own.shape, own.dtype) for own in given))
    if any(not math.prod(aval.shape) for aval in jaxpr.out_avals):
        return NotImplemented
    fields = {f"x{k}": own for k, own in enumerate(given)}
    outputs = ["out"] if len(jaxpr.out_avals) == 1 else [f"out{k}" for k in range(len(jaxpr.out_avals))]
    name = walk.equation.primitive.name.replace("-", "_")
    codelet = codelet_from_jaxpr(jaxpr, list(fields), outputs, name=name)
    with walk.graph.scope(name, unique=True):
        made = walk.graph.add_vertex("run", codelet, **fields)
    found = [made] if len(outputs) == 1 else [made[own] for own in outputs]
    if math.prod(batch) == 1:
        warn_of_one_vertex(walk, codelet, fields, found, as_planned=True)
    return [own.reshape((*batch, *aval.shape)) for own, aval in zip(found, jaxpr.out_avals, strict=True)]


def add_for_each_line(
    walk: Walk,
    operands: Sequence[Value],
    axes: Sequence[int],
    parameters: Callable[[int], dict[str, Any]],
    shared: Sequence[Value] = (),
) -> Any:
    """Add a vertex for each line of arrays, along some axes.

    Args:
        walk: where.
        operands: arrays of one shape.
        axes: along which lines are.
        parameters: those of the equation that are others for a line, which has so many dimensions.
        shared: the operands of all lines.

    Returns:
        The results, with the rest of the line where the first of the axes was; `NotImplemented` for a single line.
    """
    along = sorted(int(axis) for axis in axes)
    tensors: list[Tensor] = [walk.tensor(own) for own in operands]
    rest = [d for d in range(tensors[0].ndim) if d not in along]
    turned = [own.transpose([*rest, *along]) for own in tensors]
    function = functools.partial(rebound, walk.equation, **parameters(len(along)))
    results = add_for_each(walk, turned, len(rest), function, shared)
    if results is NotImplemented:
        return results
    place = lambda own: [*range(along[0]), own.ndim - 1, *range(along[0], own.ndim - 1)]  # noqa: E731
    return [own if own.ndim == len(rest) else own.transpose(place(own)) for own in results]
