"""Recordings: programs of the compute sets that are made inside `with graph.record()`.

They are of the thread that enters them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from codelet.programs.compute_sets import ComputeSet
from codelet.programs.program import Recording


class _Open(threading.local):
    """The recordings that a thread is inside of."""

    def __init__(self) -> None:
        self.open: list[Recording] = []


class Recordings:
    """The recordings of a graph that are open.

    Attributes:
        num_open: that any thread is inside of: mostly none, which is quicker to ask.
    """

    def __init__(self) -> None:
        self.num_open = 0
        self._inside = _Open()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is built on outside of any recording."""
        return Recordings, ()

    @property
    def current(self) -> Recording | None:
        """The innermost that this thread is inside of."""
        return self._inside.open[-1] if self._inside.open else None

    def is_open(self, compute_set: ComputeSet) -> bool:
        """Whether this thread may add vertices to a compute set: while it records, to those of the recording."""
        recordings = self._inside.open
        return not recordings or compute_set.recording is recordings[-1]

    @contextlib.contextmanager
    def record(self, aside: bool = False) -> Iterator[Recording]:
        """The compute sets made inside become a program: run them in the order in which they were made."""
        recordings = self._inside.open
        recording = Recording(aside or any(own.is_aside for own in recordings))
        recordings.append(recording)
        with self._lock:
            self.num_open += 1
        try:
            yield recording
        finally:
            recordings.pop()
            with self._lock:
                self.num_open -= 1
