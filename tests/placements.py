"""Placements drawn at random, and what the tests of the machine count one vertex at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.family import Family
from codelet.graphs.vertices import Vertex
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.place import METHODS, place
from lowering.machine.placement import Placement, num_elements
from lowering.pipeline import plan_engine
from lowering.plan.plan import Plan
from lowering.plan.timeline import without_calls
from tests.strategies import Case, cases

TILES = 8


def plan_of(case: Case) -> Plan:
    """The plan of a case without calls, with all its variables kept."""
    return without_calls(plan_engine(case.graph, case.sequence()))


def plan_of_graph(graph: cl.Graph) -> Plan:
    """The plan of a graph's own program without calls."""
    return without_calls(plan_engine(graph, graph.default_program))


@st.composite
def placements(draw: Any, max_iterations: int = 3, loops: bool = False) -> Placement:
    """A generated graph, placed by one of the methods or at random."""
    plan = plan_of(
        draw(
            cases(
                dtype=draw(st.sampled_from([np.float32, np.int32, np.float16])),
                max_iterations=max_iterations,
                loops=loops,
            )
        )
    )
    method = draw(st.sampled_from([*METHODS, "random", "random", "sorted"]))
    if method in METHODS:
        return place(plan, method)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    tiles = draw(st.integers(1, TILES))

    def some(count: int) -> np.ndarray:
        drawn = random.integers(0, tiles, count).astype(np.int32)
        return drawn if method == "random" else np.sort(drawn)

    elements = np.full(num_elements(plan), -1, np.int32)
    for variable in plan.variables:
        elements[variable.first_element : variable.first_element + variable.size] = some(variable.size)
    return Placement(
        plan, TILES, ElementTiles.of(plan, elements), {family: some(family.num_vertices) for family in plan.families}
    )


def touched(family: Family, number: int, *, written: bool) -> list[int]:
    """The numbers of the elements that a vertex reads, or that it writes."""
    vertex, found = Vertex(family, number), []
    for field in family.fields:
        if field.tensor is not None and (field.is_written if written else field.is_read):
            found += vertex.fields[field.name].elements().reshape(-1).tolist()
    return [element for element in found if element >= 0]


def vertices_of(placement: Placement, families: tuple[Family, ...]) -> Iterator[tuple[Family, int, int]]:
    """Every vertex of some families, and its tile."""
    for family in families:
        for number in range(family.num_vertices):
            yield family, number, int(placement.vertex_tiles[family][number])


def built(tiles: int = TILES) -> cl.Graph:
    """An empty graph on few tiles."""
    return cl.Graph(cl.IPU(num_tiles=tiles))


@cl.codelet
def step_on(x):
    return x + 1


@st.composite
def chains(draw: Any) -> Placement:
    """Variables of one size on the same tiles, each made of another, element by element or just not so, in loops."""
    graph, size = built(), 6
    tensors = [graph.add_variable(f"v{k}", (size,)) for k in range(draw(st.integers(3, 6)))]
    ways = [
        *[lambda t, i: t[i]] * 4,
        lambda t, i: t[size - 1 - i],
        lambda t, i: t[(i + 1) % size],
        lambda t, i: cl.concatenate([t, t])[i],
    ]

    def part(depth: int) -> Any:
        kind = draw(st.sampled_from(["set", "set", "set", "set", "copy", "loop"]))
        if kind == "loop" and depth < 2:
            body = [part(depth + 1) for _ in range(draw(st.integers(1, 4)))]
            return cl.Repeat(draw(st.integers(1, 3)), cl.Sequence(*body))
        old, new = draw(st.permutations(tensors))[:2]
        if kind == "copy":
            return cl.Copy(old if draw(st.booleans()) else old[::-1], new)
        i = cl.grid(size)
        compute_set = graph.add_compute_set(f"set{len(graph.compute_sets)}")
        graph.add_vertex(compute_set, step_on, x=draw(st.sampled_from(ways))(old, i), out=new[i])
        return cl.Execute(compute_set)

    plan = plan_engine(graph, cl.Sequence(*[part(0) for _ in range(draw(st.integers(2, 8)))]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    elements = np.full(num_elements(plan), -1, np.int32)
    tiles, other = (random.integers(0, 3, size) for _ in range(2))
    for variable in plan.variables:
        own = other if draw(st.integers(0, 3)) == 0 else tiles
        elements[variable.first_element : variable.first_element + size] = own
    near = draw(st.booleans())
    vertices = {family: (tiles if near else random.integers(0, 3, size)).astype(np.int32) for family in plan.families}
    return Placement(plan, TILES, ElementTiles.of(plan, elements), vertices)


@cl.codelet(cycles=lambda x, *, cycles: cycles)
def work(x, *, cycles):
    return {"x": x + 1}


@st.composite
def quiet(draw: Any) -> Placement:
    """Programs whose vertices work where their elements live, some tiles longer than others; little moves."""
    graph = built()
    x, p = graph.add_variable("x", (3 * TILES,)), graph.add_variable("p", (), "int32")
    graph.set_tile_mapping(x, np.arange(3 * TILES) // 3)
    unused = graph.add_variable("unused", (1,))
    for tensor in (p, unused):
        graph.set_tile_mapping(tensor, 0)

    def compute_set() -> Any:
        compute_set = graph.add_compute_set(f"set{len(graph.compute_sets)}")
        ends = sorted(draw(st.lists(st.integers(0, 3 * TILES), min_size=2, max_size=4, unique=True)))
        for first, last in itertools.pairwise(ends):
            i = cl.grid(last - first)
            graph.add_vertex(compute_set, work, x=x[first + i], cycles=draw(st.integers(0, 99)), tile=(first + i) // 3)
        return cl.Execute(compute_set)

    def part(depth: int) -> Any:
        kind = draw(
            st.sampled_from(["set"] * 6 + ["copy", "undef"] + ["repeat", "while", "if", "switch"] * (depth < 2))
        )
        body = lambda: cl.Sequence(*[part(depth + 1) for _ in range(draw(st.integers(1, 3)))])  # noqa: E731
        match kind:
            case "copy":
                return cl.Copy(x[0], x[draw(st.integers(1, 3 * TILES - 1))])
            case "undef":
                return cl.WriteUndef(unused)
            case "repeat":
                return cl.Repeat(draw(st.integers(0, 3)), body())
            case "while":
                return cl.RepeatWhile(body(), p, body(), trip_count=draw(st.integers(0, 3)))
            case "if":
                return cl.If(p, body(), body())
            case "switch":
                return cl.Switch(p, {1: body(), 2: body()})
        return compute_set()

    return place(without_calls(plan_engine(graph, cl.Sequence(*[part(0) for _ in range(draw(st.integers(2, 8)))]))))
