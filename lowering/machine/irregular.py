"""Placement of irregular programs: partitions of their hypergraph, the best of which is refined.

In comes a plan without calls, out comes where everything lives, or `None` of a regular plan. Tiles, chips and devices
are a hierarchy: units are partitioned among the chips first, and those of each chip among its tiles.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from codelet.target import Target
from lowering.machine.chips import tiles_per_chip
from lowering.machine.hypergraph import Hypergraph, hypergraph_of
from lowering.machine.orders import element_orders
from lowering.machine.partitioners import (
    LinkedNodes,
    bisected_parts,
    breadth_first_order,
    component_parts,
    has_metis,
    has_mtkahypar,
    links_of,
    metis_parts,
    mtkahypar_parts,
    net_centres,
    parts_in_order,
)
from lowering.machine.placement import Placement, num_elements
from lowering.machine.placer import Placer
from lowering.machine.unit_model import UnitModel
from lowering.machine.unit_moves import Refined, measured, refined
from lowering.plan.plan import Plan
from lowering.plan.runs import Runs, sums_of

Partitioner = Literal["partition", "hypergraph", "breadth_first"]
"""What parts units: METIS, Mt-KaHyPar, or what needs no library."""

_SMALL = 1 << 18
"""Up to so many pins several partitions are refined, above the best alone."""

_MORE, _AT_MOST = 1, 12
"""By how many percent bisections take more cycles than METIS's parts, both refined, on the graphs of the benchmark
`placement` in their natural order: in the mean, and at most."""

_LESS = 0.99
"""Refinement keeps the fullest tile within this of the least full of all partitions, where it can."""

Parts = Callable[[LinkedNodes, int], np.ndarray]


def _hierarchical(links: LinkedNodes, target: Target, partition: Parts) -> np.ndarray:
    """The tile of each node: parts for the chips, and parts of each for its tiles."""
    per_chip = tiles_per_chip(target)
    if target.num_chips == 1:
        return partition(links, per_chip)
    chips = partition(links, target.num_chips)
    tiles = np.zeros(links.num_nodes, np.int32)
    for chip in range(target.num_chips):
        (own,) = np.nonzero(chips == chip)
        tiles[own] = chip * per_chip + partition(links.of(own), per_chip)
    return tiles


def _in_breadth(links: LinkedNodes, parts: int) -> np.ndarray:
    return parts_in_order(breadth_first_order(links), links.loads, parts)


def _on_fixed(graph: Hypergraph, tiles: np.ndarray) -> np.ndarray:
    """Tiles with parts named so that units placed by hand are near what they share, and with those where they are."""
    num_tiles = graph.plan.graph.target.num_tiles
    (given,) = np.nonzero(graph.fixed >= 0)
    (lying,) = np.nonzero((graph.home_tiles >= 0) & (np.bincount(graph.pin_nets, minlength=len(graph.homes)) > 0))
    if not len(given) and not len(lying):
        return tiles
    pins = np.flatnonzero(graph.home_tiles[graph.pin_nets] >= 0)
    parts = np.concatenate([tiles[given], tiles[graph.pin_units[pins]]])
    wanted = np.concatenate([graph.fixed[given], graph.home_tiles[graph.pin_nets[pins]]])
    weights = np.concatenate([np.maximum(graph.unit_loads[given], 1), graph.pin_weights[pins]])
    keys, sums = sums_of(parts.astype(np.int64) * num_tiles + wanted, weights)
    name, taken = np.full(num_tiles, -1), np.zeros(num_tiles, bool)
    for k in np.argsort(-sums, kind="stable").tolist():
        part, tile = divmod(int(keys[k]), num_tiles)
        if name[part] < 0 and not taken[tile]:
            name[part], taken[tile] = tile, True
    name[name < 0] = np.flatnonzero(~taken)
    found = name[tiles]
    found[given] = graph.fixed[given]
    return found


def _partitions(graph: Hypergraph, how: Partitioner) -> Iterator[np.ndarray]:
    """The tiles of units by each of several partitions, the first of which others may take no more memory than."""
    target = graph.plan.graph.target
    alike = links_of(graph)
    small = len(graph.pin_nets) <= 2 * _SMALL
    if how == "hypergraph":
        yield mtkahypar_parts(graph, target.num_tiles)
    elif how == "partition":
        if small:
            yield metis_parts(links_of(graph, weighted=False), target.num_tiles)
        yield _hierarchical(alike, target, metis_parts)
        free = links_of(graph, alike=False) if small else alike
        if free.num_nodes > alike.num_nodes:
            yield _hierarchical(free, target, metis_parts)
        if small:
            yield _hierarchical(alike, target, bisected_parts)
    else:
        yield _hierarchical(alike, target, bisected_parts)
        yield _in_breadth(alike, target.num_tiles)
    whole = component_parts(alike, target.num_tiles)
    if whole is not None:
        yield whole


def best_units(graph: Hypergraph, how: Partitioner) -> Refined:
    """Units on tiles at the fewest modelled cycles of several partitions, refined."""
    model = UnitModel(graph)
    tried = [
        measured(model, _on_fixed(graph, tiles[: graph.num_units].astype(np.int64)))
        for tiles in _partitions(graph, how)
    ]
    most_bytes = tried[0].fullest
    begun = sorted(tried, key=lambda own: (own.cycles, own.fullest))
    is_small = len(graph.pin_nets) <= _SMALL
    if is_small:  # refinement may not come from one with more memory to one with as little
        within = min(tried, key=lambda own: own.rank(most_bytes))
        begun = [within, *(own for own in begun if own is not within)]
    found = [refined(model, own.tiles, int(_LESS * most_bytes)) for own in begun[: 3 if is_small else 1]]
    return min([*tried, *found], key=lambda own: own.rank(most_bytes))


def _taken_apart(graph: Hypergraph, found: Refined) -> tuple[Hypergraph, Refined]:
    """The vertices of units on tiles, refined one by one, if there are units of several and few enough."""
    if graph.num_units == len(graph.unit_of) or len(graph.pin_nets) > _SMALL:
        return graph, found
    fine = hypergraph_of(graph.plan, join=False)
    assert fine is not None
    tiles = np.empty(fine.num_units, np.int64)
    tiles[fine.unit_of] = found.tiles[graph.unit_of]
    model = UnitModel(fine)
    return fine, refined(model, tiles, measured(model, tiles).fullest)


def _placed(graph: Hypergraph, found: Refined) -> Placement:
    """Where everything lives, by the tiles of units and the homes of nets."""
    placer = Placer(graph.plan)
    for family in graph.plan.families:
        if family not in placer.vertices:
            placer.put(family, found.tiles[graph.units_of(family)].astype(np.int32))
    (nets,) = np.nonzero((found.homes >= 0) & (graph.homes < 0))
    placer.put_runs(Runs(graph.net_starts[nets], graph.net_stops[nets]), found.homes[nets])
    placer.follow_copies()
    placer.fill(found.num_bytes)
    model = UnitModel(graph)
    orders = element_orders(graph, model.readers(found.tiles), found.homes, model.num_tiles)
    return replace(placer.placement(), orders=orders)


@functools.cache
def warn_without_partitioner() -> None:
    """Say, once a process, what the extra `placement` would be likely to save."""
    warnings.warn(
        "codelet: this graph is irregular, and METIS is not installed: placed by breadth-first bisection, it takes "
        f"{_MORE} % more cycles than by partition, at most {_AT_MOST} %. pip install 'codelet-graphs[placement]'",
        stacklevel=2,
    )


def partitioner() -> Partitioner:
    """What parts units by default: METIS, where it is installed. Mt-KaHyPar takes 20 times as long for 1 % less."""
    return "partition" if has_metis() else "hypergraph" if has_mtkahypar() else "breadth_first"


def place_by_partition(plan: Plan, how: Partitioner) -> Placement | None:
    """Where everything of an irregular plan lives; `None` of a regular one.

    Args:
        plan: without calls.
        how: what parts its units.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    graph = hypergraph_of(plan)
    if graph is None or not graph.num_units:
        return None
    return _placed(*_taken_apart(graph, best_units(graph, how)))


def element_devices(plan: Plan, count: int) -> np.ndarray | None:
    """The device of each element of an irregular plan, by the graph's number for it, as units are parted among devices.

    What no unit touches is dealt out in order. `None` of a regular plan.

    Args:
        plan: without calls and rotations.
        count: how many devices there are.
    """
    graph = hypergraph_of(plan)
    if graph is None or not graph.num_units:
        return None
    links = links_of(graph)
    parts = metis_parts(links, count) if has_metis() else bisected_parts(links, count)
    centres, _ = net_centres(graph)
    devices = np.full(num_elements(plan), -1, np.int32)
    (nets,) = np.nonzero(centres >= 0)
    runs = Runs(graph.net_starts[nets], graph.net_stops[nets])
    devices[runs.numbers()] = np.repeat(parts[centres[nets]], runs.lengths)
    for variable in plan.variables:
        own = devices[variable.first_element : variable.first_element + variable.size]
        in_order = (np.arange(variable.size) * count // max(1, variable.size)).astype(np.int32)
        np.copyto(own, in_order, where=own < 0)
    return devices
