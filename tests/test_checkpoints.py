"""Checkpoints: what an engine held, another of other devices or another execution holds; what is damaged is told."""

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from ipu_backend.running.checkpoint_files import ABOUT, _sum_of
from tests.examples import examples, few
from tests.meshes import mesh_of
from tests.strategies import Case, cases
from tests.test_mesh_fused import check_parts
from tests.ways import connect, own_values

WAYS = [("fused", 0), ("tiles", 0), ("addresses", 0), *((own, n) for own in ("fused", "tiles") for n in (1, 3, 4, 8))]


def engine_of(case: Case, execution: Any, devices: int) -> cl.Engine:
    mesh = mesh_of(devices) if devices else None
    return cl.Engine(case.graph, case.sequence(), execution=execution, stream_bytes=40, mesh=mesh)


def same(one: Any, other: Any) -> bool:
    return bool((np.ma.getmaskarray(one) == np.ma.getmaskarray(other)).all()) and np.array_equal(
        np.ma.filled(one, 0), np.ma.filled(other, 0)
    )


def check_goes_on(case: Case, one: tuple[str, int], other: tuple[str, int], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    checkpoints, (before, after) = cl.Checkpoints(folder), (engine_of(case, *way) for way in (one, other))
    values = own_values(case)
    # Some have values in part, some none: what a run has to find there would be missing.
    before.write(values)
    for engine in (before, after):
        connect(engine, case, lambda _, value: np.concatenate([value] * 2))
    before.run()
    for name, value in values.items():
        if value.ndim and len(value) > 1:
            before.write({case.graph.variable(name)[1:]: value[1:]})
    checkpoints.save(before, 3)
    assert checkpoints.restore(after) == 3
    held, found = before.state, after.state
    assert held.keys() == found.keys()
    for name, value in held.items():
        assert found[name].dtype == value.dtype
        assert same(found[name], value), name
    after.run()
    before.run()
    for name, value in before.state.items():
        assert same(after.state[name], value), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("checkpoints") / "own"


@examples(3)
@given(cases(np.int32), st.sampled_from(WAYS), st.sampled_from(WAYS))
def test_another_engine_goes_on(folder, case: Case, one, other):
    check_goes_on(case, one, other, folder)


@pytest.mark.slow
@examples(150)
@given(cases(np.int32), st.sampled_from(WAYS), st.sampled_from(WAYS))
def test_another_engine_goes_on_very_often(folder, case: Case, one, other):
    check_goes_on(case, one, other, folder)


# --- which elements have a value, and how they are held -----------------------------------------------------


@cl.codelet
def count_up(n):
    return {"n": n + 1}


def counting(devices: int = 0, size: int = 10, names: tuple[str, ...] = ("n",), uneven: bool = False) -> cl.Engine:
    graph = cl.Graph(cl.IPU(num_tiles=8))
    for name in names:
        n, i = graph.add_variable(name, (size,), "int32"), cl.grid(size)
        tiles = np.arange(size) * 4 // size if uneven else np.arange(size) // 3
        graph.add_vertex("count", count_up, n=n[i], tile=cl.table(tiles)[i])
        graph.set_tile_mapping(n, tiles)
    others = [graph.add_variable("none", (3,)), graph.add_variable("empty", (0, 4))]
    others += [graph.add_variable("some", (5,), "float16"), graph.add_constant("known", np.arange(3))]
    for own in others:
        graph.set_tile_mapping(own, np.zeros(own.shape, int))
    return cl.Engine(graph, mesh=mesh_of(devices) if devices else None)


def filled(engine: cl.Engine, number: int = 0) -> cl.Engine:
    engine.write({"n": np.arange(10) + number, engine.graph.variable("some")[1:3]: np.array([1.5, -2], np.float16)})
    return engine


@few("uneven", [False, True], quick=["True"])
def test_some_values_of_some_variables(tmp_path, uneven):
    checkpoints = cl.Checkpoints(tmp_path)
    checkpoints.save(filled(counting(4, uneven=uneven)), 0)
    for devices in (0, 3, 8):
        other = counting(devices, uneven=uneven)
        other.write({"none": np.ones(3)})
        checkpoints.restore(other)
        state = other.state
        assert list(state) == ["n", "some"]
        np.testing.assert_array_equal(state["n"], np.arange(10))
        assert state["some"].tolist() == [None, 1.5, -2.0, None, None]
        with pytest.raises(cl.UninitializedReadError):
            other.read("none")
        if devices:
            check_parts(other)
        other.run()
        np.testing.assert_array_equal(other.read("n"), np.arange(10) + 1)


def test_an_engine_that_holds_nothing(tmp_path):
    checkpoints, other = cl.Checkpoints(tmp_path), filled(counting())
    checkpoints.save(counting(), 1)
    checkpoints.restore(other)
    assert other.state == {}


# --- steps --------------------------------------------------------------------------------------------------


def test_so_many_are_kept(tmp_path):
    checkpoints, every = cl.Checkpoints(tmp_path / "a" / "b", max_to_keep=2), cl.Checkpoints(tmp_path, max_to_keep=None)
    engine = counting()
    assert checkpoints.steps == []
    for step in (1, 20, 3, 100):
        checkpoints.save(filled(engine, step), step)
        every.save(engine, step)
    assert checkpoints.steps == [20, 100]
    assert every.steps == [1, 3, 20, 100]
    checkpoints.save(filled(engine, 2), 2)  # gone back to before: what was saved last is kept
    assert checkpoints.steps == [2, 100]
    other = counting()
    assert checkpoints.restore(other, step=2) == 2
    assert other.read("n")[0] == 2
    assert checkpoints.restore(other) == 100
    assert other.read("n")[0] == 100


def test_what_was_never_finished_is_not_there(tmp_path):
    checkpoints = cl.Checkpoints(tmp_path)
    checkpoints.save(filled(counting()), 4)
    shutil.copytree(tmp_path / "4", tmp_path / "5.writing")
    shutil.copytree(tmp_path / "4", tmp_path / "3.deleted")
    (tmp_path / "6").mkdir()
    assert checkpoints.steps == [4]
    checkpoints.save(filled(counting()), 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5", "6"]


# --- mistakes -----------------------------------------------------------------------------------------------


@contextmanager
def refused(problem: str, **rows: str) -> Iterator[None]:
    with pytest.raises(cl.CheckpointError) as caught:
        yield
    said = str(caught.value)
    assert problem in said.split("\n")[0], said
    for label, text in rows.items():
        assert any(row.strip().startswith(f"{label}:") and text in row for row in said.split("\n")), said


def test_every_file_that_is_not_as_it_was_written_is_told(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), filled(counting())
    checkpoints.save(engine, 7)
    files = [path for path in (tmp_path / "7").rglob("*") if path.is_file()]
    assert len(files) > 4
    for path in files:
        before = path.read_bytes()
        flipped = bytearray(before)
        flipped[len(before) // 2] ^= 16
        for after in (before[: len(before) // 2], bytes(flipped), None):
            path.unlink()
            if after is not None:
                path.write_bytes(after)
            told = "no checkpoint" if path.name == ABOUT and after is None else "is damaged"
            with refused(told):
                checkpoints.restore(engine, step=7)
        path.write_bytes(before)
    assert engine.read("n")[0] == 0
    checkpoints.restore(engine)
    (tmp_path / "7" / ABOUT).write_text("[]")
    with refused("is damaged", given="codelet.json is not as it was written", fix="restore another step"):
        checkpoints.restore(engine)


def test_a_checkpoint_that_is_cut_off_says_by_how_much(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), filled(counting())
    checkpoints.save(engine, 7)
    path = max((tmp_path / "7" / "arrays").rglob("*"), key=lambda own: own.stat().st_size * own.is_file())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-5])
    with refused(f"the checkpoint {tmp_path}/7 is damaged", given=f"of {size - 5:,} bytes", expected=f"{size:,} bytes"):
        checkpoints.restore(engine)


def test_a_checkpoint_of_another_graph(tmp_path):
    checkpoints = cl.Checkpoints(tmp_path)
    checkpoints.save(filled(counting()), 7)
    with refused(
        "is of another graph",
        given="a checkpoint with n: int32[10]",
        expected="the variables of the engine's graph, with n: int32[12]",
        fix="restore it into an engine of the graph that was saved",
    ):
        checkpoints.restore(counting(size=12))
    with refused("is of another graph", expected="with a: int32[10], b: int32[10], c: int32[10], d: int32[10] and 1"):
        checkpoints.restore(counting(names=("n", *"abcde")))


def test_a_checkpoint_of_a_newer_codelet(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), filled(counting())
    checkpoints.save(engine, 7)
    path = tmp_path / "7" / ABOUT
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3, "codelet": "9.1", "variables": "other"}))
    with refused(
        "was written by a newer codelet",
        given="format 3, of codelet 9.1",
        expected="format 2 or an older one",
        fix="pip install --upgrade codelet",
    ):
        checkpoints.restore(engine)


def test_steps_that_are_not_there_or_there_already(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), filled(counting())
    with refused(f"there is no checkpoint in {tmp_path}", given="no finished checkpoint"):
        checkpoints.restore(engine)
    checkpoints.save(engine, 7)
    with refused("there is no checkpoint of step 8 in", given="steps [7]"):
        checkpoints.restore(engine, step=8)
    with refused("there is a checkpoint of step 7 already", expected="another step", fix="save under another step"):
        checkpoints.save(engine, 7)
    for step in (-1, 1.5, "7", True):
        with refused("a step is not an integer", given=f"step={step!r}", expected="an integer from 0 on"):
            checkpoints.save(engine, step)  # type: ignore[arg-type]
    (tmp_path / "9").mkdir()
    with refused("is no checkpoint of codelet", given="no file codelet.json in it"):
        checkpoints.restore(engine, step=9)
    for keep in (0, 1.5):
        with refused("so many checkpoints cannot be kept", given=f"max_to_keep={keep!r}"):
            cl.Checkpoints(tmp_path, max_to_keep=keep)  # type: ignore[arg-type]


@pytest.mark.parametrize("devices", [0, 4])
def test_a_disk_that_has_no_room_is_told_and_what_was_there_is_whole(tmp_path, devices):
    """Files may not grow beyond a limit, as if the disk were full."""
    graph = cl.Graph()
    graph.add_variable("x", (1 << 18,))
    engine = cl.Engine(graph, mesh=mesh_of(devices) if devices else None)
    values, checkpoints = np.random.default_rng(0).normal(size=1 << 18).astype("f"), cl.Checkpoints(tmp_path)
    engine.write({"x": values})
    checkpoints.save(engine, 1)
    engine.write({"x": -values})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with refused("a checkpoint cannot be written", given="File too large"):
            checkpoints.save(engine, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]
    np.testing.assert_array_equal(engine.read("x"), -values)
    checkpoints.restore(engine)
    np.testing.assert_array_equal(engine.read("x"), values)
    checkpoints.save(engine, 2)
    assert checkpoints.steps == [1, 2]


def test_a_checkpoint_without_orbax(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "orbax.checkpoint", None)
    with pytest.raises(cl.MissingExtraError, match=r"expected: the extra `checkpoints`"):
        cl.Checkpoints(tmp_path)


# --- what comes from elsewhere ------------------------------------------------------------------------------------


def _saved(folder: Path) -> tuple[cl.Checkpoints, cl.Engine, Path]:
    """Checkpoints with one of step 7, the engine, and the directory of it."""
    engine = cl.Engine(_two())
    engine.write({"a": np.arange(4, dtype=np.float32), "b": np.ones(3, np.float32)})
    checkpoints = cl.Checkpoints(folder / "own")
    checkpoints.save(engine, 7)
    return checkpoints, engine, folder / "own" / "7"


def _two() -> cl.Graph:
    graph = cl.Graph()
    graph.add_variable("a", (4,))
    graph.add_variable("b", (3,))
    return graph


def _with(change: Any) -> Any:
    """A change of what a checkpoint says of itself, with the checksum that this has then."""

    def changed(told: dict[str, Any]) -> dict[str, Any]:
        told = change(told)
        own = {name: value for name, value in told.items() if name != "checksum"}
        return {**told, "checksum": _sum_of(own)} if "checksum" in told else told

    return changed


def _files(told: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {**told, "files": {**told["files"], **{name.replace("__", "/"): own for name, own in others.items()}}}


def _first(told: dict[str, Any], name: str) -> dict[str, Any]:
    """The first file by another name."""
    (_, own), *rest = told["files"].items()
    return {**told, "files": {name: own, **dict(rest)}}


WRONG = {
    "a format as text": lambda told: {**told, "format": "2"},
    "a format below the first": lambda told: {**told, "format": -1},
    "no format": lambda told: {name: own for name, own in told.items() if name != "format"},
    "a format that is true": lambda told: {**told, "format": True},
    "a fraction of a format": lambda told: {**told, "format": 2.0},
    "no checksum": lambda told: {name: own for name, own in told.items() if name != "checksum"},
    "the first format with a checksum": lambda told: {**told, "format": 1},
    "no files": lambda told: {**told, "files": {}},
    "files as a list": lambda told: {**told, "files": list(told["files"])},
    "a file outside": lambda told: _first(told, "../../elsewhere"),
    "a file by its whole path": lambda told: _first(told, "/etc/hostname"),
    "a file by a detour": lambda told: _first(told, "arrays/../arrays/x"),
    "a file of another system": lambda told: _first(told, "..\\elsewhere"),
    "a file on a drive": lambda told: _first(told, "c:elsewhere"),
    "the folder itself": lambda told: _first(told, "."),
    "itself": lambda told: _first(told, ABOUT),
    "a file that is not there": lambda told: _files(told, other={"size": 1, "checksum": 1}),
    "a size as text": lambda told: _first({**told, "files": {"x": {"size": "1", "checksum": 1}}}, "x"),
    "a size below nothing": lambda told: {**told, "files": {"x": {"size": -1, "checksum": 1}}},
    "a held of none": lambda told: {**told, "variables": [{**own, "held": "most"} for own in told["variables"]]},
    "a name that is none": lambda told: {**told, "variables": [{**own, "name": 3} for own in told["variables"]]},
    "more than is known": lambda told: {**told, "more": 1},
    "a list": lambda told: [told],
    "nothing": lambda told: None,
}
"""What a checkpoint may say of itself that it does not say, with the checksum of that."""


@pytest.mark.parametrize("name", WRONG)
def test_what_a_checkpoint_says_of_itself_is_looked_at(name, tmp_path):
    checkpoints, engine, path = _saved(tmp_path)
    (tmp_path / "own" / "elsewhere").write_text("x")
    told = json.loads((path / ABOUT).read_text())
    change = WRONG[name]
    made = change(told) if "checksum" in name or name in ("a list", "nothing") else _with(change)(told)
    (path / ABOUT).write_text(json.dumps(made))
    before = engine.state
    with pytest.raises(cl.CheckpointError, match=r"is damaged"):
        checkpoints.restore(engine)
    assert all(same(engine.state[own], value) for own, value in before.items())


def test_every_byte_of_what_it_says_is_looked_at(tmp_path):
    """But for those between words, which mean nothing."""
    checkpoints, engine, path = _saved(tmp_path)
    text = (path / ABOUT).read_bytes()
    told = json.loads(text)
    for place in range(0, len(text), 7):
        changed = bytes([*text[:place], text[place] ^ 1, *text[place + 1 :]])
        (path / ABOUT).write_bytes(changed)
        try:
            means_the_same = json.loads(changed) == told
        except ValueError:
            means_the_same = False
        if not means_the_same:
            with pytest.raises(cl.CheckpointError, match=r"is damaged|newer codelet"):
                checkpoints.restore(engine)
    (path / ABOUT).write_bytes(text)
    assert checkpoints.restore(engine) == 7


def test_links_are_not_followed(tmp_path):
    checkpoints, engine, path = _saved(tmp_path)
    files = [name for name in json.loads((path / ABOUT).read_text())["files"] if "/" in name]
    for linked in (path / files[0], path / files[0].partition("/")[0], path / ABOUT, path):
        kept = tmp_path / "kept"
        linked.rename(kept)
        linked.symlink_to(kept)
        with pytest.raises(cl.CheckpointError, match="is damaged"):
            checkpoints.restore(engine)
        linked.unlink()
        kept.rename(linked)
    assert checkpoints.restore(engine) == 7


def test_a_file_more_is_told(tmp_path):
    checkpoints, engine, path = _saved(tmp_path)
    (path / ".left by a system").write_text("x")
    assert checkpoints.restore(engine) == 7
    (path / "more").write_text("x")
    with pytest.raises(cl.CheckpointError, match=r"(?s)is damaged.*a file that was not written: more"):
        checkpoints.restore(engine)


def test_a_checkpoint_of_the_first_format_is_read(tmp_path):
    checkpoints, engine, path = _saved(tmp_path)
    told = json.loads((path / ABOUT).read_text())
    del told["checksum"]
    (path / ABOUT).write_text(json.dumps({**told, "format": 1}))
    other = cl.Engine(_two())
    assert checkpoints.restore(other) == 7
    assert same(other.state["a"], engine.state["a"])


@pytest.mark.parametrize("directory", [None, 3, "nul\0", object(), ["a"]])
def test_a_directory_is_a_path(directory):
    with pytest.raises(cl.CheckpointError, match="something other than a path"):
        cl.Checkpoints(directory)
