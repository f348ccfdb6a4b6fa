"""Conditions: comparisons of index expressions, true at some positions of the grid and false at others.

The conditions of `codelet.where`. As a field of a vertex one is vertex state, a boolean of the vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import SymbolError
from codelet.views.operators import NoNumber

if TYPE_CHECKING:
    from codelet.views.index import Index

_CHOOSE = "choose with `//`, `%` or a table, or with cl.where(condition, a, b)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Condition(NoNumber):
    """A comparison of index expressions. Conditions are combined by `&`, `|`, `^` and `~`.

    Attributes:
        index: 1 where it is true, 0 where it is false.

    >>> import codelet as cl
    >>> i = cl.grid(6)
    >>> cl.where((i > 0) & (i < 5), i, -1).values(i.axes).tolist()
    [-1, 1, 2, 3, 4, -1]
    """

    index: Index

    @property
    def axes(self) -> Any:
        """The grid axes of all symbols written in it."""
        return self.index.axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, at each position of the grid."""
        return self.index.shape

    def over(self, axes: Any) -> Condition:
        """It over axes that stand for all of its axes, without idle symbols."""
        return Condition(self.index.over(axes).without_idle_symbols())

    def _other(self, other: object, symbol: str) -> Any:
        if isinstance(other, Condition):
            return other.index
        if isinstance(other, (bool, np.bool_)):
            return int(other)
        raise self._refuse(f"`{symbol}`", f"a condition {symbol} {other!r}")

    def __and__(self, other: object) -> Condition:
        return Condition(self.index & self._other(other, "&"))

    def __or__(self, other: object) -> Condition:
        return Condition(self.index | self._other(other, "|"))

    def __xor__(self, other: object) -> Condition:
        return Condition(self.index ^ self._other(other, "^"))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Condition:
        return Condition(1 - self.index)

    def __eq__(self, other: object) -> Any:
        raise self._refuse("`==`", f"a condition == {other!r}")

    def __ne__(self, other: object) -> Any:
        raise self._refuse("`!=`", f"a condition != {other!r}")

    __hash__ = object.__hash__

    def _refuse(self, use: str, given: str) -> SymbolError:
        if use == "`bool`":
            return SymbolError(
                "a condition on symbols has no boolean while the graph is built",
                given=given,
                expected="a plain number or boolean",
                fix=f"it stands for all positions of its grid at once; {_CHOOSE}; "
                "`and`, `or`, `not` and `a < i < b` are written `&`, `|`, `~` and `(a < i) & (i < b)`",
            )
        return SymbolError(
            f"a condition on symbols has no {use}",
            given=given,
            expected="`&`, `|`, `^` and `~` between conditions, or one as the first argument of cl.where",
            fix="cl.where(condition, 1, 0) is a number",
        )

    def __repr__(self) -> str:
        return f"Condition({self.index.text()})"
