"""Gathered: the contributions of inner products to an element that many of them read, as one vertex for each element.

In comes a family whose codelet is the inner product of two fields, and one of these. Its contribution to an element is
the cotangent of the product times an element of the other field. So the sum of all is an inner product again: of the
cotangents of those that read the element, and of its factors. Who reads it says the inverse of the access map,
dimension by dimension of the source:

- axes that the field does not depend on are summed over: of a weight that all images share, it is a dot over images;
- a dimension along which keys lie apart is one where each element has one reader;
- where windows overlap, `s*p + k`, element `s*q + r` is read at `p = q - m` as `k = r + s*m`: a window over cotangents
  among zeros, with every s-th element of the other field, backwards; a family for each phase `r`.

No memory is used for a contribution, of which there are as many as products; and the result lowers to products of
matrices and convolutions, as the forward pass does. It is done wherever it can be, since it reads the operands of
contributions, and neither writes these nor reads them again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jax import lax

from codelet.graphs.family import Family, Field
from codelet.refused import Refused
from codelet.tracing.codelets import codelet
from codelet.views.access import Access
from codelet.views.grids import Axis, Key
from codelet.views.line import Line, Phase, phases
from codelet.views.sources import Patch, Patchwork, Source, Variable
from codelet.views.symbols import grid
from codelet.views.tensor import Tensor
from lowering.adjoint.fields import is_injective
from lowering.jaxprs.reduced_maps import ReducedMap, as_inner_product
from lowering.plan.elements import Elements


@codelet
def product_of(left, right, *, precision):
    """The inner product of cotangents and of the factors of an element."""
    every = tuple(range(left.ndim))
    return lax.dot_general(left, right, ((every, every), ((), ())), precision=precision)


class WindowKeys(NamedTuple):
    """The axis along a dimension where windows overlap.

    Attributes:
        axis: by which they move.
        tap: the field's dimension of their taps.
        before: how many windows before that which begins at an element meet it too.
    """

    axis: Axis
    tap: int
    before: int


ELEMENT, TAP = 0, 1
"""The keys of lines of windows that meet an element."""


@dataclass(frozen=True, eq=False)
class Gathering:
    """How the contributions of a family to the elements of a field are gathered.

    Attributes:
        product: the codelet.
        axes: of the family.
        field: the field, and `other` the one that it is multiplied with, `out` the result.
        access: the field's.
        windows: along dimensions of the access where windows overlap, by their step.
    """

    product: ReducedMap
    axes: tuple[Axis, ...]
    field: Field
    other: Field
    out: Field
    access: Access
    windows: Mapping[int, WindowKeys]


def _windows(access: Access, apart: set[Key]) -> dict[int, WindowKeys] | None:
    """The dimensions along which windows overlap; None where any do otherwise than by an axis of theirs alone.

    Args:
        access: the field's.
        apart: the keys that the other field depends on.
    """
    found = {}
    for d, (line, (_, terms)) in enumerate(zip(access.lines, access.dimensions, strict=True)):
        if line.tables:
            return None
        if all(term.grain > sum(own.reach for own in terms[k + 1 :]) for k, term in enumerate(terms)):
            continue
        axes = [key for key in line.by if isinstance(key, Axis)]
        inside = [key for key in line.by if isinstance(key, int)]
        if len(axes) != 1 or len(inside) != 1 or line.by[inside[0]] != 1 or axes[0] in apart:
            return None
        found[d] = WindowKeys(axes[0], inside[0], -(-access.extents[inside[0]] // line.by[axes[0]]) - 1)
    return found


def as_gathering(family: Family, name: str) -> Gathering | None:
    """How the contributions of a family through a field are gathered; None where it cannot be."""
    connected = [own for own in family.fields if own.tensor is not None]
    if len(connected) != 3 or any(own.tensor.rows is not None for own in connected):  # type: ignore[union-attr]
        return None
    product = as_inner_product(family.codelet)
    if isinstance(product, Refused) or name not in product.fields:
        return None
    (other,) = (own for own in product.fields if own != name)
    field, others = family.by_name[name], family.by_name[other]
    (out,) = (own for own in connected if own.is_written)
    assert field.tensor is not None
    assert others.tensor is not None
    if not field.type.dtype == out.type.dtype == product.reduced_in or not field.tensor.size or not family.num_vertices:
        return None
    access = Access.of(field.tensor.index, field.tensor.source.shape)
    windows = None if access.reversed_keys else _windows(access, set(others.tensor.index.keys))
    if windows is None:
        return None
    used = [key for line in access.lines for key in line.by]
    every = {d for d, n in enumerate(field.type.shape) if n != 1}
    if len(set(used)) < len(used) or not every.issubset(used):
        return None
    return Gathering(product, family.axes, field, others, out, access, windows)


# --- where the sums go ----------------------------------------------------------------------------------


class SumView(NamedTuple):
    """Where the sums for some elements of a source go.

    Attributes:
        view: of cotangents, with a dimension for each of the source's as the access has it.
        starts: which of the source's positions along each is the first of the view.
    """

    view: Tensor
    starts: tuple[int, ...]


def _parts(shape: tuple[int, ...], finer: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """The parts of each dimension of a shape in a finer one; None where that is no finer one.

    >>> _parts((6, 1, 4), (2, 3, 1, 4)), _parts((6, 4), (24,))
    ([(2, 3), (1,), (4,)], None)
    """
    found, rest = [], list(finer)
    for extent in shape:
        own = rest[:1]
        while math.prod(own) < extent and len(own) < len(rest):
            own = rest[: len(own) + 1]
        if not own or math.prod(own) != extent:
            return None
        found.append(tuple(own))
        rest = rest[len(own) :]
    return None if rest else found


def _split(patch: Patch, shape: tuple[int, ...], finer: tuple[int, ...]) -> Patch:
    """A patch of an array of a shape, its dimensions split as those of a finer shape are which it has all of."""
    parts, own = _parts(shape, finer), Access.of(patch.places, shape)
    if parts is None or own.shape != shape:
        return patch
    extents: list[tuple[int, ...]] = [(n,) for n in patch.places.shape]
    for part, line in zip(parts, own.lines, strict=True):
        for key in line.by if len(line.keys) == 1 else ():
            if own.extents[key] == math.prod(part):
                extents[key] = part  # type: ignore[index]
    new = tuple(n for part in extents for n in part)
    return replace(patch, index=patch.index.reshape(new), places=patch.places.reshape(new))


def _box(access: Access, patch: Patch) -> tuple[tuple[int, ...], tuple[int | None, ...]] | None:
    """Where a patch begins along each dimension, and which of its dimensions runs there; None if it is no box."""
    own = Access.of(patch.places, access.shape)
    along = [[*line.by] for line in own.lines]
    is_even = all(not line.tables and set(line.by.values()) <= {1} for line in own.lines)
    if own.shape != access.shape or not is_even or max(map(len, along), default=0) > 1:
        return None
    return tuple(line.start for line in own.lines), tuple(keys[0] if keys else None for keys in along)  # type: ignore[misc]


def boxes_of(
    access: Access, source: Patchwork, cotangents: Mapping[Variable, Tensor]
) -> list[tuple[Variable, SumView]] | None:
    """Where the sums for the elements of a patchwork's variables go.

    None where these lie otherwise than in boxes, or one lies in one several times.

    Args:
        access: to the patchwork.
        source: the patchwork.
        cotangents: the cotangents of each variable that has any.
    """
    made = []
    for whole in source.patches:
        if whole.variable is not None and whole.variable in cotangents:
            patch = whole if access.shape == source.shape else _split(whole, source.shape, access.shape)
            box = _box(access, patch)
            if box is None or not is_injective(patch.index):
                return None
            starts, along = box
            view = Tensor(cotangents[whole.variable].source, patch.index)
            view = view[tuple(slice(None) if d in along else 0 for d in range(view.ndim))]
            runs = [d for d in along if d is not None]
            view = view.transpose([sorted(runs).index(d) for d in runs]) if runs else view
            view = view[tuple(None if d is None else slice(None) for d in along)]
            made.append((whole.variable, SumView(view, starts)))
    return made


def targets_of(found: Gathering, source: Source, cotangents: Mapping[Variable, Tensor]) -> list[SumView] | None:
    """Where the sums go; None where elements of a patchwork lie otherwise than in boxes, in several, or in none.

    Args:
        found: how they are gathered.
        source: the source of the field's view.
        cotangents: the cotangents of each variable that has any.
    """
    access = found.access
    if isinstance(source, Variable):
        whole = cotangents[source]
        view = whole if access.shape == source.shape else whole.flatten()
        return [SumView(view, (0,) * len(access.shape))]
    targets = boxes_of(access, source, cotangents)
    held = [(variable, Elements.of_view(own.view.index, (), variable.size, "")) for variable, own in targets or ()]
    for (variable, one), (other, two) in itertools.combinations(held, 2):
        if variable is other and (one & two).first is not None:
            return None
    for _, (view, starts) in targets or ():
        inside = zip(access.box(), starts, view.shape, strict=True)
        for d, ((start, stop), first, extent) in enumerate(inside):
            if d not in found.windows and (start < first or stop > first + extent):
                return None
    return None if targets is None else [target for _, target in targets]


# --- vertices -------------------------------------------------------------------------------------------


class Gathered(NamedTuple):
    """Vertices that gather: the cotangents that they read, their factors, and where the sum goes."""

    left: Tensor
    right: Tensor
    target: Tensor


class _PhasePlaces(NamedTuple):
    """Elements of a dimension that windows meet with the same taps: those of a phase, at a range of its places."""

    phase: Phase
    places: range


def _phases(found: Gathering, d: int, start: int, extent: int) -> list[_PhasePlaces]:
    """The phases of a dimension along which windows overlap, of the elements from `start` on, `extent` of them."""
    window, access, made = found.windows[d], found.access, []
    (first, stop), taps = access.box()[d], access.extents[window.tap]
    # The place along the axis, by the elements from the first that is read on and the taps backwards.
    line = Line.of(1 - taps, {ELEMENT: 1, TAP: 1}, access.lines[d].by[window.axis])
    for phase in phases(line, ELEMENT, stop - first, TAP, taps):
        position = first + phase.first - start
        places = range(max(0, -(position // phase.apart)), min(phase.count, -((position - extent) // phase.apart)))
        if phase.taps and places:
            made.append(_PhasePlaces(phase, places))
    return made


def _vertices(
    found: Gathering, slopes: Tensor, others: Tensor, target: SumView, phases: Mapping[int, _PhasePlaces]
) -> Gathered:
    """The vertices for one phase of each dimension along which windows overlap.

    Args:
        found: how they gather.
        slopes: the cotangents, with the axes as dimensions, among zeros along those of windows.
        others: the other field, with the axes as leading dimensions.
        target: where the sums go.
        phases: by dimension.
    """
    access, ranges = found.access, []
    for d, (_, terms) in enumerate(access.dimensions):
        ranges += [phases[d].places] if d in phases else [range(term.extents[0]) for term in terms]
    made: Any = grid(*ranges) if ranges else ()
    symbols = iter(made if isinstance(made, tuple) else (made,))
    at: dict[Key, Any] = {}
    places = []
    left: dict[Key, Any] = {}
    for d, (line, (start, terms)) in enumerate(zip(access.lines, access.dimensions, strict=True)):
        start -= target.starts[d]
        if d not in phases:
            at.update({term.keys[0]: next(symbols) for term in terms})
            places.append(start + sum(step * at[key] for key, step in line.steps))
            continue
        (axis, tap, before), (phase, _), q = found.windows[d], phases[d], next(symbols)
        first = q + phase.line.start + before
        left[axis] = slice(first, first + phase.taps)
        at[axis] = 0
        at[tap] = slice(access.extents[tap] - 1 - phase.tap, None, -phase.tap_step)
        places.append(start + phase.first + phase.apart * q)
    summed = [axis for axis in found.axes if axis not in at]
    windows = [*found.windows.values()]
    every = slice(None)
    view = slopes[tuple(left.get(axis, at.get(axis, every)) for axis in found.axes)]
    kept = [axis for axis in found.axes if axis not in at or axis in left]
    order = [kept.index(axis) for axis in (*summed, *(own.axis for own in windows))]
    dimensions = range(len(found.field.type.shape))
    beside = others[tuple(at.get(key, every if isinstance(key, Axis) else 0) for key in (*found.axes, *dimensions))]
    taps = sorted(own.tap for own in windows)
    inner = [len(summed) + taps.index(own.tap) for own in windows]
    return Gathered(
        view.transpose(order) if order else view,
        beside.transpose([*range(len(summed)), *inner]) if order else beside,
        target.view[tuple(places)],
    )


def gathered(found: Gathering, slopes: Tensor, others: Tensor, targets: Sequence[SumView]) -> Iterator[Gathered]:
    """The vertices that gather the sums.

    Args:
        found: how.
        slopes: the cotangents as the family's vertices write the results: over its axes.
        others: the other field as they read it.
        targets: where the sums go.
    """
    lifted = Tensor(slopes.source, slopes.index.lifted(found.axes))
    beside = Tensor(others.source, others.index.lifted(found.axes))
    around = {own.axis: own.before for own in found.windows.values()}
    widths = [(around.get(axis, 0),) * 2 for axis in found.axes]
    padded = lifted.pad(widths) if any(map(any, widths)) else lifted
    for target in targets:
        phases = [_phases(found, d, target.starts[d], target.view.shape[d]) for d in found.windows]
        for chosen in itertools.product(*phases):
            yield _vertices(found, padded, beside, target, dict(zip(found.windows, chosen, strict=True)))
