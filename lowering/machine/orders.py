"""The order of elements on their tiles: what the same tiles receive lies side by side, so that messages are long.

In come the nets of a hypergraph, where they lie, and which tiles read them. Out comes, for each variable whose elements
move, the place of each of its positions.
"""

from __future__ import annotations

import numpy as np

from codelet.views.sources import Variable
from lowering.machine.hypergraph import Hypergraph
from lowering.plan.pieces import Pieces, pieces_of
from lowering.plan.runs import each_once

_TOLD = 3
"""By so many of the tiles that receive a net nets are sorted; those that all of them receive are put together."""


def _receivers(graph: Hypergraph, readers: np.ndarray, homes: np.ndarray, num_tiles: int) -> list[np.ndarray]:
    """Of each net the first tiles that receive it, -1 for none, and a number that is the same for the same tiles."""
    nets, tiles = np.divmod(readers, num_tiles)
    pairs = each_once(nets // len(graph.works) * num_tiles + tiles)
    nets, tiles = np.divmod(pairs, num_tiles)
    away = homes[nets] != tiles
    nets, tiles = nets[away], tiles[away]
    first = np.searchsorted(nets, np.arange(len(homes)))
    counts = np.bincount(nets, minlength=len(homes))
    found = []
    for k in range(_TOLD):
        has = counts > k
        own = np.full(len(homes), -1)
        own[has] = tiles[first[has] + k]
        found.append(own)
    weights = (tiles.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    weights ^= weights >> np.uint64(29)
    until = np.append(np.zeros(1, np.uint64), np.cumsum(weights * weights, dtype=np.uint64))
    return [*found, until[first + counts] - until[first]]


def element_orders(graph: Hypergraph, readers: np.ndarray, homes: np.ndarray, num_tiles: int) -> dict[Variable, Pieces]:
    """The place of each position of the variables of which several nets move.

    Args:
        graph: the hypergraph.
        readers: which tiles read which nets, as `UnitModel.readers` finds them.
        homes: the tile of each net, -1 for none.
        num_tiles: of the machine.
    """
    *receivers, everyone = _receivers(graph, readers, homes, num_tiles)
    keys = [everyone, *receivers[::-1], np.where(homes < 0, num_tiles, homes)]
    orders: dict[Variable, Pieces] = {}
    for variable in graph.plan.variables:
        first, stop = variable.first_element, variable.first_element + variable.size
        low, high = np.searchsorted(graph.net_starts, (first, stop))
        if high - low < 3 or not (receivers[0][low:high] >= 0).any():
            continue
        order = np.lexsort([own[low:high] for own in keys])
        starts = graph.net_starts[low:high] - first
        lengths = np.minimum(graph.net_stops[low:high], stop) - graph.net_starts[low:high]
        before = int(starts[0])  # what comes before any net stays
        places = np.empty(high - low, np.int64)
        places[order] = before + np.cumsum(lengths[order]) - lengths[order]
        if before:
            starts, lengths, places = (
                np.append(own, more) for own, more in ((starts, 0), (lengths, before), (places, 0))
            )
        orders[variable] = pieces_of(starts, places, lengths)
    return orders
