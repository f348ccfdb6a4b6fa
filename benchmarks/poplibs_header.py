"""`python -m benchmarks.poplibs_header popopsCycleEstimators.hpp`: our tables beside PopLibs' own header, row by row.

The header is lib/popops/popopsCycleEstimators.hpp of github.com/graphcore/poplibs; the tables are those of commit
d4209ec8. What differs is printed: a row that the header has otherwise, that we lack, or that it lacks. Exit status 1
where anything does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipu_backend.model.poplibs_tables import binary_table, by_scalar_table, unary_table
from ipu_backend.model.rows import WIDTH, Row

HeaderRow = tuple[int, bool, int]
"""As the header writes it: cycles, whether of a vector to which an overhead is added, elements unrolled or 0."""

Key = tuple[str, str, str]
"""The table, the operation and the column of a row."""

_COLUMNS = {
    "FLOAT": "float",
    "HALF": "half",
    "INT": "int",
    "UNSIGNED_INT": "uint",
    "LONGLONG": "long",
    "UNSIGNED_LONGLONG": "ulong",
    "SHORT": "short",
    "UNSIGNED_SHORT": "ushort",
    "BOOL": "bool",
}
_TABLES = {
    "unaryOpPerfInfo": (unary_table, 0),
    "unaryOpInPlacePerfInfo": (unary_table, 1),
    "binaryOpPerfInfo": (binary_table, 0),
    "binaryOpInPlacePerfInfo": (binary_table, 1),
    "broadcastOpPerfInfo": (by_scalar_table, 0),
    "broadcastOpInPlacePerfInfo": (by_scalar_table, 1),
}
_TABLE = re.compile(r"PerfTable (\w+) = \{(.*?)\n\};", re.DOTALL)
_ROW = re.compile(r"\{\{\w+OpType::(\w+), (\w+)\}, \{(\d+)(?:, (true|false))?(?:, (\d+))?\}\}")


def header_rows(text: str) -> Iterator[tuple[Key, HeaderRow]]:
    """The rows of a header's tables."""
    for table, rows in _TABLE.findall(text):
        for operation, dtype, cycles, natural, unrolled in _ROW.findall(rows):
            yield (table, operation, _COLUMNS[dtype]), (int(cycles), natural == "true", int(unrolled or 0))


def _as_written(row: Row) -> HeaderRow:
    if row.elements == WIDTH:
        return row.cycles, True, 0
    return row.cycles, False, 0 if row.overhead else row.elements


def differences(text: str) -> list[str]:
    """What of a header differs from our tables, a line each.

    Rows in place that the header leaves out are no difference: what they would be of is never computed in place.
    """
    theirs = dict(header_rows(text))
    ours = {
        (table, operation, column): _as_written(pair[which])
        for table, (own, which) in _TABLES.items()
        for operation, columns in own.items()
        for column, pair in columns.items()
        if not (which and (table, operation, column) not in theirs)
    }
    other = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    return [f"{key}: header {theirs.get(key)}, ours {ours.get(key)}" for key in other]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare with the header named on the command line; the exit status."""
    (path,) = sys.argv[1:] if argv is None else argv
    text = Path(path).read_text()
    found = differences(text)
    print("\n".join([*found, f"{len(dict(header_rows(text)))} rows of the header, {len(found)} differ"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
