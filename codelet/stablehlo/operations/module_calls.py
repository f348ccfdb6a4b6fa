"""Calls of functions: of the module's own, and of what is compiled elsewhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
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


_UNCHANGED = ("Sharding", "xla.sdy.FuncResultSharding", "annotate_device_placement", "LayoutConstraint")


def _factor(operation: HloOperation, x: Any) -> Any:
    lower = "uplo = 76" in str(operation.attribute("mhlo.backend_config"))
    result = lax.linalg.cholesky(x if lower else jnp.swapaxes(x, -1, -2).conj(), symmetrize_input=False)
    return result if lower else jnp.swapaxes(result, -1, -2).conj(), jnp.zeros(x.shape[:-2], np.int32)


def _solve(operation: HloOperation, a: Any, b: Any) -> Any:
    """The solution of equations with a triangular matrix, by letters as LAPACK has them."""
    config = str(operation.attribute("mhlo.backend_config"))
    letter = lambda name: chr(int(config.partition(f"{name} = ")[2].split(":")[0].strip()))  # noqa: E731
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=letter("side") == "L",
        lower=letter("uplo") == "L",
        transpose_a=letter("trans_x") != "N",
        conjugate_a=letter("trans_x") == "C",
        unit_diagonal=letter("diag") == "U",
    )


@computes("stablehlo.custom_call")
def custom_call(operation: HloOperation, *operands: Any) -> Any:
    """What another library computes, where it is one that JAX names."""
    target = operation.text("call_target_name")
    if target in _UNCHANGED:
        return operands[0] if len(operands) == 1 else tuple(operands)
    if target == "mhlo.topk":
        attributes = str(operation.attribute("mhlo.attributes"))
        k = int(attributes.partition("k = ")[2].split(":")[0].split(",")[0].rstrip("}").strip())
        return tuple(lax.top_k(operands[0], k))
    if target == "mhlo.erf":
        return lax.erf(operands[0])
    if target.startswith("lapack_") and target.endswith("potrf_ffi"):
        return _factor(operation, operands[0])
    if target.startswith("lapack_") and target.endswith("trsm_ffi"):
        return _solve(operation, *operands[:2])
    raise operation.error("it calls what is compiled elsewhere", given=target, expected="an operation of StableHLO")
