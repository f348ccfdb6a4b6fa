"""Functions of elements in files: by the names they have in their modules, and with the arguments bound to their
parameters.

In comes a function that a user gives `ops.map`; out comes plain data that pickles, and the function again. JAX's
functions are found by name as any others are, though `pickle` would not find them: `jnp.sin` and `jax.nn.relu` are no
functions of Python's.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from codelet.errors import SavingError
from codelet.saving import reduced


class _BoundFunction(NamedTuple):
    """A function with some arguments: `functools.partial`, whose function `pickle` might not find."""

    function: SavedFunction
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]


class SavedFunction(NamedTuple):
    """A function as plain data: the constructor that finds it, and its arguments."""

    find: Callable[..., Any]
    arguments: tuple[Any, ...]

    def found(self) -> Any:
        """The function."""
        return self.find(*self.arguments)


def _bound(own: _BoundFunction) -> Any:
    return functools.partial(own.function.found(), *own.args, **own.keywords)


def _itself(function: Any) -> Any:
    return function


def saved_function(function: Any, what: str) -> SavedFunction:
    """A function as plain data.

    Args:
        function: one at the top of a module, one of JAX's, a `functools.partial` of such, or anything that pickles.
        what: its name in an error.

    Raises:
        SavingError: a lambda or a function within a function, or something else that does not pickle.
    """
    if type(function) is functools.partial:
        inner = saved_function(function.func, what)
        return SavedFunction(_bound, (_BoundFunction(inner, function.args, function.keywords),))
    found = SavedFunction(*reduced(function, function, (_itself, (function,)), what))
    if found.find is _itself:
        try:
            pickle.dumps(function)
        except SavingError:
            raise
        except Exception as error:
            raise SavingError(
                f"{what} cannot be pickled: {error}",
                given=f"{function!r:.80}",
                expected="a function at the top of a module, or a functools.partial of one",
                fix="define it there, and bind what it needs with functools.partial",
            ) from error
    return found
