"""Running a function in a process of its own, where nothing is compiled, cached or allocated yet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """What a function returns in a new process, one that was not forked from this.

    Args:
        function: one of a module's own, so that the process can import it.
        arguments: that can be pickled, as what it returns must be.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
