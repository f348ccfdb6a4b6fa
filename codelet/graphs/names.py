"""Names: each given once in a graph, with the scopes around it.

Scopes are of the thread that enters them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

from codelet.errors import (
    DuplicateNameError,
    Line,
    VariableError,
    user_line,
)


class _Scopes(threading.local):
    """The scopes that a thread is inside of."""

    def __init__(self) -> None:
        self.scopes: list[str] = []


class Names:
    """The names in a graph.

    Attributes:
        lines: the user's line that gave each name, by the name with its scopes.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line | None] = {}
        self._entered: set[str] = set()
        self._inside = _Scopes()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is built on outside of any scope."""
        return {"lines": self.lines, "_entered": self._entered}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _inside=_Scopes())

    @contextlib.contextmanager
    def scope(self, name: str, unique: bool = False) -> Iterator[None]:
        """Names given inside are prefixed with `name/`, or where that is to be unique and is taken, `name_2/`, ...

        Raises:
            VariableError: a name that is none.
        """
        if not isinstance(name, str) or not name:
            raise VariableError(
                "a scope's name is not a name", given=repr(name), expected="a string that is not empty", fix="str(name)"
            )
        scope = self._inside.scopes
        if unique:
            name = self.free(name)
        self._entered.add(self.full(name))
        scope.append(name)
        try:
            yield
        finally:
            scope.pop()

    def full(self, name: str) -> str:
        """A name with the scopes that this thread is inside of."""
        return "/".join([*self._inside.scopes, name])

    def claim(self, name: str, what: str) -> str:
        """The full name of a new thing, which no other may have."""
        if not isinstance(name, str) or not name:
            raise VariableError(
                f"a {what}'s name is not a name", given=repr(name), expected="a string that is not empty"
            )
        full = self.full(name)
        if full in self.lines:
            before, now = self.lines[full], user_line()
            hint = "use another name, or `with graph.scope(...)`"
            if before is not None and now is not None and before == now:
                hint = (
                    "the same line ran twice, as a notebook cell does: make a new Graph in that cell first, or " + hint
                )
            raise DuplicateNameError(
                f"the name {full!r} is used twice in one graph",
                given=f"a {what}",
                expected=f"a name other than that given at {before}",
                fix=hint,
            )
        self.lines[full] = user_line()
        return full

    def free(self, name: str) -> str:
        """`name`, or `name_2`, `name_3`, ..., whichever is free: no thing's name, and no scope's."""
        tried = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        return next(own for own in tried if self.full(own) not in self.lines and self.full(own) not in self._entered)
