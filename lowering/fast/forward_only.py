"""Forward only: the identity, save that reverse-mode differentiation of it is an error that tells the user.

`jax.jit`, `jax.vmap` and forward mode go through it. It is a primitive, since `custom_derivatives.linear_call`
has no rule for batching, and a `custom_vjp` that raises would forbid forward mode too.

Source: "How JAX primitives work" in JAX's documentation; `nondifferentiable_backward` of `equinox.internal`,
whose error has another class.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from codelet.errors import ProgramError


def _identity(value: Any, *, predicate: str) -> Any:
    return value


def _refuse(*_: Any, predicate: str) -> Any:
    raise ProgramError(
        "a RepeatWhile is differentiated in reverse mode without a bound on its iterations",
        given=predicate,
        expected="forward mode (jax.jvp, jax.jacfwd), or a bound",
        fix="RepeatWhile(..., max_iterations=...)",
    )


_forward_only_p = Primitive("forward_only")
_forward_only_p.def_impl(_identity)
_forward_only_p.def_abstract_eval(_identity)
ad.deflinear2(_forward_only_p, _refuse)
batching.defvectorized(_forward_only_p)
mlir.register_lowering(_forward_only_p, mlir.lower_fun(_identity, multiple_results=False))


def forward_only(value: jax.Array, predicate: str) -> jax.Array:
    """The value, which came out of a loop over `predicate`.

    Raises:
        ProgramError: when it is differentiated in reverse mode.
    """
    return _forward_only_p.bind(value, predicate=predicate)
