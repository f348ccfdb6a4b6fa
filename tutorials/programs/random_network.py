"""A random directed graph, by the rows of those that point to each node: data for several programs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Network(NamedTuple):
    """Edges sorted by where they lead.

    Attributes:
        senders: where each edge comes from, those to one node together.
        offsets: where each node's edges start, and where the last one's end.
        out_degrees: how many edges leave each node.
    """

    senders: np.ndarray
    offsets: np.ndarray
    out_degrees: np.ndarray

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.out_degrees)


def random_network(nodes: int, edges: int, seed: int = 0) -> Network:
    """Edges between nodes at random; the chance to be pointed to falls with the square root of a node's number."""
    random = np.random.default_rng(seed)
    chances = np.arange(1, nodes + 1) ** -0.5
    receivers = np.sort(random.choice(nodes, edges, p=chances / chances.sum()))
    senders = random.integers(0, nodes, edges)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(receivers, minlength=nodes))])
    return Network(senders.astype(np.int32), offsets, np.bincount(senders, minlength=nodes))
