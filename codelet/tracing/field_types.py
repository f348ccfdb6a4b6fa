"""Field types: the shape and dtype of a codelet's field, of which lengths may depend on the vertex."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from codelet.tracing.lengths import length_symbols
from codelet.views.sources import type_text

Function = TypeVar("Function", bound=Callable[..., Any])


class FieldType(NamedTuple):
    """The shape and dtype of a field; `weak` for a plain Python number, whose dtype yields to others.

    The size of a ragged dimension, which depends on the vertex, is one of `length_symbols`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False

    def __str__(self) -> str:
        return type_text(self.dtype, self.shape) + ("~" if self.weak else "")

    def struct(self) -> jax.ShapeDtypeStruct:
        """It as JAX describes arrays."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)

    @property
    def is_ragged(self) -> bool:
        """Whether its shape depends on the vertex."""
        return not all(isinstance(size, int) for size in self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> FieldType:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _saved_type, (tuple(n if isinstance(n, int) else str(n) for n in self.shape), self.dtype, self.weak)

    def at(self, lengths: Lengths) -> FieldType:
        """It where the lengths of ragged dimensions are known."""
        return self._replace(shape=tuple(n if isinstance(n, int) else lengths.get(n, n) for n in self.shape))


def _saved_type(shape: tuple[int | str, ...], dtype: np.dtype, weak: bool) -> FieldType:
    """A type as it was before it was pickled: symbols for lengths are written by name."""
    symbols = {str(symbol): symbol for symbol in length_symbols()}
    return FieldType(tuple(symbols[n] if isinstance(n, str) else n for n in shape), dtype, weak)


Lengths = Mapping[Any, int]
"""What each of `length_symbols` stands for at a vertex."""


class SizeNames(NamedTuple):
    """The sizes of the fields of a codelet whose function is the same whatever they are, all of them one at least.

    Attributes:
        names: of each size of each field; those of one name are one size.
        limits: further conditions: of two sums of these, as `jax.export.symbolic_shape` takes them, the first is the
            second, or more.
    """

    names: tuple[tuple[str, ...], ...]
    limits: tuple[tuple[str, str], ...] = ()


def sizes_named(names: Callable[[Mapping[str, Any], Sequence[int]], SizeNames]) -> Callable[[Function], Function]:
    """Say of a function of arrays that its jaxpr has the same equations whatever their sizes are.

    Args:
        names: from its static values, and how many dimensions each field has, to names of the sizes.
    """

    def said(function: Function) -> Function:
        function.size_names = names  # type: ignore[attr-defined]
        return function

    return said
