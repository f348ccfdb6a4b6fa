"""Repeat less: a part of what is repeated along a dimension is repeated fewer times.

The gradient of a sum of partial results is one array, repeated for each of them, and products read parts of it. In
comes a jaxpr. Out comes one in which no part is taken along a dimension that only repeats, so that a product is seen
to be one with the array that is repeated (`contract.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit
from lowering.jaxprs.rearrangement import rearrange, rearrangement
from lowering.jaxprs.remade import Remade, with_remade

_PARTS = ("slice", "split")


def _found(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """What an equation takes, where that is less than all along repeated dimensions alone, of what is not repeated."""
    (given,), parts = eqn.invars, []
    view = rearrangement(given, makers, stop=lambda _: False)
    if view.root is given:
        return None
    shape: Sequence[int] = given.aval.shape  # type: ignore[attr-defined]
    for var in eqn.outvars:
        made: Sequence[int] = var.aval.shape  # type: ignore[attr-defined]
        cut = [d for d, (n, whole) in enumerate(zip(made, shape, strict=True)) if n != whole]
        if not cut or any(digit.step for d in cut for digit in view.dims[d]) or 0 in made:
            return None
        dims = [(Digit(0, n),) if d in cut else dim for d, (n, dim) in enumerate(zip(made, view.dims, strict=True))]
        parts.append((tuple(digit for dim in dims for digit in dim if digit.extent > 1), made))
    return Remade([view.root], lambda root: [rearrange(root, *part) for part in parts])


def repeat_less(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that takes no part of what is repeated, in the bodies of loops as well."""
    makers = Makers(closed.jaxpr.eqns)
    given = (
        eqn for eqn in closed.jaxpr.eqns if is_understood(eqn, *_PARTS) and isinstance(eqn.invars[0], jax_core.Var)
    )
    found = {eqn: own for eqn in given if (own := _found(eqn, makers)) is not None}
    return with_remade(closed, found, repeat_less)
