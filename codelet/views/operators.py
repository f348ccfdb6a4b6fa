"""The results of Python's and NumPy's operators on objects that are no numbers while the graph is built.

Symbols, tensors and the like stand for numbers that are not there yet. A class of them inherits `NoNumber` and
defines the operators it has; all others, and NumPy's and JAX's functions, come to its `_refuse`, which
words the mistake.
"""

from __future__ import annotations

from typing import Any, NoReturn

from codelet.errors import CodeletError


def shown(value: object) -> str:
    """An operand as an error names it: in its words if it is one of ours, else as Python writes it, cut short."""
    words = getattr(value, "text", None)
    written = str(words()) if isinstance(value, NoNumber) and callable(words) else repr(value)
    return written if len(written) <= 60 else written[:57] + "..."


def _binary(symbol: str) -> Any:
    def operator(self: NoNumber, other: object) -> Any:
        raise self._refuse(f"`{symbol}`", f"{shown(self)} {symbol} {shown(other)}")

    return operator


def _reflected(symbol: str) -> Any:
    def operator(self: NoNumber, other: object) -> Any:
        raise self._refuse(f"`{symbol}`", f"{shown(other)} {symbol} {shown(self)}")

    return operator


def _called(name: str, pattern: str = "{0}({1})") -> Any:
    def operator(self: NoNumber, *_: object, **__: object) -> Any:
        raise self._refuse(f"`{name}`", pattern.format(name, shown(self)))

    return operator


class NoNumber:
    """Something that stands for numbers that are not there while the graph is built."""

    __slots__ = ()

    def _refuse(self, use: str, given: str) -> CodeletError:
        """The error of a use, as in "`+`", and the expression."""
        raise NotImplementedError

    __add__, __radd__ = _binary("+"), _reflected("+")
    __sub__, __rsub__ = _binary("-"), _reflected("-")
    __mul__, __rmul__ = _binary("*"), _reflected("*")
    __truediv__, __rtruediv__ = _binary("/"), _reflected("/")
    __floordiv__, __rfloordiv__ = _binary("//"), _reflected("//")
    __mod__, __rmod__ = _binary("%"), _reflected("%")
    __matmul__, __rmatmul__ = _binary("@"), _reflected("@")
    __and__, __rand__ = _binary("&"), _reflected("&")
    __or__, __ror__ = _binary("|"), _reflected("|")
    __xor__, __rxor__ = _binary("^"), _reflected("^")
    __lshift__, __rlshift__ = _binary("<<"), _reflected("<<")
    __rshift__, __rrshift__ = _binary(">>"), _reflected(">>")
    __lt__, __le__, __gt__, __ge__ = map(_binary, ("<", "<=", ">", ">="))
    __neg__, __pos__, __invert__ = _called("-", "{0}{1}"), _called("+", "{0}{1}"), _called("~", "{0}{1}")
    __abs__, __round__ = _called("abs"), _called("round")
    __divmod__, __rdivmod__ = _called("divmod", "{0}({1}, ...)"), _called("divmod", "{0}(..., {1})")
    __bool__, __int__, __float__, __complex__ = map(_called, ("bool", "int", "float", "complex"))
    __index__ = _called("int")
    __array__ = _called("numpy.asarray")

    def __setitem__(self, items: object, value: object) -> NoReturn:
        raise self._refuse("`[...] =`", f"{shown(self)}[...] = {shown(value)}")

    def __pow__(self, other: object, modulus: object = None) -> Any:
        raise self._refuse("`**`", f"{shown(self)} ** {shown(other)}")

    __rpow__ = _reflected("**")

    def __format__(self, specification: str) -> str:
        if specification:
            raise self._refuse("`format`", f"{{{shown(self)}:{specification}}}")
        return str(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> NoReturn:
        given = f"numpy.{ufunc.__name__}({', '.join(map(shown, inputs))})"
        raise self._refuse(f"`numpy.{ufunc.__name__}`", given)

    def __array_function__(self, function: Any, types: object, inputs: Any, _: object) -> NoReturn:
        name = f"{function.__module__}.{function.__name__}"
        raise self._refuse(f"`{name}`", f"{name}({', '.join(map(shown, inputs))})")
