"""Inline small: calls of jitted functions that are no functions of the graph, replaced by their bodies.

In comes a jaxpr, out comes one without such calls. The name of a function of the user's becomes a scope of its
equations; those of a library's function are of the line that calls it, since JAX keeps the jaxpr of such a function
from wherever it was called first.
"""

from __future__ import annotations

from collections.abc import Callable

from jax.extend import core as jax_core

from codelet.frontends.calls import is_of_library
from codelet.frontends.functions import SharedFunctions
from codelet.frontends.labels import line_of
from codelet.frontends.passes.bodies import Bodies
from codelet.jaxprs.equations import CALLS
from codelet.jaxprs.rebuild import Builder, Run, rebuild


def _placing(call: jax_core.JaxprEqn, name: str) -> Callable[[jax_core.JaxprEqn], jax_core.JaxprEqn]:
    """Makes equations part of their caller: under its scopes, and of its line where they have none.

    Args:
        call: the call.
        name: of the user's function, or nothing for one of a library.
    """
    outer = call.source_info
    stack = outer.name_stack.extend(name) if name else outer.name_stack
    has_line = line_of(call) is not None

    def placed(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
        own = eqn.source_info
        of_call = has_line and (not name or line_of(eqn) is None)
        traceback = outer.traceback if of_call else own.traceback
        return eqn.replace(source_info=own.replace(name_stack=stack + own.name_stack, traceback=traceback))

    return placed


def inline_small(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without calls of jitted functions, those excepted that are functions of the graph."""
    shared = SharedFunctions(closed)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list) -> list:
        if eqn.primitive.name in CALLS and not shared.is_shared(eqn.params["jaxpr"]):
            called = eqn.params["jaxpr"]
            return builder.inlined(called, operands, _within(eqn, "" if is_of_library(called) else eqn.params["name"]))
        return builder.equation(bodies.changed(eqn), operands)

    def _within(call: jax_core.JaxprEqn, name: str) -> Run:
        placed = _placing(call, name)
        return lambda builder, eqn, operands: run(builder, placed(eqn), operands)

    bodies = Bodies(lambda body, _: rebuild(body, run))
    return rebuild(closed, run)
