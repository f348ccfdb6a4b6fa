"""Functions of all elements of arrays, in their places, of which nothing else is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import pairs
from codelet.field.hashing import Words, absorbed, key_of, residues_of, words_of
from codelet.field.meanings import Field, all_residues, dtype_of, shape_of
from codelet.field.values import Unknown, Value


def key_of_equation(eqn: Any) -> tuple[Any, ...]:
    """The key that distinguishes the function of an equation: its primitive, with all parameters."""
    params = sorted((name, repr(value)) for name, value in eqn.params.items() if name not in ("accuracy",))
    return (eqn.primitive.name, *params)


def _in_places(own: np.ndarray, batch: int) -> Words:
    """Two words for all elements behind so many dimensions of a batch, each in its place."""
    flat = own.reshape(*own.shape[: 1 + batch], -1)
    places = np.arange(flat.shape[-1], dtype=np.uint64)
    each = absorbed((places, np.uint64(own.ndim - batch)), words_of(flat))  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        return tuple(part.sum(-1, dtype=np.uint64) for part in each)  # type: ignore[return-value]


def of_whole(field: Field, eqn: Any, operands: Sequence[Value], batch: int) -> list[Value]:
    """A function of all elements of its operands, for each of a batch, of which nothing is known.

    Args:
        field: how it is evaluated.
        eqn: the equation.
        operands: of it.
        batch: how many dimensions of all operands and results are those of a batch.
    """
    one, two = key_of(key_of_equation(eqn))
    state: Words = np.uint64(one), np.uint64(two)
    for own in all_residues(field, operands):
        state = absorbed(state, _in_places(own, batch))
    made = list[Value]()
    for k in range(len(eqn.outvars)):
        shape, dtype = shape_of(eqn, k), dtype_of(eqn, k)
        places = np.arange(math.prod(shape[batch:]), dtype=np.uint64)
        wide = tuple(np.asarray(own)[..., None] for own in state)
        parts = [
            residues_of(absorbed(wide, (places, np.uint64(2 * k + part))), field.draws)  # type: ignore[arg-type]
            for part in range(1 + (dtype.kind == "c"))
        ]
        flat = parts[0] if len(parts) == 1 else pairs.pair(*parts)
        made.append(Unknown(flat.reshape(field.draws, *shape), dtype))
    return made
