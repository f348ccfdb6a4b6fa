"""Fuse elementwise: neighbouring elementwise equations of one shape, as one.

In comes a jaxpr, out comes one in which they are calls of a function that holds them, which `cl.trace` adds as one map
with several results. A value that passes from one of them to another is neither stored nor sent; nothing is computed
twice. Neighbours are equations of which one reads the other's results, under the same label and in the same scopes, so
that layers stay apart; and none are joined where another equation would have to run between them. A stopped value
(`jax.lax.stop_gradient`) is stopped where it is read, which costs nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.frontends.by_element import called, is_by_element
from codelet.frontends.labels import labels, origins
from codelet.frontends.passes.bodies import Bodies, Paths
from codelet.frontends.passes.contraction import Contraction
from codelet.frontends.structure import jaxpr_key, shape_of
from codelet.jaxprs.equations import Atomic, inner_jaxprs, variables
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder

FUSED = jax_core.DebugInfo("codelet", "fused", None, None)
"""What the functions that equations are fused into say of where they are from."""

MOST_NAMED = 4
"""The most equations that are named by the function that holds them."""


@dataclass(frozen=True)
class Saved:
    """The savings of fusion, in the equations of a jaxpr and of its bodies, each counted once.

    Attributes:
        compute_sets: how many fewer there are.
        memory_words: of results that nobody holds any longer.
        exchange_words: of operands that are no longer read from other vertices, or read once instead of several times.
    """

    compute_sets: int = 0
    memory_words: int = 0
    exchange_words: int = 0

    def __add__(self, other: Saved) -> Saved:
        return Saved(
            self.compute_sets + other.compute_sets,
            self.memory_words + other.memory_words,
            self.exchange_words + other.exchange_words,
        )

    def __str__(self) -> str:
        return (
            f"fusing saves {self.compute_sets:,} compute sets, {self.memory_words:,} words of memory "
            f"and {self.exchange_words:,} words read from other vertices"
        )


def _is_spread(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation spreads a number, which costs nothing and so is done wherever it is read."""
    return eqn.primitive.name == "broadcast_in_dim" and is_by_element(eqn)


def _words(var: Any) -> int:
    return -(-var.aval.size * var.aval.dtype.itemsize // 4)


def _saved_within(jaxpr: jax_core.Jaxpr) -> Saved:
    """The savings of a function of fused equations."""
    worked = [eqn for eqn in jaxpr.eqns if not _is_spread(eqn)]
    made = {var for eqn in worked for var in eqn.outvars if not isinstance(var, jax_core.DropVar)}
    read = [var for eqn in worked for var in set(variables(eqn.invars)) if shape_of(var)]
    given = [var for var in jaxpr.invars if shape_of(var)]
    memory = sum(map(_words, made - set(jaxpr.outvars)))
    exchange = sum(_words(var) for var in read if var in made or var in jaxpr.invars) - sum(map(_words, given))
    return Saved(len(worked) - 1, memory, exchange)


def saved_by_fusion(closed: jax_core.ClosedJaxpr) -> Saved:
    """The savings of fusion in a jaxpr."""
    seen: set[int] = set()

    def look(jaxpr: jax_core.Jaxpr) -> Saved:
        if id(jaxpr) in seen:
            return Saved()
        seen.add(id(jaxpr))
        total = Saved()
        for eqn in jaxpr.eqns:
            for inner in inner_jaxprs(eqn):
                total += _saved_within(inner) if inner.debug_info is FUSED else look(inner)
        return total

    return look(closed.jaxpr)


# --- which equations are neighbours --------------------------------------------------------------------------


def _names(path: str) -> set[str]:
    """The key by which a parameter, and an optimiser's state beside it, are found alike: `p/first/w`, `v/first/w`."""
    within = path.partition("/")[2]
    return {name for name in (within, within.partition("/")[2]) if "/" in name}


def readers_of(jaxpr: jax_core.Jaxpr) -> dict[Any, set[int]]:
    """The equations that read each variable, by position."""
    readers: dict[Any, set[int]] = {}
    for k, eqn in enumerate(jaxpr.eqns):
        for var in variables(eqn.invars):
            readers.setdefault(var, set()).add(k)
    return readers


def _outgrown(jaxpr: jax_core.Jaxpr, readers: Mapping[Any, set[int]]) -> set[int]:
    """The equations whose results are larger than all that they are spread out from, and are read by one other."""
    spread = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if is_understood(eqn, "broadcast_in_dim")}
    results, found = set(variables(jaxpr.outvars)), set()
    for k, eqn in enumerate(jaxpr.eqns):
        own = variables(eqn.invars)
        if not is_by_element(eqn) or not own or not all(var in spread for var in own):
            continue
        read = sum(_words(spread[var]) for var in set(own))
        is_held = any(var in results or len(readers.get(var, ())) != 1 for var in eqn.outvars)
        if not is_held and read < sum(map(_words, eqn.outvars)):
            found.add(k)
    return found


class _EquationPlaces:
    """Where equations are: neighbours are in the same scopes, and their parameters are of one layer, or one parameter
    and the state beside it.

    Args:
        jaxpr: whose equations.
        paths: those of its inputs that are parameters of the user's.
        anywhere: those that fit wherever they are read.
    """

    def __init__(self, jaxpr: jax_core.Jaxpr, paths: Paths, anywhere: Container[int]):
        self._anywhere = anywhere
        plain = labels(jaxpr, {})
        own = labels(jaxpr, paths) if paths else plain
        held = origins(jaxpr, paths) if paths else {}
        self._scopes = [(str(eqn.source_info.name_stack), label) for eqn, label in zip(jaxpr.eqns, plain, strict=True)]
        self._owners = [{label} - {scopes} for label, scopes in zip(own, plain, strict=True)]
        self._names = [[_names(held[v]) for v in variables(eqn.invars) if v in held] for eqn in jaxpr.eqns]

    def fit(self, a: Sequence[int], b: Sequence[int]) -> bool:
        """Whether equations are in one place."""
        a, b = ([k for k in own if k not in self._anywhere] for own in (a, b))
        if not a or not b:
            return True
        if self._scopes[a[0]] != self._scopes[b[0]]:
            return False
        members = (*a, *b)
        if len(set[str]().union(*(self._owners[k] for k in members))) <= 1:
            return True
        names = [own for k in members for own in self._names[k]]
        return bool(names) and bool(set.intersection(*names))


def groups(jaxpr: jax_core.Jaxpr, paths: Paths, readers: Mapping[Any, set[int]]) -> list[list[int]]:
    """The equations of a jaxpr that are one, by position, in an order in which they can be run.

    Args:
        jaxpr: whose equations.
        paths: those of its inputs that are parameters of the user's.
        readers: the equations that read each variable, by position.
    """
    places, joined = _EquationPlaces(jaxpr, paths, _outgrown(jaxpr, readers)), Contraction()
    made_by: dict[Any, int] = {}
    last_effect: list[int] = []
    shapes: list[tuple[int, ...] | None] = []
    for k, eqn in enumerate(jaxpr.eqns):
        producers = list(dict.fromkeys(made_by[var] for var in variables(eqn.invars) if var in made_by))
        joined.add([*producers, *(last_effect if eqn.effects else ())])
        last_effect = [k] if eqn.effects else last_effect
        made_by.update(dict.fromkeys(eqn.outvars, k))
        shapes.append(shape_of(eqn.outvars[0]) if is_by_element(eqn) and not _is_spread(eqn) else None)
        for producer in producers if shapes[k] is not None else ():
            own, other = joined.members[joined.at(producer)], joined.members[joined.at(k)]
            if shapes[producer] == shapes[k] and places.fit(own, other):
                joined.join(producer, k)
    return joined.in_order()


# --- one function of them ------------------------------------------------------------------------------------


def _name(eqns: Sequence[jax_core.JaxprEqn]) -> str:
    names = [re.sub(r"\W+", "_", called(eqn)).strip("_") or eqn.primitive.name for eqn in eqns]
    more = len(names) - MOST_NAMED
    return "_".join(names[:MOST_NAMED]) + (f"_and_{more}_more" if more > 0 else "")


@functools.cache
def _template() -> jax_core.JaxprEqn:
    """A call of a jitted function, from one value to one."""
    (eqn,) = jax.make_jaxpr(jax.jit(lambda x: x + 1))(np.float32(0)).eqns
    return eqn


def _call_of(function: jax_core.ClosedJaxpr, name: str) -> jax_core.JaxprEqn:
    """An equation that calls a function."""
    template = _template()
    params = {**template.params, "jaxpr": function, "name": name}
    for kind, count in (("in", len(function.in_avals)), ("out", len(function.out_avals))):
        for given in (f"{kind}_shardings", f"{kind}_layouts"):
            params[given] = template.params[given] * count
    params["donated_invars"] = (False,) * len(function.in_avals)
    outvars = [jax_core.Var(aval) for aval in function.out_avals]
    return template.replace(params=params, outvars=outvars, effects=function.effects)


class _Fusing:
    """The pass, and its results so far: functions that say the same are one."""

    def __init__(self) -> None:
        self.bodies = Bodies(self.fuse, is_by_element)
        self._functions: dict[Hashable, jax_core.ClosedJaxpr] = {}

    def fuse(self, closed: jax_core.ClosedJaxpr, paths: Paths) -> jax_core.ClosedJaxpr:
        """A jaxpr with neighbours fused."""
        jaxpr = closed.jaxpr
        of_parameters = origins(jaxpr, paths) if paths else {}
        readers = readers_of(jaxpr)
        results = set(variables(jaxpr.outvars))
        builder = Builder(jaxpr.invars, jaxpr.debug_info)
        known: dict[Any, Atomic] = dict(zip(jaxpr.invars, builder.invars, strict=True))
        known.update(zip(jaxpr.constvars, map(builder.constant, closed.consts), strict=True))
        at = lambda atom: atom if isinstance(atom, jax_core.Literal) else known[atom]  # noqa: E731
        left: set[int] = set()  # what is done where it is read, and only fused equations read
        order = groups(jaxpr, paths, readers)
        alone = [jaxpr.eqns[members[0]] for members in order if len(members) == 1]
        stops = {var: eqn for eqn in alone if eqn.primitive.name == "stop_gradient" for var in eqn.outvars}
        spread = {var: eqn for eqn in jaxpr.eqns if _is_spread(eqn) for var in eqn.outvars} | stops
        reads_stopped = {
            id(eqn)
            for eqn in alone
            if is_by_element(eqn) and eqn.outvars[0] not in spread and any(v in stops for v in variables(eqn.invars))
        }
        fused = {k for own in order if len(own) > 1 or id(jaxpr.eqns[own[0]]) in reads_stopped for k in own}
        for var, eqn in spread.items():
            if var not in results and readers.get(var, set()) <= fused:
                left.add(id(eqn))
        for members in order:
            eqns = [jaxpr.eqns[k] for k in members]
            if not fused.issuperset(members):
                (eqn,) = eqns
                if id(eqn) not in left:
                    own = self.bodies.changed(eqn, of_parameters)
                    known.update(zip(eqn.outvars, builder.equation(own, list(map(at, eqn.invars))), strict=True))
                continue
            inside = set(members)
            kept = [
                var for eqn in eqns for var in eqn.outvars if var in results or not readers.get(var, set()) <= inside
            ]
            kept = [var for var in kept if var in results or var in readers]
            operands, function = self._function(eqns, spread, kept)
            call = _call_of(function, _name(eqns)).replace(source_info=eqns[0].source_info)
            known.update(zip(kept, builder.equation(call, list(map(at, operands))), strict=True))
        return builder.closed(list(map(at, jaxpr.outvars)), closed)

    def _function(
        self, eqns: Sequence[jax_core.JaxprEqn], spread: Mapping[Any, jax_core.JaxprEqn], kept: Sequence[Any]
    ) -> tuple[list[Any], jax_core.ClosedJaxpr]:
        """The operands that equations read from elsewhere, and a function of them that gives some of their results."""
        made = {var for eqn in eqns for var in eqn.outvars}
        taken = dict.fromkeys(var for eqn in eqns for var in variables(eqn.invars) if var not in made)
        spreads = {var: spread[var] for var in taken if var in spread}
        operands = list(
            dict.fromkeys(own for var in taken for own in (variables(spread[var].invars) if var in spread else [var]))
        )
        builder = Builder(operands, FUSED)
        known: dict[Any, Atomic] = dict(zip(operands, builder.invars, strict=True))
        at = lambda atom: atom if isinstance(atom, jax_core.Literal) else known[atom]  # noqa: E731
        for eqn in (*spreads.values(), *eqns):
            known.update(zip(eqn.outvars, builder.equation(eqn, list(map(at, eqn.invars))), strict=True))
        function = builder.closed([known[var] for var in kept])
        return operands, self._functions.setdefault(jaxpr_key(function), function)


def fuse_elementwise(closed: jax_core.ClosedJaxpr, paths: Paths | None = None) -> jax_core.ClosedJaxpr:
    """A jaxpr in which neighbouring elementwise equations are one.

    Args:
        closed: the jaxpr.
        paths: those of its inputs that are parameters of the user's, which tell layers apart.
    """
    return _Fusing().fuse(closed, paths or {})
