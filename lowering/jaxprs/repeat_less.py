"""Repeat less: a part of what is repeated along a dimension is repeated fewer times.

The gradient of a sum of partial results is one array, repeated for each of them, and products read parts of it. In
comes a jaxpr. Out comes one in which no part is taken along a dimension that only repeats, so that a product is seen
to be one with the array that is repeated (`contract.py`). Nor are parts joined that repeat one array, along the
dimension that repeats: where no number of blocks divides what was summed, the gradient is repeated for all blocks of
one size, and for the rest of them.
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


def _joined(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """What an equation joins, where its parts are one array that is repeated along the dimension of the parts alone."""
    along, shape = eqn.params["dimension"], eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    views = [rearrangement(atom, makers, stop=lambda _: False) for atom in eqn.invars]
    root, dims = views[0].root, views[0].dims
    others = [dim for d, dim in enumerate(dims) if d != along]
    for atom, view in zip(eqn.invars, views, strict=True):
        same = view.root is root and [dim for d, dim in enumerate(view.dims) if d != along] == others
        if root is atom or not same or any(digit.step for digit in view.dims[along]):
            return None
    dims = [*dims[:along], (Digit(0, shape[along]),), *dims[along + 1 :]]
    digits = tuple(digit for dim in dims for digit in dim)
    return Remade([root], lambda root: [rearrange(root, digits, shape)])


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


def _once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that takes no part of what it repeats, and joins none."""
    makers, remade = Makers(closed.jaxpr.eqns), dict[jax_core.JaxprEqn, Remade]()
    for eqn in closed.jaxpr.eqns:
        is_computed = all(isinstance(atom, jax_core.Var) for atom in eqn.invars)
        rule = _found if is_understood(eqn, *_PARTS) else _joined if is_understood(eqn, "concatenate") else None
        instead = rule(eqn, makers) if rule is not None and is_computed else None
        if instead is not None:
            remade[eqn] = instead
    return with_remade(closed, remade, repeat_less)


def repeat_less(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that takes no part of what is repeated, and joins none, in the bodies of loops as well."""
    after = _once(closed)
    while after is not closed:  # what is joined of parts may be repeated itself
        closed, after = after, _once(after)
    return after
