"""Meshes lie unfolded in pictures; what is no mesh is left to the forces."""

from __future__ import annotations

import numpy as np
import pytest

import codelet as cl
from tests.examples import few
from tests.test_draw import stencil

pytest.importorskip("numba", reason="pictures are drawn by libraries of the extra `draw`")
pytest.importorskip("PIL", reason="pictures are drawn by libraries of the extra `draw`")

from codelet.draw.coarse import CoarseGraph, coarsen
from codelet.draw.groups import group_points
from codelet.draw.layout import lay_out
from codelet.draw.links import find_links
from codelet.draw.unfolded import unfolded


def plate(side: int, turns: int) -> cl.Graph:
    """Each element of a square from it and its four neighbours, turn after turn."""
    step = cl.codelet(lambda here, up, down, left, right: here + 0.2 * (up + down + left + right - 4 * here))
    graph = cl.Graph()
    x = graph.add_variable("x", (side, side))
    i, j = cl.grid(side, side)
    for turn in range(turns):
        wide = x.pad(((1, 1), (1, 1)), "edge")
        near = {"up": wide[i, j + 1], "down": wide[i + 2, j + 1], "left": wide[i + 1, j], "right": wide[i + 1, j + 2]}
        x = graph.add_vertex(f"turn{turn}/step", step, here=wide[i + 1, j + 1], **near)
    return graph


def circle(length: int, turns: int) -> cl.Graph:
    step = cl.codelet(lambda left, here, right: left + here + right)
    graph = cl.Graph()
    x, i = graph.add_variable("x", (length,)), cl.grid(length)
    for turn in range(turns):
        x = graph.add_vertex(f"turn{turn}/step", step, left=x[(i - 1) % length], here=x[i], right=x[(i + 1) % length])
    return graph


def nodes_of(graph: cl.Graph) -> CoarseGraph:
    links = find_links(graph)
    return coarsen(links, group_points(links))


def likeness(place: np.ndarray, wanted: np.ndarray) -> float:
    """How the distances of places go with those wanted: 1 where all are in one ratio."""
    chosen = np.random.default_rng(0).integers(0, len(place), (4000, 2))
    far = [np.hypot(*(own[chosen[:, 0]] - own[chosen[:, 1]]).T) for own in (place, wanted)]
    return float(np.corrcoef(*far)[0, 1])


@few("side, turns", [(24, 1), (24, 4), (40, 2)], quick=["24, 1"])
def test_each_turn_of_a_plate_is_a_plate(side, turns):
    place = lay_out(find_links(plate(side, turns))).place
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    for turn in range(turns):
        assert likeness(place[turn * side**2 : (turn + 1) * side**2], grid) > 0.95


def test_each_turn_of_a_circle_is_a_circle():
    place = lay_out(find_links(circle(300, 2))).place
    angle = 2 * np.pi * np.arange(300) / 300
    for turn in range(2):
        own = place[300 * turn : 300 * (turn + 1)]
        assert likeness(own, np.stack([np.cos(angle), np.sin(angle)], 1)) > 0.95


def test_what_is_no_mesh():
    step = cl.codelet(lambda a, b: a + b)
    wide, rows, few = cl.Graph(), cl.Graph(), cl.Graph()
    x, i = wide.add_variable("x", (2000,)), cl.grid(2000)
    for turn in range(3):
        liked = np.random.default_rng(turn).integers(0, 2000, (2, 2000))
        x = wide.add_vertex(f"turn{turn}/step", step, a=x[cl.table(liked[0])[i]], b=x[cl.table(liked[1])[i]])
    x, (i, j) = rows.add_variable("x", (3, 101)), cl.grid(3, 100)
    rows.add_vertex("step", step, a=x[i, j], b=x[i, j + 1])
    x, i = few.add_variable("x", (11,)), cl.grid(10)
    few.add_vertex("step", step, a=x[i], b=x[i + 1])
    for graph in (wide, rows, few, stencil()):
        assert unfolded(nodes_of(graph)) is None
    # A row by itself is one.
    x, i = (alone := cl.Graph()).add_variable("x", (101,)), cl.grid(100)
    alone.add_vertex("step", step, a=x[i], b=x[i + 1])
    assert unfolded(nodes_of(alone)) is not None


def test_places_have_one_size_and_one_middle():
    place = unfolded(nodes_of(plate(20, 2)))
    assert place is not None
    np.testing.assert_allclose(place.mean(axis=0), 0, atol=1e-9)
    assert (place**2).sum(axis=1).mean() == pytest.approx(1)
