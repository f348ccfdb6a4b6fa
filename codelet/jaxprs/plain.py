"""Plain data: values as JSON has them, and arrays by number, from which the same values are rebuilt.

None, booleans, text and integers stand for themselves. Everything else is a list that begins with a tag. The reader
makes values of the types in its tables alone: nothing is imported, evaluated or called by a name from a file.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.jaxprs.primitive_set import FORMS, public_primitives

Plain = Any
"""None, a boolean, an integer, text, or a list or dict of plain data."""

MOST_BITS = 1 << 12
"""Bits of the largest integer."""


class NotPlainError(Exception):
    """A value that cannot be written; its text says which."""


class MalformedError(Exception):
    """Plain data that no writer made; its text says where."""


def check_form(condition: object, what: str) -> None:
    """See that plain data has the form that a writer gives it.

    Raises:
        MalformedError: it has not.
    """
    if not condition:
        raise MalformedError(what)


# --- dtypes -----------------------------------------------------------------------------------------------

_DTYPE_NAMES = (
    *("int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32", "float64"),
    *("complex64", "complex128"),
)

DTYPES: Mapping[str, np.dtype] = {
    **{name: np.dtype(getattr(jnp, name)) for name in _DTYPE_NAMES if hasattr(jnp, name)},
    "bool": np.dtype(np.bool_),
    "float0": np.dtype(jax.dtypes.float0),
}
"""The dtypes that a file may name; those of random keys are named by their generators."""

_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


@functools.cache
def _key_dtypes() -> dict[Any, str]:
    return {jax.eval_shape(functools.partial(jax.random.key, impl=name), 0).dtype: name for name in _KEYS}


def dtype_name(dtype: Any) -> str:
    """The name of a dtype in files.

    Raises:
        NotPlainError: one that files have no name for.
    """
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        if dtype in _key_dtypes():
            return f"key {_key_dtypes()[dtype]}"
    elif dtype == DTYPES["float0"]:
        return "float0"
    elif DTYPES.get(np.dtype(dtype).name) == dtype:
        return np.dtype(dtype).name
    raise NotPlainError(f"the dtype {dtype}")


def dtype_named(name: Plain) -> Any:
    """The dtype of a name in a file."""
    check_form(type(name) is str, f"{name!r:.40} for a dtype")
    if name.startswith("key "):
        names = {item: dtype for dtype, item in _key_dtypes().items()}
        check_form(name[4:] in names, f"the dtype {name!r:.40}")
        return names[name[4:]]
    check_form(name in DTYPES, f"the dtype {name!r:.40}")
    return DTYPES[name]


# --- JAX's types of parameters ------------------------------------------------------------------------------

_ENUMS: Mapping[str, Any] = {
    "Precision": lax.Precision,
    "GatherScatterMode": lax.GatherScatterMode,
    "RoundingMethod": lax.RoundingMethod,
    "FftType": lax.FftType,
    "RandomAlgorithm": lax.RandomAlgorithm,
}

_RECORDS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "ConvDimensionNumbers": (lax.ConvDimensionNumbers, ("lhs_spec", "rhs_spec", "out_spec")),
    "GatherDimensionNumbers": (
        lax.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "start_index_map",
            "operand_batching_dims",
            "start_indices_batching_dims",
        ),
    ),
    "ScatterDimensionNumbers": (
        lax.ScatterDimensionNumbers,
        (
            *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
            *("operand_batching_dims", "scatter_indices_batching_dims"),
        ),
    ),
}

_PYTHON_TYPES: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}


@functools.cache
def _generators() -> dict[str, Any]:
    """JAX's name for each kind of random generator, as it stands in equations."""
    built = {}
    for name in _KEYS:
        (eqn,) = jax.make_jaxpr(lambda seed, name=name: jax.random.key(seed, impl=name))(0).eqns[-1:]
        built[name] = eqn.params["impl"]
    return built


# --- writing --------------------------------------------------------------------------------------------------


class PlainWriter:
    """Makes plain data of values.

    Attributes:
        arrays: those that it refers to by number, each once.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def array(self, value: Any) -> int:
        """The number of an array among `arrays`."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        dtype_name(array.dtype)
        digest = hashlib.blake2b(array.tobytes() if array.size else b"", digest_size=16).digest()
        key = array.dtype, array.shape, digest
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(array)
        return self._numbers[key]

    def value(self, value: Any) -> Plain:
        """A value as plain data.

        Raises:
            NotPlainError: one of a type that files have no form for.
        """
        match value:
            case None | bool() | str():
                return str(value) if isinstance(value, str) else value
            case enum.Enum() if _ENUMS.get(type(value).__name__) is type(value):
                return ["e", type(value).__name__, value.name]
            case int() if type(value) is int:
                if value.bit_length() > MOST_BITS:
                    raise NotPlainError(f"a whole number of {value.bit_length()} bits")
                return value
            case np.generic() | float() | complex():
                return self.number(value)
            case np.ndarray() | jax.Array() if not isinstance(value, Tracer):
                return ["a", self.array(value)]
            case np.dtype():
                return ["d", dtype_name(value)]
            case type():
                return _python_type(value)
            case bytes():
                return ["b", value.hex()]
            case slice() | range():
                return [type(value).__name__, *self.values([value.start, value.stop, value.step])]
            case frozenset():
                return ["s", *sorted(self.values(list(value)), key=json.dumps)]
            case list() if type(value) is list:
                return ["l", *self.values(value)]
            case dict() if type(value) is dict:
                return ["m", *([self.value(key), self.value(part)] for key, part in value.items())]
            case tuple():
                return self._tuple(value)
            case jax_core.Primitive() if public_primitives().get(value.name) is value:
                return ["p", value.name]
        return self.other(value)

    def number(self, value: Any) -> Plain:
        """A single number, of Python or of NumPy, by its bits."""
        if type(value) is float:
            return ["f", value.hex()]
        if type(value) is complex:
            return ["c", value.real.hex(), value.imag.hex()]
        return self.scalar(value)

    def scalar(self, value: Any) -> Plain:
        """A single number of NumPy's, by its dtype and its bits."""
        array = np.asarray(value)
        return ["n", dtype_name(array.dtype), array.tobytes().hex()]

    def array_apart(self, value: np.ndarray) -> int:
        """The number of an array that stays another than all that are equal to it."""
        self.arrays.append(value)
        return len(self.arrays) - 1

    def values(self, values: Iterable[Any]) -> list[Plain]:
        """Several values."""
        return [self.value(value) for value in values]

    def _tuple(self, value: tuple[Any, ...]) -> Plain:
        name = type(value).__name__
        if name in _RECORDS and type(value) is _RECORDS[name][0]:
            return ["g", name, *(self.value(tuple(getattr(value, part))) for part in _RECORDS[name][1])]
        return ["t", *self.values(value)] if type(value) is tuple else self.other(value)

    def other(self, value: Any) -> Plain:
        """A value of a type that this class has no form for.

        Raises:
            NotPlainError: unless it is a random generator, or a class that extends this one knows the type.
        """
        name = next(
            (name for name, known in _generators().items() if type(value) is type(known) and value == known), ""
        )
        if name:
            return ["k", name]
        raise NotPlainError(f"{type(value).__name__}: {value!r:.60}")


def _python_type(value: type) -> Plain:
    if _PYTHON_TYPES.get(value.__name__) is value:
        return ["y", value.__name__]
    try:
        return ["d", dtype_name(np.dtype(value))]
    except TypeError:
        raise NotPlainError(f"the type {value.__name__}") from None


# --- reading ----------------------------------------------------------------------------------------------------


def whole(plain: Plain, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """An integer within bounds."""
    check_form(type(plain) is int and least <= plain <= most, f"{plain!r:.40} for an integer")
    return plain


def text(plain: Plain, most: int = 1 << 16) -> str:
    """Text of a bounded length."""
    check_form(type(plain) is str and len(plain) <= most, f"{plain!r:.40} for text")
    return plain


def listed(plain: Plain, length: int | None = None) -> list[Plain]:
    """A list, of a known length where one is given."""
    check_form(type(plain) is list and length in (None, len(plain)), f"{plain!r:.40} for a list")
    return plain


def mapped(plain: Plain, *names: str, optional: Sequence[str] = ()) -> dict[str, Plain]:
    """A dict with these names and no others."""
    check_form(type(plain) is dict, f"{plain!r:.40} for a mapping")
    check_form(set(names) <= set(plain) <= {*names, *optional}, f"the names {sorted(plain)!r:.80}")
    return plain


def _bits(plain: Plain) -> bytes:
    return bytes.fromhex(text(plain))


class PlainReader:
    """Makes values of plain data.

    Args:
        arrays: those that plain data refers to by number.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays

    def array(self, plain: Plain) -> np.ndarray:
        """An array by its number."""
        return self.arrays[whole(plain, 0, len(self.arrays) - 1)]

    def values(self, plain: Iterable[Plain]) -> list[Any]:
        """Several values."""
        return [self.value(part) for part in plain]

    def value(self, plain: Any) -> Any:
        """A value.

        Raises:
            MalformedError: plain data that no writer makes.
        """
        if plain is None or type(plain) in (bool, str):
            return plain
        if type(plain) is int:
            check_form(plain.bit_length() <= MOST_BITS, "a whole number of too many bits")
            return plain
        entries: list[Any] = listed(plain)
        check_form(entries and type(entries[0]) is str, f"{plain!r:.40} for a value")
        tag, parts = str(entries[0]), entries[1:]
        if tag in ("t", "l", "s"):
            return {"t": tuple, "l": list, "s": frozenset}[tag](self.values(parts))
        if tag == "m":
            return {self.value(listed(pair, 2)[0]): self.value(pair[1]) for pair in parts}
        if tag in ("slice", "range"):
            return {"slice": slice, "range": range}[tag](*self.values(listed(parts, 3)))
        if tag == "g":
            check_form(parts and parts[0] in _RECORDS, f"the record {parts[:1]!r:.40}")
            kind, names = _RECORDS[parts[0]]
            return kind(**dict(zip(names, self.values(listed(parts[1:], len(names))), strict=True)))
        return self._of_text(tag, parts)

    def _of_text(self, tag: str, parts: list[Plain]) -> Any:
        """A value that words describe."""
        if tag == "a":
            return self.array(listed(parts, 1)[0])
        if not all(type(part) is str for part in parts):
            return self.other(tag, parts)
        words = [text(part) for part in parts]
        match tag, words:
            case "f", [word]:
                return float.fromhex(word)
            case "c", [real, imag]:
                return complex(float.fromhex(real), float.fromhex(imag))
            case "n", [name, word]:
                dtype = dtype_named(name)
                check_form(isinstance(dtype, np.dtype) and len(word) == 2 * dtype.itemsize, "the bits of a number")
                return np.frombuffer(_bits(word), dtype)[0]
            case "d", [name]:
                return dtype_named(name)
            case "b", [word]:
                return _bits(word)
            case "y", [name] if name in _PYTHON_TYPES:
                return _PYTHON_TYPES[name]
            case "e", [kind, name] if kind in _ENUMS and name in _ENUMS[kind].__members__:
                return _ENUMS[kind][name]
            case "k", [name] if name in _KEYS:
                return _generators()[name]
            case "p", [name] if name in FORMS and name in public_primitives():
                return public_primitives()[name]
        return self.other(tag, parts)

    def other(self, tag: str, parts: list[Plain]) -> Any:
        """A value of a tag that this class does not know.

        Raises:
            MalformedError: unless a class that extends this one knows it.
        """
        raise MalformedError(f"the tag {tag!r:.40}")
