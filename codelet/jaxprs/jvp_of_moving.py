"""Forward mode by those operands alone that move, for rules that ask for symbolic zeros.

A zero that is an array looks as if something moved: rules compute with it, and some refuse operands that they have no
derivative for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad


def jvp_of_moving(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """`jax.jvp`, where tangents may be symbolic zeros.

    Args:
        function: of all operands.
        primals: the operands.
        tangents: one for each of them, as a rule of a primitive gets them, or one of `jax.custom_jvp` with
            `symbolic_zeros=True`.
        has_aux: as of `jax.jvp`.
    """
    moving = [k for k, tangent in enumerate(tangents) if not isinstance(tangent, (SymbolicZero, ad.Zero))]

    def of_moving(*own: Any) -> Any:
        values = dict(zip(moving, own, strict=True))
        return function(*(values.get(k, primal) for k, primal in enumerate(primals)))

    return jax.jvp(of_moving, [primals[k] for k in moving], [tangents[k] for k in moving], has_aux=has_aux)
