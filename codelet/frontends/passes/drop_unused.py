"""Dead-code elimination: equations that no output needs are left out, in loops and branches too.

In comes a jaxpr, out comes one without them: equations, unused carries and stacked results of loops, results and
operands of branches. Equations with effects are kept with all that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.frontends.passes.bodies import Bodies
from codelet.jaxprs.equations import Atomic, needed, scan_counts, scan_options, variables
from codelet.jaxprs.rebuild import Builder, rebuild


def _read(closed: jax_core.ClosedJaxpr, results: Sequence[int]) -> set[int]:
    """Which inputs of a jaxpr some of its results, and its effects, depend on."""
    jaxpr = closed.jaxpr
    wanted = set(variables(jaxpr.outvars[k] for k in results))
    for eqn in needed(jaxpr, results=wanted):
        wanted.update(variables(eqn.invars))
    return {k for k, var in enumerate(jaxpr.invars) if var in wanted}


def _narrowed(closed: jax_core.ClosedJaxpr, inputs: Sequence[int], results: Sequence[int]) -> jax_core.ClosedJaxpr:
    """A jaxpr of some of its inputs, with some of its results alone, which depend on no others."""
    jaxpr = closed.jaxpr
    builder = Builder([jaxpr.invars[k] for k in inputs])
    wanted = [jaxpr.outvars[k] for k in results]
    opened = jax_core.Jaxpr(
        jaxpr.constvars, jaxpr.invars, wanted, jaxpr.eqns, jaxpr.effects, debug_info=builder.debug_info
    )
    given: list[Atomic] = [None] * len(jaxpr.invars)
    for place, var in zip(inputs, builder.invars, strict=True):
        given[place] = var
    return builder.closed(builder.inlined(jax_core.ClosedJaxpr(opened, closed.consts), given))


def _carried(closed: jax_core.ClosedJaxpr, first: int, count: int, wanted: set[int], more: Sequence[int]) -> list[int]:
    """Which carried values are needed: those that others need, and those that an iteration makes needed ones of.

    Args:
        closed: an iteration, whose first results are its carry.
        first: its first input that is carried.
        count: how many values are carried.
        wanted: those that are needed for other reasons.
        more: further results of an iteration that are needed.
    """
    while True:
        read = {k - first for k in _read(closed, [*sorted(wanted), *more]) if first <= k < first + count}
        if read <= wanted:
            return sorted(wanted)
        wanted = wanted | read


class _Dropping:
    """Rules for equations that hold bodies: each returns the results that are used, or None where all is needed."""

    def __init__(self) -> None:
        self.bodies = Bodies(lambda body, _: self.drop(body))

    def drop(self, closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        """A jaxpr without unused equations."""
        while True:  # what a loop no longer takes is no longer needed
            read = set(variables(closed.jaxpr.outvars))
            for eqn in needed(closed.jaxpr):
                read.update(variables(eqn.invars))
            narrowed: list[str] = []

            def run(
                builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic], read: Any = read, told: Any = narrowed
            ) -> list[Atomic]:
                used = [k for k, var in enumerate(eqn.outvars) if var in read]
                rule = _RULES.get(eqn.primitive.name)
                results = None if rule is None else rule(self, builder, eqn, operands, used)
                if results is not None:
                    told.append(eqn.primitive.name)
                    kept = dict(zip(used, results, strict=True))
                    return [kept.get(k, var) for k, var in enumerate(eqn.outvars)]
                outvars = [var if var in read else jax_core.DropVar(var.aval) for var in eqn.outvars]
                return builder.equation(self.bodies.changed(eqn.replace(outvars=outvars)), operands)

            closed = rebuild(closed, run)
            if not narrowed:
                return closed

    def scan(
        self, builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic], used: list[int]
    ) -> list[Atomic] | None:
        """A loop with a count: traced anew, since releases of JAX name its parameters differently."""
        body = eqn.params["jaxpr"]
        constants, carried = scan_counts(eqn)
        stacked = [k for k in used if k >= carried]
        kept = _carried(body, constants, carried, {k for k in used if k < carried}, stacked)
        rows = sorted(k for k in _read(body, [*kept, *stacked]) if k >= constants + carried)
        if len(kept) + len(stacked) == len(eqn.outvars) and constants + carried + len(rows) == len(operands):
            return None
        inputs = [*range(constants), *(constants + k for k in kept), *rows]
        turn = self.drop(_narrowed(body, inputs, [*kept, *stacked]))
        first, after = constants, constants + len(kept)

        def loop(*given: Any) -> list[Any]:
            def one(carry: Any, parts: Any) -> Any:
                results = jax_core.jaxpr_as_fun(turn)(*given[:first], *carry, *parts)
                return results[: len(kept)], results[len(kept) :]

            start = list(map(jax.numpy.asarray, given[first:after]))
            last, made = lax.scan(one, start, list(given[after:]), **scan_options(eqn))
            return [*last, *made]

        made = dict(zip([*kept, *stacked], builder.traced(loop, [operands[k] for k in inputs]), strict=True))
        return [made[k] for k in used]

    def while_(
        self, builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic], used: list[int]
    ) -> list[Atomic] | None:
        """A loop on a condition."""
        condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        of_condition, of_body, count = eqn.params["cond_nconsts"], eqn.params["body_nconsts"], len(eqn.outvars)
        asked = {k - of_condition for k in _read(condition, [0]) if k >= of_condition}
        kept = _carried(body, of_body, count, asked | set(used), [])
        if len(kept) == count:
            return None
        narrow = lambda own, first, results: self.drop(  # noqa: E731
            _narrowed(own, [*range(first), *(first + k for k in kept)], results)
        )
        params = {"cond_jaxpr": narrow(condition, of_condition, [0]), "body_jaxpr": narrow(body, of_body, kept)}
        own = eqn.replace(params={**eqn.params, **params}, outvars=[eqn.outvars[k] for k in kept])
        first = of_condition + of_body
        made = dict(
            zip(kept, builder.equation(own, [*operands[:first], *(operands[first + k] for k in kept)]), strict=True)
        )
        return [made[k] for k in used]

    def cond(
        self, builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic], used: list[int]
    ) -> list[Atomic] | None:
        """A choice."""
        branches = eqn.params["branches"]
        inputs = sorted(set[int]().union(*(_read(branch, used) for branch in branches)))
        if len(used) == len(eqn.outvars) and len(inputs) == len(operands) - 1:
            return None
        narrow = tuple(self.drop(_narrowed(branch, inputs, used)) for branch in branches)
        own = eqn.replace(params={**eqn.params, "branches": narrow}, outvars=[eqn.outvars[k] for k in used])
        return builder.equation(own, [operands[0], *(operands[1 + k] for k in inputs)])


_RULES = {"scan": _Dropping.scan, "while": _Dropping.while_, "cond": _Dropping.cond}


def drop_unused(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without equations that no output of it needs."""
    return _Dropping().drop(closed)
