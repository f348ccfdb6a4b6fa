"""Inner products: codelets that multiply two fields element by element and add up; or add up one; or give zero.

In comes a codelet, however it is written; out comes of which fields it sums the products, and how these are summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.refused import Refused
from codelet.tracing.traced_codelet import TracedCodelet
from lowering.arrays import SMALL
from lowering.jaxprs.contraction import is_exact, precision_of
from lowering.jaxprs.rearrangement import rearrangement


class InnerProduct(NamedTuple):
    """What a codelet sums over all elements of its fields.

    Attributes:
        fields: the two that are multiplied, or the one that is summed; none where the codelet gives zero.
        precision: of the products.
        summed_in: the dtype of the sum; None of no fields.
    """

    fields: tuple[str, ...]
    precision: Any = None
    summed_in: np.dtype | None = None


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


def _is_float(atom: Any) -> bool:
    return jnp.issubdtype(atom.aval.dtype, jnp.floating)


def _all_of(atom: Any, makers: Makers, fields: Mapping[Any, str], *, in_order: bool) -> str | None:
    """The field of which a value has every element once, in any order or in that of the field."""
    if isinstance(atom, jax_core.Literal):
        return None
    view = rearrangement(atom, makers, stop=lambda _: False)
    has_all = view.is_in_order if in_order else all(digit.step for digit in view.digits)
    return fields.get(view.root) if has_all else None


def sum_of_products(codelet: TracedCodelet) -> InnerProduct | Refused:
    """What a codelet sums, for its only result, of one element."""
    closed = inline(codelet.jaxpr)
    jaxpr = closed.jaxpr
    makers = Makers(jaxpr.eqns)
    if len(codelet.outputs) != 1 or jaxpr.effects:
        return Refused("the codelet has several results, or effects")
    (summed,), fields = jaxpr.outvars, dict(zip(jaxpr.invars, codelet.inputs, strict=True))
    if _is_zero(closed, makers):
        return InnerProduct(())
    if summed.aval.size != 1 or not _is_float(summed):  # type: ignore[attr-defined]
        return Refused("its result is a block, or no float")
    last = _maker(summed, makers)
    if last is not None and is_understood(last, "convert_element_type"):
        (summed,) = last.invars
        last = _maker(summed, makers)
    if not _is_float(summed):
        return Refused("it sums no floats")
    if last is None:  # the sum of one element
        field = _all_of(summed, makers, fields, in_order=True) if len(fields) == 1 else None
        return Refused("it adds nothing up") if field is None else InnerProduct((field,), None, summed.aval.dtype)  # type: ignore[attr-defined]
    if is_understood(last, "reduce_sum") and len(fields) == 1:
        field = _all_of(last.invars[0], makers, fields, in_order=False)
        dtype = last.invars[0].aval.dtype  # type: ignore[attr-defined]
        return Refused("what it sums is computed") if field is None else InnerProduct((field,), None, dtype)
    if jaxpr.outvars[0].aval.shape:
        return Refused("its result is a block")
    return _products(last, makers, fields, codelet)


def _products(
    last: jax_core.JaxprEqn, makers: Makers, fields: Mapping[Any, str], codelet: TracedCodelet
) -> InnerProduct | Refused:
    """The products that an equation sums whose result is one number."""
    product: jax_core.JaxprEqn | None = last
    if is_understood(last, "reduce_sum"):
        product = makers.of(last.invars[0])
        if product is None or not is_understood(product, "mul") or not is_exact(product):
            return Refused("what it sums are no products, or products that are rounded before")
        if len(last.params["axes"]) != last.invars[0].aval.ndim:  # type: ignore[attr-defined]
            return Refused("it sums along some dimensions")
    elif not is_understood(last, "dot_general") or len(set(last.params["dimension_numbers"][0])) != 1:
        return Refused("it sums no products element by element")
    precision = precision_of(product)
    factors = [_all_of(atom, makers, fields, in_order=True) for atom in product.invars]
    named = tuple(factor for factor in factors if factor is not None)
    if len(fields) != 2 or len(set(named)) != 2 or not _convolves(precision):
        return Refused("it multiplies no two fields, element by element")
    if codelet.inputs[named[0]] != codelet.inputs[named[1]]:
        return Refused("its factors are of other types")
    return InnerProduct(named, precision, last.outvars[0].aval.dtype)  # type: ignore[attr-defined]


def as_inner_product(codelet: TracedCodelet) -> InnerProduct | Refused:
    """A codelet as the inner product of two fields, element by element."""
    summed = sum_of_products(codelet)
    if isinstance(summed, InnerProduct) and len(summed.fields) != 2:
        return Refused("it multiplies no two fields, element by element")
    return summed
