"""Partitions: the units of a hypergraph in parts of about equal weight that share few nets.

In come a hypergraph, weights and a number of parts; out comes the part of each unit. METIS partitions a graph, in which
each net is a star around the unit that writes it (Karypis and Kumar, "A Fast and High Quality Multilevel Scheme for
Partitioning Irregular Graphs", 1998). Mt-KaHyPar partitions the hypergraph itself, by its deterministic preset
(Gottesbüren and others, "Scalable High-Quality Hypergraph Partitioning", 2024). Both come with the extra `placement`.
Without it there are breadth-first orders, and bisections by breadth-first distance.

All of them give the same parts for the same input, in every process.
"""

from __future__ import annotations

import functools
import heapq
import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.errors import MissingExtraError
from codelet.views.sources import Variable
from lowering.machine.element_tiles import in_order
from lowering.machine.hypergraph import Hypergraph
from lowering.plan.components import components
from lowering.plan.runs import Runs, each_once, sums_of

_MOST_WEIGHT = 1 << 29
"""METIS counts weights in 32 bits."""

_ALONE = 6
"""What a unit weighs beside what it reads, where that is what counts."""

_COMPONENTS = 4
"""So many components for each part can be dealt out whole."""

_SMOOTHED = 20
"""How often the distances are smoothed by which a part is halved: the border between the halves becomes shorter."""

_MOST_LINKED = 1 << 12
"""Nets with more pins than this join nothing: wherever their units are, many tiles receive them."""


_LARGE, _PASSES = 1 << 22, 3
"""Of graphs with more ends of links than this METIS refines each level in so many passes in place of ten. On a power
law of 10^7 links that halves its time for 0.7 % more links cut and 0.8 % more cycles."""


def has_metis() -> bool:
    """True if METIS is installed."""
    return importlib.util.find_spec("pymetis") is not None


def has_mtkahypar() -> bool:
    """True if Mt-KaHyPar is installed."""
    return importlib.util.find_spec("mtkahypar") is not None


def _library(module: str) -> Any:
    """A partitioner.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            "placement by partition needs a library that is not installed",
            given=f"a Python without {module}",
            expected="the extra `placement`",
            fix="pip install 'codelet-graphs[placement]' (in a checkout: pip install -e '.[placement]')",
        ) from None


@dataclass(frozen=True, eq=False)
class LinkedNodes:
    """A graph in compressed rows: each link is there from both ends.

    Attributes:
        offsets: where the neighbours of each node begin, int64 of shape (nodes + 1,).
        neighbours: of all nodes, int32.
        weights: of each link, int32 above 0.
        loads: of each node, int64.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    loads: np.ndarray

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.loads)

    @property
    def owners(self) -> np.ndarray:
        """The node that each link is listed with."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))

    def within(self, parts: np.ndarray) -> LinkedNodes:
        """The same nodes, with the links alone whose ends are in one part."""
        owners = self.owners
        (kept,) = np.nonzero(parts[owners] == parts[self.neighbours])
        offsets = np.append(0, np.cumsum(np.bincount(owners[kept], minlength=self.num_nodes)))
        return LinkedNodes(offsets, self.neighbours[kept], self.weights[kept], self.loads)

    def of(self, nodes: np.ndarray) -> LinkedNodes:
        """The graph of some nodes, rising, and the links between them."""
        number = np.full(self.num_nodes, -1)
        number[nodes] = np.arange(len(nodes))
        own = Runs(self.offsets[nodes], self.offsets[nodes + 1])
        entries = own.numbers()
        ends = number[self.neighbours[entries]]
        kept = ends >= 0
        owners = np.repeat(np.arange(len(nodes)), own.lengths)[kept]
        offsets = np.append(0, np.cumsum(np.bincount(owners, minlength=len(nodes))))
        return LinkedNodes(offsets, ends[kept], self.weights[entries[kept]], self.loads[nodes])


def _scaled(weights: np.ndarray) -> np.ndarray:
    """Weights as integers above 0 whose sum 32 bits hold: int32."""
    scale = max(1.0, float(weights.sum()) / _MOST_WEIGHT)
    return np.maximum(1, np.rint(weights / scale)).astype(np.int32)


def net_centres(graph: Hypergraph, *, alike: bool = True) -> tuple[np.ndarray, int]:
    """What each net is a star around, and how many nodes there are: a net that nothing writes is a node by itself.

    Args:
        graph: the hypergraph.
        alike: whether a variable that nothing writes lies as one of as many rows that is written.
    """
    centres, pins = graph.homes.copy(), np.bincount(graph.pin_nets, minlength=len(graph.homes))
    if alike:
        variables = in_order(graph.plan.variables)
        firsts = np.array([own.first_element for own in variables], np.int64)
        which = np.searchsorted(firsts, graph.net_starts, side="right") - 1
        written: dict[int, Variable] = {}
        for k in np.unique(which[graph.homes >= 0]).tolist():
            if variables[k].shape:
                written.setdefault(variables[k].shape[0], variables[k])
        for k in np.unique(which[(pins > 0) & (graph.homes < 0)]).tolist():
            own = variables[k]
            if own.shape and (like := written.get(own.shape[0])) is not None and like.size:
                nets = np.flatnonzero((which == k) & (graph.homes < 0) & (pins > 0))
                places = (graph.net_starts[nets] - own.first_element) * like.size // own.size
                at = np.searchsorted(graph.net_starts, like.first_element + places, side="right") - 1
                centres[nets] = graph.homes[at]
    (alone,) = np.nonzero((centres < 0) & (pins > 1))
    centres[alone] = graph.num_units + np.arange(len(alone))
    return centres, graph.num_units + len(alone)


def links_of(graph: Hypergraph, *, weighted: bool = True, alike: bool = True) -> LinkedNodes:
    """Units joined as stars around those that write what others read.

    Args:
        graph: the hypergraph.
        weighted: whether links weigh as many bytes as would move, and units as many cycles as they take; else links
            are alike, and units weigh what they read, as one would call METIS by hand.
        alike: whether a variable that nothing writes lies as one of as many rows that is written.
    """
    centres, num_nodes = net_centres(graph, alike=alike)
    pins = np.bincount(graph.pin_nets, minlength=len(centres))
    hubs, units = centres[graph.pin_nets], graph.pin_units
    kept = (hubs >= 0) & (hubs != units) & (pins[graph.pin_nets] <= _MOST_LINKED)
    hubs, units, weights = hubs[kept], units[kept], graph.pin_weights[kept]
    keys = np.concatenate([hubs * num_nodes + units, units * num_nodes + hubs])
    if weighted:
        keys, sums = sums_of(keys, np.tile(weights, 2))
    else:
        keys = each_once(keys)
        sums = np.ones(len(keys))
    owners, neighbours = np.divmod(keys, num_nodes)
    offsets = np.append(0, np.cumsum(np.bincount(owners, minlength=num_nodes)))
    loads = np.zeros(num_nodes, np.int64)
    units = graph.unit_loads if weighted else np.bincount(graph.pin_units, minlength=graph.num_units) + _ALONE
    loads[: graph.num_units] = _scaled(units)
    return LinkedNodes(offsets, neighbours.astype(np.int32), _scaled(sums), loads)


# --- libraries ----------------------------------------------------------------------------------------------


def metis_parts(links: LinkedNodes, parts: int, *, imbalance: float = 0.03) -> np.ndarray:
    """The part of each node by METIS, k-way.

    Args:
        links: the graph.
        parts: how many.
        imbalance: by how much of the mean a part may be heavier.
    """
    metis = _library("pymetis")
    if parts <= 1 or not links.num_nodes:
        return np.zeros(links.num_nodes, np.int32)
    passes = {"niter": _PASSES} if len(links.neighbours) > _LARGE else {}
    options = metis.Options(ufactor=max(1, round(1000 * imbalance)), **passes)
    # No part can be lighter than a node: what is heavier than an even part only misleads the search.
    loads = np.minimum(links.loads, max(1, int(links.loads.sum()) // parts))
    narrow = lambda values: np.ascontiguousarray(values, np.int32)  # noqa: E731
    adjacency = metis.CSRAdjacency(adj_starts=narrow(links.offsets), adjacent=narrow(links.neighbours))
    _, found = metis.part_graph(
        parts,
        adjacency=adjacency,
        vweights=narrow(loads),
        eweights=narrow(links.weights),
        recursive=False,
        options=options,
    )
    return np.array(found, np.int32)


@functools.cache
def _mtkahypar() -> Any:
    return _library("mtkahypar").initialize(1, False)


def mtkahypar_parts(graph: Hypergraph, parts: int, *, imbalance: float = 0.03) -> np.ndarray:
    """The part of each unit by Mt-KaHyPar, which counts each net once for each part that it reaches."""
    kahypar = _library("mtkahypar")
    library = _mtkahypar()
    kahypar.set_seed(1)
    ends, counts = _ends_of_nets(graph)
    if parts <= 1 or not len(counts):
        return np.zeros(graph.num_units, np.int32)
    context = library.context_from_preset(kahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(parts, imbalance, kahypar.Objective.KM1)
    context.logging = False
    nets = np.split(ends, np.cumsum(counts)[:-1])
    weights = _scaled(np.bincount(graph.pin_nets, graph.pin_weights, len(graph.homes)))
    (used,) = np.nonzero(_pin_counts(graph) > 1)
    made = library.create_hypergraph(
        context, graph.num_units, len(nets), [own.tolist() for own in nets],
        _scaled(graph.unit_loads).tolist(), weights[used].tolist(),
    )  # fmt: skip
    found = made.partition(context)
    return np.array([found.block_id(k) for k in range(graph.num_units)], np.int32)


def _pin_counts(graph: Hypergraph) -> np.ndarray:
    """How many different units each net has, its writer among them."""
    ends = _unique_ends(graph)
    return np.bincount(ends // max(1, graph.num_units), minlength=len(graph.homes))


def _unique_ends(graph: Hypergraph) -> np.ndarray:
    count = max(1, graph.num_units)
    (written,) = np.nonzero(graph.homes >= 0)
    return each_once(np.concatenate([graph.pin_nets * count + graph.pin_units, written * count + graph.homes[written]]))


def _ends_of_nets(graph: Hypergraph) -> tuple[np.ndarray, np.ndarray]:
    """The units of the nets that have several, net by net, and how many each has."""
    nets, units = np.divmod(_unique_ends(graph), max(1, graph.num_units))
    counts = np.bincount(nets, minlength=len(graph.homes))
    return units[counts[nets] > 1], counts[counts > 1]


# --- without a library ----------------------------------------------------------------------------------------


def _distances(links: LinkedNodes, sources: np.ndarray) -> np.ndarray:
    """How many links each node is from a source; one more than the farthest where none leads there."""
    distance = np.full(links.num_nodes, -1)
    distance[sources] = 0
    front, turn = sources, 0
    while len(front):
        ends = links.neighbours[Runs(links.offsets[front], links.offsets[front + 1]).numbers()]
        front = np.unique(ends[distance[ends] < 0])
        turn += 1
        distance[front] = turn
    distance[distance < 0] = turn
    return distance


def _firsts(parts: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Of each part the node of the highest rank, the first of equals."""
    order = np.lexsort((np.arange(len(parts)), -rank, parts))
    new = np.append(True, parts[order][1:] != parts[order][:-1]) if len(order) else np.zeros(0, bool)
    return order[new]


def _far_ends(links: LinkedNodes, parts: np.ndarray, labels: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """A node at the rim of the largest component of each part: the last reached from the last reached from one."""
    sizes, scale = np.bincount(labels, minlength=links.num_nodes)[labels], int(degrees.max(initial=0)) + 1
    found = _firsts(parts, sizes * scale - degrees)
    for _ in range(2):
        distance = _distances(links, found)
        own = np.zeros(int(parts.max(initial=-1)) + 1, np.int64)
        own[parts[found]] = labels[found]
        found = _firsts(parts, np.where(labels == own[parts], distance * scale - degrees, -scale))
    return found


def breadth_first_order(links: LinkedNodes) -> np.ndarray:
    """All nodes, outwards from the rim of each component: neighbours of earlier nodes first, those of few links first.

    Cuthill and McKee, "Reducing the Bandwidth of Sparse Symmetric Matrices", 1969.
    """
    count, degrees = links.num_nodes, np.diff(links.offsets)
    done, pieces = np.zeros(count, bool), []
    labels = _component_labels(links)
    for start in _far_ends(links, labels, labels, degrees).tolist():
        if done[start]:
            continue
        front = np.array([start])
        done[start] = True
        while len(front):
            pieces.append(front)
            own = Runs(links.offsets[front], links.offsets[front + 1])
            ends, parents = links.neighbours[own.numbers()], np.repeat(np.arange(len(front)), own.lengths)
            fresh = ~done[ends]
            ends, parents = ends[fresh], parents[fresh]
            order = np.lexsort((ends, degrees[ends], parents))
            ends = ends[order]
            _, first = np.unique(ends, return_index=True)
            front = ends[np.sort(first)]
            done[front] = True
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _component_labels(links: LinkedNodes) -> np.ndarray:
    owners = links.owners
    (once,) = np.nonzero(owners < links.neighbours)
    return components(owners[once], links.neighbours[once], links.num_nodes)


def component_parts(links: LinkedNodes, parts: int) -> np.ndarray | None:
    """Components that are not linked with each other, the heaviest first, each in the lightest part.

    `None` where there are too few of them for the parts to be even.
    """
    labels = _component_labels(links)
    names, which = np.unique(labels, return_inverse=True)
    loads = np.bincount(which.reshape(-1), links.loads, len(names))
    if len(names) < _COMPONENTS * parts or loads.max() * parts > loads.sum():
        return None
    heap = [(0.0, part) for part in range(parts)]
    found = np.empty(len(names), np.int32)
    for k in np.argsort(-loads, kind="stable").tolist():
        load, part = heapq.heappop(heap)
        found[k] = part
        heapq.heappush(heap, (load + float(loads[k]), part))
    return found[which.reshape(-1)]


def parts_in_order(order: np.ndarray, loads: np.ndarray, parts: int) -> np.ndarray:
    """Nodes in an order cut into parts of about equal load."""
    until = np.cumsum(loads[order], dtype=np.float64)
    middle = until - loads[order] / 2
    found = np.empty(len(order), np.int32)
    found[order] = np.minimum(parts - 1, (middle * parts / max(1.0, until[-1] if len(until) else 1.0)).astype(np.int32))
    return found


def _smoothed(links: LinkedNodes, values: np.ndarray) -> np.ndarray:
    """Values of nodes, each the mean of itself and of the mean of its neighbours, some times over."""
    owners, ends, weights = links.owners, links.neighbours, links.weights.astype(np.float64)
    sums = np.bincount(owners, weights, links.num_nodes)
    found = values.astype(np.float64)
    for _ in range(_SMOOTHED):
        near = np.bincount(owners, weights * found[ends], links.num_nodes)
        found = np.where(sums > 0, (found + near / np.maximum(sums, 1)) / 2, found)
    return found


def bisected_parts(links: LinkedNodes, parts: int) -> np.ndarray:
    """The part of each node: all parts are halved at once, by how far nodes are from two ends, until there are enough.

    Of a part whose share of the parts is k, halves have the shares k // 2 and the rest, and loads in proportion.
    """
    found, shares = np.zeros(links.num_nodes, np.int64), np.array([parts])
    firsts = np.array([0])  # the number of the first part that each may become
    degrees = np.diff(links.offsets)
    while (shares > 1).any() and links.num_nodes:
        inside = links.within(found)
        near = _distances(inside, _far_ends(inside, found, _component_labels(inside), degrees))
        others = _firsts(found, near)
        away = _distances(inside, others)
        order = np.lexsort((near, _smoothed(inside, near - away), found))
        load = links.loads[order].astype(np.float64)
        until = np.cumsum(load) - load / 2
        sums = np.bincount(found, links.loads, len(shares))
        before = np.append(0, np.cumsum(sums)[:-1])
        own = found[order]
        share = (until - before[own]) / np.maximum(sums[own], 1)
        lower = shares // 2
        upper = (share * shares[own] >= lower[own]) | (lower[own] == 0)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = 2 * own + upper
        shares = np.stack([lower, shares - lower], axis=1).reshape(-1)
        firsts = np.stack([firsts, firsts + lower], axis=1).reshape(-1)
        used = np.unique(numbers)
        found = np.searchsorted(used, numbers)
        shares, firsts = shares[used], firsts[used]
    return firsts[found].astype(np.int32) if links.num_nodes else found.astype(np.int32)
