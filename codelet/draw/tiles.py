"""The tiles of vertices: those that the graph gives them, else those that a profile knows."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from codelet.errors import DrawError
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph


class KnowsTiles(Protocol):
    """Knows where the vertices of a graph are: `Engine.profile` gives one."""

    def tiles_of_vertices(self, family: Family) -> np.ndarray:
        """The tile of each vertex of a family, in row-major order over its axes; -1 for those that it does not know."""
        ...


def tiles_of(graph: Graph, profile: KnowsTiles | None = None) -> np.ndarray | None:
    """The tile of every vertex of a graph, -1 where nobody says; None if that is everywhere.

    Returns:
        int16, or int32 where the machine has more tiles than those tell apart, of shape (vertices,).

    Raises:
        DrawError: a profile that is none.
        ForeignGraphError: a profile of another graph.
    """
    if profile is not None and not callable(getattr(profile, "tiles_of_vertices", None)):
        raise DrawError(
            "a picture is given an invalid profile",
            given=f"{type(profile).__name__}: {profile!r:.80}",
            expected="what an engine of the graph says",
            fix="cl.draw(graph, profile=cl.Engine(graph).profile())",
        )
    families = graph.families
    if profile is None and all(family.tile is None for family in families):
        return None
    kind = np.int16 if graph.target.num_tiles <= np.iinfo(np.int16).max else np.int32
    tile, end = np.full(graph.num_vertices, -1, kind), 0
    for family in families:
        begin, end = end, end + family.num_vertices
        own = tile[begin:end]
        if profile is not None:
            own[:] = profile.tiles_of_vertices(family)
        if family.tile is not None:
            # Of those that do not run the graph alone knows.
            given = np.broadcast_to(family.tile.values(family.axes), family.extents)
            np.copyto(own, given.reshape(-1), where=own < 0, casting="same_kind")
    return tile if (tile >= 0).any() else None
