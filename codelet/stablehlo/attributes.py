"""Attributes and types of MLIR as Python and NumPy have them."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir

from codelet.errors import ModelError

_DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    **{f"i{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    "i2": jnp.int2,
    "i4": jnp.int4,
    "ui2": jnp.uint2,
    "ui4": jnp.uint4,
    "f16": np.float16,
    "bf16": jnp.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f4E2M1FN": jnp.float4_e2m1fn,
    "f8E3M4": jnp.float8_e3m4,
    "f8E4M3": jnp.float8_e4m3,
    "f8E4M3B11FNUZ": jnp.float8_e4m3b11fnuz,
    "f8E4M3FN": jnp.float8_e4m3fn,
    "f8E4M3FNUZ": jnp.float8_e4m3fnuz,
    "f8E5M2": jnp.float8_e5m2,
    "f8E5M2FNUZ": jnp.float8_e5m2fnuz,
    "f8E8M0FNU": jnp.float8_e8m0fnu,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}


def dtype_of(element: Any) -> np.dtype:
    """The dtype of a type of elements.

    Raises:
        ModelError: no array of JAX has it.
    """
    name = str(element)
    if name not in _DTYPES:
        raise ModelError("a type of elements that no array has", given=name, expected=", ".join(_DTYPES))
    return np.dtype(_DTYPES[name])


def shape_of(kind: Any) -> tuple[int, ...]:
    """The shape of a type of arrays.

    Raises:
        ModelError: it is none of arrays, or a dimension is open.
    """
    if not str(kind).startswith("tensor<"):
        raise ModelError("a type that is not an array's", given=str(kind), expected="tensor<...>")
    operation = ir.RankedTensorType(kind)
    if not operation.has_static_shape:
        raise ModelError(
            "a dimension is open",
            given=str(kind),
            expected="numbers",
            fix="export the function for arrays of fixed shapes",
        )
    return tuple(operation.shape)


def element_of(kind: Any) -> np.dtype:
    """The dtype of a type of arrays."""
    return dtype_of(ir.RankedTensorType(kind).element_type)


_NUMBER = re.compile(r"\(\s*([^,()]+),\s*([^()]+)\)|([^\s,\[\]()]+)")


def _bits(text: str, dtype: np.dtype) -> Any:
    """A number by its bits, or as decimals have it."""
    if text.startswith(("0x", "-0x")) and not jnp.issubdtype(dtype, jnp.integer):
        return np.array(int(text, 16), f"u{dtype.itemsize}").view(dtype)[()]
    if text in ("true", "false"):
        return text == "true"
    return int(text, 0) if jnp.issubdtype(dtype, jnp.integer) else float(text)


def dense(attribute: Any) -> np.ndarray:
    """The elements of an array that the text has."""
    kind = ir.RankedTensorType(attribute.type)
    dtype, shape = dtype_of(kind.element_type), tuple(kind.shape)
    if (
        dtype.kind in "iuf"
        and dtype.itemsize * 8 in (8, 16, 32, 64)
        and str(kind.element_type)[:1] in "iuf"
        and dtype.name.rstrip("0123456789") in ("int", "uint", "float")
    ):
        return np.array(attribute).astype(dtype, copy=True)
    if dtype.kind == "b":
        return np.array(attribute).astype(bool)
    return _of_text(str(attribute), dtype, shape)


def _of_text(text: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of `dense<...>`: numbers, pairs of them, or the bytes of all."""
    body = text[text.index("dense<") + 6 : text.rindex(">", 0, text.rindex(": tensor"))].strip()
    if body.startswith('"'):
        elements = np.frombuffer(bytes.fromhex(body.strip('"')[2:]), dtype)
    elif dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        elements = np.array(
            [complex(_bits(a.strip(), part), _bits(b.strip(), part)) for a, b, _ in _NUMBER.findall(body)]
        )
    else:
        wide = np.float64 if jnp.issubdtype(dtype, jnp.floating) else np.int64
        elements = np.array([_bits(alone, dtype) for _, _, alone in _NUMBER.findall(body)], object).astype(wide)
    elements = elements.astype(dtype)
    return (np.full(shape, elements[0]) if elements.size == 1 else elements.reshape(shape)).copy()


def constant_of(operation: Any) -> np.ndarray:
    """The elements of a constant; of complex ones, which no binding reads, by the text of the operation."""
    kind = operation.results[0].type
    if element_of(kind).kind == "c":
        return _of_text(str(operation), element_of(kind), shape_of(kind))
    return dense(operation.attributes["value"])


def numbers(attribute: Any) -> tuple[int, ...]:
    """Whole numbers of a list, or of an array."""
    text = str(attribute)
    if text.startswith("array<"):
        return tuple(_flag(one) for one in text[text.index("<") + 1 : -1].partition(":")[2].replace(",", " ").split())
    if text.startswith("["):
        return tuple(_flag(one.split(":")[0].strip()) for one in text[1:-1].split(",") if one.strip())
    return tuple(int(one) for one in dense(attribute).reshape(-1))


def _flag(text: str) -> int:
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text)


def pairs(attribute: Any) -> tuple[tuple[int, int], ...]:
    """Pairs of integers, as padding is said."""
    return tuple((int(a), int(b)) for a, b in dense(attribute).reshape(-1, 2))


def number(attribute: Any) -> int:
    """An integer, or a boolean."""
    text = str(attribute)
    return _flag(text.split(":")[0].strip())


def by_name(attributes: Any) -> dict[str, Any]:
    """The attributes of an operation, or of a dictionary: jaxlib's bindings give their names, or named ones."""
    names = [own if isinstance(own, str) else own.name for own in attributes]
    return {name: attributes[name] for name in sorted(names)}


def direction_of(comparison: Any) -> str:
    """How a comparison compares, as MLIR has it: LT, say."""
    return word(comparison.attributes["comparison_direction"])


def word(attribute: Any) -> str:
    """One word of a closed list: `#stablehlo<comparison_direction LT>` is LT."""
    text = str(attribute)
    return text.strip("#").partition("<")[2].rstrip(">").split()[-1] if "<" in text else text.strip('"')
