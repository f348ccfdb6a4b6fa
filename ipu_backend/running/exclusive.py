"""Exclusive use: one call at a time on what is not made for several, and an error where waiting would never end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from codelet.errors import EngineInUseError


class Exclusive:
    """Lets one call in at a time.

    Calls of other threads wait. One that comes from within the call that is going on would wait for itself: it comes
    from the same thread, or from one that Python did not start, as those on which JAX calls a codelet's callbacks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._what = ""

    @contextmanager
    def use(self, what: str) -> Iterator[None]:
        """Be the one that uses it.

        Args:
            what: the call, as in an error: `run`.

        Raises:
            EngineInUseError: it is in use by what led to this call.
        """
        within = self._thread == threading.get_ident()
        if self._thread is not None and (within or isinstance(threading.current_thread(), threading._DummyThread)):
            raise EngineInUseError(
                f"the engine is used from within its own engine.{self._what}",
                given=f"engine.{what}, in what that called",
                expected="one thing at a time: what a run is changing can be neither read nor written",
                fix="keep what a function connected to a stream is given, and use the engine once the run is over",
            )
        with self._lock:
            self._thread, self._what = threading.get_ident(), what
            try:
                yield
            finally:
                self._thread = None
