"""A graph as text: its parts, a line each, and its compute sets as a table for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codelet.display import as_html, as_table
from codelet.graphs.family import counted
from codelet.programs.copies import Stream

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


def _stream_text(stream: Stream) -> str:
    buffered = f", {stream.buffering_depth} values buffered" if stream.buffering_depth > 1 else ""
    return f"{'input' if stream.is_input else 'output'} stream {stream.name}: {stream.type_text}{buffered}"


def graph_text(graph: Graph) -> str:
    """All variables, streams, families and functions of a graph."""
    vertices = counted(graph.num_vertices, "vertex", "vertices")
    edges = counted(graph.num_edges, "edge", "edges")
    sets = counted(len(graph.compute_sets), "compute set", "compute sets")
    rows = [f"graph of {vertices} and {edges} in {sets}, for {graph.target}"]
    rows += [f"{'constant' if v.value is not None else 'variable'} {v!r}" for v in graph.sources]
    rows += map(_stream_text, graph.streams)
    rows += map(str, graph.families)
    rows += map(str, graph.functions)
    return "\n".join(rows)


def graph_html(graph: Graph) -> str:
    """The compute sets of a graph, and all of it as text."""
    rows = [(f.compute_set.name, f.codelet.name, f.num_vertices) for f in graph.families]
    table = as_table(("compute set", "codelet", "vertices"), rows)
    return as_html(f"{graph.num_vertices:,} vertices, {graph.num_edges:,} edges", table, {"in full": graph})
