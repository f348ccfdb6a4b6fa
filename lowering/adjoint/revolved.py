"""Revolved: loops whose iterations run again by the binomial schedule (`lowering/plan/revolve.py`), in the graph.

In comes a loop that keeps so many states at once. Out come the loop of the forward pass, which keeps states in rows of
snapshots on its way, a step for each; and the backward pass: one loop over the iterations, last to first. The next
action stands in a table. It says from which snapshot to go on, how many iterations, and whether to keep that state or
to go back through the iteration that begins there. A loop that is part of another step keeps none on its way: all of it
runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from codelet.graphs.graph import Graph
from codelet.ops.turns import put_turn, take_turn
from codelet.programs.control import Repeat, RepeatWhile, Revolve
from codelet.programs.copies import Copy
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_tensor, new_vertices, zeros
from lowering.adjoint.counting import is_left, next_move, one_less
from lowering.adjoint.forward import forward_program
from lowering.adjoint.programs import writes_of
from lowering.adjoint.saved import Body, Loop, parts
from lowering.check.initialized import read_before_written
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.revolve import Schedule, schedule
from lowering.plan.steps import RepeatStep
from lowering.plan.walk import all_reads

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward


class _Snapshots:
    """Rows of states: of variables, those elements that an iteration reads.

    Attributes:
        begin: the steps before any is kept.
    """

    def __init__(self, graph: Graph, state: Sequence[tuple[Variable, Elements]], count: int):
        self.graph = graph
        self.begin: list[Program] = []
        self._held: list[tuple[Variable, Elements, Tensor, Tensor]] = []
        for variable, elements in state:
            stack = new_tensor(graph, f"saved/snapshots/{variable.name}", (count, *variable.shape), variable.dtype)
            self.begin.append(zeros(stack))
            row = whole_view(variable)
            if not elements.is_all:
                row = new_tensor(graph, f"snapshot/{variable.name}", variable.shape, variable.dtype)
                self.begin.append(zeros(row))
            self._held.append((variable, elements, row, stack))

    def _rows(self) -> list[Program]:
        """Check that the variables that are kept whole are there."""
        copies = ((parts(whole_view(v), row, own), own) for v, own, row, _ in self._held)
        return [Copy(a, b) for pairs, own in copies if not own.is_all for a, b in pairs]

    def keep(self, place: int | Tensor) -> list[Program]:
        """Keep the state, in a row that is known, or that a variable says."""
        found = self._rows()
        for _, _, row, stack in self._held:
            if isinstance(place, int):
                found.append(Copy(row, stack[place]))
                continue
            with self.graph.record() as put:
                put_turn(self.graph, row, stack, place)
            found.append(put)
        return found

    def take(self, place: Tensor) -> list[Program]:
        """Go back to the state in a row."""
        found: list[Program] = []
        for variable, elements, _, stack in self._held:
            with self.graph.record() as taken:
                row = take_turn(self.graph, stack, place)
            found.append(taken)
            pairs = parts(row, whole_view(variable), elements)
            found += [Copy(a.reshape(b.shape), b) for a, b in pairs]
        return found


def go_back_revolved(back: Backward, body: Body, number: int, step: RepeatStep) -> None:
    """Go back through a loop that keeps so many states at once."""
    assert isinstance(step.recompute, Revolve)
    graph, plan = back.graph, schedule(step.count, step.recompute.snapshots)
    around = back.flows.around(step, back.present)
    back.fill(around)
    inner = Body(step.body, (body, number), Loop(graph, step, step.count), is_again=True)
    body.children[number] = (inner,)
    outer = back.later, back.frame, back.frames
    back.later, back.frame, back.frames = ElementSet(), None, {}
    programs = back.inside(inner, around)
    back.present = around
    back.later, back.frame, back.frames = outer
    if not programs:
        return
    later, alone = back.later | back.written(step), back.alone(step.body)
    needed = ElementSet.of_views((touch.tensor, touch.axes) for _, touch in all_reads(alone.steps))
    written = writes_of(alone.steps)
    begun = sorted(read_before_written(alone, ()), key=lambda own: own.number)
    state = [(own, needed.of(own)) for own in begun if own in written]
    snapshots = _Snapshots(graph, state, plan.snapshots)
    is_alone = body.around is None and back.frame is None
    back.disturbed.update(own for own in written if back.saved.certain.of(own).is_all)
    for variable in begun:
        if variable in written and is_alone:
            continue
        held = back.value(body, number, variable, needed.of(variable), later)
        if held is not variable:
            pairs = parts(whole_view(held), whole_view(variable), needed.of(variable))
            back.sums.programs += [Copy(a.reshape(b.shape), b) for a, b in pairs]
            back.disturbed.add(variable)
    turn = forward_program(back.plan, Body(step.body, (body, number)), is_again=True)
    if is_alone:
        first = forward_program(back.plan, Body(step.body, (body, number)))
        body.instead[number] = ProgramSequence(*snapshots.begin, *_forwards(plan, first, snapshots))
        moves = plan.moves
    else:
        back.sums.programs += [*snapshots.begin, *snapshots.keep(plan.kept[0][1])]
        moves = plan.all_moves
    again = [*back.saved.settle(inner), forward_program(back.plan, inner), *inner.prelude, *programs]
    back.sums.programs += _backwards(graph, plan, moves, turn, snapshots, again)


def _forwards(plan: Schedule, turn: Program, snapshots: _Snapshots) -> list[Program]:
    """The loop, with states that are kept on the way."""
    found: list[Program] = []
    ends = [first for first, _ in plan.kept[1:]] + [plan.turns]
    for (first, slot), end in zip(plan.kept, ends, strict=True):
        found += [*snapshots.keep(slot), Repeat(end - first, turn)]
    return found


def _backwards(
    graph: Graph, plan: Schedule, moves: np.ndarray, turn: Program, snapshots: _Snapshots, again: Sequence[Program]
) -> list[Program]:
    """Go back through the iterations, as the moves say.

    Args:
        graph: of the programs.
        plan: the schedule.
        moves: (4, moves): the columns of the schedule.
        turn: runs an iteration.
        snapshots: where states are kept.
        again: runs an iteration again and goes back through it.
    """
    sources, _, aheads, targets = moves
    ended = np.concatenate([np.stack([sources, aheads, targets]), [[0], [0], [-1]]], axis=1)
    table = graph.add_constant(graph.free_name("moves"), ended.astype(np.int32))
    move, source, ahead, target = (
        new_tensor(graph, name, (), "int32") for name in ("move", "source", "ahead", "target")
    )
    columns = {"source": source, "ahead": ahead, "target": target}
    following, _ = new_vertices(graph, "next move", next_move, table=table, move=move, **columns)
    look, left = new_vertices(graph, "look", is_left, turn=ahead)
    less, _ = new_vertices(graph, "less", one_less, turn=ahead)
    kept, is_kept = new_vertices(graph, "is kept", is_left, turn=target)
    # How often the loops turn differs from time to time: the mean is what a profile counts.
    ways = max(1, round(int(aheads.sum()) / len(aheads)))
    run = [*snapshots.take(source), RepeatWhile(look, left, [turn, less], trip_count=ways)]
    keep = [*run, *snapshots.keep(target), following]
    keeps = round(int((targets >= 0).sum()) / plan.turns)
    back = [RepeatWhile(kept, is_kept, keep, trip_count=keeps), *run, *again, following]
    return [Copy(-1, move), following, Repeat(plan.turns, back)]
