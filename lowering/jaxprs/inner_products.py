"""Inner products: on a GPU, a product that is one number for each of its batches is summed as what it multiplies.

In comes a jaxpr, out comes one in which such products, of floats of 32 bits or more, are a `mul` and a `reduce_sum`. XLA
makes the same of them, but late: only sums that it sees early are fused with what is computed of a row before and
after. The gradient of softmax, `y * (c - sum(c * y))`, is two kernels so, and three as a product; by what is compiled
for an H100 and an A100 (docs/gpu.md).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import rewrite
from lowering.arrays import Array, transpose


def _is_inner(eqn: jax_core.JaxprEqn) -> bool:
    """True of a product of whose operands every dimension is a batch or summed, and which rounds as its operands do."""
    if not is_understood(eqn, "dot_general"):
        return False
    (left, right), _ = eqn.params["dimension_numbers"]
    avals = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
    ndims = [aval.ndim for aval in avals]  # type: ignore[attr-defined]
    dtypes = {aval.dtype for aval in avals}  # type: ignore[attr-defined]
    if len(dtypes) > 1 or not all(jnp.issubdtype(own, jnp.floating) and jnp.finfo(own).bits >= 32 for own in dtypes):
        return False
    return bool(left) and ndims[0] == ndims[2] + len(left) and ndims[1] == ndims[2] + len(right)


def _summed(eqn: jax_core.JaxprEqn) -> Callable[..., list[Array]]:
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    summed = range(len(left_batch), len(left_batch) + len(left))

    def run(one: Array, other: Array) -> list[Array]:
        product = transpose(one, (*left_batch, *left)) * transpose(other, (*right_batch, *right))
        return [lax.reduce_sum(product, tuple(summed))]

    return run


def sum_inner_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with inner products as sums, in the bodies of loops as well."""
    return rewrite(closed, lambda eqn: _summed(eqn) if _is_inner(eqn) else None)
