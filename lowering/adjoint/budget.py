"""Budget: a backward pass that keeps a number of bytes, by the live ranges of the plan that it is part of.

In come the parts of a training step, and the ways in which its stages can be kept or made again (`stages.py`), which
count bytes and cycles roughly. Out comes the cheapest of them of which the plan itself, in whose live variables memory
is planned, says that it keeps the budget.

It counts the variables that memory planning reports as not always live: over all tiles, the largest sum at any moment.
An output in the place of an input is counted as two, since whether they share a place is known only when the graph is
placed; so the plan takes as much at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from codelet.errors import ProgramError
from codelet.graphs.graph import Graph
from codelet.graphs.vertex_cycles import family_cycles
from codelet.programs.control import Repeat
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.sources import Variable
from codelet.views.tensor import whole_view
from lowering.adjoint.again import Chain, Event, Turn
from lowering.adjoint.stages import Stages
from lowering.machine.live_variables import lifetimes, live_variables
from lowering.machine.liveness import WORD_BYTES
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow, flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, Step, UndefStep
from lowering.plan.timeline import timeline, without_calls
from lowering.plan.walk import bodies


def cycles_of(step: Step, graph: Graph) -> float:
    """About the cost of a step on every tile, its vertices and copies spread evenly.

    Raises:
        CyclesError: a codelet's `cycles=` fails.
    """
    target = graph.target
    fixed = target.sync_cycles + target.exchange_overhead_cycles + target.launch_cycles
    if isinstance(step, CopyStep):
        return fixed + step.source.size * step.source.dtype.itemsize / 8 / target.num_tiles
    work, longest = 0, 0
    for family in step.families if isinstance(step, ExecuteStep) else ():
        if family.num_vertices:
            own = family_cycles(family, target)
            work += own.total(family.num_vertices)
            longest = max(longest, int(own.numbers().max()))
    return fixed + max(work / target.num_tiles, longest)


class Peaks:
    """The most bytes live at once in training steps that run the same in other orders.

    Args:
        graph: of the programs.
        steps: of the forward pass.
        before: the program of the forward pass, and the other programs before the backward pass.
        back: the adjoint of each step.
        after: runs last.
        keep: the variables that are needed after all of it.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[Step],
        before: Program,
        back: Sequence[Program],
        after: Program,
        keep: Collection[Variable],
    ):
        apart = ProgramSequence(*(Repeat(1, own) for own in (before, *back, after)))
        self.plan = flow(without_calls(collect(graph, apart, (), ())))
        (self.before, *self.back, self.after) = (bodies(step)[0] for step in self.plan.steps)
        self.steps, self.target = steps, graph.target
        plan = self._plan([Turn(number, True) for number in range(len(steps))][::-1])
        self.held = lifetimes(plan, keep)
        named = {variable for step in plan.steps for variable in (*step.reads, *step.writes)}
        self.passing = [v for v in plan.variables if v in named and v not in self.held.kept]

    def _plan(self, turns: Iterable[Turn]) -> Plan:
        """The plan of a training step whose backward pass takes some iterations."""
        steps = [*self.before]
        for turn in turns:
            if turn.is_back:
                steps += self.back[turn.number]
            else:
                steps += [*(flow_step(UndefStep(whole_view(own))) for own in turn.ended), self.steps[turn.number]]
        return replace(self.plan, steps=(*steps, *self.after))

    def bytes_of(self, variable: Variable) -> int:
        """The most that a variable takes of all tiles, whole words of each, wherever it lies."""
        rest = -variable.dtype.itemsize % WORD_BYTES
        return variable.size * variable.dtype.itemsize + rest * min(variable.size, self.target.num_tiles)

    def most(self, turns: Iterable[Turn]) -> int:
        """The most bytes that variables which are not always live take at once."""
        plan = self._plan(turns)
        live = live_variables(plan, timeline(plan), self.held, self.passing)
        return int(live.num_bytes(self.bytes_of).max(initial=0))


def cheapest_within(budget: int, chain: Chain, cycles: Sequence[float], peaks: Peaks) -> list[Turn]:
    """The iterations of the cheapest backward pass that keeps a number of bytes.

    Args:
        budget: the bytes.
        chain: of the forward pass.
        cycles: the cost of each of its steps.
        peaks: the memory of backward passes.

    Raises:
        ProgramError: none keeps it.
    """
    kept = chain.turns([Event(0, len(chain.steps), True)], ())
    least = peaks.most(kept)
    if least <= budget:
        return kept
    stages = Stages(chain, cycles)
    ways = stages.ways()
    best: list[Turn] | None = None
    low, high = 0, len(ways)  # what takes more parts takes more bytes, but for what stages do not count
    while low < high:
        middle = (low + high) // 2
        turns = chain.turns(stages.events(ways[middle]), stages.makeable)
        most = peaks.most(turns)
        least = min(least, most)
        if most <= budget:
            best, low = turns, middle + 1
        else:
            high = middle
    if best is None:
        raise ProgramError(
            "the backward pass keeps no budget so small",
            given=f"{budget:,} bytes",
            expected=f"at least {least:,} bytes, however much is made again",
            fix="cl.Recompute.bytes(...) of as many; what is always live, as parameters, is not counted",
        )
    return best
