"""Loops of compiled C++ that are not elementwise: how long, from what an iteration of one takes.

An iteration takes A + L + S, and to go round what `turn_overhead` says, as in `fused_loops.py`. What a loop takes to
begin, and each result of a reduction beside what it is reduced from, is that of PopLibs' `ContinuousReduce`
(lib/popops/reduction/CycleEstimationFunctions.cpp @ b2996457), which is assembly: for compiled code a fit.

No source states what a compiled loop takes to go round. What PopLibs reckons of its C++ codelets, and what the compiler
is known to emit, differ by what a loop does, and so does the number here. All of it counts as a fit:

- One that stores elements: 3. Integer additions take 7 = 1 + 2 + 1 + 3 an element and 6 = 1 + 1 + 1 + 3 by a scalar
  (lib/popops/popopsCycleEstimators.hpp @ d4209ec8), and C++ takes 3 more an iteration than assembly (5 against 2: .cpp
  @ 82cd24e5, `binaryOpInnerLoopCycles`).
- One that stores vectors: 1. Of `data[i] += c` in pairs the compiler makes a load, an addition, a store and a branch
  (UoB-HPC/ipu-hpc-cookbook, encouraging-auto-vectorisation/README.md @ 085b9fec).
- One that stores nothing, as that of a sum, is the hardware's own loop: 0. `CalcAccuracy` takes 4 an element, for two
  loads, a comparison and an addition (lib/popnn/popnnCycleEstimators.cpp @ 222ef394).
"""

from __future__ import annotations

from ipu_backend.model.costs import Cost, Mode
from ipu_backend.model.shared import shared

BEGIN_CYCLES = 17
"""To enter a vertex, set up its loop, and leave it."""

RESULT_CYCLES = 12
"""Of each result of a reduction."""


def turn_overhead(mode: Mode, *, stores: bool) -> int:
    """What an iteration of a compiled loop takes besides what it computes, loads and stores."""
    if not stores:
        return 0
    return 1 if mode.vectorised else 3


def compiled_loop(turns: int, instructions: int, mode: Mode, *, results: int = 0, begin: int = BEGIN_CYCLES) -> Cost:
    """What a loop takes of each worker that runs it.

    Args:
        turns: of a worker.
        instructions: of an iteration, to compute, load and store: A + L + S.
        mode: how the vertex runs.
        results: that a worker reduces to; 0 for a loop that stores in each iteration.
        begin: cycles to enter, set up and leave.
    """
    fits = begin + RESULT_CYCLES * results + turn_overhead(mode, stores=not results) * turns
    found = shared(turns * instructions + fits, mode)
    return Cost(found.worker, found.supervisor, fitted=fits)


def in_turns(elements: int, width: int, mode: Mode) -> int:
    """Turns of a loop over elements: a vector each where the codelet's author says that it takes vectors."""
    return -(-elements // width) if mode.vectorised else elements
