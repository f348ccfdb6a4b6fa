"""Convolutions: a dot product of every window of an array with a kernel is a convolution.

Vertices of a family whose codelet is an inner product, and of which one field is a window that moves over
an array while the other does not move with it, are one `conv_general_dilated`. Read as windows, the array
would be copied once for each element of the window: 2.5 to 45 times slower, for 16 to 121 of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.views.grids import Axis, Key
from lowering.arrays import Array, Arrays, arranged, reshape, slice_, transpose
from lowering.fast.inputs import Input, Inputs
from lowering.fast.moving_windows import moving_windows
from lowering.fast.over_grid import Operand
from lowering.fast.small_windows import overlaps
from lowering.fast.sources import Viewed, plan_among_zeros, steps_among_zeros
from lowering.jaxprs.inner_products import InnerProduct, as_inner_product
from lowering.plan.access import Dimension

# --- families that are convolutions ---------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A dimension over which the window moves.

    Attributes:
        dimension: of the array.
        axis: along which it moves, by `stride` elements.
        key: the field's dimension that runs inside it, by `dilation` elements; None where it is one element wide.
    """

    dimension: int
    axis: Axis
    stride: int
    key: int | None = None
    dilation: int = 1


@dataclass(frozen=True, eq=False)
class Convolution:
    """A family as a convolution.

    Attributes:
        image: the field that is a window.
        kernel: the field that does not move with it.
        result: what the codelet calls the result, and its dtype.
        image_input: the array that the image's field views, without the zeros around it.
        widths: how many zeros stand before and after each dimension of it, which the convolution adds by itself,
        dilations: and how far apart its elements stand among zeros along each.
        kernel_input: what the kernel's field reads.
        dimensions: the access to each dimension of it.
        windows: the dimensions over which the window moves.
        batch: dimensions of the array, with the axes that choose along them.
        groups: dimensions of the array, with the axes that choose along them, and the kernel as well.
        channels: dimensions of the array, with the field's dimensions that run along them.
        kernel_axes: the axes that choose the kernel alone.
        product: what the codelet is.
    """

    image: Field
    kernel: Field
    result: tuple[str, np.dtype]
    image_input: Viewed
    widths: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    kernel_input: Input
    dimensions: tuple[Dimension, ...]
    windows: tuple[Window, ...]
    batch: tuple[tuple[int, Axis], ...]
    groups: tuple[tuple[int, Axis], ...]
    channels: tuple[tuple[int, int], ...]
    kernel_axes: tuple[Axis, ...]
    product: InnerProduct

    @property
    def keys(self) -> tuple[Key, ...]:
        """The key of each dimension of the result."""
        chosen = [axis for _, axis in (*self.batch, *self.groups)]
        return (*chosen, *self.kernel_axes, *(window.axis for window in self.windows))

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """What all vertices compute, from the arrays before."""
        name, dtype = self.result
        image, padding = _image(self, self.image_input.of(arrays))
        result = lax.conv_general_dilated(
            image,
            _kernel(self, self.kernel_input.of(arrays)),
            window_strides=[window.stride for window in self.windows],
            padding=padding,
            lhs_dilation=[self.dilations[window.dimension] for window in self.windows],
            rhs_dilation=[window.dilation for window in self.windows],
            feature_group_count=math.prod(axis.extent for _, axis in self.groups),
            precision=self.product.precision,
            preferred_element_type=self.product.summed_in,  # type: ignore[arg-type]
        ).astype(dtype)
        extents = [key.extent for key in self.keys if isinstance(key, Axis)]
        return {name: (reshape(result, extents), self.keys)}

    @property
    def reads(self) -> dict[str, str]:
        """How each field is read, in words."""
        return {self.image.name: str(self.image_input), self.kernel.name: str(self.kernel_input)}

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        over = " and ".join(names[window.axis] for window in self.windows)
        return f"as a convolution: windows of {self.image.name} move over {over}, {self.kernel.name} is the kernel"


def _match(family: Family, inputs: Inputs, image: Field, kernel: Field, product: InnerProduct) -> Convolution | str:
    """A family as a convolution of the windows that one field is with the other; or why it is none."""
    assert image.tensor is not None
    assert kernel.tensor is not None
    found = moving_windows(image)
    if isinstance(found, str):
        return found
    kernel_axes, spread = set(kernel.tensor.index.axes), steps_among_zeros(image.tensor.source)
    windows, batch, groups, channels = [], [], [], []
    for d, (along, inside) in enumerate((own.along, own.inside) for own in found.moving):
        if along is not None and along[0] in kernel_axes:
            if inside is not None and along[1] != inside[1] * image.type.shape[inside[0]]:
                return f"{kernel.name} moves with it"
            groups.append((d, along[0]))
            channels += [] if inside is None else [(d, inside[0])]
        elif along is not None and (inside is not None or spread[d] > 1):
            windows.append(Window(d, *along, *(inside or ())))
        elif along is not None:
            batch.append((d, along[0]))
        elif inside is not None:
            channels.append((d, inside[0]))
    shape = image.type.shape
    reaches = [1 if window.key is None else (shape[window.key] - 1) * window.dilation + 1 for window in windows]
    dilated = any(spread[window.dimension] > 1 for window in windows)
    if not dilated and not any(window.stride < reach for window, reach in zip(windows, reaches, strict=True)):
        return "its windows do not overlap"
    used = {window.key for window in windows if window.key is not None} | {key for _, key in channels}
    if used != {d for d, n in enumerate(shape) if n != 1}:
        return "dimensions of its windows run along none of the array"
    if len({axis for _, axis in groups}) < len(groups):
        return f"{kernel.name} moves with several dimensions of it"
    ((name, kind),) = family.codelet.outputs.items()
    kept = set(range(len(found.moving))) - {window.dimension for window in windows}
    array, widths, dilations = plan_among_zeros(image.tensor.source, kept)
    return Convolution(
        image,
        kernel,
        (name, kind.dtype),
        array,
        widths,
        dilations,
        inputs.of(kernel, family.axes),
        found.dimensions,
        tuple(windows),
        tuple(batch),
        tuple(groups),
        tuple(channels),
        tuple(axis for axis in family.axes if axis in kernel_axes - {own for _, own in groups}),
        product,
    )


def as_convolution(family: Family, inputs: Inputs) -> Convolution | str:
    """A family as a convolution; or why it is none, where windows of it overlap."""
    windows = [f for f in family.fields if f.is_read and f.tensor is not None and len(f.tensor.index.keys) > 1]
    product = as_inner_product(family.codelet) if windows else None
    why = "its codelet is no inner product of two fields"
    if product is not None:
        fields = [family.by_name[name] for name in product.fields]
        if all(field.tensor is not None and field.tensor.size for field in fields):
            for image, kernel in (fields, fields[::-1]):
                found = _match(family, inputs, image, kernel, product)
                if isinstance(found, Convolution):
                    return found
                if overlaps(image):
                    why = f"{image.name}: {found}"
        else:
            why = "a field of it is vertex state, or empty"
    return why if any(map(overlaps, windows)) else ""


# --- running them ---------------------------------------------------------------------------------------


def _image(found: Convolution, array: Array) -> tuple[Array, list[tuple[int, int]]]:
    """The array, without its padding, as (batch, channels, windows...), cut to what is read; and padding still due."""
    moving = [window.dimension for window in found.windows]
    starts, stops, steps, due = [], [], [], {}
    dimensions = zip(found.dimensions, found.widths, found.dilations, array.shape, strict=True)
    for d, ((start, terms), (before, _), dilation, count) in enumerate(dimensions):
        # Windows may lie in padding wholly: then nothing is left of the array.
        first, last = start - before, start - before + sum(term.reach for term in terms) + 1
        if dilation > 1:  # of an array among zeros the convolution cuts off what is not read
            starts.append(0)
            stops.append(count)
            due[d] = (-first, last - dilation * (count - 1) - 1)
        else:
            due[d] = (min(last, 0) - min(first, 0), max(last, count) - max(first, count))
            starts.append(min(max(first, 0), count))
            stops.append(min(max(last, 0), count))
        steps.append(1 if d in moving or not terms else terms[-1].grain)
    array = slice_(array, starts, stops, steps)
    outer, inner = dict((*found.batch, *found.groups)), dict(found.channels)
    # What is there of each dimension: a group of it and a channel are two.
    labels: list[tuple[int, bool]] = []
    extents: list[int] = []
    for d, n in enumerate(array.shape):
        both = d in outer and d in inner
        labels += [(d, True), (d, False)] if both else [(d, d in outer)]
        extents += [outer[d].extent, n // outer[d].extent] if both else [n]
    chosen = [(d, True) for d, _ in (*found.batch, *found.groups)]
    summed, along = [(d, False) for d, _ in found.channels], [(d, False) for d in moving]
    alone = [label for label in labels if label not in {*chosen, *summed, *along}]
    array = reshape(array, extents)
    array = transpose(array, [labels.index(label) for label in (*alone, *chosen, *summed, *along)])
    sizes, images = array.shape[len(alone) :], len(found.batch)
    channels = math.prod(sizes[images : len(chosen) + len(summed)])
    image = reshape(array, [math.prod(sizes[:images]), channels, *sizes[len(chosen) + len(summed) :]])
    return image, [due[d] for d in moving]


def _kernel(found: Convolution, array: Array) -> Array:
    """The kernel as (kernels of all groups, channels of a group, windows...)."""
    shape = found.kernel.type.shape
    inner, moving = [key for _, key in found.channels], [window.key for window in found.windows]
    axes, keys = [*(axis for _, axis in found.groups), *found.kernel_axes], [key for key in moving if key is not None]
    extents = [*(axis.extent for axis in axes), *(shape[key] for key in (*inner, *keys))]
    spread = arranged(array, found.kernel_input.keys, [*axes, *inner, *keys], extents)
    kernels, channels = math.prod(axis.extent for axis in axes), math.prod(shape[key] for key in inner)
    return reshape(spread, [kernels, channels, *(1 if key is None else shape[key] for key in moving)])
