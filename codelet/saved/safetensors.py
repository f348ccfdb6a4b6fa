"""Arrays in a file, in the format of safetensors: the length of a header, the header as JSON, then the arrays' bytes.

The format is read strictly: arrays lie one after another without gaps, each as long as its shape and dtype say. Arrays
of dtypes that the format has no name for are written as bytes, and their dtypes stand in its metadata.

Source: the README of https://github.com/huggingface/safetensors (format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from codelet.jaxprs.plain import DTYPES, check_form, dtype_name, dtype_named, listed, mapped, text, whole
from codelet.jaxprs.strict_json import parsed_json

_NAMES: Mapping[str, str] = {
    "bool": "BOOL",
    **{
        f"{kind}{bits}": f"{letter}{bits}" for kind, letter in (("int", "I"), ("uint", "U")) for bits in (8, 16, 32, 64)
    },
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
}
"""The format's names for dtypes, by NumPy's."""

_DTYPES = {name: DTYPES[item] for item, name in _NAMES.items()}

_MOST_HEADER = 100_000_000
"""Bytes of a header: safetensors' own limit."""

_MOST_DIMENSIONS = 64


def _entry(array: np.ndarray, start: int) -> dict[str, Any]:
    name, shape = _NAMES.get(dtype_name(array.dtype)), list(array.shape)
    if name is None:
        name, shape = "U8", [*shape, array.dtype.itemsize]
    return {"dtype": name, "shape": shape, "data_offsets": [start, start + array.nbytes]}


def written_arrays(arrays: Mapping[str, np.ndarray]) -> list[Any]:
    """The parts of a file of arrays, by name, to be written one after another.

    >>> data = b"".join(written_arrays({"x": np.arange(2, dtype=np.int16)}))
    >>> data[8:50], read_arrays(memoryview(data))["x"].tolist()
    (b'{"x":{"dtype":"I16","shape":[2],"data_offs', [0, 1])
    """
    header: dict[str, Any] = {}
    rest = {name: dtype_name(item.dtype) for name, item in arrays.items() if dtype_name(item.dtype) not in _NAMES}
    if rest:
        header["__metadata__"] = rest
    start = 0
    for name, array in arrays.items():
        header[name] = _entry(array, start)
        start += array.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return [len(encoded).to_bytes(8, "little"), encoded, *map(_bytes_of, arrays.values())]


def _bytes_of(array: np.ndarray) -> Any:
    if not array.size:
        return b""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.dtype.itemsize else b""


def read_arrays(data: memoryview) -> dict[str, np.ndarray]:
    """The arrays of a file, by name: views of its bytes, which nobody can write to.

    Raises:
        MalformedError: a file that is not as the format has it.
    """
    check_form(len(data) >= 8, "arrays without a header")
    length = int.from_bytes(data[:8], "little")
    check_form(length <= min(_MOST_HEADER, len(data) - 8), "the length of the header of arrays")
    header = parsed_json(bytes(data[8 : 8 + length]))
    check_form(type(header) is dict, "the header of arrays")
    rest = header.pop("__metadata__", {})
    check_form(type(rest) is dict, "the metadata of arrays")
    body, start, result = data[8 + length :], 0, {}
    for name, entry in header.items():
        parts = mapped(entry, "dtype", "shape", "data_offsets")
        check_form(text(parts["dtype"]) in _DTYPES, f"the dtype of array {name!r:.40}")
        shape = [whole(n) for n in listed(parts["shape"])]
        check_form(len(shape) <= _MOST_DIMENSIONS, f"the shape of array {name!r:.40}")
        dtype = _DTYPES[parts["dtype"]]
        size = math.prod(shape) * dtype.itemsize
        check_form(listed(parts["data_offsets"]) == [start, start + size], f"the place of array {name!r:.40}")
        check_form(start + size <= len(body), f"the length of array {name!r:.40}")
        array = np.frombuffer(body[start : start + size], dtype).reshape(shape)
        result[name] = _of_bytes(array, rest[name]) if name in rest else array
        start += size
    check_form(start == len(body) and rest.keys() <= header.keys(), "the number of bytes of arrays")
    return result


def _of_bytes(array: np.ndarray, name: Any) -> np.ndarray:
    """An array of a dtype that the format has no name for."""
    dtype = dtype_named(name)
    check_form(isinstance(dtype, np.dtype) and dtype.itemsize, f"the dtype {name!r:.40}")
    check_form(array.dtype == np.uint8 and array.shape[-1:] == (dtype.itemsize,), f"the bytes of {name!r:.40}")
    flat = np.frombuffer(np.ascontiguousarray(array).reshape(-1), dtype) if array.size else np.empty(0, dtype)
    return flat.reshape(array.shape[:-1])
