"""Matrix products: `matmul` and `dot_general` as `jax.numpy` and `jax.lax` have them, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import check_same_dtype, check_tensors, checked_axis, checked_dtype, checked_grain
from codelet.ops.block_planning import plan_sum
from codelet.ops.blocks import Block, add_blocks
from codelet.ops.partials import sum_partials
from codelet.ops.planning import MEMORY_SHARE, Plan
from codelet.ops.product_planning import (
    A_ROLES,
    B_ROLES,
    CODELETS,
    OUT_ROLES,
    ROLES,
    Codelets,
    Dimension,
    Product,
    Role,
    num_partials,
    plan_product,
)
from codelet.target import Target

DimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
"""As of `lax.dot_general`: the contracted dimensions of both operands, and their batch dimensions."""


def _merges(tensor: cl.Tensor, first: int, count: int) -> bool:
    """Whether neighbouring dimensions are as one in memory."""
    strides = tensor.index.strides
    pairs = range(first, first + count - 1)
    return tensor.index.is_strided and all(strides[d] == strides[d + 1] * tensor.shape[d + 1] for d in pairs)


def _flattened(
    tensor: cl.Tensor, roles: Sequence[Role], counts: Mapping[str, int], merges: Mapping[str, bool]
) -> tuple[cl.Tensor, dict[Role, list[int]]]:
    """A tensor with neighbouring dimensions of one role made one where that may be, and the extents of each role."""
    extents: dict[Role, list[int]] = {}
    first = 0
    for role in roles:
        own = list(tensor.shape[first : first + counts[role]])
        extents[role] = [math.prod(own)] if own and merges[role] else own
        first += counts[role]
    return tensor.reshape([n for role in roles for n in extents[role]]), extents


@dataclass(frozen=True)
class _Options:
    """How products are planned: see the arguments of `dot_general`."""

    target: Target
    codelets: Codelets
    grain: int | None
    memory_share: float

    def plan(self, own: Product) -> Plan:
        """The plan of a product; of one without products, none of its cuts."""
        if not own.size("summed"):
            return Plan(str(own), (), ())
        return plan_product(self.target, own, self.codelets, self.grain, self.memory_share)


@cl.codelet(issue="assembly")
def zero(*, dtype):
    """One zero."""
    return jnp.zeros((), dtype)


def _float_sums(dtype: np.dtype) -> np.dtype:
    """What sums of a dtype are kept in: float32 for what is shorter."""
    return np.dtype(np.float32) if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 else dtype


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
    (a, b), own, shape = _as_product(graph, a, b, dimension_numbers, preferred_element_type, partials, name)
    options = _Options(graph.target, codelets, checked_grain(name, grain), memory_share)
    with graph.scope(name, unique=True):
        out = graph.add_variable("out", shape, own.out_dtype)
        if out.size:
            _add_turns(graph, a, b, out.reshape(own.out_shape), own, options.plan(own), options)
        return out


def _dimension(role: Role, number: int, extent: int) -> Dimension:
    """A dimension, named by what it does, and where there are several that do it by their number."""
    return Dimension(role if not number else f"{role}{number + 1}", role, extent)


def _as_product(
    graph: cl.Graph, a: cl.Tensor, b: cl.Tensor, numbers: Any, out_dtype: Any, partials: Any, name: str
) -> tuple[tuple[cl.Tensor, cl.Tensor], Product, tuple[int, ...]]:
    """The operands as (batch, rows, summed) and (batch, summed, columns), what is made of them, and its shape."""
    check_tensors(name, graph, a=a, b=b)
    dtype = check_same_dtype(name, a=a, b=b)
    (left, right), (left_batch, right_batch) = _checked_numbers(name, a, b, numbers)
    rows = [d for d in range(a.ndim) if d not in (*left, *left_batch)]
    columns = [d for d in range(b.ndim) if d not in (*right, *right_batch)]
    a = a.transpose([*left_batch, *rows, *left]) if a.ndim else a
    b = b.transpose([*right_batch, *right, *columns]) if b.ndim else b
    counts = {"batch": len(left_batch), "rows": len(rows), "summed": len(left), "columns": len(columns)}
    shape = (*a.shape[: a.ndim - counts["summed"]], *b.shape[counts["batch"] + counts["summed"] :])
    first = counts["batch"] + counts["rows"]
    merges = {
        "batch": _merges(a, 0, counts["batch"]) and _merges(b, 0, counts["batch"]),
        "rows": _merges(a, counts["batch"], counts["rows"]),
        "summed": _merges(a, first, counts["summed"]) and _merges(b, counts["batch"], counts["summed"]),
        "columns": _merges(b, counts["batch"] + counts["summed"], counts["columns"]),
    }
    a, ours = _flattened(a, A_ROLES, counts, merges)
    b, theirs = _flattened(b, B_ROLES, counts, merges)
    extents = {**theirs, **ours}
    dimensions = tuple(_dimension(role, k, extent) for role in ROLES for k, extent in enumerate(extents[role]))
    out = checked_dtype(name, "preferred_element_type", out_dtype or dtype)
    sums = checked_dtype(name, "partials", partials or _float_sums(out))
    return (a, b), Product(dimensions, dtype, sums, out), shape


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


def _part(own: Product, roles: Sequence[Role], d: int, part: slice) -> tuple[slice, ...]:
    """The part of an array whose dimensions have these roles, in order, along one dimension of the product."""
    ordered = [k for role in roles for k, dimension in enumerate(own.dimensions) if dimension.role == role]
    return tuple(part if k == d else slice(None) for k in ordered)


def _add_turns(
    graph: cl.Graph, a: cl.Tensor, b: cl.Tensor, out: cl.Tensor, own: Product, plan: Plan, options: _Options
) -> None:
    """The vertices of a planned product: all at once, or of one part of the results after another."""
    names = [cut.name for cut in plan.cuts]
    d = next((d for d, one in enumerate(own.dimensions) if plan.cuts and plan.cuts[d].extent < one.extent), None)
    if d is None:
        _add_product(graph, a, b, out, own, plan, options.codelets)
        return
    extent, each = own.dimensions[d].extent, plan.cut(names[d]).extent
    for turn, start in enumerate(range(0, extent, each)):
        part = slice(start, min(start + each, extent))
        dimension = replace(own.dimensions[d], extent=part.stop - part.start)
        of_turn = replace(own, dimensions=(*own.dimensions[:d], dimension, *own.dimensions[d + 1 :]))
        ours, theirs, results = (_part(own, roles, d, part) for roles in (A_ROLES, B_ROLES, OUT_ROLES))
        with graph.scope(f"turn {turn + 1}"):
            own_plan = plan if dimension.extent == each else options.plan(of_turn)
            _add_product(graph, a[ours], b[theirs], out[results], of_turn, own_plan, options.codelets)


def _add_product(
    graph: cl.Graph, a: cl.Tensor, b: cl.Tensor, out: cl.Tensor, own: Product, plan: Plan, codelets: Codelets
) -> None:
    """The vertices of a planned product."""
    roles = [dimension.role for dimension in own.dimensions]
    if not own.size("summed"):
        graph.add_vertex("fill", zero, out=out.flatten()[cl.grid(out.size)], dtype=own.out_dtype.name)
        return
    codelet = codelets.by_name(str(plan.detail("codelet")))
    count, written, dtype = num_partials(plan.cuts, own), out, own.out_dtype
    if count > 1:
        counts = [cut.vertices for cut, role in zip(plan.cuts, roles, strict=True) if role == "summed"]
        dtype = own.partials
        written = graph.add_variable("partials", (*counts, *out.shape), dtype)
    static = codelets.static(codelet, own, dtype)

    def fields(*blocks: Block) -> dict[str, Any]:
        of = {role: [block.elements for block, own in zip(blocks, roles, strict=True) if own == role] for role in ROLES}
        numbers = [block.number for block, own in zip(blocks, roles, strict=True) if own == "summed"]
        place = *(numbers if count > 1 else ()), *(part for role in OUT_ROLES for part in of[role])
        return {
            "a": a[tuple(part for role in A_ROLES for part in of[role])],
            "b": b[tuple(part for role in B_ROLES for part in of[role])],
            "out": written[place],
            **static,
        }

    add_blocks(graph, "multiply", codelet, plan.cuts, fields)
    if count > 1:
        sums = plan_sum(graph.target, count, out.size, own.partials, own.out_dtype, codelets.add)
        sum_partials(graph, written.reshape(count, out.size), out.flatten(), sums, codelets.add)


def _inverse(order: Sequence[int]) -> list[int]:
    """The order that puts back what an order has moved."""
    return sorted(range(len(order)), key=lambda d: order[d])


def dot_general_gradients(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    a: cl.Tensor,
    b: cl.Tensor,
    dimension_numbers: DimensionNumbers,
    *,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "dot_general_gradients",
) -> tuple[cl.Tensor, cl.Tensor]:
    """The gradients of `dot_general` by both operands: products of the cotangent with the other.

    Args:
        graph: where their compute sets are added, in a scope of that name.
        cotangent: of the result, of its shape and dtype.
        a: the left operand.
        b: the right operand.
        dimension_numbers: as of `dot_general`.
        grain: about how many multiply-adds a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plans may take.
        name: of the scope.

    Returns:
        The gradients by a and by b, each of its operand's shape and dtype.

    Raises:
        OperationError: dimensions, shapes or dtypes that do not fit.
    """
    check_tensors(name, graph, cotangent=cotangent, a=a, b=b)
    check_same_dtype(name, a=a, b=b)
    (left, right), (left_batch, right_batch) = _checked_numbers(name, a, b, dimension_numbers)
    rows = [d for d in range(a.ndim) if d not in (*left, *left_batch)]
    columns = [d for d in range(b.ndim) if d not in (*right, *right_batch)]
    shape = (*(a.shape[d] for d in (*left_batch, *rows)), *(b.shape[d] for d in columns))
    if cotangent.shape != shape:
        raise OperationError(
            f"the cotangent of ops.{name} does not have the shape of the result", given=cotangent, expected=f"{shape}"
        )
    batch = range(len(left_batch))
    of_rows = range(len(batch), len(batch) + len(rows))
    of_columns = range(len(batch) + len(rows), cotangent.ndim)
    options: dict[str, Any] = {"grain": grain, "memory_share": memory_share, "preferred_element_type": a.dtype}
    if cotangent.dtype != a.dtype:
        raise OperationError(
            f"the cotangent of ops.{name} is of another dtype than the operands",
            given=f"{cotangent.dtype} beside {a.dtype}",
            expected="one dtype",
            fix="ops.cast(graph, cotangent, dtype)",
        )
    with graph.scope(name, unique=True):
        # Contracted over what b alone has: batch, rows, then what was contracted, in the order that it has in b.
        numbers = (of_columns, columns), (batch, right_batch)
        by_a = dot_general(graph, cotangent, b, numbers, **options, name="by_a")
        in_b = sorted(range(len(right)), key=lambda k: right[k])
        by_a = by_a.transpose(_inverse([*left_batch, *rows, *(left[k] for k in in_b)])) if a.ndim else by_a
        numbers = (of_rows, rows), (batch, left_batch)
        by_b = dot_general(graph, cotangent, a, numbers, **options, name="by_b")
        in_a = sorted(range(len(left)), key=lambda k: left[k])
        by_b = by_b.transpose(_inverse([*right_batch, *columns, *(right[k] for k in in_a)])) if b.ndim else by_b
    return by_a, by_b


def _matmul_numbers(name: str, a: cl.Tensor, b: cl.Tensor) -> tuple[cl.Tensor, cl.Tensor, DimensionNumbers]:
    """The operands of a matrix product with as many batch dimensions each, and which dimensions are which.

    Raises:
        OperationError: shapes that do not fit.
    """
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
        raise OperationError(
            f"the shapes of ops.{name} do not fit",
            given=f"{a.shape} and {b.shape}",
            expected="(..., rows, summed) and (..., summed, columns), or vectors of what is summed",
        )
    of_a, of_b = a.shape[:-2], b.shape[:-2]
    if not of_a or not of_b:  # one matrix for all of the other's batches: no dimension of batches
        return a, b, (((a.ndim - 1,), (max(0, b.ndim - 2),)), ((), ()))
    try:
        shared = np.broadcast_shapes(of_a, of_b)
    except ValueError:
        raise OperationError(
            f"the batches of ops.{name} do not fit",
            given=f"{a.shape} and {b.shape}: {of_a} and {of_b}",
            expected="dimensions before the last two that broadcast",
        ) from None
    a, b = a.broadcast_to((*shared, *a.shape[-2:])), b.broadcast_to((*shared, *b.shape[-2:]))
    n = len(shared)
    return a, b, (((n + 1,), (n,)), (tuple(range(n)), tuple(range(n))))


def matmul(
    graph: cl.Graph,
    a: cl.Tensor,
    b: cl.Tensor,
    *,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    codelets: Codelets = CODELETS,
    name: str = "matmul",
) -> cl.Tensor:
    """A matrix product, or one for each of several batches, as `jax.numpy.matmul`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        a: (..., rows, summed), or (summed,).
        b: (..., summed, columns), or (summed,), of the same dtype. What is before the last two dimensions broadcasts.
        preferred_element_type: dtype of the results; the operands' when left off.
        partials: dtype of partial sums; see `dot_general`.
        grain: about how many multiply-adds a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plan may take.
        codelets: what it is made of.
        name: of the scope.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> graph = cl.Graph()
    >>> x, w = graph.add_variable("x", (500, 300)), graph.add_variable("w", (300, 70))
    >>> y = cl.ops.matmul(graph, x, w)
    >>> y.shape
    (500, 70)
    """
    check_tensors(name, graph, a=a, b=b)
    left, right, numbers = _matmul_numbers(name, a, b)
    out = dot_general(
        graph,
        left,
        right,
        numbers,
        preferred_element_type=preferred_element_type,
        partials=partials,
        grain=grain,
        memory_share=memory_share,
        codelets=codelets,
        name=name,
    )
    if not a.shape[:-2] and b.ndim > 2 and a.ndim == 2:  # rows came before batches
        out = out.transpose([*range(1, out.ndim - 1), 0, out.ndim - 1])
    return out


def plan_matmul(
    target: Target,
    rows: int,
    summed: int,
    columns: int,
    dtype: Any = jnp.float32,
    *,
    batch: int = 1,
    partials: Any = None,
    codelets: Codelets = CODELETS,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Plan:
    """How `matmul` spreads a product of (batch, rows, summed) and (batch, summed, columns); it prints.

    Args:
        target: the machine.
        rows: of the left operand.
        summed: its columns, the rows of the right one.
        columns: of the right operand.
        dtype: of both.
        batch: how many such products.
        partials: dtype of partial sums; see `dot_general`.
        codelets: what it is made of.
        grain: about how many multiply-adds a vertex has.
        memory_share: of a tile's memory, what the plan may take.

    >>> import codelet as cl
    >>> plan = cl.ops.plan_matmul(cl.IPU("mk2"), 512, 512, 512)
    >>> plan.cut("summed").parts, plan.total_cycles
    (8, 18725)
    """
    own = checked_dtype("plan_matmul", "dtype", dtype)
    sums = checked_dtype("plan_matmul", "partials", partials or _float_sums(own))
    extents = {"batch": batch, "rows": rows, "columns": columns, "summed": summed}
    kept: tuple[Role, ...] = ROLES if batch > 1 else ROLES[1:]
    product = Product(tuple(_dimension(role, 0, extents[role]) for role in kept), own, sums, own)
    return plan_product(target, product, codelets, checked_grain("plan_matmul", grain), memory_share)


def matmul_gradients(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    a: cl.Tensor,
    b: cl.Tensor,
    *,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "matmul_gradients",
) -> tuple[cl.Tensor, cl.Tensor]:
    """The gradients of `matmul` by both operands, whose batches must be of one shape.

    Args:
        graph: where their compute sets are added, in a scope of that name.
        cotangent: of the result.
        a: the left operand.
        b: the right operand.
        grain: about how many multiply-adds a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plans may take.
        name: of the scope.

    Returns:
        The gradients by a and by b.

    Raises:
        OperationError: shapes or dtypes that do not fit; batches that broadcast, whose gradients are sums over them.
    """
    check_tensors(name, graph, cotangent=cotangent, a=a, b=b)
    left, right, numbers = _matmul_numbers(name, a, b)
    if left.shape != a.shape or right.shape != b.shape:
        raise OperationError(
            f"the batches of ops.{name} broadcast",
            given=f"{a.shape} and {b.shape}",
            expected="batches of one shape, or none of one operand",
            fix="broadcast them first, and sum the gradients over what was broadcast by ops.reduce_sum",
        )
    if not a.shape[:-2] and b.ndim > 2 and a.ndim == 2:
        cotangent = cotangent.transpose([cotangent.ndim - 2, *range(cotangent.ndim - 2), cotangent.ndim - 1])
    options: dict[str, Any] = {"grain": grain, "memory_share": memory_share, "name": name}
    return dot_general_gradients(graph, cotangent, left, right, numbers, **options)
