"""Sizes that depend on lengths of ragged fields, as text: `2*n + floordiv(m, 3)`, in the grammar that JAX prints.

A size is computed here without `eval`: the text may come from a file.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax.export

from codelet.jaxprs.plain import check_form

_TOKEN = re.compile(r"\s*(\d{1,18}|[a-z]+|[-+*^(),])")

_MOST_TOKENS = 200

_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


class _Parser:
    """Computes a size from its tokens, by recursive descent: sums of products of powers."""

    def __init__(self, text: str, lengths: Mapping[str, int]):
        self.tokens = _TOKEN.findall(text)
        check_form(re.sub(r"\s", "", text) == "".join(self.tokens), f"the size {text!r:.60}")
        check_form(0 < len(self.tokens) <= _MOST_TOKENS, "a size that is too long")
        self.lengths = lengths
        self.place = 0

    def take(self, *wanted: str) -> str | None:
        """The next token, if it is one of some."""
        token = self.tokens[self.place] if self.place < len(self.tokens) else ""
        if token not in wanted:
            return None
        self.place += 1
        return token

    def need(self, token: str) -> None:
        check_form(self.take(token), f"a size without {token!r}")

    def sum(self) -> int:
        value = -self.product() if self.take("-") else self.product()
        while sign := self.take("+", "-"):
            value = value + self.product() if sign == "+" else value - self.product()
        return value

    def product(self) -> int:
        value = self.power()
        while self.take("*"):
            value *= self.power()
        check_form(abs(value) < 1 << 62, "a size that is too large")
        return value

    def power(self) -> int:
        value = self.atom()
        if self.take("^"):
            exponent = self.atom()
            check_form(0 <= exponent <= 8, "a power in a size")
            value **= exponent
        return value

    def atom(self) -> int:
        check_form(self.place < len(self.tokens), "a size that ends early")
        if self.take("-"):
            return -self.atom()
        if self.take("("):
            value = self.sum()
            self.need(")")
            return value
        token = self.tokens[self.place]
        self.place += 1
        if token.isdigit():
            return int(token)
        if token in _FUNCTIONS:
            self.need("(")
            left = self.sum()
            self.need(",")
            right = self.sum()
            self.need(")")
            return _FUNCTIONS[token](left, right)
        check_form(token in self.lengths, f"the length {token!r:.20} in a size")
        return self.lengths[token]


def size_from_text(text: str, lengths: Mapping[str, Any]) -> Any:
    """A size from its text.

    Args:
        text: as JAX prints it.
        lengths: by name what each symbol stands for: numbers, or symbols of one trace.

    >>> size_from_text("2*n + floordiv(m, 3) - 1", {"n": 5, "m": 7})
    11
    """
    known = {name: size if isinstance(size, int) else 1 for name, size in lengths.items()}
    parser = _Parser(text, known)
    value = parser.sum()
    check_form(parser.place == len(parser.tokens), f"the size {text!r:.60}")
    symbols = [size for size in lengths.values() if not isinstance(size, int)]
    if not symbols:
        return value
    (size,) = jax.export.symbolic_shape(f"{text},", scope=symbols[0].scope)
    return size
