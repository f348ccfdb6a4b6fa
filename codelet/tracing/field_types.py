"""Field types: the shape and dtype of a codelet's field, of which lengths may depend on the vertex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from codelet.tracing.lengths import length_symbols
from codelet.views.sources import type_text


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
