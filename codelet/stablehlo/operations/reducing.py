"""Reductions, along dimensions and in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo.attributes import direction_of
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


def combined_by(item: HloOperation, region: int = 0) -> str | None:
    """The one operation by which a region puts two values together; "second" where it takes the latter; else None."""
    block, arguments = item.blocks[region], item.arguments[region]
    if len(arguments) != 2:
        return None
    *inner, last = [one.operation for one in block]
    if not inner:
        return "second" if last.operands[0] == arguments[1] else None
    if len(inner) != 1 or len(last.operands) != 1 or last.operands[0] != inner[0].results[0]:
        return None
    reads = list(inner[0].operands)
    if len(reads) != 2 or reads not in (arguments, arguments[::-1]):
        return None
    name = str(inner[0].name).removeprefix("stablehlo.")
    return name if name != "subtract" or reads == arguments else None


_REDUCERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lax.reduce_sum, lax.add),
    "multiply": (lax.reduce_prod, lax.mul),
    "maximum": (lax.reduce_max, lax.max),
    "minimum": (lax.reduce_min, lax.min),
    "and": (lax.reduce_and, lax.bitwise_and),
    "or": (lax.reduce_or, lax.bitwise_or),
    "xor": (lax.reduce_xor, lax.bitwise_xor),
}

_OF_BOOLEANS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}


def _how(operation: HloOperation, x: Any) -> str | None:
    name = combined_by(operation)
    return _OF_BOOLEANS.get(name, name) if name is not None and x.dtype == bool else name


def _neutral(how: str, dtype: np.dtype) -> Any:
    """What changes nothing."""
    if how in ("maximum", "minimum") and dtype.kind == "b":
        return np.asarray(how == "minimum")
    if how in ("maximum", "minimum") and not jnp.issubdtype(dtype, jnp.complexfloating):
        if jnp.issubdtype(dtype, jnp.floating):
            return np.asarray(-np.inf if how == "maximum" else np.inf, dtype)
        info = jnp.iinfo(dtype)
        return np.asarray(info.min if how == "maximum" else info.max, dtype)
    if how == "and":
        return np.asarray(True if dtype.kind == "b" else -1).astype(dtype)
    return np.asarray(1 if how == "multiply" else 0, dtype)


def _is_neutral(value: Any, how: str) -> bool:
    return isinstance(value, np.ndarray) and np.array_equal(value, _neutral(how, value.dtype))


@computes("stablehlo.reduce", keeps_constants=True)
def reduce(operation: HloOperation, *operands: Any) -> Any:
    """Reduced along dimensions."""
    count, dimensions = operation.num_results, operation.numbers("dimensions")
    arrays, firsts = operands[:count], operands[count:]
    how = _how(operation, arrays[0]) if count == 1 else None
    if how in _REDUCERS:
        whole, two = _REDUCERS[how]
        result = whole(arrays[0], dimensions)
        return result if _is_neutral(firsts[0], how) else two(result, lax.broadcast(firsts[0], result.shape))
    return tuple(lax.reduce(tuple(arrays), tuple(firsts), lambda a, b: tuple(operation.regions[0](*a, *b)), dimensions))


# --- windows ------------------------------------------------------------------------------------------------


@computes("stablehlo.reduce_window", keeps_constants=True)
def reduce_window(operation: HloOperation, *operands: Any) -> Any:
    """Reduced in windows."""
    count = operation.num_results
    arrays, firsts = operands[:count], operands[count:]
    rank = arrays[0].ndim
    windows = {
        "window_dimensions": operation.numbers("window_dimensions"),
        "window_strides": operation.numbers("window_strides", (1,) * rank),
        "padding": operation.pairs("padding", rank),
        "base_dilation": operation.numbers("base_dilations", (1,) * rank),
        "window_dilation": operation.numbers("window_dilations", (1,) * rank),
    }
    how = _how(operation, arrays[0]) if count == 1 else None
    if how in _REDUCERS:
        return lax.reduce_window(arrays[0], firsts[0], _REDUCERS[how][1], **windows)
    compute = lambda a, b: tuple(operation.regions[0](*a, *b))  # noqa: E731
    return tuple(lax.reduce_window(tuple(arrays), tuple(firsts), compute, **windows))


@computes("stablehlo.select_and_scatter")
def select_and_scatter(item: HloOperation, x: Any, source: Any, first: Any) -> Any:
    """What belongs to each window added to the element that the window chooses: the gradient of a max pooling."""
    rank, shape = x.ndim, x.shape
    sizes, strides = item.numbers("window_dimensions"), item.numbers("window_strides", (1,) * rank)
    padding = item.pairs("padding", rank)
    choice = direction_of(item.blocks[0][0].operation)
    if choice not in ("GE", "LE") or combined_by(item, 1) != "add":
        raise item.error(
            "it chooses, or adds up, in another way than poolings do", given=choice, expected="GE or LE, and add"
        )
    padded = lax.pad(x, _neutral("maximum" if choice == "GE" else "minimum", x.dtype), [(a, b, 0) for a, b in padding])
    numbers = jnp.reshape(jnp.arange(x.size), shape)
    numbers = lax.pad(numbers, np.asarray(x.size, numbers.dtype), [(a, b, 0) for a, b in padding])
    best = place = None
    for tap in np.ndindex(*sizes):
        stops = [a + (n - 1) * s + 1 for a, n, s in zip(tap, source.shape, strides, strict=True)]
        value, where = (lax.slice(one, tap, stops, strides) for one in (padded, numbers))
        if best is None or place is None:
            best, place = value, where
        else:
            better = value > best if choice == "GE" else value < best
            best, place = jnp.where(better, value, best), jnp.where(better, where, place)
    assert place is not None
    zeros = jnp.broadcast_to(first, (x.size,))
    return jnp.reshape(zeros.at[jnp.reshape(place, -1)].add(jnp.reshape(source, -1), mode="drop"), shape)
