"""Reduce by halves: on a CPU, a reduction over a major dimension with many results is done by halves.

In comes a jaxpr, out comes one in which such reductions are chains of elementwise operations: the first half
of what is reduced with the second, and again, until one is left. XLA's CPU backend reduces a dimension beneath
which lie 32,768 elements or more 10 to 50 times as slowly as one with less beneath it. Measured with jax 0.10.2
on two busy cores, in ms, for (reduced, results) of float32:

                      XLA's    halves    a dot with ones    a scan
    (64, 16384)        0.58      0.48               0.32       1.3
    (64, 32768)          17      0.78               0.83       1.8
    (64, 65536)          83       2.1                1.4       9.2
    (4, 1048576)         88       1.6                5.7       7.1
    (1024, 65536)      1364       136                 40       360

Halves were chosen over the dot since they reduce anything, fuse with what they reduce (squares of (64, 65536):
3 times as fast as the dot), and add up in pairs, which is more exact than one after another. What broadcasts
the result may do the last halves again for each repetition, as XLA fuses them: `x - x.sum(0)` of (64, 65536)
gains a factor of 3.5 where the sum alone gains 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind
from codelet.jaxprs.primitives import REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import rewrite
from codelet.jaxprs.winners import slope_of_winners
from lowering.arrays import Array

LEAST_BENEATH = 1 << 15
"""Elements of the results beneath the reduced dimension in memory from which XLA's own reduction is slow."""


def _is_slow(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is a reduction over a dimension with too much beneath it."""
    if not is_understood(eqn, *REDUCTIONS) or isinstance(eqn.invars[0], jax_core.Literal):
        return False
    shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]  # type: ignore[attr-defined]
    inner = max((int(axis) for axis in axes if shape[axis] > 1), default=None)
    return inner is not None and 0 not in shape and math.prod(shape[inner + 1 :]) >= LEAST_BENEATH


def _halves(operation: Callable[[Any, Any], Any], array: Array, axes: Sequence[int]) -> Array:
    """A reduction of `array` over `axes`, which its result has not, by halves."""
    for axis in sorted(axes, reverse=True):
        while (extent := array.shape[axis]) > 1:
            half = extent // 2
            first, second, odd = lax.split(array, (half, half, extent % 2), axis)
            array = operation(first, second)
            array = lax.concatenate([array, odd], axis) if extent % 2 else array
    return lax.squeeze(array, axes)


def _by_halves(eqn: jax_core.JaxprEqn) -> Callable[[Array], Array]:
    """A slow reduction as a function with JAX's own derivative, in which ties of a greatest share the slope."""
    name, axes = eqn.primitive.name, tuple(sorted(int(axis) for axis in eqn.params["axes"]))
    operation = REDUCTIONS[name]
    reduced = lambda array: _halves(operation, array, axes)  # noqa: E731
    if name in ("reduce_and", "reduce_or", "reduce_xor", "reduce_prod"):
        return reduced
    function = jax.custom_jvp(reduced)

    @function.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (array,), (tangent,) = primals, tangents
        result = function(array)
        if name == "reduce_sum":
            return result, lax.reduce_sum(tangent, axes)
        return result, slope_of_winners(tangent, array, result, operation, axes, _halves)

    return function


def _replacement(eqn: jax_core.JaxprEqn) -> Callable[[Array], list[Array]] | None:
    if not _is_slow(eqn):
        return None
    as_it_is = lambda array: bind(eqn, [array])[0]  # noqa: E731
    return lambda array: [lax.platform_dependent(array, cpu=_by_halves(eqn), default=as_it_is)]


def reduce_by_halves(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with slow reductions done by halves, in the bodies of loops as well."""
    return rewrite(closed, _replacement)
