"""Elementwise operations: `map` of any function of elements over broadcast tensors, and its gradient.

What only looks at elements otherwise is a view, and costs nothing: `Tensor.broadcast_to`, `reshape`, `transpose`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import codelet as cl
from codelet.errors import FieldTypeError, OperationError
from codelet.ops.arguments import check_tensors, checked_grain
from codelet.ops.blocks import Block, add_blocks
from codelet.ops.element_functions import (
    ElementFunction,
    element_function,
    is_smooth,
    result_types,
    slope_codelets,
    value_codelets,
)
from codelet.ops.element_layout import Layout, common_layout
from codelet.ops.elementwise_planning import Array, ElementCodelets, Elements, chosen_codelet, plan_elements
from codelet.ops.fill import fill
from codelet.ops.partials import float_sums, plan_sum, sum_partials
from codelet.ops.planning import MEMORY_SHARE, Plan

_SEVERAL = "tensors and numbers, which are broadcast to one another"


def map(  # noqa: A001
    graph: cl.Graph,
    function: Any,
    *operands: Any,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "map",
) -> Any:
    """A function of single elements for all elements of tensors that are broadcast to one another.

    A number among the operands is part of the codelet, as a number in the function would be, and JAX promotes it as such;
    one that changes is better a tensor of shape ().

    Args:
        graph: where its compute set is added, in a scope of its name.
        function: any that JAX traces: of one element of each operand, to one element, or a pytree of several.
        operands: tensors and numbers.
        grain: about how many elements a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plan may take.
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
    layout = common_layout(name, tensors, [False] * len(tensors))
    codelets, grain = value_codelets(own), checked_grain(name, grain)
    spreading = _Spreading(graph, layout, tensors, layout.dimensions(tensors, [False] * len(tensors)))
    every = tuple(range(len(layout.groups)))
    results = [Array(every, dtype) for dtype in dtypes]
    with graph.scope(name, unique=True):
        made = spreading.add(results, codelets, grain, memory_share)
    return jax.tree.unflatten(structure, [layout.unmerged(out, every, layout.shape) for out in made])


def plan_map(
    graph: cl.Graph,
    function: Any,
    *operands: Any,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "map",
) -> Plan:
    """The plan of a `map` of the same arguments, of which nothing is added.

    >>> import codelet as cl, jax.numpy as jnp
    >>> graph = cl.Graph(cl.IPU(num_tiles=16))
    >>> x = graph.add_variable("x", (1000,))
    >>> cl.ops.plan_map(graph, jnp.tanh, x).cut("elements").parts
    16
    """
    own, tensors = _checked(name, graph, function, operands)
    _, dtypes = result_types(own)
    layout = common_layout(name, tensors, [False] * len(tensors))
    spreading = _Spreading(graph, layout, tensors, layout.dimensions(tensors, [False] * len(tensors)))
    results = [Array(tuple(range(len(layout.groups))), dtype) for dtype in dtypes]
    return spreading.plan(results, value_codelets(own), checked_grain(name, grain), memory_share)


def map_gradient(
    graph: cl.Graph,
    function: Any,
    cotangents: Any,
    *operands: Any,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "map_gradient",
) -> tuple[cl.Tensor | None, ...]:
    """The gradients of a `map` by its operands, as `jax.vjp` gives them.

    Where an operand is broadcast its gradient is summed: by each vertex over its own block, then over all blocks.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        function: what was mapped.
        cotangents: of the results, in their structure and shape; None for one that nothing depends on, or that is no
            number of floating point.
        operands: what it was mapped over.
        grain: about how many elements a vertex has.
        memory_share: of a tile's memory, what the plan may take.
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
    own, tensors = _checked(name, graph, function, operands)
    shape = common_layout(name, tensors, [True] * len(tensors)).shape
    given = _checked_cotangents(name, graph, own, cotangents, shape)
    smooth = [tensor for tensor in tensors if is_smooth(tensor.dtype)]
    present = [tensor for tensor in given if tensor is not None]
    every, wide = [*present, *tensors], [*[True] * len(present), *(is_smooth(own.dtype) for own in tensors)]
    layout = common_layout(name, every, wide)
    spreading = _Spreading(graph, layout, every, layout.dimensions(every, wide))
    by_tensor = dict(zip(tensors, spreading.dimensions[len(present) :], strict=True))
    results = [Array(by_tensor[tensor], tensor.dtype) for tensor in smooth]
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        if present and smooth:
            codelets = slope_codelets(own, tuple(tensor is not None for tensor in given))
            made = spreading.add(results, codelets, grain, memory_share)
            made = [
                layout.unmerged(out, kept.dimensions, tensor.shape)
                for out, kept, tensor in zip(made, results, smooth, strict=True)
            ]
        else:
            made = [fill(graph, tensor.shape, 0, tensor.dtype) for tensor in smooth]
    left = iter(made)
    return tuple(next(left) if isinstance(t, cl.Tensor) and is_smooth(t.dtype) else None for t in operands)


# --- what is given ----------------------------------------------------------------------------------------


def _checked(
    operation: str, graph: cl.Graph, function: Any, operands: Sequence[Any]
) -> tuple[ElementFunction, list[cl.Tensor]]:
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
    """Operands in what is told."""
    return [f"{own!r:.40}" for own in operands]


def _checked_cotangents(
    operation: str, graph: cl.Graph, own: ElementFunction, cotangents: Any, shape: tuple[int, ...]
) -> list[cl.Tensor | None]:
    structure, dtypes = result_types(own)
    is_leaf = lambda node: node is None or isinstance(node, cl.Tensor)  # noqa: E731
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


class _Spreading:
    """Operands by the dimensions that they share, to be spread over tiles."""

    def __init__(
        self, graph: cl.Graph, layout: Layout, tensors: Sequence[cl.Tensor], dimensions: Sequence[tuple[int, ...]]
    ):
        self.graph, self.layout, self.dimensions = graph, layout, dimensions
        self.operands = tuple(Array(own, tensor.dtype) for own, tensor in zip(dimensions, tensors, strict=True))
        self.views = [layout.view(tensor, own) for own, tensor in zip(dimensions, tensors, strict=True)]

    def _elements(self, results: Sequence[Array]) -> Elements:
        return Elements(
            self.layout.extents, self.operands, tuple(results), tuple(float_sums(own.dtype) for own in results)
        )

    def plan(self, results: Sequence[Array], codelets: ElementCodelets, grain: int | None, memory_share: float) -> Plan:
        """How results are made."""
        own = self._elements(results)
        if 0 in own.extents:
            return Plan(str(own), (), ())
        return plan_elements(self.graph.target, own, codelets, grain, memory_share)

    def add(
        self, results: Sequence[Array], codelets: ElementCodelets, grain: int | None, memory_share: float
    ) -> list[cl.Tensor]:
        """Add the vertices that make results, by their own dimensions."""
        graph, own = self.graph, self._elements(results)
        shapes = [tuple(own.extents[d] for d in array.dimensions) for array in own.results]
        if 0 in own.extents:
            return [
                fill(graph, shape, 0, array.dtype) if math.prod(shape) else graph.add_variable(f"out{k}", shape, array.dtype)
                for k, (shape, array) in enumerate(zip(shapes, own.results, strict=True))
            ]
        cuts = (plan := self.plan(results, codelets, grain, memory_share)).cuts
        static, written, sums = own.static(cuts), [], []
        for k, (shape, array, dtype) in enumerate(zip(shapes, own.results, own.dtypes(cuts), strict=True)):
            counts = tuple(cuts[d].vertices for d in own.missing(array)) if own.num_partials(cuts, array) > 1 else ()
            out = f"out{k}" if len(shapes) > 1 else "out"
            written.append(graph.add_variable(f"partials of {out}" if counts else out, (*counts, *shape), np.dtype(dtype)))
            sums.append(counts)

        def fields(*blocks: Block) -> dict[str, Any]:
            named: dict[str, Any] = {}
            for k, (view, array) in enumerate(zip(self.views, own.operands, strict=True)):
                named[f"x{k}"] = view[tuple(blocks[d].elements for d in array.dimensions)]
            for k, (out, array, counts) in enumerate(zip(written, own.results, sums, strict=True)):
                numbers = [blocks[d].number for d in own.missing(array)] if counts else []
                named[f"out{k}"] = out[(*numbers, *(blocks[d].elements for d in array.dimensions))]
            return {**named, **static}

        add_blocks(graph, "map", chosen_codelet(plan, codelets), cuts, fields)
        made = []
        for k, (out, array, shape, counts) in enumerate(zip(written, own.results, shapes, sums, strict=True)):
            if counts:
                size, count = math.prod(shape), math.prod(counts)
                total = graph.add_variable(f"out{k}" if len(shapes) > 1 else "out", shape, array.dtype)
                planned = plan_sum(graph.target, count, size, out.dtype, array.dtype)
                sum_partials(graph, out.reshape(count, size), total.flatten(), planned)
                out = total
            made.append(out)
        return made
