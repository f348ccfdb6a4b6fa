"""Old names that still work for one release, each with a DeprecationWarning that names the new one.

One function warns, `warn_old`; the others put it where an old name is met: `old_arguments` at keyword arguments,
`old_order` at positional arguments that have moved, `old_attribute` at methods and properties, and `callable_still`
at methods that are properties now.
"""

from __future__ import annotations

import functools
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
    return function.__qualname__.removesuffix(".__init__")


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
            for old in renamed.keys() & kwargs.keys():
                new = renamed[old]
                if new in kwargs:
                    raise TypeError(f"{_name_of(function)} is given {new}= and, under its old name, {old}=")
                warn_old(f"{_name_of(function)}({old}=...)", f"{new}=")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return taking_old


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
            if len(args) > after and is_old(args[after]):
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
