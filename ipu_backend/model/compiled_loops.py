"""Loops of compiled C++ that are not elementwise: how long, from what a turn of one takes.

A turn takes A + L + S + 3, as in `fused_loops.py`. What a loop takes to begin, and each result of a reduction beside
what it is reduced from, is that of PopLibs' `ContinuousReduce` (lib/popops/reduction/CycleEstimationFunctions.cpp
@ b2996457), which is assembly: for compiled code a fit, as the 3 is.
"""

from __future__ import annotations

from ipu_backend.model.costs import Cost, Mode
from ipu_backend.model.shared import shared

TURN_OVERHEAD = 3
"""To go round a loop once, addresses among them: `fused_loops.py` says whence."""

BEGIN_CYCLES = 17
"""To enter a vertex, set up its loop, and leave it."""

RESULT_CYCLES = 12
"""Of each result of a reduction."""


def compiled_loop(turns: int, instructions: int, mode: Mode, *, results: int = 0, begin: int = BEGIN_CYCLES) -> Cost:
    """What a loop takes of each worker that runs it.

    Args:
        turns: of a worker.
        instructions: of a turn, to compute, load and store: A + L + S.
        mode: how the vertex runs.
        results: that a worker reduces to.
        begin: cycles to enter, set up and leave.
    """
    fits = begin + RESULT_CYCLES * results + TURN_OVERHEAD * turns
    found = shared(turns * instructions + fits, mode)
    return Cost(found.worker, found.supervisor, fitted=fits)


def in_turns(elements: int, width: int, mode: Mode) -> int:
    """Turns of a loop over elements: a vector each where the codelet's author says that it takes vectors."""
    return -(-elements // width) if mode.vectorised else elements
