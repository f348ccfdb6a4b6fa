"""The table of measurements: what it says, how it is sorted, and that the document has it."""

from dataclasses import fields

import pytest

import codelet as cl
from benchmarks import machine
from benchmarks.measured_vertices import PROGRAMS
from benchmarks.measurements import BOUND, HARDWARE, MEASURED, Series


def test_every_program_is_measured_and_every_measurement_has_a_program():
    assert {series.program for series in MEASURED} == set(PROGRAMS)
    assert all(series.source and series.values for series in MEASURED)
    assert len(set(zip(machine.names(), (s.figure for s in MEASURED for _ in s.values), strict=True))) > 80


def test_worst_ratio_first_and_bounds_last(monkeypatch):
    ours = {"near": 110, "half": 50, "twice and more": 230, "kept": 90, "passed": 101}
    monkeypatch.setattr(machine, "figures_of", lambda program, argument: {"compute": ours[argument]})
    judged = Series("p", "compute", HARDWARE, {"near": 110, "half": 110, "twice and more": 110}, "a source", less=10)
    bounds = Series("p", "compute", BOUND, {"kept": 100, "passed": 100}, "a source")
    rows = machine.measure([bounds, judged])
    assert [row.argument for row in rows] == ["twice and more", "half", "near", "passed", "kept"]
    assert [row.cells()[5] for row in rows] == ["2.30", "0.50", "1.10", "**above**", "within"]
    assert [row.cells()[2] for row in rows] == ["100", "100", "100", "at most 100", "at most 100"]
    text = "\n".join(machine.as_markdown(rows))
    assert "3 measurements that no number of the model comes from: 1 within 10 %, 1 within 1.5 times, 2 within" in text
    assert "1 of 2 bounds are kept" in text
    document = machine.written(f"before\n{machine.BEGIN}\nold\n{machine.END}\nafter", rows)
    assert document.startswith("before\n")
    assert document.endswith("\nafter")
    assert "old" not in document
    assert machine.written(document, rows) == document


def test_document_has_every_row_and_every_number_of_the_machine():
    document = machine.DOCUMENT.read_text()
    table = document.partition(machine.BEGIN)[2].partition(machine.END)[0]
    assert [name for name in machine.names() if f"| {name} |" not in table] == []
    mk2 = cl.IPU()
    numbers = {field.name: getattr(mk2, field.name) for field in fields(mk2) if field.name not in ("name", "tables")}
    assert [name for name, value in numbers.items() if f"| `{name}` | {value}" not in document] == []


@pytest.mark.parametrize(
    "series", [s for s in MEASURED if s.program in ("matrix_unit", "scaled_add")], ids=lambda s: s.program
)
def test_vertices_measured_alone_come_out(series):
    for row in machine.measure([series]):
        assert 0.8 < row.ratio < 1.2, row
