"""The table of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
"""From an operation and its operands to its result, or a tuple of several."""

OPERATIONS: dict[str, Function] = {}


def computes(*names: str) -> Callable[[Function], Function]:
    """Enter a function for operations."""

    def enter(function: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return enter
