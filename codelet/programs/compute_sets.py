"""Compute sets: programs execute them, and vertices are added to them."""

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
        recording: the recording that it was made in, or `None`. Inside another recording no vertices may be added to
            it.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> with graph.scope("layer"):
    ...     graph.add_compute_set("multiply")
    compute set layer/multiply
    """

    graph: Graph
    name: str
    number: int
    line: Line | None
    recording: object | None

    def __repr__(self) -> str:
        return f"compute set {self.name}"
