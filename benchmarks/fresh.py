"""Running a function in a process of its own, where nothing is compiled, cached or allocated yet, and its memory."""

from __future__ import annotations

import gc
import importlib
import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class NoProcess(Exception):
    """A process would have been started where none is to be."""


_starts_none: ContextVar[bool] = ContextVar("starts_none", default=False)


@contextmanager
def without_processes() -> Iterator[None]:
    """Where nothing is measured: `in_fresh_process` raises `NoProcess`."""
    before = _starts_none.set(True)
    try:
        yield
    finally:
        _starts_none.reset(before)


def imported() -> None:
    """All that a graph is built, lowered and run by, which is else imported when it is first used."""
    for name in ("codelet.frontends.trace", "ipu_backend.running.engine", "lowering"):
        importlib.import_module(name)
    gc.collect()  # of what importing left: else whichever side happens to come upon it next takes a tenth of a second


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """What a function returns in a new process, one that was not forked from this, and has imported this library.

    Args:
        function: one of a module's own, so that the process can import it.
        arguments: that can be pickled, as what it returns must be.

    Raises:
        NoProcess: within `without_processes`.
    """
    if _starts_none.get():
        raise NoProcess
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=imported) as pool:
        return pool.submit(function, *arguments).result()


def peak_bytes() -> int:
    """The most memory this process has held at once.

    On Linux from `VmHWM`: a process inherits `ru_maxrss` from the one that started it, whose arrays it
    would count.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
