"""Steps, emitted: a plan as one pure JAX function.

A repeat is a `lax.scan` over those variables its body writes that outlive an iteration, a loop on a condition a
`lax.while_loop` (with a bound, that of `bounded.py`), a choice a `lax.switch`, a function a jitted function, traced
once however often it is called. Calls of one function in a row are one `lax.scan` over their arguments
(`lowering/fast/calls.py`). The values of streams come in stacked and are scanned over; those that go out are stacked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import FUNCTION
from codelet.programs.control import Revolve
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.arrays import SMALL, Array, constant
from lowering.check.nesting import nesting_told
from lowering.fast.bounded import bounded_while
from lowering.fast.derivatives import with_derivative
from lowering.fast.emission_state import EmissionState, JittedFunction
from lowering.fast.execution import Execution
from lowering.fast.feeds import begin_streams
from lowering.fast.forward_only import forward_only
from lowering.fast.revolved import revolved_scan
from lowering.fast.work import scope_of
from lowering.jaxprs.simplify import trace_simplified
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    AbortStep,
    AddUpStep,
    CallsStep,
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
    handed_on,
)
from lowering.plan.streams import Sent
from lowering.plan.walk import has_effects

# --- loops and choices ----------------------------------------------------------------------------------


def _rotate(state: EmissionState, step: RotateStep) -> None:
    arrays = state.held(step.variables)
    state.put(step.variables, [arrays[-1], *arrays[:-1]])


def _kept_scan(turn: Callable[..., Any], start: Any, fed: Any, count: int, every: int, unroll: int) -> Any:
    """A scan whose derivative keeps what is carried after every so many iterations, and runs the iterations between
    again.
    """
    every = min(every, count)
    several, left = divmod(count, every)

    def part(start: int, stop: int, *shape: int) -> Any:
        return jax.tree.map(lambda own: own[start:stop].reshape(*shape, *own.shape[1:]), fed)

    first = part(0, several * every, several, every)
    some = jax.tree.map(lambda own: own[0], first)
    # What is made again is hidden from the rules on what was emitted.
    body = trace_simplified(lambda *own: lax.scan(turn, *own, length=every, unroll=min(unroll, every)), start, some)
    kinds = jax.tree.structure(jax.eval_shape(lambda *own: lax.scan(turn, *own, length=every), start, some))

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def run(values: Any, own: Any) -> Any:
        return jax.tree.unflatten(kinds, jax_core.jaxpr_as_fun(body)(*jax.tree.leaves((values, own))))

    values, sent = lax.scan(run, start, first, length=several)
    sent = jax.tree.map(lambda own: own.reshape(several * every, *own.shape[2:]), sent)
    if left:
        values, rest = lax.scan(turn, values, part(several * every, count, left), length=left)
        sent = jax.tree.map(lambda a, b: lax.concatenate([a, b], 0), sent, rest)
    return values, sent


def _repeat(state: EmissionState, step: RepeatStep) -> None:
    if step.count == 0:
        return
    counter, streams = step.index, state.streams.of(step.body)
    carried = (*handed_on(step), *streams.passed_on)

    def turn(values: list[Any], fed: tuple[Array | None, list[Array]]) -> tuple[list[Any], list[Array]]:
        number, feeds = fed
        inner = state.inner(carried, values)
        if counter is not None:
            assert number is not None
            inner.arrays[counter] = state.execution.load(counter, number)
        streams.enter(inner.streams, feeds)
        emit_steps(inner, step.body)
        return inner.held(carried), streams.leave(inner.streams)

    numbers = None if counter is None else lax.iota(counter.dtype, step.count)
    if numbers is not None and not (isinstance(step.first, int) and step.first == 0):
        first = state.arrays[step.first] if isinstance(step.first, Variable) else step.first
        numbers = lax.add(numbers, jnp.asarray(first, numbers.dtype))
    feeds, start = streams.take_for(state.streams, step.count), state.held(carried)
    # After as many turns as bring every array back to its place, XLA finds each in its own buffer: no copies.
    turns = math.lcm(*(len(part.variables) for part in step.body if isinstance(part, RotateStep)))
    if step.recompute is None:
        values, sent = lax.scan(turn, start, (numbers, feeds), length=step.count, unroll=turns)
    elif isinstance(step.recompute, Revolve):
        values, sent = revolved_scan(turn, start, (numbers, feeds), step.count, step.recompute.snapshots)
    else:
        values, sent = _kept_scan(turn, start, (numbers, feeds), step.count, step.recompute, turns)
    state.put(carried, values)
    streams.send(state.streams, sent)


def _answers(step: WhileStep) -> set[Variable] | None:
    """The numbers that a loop's condition writes, where it does nothing else and nothing in the loop reads but it."""
    if any(not isinstance(part, (ExecuteStep, CopyStep)) or has_effects(part) for part in step.condition):
        return None
    written, known = {own for part in step.condition for own in part.writes}, set[Variable]()
    if any(own.size != 1 for own in written):
        return None
    if any(own in written for part in step.body for own in (*part.reads, *part.writes)):
        return None
    for part in step.condition:
        if any(own in written and own not in known for own in part.reads):
            return None
        known.update(part.writes)
    return written


def _while(state: EmissionState, step: WhileStep) -> None:
    # XLA computes what the loop itself asks for in no kernel of the turn.
    answers = _answers(step)
    asks = answers is not None
    if not asks:
        emit_steps(state, step.condition)
    kept = [own for own in handed_on(step) if own not in (answers or ())]
    carried = (*kept, *state.streams.of(step.condition, step.body).passed_on)

    def holds(values: Sequence[Any]) -> Array:
        inner = state.inner(carried, values)
        if asks:
            emit_steps(inner, step.condition)
        answer = inner.read(step.predicate)
        is_true = answer if answer.dtype == bool else answer != 0
        goes_on = ~is_true if step.until else is_true
        return goes_on & (inner.arrays[state.abort] == 0) if state.abort in carried else goes_on

    def turn(values: Sequence[Any]) -> list[Any]:
        inner = state.inner(carried, values)
        emit_steps(inner, step.body)
        if not asks:
            emit_steps(inner, step.condition)
        return inner.held(carried)

    start = state.held(carried)
    if step.max_iterations is None:
        values = [
            forward_only(value, str(step.predicate)) if jnp.issubdtype(value.dtype, jnp.inexact) else value
            for value in lax.while_loop(holds, turn, start)
        ]
    else:
        values = bounded_while(holds, turn, start, step.max_iterations)
    state.put(carried, values)
    if step.abort is not None:
        _raise_flag(state, step.abort, holds(values), step.code)
    if asks:
        emit_steps(state, step.condition)


def _switch(state: EmissionState, step: SwitchStep) -> None:
    streams = state.streams.of(*step.branches)
    written = (*handed_on(step), *streams.passed_on)
    control, feeds = state.read(step.control), streams.take(state.streams)
    if not written and not has_effects(step):
        return

    def branch(steps: Sequence[Step]) -> Callable[[], tuple[list[Any], list[Array]]]:
        def run() -> tuple[list[Any], list[Array]]:
            inner = state.inner()
            streams.enter(inner.streams, feeds)
            emit_steps(inner, steps)
            return inner.held(written), streams.leave(inner.streams)

        return run

    number = jnp.full((), len(step.values), jnp.int32)
    bits = None if control.dtype.kind == "b" else np.iinfo(control.dtype)
    least, most = (0, 1) if bits is None else (bits.min, bits.max)
    for k, value in enumerate(step.values):
        if least <= value <= most:  # another would be compared with what is left of it in the control's dtype
            number = jnp.where(control == jnp.asarray(value, control.dtype), k, number)
    values, sent = lax.switch(number, [branch(steps) for steps in step.branches])
    state.put(written, values)
    streams.send(state.streams, sent)


# --- functions --------------------------------------------------------------------------------------------


def _jitted(state: EmissionState, function: FunctionBody, values: Sequence[Array]) -> JittedFunction:
    """A function, traced for the stored form of its arguments."""
    if function not in state.functions:
        streams = state.streams.of(function.body)

        def run(values: Sequence[Array], sent: Sequence[Sent], feeds: Sequence[Array]) -> Any:
            inner = state.alone()
            inner.put((*function.handed_in, *streams.passed_on), (*values, *sent))
            streams.enter(inner.streams, feeds)
            emit_steps(inner, function.body)
            return inner.held(function.writes), inner.held(streams.passed_on), streams.leave(inner.streams)

        sent = state.held(streams.passed_on)
        structs = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), (list(values), sent))
        feeds = [state.streams.kind(stream, n) for stream, n in streams.inputs]
        results = jax.tree.structure(([0] * len(function.writes), [Sent(0, 0)] * len(sent), [0] * len(streams.outputs)))  # type: ignore[arg-type]
        closed = trace_simplified(run, *structs, feeds)

        def call(tables: Sequence[Any], *given: Any) -> Any:
            def run(tables: Sequence[Any], given: Sequence[Any]) -> list[Any]:
                return list(jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, list(tables)))(*given))

            own = run
            if function.derivative is not None:
                own = with_derivative(run, function, state.execution, results.num_leaves)
            return jax.tree.unflatten(results, own(list(tables), jax.tree.leaves(given)))

        call.__name__ = FUNCTION + function.name
        state.functions[function] = JittedFunction(jax.jit(call), list(closed.consts), streams)
    return state.functions[function]


def _call(state: EmissionState, step: CallStep) -> None:
    function, execution = step.function, state.execution
    given = dict(zip(function.parameters, step.arguments, strict=True))
    values = [
        execution.passed(state.arrays, given[v], v) if v in given else state.held([v])[0] for v in function.handed_in
    ]
    jitted = _jitted(state, function, values)
    streams = jitted.streams
    feeds = streams.take(state.streams)
    written, sent, left = jitted.call(jitted.tables, values, state.held(streams.passed_on), feeds)
    state.put(streams.passed_on, sent)
    for variable, held in zip(function.writes, written, strict=True):
        if variable not in given:
            state.arrays[variable] = held
    for variable, held in zip(function.writes, written, strict=True):
        if variable in given:
            execution.take_back(state.arrays, variable, held, given[variable])
    streams.send(state.streams, left)


def _calls(state: EmissionState, calls: CallsStep) -> None:
    """Calls of one function in a row: a scan over what differs between them."""
    function = calls.function
    streams = state.streams.of(function.body)
    kept = [*(variable for variable in function.writes if variable not in function.parameters), *streams.passed_on]
    passed = [calls.passed_on.get(variable, variable) for variable in calls.carried]

    def turn(carried: tuple[list[Array], list[Any]], fed: tuple[list[Array], list[Array]]) -> tuple[Any, Any]:
        own, others = carried
        stacked, feeds = fed
        inner = state.inner((*kept, *calls.carried, *calls.stacked, *calls.shared), (*others, *own, *stacked, *shared))
        streams.enter(inner.streams, feeds)
        emit_steps(inner, function.body)
        return (inner.held(passed), inner.held(kept)), (inner.held(calls.collected), streams.leave(inner.streams))

    shared = [state.read(tensor) for tensor in calls.shared.values()]
    stacked = [state.read(tensor) for tensor in calls.stacked.values()]
    feeds = streams.take_for(state.streams, len(calls.calls))
    start = [state.read(tensor) for tensor in calls.carried.values()], state.held(kept)
    (own, others), (made, sent) = lax.scan(turn, start, (stacked, feeds), length=len(calls.calls))
    state.put(kept, others)
    for (variable, tensor), value in zip(calls.carried.items(), own, strict=True):
        if variable in function.writes and variable not in calls.passed_on:
            state.write(tensor, value)
    for tensor, value in zip(calls.collected.values(), made, strict=True):
        state.write(tensor, value)
    streams.send(state.streams, sent)


# --- the rest -----------------------------------------------------------------------------------------------


def _raise_flag(state: EmissionState, flag: Variable, condition: Array, code: int) -> None:
    before = state.arrays[flag]
    state.arrays[flag] = jnp.where((before == 0) & condition, jnp.asarray(code, flag.dtype), before)


def _stream(state: EmissionState, step: StreamStep) -> None:
    if step.stream.is_input:
        state.execution.receive(state.arrays, step.stream, step.tensor, state.streams.receive(step.stream))
    else:
        state.streams.send(step.stream, state.read(step.tensor))


def _print(state: EmissionState, step: PrintStep) -> None:
    state.execution.show(step.text, state.read(step.tensor))


def emit_steps(state: EmissionState, steps: Sequence[Step]) -> None:
    """Run steps on a state, which is changed in place."""
    for step in steps:
        match step:
            case ExecuteStep():
                with jax.named_scope(scope_of(step)):
                    state.execution.execute(state.arrays, step)
            case CopyStep():
                with jax.named_scope(scope_of(step)):
                    state.execution.copy(state.arrays, step)
            case RotateStep():
                _rotate(state, step)
            case AddUpStep():
                state.execution.add_up(state.arrays, step)
            case RepeatStep():
                _repeat(state, step)
            case WhileStep():
                _while(state, step)
            case SwitchStep():
                _switch(state, step)
            case CallsStep():
                _calls(state, step)
            case CallStep():
                _call(state, step)
            case PrintStep():
                _print(state, step)
            case AbortStep():
                _raise_flag(state, step.abort, state.read(step.predicate) != 0, step.code)
            case StreamStep():
                _stream(state, step)
            case UndefStep():
                pass  # what nobody reads needs no value


def _output(state: EmissionState, tensor: Tensor) -> Array:
    """The stored form of a whole variable; the value of another view."""
    if tensor.is_whole_variable:
        assert isinstance(tensor.source, Variable)
        return state.held([tensor.source])[0]
    return state.read(tensor)


def emit(plan: Plan, execution: Execution | None = None) -> Callable[..., list[Array]]:
    """The plan as a pure function.

    Args:
        plan: what to run.
        execution: how values are stored; default: in logical order.

    Returns:
        A function from what is held of the plan's inputs, and then the values of its input streams, stacked, to the
        values of its outputs, then what was copied of its streams, as `copied_by_stream` takes it apart, and last,
        where anything aborts, the flag of `Plan.abort`. An output that is a whole variable comes in its stored form.
    """
    how = Execution() if execution is None else execution

    def run(*arrays: Array) -> list[Array]:
        streams = begin_streams(plan.steps, plan.streams, arrays[len(plan.inputs) :])
        state = EmissionState(how, plan.abort, streams)
        for variable in plan.variables:
            if variable.value is not None:
                value = jnp.asarray(variable.value) if variable.size <= SMALL else constant(variable.value)
                state.arrays[variable] = how.load(variable, value)
        state.put(plan.inputs, arrays[: len(plan.inputs)])
        if plan.abort is not None:
            state.arrays[plan.abort] = jnp.zeros((), plan.abort.dtype)
        with nesting_told(plan.steps):
            emit_steps(state, plan.steps)
        results = [_output(state, tensor) for tensor in plan.outputs]
        results += [array for stream in plan.streams for array in state.streams.copied(stream)]
        return results if plan.abort is None else [*results, state.arrays[plan.abort]]

    return run
