"""Bodies: the jaxprs in the parameters of equations, to which a pass is applied as well.

In comes an equation and a pass on jaxprs; out comes the equation with its loops' bodies, its branches and its callees
changed. Each jaxpr is changed once, and so are jitted functions that say the same, so that one function stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from jax.extend import core as jax_core

from codelet.frontends.by_element import has_values_by_element
from codelet.frontends.structure import jaxpr_key
from codelet.jaxprs.equations import CALLS, scan_counts
from codelet.jaxprs.primitives import CUSTOM

Paths = Mapping[Any, str]
"""The parameters of the user's that some variables are."""

Change = Callable[[jax_core.ClosedJaxpr, Paths], jax_core.ClosedJaxpr]
"""What a pass does to a jaxpr, given which of its inputs are parameters of the user's."""

_HELD = {
    **dict.fromkeys((*CALLS, "scan", "remat2", "remat", "checkpoint"), ("jaxpr",)),
    **dict.fromkeys((*CUSTOM, "closed_call", "core_call", "call"), ("call_jaxpr",)),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}


class Bodies:
    """The jaxprs in equations, each changed once.

    Args:
        change: the pass on a jaxpr.
        is_whole: which functions with derivative rules stay as they are.
    """

    def __init__(self, change: Change, is_whole: Callable[[jax_core.JaxprEqn], bool] = has_values_by_element):
        self._change = change
        self._is_whole = is_whole
        self._made: dict[Hashable, Any] = {}
        self._seen: dict[int, tuple[Any, Any]] = {}  # by identity, with what keeps it

    def changed(self, eqn: jax_core.JaxprEqn, paths: Paths | None = None) -> jax_core.JaxprEqn:
        """An equation with its jaxprs changed; a function with a derivative rule that is whole stays as it is.

        Args:
            eqn: the equation.
            paths: the parameters of the user's that variables of its jaxpr are.
        """
        names = _HELD.get(eqn.primitive.name, ())
        if not names or (eqn.primitive.name in CUSTOM and self._is_whole(eqn)):
            return eqn
        made = {}
        for name in names:
            held = eqn.params[name]
            bodies = held if isinstance(held, tuple) else (held,)
            new = tuple(self._one(eqn, body, _paths_within(eqn, name, body, paths or {})) for body in bodies)
            if any(own is not body for own, body in zip(new, bodies, strict=True)):
                made[name] = new if isinstance(held, tuple) else new[0]
        return eqn.replace(params={**eqn.params, **made}) if made else eqn

    def _one(self, eqn: jax_core.JaxprEqn, body: Any, paths: Paths) -> Any:
        """A jaxpr of an equation, changed."""
        if id(body) not in self._seen:
            closed = body if isinstance(body, jax_core.ClosedJaxpr) else jax_core.ClosedJaxpr(body, ())
            key = jaxpr_key(closed) if eqn.primitive.name in CALLS else ("held", id(body))
            if key not in self._made:
                self._made[key] = self._new(eqn, body, closed, paths)
            self._seen[id(body)] = self._made[key], body
        return self._seen[id(body)][0]

    def _new(self, eqn: jax_core.JaxprEqn, body: Any, closed: jax_core.ClosedJaxpr, paths: Paths) -> Any:
        new = self._change(closed, paths)
        is_open = body is not closed
        if len(new.consts) > len(closed.consts) and (is_open or eqn.primitive.name in CUSTOM):
            return body  # which has no place for constants
        return new.jaxpr if is_open else new


def _paths_within(eqn: jax_core.JaxprEqn, name: str, body: Any, paths: Paths) -> dict[Any, str]:
    """Which inputs of a body are parameters of the user's."""
    if not paths:
        return {}
    first, invars = 0, getattr(body, "jaxpr", body).invars
    if name == "branches":
        first = 1
    elif eqn.primitive.name == "scan":
        invars = invars[: scan_counts(eqn)[0]]
    elif name == "cond_jaxpr":
        invars = invars[: eqn.params["cond_nconsts"]]
    elif name == "body_jaxpr":
        first, invars = eqn.params["cond_nconsts"], invars[: eqn.params["body_nconsts"]]
    given = [None if isinstance(atom, jax_core.Literal) else paths.get(atom) for atom in eqn.invars[first:]]
    return {var: path for var, path in zip(invars, given, strict=False) if path is not None}
