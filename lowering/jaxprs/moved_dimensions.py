"""Moved dimensions: which dimensions of an operand are which of the result, where an equation only moves elements.

In comes a transpose, a broadcast, a reshape or squeeze; out come groups of dimensions that are of one size together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jax.extend import core as jax_core


def _regrouped(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions before and after a reshape that are of one size together, the fewest; none of extent 1.

    Of an array without elements none are: whatever its other dimensions are, it has as many.
    """
    if 0 in before:
        return
    left = [[d for d, n in enumerate(shape) if n != 1] for shape in (before, after)]
    while left[0] and left[1]:
        first, second = [left[0].pop(0)], [left[1].pop(0)]
        while (a := math.prod(before[d] for d in first)) != (b := math.prod(after[d] for d in second)):
            if a < b:
                first.append(left[0].pop(0))
            else:
                second.append(left[1].pop(0))
        yield first, second


def pairs_moved(eqn: jax_core.JaxprEqn) -> list[tuple[list[int], list[int]]]:
    """Which dimensions of an operand are which of the result, where an equation only moves elements."""
    before, after = (var.aval.shape for var in (eqn.invars[0], eqn.outvars[0]))  # type: ignore[attr-defined]
    match eqn.primitive.name:
        case "transpose":
            return [([d], [k]) for k, d in enumerate(eqn.params["permutation"])]
        case "broadcast_in_dim":
            places = enumerate(eqn.params["broadcast_dimensions"])
            return [([d], [k]) for d, k in places if before[d] == after[k]]
    return list(_regrouped(before, after))


def ones_moved(eqn: jax_core.JaxprEqn) -> Iterator[tuple[int, int]]:
    """Dimensions of extent 1 before and after a reshape that follow the same elements, the last with the last.

    Which of several is which nobody says: a rule may take them so where it finds nothing otherwise.
    """
    if eqn.primitive.name not in ("reshape", "squeeze"):
        return
    before, after = (var.aval.shape for var in (eqn.invars[0], eqn.outvars[0]))  # type: ignore[attr-defined]
    gaps: list[dict[int, list[int]]] = []
    for shape in (before, after):
        inner, found = 1, dict[int, list[int]]()
        for d in reversed(range(len(shape))):
            inner *= shape[d]
            if shape[d] == 1:
                found.setdefault(inner, []).append(d)
        gaps.append(found)
    for inner, first in gaps[0].items():
        yield from zip(first, gaps[1].get(inner, ()), strict=False)
