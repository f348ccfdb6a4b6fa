"""Whole convolutions: what a convolution contributes to its image and its kernel, each planned as one by itself.

A convolution is cut into patches of the image, and by channels and rows of the kernel, whose partial sums a further
compute set adds up. Gone back through cut by cut, it would be as many small convolutions, and their contributions to the
image would overlap. In comes a family of windows by kernels, as `lowering/fast/partial_sums.py` puts it together, and
one of its fields; out comes what `ops.conv_input_gradient` or `ops.conv_kernel_gradient` makes of cotangents.

One dimension at most is the batch, one the channels, and all others are windows'; of groups and of images among zeros the
cuts are gone back through.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from codelet import ops
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.sources import Patchwork, Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.fields import is_injective
from lowering.fast.convolutions import Convolution, as_convolution
from lowering.fast.inputs import Inputs
from lowering.fast.key_parts import Part
from lowering.plan.access import take_apart


@dataclass(frozen=True, eq=False)
class WholeConvolution:
    """A family as a convolution of two arrays.

    Attributes:
        image: the name of the field that is a window, `kernel` of that by which it is multiplied, `out` of the results.
        lhs: the image: batch, channels, places.
        rhs: the kernel: results, channels, taps.
        axes: of the grid, as the results have them, batch, results, places; None for a dimension of one element.
        window_strides: of the windows along each of the places, and so on: as `ops.conv_general_dilated` takes them.
        padding: before and after the image.
        rhs_dilation: by how many elements the taps are apart.
    """

    image: str
    kernel: str
    out: str
    lhs: Tensor
    rhs: Tensor
    axes: tuple[Axis | None, ...]
    window_strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    rhs_dilation: tuple[int, ...]

    def operand(self, name: str) -> Tensor:
        """The array of an operand."""
        return self.lhs if name == self.image else self.rhs

    def other(self, name: str) -> Tensor:
        """The array of the other operand."""
        return self.rhs if name == self.image else self.lhs

    def slopes(self, cotangents: Tensor) -> Tensor:
        """The cotangents of the results, as the vertices write these: batch, results, places."""
        own = Tensor(cotangents.source, cotangents.index.lifted([axis for axis in self.axes if axis is not None]))
        return own[tuple(None if axis is None else slice(None) for axis in self.axes)]

    def contribution(self, graph: Graph, name: str, slopes: Tensor, other: Tensor) -> Tensor:
        """What is contributed to an operand, of its shape, added to a graph."""
        make = ops.conv_input_gradient if name == self.image else ops.conv_kernel_gradient
        options: dict[str, Any] = {"rhs_dilation": self.rhs_dilation, "name": "product"}
        return make(graph, slopes, other, self.operand(name).shape, self.window_strides, self.padding, **options)


def _inside(source: Source) -> tuple[Tensor, tuple[int, ...]] | None:
    """What a source is among padding, and where it begins along each dimension; None where it is put together."""
    if isinstance(source, Variable):
        return whole_view(source), (0,) * len(source.shape)
    assert isinstance(source, Patchwork)
    patches = [patch for patch in source.patches if patch.variable is not None]
    if len(patches) != 1 or any(patch.value is not None and patch.value.any() for patch in source.patches):
        return None
    (patch,) = patches
    own = take_apart(source.shape, patch.places)
    if own.shape != source.shape or own.reversed_keys or patch.index.ndim != len(source.shape):
        return None
    for d, (_, terms) in enumerate(own.dimensions):
        if any(term.table is not None or term.grain != 1 or term.keys != (d,) for term in terms):
            return None
    assert patch.variable is not None
    return Tensor(patch.variable, patch.index), tuple(start for start, _ in own.dimensions)


def _axis(part: Part) -> Axis | None:
    """The axis that a part is all of."""
    is_all = isinstance(part.key, Axis) and part.weight == 1 and part.extent == part.key.extent
    return part.key if is_all else None  # type: ignore[return-value]


def _as_found(family: Family, found: Convolution) -> WholeConvolution | None:
    image, kernel, windows = found.image.tensor, found.kernel.tensor, found.windows
    assert image is not None
    assert kernel is not None
    inside, (out,) = _inside(image.source), (field for field in family.fields if field.is_written)
    batch = [*found.batch, *(own.axis for own in found.beside)]
    parts = [*batch, *found.kernel_axes, *(own.axis for own in windows)]
    axes = [_axis(part) for part in parts]
    few = len(batch) <= 1 and len(found.channels) <= 1 and len(found.kernel_axes) <= 1
    if inside is None or found.groups or not few or None in axes or set(axes) != {*family.axes}:
        return None
    if out.tensor is None or out.tensor.index.tables or {a for a, _ in out.tensor.index.symbols} != {*family.axes}:
        return None
    if any(found.dilations[own.dimension] != 1 for own in windows) or found.product.precision is not None:
        return None
    array, starts = inside
    # The image: of what is no window all is read, in order.
    moving, of_part = {own.dimension for own in windows}, dict[Part, int]()
    for d, along in enumerate(found.dimensions):
        if d not in moving and array.shape[d] != 1:
            if starts[d] or along.start or len(along.steps) != 1 or along.steps[0][1] != 1:
                return None
            ((part, _),) = along.steps
            if part.extent != array.shape[d] or array.shape[d] != image.source.shape[d]:
                return None
            of_part[part] = d
        elif d not in moving and (starts[d] or along.start or image.source.shape[d] != 1):
            return None
    roles = [of_part.get(own[0]) if own else None for own in (batch, found.channels)]
    places = sorted(windows, key=lambda own: own.dimension)
    kept = [d for d in (*roles, *(own.dimension for own in places)) if d is not None]
    alone = array[tuple(slice(None) if d in kept else 0 for d in range(array.ndim))]
    rank = sorted(kept)
    lhs = alone.transpose([rank.index(d) for d in kept])
    lhs = lhs[tuple(None if d is None else slice(None) for d in (*roles, *(own.dimension for own in places)))]
    # The kernel: the parts of its keys along which taps and channels lie.
    taps = [*(own[0] if own else None for own in (found.kernel_axes, found.channels)), *(own.key for own in places)]
    inner = [part for part in taps if part is not None and not isinstance(part.key, Axis)]
    sizes = {key: 1 for key in range(len(found.kernel.type.shape))}
    for part in inner:
        sizes[part.key] *= part.extent  # type: ignore[index]
    if tuple(sizes.values()) != found.kernel.type.shape:
        return None
    index = kernel.index
    strides = [
        0 if part is None else index.coefficient(part.key) if isinstance(part.key, Axis)
        else index.strides[part.key] * part.weight
        for part in taps
    ]  # fmt: skip
    rhs = Tensor(kernel.source, Index(index.offset, tuple(1 if p is None else p.extent for p in taps), tuple(strides)))
    padding = []
    for own in places:
        first, extent = found.dimensions[own.dimension].start, array.shape[own.dimension]
        reach = 0 if own.key is None else own.dilation * (own.key.extent - 1)
        last = first + own.stride * (own.axis.extent - 1) + reach
        padding.append((starts[own.dimension] - first, last + 1 - starts[own.dimension] - extent))
    whole = [*(_axis(own[0]) if own else None for own in (batch, found.kernel_axes)), *(_axis(w.axis) for w in places)]
    if not is_injective(lhs.index) or not is_injective(rhs.index) or 0 in (*lhs.shape, *rhs.shape):
        return None
    if any(a is not None and b is not None and a is b for a, b in itertools.combinations(whole, 2)):
        return None
    return WholeConvolution(
        found.image.name,
        found.kernel.name,
        out.name,
        lhs,
        rhs,
        tuple(whole),
        tuple(own.stride for own in places),
        tuple(padding),
        tuple(own.dilation if own.key is not None else 1 for own in places),
    )


def as_whole_convolution(family: Family) -> WholeConvolution | None:
    """A family as a convolution of two arrays; None where it is none, or not of one batch and one kind of channels."""
    if len(family.codelet.outputs) != 1 or not family.num_vertices or family.rows:
        return None
    found = as_convolution(family, Inputs([family]))
    if isinstance(found, str):
        return None
    kinds = {field.type.dtype for field in family.fields}
    return _as_found(family, found) if kinds == {found.product.summed_in} else None
