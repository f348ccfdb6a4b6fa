"""Elementwise: which elements of a codelet's inputs each element of its results depends on.

In comes a traced codelet. Out comes, for each result, which inputs it depends on, and of which of them each element
depends on the one at the same position alone: such a result may be written in the place of that input, element after
element.

It is read off the jaxpr. An equation is understood by a list of primitives, each with the parameters it may have;
of all that is not in the list every element of every result depends on every element of every operand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from jax.extend import core as jax_core

from codelet.tracing.codelets import TracedCodelet

Dependence = Mapping[int, bool]
"""The numbers of the inputs that a value depends on, and whether element by element: in flat order, as many of both."""

_PLAIN = (
    *("abs", "add", "add_any", "and", "clamp", "clz", "complex", "copy", "copy_p", "div", "eq", "ge", "gt", "imag"),
    *("is_finite", "le", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "population_count", "pow"),
    *("real", "rem", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "square"),
    *("stop_gradient", "sub", "xor", "ceil", "floor", "atan2", "acos", "acosh", "asin", "asinh", "atan", "atanh"),
    *("cosh", "sinh", "digamma", "lgamma", "erf", "erf_inv", "erfc"),
)
_BY_ACCURACY = (
    "cbrt",
    "cos",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "rsqrt",
    "sin",
    "sqrt",
    "tan",
    "tanh",
)

ELEMENTWISE: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_PLAIN, frozenset()),
    **dict.fromkeys(_BY_ACCURACY, frozenset({"accuracy"})),
    "conj": frozenset({"input_dtype"}),
    "convert_element_type": frozenset({"new_dtype", "sharding", "weak_type"}),
    "integer_pow": frozenset({"y"}),
    "mul": frozenset({"out_dtype"}),
    "reduce_precision": frozenset({"exponent_bits", "mantissa_bits"}),
    "round": frozenset({"rounding_method"}),
}
"""Primitives whose results have one element for each position of their operands, and their parameters."""

_IN_ORDER: Mapping[str, frozenset[str]] = {
    "expand_dims": frozenset({"dimensions"}),
    "squeeze": frozenset({"dimensions"}),
    "reshape": frozenset({"dimensions", "new_sizes", "sharding"}),
    "broadcast_in_dim": frozenset({"broadcast_dimensions", "shape", "sharding"}),
}
"""Primitives that may leave the elements as they are in flat order, and their parameters."""

_CALLED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}


def _size(atom: Any) -> Any:
    """The elements of an operand or result."""
    return math.prod(atom.aval.shape)


def _stays_in_order(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation gives its operand's elements in the same flat order, each once."""
    params, name = eqn.params, eqn.primitive.name
    if name not in _IN_ORDER or not set(params) <= _IN_ORDER[name]:
        return False
    if params.get("dimensions") is not None and name == "reshape":
        return False
    in_order = list(params.get("broadcast_dimensions", ())) == sorted(params.get("broadcast_dimensions", ()))
    return len(eqn.invars) == 1 and in_order and _size(eqn.invars[0]) == _size(eqn.outvars[0])


def _through(eqn: jax_core.JaxprEqn, operands: list[Dependence]) -> list[Dependence]:
    """What the results of an equation depend on, given what its operands do."""
    name = eqn.primitive.name
    if name in _CALLED:
        inner = eqn.params[_CALLED[name]]
        return _of_jaxpr(getattr(inner, "jaxpr", inner), operands)
    aligned = _stays_in_order(eqn)
    size = None
    if name in ELEMENTWISE and set(eqn.params) <= ELEMENTWISE[name]:
        aligned, size = True, _size(eqn.outvars[0])
    found: dict[int, bool] = {}
    for atom, own in zip(eqn.invars, operands, strict=True):
        # One element that all results are computed with is at one position of theirs alone if they have one.
        same = aligned and (size is None or _size(atom) == size)
        for number, each in own.items():
            found[number] = found.get(number, True) and each and same
    return [found for _ in eqn.outvars]


def _of_jaxpr(jaxpr: jax_core.Jaxpr, inputs: list[Dependence]) -> list[Dependence]:
    known: dict[Any, Dependence] = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom: Any) -> Dependence:
        return {} if isinstance(atom, jax_core.Literal) else known.get(atom, {})

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, _through(eqn, [of(atom) for atom in eqn.invars]), strict=True))
    return [of(atom) for atom in jaxpr.outvars]


@functools.lru_cache(maxsize=256)
def dependences(traced: TracedCodelet) -> tuple[Dependence, ...]:
    """What each result of a codelet depends on, by the numbers of its inputs.

    >>> import codelet as cl, jax.numpy as jnp
    >>> from codelet.tracing.codelets import FieldType
    >>> @cl.codelet
    ... def both(x, y):
    ...     return {"a": 2 * x + y.sum(), "b": y[::-1]}
    >>> four = FieldType((4,), jnp.dtype("float32"))
    >>> dependences(both.trace({"x": four, "y": four}))
    ({0: True, 1: False}, {1: False})
    """
    jaxpr = traced.jaxpr.jaxpr
    return tuple(_of_jaxpr(jaxpr, [{number: True} for number in range(len(jaxpr.invars))]))


def may_overwrite(traced: TracedCodelet, given: str, result: str) -> bool:
    """Whether a vertex may write a result where an input is, element after element, and still be right.

    Each element of the result then depends on that element of the input alone, or there is one element only, and
    no other result depends on the input. What ragged fields are traced as is not looked at, nor what a codelet prints.

    Args:
        traced: what the vertex runs.
        given: the name of the input.
        result: the name of the result; both have the same elements' addresses.
    """
    kinds = [*traced.inputs.values(), *traced.outputs.values()]
    if any(kind.is_ragged for kind in kinds) or traced.jaxpr.effects:
        return False
    number = list(traced.inputs).index(given)
    for name, own in zip(traced.outputs, dependences(traced), strict=True):
        if name != result and number in own:
            return False
        if name == result and not own.get(number, True) and math.prod(traced.inputs[given].shape) > 1:
            return False
    return True
