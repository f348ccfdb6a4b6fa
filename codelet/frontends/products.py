"""Products and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.ops.homes import home_of

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


@rule("dot_general", by="`ops.dot_general`")
def dot_general(
    walk: Walk, a: Value, b: Value, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any
) -> Any:
    """A matrix product with any dimensions summed. The machine has one precision of each dtype."""
    x, y = walk.tensor(a), walk.tensor(b)
    if x.dtype == y.dtype == bool:  # partial results would not be sums
        return NotImplemented
    if x.dtype != y.dtype:
        both = jnp.promote_types(x.dtype, y.dtype)
        x, y = (own if own.dtype == both else ops.cast(walk.graph, own, both, grain=walk.grain) for own in (x, y))
        preferred_element_type = walk.equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    return ops.dot_general(
        walk.graph,
        x,
        y,
        dimension_numbers,
        preferred_element_type=preferred_element_type,
        like=next((own for own in walk.beside[0] if home_of(own)), None),
        grain=walk.grain,
    )


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
    if walk.tensor(lhs).dtype == bool:
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
