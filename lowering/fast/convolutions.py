"""Convolutions: a dot product of every window of an array with a kernel is a convolution.

Vertices of a family whose codelet is an inner product are one `conv_general_dilated` where one field is a window that
moves over an array while the other does not move with it. Read as windows, the array would be copied once for each
element of the window: 2.5 to 45 times slower, for 16 to 121 of them.

The dimension numbers say which dimensions of image, kernel and result are batch, channels and places. So all three stay
in the order in which they lie in memory, and so do their cotangents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.refused import Refused
from codelet.views.grids import Axis, Key
from codelet.views.line import Line, Part
from lowering.arrays import Array, Arrays, reshape, slice_, transpose
from lowering.fast.inputs import Input, Inputs
from lowering.fast.key_parts import parts_by_dimension, reach_of
from lowering.fast.moving_windows import least_cut
from lowering.fast.over_grid import Operand
from lowering.fast.result_order import steps_of_results
from lowering.fast.small_windows import overlaps
from lowering.fast.sources import Viewed, plan_among_zeros, steps_among_zeros
from lowering.jaxprs.reduced_maps import ReducedMap, as_inner_product
from lowering.platforms import is_meant

# --- families that are convolutions ---------------------------------------------------------------------

MOST_PLACES = 3
"""XLA's CPU backend convolves element by element over more dimensions of places."""


@dataclass(frozen=True)
class Window:
    """A dimension over which the window moves.

    Attributes:
        dimension: of the array.
        axis: along which it moves, by `stride` elements.
        key: the field's dimension that runs inside it, by `dilation` elements; None where it is one element wide.
    """

    dimension: int
    axis: Part
    stride: int
    key: Part | None = None
    dilation: int = 1

    @property
    def overlaps(self) -> bool:
        """Whether two places of the window have an element in common.

        Columns of a matrix have none, though each ends behind where the next begins: their inner products are a product
        of matrices, which as a convolution takes many times as long.
        """
        if self.key is None:
            return False
        common = math.lcm(self.stride, self.dilation)
        return common // self.stride < self.axis.extent and common // self.dilation < self.key.extent


@dataclass(frozen=True, eq=False)
class Convolution:
    """A family as a convolution.

    Attributes:
        image: the field that is a window.
        kernel: the field that does not move with it.
        result: the name of the codelet's result, and its dtype.
        image_input: the array that the image's field views, without the zeros around it.
        widths: how many zeros stand before and after each dimension of it, which the convolution adds by itself,
        dilations: and how far apart its elements stand among zeros along each.
        kernel_input: the array of the kernel's field.
        dimensions: where the window stands along each dimension of the array, and its steps along it.
        windows: the dimensions over which the window moves.
        beside: others along which an axis chooses, as if by a window of one element.
        batch: the axes that choose along the others,
        groups: and those that choose the kernel as well.
        channels: the field's dimensions that run along others.
        kernel_axes: the axes that choose the kernel alone.
        order: all of these axes, as results lie in memory.
        product: the product that the codelet is.
    """

    image: Field
    kernel: Field
    result: tuple[str, np.dtype]
    image_input: Viewed
    widths: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    kernel_input: Input
    dimensions: tuple[Line, ...]
    windows: tuple[Window, ...]
    beside: tuple[Window, ...]
    batch: tuple[Part, ...]
    groups: tuple[Part, ...]
    channels: tuple[Part, ...]
    kernel_axes: tuple[Part, ...]
    order: tuple[Part, ...]
    product: ReducedMap

    @property
    def places(self) -> list[Window]:
        """The dimensions of places, in the order in which the array has them."""
        return sorted((*self.windows, *self.beside), key=lambda window: window.dimension)

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """The results of all vertices, from the arrays before."""
        name, dtype = self.result
        image, left, due = _image(self, self.image_input.of(arrays))
        kernel, right = _kernel(self, self.kernel_input.of(arrays))
        roles = (self.batch, (*self.groups, *self.kernel_axes), *((place.axis,) for place in self.places))
        out = _in_order(roles, self.order, laid_out=bool(self.groups))
        result = lax.conv_general_dilated(
            image,
            kernel,
            window_strides=[place.stride for place in self.places],
            padding=[due[place.dimension] for place in self.places],
            lhs_dilation=[self.dilations[place.dimension] for place in self.places],
            rhs_dilation=[place.dilation for place in self.places],
            dimension_numbers=lax.ConvDimensionNumbers(left, right, _positions(out)),
            feature_group_count=math.prod(part.extent for part in self.groups),
            precision=self.product.precision,
            preferred_element_type=self.product.reduced_in,  # type: ignore[arg-type]
        ).astype(dtype)
        return {name: _by_axes(result, [part for d in out for part in roles[d]])}

    @property
    def reads(self) -> dict[str, str]:
        """How each field is read, in words."""
        return {self.image.name: str(self.image_input), self.kernel.name: str(self.kernel_input)}

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        over = " and ".join(names[window.axis.key] for window in self.windows)  # type: ignore[index]
        return f"as a convolution: windows of {self.image.name} move over {over}, {self.kernel.name} is the kernel"


def _is_tiled(along: Line) -> bool:
    """True if the steps along a dimension are those of the dimensions of a reshape."""
    own = along.steps
    return all(step == inner * part.extent for (_, step), (part, inner) in itertools.pairwise(own))


def _strided_dimensions(dimensions: Sequence[Line], kernel_axes: Set[Key]) -> set[int]:
    """The dimensions of which every few elements are read one by one, where that is no copy: along several of them."""
    if not is_meant("windows of one element"):
        return set()
    own = {d: along.steps[0] for d, along in enumerate(dimensions) if len(along.steps) == 1}
    found = {
        d for d, (part, step) in own.items() if step > 1 and isinstance(part.key, Axis) and part.key not in kernel_axes
    }
    return found if len(found) > 1 else set()


def _order_of_results(family: Family, parts: Sequence[Part]) -> list[Part]:
    """Parts of the axes of a family as its results lie in memory; in the order given where that is unknown."""
    steps = steps_of_results(family) or {}
    return sorted(parts, key=lambda part: -steps.get(part.key, 0) * part.weight)  # type: ignore[arg-type]


def _runs_on(parts: Sequence[Part], order: Sequence[Part]) -> int:
    """How many of the parts, from the first one on, follow each other in an order."""
    places = [order.index(part) for part in parts]
    gaps = [k for k, (a, b) in enumerate(itertools.pairwise(places), 1) if b != a + 1]
    return gaps[0] if gaps else len(parts)


def _match(family: Family, inputs: Inputs, image: Field, kernel: Field, product: ReducedMap) -> Convolution | str:
    """A family as a convolution of the windows that one field is with the other; or why it is none."""
    assert image.tensor is not None
    assert kernel.tensor is not None
    source = image.tensor.source
    dimensions = parts_by_dimension(source.shape, image.tensor.index)
    if dimensions is None:
        return "its windows move by a table, run backwards or across dimensions"
    kernel_axes, spread = set(kernel.tensor.index.axes), steps_among_zeros(source)
    windows, batch, groups, channels = [], [], [], []
    strided = _strided_dimensions(dimensions, kernel_axes)
    for d, along in enumerate(dimensions):
        axes = [own for own in along.steps if isinstance(own[0].key, Axis)]
        inside = [own for own in along.steps if isinstance(own[0].key, int)]
        is_kernels = any(part.key in kernel_axes for part, _ in axes)
        if len(axes) == 1 and not is_kernels and (len(inside) == 1 or (not inside and (spread[d] > 1 or d in strided))):
            key, dilation = inside[0] if inside else (None, 1)
            windows.append(Window(d, *axes[0], key, dilation))
        elif _is_tiled(along):
            groups += [part for part, _ in axes if part.key in kernel_axes]
            batch += [Window(d, part, 1) for part, _ in axes if part.key not in kernel_axes]
            channels += [part for part, _ in inside]
        else:
            return f"{kernel.name} moves with it" if is_kernels else "its windows move by several symbols"
    dilated = any(spread[window.dimension] > 1 for window in windows)
    if not dilated and not strided and not any(window.overlaps for window in windows):
        return "its windows do not overlap"
    alone = kernel_axes - {part.key for part in groups}
    filters = [Part(axis, 1, 0, axis.extent) for axis in family.axes if axis in alone]
    chosen = [place.axis for place in batch]
    order = _order_of_results(family, [*chosen, *groups, *filters, *(window.axis for window in windows)])
    # Axes of the batch that do not follow each other in memory are dimensions of their own.
    labels = [part for along in dimensions for part, _ in along.steps]
    count = min(_runs_on(chosen, order), _runs_on(chosen, labels))
    if groups or len(windows) + len(batch) - count > MOST_PLACES:
        count = len(batch)
    ((name, kind),) = family.codelet.outputs.items()
    kept = set(range(len(dimensions))) - {window.dimension for window in windows}
    array, widths, dilations = plan_among_zeros(source, kept)
    return Convolution(
        image,
        kernel,
        (name, kind.dtype),
        array,
        widths,
        dilations,
        inputs.of(kernel, family.axes),
        dimensions,
        tuple(windows),
        tuple(batch[count:]),
        tuple(chosen[:count]),
        tuple(groups),
        tuple(channels),
        tuple(part for part in order if part in filters),
        tuple(order),
        product,
    )


def as_convolution(family: Family, inputs: Inputs) -> Convolution | str:
    """A family as a convolution; or why it is none, where windows of it overlap."""
    windows = [f for f in family.fields if f.is_read and f.tensor is not None and len(f.tensor.index.keys) > 1]
    product = as_inner_product(family.codelet) if windows else Refused("it reads no windows")
    why = "its codelet is no inner product of two fields"
    if isinstance(product, ReducedMap):
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

Roles = Sequence[Sequence[Part]]
"""What each dimension of an operand or result consists of: batch and channels, results and channels, then places."""


def _in_order(roles: Roles, order: Sequence[Part], *, laid_out: bool) -> list[int]:
    """The dimensions that an array is to have, in the order in which they begin in memory.

    Where they are to be laid out, places stand last: XLA's CPU backend convolves in groups element by element, and the
    last dimension at a time. Of 16 groups of one channel, (8, 56, 56, 16) by 3 x 3: 20 ms as they lie, 5 ms laid out.
    """
    begins = [min((order.index(part) for part in role), default=-1) for role in roles]
    return sorted(range(len(roles)), key=lambda d: 0 if laid_out else begins[d])


def _positions(order: Sequence[int]) -> tuple[int, ...]:
    """Where each dimension stands in an order."""
    return tuple(order.index(d) for d in range(len(order)))


def _image(found: Convolution, array: Array) -> tuple[Array, tuple[int, ...], dict[int, tuple[int, int]]]:
    """The array, without its padding, cut to the part that is read; the role of each dimension; and padding
    still due.
    """
    moving = {window.dimension: window for window in found.windows}
    starts, stops, steps, due = [], [], [], {}
    dimensions = zip(found.dimensions, found.widths, found.dilations, array.shape, strict=True)
    for d, (along, (before, _), dilation, count) in enumerate(dimensions):
        # Windows may lie in padding wholly: then nothing is left of the array.
        first, last = along.start - before, along.start - before + reach_of(along) + 1
        if dilation > 1:  # of an array among zeros the convolution cuts off what is not read
            starts.append(0)
            stops.append(count)
            due[d] = (-first, last - dilation * (count - 1) - 1)
        else:
            start, stop = min(max(first, 0), count), min(max(last, 0), count)
            low, high = min(last, 0) - min(first, 0), max(last, count) - max(first, count)
            if d in moving and start < stop:
                stop, high = least_cut(stop, count, low, high, moving[d].stride - 1)
            due[d] = (low, high)
            starts.append(start)
            stops.append(stop)
        steps.append(1 if d in moving or not along.steps else along.steps[-1][1])
    array = slice_(array, starts, stops, steps)
    labels: list[Part] = []
    extents: list[int] = []
    for d, along in enumerate(found.dimensions):
        labels += [moving[d].axis] if d in moving else [part for part, _ in along.steps]
        extents += [array.shape[d]] if d in moving else [part.extent for part, _ in along.steps]
    roles = (found.batch, (*found.groups, *found.channels), *((place.axis,) for place in found.places))
    order = _in_order(roles, labels, laid_out=bool(found.groups))
    array = transpose(reshape(array, extents), [labels.index(part) for d in order for part in roles[d]])
    sizes = dict(zip(labels, extents, strict=True))
    return reshape(array, [math.prod(sizes[part] for part in roles[d]) for d in order]), _positions(order), due


def _kernel(found: Convolution, array: Array) -> tuple[Array, tuple[int, ...]]:
    """The kernel, and the role of each dimension."""
    taps = [() if place.key is None else (place.key,) for place in found.places]
    roles = ((*found.groups, *found.kernel_axes), found.channels, *taps)
    labels: list[Part] = []
    every = [part for role in roles for part in role]
    for key in found.kernel_input.keys:
        labels += sorted((part for part in every if part.key == key), key=lambda part: -part.weight)
    absent = [part for part in every if part not in labels]  # the kernel is the same along these
    labels = [*absent, *labels]
    extents = [part.extent for part in labels]
    array = reshape(array, extents[len(absent) :])
    if absent:
        array = lax.broadcast_in_dim(array, extents, range(len(absent), len(extents)))
    order = _in_order(roles, labels, laid_out=bool(found.groups))
    array = transpose(array, [labels.index(part) for d in order for part in roles[d]])
    return reshape(array, [math.prod(part.extent for part in roles[d]) for d in order]), _positions(order)


def _by_axes(array: Array, parts: Sequence[Part]) -> Operand:
    """A result with a dimension for each axis, of one that has its parts in an order."""
    axes = list(dict.fromkeys(part.key for part in parts))
    order = sorted(range(len(parts)), key=lambda k: (axes.index(parts[k].key), -parts[k].weight))
    array = transpose(reshape(array, [part.extent for part in parts]), order)
    extents = [math.prod(part.extent for part in parts if part.key == axis) for axis in axes]
    return reshape(array, extents), tuple(axes)
