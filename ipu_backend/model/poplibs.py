"""The cycle formulae of PopLibs, Graphcore's library of codelets, for one worker.

In come numbers of elements and dtypes, out come cycles: what one worker thread takes for its vertex, which is what a
vertex of ours is.

Sources: PopLibs 3.1, github.com/graphcore/poplibs: lib/popops/popopsCycleEstimators.{hpp,cpp} for elementwise
operations, reductions and fills; lib/poplin/PerformanceEstimation.hpp for products. Where a number is not
from there, it says that it is a guess.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

VECTOR_BYTES = 8
"""What one vector instruction takes of an operand: two float32, or four float16 (IPU Programmer's Guide)."""


def ceil_div(a: int, b: int) -> int:
    """`a / b`, rounded up."""
    return -(-a // b)


CONVERT_CYCLES = 2
"""To widen or round one element of a dtype that the machine does not compute in. A guess: a shift, and a rounding."""


def computed_in(dtype: Any) -> Any:
    """The dtype in which the machine computes with one for which it has no instructions, after converting it.

    No IPU has bfloat16, and the chips modelled here have no float8 (Graphcore's C600 alone has): bfloat16 is counted
    as float32 and smaller floats as float16, each element converted by `CONVERT_CYCLES` when it is read and written.
    That is a guess.

    >>> computed_in(jnp.dtype("bfloat16")), computed_in(jnp.dtype("float8_e4m3fn")), computed_in(np.dtype("int8"))
    (dtype('float32'), dtype('float16'), dtype('int8'))
    """
    name = str(dtype)
    if name == "bfloat16":
        return np.dtype(np.float32)
    return np.dtype(np.float16) if name.startswith(("float8_", "float6_", "float4_")) else dtype


def guess_text(dtype: Any) -> str | None:
    """How a dtype is counted that the machine computes in software, where that is a guess; None for any other."""
    if computed_in(dtype) != dtype:
        within = f"{computed_in(dtype)}, and {CONVERT_CYCLES} cycles to convert each element that is read or written"
        return f"the machine has no {dtype}: it is counted as {within}, a guess"
    if software_factor(dtype) > 2:
        return f"the machine has no {dtype}: {software_factor(dtype)} times the cycles of float32 are counted, a guess"
    return None


def kind_of(dtype: Any) -> str:
    """Which columns of the tables a dtype is looked up in: "half", "float", "int" or "bool".

    The machine computes in float16 and float32, and in 32-bit integers. Other dtypes are counted as the one
    they are computed in, some in software: see `software_factor`.
    """
    if dtype == np.float16:
        return "half"
    if dtype == np.bool_:
        return "bool"
    return "float" if jnp.issubdtype(dtype, jnp.inexact) else "int"


def software_factor(dtype: Any) -> int:
    """How many times longer a dtype takes than the one whose table it is looked up in. Guesses.

    PopLibs has 64-bit integers, at 1.5 to 4 times 32 bits. No IPU has float64 or complex numbers.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return 4 if dtype == np.complex64 else 120
    return {"float64": 30, "int64": 2, "uint64": 2}.get(str(dtype), 1)


def vector_width(dtype: Any, vector_bytes: int = VECTOR_BYTES) -> int:
    """Elements in one vector instruction; one for what has no vector instructions."""
    return {"half": vector_bytes // 2, "float": vector_bytes // 4}.get(kind_of(dtype), 1) or 1


# --- elementwise --------------------------------------------------------------------------------------


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


def loop_of(operation: str, dtype: Any) -> Loop:
    """The loop of an elementwise operation for a dtype."""
    kinds = elementwise_loops[operation]
    kind = kind_of(dtype)
    if kind not in kinds:
        kind = next(other for other in ("int", "float", "half") if other in kinds)
    found, factor = kinds[kind], software_factor(dtype)
    return found._replace(cycles=found.cycles * factor)


def fill_cycles(n: int, dtype: Any = np.float32, *, vector_bytes: int = VECTOR_BYTES) -> int:
    """Cycles of one worker that fills, or copies, `n` elements.

    A copy loads and stores a vector in one instruction, so that it takes as long as a fill: a guess, which
    holds where the two lie in different memory elements. Bytes are moved, whatever they mean.

    >>> fill_cycles(100)
    73
    """
    width = max(1, vector_bytes // np.dtype(dtype).itemsize)
    return 16 + ceil_div(n, width) + 7


# --- reductions and products --------------------------------------------------------------------------


def reduce_cycles(
    outputs: int, each: int, dtype: Any, *, cycles_per_operation: int = 1, vector_bytes: int = VECTOR_BYTES
) -> int:
    """Cycles of one worker that reduces `each` neighbouring elements to each of `outputs` results.

    >>> reduce_cycles(1, 16, np.float32)
    37
    """
    turns = ceil_div(each, vector_width(dtype, vector_bytes))
    return 17 + 12 * outputs + turns * outputs * cycles_per_operation * software_factor(dtype)


def dot_cycles(n: int, dtype: Any, *, vector_bytes: int = VECTOR_BYTES) -> int:
    """Cycles of one worker for the dot product of `n` elements on the vector unit (PopLibs' horizontal MAC).

    Integers, which no vector instruction multiplies, take the 7 cycles an element of an elementwise product: a guess.

    >>> dot_cycles(16, np.float32)
    66
    """
    base = 65 if kind_of(dtype) == "half" else 58
    each = 1 if kind_of(dtype) in ("half", "float") else 7
    return base + ceil_div(n, vector_width(dtype, vector_bytes)) * each * software_factor(dtype)


def outer_product_cycles(width: int, channels: int, groups: int = 1) -> int:
    """Cycles of one worker for the outer product, in float32, of `width` and `channels` elements.

    >>> outer_product_cycles(4, 10)
    68
    """
    return 25 + groups * (11 + width * (6 + ceil_div(max(0, channels - 6), 2)))


class MatrixUnit(NamedTuple):
    """A tile's matrix unit for one dtype: a pass multiplies rows by a block of weights that it holds.

    Attributes:
        base: cycles of a worker's vertex besides its rows.
        core: cycles of a worker for one row.
        inputs: rows of the block of weights: what is summed over in one pass.
        outputs: columns of the block of weights.
    """

    base: int
    core: int
    inputs: int
    outputs: int

    def worker_cycles(self, rows: int) -> int:
        """Cycles of one worker that passes `rows` rows by one block of weights.

        >>> MatrixUnit(base=38, core=4, inputs=16, outputs=16).worker_cycles(13)
        78
        """
        return self.base + max(0, rows - 3) * self.core


def matrix_unit(dtype: Any, macs_per_cycle: int) -> MatrixUnit | None:
    """The matrix unit for a dtype, of a tile with so many multiply-accumulates a cycle; None where it has none.

    Six workers at a row in `core` cycles each are a row in `core` cycles of the tile, so that a block has
    `core * macs_per_cycle` weights. How many of them are inputs (poplar::Target::getWeightsPerConvUnit) is not
    published for these chips: 16 in float16 and 8 in float32 are a guess, one row of 32 bytes.
    """
    if kind_of(dtype) == "half":
        return MatrixUnit(38, 4, 16, max(1, 4 * macs_per_cycle // 16))
    if dtype == np.float32:
        return MatrixUnit(46, 8, 8, max(1, 8 * macs_per_cycle // 8))
    return None
