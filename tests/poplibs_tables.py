"""The rows of PopLibs' elementwise tables, written out again from its last public header, and not from our own.

`lib/popops/popopsCycleEstimators.hpp` @ d4209ec8 (after SDK 3.1). A row is "cycles/elements": of one turn of the loop.
"v" elements are a vector of 64 bits; what stands after "+" is added to each turn, to load, store and go round. After
"|" stands the row of the operation in place, where it is another.
"""

from __future__ import annotations

from typing import NamedTuple

UNARY_ROWS = {
    "abs": "f32 f16 1/1+4 | 1/v+4; int32 2/1+4; int64 10/1+4",
    "asin": "f32 f16 102/1+4",
    "not": "int32 uint32 1/v+4",
    "cbrt": "f32 27/v+4; f16 17/v+4",
    "ceil": "f32 f16 2/v+4",
    "floor": "f32 f16 2/v+4",
    "round": "f32 f16 2/v+4",
    "cos": "f32 2300/1+4; f16 25/1",
    "sin": "f32 2300/1+4; f16 25/1",
    "inverse": "f32 6/2; f16 15/4",
    "clz": "int32 uint32 1/1+4",
    "population_count": "int32 uint32 1/1+4",
    "erf": "f32 41/1; f16 13/1",
    "gelu_erf": "f32 22/1; f16 16/1",
    "exp": "f32 6/2; f16 4/4",
    "expm1": "f32 4/1+4; f16 5/v+4",
    "exp2": "f32 6/2; f16 4/4",
    "is_finite": "f32 f16 5/v+4",
    "log": "f32 12/2 | 14/2; f16 4/4 | 6/4",
    "log1p": "f32 18/v+4; f16 18/v+4 | 17/v+4",
    "logical_not": "bool 17/1+4",
    "neg": "f32 2/2 | 3/2; f16 2/4 | 3/4; int32 2/1+4; int64 5/1+4",
    "sign": "f32 f16 5/v+4; int32 5/1+4",
    "sqrt": "f32 10/2; f16 23/4; int32 110/1+4",
    "square": "f32 2/2; f16 2/4; int32 uint32 1/v+4",
    "tan": "f32 5100/1; f16 5700/1",
    "tanh": "f32 12/2 | 10/2; f16 4/4 | 2/4",
    "trunc": "f32 3/2 | 4/2; f16 11/4",
    "logistic": "f32 12/2 | 10/2; f16 6/4 | 4/4",
    "rsqrt": "f32 8/2; f16 19/4",
    "relu": "f32 3/2 | 2/2; f16 3/4 | 2/4",
}
"""unaryOpPerfInfo and unaryOpInPlacePerfInfo."""

_INTEGER_ROWS = "int32 uint32 7/1"
_ARITHMETIC_ROWS = f"f32 f16 1/v+2; {_INTEGER_ROWS}"
_COMPARISON_ROWS = "f32 14/4; f16 9/4; int32 uint32"

BINARY_ROWS = {
    "add": f"{_ARITHMETIC_ROWS}; int64 uint64 11/1",
    "sub": f"{_ARITHMETIC_ROWS}; int64 uint64 11/1",
    "mul": f"{_ARITHMETIC_ROWS}; int64 uint64 30/1 | 28/1",
    "div": "f32 10/2; f16 21/4; int32 277/1; uint32 265/1 | 264/1; int64 130/1; uint64 115/1 | 113/1",
    "rem": "f32 133/2; f16 300/4; int32 292/1; uint32 282/1; int64 166/1 | 165/1; uint64 149/1 | 146/1",
    "pow": "f32 312/1; f16 325/1; int32 32/1 | 34/1",
    "atan2": "f32 272/2; f16 578/4",
    "max": "f32 3/2 | 4/2; f16 4/4; int32 7/1; uint32 8/1; int64 15/1; uint64 13/1",
    "min": "f32 3/2 | 4/2; f16 4/4; int32 7/1; uint32 8/1; int64 15/1; uint64 13/1",
    "and": f"{_INTEGER_ROWS}; int64 uint64 9/1; int16 uint16 3/4; bool 5/4",
    "or": f"{_INTEGER_ROWS}; int64 uint64 9/1; int16 uint16 3/4; bool 5/4",
    "xor": f"{_INTEGER_ROWS}; int64 uint64 9/1; int16 uint16 5/2",
    "shift_left": f"{_INTEGER_ROWS}; int64 uint64 18/1 | 16/1",
    "shift_right_logical": f"{_INTEGER_ROWS}; int64 uint64 6/1",
    "shift_right_arithmetic": "int32 7/1; int64 19/1 | 17/1",
    "eq": f"{_COMPARISON_ROWS} 22/4; int64 uint64 48/4; int16 22/4; bool 6/4",
    "ne": "f32 20/4; f16 11/4; int32 uint32 int16 22/4; int64 uint64 48/4; bool 5/4",
    "gt": f"{_COMPARISON_ROWS} 22/4; int64 uint64 56/4; bool 31/4",
    "lt": f"{_COMPARISON_ROWS} 22/4; int64 uint64 56/4; bool 28/4",
    "ge": f"{_COMPARISON_ROWS} 26/4; int64 uint64 62/4; bool 28/4",
    "le": f"{_COMPARISON_ROWS} 26/4; int64 uint64 62/4; bool 28/4",
}
"""binaryOpPerfInfo and binaryOpInPlacePerfInfo."""

_SCALAR_INTEGER_ROWS = "int32 uint32 6/1"

SCALAR_ROWS = {
    "add": f"f32 f16 1/v+1; {_SCALAR_INTEGER_ROWS}; int64 uint64 9/1",
    "sub": f"f32 f16 1/v+1; {_SCALAR_INTEGER_ROWS}; int64 uint64 9/1",
    "mul": f"f32 f16 1/v+1; {_SCALAR_INTEGER_ROWS}; int64 uint64 26/1",
    "div": "f32 6/2; f16 8/2; int32 277/1; uint32 260/1; int64 103/1; uint64 148/1",
    "rem": "f32 93/2; f16 225/4; int32 280/1; uint32 267/1",
    "pow": "f32 312/1; f16 325/1; int32 23/1 | 25/1",
    "atan2": "f32 272/2; f16 578/4",
    "max": "f32 3/2; f16 3/4; int32 6/1; uint32 7/1; int64 14/1; uint64 11/1",
    "min": "f32 3/2; f16 3/4; int32 6/1; uint32 8/1; int64 14/1; uint64 13/1",
    "and": f"{_SCALAR_INTEGER_ROWS}; int64 uint64 7/1; int16 2/4; bool 4/4",
    "or": f"{_SCALAR_INTEGER_ROWS}; int64 uint64 7/1; int16 2/4; bool 4/4",
    "xor": f"{_SCALAR_INTEGER_ROWS}; int64 uint64 7/1; int16 4/2",
    "shift_left": f"{_SCALAR_INTEGER_ROWS}; int64 uint64 16/1",
    "shift_right_logical": f"{_SCALAR_INTEGER_ROWS}; int64 uint64 5/1",
    "shift_right_arithmetic": "int32 6/1; int64 17/1",
    "eq": "f32 12/4; f16 8/4; int32 uint32 int16 16/4; int64 uint64 32/4; bool 14/4 | 5/4",
    "ne": "f32 18/4; f16 10/4; int32 uint32 int16 16/4; int64 uint64 32/4; bool 4/4",
    "gt": "f32 12/4; f16 8/4; int32 uint32 16/4; int64 uint64 38/4; bool 12/4",
    "lt": "f32 12/4; f16 8/4; int32 uint32 16/4; int64 uint64 38/4; bool 16/4",
    "ge": "f32 12/4; f16 8/4; int32 uint32 20/4; int64 uint64 50/4; bool 12/4",
    "le": "f32 12/4; f16 8/4; int32 uint32 20/4; int64 uint64 50/4; bool 16/4",
}
"""broadcastOpPerfInfo and broadcastOpInPlacePerfInfo: the second operand is one number."""


class Row(NamedTuple):
    """Of one turn of a loop: cycles of the operation, elements (0 for a vector), and what else a turn takes."""

    cycles: int
    elements: int
    overhead: int


def row_of(table: dict[str, str], operation: str, dtype: str, *, in_place: bool = False) -> Row:
    """The row of an operation for a dtype.

    >>> row_of(BINARY_ROWS, "max", "f32"), row_of(BINARY_ROWS, "max", "f32", in_place=True)
    (Row(cycles=3, elements=2, overhead=0), Row(cycles=4, elements=2, overhead=0))
    """
    for entry in table[operation].split(";"):
        usual, _, own = entry.partition("|")
        *dtypes, text = usual.split()
        if dtype in dtypes:
            cycles, rest = (own.strip() or text if in_place else text).split("/")
            elements, _, overhead = rest.partition("+")
            return Row(int(cycles), 0 if elements == "v" else int(elements), int(overhead or 0))
    raise KeyError(f"{operation} {dtype}")
