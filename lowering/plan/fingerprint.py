"""Fingerprints: a short number that tells one thing from another in every process alike.

`structure.py` gives keys that are compared within one process: they hold codelets, which are equal where they are one
object. Here what such a key is made of is written out, a codelet by its equations and constants, and hashed.

Known weakness: derivative rules of a codelet's own (`jax.custom_jvp`, `jax.custom_vjp`) are not looked at, since a rule
is asked only where somebody differentiates. The vertices that `cl.gradient` adds are told apart by their equations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet

SIZE = 16
"""Bytes."""

_JAXPRS = jax_core.Jaxpr, jax_core.ClosedJaxpr

_PLACE = re.compile(r" at 0x[0-9a-f]+")
"""Where something lies in the memory of this process."""


def _told(own: object) -> str:
    return _PLACE.sub("", repr(own))


def _constants(own: jax_core.ClosedJaxpr | jax_core.Jaxpr) -> Iterator[tuple[Hashable, ...]]:
    """The constants of a jaxpr and of all within it, which its text does not show."""
    for const in getattr(own, "consts", ()):
        array = np.asarray(const)
        yield str(array.dtype), array.shape, array.tobytes()
    for eqn in own.eqns:
        for part in jax.tree.leaves([*eqn.params.values()], is_leaf=lambda part: isinstance(part, _JAXPRS)):
            if isinstance(part, _JAXPRS):
                yield from _constants(part)


def _codelet(own: TracedCodelet) -> tuple[Hashable, ...]:
    consts = tuple(_constants(own.jaxpr))
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
