"""Functions of whole matrices over the field: of all elements of each, in their places, nothing else is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import pairs
from codelet.field.functions import key_of_equation
from codelet.field.hashing import Words, absorbed, key_of, residues_of, words_of
from codelet.field.meanings import Field, all_residues, dtype_of, hashed, meaning, shape_of
from codelet.field.values import Unknown, Value

_OF_MATRICES = (
    "cholesky cholesky_update eig eigh householder_product hessenberg lu lu_pivots_to_permutation qr geqrf geqp3 ormqr"
    " schur svd triangular_solve tridiagonal tridiagonal_solve"
)


def _in_places(own: np.ndarray, batch: int) -> Words:
    """Two words for all elements behind so many dimensions of a batch, each in its place."""
    flat = own.reshape(*own.shape[: 1 + batch], -1)
    places = np.arange(flat.shape[-1], dtype=np.uint64)
    each = absorbed((places, np.uint64(own.ndim)), words_of(flat))  # type: ignore[arg-type]
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


@meaning(_OF_MATRICES, every=True, said="a function of all elements of each matrix", degree=hashed, takes_complex=True)
def of_matrices(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    leading = {tuple(own.shape[:-2]) for own in operands if len(own.shape) >= 2}
    is_batched = len(leading) == 1 and all(len(own.shape) >= 2 for own in operands)
    shapes = [shape_of(eqn, k) for k in range(len(eqn.outvars))]
    batch = leading.pop() if is_batched else ()
    fits = all(shape[: len(batch)] == batch for shape in shapes)
    return of_whole(field, eqn, operands, len(batch) if fits else 0)


@meaning("fft", every=True, said="a function of all that is transformed", degree=hashed, takes_complex=True)
def transform(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return of_whole(field, eqn, [x], len(x.shape) - len(eqn.params["fft_lengths"]))
