"""Multicast: tiles that touch the same elements, taken together.

Where the vertices of a family along some axes read the same elements of a field, their tiles mostly read the same sets.
One of such tiles, their leader, stands for all. In come the tiles of vertices; out come leaders, and what each leader
touches. What every tile receives and sends is counted from that (`exchange.py`), and never listed tile by tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codelet.views.sources import Variable
from lowering.plan.runs import Runs, union_of

_PLACES = 1 << 22
"""So many pairs of a leader and a position along free axes are looked at, at most."""


class Multicast(NamedTuple):
    """What tiles touch, once for all that touch the same.

    Attributes:
        runs: what leaders touch, as runs of `leader * num_elements + element`.
        leaders: of each tile the leader, which touches the same and is its own, int64 of shape (num_tiles,).
        variables: of which the elements are.
    """

    runs: Runs
    leaders: np.ndarray
    variables: frozenset[Variable]


def leading_tiles(tiles: np.ndarray, free: Sequence[int], num_tiles: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The tiles of vertices at the first position of some axes, and which tiles each of these stands for.

    None where the tiles do not fall into such groups: where one has some alone of the positions that a leader has.

    Args:
        tiles: of the vertices, over all axes.
        free: the axes along which the vertices touch the same.
        num_tiles: of the machine.

    Returns:
        The tiles over the other axes, and the leader of each tile, its where it has no vertices.

    >>> leading, leaders = leading_tiles(np.array([[0, 2], [1, 3]]), (1,), 4)
    >>> leading.tolist(), leaders.tolist()
    ([0, 1], [0, 1, 0, 1])
    >>> leading_tiles(np.array([[0, 0], [0, 1]]), (1,), 2)
    """
    kept = [d for d in range(tiles.ndim) if d not in free]
    places = tiles.transpose(*kept, *free).reshape([*(tiles.shape[d] for d in kept), -1])
    leading, count = places[..., :1], places.shape[-1]
    if not tiles.size or count * num_tiles > max(_PLACES, tiles.size):
        return None
    leaders = np.arange(num_tiles)
    leaders[places] = leading
    if not (leaders[places] == leading).all():
        return None
    # At each position along the free axes, one tile has all the vertices of a leader.
    at = leading * np.int64(count) + np.arange(count)
    owners = np.empty(count * num_tiles, tiles.dtype)
    owners[at] = places
    return (leading[..., 0], leaders) if (owners[at] == places).all() else None


def members_of(leaders: np.ndarray) -> tuple[np.ndarray, Runs]:
    """The tiles in the order of their leaders, rising, and where those of each leader stand among them."""
    stops = np.cumsum(np.bincount(leaders, minlength=len(leaders)))
    return np.argsort(leaders, kind="stable"), Runs(np.append(0, stops[:-1]), stops)


def _followed(runs: Runs, leaders: np.ndarray, finer: np.ndarray, space: int) -> Runs:
    """What leaders touch, for the leaders of a finer division of the tiles."""
    if np.array_equal(leaders, finer):
        return runs
    (chosen,) = np.nonzero(finer == np.arange(len(finer)))
    own = runs.starts // space
    firsts, lasts = np.searchsorted(own, leaders[chosen]), np.searchsorted(own, leaders[chosen], side="right")
    which = Runs(firsts, lasts)
    numbers, shift = which.numbers(), np.repeat(chosen - leaders[chosen], which.lengths) * space
    return Runs(runs.starts[numbers] + shift, runs.stops[numbers] + shift)


def _common(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Leaders of the tiles that have the same leader in both of two divisions: the least tile of them."""
    if np.array_equal(one, other):
        return one
    _, first, inverse = np.unique(one * len(one) + other, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]


def merged(found: Sequence[Multicast], space: int) -> list[Multicast]:
    """What is touched, with those that have a variable in common made one.

    Args:
        found: what is touched.
        space: how many elements there are, by which a leader is told from the next.
    """
    groups: list[list[Multicast]] = []
    for own in found:
        apart = [group for group in groups if all(own.variables.isdisjoint(other.variables) for other in group)]
        near = [other for group in groups if not any(group is one for one in apart) for other in group]
        groups = [*apart, [*near, own]]
    result = []
    for group in groups:
        leaders = group[0].leaders
        for own in group[1:]:
            leaders = _common(leaders, own.leaders)
        runs = union_of([_followed(own.runs, own.leaders, leaders, space) for own in group])
        result.append(Multicast(runs, leaders, frozenset().union(*(own.variables for own in group))))
    return result
