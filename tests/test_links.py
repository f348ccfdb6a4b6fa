"""Links against a trace of `interpret`, and the columns of edges against edges one at a time."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from codelet.graphs.vertices import family_vertices, gather
from codelet.views.tensor import Tensor
from tests.examples import examples
from tests.strategies import Case, cases

pytest.importorskip("numba", reason="links are found by kernels that numba compiles")

from codelet.draw.links import LinkSearch

interpreting = importlib.import_module("codelet.interpret")  # the name in the package is its function
MOST_TURNS = 4
MOST_PATHS = 16


class _Trace:
    """What `interpret` does, seen from outside: who gave each element what it holds, and who reads that.

    An element holds the number of a vertex, ("origin", element), or None. Choices are taken from a script, so that all
    ways through a program can be gone.
    """

    def __init__(self, graph: cl.Graph, script: list[int]):
        self.graph = graph
        self.script = script
        self.options: list[int] = []
        self.held: dict[int, Any] = {}
        self.links: set[tuple[Any, int]] = set()
        self.numbers: dict[Any, int] = dict(
            zip(
                graph.families,
                itertools.accumulate([0, *(family.num_vertices for family in graph.families)]),
                strict=False,
            )
        )
        # By origin: the order in which the vertices' fields read them first.
        self.first_read: dict[int, Any] = {}

    def holds(self, element: int) -> Any:
        return self.held.get(element, ("origin", element))

    def choose(self, options: int) -> int:
        place = len(self.options)
        self.options.append(options)
        return self.script[place] if place < len(self.script) else 0

    def execute(self, compute_set: Any) -> None:
        families = [family for family in self.graph.families if family.compute_set is compute_set]
        for family in families:
            for vertex in family_vertices(family):
                number = self.numbers[family] + vertex.number
                for field in family.fields:
                    if field.tensor is not None and field.is_read:
                        for element in vertex.fields[field.name].elements().reshape(-1).tolist():
                            if element >= 0 and self.holds(element) is not None:
                                self.links.add((self.holds(element), number))
        for family in families:
            for field in family.fields:
                if field.tensor is not None and field.is_read:
                    for vertex in family_vertices(family):
                        for element in vertex.fields[field.name].elements().reshape(-1).tolist():
                            if element >= 0 and isinstance(self.holds(element), tuple):
                                by = len(self.first_read), (family, field.name, vertex.number)
                                self.first_read.setdefault(self.holds(element)[1], by)
        for family in families:
            for vertex in family_vertices(family):
                for field in family.fields:
                    if field.is_written:
                        elements = vertex.fields[field.name].elements().reshape(-1).tolist()
                        self.held.update(dict.fromkeys(elements, self.numbers[family] + vertex.number))


def _interpreted(case: Case, trace: _Trace) -> None:
    """Run a program by `interpret`, one way through its choices, and note what it does."""

    def holds(tensor: Tensor) -> list[Any]:
        return [trace.holds(element) if element >= 0 else None for element in tensor.elements().reshape(-1).tolist()]

    def hold(tensor: Tensor, what: list[Any]) -> None:
        trace.held.update(zip(tensor.elements().reshape(-1).tolist(), what, strict=True))

    class Traced(interpreting.Interpreter):
        def read(self, tensor, by, line=None):
            return gather(self.arrays, tensor)  # on some ways there are no values

        def receive(self, stream):
            return np.zeros(stream.shape, stream.dtype)

        def bind(self, source, destination):
            moved = holds(source)
            super().bind(source, destination)
            hold(destination, moved)

        def forget(self, tensor):
            super().forget(tensor)
            hold(tensor, [None] * tensor.size)

        def write(self, tensor, values):
            super().write(tensor, values)
            hold(tensor, [("origin", element) for element in tensor.elements().reshape(-1).tolist()])

        def _execute(self, compute_set):
            before = dict(trace.held)
            super()._execute(compute_set)
            trace.held = before
            trace.execute(compute_set)

        def _copy(self, copy):
            moved = holds(copy.source) if isinstance(copy.source, Tensor) else None
            super()._copy(copy)
            if moved is not None and isinstance(copy.destination, Tensor):
                hold(copy.destination, moved)

        def run(self, program):
            match program:
                case cl.If():
                    self.run([program.then, program.otherwise][trace.choose(2)])
                case cl.Switch():
                    ways = [*program.cases.values(), program.default]
                    self.run(ways[trace.choose(len(ways))])
                case cl.RepeatWhile():
                    self.run(program.condition)
                    most = MOST_TURNS if program.max_iterations is None else min(MOST_TURNS, program.max_iterations)
                    for _ in range(most):
                        if trace.choose(2):
                            break
                        self.run(program.body)
                        self.run(program.condition)
                case cl.AbortOn():
                    pass
                case _:
                    super().run(program)

    Traced(case.graph, case.inputs).run(case.sequence())


def _ways(case: Case) -> Iterator[_Trace]:
    """All ways through a program, as far as loops turn `MOST_TURNS` times."""
    script: list[int] | None = []
    while script is not None:
        trace = _Trace(case.graph, script)
        _interpreted(case, trace)
        yield trace
        taken = [*script, *[0] * (len(trace.options) - len(script))]
        script = None
        for place in reversed(range(len(taken))):
            if taken[place] + 1 < trace.options[place]:
                script = [*taken[:place], taken[place] + 1]
                break


def _pairs(links: Any) -> set[tuple[int, int]]:
    return set(zip(links.source.tolist(), links.target.tolist(), strict=True))


@pytest.mark.slow
@examples(8)
@given(cases(np.int32, max_iterations=4))
def test_links_are_those_of_a_trace(case: Case):
    search = LinkSearch(case.graph)
    links = search.links(case.sequence())
    assert links.num_links == len(_pairs(links))
    assert links.num_points == links.num_vertices + len(links.input_variable)
    traces = list(itertools.islice(_ways(case), MOST_PATHS))
    expected = set()
    for trace in traces:
        for source, reader in trace.links:
            point = int(search.claimed[source[1]]) if isinstance(source, tuple) else source
            assert source is point or point >= links.num_vertices
            expected.add((point, reader))
    assert expected <= _pairs(links)
    if len(traces) < MOST_PATHS:
        assert expected == _pairs(links)


@examples(6)
@given(cases(np.int32, max_iterations=3))
def test_what_nobody_wrote_is_a_point_for_each_stretch_that_is_read_together(case: Case):
    search = LinkSearch(case.graph)
    links = search.links(case.sequence())
    (trace, *others) = itertools.islice(_ways(case), 2)
    if others:
        return
    expected: list[Any] = []
    points: dict[int, int] = {}
    stretch = None
    for element, (_, reader) in sorted(trace.first_read.items(), key=lambda item: item[1][0]):
        variable, _ = case.graph.locate(element)
        if stretch != (reader, variable):
            expected.append(variable.number)
            stretch = reader, variable
        points[element] = links.num_vertices + len(expected) - 1
    assert links.input_variable.tolist() == expected
    assert {int(e): int(search.claimed[e]) for e in np.flatnonzero(search.claimed)} == points


@examples(10)
@given(cases(np.int32))
def test_edge_blocks_are_the_edges(case: Case):
    found = []
    for block in case.graph.iter_edge_blocks():
        columns = block.columns
        assert len(columns.vertex) == block.num_edges
        for vertex, start, length in zip(*map(np.ndarray.tolist, columns), strict=True):
            found.append((block.family, block.field.name, vertex, start, length))
    expected = [
        (e.vertex.family, e.field, e.vertex.number, e.variable.first_element + e.start, e.length)
        for e in case.graph.iter_edges()
    ]
    key = lambda edge: (case.graph.families.index(edge[0]), edge[1], *edge[2:])  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)
    # Of each vertex in the field's order.
    at = lambda edges: {k: [e[3:] for e in edges if e[:3] == k] for k in {e[:3] for e in edges}}  # noqa: E731
    assert at(found) == at(expected)
