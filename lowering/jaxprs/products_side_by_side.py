"""Products side by side: the products of all parts of a value with another are parts of the product of the values.

A product whose operands do not fit the tiles at once is planned in turns, each of some rows, columns or batches of the
result: products of slices of one operand, each written where it belongs. In comes a jaxpr with results that are put
together so, by `concatenate` or by one `dynamic_update_slice` after another; out comes one in which each is one product
of what was divided. Where each is added to a part of another value, so that the cotangents of one variable are of
several products, it is added to all of that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, use_counts
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from lowering.arrays import reshape
from lowering.jaxprs.contraction import dimension_roles
from lowering.jaxprs.parts import Part, behind, part_of
from lowering.jaxprs.remade import Remade, with_remade


class _Shared(NamedTuple):
    """An operand that all products have: a value, in a shape."""

    root: Atomic
    shape: tuple[int, ...]


class _PartProduct(NamedTuple):
    """A product, and what its operands are, of which one at least is a part."""

    eqn: jax_core.JaxprEqn
    operands: tuple[Part | _Shared, Part | _Shared]

    def is_like(self, other: _PartProduct) -> bool:
        """Whether it differs from another in the part alone that it is of."""
        return self.eqn.params == other.eqn.params and all(map(_are_alike, self.operands, other.operands))

    @property
    def roots(self) -> list[Atomic]:
        """What was divided, and what is shared."""
        return [own.root for own in self.operands]

    def made(self, values: Sequence[Any], shape: Sequence[int]) -> Any:
        """The product of the whole, in a shape."""
        left, right = (reshape(value, own.shape) for value, own in zip(values, self.operands, strict=True))
        params = self.eqn.params
        numbers, kind = params["dimension_numbers"], params["preferred_element_type"]
        made = lax.dot_general(left, right, numbers, precision=params["precision"], preferred_element_type=kind)
        return reshape(made, shape)


def _without(eqn: jax_core.JaxprEqn, side: int, d: int) -> dict[str, Any]:
    """The parameters of a dot of an operand without one of its dimensions, which is that operand's alone."""
    pairs = [list(own) for own in eqn.params["dimension_numbers"]]
    for pair in pairs:
        pair[side] = tuple(k - (k > d) for k in pair[side])
    return {**eqn.params, "dimension_numbers": tuple(map(tuple, pairs))}


def _are_alike(own: Part | _Shared, other: Part | _Shared) -> bool:
    if isinstance(own, Part) and isinstance(other, Part):
        return own.is_like(other)
    return own == other


class _ProductSum(NamedTuple):
    """A value that a product is added to, part by part."""

    whole: Part
    at: int
    """Which operand of the sums the value is."""
    product: _PartProduct

    @property
    def roots(self) -> list[Atomic]:
        """The value, and what the product is of."""
        return [self.whole.root, *self.product.roots]

    def made(self, values: Sequence[Any], shape: Sequence[int]) -> Any:
        """The sum of the whole, in a shape."""
        terms = [reshape(values[0], shape), self.product.made(values[1:], shape)]
        return lax.add(*(terms if self.at == 0 else terms[::-1]))


class _StretchPiece(NamedTuple):
    """A piece of a value in memory: the same stretch of every block, of which there are so many."""

    value: Atomic
    blocks: int
    start: int
    size: int


def _piece(eqn: jax_core.JaxprEqn) -> _StretchPiece | None:
    """What a `dynamic_update_slice` writes; None where that is not known, or is cut along several dimensions."""
    whole, update, *starts = eqn.invars
    shape, own = whole.aval.shape, update.aval.shape  # type: ignore[attr-defined]
    cut = [d for d, (one, n) in enumerate(zip(own, shape, strict=True)) if one < n]
    if len(cut) != 1 or not all(isinstance(atom, jax_core.Literal) for atom in starts):
        return None
    (d,) = cut
    start = int(starts[d].val) * math.prod(shape[d + 1 :])  # type: ignore[attr-defined]
    return _StretchPiece(update, math.prod(shape[:d]), start, math.prod(own[d:]))


class _SideBySide:
    """The values of a jaxpr that are products side by side."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self.makers = Makers(jaxpr.eqns)
        self.uses = use_counts(jaxpr)
        self.products: dict[jax_core.JaxprEqn, _PartProduct | _ProductSum] = {}
        if not any(is_understood(eqn, "dot_general") for eqn in jaxpr.eqns):
            return
        for eqn in reversed(jaxpr.eqns):
            product = self._whole(eqn) if is_understood(eqn, "concatenate", "dynamic_update_slice") else None
            if product is not None:
                self.products[eqn] = product

    def _pieces(self, eqn: jax_core.JaxprEqn) -> list[_StretchPiece]:
        """What together are all of a value; nothing where that is not known."""
        if is_understood(eqn, "concatenate"):
            d = int(eqn.params["dimension"])
            sizes = [math.prod(atom.aval.shape[d:]) for atom in eqn.invars]  # type: ignore[attr-defined]
            blocks = math.prod(eqn.outvars[0].aval.shape[:d])  # type: ignore[attr-defined]
            starts = itertools.accumulate(sizes, initial=0)
            return [
                _StretchPiece(*own) for own in zip(eqn.invars, itertools.repeat(blocks), starts, sizes, strict=False)
            ]
        size, found = math.prod(eqn.outvars[0].aval.shape), []  # type: ignore[attr-defined]
        maker: jax_core.JaxprEqn | None = eqn
        while maker is not None and is_understood(maker, "dynamic_update_slice"):
            piece, before = _piece(maker), maker.invars[0]
            if piece is None:
                break
            found.append(piece)
            value, maker = behind(before, self.makers)
            if self.uses[before] > 1 or self.uses[value] > 1:
                break
        found.sort(key=lambda own: own.start)
        ends = list(itertools.accumulate((own.size for own in found), initial=0))
        is_all = [*(own.start for own in found), size] == [*ends[:-1], ends[-1] * (found[0].blocks if found else 0)]
        return found if is_all and len({own.blocks for own in found}) == 1 else []

    def _product(self, piece: _StretchPiece) -> _PartProduct | None:
        """A piece as a product of parts; None if it is none."""
        value, eqn = behind(piece.value, self.makers)
        if eqn is None or not is_understood(eqn, "dot_general") or 0 in value.aval.shape:
            return None
        if self.uses[piece.value] > 1 or self.uses[value] > 1:
            return None
        for own in dimension_roles(eqn):
            # It has as many blocks; what is behind it may be in whatever shape.
            if own[2] is None or math.prod(value.aval.shape[: own[2]]) != piece.blocks:
                continue
            left, right = (self._operand(operand, at) for operand, at in zip(eqn.invars, own[:2], strict=True))
            if left is not None and right is not None:
                return _PartProduct(eqn, (left, right))
        return None

    def _of_one(self, piece: _StretchPiece, like: _PartProduct) -> _PartProduct | None:
        """A piece of one row, which its product has no dimension for, as a product like another; None if it is none."""
        value, eqn = behind(piece.value, self.makers)
        sides = [k for k, own in enumerate(like.operands) if isinstance(own, Part)]
        if eqn is None or not is_understood(eqn, "dot_general") or len(sides) > 1:
            return None
        (k,) = sides
        part = like.operands[k]
        assert isinstance(part, Part)
        if _without(like.eqn, k, part.dimension) != eqn.params or 0 in value.aval.shape:
            return None
        if self.uses[piece.value] > 1 or self.uses[value] > 1 or isinstance(eqn.invars[k], jax_core.Literal):
            return None
        own = eqn.invars[k].aval.shape  # type: ignore[attr-defined]
        shape = (*own[: part.dimension], 1, *own[part.dimension :])
        found = [part_of(eqn.invars[k], part.dimension, self.makers, shape), self._operand(eqn.invars[1 - k], None)]
        left, right = found if k == 0 else found[::-1]
        return None if left is None or right is None else _PartProduct(like.eqn, (left, right))

    def _operand(self, operand: Any, d: int | None) -> Part | _Shared | None:
        """What an operand is: a part along a dimension, or, without one, shared."""
        if isinstance(operand, jax_core.Literal):
            return None
        if d is not None:
            return part_of(operand, d, self.makers)
        return _Shared(behind(operand, self.makers)[0], tuple(operand.aval.shape))

    def _whole(self, eqn: jax_core.JaxprEqn) -> _PartProduct | _ProductSum | None:
        """What is put together as a product of the whole, or what that is added to; None if it is none."""
        pieces = self._pieces(eqn)
        if len(pieces) < 2:
            return None
        return self._as_product(pieces) or (self._as_sum(eqn, pieces) if is_understood(eqn, "concatenate") else None)

    def _as_product(self, pieces: Sequence[_StretchPiece]) -> _PartProduct | None:
        """All pieces as a product; None if they are none."""
        found = [self._product(piece) for piece in pieces]
        first = next((own for own in found if own is not None), None)
        if first is not None:
            found = [own or self._of_one(piece, first) for own, piece in zip(found, pieces, strict=True)]
        products = [product for product in found if product is not None]
        if len(products) < len(found) or not all(product.is_like(products[0]) for product in products):
            return None
        for own in zip(*(product.operands for product in products), strict=True):
            parts = [part for part in own if isinstance(part, Part)]
            if parts and not _are_all(parts):
                return None
        return products[0]

    def _as_sum(self, eqn: jax_core.JaxprEqn, pieces: Sequence[_StretchPiece]) -> _ProductSum | None:
        """All pieces of what is concatenated as a product and what it is added to; None if they are none."""
        makers = [self.makers.of(piece.value) for piece in pieces]
        sums = [maker for maker in makers if maker is not None and is_understood(maker, "add", "add_any")]
        if len(sums) < len(makers) or any(self.uses[piece.value] > 1 for piece in pieces):
            return None
        if any(atom.aval.shape != own.outvars[0].aval.shape for own in sums for atom in own.invars):  # type: ignore[attr-defined]
            return None
        for at in (0, 1):
            found = [part_of(own.invars[at], int(eqn.params["dimension"]), self.makers) for own in sums]
            parts = [part for part in found if part is not None]
            if len(parts) < len(found) or not all(part.is_like(parts[0]) for part in parts) or not _are_all(parts):
                continue
            others = [piece._replace(value=own.invars[1 - at]) for piece, own in zip(pieces, sums, strict=True)]
            product = self._as_product(others)
            if product is not None and parts[0].shape == eqn.outvars[0].aval.shape:  # type: ignore[attr-defined]
                return _ProductSum(parts[0], at, product)
        return None


def _are_all(parts: Sequence[Part]) -> bool:
    """Whether parts are all of what they are of, in order."""
    ends = list(itertools.accumulate((part.extent for part in parts), initial=0))
    whole = parts[0].shape[parts[0].dimension]
    return [*(part.start for part in parts), whole] == ends and all(part.lies_so for part in parts)


def join_side_by_side(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with the products of all parts of a value as one product, in the bodies of loops as well."""
    closed = inline(closed)
    found = {}
    for eqn, whole in _SideBySide(closed.jaxpr).products.items():
        shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
        found[eqn] = Remade(whole.roots, lambda *values, whole=whole, shape=shape: [whole.made(values, shape)])
    return with_remade(closed, found, join_side_by_side)
