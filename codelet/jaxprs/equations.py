"""Equations of jaxprs: which are needed, which jaxprs they contain, running a single one, and evaluating all with
rules.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.primitives import ELEMENTWISE, MOVING, is_understood

Atomic = Any  # a jaxpr's Var or Literal

_DEBUG_INFO = jax_core.DebugInfo("codelet", "one equation", None, None)

CALLS = ("jit", "pjit")
"""Calls of jitted functions: the same primitive, by the names it has in different releases of JAX."""

FUNCTION = "function "
"""What the name of a jitted function begins with that is a function of the graph."""


def variables(atoms: Iterable[Atomic]) -> list[Any]:
    """Those atoms that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, jax_core.Literal)]


def use_counts(jaxpr: jax_core.Jaxpr) -> Counter[Any]:
    """How often each variable of a jaxpr is read: by equations, as often as by each, and as a result."""
    lists = (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
    return Counter(var for atoms in lists for var in variables(atoms))


def bind(eqn: jax_core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """Run an equation with its parameters, so that custom derivative rules are kept.

    As a jaxpr of one equation, which is how JAX's public interface lets an equation be run. Operands that are one
    variable in the equation may be several values.
    """
    own = variables(eqn.invars)
    if len(set(own)) < len(own):
        apart = [a if isinstance(a, jax_core.Literal) else jax_core.Var(a.aval) for a in eqn.invars]
        eqn = eqn.replace(invars=apart)
    given: dict[Any, Any] = {}
    for atom, operand in zip(eqn.invars, inputs, strict=True):
        if not isinstance(atom, jax_core.Literal):
            given[atom] = operand
    kept = [var for var in eqn.outvars if not isinstance(var, jax_core.DropVar)]
    jaxpr = jax_core.Jaxpr((), list(given), kept, [eqn], eqn.effects, debug_info=_DEBUG_INFO)
    results = iter(jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, ()))(*given.values()))
    return [None if isinstance(var, jax_core.DropVar) else next(results) for var in eqn.outvars]


def with_every_result(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
    """An equation that drops none of its results, for whoever asks for all of them."""
    dropped = (isinstance(var, jax_core.DropVar) for var in eqn.outvars)
    made = [jax_core.Var(var.aval) if own else var for var, own in zip(eqn.outvars, dropped, strict=True)]
    return eqn.replace(outvars=made)


def is_function(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation calls a function of the graph, whose jaxpr all its calls share."""
    return eqn.primitive.name in CALLS and str(eqn.params["name"]).startswith(FUNCTION)


_BODIES = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}


def _parts(values: Iterable[Any]) -> list[Any]:
    """Values of parameters, and the parts of those that are several."""
    return [part for value in values for part in (value if isinstance(value, tuple | list) else (value,))]


def with_parts(value: Any, parts: Iterable[Any]) -> Any:
    """A parameter that is a tuple, a named one or a list, with other parts; itself where they are its own.

    JAX keeps the jaxprs of a linear solve in a named tuple.

    >>> from typing import NamedTuple
    >>> class Solve(NamedTuple):
    ...     left: int
    ...     right: int
    >>> with_parts(Solve(1, 2), [3, 4]), with_parts([1, 2], [3, 4])
    (Solve(left=3, right=4), [3, 4])
    """
    made = list(parts)
    if all(new is old for new, old in zip(made, value, strict=True)):
        return value
    return getattr(type(value), "_make", type(value))(made)


def bodies_of(eqn: jax_core.JaxprEqn) -> list[jax_core.ClosedJaxpr]:
    """The bodies of a loop, the branches of a choice."""
    names = _BODIES.get(eqn.primitive.name)
    return [] if names is None else _parts(eqn.params[name] for name in names)


class Makers(dict[Any, jax_core.JaxprEqn]):
    """The equation that makes each value of some equations; nothing of them makes arguments, constants and literals."""

    def __init__(self, eqns: Iterable[jax_core.JaxprEqn]):
        super().__init__((var, eqn) for eqn in eqns for var in eqn.outvars)

    def of(self, atom: Atomic) -> jax_core.JaxprEqn | None:
        """The equation that makes an atom, if any does."""
        return None if isinstance(atom, jax_core.Literal) else self.get(atom)


def has_any(jaxpr: jax_core.Jaxpr, *names: str) -> bool:
    """Whether a jaxpr has an equation of some primitives, in the bodies of loops as well."""
    bodies = (body.jaxpr for eqn in jaxpr.eqns for body in bodies_of(eqn))
    return any(eqn.primitive.name in names for eqn in jaxpr.eqns) or any(has_any(body, *names) for body in bodies)


def with_bodies(
    eqn: jax_core.JaxprEqn, change: Callable[[jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]
) -> jax_core.JaxprEqn:
    """An equation with the bodies of a loop, or the branches of a choice, changed; itself where all stay."""
    if eqn.primitive.name not in _BODIES:
        return eqn
    own = {name: eqn.params[name] for name in _BODIES[eqn.primitive.name]}
    made = {name: tuple(map(change, body)) if isinstance(body, tuple) else change(body) for name, body in own.items()}
    if all(after is before for after, before in zip(_parts(made.values()), _parts(own.values()), strict=True)):
        return eqn
    return eqn.replace(params={**eqn.params, **made})


def with_jaxprs(value: Any, change: Callable[[Any], Any]) -> Any:
    """A parameter with all jaxprs in it, closed or not, changed; itself where none is."""
    if isinstance(value, tuple | list):
        return with_parts(value, [with_jaxprs(part, change) for part in value])
    return change(value) if isinstance(value, (jax_core.ClosedJaxpr, jax_core.Jaxpr)) else value


def with_inner(
    eqn: jax_core.JaxprEqn, change: Callable[[str, jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]
) -> jax_core.JaxprEqn:
    """An equation with all jaxprs in its parameters changed, which `change` gets with the name of the parameter.

    A parameter that has no place for constants is given the jaxpr closed where it gets any.
    """

    def changed(name: str, own: Any) -> Any:
        if isinstance(own, jax_core.ClosedJaxpr):
            return change(name, own)
        if own.constvars:
            return own
        before = jax_core.ClosedJaxpr(own, ())
        after = change(name, before)
        return own if after is before else after if after.consts else after.jaxpr

    params = {name: with_jaxprs(value, functools.partial(changed, name)) for name, value in eqn.params.items()}
    return eqn if all(new is eqn.params[name] for name, new in params.items()) else eqn.replace(params=params)


def inlines(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation calls a jitted function that may be inlined."""
    return is_understood(eqn, *CALLS) and not is_function(eqn)


def scan_options(eqn: jax_core.JaxprEqn) -> dict[str, Any]:
    """How often a scan turns, and in which direction, as `lax.scan` takes it."""
    return {name: eqn.params[name] for name in ("length", "reverse", "unroll")}


def scan_counts(eqn: jax_core.JaxprEqn) -> tuple[int, int]:
    """How many constants a scan is given, and how many values it carries.

    By its shapes, since releases of JAX name the parameters differently: arrays that are scanned over, and stacked
    results, have one dimension more than in the body.
    """
    body = eqn.params["jaxpr"].jaxpr
    same = lambda outer, inner: [a.aval.ndim == b.aval.ndim for a, b in zip(outer, inner, strict=True)]  # noqa: E731
    carried = sum(same(eqn.outvars, body.outvars))
    return sum(same(eqn.invars, body.invars)) - carried, carried


def inner_jaxprs(eqn: jax_core.JaxprEqn) -> list[jax_core.Jaxpr]:
    """The jaxprs in an equation's parameters."""
    opened = [getattr(part, "jaxpr", part) for part in _parts(eqn.params.values())]
    return [part for part in opened if isinstance(part, jax_core.Jaxpr)]


_OF_HOST = ("pure_callback", "io_callback", "debug_callback", "debug_print", "ffi_call")


def calls_host(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether anything in a jaxpr, or in those within, runs on the host."""
    return any(eqn.primitive.name in _OF_HOST or any(map(calls_host, inner_jaxprs(eqn))) for eqn in jaxpr.eqns)


def may_run_early(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation may be run before it is known that anybody asks for it, as in a branch that is not taken.

    It has no effects, runs nothing on the host, which may raise an error, and is sure to end.
    """
    if eqn.effects or eqn.primitive.name in (*_OF_HOST, "while"):
        return False
    return all(may_run_early(inner) for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns)


def starts_of(eqn: jax_core.JaxprEqn, var: Any) -> tuple[int, ...] | None:
    """Where a result of a split, or a slice without strides, begins in its operand; None of anything else."""
    if is_understood(eqn, "split"):
        axis, number = eqn.params["axis"], [own is var for own in eqn.outvars].index(True)
        start = sum(eqn.params["sizes"][:number])
        return tuple(start if d == axis else 0 for d in range(len(var.aval.shape)))
    if is_understood(eqn, "slice") and set(eqn.params["strides"] or ()) <= {1}:
        return tuple(eqn.params["start_indices"])
    return None


def made_alike(jaxpr: jax_core.Jaxpr) -> dict[Any, Any]:
    """For each variable, the first one that is computed or moved likewise: itself, if none was before."""
    found, first = dict[Any, Any](), dict[Any, Any]()
    for eqn in jaxpr.eqns:
        if is_understood(eqn, *ELEMENTWISE, *MOVING) and not any(
            isinstance(own, jax_core.Literal) for own in eqn.invars
        ):
            operands = tuple(found.get(own, own) for own in eqn.invars)
            key = eqn.primitive.name, operands, repr(sorted(eqn.params.items()))
            found[eqn.outvars[0]] = first.setdefault(key, eqn.outvars[0])
    return found


Widths = tuple[int, int, int]
"""How much an array is padded by along a dimension: before, after and between its elements."""


def widths_of(eqn: jax_core.JaxprEqn) -> tuple[Widths, ...]:
    """How a pad pads each dimension."""
    return tuple((int(low), int(high), int(between)) for low, high, between in eqn.params["padding_config"])


# --- all equations ------------------------------------------------------------------------------------


Sources = Callable[[jax_core.JaxprEqn], Sequence[Atomic]]
"""What an equation is to be made from."""


def operands_of(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
    """The atoms that an equation is made from, as they are."""
    return eqn.invars


def needed(
    jaxpr: jax_core.Jaxpr, sources: Sources = operands_of, results: Iterable[Atomic] | None = None
) -> list[jax_core.JaxprEqn]:
    """The equations of a jaxpr that have effects, and those that results or these depend on, in order.

    Args:
        jaxpr: the jaxpr to traverse.
        sources: the atoms to make an equation from.
        results: values of the jaxpr; where left off, its results.
    """
    wanted = set(variables(jaxpr.outvars if results is None else results))
    found = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            found.append(eqn)
            wanted.update(variables(sources(eqn)))
    return found[::-1]


RunEquation = Callable[[jax_core.JaxprEqn, list[Any]], Sequence[Any]]
"""The results of an equation, from the values of its operands."""


def literal_value(literal: jax_core.Literal) -> np.ndarray:
    """The number that a literal is, in its dtype."""
    return np.asarray(literal.val, literal.aval.dtype)  # type: ignore[attr-defined]


def evaluate(
    jaxpr: jax_core.ClosedJaxpr | jax_core.Jaxpr,
    inputs: Sequence[Any],
    run: RunEquation,
    known: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """The results of a jaxpr whose every equation `run` runs, on values of any kind.

    Args:
        jaxpr: the jaxpr to evaluate.
        inputs: a value for each of its inputs.
        run: the results of an equation, from the values of its operands.
        known: the value of a literal or a constant.
    """
    opened = jaxpr.jaxpr if isinstance(jaxpr, jax_core.ClosedJaxpr) else jaxpr
    values: dict[Any, Any] = dict(zip(opened.invars, inputs, strict=True))
    if isinstance(jaxpr, jax_core.ClosedJaxpr):
        values.update(zip(opened.constvars, map(known, jaxpr.consts), strict=True))
    return computed(opened.eqns, values, opened.outvars, run, known)


def computed(
    eqns: Iterable[jax_core.JaxprEqn],
    values: Mapping[Any, Any],
    results: Sequence[Atomic],
    run: RunEquation = bind,
    known: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """Some results of equations, in order, from the values of variables; `run` and `known` as `evaluate` has them."""
    values = dict(values)
    value = lambda atom: known(atom.val) if isinstance(atom, jax_core.Literal) else values[atom]  # noqa: E731
    for eqn in eqns:
        values.update(zip(eqn.outvars, run(eqn, [value(atom) for atom in eqn.invars]), strict=True))
    return list(map(value, results))


def scanned(eqn: jax_core.JaxprEqn, inputs: Sequence[Any], constants: Sequence[Any], run: RunEquation) -> list[Any]:
    """The results of a scan whose body, each of its equations as `run` has it, is given other constants."""
    closed, (first, carried) = eqn.params["jaxpr"], scan_counts(eqn)

    def turn(held: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
        results = evaluate(closed, [*constants, *held, *given], run)
        return results[:carried], results[carried:]

    start, rows = list(inputs[first : first + carried]), list(inputs[first + carried :])
    last, stacked = lax.scan(turn, start, rows, **scan_options(eqn))
    return [*last, *stacked]
