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

from codelet.jaxprs.equations import CALLS, Makers, evaluate
from codelet.jaxprs.primitives import CUSTOM, ELEMENTWISE, is_understood
from codelet.tracing.traced_codelet import TracedCodelet
from lowering.jaxprs.rearrangement import rearrangement, rearranges

Dependence = Mapping[int, bool]
"""The numbers of the inputs that a value depends on, and whether element by element: in flat order, as many of both."""

_CALLED = {
    **dict.fromkeys((*CALLS, "checkpoint", "remat2"), "jaxpr"),
    **dict.fromkeys((*CUSTOM, "closed_call"), "call_jaxpr"),
}
"""Calls, and the parameter that says of what."""


def _size(atom: Any) -> Any:
    """The elements of an operand or result."""
    return math.prod(atom.aval.shape)


def _stays_in_order(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation gives its operand's elements in the same flat order, each once."""
    if not rearranges(eqn):
        return False
    view = rearrangement(eqn.outvars[0], Makers([eqn]), stop=lambda _: False)
    return view.root is eqn.invars[0] and view.is_in_order


def _through(eqn: jax_core.JaxprEqn, operands: list[Dependence]) -> list[Dependence]:
    """What the results of an equation depend on, given what its operands do."""
    name = eqn.primitive.name
    if name in _CALLED:
        return _of_jaxpr(eqn.params[_CALLED[name]], operands)
    aligned = _stays_in_order(eqn)
    size = None
    if is_understood(eqn, *ELEMENTWISE):
        aligned, size = True, _size(eqn.outvars[0])
    found: dict[int, bool] = {}
    for atom, own in zip(eqn.invars, operands, strict=True):
        # One element that all results are computed with is at one position of theirs alone if they have one.
        same = aligned and (size is None or _size(atom) == size)
        for number, each in own.items():
            found[number] = found.get(number, True) and each and same
    return [found for _ in eqn.outvars]


def _of_jaxpr(jaxpr: jax_core.Jaxpr | jax_core.ClosedJaxpr, inputs: list[Dependence]) -> list[Dependence]:
    return evaluate(jaxpr, inputs, _through, known=lambda _: {})


@functools.lru_cache(maxsize=256)
def dependences(traced: TracedCodelet) -> tuple[Dependence, ...]:
    """What each result of a codelet depends on, by the numbers of its inputs.

    >>> import codelet as cl, jax.numpy as jnp
    >>> from codelet.tracing.codelets import FieldType
    >>> @cl.codelet
    ... def both(x, y):
    ...     return {"a": 2 * x + y.sum(), "b": y[::-1]}
    >>> four = FieldType((4,), jnp.dtype("float32"))
    >>> dependences(both.specialise({"x": four, "y": four}))
    ({0: True, 1: False}, {1: False})
    """
    return tuple(_of_jaxpr(traced.jaxpr, [{number: True} for number in range(len(traced.jaxpr.jaxpr.invars))]))


def may_overwrite(traced: TracedCodelet, given: str, result: str) -> bool:
    """Whether a vertex may write a result where an input is, element after element, and still be right.

    Each element of the result then depends on that element of the input alone, or there is one element only, and so
    does each element of every other result that depends on the input: one loop makes them all, and reads an element
    before it writes there. What ragged fields are traced as is not looked at, nor what a codelet prints.

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
        is_alone = name == result and math.prod(traced.inputs[given].shape) <= 1
        if not is_alone and not own.get(number, True):
            return False
    return True
