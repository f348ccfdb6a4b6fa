"""Products and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.ops.homes import home_of

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _stand_in(dtype: np.dtype) -> np.dtype:
    """A dtype that JAX promotes with others, and that holds all numbers of one that it does not."""
    if jnp.issubdtype(dtype, jnp.integer):
        signed = jnp.issubdtype(dtype, jnp.signedinteger)
        return np.dtype(np.int8 if signed else np.uint8) if jnp.iinfo(dtype).bits < 8 else dtype
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits <= 8
    return np.dtype(jnp.bfloat16) if narrow else dtype


def common_dtype(first: np.dtype, second: np.dtype) -> np.dtype:
    """The dtype in which numbers of two are multiplied, one of those where nothing else is needed."""
    return first if first == second else np.dtype(jnp.promote_types(_stand_in(first), _stand_in(second)))


@rule("dot_general", by="`ops.dot_general`")
def dot_general(
    walk: Walk, a: Value, b: Value, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any
) -> Any:
    """A matrix product with any dimensions summed. The machine has one precision of each dtype."""
    x, y = walk.tensor(a), walk.tensor(b)
    if x.dtype == y.dtype == bool:  # partial results would not be sums
        return NotImplemented
    result = np.dtype(walk.equation.outvars[0].aval.dtype)  # type: ignore[attr-defined]
    both = common_dtype(x.dtype, y.dtype)
    if jnp.issubdtype(both, jnp.inexact) and not jnp.issubdtype(result, jnp.inexact):
        return NotImplemented  # of whole numbers that XLA makes of the operands
    if x.dtype != y.dtype:
        x, y = (own if own.dtype == both else ops.cast(walk.graph, own, both, grain=walk.grain) for own in (x, y))
        preferred_element_type = result if common_dtype(both, result) == result else both
    made = ops.dot_general(
        walk.graph,
        x,
        y,
        dimension_numbers,
        preferred_element_type=preferred_element_type,
        like=next((own for own in walk.beside[0] if home_of(own)), None),
        grain=walk.grain,
    )
    return made if made.dtype == result else ops.cast(walk.graph, made, result, grain=walk.grain)


@rule("conv_general_dilated", by="`ops.conv_general_dilated`")
def conv_general_dilated(
    walk: Walk,
    lhs: Value,
    rhs: Value,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    precision: Any,
    preferred_element_type: Any,
) -> Any:
    """A convolution, or a gradient of one, which is a convolution too."""
    result = walk.equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    floats = jnp.issubdtype(walk.tensor(lhs).dtype, jnp.inexact)
    if walk.tensor(lhs).dtype == bool or (floats and not jnp.issubdtype(result, jnp.inexact)):
        return NotImplemented
    return ops.conv_general_dilated(
        walk.graph,
        walk.tensor(lhs),
        walk.tensor(rhs),
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        preferred_element_type=preferred_element_type,
        grain=walk.grain,
    )
