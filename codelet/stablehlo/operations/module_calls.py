"""Calls of the module's functions, and of generators of random bits."""

from __future__ import annotations

from typing import Any

from jax import lax

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


@computes("func.call", "stablehlo.composite", keeps_constants=True)
def call(operation: HloOperation, *operands: Any) -> Any:
    """A function of the module."""
    return tuple(operation.call(operation.text("callee") or operation.text("decomposition"), *operands))


@computes("stablehlo.rng_bit_generator")
def rng_bit_generator(operation: HloOperation, state: Any) -> Any:
    """Random bits, and the state after them."""
    which = {
        "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
        "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
        "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
    }
    dtype: Any = operation.dtype(1)
    key, bits = lax.rng_bit_generator(
        state, operation.shape(1), dtype, algorithm=which[operation.word("rng_algorithm")]
    )
    return key, bits
