"""The schema of arguments: the kinds of values that a public function accepts, checked before it runs.

`accepts(error, size=COUNT, ...)` checks arguments one by one. The function itself checks combinations of them.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, SupportsIndex, TypeGuard, TypeVar

import numpy as np

from codelet.errors import CodeletError

F = TypeVar("F", bound=Callable[..., Any])


class Kind(NamedTuple):
    """A kind of argument.

    Attributes:
        text: the expected values, for errors.
        accepts: True for a value of this kind.
    """

    text: str
    accepts: Callable[[Any], bool]


def is_whole(value: Any, least: float = -math.inf) -> TypeGuard[int]:
    """True if a value is an integer of Python or NumPy, not a boolean, and at least `least`."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def is_index(value: Any, least: float = -math.inf) -> TypeGuard[SupportsIndex]:
    """True if a value may be used as an integer, as an array of one may, and is at least `least`; booleans may not."""
    if isinstance(value, (bool, np.bool_)):
        return False
    try:
        own = operator.index(value)
    except (TypeError, CodeletError):  # tensors and symbols say that they are none
        return False
    return own >= least


def is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """True if a value is a finite number from `least` to `most`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return math.isfinite(value) and bool(least <= value <= most)


def are_wholes(value: Any, least: int) -> bool:
    """True if a value is a sequence of integers."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return False
    try:
        return all(is_index(own, least) for own in value)
    except CodeletError:  # a tensor of no dimensions is no sequence
        return False


FLAG = Kind("True or False", lambda value: isinstance(value, (bool, np.bool_)))
NUMBER = Kind("a finite number", is_number)
COUNT = Kind("an integer from 1", lambda value: is_index(value, 1))
SIZE = Kind("an integer from 0", lambda value: is_index(value, 0))
SIZES = Kind("integers from 0", lambda value: are_wholes(value, 0))
TEXT = Kind("text", lambda value: isinstance(value, str))
NAME = Kind("a name: text that is not empty", lambda value: isinstance(value, str) and bool(value))
FUNCTION = Kind("a function", callable)


def one_of(*values: str) -> Kind:
    """One of several words."""
    return Kind(", ".join(map(repr, values)), lambda value: isinstance(value, str) and value in values)


def of_class(text: str, *classes: type) -> Kind:
    """An instance of one of some classes."""
    return Kind(text, lambda value: isinstance(value, classes))


class Schema:
    """The kinds of a function's arguments, by name. The default of a parameter is always accepted.

    Args:
        function: the function.
        name: its name, for errors.
        kinds: those of some of its arguments.
        error: the class of errors to raise.
    """

    def __init__(self, function: Callable[..., Any], name: str, kinds: Mapping[str, Kind], error: type[CodeletError]):
        parameters = inspect.signature(function).parameters
        self._name, self._error = name, error
        self._by_place = [own.name for own in parameters.values() if own.kind is own.POSITIONAL_OR_KEYWORD]
        self._kinds = {own: (kind, parameters[own].default) for own, kind in kinds.items() if own in parameters}

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check the kinds of arguments. Python itself reports other mistakes of a call.

        Raises:
            The error of the schema: an argument of another kind.
        """
        for name, value in (*zip(self._by_place, args, strict=False), *kwargs.items()):
            kind, default = self._kinds.get(name, (None, None))
            if kind is not None and value is not default and not kind.accepts(value):
                raise self._error(f"{name} of {self._name} is invalid", given=f"{value!r:.80}", expected=kind.text)


def accepts(error: type[CodeletError], **kinds: Kind) -> Callable[[F], F]:
    """Check some arguments of a function, or a method, before it runs.

    Raises:
        The error: an argument of another kind.
    """

    def behind(function: F) -> F:
        name = function.__qualname__.removesuffix(".__init__")
        schema = Schema(function, name, kinds, error)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            schema.check(args, kwargs)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return behind
