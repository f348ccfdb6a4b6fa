"""The table of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
"""From an operation and its operands to its result, or a tuple of several."""

OPERATIONS: dict[str, Function] = {}


KEEPS_CONSTANTS: set[str] = set()
"""Operations that ask whether an operand is a constant, which is an array of NumPy then."""


def computes(*names: str, keeps_constants: bool = False) -> Callable[[Function], Function]:
    """Enter a function for operations."""

    def enter(function: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(names, function))
        KEEPS_CONSTANTS.update(names if keeps_constants else ())
        return function

    return enter
