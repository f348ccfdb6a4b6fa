"""Choices between values, element by element: `select` as `jax.numpy.where`, `select_n` and `clamp` as in `jax.lax`.

And `cast`, the choice of another dtype. Operands are broadcast to one another.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.deprecated import old_order
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_same_dtype, check_tensors, checked_dtype
from codelet.ops.element_functions import is_smooth
from codelet.ops.elementwise import map, map_gradient
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor


def converted(x, *, dtype):
    """An element in another dtype."""
    return lax.convert_element_type(x, dtype)


@old_order(("dtype",), after=2)
@checked
def cast(
    graph: Graph,
    x: Tensor,
    *,
    dtype: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cast",
) -> Tensor:
    """A tensor in another dtype, as `jax.lax.convert_element_type`; itself where it has it already.

    Args:
        graph: where its compute set is added, in a scope of its name.
        x: the tensor to cast.
        dtype: that of the result.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: something that is no dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.cast(graph, x, dtype=jnp.int32))(jnp.array([1.5, -1.5]))
    Array([ 1, -1], dtype=int32)
    """
    check_tensors(name, graph, x=x)
    own = checked_dtype(name, "dtype", dtype)
    if own == x.dtype:
        return x
    return map(
        graph, functools.partial(converted, dtype=own), x, grain=grain, memory_fraction=memory_fraction, name=name
    )


@checked
def cast_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cast_gradient",
) -> Tensor:
    """The gradient of `cast` by its operand: the cotangent in the operand's dtype.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, of floating point.
        x: the tensor that was cast, of floating point; only its shape and dtype are used.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: a cotangent or operand that is not of floating point, or of another shape.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cast_gradient)(jnp.ones(2, jnp.float16), jnp.zeros(2))
    Array([1., 1.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, x=x)
    if cotangent.shape != x.shape or not (is_smooth(cotangent.dtype) and is_smooth(x.dtype)):
        raise OperationError(
            f"the operands of ops.{name} are not of floating point and of one shape",
            given=f"{cotangent} and {x}",
            expected="the cotangent of the result, and what was cast",
        )
    return cast(graph, cotangent, dtype=x.dtype, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def select(
    graph: Graph,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "select",
) -> Tensor:
    """One of two values for each element, as `jax.numpy.where`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        predicate: which; a number that is no boolean is true where it is not 0.
        on_true: tensor or number.
        on_false: tensor or number.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.select(graph, x, x, 7.0))(jnp.array([0.0, 2.0]))
    Array([7., 2.], dtype=float32)
    """
    return map(graph, jnp.where, predicate, on_true, on_false, grain=grain, memory_fraction=memory_fraction, name=name)


class SelectGradient(NamedTuple):
    """The gradients of `select`, each of the shape and dtype of its operand; None for numbers.

    Attributes:
        on_true: by those where the predicate is true.
        on_false: by the others.
    """

    on_true: Tensor | None
    on_false: Tensor | None


@checked
def select_gradient(
    graph: Graph,
    cotangent: Tensor,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "select_gradient",
) -> SelectGradient:
    """The gradients of `select` by its two values.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        predicate: as `select` was given it.
        on_true: tensor or number.
        on_false: tensor or number.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `on_true` and `on_false`, each of its shape and dtype; None for numbers, and for
        tensors that are not of floating point.

    Raises:
        OperationError: shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.select_gradient)(jnp.ones(2), jnp.array([True, False]), jnp.zeros(2), jnp.zeros(2)).on_true
    Array([1., 0.], dtype=float32)
    """
    _, first, second = map_gradient(
        graph,
        jnp.where,
        cotangent,
        predicate,
        on_true,
        on_false,
        grain=grain,
        memory_fraction=memory_fraction,
        name=name,
    )
    return SelectGradient(first, second)


def _checked_cases(name: str, graph: Graph, which: Tensor, cases: tuple[Tensor, ...]) -> None:
    check_tensors(name, graph, which=which, **{f"case {k}": own for k, own in enumerate(cases)})
    if not cases:
        raise OperationError(f"ops.{name} is given no cases", given="none", expected="one tensor for each number")
    check_same_dtype(name, **{f"case {k}": own for k, own in enumerate(cases)})
    if which.dtype not in (np.dtype(bool), np.dtype(np.int32)) or (which.dtype == bool and len(cases) > 2):
        raise OperationError(
            f"ops.{name} cannot choose among {len(cases)} cases by this",
            given=which,
            expected="booleans for at most two, else int32",
        )


@checked
def select_n(
    graph: Graph,
    which: Tensor,
    *cases: Tensor,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "select_n",
) -> Tensor:
    """One of several values for each element, by its number, as `jax.lax.select_n`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        which: the number of the case: int32, or booleans where there are two.
        cases: tensors of one dtype.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.select_n)(jnp.array([1, 0, 1]), jnp.zeros(3), jnp.ones(3))
    Array([1., 0., 1.], dtype=float32)
    """
    _checked_cases(name, graph, which, cases)
    return map(graph, lax.select_n, which, *cases, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def select_n_gradient(
    graph: Graph,
    cotangent: Tensor,
    which: Tensor,
    *cases: Tensor,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "select_n_gradient",
) -> tuple[Tensor | None, ...]:
    """The gradients of `select_n` by its cases.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        which: the number of the case: int32, or bool if there are two.
        cases: tensors of one dtype.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A gradient for each case, of its shape and dtype; None for cases that are not of floating point.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.select_n_gradient)(jnp.ones(2), jnp.array([1, 0]), jnp.zeros(2), jnp.zeros(2))
    (Array([0., 1.], dtype=float32), Array([1., 0.], dtype=float32))
    """
    _checked_cases(name, graph, which, cases)
    return map_gradient(
        graph, lax.select_n, cotangent, which, *cases, grain=grain, memory_fraction=memory_fraction, name=name
    )[1:]


def _clamped(low: Any, x: Any, high: Any) -> jax.Array:
    return lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype))


def _checked_bounds(name: str, graph: Graph, low: Any, x: Tensor, high: Any) -> None:
    check_tensors(name, graph, x=x)
    for what, own in (("low", low), ("high", high)):
        kind = own.dtype if isinstance(own, Tensor) else None
        if (jnp.result_type(own, x.dtype) if kind is None else kind) != x.dtype:
            raise OperationError(
                f"{what} of ops.{name} is not of the dtype of what it bounds",
                given=f"{own!r:.60} for {x.dtype}",
                expected=f"a tensor of {x.dtype}, or a number that is one",
            )


@checked
def clamp(
    graph: Graph,
    low: Any,
    x: Tensor,
    high: Any,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "clamp",
) -> Tensor:
    """Elements kept between two bounds, as `jax.lax.clamp`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        low: tensor of the dtype of `x`, or number.
        x: the tensor to clamp.
        high: as `low`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.clamp(graph, 0, x, 6))(jnp.array([-1.0, 2.0, 9.0]))
    Array([0., 2., 6.], dtype=float32)
    """
    _checked_bounds(name, graph, low, x, high)
    return map(graph, _clamped, low, x, high, grain=grain, memory_fraction=memory_fraction, name=name)


class ClampGradient(NamedTuple):
    """The gradients of `clamp`, each of the shape and dtype of its operand; None for numbers.

    Attributes:
        low: by the lower bound.
        x: with respect to the clamped tensor.
        high: by the upper bound.
    """

    low: Tensor | None
    x: Tensor | None
    high: Tensor | None


@checked
def clamp_gradient(
    graph: Graph,
    cotangent: Tensor,
    low: Any,
    x: Tensor,
    high: Any,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "clamp_gradient",
) -> ClampGradient:
    """The gradients of `clamp` by its bounds and its operand.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        low: the lower bound: a tensor of the dtype of `x`, or a number.
        x: the clamped tensor.
        high: the upper bound, like `low`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `low`, `x` and `high`, each of its shape and dtype; None for numbers.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(lambda graph, g, x: cl.ops.clamp_gradient(graph, g, 0, x, 6).x)
    >>> slopes(jnp.ones(3), jnp.array([-1.0, 2.0, 9.0]))
    Array([0., 1., 0.], dtype=float32)
    """
    _checked_bounds(name, graph, low, x, high)
    return ClampGradient(
        *map_gradient(graph, _clamped, cotangent, low, x, high, grain=grain, memory_fraction=memory_fraction, name=name)
    )
