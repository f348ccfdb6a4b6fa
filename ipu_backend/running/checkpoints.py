"""Checkpoints: the state of an engine in files, from which engines of other devices or executions continue.

A checkpoint of step n is a directory named n. It has the arrays, in logical order, written by Orbax, each part by the
process that stores it, and the description of `checkpoint_files.py`. It is written as `n.writing` and renamed when it
is complete, so that it exists whole or not at all. An error in one of several processes is reported to all: each
raises, and none waits for another.
"""

from __future__ import annotations

import importlib
import operator
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from codelet.deprecated import callable_still, old_arguments, old_order
from codelet.errors import CheckpointError, CodeletError, MissingExtraError
from codelet.schema import accepts, is_whole, of_class
from codelet.views.sources import Variable
from ipu_backend.running.checkpoint_files import (
    ABOUT,
    About,
    about_state,
    check_files,
    check_graph,
    files_in,
    read_about,
    summed,
    write_about,
)
from ipu_backend.running.engine import Engine
from ipu_backend.running.engine_state import EngineState
from lowering.fast.execution import Execution
from lowering.mesh.processes import processes_of, said_by_all
from lowering.plan.elements import Elements, ElementSet

T = TypeVar("T")

_ENGINE = of_class("a cl.Engine", Engine)

_ARRAYS = "arrays"
_UNFINISHED = re.compile(r"\d+\.(writing|deleted)")

_PAUSES = (0, 0.01, 0.1, 1)
"""Seconds before each attempt to remove what was not written to its end. What is left then, the next save removes."""


def _orbax() -> Any:
    try:
        return importlib.import_module("orbax.checkpoint")
    except ImportError:
        raise MissingExtraError(
            "checkpoints need a library that is not installed",
            given="a Python without orbax-checkpoint",
            expected="the extra `checkpoints`",
            fix="pip install 'codelet-graphs[checkpoints]' (in a checkout: pip install -e '.[checkpoints]')",
        ) from None


class _Processes:
    """The processes that write and read a checkpoint: those of an engine's mesh, or this one alone."""

    def __init__(self, mesh: Mesh | None):
        self.mesh = mesh
        self.numbers = [jax.process_index()] if mesh is None else processes_of(mesh)
        self.place = self.numbers.index(jax.process_index())
        self.is_first = self.place == 0

    def do(self, what: str, action: Callable[[], T]) -> T:
        """What a function gives, in which no process waits for another; if it fails in one of them, all raise.

        Raises:
            CheckpointError: it failed. `what` says what could not be done: `written`.
        """
        result, error = None, None
        try:
            result = action()
        except Exception as failure:
            error = failure
        said = "" if error is None else f"{type(error).__name__}: {error!s}"
        others = {} if self.mesh is None else said_by_all(self.mesh, said)
        if isinstance(error, CodeletError):
            raise error
        if error is not None:
            raise CheckpointError(f"a checkpoint cannot be {what}", given=said) from error
        failed = [f"process {process}: {text}" for process, text in others.items() if text]
        if failed:
            raise CheckpointError(f"a checkpoint cannot be {what} in other processes", given="\n".join(failed))
        return result  # type: ignore[return-value]

    def handler(self) -> Any:
        """Orbax's, which reads and writes a tree of arrays, of these processes alone."""
        ocp = _orbax()
        among = ocp.options.MultiprocessingOptions(primary_host=self.numbers[0], active_processes=set(self.numbers))
        return ocp.PyTreeCheckpointHandler(multiprocessing_options=among)


# --- arrays -----------------------------------------------------------------------------------------------


def _flags(number: int) -> str:
    return f"{number} written"


def _tree(about: About, known: Mapping[str, Variable], state: EngineState, execution: Execution) -> dict[str, Any]:
    """The arrays of a state: values by the number of the variable, and flags, as bits, where only some have one."""
    tree: dict[str, Any] = {}
    for number, own in enumerate(about.variables):
        variable = known[own.name]
        if own.has_values and variable.size:
            tree[str(number)] = execution.saved(variable, state.held(variable))
        if own.held == "some":
            tree[_flags(number)] = np.packbits(state.written.flags(variable))
    return tree


def _restoring(about: About, known: Mapping[str, Variable], execution: Execution) -> dict[str, Any]:
    """How Orbax reads these: straight to the devices that are to hold them, where that can be."""
    ocp, how = _orbax(), {}
    for number, own in enumerate(about.variables):
        variable = known[own.name]
        if own.has_values and variable.size:
            kind = execution.restoring(variable)
            how[str(number)] = (
                ocp.RestoreArgs(restore_type=np.ndarray)
                if kind is None
                else ocp.ArrayRestoreArgs(sharding=kind.sharding, global_shape=kind.shape, strict=False)
            )
        if own.held == "some":
            how[_flags(number)] = ocp.RestoreArgs(restore_type=np.ndarray)
    return how


def _restored(
    tree: Mapping[str, Any], about: About, known: Mapping[str, Variable], before: EngineState, execution: Execution
) -> EngineState:
    """The state that was saved; `before` has the engine's constants."""
    arrays: dict[Variable, Any] = {}
    written = {variable: before.written.of(variable) for variable in before.written.variables}
    for number, own in enumerate(about.variables):
        if not own.has_values:
            continue
        variable = known[own.name]
        value = tree[str(number)] if variable.size else np.zeros(variable.shape, variable.dtype)
        if isinstance(value, np.ndarray):
            value = execution.load(variable, jax.device_put(value[tuple(map(slice, variable.shape))]))
        arrays[variable] = value
        written[variable] = Elements.everything(variable.size)
        if own.held == "some":
            flags = np.unpackbits(np.asarray(tree[_flags(number)]), count=variable.size)
            written[variable] = Elements.of_flags(flags.view(bool))
    return EngineState(arrays, ElementSet(written))


# --- steps ------------------------------------------------------------------------------------------------


class Checkpoints:
    """Checkpoints of engines in a directory, by step.

    A checkpoint has the values of all variables, in logical order, and which elements have one. An engine of the same
    graph may continue from it with another mesh, other processes, another execution or another placement. Connections
    of streams, and their positions, are excluded.

    With several processes, all processes of the engine's mesh call `save` and `restore` together, with a directory that
    all of them see. The first of them makes, renames and deletes directories.

    Args:
        directory: their directory, made by the first `save`.
        max_to_keep: how many to keep: the greatest steps, and the one saved last. `None`: all.

    Raises:
        CheckpointError: `max_to_keep` is not a positive integer.
        MissingExtraError: Orbax is not installed: the extra `checkpoints`.

    >>> import tempfile, codelet as cl
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (2,))
    >>> engine, other = cl.Engine(graph), cl.Engine(graph)
    >>> engine.write({"x": [1, 2]})
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     checkpoints = cl.Checkpoints(directory, max_to_keep=3)
    ...     checkpoints.save(engine, 10)
    ...     checkpoints.steps, checkpoints.restore(other)
    ([10], 10)
    >>> other.read(x)
    array([1., 2.], dtype=float32)
    """

    @old_arguments(keep="max_to_keep")
    @old_order(("max_to_keep",), after=2)
    def __init__(self, directory: str | os.PathLike[str], *, max_to_keep: int | None = 3):
        if max_to_keep is not None and not is_whole(max_to_keep, 1):
            raise CheckpointError(
                "so many checkpoints cannot be kept",
                given=f"{max_to_keep=!r}",
                expected="a number from 1 on, or None for all",
            )
        try:
            path = os.path.abspath(os.fsdecode(directory))
            if "\0" in path:
                raise ValueError("a path has no null character")
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                "checkpoints are saved at something other than a path",
                given=f"{directory!r:.80}: {error}",
                expected="a directory, which need not be there yet",
            ) from error
        _orbax()
        self.directory = Path(path)
        self.max_to_keep = max_to_keep

    def __repr__(self) -> str:
        return f"Checkpoints({str(self.directory)!r}, max_to_keep={self.max_to_keep})"

    @property
    def steps(self) -> list[int]:
        """The steps of all finished checkpoints, in ascending order.

        >>> import tempfile, codelet as cl
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.Checkpoints(directory).steps
        []
        """
        inside = self.directory.iterdir() if self.directory.is_dir() else ()
        found = sorted(int(path.name) for path in inside if path.name.isdecimal() and (path / ABOUT).is_file())
        return callable_still(found, "Checkpoints.steps")

    def _path(self, step: object) -> Path:
        if not is_whole(step, 0):
            raise CheckpointError("a step is not an integer", given=f"{step=!r}", expected="an integer from 0 on")
        return self.directory / str(operator.index(step))

    # --- saving -------------------------------------------------------------------------------------------

    @accepts(CheckpointError, engine=_ENGINE)
    def save(self, engine: Engine, step: int) -> None:
        """Save the state of an engine. When it returns, the checkpoint is complete in all processes.

        Args:
            engine: the engine; `save` waits for its earlier runs.
            step: the number of the checkpoint.

        Raises:
            CheckpointError: the step is there already, or cannot be written. Earlier checkpoints are unchanged.

        >>> import tempfile, codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (2,))
        >>> engine = cl.Engine(graph)
        >>> engine.write({x: [1, 2]})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     checkpoints = cl.Checkpoints(directory)
        ...     checkpoints.save(engine, 10)
        ...     checkpoints.steps
        [10]
        """
        path, processes = self._path(step), _Processes(engine.mesh)
        beside = path.with_name(f"{path.name}.writing")
        with engine._exclusive.use("save"):
            state, execution, known = engine._state, engine._execution, engine._names.by_name
            about = about_state(known.values(), state)
            processes.do("written", lambda: self._begin(path, beside, processes))
            try:
                tree = _tree(about, known, state, execution)
                handler, arrays = processes.handler(), beside / _ARRAYS
                if tree:
                    processes.do("written", lambda: handler.save(_epath(arrays), args=_orbax().args.PyTreeSave(tree)))
                processes.do("written", lambda: self._finish(path, beside, about, handler, processes))
            except CheckpointError:
                if processes.is_first:
                    _remove(beside)
                raise

    def _begin(self, path: Path, beside: Path, processes: _Processes) -> None:
        if path.exists():
            raise CheckpointError(
                f"there is a checkpoint of step {path.name} already",
                given=path,
                expected="another step",
                fix="save under another step or in another directory, or delete this one first",
            )
        if processes.is_first:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left in self.directory.iterdir():
                if _UNFINISHED.fullmatch(left.name):
                    shutil.rmtree(left)
            (beside / _ARRAYS).mkdir(parents=True)

    def _finish(self, path: Path, beside: Path, about: About, handler: Any, processes: _Processes) -> None:
        if not processes.is_first:
            return
        if any((beside / _ARRAYS).iterdir()):
            handler.finalize(_epath(beside / _ARRAYS))
        write_about(beside, replace(about, files=summed(beside, files_in(beside))))
        os.rename(beside, path)
        _synced(self.directory)
        others = [step for step in self.steps if step != int(path.name)]
        for step in others[: max(0, len(others) + 1 - self.max_to_keep)] if self.max_to_keep is not None else ():
            gone = self.directory / f"{step}.deleted"
            os.rename(self.directory / str(step), gone)
            shutil.rmtree(gone, ignore_errors=True)

    # --- restoring ----------------------------------------------------------------------------------------

    @accepts(CheckpointError, engine=_ENGINE)
    def restore(self, engine: Engine, step: int | None = None) -> int:
        """Replace the whole state of an engine: variables without a saved value have none afterwards. All of it, or
        nothing.

        Args:
            engine: an engine of the graph that was saved.
            step: the number of the checkpoint. Default: the last one.

        Returns:
            The step.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged, of another graph, or written by a newer
                codelet.

        >>> import tempfile, codelet as cl
        >>> engine = cl.Engine(cl.Graph())
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     try:
        ...         cl.Checkpoints(directory).restore(engine)
        ...     except cl.CheckpointError as error:
        ...         print(str(error).splitlines()[1].strip())
        given:    no finished checkpoint
        """
        processes = _Processes(engine.mesh)
        path = processes.do("read", lambda: self._found(step))
        with engine._exclusive.use("restore"):
            state, execution, known = engine._state, engine._execution, engine._names.by_name
            about = processes.do("read", lambda: _checked(path, about_state(known.values(), state), processes))
            how: dict[str, Any] = _restoring(about, known, execution)
            tree: dict[str, Any] = {}
            if how:
                args, handler = _orbax().args.PyTreeRestore(restore_args=how), processes.handler()
                tree = processes.do("read", lambda: handler.restore(_epath(path / _ARRAYS), args=args))
            engine._state = _restored(tree, about, known, state.without(state.arrays), execution)
        return int(path.name)

    def _found(self, step: int | None) -> Path:
        steps = self.steps
        if step is None and steps:
            return self._path(steps[-1])
        if step is None or not self._path(step).exists():
            raise CheckpointError(
                f"there is no checkpoint in {self.directory}"
                if step is None
                else f"there is no checkpoint of step {step} in {self.directory}",
                given=f"steps {steps}" if steps else "no finished checkpoint",
                expected="one that checkpoints.save has written",
            )
        return self._path(step)


def _checked(path: Path, here: About, processes: _Processes) -> About:
    """What a checkpoint says of itself, whose files and graph are found to be right."""
    about = read_about(path)
    check_graph(path, about, here)
    check_files(path, about.files, processes.place, len(processes.numbers))
    return about


def _epath(path: Path) -> Any:
    """A path as Orbax takes it."""
    return importlib.import_module("etils.epath").Path(path)


def _remove(directory: Path) -> None:
    """Remove a directory into which threads of Orbax may still write for a moment, after one of them failed."""
    for pause in _PAUSES:
        time.sleep(pause)
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return


def _synced(directory: Path) -> None:
    """Have what was renamed in a directory be safe on the disk."""
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
