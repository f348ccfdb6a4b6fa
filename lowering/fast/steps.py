"""Emit steps: a plan as one pure JAX function.

A repeat is a `lax.scan` over those variables its body writes that outlive a turn, a loop on a condition a
`lax.while_loop` (or equinox's checkpointed one), a choice a `lax.switch`, a function a jitted function, traced
once however often it is called. Calls of one function in a row are one `lax.scan` over their arguments
(`lowering/fast/calls.py`). The values of streams come in stacked and are scanned over; those that go out are
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

from codelet.programs.copies import Stream
from codelet.views.tensor import Tensor, Variable
from lowering.arrays import Array, constant
from lowering.check.nesting import nesting_told
from lowering.fast import compute_sets as fused
from lowering.fast.calls import Calls, group_calls
from lowering.fast.compute_sets import State
from lowering.fast.feeds import Streams, all_sent, begin_streams, inherit_streams, receive, send, streams_of
from lowering.fast.forward_only import forward_only
from lowering.jaxprs.equations import FUNCTION
from lowering.jaxprs.simplify import trace_simplified
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
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
from lowering.plan.streams import Sent

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


def _held(state: State, kept: Variable | Stream) -> Any:
    """What is held of a variable, or of what was sent to a stream so far."""
    return state[kept] if isinstance(kept, Stream) else _execution(state).held(state, kept)


def _stream(state: State, step: StreamStep) -> None:
    if step.stream.is_input:
        _write(state, step.tensor, receive(state, step.stream))
    else:
        send(state, step.stream, _read(state, step.tensor))


# --- loops and choices ----------------------------------------------------------------------------------


def _rotate(state: State, step: RotateStep) -> None:
    arrays = [_held(state, variable) for variable in step.variables]
    state.update(zip(step.variables, [arrays[-1], *arrays[:-1]], strict=True))


def _repeat(state: State, step: RepeatStep) -> None:
    if step.count == 0:
        return
    counter, streams = step.index, streams_of(state, step.body)
    carried = (*(step.writes if step.carried is None else step.carried), *streams.passed_on)

    def turn(values: list[Any], fed: tuple[Array | None, list[Array]]) -> tuple[list[Any], list[Array]]:
        number, feeds = fed
        inner = dict(state)
        inner.update(zip(carried, values, strict=True))
        if counter is not None:
            assert number is not None
            inner[counter] = _execution(state).load(counter, number)
        streams.enter(inner, feeds)
        emit_steps(inner, step.body)
        return [inner[kept] for kept in carried], streams.leave(inner)

    numbers = None if counter is None else lax.iota(counter.dtype, step.count)
    if numbers is not None and not (isinstance(step.first, int) and step.first == 0):
        first = state[step.first] if isinstance(step.first, Variable) else step.first
        numbers = lax.add(numbers, jnp.asarray(first, numbers.dtype))
    feeds = streams.take_for(state, step.count)
    start = [_held(state, kept) for kept in carried]
    # After as many turns as bring every array back to its place, XLA finds each in its own buffer: no copies.
    turns = math.lcm(*(len(part.variables) for part in step.body if isinstance(part, RotateStep)))
    values, sent = lax.scan(turn, start, (numbers, feeds), length=step.count, unroll=turns)
    state.update(zip(carried, values, strict=True))
    streams.send(state, sent)


def _while(state: State, step: WhileStep) -> None:
    emit_steps(state, step.condition)
    carried = (*step.writes, *streams_of(state, step.condition, step.body).passed_on)

    def inside(values: Sequence[Any]) -> State:
        inner = dict(state)
        inner.update(zip(carried, values, strict=True))
        return inner

    def holds(values: Sequence[Any]) -> Array:
        inner = inside(values)
        goes_on = (_read(inner, step.predicate) != 0) != step.until
        raised = [inner[kept] for kept in carried if kept is state.get(_ABORT)]
        return goes_on & (raised[0] == 0) if raised else goes_on

    def turn(values: Sequence[Any]) -> list[Any]:
        inner = inside(values)
        emit_steps(inner, step.body)
        emit_steps(inner, step.condition)
        return [inner[kept] for kept in carried]

    start = [_held(state, kept) for kept in carried]
    if step.max_steps is None:
        values = [
            forward_only(value, str(step.predicate)) if jnp.issubdtype(value.dtype, jnp.inexact) else value
            for value in lax.while_loop(holds, turn, start)
        ]
    else:
        # The loop's own derivative rule hides its body from the rules on what was emitted.
        body = trace_simplified(turn, start, inlined=step.max_steps == 1)
        kinds = jax.tree.structure(start)
        run = lambda values: jax.tree.unflatten(kinds, jax_core.jaxpr_as_fun(body)(*jax.tree.leaves(values)))  # noqa: E731
        values = eqxi.while_loop(holds, run, start, max_steps=step.max_steps, kind="checkpointed")
    state.update(zip(carried, values, strict=True))
    if step.abort is not None:
        _raise_flag(state, step.abort, holds(values), step.code)


def _range(dtype: np.dtype) -> tuple[int, int]:
    """The least and the greatest value of a control."""
    return (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _switch(state: State, step: SwitchStep) -> None:
    streams = streams_of(state, *step.branches)
    written = (*step.writes, *streams.passed_on)
    control, feeds = _read(state, step.control), streams.take(state)
    if not written and not has_effects(step):
        return

    def branch(steps: Sequence[Step]) -> Callable[[], tuple[list[Any], list[Array]]]:
        def run() -> tuple[list[Any], list[Array]]:
            inner = dict(state)
            streams.enter(inner, feeds)
            emit_steps(inner, steps)
            return [_held(inner, kept) for kept in written], streams.leave(inner)

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
    """A function of the graph as JAX runs it: from tables, what is held of variables and values of streams to these.

    What is sent to streams that are passed on stands behind the variables, on both sides.
    """

    call: Callable[..., Any]
    tables: list[Any]
    streams: Streams


def _jitted(state: State, function: FunctionBody, reads: Sequence[Variable], values: Sequence[Array]) -> _Jitted:
    """A function, traced for what is held of what it reads and writes."""
    made: dict[FunctionBody, _Jitted] = state[_FUNCTIONS]
    if function not in made:
        streams = streams_of(state, function.body)

        def run(values: Sequence[Array], sent: Sequence[Sent], feeds: Sequence[Array]) -> Any:
            inner: State = {key: state[key] for key in (_EXECUTION, _FUNCTIONS, _ABORT)}
            inner.update(inherit_streams(state))
            inner.update(zip(reads, values, strict=True))
            inner.update(zip(streams.passed_on, sent, strict=True))
            streams.enter(inner, feeds)
            emit_steps(inner, function.body)
            written = [inner[variable] for variable in function.writes]
            return written, [inner[stream] for stream in streams.passed_on], streams.leave(inner)

        sent = [state[stream] for stream in streams.passed_on]
        structs = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), (list(values), sent))
        feeds = [jax.ShapeDtypeStruct((n, *stream.shape), stream.dtype) for stream, n in streams.inputs]
        results = jax.tree.structure(([0] * len(function.writes), [Sent(0, 0)] * len(sent), [0] * len(streams.outputs)))  # type: ignore[arg-type]
        closed = trace_simplified(run, *structs, feeds, inlined=True)

        def call(tables: Sequence[Any], *given: Any) -> Any:
            own = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, list(tables)))
            return jax.tree.unflatten(results, own(*jax.tree.leaves(given)))

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
    streams = jitted.streams
    sent = [state[stream] for stream in streams.passed_on]
    written, sent, left = jitted.call(jitted.tables, values, sent, streams.take(state))
    made = dict(zip(function.writes, written, strict=True))
    state.update({variable: held for variable, held in made.items() if variable not in given})
    state.update(zip(streams.passed_on, sent, strict=True))
    for variable, held in made.items():
        if variable in given:
            _write(state, given[variable], execution.unload(variable, held))
    streams.send(state, left)


def _calls(state: State, calls: Calls) -> None:
    """Calls of one function in a row: a scan over what differs between them."""
    function = calls.function
    streams = streams_of(state, function.body)
    kept = [*(variable for variable in function.writes if variable not in function.parameters), *streams.passed_on]

    def turn(carried: tuple[list[Array], list[Any]], fed: tuple[list[Array], list[Array]]) -> tuple[Any, Any]:
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
        return (passed, [inner[own] for own in kept]), (made, streams.leave(inner))

    shared = {variable: _read(state, tensor) for variable, tensor in calls.shared.items()}
    stacked = [_read(state, tensor) for tensor in calls.stacked.values()]
    feeds = streams.take_for(state, calls.count)
    start = (
        [_read(state, tensor) for tensor in calls.carried.values()],
        [_held(state, own) for own in kept],
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
        the values of its outputs, then those of its output streams, stacked, as `sent_by_stream` takes them apart,
        and last, where anything aborts, the flag of `Plan.abort`. An output that is a whole variable comes as it is
        held.
    """
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
        begin_streams(state, plan.steps, plan.streams, arrays[len(plan.inputs) :])
        if plan.abort is not None:
            state[plan.abort] = jnp.zeros((), plan.abort.dtype)
        with nesting_told(plan.steps):
            emit_steps(state, plan.steps)
        results = [_output(state, tensor) for tensor in plan.outputs]
        results += [array for stream in outgoing for array in all_sent(state, stream)]
        return results if plan.abort is None else [*results, state[plan.abort]]

    return run


def _output(state: State, tensor: Tensor) -> Array:
    if tensor.is_whole_variable:
        assert isinstance(tensor.source, Variable)
        return _held(state, tensor.source)
    return _read(state, tensor)
