"""Functions: which jitted functions of the user's are functions of the graph, each defined once however often called.

In comes a traced jaxpr; a function is shared where it is called several times with equal types, and does more than move
elements or map over them. Those cost less in place than a call would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from jax.extend import core as jax_core

from codelet.frontends.by_element import has_values_by_element
from codelet.frontends.calls import add_function, is_of_library
from codelet.frontends.structure import jaxpr_key
from codelet.jaxprs.equations import CALLS, inner_jaxprs
from codelet.jaxprs.primitives import MOVING
from codelet.programs.functions import Function

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


class SharedFunctions:
    """The functions of a graph that jitted functions become.

    Args:
        closed: the traced jaxpr that calls them.
    """

    def __init__(self, closed: jax_core.ClosedJaxpr):
        self._keys: dict[int, tuple[Any, Hashable]] = {}  # by identity, with what keeps it
        self._calls: Counter[Hashable] = Counter()
        self._made: dict[Hashable, Function] = {}
        self._count(closed.jaxpr, set())

    def _key(self, closed: jax_core.ClosedJaxpr) -> Hashable:
        if id(closed) not in self._keys:
            self._keys[id(closed)] = closed, jaxpr_key(closed)
        return self._keys[id(closed)][1]

    def _count(self, jaxpr: jax_core.Jaxpr, seen: set[Hashable]) -> None:
        """Count the calls in a jaxpr, and in its callees once."""
        for eqn in jaxpr.eqns:
            called = eqn.params["jaxpr"] if eqn.primitive.name in CALLS else None
            if called is not None:
                key = self._key(called)
                self._calls[key] += not is_of_library(called) and _is_heavy(called.jaxpr)
                if key in seen:
                    continue
                seen.add(key)
            for inner in inner_jaxprs(eqn):
                self._count(inner, seen)

    def is_shared(self, closed: jax_core.ClosedJaxpr) -> bool:
        """Whether a jitted function is a function of the graph."""
        return self._calls[self._key(closed)] > 1

    def function(self, walk: Walk, closed: jax_core.ClosedJaxpr, name: str) -> Function:
        """The function of the graph that a jitted function is, which the first call adds."""
        key = self._key(closed)
        if key not in self._made:
            self._made[key] = add_function(walk, closed, name)
        return self._made[key]


def _is_heavy(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether any equation does more than move elements, or map over them."""
    return any(
        not has_values_by_element(eqn) and eqn.primitive.name not in MOVING and not _only_calls(eqn)
        for eqn in jaxpr.eqns
    )


def _only_calls(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is a call of something that is not heavy."""
    return eqn.primitive.name in CALLS and not _is_heavy(eqn.params["jaxpr"].jaxpr)
