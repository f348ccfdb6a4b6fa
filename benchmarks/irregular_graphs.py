"""Irregular programs: meshes, networks, matrices and factor graphs, each in two numberings and placed in two ways.

Each is nodes with links, and compute sets over them. As built by hand, each node has a tile, by which all lies and runs
that belongs to it; else all is left to the placement pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

import codelet as cl


@dataclass(frozen=True)
class Nodes:
    """Nodes and directed links, and what runs over them.

    Attributes:
        count: how many nodes there are.
        readers: the node at the end of each link.
        read: the node at its beginning, which the other reads.
        program: what runs: a key of `PROGRAMS`.
        width: elements of a node.
    """

    count: int
    readers: np.ndarray
    read: np.ndarray
    program: str = "gather"
    width: int = 8

    def renumbered(self, seed: int) -> Nodes:
        """The same with nodes numbered at random; of factor graphs variables stay before factors."""
        return self._in_order(np.random.default_rng(seed).permutation(self.count))

    def breadth_first(self) -> Nodes:
        """The same with nodes numbered breadth first, by Cuthill and McKee's order; of factor graphs as above."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        ends = np.append(self.readers, self.read), np.append(self.read, self.readers)
        links = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(self.count, self.count))
        return self._in_order(reverse_cuthill_mckee(links, symmetric_mode=True))

    def _in_order(self, order: np.ndarray) -> Nodes:
        """The same with nodes numbered in an order; of factor graphs variables stay before factors."""
        first = self.readers.min() if self.program == "factors" else 0
        numbers = np.empty(self.count, np.int64)
        numbers[np.concatenate([order[order < first], order[order >= first]])] = np.arange(self.count)
        return replace(self, readers=numbers[self.readers], read=numbers[self.read])

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """What nodes read in compressed rows: offsets and nodes."""
        order = np.lexsort((self.read, self.readers))
        counts = np.bincount(self.readers, minlength=self.count)
        return np.append(0, np.cumsum(counts)), self.read[order]


def _both_ways(one: np.ndarray, other: np.ndarray, count: int, **options: object) -> Nodes:
    keys = np.unique(np.concatenate([one * count + other, other * count + one]))
    readers, read = np.divmod(keys, count)
    apart = readers != read
    return Nodes(count, readers[apart], read[apart], **options)  # type: ignore[arg-type]


# --- where links are ------------------------------------------------------------------------------------


def grid_links(shape: tuple[int, ...], *, corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours in a grid: along axes alone, or across corners too."""
    numbers, one, other = np.arange(np.prod(shape)).reshape(shape), [], []
    for step in np.ndindex(*[3] * len(shape)):
        moved = np.array(step) - 1
        if not moved.any() or (not corners and abs(moved).sum() > 1):
            continue
        here = tuple(slice(max(0, -k), n - max(0, k)) for k, n in zip(moved, shape, strict=True))
        there = tuple(slice(max(0, k), n - max(0, -k)) for k, n in zip(moved, shape, strict=True))
        one.append(numbers[here].reshape(-1))
        other.append(numbers[there].reshape(-1))
    return np.concatenate(one), np.concatenate(other)


def mesh(edges: int, dimensions: int, *, corners: bool) -> Nodes:
    """A mesh of nearly equal sides."""
    degree = 3**dimensions - 1 if corners else 2 * dimensions
    side = max(2, round((edges / degree) ** (1 / dimensions)))
    return _both_ways(*grid_links((side,) * dimensions, corners=corners), side**dimensions)


def radius(edges: int, dimensions: int) -> Nodes:
    """Points in a cube, numbered by cells, linked where they are near."""
    random, degree = np.random.default_rng(0), 9
    count = max(16, edges // degree)
    points = random.random((count, dimensions))
    near = (degree / count / {2: np.pi, 3: 4 / 3 * np.pi}[dimensions]) ** (1 / dimensions)
    cells = max(1, int(1 / near))
    at = np.minimum((points * cells).astype(int), cells - 1)
    number = np.asarray(np.ravel_multi_index(at.T, (cells,) * dimensions))
    order = np.argsort(number, kind="stable")
    points, at, number = points[order], at[order], number[order]
    starts = np.searchsorted(number, np.arange(cells**dimensions + 1))
    one, other = [], []
    for step in np.ndindex(*[3] * dimensions):
        cell = at + np.array(step) - 1
        inside = ((cell >= 0) & (cell < cells)).all(axis=1)
        (own,) = np.nonzero(inside)
        to = np.ravel_multi_index(cell[own].T, (cells,) * dimensions)
        lengths = starts[to + 1] - starts[to]
        here = np.repeat(own, lengths)
        there = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        there += np.repeat(starts[to], lengths)
        close = ((points[here] - points[there]) ** 2).sum(axis=1) < near**2
        one.append(here[close])
        other.append(there[close])
    return _both_ways(np.concatenate(one), np.concatenate(other), count)


def power_law(edges: int, exponent: float) -> Nodes:
    """Each new node is linked to four earlier ones, the earlier the likelier."""
    random = np.random.default_rng(1)
    count = max(16, edges // 8)
    one = np.repeat(np.arange(1, count), 4)
    return _both_ways(one, (one * random.random(len(one)) ** exponent).astype(np.int64), count)


def roads(edges: int) -> Nodes:
    """A grid of streets, a third of which are missing, each of several pieces."""
    random = np.random.default_rng(2)
    side = max(2, round((edges / 6.7) ** 0.5))
    one, other = grid_links((side, side), corners=False)
    kept = (one < other) & (random.random(len(one)) < 0.67)
    one, other = one[kept], other[kept]
    middle = side**2 + np.arange(len(one))
    return _both_ways(np.append(one, middle), np.append(middle, other), side**2 + len(one))


def molecules(edges: int) -> Nodes:
    """Many small graphs side by side: rings with branches."""
    random, one, other, first = np.random.default_rng(3), [], [], 0
    while sum(map(len, one)) < edges // 2:
        size = int(random.integers(9, 30))
        ring = np.arange(size)
        one += [first + ring[1:], first + random.integers(0, size, 3)]
        other += [
            first + np.maximum(0, ring[1:] - random.integers(1, 4, size - 1)),
            first + random.integers(0, size, 3),
        ]
        first += size
    return _both_ways(np.concatenate(one), np.concatenate(other), first)


def small_world(edges: int) -> Nodes:
    """A ring of which one link in fifty goes anywhere."""
    random, count = np.random.default_rng(4), max(16, edges // 8)
    one = np.repeat(np.arange(count), 4)
    other = (one + np.tile(np.arange(1, 5), count)) % count
    far = random.random(len(one)) < 0.02
    other[far] = random.integers(0, count, far.sum())
    return _both_ways(one, other, count)


def long_rows(edges: int, rows: int) -> Nodes:
    """The matrix of a stencil of five points, and a few rows with an entry in every twentieth column."""
    side = max(3, round((edges / 5) ** 0.5))
    one, other = grid_links((side, side), corners=False)
    random, count = np.random.default_rng(5), side * side
    few = np.sort(random.choice(count, rows, replace=False))
    columns = np.arange(0, count, 20)
    keys = np.unique(np.concatenate([one * count + other, (few[:, None] * count + columns).reshape(-1)]))
    return Nodes(count, *np.divmod(keys, count), program="product")


def factor_graph(edges: int, degree: int) -> Nodes:
    """Variables, and factors that each join several, near each other but for one."""
    random = np.random.default_rng(6)
    factors = max(8, edges // (2 * degree))
    variables = 2 * factors
    base = np.arange(factors)[:, None] * 2
    members = (base + random.integers(0, 4 * degree, (factors, degree))) % variables
    members[:, 0] = random.integers(0, variables, factors)
    one = np.repeat(variables + np.arange(factors), degree)
    keys = np.unique(one * (variables + factors) + members.reshape(-1))
    readers, read = np.divmod(keys, variables + factors)
    return Nodes(variables + factors, readers, read, program="factors")


def pairwise_field(edges: int) -> Nodes:
    """The variables of a grid, and a factor for each two neighbours."""
    side = max(2, round((edges / 8) ** 0.5))
    one, other = grid_links((side, side), corners=False)
    one, other = one[one < other], other[one < other]
    factors = side * side + np.arange(len(one))
    return Nodes(side**2 + len(one), np.append(factors, factors), np.append(one, other), program="factors")


def hierarchy(edges: int) -> Nodes:
    """The grids of a multigrid method, each linked within and to the next finer."""
    side, first, one, other = max(8, round((edges / 8) ** 0.5) // 8 * 8), 0, [], []
    while side >= 8:
        inside = grid_links((side, side), corners=False)
        one.append(first + inside[0])
        other.append(first + inside[1])
        if side >= 16:
            row, column = np.divmod(np.arange(side * side), side)
            one.append(first + np.arange(side * side))
            other.append(first + side * side + row // 2 * (side // 2) + column // 2)
        first += side * side
        side //= 2
    return _both_ways(np.concatenate(one), np.concatenate(other), first)


def purchases(edges: int) -> Nodes:
    """Users and what they bought: some things much oftener than others, most of one of fifty kinds."""
    random = np.random.default_rng(7)
    users = max(20, edges // 12)
    things = max(10, users // 3)
    who = np.repeat(np.arange(users), 6)
    kind = who * 50 // users
    popular = (random.random(len(who)) ** 2 * (things // 50 + 1)).astype(np.int64)
    what = np.minimum(kind * things // 50 + popular, things - 1)
    return _both_ways(who, users + what, users + things)


GRAPHS: dict[str, Callable[[int], Nodes]] = {
    "mesh_2d": lambda edges: mesh(edges, 2, corners=False),
    "mesh_2d_corners": lambda edges: mesh(edges, 2, corners=True),
    "mesh_3d": lambda edges: mesh(edges, 3, corners=False),
    "mesh_3d_corners": lambda edges: mesh(edges, 3, corners=True),
    "radius_2d": lambda edges: radius(edges, 2),
    "radius_3d": lambda edges: radius(edges, 3),
    "power_law": lambda edges: power_law(edges, 1.5),
    "steep_power_law": lambda edges: power_law(edges, 3.0),
    "roads": roads,
    "molecules": molecules,
    "small_world": small_world,
    "long_rows": lambda edges: long_rows(edges, 3),
    "one_long_row": lambda edges: long_rows(edges, 1),
    "factors": lambda edges: factor_graph(edges, 4),
    "wide_factors": lambda edges: factor_graph(edges, 10),
    "pairwise_factors": pairwise_field,
    "multigrid": hierarchy,
    "purchases": purchases,
    "breadth_first": lambda edges: replace(roads(edges), program="search"),
    "message_passing": lambda edges: replace(radius(edges, 2), program="messages"),
}
"""All of them, by about how many links they have."""


# --- what runs over them --------------------------------------------------------------------------------


@cl.codelet
def add_up(x):
    """The rows that a node reads, added."""
    return x.sum(0)


@cl.codelet
def weighted(x, weights):
    """A row of a sparse matrix times a vector of vectors."""
    return weights @ x


@cl.codelet
def nearer(x, y):
    """One more than the least of neighbours, or what was known."""
    return jnp.minimum(x, y.min(0, initial=1e9) + 1)


@cl.codelet
def passed(x):
    """The same."""
    return 1 * x


@cl.codelet
def message(x, y):
    """What travels along a link."""
    return jnp.tanh(x - y)


@cl.codelet
def updated(x, messages):
    """A node with what it was sent."""
    return x + messages.sum(0)


class _Built:
    """A graph over nodes that have tiles, or are left to the placement pass."""

    def __init__(self, nodes: Nodes, tiles: int, chips: int, where: np.ndarray | None):
        self.nodes, self.graph = nodes, cl.Graph(cl.IPU(num_tiles=tiles, num_chips=chips))
        self.where = where

    def variable(self, name: str, owners: np.ndarray, shape: tuple[int, ...]) -> cl.Tensor:
        own = self.graph.add_variable(name, (len(owners), *shape))
        if self.where is not None and len(owners):
            symbol = cl.grid(len(owners))
            self.graph.set_tile_mapping(own[symbol], cl.table(self.where[owners])[symbol])
        return own

    def run(self, name: str, codelet: cl.Codelet, owners: np.ndarray, connect: Callable[[cl.Index], dict]) -> None:
        if not len(owners):
            return
        symbol = cl.grid(len(owners))
        tile = None if self.where is None else cl.table(self.where[owners])[symbol]
        self.graph.add_vertex(name, codelet, tile=tile, **connect(symbol))


def build_program(
    nodes: Nodes, tiles: int, chips: int = 1, where: np.ndarray | None = None
) -> tuple[cl.Graph, cl.Program]:
    """The graph of nodes and what it runs.

    Args:
        nodes: the nodes.
        tiles: of all chips.
        chips: of the machine.
        where: the tile of each node; left to the placement pass when left off.
    """
    built, every, wide = _Built(nodes, tiles, chips, where), np.arange(nodes.count), (nodes.width,)
    offsets, read = nodes.rows
    rows = cl.table(read.astype(np.int32), offsets=offsets.astype(np.int32))
    x, graph, turns = built.variable("x", every, wide), built.graph, 1
    if nodes.program == "factors":
        _factors(built, x)
    elif nodes.program == "messages":
        _messages(built, x)
    else:
        y = built.variable("y", every, wide)
        if nodes.program == "gather":
            built.run("gather", add_up, every, lambda i: {"x": x[rows[i]], "out": y[i]})
        elif nodes.program == "product":
            owners = np.repeat(every, np.diff(offsets))
            weights = built.variable("weights", owners, ())
            entries = cl.table(np.arange(len(read), dtype=np.int32), offsets=offsets.astype(np.int32))
            built.run(
                "multiply", weighted, every, lambda i: {"x": x[rows[i]], "weights": weights[entries[i]], "out": y[i]}
            )
        else:
            turns = 10
            built.run("look", nearer, every, lambda i: {"x": x[i], "y": x[rows[i]], "out": y[i]})
            built.run("keep", passed, every, lambda i: {"x": y[i], "out": x[i]})
    return graph, cl.Repeat(turns, graph.default_program)


def _factors(built: _Built, x: cl.Tensor) -> None:
    """Factors read their variables, and then variables their factors."""
    nodes = built.nodes
    first = int(nodes.readers.min())
    factors, variables = np.arange(first, nodes.count), np.arange(first)
    offsets, read = nodes.rows
    own = cl.table(read.astype(np.int32), offsets=offsets[first:].astype(np.int32))
    turned = Nodes(nodes.count, nodes.read, nodes.readers)
    offsets, read = turned.rows
    back = cl.table((read - first).astype(np.int32), offsets=offsets[: first + 1].astype(np.int32))
    f = built.variable("f", factors, (nodes.width,))
    y = built.variable("y", variables, (nodes.width,))
    built.run("factors", add_up, factors, lambda i: {"x": x[own[i]], "out": f[i]})
    built.run("variables", add_up, variables, lambda i: {"x": f[back[i]], "out": y[i]})


def _messages(built: _Built, x: cl.Tensor) -> None:
    """A message along each link, each node with what it receives, and nodes as they were after the last turn."""
    nodes, every = built.nodes, np.arange(built.nodes.count)
    offsets, read = nodes.rows
    owners = np.repeat(every, np.diff(offsets))
    to, by = cl.table(owners.astype(np.int32)), cl.table(read.astype(np.int32))
    sent = built.variable("sent", owners, (nodes.width,))
    y = built.variable("y", every, (nodes.width,))
    rows = cl.table(np.arange(len(read), dtype=np.int32), offsets=offsets.astype(np.int32))
    built.run("send", message, owners, lambda e: {"x": x[to[e]], "y": x[by[e]], "out": sent[e]})
    built.run("receive", updated, every, lambda i: {"x": x[i], "messages": sent[rows[i]], "out": y[i]})
