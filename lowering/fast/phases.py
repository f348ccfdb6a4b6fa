"""Phases: the families that write the phases of one strided convolution's gradient are put together again.

The gradient by the input of a convolution with stride s is written as one family for each phase of the positions: at
the positions `s*a + q` only every s-th tap of the kernel meets an element of the output. Run by themselves, s x s small
convolutions interleave what they make, 1.5 to 3 times as slow as one. Together they are one convolution of the whole
kernel with the output among zeros, s - 1 of them between its elements:

    x[s*a + q] = sum over t of g[a + b_q + t] * w[k_q + j*t]        for each q
    x[y]       = sum over u of dilated g[y + p + d*u] * w[k + u]

The taps of all phases have to lie on one line: each is of one phase, at the distance from y at which it then stands.
In come the families of a compute set. Out come the same, those that are all phases of one variable as one family over a
view of what they read among zeros, which `convolutions.py` takes for a convolution with `lhs_dilation`.

Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016: transposed convolutions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Grid
from codelet.views.patchwork import padded
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.arrays import SMALL
from lowering.fast.convolutions import as_convolution
from lowering.fast.inner_products import product_family
from lowering.fast.inputs import Inputs
from lowering.fast.lines import Line, lines_of, strided_index
from lowering.fast.refine import refine
from lowering.jaxprs.inner_products import as_inner_product
from lowering.plan.collect import normalize_family
from lowering.plan.dataflow import flow_step
from lowering.plan.steps import ExecuteStep

# --- families as phases ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _PhaseWriter:
    """A family that writes one phase of a variable.

    Attributes:
        family: which.
        out: how it runs along each dimension of what it writes.
        products: the views that it multiplies, image and kernel, with their lines; None where it writes zeros.
    """

    family: Family
    out: list[Line]
    products: tuple[tuple[Tensor, list[Line]], tuple[Tensor, list[Line]]] | None


def _writes_zero(family: Family) -> bool:
    """Whether what a family computes is zero, whatever it reads."""
    closed = inline(family.codelet.jaxpr)
    jaxpr, known = closed.jaxpr, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    if len(jaxpr.outvars) != 1 or jaxpr.effects:
        return False
    (value,) = jaxpr.outvars
    makers: dict[Any, jax_core.JaxprEqn] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    while not isinstance(value, jax_core.Literal) and value not in known:
        maker = makers.get(value)
        if maker is None or not is_understood(maker, "broadcast_in_dim", "convert_element_type", "reshape"):
            return False
        value = maker.invars[0]
    number = value.val if isinstance(value, jax_core.Literal) else known[value]
    return not isinstance(number, Tracer) and np.size(number) <= SMALL and not np.any(np.asarray(number))


def _written(family: Family) -> Tensor | None:
    """What a family writes, where its vertices write one element each, through one field that they do not read."""
    fields = [field for field in family.fields if field.is_written]
    if len(fields) != 1 or fields[0].kind != "out" or fields[0].tensor is None or not family.num_vertices:
        return None
    tensor = fields[0].tensor
    return tensor if not tensor.shape and isinstance(tensor.source, Variable) else None


def _strides(phases: Sequence[list[Line]]) -> list[int]:
    """By how many positions what each phase writes is apart, along each dimension."""
    return [max(max(line.step for line in lines), 1) for lines in zip(*phases, strict=True)]


def _are_all(phases: Sequence[list[Line]], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether what is written at these strides is all of a variable, one phase for each remainder."""
    found = set()
    for lines in phases:
        for line, extent, stride in zip(lines, shape, strides, strict=True):
            count = 1 if line.axis is None else line.axis.extent
            is_apart = line.axis is None or line.step == stride
            if not is_apart or line.start >= stride or count != -(-(extent - line.start) // stride):
                return False
        found.add(tuple(line.start for line in lines))
    return len(found) == len(phases) == math.prod(min(n, s) for n, s in zip(shape, strides, strict=True))


def _as_phase(family: Family, out: list[Line]) -> _PhaseWriter | None:
    """A family as a phase; None where it is neither an inner product nor zero."""
    product = as_inner_product(family.codelet)
    if product is None:
        return _PhaseWriter(family, out, None) if _writes_zero(family) else None
    tensors = [family.by_name[name].tensor for name in product.fields]
    views = [(tensor, lines_of(tensor)) for tensor in tensors if tensor is not None]
    known = [(tensor, lines) for tensor, lines in views if lines is not None]
    return _PhaseWriter(family, out, (known[0], known[1])) if len(known) == 2 else None


# --- taps -----------------------------------------------------------------------------------------------


class Taps(NamedTuple):
    """The taps of a kernel along a dimension of the image, of all phases.

    Attributes:
        dimension: of the image.
        kernel: the dimension of the kernel that they lie along; None where there is one tap alone.
        first: the distance from a position of the result to the first tap, in the image among zeros.
        step: from a tap to the next.
        place: of the first tap along the kernel's dimension.
        order: 1 where the taps follow each other there, -1 where they run backwards.
        count: how many there are.
    """

    dimension: int
    kernel: int | None
    first: int
    step: int
    place: int
    order: int
    count: int


def _taps(dimension: int, kernel: int | None, places: Mapping[int, int]) -> Taps | None:
    """The taps by their places in the kernel, each with its distance; None where they lie on no line."""
    found = sorted((distance, place) for place, distance in places.items())
    distances, along = zip(*found, strict=True)
    steps = {b - a for a, b in itertools.pairwise(distances)} or {1}
    orders = {b - a for a, b in itertools.pairwise(along)} or {1}
    if len(steps) != 1 or len(orders) != 1 or not orders <= {1, -1} or 0 in steps:
        return None
    return Taps(dimension, kernel, distances[0], steps.pop(), along[0], orders.pop(), len(found))


def _extent(tensor: Tensor, key: int | None) -> int:
    return 1 if key is None else tensor.shape[key]


def _kernel_dimension(own: Sequence[_PhaseWriter], at: int, image: int) -> int | None:
    """The dimension of the kernel that the taps along a dimension of the image, and of the result, lie along."""
    for phase in own:
        assert phase.products is not None
        (_, lines), (_, others) = phase.products
        if lines[image].key is not None:
            found = [d for d, line in enumerate(others) if line.key == lines[image].key]
            return found[0] if len(found) == 1 else None
    # Of one tap in every phase: what is another where the phase is, and there alone.
    for d, column in enumerate(zip(*(phase.products[1][1] for phase in own if phase.products), strict=True)):
        starts = {(phase.out[at].start, line.start) for phase, line in zip(own, column, strict=True)}
        several = len({start for _, start in starts}) > 1
        if several and len(starts) == len({phase for phase, _ in starts}):
            return d
    return None


def _taps_along(own: Sequence[_PhaseWriter], at: int, image: int, stride: int) -> Taps | None:
    """The taps along a dimension of the image, which the result's dimension `at` moves along."""
    kernel, places = _kernel_dimension(own, at, image), {}
    phases: dict[int, set[tuple[int, int]]] = {}
    for phase in own:
        assert phase.products is not None
        (tensor, lines), (_, others) = phase.products
        line, other = lines[image], Line(0, None, 0, None, 0) if kernel is None else others[kernel]
        if line.step not in (0, 1) or other.axis is not None or (line.key != other.key and kernel is not None):
            return None
        q = phase.out[at].start
        taps = {
            (other.start + other.inner * t, stride * (line.start + line.inner * t) - q)
            for t in range(_extent(tensor, line.key))
        }
        if phases.setdefault(q, taps) != taps:
            return None
        places.update(taps)
    if len(places) != sum(map(len, phases.values())):
        return None
    return _taps(image, kernel, places)


# --- together -------------------------------------------------------------------------------------------


def _dilated(source: Source, strides: Mapping[int, int], before: Mapping[int, int], after: Mapping[int, int]) -> Source:
    """A source with zeros between its elements along some dimensions, and around them."""
    view = whole_view(source)
    shape, widths, whole = [], [], []
    for d, n in enumerate(source.shape):
        stride = strides.get(d, 1)
        shape += [n, 1]
        widths += [(0, 0), (0, stride - 1)]
        whole.append(n * stride)
    between = view.reshape(tuple(shape)).pad(tuple(widths)).reshape(tuple(whole))
    around = tuple((before.get(d, 0), after.get(d, 0)) for d in range(len(whole)))
    return padded(between, around, np.zeros((), source.dtype)[()])


@dataclass(frozen=True, eq=False)
class _Woven:
    """Phases of one variable, found to be one convolution but for how their lines agree."""

    variable: Variable
    strides: list[int]
    own: list[_PhaseWriter]
    zeros: list[_PhaseWriter]

    def along(self) -> list[Taps] | None:
        """The taps along every dimension that is woven."""
        taps = []
        for at, stride in enumerate(self.strides):
            if stride == 1:
                continue
            axes = [phase.out[at].axis for phase in self.own]
            moving = {
                d
                for phase, axis in zip(self.own, axes, strict=True)
                if phase.products is not None and axis is not None
                for d, line in enumerate(phase.products[0][1])
                if line.axis is axis
            }
            found = _taps_along(self.own, at, moving.pop(), stride) if len(moving) == 1 else None
            if found is None:
                return None
            taps.append(found)
        return taps

    def has_every_phase(self, taps: Sequence[Taps]) -> bool:
        """Whether phases that compute nothing are those without taps."""
        woven = [at for at, stride in enumerate(self.strides) if stride > 1]
        met = [{-tap.first - tap.step * u for u in range(tap.count)} for tap in taps]
        remainders = [{q % self.strides[at] for q in own} for at, own in zip(woven, met, strict=True)]
        computed = {tuple(phase.out[at].start for at in woven) for phase in self.own}
        expected = set(itertools.product(*remainders))
        possible = itertools.product(*(range(min(self.strides[at], self.variable.shape[at])) for at in woven))
        return computed == expected.intersection(possible)


def _summed(phase: _PhaseWriter, taps: Sequence[Taps]) -> list[tuple[int, int, int]] | None:
    """What a phase sums over beside the taps: along which dimensions of image and kernel, and how many.

    None where that is not along one dimension of each.
    """
    assert phase.products is not None
    (image, lines), (_, others) = phase.products
    tapped = {lines[tap.dimension].key for tap in taps}
    found = []
    for key, extent in enumerate(image.shape):
        if extent > 1 and key not in tapped:
            at, to = ([d for d, line in enumerate(own) if line.key == key] for own in (lines, others))
            if (len(at), len(to)) != (1, 1):
                return None
            found.append((at[0], to[0], extent))
    return sorted(found)


def _agree(
    lines: Sequence[Line], others: Sequence[Line], phase: _PhaseWriter, like: _PhaseWriter, but: set[int]
) -> bool:
    """Whether a field of two phases runs alike along all dimensions but some."""
    places = {line.axis: at for at, line in enumerate(phase.out) if line.axis is not None}
    expected = {line.axis: at for at, line in enumerate(like.out) if line.axis is not None}
    for d, (line, other) in enumerate(zip(lines, others, strict=True)):
        if d in but:
            continue
        at, to = places.get(line.axis), expected.get(other.axis)  # type: ignore[arg-type]
        if (line.start, line.step, line.inner, at) != (other.start, other.step, other.inner, to):
            return False
    return True


def _as_one(woven: _Woven, like: _PhaseWriter, taps: Sequence[Taps], settings: tuple[Any, np.dtype]) -> Family | None:
    """All phases as one family, like one of them."""
    assert like.products is not None
    summed = _summed(like, taps)
    (image, lines), (kernel, others) = like.products
    along, inside = {tap.dimension: tap for tap in taps}, {tap.kernel for tap in taps if tap.kernel is not None}
    # The axes of all of what is written, and the field's dimensions: what is summed beside the taps, then these.
    shape = woven.variable.shape
    axes = Grid([range(n) for n in shape]).axes
    place = {line.axis: at for at, line in enumerate(like.out) if line.axis is not None}
    names = {at: like.family.names[axis] for axis, at in place.items()}
    if summed is None or any(line.axis is not None and line.axis not in place for line in (*lines, *others)):
        return None
    field = (*(extent for _, _, extent in summed), *(tap.count for tap in taps))
    # The image among zeros: as many around it as no tap leaves it.
    by_dimension = {tap.dimension: (at, stride) for tap, (at, stride) in zip(taps, _woven(woven.strides), strict=True)}
    before, after, strides = {}, {}, {}
    for d, (at, stride) in by_dimension.items():
        tap = along[d]
        last = shape[at] - 1 + tap.first + tap.step * (tap.count - 1)
        before[d] = max(0, -tap.first)
        after[d] = max(0, last + 1 - stride * image.source.shape[d])
        strides[d] = stride
    source = _dilated(image.source, strides, before, after)
    weights, kernel_weights = row_major_strides(source.shape), row_major_strides(kernel.source.shape)
    offset, symbols = 0, {}
    for d, (line, weight) in enumerate(zip(lines, weights, strict=True)):
        at = by_dimension[d][0] if d in along else place.get(line.axis)  # type: ignore[arg-type]
        offset += weight * (before[d] + along[d].first if d in along else line.start)
        if at is not None:
            symbols[axes[at]] = weight * (1 if d in along else line.step)
    steps = [lines[d].inner * weights[d] for d, _, _ in summed] + [tap.step * weights[tap.dimension] for tap in taps]
    left = Tensor(source, strided_index(offset, field, steps, symbols))
    offset, symbols = 0, {}
    by_kernel = {tap.kernel: tap for tap in taps}
    for d, (other, weight) in enumerate(zip(others, kernel_weights, strict=True)):
        offset += weight * (by_kernel[d].place if d in inside else other.start)
        if other.axis is not None:
            symbols[axes[place[other.axis]]] = weight * other.step
    steps = [others[k].inner * kernel_weights[k] for _, k, _ in summed]
    steps += [0 if tap.kernel is None else tap.order * kernel_weights[tap.kernel] for tap in taps]
    right = Tensor(kernel.source, strided_index(offset, field, steps, symbols))
    whole = dict(zip(axes, row_major_strides(shape), strict=True))
    out = Tensor(woven.variable, strided_index(0, (), (), whole))
    labelled = [(axis, names.get(at, f"i{at}")) for at, axis in enumerate(axes)]
    precision, dtype = settings
    made = product_family(like.family, labelled, left, right, out, dtype, precision)
    return replace(made, lines=tuple(dict.fromkeys(line for p in woven.own for line in p.family.lines)))


def _woven(strides: Sequence[int]) -> list[tuple[int, int]]:
    return [(at, stride) for at, stride in enumerate(strides) if stride > 1]


def _may_be_phase(family: Family) -> bool:
    """Whether what a family writes, a block or an element of it each, may be apart along a dimension."""
    fields = [field for field in family.fields if field.is_written]
    if len(fields) != 1 or fields[0].tensor is None:
        return False
    source, index = fields[0].tensor.source, fields[0].tensor.index
    if index.tables or index.is_empty:
        return True
    access = Access.of(index, source.shape)
    return access.shape != source.shape or any(
        terms and min(term.grain for term in terms) > 1 for _, terms in access.dimensions
    )


def _weave(families: Sequence[Family], variable: Variable) -> Family | None:
    """Families that write a variable as one convolution; None where they are not the phases of one."""
    if not any(map(_may_be_phase, families)):
        return None
    if any(_written(family) is None for family in families):
        families = [refine(family) or family for family in families]
    families = [family if family.tile is None else normalize_family(replace(family, tile=None)) for family in families]
    outs = []
    for family in families:
        tensor = _written(family)
        lines = lines_of(tensor) if tensor is not None else None
        if lines is None or any(line.key is not None for line in lines):
            return None
        outs.append(lines)
    strides = _strides(outs)
    if max(strides, default=1) == 1 or not _are_all(outs, variable.shape, strides):
        return None
    phases = [_as_phase(family, lines) for family, lines in zip(families, outs, strict=True)]
    found = [phase for phase in phases if phase is not None]
    own, zeros = [p for p in found if p.products is not None], [p for p in found if p.products is None]
    if len(found) < len(phases) or not own:
        return None
    settings = {as_inner_product(phase.family.codelet)[1:] for phase in own}  # type: ignore[index]
    return None if len(settings) > 1 else _of_phases(variable, strides, own, zeros, settings.pop())


def _of_phases(
    variable: Variable,
    strides: list[int],
    own: list[_PhaseWriter],
    zeros: list[_PhaseWriter],
    settings: tuple[Any, np.dtype],
) -> Family | None:
    """Phases that are inner products or zeros as one convolution; None where they are none."""
    for turn in (1, -1):  # either factor may be the image
        woven = _Woven(variable, strides, [replace(p, products=p.products[::turn]) for p in own if p.products], zeros)
        taps = woven.along()
        if taps is None or not woven.has_every_phase(taps):
            continue
        like = max(woven.own, key=lambda phase: phase.family.num_vertices)
        assert like.products is not None
        but = {tap.dimension for tap in taps}, {tap.kernel for tap in taps if tap.kernel is not None}
        agrees = all(
            phase.products is not None
            and _summed(phase, taps) == _summed(like, taps)
            and all(
                view.source is other.source and _agree(lines, others, phase, like, apart)
                for (view, lines), (other, others), apart in zip(phase.products, like.products, but, strict=True)
            )
            for phase in woven.own
        )
        made = _as_one(woven, like, taps, settings) if agrees else None
        if made is not None and not isinstance(as_convolution(made, Inputs([made])), str):
            return made
    return None


def weave_phases(step: ExecuteStep) -> ExecuteStep:
    """A compute set with phases put together."""
    writers: dict[Variable, list[Family]] = {}
    for family in step.families:
        for field in family.fields:
            if field.is_written and field.tensor is not None and isinstance(field.tensor.source, Variable):
                writers.setdefault(field.tensor.source, []).append(family)
    made = {v: _weave(own, v) for v, own in writers.items() if len(own) > 1}
    families = list(step.families)
    for variable, one in made.items():
        if one is not None:
            families = [family for family in families if family not in writers[variable]] + [one]
    return step if len(families) == len(step.families) else flow_step(replace(step, families=tuple(families)))  # type: ignore[return-value]
