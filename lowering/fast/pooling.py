"""Pooling: a reduction of every window of an array is a reduction of windows.

Vertices whose codelet reduces all of one field by `lax.reduce_window` are one `reduce_window` over an array, if the
field is a window which moves over it. The rest of the codelet follows for all of them. Read as windows, the array would
be copied once for each element of the window. The equation is that of the codelet, so that slopes are as well: that of
a maximum goes to the first of equal elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.jaxprs.equations import bind
from codelet.jaxprs.primitives import POOLINGS
from codelet.refused import Refused
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.boxes import lengths_of
from codelet.views.grids import Axis
from codelet.views.sources import Patchwork
from codelet.views.terms import Dimension
from lowering.arrays import Arrays, reshape, slice_, transpose
from lowering.fast.inputs import Input, Inputs
from lowering.fast.moving_windows import axis_of, inside_of, least_cut, moving_windows
from lowering.fast.over_grid import Operand, mapped_axes, over_grid
from lowering.fast.patchwork import without_zeros
from lowering.fast.reads import as_it_lies
from lowering.fast.result_order import Order, order_of_results
from lowering.fast.sources import Viewed, WithinZeros
from lowering.jaxprs.reduced_fields import Reduced, reduced_fields


def as_reduced(codelet: TracedCodelet) -> Reduced | None:
    """A codelet as one that reduces all of a field by `lax.reduce_window`; None if it is no such thing."""
    for reduced in reduced_fields(codelet, *POOLINGS):
        window, dilation = (reduced.equation.params[name] for name in ("window_dimensions", "window_dilation"))
        if window == codelet.inputs[reduced.fields[0]].shape and all(n == 1 for n in dilation):
            return reduced
    return None


# --- families that are poolings --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pooling:
    """A family as a reduction of windows.

    Attributes:
        family: which.
        reduced: the reduction of its codelet.
        image: the array over which windows move, without padding that changes no window.
        widths: how many positions of that stand before and after each dimension.
        dimensions: the access to each dimension of it.
        moving: of each dimension, the axis along which the window moves; None for none.
        window: its elements along each dimension.
        dilation: by how many positions these are apart.
        inputs: the operands of the other fields.
        axes: that results depend on, outermost first.
        order: in which the dimensions of the array are taken.
    """

    family: Family
    reduced: Reduced
    image: Viewed
    widths: tuple[tuple[int, int], ...]
    dimensions: tuple[Dimension, ...]
    moving: tuple[tuple[Axis, int] | None, ...]
    window: tuple[int, ...]
    dilation: tuple[int, ...]
    inputs: tuple[Input, ...]
    axes: tuple[Axis, ...]
    order: Order

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """The results of all vertices, from the arrays before."""
        array = self.image.of(arrays)
        starts, stops, due = [], [], []
        dimensions = zip(self.dimensions, self.widths, self.moving, array.shape, strict=True)
        for (begin, terms), (before, _), moves, count in dimensions:
            # Windows may lie in padding wholly: then nothing is left of the array.
            first, last = begin - before, begin - before + sum(term.reach for term in terms) + 1
            start, stop = min(max(first, 0), count), min(max(last, 0), count)
            low, high = min(last, 0) - min(first, 0), max(last, count) - max(first, count)
            if moves is not None and start < stop:
                stop, high = least_cut(stop, count, low, high, moves[1] - 1)
            due.append((low, high))
            starts.append(start)
            stops.append(stop)
        moving = [self.moving[d] for d in self.order]
        params = {
            **self.reduced.equation.params,
            "window_dimensions": tuple(self.window[d] for d in self.order),
            "window_strides": tuple(1 if own is None else own[1] for own in moving),
            "padding": tuple(due[d] for d in self.order),
            "base_dilation": (1,) * len(due),
            "window_dilation": tuple(self.dilation[d] for d in self.order),
        }
        whole = transpose(array, self.order)  # first, as other families of the same order have it
        array = slice_(whole, [starts[d] for d in self.order], [stops[d] for d in self.order], [1] * len(due))
        (pooled,) = bind(self.reduced.equation.replace(params=params), [array])
        keys = tuple(own[0] for own in moving if own is not None)
        operands = [(reshape(pooled, [axis.extent for axis in keys]), keys)]
        operands += [(each.of(arrays), each.keys) for each in self.inputs]
        results = over_grid(self.reduced.rest, operands, self.axes)
        return {
            name: (result, (*self.axes, *range(len(kind.shape))))
            for (name, kind), result in zip(self.family.codelet.outputs.items(), results, strict=True)
        }

    @property
    def reads(self) -> dict[str, str]:
        """How each field is read, in words."""
        others = zip(self.reduced.others, map(str, self.inputs), strict=True)
        found = {self.reduced.fields[0]: str(self.image), **dict(others)}
        return {name: found[name] for name in self.family.codelet.inputs}

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        over = ", ".join(names[own[0]] for own in self.moving if own is not None)
        return f"as a pooling: windows of {self.reduced.fields[0]} move over {over}"


def _around(field: Field, value: object) -> tuple[Viewed, tuple[tuple[int, int], ...]]:
    """The array that a field's windows move over, without a frame of a value; and how wide that is."""
    assert field.tensor is not None
    source = field.tensor.source
    if not isinstance(source, Patchwork):
        return Viewed(source, as_it_lies(source.shape), source.dtype), ((0, 0),) * len(source.shape)
    region, patches = without_zeros(source, (), value)
    widths = tuple((start, n - stop) for (start, stop), n in zip(region, source.shape, strict=True))
    origin = source if lengths_of(region) == source.shape else WithinZeros(source, region, tuple(patches))
    return Viewed(origin, as_it_lies(origin.shape), source.dtype), widths


def _least(eqn: jax_core.JaxprEqn) -> object:
    """The value that changes no result of a reduction of windows."""
    dtype, name = eqn.outvars[0].aval.dtype, eqn.primitive.name  # type: ignore[attr-defined]
    if name == "reduce_window_sum":
        return 0
    sign = 1 if name == "reduce_window_min" else -1
    if jnp.issubdtype(dtype, jnp.floating):
        return sign * np.inf
    limits = jnp.iinfo(dtype)
    return limits.max if sign > 0 else limits.min


def as_pooling(family: Family, inputs: Inputs) -> Pooling | str:
    """A family as a reduction of windows; or why it is none, where its codelet reduces one."""
    reduced = None if family.rows else as_reduced(family.codelet)
    if reduced is None:
        return ""
    image = family.by_name[reduced.fields[0]]
    if image.tensor is None or not image.tensor.size or not family.num_vertices:
        return "its window is vertex state, or empty"
    kind = reduced.equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    if not jnp.issubdtype(kind, jnp.floating) and not jnp.issubdtype(kind, jnp.integer):
        return "it is of booleans, or of complex numbers"
    found = moving_windows(image.tensor)
    if isinstance(found, Refused):
        return found.reason
    if found.reversed_keys:
        return "its windows run backwards"
    moving, inside = tuple(map(axis_of, found.lines)), [inside_of(line) for line in found.lines]
    window = tuple(1 if own is None else image.type.shape[own[0]] for own in inside)
    dilation = tuple(1 if own is None else own[1] for own in inside)
    axes = [own[0] for own in moving if own is not None]
    if len(set(axes)) < len(axes) or np.prod(window) != image.tensor.size:
        return "its windows move along several dimensions at once"
    viewed, widths = _around(image, _least(reduced.equation))
    others = tuple(inputs.of(family.by_name[name], family.axes) for name in reduced.others)
    keys = [axes, *(each.keys for each in others)]
    order = order_of_results(family, image) or tuple(range(len(moving)))
    return Pooling(
        family,
        reduced,
        viewed,
        widths,
        found.dimensions,
        moving,
        window,
        dilation,
        others,
        mapped_axes(keys, family.axes),
        order,
    )
