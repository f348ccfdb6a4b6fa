"""Fed loops: a loop that runs again takes its values of input streams before it, so that every run finds the same.

In comes a loop whose iterations the backward pass runs again, with copies from input streams in it. Out come steps that
take all values of each stream which the loop will copy, in their order, and the loop with copies from there, which
counts
them: its counters are a part of its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from codelet.graphs.graph import Graph
from codelet.ops.turns import put_turn, take_turn
from codelet.programs.control import Repeat
from codelet.programs.copies import Copy, Stream
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_tensor, new_vertices, zeros
from lowering.adjoint.counting import one_more
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow, flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, FunctionBody, RepeatStep, Step, StreamStep
from lowering.plan.streams import count_values
from lowering.plan.walk import all_steps, bodies, with_bodies


def has_streams(function: FunctionBody) -> bool:
    """Whether a function, or one that it calls, copies from streams or to them."""
    return any(isinstance(step, StreamStep) for step in all_steps(function.body))


def calls_of_kept_loops(plan: Plan) -> Callable[[CallStep], bool]:
    """Whether a call is of a function with streams that a loop calls whose iterations run again."""
    kept = [step for step in all_steps(plan.steps) if isinstance(step, RepeatStep) and step.recompute is not None]
    called = {step.function for loop in kept for step in all_steps(loop.body) if isinstance(step, CallStep)}
    fed = {function for function in called if has_streams(function)}
    return lambda step: step.function in fed


class _Fed:
    """All values that a loop takes of a stream, and how many of them it has taken."""

    def __init__(self, graph: Graph, stream: Stream, count: int):
        self.graph, self.stream, self.count = graph, stream, count
        self.values = new_tensor(graph, f"saved/fed/{stream.name}", (count, *stream.shape), stream.dtype)
        self.place = new_tensor(graph, f"saved/fed/next of {stream.name}", (), "int32")

    def _next(self) -> Program:
        return new_vertices(self.graph, "saved/fed/next", one_more, turn=self.place)[0]

    def fill(self) -> list[Program]:
        """Take all values of the stream."""
        row = new_tensor(self.graph, f"saved/fed/one of {self.stream.name}", self.stream.shape, self.stream.dtype)
        with self.graph.scope("saved"), self.graph.record() as put:
            put_turn(self.graph, row, self.values, self.place)
        turn = ProgramSequence(Copy(self.stream, row), put, self._next())
        return [zeros(self.values), zeros(self.place), Repeat(self.count, turn), zeros(self.place)]

    def take(self, destination: Tensor) -> list[Program]:
        """Take the next value."""
        with self.graph.scope("saved"), self.graph.record() as taken:
            row = take_turn(self.graph, self.values, self.place)
        return [taken, Copy(row, destination), self._next()]


def steps_of(graph: Graph, programs: Sequence[Program]) -> tuple[Step, ...]:
    """The steps of programs that are run one after another."""
    return flow(collect(graph, ProgramSequence(*programs), (), ())).steps


def _replaced(graph: Graph, steps: Sequence[Step], fed: Mapping[Stream, _Fed]) -> tuple[Step, ...]:
    """Steps that copy from the stored values, in the place of streams."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, StreamStep) and step.stream in fed:
            found += steps_of(graph, fed[step.stream].take(step.tensor))
        elif bodies(step) and not isinstance(step, CallStep):
            found.append(flow_step(with_bodies(step, [_replaced(graph, body, fed) for body in bodies(step)])))
        else:
            found.append(step)
    return tuple(found)


def fed_before(graph: Graph, loop: RepeatStep) -> tuple[tuple[Step, ...], RepeatStep]:
    """The steps before a loop, and the loop without copies from input streams.

    Args:
        graph: where the stored values are added.
        loop: none of the functions that it calls copies from streams.
    """
    counts = count_values([loop])
    fed = {stream: _Fed(graph, stream, count) for stream, count in counts.items() if stream.is_input}
    if not fed:
        return (), loop
    before = steps_of(graph, [program for own in fed.values() for program in own.fill()])
    (made,) = _replaced(graph, [loop], fed)
    assert isinstance(made, RepeatStep)
    return before, made
