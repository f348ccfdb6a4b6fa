"""Sum rows: a sum over pieces that were put together is the sum of what each piece was made of.

Partial sums of one variable may be written by several families, where no number of parts divides what is summed, and
be added up in groups, which it does not divide either: a `reduce_sum` of a `concatenate` of slices, sums and products.
In memory all that is rows, each as long as the result, of which every one is added once. In comes a jaxpr, out comes
one in which such a sum is that of the rows of the values behind: of a product all of whose rows are added up,
`contract.py` makes one contraction. A product that was reshaped on the way, as rows of other dimensions, is
summed as it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, variables
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.views.digits import chains
from lowering.arrays import reshape, slice_
from lowering.jaxprs.rearrangement import rearrangement, rearranges
from lowering.jaxprs.remade import Remade, with_remade

_PRODUCTS = ("dot_general", "mul")
"""What a sum of rows may be contracted with."""


class _RowStretch(NamedTuple):
    """Rows of a value as it lies in memory: from the first up to, but not including, the last, for some of its uses."""

    root: Any
    first: int
    last: int
    uses: int = 1

    def is_part(self, row: int) -> bool:
        """Whether they are not all of the rows."""
        return (self.first, self.last) != (0, _size(self.root) // row)


def _size(atom: Atomic) -> int:
    return math.prod(atom.aval.shape)


def _lead(shape: Sequence[int], row: int) -> int | None:
    """How many leading dimensions number the rows; None where a row ends within a dimension."""
    inside, d = 1, len(shape)
    while inside < row and d:
        d -= 1
        inside *= shape[d]
    return d if inside == row else None


def _stretch_of(eqn: jax_core.JaxprEqn) -> tuple[int, int] | None:
    """Which stretch of its operand's memory a slice is; None where it is none."""
    shape, params = eqn.invars[0].aval.shape, eqn.params  # type: ignore[attr-defined]
    starts, stops = params["start_indices"], params["limit_indices"]
    cut = [d for d, n in enumerate(shape) if (starts[d], stops[d]) != (0, n)]
    is_dense = all(step == 1 for step in params["strides"] or ())
    if is_dense and not cut:
        return 0, math.prod(shape)
    if not is_dense or len(cut) != 1 or math.prod(shape[: cut[0]]) != 1:
        return None
    inner = math.prod(shape[cut[0] + 1 :])
    return starts[cut[0]] * inner, stops[cut[0]] * inner


def _merged(rows: list[_RowStretch]) -> list[_RowStretch]:
    """Rows, those of one value that follow each other together."""
    by_root: dict[Any, list[_RowStretch]] = {}
    for own in rows:
        by_root.setdefault(own.root, []).append(own)
    found = []
    for own in by_root.values():
        for chain in chains(sorted(own, key=lambda part: part.first), lambda row, part: row[-1].last == part.first):
            found.append(_RowStretch(chain[0].root, chain[0].first, chain[-1].last, sum(part.uses for part in chain)))
    return found


def _sum(rows: Sequence[_RowStretch], roots: Sequence[Any], shape: Sequence[int]) -> Any:
    """The sum of rows of some values, in the shape of one."""
    row, total = math.prod(shape), None
    for own, root in zip(rows, roots, strict=True):
        lead = None if own.is_part(row) else _lead(root.shape, row)
        if not lead:
            root = slice_(reshape(root, (root.size // row, row)), (own.first, 0), (own.last, row))
        # Of one row too, so that a product is brought to the form of a contraction.
        part = reshape(lax.reduce_sum(root, range(lead or 1)), shape)
        total = part if total is None else lax.add(total, part)
    return total


class _RowSums:
    """The sums of rows in a jaxpr."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self.makers = Makers(jaxpr.eqns)
        lists = (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
        self.uses = Counter(atom for atoms in lists for atom in variables(atoms))
        self.found = {eqn: rows for eqn in jaxpr.eqns if (rows := self._of(eqn))}

    def _behind(self, rows: _RowStretch, row: int) -> list[_RowStretch]:
        """The rows behind some rows, which are each as long as `row`, a step back; themselves where there are none."""
        maker = self.makers.of(rows.root)
        if maker is None or not maker.invars or self.uses[rows.root] != rows.uses:
            return [rows]
        if isinstance(maker.invars[0], jax_core.Literal):
            return [rows]
        operand: Any = maker.invars[0]
        every, found = _RowStretch(operand, 0, _size(operand) // row), None
        if rearranges(maker):
            view = rearrangement(rows.root, Makers([maker]), stop=lambda _: False)
            if view.root is operand and view.is_in_order and _size(operand) == _size(rows.root):
                found = [every._replace(first=rows.first, last=rows.last)]
        elif is_understood(maker, "concatenate"):
            found = self._pieces(maker, rows, row)
        elif is_understood(maker, "slice"):
            stretch = _stretch_of(maker)
            if stretch is not None and stretch[0] % row == 0:
                first = stretch[0] // row
                found = [_RowStretch(operand, first + rows.first, first + rows.last)]
        elif is_understood(maker, "reduce_sum") and not rows.is_part(row):
            lead = _lead(operand.aval.shape, row)
            found = [every] if lead is not None and all(axis < lead for axis in maker.params["axes"]) else None
        return [rows] if found is None else found

    def _rows(self, operand: Any, row: int) -> list[_RowStretch]:
        """The rows furthest behind all of a value."""
        rows, before = [_RowStretch(operand, 0, _size(operand) // row)], None
        while rows != before:
            before, rows = rows, _merged([own for part in rows for own in self._behind(part, row)])
        return rows

    def _pieces(self, eqn: jax_core.JaxprEqn, rows: _RowStretch, row: int) -> list[_RowStretch] | None:
        """The rows of the pieces of a concatenation."""
        if math.prod(eqn.outvars[0].aval.shape[: eqn.params["dimension"]]) != 1:  # type: ignore[attr-defined]
            return None
        found, start = [], 0
        for piece in eqn.invars:
            if _size(piece) % row:
                return None
            stop = start + _size(piece) // row
            first, last = max(start, rows.first), min(stop, rows.last)
            if first < last:
                found.append(_RowStretch(piece, first - start, last - start))
            start = stop
        return None if any(isinstance(own.root, jax_core.Literal) for own in found) else found

    def _of(self, eqn: jax_core.JaxprEqn) -> list[_RowStretch]:
        """The rows behind a sum; none where that is what it is a sum of."""
        (made,) = eqn.outvars if is_understood(eqn, "reduce_sum") else (None,)
        operand = eqn.invars[0] if eqn.invars else None
        if made is None or isinstance(operand, jax_core.Literal) or not _size(operand):
            return []
        dtype, row = made.aval.dtype, _size(made)  # type: ignore[attr-defined]
        wide = jnp.issubdtype(dtype, jnp.integer) or (jnp.issubdtype(dtype, jnp.inexact) and dtype.itemsize >= 4)
        lead = _lead(operand.aval.shape, row)  # type: ignore[union-attr]
        summed = [int(axis) for axis in eqn.params["axes"] if operand.aval.shape[axis] != 1]  # type: ignore[union-attr]
        if not wide or lead is None or any(axis >= lead for axis in summed):
            return []
        rows = self._rows(operand, row)
        roots = [rearrangement(own.root, self.makers, stop=lambda _: False).root for own in rows]
        made_of = [self.makers.of(root) for root in roots]
        gains = any(maker is not None and is_understood(maker, *_PRODUCTS) for maker in made_of)
        is_other = roots != [rearrangement(operand, self.makers, stop=lambda _: False).root]
        # Of a product that was reshaped, dimensions may be none that its operands have.
        is_reshaped = [own.root for own in rows] == roots != [operand]
        return rows if gains and (is_other or is_reshaped) else []


def sum_rows(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums over pieces as sums of what these are made of, in the bodies of loops as well."""
    closed = inline(closed)
    found = {}
    for eqn, rows in _RowSums(closed.jaxpr).found.items():
        shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
        run = lambda *roots, rows=rows, shape=shape: [_sum(rows, roots, shape)]  # noqa: E731
        found[eqn] = Remade([own.root for own in rows], run)
    return with_remade(closed, found, sum_rows)
