"""Functions of single elements that equations are, as `ops.map` takes them: one object for those that say the same.

In a file such a function is its jaxpr for single elements. Functions with derivative rules of their own, which a jaxpr
in a file cannot have (`tracing/saved_jaxprs.py`), stand beside it by what they give and what their rules do.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.frontends.by_element import called, element_key, element_rule, of_elements, on_elements, rule_of
from codelet.frontends.structure import constant_key, dtype_of
from codelet.jaxprs.equations import bind, evaluate
from codelet.jaxprs.primitives import CUSTOM
from codelet.jaxprs.rebuild import Builder, inline, rebuild, struct
from codelet.tracing.saved_jaxprs import SavedJaxpr, read_jaxpr, saved_jaxpr
from codelet.tracing.statics import Settings, restored, trace_settings

# --- in files ------------------------------------------------------------------------------------------------

_STANDS_FOR = "derivative rule "
"""What calls are named that stand for functions with rules, before their numbers."""


class _SavedRule(NamedTuple):
    """A function with a derivative rule; see `ElementRule`."""

    is_jvp: bool
    value: _SavedElements
    slopes: _SavedElements
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class _SavedElements(NamedTuple):
    """A jaxpr of single elements, with calls that stand for functions with rules, and these."""

    jaxpr: SavedJaxpr
    rules: tuple[_SavedRule, ...]


def _saved(closed: jax_core.ClosedJaxpr, name: str) -> _SavedElements:
    rules: list[_SavedRule] = []

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        rule = rule_of(eqn) if eqn.primitive.name in CUSTOM else None
        if rule is None:
            return builder.equation(eqn, operands)

        def stands_for(*elements: Any) -> list[Any]:
            return [jnp.zeros(var.aval.shape, var.aval.dtype) for var in eqn.outvars]  # type: ignore[attr-defined]

        stands_for.__name__ = stands_for.__qualname__ = f"{_STANDS_FOR}{len(rules)}"
        rules.append(
            _SavedRule(rule.is_jvp, _saved(rule.value, name), _saved(rule.slopes, name), rule.inputs, rule.outputs)
        )
        return builder.traced(jax.jit(stands_for), operands)

    return _SavedElements(saved_jaxpr(rebuild(inline(closed), run), name), tuple(rules))


def _read(saved: _SavedElements) -> jax_core.ClosedJaxpr:
    closed = read_jaxpr(saved.jaxpr)
    rules = [
        element_rule(own.is_jvp, _read(own.value), _read(own.slopes), own.inputs, own.outputs) for own in saved.rules
    ]

    def run(eqn: jax_core.JaxprEqn, elements: list[Any]) -> Sequence[Any]:
        number = re.fullmatch(rf"{_STANDS_FOR}(\d+)", str(eqn.params.get("name", "")))
        return bind(eqn, elements) if number is None else rules[int(number[1])].function(*elements)

    return jax.make_jaxpr(lambda *elements: evaluate(closed, elements, run, jnp.asarray))(
        *map(struct, closed.jaxpr.invars)
    )


def _read_again(name: str, saved: _SavedElements, dtypes: Sequence[np.dtype], settings: Settings) -> OfElements:
    """A function as it was before it was pickled."""
    with restored(settings):
        return OfElements(name, functools.partial(_run, _read(saved)), dtypes, settings)


def _run(closed: jax_core.ClosedJaxpr, *elements: Any) -> list[Any]:
    return of_elements(closed, elements)


# --- functions -----------------------------------------------------------------------------------------------


class OfElements:
    """A function of single elements.

    Args:
        name: what it is called.
        run: what it does, by operations that are by element.
        dtypes: of its elements.
        settings: of JAX, when it was made.
    """

    def __init__(self, name: str, run: Callable[..., list[Any]], dtypes: Sequence[np.dtype], settings: Settings):
        self.__name__ = name
        self._run, self._dtypes, self._settings = run, tuple(dtypes), settings

    def __call__(self, *elements: Any) -> list[Any]:
        """Its results."""
        return self._run(*elements)

    def __reduce__(self) -> tuple[Any, ...]:
        with restored(self._settings):
            closed = jax.make_jaxpr(self._run)(*(jax.ShapeDtypeStruct((), dtype) for dtype in self._dtypes))
            saved = _saved(closed, self.__name__)
        return _read_again, (self.__name__, saved, self._dtypes, self._settings)


@dataclass(frozen=True)
class _ToldEquation:
    """An equation, told from others by what it says of elements and by those operands that are numbers."""

    key: Hashable
    settings: Settings
    equation: jax_core.JaxprEqn = field(compare=False)
    numbers: dict[int, np.generic] = field(compare=False)


@functools.lru_cache(maxsize=4096)
def _function(told: _ToldEquation) -> OfElements:
    eqn, numbers = told.equation, told.numbers

    def run(*elements: Any) -> list[Any]:
        left = iter(elements)
        given = [jnp.asarray(numbers[k]) if k in numbers else next(left) for k in range(len(eqn.invars))]
        return list(on_elements(eqn, given))

    dtypes = [dtype_of(atom) for k, atom in enumerate(eqn.invars) if k not in numbers]
    return OfElements(called(eqn), run, dtypes, told.settings)


def element_function(eqn: jax_core.JaxprEqn, numbers: dict[int, np.generic]) -> OfElements:
    """The function of single elements that an equation is.

    Args:
        eqn: the equation, which is by element.
        numbers: those of its operands that are known to be one number everywhere, by position.

    Returns:
        A function of the other operands, which gives a list of its results.
    """
    key = element_key(eqn), tuple((k, constant_key(own)) for k, own in sorted(numbers.items()))
    return _function(_ToldEquation(key, trace_settings(), eqn, numbers))
