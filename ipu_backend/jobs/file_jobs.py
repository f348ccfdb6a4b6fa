"""Files of `cl.save` for jobs: what of a file is drawn, reported and run, as the step that a function's graph is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from codelet.errors import ArrayError, FileFormatError
from codelet.files import written_whole
from codelet.frontends.traced import Traced
from codelet.graphs.by_tensor import key_of
from codelet.graphs.graph import Graph
from codelet.hostdata import as_array
from codelet.programs.program import Program
from codelet.saved.tree_forms import by_path
from codelet.views.sources import type_text
from codelet.views.tensor import Tensor
from ipu_backend.jobs.adjoint import Step, step_of
from ipu_backend.jobs.found import BuildError
from ipu_backend.running.engine import Engine
from ipu_backend.running.options import chosen_program
from ipu_backend.running.saved_files import load
from lowering.lower import Lowered

SUFFIX = ".codelet"


def is_file(name: str) -> bool:
    """Whether a job is asked for a file that `cl.save` wrote."""
    return name.endswith(SUFFIX)


def step_of_file(path: str, program: str | None = None) -> Step:
    """What of a file is drawn and profiled.

    Args:
        path: of the file.
        program: the name of a program, of an engine with several.

    Raises:
        FileFormatError: a file that cannot be read.
        ProgramError: a name that no program has, or none where there are several.
    """
    match load(path):
        case Traced() as traced:
            return step_of(traced)
        case Lowered() as run:
            inputs = [run.graph.variable(item.name) for item in run._compiled.plan.inputs]
            return Step(run.graph, run.program, inputs, run._compiled.plan.outputs)
        case Engine() as engine:
            chosen = chosen_program(engine._programs, program).program
            return Step(engine.graph, chosen, engine.graph.variables, ())
        case (Graph() as graph, Program() as chosen):
            return Step(graph, chosen, graph.variables, ())
        case Graph() as graph:
            return Step(graph, graph.default_program, graph.variables, ())
    raise FileFormatError("a file holds something that no job takes", given=path)


# --- running ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunResult:
    """What a file gave when it was run.

    Attributes:
        name: the file.
        results: arrays, by name.
    """

    name: str
    results: Mapping[str, np.ndarray]

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"name": self.name, "results": {key: array.tolist() for key, array in self.results.items()}}

    def __str__(self) -> str:
        return "\n".join(f"{key}: {_text(array)}" for key, array in self.results.items()) or "no results"


def _text(array: np.ndarray) -> str:
    said = type_text(array.dtype, array.shape)
    if array.size == 1:
        return f"{said} = {array.reshape(-1)[0]}"
    return f"{said}, from {array.min()} to {array.max()}" if array.size and array.dtype.kind in "biuf" else said


def read_arrays_of_files(named: Sequence[str]) -> list[tuple[str | None, np.ndarray]]:
    """Arrays of `.npy` files, each with the name that was given before it: `x=x.npy`, or `x.npy` for the next.

    Raises:
        BuildError: a file that holds no array.
    """
    result = []
    for entry in named:
        name, equals, path = entry.rpartition("=")
        try:
            result.append((name if equals else None, np.load(path, allow_pickle=False)))
        except (OSError, ValueError, EOFError) as error:
            raise BuildError(
                "an input is no array", given=f"{path}: {error}", expected="a file of numpy.save, x.npy or name=x.npy"
            ) from error
        if not isinstance(result[-1][1], np.ndarray):
            raise BuildError("an input is no array", given=path, expected="a file of numpy.save: x.npy")
    return result


def _by_name(arrays: Sequence[tuple[str | None, np.ndarray]], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by what they are for: those without a name in order.

    Raises:
        ArrayError: more than there are names for, or a name twice.
    """
    taken = [name for name, _ in arrays if name is not None]
    left = iter([name for name in names if name not in taken])
    result: dict[str, np.ndarray] = {}
    for name, array in arrays:
        chosen = next(left, None) if name is None else name
        if chosen is None or chosen not in names or chosen in result:
            raise ArrayError(
                "there is nothing that an input is for",
                given=f"{name or 'an input without a name'}, of {type_text(array.dtype, array.shape)}",
                expected=f"--input NAME=FILE, for {', '.join(names) or 'nothing: it takes no inputs'}",
            )
        result[chosen] = array
    return result


def _results_of(run: Lowered, arrays: Sequence[tuple[str | None, np.ndarray]]) -> list[Any]:
    """What a lowered function gives, in order."""
    places = run.arguments
    passed = _by_name(arrays, [item.name for item in places])
    if len(passed) < len(places):
        left = [item for item in places if item.name not in passed]
        missing = [f"{item.name}: {type_text(item.dtype, item.shape)}" for item in left]
        raise ArrayError(
            "a function is given too few inputs", given=", ".join(passed) or "none", expected=", ".join(missing)
        )
    return jax.jit(run.flat)([as_array(passed[item.name], item) for item in places])


def _run_lowered(run: Lowered, arrays: Sequence[tuple[str | None, np.ndarray]]) -> Mapping[str, Any]:
    keys = [str(key_of(item)) for item in run._compiled.plan.outputs]
    return dict(zip(keys, _results_of(run, arrays), strict=False))


def _run_traced(traced: Traced, arrays: Sequence[tuple[str | None, np.ndarray]]) -> Mapping[str, Any]:
    paths = [path or "result" for path, item in by_path(traced.outputs).items() if isinstance(item, Tensor)]
    return dict(zip(paths, _results_of(traced.lowered, arrays), strict=False))


def _run_engine(
    engine: Engine, program: str | None, arrays: Sequence[tuple[str | None, np.ndarray]]
) -> Mapping[str, Any]:
    variables = [item.name for item in engine.graph.variables if item.source.value is None]  # type: ignore[union-attr]
    streams = [item.name for item in engine.graph.streams if item.is_input]
    for name, array in _by_name(arrays, [*variables, *streams]).items():
        if name in streams:
            engine.connect(name, array)
        else:
            engine.write({name: array})
    engine.run(program, wait=True)
    sent = {item.name: engine.read(item) for item in engine.graph.streams if not item.is_input}
    return {**{name: np.ma.getdata(item) for name, item in engine.state.items()}, **sent}


def _savable(results: Mapping[str, Any]) -> Any:
    """Results by names that files in an archive may have."""
    return {name.replace("/", "."): np.asarray(item) for name, item in results.items()}


def run_file(
    path: str, inputs: Sequence[str] = (), *, program: str | None = None, output: str | None = None
) -> RunResult:
    """Run what a file holds once, and write what it gave.

    Args:
        path: a file that `cl.save` wrote.
        inputs: `x.npy`, or `name=x.npy`: files of arrays for its arguments, or of an engine for variables and streams.
        program: the name of a program, of an engine with several.
        output: where results are written, as `.npz`.

    Raises:
        FileFormatError: a file that cannot be read.
        ArrayError: inputs that do not fit.
        BuildError: an input that is no array.
        FileError: a path at which no file can be written.
    """
    arrays = read_arrays_of_files(inputs)
    match load(path):
        case Traced() as traced:
            results = _run_traced(traced, arrays)
        case Lowered() as run:
            results = _run_lowered(run, arrays)
        case Engine() as engine:
            results = _run_engine(engine, program, arrays)
        case (Graph() as graph, Program() as chosen):
            results = _run_engine(Engine(graph, chosen), None, arrays)
        case graph:
            results = _run_engine(Engine(graph), None, arrays)
    if output is not None:
        with written_whole(output, binary=True) as file:
            np.savez(file, **dict(_savable(results)))
    return RunResult(Path(path).name, {name: np.asarray(item) for name, item in results.items()})
