"""Engines in files: the graph and its programs, how they run, and the state, in the middle of whatever was going on.

What streams are connected to is the host's, and is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from codelet.errors import SavingError
from codelet.jaxprs.plain import Plain, check_form, listed, mapped, text, whole
from codelet.saved.archive import Archive
from codelet.saved.graph_files import FileReader, graph_parts
from codelet.saved.graph_writer import GraphWriter
from ipu_backend.running.engine import Engine
from ipu_backend.running.engine_state import restored
from lowering.machine.searches import give_searches

NAMES = ("named_programs", "options", "ends")

_STATE, _HAS_VALUE = "state/", "written/"


def _options(engine: Engine) -> dict[str, Any]:
    """How an engine runs, as a file has it.

    Raises:
        SavingError: over a mesh, or by a function that places.
    """
    options = dict(engine._options)
    if options.pop("mesh") is not None:
        raise SavingError(
            "an engine over a mesh cannot be saved",
            given=f"mesh={engine.mesh!r:.80}",
            expected="an engine on one device",
            fix="cl.Checkpoints keeps the state of engines over any mesh; cl.save(path, engine.graph) the graph",
        )
    if callable(options["placement"]):
        raise SavingError(
            "an engine that places by a function cannot be saved",
            given=f"placement={options['placement']!r:.80}",
            expected="a way to place by its name",
            fix="graph.set_tile_mapping(...), which the graph remembers",
        )
    return options


def engine_parts(engine: Engine) -> dict[str, list[Any]]:
    """The parts of a file of an engine.

    Raises:
        SavingError: an engine over a mesh, or something that files have no form for.
    """
    options, named = _options(engine), {}
    for name, value in engine.state.items():
        named[f"{_STATE}{name}"] = np.array(np.ma.getdata(value), order="C")
        if isinstance(value, np.ma.MaskedArray):
            named[f"{_HAS_VALUE}{name}"] = ~np.ma.getmaskarray(value)

    def more(writer: GraphWriter) -> dict[str, Plain]:
        ends = engine._ends
        return {
            "named_programs": [[name, writer.program(loaded.program)] for name, loaded in engine._programs.items()],
            "options": {name: options[name] for name in ("check_finite", "stream_bytes", "execution", "placement")},
            "ends": None if ends is None else [writer.views.tensor(item) for item in ends],
        }

    return graph_parts(engine.graph, more, named)


def _state(named: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The values of variables, by name, masked where some have none."""
    result = {}
    for name, array in named.items():
        if name.startswith(_STATE):
            flags = named.get(_HAS_VALUE + name.removeprefix(_STATE))
            check_form(
                flags is None or (flags.shape, flags.dtype) == (array.shape, np.dtype(bool)), "values of a state"
            )
            item = array if flags is None else np.ma.MaskedArray(array, mask=~flags)
            result[name.removeprefix(_STATE)] = item
        else:
            check_form(name.startswith(_HAS_VALUE), f"the array {name!r:.60}")
            check_form(_STATE + name.removeprefix(_HAS_VALUE) in named, f"the array {name!r:.60}")
    return result


def read_engine(archive: Archive) -> Engine:
    """The engine of a file, which goes on where it was."""
    reader = FileReader(archive, *NAMES)
    beside, graphs = reader.beside, reader.reader
    give_searches(graphs.graph, archive)  # before the engine places
    pairs = [listed(item, 2) for item in listed(beside["named_programs"])]
    programs = {text(name): graphs.program(number) for name, number in pairs}
    check_form(programs and len(programs) == len(pairs), "the programs of an engine")
    options = mapped(beside["options"], "check_finite", "stream_bytes", "execution", "placement")
    check_form(type(options["check_finite"]) is bool and type(options["placement"]) is str, "the options of an engine")
    whole(options["stream_bytes"], 1)
    alone = len(programs) == 1 and "main" in programs
    engine = Engine(graphs.graph, programs["main"] if alone else programs, **options)
    if beside["ends"] is not None:
        engine._ends = tuple(graphs.tensor(item) for item in listed(beside["ends"]))
    state = _state(reader.named)
    for name, value in state.items():
        variable = graphs.graph._variables.by_name.get(name)
        check_form(variable is not None and variable.dtype == value.dtype, f"the values of {name!r:.60}")
    # Numbers that are not finite were there before: check_finite is for what the host writes.
    engine._state = restored(engine._state, engine._execution, engine._names, state, check=False)
    return engine
