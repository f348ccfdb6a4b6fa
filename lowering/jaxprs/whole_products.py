"""Whole products: the sum of the products of all parts of two values is the product of the values.

What is summed over is cut in parts of one length and one that is left over; partial products of each are contracted to
one product (`sum_rows.py`, `contract.py`). In comes a jaxpr with sums of products, of what `split`s or `slice`s divide
along what is contracted; out comes one in which each is one product of what was divided.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, variables
from codelet.jaxprs.primitives import is_understood
from lowering.jaxprs.parts import Part, part_of
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.wholes import dot_of, with_wholes


class _Product(NamedTuple):
    """A product of parts, and how what is added up is arranged of it."""

    view: Rearrangement
    eqn: jax_core.JaxprEqn
    parts: tuple[Part, Part]

    def is_like(self, other: _Product) -> bool:
        """Whether it differs from another in the part alone that it is of."""
        (_, batch), kept = self.eqn.params["dimension_numbers"], ("precision", "preferred_element_type")
        if any(self.eqn.params[name] != other.eqn.params[name] for name in kept) or self.view.dims != other.view.dims:
            return False
        same = self.eqn.params["dimension_numbers"] == other.eqn.params["dimension_numbers"]
        alike = all(own.is_like(one) for own, one in zip(self.parts, other.parts, strict=True))
        return alike and (same or batch == ((), ()))


class _Whole(NamedTuple):
    """Products of parts that together are all of what was divided, like one of them."""

    like: _Product

    @property
    def roots(self) -> list[Atomic]:
        """What was divided."""
        return [part.root for part in self.like.parts]

    def made(self, left: Any, right: Any, shape: Sequence[int]) -> Any:
        """The product of the whole."""
        view, eqn, parts = self.like
        return rearrange(dot_of(eqn, left, right, [part.shape for part in parts]), view.digits, shape)


class _Sums:
    """The sums in a jaxpr that are whole products."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self.makers: dict[Any, jax_core.JaxprEqn] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        lists = (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
        self.uses = Counter(atom for atoms in lists for atom in variables(atoms))
        self.found: dict[jax_core.JaxprEqn, _Whole] = {}
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

    def _product(self, atom: Atomic) -> _Product | None:
        """What is added up as a product of parts; None if it is none."""
        view = rearrangement(atom, self.makers, stop=lambda own: self.uses[own] > 1)
        eqn = None if isinstance(view.root, jax_core.Literal) else self.makers.get(view.root)
        if eqn is None or self.uses[view.root] > 1 or not is_understood(eqn, "dot_general"):
            return None
        summed = eqn.params["dimension_numbers"][0]
        if len(summed[0]) != 1:
            return None
        left, right = (part_of(operand, d, self.makers) for operand, (d,) in zip(eqn.invars, summed, strict=True))
        return None if left is None or right is None else _Product(view, eqn, (left, right))

    def _whole(self, eqn: jax_core.JaxprEqn) -> _Whole | None:
        """A sum as a product of the whole; None if it is none."""
        terms = [self._product(atom) for atom in self._terms(eqn)]
        products = [term for term in terms if term is not None]
        if len(products) < len(terms):
            return None
        first = max(products, key=lambda own: own.parts[0].extent)
        places = sorted([part.place for part in own.parts] for own in products)
        ends = [0, *itertools.accumulate(extent for (_, extent), _ in places)]
        every = all(left == right for left, right in places) and [left[0] for left, _ in places] == ends[:-1]
        every = every and all(part.lies_so and part.shape[part.dimension] == ends[-1] for part in first.parts)
        return _Whole(first) if every and all(own.is_like(first) for own in products) else None


def join_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of the products of all parts as products, in the bodies of loops as well."""
    return with_wholes(closed, lambda jaxpr: _Sums(jaxpr).found)
