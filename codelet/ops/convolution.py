"""Convolutions in any number of dimensions, as `jax.lax.conv_general_dilated`, and their gradients as operations.

All three are one convolution of operands seen another way (`Convolved`): the gradient by the input is that of the
cotangent, among zeros where there are strides, with the kernel reversed; the gradient by the kernel that of the input,
channels as batch, with the cotangent for the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import check_floating, check_same_dtype, check_tensors, checked_dtype, checked_grain
from codelet.ops.blocks import Block, add_blocks
from codelet.ops.conv_planning import (
    CODELETS,
    Convolved,
    Kind,
    cuts_of_phase,
    num_partials,
    parts_of,
    plan_convolved,
    static_values,
)
from codelet.ops.partials import add_up, plan_sum, sum_partials
from codelet.ops.planning import MEMORY_SHARE, Plan
from codelet.ops.windows import Along, Phase, along, checked_padding, num_windows, whole_numbers

# --- what they are given --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """A convolution as `lax.conv_general_dilated` is given it, checked; shapes by the order of their dimensions.

    Attributes:
        numbers: which dimension is what.
        image: (batch, channels, field).
        kernel: (results, channels of a group, taps).
        out: (batch, results, field).
        strides, padding, lhs_dilation, rhs_dilation: for each spatial dimension.
        feature_groups, batch_groups: how many there are.
    """

    numbers: lax.ConvDimensionNumbers
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int

    @property
    def groups(self) -> int:
        """Of either kind."""
        return self.feature_groups * self.batch_groups

    @property
    def field(self) -> range:
        """The spatial dimensions, by number."""
        return range(len(self.strides))


def _in_order(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[d] for d in spec)


def _as_stored(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    """A shape in order as the array has it."""
    return tuple(shape[spec.index(d)] for d in range(len(spec)))


def _checked_groups(name: str, what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise OperationError(
            f"{what} of ops.{name} is not a whole number from 1", given=repr(count), expected="how many groups there are"
        )
    return count


def _checked(
    name: str,
    lhs_shape: tuple[int, ...],
    rhs_shape: tuple[int, ...],
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: Any,
    batch_group_count: Any,
) -> _Sizes:
    """The sizes of a convolution.

    Raises:
        OperationError: what does not fit.
    """
    given, rank = f"{lhs_shape} by {rhs_shape}", len(lhs_shape) - 2
    if rank < 0 or len(rhs_shape) != rank + 2:
        raise OperationError(
            f"the operands of ops.{name} have not the dimensions of a convolution",
            given=given,
            expected="(batch, channels, field...) by (results, channels, taps...), as many of both",
        )
    try:
        numbers = lax.conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise OperationError(
            f"the dimension numbers of ops.{name} do not fit",
            given=repr(dimension_numbers),
            expected='("NCHW", "OIHW", "NCHW"), say, as lax.conv_dimension_numbers takes them',
            fix=str(error).split("\n")[0],
        ) from None
    image, kernel = _in_order(lhs_shape, numbers.lhs_spec), _in_order(rhs_shape, numbers.rhs_spec)
    features = _checked_groups(name, "feature_group_count", feature_group_count)
    batches = _checked_groups(name, "batch_group_count", batch_group_count)
    if features > 1 and batches > 1:
        raise OperationError(
            f"ops.{name} is given groups of channels and of the batch",
            given=f"feature_group_count={features}, batch_group_count={batches}",
            expected="one of them to be 1",
        )
    if image[1] != features * kernel[1] or kernel[0] % (features * batches) or image[0] % batches:
        raise OperationError(
            f"the channels of ops.{name} do not fit",
            given=f"{given}: {image[1]} channels, kernels of {kernel[1]} channels, {kernel[0]} of them, batch {image[0]}",
            expected=f"channels {features} times those of the kernels; {features * batches} groups of kernels of one size",
        )
    strides = whole_numbers(name, "window_strides", window_strides, rank)
    left, right = (
        whole_numbers(name, what, values, rank)
        for what, values in (("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation))
    )
    reaches = [(k - 1) * d + 1 if k else 0 for k, d in zip(kernel[2:], right, strict=True)]
    pads = checked_padding(name, padding, image[2:], reaches, strides)
    each = zip(image[2:], kernel[2:], pads, strides, right, left, strict=True)
    out = (image[0] // batches, kernel[0], *(num_windows(*own) for own in each))
    return _Sizes(numbers, image, kernel, out, strides, pads, left, right, features, batches)


# --- the three of them as one ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """A convolution with its operands seen as (batch, groups, channels, field), (groups, results, channels, taps).

    Attributes:
        own: its sizes.
        x: the image, padded by what the windows reach.
        w: the kernels.
        order: of (batch, groups, results, field), as the results are stored.
        shape: of the results as they are returned.
    """

    own: Convolved
    x: cl.Tensor
    w: cl.Tensor
    order: tuple[int, ...]
    shape: tuple[int, ...]


def _split(tensor: cl.Tensor, spec: Sequence[int], groups: int, at: int) -> cl.Tensor:
    """A tensor as (its first two dimensions, field), groups of dimension `at`, 0 or 1, in front of it."""
    moved = tensor.transpose(*spec)
    extents = list(moved.shape)
    extents[at : at + 1] = [groups, extents[at] // groups]
    return moved.reshape(extents)


def _padded(tensor: cl.Tensor, spec: Sequence[int], fields: Sequence[Along]) -> cl.Tensor:
    """A tensor with as many zeros around its spatial dimensions as windows reach."""
    widths = [(0, 0)] * tensor.ndim
    for d, field in zip(spec[2:], fields, strict=True):
        widths[d] = field.widths
    return tensor.pad(widths) if any(map(any, widths)) else tensor


def _swapped(tensor: cl.Tensor, first: int, second: int) -> cl.Tensor:
    order = list(range(tensor.ndim))
    order[first], order[second] = second, first
    return tensor.transpose(*order)


def _image_split(tensor: cl.Tensor, spec: Sequence[int], sizes: _Sizes) -> cl.Tensor:
    """The image as (batch, groups, channels, field)."""
    if sizes.batch_groups > 1:
        return _swapped(_split(tensor, spec, sizes.groups, 0), 0, 1)
    return _split(tensor, spec, sizes.groups, 1)


def _stored(spec: Sequence[int], roles: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The order in which dimensions are stored, by the dimensions of each in the order of an array's own."""
    return tuple(own for d in range(len(spec)) for own in roles[list(spec).index(d)])


def _seen_forward(x: cl.Tensor, w: cl.Tensor, sizes: _Sizes, partials: np.dtype, out: np.dtype) -> _Seen:
    lhs, rhs, results = sizes.numbers
    fields = tuple(
        along(
            sizes.image[2 + d],
            sizes.out[2 + d],
            sizes.kernel[2 + d],
            low=sizes.padding[d][0],
            stride=sizes.strides[d],
            dilation=sizes.rhs_dilation[d],
            between=sizes.lhs_dilation[d],
        )
        for d in sizes.field
    )
    groups = sizes.groups
    own = Convolved(sizes.out[0], groups, sizes.out[1] // groups, sizes.kernel[1], fields, x.dtype, partials, out)
    image = _image_split(_padded(x, lhs, fields), lhs, sizes)
    order = _stored(results, [(0,), (1, 2), *((3 + d,) for d in sizes.field)])
    return _Seen(own, image, _split(w, rhs, groups, 0), order, _as_stored(sizes.out, results))


def _seen_by_input(g: cl.Tensor, w: cl.Tensor, sizes: _Sizes, partials: np.dtype, out: np.dtype) -> _Seen:
    lhs, rhs, results = sizes.numbers
    fields = tuple(
        along(
            sizes.out[2 + d],
            sizes.image[2 + d],
            sizes.kernel[2 + d],
            low=(sizes.kernel[2 + d] - 1) * sizes.rhs_dilation[d] - sizes.padding[d][0],
            stride=sizes.lhs_dilation[d],
            dilation=sizes.rhs_dilation[d],
            between=sizes.strides[d],
        )
        for d in sizes.field
    )
    groups = sizes.groups
    batch, channels = sizes.image[0] // sizes.batch_groups, sizes.kernel[1]
    own = Convolved(batch, groups, channels, sizes.out[1] // groups, fields, g.dtype, partials, out)
    cotangent = _split(_padded(g, results, fields), results, groups, 1)
    reversed_kernel = _swapped(_split(w, rhs, groups, 0), 1, 2)
    reversed_kernel = reversed_kernel[(..., *[slice(None, None, -1)] * len(fields))]
    outer = [(1, 0), (2,)] if sizes.batch_groups > 1 else [(0,), (1, 2)]
    order = _stored(lhs, [*outer, *((3 + d,) for d in sizes.field)])
    return _Seen(own, cotangent, reversed_kernel, order, _as_stored(sizes.image, lhs))


def _seen_by_kernel(g: cl.Tensor, x: cl.Tensor, sizes: _Sizes, partials: np.dtype, out: np.dtype) -> _Seen:
    lhs, rhs, results = sizes.numbers
    fields = tuple(
        along(
            sizes.image[2 + d],
            sizes.kernel[2 + d],
            sizes.out[2 + d],
            low=sizes.padding[d][0],
            stride=sizes.rhs_dilation[d],
            dilation=sizes.strides[d],
            between=sizes.lhs_dilation[d],
        )
        for d in sizes.field
    )
    groups = sizes.groups
    own = Convolved(sizes.kernel[1], groups, sizes.out[1] // groups, sizes.out[0], fields, g.dtype, partials, out)
    image = _swapped(_image_split(_padded(x, lhs, fields), lhs, sizes), 0, 2)
    cotangent = _split(g, results, groups, 1)
    rest = range(3, cotangent.ndim)
    order = _stored(rhs, [(1, 2), (0,), *((3 + d,) for d in sizes.field)])
    return _Seen(own, image, cotangent.transpose(1, 2, 0, *rest), order, _as_stored(sizes.kernel, rhs))


# --- vertices -------------------------------------------------------------------------------------------------


@cl.codelet
def zeros(*, shape, dtype):
    """Results that nothing is summed for."""
    return jnp.zeros(shape, dtype)


def _length(elements: slice) -> Any:
    return elements.stop - elements.start


def _add_phase(
    seen: _Seen, graph: cl.Graph, cuts: Sequence[Any], phase: Sequence[Phase], kind: Kind, codelet: cl.Codelet, out: Any
) -> None:
    """The vertices of the results of one phase, of `out` of shape (partials..., batch, groups, results, field)."""
    own, rank = seen.own, seen.own.rank
    ours = cuts_of_phase(cuts, phase)
    count = num_partials(cuts)
    empty = not all(one.taps for one in phase) or not own.in_channels
    dtype = np.dtype(out.dtype)
    kernels = seen.w[(..., *(slice(p.tap, None, f.tap_step) for p, f in zip(phase, own.fields, strict=True)))]

    def fields(*blocks: Block) -> dict[str, Any]:
        at = parts_of(blocks)
        group, batch, results = at.groups.number, at.batch.elements, at.out_channels.elements
        if kind == "element":
            batch, results = at.batch.number, at.out_channels.number
        windows: list[Any] = []
        places: list[Any] = []
        for field, one, y, k in zip(own.fields, phase, at.fields, at.kernel, strict=True):
            start = one.start + field.widths[0] + field.stride * y.elements.start + field.step * k.elements.start
            reach = field.step * (_length(k.elements) - 1) + 1
            first = one.first + field.apart * y.elements.start
            if kind == "patch":
                more = _length(y.elements) - 1
                windows.append(slice(start, start + field.stride * more + reach))
                places.append(slice(first, first + field.apart * more + 1, field.apart))
            else:
                windows.append(slice(start, start + reach, field.step))
                places.append(first)
        numbers = (at.in_channels.number, *(k.number for k in at.kernel)) if count > 1 else ()
        written = out[(*numbers, batch, group, results, *places)]
        if empty:
            return {"out": written, "shape": written.shape, "dtype": dtype.name}
        channels = at.in_channels.elements
        return {
            "x": seen.x[(batch, group, channels, *windows)],
            "w": kernels[(group, results, channels, *(k.elements for k in at.kernel))],
            "out": written,
            **static_values(own, kind, dtype),
        }

    add_blocks(
        graph, "convolve", zeros if empty else codelet, ours, fields, parts=[cut.parts for cut in cuts]
    )
    assert rank == len(phase)


def _add(graph: cl.Graph, seen: _Seen, plan: Plan) -> cl.Tensor:
    """The vertices of a planned convolution."""
    own = seen.own
    extents = (own.batch, own.groups, own.out_channels, *(field.results for field in own.fields))
    shape = tuple(extents[d] for d in seen.order)
    out = graph.add_variable("out", shape, own.out_dtype)
    back = [seen.order.index(d) for d in range(len(shape))]
    if not out.size:
        return out.reshape(seen.shape)
    if not plan.cuts:
        i = cl.grid(out.size)
        graph.add_vertex("fill", zeros, out=out.flatten()[i], shape=(), dtype=own.out_dtype.name)
        return out.reshape(seen.shape)
    kind, codelet = next((kind, own) for (kind, _), own in CODELETS.items() if own.name == plan.detail("codelet"))
    count, written, extra = num_partials(plan.cuts), out, 0
    if count > 1:
        vertices = parts_of([cut.vertices for cut in plan.cuts])
        numbers = (vertices.in_channels, *vertices.kernel)
        written, extra = graph.add_variable("partials", (*numbers, *shape), own.partials), len(numbers)
    view = written.transpose(*range(extra), *(extra + d for d in back))
    for phase in own.phases:
        if all(one.count for one in phase):
            _add_phase(seen, graph, plan.cuts, phase, kind, codelet, view)
    if count > 1:
        sums = plan_sum(graph.target, count, out.size, own.partials, own.out_dtype, add_up)
        sum_partials(graph, written.reshape(count, out.size), out.flatten(), sums, add_up)
    return out.reshape(seen.shape)


# --- operations -----------------------------------------------------------------------------------------------


def _dtypes(name: str, dtype: np.dtype, preferred_element_type: Any, partials: Any) -> tuple[np.dtype, np.dtype]:
    """The dtype of partial sums, and that of results."""
    out = checked_dtype(name, "preferred_element_type", preferred_element_type or dtype)
    short = jnp.issubdtype(out, jnp.floating) and out.itemsize < 4
    return checked_dtype(name, "partials", partials or (np.dtype(np.float32) if short else out)), out


def conv_general_dilated(
    graph: cl.Graph,
    lhs: cl.Tensor,
    rhs: cl.Tensor,
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    lhs_dilation: Sequence[int] | int | None = None,
    rhs_dilation: Sequence[int] | int | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "conv_general_dilated",
) -> cl.Tensor:
    """A convolution, as `jax.lax.conv_general_dilated`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        lhs: the image.
        rhs: the kernels, of the same dtype.
        window_strides: by how many elements windows move; one for all dimensions, or 1 when left off.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each spatial dimension, negative to cut off.
        lhs_dilation: by how many positions elements of the image are apart, zeros between them.
        rhs_dilation: by how many elements the taps of a kernel are apart.
        dimension_numbers: which dimension is what, as `lax.conv_dimension_numbers` takes them; NCHW when left off.
        feature_group_count: groups of channels, each with kernels of its own.
        batch_group_count: groups of the batch, each with kernels of its own.
        preferred_element_type: dtype of the results; the operands' when left off.
        partials: dtype of partial sums; float32 for floating point of 16 bits when left off, else the results'.
        grain: about how many multiply-adds a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plan may take.
        name: of the scope.

    Raises:
        OperationError: shapes, dtypes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> layer = cl.lower(lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w, 2, "SAME"))
    >>> layer(jnp.ones((1, 3, 8, 8)), jnp.ones((5, 3, 3, 3))).shape
    (1, 5, 4, 4)
    """
    check_tensors(name, graph, lhs=lhs, rhs=rhs)
    dtype = check_same_dtype(name, lhs=lhs, rhs=rhs)
    sizes = _checked(
        name,
        lhs.shape,
        rhs.shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    seen = _seen_forward(lhs, rhs, sizes, *_dtypes(name, dtype, preferred_element_type, partials))
    plan = plan_convolved(graph.target, seen.own, checked_grain(name, grain), memory_share)
    with graph.scope(name, unique=True):
        return _add(graph, seen, plan)
