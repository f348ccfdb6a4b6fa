"""Tables of what elementwise operations take of one worker: PopLibs', and the type of others.

Source: PopLibs, lib/popops/popopsCycleEstimators.hpp (binaryOpPerfInfo, unaryOpPerfInfo). What is not from there is
said to be a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ipu_backend.model.costs import ceil_div


class Loop(NamedTuple):
    """The loop of an elementwise operation.

    Attributes:
        cycles: of one turn, for the operation.
        elements: of one turn; 0 for the width of a vector.
        overhead: of one turn, to load, store and go round; operations fused into one loop share it.
        base: of the vertex: its entry, the set-up of the loop, its exit.
    """

    cycles: int
    elements: int
    overhead: int
    base: int

    def turns(self, n: int, width: int) -> int:
        """How often it goes round for `n` elements."""
        return ceil_div(n, self.elements or width)


_WIDTH = 0
_BINARY_BASE = {"half": 26, "float": 29, "int": 29, "bool": 29}  # of int and bool, a guess: as float
_UNARY_BASE = 17
_EXP_BASE = 33


def _loops(base: dict[str, int] | int, **kinds: tuple[int, int, int]) -> dict[str, Loop]:
    return {kind: Loop(*numbers, base if isinstance(base, int) else base[kind]) for kind, numbers in kinds.items()}


def _binary(**kinds: tuple[int, int, int]) -> dict[str, Loop]:
    return _loops(_BINARY_BASE, **kinds)


def _unary(**kinds: tuple[int, int, int]) -> dict[str, Loop]:
    return _loops(_UNARY_BASE, **kinds)


def _unary_everywhere(cycles: int, elements: int, overhead: int) -> dict[str, Loop]:
    numbers = (cycles, elements, overhead)
    return _unary(half=numbers, float=numbers, int=numbers, bool=numbers)


# An integer element takes 7 cycles in PopLibs. That 6 of them load, store and go round is our split.
_INTEGER = (1, 1, 6)
_ARITHMETIC = _binary(half=(1, _WIDTH, 2), float=(1, _WIDTH, 2), int=_INTEGER)
_EXTREMUM = _binary(half=(4, 4, 0), float=(4, 2, 0), int=_INTEGER, bool=(5, 4, 0))
_BITWISE = _binary(int=_INTEGER, bool=(5, 4, 0))
_ORDER = _binary(half=(9, 4, 0), float=(14, 4, 0), int=(22, 4, 0), bool=(31, 4, 0))
_ORDER_OR_EQUAL = _binary(half=(9, 4, 0), float=(14, 4, 0), int=(26, 4, 0), bool=(28, 4, 0))
_ROUNDING = _unary(half=(2, _WIDTH, 4), float=(2, _WIDTH, 4))
_TRIGONOMETRIC = _unary(half=(26, 1, 0), float=(2300, 1, 4))
_EXP = _loops(_EXP_BASE, half=(4, 4, 0), float=(6, 2, 0))
# Guess: what PopLibs lacks takes as long as its asin, which a library of C++ computes.
_LIBRARY = _unary_everywhere(102, 1, 4)

elementwise_loops: dict[str, dict[str, Loop]] = {
    # two operands: binaryOpPerfInfo
    **dict.fromkeys(("add", "sub", "mul", "add_any"), _ARITHMETIC),
    "div": _binary(half=(21, 4, 0), float=(10, 2, 0), int=(271, 1, 6)),
    "rem": _binary(half=(300, 4, 0), float=(133, 2, 0), int=(286, 1, 6)),
    "pow": _binary(half=(325, 1, 0), float=(312, 1, 0)),
    "atan2": _binary(half=(578, 4, 0), float=(272, 2, 0)),
    **dict.fromkeys(("max", "min"), _EXTREMUM),
    **dict.fromkeys(("and", "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"), _BITWISE),
    "eq": _binary(half=(9, 4, 0), float=(14, 4, 0), int=(22, 4, 0), bool=(6, 4, 0)),
    "ne": _binary(half=(11, 4, 0), float=(20, 4, 0), int=(22, 4, 0), bool=(5, 4, 0)),
    **dict.fromkeys(("lt", "gt"), _ORDER),
    **dict.fromkeys(("le", "ge"), _ORDER_OR_EQUAL),
    # one operand: unaryOpPerfInfo; 4 cycles go to load, store and go round where its rows leave them out
    **dict.fromkeys(("exp", "exp2"), _EXP),
    "tanh": _unary(half=(4, 4, 0), float=(12, 2, 0)),
    "logistic": _unary(half=(6, 4, 0), float=(12, 2, 0)),
    "sqrt": _unary(half=(23, 4, 0), float=(10, 2, 0)),
    "rsqrt": _unary(half=(19, 4, 0), float=(8, 2, 0)),
    "cbrt": _unary(half=(17, _WIDTH, 4), float=(27, _WIDTH, 4)),
    "relu": _unary(half=(2, 4, 0), float=(2, 2, 0)),
    "log": _unary(half=(4, 4, 0), float=(12, 2, 0)),
    "log1p": _unary(half=(180, _WIDTH, 4), float=(180, _WIDTH, 4)),
    "expm1": _unary(half=(5, _WIDTH, 4), float=(4, 1, 4)),
    **dict.fromkeys(("sin", "cos"), _TRIGONOMETRIC),
    "tan": _unary(half=(5700, 1, 0), float=(5100, 1, 0)),
    "asin": _LIBRARY,
    "erf": _unary(half=(16, 1, 0), float=(18, 1, 0)),
    "neg": _unary(half=(2, 4, 0), float=(2, 2, 0), int=(2, 1, 4)),
    "abs": _unary(half=(1, 1, 4), float=(1, 1, 4), int=(2, 1, 4)),
    "sign": _unary(half=(5, _WIDTH, 4), float=(5, _WIDTH, 4), int=(5, 1, 4)),
    "square": _unary(half=(2, 4, 0), float=(2, 2, 0), int=_INTEGER),
    **dict.fromkeys(("floor", "ceil", "round"), _ROUNDING),
    "is_finite": _unary(half=(5, _WIDTH, 4), float=(5, _WIDTH, 4)),
    "not": _unary(int=(1, 1, 4), bool=(17, 1, 4)),
    "clz": _unary(int=(1, 1, 4)),
    "population_count": _unary(int=(1, 1, 4)),
    # guesses
    **dict.fromkeys(("reduce_precision", "real", "imag", "conj", "complex"), _ROUNDING),
    "nextafter": _unary_everywhere(10, 1, 4),
    "erfc": _unary(half=(16, 1, 0), float=(18, 1, 0)),
    **dict.fromkeys(
        ("erf_inv", "sinh", "cosh", "acos", "atan", "asinh", "acosh", "atanh", "lgamma", "digamma"), _LIBRARY
    ),
    # A cast moves a vector of floats in a cycle (Cast2d); that others go one by one is a guess.
    "cast": _unary(half=(1, 2, 2), float=(1, 2, 2), int=(1, 1, 2), bool=(1, 1, 2)),
    "select": _binary(half=(2, 1, 3), float=(2, 1, 3), int=(2, 1, 3), bool=(2, 1, 3)),
}
"""The loops of elementwise operations, by JAX's name for them and the kind of dtype."""


@dataclass(frozen=True)
class Tables:
    """What operations take on a machine.

    Attributes:
        name: what they are called in print.
        elementwise: of each elementwise operation, by JAX's name for it and the kind of dtype, its loop.
        rules: of other primitives, by name, rules in place of those of `cycle_rules.py`.
    """

    name: str
    elementwise: Mapping[str, Mapping[str, Loop]] = field(hash=False, repr=False)
    rules: Mapping[str, Callable[..., Any]] = field(hash=False, repr=False, default_factory=dict)


POPLIBS = Tables("PopLibs", elementwise_loops)
"""PopLibs'."""
