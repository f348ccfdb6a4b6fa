"""Revolve: in which order the iterations of a loop run again where only so many states of it are kept at once.

In come the iterations of a loop and a number of snapshots. Out comes a schedule: which states the forward pass keeps,
and, as tables, what the backward pass does: from which snapshot it starts, how many turns it runs, and whether it then
keeps the state as a snapshot or goes back through the iteration that begins there. No schedule with as many snapshots
runs fewer iterations.

The forward pass ends behind the last iteration, so that the schedule is that of one iteration more, which is all that
the program does after the loop. Snapshots are those of the start of the loop and of states between iterations.

Source: A. Griewank and A. Walther, Algorithm 799: revolve, an implementation of checkpointing for the reverse or
adjoint mode of computational differentiation (2000): the number of iterations, and where to keep a state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import comb

import numpy as np


def _reach(snapshots: int, runs: int) -> int:
    """The most iterations that can be gone back through where none runs more often than `runs` times."""
    return comb(snapshots + runs, runs) if snapshots >= 0 and runs >= 0 else 0


def _runs(turns: int, snapshots: int) -> int:
    """How often an iteration has to run at most."""
    runs = 0
    while _reach(snapshots, runs) < turns:
        runs += 1
    return runs


def fewest_turns(turns: int, snapshots: int) -> int:
    """The fewest iterations that run to go back through a loop, those not counted that are gone back through right
    then.

    >>> fewest_turns(1000, 10)
    3636
    """
    runs = _runs(turns, snapshots)
    return runs * turns - _reach(snapshots + 1, runs - 1)


def _split(turns: int, snapshots: int) -> int:
    """After how many iterations to keep the next state, of two snapshots at least."""
    runs = _runs(turns, snapshots)
    if turns <= _reach(snapshots, runs - 1) + _reach(snapshots - 2, runs - 1):
        return _reach(snapshots, runs - 2)
    if turns >= _reach(snapshots, runs) - _reach(snapshots - 3, runs):
        return _reach(snapshots, runs - 1)
    return turns - _reach(snapshots - 1, runs - 1) - _reach(snapshots - 2, runs - 1)


def _moves(turn: int, turns: int, slot: int, free: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Go back through some iterations, whose first state is in a slot."""
    while turns > 1 and free:
        ahead = _split(turns, 1 + len(free))
        yield slot, turn, ahead, free[0]
        yield from _moves(turn + ahead, turns - ahead, free[0], free[1:])
        turns = ahead
    for ahead in range(turns - 1, -1, -1):
        yield slot, turn, ahead, -1


@dataclass(frozen=True, eq=False)
class Schedule:
    """How a loop's iterations run, forward and again.

    Attributes:
        turns: of the loop.
        snapshots: rows that hold states.
        kept: the states that the forward pass keeps: before which iteration, and in which row; the first of them is
            that of the start, in row 0, the one row that is never written again.
        moves: of the backward pass, int32 of shape (4, moves): the row that it starts from, the iteration that begins
            there, how many iterations run, and the row that then holds the state; -1 where the iteration is gone back
            through that begins there.
    """

    turns: int
    snapshots: int
    kept: tuple[tuple[int, int], ...]
    moves: np.ndarray

    @property
    def num_turns(self) -> int:
        """The iterations that run, forward and again, those not counted that are gone back through right then."""
        return self.turns + int(self.moves[2].sum())

    @property
    def all_moves(self) -> np.ndarray:
        """The moves of a backward pass that finds no state but that of the start."""
        first = [(a, turn, end - turn, b) for (turn, a), (end, b) in pairwise(self.kept)]
        return np.concatenate([np.array(first, np.int32).reshape(-1, 4).T, self.moves], axis=1)


@functools.cache
def schedule(turns: int, snapshots: int) -> Schedule:
    """The schedule of a loop of so many iterations, one at least, of which at most so many states are kept at once.

    >>> found = schedule(1000, 10)
    >>> found.num_turns == fewest_turns(1001, 10)
    True
    """
    moves = list(_moves(0, turns + 1, 0, tuple(range(1, snapshots))))
    first = next(number for number, move in enumerate(moves) if move[3] < 0)
    kept = [(turn + ahead, target) for _, turn, ahead, target in moves[:first] if turn + ahead < turns]
    return Schedule(turns, snapshots, ((0, 0), *kept), np.array(moves[first + 1 :], np.int32).reshape(-1, 4).T)
