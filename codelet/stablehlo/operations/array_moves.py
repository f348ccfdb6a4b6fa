"""Operations that make arrays, or move their elements."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


@computes("stablehlo.constant", "chlo.constant")
def constant(operation: HloOperation) -> Any:
    """An array of the text."""
    return operation.constant()


@computes("stablehlo.iota", "stablehlo.dynamic_iota")
def iota(operation: HloOperation, *_shape: Any) -> Any:
    """Numbers along a dimension."""
    dtype = jax.dtypes.canonicalize_dtype(operation.dtype())
    return lax.broadcasted_iota(dtype, operation.shape(), operation.number("iota_dimension"))


@computes("stablehlo.reshape", "stablehlo.dynamic_reshape")
def reshape(operation: HloOperation, x: Any, *_shape: Any) -> Any:
    """In another shape."""
    return lax.reshape(x, operation.shape())


@computes("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def broadcast_in_dim(operation: HloOperation, x: Any, *_shape: Any) -> Any:
    """Repeated along dimensions."""
    return lax.broadcast_in_dim(x, operation.shape(), operation.numbers("broadcast_dimensions"))


@computes("stablehlo.broadcast")
def broadcast(operation: HloOperation, x: Any) -> Any:
    """Repeated along new dimensions."""
    return lax.broadcast(x, operation.numbers("broadcast_sizes"))


@computes("stablehlo.transpose")
def transpose(operation: HloOperation, x: Any) -> Any:
    """With its dimensions in another order."""
    return lax.transpose(x, operation.numbers("permutation"))


@computes("stablehlo.slice")
def slice_(operation: HloOperation, x: Any) -> Any:
    """A part."""
    strides = operation.numbers("strides")
    return lax.slice(x, operation.numbers("start_indices"), operation.numbers("limit_indices"), strides or None)


@computes("stablehlo.pad")
def pad(operation: HloOperation, x: Any, value: Any) -> Any:
    """With elements more, or fewer, at the ends and between."""
    widths = zip(
        operation.numbers("edge_padding_low"),
        operation.numbers("edge_padding_high"),
        operation.numbers("interior_padding"),
        strict=True,
    )
    return lax.pad(x, value, list(widths))


@computes("stablehlo.concatenate")
def concatenate(operation: HloOperation, *operands: Any) -> Any:
    """Arrays one after another."""
    return lax.concatenate(operands, operation.number("dimension"))


@computes("stablehlo.reverse")
def reverse(operation: HloOperation, x: Any) -> Any:
    """The other way round along dimensions."""
    return lax.rev(x, operation.numbers("dimensions"))


@computes("stablehlo.optimization_barrier")
def optimization_barrier(operation: HloOperation, *operands: Any) -> Any:
    """Themselves, once all are there."""
    return tuple(lax.optimization_barrier(operands))


@computes("stablehlo.tuple")
def tuple_(operation: HloOperation, *operands: Any) -> Any:
    """Several values as one."""
    return (list(operands),)


@computes("stablehlo.get_tuple_element")
def get_tuple_element(operation: HloOperation, several: Any) -> Any:
    """One of several values."""
    return several[operation.number("index")]


@computes("stablehlo.get_dimension_size")
def get_dimension_size(operation: HloOperation, x: Any) -> Any:
    """An extent."""
    return jnp.int32(x.shape[operation.number("dimension")])


@computes("stablehlo.set_dimension_size", keeps_constants=True)
def set_dimension_size(operation: HloOperation, x: Any, size: Any) -> Any:
    """As many along a dimension as there are: fewer would be an extent that only a run knows."""
    extent = x.shape[operation.number("dimension")]
    if not isinstance(size, np.ndarray) or int(size.reshape(())) != extent:
        raise operation.error("an extent depends on data", given=str(size)[:60], expected=f"the constant {extent}")
    return x
