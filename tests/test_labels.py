"""Names on pictures: which there are, and that they stand inside, apart, with leaders that do not cross."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from tests.examples import examples, few
from tests.test_draw import heat, pictured, stencil

pytest.importorskip("numba", reason="pictures are drawn by libraries of the extra `draw`")
pytest.importorskip("PIL", reason="pictures are drawn by libraries of the extra `draw`")

from codelet.draw.labels import Label, cross, place_labels
from codelet.draw.layout import Layout, lay_out
from codelet.draw.links import find_links
from codelet.draw.names import Name, Seen, names_seen

SIDE = 1024
FIVE = [f"layer {number}" for number in range(5)]


def layers_of(graph: cl.Graph) -> Layout:
    return lay_out(find_links(graph))


def chain(names: list[str], length: int = 60) -> cl.Graph:
    """Compute sets in a row, each of which reads what the one before wrote."""
    graph = cl.Graph()
    x, i = graph.add_variable("x", (length,)), cl.grid(length)
    for name in names:
        x = graph.add_vertex(f"{name}/heat", heat, left=x[i], here=x[i], right=x[i])
    return graph


def check_apart_and_inside(labels: list[Label], side: int, taken=()) -> None:
    boxes = [*taken, *(label.box for label in labels)]
    for label in labels:
        assert min(label.box) >= 0
        assert max(label.box) <= side
        # The leader goes to the box, and no further.
        (left, top, right, bottom), (x, y) = label.box, label.leader[1]
        assert left - 1e-6 <= x <= right + 1e-6
        assert top - 1e-6 <= y <= bottom + 1e-6
        assert x in (left, right) or y in (top, bottom) or label.leader[0] == label.leader[1]
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def crossings(labels: list[Label]) -> int:
    ends = [np.array(label.leader) for label in labels]
    return sum(bool(cross(a[:1], a[1:], b[0], b[1]).any()) for a, b in combinations(ends, 2))


@st.composite
def clusters(draw) -> Seen:
    """Layers as discs, which may be small or lie over each other, and some names within them."""
    names = []
    for number in range(draw(st.integers(1, 24))):
        middle = np.array([draw(st.floats(0.1, 0.9)), draw(st.floats(0.1, 0.9))])
        count, radius = draw(st.integers(1, 300)), draw(st.floats(0, 0.3))
        k = np.arange(count)
        disc = np.sqrt((k + 0.5) / count)[:, None] * np.stack([np.cos(2.4 * k), np.sin(2.4 * k)], 1)
        points = np.clip(middle + radius * disc, 0, 1)
        text = "layer " + "x" * draw(st.integers(0, 12))
        names.append(Name(text, number, points))
        if draw(st.booleans()):
            names.append(Name(f"{text} update", number, points[: 1 + count // 2], False))
    names.sort(key=lambda name: not name.is_layer)
    return Seen(names, np.concatenate([name.points for name in names]))


def check_names(seen: Seen, side: int) -> None:
    """That the names of layers stand apart and inside, all of them, each time alike."""
    taken = [(0.0, 0.9 * side, 0.4 * side, side - 1.0)]
    labels = place_labels(seen, side, taken)
    check_apart_and_inside(labels, side, taken)
    wanted = [name.text for name in seen.names if name.is_layer]
    assert [label.text for label in labels if label.is_layer] == wanted
    assert place_labels(seen, side, taken) == labels


@pytest.mark.slow
@examples(2)
@given(clusters(), st.sampled_from([256, 1024, 2048]))
def test_names_stand_apart_and_inside(seen, side):
    check_names(seen, side)


@pytest.mark.slow
@examples(100)
@given(clusters(), st.sampled_from([256, 1024, 2048]))
def test_names_of_many_stand_apart_and_inside(seen, side):
    check_names(seen, side)


def test_layers_over_each_other_have_names_all_around():
    k = np.arange(3000)
    disc = 0.5 + 0.3 * np.sqrt((k + 0.5) / 3000)[:, None] * np.stack([np.cos(2.4 * k), np.sin(2.4 * k)], 1)
    seen = Seen([Name(f"turn {own}", own, disc) for own in range(12)], disc)
    labels = place_labels(seen, SIDE)
    check_apart_and_inside(labels, SIDE)
    assert len(labels) == 12
    assert crossings(labels) == 0
    middles = np.array([[(label.box[0] + label.box[2]) / 2, (label.box[1] + label.box[3]) / 2] for label in labels])
    assert (np.hypot(*(middles - SIDE / 2).T) > 0.3 * SIDE).all()
    apart = np.hypot(*(middles[:, None] - middles[None]).T) + 1e9 * np.eye(12)
    assert apart.min() > 2.5 * labels[0].height


@few("count", [3, 12, 20], quick=["3"])
def test_leaders_of_layers_in_a_row_do_not_cross(count):
    layout = layers_of(chain([f"layer {number}" for number in range(count)]))
    labels = place_labels(names_seen(layout, (0, 0, 1)), SIDE)
    check_apart_and_inside(labels, SIDE)
    assert sorted(label.text for label in labels) == sorted(layout.groups.layers)
    assert crossings(labels) == 0


def test_phases_that_lie_apart_have_names():
    layout = layers_of(chain([*FIVE, *(f"backward/{name}" for name in FIVE[::-1])]))
    assert set(layout.groups.layers) == set(FIVE)
    place = layout.place.copy()
    group = np.repeat(np.arange(len(layout.groups.sizes)), layout.groups.sizes)
    own = layout.groups.layer[group] == layout.groups.layers.index("layer 2")
    backward = layout.groups.phase[group] == 1
    place[own & ~backward] = 0.2 + 0.1 * (place[own & ~backward] - 0.5)
    place[own & backward] = 0.8 + 0.1 * (place[own & backward] - 0.5)
    for number in (0, 1, 3, 4):
        other = layout.groups.layer[group] == layout.groups.layers.index(f"layer {number}")
        place[other] = 0.5 + 0.1 * np.stack([np.cos(np.arange(other.sum())), np.sin(np.arange(other.sum()))], 1)
    names = [name.text for name in names_seen(replace(layout, place=place), (0, 0, 1)).names if not name.is_layer]
    assert sorted(names) == ["layer 2 backward", "layer 2 forward"]


@pytest.mark.slow
def test_a_part_names_the_layers_and_compute_sets_that_are_seen():
    picture = pictured(chain(FIVE, 200), size=512, title="a chain")
    place, groups = picture.layout.place, picture.layout.groups
    layer = np.repeat(groups.layer, groups.sizes)
    for wanted in FIVE:
        part = picture.zoom_to(wanted)
        points = (place - part.window[:2]) / part.window.side
        inside = ((points >= 0) & (points < 1)).all(axis=1)
        seen = names_seen(part.layout, part.window)
        named = [name for name in seen.names if name.is_layer]
        counts = np.bincount(layer[inside], minlength=5)
        assert [counts[name.layer] for name in named] == sorted(counts[counts > inside.sum() / 200], reverse=True)
        assert wanted in [name.text for name in named]
        assert len(seen.points) == inside.sum()
        within = [name.text for name in seen.names if not name.is_layer]
        assert (f"{wanted}/heat" in within) == (len(named) <= 4)
        check_apart_and_inside(place_labels(seen, part.size), part.size)
        assert part.about.startswith(f"{wanted}   ·   ")
        assert part.about.endswith(f"{inside.sum():,} of {len(place):,} points")


def test_a_part_says_what_it_is():
    picture = pictured(stencil(), size=512)
    assert picture.about == picture.counts
    part = picture.zoom(0.25, 0.5, 0.05)
    assert part.about.startswith("20 x   ·   ")
    assert picture.zoom(0, 0, 0.4).about.startswith("2.5 x   ·   ")
    assert picture.zoom_to("sums").zoom(0, 0, 0.5).part == ""
    # An empty part has no names, and is drawn all the same.
    nothing = picture.zoom(0, 0, 0.01)
    assert nothing.about == "100 x   ·   0 of 822 points"
    assert nothing.image().size == (512, 512)
