"""What keeps the numbers of drawn programs small."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_jvp
def bend(x):
    """A function with a derivative rule of its own, which must survive the lowering."""
    return jnp.sin(x)


@bend.defjvp
def _bend_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return bend(x), jnp.cos(x) * t


def squash(x):
    """Keep floats within bounds through many steps, and integers as they are.

    A sixteenth, since sums of a hundred elements differ by their rounding, and a sine keeps what they differ by.
    """
    return bend(x / 16) if jnp.issubdtype(x.dtype, jnp.floating) else x
