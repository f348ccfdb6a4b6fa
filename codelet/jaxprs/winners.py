"""Winners: derivatives of the greatest and the least, which hold whatever a compiler computes twice.

JAX's rules find the winner by comparing elements with the result. XLA computes an operand again wherever it is read,
and may add products in another way there, by one rounding or two. Then no element is equal to the result, and the whole
gradient is lost without a word. (Seen with jax 0.10.2 on a CPU, in plain JAX as well; `lax.optimization_barrier` does
not help there, since it is taken away before anything is fused.) So here the place of a winner is an integer that is
found by comparing elements with one another. Elements that are equal to the result only join it, and of two values each
is compared with the other.

Slopes are those of JAX's rules: elements that tie share theirs, and where the result is NaN the slope is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend import core as jax_core

from codelet.jaxprs.equations import variables
from codelet.jaxprs.primitives import MOVING, REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import rewrite, struct

Function = Callable[..., Any]
Parts = Sequence[Any]

_REDUCTIONS: dict[str, Function] = {"reduce_max": lax.reduce_max, "reduce_min": lax.reduce_min}

_OF_TWO: dict[str, Function] = {"max": lax.max, "min": lax.min}

_RUNNING: dict[str, tuple[Function, str]] = {"cummax": (lax.cummax, "max"), "cummin": (lax.cummin, "min")}

_WINS: dict[Function, Function] = {lax.max: lax.ge, lax.min: lax.le}
"""What says that one of two values is the greater or the lesser, or that both are."""

MOST_COUNTED = 1 << 24
"""Elements of a line up to which a place and the magnitude of a distance fit a float32."""

_NONE, _NEAR, _FAR = 2.0**-125, 2.0**-120, 2.0**120
"""A distance of nothing, the least that counts as one, and the greatest: with the digits of a place, normal numbers."""

Reduce = Callable[[Function, Any, Sequence[int]], Any]


def _reduced(operation: Function, array: Any, axes: Sequence[int]) -> Any:
    return {lax.add: lax.reduce_sum, lax.min: lax.reduce_min}[operation](array, tuple(axes))


def places_along(array: Any, axes: Sequence[int]) -> Any:
    """The place of every element along some axes, counted in row-major order."""
    places = lax.broadcasted_iota(jnp.int32, array.shape, axes[0])
    for axis in axes[1:]:
        places = places * array.shape[axis] + lax.broadcasted_iota(jnp.int32, array.shape, axis)
    return places


def _place(array: Any, expected: Any, operation: Function, axes: Sequence[int], reduce: Reduce) -> Any:
    """The place of an element that is equal to the expected one, if there is one; else of one that is nearest.

    The distance, its last digits replaced by the place, is the key whose minimum is found. XLA is 5 to 8 times as slow
    with `argmax`, which it does not vectorise.
    """
    lengths = [array.shape[axis] for axis in axes]
    count = math.prod(lengths) if all(isinstance(length, int) for length in lengths) else None
    if count is None or count > MOST_COUNTED:
        kept = [d for d in range(array.ndim) if d not in axes]
        lines = array.transpose([*kept, *axes]).reshape([*(array.shape[d] for d in kept), -1])
        return (lax.argmax if operation is lax.max else lax.argmin)(lines, len(kept), jnp.int32)
    distance = (expected - array if operation is lax.max else array - expected).astype(jnp.float32)
    distance = jnp.where(distance <= _FAR, jnp.maximum(distance, _NEAR), _FAR)  # nor is one NaN
    distance = jnp.where(array == expected, jnp.float32(_NONE), distance)
    digits = (1 << (count - 1).bit_length()) - 1
    key = lax.bitcast_convert_type(distance, jnp.int32) & ~digits | places_along(array, axes)
    least = reduce(lax.min, lax.bitcast_convert_type(key, jnp.float32), axes)
    return lax.bitcast_convert_type(least, jnp.int32) & digits


def slope_of_winners(
    tangent: Any, array: Any, result: Any, operation: Function, axes: Sequence[int], reduce: Reduce = _reduced
) -> Any:
    """The slope of the greatest or the least along some axes.

    Args:
        tangent: the slope of each element.
        array: the reduced array.
        result: of the reduction.
        operation: `lax.max` or `lax.min`, which it is by.
        axes: they, in order.
        reduce: reduces an array along axes by `lax.add` and `lax.min`.
    """
    expected = jnp.expand_dims(result, axes)
    place = jnp.expand_dims(_place(array, expected, operation, axes, reduce), axes)
    won = (places_along(array, axes) == place) | (array == expected)
    chosen = (won & (expected == expected)).astype(tangent.dtype)
    return reduce(lax.add, tangent * chosen, axes) / reduce(lax.add, chosen, axes)


def winners_of_both(operation: Function) -> Callable[[Parts, Parts], Parts]:
    """Joins two parts of an array reduced by `lax.max` or `lax.min`, as they are joined themselves.

    Each part is its result, how many of its elements tie, and the sum of the slopes of these, which divided by their
    number is the slope of the result.
    """
    wins = _WINS[operation]

    def join(one: Parts, other: Parts) -> Parts:
        (a, ties, slope), (b, other_ties, other_slope) = one, other
        mine, theirs = wins(a, b).astype(slope.dtype), wins(b, a).astype(slope.dtype)
        return [operation(a, b), ties * mine + other_ties * theirs, slope * mine + other_slope * theirs]

    return join


@functools.cache
def _reduction(name: str, axes: tuple[int, ...], once: bool) -> Function:
    plain = lambda array: _REDUCTIONS[name](array, axes)  # noqa: E731
    function = jax.custom_jvp(plain)

    @function.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (array,), (tangent,) = primals, tangents
        result = (plain if once else function)(array)
        return result, slope_of_winners(tangent, array, result, REDUCTIONS[name], axes)

    return function


@functools.cache
def _of_two(name: str, once: bool) -> Function:
    plain = _OF_TWO[name]
    function, wins = jax.custom_jvp(plain), _WINS[plain]

    def share(mine: Any, theirs: Any) -> Any:
        both = jnp.where(wins(theirs, mine), jnp.asarray(0.5, mine.dtype), jnp.asarray(1, mine.dtype))
        return jnp.where(wins(mine, theirs), both, jnp.asarray(0, mine.dtype))

    def rule(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        pairs = zip(tangents, (primals, primals[::-1]), strict=True)
        slopes = [tangent * share(*own) for tangent, own in pairs if not isinstance(tangent, SymbolicZero)]
        return (plain if once else function)(*primals), sum(slopes[1:], slopes[0])

    function.defjvp(rule, symbolic_zeros=True)
    return function


@functools.cache
def _running(name: str, axis: int, reverse: bool, once: bool) -> Function:
    running, of_two = _RUNNING[name]
    function = jax.custom_jvp(lambda array: running(array, axis, reverse))

    @function.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return jax.jvp(
            lambda array: lax.associative_scan(_of_two(of_two, once), array, reverse, axis), primals, tangents
        )

    return function


def _function(eqn: jax_core.JaxprEqn, once: bool) -> Function | None:
    """A function that computes the same as an equation, with a derivative that holds; None where JAX's does."""
    name = eqn.primitive.name
    if not is_understood(eqn, *_REDUCTIONS, *_OF_TWO, *_RUNNING):
        return None
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):  # type: ignore[attr-defined]
        return None
    if name in _OF_TWO:
        return _of_two(name, once)
    shape, params = eqn.invars[0].aval.shape, eqn.params  # type: ignore[attr-defined]
    if name in _RUNNING:
        return _running(name, int(params["axis"]), bool(params["reverse"]), once)
    axes = tuple(sorted(map(int, params["axes"])))
    return _reduction(name, axes, once) if axes and all(shape[axis] != 0 for axis in axes) else None


def _moved(jaxpr: jax_core.Jaxpr) -> set[Any]:
    """The values of a jaxpr that are elements of its inputs and constants as they are."""
    found = {*jaxpr.invars, *jaxpr.constvars}
    for eqn in jaxpr.eqns:
        if is_understood(eqn, *MOVING) and found.issuperset(variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def with_steady_winners(
    closed: jax_core.ClosedJaxpr, *, once: bool = False, of_arrays: bool = False
) -> jax_core.ClosedJaxpr:
    """A jaxpr that computes the same, where no derivative compares values that may be computed twice.

    Args:
        closed: the jaxpr; itself, where it has no such derivative.
        once: that it is differentiated once, and the derivative is looked at again before that is.
        of_arrays: that its inputs are arrays in memory. Of their elements JAX's rule holds, and is faster: the gradient
            of the greatest of 2048 x 2049 takes 1.5 times as long by this one.

    >>> closed = jax.make_jaxpr(lambda x: x.max())(jnp.ones(4))
    >>> jax.grad(lambda x: jax_core.jaxpr_as_fun(with_steady_winners(closed))(x)[0])(jnp.array([1.0, 3, 3, 2])).tolist()
    [0.0, 0.5, 0.5, 0.0]
    """
    held = _moved(closed.jaxpr) if of_arrays else set[Any]()
    traced: dict[Hashable, jax_core.ClosedJaxpr] = {}  # a sort has hundreds of equations that are alike

    def rule(eqn: jax_core.JaxprEqn) -> Function | jax_core.ClosedJaxpr | None:
        function = _function(eqn, once)
        if function is None or (eqn.primitive.name in _REDUCTIONS and not held.isdisjoint(variables(eqn.invars))):
            return None
        dtype = eqn.outvars[0].aval.dtype  # type: ignore[attr-defined]
        run = lambda *own: [function(*(jnp.asarray(each, dtype) for each in own))]  # noqa: E731
        if any(isinstance(atom, jax_core.Literal) for atom in eqn.invars):
            return run
        structs = tuple(map(struct, eqn.invars))
        if (function, dtype, structs) not in traced:
            traced[function, dtype, structs] = jax.make_jaxpr(run)(*structs)
        return traced[function, dtype, structs]

    return rewrite(closed, rule, everywhere=True)
