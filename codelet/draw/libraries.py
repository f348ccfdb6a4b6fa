"""The parts of other libraries that drawing needs, imported when first used; kernels compiled by numba, run
by threads.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from codelet.errors import MissingExtraError

Share = TypeVar("Share")
Result = TypeVar("Result")

SHARES = 2
"""In how many shares threads sum up what cannot be summed in any order: the same on all machines, as pictures are."""


def need(module: str) -> Any:
    """A module of a library that the extra `draw` brings.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise _missing(module) from None


def _missing(module: str) -> MissingExtraError:
    return MissingExtraError(
        "pictures need a library that is not installed",
        given=f"a Python without {module.partition('.')[0]}",
        expected="the extra `draw`",
        fix="pip install 'codelet-graphs[draw]' (in a checkout: pip install -e '.[draw]')",
    )


def check_there(modules: Iterable[str]) -> None:
    """Whether modules are installed, without importing them: asked before long work begins.

    Raises:
        MissingExtraError: one is not.
    """
    for module in modules:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise _missing(module)


def compiled(function: Callable[..., Any]) -> Any:
    """A function as machine code, compiled when first called and kept on disk; threads run it side by side.

    It may call other kernels of its file.

    Raises:
        MissingExtraError: when it is called, numba is not installed.
    """

    @functools.cache
    def machine_code() -> Callable[..., Any]:
        numba = need("numba")
        # The kernels that it calls, as machine code as well; numba looks for changes of those in its own file alone.
        used = {name: function.__globals__.get(name) for name in function.__code__.co_names}
        kernels = {name: make() for name, own in used.items() if (make := getattr(own, "machine_code", None))}
        linked = FunctionType(function.__code__, {**function.__globals__, **kernels}, function.__name__)
        linked.__qualname__, linked.__module__ = function.__qualname__, function.__module__
        return numba.njit(linked, nogil=True, cache=True, error_model="numpy")

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return machine_code()(*arguments)

    call.machine_code = machine_code  # type: ignore[attr-defined]
    return call


def shares_of(count: int) -> list[tuple[int, int]]:
    """Numbers up to `count` in `SHARES` stretches."""
    return list(pairwise(np.linspace(0, count, SHARES + 1).astype(np.int64).tolist()))


_within = threading.local()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(max(SHARES, usable))


def side_by_side(function: Callable[[Share], Result], shares: Iterable[Share]) -> list[Result]:
    """The results of a function for some shares of work, by threads; by one where a share is itself in shares."""
    if getattr(_within, "a_share", False):
        return list(map(function, shares))

    def work(share: Share) -> Result:
        _within.a_share = True
        try:
            return function(share)
        finally:
            _within.a_share = False

    return list(_threads().map(work, shares))


def summed(function: Callable[[Share], np.ndarray], shares: Iterable[Share]) -> np.ndarray:
    """The sum of the arrays that a function gives for some shares of work, in the first of them."""
    total, *others = side_by_side(function, shares)
    for other in others:
        total += other
    return total
