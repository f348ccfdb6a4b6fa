"""Old names that still work for one release, each with a DeprecationWarning that names the new one.

One function warns, `warn_old`; the others put it where an old name is met: `old_arguments` at keyword arguments,
`old_order` at positional arguments that have moved, `old_attribute` at methods and properties. `callable_still` does so
at methods that are properties now.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from codelet.errors import GradientError, SavedLine, user_line

F = TypeVar("F", bound=Callable[..., Any])


def warn_old(old: str, new: str) -> None:
    """Warn that an old name was used, at the user's line that used it."""
    text, line = f"codelet: {old} is now {new}; the old form works for one more release", user_line()
    if line is None or isinstance(line.code, SavedLine):
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    else:
        file = line.code.co_filename
        warnings.warn_explicit(text, DeprecationWarning, file, line.number, registry={})


def _name_of(function: Callable[..., Any]) -> str:
    room = "ops." if function.__module__.startswith("codelet.ops.") else ""
    return room + function.__qualname__.removesuffix(".__init__")


def old_arguments(**renamed: str) -> Callable[[F], F]:
    """A function that takes some keyword arguments under their old names as well.

    Args:
        renamed: the new name of each, by the old one.

    Raises:
        TypeError: when it is called with both.
    """

    def taking_old(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **renamed_keywords(function, renamed, kwargs))

        return called  # type: ignore[return-value]

    return taking_old


def renamed_keywords(
    function: Callable[..., Any], renamed: Mapping[str, str], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Keyword arguments of a function with new names in the place of old ones.

    Args:
        function: which is called with them.
        renamed: the new name of each, by the old one.
        kwargs: the arguments by name.

    Raises:
        TypeError: when both are among them.
    """
    for old in renamed.keys() & kwargs.keys():
        new = renamed[old]
        if new in kwargs:
            raise TypeError(f"{_name_of(function)} is given {new}= and, under its old name, {old}=")
        warn_old(f"{_name_of(function)}({old}=...)", f"{new}=")
        kwargs[new] = kwargs.pop(old)
    return kwargs


OLD_NAMES = {"concat": "concatenate"}
"""New names of what is in `codelet`, by the old ones."""


def old_name(name: str) -> Any:
    """The value behind an old name of `codelet`, which takes the same arguments."""
    new = OLD_NAMES[name]
    warn_old(f"cl.{name}", f"cl.{new}")
    found = getattr(importlib.import_module("codelet"), new)
    return old_arguments(dimension="axis")(found)


OLD_OPERATIONS = {
    "dot_general_gradients": "dot_general_gradient",
    "matmul_gradients": "matmul_gradient",
    "pad_gradient": "lax_pad_gradient",
}
"""New names of operations, by the old ones."""

OF_ALL_OPERATIONS = {"memory_share": "memory_fraction"}
"""New names of what all planned operations take, by the old ones."""

_CHANNELS, _AXIS, _X = {"axis": "channel_axis"}, {"axes": "axis"}, {"operand": "x"}

OF_OPERATIONS: Mapping[str, Mapping[str, str]] = {
    "batch_norm": _CHANNELS,
    "batch_norm_gradient": _CHANNELS,
    "batch_norm_inference": _CHANNELS,
    "batch_norm_inference_gradient": _CHANNELS,
    "group_norm": _CHANNELS,
    "group_norm_gradient": _CHANNELS,
    "avg_pool": _AXIS,
    "avg_pool_gradient": {**_AXIS, "shape": "x_shape"},
    "max_pool": _AXIS,
    "max_pool_gradient": _AXIS,
    "plan_max_pool": _AXIS,
    "argsort": _X,
    "sort": _X,
    "top_k": _X,
    "top_k_gradient": {"length": "x_shape"},
    "iota": {"dimension": "axis"},
}
"""New names of what some operations take, by operation and old name."""


def old_keywords(operation: Callable[..., Any]) -> dict[str, str]:
    """New parameter names of an operation, by the old ones that still work."""
    own = {**OF_ALL_OPERATIONS, **OF_OPERATIONS.get(operation.__name__, {})}
    parameters = inspect.signature(operation).parameters
    return {old: new for old, new in own.items() if new in parameters}


def old_order(
    names: Sequence[str], is_old: Callable[[Any], bool] = lambda given: True, *, after: int = 1
) -> Callable[[F], F]:
    """A function that takes some arguments by position as it did, which are given by name now.

    Args:
        names: theirs, in the order in which they were.
        is_old: whether the first of them shows that they are in that order.
        after: how many arguments stand before them, `self` among them: the graph alone, of a function of a graph.
    """

    def taking_old(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(args) > after and names[0] not in kwargs and is_old(args[after]):
                given = dict(zip(names, args[after:], strict=False))
                words = ", ".join(f"{name}=" for name in given)
                warn_old(f"{_name_of(function)} with {words.replace('=', '')} by position", f"by keyword: {words}")
                args, kwargs = args[:after], {**given, **kwargs}
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return taking_old


def old_attribute(old: str, new: str) -> Any:
    """An attribute of a class that is the one of a new name.

    Args:
        old: its old name, with that of the class, as the warning has it: `Profile.trace`.
        new: the new name.
    """

    def get(self: Any) -> Any:
        warn_old(old, new)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: `{new}` is its name now.")


GradientError.report = old_attribute("GradientError.report", "check")  # type: ignore[attr-defined] (below this file)


class _CalledDict(dict[Any, Any]):
    """A dict, and calling it gives it."""

    old = ""

    def __call__(self) -> Any:
        warn_old(f"{self.old}()", f"{self.old}, a property")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _CalledList(list[Any]):
    """A list, and calling it gives it."""

    old = ""
    __call__ = _CalledDict.__call__

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def callable_still(value: Any, old: str) -> Any:
    """A dict or a list of a property, which may also be called, as the former method `old`."""
    made: Any = _CalledDict(value) if isinstance(value, Mapping) else _CalledList(value)
    made.old = old
    return made
