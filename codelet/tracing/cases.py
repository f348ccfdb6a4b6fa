"""Cases: a function of integers computed for many of them at once, by NumPy, whatever it branches on.

In comes a function that takes numbers as Python's; it is given `Many`, each a column of numbers, one of each case. Its
arithmetic on them is done for all cases. Where it asks whether something holds, and cases differ, the answer is that of
most, and it goes on for these; for the others it is called again. So it returns of each case the same as for that case
alone. It is called once for every way through it that any case takes, as vectorising compilers do of branches that
diverge (Karrenberg and Hack, "Whole-Function Vectorization", 2011). `where`, `least` and `greatest` choose without a
branch.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Cases:
    """Those cases that go one way through a function.

    Attributes:
        left: for each case, whether the answers so far hold for it; bool.
    """

    def __init__(self, count: int):
        self.left = np.ones(count, bool)

    def answer(self, flags: np.ndarray) -> bool:
        """Whether something holds for most of the cases that are left; the others are left no longer."""
        held = int(np.count_nonzero(flags & self.left))
        if not held:
            return False
        left = int(np.count_nonzero(self.left))
        if held == left:
            return True
        answer = 2 * held >= left
        self.left &= flags == answer
        return answer

    def number(self, column: np.ndarray) -> Any:
        """The value of a number in most of the cases that are left; the others are left no longer."""
        distinct, counts = np.unique(column[self.left], return_counts=True)
        result = distinct[counts.argmax()]
        if len(distinct) > 1:
            self.left &= column == result
        return result.item()


class Many:
    """A number of each of some cases, which computes as one number does.

    Attributes:
        column: int64, float64 or bool, of shape (cases,).
        cases: the values.
    """

    __slots__ = ("cases", "column")
    __array_ufunc__ = None  # NumPy's value numbers leave arithmetic to it

    def __init__(self, column: np.ndarray, cases: Cases):
        self.column, self.cases = column, cases

    def __bool__(self) -> bool:
        column = self.column
        return self.cases.answer(column if column.dtype == np.bool_ else column != 0)

    def __index__(self) -> int:
        return self.cases.number(self.column)

    __int__ = __index__

    def __trunc__(self) -> int:
        return int(self.cases.number(self.column))

    def __float__(self) -> float:
        return float(self.cases.number(self.column))

    def __hash__(self) -> int:
        return hash(self.cases.number(self.column))

    def __neg__(self) -> Many:
        return Many(-self.column, self.cases)

    def __eq__(self, other: object) -> Any:
        return True if other is self else _by_column(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return False if other is self else _by_column(operator.ne, self, other)

    def bit_length(self) -> Many:
        """As of an integer."""
        return Many(np.frexp(self.column.astype(np.float64))[1].astype(np.int64), self.cases)

    def bit_count(self) -> Many:
        """As of an integer."""
        return Many(np.bitwise_count(self.column).astype(np.int64), self.cases)

    def __divmod__(self, other: Any) -> tuple[Many, Many]:
        return self // other, self % other


def _by_column(operation: Callable[[Any, Any], Any], value: Many, other: Any) -> Any:
    if type(other) is Many:
        return Many(operation(value.column, other.column), value.cases)
    if isinstance(other, (int, float, np.number)):
        return Many(operation(value.column, other), value.cases)
    return NotImplemented


def _method(operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Callable[[Many, Any], Any]:
    value = (lambda a, b: operation(b, a)) if swapped else operation

    def method(self: Many, other: Any) -> Any:
        if type(other) is Many:
            return Many(value(self.column, other.column), self.cases)
        return Many(value(self.column, other), self.cases)

    return method


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "and", "or", "lshift", "rshift"):
    _operation = getattr(operator, f"__{_name}__")
    setattr(Many, f"__{_name}__", _method(_operation))
    setattr(Many, f"__r{_name}__", _method(_operation, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Many, f"__{_name}__", _method(getattr(operator, f"__{_name}__")))


def _column(value: Any) -> Any:
    return value.column if type(value) is Many else value


def where(condition: Any, one: Any, other: Any) -> Any:
    """`one` where a condition holds, `other` elsewhere, case by case."""
    if type(condition) is not Many:
        return one if condition else other
    return Many(np.where(condition.column, _column(one), _column(other)), condition.cases)


def _chosen(choose: Callable[[Any, Any], Any], of_numbers: Callable[..., Any], values: Sequence[Any]) -> Any:
    cases = next((value.cases for value in values if type(value) is Many), None)
    if cases is None and not any(isinstance(value, np.ndarray) for value in values):
        return of_numbers(values)
    result = functools.reduce(choose, map(_column, values))
    return result if cases is None else Many(result, cases)


def least(*values: Any) -> Any:
    """The least of some numbers, case by case."""
    return _chosen(np.minimum, min, values)


def greatest(*values: Any) -> Any:
    """The greatest of some numbers, case by case."""
    return _chosen(np.maximum, max, values)


def gcd(a: Any, b: Any) -> Any:
    """The greatest common divisor of two numbers, case by case."""
    return _chosen(np.gcd, lambda values: math.gcd(*values), (a, b))


def ever(condition: Any) -> bool:
    """Whether a condition holds in any of the cases that are left."""
    if type(condition) is not Many:
        return bool(condition)
    return bool((condition.column & condition.cases.left).any())


def taken(table: Sequence[int], place: Any) -> Any:
    """`table[place]`, case by case; of cases that are not left places may be beyond the ends."""
    return Many(np.take(table, place.column, mode="clip"), place.cases) if type(place) is Many else table[place]


def of_cases(
    function: Callable[..., Sequence[Any]], columns: Sequence[np.ndarray], count: int, results: int
) -> np.ndarray:
    """The results of a function of some numbers for each case, int64 of shape (results, cases).

    Args:
        function: of numbers, to so many numbers.
        columns: the numbers of all cases, each of shape (cases,).
        count: of cases.
        results: how many numbers it returns.

    >>> of_cases(lambda n: [n // 2 if n % 2 == 0 else 3 * n + 1], [np.array([6, 7, 8, 9])], 4, 1)
    array([[ 3, 22,  4, 28]])
    """
    result, open_ = np.zeros((results, count), np.int64), np.arange(count)
    while len(open_):
        cases = Cases(len(open_))
        with np.errstate(divide="ignore", invalid="ignore"):  # of cases that go another way
            returned = function(*(Many(column[open_], cases) for column in columns))
        done = open_[cases.left]
        for row, value in zip(result, returned, strict=True):
            row[done] = value.column[cases.left] if type(value) is Many else value
        open_ = open_[~cases.left]
    return result
