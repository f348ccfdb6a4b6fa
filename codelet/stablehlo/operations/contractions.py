"""Products, convolutions, transforms, factorizations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.mlir.dialects import stablehlo

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


def _precision(operation: HloOperation) -> Any:
    if not operation.has("precision_config"):
        return None
    names = [
        part.split(">")[0].strip() for part in str(operation.attribute("precision_config")).split("precision ")[1:]
    ]
    result = tuple(lax.Precision[name] for name in names)
    return None if not result or set(result) == {lax.Precision.DEFAULT} else result[0] if len(result) == 1 else result


@computes("stablehlo.dot_general")
def dot_general(operation: HloOperation, a: Any, b: Any) -> Any:
    """A product."""
    numbers = stablehlo.DotDimensionNumbers(operation.attribute("dot_dimension_numbers"))
    contracting = tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions)
    batch = tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions)
    return lax.dot_general(
        a, b, (contracting, batch), precision=_precision(operation), preferred_element_type=_out(operation, a, b)
    )


def _out(operation: HloOperation, a: Any, b: Any) -> Any:
    dtype = operation.dtype()
    return None if dtype == a.dtype == b.dtype else dtype


@computes("stablehlo.dot")
def dot(operation: HloOperation, a: Any, b: Any) -> Any:
    """A product of vectors or matrices."""
    return lax.dot_general(
        a,
        b,
        (((a.ndim - 1,), (0,)), ((), ())),
        precision=_precision(operation),
        preferred_element_type=_out(operation, a, b),
    )


@computes("stablehlo.convolution", "stablehlo.dynamic_conv")
def convolution(operation: HloOperation, x: Any, kernel: Any, *_padding: Any) -> Any:
    """A convolution."""
    numbers = stablehlo.ConvDimensionNumbers(operation.attribute("dimension_numbers"))
    rank = x.ndim - 2
    turned = operation.numbers("window_reversal", (0,) * rank)
    spatial = tuple(numbers.kernel_spatial_dimensions)
    flipped = [spatial[d] for d in range(rank) if turned[d]]
    specs = lax.ConvDimensionNumbers(
        (numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions),
        (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension, *spatial),
        (numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions),
    )
    return lax.conv_general_dilated(
        x,
        lax.rev(kernel, flipped) if flipped else kernel,
        operation.numbers("window_strides", (1,) * rank),
        operation.pairs("padding", rank),
        lhs_dilation=operation.numbers("lhs_dilation", (1,) * rank),
        rhs_dilation=operation.numbers("rhs_dilation", (1,) * rank),
        dimension_numbers=specs,
        feature_group_count=operation.number("feature_group_count", 1),
        batch_group_count=operation.number("batch_group_count", 1),
        precision=_precision(operation),
        preferred_element_type=_out(operation, x, kernel),
    )


@computes("stablehlo.cholesky")
def cholesky(operation: HloOperation, x: Any) -> Any:
    """The triangular factor of a positive definite matrix."""
    lower = operation.number("lower")
    result = lax.linalg.cholesky(x if lower else jnp.swapaxes(x, -1, -2).conj(), symmetrize_input=False)
    return result if lower else jnp.swapaxes(result, -1, -2).conj()


@computes("stablehlo.triangular_solve")
def triangular_solve(operation: HloOperation, a: Any, b: Any) -> Any:
    """The solution of equations with a triangular matrix."""
    how = operation.word("transpose_a")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=bool(operation.number("left_side")),
        lower=bool(operation.number("lower")),
        unit_diagonal=bool(operation.number("unit_diagonal")),
        transpose_a=how in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=how == "ADJOINT",
    )


@computes("stablehlo.fft")
def fft(operation: HloOperation, x: Any) -> Any:
    """A discrete Fourier transform along the last dimensions."""
    lengths, axes = operation.numbers("fft_length"), tuple(range(-len(operation.numbers("fft_length")), 0))
    ways = {"FFT": jnp.fft.fftn, "IFFT": jnp.fft.ifftn, "RFFT": jnp.fft.rfftn, "IRFFT": jnp.fft.irfftn}
    return ways[operation.word("fft_type")](x, lengths, axes)


@computes("stablehlo.batch_norm_inference")
def batch_norm_inference(operation: HloOperation, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    """Each channel by statistics that are given."""
    channel, epsilon = operation.number("feature_index"), float(str(operation.attribute("epsilon")).split(":")[0])
    shape = [-1 if d == channel else 1 for d in range(x.ndim)]
    scale, offset, mean, variance = (jnp.reshape(one, shape) for one in (scale, offset, mean, variance))
    return (x - mean) * lax.rsqrt(variance + np.asarray(epsilon, x.dtype)) * scale + offset


@computes("stablehlo.batch_norm_training")
def batch_norm_training(operation: HloOperation, x: Any, scale: Any, offset: Any) -> Any:
    """Each channel by its statistics; with these."""
    axes = tuple(d for d in range(x.ndim) if d != operation.number("feature_index"))
    mean, variance = jnp.mean(x, axes), jnp.var(x, axes)
    return batch_norm_inference(operation, x, scale, offset, mean, variance), mean, variance
