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
    """Runs a graph's programs on state that stays loaded. As with Poplar's Engine: write, run, read.

    Args:
        graph: the graph to load, or a `cl.Traced`, with its program. Later changes of the graph do not affect the
            engine.
        program: the program of `run`. Default: all compute sets in the order they were added. A dict of programs by
            name share one state: `engine.run("train")`, `engine.run("predict")`.
        check_finite: refuse host data, and results read, with NaN or infinity.
        stream_bytes: how many bytes of stream values the host buffers at a time. A loop that takes more runs in chunks.
        execution: `"fused"` stores a variable as one array in logical order, and exchange is free. `"tiles"` stores it
            as an array of tiles by words, and runs the planned exchange: see `executions/tile_array.py`. `"addresses"`
            runs in the planned memory of the tiles, forward only, as a proof of the memory plan: see
            `executions/tile_addresses.py`. There the host may read all variables after a run, so that no two share an
            address, as they may in the result of `function`.
        placement: for tiles and addresses, how elements and vertices without a tile are placed: `"balanced"` (the
            fewest cycles), `"linear"`, `"bytes"`, `"rows"` or `"blocks"` (see `machine/place.py`); or a function from
            the plan to its placement.
        mesh: for fused and tiles, a `jax.sharding.Mesh`; its axes are used as one. Default: one device. See
            `executions/mesh_tiles.py`; fused, variables are sharded as by `cl.lower`. If the mesh has devices of
            several processes, all of them make the engine, write to it, run it and read it together, with the same
            values.

    Raises:
        ProgramError: an unknown execution, placement or mesh, or an execution that takes no mesh.
        ProcessesError: another process of the mesh makes an engine that runs something else.
        WriteRaceError and others: the checks of `cl.lower`. Elements that no vertex writes may still be written by the
            host: reading one without a value is an error of `run` and `read`.

    Source: Engine of Poplar's API reference.

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
        """Write host arrays to variables or views of them: all of them, or none if one does not fit.

        Args:
            to: an array for each variable name or tensor: `{"x": x0, y[3:7]: part}`. Later entries overwrite earlier
                ones. Writing to a view keeps the other elements of its variable. With `values`, a pytree of tensors,
                such as `graph.add_variables` returns.
            values: a pytree of arrays with the structure of `to`; or one number, for all elements.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant or for padding.
            NotInGraphError: no variable has this name.
            ViewError: a view that depends on symbols.
            NotFiniteError: NaN or infinity, with `check_finite`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (4,))
        >>> engine = cl.Engine(graph)
        >>> engine.write({x: [1, 2, 3, 4], x[:2]: [0, 0]})
        >>> engine.read(x).tolist()
        [0.0, 0.0, 3.0, 4.0]
        """
        with self._exclusive.use("write"):
            given = to if values is None else by_tensor(to, values)
            self._state = written_to(self._state, self._execution, self._names, given, check=self.check_finite)

    def read(self, variable: Any) -> Any:
        """The value of a variable or a view, as a NumPy array; or all values that the last run sent to a stream,
        stacked.

        It waits for earlier runs.

        A run skips large results that only the program uses and that no run starts with. Reading one runs the program
        once more on the state before the last run; later runs then compute it.

        Args:
            variable: a tensor, the name of a variable, or an output stream; or a pytree of them, such as
                `traced.outputs`, for a pytree of arrays.

        Raises:
            UninitializedReadError: an element that neither the host nor a run has written.
            NotInGraphError: no variable has this name.
            ViewError: a view that depends on symbols.
            StreamError: an input stream.
            NotFiniteError: NaN or infinity, with `check_finite`.

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

        A variable with values in some elements alone is a masked array (`numpy.ma`), with the others masked.
        Connections of streams are excluded.

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
        """Replace the whole state: variables without an entry have no value afterwards.

        Either all values are loaded, or none if one does not fit.

        Args:
            values: an array for each variable, by tensor or name, as `state` returns them; or an open `.npz` file of
                `numpy.load`.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant.
            NotInGraphError: no variable has this name.
            NotFiniteError: NaN or infinity, with `check_finite`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (2,))
        >>> engine = cl.Engine(graph)
        >>> engine.load_state({x: [1, 2]})
        >>> {name: value.tolist() for name, value in engine.state.items()}
        {'x': [1.0, 2.0]}
        """
        with self._exclusive.use("load_state"):
            self._state = restored(self._state, self._execution, self._names, values, check=self.check_finite)

    # --- running --------------------------------------------------------------------------------------

    @accepts(StreamError, by_part=FLAG)
    def connect(self, stream: Stream | str, values: Any, *, by_part: bool = False) -> None:
        """Connect an input stream to its values, or an output stream to a function.

        Each run continues in the values where the last one stopped. No more values are fetched at a time than fit
        `stream_bytes`. If a run raises, the next run sees its stream values again, unless it had consumed more than
        `stream_bytes` of an iterator; the error then says so. A connected function has been called with the values sent
        before the error.

        Args:
            stream: a stream of the graph, or its name.
            values: for an input stream, an array of values stacked along a first axis, which is copied (a
                `numpy.memmap` stays in its file); or an iterable of arrays (a loader, a generator), each of which is
                copied when it is fetched. For an output stream, a function that is called with each value; it may not
                use the engine. Without one, `read` returns all values that the last run sent.
            by_part: True if values of an input stream hold only this process's `part`. Default: every process gives
                whole values, and keeps its part.

        Raises:
            NotInGraphError: an unknown stream.
            StreamError: neither an array, an iterable nor a function.
            ArrayError: values of the wrong shape or dtype.

        Source: Engine::connectStream of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> batches, sums = graph.add_input_stream("batches", (2,)), graph.add_output_stream("sums", ())
        >>> x, y = graph.add_variable("x", (2,)), graph.add_variable("y", ())
        >>> graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x, out=y)
        >>> step = [cl.Copy(batches, x), graph.default_program, cl.Copy(y, sums)]
        >>> engine = cl.Engine(graph, cl.Repeat(2, step))
        >>> engine.connect(batches, np.float32([[1, 2], [3, 4]]))         # or a loader, or a generator
        >>> engine.connect(sums, lambda value: print(value))
        >>> engine.run()
        3.0
        7.0
        """
        with self._exclusive.use("connect"):
            own = self._names.stream(stream)
            self._connections.connect(own, values, self.part(own) if by_part else None)

    def part(self, stream: Stream | str) -> tuple[slice, ...]:
        """The part of each value of an input stream on the devices of this process: `value[engine.part("x")]`.

        It is a part only if the stream feeds whole variables, sharded alike in blocks, over a mesh of several
        processes, and not in tiles execution. Otherwise it is the whole value.

        Args:
            stream: an input stream of the graph, or its name.

        Raises:
            NotInGraphError: an unknown stream.
            StreamError: the part is not contiguous, since devices of other processes lie between.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, batches = graph.add_variable("x", (4,)), graph.add_input_stream("batches", (4,))
        >>> cl.Engine(graph, cl.Copy(batches, x)).part(batches)
        (slice(0, 4, None),)
        """
        return self._execution.part(self._names.stream(stream))

    @old_arguments(program="program_name")
    @accepts(ProgramError, wait=FLAG, progress=FLAG)
    def run(self, program_name: str | None = None, *, wait: bool = False, progress: bool = False) -> None:
        """Run a program once on the state. If it raises, the state is the one before the run.

        `run` dispatches asynchronously, like JAX. The next use of the state waits; a Ctrl-C may surface there.
        Dispatching short runs back to back takes less than half the time: on two CPU cores 31 us instead of 82 for a
        stencil on 256 x 256 points. `run` always waits for output streams, for `AbortOn`, for codelets that call the
        host, and over several devices of a CPU, whose thread pool could not hold several waiting runs.

        A Ctrl-C leaves the state before the run or, if it was dispatched, the state after it. Several threads may use
        one engine; calls are serialised. Use a lock to keep calls together that belong together (write, run, read).

        Args:
            program_name: the name of the program, if the engine has several. The name of a single one is "main".
            wait: return when the run has finished.
            progress: show a bar of the iterations of loops over streams. They then run in at least 20 chunks, and `run`
                waits for each. It needs the extra `progress`.

        Raises:
            UninitializedReadError: a step reads an element that neither the host nor an earlier step has written.
            ProgramError: an unknown name.
            ProgramAbortedError: the program aborts.
            StreamError: a stream is not connected, or ends early; the message says where.
            EngineInUseError: called from a function that a run calls, such as one connected to a stream.
            StateLostError: the device fails in a run that was overwriting the state.
            MissingExtraError: `progress=True` without tqdm.

        Source: Engine::run of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> n = graph.add_variable("n", (), "int32")
        >>> graph.add_vertex("count", cl.codelet(lambda n: {"n": n + 1}), n=n)
        >>> engine = cl.Engine(graph, {"once": graph.default_program, "reset": cl.Copy(0, n)})
        >>> engine.run("reset"); engine.run("once"); engine.run("once")
        >>> int(engine.read(n))
        2
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
        """The memory of a tile: the occupant of each address, and the present values of variables. It prints.

        All variables of the programs keep their memory in this plan, so no two share an address. Addresses are in
        bytes.

        Args:
            tile: its number.

        Raises:
            TileError: a tile that the target does not have.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=1))
        >>> graph.add_vertex("count", cl.codelet(lambda n: {"n": n + 1}), n=graph.add_variable("n", (), "int32"))
        >>> engine = cl.Engine(graph)
        >>> engine.write({"n": 40})
        >>> print(str(engine.read_tile(0)).splitlines()[1].strip())
        0 to        4  n (variables): 1 element, 40
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
            program_name: the name of the program, if the engine has several.
            placement: how elements and vertices without a tile are placed: `"balanced"`, `"linear"`, `"bytes"`,
                `"rows"`, `"blocks"` (see `machine/place.py`), or a function from the program's plan to its placement.
                Default: as the engine does it, for all its programs together.
            host_visible: one or several variables that the host writes before the program and reads after it, as in
                Poplar those with a host write or read. Default: all variables of a graph; the arguments and results of
                a `cl.Traced` that the engine was made of. The other variables may share memory when they are not live
                together. Constants, and variables that are read before they are written, always keep their memory.
            allow_out_of_memory: report a tile that is out of memory instead of raising.

        Returns:
            A `cl.MachinePlan`, which prints.

        Raises:
            OutOfTileMemoryError: a tile needs more than its memory.
            NotInGraphError: no variable has a name in `host_visible`.
            ProgramError: an unknown name or placement, or a function that does not return a placement.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> print(cl.Engine(graph).machine().placement)
        placement on 2 tiles
          x: float32[4]: 4 elements on tile 0
          double/out: float32[4]: 4 elements on tile 0
          double / <lambda>: 4 vertices on tile 0
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
        """The cost of a program on the machine: cycles by step, bytes by tile. Nothing runs for it.

        Args:
            program_name: the name of the program, if the engine has several.
            placement: as of `machine`.
            host_visible: as of `machine`.
            allow_out_of_memory: as of `machine`.

        Returns:
            A `cl.Profile`.

        Raises:
            OutOfTileMemoryError, NotInGraphError, ProgramError: as of `machine`.
            CyclesError: a codelet's `cycles=` or `trip_count=` fails.

        Source: Engine::getProfile and printProfileSummary of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> cl.Engine(graph).profile()
        <Profile on IPU('mk2', num_tiles=2): 122 cycles>
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
        """The program as a pure function of arrays, independent of the engine's state.

        Arrays are in logical order, in every execution.

        Args:
            program_name: the name of the program, if the engine has several.
            inputs: the variables that are arguments, one or several, by tensor or name.
            outputs: the views that are results, one or several, by tensor or name.

        Returns:
            A `cl.Lowered`, as `cl.lower` returns it.

        Raises:
            ProgramError, ForeignGraphError, UninitializedReadError: as of `cl.lower`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> run = cl.Engine(graph, execution="tiles").function(inputs=x, outputs=y)
        >>> run({x: jnp.arange(4.0)})[y].tolist()
        [0.0, 2.0, 4.0, 6.0]
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
