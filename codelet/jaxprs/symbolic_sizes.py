"""Sizes that depend on lengths of ragged fields, as text: `2*n + floordiv(m, 3)`, in the grammar that JAX prints.

A size is computed here without `eval`: the text may come from a file.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax.export
import numpy as np

from codelet.jaxprs.plain import MalformedError, check_form

_TOKEN = re.compile(r"\s*([a-z][a-z0-9_]*|\d{1,18}|[-+*^(),])")

_MOST_TOKENS = 200

_MOST_POWER = 16


def _either(of_numbers: Callable[..., Any], of_arrays: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: of_numbers(a, b) if isinstance(a, int) and isinstance(b, int) else of_arrays(a, b)


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": _either(max, np.maximum),
    "min": _either(min, np.minimum),
}

Size = Callable[[Mapping[str, Any]], Any]
"""A size, from what each symbol stands for: a number, or an array of numbers."""


def _of_two(operation: Callable[[Any, Any], Any], left: Size, right: Size) -> Size:
    return lambda lengths: operation(left(lengths), right(lengths))


class _Parser:
    """Reads a size from its tokens, by recursive descent: sums of products of powers."""

    def __init__(self, text: str):
        self.tokens = _TOKEN.findall(text)
        check_form(re.sub(r"\s", "", text) == "".join(self.tokens), f"the size {text!r:.60}")
        check_form(0 < len(self.tokens) <= _MOST_TOKENS, "a size that is too long")
        self.place = 0

    def take(self, *wanted: str) -> str | None:
        """The next token, if it is one of some."""
        token = self.tokens[self.place] if self.place < len(self.tokens) else ""
        if token not in wanted:
            return None
        self.place += 1
        return token

    def need(self, token: str) -> None:
        """Pass by a token."""
        check_form(self.take(token), f"a size without {token!r}")

    def sum(self) -> Size:
        size = self.negative(self.product()) if self.take("-") else self.product()
        while sign := self.take("+", "-"):
            size = _of_two(operator.add if sign == "+" else operator.sub, size, self.product())
        return size

    def product(self) -> Size:
        size = self.power()
        while self.take("*"):
            size = _of_two(operator.mul, size, self.power())
        return size

    def power(self) -> Size:
        size = self.atom()
        if self.take("^"):
            exponent = self.tokens[self.place] if self.place < len(self.tokens) else ""
            check_form(exponent.isdecimal() and int(exponent) <= _MOST_POWER, "a power in a size")
            self.place += 1
            return lambda lengths: size(lengths) ** int(exponent)
        return size

    @staticmethod
    def negative(size: Size) -> Size:
        return lambda lengths: -size(lengths)

    def atom(self) -> Size:
        check_form(self.place < len(self.tokens), "a size that ends early")
        if self.take("-"):
            return self.negative(self.atom())
        if self.take("("):
            size = self.sum()
            self.need(")")
            return size
        token = self.tokens[self.place]
        self.place += 1
        if token.isdecimal():
            number = int(token)
            return lambda _: number
        if token in _FUNCTIONS:
            self.need("(")
            left = self.sum()
            self.need(",")
            right = self.sum()
            self.need(")")
            return _of_two(_FUNCTIONS[token], left, right)
        check_form(token[0].isalpha(), f"{token!r:.20} in a size")
        return operator.itemgetter(token)


@functools.lru_cache(maxsize=4096)
def parsed_size(text: str) -> Size:
    """A size from its text, as a function of its symbols' values, by name.

    >>> parsed_size("2*n + floordiv(m, 3) - 1")({"n": 5, "m": 7})
    11
    """
    parser = _Parser(text)
    size = parser.sum()
    check_form(parser.place == len(parser.tokens), f"the size {text!r:.60}")
    return size


def size_from_text(text: str, lengths: Mapping[str, Any]) -> Any:
    """A size of a file.

    Args:
        text: as JAX prints it.
        lengths: the value of each symbol by name: numbers, or symbols of one trace.
    """
    size = parsed_size(text)
    symbols = [item for item in lengths.values() if not isinstance(item, int)]
    if symbols:
        (symbolic,) = jax.export.symbolic_shape(f"{text},", scope=symbols[0].scope)
        return symbolic
    try:
        value = size(lengths)
    except (KeyError, ZeroDivisionError) as error:
        raise MalformedError(f"the size {text!r:.60}: {error!s:.40}") from None
    check_form(abs(value) < 1 << 62, "a size that is too large")
    return value
