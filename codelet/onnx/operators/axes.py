"""Operators that reduce along axes, or number, sort and accumulate along one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode, whole_dtype
from codelet.onnx.operator_table import operator


def _axes(node: OnnxNode, x: Any, axes: Any) -> tuple[int, ...] | None:
    """The axes of a reduction; None where nothing is reduced."""
    arguments = node.attribute("axes") if axes is None else node.whole_numbers(axes, "axes")
    if arguments is None or len(arguments) == 0:
        return None if node.attribute("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(int(axis) % max(1, x.ndim) for axis in arguments)


def _entered(name: str, reduce: Callable[..., Any], alone: Callable[[Any], Any] = lambda x: x) -> None:
    """Enter a reduction, and its function of each element where it reduces nothing."""

    def run(node: OnnxNode, x: Any, axes: Any = None) -> Any:
        result = _axes(node, x, axes)
        if result is None:
            return alone(x)
        return reduce(x, axis=result, keepdims=bool(node.attribute("keepdims", 1)), dtype=x.dtype)

    operator(name, fixed=(1,))(run)


def _extreme(reduce: Callable[..., Any], at_end: int) -> Callable[..., Any]:
    def run(x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
        if x.dtype == bool:
            return reduce(x.astype(np.uint8), axis=axis, keepdims=keepdims, initial=1 if at_end > 0 else 0) != 0
        info = jnp.iinfo(x.dtype) if jnp.issubdtype(x.dtype, jnp.integer) else None
        least, greatest = (info.min, info.max) if info else (-np.inf, np.inf)
        initial = greatest if at_end > 0 else least
        return reduce(x, axis=axis, keepdims=keepdims, initial=np.asarray(initial, x.dtype))

    return run


def _norm(x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
    wide = x.astype(np.float32) if jnp.issubdtype(x.dtype, jnp.integer) else x
    return jnp.sqrt(jnp.sum(wide * wide, axis=axis, keepdims=keepdims)).astype(dtype)


def _mean(x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
    return jnp.mean(x, axis=axis, keepdims=keepdims).astype(dtype)


def _log_of_sum(x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
    return jax.scipy.special.logsumexp(x, axis=axis, keepdims=keepdims).astype(dtype)


_entered("ReduceSum", jnp.sum)
_entered("ReduceProd", jnp.prod)
_entered("ReduceMean", _mean)
_entered("ReduceMax", _extreme(jnp.max, -1))
_entered("ReduceMin", _extreme(jnp.min, 1))
_entered("ReduceL1", lambda x, **options: jnp.sum(jnp.abs(x), **options), jnp.abs)
_entered("ReduceL2", _norm, jnp.abs)
_entered("ReduceSumSquare", lambda x, **options: jnp.sum(x * x, **options), jnp.square)
_entered("ReduceLogSum", lambda x, **options: jnp.log(jnp.sum(x, **options)), jnp.log)
_entered("ReduceLogSumExp", _log_of_sum)


# --- along one axis -----------------------------------------------------------------------------------------


def _place(node: OnnxNode, x: Any, find: Callable[..., Any]) -> Any:
    axis, keeps = node.attribute("axis", 0), bool(node.attribute("keepdims", 1))
    if not node.attribute("select_last_index", 0):
        return find(x, axis=axis, keepdims=keeps).astype(whole_dtype())
    return (x.shape[axis] - 1 - find(jnp.flip(x, axis), axis=axis, keepdims=keeps)).astype(whole_dtype())


@operator("ArgMax")
def arg_max(node: OnnxNode, x: Any) -> Any:
    """Where the greatest is."""
    return _place(node, x, jnp.argmax)


@operator("ArgMin")
def arg_min(node: OnnxNode, x: Any) -> Any:
    """Where the least is."""
    return _place(node, x, jnp.argmin)


def _accumulated(node: OnnxNode, x: Any, axis: Any, accumulate: Callable[..., Any], neutral: int) -> Any:
    (along,) = node.whole_numbers(axis, "axis")
    along %= x.ndim
    if node.attribute("reverse", 0):
        x = jnp.flip(x, along)
    result = accumulate(x, axis=along, dtype=x.dtype)
    if node.attribute("exclusive", 0):
        first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=along), neutral)
        result = jnp.concatenate([first, lax.slice_in_dim(result, 0, x.shape[along] - 1, axis=along)], along)
    return jnp.flip(result, along) if node.attribute("reverse", 0) else result


@operator("CumSum", fixed=(1,))
def cumulative_sum(node: OnnxNode, x: Any, axis: Any) -> Any:
    """Prefix sums along an axis."""
    return _accumulated(node, x, axis, jnp.cumsum, 0)


@operator("CumProd", fixed=(1,))
def cumulative_product(node: OnnxNode, x: Any, axis: Any) -> Any:
    """Prefix products along an axis."""
    return _accumulated(node, x, axis, jnp.cumprod, 1)


def _flattened(function: Callable[..., Any]) -> Callable[[OnnxNode, Any], Any]:
    """Of opsets before 13: all dimensions from an axis on are one."""

    def run(node: OnnxNode, x: Any) -> Any:
        axis = node.attribute("axis", 1) % max(1, x.ndim)
        rows = int(np.prod(x.shape[:axis], dtype=np.int64))
        return jnp.reshape(function(jnp.reshape(x, (rows, -1)), -1), x.shape)

    return run


def _hardmax(x: Any, axis: int) -> Any:
    return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


for _name, _function in (("Softmax", jax.nn.softmax), ("LogSoftmax", jax.nn.log_softmax), ("Hardmax", _hardmax)):
    operator(_name)(_flattened(_function))
    operator(_name, since=13)(lambda node, x, function=_function: function(x, node.attribute("axis", -1)))


def _top(node: OnnxNode, x: Any, k: int) -> tuple[Any, Any]:
    axis = node.axis(node.attribute("axis", -1), x)
    last = jnp.moveaxis(x, axis, -1)
    if node.attribute("largest", 1):
        values, places = lax.top_k(last, k)
    else:
        places = jnp.argsort(last, axis=-1, stable=True)[..., :k]
        values = jnp.take_along_axis(last, places, -1)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(places, -1, axis).astype(whole_dtype())


@operator("TopK")
def top_k_of_old(node: OnnxNode, x: Any) -> tuple[Any, Any]:
    """The greatest of every row, and where they are; how many, an attribute says."""
    return _top(node, x, node.attribute("k"))


@operator("TopK", since=10, fixed=(1,))
def top_k(node: OnnxNode, x: Any, k: Any) -> tuple[Any, Any]:
    """The greatest, or least, of every row, and where they are."""
    (number,) = node.whole_numbers(k, "k")
    return _top(node, x, number)


@operator("Det")
def determinant(node: OnnxNode, x: Any) -> Any:
    """Of square matrices."""
    return jnp.linalg.det(x)
