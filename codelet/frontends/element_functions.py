"""Functions of single elements that equations are, as `ops.map` takes them: one object for those that say the same.

In a pickle such a function is its jaxpr for single elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.frontends.by_element import called, element_key, of_elements, on_elements
from codelet.frontends.structure import constant_key, dtype_of
from codelet.jaxprs.rebuild import inline
from codelet.jaxprs.saved_jaxprs import SavedJaxpr, read_jaxpr, saved_jaxpr
from codelet.tracing.statics import Settings, restored, trace_settings


def _read_again(name: str, saved: SavedJaxpr, dtypes: Sequence[np.dtype], settings: Settings) -> OfElements:
    """A function as it was before it was pickled."""
    with restored(settings):
        return OfElements(name, functools.partial(_run, read_jaxpr(saved)), dtypes, settings)


def _run(closed: jax_core.ClosedJaxpr, *elements: Any) -> list[Any]:
    return of_elements(closed, elements)


class OfElements:
    """A function of single elements.

    Args:
        name: its printed name.
        run: its body, by operations that are by element.
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
            saved = saved_jaxpr(inline(closed), self.__name__)
        return _read_again, (self.__name__, saved, self._dtypes, self._settings)


@dataclass(frozen=True)
class _ToldEquation:
    """An equation, distinguished by its function of elements and by the operands that are numbers."""

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
