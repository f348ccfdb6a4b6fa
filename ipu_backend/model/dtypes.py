"""Dtypes: which columns of tables they are looked up in, and how the machine computes with those that it lacks."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from ipu_backend.model.rows import IN_SOFTWARE

VECTOR_BYTES = 8
"""What one vector instruction takes of an operand: two float32, or four float16 (IPU Programmer's Guide)."""


@functools.cache
def name_of(dtype: Any) -> str:
    """The name of a dtype, which NumPy puts together anew for everybody who asks."""
    return str(dtype)


@functools.cache
def is_float8(dtype: Any) -> bool:
    """Whether a dtype is a float of eight bits, or of fewer."""
    return str(dtype).startswith(("float8_", "float6_", "float4_"))


@functools.cache
def computed_in(dtype: Any) -> Any:
    """The dtype in which the machine computes with one for which it has no instructions, after converting it.

    No IPU has bfloat16: it is converted to float32 in software. Float8 is converted to float16: by a special unit where
    the machine's tables have one, else in software.

    >>> computed_in(jnp.dtype("bfloat16")), computed_in(jnp.dtype("float8_e4m3fn")), computed_in(np.dtype("int8"))
    (dtype('float32'), dtype('float16'), dtype('int8'))
    """
    if str(dtype) == "bfloat16":
        return np.dtype(np.float32)
    return np.dtype(np.float16) if is_float8(dtype) else dtype


@functools.cache
def guess_text(dtype: Any, has_float8: bool = False) -> str | None:
    """How a dtype is counted that the machine computes in software, where that is a guess; None for any other.

    Args:
        dtype: which.
        has_float8: whether the machine has a unit that converts float8.
    """
    if has_float8 and is_float8(dtype):
        return None
    if computed_in(dtype) != dtype:
        each = f"{IN_SOFTWARE.read[0]} cycles to convert each element that is read and {IN_SOFTWARE.written[0]} for"
        within = f"{computed_in(dtype)}, and {each} each that is written"
        return f"the machine has no {dtype}: it is counted as {within}, a guess"
    if software_factor(dtype) > 2:
        return f"the machine has no {dtype}: {software_factor(dtype)} times the cycles of float32 are counted, a guess"
    return None


@functools.cache
def kind_of(dtype: Any) -> str:
    """In which of the machine's units a dtype is computed: "half", "float", "int" or "bool".

    Other dtypes are counted as the one they are computed in, some in software: see `software_factor`.
    """
    if dtype == np.float16:
        return "half"
    if dtype == np.bool_:
        return "bool"
    return "float" if jnp.issubdtype(dtype, jnp.inexact) else "int"


_COLUMNS = {"int64": "long", "uint64": "ulong", "int16": "short", "uint16": "ushort"}

OTHER_COLUMNS = {
    "long": ("int", "float"),
    "ulong": ("uint", "int", "float"),
    "short": ("int", "float"),
    "ushort": ("uint", "int", "float"),
    "uint": ("int", "float"),
    "int": ("uint", "float"),
    "bool": ("int", "float"),
    "half": ("float", "int"),
    "float": ("half", "int"),
}
"""Which columns are looked in, in order, for an operation that has no row in one."""


@functools.cache
def column_of(dtype: Any) -> str:
    """The column of the tables in which a dtype is looked up; integers of eight bits are computed in 32.

    >>> [column_of(np.dtype(name)) for name in ("float16", "float64", "uint8", "int16")]
    ['half', 'float', 'uint', 'short']
    """
    kind = kind_of(dtype)
    if kind != "int":
        return kind
    return _COLUMNS.get(str(dtype), "uint" if jnp.issubdtype(dtype, jnp.unsignedinteger) else "int")


@functools.cache
def software_factor(dtype: Any) -> int:
    """How many times longer a dtype takes than the one whose table it is looked up in. Guesses.

    PopLibs has 64-bit integers, at 1.5 to 4 times 32 bits; where its tables have rows of them these are taken. No IPU
    has float64 or complex numbers.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return 4 if dtype == np.complex64 else 120
    return {"float64": 30, "int64": 2, "uint64": 2}.get(str(dtype), 1)


@functools.cache
def vector_width(dtype: Any, vector_bytes: int = VECTOR_BYTES) -> int:
    """Elements in one vector instruction; one for what has no vector instructions."""
    return {"half": vector_bytes // 2, "float": vector_bytes // 4}.get(kind_of(dtype), 1) or 1
