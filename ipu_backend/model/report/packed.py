"""Columns packed for a page: small integers and dictionaries of text, compressed, as text of one script element.

`page/data.js` unpacks them.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ipu_backend.model.report.record import Columns

_KINDS = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "i4": np.int32, "f8": np.float64}


class Packed(NamedTuple):
    """Columns in bytes.

    Attributes:
        columns: for each table its columns, and of each the kind and place of its numbers: what JSON can say.
        data: base64 of the bytes, compressed by gzip.
    """

    columns: dict[str, dict[str, Any]]
    data: str


def _kind(column: np.ndarray) -> str:
    """The shortest kind that holds every number of a column exactly."""
    if column.dtype.kind == "f":
        return "f8"
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    for kind in ("u1", "u2", "u4", "i4"):
        limits = np.iinfo(_KINDS[kind])
        if limits.min <= low and high <= limits.max:
            return kind
    return "f8"  # exact to 2**53, as all numbers of a browser are


def pack(tables: Mapping[str, Columns]) -> Packed:
    """Tables as bytes."""
    columns: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, table in tables.items():
        own: dict[str, Any] = {}
        for key, column in table.items():
            words = None
            if column.dtype.kind == "U":
                words, column = np.unique(column, return_inverse=True)
            elif column.dtype.kind == "b":
                column = column.astype(np.uint8)
            kind = _kind(column)
            written = column.astype(_KINDS[kind]).astype(f"<{kind}").tobytes()
            own[key] = {"kind": kind, "offset": offset, "length": len(column)}
            if words is not None:
                own[key]["words"] = words.tolist()
            padding = -len(written) % 8  # so that every column begins where its numbers may
            parts.append(written + bytes(padding))
            offset += len(written) + padding
        columns[name] = own
    squeezed = gzip.compress(b"".join(parts), 6, mtime=0)
    return Packed(columns, base64.b64encode(squeezed).decode("ascii"))
