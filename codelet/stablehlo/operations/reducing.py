"""Reductions, along dimensions and in windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
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
    """The neutral element."""
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


# --- places of the greatest and the least -------------------------------------------------------------------

_ORDERS = tuple(itertools.product((-1.0, 0.0, 1.0, np.nan), (-1.0, 0.0, 1.0, np.nan), (0, 1), (0, 1)))
"""Two values and two places in every order: all that tells a region that only compares and selects."""

_OF_ORDER = ("compare", "select", "and", "or", "xor", "not")


def _only_compares(item: HloOperation) -> bool:
    """Whether the result of a region depends on the order of its arguments, and on nothing else."""
    block, inside = [one.operation for one in item.blocks[0]], set(item.arguments[0])
    for one in block[:-1]:
        name, reads = str(one.name).removeprefix("stablehlo."), set(one.operands)
        whole = name in ("maximum", "minimum") and reads.issubset(item.arguments[0][1::2])
        if not (name in _OF_ORDER or whole) or not reads.issubset(inside):
            return False
        inside.update(one.results)
    return set(block[-1].operands).issubset(inside)


def _is_first(result: tuple[float, int], arguments: tuple[float, float, int, int], sign: int) -> bool:
    """Whether a value with its place comes before the other: NaN before any, of equal ones that at the lower place."""
    (value, place), (a, b, i, k) = result, arguments
    if np.isnan(a) and np.isnan(b):
        return bool(np.isnan(value)) and place in (i, k)
    first = np.isnan(a) or (not np.isnan(b) and (sign * a > sign * b or (a == b and i < k)))
    return np.array_equal((value, place), (a, i) if first else (b, k), equal_nan=True)


def _is_place_of(item: HloOperation, dtypes: Sequence[np.dtype]) -> int:
    """1 for a region that finds the greatest value and its place, -1 for the least, 0 for any other."""
    if not _only_compares(item):
        return 0
    outcomes = []
    with jax.ensure_compile_time_eval():
        for a, b, i, k in _ORDERS:
            if not jnp.issubdtype(dtypes[0], jnp.floating) and np.isnan(a + b):
                continue
            arguments = (a, i, b, k)
            value, place = item.regions[0](*(np.asarray(one, dtypes[n % 2]) for n, one in enumerate(arguments)))
            outcomes.append(((a, b, i, k), (float(value), int(place))))
    for sign in (1, -1):
        if all(_is_first(result, arguments, sign) for arguments, result in outcomes):
            return sign
    return 0


def _place_of(operation: HloOperation, operands: Any, dimensions: Sequence[int]) -> Any:
    """The greatest or least along a dimension and its place; None where that is not the operand."""
    x, places, first, zero = operands
    signed = x.dtype.kind != "u" and x.dtype.kind != "b" and not jnp.issubdtype(x.dtype, jnp.complexfloating)
    if len(dimensions) != 1 or not signed or not jnp.issubdtype(places.dtype, jnp.integer):
        return None
    if operation.made_by(1) != ("stablehlo.iota", dimensions[0]) or not (_is_zero(zero) and x.shape[dimensions[0]]):
        return None
    sign = _is_place_of(operation, (x.dtype, places.dtype))
    if not sign or not _is_neutral(first, "maximum" if sign > 0 else "minimum"):
        return None
    place = (lax.argmax if sign > 0 else lax.argmin)(x, dimensions[0], places.dtype)
    value = jnp.take_along_axis(x, jnp.expand_dims(place, dimensions[0]), dimensions[0])
    return jnp.squeeze(value, dimensions[0]), place


def _is_zero(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.any()


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
    placed = _place_of(operation, operands, dimensions) if count == 2 else None
    if placed is not None:
        return placed
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
    """The updates of each window added to the element that the window chooses: the gradient of a max pooling."""
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
