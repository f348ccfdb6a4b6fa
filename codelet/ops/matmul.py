"""Matrix products: `matmul` and `dot_general` as `jax.numpy` and `jax.lax` have them, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import check_same_dtype, check_tensors, checked_axis, checked_dtype, checked_grain
from codelet.ops.blocks import Block, add_blocks
from codelet.ops.partials import float_sums, plan_sum, sum_partials
from codelet.ops.planning import MEMORY_SHARE, Plan
from codelet.ops.product_planning import CODELETS, Codelets, Dimension, Product, Role, num_partials, plan_product

DimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
"""As of `lax.dot_general`: the contracted dimensions of both operands, and their batch dimensions."""


def _merges(tensor: cl.Tensor, first: int, count: int) -> bool:
    """Whether neighbouring dimensions are as one in memory."""
    strides = tensor.index.strides
    pairs = range(first, first + count - 1)
    return tensor.index.is_strided and all(strides[d] == strides[d + 1] * tensor.shape[d + 1] for d in pairs)


def _flattened(tensor: cl.Tensor, counts: Sequence[int], merged: Sequence[bool]) -> cl.Tensor:
    """A tensor with groups of neighbouring dimensions made one."""
    shape: list[int] = []
    first = 0
    for count, merge in zip(counts, merged, strict=True):
        own = tensor.shape[first : first + count]
        shape += [math.prod(own)] if merge and count else own
        first += count
    return tensor.reshape(shape)


def dot_general(
    graph: cl.Graph,
    a: cl.Tensor,
    b: cl.Tensor,
    dimension_numbers: DimensionNumbers,
    *,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    codelets: Codelets = CODELETS,
    name: str = "dot_general",
) -> cl.Tensor:
    """Products of two arrays, summed over any dimensions, as `jax.lax.dot_general`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        a: the left operand.
        b: the right operand, of the same dtype.
        dimension_numbers: ((contracted of a, contracted of b), (batch of a, batch of b)).
        preferred_element_type: dtype of the results; the operands' when left off.
        partials: dtype of partial sums; float32 for floating point of 16 bits when left off, else the results'.
        grain: about how many multiply-adds a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plan may take.
        codelets: what it is made of.
        name: of the scope.

    Returns:
        The results: batch dimensions, then what is left of a, then of b.

    Raises:
        OperationError: dimensions or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def both(graph, a, b):
    ...     return cl.ops.dot_general(graph, a, b, (((0,), (0,)), ((), ())))
    >>> cl.lower(both)(jnp.ones((3, 2)), jnp.ones((3, 5))).shape
    (2, 5)
    """
    placed, own, plan, shape = _planned(
        graph, a, b, dimension_numbers, preferred_element_type, partials, grain, memory_share, codelets, name
    )
    with graph.scope(name, unique=True):
        return _add_product(graph, *placed, own, plan, codelets).reshape(shape)


def _planned(
    graph: cl.Graph,
    a: cl.Tensor,
    b: cl.Tensor,
    dimension_numbers: Any,
    preferred_element_type: Any,
    partials: Any,
    grain: int | None,
    memory_share: float,
    codelets: Codelets,
    name: str,
) -> tuple[tuple[cl.Tensor, cl.Tensor], Product, Plan, tuple[int, ...]]:
    """The operands as (batch, rows, summed) and (batch, summed, columns), their product, its plan, its shape."""
    check_tensors(name, graph, a=a, b=b)
    dtype = check_same_dtype(name, a=a, b=b)
    (left, right), (left_batch, right_batch) = _checked_numbers(name, a, b, dimension_numbers)
    rows = [d for d in range(a.ndim) if d not in (*left, *left_batch)]
    columns = [d for d in range(b.ndim) if d not in (*right, *right_batch)]
    a = a.transpose([*left_batch, *rows, *left]) if a.ndim else a
    b = b.transpose([*right_batch, *right, *columns]) if b.ndim else b
    counts = len(left_batch), len(rows), len(left), len(columns)
    shape = (*a.shape[: counts[0] + counts[1]], *b.shape[counts[0] + counts[2] :])
    batch, own_rows, summed, own_columns = counts
    merges = (
        _merges(a, 0, batch) and _merges(b, 0, batch),
        _merges(a, batch, own_rows),
        _merges(a, batch + own_rows, summed) and _merges(b, batch, summed),
        _merges(b, batch + summed, own_columns),
    )
    a = _flattened(a, counts[:3], merges[:3])
    b = _flattened(b, (batch, summed, own_columns), (merges[0], *merges[2:]))
    kept = [1 if merge and count else count for merge, count in zip(merges, counts, strict=True)]
    extents = {
        "batch": a.shape[: kept[0]],
        "rows": a.shape[kept[0] : kept[0] + kept[1]],
        "columns": b.shape[kept[0] + kept[2] :],
        "summed": a.shape[kept[0] + kept[1] :],
    }
    dimensions = tuple(_dimension(role, k, own) for role, sizes in extents.items() for k, own in enumerate(sizes))
    out = checked_dtype(name, "preferred_element_type", preferred_element_type or dtype)
    sums = checked_dtype(name, "partials", partials or float_sums(out))
    own = Product(dimensions, dtype, sums, out)
    grain = checked_grain(name, grain)
    empty = not all(dimension.extent for dimension in dimensions)
    plan = Plan(str(own), (), ()) if empty else plan_product(graph.target, own, codelets, grain, memory_share)
    return (a, b), own, plan, shape


def _dimension(role: Any, number: int, extent: int) -> Dimension:
    own: Role = role
    return Dimension(role if not number else f"{role}{number + 1}", own, extent)


def _checked_numbers(name: str, a: cl.Tensor, b: cl.Tensor, numbers: Any) -> Any:
    """Dimension numbers counted from the beginning, that fit.

    Raises:
        OperationError: they do not.
    """
    try:
        pairs = [tuple(map(tuple, pair)) for pair in numbers]
        (left, right), (left_batch, right_batch) = pairs
    except (TypeError, ValueError):
        raise OperationError(
            f"the dimension numbers of ops.{name} are not two pairs of dimensions",
            given=repr(numbers),
            expected="((contracted of a, contracted of b), (batch of a, batch of b))",
        ) from None
    left, left_batch = (tuple(checked_axis(name, "a", d, a.ndim) for d in own) for own in (left, left_batch))
    right, right_batch = (tuple(checked_axis(name, "b", d, b.ndim) for d in own) for own in (right, right_batch))
    for ours, theirs, what in ((left, right, "contracted"), (left_batch, right_batch, "batch")):
        mine, other = [a.shape[d] for d in ours], [b.shape[d] for d in theirs]
        if mine != other:
            raise OperationError(
                f"the {what} dimensions of ops.{name} are not as long in both operands",
                given=f"{a.shape} and {b.shape}: {mine} of a, {other} of b",
                expected="the same extents in the same order",
            )
    for used, tensor in (((*left, *left_batch), a), ((*right, *right_batch), b)):
        if len(set(used)) < len(used):
            raise OperationError(
                f"ops.{name} is given a dimension twice",
                given=f"{used} of {tensor.shape}",
                expected="each once at most",
            )
    return (left, right), (left_batch, right_batch)


def _add_product(
    graph: cl.Graph, a: cl.Tensor, b: cl.Tensor, own: Product, plan: Plan, codelets: Codelets
) -> cl.Tensor:
    """The vertices of a planned product."""
    roles = [dimension.role for dimension in own.dimensions]
    shape = tuple(dimension.extent for dimension in own.dimensions if dimension.role != "summed")
    out = graph.add_variable("out", shape, own.out_dtype)
    if 0 in shape:
        return out
    if not own.size("summed"):
        zero = cl.codelet(lambda: {"out": jnp.zeros((), own.out_dtype)})
        i = cl.grid(out.size)
        graph.add_vertex("fill", zero, out=out.flatten()[i])
        return out
    chosen = plan.detail("codelet")
    codelet = codelets.product if codelets.product.name == chosen else codelets.worker
    assert codelet is not None
    count = num_partials(plan.cuts, own)
    written, dtype = out, own.out_dtype
    if count > 1:
        counts = [cut.vertices for cut, role in zip(plan.cuts, roles, strict=True) if role == "summed"]
        dtype = own.partials
        written = graph.add_variable("partials", (*counts, *shape), dtype)
    static = codelets.static(codelet, own, dtype)

    def fields(*blocks: Block) -> dict[str, Any]:
        of = lambda role: [block.elements for block, own in zip(blocks, roles, strict=True) if own == role]  # noqa: E731
        numbers = [block.number for block, own in zip(blocks, roles, strict=True) if own == "summed"]
        place = (*(numbers if count > 1 else ()), *of("batch"), *of("rows"), *of("columns"))
        return {
            "a": a[(*of("batch"), *of("rows"), *of("summed"))],
            "b": b[(*of("batch"), *of("summed"), *of("columns"))],
            "out": written[place],
            **static,
        }

    add_blocks(graph, "multiply", codelet, plan.cuts, fields)
    if count > 1:
        sums = plan_sum(graph.target, count, out.size, own.partials, own.out_dtype, codelets.add)
        sum_partials(graph, written.reshape(count, out.size), out.flatten(), sums, codelets.add)
    return out
