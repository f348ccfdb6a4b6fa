"""Moves of whole arrays: `concatenate`, `pad`, `reverse` as in NumPy, `lax_pad` as in `jax.lax`, and their gradients.

All of them give views, which take no vertex, no memory and no cycle: a vertex that reads one receives its elements.
Only operands of several dtypes are cast first. Methods of `Tensor` have no function here: `transpose`, `reshape`,
`broadcast_to`, `expand`, `squeeze`, and `x[a:b:s]` for a slice with strides. Slices at places known only at run time
are in `lookups.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np

from codelet.deprecated import warn_old
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_axes, checked_axis
from codelet.ops.choices import cast
from codelet.ops.elementwise import map
from codelet.ops.reduce import sum
from codelet.ops.schema import checked
from codelet.views.concatenate import concatenate as concatenate_views
from codelet.views.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

Padding = Sequence[tuple[int, int, int]]
"""For each dimension how many elements are put before it, after it, and between any two of its own."""


@checked
def concatenate(graph: Graph, tensors: Sequence[Tensor], axis: int | None = 0, *, name: str = "concatenate") -> Tensor:
    """Arrays end to end, as `jax.numpy.concatenate`: a view of them, where they are of one dtype.

    Args:
        graph: where those of another dtype than that of the result are cast.
        tensors: of shapes that agree in all other dimensions.
        axis: along which they are laid; None for one after the other in one dimension.
        name: of the scope.

    Raises:
        OperationError: no tensors, or shapes that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x, y: cl.ops.concatenate(graph, [x, y]))(jnp.ones(2), jnp.arange(2))
    Array([1., 1., 0., 1.], dtype=float32)
    """
    at = _checked_parts(name, graph, tensors, axis)
    dtype = np.dtype(jnp.result_type(*(tensor.dtype for tensor in tensors)))
    flat = [tensor.flatten() if axis is None else tensor for tensor in tensors]
    with graph.scope(name, unique=True):
        return concatenate_views([cast(graph, tensor, dtype=dtype) for tensor in flat], at)


@checked
def concatenate_gradient(
    graph: Graph,
    cotangent: Tensor,
    tensors: Sequence[Tensor],
    axis: int | None = 0,
    *,
    name: str = "concatenate_gradient",
) -> tuple[Tensor | None, ...]:
    """The gradients of `concatenate` by its tensors: slices of the cotangent, which are views.

    Args:
        graph: where slices are cast if a tensor is of another dtype.
        cotangent: of the result.
        tensors: as `concatenate` was given them; only their shapes and dtypes are used.
        axis: along which they were laid; None for one after the other in one dimension.
        name: of the scope.

    Returns:
        A gradient for each tensor, of its shape and dtype; None for tensors that are not of floating point.

    Raises:
        OperationError: no tensors, shapes that do not fit together, or a cotangent of another shape than the result.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = lambda graph, g, x, y: cl.ops.concatenate_gradient(graph, g, [x, y])
    >>> cl.lower(slopes)(jnp.array([1.0, 2.0, 3.0]), jnp.zeros(2), jnp.zeros(1))
    (Array([1., 2.], dtype=float32), Array([3.], dtype=float32))
    """
    check_tensors(name, graph, cotangent=cotangent)
    at = _checked_parts(name, graph, tensors, axis)
    flat = [(tensor.size,) if axis is None else tensor.shape for tensor in tensors]
    ends = np.cumsum([shape[at] for shape in flat])
    expected = (*flat[0][:at], int(ends[-1]), *flat[0][at + 1 :])
    if cotangent.shape != expected:
        raise OperationError(
            f"the cotangent of ops.{name} is not of its result's shape", given=cotangent, expected=str(expected)
        )
    found: list[Tensor | None] = []
    with graph.scope(name, unique=True):
        for tensor, shape, end in zip(tensors, flat, ends.tolist(), strict=True):
            if not jnp.issubdtype(tensor.dtype, jnp.inexact):
                found.append(None)
                continue
            part = cotangent[(slice(None),) * at + (slice(end - shape[at], end),)]
            found.append(cast(graph, part, dtype=tensor.dtype).reshape(tensor.shape))
    return tuple(found)


def _checked_parts(name: str, graph: Graph, tensors: Sequence[Tensor], axis: Any) -> int:
    """The axis along which tensors are laid.

    Raises:
        OperationError: they do not fit.
    """
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else []
    check_tensors(name, graph, **{f"tensor {k}": own for k, own in enumerate(listed)})
    at = 0 if axis is None or not listed else checked_axis(name, "axis", axis, listed[0].ndim)
    beside = {(*own.shape[:at], -1, *own.shape[at + 1 :]) for own in listed} if axis is not None else set()
    if not listed or len(beside) > 1:
        raise OperationError(
            f"the tensors of ops.{name} do not fit together",
            given=", ".join(str(own.shape) for own in listed) or repr(tensors),
            expected=f"a list of tensors whose shapes differ in dimension {at} alone",
        )
    return at


@checked
def lax_pad(graph: Graph, x: Tensor, padding_value: Any, padding_config: Padding, *, name: str = "lax_pad") -> Tensor:
    """An array with elements before, after and between its elements, as `jax.lax.pad`: a view.

    Args:
        graph: of the tensors.
        x: the tensor to pad.
        padding_value: the padding: a number, which takes no memory, or a tensor of shape ().
        padding_config: for each dimension (before, after, between); negative ends cut elements off.
        name: for errors.

    Raises:
        OperationError: a value or widths that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.lax_pad(graph, x, 0, [(1, -1, 1)]))(jnp.array([1.0, 2.0, 3.0]))
    Array([0., 1., 0., 2., 0.], dtype=float32)
    """
    check_tensors(name, graph, x=x)
    own = _checked_padding(name, graph, x.shape, x.dtype, padding_value, padding_config)
    return _padded(x, padding_value, own)


def _lax_form(operation: F) -> F:
    """The `pad` of before, of a value and of `padding_config`, as `lax_pad`."""

    @functools.wraps(operation)
    def called(*args: Any, **kwargs: Any) -> Any:
        if "padding_config" in kwargs or "padding_value" in kwargs or (len(args) > 3 and not isinstance(args[3], str)):
            warn_old("ops.pad with padding_value and padding_config", "ops.lax_pad")
            return lax_pad(*args, **kwargs)
        return operation(*args, **kwargs)

    return called  # type: ignore[return-value]


@_lax_form
@checked
def pad(graph: Graph, x: Tensor, widths: Any, mode: str = "constant", value: Any = 0, *, name: str = "pad") -> Tensor:
    """An array with more elements before and after its own, as `numpy.pad`, and as the method `pad` of tensors: a view.

    Args:
        graph: of the tensor.
        x: the tensor to pad, of any shape and dtype.
        widths: for each dimension how many elements before and after, ((1, 1), (0, 2)); or one such pair for all
            dimensions; or one number for all.
        mode: "constant"; "edge" for the element at the end; "wrap" for those of the other end; "reflect" for those
            next to the end, in reverse.
        value: the padding of a constant pad: a number of the dtype.
        name: for errors.

    Raises:
        FieldTypeError: something that is no tensor; a value that the dtype cannot hold.
        ViewError: widths or a mode that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.pad(graph, x, (1, 2), "edge"))(jnp.array([1.0, 2.0])).tolist()
    [1.0, 1.0, 2.0, 2.0, 2.0]
    """
    check_tensors(name, graph, x=x)
    return x.pad(widths, mode, value)


def _padded(x: Tensor, value: Any, config: Sequence[tuple[int, int, int]]) -> Tensor:
    """An array with its dimensions padded: all are extended first, so that one slice cuts off the excess."""
    kept = []
    for d, (before, after, between) in enumerate(config):
        if between and x.shape[d]:
            # As many stand on one side of every element, those at an end in the place of others there.
            is_first = before >= between
            widths = (between, 0) if is_first else (0, between)
            before, after = before - widths[0], after - widths[1]
            apart = _extended(x.expand(d + 1), d + 1, value, *widths)
            x = apart.reshape((*x.shape[:d], x.shape[d] * (between + 1), *x.shape[d + 1 :]))
        # What is cut off may be of what is put at the other end.
        x = _extended(x, d, value, max(0, before), max(0, after))
        first, last = max(0, -before), x.shape[d] - max(0, -after)
        kept.append(slice(first, max(first, last)))
    return x[tuple(kept)]


def _extended(x: Tensor, d: int, value: Any, before: int, after: int) -> Tensor:
    if not isinstance(value, Tensor):
        return x.pad([(before, after) if k == d else (0, 0) for k in range(x.ndim)], value=value)
    spread = lambda width: value.broadcast_to((*x.shape[:d], width, *x.shape[d + 1 :]))  # noqa: E731
    parts = [*([spread(before)] if before else []), x, *([spread(after)] if after else [])]
    return concatenate_views(parts, d) if len(parts) > 1 else x


def _checked_padding(
    name: str, graph: Graph, shape: tuple[int, ...], dtype: np.dtype, value: Any, config: Any
) -> list[tuple[int, int, int]]:
    """Widths that fit a shape, with a value that fits a dtype.

    Raises:
        OperationError: they do not.
    """
    if isinstance(value, Tensor):
        check_tensors(name, graph, padding_value=value)
        is_one = value.dtype == dtype and not value.shape
    else:
        is_number = isinstance(value, (bool, int, float, complex, np.generic))
        is_one = is_number and jnp.result_type(value, dtype) == dtype
    if not is_one:
        raise OperationError(
            f"padding_value of ops.{name} is not one {dtype}",
            given=f"{value!r:.60}",
            expected=f"a number that is a {dtype}, or a tensor of shape ()",
        )
    try:
        widths = [tuple(operator.index(n) for n in own) for own in config]
    except TypeError:
        widths = []
    fits = len(widths) == len(shape) and all(len(own) == 3 and own[2] >= 0 for own in widths)
    own = [(before, after, between) for before, after, between in widths] if fits else []
    sizes = [n + (n - 1) * w[2] * (n > 0) + w[0] + w[1] for n, w in zip(shape, own, strict=False)]
    if not fits or any(size < 0 for size in sizes):
        raise OperationError(
            f"padding_config of ops.{name} does not fit",
            given=f"{config!r:.80} for {shape}",
            expected="(before, after, between) for each dimension, with which something is left, between from 0",
        )
    return own


class LaxPadGradient(NamedTuple):
    """The gradients of `lax_pad`.

    Attributes:
        x: with respect to the padded tensor, of its shape and dtype: a view of the cotangent.
        padding_value: with respect to the padding, of shape (); None for a number.
    """

    x: Tensor
    padding_value: Tensor | None


@checked
def lax_pad_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    padding_value: Any,
    padding_config: Padding,
    *,
    name: str = "lax_pad_gradient",
) -> LaxPadGradient:
    """The gradients of `lax_pad` by its operand and by the value.

    Args:
        graph: where the cotangents beside the operand are summed.
        cotangent: of the result.
        x: the tensor that was padded, of floating point; only its shape and dtype are used.
        padding_value: a number, or a tensor of shape ().
        padding_config: for each dimension (before, after, between).
        name: of the scope.

    Returns:
        The gradient with respect to `x`, a view of the cotangent, and by `padding_value`; None for a number.

    Raises:
        OperationError: a value or widths that do not fit, or a cotangent that is not of the result's shape and dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = lambda graph, g, x: cl.ops.lax_pad_gradient(graph, g, x, 0.0, [(1, 0, 1)]).x
    >>> cl.lower(slopes)(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.zeros(2))
    Array([2., 4.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, x=x)
    widths = _checked_padding(name, graph, x.shape, x.dtype, padding_value, padding_config)
    shape = tuple(
        n + max(0, n - 1) * between + before + after
        for n, (before, after, between) in zip(x.shape, widths, strict=True)
    )
    if cotangent.shape != shape or cotangent.dtype != x.dtype or not jnp.issubdtype(x.dtype, jnp.inexact):
        raise OperationError(
            f"the cotangent of ops.{name} is not of its result's shape and dtype",
            given=cotangent,
            expected=f"{x.dtype}{list(shape)}, of floating point",
        )
    own = _padded(cotangent, 0, [(-before, -after, 0) for before, after, _ in widths])
    own = own[tuple(slice(None, None, between + 1) for *_, between in widths)]
    if not isinstance(padding_value, Tensor):
        return LaxPadGradient(own, None)
    with graph.scope(name, unique=True):
        whole, inside = sum(graph, cotangent), sum(graph, own)
        return LaxPadGradient(own, map(graph, jnp.subtract, whole, inside, name="beside"))


@checked
def reverse(graph: Graph, x: Tensor, axis: int | Iterable[int] | None = None, *, name: str = "reverse") -> Tensor:
    """A tensor with the order of its elements along some axes reversed, as `jax.numpy.flip`: a view.

    It is its gradient.

    Args:
        graph: of the tensor.
        x: the tensor.
        axis: one axis or several; default: all.
        name: used in errors.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.reverse(graph, x))(jnp.array([1, 2, 3]))
    Array([3, 2, 1], dtype=int32)
    """
    check_tensors(name, graph, x=x)
    for d in checked_axes(name, "axis", axis, x.ndim):
        x = x.reverse(d)
    return x
