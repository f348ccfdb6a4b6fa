"""Calls of the module's functions, and of generators of random bits."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from codelet.stablehlo.attributes import by_name, number
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


def _top_k_of(operation: HloOperation) -> int | None:
    """How many of each row a composite takes the greatest of, as `chlo.top_k` does; None of any other."""
    if not operation.has("composite_attributes") or operation.text("name") != "chlo.top_k":
        return None
    known = by_name(operation.attribute("composite_attributes"))
    return number(known["k"]) if known.keys() == {"k"} else None


@computes("func.call", "stablehlo.composite", keeps_constants=True)
def call(operation: HloOperation, *operands: Any) -> Any:
    """A function of the module; or of JAX, which a composite is by its name."""
    count = _top_k_of(operation)
    if count is not None:
        return tuple(lax.top_k(jnp.asarray(operands[0]), count))
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
