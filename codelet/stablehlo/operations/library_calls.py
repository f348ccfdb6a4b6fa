"""Calls of compiled libraries: those that a public function of JAX computes too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes

_UNCHANGED = ("Sharding", "xla.sdy.FuncResultSharding", "annotate_device_placement", "LayoutConstraint")


def _option(operation: HloOperation, name: str) -> str:
    """An option of the call, as the text has it."""
    config = str(operation.attribute("mhlo.backend_config"))
    match = re.search(rf"\b{name} = ([^:,}}]+)", config)
    if match is None:
        raise operation.error(f"it has no option {name!r}", given=config[:200], expected="that of JAX's own calls")
    return match[1].strip()


def _letter(operation: HloOperation, name: str) -> str:
    """An option that is a letter, as LAPACK has them."""
    return chr(int(_option(operation, name)))


def _fine(x: Any) -> Any:
    """LAPACK's status of each matrix that it could factor."""
    return jnp.zeros(x.shape[:-2], np.int32)


def _unread(operation: HloOperation, *results: int) -> None:
    """That nothing reads results which no function of JAX gives."""
    for k in results:
        if operation.is_read(k):
            raise operation.error("a result is read that JAX does not give", given=f"result {k}", expected="others")


def _cholesky(operation: HloOperation, x: Any) -> Any:
    """The factor in one triangle; in the other, which LAPACK does not touch, what was there."""
    lower = _letter(operation, "uplo") == "L"
    result = lax.linalg.cholesky(x if lower else jnp.swapaxes(x, -1, -2).conj(), symmetrize_input=False)
    factor = result if lower else jnp.swapaxes(result, -1, -2).conj()
    here = (jnp.tril if lower else jnp.triu)(jnp.ones(x.shape[-2:], bool))
    return jnp.where(here, factor, x), _fine(x)


def _solved(operation: HloOperation, a: Any, b: Any) -> Any:
    """The solution of equations with a triangular matrix."""
    transposed = _letter(operation, "trans_x")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=_letter(operation, "side") == "L",
        lower=_letter(operation, "uplo") == "L",
        transpose_a=transposed != "N",
        conjugate_a=transposed == "C",
        unit_diagonal=_letter(operation, "diag") == "U",
    )


def _lu(operation: HloOperation, x: Any) -> Any:
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, pivots + np.int32(1), _fine(x)


def _qr(operation: HloOperation, x: Any) -> Any:
    """The factors of an orthogonal matrix, packed with the triangular one."""
    packed, scales = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(packed, -1, -2), scales


def _eigh(operation: HloOperation, x: Any) -> Any:
    vectors, values = lax.linalg.eigh(x, lower=_letter(operation, "uplo") == "L", symmetrize_input=False)
    return vectors, values, _fine(x)


def _svd(operation: HloOperation, x: Any) -> Any:
    _unread(operation, 0)
    mode = _letter(operation, "mode")
    if mode == "N":
        _unread(operation, 2, 3)
        values = lax.linalg.svd(x, compute_uv=False)
        left, right = (jnp.zeros(operation.shape(k), operation.dtype(k)) for k in (2, 3))
    else:
        left, values, right = lax.linalg.svd(x, full_matrices=mode == "A")
    return x, values, left, right, _fine(x)


def _eig(operation: HloOperation, x: Any) -> Any:
    left, right = (_letter(operation, f"compute_{side}") == "V" for side in ("left", "right"))
    values, *vectors = lax.linalg.eig(x, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    is_real = operation.num_results == 5
    parts = (jnp.real(values), jnp.imag(values)) if is_real else (values,)
    both = []
    for k, computed in enumerate((left, right), len(parts)):
        if not computed:
            _unread(operation, k)
        both.append(vectors.pop(0) if computed else jnp.zeros(operation.shape(k), operation.dtype(k)))
    return *parts, *both, _fine(x)


_LAPACK: dict[str, Callable[..., Any]] = {
    "potrf": _cholesky,
    "trsm": _solved,
    "getrf": _lu,
    "geqrf": _qr,
    "orgqr": lambda operation, a, scales: lax.linalg.householder_product(a, scales),
    "ungqr": lambda operation, a, scales: lax.linalg.householder_product(a, scales),
    "syevd": _eigh,
    "heevd": _eigh,
    "gesdd": _svd,
    "geev": _eig,
    "gehrd": lambda operation, a: (*lax.linalg.hessenberg(a), _fine(a)),
}
"""By the routine, without the letter of its type."""

_ROUTINE = re.compile(r"lapack_[sdcz](\w+?)(_ffi)?")


def _approximate_top_k(operation: HloOperation, x: Any, places: Any, *_first: Any) -> Any:
    """The greatest or the least along a dimension, most of them at least, with the elements beside them."""
    order = re.search(r"top_k_(gt|lt)_", str(operation.attribute("called_computations")))
    if order is None:
        raise operation.error(
            "it compares in another way than JAX's", given="ApproxTopK", expected="top_k_gt, top_k_lt"
        )
    chosen = lax.approx_max_k if order[1] == "gt" else lax.approx_min_k
    dimension = int(_option(operation, "reduction_dim"))
    values, chosen_places = chosen(
        x,
        int(_option(operation, "top_k")),
        reduction_dimension=dimension,
        recall_target=float(_option(operation, "recall_target")),
        reduction_input_size_override=int(_option(operation, "reduction_input_size_override")),
        aggregate_to_topk=_option(operation, "aggregate_to_topk") == "true",
    )
    return values, jnp.take_along_axis(places, chosen_places, dimension)


def _top_k(operation: HloOperation, x: Any) -> Any:
    attributes = str(operation.attribute("mhlo.attributes"))
    k = int(attributes.partition("k = ")[2].split(":")[0].split(",")[0].rstrip("}").strip())
    return tuple(lax.top_k(x, k))


@computes("stablehlo.custom_call")
def custom_call(operation: HloOperation, *operands: Any) -> Any:
    """The results of another library, where a function of JAX has the same."""
    target = operation.text("call_target_name")
    if target in _UNCHANGED:
        return operands[0] if len(operands) == 1 else tuple(operands)
    by_name = {"mhlo.topk": _top_k, "mhlo.erf": lambda _, x: lax.erf(x), "ApproxTopK": _approximate_top_k}
    routine = _ROUTINE.fullmatch(target)
    function = by_name.get(target) or (_LAPACK.get(routine[1]) if routine is not None else None)
    if function is None:
        raise operation.error("it calls what is compiled elsewhere", given=target, expected="an operation of StableHLO")
    return function(operation, *(operands[:2] if function is _solved else operands))
