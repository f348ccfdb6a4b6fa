"""Parameters: which functions can be codelets, by their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from codelet.errors import (
    CodeletDefinitionError,
)


def wrapped(name: str, inputs: Sequence[str]) -> str:
    """A function of someone else's as a codelet."""
    fields = ", ".join(inputs) or "x"
    return f"say which of its parameters are fields: cl.codelet(lambda {fields}: {name}({fields}))"


def is_a_librarys(function: Any) -> bool:
    """Whether a function is one that the user cannot change."""
    return str(getattr(function, "__module__", None)).split(".")[0] in ("builtins", "jax", "math", "numpy")


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """The parameters of a function that is to be a codelet.

    Raises:
        CodeletDefinitionError: no function, or one that does not tell its parameters.
    """
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    if not callable(function) or isinstance(function, type):
        raise CodeletDefinitionError(
            "a codelet is made of something other than a function",
            given=f"{function!r:.80}",
            expected="a function of arrays: @cl.codelet above `def`, or cl.codelet(lambda x: ...)",
            fix="a static value of a codelet is a keyword-only parameter" if not isinstance(function, type) else None,
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise CodeletDefinitionError(
            f"{name!r} does not tell its parameters, as functions not written in Python may not",
            given=f"{function!r:.80}",
            expected="a function of arrays whose parameters have names",
            fix=wrapped(name, ()),
        ) from None
    return parameters
