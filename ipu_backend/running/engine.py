"""The engine: a graph loaded on the machine. State lives on it between runs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from codelet.deprecated import callable_still, old_arguments
from codelet.display import as_html, as_table
from codelet.errors import ProgramError, StateLostError, StreamError
from codelet.frontends.traced import Traced
from codelet.graphs.by_tensor import Named
from codelet.graphs.graph import Graph
from codelet.programs.copies import Stream
from codelet.programs.program import as_program
from codelet.programs.walk import check_program
from codelet.schema import FLAG, accepts
from codelet.views.sources import type_text
from codelet.views.tensor import Tensor
from ipu_backend.executions.tile_memory import TileMemory, read_tile
from ipu_backend.model.profile import Profile
from ipu_backend.model.profile_plan import profile_machine
from ipu_backend.running.engine_machine import EngineMachine
from ipu_backend.running.engine_state import (
    EngineState,
    by_tensor,
    check_finite,
    empty_state,
    read_view,
    restored,
    snapshot,
    written_to,
)
from ipu_backend.running.exclusive import Exclusive
from ipu_backend.running.names import Names
from ipu_backend.running.options import check_tile, checked_options, chosen_program, engine_mesh, named_programs
from ipu_backend.running.progress import progress_bar
from ipu_backend.running.runs import LoadedProgram, Runs, uninterrupted
from ipu_backend.running.saved_mesh import saved_mesh
from ipu_backend.running.streaming import Connections
from lowering.check.initialized import check_initialized
from lowering.lower import Lowered
from lowering.machine.place import Place
from lowering.pipeline import MachinePlan
from lowering.plan.elements import ElementSet


class Engine:
    """Runs a graph's program on state that it keeps. As Poplar's engine: write, run, read.

    Args:
        graph: what to load, or a `cl.Traced`, with its program; later changes do not concern the engine.
        program: what `run` runs; all compute sets in the order they were added when left off. Several programs,
            in a dict by name, share one state: `engine.run("train")`, `engine.run("predict")`.
        check_finite: refuse host data, and results read, that hold NaN or infinity.
        stream_bytes: how many bytes of values of streams the host holds at a time. A loop that takes more is run
            in chunks.
        execution: `"fused"` holds a variable as one array in logical order, and exchange costs nothing; `"tiles"`
            holds it as an array of tiles by words, and runs the planned exchange: see `executions/tile_array.py`;
            `"addresses"` runs it in the planned memory of the tiles, forward only, as a proof of the memory plan: see
            `executions/tile_addresses.py`. The host may read all variables after a run, so that none shares its
            address with another there, as they do in what `function` makes.
        placement: for tiles and addresses, how what the graph leaves without a tile is placed: `"balanced"`, as takes
            the fewest cycles, `"linear"`, `"bytes"`, `"rows"` or `"blocks"` (see `machine/place.py`), or a function
            from the plan to its placement.
        mesh: for fused and tiles, a `jax.sharding.Mesh`, its axes taken together; one device when left off. See
            `executions/mesh_tiles.py`; fused, variables are cut as `cl.lower` says. Where it has devices of several
            processes, all of these make the engine, write to it, run it and read of it together, with the same values.

    Raises:
        ProgramError: an execution, a placement or a mesh that there is not, or an execution that takes no mesh.
        ProcessesError: another process of the mesh makes an engine that runs something else.
        What `lower` raises for the graph, save that elements nothing writes may still be written by the
        host: reading one is an error of `run` and `read`.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def count(n):
    ...     return {"n": n + 1}
    >>> graph = cl.Graph()
    >>> n = graph.add_variable("n", (), "int32")
    >>> graph.add_vertex("count", count, n=n)
    >>> engine = cl.Engine(graph)
    >>> engine.write({"n": 40})
    >>> engine.run(); engine.run()
    >>> engine.read(n)
    array(42, dtype=int32)
    """

    def __init__(
        self,
        graph: Graph | Traced,
        program: object = None,
        *,
        check_finite: bool = False,
        stream_bytes: int = 1 << 26,
        execution: Literal["fused", "tiles", "addresses"] = "fused",
        placement: Place = "balanced",
        mesh: Mesh | None = None,
    ):
        self._ends = graph.ends if isinstance(graph, Traced) else None
        graph, program = checked_options(graph, program, execution, placement, stream_bytes)
        self.graph = graph
        self.check_finite = check_finite
        self.mesh = mesh = engine_mesh(mesh, execution)
        self._options: dict[str, Any] = {"check_finite": check_finite, "stream_bytes": stream_bytes}
        self._options.update(execution=execution, placement=placement, mesh=mesh)
        given = graph.default_program if program is None else program
        self._programs: dict[str, LoadedProgram] = {}
        for name, each in named_programs(given).items():
            chosen = as_program(each)
            check_program(chosen, graph)
            self._programs[name] = LoadedProgram(graph, chosen, stream_bytes)
        for loaded in self._programs.values():
            loaded.together = self._programs.values()
        self._names = Names(graph)
        self._machine = EngineMachine(self._programs, execution, placement, mesh)
        self._execution = self._machine.execution
        self._connections = Connections(stream_bytes)
        self._exclusive = Exclusive()
        self._state = empty_state(graph)

    # --- state ----------------------------------------------------------------------------------------

    def write(self, to: Any, values: Any = None) -> None:
        """Write host arrays to variables or views of them: all of them, or none where one does not fit.

        Args:
            to: an array for each, by the variable's name, or by a tensor: `{"x": x0, y[3:7]: part}`. What comes
                later overwrites what comes before. Elements of a view alone get a value; the others keep theirs. With
                `values`, where these go: a pytree of tensors, as `graph.add_variables` makes it.
            values: a pytree alike, of arrays; or one number, for all elements of all.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant or for padding.
            NotInGraphError: a name no variable has.
            ViewError: a view that depends on symbols.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        with self._exclusive.use("write"):
            given = to if values is None else by_tensor(to, values)
            self._state = written_to(self._state, self._execution, self._names, given, check=self.check_finite)

    def read(self, variable: Any) -> Any:
        """The value of a variable or a view, as a NumPy array; of an output stream, all the last run sent, stacked.

        It waits until what ran before is done.

        What a program makes for itself alone, and no run begins with, is left out of runs where it is much. To read it
        runs the program once more on what the last run began with; the runs that follow make it.

        Args:
            variable: a tensor, the name of a variable, or an output stream; or a pytree of them, such as
                `traced.outputs`, for a pytree of arrays.

        Raises:
            UninitializedReadError: an element of it that neither the host nor a run has written.
            NotInGraphError: a name no variable has.
            ViewError: a view that depends on symbols.
            NotFiniteError: NaN or infinity, where that is checked.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (2,))
        >>> engine = cl.Engine(graph)
        >>> engine.write({"x": [1, 2, 3, 4], y[1]: 5.0})
        >>> engine.read([x[::-1], y[1]])
        [array([4., 3., 2., 1.], dtype=float32), array(5., dtype=float32)]
        """
        with self._exclusive.use("read"):
            return self._read(variable) if variable is None else jax.tree.map(self._read, variable)

    def _read(self, given: Tensor | Stream | str | None) -> np.ndarray:
        if self._names.is_stream(given):
            stream = self._names.stream(given)  # type: ignore[arg-type]
            if stream.is_input:
                raise StreamError(
                    f"{stream.name!r} is an input stream: there is nothing to read",
                    given=stream,
                    expected="a variable, or an output stream",
                )
            return self._connections.sent(stream)
        tensor = self._names.tensor(given, "read")  # type: ignore[arg-type]
        array = read_view(self._state, self._execution, tensor)
        if self.check_finite:
            check_finite(tensor, array, "the variable")
        return array

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The values of all variables that have any, by name: for a checkpoint, another engine, or `load_state`.

        A variable of which only some elements have a value comes as a masked array (`numpy.ma`), the others masked.
        What streams are connected to is no part of it.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (2,))
        >>> engine, other = cl.Engine(graph), cl.Engine(graph)
        >>> engine.write({"x": [1, 2]})
        >>> other.load_state(engine.state)
        >>> other.read(x)
        array([1., 2.], dtype=float32)
        """
        with self._exclusive.use("state"):
            return callable_still(snapshot(self._state, self._execution), "Engine.state")

    def load_state(self, values: Mapping[Any, Any]) -> None:
        """Hold what `state` gave, and nothing else: a variable that it does not name has no value then.

        All of it is loaded, or none where something does not fit.

        Args:
            values: an array for each variable, by tensor or name; a dict, or what `numpy.load` gives of an `.npz` file.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant.
            NotInGraphError: a name no variable has.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        with self._exclusive.use("load_state"):
            self._state = restored(self._state, self._execution, self._names, values, check=self.check_finite)

    # --- running --------------------------------------------------------------------------------------

    @accepts(StreamError, by_part=FLAG)
    def connect(self, stream: Stream | str, values: Any, *, by_part: bool = False) -> None:
        """Say where the values of an input stream come from, or where those of an output stream go.

        Runs go on in what is connected where the last one left off. No more values are taken at a time than fit
        `stream_bytes`. What a run that raises has taken is given to the next one again; only where it has taken more
        of iterators than `stream_bytes` nothing is, and a note of the error says so. A function that is connected has
        by then been called with what came out.

        Args:
            stream: a stream of the graph, or its name.
            values: for an input stream, an array of values stacked along a first axis, which is copied (a
                `numpy.memmap` stays in its file), or an iterable of arrays (a loader, a generator), each of which is
                copied when it is taken. For an output stream, a function that is called with each value; without
                one, `read` gives all that the last run sent. The function does not use the engine itself.
            by_part: of each value of an input stream, only what `part` says is given. Otherwise every process gives all
                of it, and keeps its own.

        Raises:
            NotInGraphError: a stream that is not there.
            StreamError: something that gives or takes no values.
            ArrayError: values of the wrong shape or dtype.

        Source: Engine::connectStream of Poplar's API reference.
        """
        with self._exclusive.use("connect"):
            own = self._names.stream(stream)
            self._connections.connect(own, values, self.part(own) if by_part else None)

    def part(self, stream: Stream | str) -> tuple[slice, ...]:
        """The part of each value of an input stream that the devices of this process hold: `value[engine.part("x")]`.

        All of it in one process, on tiles, and of a stream that goes to anything but whole variables that are cut in
        blocks alike.

        Raises:
            NotInGraphError: a stream that is not there.
            StreamError: it is not in one piece, since the mesh has devices of other processes between.
        """
        return self._execution.part(self._names.stream(stream))

    @old_arguments(program="program_name")
    @accepts(ProgramError, wait=FLAG, progress=FLAG)
    def run(self, program_name: str | None = None, *, wait: bool = False, progress: bool = False) -> None:
        """Run a program once on the state. If it raises, the state is what it was before.

        JAX computes in the background: `run` returns when the work is handed over, and what uses the state next waits
        for it, so that a Ctrl-C may land in `read`. (Handing over runs one after the other without waiting takes less
        than half the time where they are short: on two CPU cores 31 us instead of 82 for a stencil on 256 x 256
        points.) It waits anyway for output streams, for aborts, for codelets that call the host, and over several
        devices of a CPU: runs that wait for each other's devices would be more than it has threads for.

        Ctrl-C leaves the state as it was before the run or, once the work was handed over, as it is after it. Several
        threads may use one engine: their calls wait for one another. What belongs together (write, run, read) is for
        them to keep together, by a lock of their own.

        Args:
            program_name: that of the program, where the engine has several.
            wait: return when the work is done.
            progress: show a bar of the turns of loops over streams, which then run in at least 20 chunks, each waited
                for. It needs the extra `progress`.

        Raises:
            UninitializedReadError: an element is read that neither the host nor an earlier step has written.
            ProgramAbortedError: the program aborts.
            StreamError: a stream is not connected, or ends early: the message says where.
            EngineInUseError: it is called by what a run calls: a function connected to a stream, or a callback.
            StateLostError: the machine fails in a run that was overwriting the state.
            MissingExtraError: a bar without tqdm.
        """
        loaded = chosen_program(self._programs, program_name)
        with self._exclusive.use("run"):
            state, wait = self._state, wait or self._machine.waits
            if loaded.checked is None or not loaded.checked.equals(state.written):
                written = check_initialized(replace(loaded.plan, outputs=()), state.written)
                loaded.checked = written if written.equals(state.written) else None
            else:
                written = state.written
            parts, bar = loaded.parts, nullcontext(None)
            if progress:
                parts = loaded.finer_parts
                bar = progress_bar(parts, program_name or "running")
            self._connections.begin(loaded.plan.streams)
            try:
                with bar as done:
                    self._run(loaded, state, written, Runs(parts, done), wait=wait)
            except BaseException as error:
                self._after_failure(error)
                raise

    def _run(self, loaded: LoadedProgram, state: EngineState, written: ElementSet, runs: Runs, *, wait: bool) -> None:
        arrays, part = dict(state.arrays), None if loaded.lean is not None else loaded.in_place
        if part is None:
            after = EngineState(loaded.run(arrays, self._connections, runs, wait=wait), written)
            with uninterrupted() if loaded.plan.streams else nullcontext():
                self._state = after
                self._connections.end()
            return
        made: list[Sequence[Any]] = []
        try:
            part.run_in_place(arrays, self._connections, made)
        finally:
            if made:
                self._state = EngineState({**arrays, **dict(zip(part.written, made[0], strict=True))}, written)
        if wait:
            jax.block_until_ready(made)

    def _after_failure(self, error: BaseException) -> None:
        """What is left when a run raised.

        Raises:
            StateLostError: the machine failed, and took values with it.
        """
        note = self._connections.give_back()
        if note is not None:
            error.add_note(note)
        lost = [variable for variable, held in self._state.arrays.items() if held.is_deleted()]
        if lost:
            self._state = self._state.without(lost)
            raise StateLostError(
                "the machine failed in a run that was overwriting the state",
                given=f"{type(error).__name__}: {error!s:.200}",
                expected="enough memory",
                fix=f"write {', '.join(sorted(variable.name for variable in lost))} again before the next run",
            ) from error

    # --- the machine ----------------------------------------------------------------------------------

    def read_tile(self, tile: int) -> TileMemory:
        """A tile's memory: what lies at which address, and the values that variables hold there now. It prints.

        Addresses are those of a memory in which every variable that the programs name is kept.

        Args:
            tile: its number.

        Raises:
            TileError: a tile that the target does not have.
        """
        check_tile(tile, self.graph.target.num_tiles)
        with self._exclusive.use("read_tile"):
            known = [v for v in self._names.variables if v.value is not None or v in self._state.arrays]
            whole = {v: self.graph.variable(v.name) for v in known}
            values = {v: read_view(self._state, self._execution, whole[v], check=False) for v in known}
            return read_tile(self._machine.memory, operator.index(tile), values)

    @old_arguments(program="program_name", keep="host_visible")
    @accepts(ProgramError, allow_out_of_memory=FLAG)
    def machine(
        self,
        program_name: str | None = None,
        *,
        placement: Place | None = None,
        host_visible: Tensor | str | Iterable[Tensor | str] | None = None,
        allow_out_of_memory: bool = False,
    ) -> MachinePlan:
        """A program planned on the machine: placement, exchange, live ranges and addresses. Nothing runs for it.

        Args:
            program_name: that of the program, where the engine has several.
            placement: where what the graph leaves without a tile lives: `"balanced"`, `"linear"`, `"bytes"`,
                `"rows"`, `"blocks"` (see `machine/place.py`), or a function from the program's plan to its placement;
                as the engine was told, and with all its programs together, when left off.
            host_visible: the variables, one or several, whose values the host writes before the program and reads
                after it, as in Poplar those with a host write or read. When left off, those of the arguments and
                results of a `cl.Traced` that the engine was made of; of a graph all. The memory of the others is
                shared where they are not live together. Constants, and what is read before it is written, are kept
                anyway.
            allow_out_of_memory: report what a tile cannot hold rather than refuse it.

        Raises:
            OutOfTileMemoryError: a tile would have to hold more than its memory.
            NotInGraphError: a name in `host_visible` that no variable has.
            ProgramError: a placement that there is not, or a function that returns something else.
        """
        plan = chosen_program(self._programs, program_name).plan
        seen = self._ends if host_visible is None else host_visible
        kept = None if seen is None else self._names.kept(seen)
        return self._machine.plan(plan, placement, kept, allow_out_of_memory=allow_out_of_memory)

    @old_arguments(program="program_name", keep="host_visible")
    def profile(
        self,
        program_name: str | None = None,
        *,
        placement: Place | None = None,
        host_visible: Tensor | str | Iterable[Tensor | str] | None = None,
        allow_out_of_memory: bool = False,
    ) -> Profile:
        """What a program costs on the machine: cycles by step, bytes by tile. The arguments are as of `machine`.

        Source: Engine::getProfile and printProfileSummary of Poplar's API reference.
        """
        return profile_machine(
            self.machine(
                program_name, placement=placement, host_visible=host_visible, allow_out_of_memory=allow_out_of_memory
            )
        )

    @old_arguments(program="program_name")
    def function(
        self,
        program_name: str | None = None,
        *,
        inputs: Named | Iterable[Named],
        outputs: Named | Iterable[Named],
    ) -> Lowered:
        """What `run` runs as a pure function of some variables to others, apart from the engine's state.

        Values go in and come out in logical order, whatever the engine's execution. The arguments and errors are
        those of `lower`.
        """
        return self._machine.function(chosen_program(self._programs, program_name), inputs, outputs)

    def __repr__(self) -> str:
        return f"<Engine on {self.graph.target}: {self.graph!r}>"

    def _repr_html_(self) -> str:
        rows = []
        for variable in self._names.variables:
            flags = self._state.written.flags(variable)
            held = "all" if flags.all() else "some" if flags.any() else "none"
            rows.append((variable.name, type_text(variable.dtype, variable.shape), held))
        programs = {name: loaded.program for name, loaded in self._programs.items()}
        return as_html(repr(self), as_table(("variable", "type", "elements with a value"), rows), programs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle: the graph, the programs, and the state. Nothing is connected to the streams of a copy."""
        programs = {name: loaded.program for name, loaded in self._programs.items()}
        options = {**self._options, "mesh": saved_mesh(self._options["mesh"])}
        return partial(_remade, options), (self.graph, programs, self._ends), dict(self.state)

    def __setstate__(self, state: Mapping[str, np.ndarray]) -> None:
        self.load_state(state)


def _remade(
    options: Mapping[str, Any], graph: Graph, programs: Mapping[str, Any], ends: tuple[Tensor, ...] | None
) -> Engine:
    """A copy of an engine, without its state."""
    engine = Engine(graph, programs, **options)
    engine._ends = ends
    return engine
