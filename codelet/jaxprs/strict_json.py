"""JSON as files have it: no number with a fraction, no name twice, nothing nested without end."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from codelet.jaxprs.plain import MalformedError, Plain

MOST_BYTES = 1 << 27
"""Bytes of one part of JSON."""


def _refused(word: str) -> NoReturn:
    raise MalformedError(f"the number {word!r:.40} in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise MalformedError("a name that stands twice in a mapping of JSON")
    return result


def parsed_json(data: bytes) -> Plain:
    """Plain data of JSON.

    Raises:
        MalformedError: text that is no such JSON.
    """
    if len(data) > MOST_BYTES:
        raise MalformedError(f"{len(data):,} bytes of JSON, of at most {MOST_BYTES:,}")
    try:
        return json.loads(data, parse_float=_refused, parse_constant=_refused, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"JSON that cannot be read: {error!s:.80}") from None


def written_json(plain: Plain) -> bytes:
    """Plain data as JSON, the same for the same data."""
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
