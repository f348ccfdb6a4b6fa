"""Vertices whose work the workers of a tile share, by what one worker's part takes."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_backend.model.costs import Cost, Mode, either, sourced

SUPERVISOR_CYCLES = 11
"""To start what a tile's workers share, and to wait for them.

PopLibs, lib/popops/PerformanceEstimation.cpp @ f77e6418, `basicOpSupervisorOverhead`.
"""


def shared(worker: int, mode: Mode) -> Cost:
    """A vertex that takes so much of its worker, or of each of those that share it."""
    return sourced(worker, SUPERVISOR_CYCLES if mode.workers > 1 else 0)


def guess_shared(worker: int, mode: Mode) -> Cost:
    """The same, where a worker's part is a guess."""
    found = shared(worker, mode)
    return Cost(found.worker, found.supervisor, guessed=worker)


def fit_shared(worker: int, mode: Mode) -> Cost:
    """The same, where a worker's part rests on constants that were fitted."""
    found = shared(worker, mode)
    return Cost(found.worker, found.supervisor, fitted=worker)


def as_guess(cost: Cost) -> Cost:
    """What rests on a guess as a whole."""
    return Cost(cost.worker, cost.supervisor, guessed=cost.counted)


def tile_cycles(cost: Cost, mode: Mode) -> int:
    """What it takes of a tile that has nothing else to do."""
    return cost.supervisor + mode.machine.num_workers * cost.worker


def cheapest(forms: Sequence[Cost], mode: Mode) -> Cost:
    """That which takes least of a tile; of equals the first."""
    best = forms[0]
    for form in forms[1:]:
        best = either(tile_cycles(form, mode) < tile_cycles(best, mode), form, best)
    return best
