"""Emit steps: a plan as one pure JAX function.

A repeat is a `lax.scan` over those variables its body writes that outlive a turn, a loop on a condition a
`lax.while_loop` (or equinox's checkpointed one), a choice a `lax.switch`, a function a jitted function, traced
once however often it is called. Calls of one function in a row are one `lax.scan` over their arguments
(`lowering/calls.py`). The values of streams come in stacked and are scanned over; those that go out are
stacked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.program import Stream
from codelet.tensor import Tensor, Variable
from lowering import emit as fused
from lowering.calls import Calls, group_calls
from lowering.emit import State
from lowering.forward_only import forward_only
from lowering.plan import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    Plan,
    PrintStep,
    RepeatStep,
    RotateStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
    has_effects,
)
from lowering.rewrite import FUNCTION
from lowering.simplify import trace_simplified
from lowering.streams import count_values
from lowering.views import Array, constant

# --- where values live ----------------------------------------------------------------------------------


class Execution:
    """How values are held and what vertices do: here every variable is one array in logical order.

    Another execution holds variables otherwise; all of them share what this file does with loops, choices,
    functions and streams. What is held of a variable is one array, whatever its shape.
    """

    groups_calls = True
    """Whether calls of one function in a row become a loop."""

    def load(self, variable: Variable, array: Array) -> Array:
        """What is held of a variable, from its value."""
        return array

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, from what is held of it."""
        return held

    def held(self, state: State, variable: Variable) -> Array:
        """What is held of a variable, which may have no value yet."""
        return fused.source_array(state, variable)

    def read(self, state: State, tensor: Tensor) -> Array:
        """The value of a view without symbols."""
        return fused.read_view(state, tensor)

    def write(self, state: State, tensor: Tensor, value: Array) -> None:
        """Write a value to a view without symbols. The state is changed."""
        fused.write_tensor(state, tensor, value)

    def execute(self, state: State, step: ExecuteStep) -> None:
        """Run a compute set. The state is changed."""
        fused.execute(state, step)

    def copy(self, state: State, step: CopyStep) -> None:
        """Copy a view to another. The state is changed."""
        self.write(state, step.destination, self.read(state, step.source))


# The keys in a state of what the emission of steps keeps beside the variables.
_EXECUTION, _FUNCTIONS, _ABORT = object(), object(), object()


def _execution(state: State) -> Execution:
    return state[_EXECUTION]


def _read(state: State, tensor: Tensor) -> Array:
    return _execution(state).read(state, tensor)


def _write(state: State, tensor: Tensor, value: Array) -> None:
    _execution(state).write(state, tensor, value)


def _held(state: State, variable: Variable) -> Array:
    return _execution(state).held(state, variable)


# --- streams ------------------------------------------------------------------------------------------


class _Feed(NamedTuple):
    """The values of an input stream that are there, and how many of them are taken."""

    values: Array
    taken: int = 0


def _between(values: Array, start: int, stop: int) -> Array:
    """Some of the values along the first axis; all of them as they are."""
    return values if (start, stop) == (0, values.shape[0]) else lax.slice_in_dim(values, start, stop)


class _Streams(NamedTuple):
    """What a body copies of streams: the values that go in and those that come out."""

    inputs: tuple[tuple[Stream, int], ...]
    outputs: tuple[tuple[Stream, int], ...]

    def take(self, state: State) -> list[Array]:
        """The next values of every input, which are then taken."""
        taken = []
        for stream, count in self.inputs:
            feed = state[stream]
            taken.append(_between(feed.values, feed.taken, feed.taken + count))
            state[stream] = feed._replace(taken=feed.taken + count)
        return taken

    def take_for(self, state: State, count: int) -> list[Array]:
        """The next values of every input for so many turns, with a first axis of turns."""
        taken = _Streams(tuple((stream, n * count) for stream, n in self.inputs), ()).take(state)
        return [values.reshape(count, n, *s.shape) for values, (s, n) in zip(taken, self.inputs, strict=True)]

    def enter(self, state: State, values: Sequence[Array]) -> None:
        """Give a body its own values."""
        state.update({stream: _Feed(own) for (stream, _), own in zip(self.inputs, values, strict=True)})
        state.update({stream: () for stream, _ in self.outputs})

    def leave(self, state: State) -> list[Array]:
        """What a body has sent."""
        return [sent_values(state, stream) for stream, _ in self.outputs]

    def send(self, state: State, values: Sequence[Array]) -> None:
        """Send what bodies have sent, stacked along any number of first axes."""
        for (stream, _), own in zip(self.outputs, values, strict=True):
            state[stream] = (*state[stream], own.reshape(-1, *stream.shape))


def _streams_of(steps: Sequence[Step]) -> _Streams:
    counts = sorted(count_values(steps).items(), key=lambda item: item[0].name)
    return _Streams(
        tuple((stream, n) for stream, n in counts if stream.is_input),
        tuple((stream, n) for stream, n in counts if not stream.is_input),
    )


def sent_values(state: State, stream: Stream) -> Array:
    """All that was sent to a stream, stacked."""
    parts = state[stream]
    if not parts:
        return jnp.zeros((0, *stream.shape), stream.dtype)
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)


def _stream(state: State, step: StreamStep) -> None:
    stream = step.stream
    if stream.is_input:
        feed = state[stream]
        _write(state, step.tensor, _between(feed.values, feed.taken, feed.taken + 1).reshape(stream.shape))
        state[stream] = feed._replace(taken=feed.taken + 1)
    else:
        state[stream] = (*state[stream], _read(state, step.tensor)[None])


# --- loops and choices ----------------------------------------------------------------------------------


def _rotate(state: State, step: RotateStep) -> None:
    arrays = [_held(state, variable) for variable in step.variables]
    state.update(zip(step.variables, [arrays[-1], *arrays[:-1]], strict=True))


def _repeat(state: State, step: RepeatStep) -> None:
    if step.count == 0:
        return
    carried, counter = step.writes if step.carried is None else step.carried, step.index
    streams = _streams_of(step.body)

    def turn(values: list[Array], fed: tuple[Array | None, list[Array]]) -> tuple[list[Array], list[Array]]:
        number, feeds = fed
        inner = dict(state)
        inner.update(zip(carried, values, strict=True))
        if counter is not None:
            assert number is not None
            inner[counter] = _execution(state).load(counter, number)
        streams.enter(inner, feeds)
        emit_steps(inner, step.body)
        return [inner[variable] for variable in carried], streams.leave(inner)

    numbers = None if counter is None else lax.iota(counter.dtype, step.count)
    if numbers is not None and not (isinstance(step.first, int) and step.first == 0):
        first = state[step.first] if isinstance(step.first, Variable) else step.first
        numbers = lax.add(numbers, jnp.asarray(first, numbers.dtype))
    feeds = streams.take_for(state, step.count)
    start = [_held(state, variable) for variable in carried]
    # After as many turns as bring every array back to its place, XLA finds each in its own buffer: no copies.
    turns = math.lcm(*(len(part.variables) for part in step.body if isinstance(part, RotateStep)))
    values, sent = lax.scan(turn, start, (numbers, feeds), length=step.count, unroll=turns)
    state.update(zip(carried, values, strict=True))
    streams.send(state, sent)


def _while(state: State, step: WhileStep) -> None:
    emit_steps(state, step.condition)
    carried = step.writes

    def inside(values: Sequence[Array]) -> State:
        inner = dict(state)
        inner.update(zip(carried, values, strict=True))
        return inner

    def holds(values: Sequence[Array]) -> Array:
        inner = inside(values)
        goes_on = (_read(inner, step.predicate) != 0) != step.until
        raised = [inner[variable] for variable in carried if variable is state.get(_ABORT)]
        return goes_on & (raised[0] == 0) if raised else goes_on

    def turn(values: Sequence[Array]) -> list[Array]:
        inner = inside(values)
        emit_steps(inner, step.body)
        emit_steps(inner, step.condition)
        return [inner[variable] for variable in carried]

    start = [_held(state, variable) for variable in carried]
    if step.max_steps is None:
        values = [
            forward_only(value, str(step.predicate)) if jnp.issubdtype(value.dtype, jnp.inexact) else value
            for value in lax.while_loop(holds, turn, start)
        ]
    else:
        # The loop's own derivative rule hides its body from the rules on what was emitted.
        body = trace_simplified(turn, start, inlined=step.max_steps == 1)
        run = lambda values: jax_core.jaxpr_as_fun(body)(*values)  # noqa: E731
        values = eqxi.while_loop(holds, run, start, max_steps=step.max_steps, kind="checkpointed")
    state.update(zip(carried, values, strict=True))
    if step.abort is not None:
        _raise_flag(state, step.abort, holds(values), step.code)


def _range(dtype: np.dtype) -> tuple[int, int]:
    """The least and the greatest value of a control."""
    return (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _switch(state: State, step: SwitchStep) -> None:
    written, streams = step.writes, _streams_of(step.branches[0])
    control, feeds = _read(state, step.control), streams.take(state)
    if not written and not has_effects(step):
        return

    def branch(steps: Sequence[Step]) -> Callable[[], tuple[list[Array], list[Array]]]:
        def run() -> tuple[list[Array], list[Array]]:
            inner = dict(state)
            streams.enter(inner, feeds)
            emit_steps(inner, steps)
            return [_held(inner, variable) for variable in written], streams.leave(inner)

        return run

    number = jnp.full((), len(step.values), jnp.int32)
    least, most = _range(control.dtype)
    for k, value in enumerate(step.values):
        if least <= value <= most:  # another would be compared with what is left of it in the control's dtype
            number = jnp.where(control == jnp.asarray(value, control.dtype), k, number)
    values, sent = lax.switch(number, [branch(steps) for steps in step.branches])
    state.update(zip(written, values, strict=True))
    streams.send(state, sent)


# --- functions --------------------------------------------------------------------------------------------


class _Jitted(NamedTuple):
    """A function of the graph as JAX runs it: from tables, what is held of variables and values of streams to these."""

    call: Callable[..., list[Array]]
    tables: list[Any]
    streams: _Streams


def _jitted(state: State, function: FunctionBody, reads: Sequence[Variable], values: Sequence[Array]) -> _Jitted:
    """A function, traced for what is held of what it reads and writes."""
    made: dict[FunctionBody, _Jitted] = state[_FUNCTIONS]
    if function not in made:
        streams = _streams_of(function.body)

        def run(values: Sequence[Array], feeds: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            inner: State = {key: state[key] for key in (_EXECUTION, _FUNCTIONS, _ABORT)}
            inner.update(zip(reads, values, strict=True))
            streams.enter(inner, feeds)
            emit_steps(inner, function.body)
            return [inner[variable] for variable in function.writes], streams.leave(inner)

        structs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
        feeds = [jax.ShapeDtypeStruct((n, *stream.shape), stream.dtype) for stream, n in streams.inputs]
        closed = trace_simplified(run, structs, feeds, inlined=True)

        def call(tables: Sequence[Any], *arrays: Array) -> list[Array]:
            return jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, list(tables)))(*arrays)

        call.__name__ = FUNCTION + function.name
        made[function] = _Jitted(jax.jit(call), list(closed.consts), streams)
    return made[function]


def _call(state: State, step: CallStep) -> None:
    function, execution = step.function, _execution(state)
    given = dict(zip(function.parameters, step.arguments, strict=True))
    # What a function writes only in part keeps the rest.
    reads = tuple(dict.fromkeys((*function.reads, *function.writes)))
    values = [execution.load(v, _read(state, given[v])) if v in given else _held(state, v) for v in reads]
    jitted = _jitted(state, function, reads, values)
    results = jitted.call(jitted.tables, *values, *jitted.streams.take(state))
    made = dict(zip(function.writes, results, strict=False))
    state.update({variable: held for variable, held in made.items() if variable not in given})
    for variable, held in made.items():
        if variable in given:
            _write(state, given[variable], execution.unload(variable, held))
    jitted.streams.send(state, results[len(made) :])


def _calls(state: State, calls: Calls) -> None:
    """Calls of one function in a row: a scan over what differs between them."""
    function = calls.function
    streams = _streams_of(function.body)
    kept = [variable for variable in function.writes if variable not in function.parameters]

    def turn(carried: tuple[list[Array], list[Array]], fed: tuple[list[Array], list[Array]]) -> tuple[Any, Any]:
        own, others = carried
        stacked, feeds = fed
        inner = dict(state)
        inner.update(zip(kept, others, strict=True))
        inner.update(zip(calls.carried, own, strict=True))
        inner.update(zip(calls.stacked, stacked, strict=True))
        inner.update(shared)
        streams.enter(inner, feeds)
        emit_steps(inner, function.body)
        passed = [inner[calls.passed_on.get(variable, variable)] for variable in calls.carried]
        made = [inner[variable] for variable in calls.collected]
        return (passed, [inner[variable] for variable in kept]), (made, streams.leave(inner))

    shared = {variable: _read(state, tensor) for variable, tensor in calls.shared.items()}
    stacked = [_read(state, tensor) for tensor in calls.stacked.values()]
    feeds = streams.take_for(state, calls.count)
    start = (
        [_read(state, tensor) for tensor in calls.carried.values()],
        [_held(state, variable) for variable in kept],
    )
    (own, others), (made, sent) = lax.scan(turn, start, (stacked, feeds), length=calls.count)
    state.update(zip(kept, others, strict=True))
    for (variable, tensor), value in zip(calls.carried.items(), own, strict=True):
        if variable in function.writes and variable not in calls.passed_on:
            _write(state, tensor, value)
    for tensor, value in zip(calls.collected.values(), made, strict=True):
        _write(state, tensor, value)
    streams.send(state, sent)


# --- the rest -----------------------------------------------------------------------------------------------


def _raise_flag(state: State, flag: Variable, condition: Array, code: int) -> None:
    state[flag] = jnp.where((state[flag] == 0) & condition, jnp.asarray(code, flag.dtype), state[flag])


def _print(state: State, step: PrintStep) -> None:
    # The text is an argument: JAX prints a format that begins with an escaped brace as it stands.
    jax.debug.print("{}: {}", step.text, _read(state, step.tensor))


def emit_steps(state: State, steps: Sequence[Step]) -> None:
    """Run steps on a state, which maps every variable given so far to its array and is changed in place."""
    for step in group_calls(steps) if _execution(state).groups_calls else steps:
        match step:
            case ExecuteStep():
                _execution(state).execute(state, step)
            case CopyStep():
                _execution(state).copy(state, step)
            case RotateStep():
                _rotate(state, step)
            case RepeatStep():
                _repeat(state, step)
            case WhileStep():
                _while(state, step)
            case SwitchStep():
                _switch(state, step)
            case Calls():
                _calls(state, step)
            case CallStep():
                _call(state, step)
            case PrintStep():
                _print(state, step)
            case AbortStep():
                _raise_flag(state, step.abort, _read(state, step.predicate) != 0, step.code)
            case StreamStep():
                _stream(state, step)
            case UndefStep():
                pass  # what nobody reads needs no value


def emit(plan: Plan, execution: Execution | None = None) -> Callable[..., list[Array]]:
    """The plan as a pure function.

    Args:
        plan: what to run.
        execution: how values are held; in logical order when left off.

    Returns:
        A function from what is held of the plan's inputs, and then the values of its input streams, stacked, to
        the values of its outputs, then those of its output streams, stacked, and last, where anything aborts, the
        flag of `Plan.abort`. An output that is a whole variable comes as it is held.
    """
    incoming = [stream for stream in plan.streams if stream.is_input]
    outgoing = [stream for stream in plan.streams if not stream.is_input]
    how = Execution() if execution is None else execution

    def run(*arrays: Array) -> list[Array]:
        state: State = {_EXECUTION: how, _FUNCTIONS: {}, _ABORT: plan.abort}
        for variable in plan.variables:
            if variable.value is not None:
                small = variable.size <= fused.SMALL
                value = jnp.asarray(variable.value) if small else constant(variable.value)
                state[variable] = how.load(variable, value)
        state.update(zip(plan.inputs, arrays, strict=False))
        state.update({stream: _Feed(array) for stream, array in zip(incoming, arrays[len(plan.inputs) :], strict=True)})
        state.update(dict.fromkeys(outgoing, ()))
        if plan.abort is not None:
            state[plan.abort] = jnp.zeros((), plan.abort.dtype)
        emit_steps(state, plan.steps)
        results = [_output(state, tensor) for tensor in plan.outputs]
        results += [sent_values(state, stream) for stream in outgoing]
        return results if plan.abort is None else [*results, state[plan.abort]]

    return run


def _output(state: State, tensor: Tensor) -> Array:
    if tensor.is_whole_variable:
        assert isinstance(tensor.source, Variable)
        return _held(state, tensor.source)
    return _read(state, tensor)
