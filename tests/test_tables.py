"""The tables of elementwise operations, row by row beside a second transcription of PopLibs' header."""

import jax.numpy as jnp
import pytest

from benchmarks import poplibs_header
from ipu_backend.model.dtypes import column_of
from ipu_backend.model.poplibs_tables import (
    BINARY,
    BY_SCALAR,
    COLUMNS,
    UNARY,
    binary_table,
    by_scalar_table,
    read_table,
    unary_table,
)
from ipu_backend.model.rows import CastRow
from ipu_backend.model.tables import POPLIBS_NAMES, elementwise_loops
from tests import poplibs_tables as header

COLUMN: dict[str, str] = dict(
    zip(("f32", "f16", "int32", "uint32", "int64", "uint64", "int16", "uint16", "bool"), COLUMNS, strict=True)
)
BOOLEANS = {"and": "LOGICAL_AND", "or": "LOGICAL_OR", "logical_not": "LOGICAL_NOT"}

# What the second table leaves out, since no JAX primitive comes to it.
MORE_UNARY = {
    "not": "int64 uint64 3/v+4; int16 uint16 2/4",
    "is_inf": "f32 3/v+4; f16 5/v+4",
    "is_nan": "f32 f16 3/v+4",
    "logical_not": "bool 17/1+4 | 17/v+4",
}
MORE_BINARY = {
    "XNOR": "int32 uint32 7/1; int64 uint64 9/1; int16 uint16 6/2",
    "xor": "uint16 5/2",
    "eq": "uint16 22/4",
    "ne": "uint16 22/4",
}
MORE_BY_SCALAR = {
    "rem": "int64 137/1 | 135/1; uint64 178/1 | 179/1",
    "and": "uint16 2/4",
    "or": "uint16 2/4",
    "xor": "uint16 4/2",
    "XNOR": "int32 uint32 6/1; int64 uint64 7/1; int16 uint16 4/2",
    "eq": "uint16 16/4",
    "ne": "uint16 16/4",
    "INV_STD_DEV_TO_VARIANCE": "f32 11/2 | 7/v; f16 10/2",
    "VARIANCE_TO_INV_STD_DEV": "f32 12/2; f16 24/4",
}


def poplibs_name(name, dtype):
    if dtype == "bool" and name in BOOLEANS:
        return BOOLEANS[name]
    return {"XNOR": "BITWISE_XNOR"}.get(name) or POPLIBS_NAMES.get(name, name)


def rows_of(table):
    """Of each operation and column of a transcription, the row elsewhere and in place."""
    for name, entries in table.items():
        for dtype in {word for entry in entries.split(";") for word in entry.split() if word in COLUMN}:
            both = tuple(header.row_of(table, name, dtype, in_place=in_place) for in_place in (False, True))
            yield (poplibs_name(name, dtype), COLUMN[dtype]), both


@pytest.mark.parametrize(
    ("ours", "transcribed", "more"),
    [
        (unary_table, header.UNARY_ROWS, MORE_UNARY),
        (binary_table, header.BINARY_ROWS, MORE_BINARY),
        (by_scalar_table, header.SCALAR_ROWS, MORE_BY_SCALAR),
    ],
)
def test_every_row_is_the_headers(ours, transcribed, more):
    expected = {**dict(rows_of(transcribed)), **dict(rows_of(more))}
    found = {
        (name, column): tuple((row.cycles, row.elements, row.overhead) for row in pair)
        for name, columns in ours.items()
        for column, pair in columns.items()
    }
    assert found == expected


def test_a_header_is_read_and_compared(tmp_path, capsys):
    dtypes = {column: dtype for dtype, column in poplibs_header._COLUMNS.items()}

    def written(row):
        turn = f"{row.cycles}, true" if row.elements == 0 else f"{row.cycles}, false"
        return turn if row.overhead or row.elements == 0 else f"{turn}, {row.elements}"

    text = ""
    for name, (table, which) in poplibs_header._TABLES.items():
        text += f"inline const BinaryOpPerfTable {name} = {{\n    // a remark\n"
        for operation, columns in table.items():
            for column, pair in columns.items():
                text += f"    {{{{BinaryOpType::{operation}, {dtypes[column]}}}, {{{written(pair[which])}}}}},\n"
        text += "};\n\n"
    header_file = tmp_path / "popopsCycleEstimators.hpp"
    header_file.write_text(text)
    assert poplibs_header.main([str(header_file)]) == 0
    assert "rows of the header, 0 differ" in capsys.readouterr().out

    other = text.replace("::ERF, FLOAT}, {41, false, 1}", "::ERF, FLOAT}, {18, false, 1}", 1)
    lacking = other.replace("    {{BinaryOpType::TAN, HALF}, {5700, false, 1}},\n", "", 1)
    header_file.write_text(lacking)
    assert poplibs_header.main([str(header_file)]) == 1
    said = capsys.readouterr().out
    assert "('unaryOpPerfInfo', 'ERF', 'float'): header (18, False, 1), ours (41, False, 1)" in said
    assert "('unaryOpPerfInfo', 'TAN', 'half'): header None, ours (5700, False, 1)" in said
    assert "2 differ" in said


def test_bases_are_those_of_their_vertices():
    assert {row[0].base for row in unary_table["EXPONENT"].values()} == {33}
    assert {row[0].base for name in unary_table.keys() - {"EXPONENT"} for row in unary_table[name].values()} == {17}
    for columns in binary_table.values():
        assert all(plain.base == (29 if column == "float" else 26) for column, (plain, _) in columns.items())
    for table, in_place in ((unary_table, 55), (binary_table, 58), (by_scalar_table, 20)):
        assert {row.base for columns in table.values() for _, row in columns.values()} == {in_place}
    forms = {UNARY.supervisor, BINARY.supervisor, BY_SCALAR.supervisor}
    assert forms == {20, 11}


def test_arithmetic_is_what_is_left_of_a_row():
    read = read_table("ANY  float 3/2:1; half 25/1; int 277/1; long 5/1+4", BINARY)["ANY"]
    assert {column: plain.arithmetic for column, (plain, _) in read.items()} == {
        "float": 1,
        "half": 25,
        "int": 277 - (1 + 1 + 1) - 3,  # two loads, a store, the turn
        "long": 5,
    }
    # What mostly loads and stores counts as one instruction.
    for name in ("add", "max", "neg", "relu", "gt", "and", "square"):
        rows = elementwise_loops[name]
        assert {rows[column].plain.arithmetic for column in rows.keys() - {"long", "ulong"}} <= {1, 2}


def test_every_row_stands_in_a_table():
    for name, columns in elementwise_loops.items():
        assert columns.keys() <= set(COLUMNS), name
        for rows in columns.values():
            assert rows.is_guess or name in POPLIBS_NAMES
            assert rows.plain.cycles > 0


def test_dtypes_are_looked_up_in_their_own_columns():
    names = [{"f32": "float32", "f16": "float16"}.get(dtype, dtype) for dtype in COLUMN]
    assert [column_of(jnp.dtype(name)) for name in names] == list(COLUMNS)


@pytest.mark.parametrize(("n", "worker"), [(16, 19 + 8 + 2), (17, 19 + 8 + 2 + 2), (19, 19 + 8 + 2 + 4)])
def test_casts_end_in_halves(n, worker):
    cast = CastRow(2, 4)
    assert cast.worker(n, 4, 1) == worker + 5
    assert cast.worker(n, 4, 6) == worker + 18
