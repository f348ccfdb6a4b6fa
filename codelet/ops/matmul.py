"""Matrix products: `matmul` as `jax.numpy` has it, its gradients, and its plan."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_order
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_dtype, checked_grain
from codelet.ops.dot_general import DimensionNumbers, ProductGradient, dimension, dot_general, dot_general_gradient
from codelet.ops.partials import checked_sums
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.product_planning import CODELETS, ROLES, Codelets, Product, Role, plan_product
from codelet.ops.schema import checked
from codelet.target import Target
from codelet.views.tensor import Tensor


def _matmul_numbers(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, DimensionNumbers]:
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


@checked
def matmul(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    *,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    codelets: Codelets = CODELETS,
    name: str = "matmul",
) -> Tensor:
    """A matrix product, or one for each of several batches, as `jax.numpy.matmul`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        a: (..., rows, summed), or (summed,).
        b: (..., summed, columns), or (summed,), of the same dtype. The dimensions before the last two broadcast.
        preferred_element_type: dtype of the results; default: the operands'.
        partials: dtype of partial sums; see `dot_general`.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        codelets: the codelets of its vertices.
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
        memory_fraction=memory_fraction,
        codelets=codelets,
        name=name,
    )
    if not a.shape[:-2] and b.ndim > 2 and a.ndim == 2:  # rows came before batches
        out = out.transpose([*range(1, out.ndim - 1), 0, out.ndim - 1])
    return out


@old_order(("dtype",), after=4)
@checked
def plan_matmul(
    target: Target,
    rows: int,
    summed: int,
    columns: int,
    *,
    dtype: Any = jnp.float32,
    batch: int = 1,
    partials: Any = None,
    codelets: Codelets = CODELETS,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
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
        codelets: the codelets of its vertices.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: a target that is no machine, sizes that are no integers from 1, or something that is no dtype.

    >>> import codelet as cl
    >>> plan = cl.ops.plan_matmul(cl.IPU("mk2"), 512, 512, 512)
    >>> plan.cut("summed").parts, plan.total_cycles
    (8, 18725)
    """
    own = checked_dtype("plan_matmul", "dtype", dtype)
    sums, _ = checked_sums("plan_matmul", own, None, partials)
    extents = {"batch": batch, "rows": rows, "columns": columns, "summed": summed}
    kept: tuple[Role, ...] = ROLES if batch > 1 else ROLES[1:]
    product = Product(tuple(dimension(role, 0, extents[role]) for role in kept), own, sums, own)
    return plan_product(target, product, codelets, checked_grain("plan_matmul", grain), memory_fraction)


@checked
def matmul_gradient(
    graph: Graph,
    cotangent: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "matmul_gradient",
) -> ProductGradient:
    """The gradients of `matmul` by both operands, whose batches must be of one shape.

    Args:
        graph: where their compute sets are added, in a scope of that name.
        cotangent: of the result.
        a: the left operand.
        b: the right operand.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plans may use.
        name: of the scope.

    Returns:
        The gradients with respect to a and by b.

    Raises:
        OperationError: shapes or dtypes that do not fit; batches that broadcast, whose gradients are sums over them.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(cl.ops.matmul_gradient)
    >>> slopes(jnp.ones((1, 1)), jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [4.0]])).a
    Array([[3., 4.]], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, a=a, b=b)
    left, right, numbers = _matmul_numbers(name, a, b)
    if left.shape != a.shape or right.shape != b.shape:
        raise OperationError(
            f"the batches of ops.{name} broadcast",
            given=f"{a.shape} and {b.shape}",
            expected="batches of one shape, or none of one operand",
            fix="broadcast them first, and sum the gradients over what was broadcast by ops.sum",
        )
    if not a.shape[:-2] and b.ndim > 2 and a.ndim == 2:
        cotangent = cotangent.transpose([cotangent.ndim - 2, *range(cotangent.ndim - 2), cotangent.ndim - 1])
    options: dict[str, Any] = {"grain": grain, "memory_fraction": memory_fraction, "name": name}
    return dot_general_gradient(graph, cotangent, left, right, numbers, **options)
