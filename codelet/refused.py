"""Refused: why something has no answer, as a value that is passed on and printed."""

from __future__ import annotations

from typing import NamedTuple


class Refused(NamedTuple):
    """No answer, and the reason in words, as a clause: "a table is looked up by several keys"."""

    reason: str
