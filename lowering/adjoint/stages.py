"""Stages: which values of a forward pass to keep and which to recompute, in the fewest cycles for every number of
bytes.

In come the steps of a forward pass, and their costs. They are cut into stages where little crosses from one to the
next. Out come, for a number of bytes, the events of the backward pass: which stages run again, and when.

Of stages s to t, let the values that cross into s be there. Either all residuals of s are made and kept, and then those
behind are done; or s to k run, the values that cross into k are kept, those from k on are done, and then s to k, which
begin anew. The cheaper is taken, for every number of bytes: as many stages deep as it takes. The first run, from the
first stage on to the last, is the forward pass itself, and costs nothing.

Source: O. Beaumont, L. Eyraud-Dubois, J. Herrmann, A. Joly and A. Shilova, Optimal Checkpointing for Heterogeneous
Chains (2019); of equal stages that is the binomial schedule of A. Griewank and A. Walther, Algorithm 799 (2000).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from codelet.views.sources import Variable
from lowering.adjoint.again import Chain, Event, Segment

MOST = 100
"""Stages, at most: what is found takes time that grows with the third power of their number."""

PARTS = 400
"""Parts of the bytes of all that is read back, for each of which the cheapest is found."""


def num_bytes(variables: Collection[Variable]) -> int:
    """Bytes of variables."""
    return sum(variable.size * variable.dtype.itemsize for variable in variables)


def crossing(chain: Chain) -> list[set[Variable]]:
    """The variables that steps before a place make and steps behind it read, for each place."""
    last: dict[Variable, int] = {}
    for number, step in enumerate(chain.steps):
        last.update(dict.fromkeys(step.reads, number))
    found: list[set[Variable]] = [set() for _ in range(len(chain.steps) + 1)]
    for variable, places in chain.writers.items():
        for place in range(places[0] + 1, last.get(variable, 0) + 1):
            found[place].add(variable)
    return found


def cut(chain: Chain, most: int = MOST) -> list[Segment]:
    """The steps, cut where less crosses than at the places around, into so many stages at most."""
    count = len(chain.steps)
    across = [num_bytes(own) for own in crossing(chain)]
    made = [0, *accumulate(num_bytes(own) for own in chain.writes)]
    places = [k for k in range(1, count) if across[k] <= min(across[k - 1] if k > 1 else across[k], across[k + 1])]
    places = [0, *places, count]
    sizes = [made[b] - made[a] for a, b in pairwise(places)]
    while len(sizes) > most:
        k = min(range(len(sizes) - 1), key=lambda k: sizes[k] + sizes[k + 1])
        sizes[k : k + 2] = [sizes[k] + sizes[k + 1]]
        del places[k + 1]
    return [Segment(a, b, True) for a, b in pairwise(places)]


class Stages:
    """The memory and cycles of stages, and the cheapest way through all of them for each number of bytes.

    Attributes:
        chain: the steps.
        segments: the stages.
        makeable: the variables that can be recomputed, the others are kept.
        part: bytes are counted in parts of so many.
    """

    def __init__(self, chain: Chain, cycles: Sequence[float], most: int = MOST):
        self.chain, self.segments = chain, cut(chain, most)
        self.makeable = chain.makeable(self.segments)
        across = crossing(chain)
        self._into = [across[own.first] & self.makeable for own in self.segments] + [set()]
        self._read = [chain.read_back(own.first, own.end) & self.makeable for own in self.segments]
        total = sum(num_bytes(own) for own in self._read) + num_bytes(set().union(*self._into))
        self.part = max(1, -(-total // PARTS))
        spent = lambda steps: sum(cycles[k] for k in steps)  # noqa: E731
        self._passing, self._keeping = [], []
        for number, own in enumerate(self.segments):
            event, behind = Event(own.first, own.end, False), self._into[number + 1]
            self._passing.append(spent(chain.remaking(event, behind, self.makeable)))
            left = {v for v in self._read[number] if v not in behind or len(chain.writers[v]) > 1}
            self._keeping.append(spent(chain.remaking(event, left, self.makeable)))

    def _parts(self, variables: Collection[Variable]) -> int:
        return -(-num_bytes(variables) // self.part)

    @cached_property
    def _kept(self) -> list[int]:
        """Parts that a stage takes whose values are kept, those that cross into the next included."""
        count = len(self.segments)
        return [self._parts((self._read[s] | self._into[s + 1]) - self._into[s]) for s in range(count)]

    def _crossing(self, s: int, t: int) -> list[int]:
        """Parts that the values crossing into each of the stages behind one take beside those crossing into
        that one.
        """
        return [self._parts(self._into[k] - self._into[s]) for k in range(s + 1, t + 1)]

    @cached_property
    def _again(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles of recomputation for stages s to t, for each number of parts, and the choice: t + 1 to keep s."""
        count = len(self.segments)
        costs = np.full((count + 1, count + 1, PARTS + 1), np.inf)
        choices = np.zeros((count, count, PARTS + 1), np.int16)
        costs[range(1, count + 1), range(count)] = 0  # nothing is left: from s + 1 to s
        passing = np.array([0, *accumulate(self._passing)])
        sizes = np.arange(PARTS + 1)
        for s in range(count - 1, -1, -1):
            away = np.array(self._crossing(s, count - 1), np.int64)
            for t in range(s, count):
                left = sizes - self._kept[s]
                keep = np.where(left >= 0, costs[s + 1, t, np.maximum(left, 0)] + self._keeping[s], np.inf)
                best, choice = keep, np.full(PARTS + 1, t + 1)
                if t > s:
                    behind = np.arange(s + 1, t + 1)
                    left = sizes - away[: t - s, None]
                    beyond = np.where(left >= 0, costs[behind[:, None], t, np.maximum(left, 0)], np.inf)
                    run = beyond + costs[s, behind - 1] + (passing[behind] - passing[s])[:, None]
                    first = run.argmin(axis=0)
                    cheapest = run[first, sizes]
                    choice = np.where(cheapest < best, first + s + 1, choice)
                    best = np.minimum(best, cheapest)
                costs[s, t], choices[s, t] = best, choice
        return costs, choices

    @cached_property
    def _first(self) -> tuple[np.ndarray, np.ndarray]:
        """Likewise for stages s to the last, which the forward pass itself runs the first time."""
        count, (again, _), sizes = len(self.segments), self._again, np.arange(PARTS + 1)
        costs, choices = np.full((count + 1, PARTS + 1), np.inf), np.zeros((count, PARTS + 1), np.int16)
        costs[count] = 0
        for s in range(count - 1, -1, -1):
            left = sizes - self._kept[s]
            costs[s] = np.where(left >= 0, costs[s + 1, np.maximum(left, 0)], np.inf)
            choices[s] = count
            for k, away in enumerate(self._crossing(s, count - 1), s + 1):
                left = sizes - away
                run = np.where(left >= 0, costs[k, np.maximum(left, 0)] + again[s, k - 1], np.inf)
                choices[s] = np.where(run < costs[s], k, choices[s])
                costs[s] = np.minimum(costs[s], run)
        return costs, choices

    def ways(self) -> list[int]:
        """The parts for which there are different ways, the fewest first: each the least that its cycles need."""
        costs = self._first[0][0]
        return [k for k in range(PARTS + 1) if np.isfinite(costs[k]) and (k == 0 or costs[k] < costs[k - 1])]

    def cycles(self, parts: int) -> float:
        """Cycles of recomputation."""
        return float(self._first[0][0, parts])

    def events(self, parts: int) -> list[Event]:
        """The events of the backward pass, in order."""
        found: list[Event] = []

        def add(s: int, t: int, left: int, is_first: bool) -> None:
            if s > t:
                return
            choice = int(self._first[1][s, left] if is_first else self._again[1][s, t, left])
            own, into = self.segments[s], self._into[s]
            if choice > t:
                if not is_first:
                    found.append(Event(own.first, own.end, False))
                add(s + 1, t, left - self._kept[s], is_first)
                found.append(Event(own.first, own.end, True))
                return
            if not is_first:
                found.append(Event(own.first, self.segments[choice].first, False))
            add(choice, t, left - self._parts(self._into[choice] - into), is_first)
            add(s, choice - 1, left, False)

        add(0, len(self.segments) - 1, parts, True)
        return found
