"""Products summed over any dimensions: `dot_general` as `jax.lax` has it, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_same_dtype, check_tensors, checked_axis, checked_grain
from codelet.ops.blockwise import merged, regroup
from codelet.ops.fill import add_filled
from codelet.ops.homes import home_of
from codelet.ops.partials import add_planned, checked_sums
from codelet.ops.planning import MEMORY_FRACTION, Plan
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
    plan_product,
    work_of,
)
from codelet.ops.schema import checked
from codelet.target import Target
from codelet.views.mixed_radix import digits_along
from codelet.views.tensor import Tensor

DimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
"""As of `lax.dot_general`: the contracted dimensions of both operands, and their batch dimensions."""


@dataclass(frozen=True)
class _PlanOptions:
    """How products are planned: see the arguments of `dot_general`."""

    target: Target
    codelets: Codelets
    grain: int | None
    memory_fraction: float

    def plan(self, own: Product) -> Plan:
        """The plan of a product; of one without products, none of its cuts."""
        if not own.size("summed"):
            return Plan(str(own), (), ())
        return plan_product(self.target, own, self.codelets, self.grain, self.memory_fraction)


@checked
def dot_general(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    dimension_numbers: DimensionNumbers,
    *,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    codelets: Codelets = CODELETS,
    like: Tensor | None = None,
    name: str = "dot_general",
) -> Tensor:
    """Products of two arrays, summed over any dimensions, as `jax.lax.dot_general`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        a: the left operand.
        b: the right operand, of the same dtype.
        dimension_numbers: ((contracted of a, contracted of b), (batch of a, batch of b)).
        preferred_element_type: dtype of the results; default: the operands'.
        partials: dtype of partial sums; default: float32 for floating point of 16 bits, else the results'.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        codelets: the codelets of its vertices.
        like: a tensor of the results' shape that is read together with them, as a parameter with its gradient. Where it
            pays, they are made on its tiles.
        name: of the scope.

    Returns:
        The results: batch dimensions, then the rest of a, then of b.

    Raises:
        OperationError: dimensions or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def both(graph, a, b):
    ...     return cl.ops.dot_general(graph, a, b, (((0,), (0,)), ((), ())))
    >>> cl.lower(both)(jnp.ones((3, 2)), jnp.ones((3, 5))).shape
    (2, 5)
    """
    (a, b), own, shape = _as_product(graph, a, b, dimension_numbers, preferred_element_type, partials, name)
    if like is not None:
        own = replace(own, wanted=home_of(_checked_like(name, graph, like, shape).reshape(own.out_shape)))
    options = _PlanOptions(graph.target, codelets, checked_grain(name, grain), memory_fraction)
    with graph.scope(name, unique=True):
        out = graph.add_variable("out", shape, own.out_dtype)
        if out.size:
            _add_turns(graph, a, b, out.reshape(own.out_shape), own, options.plan(own), options)
        return out


def dimension(role: Role, number: int, extent: int) -> Dimension:
    """A dimension, named by its role, and where there are several of one role by their number."""
    return Dimension(role if not number else f"{role}{number + 1}", role, extent)


def _as_product(
    graph: Graph, a: Tensor, b: Tensor, numbers: Any, out_dtype: Any, partials: Any, name: str
) -> tuple[tuple[Tensor, Tensor], Product, tuple[int, ...]]:
    """The operands as (batch, rows, summed) and (batch, summed, columns), the product, and its shape."""
    check_tensors(name, graph, a=a, b=b)
    dtype = check_same_dtype(name, a=a, b=b)
    (left, right), (left_batch, right_batch) = _checked_numbers(name, a, b, numbers)
    (a, b), (left, right), (left_batch, right_batch) = _in_digits((a, b), (left, right), (left_batch, right_batch))
    rows = [d for d in range(a.ndim) if d not in (*left, *left_batch)]
    columns = [d for d in range(b.ndim) if d not in (*right, *right_batch)]
    a = a.transpose([*left_batch, *rows, *left]) if a.ndim else a
    b = b.transpose([*right_batch, *right, *columns]) if b.ndim else b
    counts = {"batch": len(left_batch), "rows": len(rows), "summed": len(left), "columns": len(columns)}
    shape = (*a.shape[: a.ndim - counts["summed"]], *b.shape[counts["batch"] + counts["summed"] :])
    labels: list[Role] = [role for role in (*A_ROLES, "columns") for _ in range(counts[role])]
    of_a, of_b = ([d for d, role in enumerate(labels) if role in roles] for roles in (A_ROLES, B_ROLES))
    groups = merged([(a, of_a), (b, of_b)], labels)
    extent_of = dict(zip((*of_a, *of_b), (*a.shape, *b.shape), strict=True))
    extents = [(labels[group[0]], math.prod(extent_of[d] for d in group)) for group in groups]
    a, b = regroup(a, of_a, groups), regroup(b, of_b, groups)
    dimensions = tuple(
        dimension(role, k, extent)
        for role in ROLES
        for k, extent in enumerate(own for of, own in extents if of == role)
    )
    sums, out = checked_sums(name, dtype, out_dtype, partials)
    return (a, b), Product(dimensions, dtype, sums, out, (home_of(a), home_of(b))), shape


def _in_digits(operands: tuple[Tensor, Tensor], summed: Any, batch: Any) -> tuple[tuple[Tensor, Tensor], Any, Any]:
    """Operands with a dimension for each digit of the summed dimension, where one of them steps in mixed radix there.

    So does an image of channels last that is flattened as of channels first. A part of such a dimension is no slice.
    """
    for left, right in zip(*summed, strict=True):
        digits = [digits_along(own.index, d) for own, d in zip(operands, (left, right), strict=True)]
        extents = [tuple(digit.extent for digit in own) for own in digits if own]
        if not extents or extents[0] != extents[-1]:
            continue
        places = (left, right)
        operands = tuple(
            own.reshape((*own.shape[:d], *extents[0], *own.shape[d + 1 :]))
            for own, d in zip(operands, places, strict=True)
        )  # type: ignore[assignment]
        more = len(extents[0]) - 1
        moved = lambda numbers, d: [k + more * (k > d) for k in numbers]  # noqa: E731
        batch = [moved(own, d) for own, d in zip(batch, places, strict=True)]
        others = [moved([k for k in own if k != d], d) for own, d in zip(summed, places, strict=True)]
        new = [[*own, *range(d, d + more + 1)] for own, d in zip(others, places, strict=True)]
        return _in_digits(operands, new, batch)
    return operands, summed, batch


def _checked_numbers(name: str, a: Tensor, b: Tensor, numbers: Any) -> Any:
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


def _checked_like(name: str, graph: Graph, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    check_tensors(name, graph, like=like)
    if like.shape != shape:
        raise OperationError(f"`like` of ops.{name} is not of the results' shape", given=like, expected=f"{shape}")
    return like


def _part(own: Product, roles: Sequence[Role], d: int, part: slice) -> tuple[slice, ...]:
    """The part of an array whose dimensions have these roles, in order, along one dimension of the product."""
    ordered = [k for role in roles for k, dimension in enumerate(own.dimensions) if dimension.role == role]
    return tuple(part if k == d else slice(None) for k in ordered)


def _add_turns(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, own: Product, plan: Plan, options: _PlanOptions
) -> None:
    """The vertices of a planned product: all at once, or of one part of the results after another."""
    names = [cut.name for cut in plan.cuts]
    d = next((d for d, one in enumerate(own.dimensions) if plan.cuts and plan.cuts[d].extent < one.extent), None)
    if d is None:
        _add_product(graph, a, b, out, own, plan, options.codelets)
        return
    extent, each = own.dimensions[d].extent, plan.cut(names[d]).extent
    count = len(plan.steps) // -(-extent // each)  # steps of a turn
    for turn, start in enumerate(range(0, extent, each)):
        part = slice(start, min(start + each, extent))
        dimension = replace(own.dimensions[d], extent=part.stop - part.start)
        of_turn = replace(own, dimensions=(*own.dimensions[:d], dimension, *own.dimensions[d + 1 :]))
        ours, theirs, results = (_part(own, roles, d, part) for roles in (A_ROLES, B_ROLES, OUT_ROLES))
        with graph.scope(f"turn {turn + 1}"):
            steps = plan.steps[count * turn : count * (turn + 1)]
            own_plan = replace(plan, steps=steps) if dimension.extent == each else options.plan(of_turn)
            _add_turns(graph, a[ours], b[theirs], out[results], of_turn, own_plan, options)


def _add_product(graph: Graph, a: Tensor, b: Tensor, out: Tensor, own: Product, plan: Plan, codelets: Codelets) -> None:
    """The vertices of a planned product."""
    if not own.size("summed"):
        add_filled(graph, out, 0)
        return
    add_planned(graph, work_of(own, codelets), plan, {"a": a, "b": b}, {"out": out})


def _inverse(order: Sequence[int]) -> list[int]:
    """The inverse of an order."""
    return sorted(range(len(order)), key=lambda d: order[d])


class ProductGradient(NamedTuple):
    """The gradients of a product, each of the shape and dtype of its operand.

    Attributes:
        a: by the left operand.
        b: by the right operand.
    """

    a: Tensor
    b: Tensor


@checked
def dot_general_gradient(
    graph: Graph,
    cotangent: Tensor,
    a: Tensor,
    b: Tensor,
    dimension_numbers: DimensionNumbers,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dot_general_gradient",
) -> ProductGradient:
    """The gradients of `dot_general` by both operands: products of the cotangent with the other.

    Args:
        graph: where their compute sets are added, in a scope of that name.
        cotangent: of the result, of its shape and dtype.
        a: the left operand.
        b: the right operand.
        dimension_numbers: ((contracted of a, contracted of b), (batch of a, batch of b)).
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plans may use.
        name: of the scope.

    Returns:
        The gradients with respect to a and by b, each of its operand's shape and dtype.

    Raises:
        OperationError: dimensions, shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> numbers = (((1,), (0,)), ((), ()))
    >>> slopes = lambda graph, g, a, b: cl.ops.dot_general_gradient(graph, g, a, b, numbers)
    >>> cl.lower(slopes)(jnp.ones((1, 1)), jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [4.0]])).a
    Array([[3., 4.]], dtype=float32)
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
    if cotangent.dtype != a.dtype:
        raise OperationError(
            f"the cotangent of ops.{name} is of another dtype than the operands",
            given=f"{cotangent.dtype} beside {a.dtype}",
            expected="one dtype",
            fix="ops.cast(graph, cotangent, dtype=dtype)",
        )
    options: dict[str, Any] = {"grain": grain, "memory_fraction": memory_fraction}
    with graph.scope(name, unique=True):
        by_a = product_gradient(graph, cotangent, b, "a", (a, b), dimension_numbers, **options)
        by_b = product_gradient(graph, cotangent, a, "b", (a, b), dimension_numbers, **options)
    return ProductGradient(by_a, by_b)


def product_gradient(
    graph: Graph,
    cotangent: Tensor,
    other: Tensor,
    by: str,
    operands: tuple[Tensor, Tensor],
    dimension_numbers: DimensionNumbers,
    **options: Any,
) -> Tensor:
    """The gradient of `dot_general` by one operand, which is a product again.

    Args:
        graph: where its compute sets are added.
        cotangent: of the result, of the dtype of the operands.
        other: the value of the other operand.
        by: which operand: "a" or "b".
        operands: both, of which the shapes are asked.
        dimension_numbers: as of `dot_general`.
        options: of `dot_general`.
    """
    a, b = operands
    (left, right), (left_batch, right_batch) = _checked_numbers("dot_general_gradient", a, b, dimension_numbers)
    rows = [d for d in range(a.ndim) if d not in (*left, *left_batch)]
    columns = [d for d in range(b.ndim) if d not in (*right, *right_batch)]
    batch = range(len(left_batch))
    of_rows = range(len(batch), len(batch) + len(rows))
    of_columns = range(len(batch) + len(rows), cotangent.ndim)
    options["preferred_element_type"] = a.dtype
    # Contracted over what the other alone has; left are batch, what this one alone has, what was contracted, as there.
    if by == "a":
        numbers = ((of_columns, columns), (batch, right_batch))
        own, contracted = [*left_batch, *rows], [left[k] for k in sorted(range(len(right)), key=lambda k: right[k])]
    else:
        numbers = ((of_rows, rows), (batch, left_batch))
        own, contracted = [*right_batch, *columns], [right[k] for k in sorted(range(len(left)), key=lambda k: left[k])]
    # The result lies as the operand does where one of the two ways to multiply gives that.
    lead, order = own[: len(batch)], [*own, *contracted]
    swapped = [*lead, *contracted, *own[len(batch) :]]
    factors = cotangent, other
    if order != sorted(order) == swapped:
        factors, order = (other, cotangent), swapped
        (ours, theirs), (mine, others) = numbers
        numbers = (theirs, ours), (others, mine)
    like = (a if by == "a" else b).transpose(order) if order else None
    made = dot_general(graph, *factors, numbers, **options, like=like, name=f"by_{by}")
    return made.transpose(_inverse(order)) if made.ndim else made
