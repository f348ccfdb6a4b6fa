"""The root-mean-square norm, and its gradients with respect to the tensor and by the scale: statistics in float32 at
least.

Rows are whole where one codelet does all the cheapest; else sums of squares are added up over the tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axes, checked_grain
from codelet.ops.block_planning import add_up
from codelet.ops.elementwise import map
from codelet.ops.pairs import both
from codelet.ops.partials import sums_dtype
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor


class RmsNormGradient(NamedTuple):
    """The gradients of `rms_norm`, each of the shape and dtype of its operand.

    Attributes:
        x: with respect to the normalized tensor.
        scale: with respect to its factor.
    """

    x: Tensor
    scale: Tensor


def inverse_root(squares, count, eps):
    """The factors of rows, from the sums of their squares."""
    return lax.rsqrt(squares / count + eps)


@both
def sum_squares(x, *, axes, partials):
    """The sum of the squares of rows."""
    return jnp.sum(lax.square(x.astype(partials)), axes)


@both
def scale_by(x, squares, scale, *, axes, spread, count, eps):
    """Rows by the root of the mean of their squares, scaled."""
    inverse = jnp.expand_dims(inverse_root(squares, count, eps), axes)
    return (x.astype(squares.dtype) * inverse * jnp.expand_dims(scale, spread)).astype(x.dtype)


@both
def scale_rows(x, scale, *, axes, spread, count, eps, partials):
    """Whole rows by the root of the mean of their squares, scaled."""
    wide = x.astype(partials)
    inverse = jnp.expand_dims(inverse_root(jnp.sum(lax.square(wide), axes), count, eps), axes)
    return (wide * inverse * jnp.expand_dims(scale, spread)).astype(x.dtype)


@both
def sum_products(cotangent, x, scale, *, axes, spread, partials):
    """The sums of the squares of rows, and of their products with the scaled slopes."""
    wide, own = x.astype(partials), cotangent.astype(partials) * jnp.expand_dims(scale, spread)
    return {"squares": jnp.sum(lax.square(wide), axes), "products": jnp.sum(own * wide, axes)}


@both
def move_slopes_by_root(cotangent, x, scale, squares, products, *, axes, spread, count, eps):
    """The slopes by the elements of rows, from their sums."""
    wide, own = x.astype(squares.dtype), cotangent.astype(squares.dtype) * jnp.expand_dims(scale, spread)
    inverse = inverse_root(squares, count, eps)
    share = jnp.expand_dims(inverse * inverse * products / count, axes)
    return ((own - wide * share) * jnp.expand_dims(inverse, axes)).astype(x.dtype)


@both
def slopes_of_rows_by_root(cotangent, x, scale, *, axes, spread, count, eps, partials):
    """The slopes by the elements of whole rows, and the factors of the rows."""
    wide, own = x.astype(partials), cotangent.astype(partials) * jnp.expand_dims(scale, spread)
    inverse = inverse_root(jnp.sum(lax.square(wide), axes), count, eps)
    share = jnp.expand_dims(inverse * inverse * jnp.sum(own * wide, axes) / count, axes)
    return {"out": ((own - wide * share) * jnp.expand_dims(inverse, axes)).astype(x.dtype), "inverse": inverse}


@both
def sum_slopes_of_scale(cotangent, x, inverse, *, axes, spread):
    """The slopes by the scale, summed along `axes`; rows are along `spread`."""
    wide = cotangent.astype(inverse.dtype) * x.astype(inverse.dtype)
    return jnp.sum(wide * jnp.expand_dims(inverse, spread), axes)


def _rows(
    operation: str, graph: Graph, x: Tensor, scale: Tensor, axis: Any, grain: Any, share: float, *alike: Any
) -> Rows:
    """The rows of the tensor to normalize; arguments checked."""
    check_tensors(operation, graph, x=x, scale=scale, **dict(zip(("cotangent",), alike, strict=False)))
    check_floating(operation, x=x, scale=scale)
    axes = checked_axes(operation, "axis", axis, x.ndim)
    expected = tuple(x.shape[d] for d in axes)
    if scale.shape != expected:
        raise OperationError(
            f"scale of ops.{operation} does not fit what is normalized", given=scale, expected=f"shape {expected}"
        )
    for own in alike:
        if (own.shape, own.dtype) != (x.shape, x.dtype):
            raise OperationError(
                f"cotangent of ops.{operation} is not like what was normalized", given=own, expected=f"like {x}"
            )
    if not x.size:
        raise OperationError(f"ops.{operation} is given nothing", given=x, expected="one element at least")
    own = checked_grain(operation, grain)
    return Rows(graph, axes, x, *alike, others=[(scale, axes)], apart=axes, grain=own, memory_fraction=share)


def _static(rows: Rows, eps: float) -> dict[str, Any]:
    scaled = rows.own_axes(rows.axes)
    spread = tuple(a for a in range(len(rows.groups)) if a not in scaled)
    return {"spread": spread, "count": rows.length, "eps": float(eps)}


@checked
def rms_norm(
    graph: Graph,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int | Iterable[int] = -1,
    eps: float = 1e-6,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "rms_norm",
) -> Tensor:
    """Rows along some axes by the root of the mean of their squares, scaled element by element.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: of floating point.
        scale: of the shape of a row.
        axis: along which axes rows are.
        eps: added to the mean of the squares.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.rms_norm)(jnp.array([[3.0, 4.0, 0.0, 0.0]]), jnp.ones(4)).round(3)
    Array([[1.2, 1.6, 0. , 0. ]], dtype=float32)
    """
    rows = _rows("rms_norm", graph, x, scale, axis, grain, memory_fraction)
    sums, static = sums_dtype(x.dtype), _static(rows, eps)
    fields: Any = {"x": ("all", x)}
    own: Any = {"scale": (rows.axes, scale)}
    out: Any = {"out": ("all", x.dtype)}
    with graph.scope(name, unique=True):
        whole = rows.work("scale", scale_rows, fields | own, out, "whole", **static, partials=sums)
        squares = rows.work("sum squares", sum_squares, fields, {"out": ("one", sums)}, "summed", add=add_up)
        last = rows.work("scale", scale_by, fields | {"squares": ("one", sums)} | own, out, "kept", **static)
        plans = rows.plans([squares, last])
        if rows.takes_whole(whole, plans):
            return rows.add(whole, rows.plan(whole), x=x, scale=scale)[0]
        (total,) = rows.add(squares, plans[0], x=x)
        return rows.add(last, plans[1], x=x, squares=total, scale=scale)[0]


@checked
def rms_norm_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int | Iterable[int] = -1,
    eps: float = 1e-6,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "rms_norm_gradient",
) -> RmsNormGradient:
    """The gradients of `rms_norm` by its operands.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand that was normalized.
        scale: of the shape of a row.
        axis: the axis, or axes, of a row.
        eps: added to the mean of the squares.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `x` and `scale`, each of its shape and dtype.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.rms_norm_gradient)(jnp.ones((1, 2)), jnp.array([[3.0, 3.0]]), jnp.ones(2)).scale.round(3)
    Array([1., 1.], dtype=float32)
    """
    rows = _rows("rms_norm_gradient", graph, x, scale, axis, grain, memory_fraction, cotangent)
    sums, static, one = sums_dtype(x.dtype), _static(rows, eps), ("one", sums_dtype(x.dtype))
    fields: Any = {"cotangent": ("all", cotangent), "x": ("all", x), "scale": (rows.axes, scale)}
    given = {"cotangent": cotangent, "x": x, "scale": scale}
    with graph.scope(name, unique=True):
        found: Any = {"squares": one, "products": one}
        first = rows.work("sum products", sum_products, fields, found, "summed", add=add_up, **static)
        out: Any = {"out": ("all", x.dtype)}
        last = rows.work("move slopes", move_slopes_by_root, fields | found, out, "kept", **static)
        plans = rows.plans([first, last])
        made: Any = {**out, "inverse": one}
        whole = rows.work("slopes", slopes_of_rows_by_root, fields, made, "whole", **static, partials=sums)
        if rows.takes_whole(whole, plans):
            slopes, inverse = rows.add(whole, rows.plan(whole), **given)
        else:
            squares, products = rows.add(first, plans[0], **given)
            (slopes,) = rows.add(last, plans[1], **given, squares=squares, products=products)
            root = functools.partial(inverse_root, count=rows.length, eps=float(eps))
            inverse = map(graph, root, squares, name="inverse")
        beside = tuple(d for d in range(x.ndim) if d not in rows.axes)
        of_scale = Rows(
            *(graph, beside, x, cotangent),
            others=[(inverse, beside), (scale, rows.axes)],
            apart=rows.axes,
            grain=rows.grain,
            memory_fraction=memory_fraction,
        )
        fields = {"cotangent": ("all", cotangent), "x": ("all", x), "inverse": (beside, inverse)}
        spread = tuple(a for a in range(len(of_scale.groups)) if a not in of_scale.own_axes(beside))
        results: Any = {"out": ("one", scale.dtype)}
        work = of_scale.work(
            "sum slopes", sum_slopes_of_scale, fields, results, "summed", add=add_up, partials=sums, spread=spread
        )
        (by_scale,) = of_scale.add(work, of_scale.plan(work), cotangent=cotangent, x=x, inverse=inverse)
        return RmsNormGradient(slopes, by_scale)
