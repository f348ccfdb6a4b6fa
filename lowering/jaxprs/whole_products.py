"""Whole products: the sum of the products of all parts of two values is the product of the values.

What is summed over is cut in parts of one length and one that is left over; partial products of each are contracted to
one product (`sum_rows.py`, `contract.py`). In comes a jaxpr with sums of products, of what `split`s or `slice`s divide
along what is contracted; out comes one in which each is one product of what was divided. An operand of which there are
parts only, as what was gathered part by part, is put together where it is no larger than what was divided.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, variables
from codelet.jaxprs.primitives import is_understood
from lowering.jaxprs.parts import Part, part_of
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.wholes import dot_of, with_wholes


class _Alone(NamedTuple):
    """An operand that is a part of nothing that is known, which of its dimensions is contracted, and its shape."""

    value: Any
    dimension: int
    shape: tuple[int, ...]

    def is_like(self, other: _Alone) -> bool:
        """Whether it can be put together with another."""
        free = lambda own: (*own.shape[: own.dimension], *own.shape[own.dimension + 1 :])  # noqa: E731
        same_dtype = self.value.aval.dtype == other.value.aval.dtype
        return self.dimension == other.dimension and free(self) == free(other) and same_dtype


class _ProductOfParts(NamedTuple):
    """A product of parts, one of them of something that is known, and how what is added up is arranged of it."""

    view: Rearrangement
    eqn: jax_core.JaxprEqn
    parts: tuple[Part | _Alone, Part | _Alone]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where the parts lie along what is contracted, as far as it is known."""
        return [part.place for part in self.parts if isinstance(part, Part)]

    def is_like(self, other: _ProductOfParts) -> bool:
        """Whether it differs from another in the part alone that it is of."""
        (_, batch), kept = self.eqn.params["dimension_numbers"], ("precision", "preferred_element_type")
        if any(self.eqn.params[name] != other.eqn.params[name] for name in kept) or self.view.dims != other.view.dims:
            return False
        same = self.eqn.params["dimension_numbers"] == other.eqn.params["dimension_numbers"]
        pairs = zip(self.parts, other.parts, strict=True)
        alike = all(type(own) is type(one) and own.is_like(one) for own, one in pairs)  # type: ignore[arg-type]
        return alike and (same or batch == ((), ()))


class _WholeProduct(NamedTuple):
    """Products of parts that together are all of what was divided.

    Attributes:
        like: one of them.
        products: all, in the order of the parts.
    """

    like: _ProductOfParts
    products: list[_ProductOfParts]

    def _values(self, side: int) -> list[Atomic]:
        part = self.like.parts[side]
        return [part.root] if isinstance(part, Part) else [own.parts[side].value for own in self.products]  # type: ignore[union-attr]

    @property
    def roots(self) -> list[Atomic]:
        """What was divided, or the parts of what is put together: the left operand's, then the right one's."""
        return [*self._values(0), *self._values(1)]

    def made(self, values: Sequence[Any], shape: Sequence[int]) -> Any:
        """The product of the whole."""
        view, eqn, parts = self.like
        first = len(self._values(0))
        operands, shapes = [], []
        for part, own in zip(parts, (values[:first], values[first:]), strict=True):
            operands.append(own[0] if isinstance(part, Part) else lax.concatenate(own, part.dimension))
            shapes.append(part.shape if isinstance(part, Part) else operands[-1].shape)
        left, right = operands
        return rearrange(dot_of(eqn, left, right, shapes), view.digits, shape)


class _WholeSums:
    """The sums in a jaxpr that are whole products."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self.makers: dict[Any, jax_core.JaxprEqn] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        lists = (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
        self.uses = Counter(atom for atoms in lists for atom in variables(atoms))
        self.found: dict[jax_core.JaxprEqn, _WholeProduct] = {}
        for eqn in jaxpr.eqns if any(is_understood(eqn, "split", "slice") for eqn in jaxpr.eqns) else ():
            whole = self._whole(eqn) if is_understood(eqn, "add") else None
            if whole is not None:
                self.found[eqn] = whole

    def _terms(self, eqn: jax_core.JaxprEqn) -> list[Atomic]:
        """What a sum adds up, sums within it taken apart."""
        found = []
        for atom in eqn.invars:
            maker = None if isinstance(atom, jax_core.Literal) or self.uses[atom] > 1 else self.makers.get(atom)
            is_sum = maker is not None and is_understood(maker, "add")
            found += self._terms(maker) if maker is not None and is_sum else [atom]
        return found

    def _product(self, atom: Atomic) -> _ProductOfParts | None:
        """What is added up as a product of parts; None if it is none."""
        view = rearrangement(atom, self.makers, stop=lambda own: self.uses[own] > 1)
        eqn = None if isinstance(view.root, jax_core.Literal) else self.makers.get(view.root)
        if eqn is None or self.uses[view.root] > 1 or not is_understood(eqn, "dot_general"):
            return None
        summed = eqn.params["dimension_numbers"][0]
        if len(summed[0]) != 1:
            return None
        pairs = [(operand, d) for operand, (d,) in zip(eqn.invars, summed, strict=True)]
        left, right = (part_of(operand, d, self.makers) or self._alone(operand, d) for operand, d in pairs)
        if left is None or right is None or not (isinstance(left, Part) or isinstance(right, Part)):
            return None
        return _ProductOfParts(view, eqn, (left, right))

    def _alone(self, operand: Atomic, d: int) -> _Alone | None:
        if isinstance(operand, jax_core.Literal):
            return None
        return _Alone(operand, d, tuple(operand.aval.shape))  # type: ignore[attr-defined]

    def _whole(self, eqn: jax_core.JaxprEqn) -> _WholeProduct | None:
        """A sum as a product of the whole; None if it is none."""
        terms = [self._product(atom) for atom in self._terms(eqn)]
        products = [term for term in terms if term is not None]
        if len(products) < len(terms) or any(own.places[0] != own.places[-1] for own in products):
            return None
        products.sort(key=lambda own: own.places[0])
        first = max(products, key=lambda own: own.places[0][1])
        ends = [0, *itertools.accumulate(own.places[0][1] for own in products)]
        parts = [part for part in first.parts if isinstance(part, Part)]
        every = [own.places[0][0] for own in products] == ends[:-1] and all(own.is_like(first) for own in products)
        if not every or not all(part.lies_so and part.shape[part.dimension] == ends[-1] for part in parts):
            return None
        sizes = [math.prod(part.shape) for part in parts]
        joined = [part for own in products for part in own.parts if isinstance(part, _Alone)]
        return _WholeProduct(first, products) if sum(math.prod(part.shape) for part in joined) <= max(sizes) else None


def join_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of the products of all parts as products, in the bodies of loops as well."""
    return with_wholes(closed, lambda jaxpr: _WholeSums(jaxpr).found)
