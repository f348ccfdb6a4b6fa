"""Functions whose derivatives are those of a codelet: the body runs, the codelet is differentiated.

Where derivatives are asked for, values are the codelet's too if it computes the same, as with JAX's rules. They would
else be computed twice, as the solution of linear equations was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend import core as jax_core

from codelet.jaxprs.jvp_of_moving import jvp_of_moving
from codelet.jaxprs.winners import with_steady_winners
from lowering.fast.execution import Execution
from lowering.plan.steps import FunctionBody

Run = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def with_derivative(run: Run, function: FunctionBody, execution: Execution, num_results: int) -> Run:
    """A function's body with the derivatives of its codelet.

    Args:
        run: the body: from tables, and the arrays of the variables that are handed in, to the arrays of those that it
            writes. What streams are given has no derivative.
        function: whose body.
        execution: how variables are stored.
        num_results: how many arrays it gives, those of streams among them.
    """
    derivative = function.derivative
    assert derivative is not None
    reads = function.handed_in
    inputs = [reads.index(variable) for variable in derivative.inputs]
    differentiated = with_steady_winners(derivative.codelet.jaxpr)
    is_smooth = [jnp.issubdtype(own.dtype, jnp.inexact) for own in derivative.outputs]
    is_alone = num_results == len(function.writes)  # no stream is given something
    takes_values = derivative.same_values and is_alone and {*function.writes} <= {*derivative.outputs}

    @jax.custom_jvp
    def whole(tables: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        return run(tables, given)

    def rule(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        (_, given), (_, slopes) = primals, tangents
        unload = lambda values, k: execution.unload(reads[inputs[k]], values[inputs[k]])  # noqa: E731
        fields = [unload(given, k) for k in range(len(inputs))]

        def of_fields(*own: Any) -> tuple[list[Any], list[Any]]:
            made = jax_core.jaxpr_as_fun(differentiated)(*own)
            return list(compress(made, is_smooth)), made

        is_still = [isinstance(slopes[k], SymbolicZero) for k in inputs]
        given_slopes = [slopes[inputs[k]] if still else unload(slopes, k) for k, still in enumerate(is_still)]
        _, made, values = jvp_of_moving(of_fields, fields, given_slopes, has_aux=True)
        named = dict(zip(compress(derivative.outputs, is_smooth), made, strict=True))
        if takes_values:
            held = dict(zip(derivative.outputs, values, strict=True))
            results = [execution.load(own, held[own]) for own in function.writes]
        else:
            results = whole(*primals)
        variables = [*function.writes, *[None] * (len(results) - len(function.writes))]
        pairs = zip(variables, results, strict=True)
        return results, [
            execution.load(own, named[own]) if own is not None and own in named else _no_slope(value)
            for own, value in pairs
        ]

    whole.defjvp(rule, symbolic_zeros=True)
    return whole


def _no_slope(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)
