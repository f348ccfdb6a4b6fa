"""Where profiles say that the vertices of a graph are, who are numbered otherwise than those of its plan."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.family import Family
from ipu_backend.model.profile_plan import profile_machine
from ipu_backend.model.vertex_tiles import VertexTiles
from lowering.machine.placement import Placement
from lowering.pipeline import plan_machine
from tests.examples import examples
from tests.placements import placements, plan_of, touched
from tests.strategies import Case, cases

TILES = 16


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def total(x):
    return jnp.sum(x)


def written_by(family: Family, number: int) -> tuple[str, frozenset[int]]:
    """All elements that a vertex writes, and in which compute set."""
    return family.compute_set.name, frozenset(touched(family, number, written=True))


def told_one_by_one(placement: Placement) -> dict[tuple[str, frozenset[int]], int]:
    """The tile of each vertex of a plan, by all that it writes."""
    found = {}
    for family, tiles in placement.vertex_tiles.items():
        found.update({written_by(family, number): int(tile) for number, tile in enumerate(tiles)})
    return {what: tile for what, tile in found.items() if what[1]}


@pytest.mark.slow
@examples(15)
@given(placements(max_iterations=4))
def test_vertices_are_where_the_plan_has_those_that_write_the_same(placement: Placement):
    tiles, wanted = VertexTiles(placement.plan.graph, placement.vertex_tiles), told_one_by_one(placement)
    found = 0
    for family in placement.plan.graph.families:
        own = tiles.of(family)
        assert own.shape == (family.num_vertices,)
        assert own.dtype == np.int32
        assert own.tolist() == [wanted.get(written_by(family, number), -1) for number in range(family.num_vertices)]
        found += int((own >= 0).sum())
    assert found == len(wanted)


@examples(12)
@given(st.booleans().flatmap(lambda ragged: cases(np.float32, max_iterations=3, ragged=ragged)))
def test_vertices_that_were_given_tiles_are_there(case: Case):
    profile = profile_machine(plan_machine(plan_of(case), allow_out_of_memory=True))
    for family in case.graph.families:
        if family.tile is not None:
            given = np.broadcast_to(family.tile.values(family.axes), family.extents).reshape(-1)
            writes = [bool(touched(family, number, written=True)) for number in range(family.num_vertices)]
            assert profile.tiles_of_vertices(family).tolist() == np.where(writes, given, -1).tolist()


Add = Callable[[cl.Graph, cl.Tensor, cl.Tensor, np.ndarray], None]


def by_rows_backwards(graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, tile: np.ndarray) -> None:
    i = cl.grid(len(tile))
    graph.add_vertex("work", double, x=x[i], out=y[len(tile) - 1 - i], tile=cl.table(tile)[i])


def transposed(graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, tile: np.ndarray) -> None:
    i, j = cl.grid(6, len(tile) // 6)
    graph.add_vertex("work", double, x=x[i], out=y[i + 6 * j], tile=cl.table(tile.reshape(6, -1))[i, j])


def one_at_a_time_but_for_a_few(graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, tile: np.ndarray) -> None:
    order = [*range(3, len(tile)), 1, 0, 2]
    for number, place in enumerate(order):
        graph.add_vertex("work", double, x=x[place], out=y[place], tile=int(tile[number]))


def of_all_lengths(graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, tile: np.ndarray) -> None:
    for number in range(len(tile)):
        graph.add_vertex(
            "work", total, x=x[: 1 + 7 * number % 5], out=y[len(tile) - 1 - number], tile=int(tile[number])
        )


@pytest.mark.parametrize(
    "add", [by_rows_backwards, transposed, one_at_a_time_but_for_a_few, of_all_lengths], ids=lambda own: own.__name__
)
def test_normal_form_loses_no_vertex(add: Add):
    count = 60
    graph = cl.Graph(cl.IPU(num_tiles=TILES))
    x, y = graph.add_variable("x", (count,)), graph.add_variable("y", (count,))
    add(graph, x, y, np.random.default_rng(3).integers(0, TILES, count))
    profile = cl.Engine(graph).profile()
    for family in graph.families:
        assert family.tile is not None
        given = np.broadcast_to(family.tile.values(family.axes), family.extents).reshape(-1)
        assert profile.tiles_of_vertices(family).tolist() == given.tolist()


def test_functions_are_called_and_others_do_not_run():
    graph = cl.Graph(cl.IPU(num_tiles=TILES))
    a, b, z = (graph.add_variable(name, (8,)) for name in "abz")
    i = cl.grid(8)
    inside, never = graph.add_compute_set("inside"), graph.add_compute_set("never")
    graph.add_vertex(inside, double, x=a[i], out=b[i], tile=15 - i)
    graph.add_vertex(never, double, x=z[i], out=z[7 - i])
    function = graph.add_function([inside], {"a": a, "b": b})
    u, v = graph.add_variable("u", (8,)), graph.add_variable("v", (8,))
    profile = cl.Engine(graph, cl.Sequence(*[cl.Call(function, a=u, b=v)] * 2)).profile()
    called, other = graph.families
    assert profile.tiles_of_vertices(called).tolist() == list(range(15, 7, -1))
    assert profile.tiles_of_vertices(other).tolist() == [-1] * 8


def test_a_graph_that_has_grown_and_another_graph():
    def made() -> cl.Graph:
        graph = cl.Graph(cl.IPU(num_tiles=TILES))
        x, i = graph.add_variable("x", (8,)), cl.grid(8)
        graph.add_vertex("work", double, x=x[i], tile=i)
        return graph

    graph, other = made(), made()
    profile = cl.Engine(graph).profile()
    y, i = graph.add_variable("y", (8,)), cl.grid(8)
    graph.add_vertex("more", double, x=y[i], tile=i)
    assert [profile.tiles_of_vertices(own).tolist() for own in graph.families] == [list(range(8)), [-1] * 8]
    with pytest.raises(cl.ForeignGraphError, match=r"(?s)tiles of another graph's vertices.*'work'.*profile the graph"):
        profile.tiles_of_vertices(other.families[0])
