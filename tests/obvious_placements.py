"""Placements that anyone would make by hand, by which the placement pass is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import codelet as cl
from codelet.graphs.family import Family
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.placement import Placement, num_elements
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline
from tests.placements import touched


def one_on_each(family: Family, tiles: int) -> np.ndarray:
    """A vertex on each tile, or as many on each."""
    return np.arange(family.num_vertices) * tiles // max(tiles, family.num_vertices)


def dealt(family: Family, tiles: int) -> np.ndarray:
    """In turn."""
    return np.arange(family.num_vertices) % tiles


def in_columns(family: Family, tiles: int) -> np.ndarray:
    """By the last axis of the grid first."""
    numbers = np.arange(family.num_vertices).reshape(family.extents[::-1])
    turned = numbers.transpose(range(numbers.ndim)[::-1]).reshape(-1)
    return turned * tiles // max(tiles, family.num_vertices)


def in_rounds(family: Family, tiles: int) -> np.ndarray:
    """In blocks of as many as a tile has workers."""
    return np.arange(family.num_vertices) // 6 * tiles // max(tiles, -(-family.num_vertices // 6))


LAID: dict[str, Callable[[Family, int], np.ndarray]] = {
    own.__name__: own for own in (one_on_each, dealt, in_columns, in_rounds)
}


def laid(plan: Plan, lay: Callable[[Family, int], np.ndarray]) -> Placement:
    """Vertices laid out, what they write with them, what they alone read there too, and the rest in a line."""
    tiles = plan.graph.target.num_tiles
    elements = np.full(num_elements(plan), -1, np.int32)
    vertices = {}
    for family in plan.families:
        if family.tile is not None:
            vertices[family] = np.ascontiguousarray(family.tile.values_over(family.axes, np.int32)).reshape(-1)
        else:
            vertices[family] = lay(family, tiles).astype(np.int32)
    steps = [moment.step for moment in timeline(plan).moments]
    for written in (True, False):
        for step in steps:
            for family in step.families if isinstance(step, ExecuteStep) else ():
                for number in range(family.num_vertices):
                    own = np.array(touched(family, number, written=written), np.int64)
                    elements[own[elements[own] < 0]] = vertices[family][number]
    for step in steps:
        if isinstance(step, CopyStep):
            source, to = np.broadcast_arrays(step.source.elements(), step.destination.elements())
            both = (source >= 0) & (elements[to] < 0)
            elements[to[both]] = elements[source[both]]
    for variable in plan.variables:
        own = elements[variable.first_element : variable.first_element + variable.size]
        own[own < 0] = (np.arange(variable.size) * tiles // max(1, variable.size))[own < 0]
    return Placement(plan, tiles, ElementTiles.of(plan, elements), vertices)


def obvious(plan: Plan) -> Iterator[tuple[str, Placement]]:
    """Each of them, by name."""
    for name, lay in LAID.items():
        yield name, laid(plan, lay)


def systolic(cells: int = 16, block: int = 32, tiles: int = 256) -> tuple[cl.Graph, cl.Program]:
    """A product of matrices of blocks on a square of cells over two chips.

    In each turn new blocks enter at two sides, every cell multiplies, and blocks go on to the right and down.
    """
    graph = cl.Graph(cl.IPU(num_tiles=tiles, num_chips=2))
    turns, shape = 3 * cells - 2, (block, block)
    queue = {side: graph.add_variable(f"queue of {side}", (cells, turns, *shape)) for side in "ab"}
    held = {side: graph.add_variable(side, (cells, cells, *shape)) for side in "ab"}
    sent = {side: graph.add_variable(f"{side} sent", (cells, cells, *shape)) for side in "ab"}
    c, turn = graph.add_variable("c", (cells, cells, *shape)), graph.add_variable("turn", (), np.int32)
    take = cl.codelet(lambda blocks, turn: blocks[turn])
    pass_on = cl.codelet(lambda block: block)
    row, column = cl.grid(cells, cells)
    edge = cl.grid(cells)
    graph.add_vertex("feed", take, blocks=queue["a"][edge], turn=turn, out=held["a"][edge, 0])
    graph.add_vertex("feed", take, blocks=queue["b"][edge], turn=turn, out=held["b"][0, edge])
    product = cl.codelet(lambda a, b, c: c + a @ b)
    after = graph.add_variable("c after", (cells, cells, *shape))
    graph.add_vertex(
        "multiply",
        product,
        a=held["a"][row, column],
        b=held["b"][row, column],
        c=c[row, column],
        out=after[row, column],
    )
    graph.add_vertex("keep", pass_on, block=after[row, column], out=c[row, column])
    for side in "ab":
        graph.add_vertex("send", pass_on, block=held[side][row, column], out=sent[side][row, column])
    row, column = cl.grid(cells, cells - 1)
    graph.add_vertex("shift", pass_on, block=sent["a"][row, column], out=held["a"][row, column + 1])
    graph.add_vertex("shift", pass_on, block=sent["b"][column, row], out=held["b"][column + 1, row])
    graph.add_vertex(
        "count", cl.codelet(lambda turn: turn + 1), turn=turn, out=graph.add_variable("next turn", (), np.int32)
    )
    body = cl.Sequence(*(cl.Execute(graph.compute_sets[k]) for k in range(5)))
    return graph, cl.Repeat(turns, body)
