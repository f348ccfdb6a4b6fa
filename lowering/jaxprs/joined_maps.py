"""Joined maps: what is computed element by element of the parts of arrays, as the same of the whole arrays.

In come arrays of which all elements are reduced: each the same elementwise function of slices of the same arrays,
which between them are all of these (or one array, a function of rearrangements). Out comes that function of the whole
arrays, as they lie, with the axes that are reduced: exponentials of blocks of rows, which are summed block by block,
are exponentials of the rows.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.views.digits import Digit, chains, merged, regrouped
from lowering.arrays import Array, reshape, transpose

Dims = tuple[tuple[Digit, ...], ...]
"""For each dimension of an array digits of positions: in the result, or from `SUMMED` on in what is summed."""

SUMMED = 1 << 48
"""The step of the position in what is summed to one result, in elements of it: no result has so many."""


@dataclass(frozen=True)
class Leaf:
    """An array, or a slice of one, that a function is of.

    Attributes:
        array: a value of the jaxpr.
        dims: of the slice.
        along: the dimension that is cut; None for the whole array.
        start: the first element along that.
    """

    array: Atomic
    dims: Dims
    along: int | None = None
    start: int = 0


@dataclass
class _Expression:
    """A function of arrays: its equations as a tree, and its arrays in the order in which the tree meets them."""

    makers: Makers
    uses: Counter[Any]
    leaves: list[Leaf] = field(default_factory=list)
    equations: list[jax_core.JaxprEqn] = field(default_factory=list)

    def leaf(self, *of: Any) -> tuple[Any, ...]:
        """The tree of an array."""
        self.leaves.append(Leaf(*of))
        return ("leaf",)

    def tree(self, atom: Atomic, dims: Dims, *, first: bool = False) -> tuple[Any, ...]:
        """What an array is a function of, down to what is no function of others element by element."""
        if isinstance(atom, jax_core.Literal):
            return "literal", str(atom.val), str(atom.aval.dtype)  # type: ignore[attr-defined]
        maker = self.makers.of(atom)
        if maker is None:
            return self.leaf(atom, dims)
        if is_understood(maker, *ELEMENTWISE) and len(maker.outvars) == 1 and (first or self.uses[atom] == 1):
            self.equations.append(maker)
            number = len(self.equations) - 1
            of = [self.tree(own, _of_operand(own, dims)) for own in maker.invars]
            return maker.primitive.name, str(maker.params), number, *of
        behind = _source(maker, atom, dims)
        return self.leaf(atom, dims) if behind is None else self._behind(behind)

    def _behind(self, behind: Leaf) -> tuple[Any, ...]:
        if behind.along is not None:
            return self.leaf(behind.array, behind.dims, behind.along, behind.start)
        return self.tree(behind.array, behind.dims)


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _of_operand(atom: Any, dims: Dims) -> Dims:
    """The dimensions of an operand of an elementwise equation: of one element where it is repeated."""
    shape = _shape(atom)
    return tuple(() if n == 1 else own for n, own in zip(shape, dims, strict=True)) if shape else ()


def _source(maker: jax_core.JaxprEqn, atom: Atomic, dims: Dims) -> Leaf | None:
    """What an equation rearranges, repeats or cuts; None where it does something else."""
    if len(maker.invars) != 1 or isinstance(maker.invars[0], jax_core.Literal):
        return None
    (source,) = maker.invars
    if is_understood(maker, "squeeze") or (is_understood(maker, "reshape") and maker.params["dimensions"] is None):
        own = regrouped(merged(digit for dim in dims for digit in dim), _shape(source))
        return None if own is None else Leaf(source, own)
    if is_understood(maker, "transpose"):
        order = [int(d) for d in maker.params["permutation"]]
        return Leaf(source, tuple(dims[order.index(d)] for d in range(len(order))))
    if is_understood(maker, "broadcast_in_dim"):
        places = [int(d) for d in maker.params["broadcast_dimensions"]]
        return Leaf(source, tuple(() if n == 1 else dims[d] for n, d in zip(_shape(source), places, strict=True)))
    sizes = _shape(atom)
    if is_understood(maker, "slice") and set(maker.params["strides"] or {1}) == {1}:
        starts = maker.params["start_indices"]
    elif is_understood(maker, "split"):
        axis, starts = int(maker.params["axis"]), [0] * len(dims)
        starts[axis] = sum(_shape(var)[axis] for var in maker.outvars[: list(maker.outvars).index(atom)])
    else:
        return None
    cut = [d for d, (size, extent) in enumerate(zip(sizes, _shape(source), strict=True)) if size < extent]
    return Leaf(source, dims, cut[0], starts[cut[0]]) if len(cut) == 1 else None


# --- digits as labels -----------------------------------------------------------------------------------


Label = tuple[str, int, int]
"""A digit of what is kept, by its step; of what is summed, by its place among these; or that which is cut."""


def _finest(digits: Iterable[Digit]) -> dict[Digit, list[Digit]] | None:
    """What each digit is made of, so that any two parts are the same or apart; None where they have no such parts."""
    digits = set(digits)
    weights = sorted({weight for step, extent in digits for weight in (step, step * extent)})
    if any(above % below for below, above in itertools.pairwise(weights)):
        return None
    parts = [Digit(below, above // below) for below, above in itertools.pairwise(weights)][::-1]
    return {own: [part for part in parts if own.step <= part.step < own.step * own.extent] for own in digits}


def _renumbered(leaves: Sequence[Leaf]) -> list[list[list[Digit]]] | None:
    """The digits of leaves, those of what is summed numbered as they lie in a leaf that has all; None if none has."""
    parts = _finest(digit for leaf in leaves for dim in leaf.dims for digit in dim if digit.step >= SUMMED)
    if parts is None:
        return None
    dims = [[[own for digit in dim for own in parts.get(digit, [digit])] for dim in leaf.dims] for leaf in leaves]
    orders = [[own for dim in leaf for own in dim if own.step >= SUMMED] for leaf in dims]
    chief = max(orders, key=len, default=[])
    if any(not set(order) <= set(chief) for order in orders) or len(set(chief)) < len(chief):
        return None
    step, new = SUMMED, dict[Digit, Digit]()
    for own in reversed(chief):
        new[own] = Digit(step, own.extent)
        step *= own.extent
    return [[merged(new.get(own, own) for own in dim) for dim in leaf] for leaf in dims]


def _labelled(leaves: Sequence[Leaf]) -> tuple[list[list[list[Label]]], tuple[int, int] | None] | None:
    """The labels of each dimension of each leaf, and where the cut begins and ends; None where they are unclear."""
    dims = _renumbered(leaves)
    if dims is None or any(leaf.along is not None and len(dims[k][leaf.along]) != 1 for k, leaf in enumerate(leaves)):
        return None
    cuts = {(dims[k][leaf.along][0], leaf.start) for k, leaf in enumerate(leaves) if leaf.along is not None}
    if len(cuts) > 1 or any(digit.step < SUMMED for digit, _ in cuts):
        return None
    cut, start = next(iter(cuts), (None, 0))
    every = {digit for own in dims for dim in own for digit in dim}
    kept, of_sum = (_finest(own for own in every if (own.step >= SUMMED) is summed) for summed in (False, True))
    if kept is None or of_sum is None or (cut is not None and of_sum[cut] != [cut]):
        return None
    parts = kept | of_sum
    dims = [[[part for digit in dim for part in parts[digit]] for dim in own] for own in dims]
    digits = sorted({part for own in parts.values() for part in own})
    summed = [digit for digit in digits if digit.step >= SUMMED and digit != cut]
    name = {digit: ("summed", k, digit.extent) for k, digit in enumerate(summed)}
    name |= {digit: ("kept", digit.step, digit.extent) for digit in digits if digit.step < SUMMED}
    if cut is not None:
        name[cut] = ("cut", 0, 0)
        if any(cut in dim and leaf.along != d for k, leaf in enumerate(leaves) for d, dim in enumerate(dims[k])):
            return None
    found = [[[name[digit] for digit in dim] for dim in own] for own in dims]
    return found, None if cut is None else (start, start + cut.extent)


# --- the whole ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """A function of whole arrays, and over what it is reduced.

    Attributes:
        arrays: the values of the jaxpr that it is of.
        value: of these arrays, with a dimension for each label.
        labels: of its dimensions.
    """

    arrays: tuple[Atomic, ...]
    value: Callable[..., Array]
    labels: tuple[Label, ...]


def joined(
    parts: Sequence[tuple[Atomic, Dims]],
    makers: Makers,
    uses: Counter[Any],
    identity: Callable[[Atomic], Any],
) -> Whole | None:
    """What all elements of some arrays are as a function of whole arrays; None where they are none.

    Args:
        parts: the arrays, with the digits of their dimensions.
        makers: the equation that makes each value.
        uses: how often each value is used.
        identity: what two values have in common that are the same array.
    """
    ranges, signatures, chief = [], set(), None
    for atom, dims in parts:
        own = _Expression(makers, uses)
        tree = own.tree(atom, dims, first=True)
        labelled = _labelled(own.leaves) if own.equations else None
        if labelled is None or not _has_all(dims, *labelled):
            return None
        labels, cut = labelled
        ranges.append(cut)
        leaves = zip(own.leaves, labels, strict=True)
        signature = [(identity(leaf.array), leaf.along, str(of_leaf)) for leaf, of_leaf in leaves]
        signatures.add((tree, tuple(signature)))
        chief = chief or (own, tree, labels)
    assert chief is not None
    own, tree, labels = chief
    if len(signatures) != 1 or not _are_all(ranges, own.leaves):
        return None
    return _whole(own, tree, labels)


def _has_all(dims: Dims, labels: list[list[list[Label]]], cut: tuple[int, int] | None) -> bool:
    """Whether leaves have all that is reduced: what all of them repeat would be reduced once only."""
    every = {label for of_leaf in labels for dim in of_leaf for label in dim}
    size = math.prod(label[2] if label[0] != "cut" else 1 for label in every) * (cut[1] - cut[0] if cut else 1)
    return size == math.prod(digit.extent for dim in dims for digit in dim)


def _are_all(ranges: Sequence[tuple[int, int] | None], leaves: Sequence[Leaf]) -> bool:
    """Whether the ranges of slices are all of the arrays that they are of."""
    extents = {_shape(leaf.array)[leaf.along] for leaf in leaves if leaf.along is not None}
    if not extents:
        return len(ranges) == 1
    own = sorted(one for one in ranges if one is not None)
    follows = [start for start, _ in own] == [0, *(stop for _, stop in own[:-1])]
    return len(own) == len(ranges) and len(extents) == 1 and follows and own[-1][1] == extents.pop()


def _merged(
    layout: list[Label], flat: list[list[Label]], extents: dict[Label, int]
) -> tuple[list[Label], list[list[Label]]]:
    """Labels that are neighbours wherever they are, and reduced alike, made one: the fewer dimensions, the faster."""

    def joins(before: list[Label], label: Label) -> bool:
        last = before[-1]
        one = (last[0] == "kept") == (label[0] == "kept")
        if label[0] == "kept":
            one = one and last[1] == label[1] * label[2]
        return one and all(
            last in own and own[own.index(last) + 1 : own.index(last) + 2] == [label]
            for own in flat
            if last in own or label in own
        )

    groups = chains(layout, joins)
    firsts = {}
    for group in groups:
        kind, step = ("kept", group[-1][1]) if group[0][0] == "kept" else ("summed", len(firsts))
        firsts[group[0]] = (kind, step, math.prod(extents[label] for label in group))
    extents |= {label: label[2] for label in firsts.values()}
    new = lambda own: [firsts[label] for label in own if label in firsts]  # noqa: E731
    return new(layout), [new(own) for own in flat]


def _whole(own: _Expression, tree: tuple[Any, ...], labels: list[list[list[Label]]]) -> Whole | None:
    extents = {
        label: _shape(leaf.array)[d] if label[0] == "cut" else label[2]
        for leaf, dims in zip(own.leaves, labels, strict=True)
        for d, dim in enumerate(dims)
        for label in dim
    }
    flat = [[label for dim in dims for label in dim] for dims in labels]
    layout = next((one for one in flat if set(one) == set(extents)), None)
    if layout is None or any(len(set(one)) < len(one) for one in flat):
        return None
    layout, flat = _merged(layout, flat, extents)

    def spread(array: Array, has: Sequence[Label], wanted: Sequence[Label]) -> Array:
        shape = tuple(extents[label] for label in wanted)
        return lax.broadcast_in_dim(array, shape, [wanted.index(label) for label in has])

    def value(*arrays: Array) -> Array:
        left = iter(zip(own.leaves, flat, arrays, strict=True))

        def of(node: tuple[Any, ...], eqn: jax_core.JaxprEqn | None, k: int) -> tuple[Array, list[Label]]:
            if node[0] == "leaf":
                _, has, array = next(left)
                order = [label for label in layout if label in has]
                array = reshape(array, [extents[label] for label in has])
                return transpose(array, [has.index(label) for label in order]), order
            if node[0] == "literal":
                assert eqn is not None
                atom = eqn.invars[k]
                return lax.full((), atom.val, atom.aval.dtype), []  # type: ignore[attr-defined]
            maker = own.equations[node[2]]
            operands = [of(child, maker, j) for j, child in enumerate(node[3:])]
            wanted = [label for label in layout if any(label in has for _, has in operands)]
            given = [array if has == wanted else spread(array, has, wanted) for array, has in operands]
            return maker.primitive.bind(*given, **maker.params), wanted

        array, has = of(tree, None, 0)
        return array if has == layout else spread(array, has, layout)

    return Whole(tuple(leaf.array for leaf in own.leaves), value, tuple(layout))
