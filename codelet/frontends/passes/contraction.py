"""Contraction: nodes of a graph without cycles, joined so that it stays without.

Two nodes may be joined unless a path leads from one to the other by way of a third. For each node, all nodes before it
are kept as the bits of an integer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class Contraction:
    """Nodes that come one after another, each after those that it depends on, and the groups that have been joined.

    Attributes:
        members: of each node that has not been joined to another, the nodes that it is made of, in order.
    """

    def __init__(self) -> None:
        self.members: dict[int, list[int]] = {}
        self._into: list[int] = []  # the node that each one is part of
        self._from: dict[int, set[int]] = {}  # direct neighbours
        self._to: dict[int, set[int]] = {}
        self._before: dict[int, int] = {}  # all that come before, as bits

    def add(self, before: Iterable[int]) -> int:
        """Add a node, which comes after some others: its number."""
        node = len(self._into)
        self._into.append(node)
        self.members[node] = [node]
        self._from[node] = {self.at(own) for own in before}
        self._to[node] = set()
        self._before[node] = self._all_before(self._from[node])
        for own in self._from[node]:
            self._to[own].add(node)
        return node

    def at(self, node: int) -> int:
        """The node that one is part of."""
        while self._into[node] != node:
            node = self._into[node]
        return node

    def _all_before(self, nodes: Iterable[int]) -> int:
        bits = 0
        for node in nodes:
            bits |= self._before[node] | 1 << node
        return bits

    def _leads_around(self, a: int, b: int) -> bool:
        """Whether a path leads from one node to another by way of a third."""
        return any(own != a and self._before[own] >> a & 1 for own in self._from[b])

    def join(self, a: int, b: int) -> bool:
        """Join two nodes, where that makes no cycle: whether it was done."""
        a, b = self.at(a), self.at(b)
        if a == b:
            return True
        if self._leads_around(a, b) or self._leads_around(b, a):
            return False
        self._into[b] = a
        self.members[a] = sorted(self.members[a] + self.members.pop(b))
        others = ~(1 << a | 1 << b)
        for near, other in ((self._from, self._to), (self._to, self._from)):
            for node in near[b]:
                other[node].discard(b)
                other[node].add(a)
            near[a] |= near.pop(b)
        for near in (self._from, self._to):
            near[a] -= {a, b}
        self._before[a] = (self._before[a] | self._before.pop(b)) & others
        for node in self._after(a):  # those after the one come after all that is before the other, too
            self._before[node] = (self._before[node] | self._before[a]) & ~(1 << b) | 1 << a
        return True

    def _after(self, node: int) -> set[int]:
        found, todo = set[int](), [*self._to[node]]
        while todo:
            own = todo.pop()
            if own not in found:
                found.add(own)
                todo += self._to[own]
        return found

    def in_order(self) -> list[list[int]]:
        """The members of each node, in an order in which each comes after its dependencies."""
        left = {node: len(own) for node, own in self._from.items()}
        ready = [(self.members[node][-1], node) for node, count in left.items() if not count]
        heapq.heapify(ready)
        found = []
        while ready:
            _, node = heapq.heappop(ready)
            found.append(self.members[node])
            for own in self._to[node]:
                left[own] -= 1
                if not left[own]:
                    heapq.heappush(ready, (self.members[own][-1], own))
        assert len(found) == len(self.members), "a cycle"
        return found
