"""Narrow products: on a CPU, a wide matrix transposed by a narrow one.

In comes a jaxpr, out comes one in which such products are convolutions of one dimension, whose weights are the wide
matrix, its channels what is summed. XLA's CPU backend does the product as it stands slowly: it is what a convolution of
1 x 1 has for its gradient with respect to an image of few positions. Where the narrow matrix is the one that is
transposed it is fast, and stays. Measured with jax 0.10.2 on two cores, in ms, float32, for (summed, rows, columns):

                       as it stands    the rows transposed before    as a convolution
    (512, 2048, 4)              2.5                          0.45                0.28
    (512, 2048, 16)             4.6                          0.51                0.48
    (512, 2048, 49)             2.8                           1.2                 1.0
    (512, 2048, 100)            3.4                           1.6                 1.5
    (512, 1024, 196)            2.1                           1.2                 1.2
    (256, 1024, 196)            1.2                          0.73                0.75
    (128, 512, 49)             0.11                          0.11               0.095
    (512, 4, 2048)             0.10                          0.08                0.20
    (512, 49, 2048)            0.65                          0.52                0.78
    (256, 64, 3136)            0.60                          0.58                0.74
    (64, 256, 49)              0.03                          0.05                0.04
    (64, 10, 784)              0.03                          0.03                0.05

`dots_in_memory_order.py` has brought every product to this form whose dimensions lie so in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import rewrite
from lowering.arrays import Array

NARROW = (2, 196)
"""Between these numbers of columns a matrix is narrow."""

LEAST_SUMMED, LEAST_WIDE = 128, 512
"""From these extents on it gains."""


def _is_narrow(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is such a product, of float32."""
    if not is_understood(eqn, "dot_general") or eqn.params["precision"] is not None:
        return False
    avals = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
    if any(aval.dtype != np.float32 or aval.ndim != 2 for aval in avals):  # type: ignore[attr-defined]
        return False
    if tuple(map(tuple, (*eqn.params["dimension_numbers"][0], *eqn.params["dimension_numbers"][1]))) != (
        (0,),
        (0,),
        (),
        (),
    ):
        return False
    (summed, wide), (_, narrow) = (aval.shape for aval in avals[:2])  # type: ignore[attr-defined]
    return NARROW[0] <= narrow <= NARROW[1] and summed >= LEAST_SUMMED and wide >= LEAST_WIDE


def _convolved(wide: Array, narrow: Array) -> Array:
    """The product of the wide matrix transposed and the narrow one."""
    kernels = lax.transpose(wide, (1, 0))[:, :, None]
    return lax.conv_general_dilated(narrow[None], kernels, (1,), "VALID")[0]


def _replacement(eqn: jax_core.JaxprEqn) -> Callable[..., list[Array]] | None:
    """What makes a narrow product; None where an equation is none."""
    if not _is_narrow(eqn):
        return None
    as_it_is = lambda left, right: bind(eqn, [left, right])[0]  # noqa: E731
    return lambda left, right: [lax.platform_dependent(left, right, cpu=_convolved, default=as_it_is)]


def multiply_narrowly(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with narrow products as convolutions, in the bodies of loops as well."""
    return rewrite(closed, _replacement)
