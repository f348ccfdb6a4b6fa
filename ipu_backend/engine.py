"""The engine: a graph loaded on the machine. State lives on it between runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import (
    ArrayError,
    NotFiniteError,
    NotInGraphError,
    ProgramAbortedError,
    ProgramError,
    StreamError,
    TileError,
    UninitializedReadError,
)
from codelet.graph import Graph
from codelet.hostdata import as_array
from codelet.program import Program, Stream, as_program, check_program
from codelet.tensor import Tensor, Variable
from ipu_backend.profile import Profile
from ipu_backend.profile_plan import profile_machine
from ipu_backend.streaming import Chunks, Connections, Part, Together, split
from ipu_backend.tile_addresses import compile_addresses
from ipu_backend.tile_array import TileArray, compile_held, compile_logical, digest, held_type
from ipu_backend.tile_memory import TileMemory, read_tile
from lowering.check import check, check_initialized
from lowering.dataflow import ElementSet, flow_step
from lowering.emit_steps import Execution
from lowering.lower import Lowered, lower_graph, lower_plan, named_variables, whole_variable
from lowering.memory import Memory
from lowering.pipeline import MachinePlan, compile_plan, plan_engine, plan_machine, plan_part
from lowering.place import place
from lowering.placement import Placement
from lowering.plan import Plan, Step
from lowering.streams import count_values
from lowering.timeline import without_calls

State = dict[str, Any]
"""What is held of every variable that has a value, by name."""

Place = Literal["balanced", "linear"] | Callable[[Plan], Placement]
"""How a plan is placed; see `lowering/place.py`. A function is given the plan without calls."""


class _Compiled:
    """Some steps, jitted: state, values of streams and tables in; the variables they write, and what they send, out."""

    def __init__(self, plan: Plan, execution: Execution, compile_part: Callable[[Plan], jax_core.ClosedJaxpr]):
        self.plan = plan
        self.execution = execution
        self.counts = count_values(plan.steps)
        self.closed = compile_part(plan)
        self.inputs = [variable.name for variable in plan.inputs]
        self.written = [tensor.source.name for tensor in plan.outputs]  # type: ignore[union-attr]
        self.fed = [stream for stream in plan.streams if stream.is_input]
        self.sent = [stream for stream in plan.streams if not stream.is_input]
        self.donating, self.keeping = jax.jit(self._step, donate_argnums=0), jax.jit(self._step)

    def _step(
        self, changing: State, kept: State, feeds: Sequence[Any], tables: Sequence[Any]
    ) -> tuple[State, Any, Any]:
        state = {**changing, **kept}
        run = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(self.closed.jaxpr, list(tables)))
        results = run(*(state[name] for name in self.inputs), *feeds)
        flag = results.pop() if self.plan.abort is not None else None
        return dict(zip(self.written, results[: len(self.written)], strict=True)), results[len(self.written) :], flag

    def run(self, state: State, own: set[str], connections: Connections) -> None:
        """Run the steps on a state, which is changed in place; arrays named in `own` may be overwritten.

        Raises:
            ProgramAbortedError: the steps abort.
        """
        for variable in self.plan.inputs:
            if variable.name not in state:
                kind = held_type(self.execution, variable)
                state[variable.name] = jnp.zeros(kind.shape, kind.dtype)
        feeds = [connections.take(stream, self.counts[stream]) for stream in self.fed]
        changing = {name: state[name] for name in self.written}
        kept = {name: state[name] for name in self.inputs if name not in changing}
        function = self.donating if own.issuperset(changing) else self.keeping
        written, sent, flag = function(changing, kept, feeds, self.closed.consts)
        if flag is not None and int(flag):
            raise ProgramAbortedError(f"the program aborted: {self.plan.messages[int(flag) - 1]}")
        state.update(written)
        own.update(written)
        for stream, values in zip(self.sent, sent, strict=True):
            connections.send(stream, np.asarray(values))


class _Loaded:
    """A program on the engine, compiled part by part when it is first run."""

    def __init__(self, graph: Graph, program: Program, stream_bytes: int):
        self.program = program
        self.execution = Execution()
        self.compile: Callable[[Plan], jax_core.ClosedJaxpr] = compile_plan
        self.plan = plan_engine(graph, program)
        self.parts = split(self.plan.steps, stream_bytes)
        self.checked: ElementSet | None = None  # what had a value before the last run, if it is what has one after
        self._compiled: dict[Any, _Compiled] = {}
        self._first = Variable(graph, "first turn", (), np.dtype(np.int32), -1, graph.num_elements)

    @property
    def may_fail(self) -> bool:
        """Whether a run can end in the middle, so that the state before it must be kept."""
        return self.plan.abort is not None or bool(self.plan.streams)

    def _part(self, key: Any, steps: Sequence[Step], given: Sequence[Variable] = ()) -> _Compiled:
        if key not in self._compiled:
            self._compiled[key] = _Compiled(plan_part(self.plan, steps, given), self.execution, self.compile)
        return self._compiled[key]

    def run(self, state: State, own: set[str], connections: Connections, parts: Sequence[Part] | None = None) -> None:
        """Run the program on a state, which is changed in place; arrays named in `own` may be overwritten."""
        for part in self.parts if parts is None else parts:
            if isinstance(part, Together):
                self._part(part, part.steps).run(state, own, connections)
            elif isinstance(part, Chunks):
                for start in range(0, part.step.count, part.turns):
                    turns = min(part.turns, part.step.count - start)
                    chunk = flow_step(replace(part.step, count=turns, first=self._first))
                    state[self._first.name] = jnp.asarray(start, jnp.int32)
                    self._part((part, turns), [chunk], [self._first]).run(state, own, connections)
            else:
                index = part.step.index
                for turn in range(part.step.count):
                    if index is not None:
                        state[index.name] = self.execution.load(index, jnp.asarray(turn, index.dtype))
                        own.add(index.name)
                    self.run(state, own, connections, part.body)
        state.pop(self._first.name, None)


class Engine:
    """Runs a graph's program on state that it keeps. As Poplar's engine: write, run, read.

    Args:
        graph: what to load; later changes of the graph do not concern the engine.
        program: what `run` runs; all compute sets in the order they were added when left off. Several programs,
            in a dict by name, share one state: `engine.run("train")`, `engine.run("predict")`.
        check_finite: refuse host data, and results read, that hold NaN or infinity.
        stream_bytes: how many bytes of values of streams the host holds at a time. A loop that takes more is run
            in chunks.
        execution: `"fused"` holds a variable as one array in logical order, and exchange costs nothing; `"tiles"`
            holds it as an array of tiles by words, and runs the planned exchange: see `ipu_backend/tile_array.py`;
            `"addresses"` runs it in the planned memory of the tiles, forward only, as a proof of the memory plan: see
            `ipu_backend/tile_addresses.py`. The host may read all variables after a run, so that none shares its
            address with another there, as they do in what `function` makes.
        placement: for tiles and addresses, how what the graph leaves without a tile is placed: `"balanced"` or
            `"linear"`, or a function from the plan to its placement.

    Raises:
        ProgramError: an execution or a placement that there is not.
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
        graph: Graph,
        program: object = None,
        *,
        check_finite: bool = False,
        stream_bytes: int = 1 << 26,
        execution: Literal["fused", "tiles", "addresses"] = "fused",
        placement: Place = "balanced",
    ):
        if execution not in ("fused", "tiles", "addresses"):
            raise ProgramError(
                "there is no such execution", given=f"{execution=!r}", expected="'fused', 'tiles' or 'addresses'"
            )
        self.graph = graph
        self.check_finite = check_finite
        given = graph.default_program if program is None else program
        programs = given if isinstance(given, Mapping) else {"main": given}
        self._programs: dict[str, _Loaded] = {}
        for name, each in programs.items():
            chosen = as_program(each)
            check_program(chosen, graph)
            self._programs[name] = _Loaded(graph, chosen, stream_bytes)
        self._variables = {variable.name: variable for variable in graph.variables}
        self._execution, self._placed = Execution(), None
        if execution != "fused":
            self._placed = self._place(placement)
            if execution == "tiles":
                self._execution = TileArray(self._placed)
            for loaded in self._programs.values():
                loaded.execution = self._execution
                if isinstance(self._execution, TileArray):
                    loaded.compile = partial(compile_held, execution=self._execution)
                else:
                    loaded.compile, loaded.parts = self._compile_addresses, (Together(loaded.plan.steps),)
        self._streams = {stream.name: stream for stream in graph.streams}
        self._connections = Connections()
        self._state: State = {}
        self._written = ElementSet()
        for variable in graph.variables:
            if variable.value is not None:
                self._written.add_variable(variable)

    def _place(self, how: Place) -> Placement:
        """One placement of all programs, which share their variables."""
        plans = [loaded.plan for loaded in self._programs.values()]
        together = without_calls(replace(plans[0], steps=tuple(step for plan in plans for step in plan.steps)))
        return how(together) if callable(how) else place(together, how)

    def _compile_addresses(self, plan: Plan) -> jax_core.ClosedJaxpr:
        assert self._placed is not None
        plan = without_calls(plan)
        return compile_addresses(plan, plan_machine(plan, replace(self._placed, plan=plan)))

    def _program(self, name: str | None) -> _Loaded:
        if name is None and len(self._programs) == 1:
            return next(iter(self._programs.values()))
        if name not in self._programs:
            problem = "the engine has several programs" if name is None else "the engine has no such program"
            names = " or ".join(map(repr, self._programs))
            raise ProgramError(problem, given=name, expected=f"the name of one: {names}" if names else "none")
        return self._programs[name]

    def _stream(self, given: Stream | str) -> Stream:
        stream = self._streams.get(given) if isinstance(given, str) else given
        if stream is None or self._streams.get(stream.name) is not stream:
            raise NotInGraphError(
                "the engine has no such stream", given=given, expected=", ".join(self._streams) or "none"
            )
        return stream

    def _variable(self, given: Tensor | str) -> Variable:
        variable = whole_variable(self.graph, given, "variable")
        if variable.name not in self._variables:
            raise NotInGraphError(f"{variable.name!r} was added after the engine was made", expected="a new Engine")
        return variable

    @cached_property
    def _memory(self) -> Memory:
        """The memory in which every variable that the programs name is kept."""
        placement = self._place("balanced") if self._placed is None else self._placed
        return plan_machine(placement.plan, placement, allow_out_of_memory=True).memory

    def read_tile(self, tile: int) -> TileMemory:
        """A tile's memory: what lies at which address, and the values that variables hold there now. It prints.

        Addresses are those of a memory in which every variable that the programs name is kept.

        Args:
            tile: its number.

        Raises:
            TileError: a tile that the target does not have.
        """
        num_tiles = self.graph.target.num_tiles
        if not 0 <= tile < num_tiles:
            raise TileError("there is no such tile", given=tile, expected=f"0 to {num_tiles - 1}")
        values = {v.name: np.asarray(v.value) for v in self._variables.values() if v.value is not None}
        for name, held in self._state.items():
            values[name] = np.asarray(self._execution.unload(self._variables[name], held))
        return read_tile(self._memory, tile, values)

    def _check_finite(self, variable: Variable, array: Any, what: str) -> None:
        if self.check_finite and jnp.issubdtype(variable.dtype, jnp.inexact):
            bad = np.argwhere(~np.asarray(jnp.isfinite(array)))
            if len(bad):
                where = tuple(bad[0].tolist())
                raise NotFiniteError(
                    f"{what} {variable.name!r} holds a number that is not finite",
                    given=f"{np.asarray(array)[where]} at {list(where)}",
                    expected="finite numbers, since check_finite is on",
                )

    def write(self, values: Mapping[str, Any]) -> None:
        """Write host arrays to whole variables, by name.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant.
            NotInGraphError: a name no variable has.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        for name, value in values.items():
            if name in self._streams:
                raise ArrayError(
                    f"{name!r} is a stream, not a variable", fix=f"engine.connect({name!r}, values) before it runs"
                )
            variable = self._variable(name)
            if variable.value is not None:
                raise ArrayError(f"the host cannot write the constant {name!r}", given=name, expected="a variable")
            array = as_array(value, variable)
            self._check_finite(variable, array, "the array for")
            # A copy: a run donates the state, and the caller's array must outlive it.
            self._state[name] = jnp.array(self._execution.load(variable, array), copy=True)
            self._written.add_variable(variable)

    def connect(self, stream: Stream | str, values: Any) -> None:
        """Say where the values of an input stream come from, or where those of an output stream go.

        Runs go on in what is connected where the last one left off. No more values are taken at a time than fit
        `stream_bytes`.

        Args:
            stream: a stream of the graph, or its name.
            values: for an input stream, an array of values stacked along a first axis, or an iterable of arrays (a
                loader, a generator). For an output stream, a function that is called with each value; without
                one, `read` gives all that the last run sent.

        Raises:
            NotInGraphError: a stream that is not there.
            StreamError: something that gives or takes no values.
            ArrayError: values of the wrong shape or dtype.

        Source: Engine::connectStream of Poplar's API reference.
        """
        self._connections.connect(self._stream(stream), values)

    def run(self, program: str | None = None) -> None:
        """Run a program once on the state. If it raises, the state is what it was before.

        Args:
            program: its name, where the engine has several.

        Raises:
            UninitializedReadError: an element is read that neither the host nor an earlier step has written.
            ProgramAbortedError: the program aborts.
            StreamError: a stream is not connected, or ends early: the message says where.
        """
        loaded = self._program(program)
        if loaded.checked is None or not loaded.checked.equals(self._written):
            written = self._written.copy()
            check_initialized(replace(loaded.plan, outputs=()), written)
            loaded.checked = written if written.equals(self._written) else None
        else:
            written = self._written
        self._connections.begin(loaded.plan.streams)
        state = dict(self._state)
        loaded.run(state, set() if loaded.may_fail else set(self._variables), self._connections)
        self._state, self._written = state, written

    def read(self, variable: Tensor | Stream | str) -> np.ndarray:
        """The value of a whole variable, as a NumPy array; of an output stream, all it sent in the last run, stacked.

        Raises:
            UninitializedReadError: an element of it that neither the host nor a run has written.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        if isinstance(variable, Stream) or (isinstance(variable, str) and variable in self._streams):
            stream = self._stream(variable)
            if stream.is_input:
                raise StreamError(f"{stream.name!r} is an input stream: there is nothing to read", given=stream)
            return self._connections.sent(stream)
        found = self._variable(variable)
        missing = self._written.first_missing(self.graph.variable(found.name), ())
        if missing is not None:
            raise UninitializedReadError(
                f"{self.graph.element_text(missing)} is read by the host before anything has given it a value",
                expected="engine.write or engine.run before",
            )
        array = found.value if found.value is not None else self._execution.unload(found, self._state[found.name])
        self._check_finite(found, array, "the variable")
        return np.array(array)

    def machine(
        self,
        program: str | None = None,
        *,
        placement: Literal["balanced", "linear"] = "balanced",
        keep: Collection[Tensor | str] | None = None,
        allow_out_of_memory: bool = False,
    ) -> MachinePlan:
        """A program planned on the machine: placement, exchange, live ranges and addresses. Nothing runs for it.

        Args:
            program: its name, where the engine has several.
            placement: `"balanced"` or `"linear"`, for what the graph leaves without a tile; see `lowering/place.py`.
            keep: the variables whose values the host writes before the program and reads after it, as in Poplar
                those with a host write or read; all when left off. The memory of the others is shared where they
                are not live together. Constants, and what is read before it is written, are kept anyway.
            allow_out_of_memory: report what a tile cannot hold rather than refuse it.

        Raises:
            OutOfTileMemoryError: a tile would have to hold more than its memory.
            NotInGraphError: a name in `keep` that no variable has.
        """
        plan = self._program(program).plan
        kept = None if keep is None else [self._variable(each) for each in keep]
        return plan_machine(plan, place(plan, placement), keep=kept, allow_out_of_memory=allow_out_of_memory)

    def profile(
        self,
        program: str | None = None,
        *,
        placement: Literal["balanced", "linear"] = "balanced",
        keep: Collection[Tensor | str] | None = None,
        allow_out_of_memory: bool = False,
    ) -> Profile:
        """What a program costs on the machine: cycles by step, bytes by tile. The arguments are as of `machine`.

        Source: Engine::getProfile and printProfileSummary of Poplar's API reference.
        """
        return profile_machine(
            self.machine(program, placement=placement, keep=keep, allow_out_of_memory=allow_out_of_memory)
        )

    def function(
        self,
        *,
        inputs: Sequence[Tensor | Stream | str],
        outputs: Sequence[Tensor | Stream | str],
        program: str | None = None,
    ) -> Lowered:
        """What `run` runs as a pure function of some variables to others, apart from the engine's state.

        Values go in and come out in logical order, whatever the engine's execution. The arguments and errors are
        those of `lower`.
        """
        loaded = self._program(program)
        if self._placed is None:
            return lower_graph(self.graph, loaded.program, inputs, outputs)
        sources, targets = named_variables(self.graph, inputs, outputs)
        plan = check(replace(loaded.plan, inputs=sources, outputs=tuple(self.graph.variable(v.name) for v in targets)))
        if isinstance(self._execution, TileArray):
            return lower_plan(plan, targets, compile_logical(plan, self._execution), self._execution.key)
        return lower_plan(plan, targets, self._compile_addresses(plan), ("addresses", digest(self._placed)))

    def __repr__(self) -> str:
        return f"<Engine on {self.graph.target}: {self.graph!r}>"
