"""The tiles of a graph's own vertices, of what is known of those of its plan.

The families of a plan are in normal form: their vertices are numbered otherwise than the graph's, and a family of the
graph may be several of the plan, or a part of one. Within a compute set no element is written by two vertices, so that
the first element that a vertex writes names it, in the graph and in the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from codelet.errors import ForeignGraphError
from codelet.graphs.edge_blocks import blocks_of_field
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph


def first_written(family: Family) -> np.ndarray:
    """The number of the first element that each vertex of a family writes, int64; -1 where it writes none."""
    found = np.full(family.num_vertices, -1, np.int64)
    for field in family.fields:
        if field.is_written:
            for block in blocks_of_field(family, field):
                # A vertex that has written through a field before is named by that.
                starts = np.diff(block.vertex, prepend=-1) > 0
                starts &= found[block.vertex] < 0
                found[block.vertex[starts]] = block.first[starts] + block.offset[0]
    return found


class _Named(NamedTuple):
    """The vertices of a compute set: the elements that name them, in ascending order, and their tiles."""

    elements: np.ndarray
    tiles: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class VertexTiles:
    """The tiles of vertices, which are told of families of the graph when asked for.

    Attributes:
        graph: the graph.
        of_plan: for each family of its plan the tile of each vertex, int32 of shape (num_vertices,).
    """

    graph: Graph
    of_plan: Mapping[Family, np.ndarray]

    def __repr__(self) -> str:
        return f"<VertexTiles of {self.graph!r}>"

    @functools.cached_property
    def _by_compute_set(self) -> dict[str, list[Family]]:
        found: dict[str, list[Family]] = {}
        for family in self.of_plan:
            found.setdefault(family.compute_set.name, []).append(family)
        return found

    @functools.cached_property
    def _last(self) -> dict[str, _Named]:
        """The compute set that was asked for last: its families mostly are asked for one after the other."""
        return {}

    def _named(self, compute_set: str) -> _Named:
        if compute_set not in self._last:
            self._last.clear()
            families = self._by_compute_set.get(compute_set, [])
            # What writes nothing is found, and is nowhere.
            elements = np.concatenate([np.array([-1]), *(first_written(family) for family in families)])
            tiles = np.concatenate([np.array([-1], np.int32), *(self.of_plan[family] for family in families)])
            if (elements[1:] < elements[:-1]).any():
                order = np.argsort(elements, kind="stable")
                elements, tiles = elements[order], tiles[order]
            self._last[compute_set] = _Named(elements, tiles)
        return self._last[compute_set]

    def of(self, family: Family) -> np.ndarray:
        """The tile of each vertex of a family of the graph, int32; -1 where it does not run, or writes nothing.

        Raises:
            ForeignGraphError: a family of another graph.
        """
        if family.compute_set.graph is not self.graph:
            raise ForeignGraphError(
                "a profile is asked for tiles of another graph's vertices",
                given=f"vertices of {family.compute_set.name!r} of {family.compute_set.graph!r}",
                expected=f"vertices of {self.graph!r}, which was profiled",
                fix="profile the graph itself: cl.Engine(graph).profile()",
            )
        own, wanted = self._named(family.compute_set.name), first_written(family)
        place = np.minimum(np.searchsorted(own.elements, wanted), len(own.elements) - 1)
        return np.where(own.elements[place] == wanted, own.tiles[place], -1).astype(np.int32)
