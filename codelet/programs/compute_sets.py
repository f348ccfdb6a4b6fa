"""Compute sets: what programs execute, and what vertices are added to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codelet.errors import Line

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


@dataclass(frozen=True, eq=False, repr=False)
class ComputeSet:
    """Vertices that run in parallel, in no order. Made by `Graph.add_compute_set`.

    Attributes:
        graph: the graph it belongs to.
        name: unique within the graph, scopes included.
        number: its place in the order in which the graph's compute sets were made.
        line: the user's line that made it.
        recording: the recording that it was made in, if any, to which alone vertices may be added within another.
    """

    graph: Graph
    name: str
    number: int
    line: Line | None
    recording: object | None

    def __repr__(self) -> str:
        return f"compute set {self.name}"
