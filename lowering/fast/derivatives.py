"""Functions whose derivatives are those of a codelet: what runs is the body, what is differentiated the codelet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.winners import with_steady_winners
from codelet.views.sources import Variable
from lowering.fast.execution import Execution
from lowering.plan.steps import FunctionBody

Run = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def with_derivative(run: Run, function: FunctionBody, execution: Execution, reads: Sequence[Variable]) -> Run:
    """A function's body with the derivatives of its codelet.

    Args:
        run: the body: from tables, and what is held of the variables that it reads, to what is held of those that it
            writes, and what streams are given, which has no derivative.
        function: whose body.
        execution: how variables are held.
        reads: which variables it reads, in order, the codelet's inputs among them.
    """
    derivative = function.derivative
    assert derivative is not None
    inputs = [reads.index(variable) for variable in derivative.inputs]
    differentiated = with_steady_winners(derivative.codelet.jaxpr)
    smooth = [k for k, own in enumerate(derivative.inputs) if jnp.issubdtype(own.dtype, jnp.inexact)]

    @jax.custom_jvp
    def whole(tables: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        return run(tables, given)

    @whole.defjvp
    def _(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        (_, given), (_, slopes) = primals, tangents
        unload = lambda values, k: execution.unload(reads[inputs[k]], values[inputs[k]])  # noqa: E731
        fields = [unload(given, k) for k in range(len(inputs))]

        def of_smooth(*own: Any) -> list[Any]:
            own_fields = list(fields)
            for k, value in zip(smooth, own, strict=True):
                own_fields[k] = value
            made = jax_core.jaxpr_as_fun(differentiated)(*own_fields)
            return [value for value in made if jnp.issubdtype(value.dtype, jnp.inexact)]

        _, made = jax.jvp(of_smooth, [fields[k] for k in smooth], [unload(slopes, k) for k in smooth])
        named = dict(zip((v for v in derivative.outputs if jnp.issubdtype(v.dtype, jnp.inexact)), made, strict=True))
        results = whole(*primals)
        variables = [*function.writes, *[None] * (len(results) - len(function.writes))]
        pairs = zip(variables, results, strict=True)
        return results, [
            execution.load(own, named[own]) if own is not None and own in named else _no_slope(value)
            for own, value in pairs
        ]

    return whole


def _no_slope(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)
