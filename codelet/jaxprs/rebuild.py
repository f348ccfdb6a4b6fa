"""Rebuild: jaxprs with some equations changed, made of the equations themselves.

An equation that is kept is copied as it is, with all its parameters, its derivative rules and its place in the source;
only the replacement of an equation is traced. Tracing the whole again would cost ten times as much. A replacement is in
the scope of its equation (`jax.named_scope`), and the body of a call, in that of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import (
    Atomic,
    Sources,
    bodies_of,
    inlines,
    inner_jaxprs,
    needed,
    operands_of,
    variables,
    with_bodies,
    with_inner,
)
from codelet.jaxprs.primitives import CUSTOM

_DEBUG_INFO = jax_core.DebugInfo("codelet", "rebuilt", None, None)

Rule = Callable[[jax_core.JaxprEqn], Callable[..., Sequence[Any]] | jax_core.ClosedJaxpr | None]
"""What takes the place of an equation: a function of its operands, to be traced, or a jaxpr; None where it stays."""

Run = Callable[["Builder", jax_core.JaxprEqn, list[Atomic]], Sequence[Atomic]]
"""What a builder adds for an equation with some operands: the results."""


class Builder:
    """A jaxpr under construction, from equations of others and from functions that are traced."""

    def __init__(self, like: Sequence[Any], debug_info: Any = _DEBUG_INFO):
        """With inputs like some variables, and the known origins of these."""
        self.debug_info = debug_info
        self.invars = [jax_core.Var(var.aval) for var in like]
        self._eqns: list[jax_core.JaxprEqn] = []
        self._scope: Any = None  # of the equation that is run
        self._around: Any = None  # of that which stands for those that are added
        self._constants: dict[int, tuple[jax_core.Var, Any]] = {}

    def constant(self, value: Any) -> jax_core.Var:
        """A variable that holds an array."""
        if id(value) not in self._constants:
            self._constants[id(value)] = (jax_core.Var(jax.typeof(value)), value)
        return self._constants[id(value)][0]

    def equation(self, eqn: jax_core.JaxprEqn, operands: Sequence[Atomic]) -> list[Atomic]:
        """An equation on other operands: its results."""
        results = [var if isinstance(var, jax_core.DropVar) else jax_core.Var(var.aval) for var in eqn.outvars]
        source = eqn.source_info
        if self._around is not None:
            source = source.replace(name_stack=self._around + source.name_stack)
        self._eqns.append(eqn.replace(invars=list(operands), outvars=results, source_info=source))
        return results

    def enter(self, eqn: jax_core.JaxprEqn) -> None:
        """Add what is run next in the scope of another equation of the same jaxpr."""
        own = eqn.source_info.name_stack
        self._scope = own if self._around is None else self._around + own

    def inlined(
        self,
        closed: jax_core.ClosedJaxpr,
        operands: Sequence[Atomic],
        run: Run = equation,
        *,
        sources: Sources = operands_of,
    ) -> list[Atomic]:
        """The results of a jaxpr on operands: of the equations that `run` adds for each equation that is needed, from
        its sources.
        """
        jaxpr = closed.jaxpr
        known: dict[Any, Atomic] = dict(zip(jaxpr.invars, operands, strict=True))
        known.update(zip(jaxpr.constvars, map(self.constant, closed.consts), strict=True))
        at = lambda atom: atom if isinstance(atom, jax_core.Literal) else known[atom]  # noqa: E731
        scope, around = self._scope, self._around
        self._around = scope
        for eqn in needed(jaxpr, sources):
            self.enter(eqn)
            known.update(zip(eqn.outvars, run(self, eqn, list(map(at, sources(eqn)))), strict=True))
        self._scope, self._around = scope, around
        return [at(atom) for atom in jaxpr.outvars]

    def traced(self, function: Callable[..., Sequence[Any]], operands: Sequence[Atomic]) -> list[Atomic]:
        """The results of a function, which gets literals as the numbers they are."""
        open_ = variables(operands)

        def of_open(*given: Any) -> list[Any]:
            left = iter(given)
            values = [atom.val if isinstance(atom, jax_core.Literal) else next(left) for atom in operands]
            return list(function(*values))

        return self.inlined(jax.make_jaxpr(of_open)(*map(struct, open_)), open_)

    def closed(self, results: Sequence[Atomic], before: jax_core.ClosedJaxpr | None = None) -> jax_core.ClosedJaxpr:
        """The jaxpr; another itself, where this is but that with other names."""
        constvars, consts = zip(*self._constants.values(), strict=True) if self._constants else ((), ())
        effects = frozenset[Any]().union(*(eqn.effects for eqn in self._eqns))
        jaxpr = jax_core.Jaxpr(constvars, self.invars, list(results), self._eqns, effects, debug_info=self.debug_info)
        made = jax_core.ClosedJaxpr(jaxpr, list(consts))
        return made if before is None or not _is_renamed(made, before) else before


def struct(var: Any) -> jax.ShapeDtypeStruct:
    """The type of a variable, as tracing takes it."""
    return jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype, weak_type=var.aval.weak_type)


def rebuild(closed: jax_core.ClosedJaxpr, run: Run, *, sources: Sources = operands_of) -> jax_core.ClosedJaxpr:
    """A jaxpr of the equations that `run` adds for each equation of another that is needed, from its sources.

    Where nothing changes it is the other itself, so that what is known of its functions and rules stays known.
    """
    builder = Builder(closed.jaxpr.invars, closed.jaxpr.debug_info)
    return builder.closed(builder.inlined(closed, builder.invars, run, sources=sources), closed)


def _is_renamed(made: jax_core.ClosedJaxpr, other: jax_core.ClosedJaxpr) -> bool:
    """Whether a jaxpr is another of as many inputs, but for names of variables, and of results that nothing reads."""
    new, old = made.jaxpr, other.jaxpr
    if len(new.eqns) != len(old.eqns) or list(map(id, made.consts)) != list(map(id, other.consts)):
        return False
    names: dict[Any, Any] = dict(zip((*new.constvars, *new.invars), (*old.constvars, *old.invars), strict=True))

    def are(atoms: Sequence[Any], others: Sequence[Any]) -> bool:
        named = (atom if isinstance(atom, jax_core.Literal) else names.get(atom) for atom in atoms)
        return len(atoms) == len(others) and all(own is other for own, other in zip(named, others, strict=True))

    for own, eqn in zip(new.eqns, old.eqns, strict=True):
        if own.primitive is not eqn.primitive or own.source_info is not eqn.source_info or own.ctx is not eqn.ctx:
            return False
        if own.effects != eqn.effects or not _are_same(own.params, eqn.params) or not are(own.invars, eqn.invars):
            return False
        for result, var in zip(own.outvars, eqn.outvars, strict=True):
            if isinstance(result, jax_core.DropVar) and not isinstance(var, jax_core.DropVar):
                return False
            if not isinstance(var, jax_core.DropVar):
                names[result] = var
    return are(new.outvars, old.outvars)


def _are_same(parameters: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether parameters are the same objects."""
    return parameters.keys() == others.keys() and all(own is others[name] for name, own in parameters.items())


def opened(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that is given its constants, before its inputs."""
    jaxpr = closed.jaxpr
    return jax_core.ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars]), [])


Change = Callable[[jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]
"""What makes another jaxpr of one."""


def each_once(change: Change) -> Change:
    """A change that gives the same for the same jaxpr: a function called at many places stays one."""
    made: dict[tuple[int, ...], jax_core.ClosedJaxpr] = {}

    def changed(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        key = (id(own.jaxpr), *map(id, own.consts))
        if key not in made:
            made[key] = change(own)
        return made[key]

    return changed


def rewrite(closed: jax_core.ClosedJaxpr, rule: Rule, *, everywhere: bool = False) -> jax_core.ClosedJaxpr:
    """A jaxpr with functions in the place of some equations, in the bodies of loops and branches as well.

    Args:
        closed: the jaxpr; itself, where the rule has nothing to do.
        rule: maps an equation to its replacement.
        everywhere: in all jaxprs within it, those of functions that are called too, except functions with custom
            derivative rules. A function called at many places stays one.
    """
    applies: dict[int, bool] = {}

    def within(eqn: jax_core.JaxprEqn) -> list[jax_core.Jaxpr]:
        if not everywhere:
            return [body.jaxpr for body in bodies_of(eqn)]
        return [] if eqn.primitive.name in CUSTOM else inner_jaxprs(eqn)

    def has_work(jaxpr: jax_core.Jaxpr) -> bool:
        if id(jaxpr) not in applies:
            applies[id(jaxpr)] = any(rule(eqn) or any(map(has_work, within(eqn))) for eqn in jaxpr.eqns)
        return applies[id(jaxpr)]

    @each_once
    def changed(body: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        return rebuild(body, run) if has_work(body.jaxpr) else body

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        function = rule(eqn)
        if isinstance(function, jax_core.ClosedJaxpr):
            return builder.inlined(function, operands)
        if function is not None:
            return builder.traced(function, operands)
        if within(eqn):
            eqn = with_inner(eqn, lambda _, body: changed(body)) if everywhere else with_bodies(eqn, changed)
        return builder.equation(eqn, operands)

    return changed(closed)


def retrace(function: Callable[..., Sequence[Any]], like: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A function traced for the inputs of a jaxpr."""
    return jax.make_jaxpr(function)(*map(struct, like.jaxpr.invars))


def _run_inlined(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
    if inlines(eqn):
        return builder.inlined(eqn.params["jaxpr"], operands, _run_inlined)
    return builder.equation(with_bodies(eqn, inline), operands)


def _has_calls(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether there is a call to inline, in the bodies of loops as well."""
    return any(inlines(eqn) or any(_has_calls(body.jaxpr) for body in bodies_of(eqn)) for eqn in jaxpr.eqns)


def inline(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without calls of jitted functions, which would be traced anew by every transformation.

    The bodies of loops and branches are without them as well.
    """
    return rebuild(closed, _run_inlined) if _has_calls(closed.jaxpr) else closed
