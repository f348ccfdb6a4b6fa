"""Programs that are equal by construction: each equation of a jaxpr is made in another way that a law allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind, evaluate, scan_counts
from codelet.jaxprs.rebuild import inline

Array = Any
Way = Callable[[jax_core.JaxprEqn, list[Any]], Sequence[Any]]
"""Another way to compute an equation's results of its operands."""


def _halves(reduce: Callable[..., Any], combine: Callable[..., Any]) -> Way:
    """A reduction of two parts along one of its dimensions."""

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        (x,), axes = operands, tuple(map(int, eqn.params["axes"]))
        wide = [d for d in axes if x.shape[d] > 1]
        if not wide:
            return bind(eqn, operands)
        cut = x.shape[wide[0]] // 2
        parts = jnp.split(x, [cut], wide[0])
        return [combine(*(reduce(part, axes) for part in parts))]

    return run


def _by_blocks(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """A product as the sum of two, over parts of the first dimension that is summed over."""
    (left, right), _ = eqn.params["dimension_numbers"]
    if not left or operands[0].shape[left[0]] < 2:
        return bind(eqn, operands)
    cut = operands[0].shape[left[0]] // 2
    firsts, seconds = (jnp.split(x, [cut], int(d[0])) for x, d in zip(operands, (left, right), strict=True))
    parts = [bind(eqn, [a, b])[0] for a, b in zip(firsts, seconds, strict=True)]
    return [parts[1] + parts[0]]


def _unrolled(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """A loop turn by turn."""
    params, (first, carried) = eqn.params, scan_counts(eqn)
    kept, held, over = operands[:first], list(operands[first : first + carried]), operands[first + carried :]
    turns, stacked = range(params["length"]), []
    if not 0 < params["length"] <= 12:
        return bind(eqn, operands)
    for k in reversed(turns) if params["reverse"] else turns:
        results = jax_core.jaxpr_as_fun(params["jaxpr"])(*kept, *held, *(own[k] for own in over))
        held = list(results[:carried])
        stacked.append(results[carried:])
    rows = stacked[::-1] if params["reverse"] else stacked
    return [*held, *(jnp.stack(own) for own in zip(*rows, strict=True))]


def _summed_by_product(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """A running sum as a product with a triangle of ones."""
    (x,), axis = operands, eqn.params["axis"]
    ones = np.tri(x.shape[axis], dtype=x.dtype)
    ones = ones.T if eqn.params["reverse"] else ones
    return [jnp.moveaxis(jnp.tensordot(ones, x, ([1], [axis])), 0, axis)]


def _chosen(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    if len(operands) != 3 or operands[0].dtype != bool:
        return bind(eqn, operands)
    return [lax.select_n(~operands[0], operands[2], operands[1])]


def _backwards(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """A sum from the end."""
    return bind(eqn, [lax.rev(operands[0], tuple(map(int, eqn.params["axes"])))])


def _looked_up_turned(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """Moves of what is turned around."""
    (x,) = operands
    if not x.ndim:
        return bind(eqn, operands)
    return bind(eqn, [lax.rev(lax.rev(x, (0,)), (0,))])


WAYS: dict[str, list[Way]] = {
    "add": [lambda eqn, x: [x[1] + x[0]], lambda eqn, x: [x[0] - (-x[1])]],
    "add_any": [lambda eqn, x: [x[1] + x[0]]],
    "sub": [lambda eqn, x: [-(x[1] - x[0])], lambda eqn, x: [-x[1] + x[0]]],
    "mul": [lambda eqn, x: [x[1] * x[0]], lambda eqn, x: [(x[0] + 1) * x[1] - x[1]]],
    "div": [lambda eqn, x: [x[0] * (1 / x[1])], lambda eqn, x: [1 / (x[1] / x[0])]],
    "neg": [lambda eqn, x: [0 - x[0]]],
    "integer_pow": [lambda eqn, x: [x[0] * x[0] ** (eqn.params["y"] - 1)]],
    "dot_general": [_by_blocks],
    "reduce_sum": [_halves(jnp.sum, lambda a, b: b + a), _backwards],
    "reduce_max": [_halves(jnp.max, jnp.maximum)],
    "reduce_min": [_halves(jnp.min, jnp.minimum)],
    "max": [lambda eqn, x: [jnp.maximum(x[1], x[0])]],
    "min": [lambda eqn, x: [jnp.minimum(x[1], x[0])]],
    "tanh": [lambda eqn, x: [-jnp.tanh(-x[0])]],
    "sin": [lambda eqn, x: [-jnp.sin(-x[0])]],
    "cos": [lambda eqn, x: [jnp.cos(-x[0])]],
    "cumsum": [_summed_by_product],
    "select_n": [_chosen],
    "scan": [_unrolled],
    "lt": [lambda eqn, x: [x[1] > x[0]], lambda eqn, x: [~(x[0] >= x[1])]],
    "gt": [lambda eqn, x: [x[1] < x[0]]],
    "transpose": [_looked_up_turned],
    "reshape": [_looked_up_turned],
}
"""Other ways of primitives, of floats."""


def rewritten(closed: jax_core.ClosedJaxpr, seed: int) -> tuple[jax_core.ClosedJaxpr, int]:
    """A jaxpr that is equal to another by laws of numbers, and how many of its equations are made in another way."""
    closed, random, count = inline(closed), np.random.default_rng(seed), 0

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        nonlocal count
        ways = WAYS.get(eqn.primitive.name, [])
        is_float = eqn.outvars[0].aval.dtype in (np.float32, bool) and operands[-1].dtype == np.float32  # type: ignore[attr-defined]
        is_full = all(own.size for own in operands)
        if not ways or not is_float or not is_full or random.random() < 0.4:
            return bind(eqn, operands)
        made = ways[int(random.integers(len(ways)))](eqn, [jnp.asarray(own) for own in operands])
        count += 1
        # A number beside an array is a literal in its own dtype and shape.
        kinds = [var.aval for var in eqn.outvars]
        return [lax.convert_element_type(own, k.dtype).reshape(k.shape) for own, k in zip(made, kinds, strict=True)]  # type: ignore[attr-defined]

    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]  # type: ignore[attr-defined]
    made = jax.make_jaxpr(lambda *given: evaluate(closed, given, run, known=jnp.asarray))(*structs)
    return made, count
