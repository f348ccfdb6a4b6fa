"""PopLibs' tables of elementwise operations, by its names for them and by dtype.

Source: PopLibs, lib/popops/popopsCycleEstimators.hpp @ d4209ec8 (unaryOpPerfInfo, binaryOpPerfInfo, broadcastOpPerfInfo
and the three ...InPlacePerfInfo), which is later than PopLibs 3.1; bases and overheads: popopsCycleEstimators.cpp
@ 82cd24e5 (binaryOpInnerLoopCycles, unaryOpInnerLoopCycles). `python -m benchmarks.poplibs_header` reads the header
and compares it row by row; tests/test_tables.py, without it, a second transcription.

A line holds names, and for columns (a dtype each, separated by blanks) a row for results elsewhere and, after a bar,
one for results in place where it is another. A row reads cycles/elements, v for a vector; +n where n cycles are added
to load, store and go round; and :n for its arithmetic. Without :n that is all its cycles; but of an integer's row for
one element, compiled from C++, what A + L + S + 3 leaves it (see `compiled_loops.py`). Rows with :1 mostly load and
store, or pack the bits of booleans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ipu_backend.model.rows import WIDTH, Row

COLUMNS = "float", "half", "int", "uint", "long", "ulong", "short", "ushort", "bool"
"""The dtypes of the tables: floats of 32 and 16 bits, integers of 32, 64 and 16, signed and unsigned, and booleans."""

_UNARY = """
ABSOLUTE            float half 1/1+4 | 1/v+4; int 2/1+4; long 10/1+4
ASIN                float half 102/1+4
BITWISE_NOT         int uint 1/v+4; long ulong 3/v+4; short ushort 2/4:1
CBRT                float 27/v+4; half 17/v+4
CEIL FLOOR ROUND    float half 2/v+4
COS SIN             float 2300/1+4; half 25/1
INVERSE             float 6/2; half 15/4
COUNT_LEADING_ZEROS POPCOUNT   int uint 1/1+4
ERF                 float 41/1; half 13/1
GELU_ERF            float 22/1; half 16/1
EXPONENT            float 6/2; half 4/4
EXPONENT_MINUS_ONE  float 4/1+4; half 5/v+4
EXPONENT2           float 6/2; half 4/4
IS_FINITE           float half 5/v+4
IS_INF              float 3/v+4; half 5/v+4
IS_NAN              float half 3/v+4
LOGARITHM           float 12/2 | 14/2; half 4/4 | 6/4
LOGARITHM_ONE_PLUS  float 18/v+4; half 18/v+4 | 17/v+4
LOGICAL_NOT         bool 17/1+4:1 | 17/v+4:1
NEGATE              float 2/2:1 | 3/2:1; half 2/4:1 | 3/4:1; int 2/1+4; long 5/1+4
SIGNUM              float half 5/v+4; int 5/1+4
SQRT                float 10/2; half 23/4; int 110/1+4
SQUARE              float 2/2:1; half 2/4:1; int uint 1/v+4
TAN                 float 5100/1; half 5700/1
TANH                float 12/2 | 10/2; half 4/4 | 2/4
TRUNC               float 3/2 | 4/2; half 11/4
SIGMOID             float 12/2 | 10/2; half 6/4 | 4/4
RSQRT               float 8/2; half 19/4
RELU                float 3/2:1 | 2/2:1; half 3/4:1 | 2/4:1
"""

_BINARY = """
ADD SUBTRACT        float half 1/v+2; int uint 7/1; long ulong 11/1
MULTIPLY            float half 1/v+2; int uint 7/1; long ulong 30/1 | 28/1
DIVIDE              float 10/2; half 21/4; int 277/1; uint 265/1 | 264/1; long 130/1; ulong 115/1 | 113/1
REMAINDER           float 133/2; half 300/4; int 292/1; uint 282/1; long 166/1 | 165/1; ulong 149/1 | 146/1
POWER               float 312/1; half 325/1; int 32/1 | 34/1
ATAN2               float 272/2; half 578/4
MAXIMUM MINIMUM     float 3/2:1 | 4/2:1; half 4/4:1; int 7/1; uint 8/1; long 15/1; ulong 13/1
BITWISE_AND BITWISE_OR   int uint 7/1; long ulong 9/1; short ushort 3/4:1
BITWISE_XOR         int uint 7/1; long ulong 9/1; short ushort 5/2:1
BITWISE_XNOR        int uint 7/1; long ulong 9/1; short ushort 6/2:1
LOGICAL_AND LOGICAL_OR   bool 5/4:1
SHIFT_LEFT          int uint 7/1; long ulong 18/1 | 16/1
SHIFT_RIGHT         int uint 7/1; long ulong 6/1
SHIFT_RIGHT_SIGN_EXTEND   int 7/1; long 19/1 | 17/1
EQUAL               float 14/4:1; half 9/4:1; int uint short ushort 22/4:1; long ulong 48/4:1; bool 6/4:1
NOT_EQUAL           float 20/4:1; half 11/4:1; int uint short ushort 22/4:1; long ulong 48/4:1; bool 5/4:1
GREATER_THAN        float 14/4:1; half 9/4:1; int uint 22/4:1; long ulong 56/4:1; bool 31/4:1
LESS_THAN           float 14/4:1; half 9/4:1; int uint 22/4:1; long ulong 56/4:1; bool 28/4:1
GREATER_THAN_EQUAL LESS_THAN_EQUAL   float 14/4:1; half 9/4:1; int uint 26/4:1; long ulong 62/4:1; bool 28/4:1
"""

_BY_SCALAR = """
ADD SUBTRACT        float half 1/v+1; int uint 6/1; long ulong 9/1
MULTIPLY            float half 1/v+1; int uint 6/1; long ulong 26/1
DIVIDE              float 6/2; half 8/2; int 277/1; uint 260/1; long 103/1; ulong 148/1
REMAINDER           float 93/2; half 225/4; int 280/1; uint 267/1; long 137/1 | 135/1; ulong 178/1 | 179/1
POWER               float 312/1; half 325/1; int 23/1 | 25/1
ATAN2               float 272/2; half 578/4
MAXIMUM             float 3/2:1; half 3/4:1; int 6/1; uint 7/1; long 14/1; ulong 11/1
MINIMUM             float 3/2:1; half 3/4:1; int 6/1; uint 8/1; long 14/1; ulong 13/1
BITWISE_AND BITWISE_OR   int uint 6/1; long ulong 7/1; short ushort 2/4:1
BITWISE_XOR BITWISE_XNOR   int uint 6/1; long ulong 7/1; short ushort 4/2:1
LOGICAL_AND LOGICAL_OR   bool 4/4:1
SHIFT_LEFT          int uint 6/1; long ulong 16/1
SHIFT_RIGHT         int uint 6/1; long ulong 5/1
SHIFT_RIGHT_SIGN_EXTEND   int 6/1; long 17/1
INV_STD_DEV_TO_VARIANCE   float 11/2 | 7/v; half 10/2
VARIANCE_TO_INV_STD_DEV   float 12/2; half 24/4
EQUAL               float 12/4:1; half 8/4:1; int uint short ushort 16/4:1; long ulong 32/4:1; bool 14/4:1 | 5/4:1
NOT_EQUAL           float 18/4:1; half 10/4:1; int uint short ushort 16/4:1; long ulong 32/4:1; bool 4/4:1
GREATER_THAN        float 12/4:1; half 8/4:1; int uint 16/4:1; long ulong 38/4:1; bool 12/4:1
LESS_THAN           float 12/4:1; half 8/4:1; int uint 16/4:1; long ulong 38/4:1; bool 16/4:1
GREATER_THAN_EQUAL  float 12/4:1; half 8/4:1; int uint 20/4:1; long ulong 50/4:1; bool 12/4:1
LESS_THAN_EQUAL     float 12/4:1; half 8/4:1; int uint 20/4:1; long ulong 50/4:1; bool 16/4:1
"""


class Form(NamedTuple):
    """How vertices of a table are entered, and go round.

    Attributes:
        base: of a worker: of float, and of the other columns.
        base_in_place: the same, in place.
        supervisor: of the tile.
        moves: of an integer's compiled row for one element, what loads, stores and goes round: L + S + 3.
        rounds_once: as of `Row`, of rows with an overhead.
    """

    base: tuple[int, int]
    base_in_place: int
    supervisor: int
    moves: int
    rounds_once: bool = False


UNARY = Form((17, 17), 55, 20, 5, rounds_once=True)
BINARY = Form((29, 26), 58, 11, 6)
BY_SCALAR = Form((20, 20), 20, 11, 5)

Pair = tuple[Row, Row]
"""The rows of an operation for one dtype: for results elsewhere, and in place."""


def _row(text: str, column: str, form: Form, in_place: bool) -> Row:
    turn, _, arithmetic = text.strip().partition(":")
    cycles, elements, overhead = [*turn.replace("+", "/").split("/"), "0"][:3]
    own = int(arithmetic or cycles)
    if not arithmetic and column not in ("float", "half", "bool") and elements == "1" and overhead == "0":
        own = max(1, own - form.moves)
    base = form.base_in_place if in_place else form.base[column != "float"]
    width = WIDTH if elements == "v" else int(elements)
    rounds_once = form.rounds_once and overhead != "0"
    return Row(int(cycles), width, int(overhead), own, base, form.supervisor, rounds_once)


def read_table(table: str, form: Form) -> dict[str, dict[str, Pair]]:
    """The rows of a table, by operation and column.

    >>> read_table("RELU  float 3/2:1 | 2/2:1; half 3/4:1", UNARY)["RELU"]["float"][1]
    Row(cycles=2, elements=2, overhead=0, arithmetic=1, base=55, supervisor=20, rounds_once=False)
    """
    found: dict[str, dict[str, Pair]] = {}
    for line in table.strip().splitlines():
        words = line.split()
        names = words[: next(k for k, word in enumerate(words) if word in COLUMNS)]
        rows: dict[str, Pair] = {}
        for cell in " ".join(words[len(names) :]).split(";"):
            *columns, first = cell.partition("|")[0].split()
            for column in columns:
                in_place = cell.partition("|")[2] or first
                rows[column] = _row(first, column, form, False), _row(in_place, column, form, True)
        found.update(dict.fromkeys(names, rows))
    return found


def _table(table: str, form: Form, **others: tuple[int, int]) -> Mapping[str, Mapping[str, Pair]]:
    """A table of which some operations have other bases."""
    found = read_table(table, form)
    for name, base in others.items():
        found[name] = read_table(table, form._replace(base=base))[name]
    return found


unary_table = _table(_UNARY, UNARY, EXPONENT=(33, 33))
binary_table = _table(_BINARY, BINARY)
by_scalar_table = _table(_BY_SCALAR, BY_SCALAR)
