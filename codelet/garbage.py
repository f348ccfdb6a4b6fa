"""Garbage: how often Python looks for cycles that nobody holds while a graph is traced, lowered or placed.

All make millions of small objects that stay. Python looks through the youngest of them after every 700, and through
all whenever they have become a quarter more; Each time is reported to JAX. A sixth of the time went there.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_SELDOM = (20_000, 20, 20)
"""Objects between two looks at the youngest; of these looks, those between two at older ones; and so on."""

_LOCK = threading.Lock()
_BEFORE: list[tuple[int, int, int]] = []
"""Python's own thresholds, once for each that is within `collecting_seldom`: it is one setting for all threads."""


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """With garbage looked for seldom; not more often than before, nor where it is not looked for at all."""
    with _LOCK:
        before = _BEFORE[0] if _BEFORE else gc.get_threshold()
        _BEFORE.append(before)
        if len(_BEFORE) == 1 and 0 < before[0] < _SELDOM[0]:
            gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        with _LOCK:
            _BEFORE.pop()
            if not _BEFORE and gc.get_threshold() == _SELDOM:  # unless somebody has set it since
                gc.set_threshold(*before)
