"""Reduced maps: codelets that reduce what an elementwise function makes of their fields, inner products among them.

In comes a codelet, however it is written; out comes of which fields it sums the products, or reduces what function, and
how: exponentials of a row less its largest, added up, as much as a row itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bind
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import inline
from codelet.refused import Refused
from codelet.tracing.alike import alike
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet
from lowering.arrays import SMALL
from lowering.jaxprs.contraction import is_exact, precision_of
from lowering.jaxprs.rearrangement import rearrangement, rearranges

SUM = "reduce_sum"


class ReducedMap(NamedTuple):
    """What a codelet reduces to one number.

    Attributes:
        fields: those that its terms are of: two that are multiplied, or one, where there is no `term`; none where the
            codelet gives zero.
        shape: of the terms.
        dims: for each field along which dimensions of the terms its are that have several elements.
        term: what a term is of an element of each field, if it is more than that element, or the product of two.
        name: of the reduction.
        precision: of products.
        reduced_in: the dtype of the terms' reduction; None of no fields.
    """

    fields: tuple[str, ...]
    shape: tuple[int, ...] = ()
    dims: tuple[tuple[int, ...], ...] = ()
    term: jax_core.ClosedJaxpr | None = None
    name: str = SUM
    precision: Any = None
    reduced_in: np.dtype | None = None


def are_alike(one: ReducedMap, other: ReducedMap) -> bool:
    """Whether two reduce the same function in the same way, of whatever shapes and fields."""
    same = [(each.name, each.precision, each.reduced_in, len(each.fields)) for each in (one, other)]
    if same[0] != same[1] or one.term is None or other.term is None:
        return same[0] == same[1] and one.term is other.term
    return alike(one.term, {}, other.term)


def is_rounded(name: str, dtype: Any) -> bool:
    """Whether results of a reduction in stages would be rounded otherwise than in one: those of 16 bits."""
    return name in (SUM, "reduce_prod") and jnp.issubdtype(dtype, jnp.inexact) and np.dtype(dtype).itemsize < 4


def _maker(atom: Any, makers: Makers) -> jax_core.JaxprEqn | None:
    """What makes a value, but for how it is arranged."""
    if isinstance(atom, jax_core.Literal):
        return None
    return makers.of(rearrangement(atom, makers, stop=lambda _: False).root)


def _convolves(precision: Any) -> bool:
    """Whether a convolution can be as precise: it knows no algorithms of dots."""
    parts = precision if isinstance(precision, tuple) else (precision,)
    return all(part is None or isinstance(part, lax.Precision) for part in parts)


def _is_zero(closed: jax_core.ClosedJaxpr, makers: Makers) -> bool:
    """Whether the only result is zero, whatever is read."""
    (value,), known = closed.jaxpr.outvars, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    while not isinstance(value, jax_core.Literal) and value not in known:
        maker = makers.of(value)
        if maker is None or not is_understood(maker, "broadcast_in_dim", "convert_element_type", "reshape"):
            return False
        value = maker.invars[0]
    number = value.val if isinstance(value, jax_core.Literal) else known[value]
    return not isinstance(number, Tracer) and np.size(number) <= SMALL and not np.any(np.asarray(number))


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


# --- terms ------------------------------------------------------------------------------------------------


TermDimensions = tuple[int | None, ...]
"""Along which dimension of the terms each dimension of a value runs; None along none, where it has one element."""


def _source_along(maker: jax_core.JaxprEqn, along: TermDimensions) -> TermDimensions | None:
    """Along which dimensions what an equation rearranges or repeats runs; None where it does something else."""
    if len(maker.invars) != 1:
        return None
    shape = _shape(maker.invars[0])
    if is_understood(maker, "broadcast_in_dim"):
        places = maker.params["broadcast_dimensions"]
        return tuple(None if n == 1 else along[int(d)] for n, d in zip(shape, places, strict=True))
    if is_understood(maker, "transpose"):
        order = [int(d) for d in maker.params["permutation"]]
        return tuple(along[order.index(d)] for d in range(len(order)))
    is_reshape = is_understood(maker, "reshape") and maker.params["dimensions"] is None
    if is_reshape or is_understood(maker, "squeeze") or (is_understood(maker, SUM) and rearranges(maker)):
        long = [(n, d) for n, d in zip(_shape(maker.outvars[0]), along, strict=True) if n != 1]
        if [n for n, _ in long] == [n for n in shape if n != 1]:
            rest = iter(d for _, d in long)
            return tuple(None if n == 1 else next(rest) for n in shape)
    return None


@dataclass
class _Terms:
    """What is reduced as a function of fields, whose elements each term is of in the order in which it meets them."""

    makers: Makers
    names: Mapping[Any, str]
    leaves: list[tuple[Any, TermDimensions]] = field(default_factory=list)
    computes: bool = False
    known: dict[tuple[Any, TermDimensions], bool] = field(default_factory=dict)

    def are_known(self, atom: Atomic, along: TermDimensions) -> bool:
        """Whether a value is a function of fields, element by element; its fields are noted."""
        if isinstance(atom, jax_core.Literal):
            return not _shape(atom)
        if (atom, along) not in self.known:
            self.known[atom, along] = self._are_known(atom, along)
        return self.known[atom, along]

    def _are_known(self, atom: Any, along: TermDimensions) -> bool:
        maker = self.makers.of(atom)
        if maker is None:
            self.leaves.append((atom, along))
            return atom in self.names
        if is_understood(maker, *ELEMENTWISE) and len(maker.outvars) == 1:
            self.computes = True
            return all(self.are_known(operand, along if _shape(operand) else ()) for operand in maker.invars)
        source = _source_along(maker, along)
        return source is not None and self.are_known(maker.invars[0], source)

    def of(self, atom: Atomic, along: TermDimensions, made: dict[tuple[Any, TermDimensions], Any]) -> Any:
        """A term, of the elements of the fields, which are among what is made of it."""
        if isinstance(atom, jax_core.Literal):
            return lax.full((), atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        if (atom, along) not in made:
            maker = self.makers.of(atom)
            assert maker is not None
            if is_understood(maker, *ELEMENTWISE):
                operands = [self.of(operand, along if _shape(operand) else (), made) for operand in maker.invars]
                made[atom, along] = bind(maker, operands)[0]
            else:
                made[atom, along] = self.of(maker.invars[0], _source_along(maker, along) or (), made)
        return made[atom, along]


def _terms(
    name: str, atom: Atomic, makers: Makers, codelet: TracedCodelet, names: Mapping[Any, str]
) -> ReducedMap | Refused:
    """All elements of a value, as terms."""
    shape = _shape(atom)
    terms, along = _Terms(makers, names), tuple(d if n != 1 else None for d, n in enumerate(shape))
    if not terms.are_known(atom, along) or not terms.leaves:
        return Refused("what it reduces is no function of its fields, element by element")
    dims = tuple(tuple(d for d in along if d is not None) for _, along in terms.leaves)
    if {d for places in dims for d in places} != {d for d, n in enumerate(shape) if n != 1}:
        return Refused("it reduces one element several times")
    fields, dtype = tuple(names[leaf] for leaf, _ in terms.leaves), atom.aval.dtype  # type: ignore[attr-defined]
    if not terms.computes:
        return ReducedMap(fields, shape, dims, None, name, None, dtype)
    numbers = [jax.ShapeDtypeStruct((), codelet.inputs[name].dtype) for name in fields]
    with restored(codelet.settings):
        term = jax.make_jaxpr(lambda *numbers: terms.of(atom, along, dict(zip(terms.leaves, numbers, strict=True))))(
            *numbers
        )
    return ReducedMap(fields, shape, dims, term, name, None, dtype)


def reduced_map(codelet: TracedCodelet, name: str | None = None) -> ReducedMap | Refused:
    """What a codelet reduces to its only result, of one element.

    Args:
        codelet: which.
        name: of the reduction that it is where it is of one element, and no equation says so.
    """
    closed = inline(codelet.jaxpr)
    jaxpr = closed.jaxpr
    makers = Makers(jaxpr.eqns)
    if len(codelet.outputs) != 1 or jaxpr.effects:
        return Refused("the codelet has several results, or effects")
    (result,), names = jaxpr.outvars, dict(zip(jaxpr.invars, codelet.inputs, strict=True))
    if _is_zero(closed, makers):
        return ReducedMap(())
    if math.prod(_shape(result)) != 1:
        return Refused("its result is a block")
    last = _maker(result, makers)
    if last is not None and is_understood(last, "convert_element_type"):
        before = _maker(last.invars[0], makers)
        last = before if before is not None and is_understood(before, "dot_general", *REDUCTIONS) else last
    of_one = ("mul",) if name == SUM else ()
    if last is not None and is_understood(last, "dot_general", SUM, *of_one):
        product = _product(last, makers, names, codelet)
        if isinstance(product, ReducedMap) or last.primitive.name == "dot_general":
            return product if not _shape(result) else Refused("its result is a block")
    if last is not None and is_understood(last, *REDUCTIONS):
        return _terms(last.primitive.name, last.invars[0], makers, codelet, names)
    return Refused("it reduces nothing") if name is None else _terms(name, result, makers, codelet, names)


def _all_of(atom: Any, makers: Makers, names: Mapping[Any, str]) -> str | None:
    """The field of which a value has every element once, in its order."""
    view = rearrangement(atom, makers, stop=lambda _: False)
    return names.get(view.root) if view.is_in_order and not isinstance(view.root, jax_core.Literal) else None


def _product(
    last: jax_core.JaxprEqn, makers: Makers, names: Mapping[Any, str], codelet: TracedCodelet
) -> ReducedMap | Refused:
    """The products that an equation sums whose result is one number, or the one that it is; not of integers."""
    product = makers.of(last.invars[0]) if last.primitive.name == SUM else last
    is_dot = last.primitive.name == "dot_general"
    if is_dot and len(set(last.params["dimension_numbers"][0])) != 1:
        return Refused("it sums no products element by element")
    if product is None or not (is_dot or (is_understood(product, "mul") and is_exact(product))):
        return Refused("what it sums are no products, or products that are rounded before")
    if product is not last and len(last.params["axes"]) != len(_shape(last.invars[0])):
        return Refused("it sums along some dimensions")
    dtype, precision = last.outvars[0].aval.dtype, precision_of(product)  # type: ignore[attr-defined]
    factors = [_all_of(atom, makers, names) for atom in product.invars]
    named = tuple(factor for factor in factors if factor is not None)
    if len(names) != 2 or len(set(named)) != 2 or not _convolves(precision) or not jnp.issubdtype(dtype, jnp.inexact):
        return Refused("it multiplies no two fields of floats or complex numbers, element by element")
    kind = codelet.inputs[named[0]]
    if kind != codelet.inputs[named[1]]:
        return Refused("its factors are of other types")
    every = tuple(d for d, n in enumerate(kind.shape) if n != 1)
    return ReducedMap(named, kind.shape, (every, every), None, SUM, precision, dtype)


def as_inner_product(codelet: TracedCodelet) -> ReducedMap | Refused:
    """A codelet as the inner product of two fields of floats, element by element: what may be a convolution."""
    found = reduced_map(codelet)
    if isinstance(found, Refused):
        return found
    if len(found.fields) != 2 or found.term is not None or np.issubdtype(found.reduced_in, np.complexfloating):
        return Refused("it multiplies no two fields of floats, element by element")
    return found
