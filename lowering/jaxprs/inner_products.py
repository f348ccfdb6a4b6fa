"""Inner products: codelets that multiply two fields element by element and add up.

In comes a codelet; out come the two fields, and how the products are summed, where it is one however it is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.tracing.traced_codelet import TracedCodelet
from lowering.jaxprs.contraction import is_exact, precision_of
from lowering.jaxprs.rearrangement import rearrangement


class InnerProduct(NamedTuple):
    """The two fields of which a codelet is the inner product, how precise it is, and in which dtype it is summed."""

    fields: tuple[str, str]
    precision: Any
    summed_in: np.dtype


def _convolves(precision: Any) -> bool:
    """Whether a convolution can be as precise: it knows no algorithms of dots."""
    parts = precision if isinstance(precision, tuple) else (precision,)
    return all(part is None or isinstance(part, lax.Precision) for part in parts)


def as_inner_product(codelet: TracedCodelet) -> InnerProduct | None:
    """A codelet as the inner product of two fields, element by element; None if it is no such thing."""
    if len(codelet.inputs) != 2 or len(codelet.outputs) != 1:
        return None
    jaxpr = inline(codelet.jaxpr).jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    (out,) = jaxpr.outvars
    if isinstance(out, jax_core.Literal) or out.aval.shape or not jnp.issubdtype(out.aval.dtype, jnp.floating):  # type: ignore[attr-defined]
        return None
    last = makers.get(rearrangement(out, makers, stop=lambda _: False).root)
    if last is not None and is_understood(last, "convert_element_type"):
        (summed,) = last.invars
        last = None if isinstance(summed, jax_core.Literal) else makers.get(summed)
    if last is None or not jnp.issubdtype(last.outvars[0].aval.dtype, jnp.floating):  # type: ignore[attr-defined]
        return None
    summed = is_understood(last, "reduce_sum")
    product = makers.get(last.invars[0]) if summed else last
    if product is None or not is_understood(product, "mul" if summed else "dot_general"):
        return None
    if summed:
        fits = len(last.params["axes"]) == last.invars[0].aval.ndim and is_exact(product)  # type: ignore[attr-defined]
    else:
        fits = product.params["dimension_numbers"][0][0] == product.params["dimension_numbers"][0][1]
    views = [rearrangement(atom, makers, stop=lambda _: False) for atom in product.invars]
    fields = dict(zip(jaxpr.invars, codelet.inputs, strict=True))
    precision = precision_of(product)
    if not fits or not _convolves(precision) or not all(view.root in fields and view.is_in_order for view in views):
        return None
    left, right = (fields[view.root] for view in views)
    if left == right or codelet.inputs[left] != codelet.inputs[right]:
        return None
    return InnerProduct((left, right), precision, last.outvars[0].aval.dtype)  # type: ignore[attr-defined]
