"""Copies and pickles: the shared parts of copies, immutable objects, and the content of a file for a function.

Graphs, programs and plans can be copied by `copy.deepcopy` and written by `pickle`. A copy is independent of the
original; immutable objects are shared by both, codelets too. In a file a codelet is a name: of the module and of itself
there, as a function is to `pickle`. It is traced anew when the file is read. A codelet without a name, or without a
function, is its equations there, as far as these can be written (`jaxprs/saved_jaxprs.py`). Pickles are for copies and
processes of one version; for the long term there are files of `cl.save` (`codelet/saved`).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from types import FunctionType
from typing import Any, NoReturn

from codelet.errors import SavingError


class Unchanging:
    """An immutable object: its copies are itself."""

    __slots__ = ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class Frozen:
    """An object of slots that cannot be assigned to once it is
    made: a frozen dataclass for objects made too often for one.

    To make one, call `__setstate__`, as `pickle` and `copy` do, or fill the slots of an object of a base class, and
    change its class.
    """

    __slots__ = ()

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, part in state[1].items():
            object.__setattr__(self, name, part)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name!r}: a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name!r}: a {type(self).__name__} does not change")


def _found(module: str, name: str) -> Any:
    """The value of a module under a name, which may be that of something in a class."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _held_by(value: Any) -> Mapping[str, Any]:
    """The values of a dict by names, and of a named tuple."""
    if isinstance(value, tuple):
        return {part: getattr(value, part) for part in getattr(value, "_fields", ())}
    return {name: own for name, own in value.items() if isinstance(name, str)} if type(value) is dict else {}


def _path_to(wanted: object, value: Any, depth: int = 2) -> tuple[str, ...] | None:
    """By which names something is found in a value: none where it is this itself; None where it is not."""
    if value is wanted:
        return ()
    for name, part in _held_by(value).items() if depth else ():
        path = _path_to(wanted, part, depth - 1)
        if path is not None:
            return (name, *path)
    return None


def _at(module: str, path: Sequence[str]) -> Any:
    """The value of a module by a name, and that by others."""
    return functools.reduce(lambda value, name: _held_by(value)[name], path[1:], _found(module, path[0]))


def _has(module: str, name: str, wanted: object) -> bool:
    try:
        return _found(module, name) is wanted
    except (AttributeError, ImportError):
        return False


def reduced(made: Any, function: Callable[..., Any], otherwise: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """How something made of a function is pickled: by its name in a module, or if it has none, made again.

    It may be in a dict there, by its name, and in a named tuple.

    Args:
        made: the result, of a decorator, say.
        function: the original function.
        otherwise: makes it again, and from which arguments.
        what: its name in an error.

    Raises:
        SavingError: a lambda or a function within a function that is not found by a name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    name = getattr(function, "__name__", None) if name is None else name  # a ufunc of jax.numpy has only that
    if isinstance(module, str) and isinstance(name, str):
        if _has(module, name, made):
            return _found, (module, name)
        for other, value in vars(sys.modules.get(module, object)).items():
            path = _path_to(made, value)
            if path is not None:
                return _at, (module, (other, *path))
        if isinstance(function, FunctionType) and not _has(module, name, function):
            raise SavingError(
                f"{what} cannot be pickled: it is written as a reference to its function, which has no name to import",
                given=f"{name} of the module {module}",
                expected="a function at the top of a module",
                fix="define it there, with `def`, and give it what it needs of the function around it as fields and "
                "static values; copy.deepcopy needs no names",
            )
    return otherwise
