"""The arguments of convolutions, checked; and their operands seen as those of one kind of convolution.

The gradient with respect to the input is a convolution of the cotangent, among zeros where there are strides, with the
kernel reversed; the gradient with respect to the kernel one of the input, channels as batch, with the cotangent for the
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.ops.convolved import Convolved
from codelet.ops.windows import MOST_APART, WindowedDimension, checked_padding, num_windows, whole_numbers, windowed
from codelet.views.tensor import Tensor

# --- what they are given ----------------------------------------------------------------------------------


def _in_order(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[d] for d in spec)


def _as_stored(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    """A shape in order as the array has it."""
    return tuple(shape[spec.index(d)] for d in range(len(spec)))


@dataclass(frozen=True)
class Sizes:
    """A convolution as `lax.conv_general_dilated` is given it, checked; shapes by the order of their dimensions.

    Attributes:
        numbers: the roles of dimensions.
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
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the results as they are returned."""
        return _as_stored(self.out, self.numbers.out_spec)

    @property
    def fields(self) -> tuple[WindowedDimension, ...]:
        """How windows move along each spatial dimension."""
        rows = (self.image[2:], self.out[2:], self.kernel[2:], self.padding, self.strides)
        each = zip(*rows, self.rhs_dilation, self.lhs_dilation, strict=True)
        return tuple(
            windowed(n, results, taps, low=low, stride=stride, dilation=dilation, between=between)
            for n, results, taps, (low, _), stride, dilation, between in each
        )

    @property
    def field(self) -> range:
        """The spatial dimensions, by number."""
        return range(len(self.strides))


def _checked_groups(name: str, what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise OperationError(
            f"{what} of ops.{name} is not an integer from 1",
            given=repr(count),
            expected="how many groups there are",
        )
    return count


def checked_sizes(
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
) -> Sizes:
    """The sizes of a convolution.

    Raises:
        OperationError: arguments that do not fit.
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
            given=f"{given}: {image[1]} channels, {kernel[0]} kernels of {kernel[1]} channels, a batch of {image[0]}",
            expected=f"{features} times the kernels' channels, and {features * batches} groups of kernels of one size",
        )
    strides = whole_numbers(name, "window_strides", window_strides, rank)
    left = whole_numbers(name, "lhs_dilation", lhs_dilation, rank, most=MOST_APART)
    right = whole_numbers(name, "rhs_dilation", rhs_dilation, rank)
    reaches = [(k - 1) * d + 1 if k else 0 for k, d in zip(kernel[2:], right, strict=True)]
    pads = checked_padding(name, padding, image[2:], reaches, strides)
    each = zip(image[2:], kernel[2:], pads, strides, right, left, strict=True)
    out = (image[0] // batches, kernel[0], *(num_windows(*own) for own in each))
    return Sizes(numbers, image, kernel, out, strides, pads, left, right, features, batches)


def check_cotangent(name: str, cotangent: Tensor, sizes: Sizes) -> None:
    if cotangent.shape != sizes.out_shape:
        raise OperationError(
            f"the cotangent of ops.{name} has not the shape of the results",
            given=cotangent.shape,
            expected=f"{sizes.out_shape}, of {sizes.image} by {sizes.kernel}",
        )


# --- the three of them as one -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A convolution with its operands seen as (batch, groups, channels, field), (groups, results, channels, taps).

    Attributes:
        own: its sizes.
        x: the image, padded by the reach of the windows.
        w: the kernels.
        order: of (batch, groups, results, field), as the results are stored.
        shape: of the results as they are returned.
    """

    own: Convolved
    x: Tensor
    w: Tensor
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def part(self, d: int, part: slice) -> Seen:
        """The part of it that makes some of the results along the batch (0), the groups (1) or the results (2)."""
        name = ("batch", "groups", "out_channels")[d]
        own = replace(self.own, **{name: part.stop - part.start})
        x = self.x if d == 2 else self.x[(slice(None),) * d + (part,)]
        w = self.w if d == 0 else self.w[(slice(None),) * (d - 1) + (part,)]
        return replace(self, own=own, x=x, w=w)


def _split(tensor: Tensor, spec: Sequence[int], groups: int, at: int) -> Tensor:
    """A tensor as (its first two dimensions, field), groups of dimension `at`, 0 or 1, in front of it."""
    moved = tensor.transpose(*spec)
    extents = list(moved.shape)
    extents[at : at + 1] = [groups, extents[at] // groups]
    return moved.reshape(extents)


def _padded(tensor: Tensor, spec: Sequence[int], fields: Sequence[WindowedDimension]) -> Tensor:
    """A tensor with as many zeros around its spatial dimensions as windows reach."""
    widths = [(0, 0)] * tensor.ndim
    for d, field in zip(spec[2:], fields, strict=True):
        widths[d] = field.widths
    return tensor.pad(widths) if any(map(any, widths)) else tensor


def _swapped(tensor: Tensor, first: int, second: int) -> Tensor:
    order = list(range(tensor.ndim))
    order[first], order[second] = second, first
    return tensor.transpose(*order)


def _image_split(tensor: Tensor, spec: Sequence[int], sizes: Sizes) -> Tensor:
    """The image as (batch, groups, channels, field)."""
    if sizes.batch_groups > 1:
        return _swapped(_split(tensor, spec, sizes.groups, 0), 0, 1)
    return _split(tensor, spec, sizes.groups, 1)


def _stored(spec: Sequence[int], roles: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The order in which dimensions are stored, by the dimensions of each in the order of the array."""
    return tuple(own for d in range(len(spec)) for own in roles[list(spec).index(d)])


def seen_forward(x: Tensor, w: Tensor, sizes: Sizes, partials: np.dtype, out: np.dtype) -> Seen:
    lhs, rhs, results = sizes.numbers
    fields = sizes.fields
    groups = sizes.groups
    own = Convolved(sizes.out[0], groups, sizes.out[1] // groups, sizes.kernel[1], fields, x.dtype, partials, out)
    image = _image_split(_padded(x, lhs, fields), lhs, sizes)
    order = _stored(results, [(0,), (1, 2), *((3 + d,) for d in sizes.field)])
    return Seen(own, image, _split(w, rhs, groups, 0), order, sizes.out_shape)


def seen_by_input(g: Tensor, w: Tensor, sizes: Sizes, partials: np.dtype, out: np.dtype) -> Seen:
    lhs, rhs, results = sizes.numbers
    fields = tuple(field.transposed for field in sizes.fields)
    groups = sizes.groups
    batch, channels = sizes.image[0] // sizes.batch_groups, sizes.kernel[1]
    own = Convolved(batch, groups, channels, sizes.out[1] // groups, fields, g.dtype, partials, out)
    cotangent = _split(_padded(g, results, fields), results, groups, 1)
    reversed_kernel = _swapped(_split(w, rhs, groups, 0), 1, 2)
    reversed_kernel = reversed_kernel[(..., *[slice(None, None, -1)] * len(fields))]
    outer = [(1, 0), (2,)] if sizes.batch_groups > 1 else [(0,), (1, 2)]
    order = _stored(lhs, [*outer, *((3 + d,) for d in sizes.field)])
    return Seen(own, cotangent, reversed_kernel, order, _as_stored(sizes.image, lhs))


def seen_by_kernel(g: Tensor, x: Tensor, sizes: Sizes, partials: np.dtype, out: np.dtype) -> Seen:
    lhs, rhs, results = sizes.numbers
    fields = tuple(field.swapped for field in sizes.fields)
    groups = sizes.groups
    own = Convolved(sizes.kernel[1], groups, sizes.out[1] // groups, sizes.out[0], fields, g.dtype, partials, out)
    image = _swapped(_image_split(_padded(x, lhs, fields), lhs, sizes), 0, 2)
    cotangent = _split(g, results, groups, 1)
    rest = range(3, cotangent.ndim)
    order = _stored(rhs, [(1, 2), (0,), *((3 + d,) for d in sizes.field)])
    return Seen(own, image, cotangent.transpose(1, 2, 0, *rest), order, _as_stored(sizes.kernel, rhs))
