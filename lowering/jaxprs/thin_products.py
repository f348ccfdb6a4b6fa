"""Thin products: on a CPU, a matrix of few long rows that was transposed into place, or made so, by a small one.

In comes a jaxpr, out comes one in which such a matrix, whose rows are summed over, has its columns in two dimensions.
XLA's CPU backend makes products of more than two dimensions from matrices whose last dimension is summed: what
transposes the matrix, or makes it by element, writes it so at once. A product of two dimensions it takes as it stands,
and multiplies a matrix of few long rows slowly. Measured with jax 0.10.2 on two cores, in ms, for (summed, rows,
columns), as it stands and in two dimensions, the matrix scaled, transposed and then multiplied, and scaled alone:

                             transposed          scaled alone
    float32 (4, 65536, 4)     0.70   0.59          0.62   0.43
    float32 (16, 65536, 4)     2.5    1.4           2.3    1.7
    float32 (64, 65536, 4)    10.3    6.7            12     11
    float32 (16, 2048, 16)    0.12   0.09          0.13   0.10
    float32 (4, 65536, 16)                         0.50   0.40
    float32 (4, 65536, 64)     1.8    1.9
    float32 (2, 65536, 4)     0.19   0.38
    float64 (16, 65536, 4)     1.6   0.93
    complex64 (4, 65536, 4)   0.69   0.66          0.52   0.42
    complex64 (8, 65536, 4)                         1.2    1.0
    complex64 (16, 65536, 4)   2.6    3.3

A Fourier transform by steps of radix 4, all of them such products of complex64 that were scaled, takes 0.8 of the time
(1.35 of plain JAX's to 1.1), one of radix 3 too (1.3 to 1.05).
"""

from __future__ import annotations

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, bind
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.parts import behind
from lowering.jaxprs.remade import Remade, with_remade
from lowering.jaxprs.traced_once import parameters_of

SUMMED = {"f": range(4, 65), "c": range(3, 9)}
"""How many products are summed, of real and of complex numbers."""

COLUMNS = range(2, 17)
"""How many columns the small matrix has."""

LEAST_ROWS = 2048
"""From so many rows of the result on it gains."""


def _outer(rows: int) -> int | None:
    """The extent of the first of two dimensions that rows are laid out in; None where there are none."""
    return next((extent for extent in range(2, 65) if rows % extent == 0), None)


def _is_thin(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is such a product."""
    if not is_understood(eqn, "dot_general"):
        return False
    left, right = (atom.aval for atom in eqn.invars)
    (own, _), batch = eqn.params["dimension_numbers"]
    if left.ndim != 2 or right.ndim != 2 or tuple(own) != (0,) or any(batch):  # type: ignore[attr-defined]
        return False
    summed, rows = left.shape  # type: ignore[attr-defined]
    is_few = summed in SUMMED.get(left.dtype.kind, ())  # type: ignore[attr-defined]
    columns = eqn.outvars[0].aval.shape[1]  # type: ignore[attr-defined]
    return is_few and columns in COLUMNS and rows >= LEAST_ROWS and _outer(rows) is not None


def _in_two_dimensions(eqn: jax_core.JaxprEqn) -> Remade:
    """A thin product in more dimensions on a CPU."""

    def in_two_dimensions(left: jax.Array, right: jax.Array) -> jax.Array:
        summed, rows = left.shape
        outer = _outer(rows)
        assert outer is not None
        (made,) = bind(eqn, [lax.reshape(left, (summed, outer, rows // outer)), right])
        return lax.reshape(made, (rows, made.shape[-1]))

    def made(left: jax.Array, right: jax.Array) -> list[jax.Array]:
        as_it_is = lambda left, right: bind(eqn, [left, right])[0]  # noqa: E731
        return [lax.platform_dependent(left, right, cpu=in_two_dimensions, default=as_it_is)]

    return Remade(eqn.invars, made, ("thin", parameters_of(eqn)))


def multiply_thinly(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with thin products in more dimensions on a CPU, in the bodies of loops as well."""
    closed = inline(closed)
    makers = Makers(closed.jaxpr.eqns)
    before = {eqn: behind(eqn.invars[0], makers)[1] for eqn in closed.jaxpr.eqns if _is_thin(eqn)}
    made_so = ("transpose", *ELEMENTWISE)
    thin = [eqn for eqn, maker in before.items() if maker is not None and is_understood(maker, *made_so)]
    return with_remade(closed, {eqn: _in_two_dimensions(eqn) for eqn in thin}, multiply_thinly)
