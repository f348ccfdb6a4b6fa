"""The cycle formulae of PopLibs, Graphcore's library of codelets, for one worker.

In come numbers of elements and dtypes, out come cycles: what one worker thread takes for its vertex, which is what a
vertex of ours is.

Sources: PopLibs 3.1, github.com/graphcore/poplibs: lib/popops/popopsCycleEstimators.{hpp,cpp} for elementwise
operations, reductions and fills; lib/poplin/PerformanceEstimation.hpp for products. Where a number is not
from there, it says that it is a guess.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ipu_backend.model.tables import Loop, Tables

VECTOR_BYTES = 8
"""What one vector instruction takes of an operand: two float32, or four float16 (IPU Programmer's Guide)."""


CONVERT_CYCLES = 2
"""To widen or round one element of a dtype that the machine does not compute in. A guess: a shift, and a rounding."""


def computed_in(dtype: Any) -> Any:
    """The dtype in which the machine computes with one for which it has no instructions, after converting it.

    No IPU has bfloat16, and the chips modelled here have no float8 (Graphcore's C600 alone has): bfloat16 is counted
    as float32 and smaller floats as float16, each element converted by `CONVERT_CYCLES` when it is read and written.
    That is a guess.

    >>> computed_in(jnp.dtype("bfloat16")), computed_in(jnp.dtype("float8_e4m3fn")), computed_in(np.dtype("int8"))
    (dtype('float32'), dtype('float16'), dtype('int8'))
    """
    name = str(dtype)
    if name == "bfloat16":
        return np.dtype(np.float32)
    return np.dtype(np.float16) if name.startswith(("float8_", "float6_", "float4_")) else dtype


def guess_text(dtype: Any) -> str | None:
    """How a dtype is counted that the machine computes in software, where that is a guess; None for any other."""
    if computed_in(dtype) != dtype:
        within = f"{computed_in(dtype)}, and {CONVERT_CYCLES} cycles to convert each element that is read or written"
        return f"the machine has no {dtype}: it is counted as {within}, a guess"
    if software_factor(dtype) > 2:
        return f"the machine has no {dtype}: {software_factor(dtype)} times the cycles of float32 are counted, a guess"
    return None


def kind_of(dtype: Any) -> str:
    """Which columns of the tables a dtype is looked up in: "half", "float", "int" or "bool".

    The machine computes in float16 and float32, and in 32-bit integers. Other dtypes are counted as the one
    they are computed in, some in software: see `software_factor`.
    """
    if dtype == np.float16:
        return "half"
    if dtype == np.bool_:
        return "bool"
    return "float" if jnp.issubdtype(dtype, jnp.inexact) else "int"


def software_factor(dtype: Any) -> int:
    """How many times longer a dtype takes than the one whose table it is looked up in. Guesses.

    PopLibs has 64-bit integers, at 1.5 to 4 times 32 bits. No IPU has float64 or complex numbers.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return 4 if dtype == np.complex64 else 120
    return {"float64": 30, "int64": 2, "uint64": 2}.get(str(dtype), 1)


def vector_width(dtype: Any, vector_bytes: int = VECTOR_BYTES) -> int:
    """Elements in one vector instruction; one for what has no vector instructions."""
    return {"half": vector_bytes // 2, "float": vector_bytes // 4}.get(kind_of(dtype), 1) or 1


# --- elementwise --------------------------------------------------------------------------------------


def loop_of(operation: str, dtype: Any, tables: Tables) -> Loop:
    """The loop of an elementwise operation for a dtype."""
    kinds = tables.elementwise[operation]
    kind = kind_of(dtype)
    if kind not in kinds:
        kind = next(other for other in ("int", "float", "half") if other in kinds)
    found, factor = kinds[kind], software_factor(dtype)
    return found._replace(cycles=found.cycles * factor)
