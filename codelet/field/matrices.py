"""Functions of whole matrices over the field: of all elements of each, in their places, nothing else is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codelet.field.meanings import Field, hashed, meaning, shape_of
from codelet.field.values import Value
from codelet.field.whole import of_whole

_OF_MATRICES = (
    "cholesky cholesky_update eig eigh householder_product hessenberg lu lu_pivots_to_permutation qr geqrf geqp3 ormqr"
    " schur svd triangular_solve tridiagonal tridiagonal_solve"
)


@meaning(_OF_MATRICES, every=True, said="a function of all elements of each matrix", degree=hashed, takes_complex=True)
def of_matrices(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    batch = tuple(operands[0].shape[:-2])
    shapes = [*(tuple(own.shape) for own in operands), *(shape_of(eqn, k) for k in range(len(eqn.outvars)))]
    is_batched = all(shape[: len(batch)] == batch for shape in shapes)
    return of_whole(field, eqn, operands, len(batch) if is_batched else 0)


@meaning("fft", every=True, said="a function of all that is transformed", degree=hashed, takes_complex=True)
def transform(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return of_whole(field, eqn, [x], len(x.shape) - len(eqn.params["fft_lengths"]))
