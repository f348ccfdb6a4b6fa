"""The tables of a machine: cycles of elementwise operations, by JAX's names for them, and rules of the machine.

PopLibs' tables (`poplibs_tables.py`) by JAX's names, with guesses for operations that PopLibs lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ipu_backend.model.poplibs_tables import BINARY, UNARY, Pair, binary_table, by_scalar_table, read_table, unary_table
from ipu_backend.model.rows import IN_SOFTWARE, Conversion, Rows

POPLIBS_NAMES = {
    "add": "ADD",
    "add_any": "ADD",
    "sub": "SUBTRACT",
    "mul": "MULTIPLY",
    "div": "DIVIDE",
    "rem": "REMAINDER",
    "pow": "POWER",
    "atan2": "ATAN2",
    "max": "MAXIMUM",
    "min": "MINIMUM",
    "and": "BITWISE_AND",
    "or": "BITWISE_OR",
    "xor": "BITWISE_XOR",
    "shift_left": "SHIFT_LEFT",
    "shift_right_logical": "SHIFT_RIGHT",
    "shift_right_arithmetic": "SHIFT_RIGHT_SIGN_EXTEND",
    "eq": "EQUAL",
    "ne": "NOT_EQUAL",
    "gt": "GREATER_THAN",
    "ge": "GREATER_THAN_EQUAL",
    "lt": "LESS_THAN",
    "le": "LESS_THAN_EQUAL",
    "eq_to": "EQUAL",
    "lt_to": "LESS_THAN",
    "le_to": "LESS_THAN_EQUAL",
    "abs": "ABSOLUTE",
    "asin": "ASIN",
    "not": "BITWISE_NOT",
    "cbrt": "CBRT",
    "ceil": "CEIL",
    "floor": "FLOOR",
    "round": "ROUND",
    "cos": "COS",
    "sin": "SIN",
    "inverse": "INVERSE",
    "clz": "COUNT_LEADING_ZEROS",
    "population_count": "POPCOUNT",
    "erf": "ERF",
    "gelu_erf": "GELU_ERF",
    "exp": "EXPONENT",
    "expm1": "EXPONENT_MINUS_ONE",
    "exp2": "EXPONENT2",
    "is_finite": "IS_FINITE",
    "is_inf": "IS_INF",
    "is_nan": "IS_NAN",
    "log": "LOGARITHM",
    "log1p": "LOGARITHM_ONE_PLUS",
    "neg": "NEGATE",
    "sign": "SIGNUM",
    "sqrt": "SQRT",
    "square": "SQUARE",
    "tan": "TAN",
    "tanh": "TANH",
    "trunc": "TRUNC",
    "logistic": "SIGMOID",
    "rsqrt": "RSQRT",
    "relu": "RELU",
}
"""PopLibs' name of an operation, by JAX's; those that JAX has no primitive for by their own in small letters."""

_NAMES_OF_BOOLEANS = {
    "and": "LOGICAL_AND",
    "min": "LOGICAL_AND",
    "or": "LOGICAL_OR",
    "max": "LOGICAL_OR",
    "xor": "NOT_EQUAL",
    "not": "LOGICAL_NOT",
}
"""The same, of booleans, where it is another."""

_GUESSED_UNARY = """
acos atan sinh cosh asinh acosh atanh erf_inv lgamma digamma bessel_i0e bessel_i1e  float half 102/1+4
erfc                              float 41/1; half 13/1
reduce_precision real imag conj   float half 2/v+4
log2                              float 14/2; half 5/4
one_minus_square                  float half 3/v+4
"""  # as asin, which a library of C++ computes; as erf; two instructions to mask or pick; as log, scaled; (1+x)(1-x)

_GUESSED_BINARY = """
complex     float half 2/v+2
nextafter   float half 10/v+2
mulhi       int uint 22/1; long ulong 90/1
igamma igammac igamma_grad_a random_gamma_grad polygamma zeta  float half 1000/1
regularized_incomplete_beta  float half 2000/1
"""  # two and ten instructions; four products of halves; series and continued fractions of 100 and 200 terms of ten


def _rows(name: str, column: str) -> Rows | None:
    """The entry of PopLibs' tables for an operation and a dtype."""
    pair = unary_table.get(name, binary_table.get(name, {})).get(column)
    return None if pair is None else Rows(*pair, *by_scalar_table.get(name, {}).get(column, (None, None)))


def _poplibs(name: str) -> dict[str, Rows]:
    columns = {**(unary_table.get(POPLIBS_NAMES[name]) or binary_table[POPLIBS_NAMES[name]])}
    found = {column: rows for column in columns if (rows := _rows(POPLIBS_NAMES[name], column)) is not None}
    if (boolean := _rows(_NAMES_OF_BOOLEANS.get(name, ""), "bool")) is not None:
        found["bool"] = boolean
    return found


def _guesses(table: str, form: Any) -> dict[str, dict[str, Rows]]:
    def rows(pair: Pair) -> Rows:
        return Rows(pair[0], is_vertex=False, is_guess=True)

    read = read_table(table, form)
    return {name: {column: rows(pair) for column, pair in own.items()} for name, own in read.items()}


elementwise_loops: dict[str, dict[str, Rows]] = {
    **{name: _poplibs(name) for name in POPLIBS_NAMES},
    **_guesses(_GUESSED_UNARY, UNARY),
    **_guesses(_GUESSED_BINARY, BINARY),
}
"""What elementwise operations take, by JAX's name for them and the dtype (`poplibs_tables.COLUMNS`)."""


@dataclass(frozen=True)
class Tables:
    """The cycles of operations on a machine.

    Attributes:
        name: their printed name.
        elementwise: the cycles of each elementwise operation, by JAX's name for it and the dtype
            (`poplibs_tables.COLUMNS`). For others PopLibs' numbers are used, as a guess.
        rules: for other primitives, by name, rules that replace those of `cycle_rules.py`.
        folds: True if the machine has single vertices for the groups of equations in `folded.py`.
        float8: the cost of float8, which is computed in float16.

    >>> import codelet as cl
    >>> cl.IPU().tables, sorted(cl.IPU().tables.elementwise["tanh"])[:2]
    (Tables(name='PopLibs', folds=True), ['float', 'half'])
    """

    name: str
    elementwise: Mapping[str, Mapping[str, Rows]] = field(hash=False, repr=False)
    rules: Mapping[str, Callable[..., Any]] = field(hash=False, repr=False, default_factory=dict)
    folds: bool = False
    float8: Conversion = field(hash=False, repr=False, default=IN_SOFTWARE)

    @property
    def has_float8(self) -> bool:
        """True if the machine has a unit that converts float8.

        >>> import codelet as cl
        >>> cl.IPU().tables.has_float8, cl.IPU("bow").tables.has_float8
        (False, True)
        """
        return not self.float8.is_guess


POPLIBS = Tables("PopLibs", elementwise_loops, folds=True)
"""PopLibs'."""

POPLIBS_FLOAT8 = replace(POPLIBS, name="PopLibs with float8", float8=Conversion((1, 4), (1, 4), is_guess=False))
"""PopLibs' for a chip whose unit converts float8 (PerformanceEstimation.cpp @ f77e6418, casts of quarter)."""
