"""Rounded products: on a GPU, a product in float32 that is only rounded is one in the dtype that it is rounded to.

Library operations multiply halves with sums in float32, as an IPU does, and round these. cuBLAS and cuDNN add in
float32 whatever the dtype of a result is, but write a result of float32 to memory, twice as large, for a kernel that
rounds it. In comes a jaxpr, out comes one whose products of two arrays of a shorter dtype have that dtype, where only a
conversion to it reads them. Products of a precision that the user asks for stay, and all on a CPU, where XLA converts
by itself either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bodies_of, use_counts, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild

_PRODUCTS = ("dot_general", "conv_general_dilated")
_MOVES = ("reshape", "squeeze", "transpose")
_SHORT = (np.dtype(np.float16), np.dtype(jnp.bfloat16))


def _dtype(atom: Any) -> np.dtype:
    return atom.aval.dtype


def _is_any(product: jax_core.JaxprEqn) -> bool:
    """True if a product has the precision that the backend chooses."""
    precision = product.params["precision"]
    return precision is None or precision == (lax.Precision.DEFAULT, lax.Precision.DEFAULT)


def _rounded(jaxpr: jax_core.Jaxpr) -> dict[jax_core.JaxprEqn, Any]:
    """Products that are only rounded, what moves them before, and what rounds them, each with the shorter dtype."""
    makers, found = Makers(jaxpr.eqns), dict[jax_core.JaxprEqn, Any]()
    counts = use_counts(jaxpr)
    for eqn in jaxpr.eqns:
        dtype, steps = _dtype(eqn.outvars[0]) if eqn.outvars else None, [eqn]
        if dtype not in _SHORT or not is_understood(eqn, "convert_element_type") or eqn.params["weak_type"]:
            continue
        while (maker := makers.of(steps[-1].invars[0])) is not None and counts[maker.outvars[0]] == 1:
            steps.append(maker)
            if not is_understood(maker, *_MOVES):
                break
        product = steps[-1]
        is_long = is_understood(product, *_PRODUCTS) and _dtype(product.outvars[0]) == np.float32 and _is_any(product)
        if is_long and all(_dtype(atom) == dtype for atom in product.invars):
            for step in steps:
                found[step] = dtype
    return found


def round_in_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose products that are only rounded are of the shorter dtype, in the bodies of loops as well."""
    rounded = _rounded(closed.jaxpr)
    if not rounded and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        if eqn not in rounded:
            return builder.equation(with_bodies(eqn, round_in_products), operands)
        if eqn.primitive.name == "convert_element_type":
            return operands
        (var,), params = eqn.outvars, dict(eqn.params)
        if eqn.primitive.name in _PRODUCTS:
            params["preferred_element_type"] = rounded[eqn]
        short = jax_core.Var(var.aval.update(dtype=rounded[eqn]))  # type: ignore[attr-defined]
        return builder.equation(eqn.replace(params=params, outvars=[short]), operands)

    return rebuild(closed, run)
