"""A function of JAX traced into a graph, and its gradient in three ways, each beside plain JAX.

The gradient is that of the sum of squares of all floats that the function returns, each square times a weight that is
drawn: `jax.grad` of the traced function, the trace of `jax.grad`, and `cl.gradient` of the traced sum. `cl.gradient` is
called as its users call it; that it finds the loss on the way is no part of any side, as all return slopes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison

Function = Callable[..., Any]

WAYS: dict[str, float] = {"": 1.1, "grad_of_traced": 1.2, "trace_of_grad": 1.2, "adjoint": 2.0}
"""The bars of the ways: the function itself, and three of its gradient."""


def shapes_of(arguments: Any) -> Any:
    """The shapes and dtypes of arrays, which is all that a trace needs."""
    return jax.tree.map(lambda own: jax.ShapeDtypeStruct(own.shape, own.dtype), arguments)


def traced(function: Function) -> Function:
    """The function of the same arguments by the graph that `cl.trace` makes of it where it is called."""
    return lambda *arguments: cl.trace(function, *shapes_of(arguments))(*arguments)


def _floats(results: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(results) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def loss_of(function: Function) -> Function:
    """From weights and arguments, the sum of the squared results, each times its weight."""

    def loss(weights: Sequence[Any], *arguments: Any) -> Any:
        results = _floats(function(*arguments))
        return sum(jnp.sum(w * jnp.abs(own) ** 2) for w, own in zip(weights, results, strict=True))

    return loss


def weighted(function: Function, arguments: tuple[Any, ...], random: np.random.Generator) -> tuple[Any, ...]:
    """The arguments of `loss_of` a function: weights between 0.5 and 1.5, and its own."""
    results = _floats(jax.eval_shape(function, *arguments))
    return [0.5 + random.random(own.shape, np.float32) for own in results], *arguments


def slopes_of(loss: Function, wrt: Sequence[int]) -> Function:
    """The gradient of a loss of weights and arguments by some of the arguments."""
    return jax.grad(loss, tuple(1 + k for k in wrt))


def adjoint(loss: Function, wrt: Sequence[int]) -> Function:
    """The same gradient by `cl.gradient` of the traced loss."""

    def run(*arguments: Any) -> tuple[Any, ...]:
        made = cl.trace(loss, *shapes_of(arguments))
        by = [made.inputs[1 + k] for k in wrt]
        found = cl.gradient(made.graph, of=made.outputs, wrt=by, program=made.program)
        both = cl.Sequence(found.forward, found.backward)
        lowered = cl.lower(made.graph, both, inputs=made.flat_inputs, outputs=[found[own] for own in by])
        return tuple(lowered.flat(jax.tree.leaves(arguments)))

    return run


def compare_way(
    name: str,
    function: Function,
    arguments: Callable[[np.random.Generator], tuple[Any, ...]],
    way: str,
    *,
    wrt: Sequence[int] = (0,),
    bar_from_seconds: float,
    tolerance: float,
) -> Comparison:
    """One of `WAYS` beside plain JAX; nothing is traced before it is called.

    Args:
        name: of the comparison; that of the way is put behind it.
        function: in plain JAX, of arrays.
        arguments: makes these.
        way: a name of `WAYS`.
        wrt: by which arguments the gradient is.
        bar_from_seconds: as in `Comparison`.
        tolerance: as in `Comparison`.
    """
    loss = loss_of(function)
    plain = slopes_of(loss, wrt)
    ours = {
        "": traced(function),
        "grad_of_traced": slopes_of(loss_of(traced(function)), wrt),
        "trace_of_grad": traced(plain),
        "adjoint": adjoint(loss, wrt),
    }[way]
    return Comparison(
        f"{name}/{way}" if way else name,
        ours=jax.jit(ours),
        plain=jax.jit(plain if way else function),
        arguments=(lambda random: weighted(function, arguments(random), random)) if way else arguments,
        bar=WAYS[way],
        tolerance=tolerance,
        bar_from_seconds=bar_from_seconds,
    )
