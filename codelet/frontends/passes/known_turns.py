"""Known turns: what the turns of a scan compute of known floats alone, in a scan of its own.

Eliminating the rows of a matrix that is the same everywhere takes factors that each come from the last, whatever the
right side is; so do decaying rates, and powers. In come a jaxpr and which of its values are known. Out comes one in
which a scan that carries floats from known ones, by known ones alone, is two: one of what is known, all of whose
operands are, and so is evaluated; and the rest, which is given that a row a turn. Counters alone stay where they are,
since loops count anyway. Without it, the scans of `npbench/adi` computed and stacked the same factors in every step of
time, and their gradients kept them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.frontends.structure import dtype_of, shape_of
from codelet.frontends.values import LARGEST_KNOWN
from codelet.jaxprs.equations import Atomic, computed, may_run_early, scan_counts, scan_options, variables
from codelet.jaxprs.rebuild import Builder, rebuild

IsKnown = Callable[[Atomic], bool]


class _Known(NamedTuple):
    """What of a scan's body is known in every turn.

    Attributes:
        values: all that is known.
        carried: of the floats that it carries, those that are known and change, by their places in the carry.
        of_floats: these, and what is made of them.
        read: of that, what the rest of the body, or a result that is not known, is made of.
    """

    values: set[Any]
    carried: list[int]
    of_floats: set[Any]
    read: list[Any]


def _known_values(eqn: jax_core.JaxprEqn, is_known: IsKnown) -> set[Any]:
    """The values of a scan's body that are known in every turn."""
    body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    given = {var for var, atom in zip(body.invars, eqn.invars, strict=True) if is_known(atom)}
    while True:
        known = {*given, *body.constvars}
        holds = lambda atom, known=known: isinstance(atom, jax_core.Literal) or atom in known  # noqa: E731
        for inner in body.eqns:
            if may_run_early(inner) and all(map(holds, inner.invars)):
                known.update(inner.outvars)
        lost = {body.invars[first + k] for k in range(carried) if not holds(body.outvars[k])} & given
        if not lost:
            return known
        given -= lost


def _known(eqn: jax_core.JaxprEqn, is_known: IsKnown) -> _Known | None:
    """What of a scan is made of known floats that it carries; None where nothing is, or too much."""
    if eqn.primitive.name != "scan" or eqn.effects or not eqn.params["length"] or all(map(is_known, eqn.invars)):
        return None
    body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    known = _known_values(eqn, is_known)
    state = enumerate(body.invars[first : first + carried])
    changed = [k for k, var in state if var in known and body.outvars[k] is not var]
    floats = [k for k in changed if jnp.issubdtype(dtype_of(body.outvars[k]), jnp.floating)]
    of_floats = {body.invars[first + k] for k in floats}
    for inner in body.eqns:
        if known.issuperset(inner.outvars) and not of_floats.isdisjoint(variables(inner.invars)):
            of_floats.update(inner.outvars)
    rest = [atom for inner in body.eqns if not of_floats.issuperset(inner.outvars) for atom in inner.invars]
    results = [atom for k, atom in enumerate(body.outvars) if k not in floats]
    read = [var for var in dict.fromkeys(variables((*rest, *results))) if var in of_floats]
    given = [atom for var, atom in zip(body.invars, eqn.invars, strict=True) if var in known]
    once, each = (sum(math.prod(shape_of(atom)) for atom in own) for own in ((*given, *body.outvars), read))
    is_small = once + eqn.params["length"] * each <= LARGEST_KNOWN
    return _Known(known, floats, of_floats, read) if floats and is_small else None


def _two_scans(eqn: jax_core.JaxprEqn, known: _Known) -> Callable[..., list[Any]]:
    """A scan of what is known, and of the rest."""
    closed, (first, carried) = eqn.params["jaxpr"], scan_counts(eqn)
    body = closed.jaxpr
    state, rows = body.invars[first : first + carried], body.invars[first + carried :]
    ahead = [k for k, var in enumerate(state) if var in known.values]
    left = [k for k in range(carried) if k not in known.carried]
    stacked = [k for k in range(carried, len(body.outvars)) if body.outvars[k] not in known.of_floats]
    before = [inner for inner in body.eqns if known.values.issuperset(inner.outvars)]
    rest = [inner for inner in body.eqns if not known.of_floats.issuperset(inner.outvars)]

    def run(*inputs: Any) -> list[Any]:
        given = dict(zip((*body.constvars, *body.invars), (*closed.consts, *inputs), strict=True))
        shared = {var: given[var] for var in (*body.constvars, *body.invars[:first])}

        def scan(eqns: Sequence[jax_core.JaxprEqn], kept: list[int], fed: dict[Any, Any], made: list[Any]) -> Any:
            def turn(held: Sequence[Any], own: Sequence[Any]) -> tuple[list[Any], list[Any]]:
                turned = zip((*(state[k] for k in kept), *fed), (*held, *own), strict=True)
                results = computed(eqns, {**shared, **dict(turned)}, [*(body.outvars[k] for k in kept), *made])
                return results[: len(kept)], results[len(kept) :]

            last, lines = lax.scan(turn, [given[state[k]] for k in kept], list(fed.values()), **scan_options(eqn))
            return dict(zip(kept, last, strict=True)), lines

        found, lines = scan(before, ahead, {var: given[var] for var in rows if var in known.values}, known.read)
        read = dict(zip(known.read, lines, strict=True))
        last, lines = scan(rest, left, {var: given[var] for var in rows} | read, [body.outvars[k] for k in stacked])
        found |= {**last, **dict(zip(stacked, lines, strict=True))}
        return [found[k] if k in found else read[var] for k, var in enumerate(body.outvars)]

    return run


def set_known_turns_apart(closed: jax_core.ClosedJaxpr, is_known: IsKnown) -> jax_core.ClosedJaxpr:
    """A jaxpr whose scans compute what is made of known floats apart; those in bodies stay as they are."""
    found = {id(eqn): known for eqn in closed.jaxpr.eqns if (known := _known(eqn, is_known)) is not None}
    if not found:
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        known = found.get(id(eqn))
        return builder.equation(eqn, operands) if known is None else builder.traced(_two_scans(eqn, known), operands)

    return rebuild(closed, run)
