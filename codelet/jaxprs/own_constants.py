"""Private constants: a jaxpr that nothing outside of it changes.

JAX keeps an array of the host that a traced function uses as it is, in the constants of its jaxpr and of those of
functions that it calls. Its owner may write to it later, so a kept jaxpr has copies, of the same kind and
dtype: 64 bits stay so, whatever is allowed now.
"""

from __future__ import annotations

import copy
from operator import is_ as _is
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, with_jaxprs

_UNCHANGING = (jax.Array, np.generic, bool, int, float, complex)


def _atom(atom: Atomic) -> Atomic:
    """A variable, or a literal that has no array of the host: plain numbers, whose types are weak, are JAX's."""
    if not isinstance(atom, jax_core.Literal) or isinstance(atom.val, _UNCHANGING) or atom.aval.weak_type:  # type: ignore[attr-defined]
        return atom
    return jax_core.Literal(copy.deepcopy(atom.val), atom.aval)


def _opened(jaxpr: jax_core.Jaxpr, made: dict[int, Any]) -> jax_core.Jaxpr:
    def own(body: Any) -> Any:
        return _closed(body, made) if isinstance(body, jax_core.ClosedJaxpr) else _opened(body, made)

    equations, outvars = [], list(map(_atom, jaxpr.outvars))
    for eqn in jaxpr.eqns:
        invars, params = list(map(_atom, eqn.invars)), {name: with_jaxprs(v, own) for name, v in eqn.params.items()}
        same = all(map(_is, invars, eqn.invars)) and all(params[name] is value for name, value in eqn.params.items())
        equations.append(eqn if same else eqn.replace(invars=invars, params=params))
    same = all(map(_is, equations, jaxpr.eqns)) and all(map(_is, outvars, jaxpr.outvars))
    return jaxpr if same else jaxpr.replace(eqns=equations, outvars=outvars)


def _closed(closed: jax_core.ClosedJaxpr, made: dict[int, Any]) -> jax_core.ClosedJaxpr:
    if id(closed) not in made:  # what is shared stays shared
        consts = [const if isinstance(const, _UNCHANGING) else copy.deepcopy(const) for const in closed.consts]
        jaxpr = _opened(closed.jaxpr, made)
        same = jaxpr is closed.jaxpr and all(map(_is, consts, closed.consts))
        made[id(closed)] = closed if same else jax_core.ClosedJaxpr(jaxpr, consts)
    return made[id(closed)]


def with_own_constants(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with copies of the arrays of the host among its constants and those of jaxprs within; itself without any.

    >>> import jax.numpy as jnp
    >>> table = np.arange(3.0, dtype=np.float32)
    >>> closed = with_own_constants(jax.make_jaxpr(lambda x: x + table)(jnp.zeros(3)))
    >>> table[:] = 0
    >>> [const.tolist() for const in closed.consts]
    [[0.0, 1.0, 2.0]]
    """
    return _closed(closed, {})
