"""Elementwise operations: `map` of any function of elements over broadcast tensors, and its gradient.

Looking at elements in another way is a view, and costs nothing: `Tensor.broadcast_to`, `reshape`, `transpose`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from codelet.errors import FieldTypeError, OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_grain
from codelet.ops.block_planning import plan_work
from codelet.ops.blocks import num_tiles
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.element_functions import (
    ElementFunction,
    element_function,
    is_smooth,
    result_types,
    slopes_of,
    value_codelets,
)
from codelet.ops.element_layout import Layout, broadcast_shape, layouts
from codelet.ops.fill import fill
from codelet.ops.homes import home_of
from codelet.ops.pairs import Pair
from codelet.ops.partials import add_planned
from codelet.ops.planning import MEMORY_FRACTION, Plan, is_uncut
from codelet.ops.reduce import sum
from codelet.ops.schema import checked
from codelet.target import Target
from codelet.views.tensor import Tensor

_SEVERAL = "tensors and numbers, which are broadcast to one another"


@checked
def map(
    graph: Graph,
    function: Any,
    *operands: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "map",
) -> Any:
    """A function of single elements for all elements of tensors that are broadcast to one another.

    A number among the operands is part of the codelet, as a number in the function would be, and JAX promotes it as
    such; one that changes is better a tensor of shape ().

    Args:
        graph: where its compute set is added, in a scope of its name.
        function: any that JAX traces: of one element of each operand, to one element, or a pytree of several.
        operands: tensors and numbers.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The results, in the structure in which the function returns them.

    Raises:
        OperationError: shapes that do not fit, or a function that does not give one element for one.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> def scaled(graph, x, scale):
    ...     return cl.ops.map(graph, lambda x, scale, most: jnp.minimum(x * scale, most), x, scale, 3)
    >>> cl.lower(scaled)(jnp.arange(4.0).reshape(2, 2), jnp.array([1.0, 2.0]))
    Array([[0., 2.],
           [2., 3.]], dtype=float32)
    """
    own, tensors = _checked(name, graph, function, operands)
    structure, dtypes = result_types(own)
    spread = _spread(name, graph, tensors, dtypes, value_codelets(own), checked_grain(name, grain), memory_fraction)
    with graph.scope(name, unique=True):
        made = spread.add()
    return jax.tree.unflatten(structure, made)


def map_in_place(
    graph: Graph,
    function: Any,
    several: Sequence[Sequence[Any]],
    num_changed: int,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "map",
) -> None:
    """A function of single elements for several lists of operands, whose first ones it changes, in one compute set.

    Args:
        graph: where its compute set is added, in a scope of its name.
        function: any that JAX traces: from one element of each operand to the new values of the first of them.
        several: lists of operands, as of `map`. A changed operand has the shape of the results, and names no element
            twice.
        num_changed: how many first operands of each list are changed.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.
    """
    next_tile = 0
    with graph.scope(name, unique=True):
        for operands in several:
            own, tensors = _checked(name, graph, function, operands)
            codelets = value_codelets(own, num_changed)
            spread = _spread(name, graph, tensors, [], codelets, checked_grain(name, grain), memory_fraction)
            parts = num_tiles(spread.plan.cuts)
            # What lies nowhere yet need not begin where all others do.
            first = next_tile if all(each.home is None for each in spread.work.fields[:num_changed]) else 0
            first = first if first + parts <= graph.target.num_tiles else 0
            next_tile = first + parts
            spread.add(first_tile=first)


@checked
def plan_map(
    graph: Graph,
    function: Any,
    *operands: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "map",
) -> Plan:
    """The plan of a `map` with these arguments, for the target of the graph. It adds nothing, and prints.

    Args:
        graph: for whose target; the operands are of it.
        function: of single elements, in JAX.
        operands: tensors and numbers that are broadcast to one another.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not broadcast, or a function that fails for them.

    >>> import codelet as cl, jax.numpy as jnp
    >>> graph = cl.Graph(cl.IPU(num_tiles=16))
    >>> x = graph.add_variable("x", (1920,))
    >>> cl.ops.plan_map(graph, jnp.tanh, x).cut("elements").parts
    16
    """
    own, tensors = _checked(name, graph, function, operands)
    _, dtypes = result_types(own)
    return _spread(name, graph, tensors, dtypes, value_codelets(own), checked_grain(name, grain), memory_fraction).plan


@checked
def map_gradient(
    graph: Graph,
    function: Any,
    cotangents: Any,
    *operands: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "map_gradient",
) -> tuple[Tensor | None, ...]:
    """The gradients of a `map` by its operands, as `jax.vjp` gives them.

    Where an operand is broadcast its gradient is summed: by each vertex over its block, then over all blocks.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        function: the function that was mapped.
        cotangents: of the results, in their structure and shape; None for one that nothing depends on, or that is no
            number of floating point.
        operands: the operands that it was mapped over.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A gradient for each operand; None for numbers, and for tensors that are not of floating point.

    Raises:
        OperationError: cotangents or operands that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def slopes(graph, g, x, w):
    ...     return cl.ops.map_gradient(graph, lambda x, w: x * w, g, x, w)
    >>> cl.lower(slopes)(jnp.ones((2, 2)), jnp.arange(4.0).reshape(2, 2), jnp.array([1.0, 2.0]))[1]
    Array([2., 4.], dtype=float32)
    """
    options = {"grain": grain, "memory_fraction": memory_fraction, "name": name}
    found = element_gradients(graph, function, cotangents, *operands, **options)
    is_zero = lambda made, own: made is None and isinstance(own, Tensor) and is_smooth(own.dtype)  # noqa: E731
    return tuple(
        fill(graph, own.shape, 0, dtype=own.dtype) if is_zero(made, own) else made
        for made, own in zip(found, operands, strict=True)
    )


def element_gradients(
    graph: Graph,
    function: Any,
    cotangents: Any,
    *operands: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "map_gradient",
) -> tuple[Tensor | None, ...]:
    """The gradients of a `map` as `map_gradient` gives them, but None for those that are zero whatever it is given."""
    own, tensors = _checked(name, graph, function, operands)
    shape = broadcast_shape(name, tensors)
    given = _checked_cotangents(name, graph, own, cotangents, shape)
    fields = [*(tensor for tensor in given if tensor is not None), *tensors]
    smooth = [tensor for tensor in tensors if is_smooth(tensor.dtype)]
    grain = checked_grain(name, grain)
    if len(fields) == len(tensors):  # nothing depends on the results
        return (None,) * len(operands)
    slopes, results = slopes_of(own, tuple(tensor is not None for tensor in given)), list[Tensor]()
    with graph.scope(name, unique=True):
        if slopes.codelets is not None:
            results = _spread(name, graph, fields, slopes.dtypes, slopes.codelets, grain, memory_fraction).add()
        made: list[Tensor | None] = []
        for (kind, k), tensor in zip(slopes.sources, smooth, strict=True):
            full = None if kind == "nothing" else (results if kind == "result" else fields)[k].broadcast_to(shape)
            made.append(None if full is None else _summed(graph, full, tensor))
    left = iter(made)
    return tuple(next(left) if isinstance(t, Tensor) and is_smooth(t.dtype) else None for t in operands)


def _summed(graph: Graph, gradient: Tensor, tensor: Tensor) -> Tensor:
    """A gradient summed over the dimensions along which its tensor was broadcast."""
    lead = gradient.ndim - tensor.ndim
    axes = [d for d in range(gradient.ndim) if d < lead or tensor.shape[d - lead] < gradient.shape[d]]
    if not any(gradient.shape[d] != 1 for d in axes):
        return gradient.reshape(tensor.shape)
    return sum(graph, gradient, axes, dtype=tensor.dtype).reshape(tensor.shape)


# --- what is given ----------------------------------------------------------------------------------------


def _checked(
    operation: str, graph: Graph, function: Any, operands: Sequence[Any]
) -> tuple[ElementFunction, list[Tensor]]:
    """A function with its operands, and the tensors among them."""
    numbers = (bool, int, float, complex, np.generic)
    tensors = {f"operand {k}": own for k, own in enumerate(operands) if not isinstance(own, numbers)}
    check_tensors(operation, graph, **tensors)
    if not callable(function):
        raise FieldTypeError(
            f"ops.{operation} is given no function after the graph",
            given=f"{type(function).__name__}: {function!r:.60}",
            expected=f"ops.{operation}(graph, function, ...)",
        )
    if not tensors:
        raise OperationError(
            f"ops.{operation} is given no tensor",
            given=", ".join(map_text(operands)) or "no operands",
            expected=_SEVERAL,
            fix="ops.fill(graph, shape, value) makes an array of a number",
        )
    return element_function(operation, function, operands), list(tensors.values())


def map_text(operands: Sequence[Any]) -> list[str]:
    """Operands in errors."""
    return [f"{own!r:.40}" for own in operands]


def _checked_cotangents(
    operation: str, graph: Graph, own: ElementFunction, cotangents: Any, shape: tuple[int, ...]
) -> list[Tensor | None]:
    structure, dtypes = result_types(own)
    is_leaf = lambda node: node is None or isinstance(node, Tensor)  # noqa: E731
    leaves, found = jax.tree.flatten(cotangents, is_leaf=is_leaf)
    if found != structure:
        raise OperationError(
            f"the cotangents of ops.{operation} are not in the structure of what the function returns",
            given=str(found),
            expected=str(structure),
            fix="None for a result that nothing depends on",
        )
    for k, (leaf, dtype) in enumerate(zip(leaves, dtypes, strict=True)):
        if leaf is None:
            continue
        check_tensors(operation, graph, **{f"cotangent {k}": leaf})
        if leaf.shape != shape or leaf.dtype != dtype or not is_smooth(dtype):
            raise OperationError(
                f"a cotangent of ops.{operation} is not of its result's shape and dtype",
                given=leaf,
                expected=f"{dtype}{list(shape)}" if is_smooth(dtype) else f"None, for a result of {dtype}",
            )
    return leaves


# --- vertices ---------------------------------------------------------------------------------------------


class _Spread:
    """Operands by the dimensions that they share, and how results of some dtypes are spread over tiles."""

    def __init__(
        self,
        graph: Graph,
        layout: Layout,
        tensors: Sequence[Tensor],
        dtypes: Sequence[np.dtype],
        codelets: Pair,
        options: tuple[int | None, float],
    ):
        self.graph, self.layout = graph, layout
        dimensions = {f"x{k}": has for k, has in enumerate(layout.dimensions(tensors))}
        pairs = zip(dimensions.items(), tensors, strict=True)
        self.views = {name: layout.view(tensor, has) for (name, has), tensor in pairs}
        self.work = _work(graph.target, layout.extents, dimensions, self.views, dtypes, codelets)
        is_empty = not self.work.size
        self.plan = Plan(str(self.work), (), ()) if is_empty else plan_work(graph.target, self.work, *options)

    def add(self, first_tile: int = 0) -> list[Tensor]:
        """Add the vertices that make the results, the first of them on a tile."""
        graph, layout = self.graph, self.layout
        names = ["out"] if len(self.work.results) == 1 else [own.name for own in self.work.results]
        lying = [
            graph.add_variable(name, layout.lying, own.dtype)
            for name, own in zip(names, self.work.results, strict=True)
        ]
        made = {own.name: out.reshape(layout.extents) for own, out in zip(self.work.results, lying, strict=True)}
        if self.plan.steps:
            add_planned(graph, self.work, self.plan, self.views, made, first_tile=first_tile)
        return [layout.unmerged(out) for out in made.values()]


def _work(
    target: Target,
    extents: Sequence[int],
    dimensions: Mapping[str, tuple[int, ...]],
    views: Mapping[str, Tensor],
    dtypes: Sequence[np.dtype],
    codelets: Pair,
) -> Work:
    """A function of all elements as work: views that have some of the dimensions, to results that have all."""
    names = ["elements"] if len(extents) == 1 else [f"d{d}" for d in range(len(extents))]
    vectors = max(1, 8 // max(own.itemsize for own in (*dtypes, *(view.dtype for view in views.values()))))
    multiples = [1] * (len(extents) - 1) + [target.num_workers * vectors]
    axes = tuple(Axis(name, n, "kept", own) for name, n, own in zip(names, extents, multiples, strict=False))
    fields = tuple(
        Field(name, dimensions[name], view.dtype, home_of(view), _is_scattered(view)) for name, view in views.items()
    )
    results = tuple(Result(f"out{k}", tuple(range(len(extents))), own, own) for k, own in enumerate(dtypes))
    static = (("dimensions", tuple(dimensions.values())),)
    return Work("map", axes, fields, results, *codelets, static=static)


def _is_scattered(view: Tensor) -> bool:
    """Whether elements beside one another along the last dimension of a view lie apart."""
    last = view.ndim - 1
    return view.ndim > 0 and any(last in table.keys for table in view.index.tables)


def _spread(
    operation: str,
    graph: Graph,
    tensors: Sequence[Tensor],
    dtypes: Sequence[np.dtype],
    codelets: Pair,
    grain: int | None,
    memory_fraction: float,
) -> _Spread:
    """The layout with the plan of the fewest cycles."""
    found = [
        _Spread(graph, layout, tensors, dtypes, codelets, (grain, memory_fraction))
        for layout in layouts(operation, tensors, merged=not is_uncut(grain))
    ]
    return min(found, key=lambda own: own.plan.total_cycles)
