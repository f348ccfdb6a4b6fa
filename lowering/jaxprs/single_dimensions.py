"""Single dimensions: what is of one element along a dimension that only a reshape put there has it no more.

A block of one row leaves a dimension of extent 1 among those of its grid: rows of (512, 1024) are then normalized as
(512, 1, 1024). XLA's CPU backend sums the major dimension of such an array eight times slower than without, in plain
JAX as well. In comes a jaxpr, out comes one in which no elementwise equation, reduction, move or slice has such a
dimension along which nothing is repeated. What is given and what comes out keep theirs, and so does what any other
equation is given or gives.

XLA's GPU backend does not fuse a transpose of what is repeated along such a dimension with all that reads it: the mask
of a triangle, of numbers of rows and columns, was a kernel and an array of its own. `broadcast_positions` drops those
of what is made of such numbers alone. Those of other values stay: without them the gradient of a layer norm of
(512, 1000) holds 2 MB, for want of a fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, bodies_of, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.jaxprs.dimension_classes import Classes, Spot, extent_of, spots_of
from lowering.jaxprs.dimension_rules import (
    equation_left,
    left_by_element,
    left_moved,
    left_reduced,
    link_by_element,
    link_moved,
    link_reduced,
)
from lowering.jaxprs.left_dimensions import Left
from lowering.jaxprs.slice_roots import SLICES
from lowering.jaxprs.traced_once import parameters_of, traced_once

_MOVES = ("reshape", "squeeze", "transpose", "broadcast_in_dim")


def _link_sliced(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """A slice that is taken or put: along a dimension of one element it is all of it."""
    array, *parts = (spots_of(atom) for atom in (eqn.invars[0], *_parts(eqn), *eqn.outvars))
    for d, spot in enumerate(array):
        for part in parts:
            if extent_of(spot) == extent_of(part[d]):
                classes.unite(spot, part[d])
            else:
                classes.keep([spot, part[d]])


def _parts(eqn: jax_core.JaxprEqn) -> list[Atomic]:
    """What an equation puts into its first operand."""
    return [eqn.invars[1]] if eqn.primitive.name == "dynamic_update_slice" else []  # type: ignore[list-item]


def _left_sliced(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of an equation that takes or puts a slice."""
    kept = [d for d, place in enumerate(left.places(eqn.invars[0])) if place.left is not None]
    if not kept:
        return [operands[len(_parts(eqn))]]  # one element is taken, or put
    count = 1 + len(_parts(eqn))
    params = {
        name: None if value is None or name == "sharding" else tuple(value[d] for d in kept)
        for name, value in eqn.params.items()
    }
    chosen = [*range(count), *(count + d for d in kept if len(operands) > count)]
    return bind(eqn.replace(params=params, invars=[eqn.invars[k] for k in chosen]), [operands[k] for k in chosen])


_RULES = (
    (tuple(ELEMENTWISE), link_by_element, left_by_element),
    (tuple(REDUCTIONS), link_reduced, left_reduced),
    (_MOVES, link_moved, left_moved),
    (("slice", *SLICES), _link_sliced, _left_sliced),
)


def _rule(eqn: jax_core.JaxprEqn) -> tuple[Any, Any] | None:
    """How an equation takes dimensions through, and what is left of it; None where nothing is known of it."""
    if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
        return None  # in another order
    return next(((link, left) for names, link, left in _RULES if is_understood(eqn, *names)), None)


def _repeated(eqn: jax_core.JaxprEqn) -> list[Spot]:
    """The dimensions along which an equation repeats the one element that an operand has: an elementwise one."""
    if not is_understood(eqn, *ELEMENTWISE):
        return []
    made = spots_of(eqn.outvars[0])
    pairs = [pair for atom in eqn.invars for pair in zip(spots_of(atom), made, strict=False)]
    return [spot for spot, result in pairs if extent_of(spot) != extent_of(result)]


def _find(jaxpr: jax_core.Jaxpr, *, repeated: bool) -> Left | None:
    """The dimensions that are gone of all variables, those too along which positions are repeated; None for none."""
    classes, single, positions = Classes(), [], set[Any]()
    for atom in variables([*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars]):
        classes.keep(spots_of(atom))
    for eqn in jaxpr.eqns:
        if positions.issuperset(variables(eqn.invars)) and is_understood(eqn, "iota", *_MOVES, *ELEMENTWISE):
            positions.update(eqn.outvars)
        own = [spot for atom in (*eqn.invars, *eqn.outvars) for spot in spots_of(atom) if extent_of(spot) == 1]
        rule = _rule(eqn) if own else None
        if rule is None:
            classes.keep(own)
            continue
        rule[0](classes, eqn)
        classes.keep([spot for spot in _repeated(eqn) if not repeated or spot[0] not in positions])
        single += own
    gone = set(map(classes.root, single)) - classes.kept
    return Left(classes, dict.fromkeys(gone), {}) if gone else None


def _puts_one(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation may put a dimension of extent 1 where there was none."""
    return eqn.primitive.name in ("reshape", "broadcast_in_dim") and 1 in eqn.outvars[0].aval.shape  # type: ignore[attr-defined]


def _spread(builder: Builder, left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Atomic]) -> list[Atomic]:
    """What is left of an elementwise equation whose operands are broadcast along what they have no dimension for."""
    result, spread = left.places(eqn.outvars[0]), list(operands)
    for k, (atom, operand) in enumerate(zip(eqn.invars, operands, strict=True)):
        places = left.places(atom)
        pairs = [pair for pair in zip(places, result, strict=False) if pair[1].left is not None]
        dims = tuple(d for d, (place, _) in enumerate(pairs) if place.left is not None)
        if len(dims) < len(pairs):
            shape = tuple(of_result.left if place.left is None else place.left for place, of_result in pairs)
            (spread[k],) = builder.traced(
                lambda x, shape=shape, dims=dims: [lax.broadcast_in_dim(x, shape, dims)], [operand]
            )
    results = [var.aval.update(shape=tuple(left.shape(var))) for var in eqn.outvars]  # type: ignore[attr-defined]
    return builder.equation(eqn.replace(outvars=[jax_core.Var(aval) for aval in results]), spread)


def _dropped(closed: jax_core.ClosedJaxpr, *, repeated: bool) -> jax_core.ClosedJaxpr:
    """A jaxpr without single dimensions, those too along which positions are repeated, in the bodies of loops too."""
    eqns = closed.jaxpr.eqns
    left = _find(closed.jaxpr, repeated=repeated) if any(map(_puts_one, eqns)) else None
    if left is None and not any(map(bodies_of, eqns)):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        atoms = variables([*eqn.invars, *eqn.outvars])
        if left is None or all(left.shape(atom) == list(atom.aval.shape) for atom in atoms):  # type: ignore[attr-defined]
            return builder.equation(with_bodies(eqn, lambda body: _dropped(body, repeated=repeated)), operands)
        rule = _rule(eqn)
        assert rule is not None
        own = None
        if rule[1] is left_by_element:
            own = _spread(builder, left, eqn, operands) if repeated else equation_left(builder, left, eqn, operands)
        if own is not None:
            return own
        key = rule[1], parameters_of(eqn), tuple((atom.aval.shape, left.places(atom)) for atom in atoms)
        return traced_once(builder, key, lambda *given: rule[1](left, eqn, given), operands)

    return rebuild(closed, run)


def drop_single_dimensions(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without dimensions of extent 1 that only reshapes put there, in the bodies of loops as well."""
    return _dropped(closed, repeated=False)


def broadcast_positions(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr in which what is made of positions alone is broadcast, where it was repeated along single dimensions."""
    return _dropped(closed, repeated=True)
