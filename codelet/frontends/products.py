"""Products and convolutions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.ops.homes import home_of
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _dtype_of(walk: Walk) -> np.dtype:
    """The dtype of the result of the equation."""
    return np.dtype(walk.equation.outvars[0].aval.dtype)  # type: ignore[attr-defined]


def _widened(dtype: np.dtype) -> np.dtype:
    """A dtype that holds all numbers of one, and in which JAX promotes and XLA computes.

    JAX promotes no integers of less than a byte and no floats of a byte or less; XLA has no products of less than a
    byte; and one float of eight bits has no zero.
    """
    if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize == 1:
        return np.dtype(np.float32)
    if jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits < 8:
        return np.dtype(np.int8 if jnp.issubdtype(dtype, jnp.signedinteger) else np.uint8)
    return dtype


def _computes(dtype: np.dtype) -> bool:
    """Whether there are products in a dtype itself."""
    if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize == 1:
        return jnp.finfo(dtype).bits == 8 and float(np.zeros((), dtype)) == 0
    return _widened(dtype) == dtype


def _rounds_to_integers(operands: Sequence[Tensor], kind: np.dtype) -> bool:
    """Whether XLA makes integers of products of floats, in another way for each dtype."""
    return not jnp.issubdtype(kind, jnp.inexact) and any(jnp.issubdtype(own.dtype, jnp.inexact) for own in operands)


def _of_one_dtype(walk: Walk, operands: Sequence[Tensor], kind: np.dtype) -> tuple[list[Tensor], np.dtype]:
    """Operands in a dtype that holds them all, and that of their product, which is cast to `kind`."""
    first, *others = (own.dtype for own in operands)
    if all(other == first for other in others) and _computes(first) and _computes(kind):
        return list(operands), kind
    both = np.dtype(functools.reduce(jnp.promote_types, map(_widened, (first, *others))))
    holds = _computes(kind) and jnp.promote_types(both, _widened(kind)) == kind
    return [ops.cast(walk.graph, own, dtype=both, grain=walk.grain) for own in operands], kind if holds else both


@rule("dot_general", by="`ops.dot_general`")
def dot_general(
    walk: Walk, a: Value, b: Value, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any
) -> Any:
    """A matrix product with any dimensions summed. The machine has one precision of each dtype."""
    x, y = walk.tensor(a), walk.tensor(b)
    kind = _dtype_of(walk)
    if x.dtype == y.dtype == bool or _rounds_to_integers((x, y), kind):  # partial results would not be sums
        return NotImplemented
    (x, y), summed = _of_one_dtype(walk, (x, y), kind)
    made = ops.dot_general(
        walk.graph,
        x,
        y,
        dimension_numbers,
        preferred_element_type=summed,
        like=next((own for own in walk.beside[0] if home_of(own)), None),
        grain=walk.grain,
    )
    return ops.cast(walk.graph, made, dtype=kind, grain=walk.grain)


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
    image, kernel = walk.tensor(lhs), walk.tensor(rhs)
    kind = _dtype_of(walk)
    if image.dtype == bool or _rounds_to_integers((image, kernel), kind):
        return NotImplemented
    (image, kernel), summed = _of_one_dtype(walk, (image, kernel), kind)
    made = ops.conv_general_dilated(
        walk.graph,
        image,
        kernel,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        preferred_element_type=summed,
        grain=walk.grain,
    )
    return ops.cast(walk.graph, made, dtype=kind, grain=walk.grain)
