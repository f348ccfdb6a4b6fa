"""Lowered functions in files: their graph and program, what goes in and out, and how they were lowered.

A file holds no jaxpr of the function: it is lowered again from the graph, which gives the same, by the release that
reads it. Its tables are written where they were replaced by others, as an optimiser may.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from codelet.errors import SavingError
from codelet.graphs.by_tensor import key_of
from codelet.jaxprs.plain import Plain, check_form, listed, whole
from codelet.saved.archive import Archive
from codelet.saved.graph_files import FileReader, graph_parts
from codelet.saved.graph_writer import GraphWriter
from codelet.tracing.statics import restored, trace_settings
from lowering.lower import Lowered, lower_plan
from lowering.pipeline import plan_graph

NAMES = ("program", "inputs", "outputs", "is_flat", "settings", "num_tables")

_TABLE = "table "


def lowered_parts(run: Lowered) -> dict[str, list[Any]]:
    """The parts of a file of a lowered function.

    Raises:
        SavingError: a function over a mesh, or of an engine; or something that files have no form for.
    """
    compiled, tables = run._compiled, run._tables
    if compiled.how != "fused":
        raise SavingError(
            "a function over a mesh, or of an engine, cannot be saved",
            given=f"its execution, {compiled.how!r:.80}",
            expected="a function of one device, as cl.lower makes it without a mesh",
            fix="cl.save(path, (run.graph, run.program)), or the engine: cl.save(path, engine)",
        )
    same = len(tables) == len(compiled.consts) and all(map(operator.is_, tables, compiled.consts))
    named = {} if same else {f"{_TABLE}{k}": np.asarray(item) for k, item in enumerate(tables)}

    def more(writer: GraphWriter) -> dict[str, Plain]:
        plan = compiled.plan
        return {
            "program": writer.program(run.program),
            "inputs": [item.number for item in plan.inputs],
            "outputs": [writer.views.tensor(item) for item in plan.outputs],
            "is_flat": compiled.outputs is None,
            "settings": list(compiled.settings),
            "num_tables": None if same else len(tables),
        }

    return graph_parts(run.graph, more, named)


def read_lowered(archive: Archive) -> Lowered:
    """The lowered function of a file."""
    reader = FileReader(archive, *NAMES)
    beside, graphs = reader.beside, reader.reader
    settings = listed(beside["settings"], len(trace_settings()))
    inputs = tuple(graphs.views.variable(item) for item in listed(beside["inputs"]))
    outputs = tuple(graphs.tensor(item) for item in listed(beside["outputs"]))
    fits = len(set(inputs)) == len(inputs) and all(item.value is None for item in inputs)
    check_form(fits, "the inputs of a function")
    check_form(not any(item.axes or item.rows is not None for item in outputs), "the outputs of a function")
    check_form(type(beside["is_flat"]) is bool, "the outputs of a function")
    names = None if beside["is_flat"] else tuple(map(key_of, outputs))
    with restored(tuple(settings)):
        plan = plan_graph(graphs.graph, graphs.program(beside["program"]), inputs, outputs)
        run = lower_plan(plan, names)
    return run if beside["num_tables"] is None else _with_tables(run, reader.named, whole(beside["num_tables"]))


def _with_tables(run: Lowered, named: Mapping[str, np.ndarray], count: int) -> Lowered:
    before = run.tree_flatten()
    check_form(count == len(before[0]), "the number of tables")
    tables = [named.get(f"{_TABLE}{k}") for k in range(count)]
    fits = [
        item is not None and (item.shape, item.dtype) == (np.shape(old), np.asarray(old).dtype)
        for item, old in zip(tables, before[0], strict=True)
    ]
    check_form(all(fits), "the tables of a function")
    return Lowered.tree_unflatten(before[1], tables)
