"""Fingerprints: a short number that tells one thing from another in every process alike.

`structure.py` gives keys that are compared within one process: they hold codelets, which are equal where they are one
object. Here what such a key is made of is written out, a codelet by its equations, and hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet

SIZE = 16
"""Bytes."""

_PLACE = re.compile(r" at 0x[0-9a-f]+")
"""Where something lies in the memory of this process."""


def _told(own: object) -> str:
    return _PLACE.sub("", repr(own))


def _codelet(own: TracedCodelet) -> tuple[Hashable, ...]:
    consts = tuple(np.asarray(const).tobytes() for const in own.jaxpr.consts)
    return own.name, _PLACE.sub("", str(own)), consts, sorted(own.apart)  # type: ignore[return-value]


def fingerprint(key: Hashable) -> bytes:
    """`SIZE` bytes that are the same in every process for what is made of the same numbers, names and codelets.

    >>> fingerprint(("x", 1, None)) == fingerprint(("x", 1, None)) != fingerprint(("x", "1", None))
    True
    """
    found = hashlib.blake2b(digest_size=SIZE)
    codelets: dict[TracedCodelet, bytes] = {}

    def go(own: Any, write: Callable[[bytes], object]) -> None:
        match own:
            case TracedCodelet():
                if own not in codelets:
                    codelets[own] = fingerprint(_codelet(own))
                write(codelets[own])
            case FieldType():
                go(str(own), write)
            case bytes():
                write(b"b%d " % len(own) + own)
            case tuple() | list():
                write(b"(%d " % len(own))
                for part in own:
                    go(part, write)
            case _:
                text = f"{type(own).__name__} {_told(own)}".encode()
                write(b"%d " % len(text) + text)

    go(key, found.update)
    return found.digest()
