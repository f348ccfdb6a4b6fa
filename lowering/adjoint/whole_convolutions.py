"""Whole convolutions: the contributions of a convolution to its image and its kernel, each planned as one by itself.

A convolution is cut into patches of the image, and by channels and rows of the kernel; a further compute set adds up
the partial sums. Its adjoint, cut by cut, would be many small convolutions whose contributions to the image overlap.
In comes a family of windows times kernels, as `lowering/join/join.py` puts it together. Out come the image and
the kernel as `ops.conv_input_gradient` and `ops.conv_kernel_gradient` take them, which plan the gradients as any
others.

Known to be weak: the adjoint is still made cut by cut with groups, with several dimensions of the batch or of channels,
and with an image that has zeros between its elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codelet import ops
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.views.access import Access
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.line import Part
from codelet.views.sources import Patchwork, Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.fields import is_injective
from lowering.fast.convolutions import Convolution, Window, as_convolution
from lowering.fast.inputs import Inputs


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
        """The contribution to an operand, of its shape, added to a graph."""
        make = ops.conv_input_gradient if name == self.image else ops.conv_kernel_gradient
        options: dict[str, Any] = {"rhs_dilation": self.rhs_dilation, "name": "product"}
        return make(graph, slopes, other, self.operand(name).shape, self.window_strides, self.padding, **options)


def _inside(source: Source) -> tuple[Tensor, tuple[int, ...]] | None:
    """A source among padding, and where it begins along each dimension; None where it is put together."""
    if isinstance(source, Variable):
        return whole_view(source), (0,) * len(source.shape)
    assert isinstance(source, Patchwork)
    patches = [patch for patch in source.patches if patch.variable is not None]
    if len(patches) != 1 or any(patch.value is not None and patch.value.any() for patch in source.patches):
        return None
    (patch,) = patches
    own = Access.of(patch.places, source.shape)
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


def _batch(found: Convolution) -> list[Part]:
    """The axes that choose an image."""
    return [*found.batch, *(own.axis for own in found.beside)]


def _windows(found: Convolution) -> list[Window]:
    """The windows, in the order of the image's dimensions."""
    return sorted(found.windows, key=lambda own: own.dimension)


def _image(found: Convolution) -> tuple[Tensor, tuple[tuple[int, int], ...]] | None:
    """The image as batch, channels, places, and the padding around its places; None where it has other dimensions."""
    assert found.image.tensor is not None
    source = found.image.tensor.source
    inside, moving = _inside(source), {own.dimension for own in found.windows}
    if inside is None or any(found.dilations[d] != 1 for d in moving):
        return None
    array, starts = inside
    of_part: dict[Part, int] = {}
    for d, along in enumerate(found.dimensions):
        if d in moving:
            continue
        if starts[d] or along.start or array.shape[d] != source.shape[d]:
            return None
        if array.shape[d] != 1:  # all of it is read, in order
            parts = [part for part, step in along.steps if step == 1 and part.extent == array.shape[d]]
            if len(along.steps) != 1 or not parts:
                return None
            of_part[parts[0]] = d
    places = [own.dimension for own in _windows(found)]
    roles = [of_part.get(own[0]) if own else None for own in (_batch(found), found.channels)]
    kept = [d for d in (*roles, *places) if d is not None]
    alone = array[tuple(slice(None) if d in kept else 0 for d in range(array.ndim))]
    ordered = alone.transpose([sorted(kept).index(d) for d in kept])
    padding = []
    for own in _windows(found):
        first, extent = found.dimensions[own.dimension].start - starts[own.dimension], array.shape[own.dimension]
        reach = 0 if own.key is None else own.dilation * (own.key.extent - 1)
        padding.append((-first, first + own.stride * (own.axis.extent - 1) + reach + 1 - extent))
    return ordered[tuple(None if d is None else slice(None) for d in (*roles, *places))], tuple(padding)


def _kernel(found: Convolution) -> Tensor | None:
    """The kernel as results, channels, taps; None where these are not all that its field reads."""
    tensor = found.kernel.tensor
    assert tensor is not None
    sizes = dict.fromkeys(range(len(found.kernel.type.shape)), 1)
    extents, strides = [], []
    roles = (found.kernel_axes[0] if found.kernel_axes else None, found.channels[0] if found.channels else None)
    for part in (*roles, *(own.key for own in _windows(found))):
        extents.append(1 if part is None else part.extent)
        if part is None:
            strides.append(0)
        elif isinstance(part.key, Axis):
            strides.append(tensor.index.coefficient(part.key))
        else:
            strides.append(tensor.index.strides[part.key] * part.weight)
            sizes[part.key] *= part.extent
    if tuple(sizes.values()) != found.kernel.type.shape:
        return None
    return Tensor(tensor.source, Index(tensor.index.offset, tuple(extents), tuple(strides)))


def _as_found(family: Family, found: Convolution) -> WholeConvolution | None:
    """A family that is a convolution, as one of two arrays; None where that has other dimensions."""
    batch, results, windows = _batch(found), found.kernel_axes, _windows(found)
    if found.groups or max(map(len, (batch, found.channels, results))) > 1 or found.product.precision is not None:
        return None
    axes = [_axis(own[0]) if own else None for own in (batch, results)] + [_axis(own.axis) for own in windows]
    given = [axis for axis in axes if axis is not None]
    (out,) = (field for field in family.fields if field.is_written)
    written = None if out.tensor is None or out.tensor.index.tables else {a for a, _ in out.tensor.index.symbols}
    if len(given) < len(family.axes) or not set(given) == {*family.axes} == written:
        return None
    image, rhs = _image(found), _kernel(found)
    if image is None or rhs is None or not is_injective(rhs.index) or not is_injective(image[0].index):
        return None
    lhs, padding = image
    return WholeConvolution(
        found.image.name,
        found.kernel.name,
        out.name,
        lhs,
        rhs,
        tuple(axes),
        tuple(own.stride for own in windows),
        padding,
        tuple(own.dilation if own.key is not None else 1 for own in windows),
    )


def as_whole_convolution(family: Family) -> WholeConvolution | None:
    """A family as a convolution of two arrays; None where it is none, or not of one batch and one kind of channels."""
    if len(family.codelet.outputs) != 1 or not family.num_vertices or family.rows:
        return None
    found = as_convolution(family, Inputs([family]))
    if isinstance(found, str):
        return None
    kinds = {field.type.dtype for field in family.fields}
    return _as_found(family, found) if kinds == {found.product.reduced_in} else None
