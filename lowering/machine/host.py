"""The host: how long what streams move is under way between it and the tiles, and what passes meanwhile.

In come the bytes of each tile; out come the cycles of the chip with most of them: each has a separate link to the host,
over which `host_bytes_per_cycle` move. The tiles exchange at the same time, so that the slower of both decides.

A program waits for a stream, unless it has room for more than one value on their way (`buffering_depth`) and is copied
again and again, in a loop: then the next value moves while the loop does something else. In its first iteration nothing
of that is on its way yet, so that all of it takes time; in each later one only what takes longer than the rest of the
iteration. The link moves one thing at a time: streams of one loop add up, and two do not pass in the same rest.

On the chip that takes tiles which do nothing else ("overlapped I/O"): they, and the copies from them, are left out.
However little a stream moves, it takes `host_overhead_cycles`. What the host itself takes is left out, since it
depends on the host: a copy of one number was measured to make the tiles wait 165,000 cycles for it, besides the 1,500
in which it moved (Graphcore's tutorial on lightweight profiling). Source of the rest: Poplar and PopLibs User Guide,
"Data streams", and the option bufferingDepth of Graph::addHostToDeviceFIFO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from codelet.target import Target
from lowering.machine.phases import StepCycles
from lowering.plan.steps import StreamStep
from lowering.plan.timeline import Moment, Timeline


def host_cycles(bytes_by_tile: np.ndarray, target: Target) -> int:
    """Cycles in which the chip with most of some bytes exchanges them with the host."""
    most = int(bytes_by_tile.reshape(target.num_chips, -1).sum(axis=1).max(initial=0))
    return math.ceil(most / target.host_bytes_per_cycle)


def _buffered_in(moment: Moment) -> int | None:
    """Which of the loops around it a buffered stream is copied again and again by: the innermost of several
    iterations.
    """
    if not isinstance(moment.step, StreamStep) or moment.step.stream.buffering_depth < 2:
        return None
    return max((k for k, loop in enumerate(moment.loops) if loop.turns > 1), default=None)


def hidden_cycles(line: Timeline, cycles: Mapping[int, StepCycles], turns: Mapping[int, int]) -> dict[int, int]:
    """The cycles in which streams move values while their loop does something else: by moment, of all iterations.

    Args:
        line: the moments of the program.
        cycles: of each moment that takes any time, by its number, what one iteration takes.
        turns: how often each of them runs; 0 in a branch that is not counted.
    """
    streams: dict[tuple[int, int], list[Moment]] = {}
    for moment in line.moments:
        depth = _buffered_in(moment) if turns.get(moment.number) else None
        if depth is not None:
            streams.setdefault((depth, moment.loops[depth].number), []).append(moment)
    found = {}
    for (depth, number), buffered in streams.items():
        inside = [m.number for m in line.moments if m.number in cycles and m.depth > depth]
        inside = [m for m in inside if line.moments[m].loops[depth].number == number]
        rest = sum(turns[m] * (cycles[m].total - cycles[m].of("host")) for m in inside)
        for moment in buffered:
            all_turns, later = turns[moment.number], moment.loops[depth].turns - 1
            # Of what all turns take, the first takes one part, and the later ones the others.
            each = cycles[moment.number].of("host")
            found[moment.number] = min(all_turns * each, rest) * later // (later + 1)
            rest -= min(all_turns * each, rest)
    return found
