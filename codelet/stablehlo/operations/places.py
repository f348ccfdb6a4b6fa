"""Operations that read and write at places that are data."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax.extend.mlir.dialects import stablehlo

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes
from codelet.stablehlo.operations.reducing import combined_by


@computes("stablehlo.dynamic_slice")
def dynamic_slice(operation: HloOperation, x: Any, *starts: Any) -> Any:
    """A part from a place on."""
    return lax.dynamic_slice(x, starts, operation.numbers("slice_sizes"), allow_negative_indices=False)


@computes("stablehlo.dynamic_update_slice")
def dynamic_update_slice(operation: HloOperation, x: Any, update: Any, *starts: Any) -> Any:
    """A part written from a place on."""
    return lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False)


def _with_vector(indices: Any, dimension: int) -> Any:
    """Indices with the numbers of each place along the last dimension, as JAX has them."""
    if dimension == indices.ndim:
        return lax.expand_dims(indices, (dimension,))
    order = [d for d in range(indices.ndim) if d != dimension]
    return lax.transpose(indices, (*order, dimension))


@computes("stablehlo.gather", "stablehlo.dynamic_gather")
def gather(operation: HloOperation, x: Any, indices: Any, *_sizes: Any) -> Any:
    """Slices at places, which are moved into the array where they reach beyond it."""
    numbers = stablehlo.GatherDimensionNumbers(operation.attribute("dimension_numbers"))
    batching = tuple(numbers.start_indices_batching_dims)
    moved = _with_vector(indices, numbers.index_vector_dim)
    return lax.gather(
        x,
        moved,
        lax.GatherDimensionNumbers(
            tuple(numbers.offset_dims),
            tuple(numbers.collapsed_slice_dims),
            tuple(numbers.start_index_map),
            tuple(numbers.operand_batching_dims),
            tuple(d - (d > numbers.index_vector_dim) for d in batching),
        ),
        operation.numbers("slice_sizes"),
        indices_are_sorted=bool(operation.number("indices_are_sorted")),
        mode=lax.GatherScatterMode.CLIP,
    )


_SCATTERS = {
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "maximum": lax.scatter_max,
    "minimum": lax.scatter_min,
    "second": lax.scatter,
    "subtract": lax.scatter_sub,
}


@computes("stablehlo.scatter")
def scatter(operation: HloOperation, *operands: Any) -> Any:
    """Slices written at places; those that reach beyond the array are left out."""
    if operation.num_results != 1:
        raise operation.error("several arrays are written at once", given=operation.num_results, expected="one")
    x, indices, updates = operands
    how = combined_by(operation)
    if how not in _SCATTERS:
        raise operation.error(
            "it puts together what is written by more than one operation",
            given=how or "several",
            expected=", ".join(_SCATTERS),
        )
    numbers = stablehlo.ScatterDimensionNumbers(operation.attribute("scatter_dimension_numbers"))
    dimension = numbers.index_vector_dim
    return _SCATTERS[how](
        x,
        _with_vector(indices, dimension),
        updates,
        lax.ScatterDimensionNumbers(
            tuple(numbers.update_window_dims),
            tuple(numbers.inserted_window_dims),
            tuple(numbers.scattered_dims_to_operand_dims),
            tuple(numbers.input_batching_dims),
            tuple(d - (d > dimension) for d in numbers.scatter_indices_batching_dims),
        ),
        indices_are_sorted=bool(operation.number("indices_are_sorted")),
        unique_indices=bool(operation.number("unique_indices")),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )
