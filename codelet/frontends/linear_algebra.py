"""Linear algebra and Fourier transforms: of a batch, a vertex for each matrix or line."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from codelet.frontends.for_each import add_for_each, rebound
from codelet.frontends.rules import rule
from codelet.frontends.values import Value

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


_DIMENSIONS = {
    **dict.fromkeys(("cholesky", "eig", "eigh", "hessenberg", "lu", "qr", "schur", "svd", "tridiagonal"), 2),
    **dict.fromkeys(("geqrf", "householder_product", "ormqr", "cholesky_update", "triangular_solve"), 2),
    **dict.fromkeys(("symmetric_product",), 2),
    **dict.fromkeys(("tridiagonal_solve", "lu_pivots_to_permutation"), 1),
}
"""Primitives, and how many dimensions the first operand has for one of the batch."""


def _of_batch(primitive: str, dimensions: int) -> None:
    @rule(primitive, by="a vertex for each of a batch; else one vertex")
    def each(walk: Walk, *operands: Value, **parameters: Any) -> Any:
        leading = len(operands[0].shape) - dimensions
        if not leading:
            return NotImplemented
        return add_for_each(walk, operands, leading, functools.partial(rebound, walk.equation))


for _primitive, _number in _DIMENSIONS.items():
    _of_batch(_primitive, _number)


@rule("fft", by="a vertex for each of a batch; else one vertex")
def fft(walk: Walk, x: Value, *, fft_type: Any, fft_lengths: Any) -> Any:
    """Fourier transforms along the last dimensions."""
    leading = len(x.shape) - len(fft_lengths)
    if not leading:
        return NotImplemented
    return add_for_each(walk, [x], leading, functools.partial(rebound, walk.equation))
