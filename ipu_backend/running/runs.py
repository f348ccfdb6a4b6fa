"""Running: a program on an engine's state, compiled part by part when it first runs.

In come the arrays of a state, by variable, and out come those after the program. The arrays that came in are kept,
so that a run that raises has changed nothing, except where nothing in the program can raise: then it writes in place.
To keep them always was measured, on two CPU cores, as a multiple of the time in place: with a stencil, a step there
and back in each run, 0.9 at 512 KiB of state, 1.6 at 1 MiB, 7 at 2 MiB, 4 at 32 MiB, for new memory has to be had
from the system; with training steps, which compute more, 1.00 to 1.04.

What a program makes for itself alone, and no run begins with, is left out where it is much. A run that returned all of
it would write every intermediate value to memory. It is made when the host asks for it, by the same run again, and kept
by the runs that follow.
"""

from __future__ import annotations

import operator
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import ProgramAbortedError
from codelet.graphs.graph import Graph
from codelet.jaxprs.equations import inner_jaxprs
from codelet.programs.program import Program
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from ipu_backend.running.engine_state import EngineState, Later, read_view
from ipu_backend.running.progress import CHUNKS
from ipu_backend.running.streaming import Choice, Chunks, Connections, Part, Rounds, Together, split
from lowering.check.initialized import read_and_written
from lowering.fast.execution import Execution
from lowering.pipeline import compile_plan, plan_engine, plan_part
from lowering.plan.dataflow import flow_step
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import Step
from lowering.plan.streams import Sent, copied_by_stream, count_values, unsure_inputs
from lowering.plan.timeline import without_calls
from lowering.platforms import platform_now

Arrays = dict[Variable, Any]
"""What is held of variables."""

_CALLS_HOST = ("pure_callback", "io_callback", "debug_callback", "debug_print", "ffi_call")


def _names_host(jaxpr: jax_core.Jaxpr) -> bool:
    return any(
        equation.primitive.name in _CALLS_HOST or any(map(_names_host, inner_jaxprs(equation)))
        for equation in jaxpr.eqns
    )


def calls_host(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether anything in a jaxpr calls a function of the host, which may raise.

    Effects of what it holds within are its as well; inside of `jax.shard_map`, to use a mesh is one.
    """
    return bool(jaxpr.effects) or _names_host(jaxpr)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done; what it does must be quick, or wait where nothing hears it anyway."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pressed: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(*pressed[0])


_first = operator.itemgetter(0)


LEAST_LEFT_OUT = 1 << 16
"""Bytes that a program makes for itself alone, from which on a run leaves them out."""


class CompiledPart:
    """Some steps, jitted: state, values of streams and tables in; the variables they write, and what they send, out."""

    def __init__(self, plan: Plan, execution: Execution, compile_part: Callable[[Plan], jax_core.ClosedJaxpr]):
        self.plan = plan
        self.execution = execution
        self.counts = count_values(plan.steps)
        self.closed = compile_part(plan)
        self.calls_host = calls_host(self.closed.jaxpr)
        self.inputs = plan.inputs
        self.written: tuple[Variable, ...] = tuple(tensor.source for tensor in plan.outputs)  # type: ignore[misc]
        self.fed = [stream for stream in plan.streams if stream.is_input]
        self.sends = any(not stream.is_input for stream in plan.streams)
        self.changed = tuple(variable for variable in self.written if variable in self.inputs)
        self.kept = tuple(variable for variable in self.inputs if variable not in self.written)
        self.in_place, self.keeping = jax.jit(self._step, donate_argnums=0), jax.jit(self._step)
        self._was_in_place = False

    def _step(
        self, changing: Sequence[Any], kept: Sequence[Any], feeds: Sequence[Any], tables: Sequence[Any]
    ) -> tuple[list[Any], list[Any], Any]:
        arrays = dict(zip((*self.changed, *self.kept), (*changing, *kept), strict=True))
        run = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(self.closed.jaxpr, list(tables)))
        results = run(*(arrays[variable] for variable in self.inputs), *feeds)
        flag = results.pop() if self.plan.abort is not None else None
        return results[: len(self.written)], results[len(self.written) :], flag

    def arguments(self, arrays: Arrays, connections: Connections) -> tuple[Any, ...]:
        """What `_step` takes, zeros where a variable has no value yet; values of streams are then taken."""
        for variable in self.inputs:
            if variable not in arrays:
                arrays[variable] = self.execution.blank(variable)
            elif isinstance(held := arrays[variable], Later):
                arrays[variable] = held.of(variable)
        feeds = [self.execution.feed(stream, connections.take(stream, self.counts[stream])) for stream in self.fed]
        return [arrays[v] for v in self.changed], [arrays[v] for v in self.kept], feeds, self.closed.consts

    def run_in_place(self, arrays: Arrays, connections: Connections, made: list[Sequence[Any]]) -> None:
        """Run the steps on arrays, of which those that are written may be gone once `made` has what they become."""
        arguments = self.arguments(arrays, connections)
        # A signal is heard between one step of Python and the next. What C has called and put into the list is kept:
        # only the first call is made of Python too. It is compiled before, which takes long and can be interrupted.
        if not self._was_in_place:
            self.in_place.lower(*arguments).compile()
        with nullcontext() if self._was_in_place else uninterrupted():
            made.extend(map(_first, map(self.in_place, *([argument] for argument in arguments))))
        self._was_in_place = True

    def run(self, arrays: Arrays, own: set[Variable], connections: Connections, *, wait: bool) -> None:
        """Run the steps on arrays, which are changed; those of variables in `own` may be overwritten.

        Raises:
            ProgramAbortedError: the steps abort.
        """
        arguments = self.arguments(arrays, connections)
        self.finish(arguments, arrays, own, connections, wait=wait)

    def finish(
        self, arguments: tuple[Any, ...], arrays: Arrays, own: set[Variable], connections: Connections, *, wait: bool
    ) -> None:
        """Run the steps on arguments, of which those of variables in `own` may be overwritten."""
        function = self.keeping if not own.issuperset(self.changed) else self.in_place
        written, sent, flag = function(*arguments)
        if self.calls_host or wait:
            jax.block_until_ready((written, sent))
        if self.calls_host:
            jax.effects_barrier()
        if flag is not None and int(flag):
            raise ProgramAbortedError(f"the program aborted: {self.plan.messages[int(flag) - 1]}")
        arrays.update(zip(self.written, written, strict=True))
        own.update(self.written)
        for stream, values in copied_by_stream(self.plan, sent).items() if self.sends else ():
            some = values.values[: int(values.count)] if isinstance(values, Sent) else values
            connections.send(stream, np.asarray(some))


@dataclass(frozen=True, eq=False)
class Runs:
    """How a run goes: the parts, and what is called when iterations of loops over streams are done.

    Attributes:
        parts: what runs, in order.
        done: called with how many iterations more; None where nobody looks.
    """

    parts: tuple[Part, ...]
    done: Callable[[int], object] | None = None


class LoadedProgram:
    """A program on the engine.

    Attributes:
        program: what was given.
        plan: what the passes made of it.
        execution: how its variables are stored.
        parts: what runs one after the other.
        asks: whether data decide how many values of input streams it takes. Then it runs in parts, between which the
            engine looks at these data, and asks for no value that is not taken.
        splits: whether it may run in other parts.
        checked: the elements that had a value before the last run, where they are those that have one after it.
        together: the programs that share its state, itself among them.
    """

    def __init__(self, graph: Graph, program: Program, stream_bytes: int):
        self.program = program
        self.stream_bytes = stream_bytes
        self.execution = Execution()
        self.compile: Callable[[Plan], jax_core.ClosedJaxpr] = compile_plan
        self.plan, self._first = plan_engine(graph, program).add_variable("first turn", (), np.dtype(np.int32))
        self.asks = bool(unsure_inputs(self.plan.steps))
        taken_apart = without_calls(self.plan, keep=lambda call: not unsure_inputs(call.function.body))
        self._running = taken_apart if self.asks else self.plan
        self.parts = split(self._running.steps, stream_bytes)
        self.splits = True
        self.checked: ElementSet | None = None
        self.together: Collection[LoadedProgram] = (self,)
        self._asked: set[Variable] = set()
        self._compiled: dict[Any, CompiledPart] = {}

    def _part(self, key: Any, steps: Sequence[Step], given: Sequence[Variable] = ()) -> CompiledPart:
        key = key, platform_now()
        if key not in self._compiled:
            self._compiled[key] = CompiledPart(plan_part(self._running, steps, given), self.execution, self.compile)
        return self._compiled[key]

    def _chunk(self, part: Chunks, turns: int) -> CompiledPart:
        known = self._compiled.get(((part, turns), platform_now()))
        if known is not None:
            return known
        return self._part((part, turns), [flow_step(replace(part.step, count=turns, first=self._first))], [self._first])

    @cached_property
    def finer_parts(self) -> tuple[Part, ...]:
        """The parts with loops over streams in at least `CHUNKS` chunks, as far as they have iterations."""
        return split(self._running.steps, self.stream_bytes, CHUNKS) if self.splits else self.parts

    @cached_property
    def in_place(self) -> CompiledPart | None:
        """The program as one part that may overwrite the state; None where its run can end in the middle.

        It can where it aborts, where it takes from streams or gives to them, and where a codelet calls the host.
        """
        if len(self.parts) != 1 or self.plan.abort is not None or self.plan.streams:
            return None
        assert isinstance(self.parts[0], Together)
        part = self._part(self.parts[0], self.parts[0].steps)
        return None if part.calls_host else part

    @cached_property
    def _begins_and_makes(self) -> tuple[frozenset[Variable], frozenset[Variable]]:
        """The variables that it may read before it writes them, and those of which it writes all before it does."""
        plan = without_calls(self.plan)
        begins, after = read_and_written(plan, [v for v in plan.variables if v.value is not None])
        writes = {variable for step in plan.steps for variable in step.writes} - begins
        return begins, frozenset(v for v in writes if after.flags(v).all())

    @cached_property
    def _left_out(self) -> frozenset[Variable]:
        """What it makes for itself alone, and no program begins with, where running again makes it again.

        What the host has asked for by itself is kept from then on.
        """
        part = self.parts[0] if len(self.parts) == 1 else None
        if not isinstance(part, Together) or type(self.execution) is not Execution or not self.splits:
            return frozenset()
        _, makes = self._begins_and_makes
        begins = frozenset[Variable]().union(*(program._begins_and_makes[0] for program in self.together))
        reads = {variable for step in part.steps for variable in step.reads}
        return (makes & reads) - begins - self._asked

    @cached_property
    def lean(self) -> CompiledPart | None:
        """The program as one part that leaves that out; None where it is little, or a codelet calls the host."""
        if sum(v.size * v.dtype.itemsize for v in self._left_out) < LEAST_LEFT_OUT:
            return None
        (part,) = self.parts
        assert isinstance(part, Together)
        plan = plan_part(self._running, part.steps, (), self._begins_and_makes[1], self._left_out)
        lean = CompiledPart(plan, self.execution, self.compile)
        return None if lean.calls_host else lean

    def _ask(self, variable: Variable) -> None:
        """Have the runs that follow make a variable; which lean part that is, the next of them finds."""
        self._asked.add(variable)
        for name in ("_left_out", "lean"):
            self.__dict__.pop(name, None)

    def _run_lean(self, arrays: Arrays, connections: Connections, *, wait: bool) -> None:
        """Run it without what it makes for itself alone, which is recomputed where it is asked for."""
        lean, (part,) = self.lean, self.parts
        assert lean is not None
        assert isinstance(part, Together)
        changing, kept, feeds, tables = lean.arguments(arrays, connections)
        before = dict(zip((*lean.changed, *lean.kept), (*changing, *kept), strict=True))
        lean.finish((changing, kept, feeds, tables), arrays, set(), connections, wait=wait)

        def make() -> Arrays:
            whole = self._part(part, part.steps)
            given = {v: before[v] if v in before else self.execution.blank(v) for v in whole.inputs}
            changed, others = ([given[v] for v in own] for own in (whole.changed, whole.kept))
            return dict(zip(whole.written, whole.keeping(changed, others, feeds, whole.closed.consts)[0], strict=True))

        arrays |= dict.fromkeys(self._left_out, Later(self._ask, make))

    def run(self, arrays: Arrays, connections: Connections, runs: Runs, *, wait: bool) -> Arrays:
        """Run the program.

        Returns:
            The arrays after. Those before are not changed.
        """
        after = dict(arrays)
        if self.lean is not None and runs.parts is self.parts:
            self._run_lean(after, connections, wait=wait)
            return after
        self._run(after, set(), connections, runs, wait=wait)
        after.pop(self._first, None)
        return after

    def _value(self, arrays: Arrays, tensor: Tensor) -> np.ndarray:
        """What a view without symbols holds now, on the host."""
        return read_view(EngineState(arrays, ElementSet()), self.execution, tensor, check=False)

    def _rounds(
        self, part: Rounds, arrays: Arrays, own: set[Variable], connections: Connections, *, wait: bool
    ) -> None:
        """Go round a loop on a condition.

        Raises:
            ProgramAbortedError: it goes on beyond its bound.
        """
        step, turns = part.step, 0
        self._run(arrays, own, connections, Runs(part.condition), wait=wait)
        while bool(self._value(arrays, step.predicate)) != step.until:
            if turns == step.max_iterations:
                raise ProgramAbortedError(f"the program aborted: {self.plan.messages[step.code - 1]}")
            self._run(arrays, own, connections, Runs(part.body), wait=wait)
            self._run(arrays, own, connections, Runs(part.condition), wait=wait)
            turns += 1

    def _run(self, arrays: Arrays, own: set[Variable], connections: Connections, runs: Runs, *, wait: bool) -> None:
        done, wait = runs.done, wait or runs.done is not None
        for part in runs.parts:
            if isinstance(part, Together):
                self._part(part, part.steps).run(arrays, own, connections, wait=wait)
            elif isinstance(part, Chunks):
                for start in range(0, part.step.count, part.turns):
                    turns = min(part.turns, part.step.count - start)
                    arrays[self._first] = jnp.asarray(start, jnp.int32)
                    self._chunk(part, turns).run(arrays, own, connections, wait=wait)
                    if done is not None:
                        done(turns)
            elif isinstance(part, Rounds):
                self._rounds(part, arrays, own, connections, wait=wait)
            elif isinstance(part, Choice):
                number = int(self._value(arrays, part.step.control))
                chosen = part.step.values.index(number) if number in part.step.values else -1
                self._run(arrays, own, connections, Runs(part.branches[chosen]), wait=wait)
            else:
                index = part.step.index
                for turn in range(part.step.count):
                    if index is not None:
                        arrays[index] = self.execution.load(index, jnp.asarray(turn, index.dtype))
                        own.add(index)
                    self._run(arrays, own, connections, Runs(part.body), wait=wait)
                    if done is not None:
                        done(1)
