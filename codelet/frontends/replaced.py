"""Replaced: jitted functions that the user has written by hand, as vertices.

In come the user's builders by the functions that they take the place of; a builder is given the graph and the tensors
of the flat arguments, as `jax.tree.leaves` has them, and returns tensors that are the flat results. Calls of these
functions become equations of a separate primitive before anything else is done, so that no pass looks into them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.extend import core as jax_core
from jax.interpreters import mlir

from codelet.errors import TraceError
from codelet.frontends.by_element import is_by_element
from codelet.frontends.calls import add_function, call
from codelet.frontends.passes.bodies import Bodies
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type
from codelet.graphs.graph import Graph
from codelet.jaxprs.equations import CALLS
from codelet.jaxprs.primitives import CUSTOM
from codelet.jaxprs.rebuild import Builder as Rebuilding
from codelet.jaxprs.rebuild import rebuild
from codelet.programs.functions import Function
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


class _Replacement:
    """The body of a function that is replaced, where no pass looks for it."""

    def __init__(self, closed: jax_core.ClosedJaxpr):
        self.closed = closed


_replaced_p = jax_core.Primitive("replaced")
_replaced_p.multiple_results = True


@_replaced_p.def_impl
def _run(*operands: Any, name: str, held: _Replacement, replacements: Replacements) -> list[Any]:
    return jax_core.jaxpr_as_fun(held.closed)(*operands)


@_replaced_p.def_abstract_eval
def _types(*operands: Any, name: str, held: _Replacement, replacements: Replacements) -> list[Any]:
    return list(held.closed.out_avals)


mlir.register_lowering(_replaced_p, mlir.lower_fun(_run, multiple_results=True))

Builder = Callable[..., Any]
"""From a graph and tensors to tensors, in any pytree."""


_DIFFERENTIATED = (
    "where it is differentiated it is another function; give it a jax.custom_vjp of jitted functions, and replace these"
)


class Replacements:
    """The builders of a trace, by the names of the functions that they take the place of.

    Args:
        replace: the builders, by functions or their names.
    """

    def __init__(self, replace: Mapping[Any, Builder]):
        self._builders: dict[str, Builder] = {}
        self._seen: set[str] = set()
        self._calls: Counter[tuple[str, Hashable]] = Counter()
        self._made: dict[Hashable, Function] = {}
        if not isinstance(replace, Mapping):
            raise TraceError(
                "what is replaced in a traced function is no dict",
                given=f"{replace!r:.80}",
                expected="replace={function: builder}",
            )
        for key, builder in replace.items():
            name = key if isinstance(key, str) else getattr(key, "__name__", None)
            if not isinstance(name, str) or not callable(builder):
                raise TraceError(
                    "replace= names something other than a function, or gives no builder",
                    given=f"{key!r:.60}: {builder!r:.60}",
                    expected="a jitted function or its name, and a function builder(graph, *tensors)",
                )
            self._builders[name] = builder

    def marked(self, closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        """A jaxpr in which the calls of functions that are replaced are separate equations.

        Raises:
            TraceError: it calls no function of such a name.
        """

        def run(builder: Rebuilding, eqn: jax_core.JaxprEqn, operands: list) -> list:
            called = _called(eqn)
            if called is None:
                return builder.equation(bodies.changed(eqn), operands)
            name, held = called
            self._seen.add(name)
            if name not in self._builders:
                return builder.equation(bodies.changed(eqn), operands)
            self._calls[_key(name, held)] += 1
            own = {"name": name, "held": _Replacement(held), "replacements": self}
            return builder.equation(eqn.replace(primitive=_replaced_p, params=own), operands)

        if not self._builders:
            return closed
        bodies = Bodies(lambda body, _: rebuild(body, run), is_by_element)
        marked = rebuild(closed, run)
        if missing := sorted(self._builders.keys() - {name for name, _ in self._calls}):
            raise TraceError(
                "no function of this name is called in the traced function",
                given=", ".join(map(repr, missing)),
                expected=f"one of {', '.join(sorted(self._seen)) or 'none: nothing in it is jitted'}",
                fix="jax.jit around the function that is to be replaced, where it is defined",
            )
        return marked

    def added(self, walk: Walk, name: str, closed: jax_core.ClosedJaxpr, operands: Sequence[Value]) -> list[Tensor]:
        """The results of a function that is replaced: of a call, where there are several of its type."""
        key = _key(name, closed)
        if self._calls[key] == 1:
            with walk.graph.scope(name, unique=True):
                return self.built(walk.graph, name, closed, [walk.tensor(own) for own in operands])

        def build(given: Sequence[Tensor]) -> list[Tensor]:
            with walk.recording():
                return self.built(walk.graph, name, closed, given)

        if key not in self._made:
            self._made[key] = add_function(walk, closed, name, build=build)
        return call(walk, self._made[key], operands)

    def built(self, graph: Graph, name: str, closed: jax_core.ClosedJaxpr, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results of a function that is replaced.

        Raises:
            TraceError: they are not those of the function.
        """
        builder = self._builders[name]
        try:
            inspect.signature(builder).bind(graph, *operands)
        except TypeError as error:
            raise TraceError(
                f"what takes the place of {name!r} does not take the arguments of that: {error}",
                given=", ".join(f"{tensor!r:.60}" for tensor in operands),
                expected=f"builder(graph, *tensors), of {len(operands)} tensors",
                fix=_DIFFERENTIATED,
            ) from None
        returned = builder(graph, *operands)
        found = jax.tree.leaves(returned, is_leaf=lambda own: isinstance(own, Tensor))
        expected = [data_type(aval) for aval in closed.out_avals]
        own = [(tensor.shape, tensor.dtype) if isinstance(tensor, Tensor) else None for tensor in found]
        if own != expected:
            raise TraceError(
                f"what takes the place of {name!r} does not return what that does",
                given=", ".join(f"{tensor!r:.60}" for tensor in found) or f"{returned!r:.60}",
                expected=", ".join(f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in expected),
                fix=_DIFFERENTIATED,
            )
        return found


def _called(eqn: jax_core.JaxprEqn) -> tuple[str, jax_core.ClosedJaxpr] | None:
    """The name of a function that an equation calls, and what it does."""
    if eqn.primitive.name in CALLS:
        return str(eqn.params["name"]), eqn.params["jaxpr"]
    if eqn.primitive.name in CUSTOM:
        closed = eqn.params["call_jaxpr"]
        return str(closed.jaxpr.debug_info.func_name), closed
    return None


def _key(name: str, closed: jax_core.ClosedJaxpr) -> tuple[str, Hashable]:
    return name, tuple((aval.shape, str(aval.dtype)) for aval in (*closed.in_avals, *closed.out_avals))


@rule("replaced", by="what the user's `replace=` builds")
def replaced(walk: Walk, *operands: Value, name: str, held: _Replacement, replacements: Replacements) -> Any:
    """A function that the user has written by hand."""
    return replacements.added(walk, name, held.closed, operands)
