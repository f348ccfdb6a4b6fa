"""Links: which vertex's results which vertex reads, from the edges of a graph and the order of its program.

Who last wrote an element is linked to who reads it. Elements that no vertex wrote (weights, inputs, values from the
host) are a point for each stretch that is read together. Such a stretch is the elements of one variable that a vertex
is the first to read, through one field and in its order. Whatever copies, calls and loops an element went through in
between, the link is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from codelet.draw.link_kernels import claim_origins
from codelet.draw.point_lists import PointLists, Points
from codelet.draw.writers import NOTHING, Writers
from codelet.graphs.edge_blocks import blocks_of_field
from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.programs.program import as_program
from codelet.programs.walk import check_program
from codelet.views.sources import source_variables


@dataclass(frozen=True, eq=False)
class Links:
    """The links of a graph, in columns.

    Points are numbered: the vertices first, family by family as `graph.families` has them and in each by number; then
    the origins that nobody wrote, in the order in which they are first read.

    Attributes:
        graph: the graph.
        input_variable: int32, for each point behind the vertices the number of the variable that it is elements of.
        input_family: int32, for each of them the place in `graph.families` of the vertices that read it first.
        first: int64 of shape (vertices + 1,): the links to vertex `v` are those from `first[v]` to `first[v + 1]`.
        source: int32, the point that each link comes from; no two links to one vertex come from one.
    """

    graph: Graph
    input_variable: np.ndarray
    input_family: np.ndarray
    first: np.ndarray
    source: np.ndarray

    @property
    def num_links(self) -> int:
        """The number of links."""
        return len(self.source)

    @property
    def num_vertices(self) -> int:
        """The number of vertices, which are the first points."""
        return len(self.first) - 1

    @property
    def num_points(self) -> int:
        """The number of vertices, and of origins that nobody wrote."""
        return self.num_vertices + len(self.input_variable)

    @property
    def target(self) -> np.ndarray:
        """The vertex that each link goes to, int32."""
        return np.repeat(np.arange(self.num_vertices, dtype=np.int32), np.diff(self.first))

    def shares(self, count: int) -> list[tuple[int, int]]:
        """All vertices in stretches with about as many links each."""
        cuts = np.searchsorted(self.first, np.linspace(0, self.num_links, count + 1).astype(np.int64)[1:-1])
        return list(pairwise([0, *cuts.tolist(), self.num_vertices]))


def find_links(graph: Graph, program: object = None) -> Links:
    """The links of a graph as a program runs it; without one, all compute sets in the order they were added.

    Where a program has a branch, by an `If` or by the trip count of a loop, all possible writers are linked.

    Raises:
        ProgramError, ForeignGraphError: a program that is none of this graph.
        MissingExtraError: numba is not installed.
    """
    return LinkSearch(graph).links(program)


class LinkSearch:
    """One search for links: the program runs on the contents of elements, and the contents read by each field are
    noted.

    Attributes:
        claimed: int32, the point of each element as an origin; 0 where it has none.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.starts = np.array([variable.first_element for variable in graph.sources], np.int64)
        self.num_elements = sum(variable.size + 1 for variable in graph.sources)
        self.claimed = np.zeros(self.num_elements, np.int32)
        self.num_points = graph.num_vertices
        self.lists = PointLists()
        self.found: dict[Family, list[Points]] = {}
        self.places = {family: place for place, family in enumerate(graph.families)}
        self.claims: list[np.ndarray] = []

    def links(self, program: object = None) -> Links:
        """Run a program and give its links; as `find_links`."""
        wanted = as_program(self.graph.compute_sets if program is None else program)
        check_program(wanted, self.graph)
        Writers(self.graph, self.visit).run(wanted)
        self.lists.expect(self.num_points)
        counts = [np.zeros(1, np.int32)]
        pieces: list[np.ndarray] = []
        for family in self.graph.families:
            parts = self.found.pop(family, None)
            own = self.lists.united(parts) if parts else Points.none(family.num_vertices)
            counts.append(own.counts)
            pieces.append(own.points)
        first = np.cumsum(np.concatenate(counts), dtype=np.int64)
        # Piece by piece, since all of them twice may be more than there is room for.
        source = np.empty(first[-1], np.int32)
        end = len(source)
        while pieces:
            piece = pieces.pop()
            source[end - len(piece) : end] = piece
            end -= len(piece)
        input_family = np.concatenate([np.zeros(0, np.int32), *self.claims])
        return Links(self.graph, self._input_variables(), input_family, first, source)

    def visit(self, family: Family, held: np.ndarray) -> None:
        """Note the reads of a family's vertices."""
        parts = []
        for field in family.fields:
            if field.is_read and field.tensor is not None:
                for row in held:
                    parts.append(self.read(family, field, row))
        if parts:
            self.found.setdefault(family, []).append(self.lists.united(parts))

    def read(self, family: Family, field: Field, held: np.ndarray) -> Points:
        """The points that each vertex of a family reads by a field."""
        self._claim(family, field, held)
        return self.lists.of_field(family, field, held)

    def _claim(self, family: Family, field: Field, held: np.ndarray) -> None:
        """Give the origins that a field reads points."""
        assert field.tensor is not None
        variables = source_variables(field.tensor.source)
        if any((held[own.first_element : own.first_element + own.size] < NOTHING).any() for own in variables):
            last = np.array([-1, 0, 0], np.int64)
            bounds = np.append(self.starts, self.num_elements)
            before = self.num_points
            for block in blocks_of_field(family, field):
                columns = block.vertex, block.first, block.offset, block.length
                self.num_points = claim_origins(held, self.claimed, bounds, last, self.num_points, *columns)
            self.lists.expect(self.num_points)
            self.claims.append(np.full(self.num_points - before, self.places[family], np.int32))

    def _input_variables(self) -> np.ndarray:
        """The number of the variable that each point which nobody wrote is elements of."""
        found = np.zeros(self.num_points - self.graph.num_vertices, np.int32)
        for variable in self.graph.sources:
            own = self.claimed[variable.first_element : variable.first_element + variable.size]
            found[own[own > 0] - self.graph.num_vertices] = variable.number
        return found
