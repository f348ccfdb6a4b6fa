"""The operators of integers that index expressions have beside `+ - * // %`, and the errors of all others.

They all rest on those five and on tables. An operation that none of them does, as `^` is, is carried out for all
positions of the grid at once and tabulated. Results that are fixed, or of one sign, everywhere stay affine.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from codelet.errors import SymbolError
from codelet.views.arithmetic import Arithmetic
from codelet.views.conditions import Condition
from codelet.views.operators import NoNumber, shown

_LACKING = {
    "`bool`": "boolean",
    "`len`": "length",
    "`int`": "single value",
    "`float`": "single value",
    "`complex`": "single value",
    "`numpy.asarray`": "array value",
}

_INSTEAD = {
    "`/`": "`//` rounds down",
    "`**`": "multiply, as in `i * i`; a power of two is `1 << i`",
    "`numpy.where`": "cl.where",
}


def _is_fraction(value: object) -> bool:
    return isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


class IntegerOperators(Arithmetic):
    """The operators of `Index`, which is the only class of them."""

    __slots__ = ()

    def _no_operand(self, symbol: str, other: object) -> Any:
        """The result of an operator on something that is no
        integer: an error, unless the other side words one.
        """
        if isinstance(other, NoNumber):
            return NotImplemented
        raise SymbolError(
            f"an index expression is given to `{symbol}` with something other than an integer",
            given=f"{shown(other)} for `{symbol}` with {shown(self)}",
            expected="an integer, a symbol, an index expression or a table",
            fix="compute fractions within the codelet, from the symbol as a field" if _is_fraction(other) else None,
        )

    # --- quotients ------------------------------------------------------------------------------------

    def __divmod__(self: Any, divisor: object) -> Any:
        return self // divisor, self % divisor

    def __rfloordiv__(self: Any, other: object) -> Any:
        given = self.operand(other)
        return self._no_operand("//", other) if given is None else given // self

    def __rmod__(self: Any, other: object) -> Any:
        given = self.operand(other)
        return self._no_operand("%", other) if given is None else given % self

    def __rdivmod__(self: Any, other: Any) -> Any:
        return other // self, other % self

    # --- bits -----------------------------------------------------------------------------------------

    def __and__(self: Any, other: object) -> Any:
        mask = self.operand(other)
        if mask is None:
            return self._no_operand("&", other)
        for one, by in ((self, mask.fixed), (mask, self.fixed)):
            if by is not None and by >= 0 and by & (by + 1) == 0:
                return (one % (by + 1)).mentioning((*self.axes, *mask.axes))
        return self._elementwise(np.bitwise_and, mask)

    def __or__(self: Any, other: object) -> Any:
        added = self.operand(other)
        return self._no_operand("|", other) if added is None else self._elementwise(np.bitwise_or, added)

    def __xor__(self: Any, other: object) -> Any:
        flipped = self.operand(other)
        return self._no_operand("^", other) if flipped is None else self._elementwise(np.bitwise_xor, flipped)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self: Any) -> Any:
        return -1 - self

    def _shifted(self: Any, count: Any, symbol: str) -> Any:
        """`<<` or `>>`: a product with a power of two, or a quotient by one, rounded down."""
        least, most = count.bounds() or (0, 0)
        low, high = self.bounds() or (0, 0)
        if least < 0 or (symbol == "<<" and max(abs(low), abs(high)) << min(most, 64) >= 2**63):
            raise SymbolError(
                f"`{symbol}` is given a {'negative' if least < 0 else 'too large'} number of bits",
                given=f"{shown(self)} {symbol} {shown(count)}, which takes values {least} to {most}",
                expected="a number of bits that is not negative, and a result below 2**63",
            )
        if count.fixed is not None:
            power = self.operand(1 << min(count.fixed, 63)).mentioning(count.axes)
            return self * power if symbol == "<<" else self // power
        return self._elementwise(np.left_shift if symbol == "<<" else np.right_shift, count)

    def __lshift__(self, other: object) -> Any:
        count = self.operand(other)
        return self._no_operand("<<", other) if count is None else self._shifted(count, "<<")

    def __rshift__(self, other: object) -> Any:
        count = self.operand(other)
        return self._no_operand(">>", other) if count is None else self._shifted(count, ">>")

    def __rlshift__(self, other: object) -> Any:
        given = self.operand(other)
        return self._no_operand("<<", other) if given is None else given._shifted(self, "<<")

    def __rrshift__(self, other: object) -> Any:
        given = self.operand(other)
        return self._no_operand(">>", other) if given is None else given._shifted(self, ">>")

    # --- order ----------------------------------------------------------------------------------------

    def _extreme(self: Any, other: Any, operation: np.ufunc, sign: int) -> Any:
        """The lesser or the greater of two indices; one of them itself where it is that everywhere."""
        other = self.operand(other)
        low, high = ((self - other) * sign).bounds() or (0, 0)
        if low < 0 < high:
            return self._elementwise(operation, other)
        chosen = self if low >= 0 else other
        return chosen + 0 * (self + other)

    def minimum(self, other: object) -> Any:
        """The lesser of two indices at each position."""
        return self._extreme(other, np.minimum, -1)

    def maximum(self, other: object) -> Any:
        """The greater of two indices at each position."""
        return self._extreme(other, np.maximum, 1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self: Any) -> Any:
        return self.maximum(-self)

    def _compared(self: Any, other: object, symbol: str, operation: np.ufunc) -> Any:
        operand = self.operand(other)
        if operand is None:
            return self._no_operand(symbol, other)
        difference = self - operand
        low, high = difference.bounds() or (0, 0)
        # The sign decides, so that ends between which all signs decide alike decide for all.
        answers = {bool(operation(sign, 0)) for sign in (-1, 0, 1) if min(low, 1) <= sign <= max(high, -1)}
        if len(answers) == 1:
            return Condition(0 * difference + int(answers.pop()))
        return Condition(difference._elementwise(operation, self.operand(0)))

    def __lt__(self, other: object) -> Any:
        return self._compared(other, "<", np.less)

    def __le__(self, other: object) -> Any:
        return self._compared(other, "<=", np.less_equal)

    def __gt__(self, other: object) -> Any:
        return self._compared(other, ">", np.greater)

    def __ge__(self, other: object) -> Any:
        return self._compared(other, ">=", np.greater_equal)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "==", np.equal)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "!=", np.not_equal)

    __hash__ = object.__hash__

    # --- all others -----------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        operation, operands = _UFUNCS.get(ufunc), [self.operand(value) for value in inputs]
        if operation is None or method != "__call__" or options or any(operand is None for operand in operands):
            return super().__array_ufunc__(ufunc, method, *inputs, **options)
        return operation(*operands)

    def _refuse(self, use: str, given: str) -> SymbolError:
        if use in _LACKING:
            return SymbolError(
                f"an index expression has no {_LACKING[use]} while the graph is built",
                given=given,
                expected="a plain number",
                fix="it stands for all positions of its grid at once; choose with `//`, `%` or a table, with "
                "cl.where, cl.minimum or cl.maximum, or loop over a Python range instead of a grid; a range that "
                "depends on a symbol is cl.grid(i), or cl.grid(slice(i + 1, n))",
            )
        look_up = "look it up, as in cl.table(values)[i], or give the symbol to a field and compute in the codelet"
        return SymbolError(
            f"an index expression has no {use}",
            given=given,
            expected="`+ - * // % & | ^ << >>` and comparisons with integers, cl.minimum, cl.maximum or cl.where",
            fix=_INSTEAD.get(use, look_up),
        )


_UFUNCS: dict[Any, Any] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.divmod: divmod,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.invert: operator.invert,
    np.negative: operator.neg,
    np.positive: operator.pos,
    np.absolute: abs,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.minimum: IntegerOperators.minimum,
    np.maximum: IntegerOperators.maximum,
}
"""NumPy's functions that index expressions have: what `array + i` comes to."""
