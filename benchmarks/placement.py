"""Placements of irregular programs beside those that METIS's parts give: cycles, and bytes of the fullest tile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Measurement, Row, benchmark, mean_row
from benchmarks.irregular_graphs import GRAPHS, Nodes, build_program
from lowering.machine.irregular import partitioner

LIMIT_SECONDS = 10.0

BAR, MEAN_BAR, WITHOUT_BAR = 1.0, 0.95, 1.3


class Size(NamedTuple):
    """About how many links a graph has, and the tiles that it is placed on."""

    edges: int
    tiles: int
    chips: int = 1


CHIP = 1472

SIZES: Mapping[str, Size] = {
    "mesh_2d": Size(10_000, 64),
    "mesh_2d_corners": Size(200_000, CHIP),
    "mesh_3d": Size(10_000, 64),
    "mesh_3d_corners": Size(1_000_000, CHIP),
    "radius_2d": Size(20_000, 64),
    "radius_3d": Size(200_000, 4 * CHIP, 4),
    "power_law": Size(30_000, 64),
    "steep_power_law": Size(100_000, CHIP),
    "roads": Size(100_000, CHIP),
    "molecules": Size(50_000, 64),
    "small_world": Size(100_000, CHIP),
    "long_rows": Size(10_000, 64),
    "one_long_row": Size(200_000, CHIP),
    "factors": Size(20_000, 64),
    "wide_factors": Size(200_000, CHIP),
    "pairwise_factors": Size(200_000, 4 * CHIP, 4),
    "multigrid": Size(100_000, CHIP),
    "purchases": Size(30_000, 64),
    "breadth_first": Size(50_000, CHIP),
    "message_passing": Size(20_000, 64),
}
"""How large each graph is."""

LARGE = Size(1_000_000, CHIP)
"""A graph whose placement is timed."""


def metis_tiles(nodes: Nodes, tiles: int) -> np.ndarray:
    """The tile of each node by METIS, k-way, nodes weighed by their links, as one would call it."""
    import pymetis

    both = np.unique(
        np.concatenate([nodes.readers * nodes.count + nodes.read, nodes.read * nodes.count + nodes.readers])
    )
    owners, ends = np.divmod(both, nodes.count)
    owners, ends = owners[owners != ends], ends[owners != ends]
    counts = np.bincount(owners, minlength=nodes.count)
    adjacency = pymetis.CSRAdjacency(np.append(0, np.cumsum(counts)).astype(np.int32), ends.astype(np.int32))
    weights = np.bincount(nodes.readers, minlength=nodes.count) + 6
    _, parts = pymetis.part_graph(tiles, adjacency=adjacency, vweights=weights.astype(np.int32))
    return np.array(parts, np.int32)


class Cost(NamedTuple):
    """Cycles of a run, bytes of the fullest tile, and seconds of CPU time to the profile."""

    cycles: int
    num_bytes: int
    seconds: float


def cost(nodes: Nodes, size: Size, where: np.ndarray | None = None, placement: str = "balanced") -> Cost:
    """What a graph costs as placed by hand or by the pass."""
    graph, program = build_program(nodes, size.tiles, size.chips, where)
    engine = cl.Engine(graph, program, placement=placement)
    start = time.process_time()
    profile = engine.profile(allow_out_of_memory=True)
    seconds = time.process_time() - start
    return Cost(profile.total_cycles, int(profile.memory_by_tile.max()), seconds)


def orders(name: str, edges: int) -> Iterator[Nodes]:
    """A graph in its natural order, in a random one, and breadth first."""
    nodes = GRAPHS[name](edges)
    yield nodes
    yield nodes.renumbered(seed=1)
    yield nodes.breadth_first()


def ratios(name: str, size: Size, numberings: int, placement: str = "balanced") -> list[tuple[float, float, float]]:
    """Cycles and bytes beside METIS's, and seconds, in each of the first so many orders."""
    found = []
    for nodes in itertools.islice(orders(name, size.edges), numberings):
        ours = cost(nodes, size, placement=placement)
        theirs = cost(nodes, size, metis_tiles(nodes, size.tiles))
        found.append((ours.cycles / theirs.cycles, ours.num_bytes / theirs.num_bytes, ours.seconds))
    return found


def _beside_metis(name: str, size: Size, row: str) -> Row:
    found = ratios(name, size, 2)
    cycles, num_bytes = (max(own[k] for own in found) for k in (0, 1))
    seconds, each = max(own[2] for own in found), " and ".join(f"{own[0]:.3f}" for own in found)
    note = f"cycles to METIS's, {each}; bytes {num_bytes:.3f}"
    return Row(row, seconds, None, cycles, BAR, note, peak_ratio=num_bytes, peak_bar=BAR)


def _without(sizes: Mapping[str, Size], row: str) -> Row:
    found = [[own[0] for own in ratios(name, size, 3, "breadth_first")] for name, size in sizes.items()]
    natural, shuffled, breadth_first = map(max, zip(*found, strict=True))
    note = f"cycles without a partitioner, to METIS's: {natural:.3f} and {breadth_first:.3f}; at random {shuffled:.3f}"
    return Row(row, None, None, max(natural, breadth_first), WITHOUT_BAR, note)


@benchmark
def placement(sizes: Mapping[str, Size] = SIZES, large: Size = LARGE) -> Generator[Measurement | Row, Row, None]:
    """Twenty irregular programs, each numbered naturally and at random, beside METIS's parts with vertex weights.

    A row's ratio is the worse of the cycles of both orders, and it is missed where the fullest tile holds more as well.
    Times are CPU time of the slower order. The row without a partitioner is the worst of natural and breadth-first
    numberings. The last row is the time to place a million links.
    """
    rows = []
    sizes = {name: Size(*size) for name, size in sizes.items()}
    for name, size in sizes.items():
        rows.append((yield Measurement(f"placement/{name}", partial(_beside_metis, name, size))))
    yield from mean_row("placement", rows, MEAN_BAR)
    yield Measurement("placement/without", partial(_without, sizes))
    yield Measurement("placement/million", partial(_million, Size(*large)))


def _seconds(edges: int, tiles: int) -> float:
    nodes = GRAPHS["mesh_3d_corners"](edges).renumbered(seed=1)
    return cost(nodes, Size(edges, tiles)).seconds


def _million(size: Size, row: str) -> Row:
    seconds = in_fresh_process(_seconds, size.edges, size.tiles)
    return Row(row, seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s, by {partitioner()}")
