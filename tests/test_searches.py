"""Outcomes of searches for a placement, kept in files and on the disk, and used for the same plan alone."""

import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.saved.archive import PLAN
from lowering.machine import place, searches
from tests.damaged_files import parts_of, with_digests, zipped

BLUR, DOUBLED = cl.codelet(lambda x: x.mean()), cl.codelet(lambda x: 2 * x.sum())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.codelet"


@pytest.fixture
def ways(monkeypatch):
    """The ways of placing that are tried."""
    tried = []
    own = place.place_by

    def place_by(plan, way, *given):
        tried.append(way)
        return own(plan, way, *given)

    monkeypatch.setattr(place, "place_by", place_by)
    return tried


def stencil(size=40, blur=BLUR):
    """A graph for which several ways are tried."""
    graph = cl.Graph(cl.IPU(num_tiles=24))
    x, (i, j) = graph.add_variable("x", (size + 2, size + 2)), cl.grid(size, size)
    y = graph.add_vertex("blur", blur, x=x[i : i + 3, j : j + 3])
    graph.add_vertex("doubled", DOUBLED, x=y[cl.grid(size)])
    return graph


def gathered(places):
    """A graph whose vertices read through a table."""
    graph = cl.Graph(cl.IPU(num_tiles=6))
    x, i = graph.add_variable("x", (len(places),)), cl.grid(len(places))
    graph.add_vertex("gathered", DOUBLED, x=x[cl.table(places)[i]])
    return graph


FORMS = {
    "graph": lambda graph: graph,
    "irregular": lambda _: gathered(np.random.default_rng(0).permutation(600)),
    "program": lambda graph: (graph, graph.default_program),
    "engine": cl.Engine,
    "tiles": lambda graph: cl.Engine(graph, execution="tiles"),
    "addresses": lambda graph: cl.Engine(graph, execution="addresses"),
    "several": lambda graph: cl.Engine(graph, {"one": graph.default_program, "two": graph.compute_sets[0]}),
    "lowered": lambda graph: cl.lower(graph, graph.default_program, inputs=["x"], outputs=["doubled/out"]),
    "traced": lambda graph: cl.trace(jnp.matmul, np.ones((30, 40)), np.ones((40, 50)), target=graph.target),
}


def engine_of(what) -> cl.Engine:
    match what:
        case cl.Engine():
            return what
        case cl.Lowered():
            return cl.Engine(what.graph, what.program)
        case (graph, program):
            return cl.Engine(graph, program)
    return cl.Engine(what)


def placement_of(what) -> str:
    engine = engine_of(what)
    return str(engine.machine("one" if "one" in engine._programs else None).placement)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_tells_what_was_found(form, path, ways):
    what = FORMS[form](stencil())
    expected = placement_of(what)
    assert len(set(ways)) > 1
    cl.save(path, what, planned=True)
    ways.clear()
    assert placement_of(cl.load(path)) == expected
    assert len(set(ways)) == 1


def test_a_file_that_was_read_is_written_as_it_was(path, tmp_path):
    cl.save(path, stencil(), planned=True)
    cl.save(tmp_path / "again", cl.load(path), planned=True)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_graph_that_was_read_and_built_on_is_searched_for(path, ways):
    cl.save(path, stencil(), planned=True)
    graph = cl.load(path)

    def more(graph):
        graph.add_vertex("more", DOUBLED, x=graph.variable("blur/out")[:, cl.grid(40)])
        return graph

    ways.clear()
    found = placement_of(more(graph))
    assert len(set(ways)) > 1
    assert found == placement_of(more(stencil()))


def with_plan(path, change) -> None:
    """Write a file again, with a change of what was found, and digests that are right."""
    parts = parts_of(path)
    parts[PLAN] = json.dumps(change(json.loads(parts[PLAN]))).encode()
    path.write_bytes(zipped([*with_digests(parts).items()]))


LIES = {
    "fewer cycles": lambda tried: [["linear", tried[0][1] - 1, *tried[0][2:]]],
    "another way": lambda tried: [[tried[-1][0], *tried[0][1:]]],
    "memory": lambda tried: [[*tried[0][:3], not tried[0][3]], *tried[1:]],
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_file_tells_is_counted_again(lie, path, ways):
    graph = stencil()
    cl.save(path, graph, planned=True)
    with_plan(path, lambda found: [[found[0][0], LIES[lie](found[0][1])]])
    ways.clear()
    assert placement_of(cl.load(path)) == placement_of(graph)
    assert len(set(ways)) > 1


@pytest.mark.parametrize(
    "found",
    [{}, [[]], [["k", []]], [["k", [["linear", 1, 1]]]], [["k", [["linear", -1, 1, True]]]], [[1, []]],
     [["k", [["linear", 1, None, 1]]]], [["k", [["elsewhere", 1, 1, True]]]], [["k", [["linear", 1.5, 1, True]]]],
     [["k", [["linear", 1, 1, True]] * 2]], "x" * 70_000],
)  # fmt: skip
def test_what_is_no_outcome_is_refused(found, path):
    cl.save(path, stencil(8), planned=True)
    with_plan(path, lambda before: found)
    with pytest.raises(cl.FileFormatError, match="is damaged"):
        cl.load(path)


def test_a_file_may_do_without(path):
    graph = stencil()
    cl.save(path, graph, planned=True)
    parts = parts_of(path)
    del parts[PLAN]
    path.write_bytes(zipped([*parts.items()]))
    assert placement_of(cl.load(path)) == placement_of(graph)


def test_a_way_that_was_said_is_not_written(path):
    cl.save(path, cl.Engine(stencil(8), placement="linear"), planned=True)
    assert PLAN not in parts_of(path)


# --- on the disk ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CODELET_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(searches, "_LARGE", 100)
    return tmp_path / "kept"


def test_a_large_plan_is_searched_for_once(folder, ways):
    expected = placement_of(stencil())
    assert len(set(ways)) > 1
    ways.clear()
    assert placement_of(stencil()) == expected
    assert len(set(ways)) == 1


def test_a_small_plan_is_not_kept(folder, monkeypatch):
    monkeypatch.setattr(searches, "_LARGE", 1 << 20)
    placement_of(stencil())
    assert not folder.exists()


def test_nothing_is_kept_where_that_is_disabled(monkeypatch, tmp_path, ways):
    monkeypatch.setattr(searches, "_LARGE", 100)
    monkeypatch.setenv("CODELET_CACHE", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        ways.clear()
        placement_of(stencil())
        assert len(set(ways)) > 1
    assert not [*tmp_path.iterdir()]


def test_damage_is_as_nothing_kept(folder, ways):
    expected = placement_of(stencil())
    (file,) = folder.iterdir()
    written = file.read_bytes()
    for body in (b"[]", b'[["elsewhere", 1, 1, true]]', b"{", b'[["linear", 7, 7, true]]', written[70:-9]):
        file.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        ways.clear()
        assert placement_of(stencil()) == expected
        assert len(set(ways)) > 1
        assert file.read_bytes() == written


def test_keys_tell_what_a_search_depends_on(folder):
    def key(graph) -> str | None:
        return searches.search_key(engine_of(graph).machine().placement.plan)

    def mapped():
        graph = stencil()
        graph.set_tile_mapping(graph.variable("x"), np.indices((42, 42)).sum(0) % 3)
        return graph

    def constrained():
        graph = stencil()
        graph.place(together=[graph.variable("x")[0], graph.variable("blur/out")[0]])
        return graph

    def taken(x):
        return 99

    permutation = np.random.default_rng(0).permutation(60)
    graphs = [
        *(stencil(), stencil(39), mapped(), constrained(), gathered(permutation), gathered(permutation[::-1])),
        *(stencil(blur=own) for own in (cl.codelet(lambda x: x.max()), cl.codelet(lambda x: x.mean(), cycles=taken))),
    ]
    keys = [key(graph) for graph in graphs]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    again = stencil()
    assert key(again) == key(again)


def test_what_no_file_can_hold_is_searched_for_each_time(folder, ways):
    def told(x):
        jax.debug.callback(lambda: None)
        return x.mean()

    for _ in range(2):
        ways.clear()
        placement_of(stencil(blur=cl.codelet(told)))
        assert len(set(ways)) > 1
    assert not folder.exists()
