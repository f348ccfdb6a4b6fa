"""Plans that are kept on the disk: the same as those that are made, by one process or by several, never a wrong one."""

import hashlib
import importlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.graphs.stages import Cut
from codelet.kept_files import bound_folder, cache_folder, looked_up
from codelet.ops import plan_cache, plan_keys
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.plan_keys import plan_key

PLANNERS = {
    "block_planning": "plan_work",
    "conv_planning": "plan_convolved",
    "lookup_planning": "plan_lookup",
    "pool_planning": "plan_pooled",
    "product_planning": "plan_product",
    "sort_planning": "plan_lines",
    "put_lines": "_plan",
    "top_k": "_plan",
}


def forget() -> None:
    """Have this process plan anew, as another would."""
    for room, name in PLANNERS.items():
        getattr(importlib.import_module(f"codelet.ops.{room}"), name).cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CODELET_CACHE", str(tmp_path / "plans"))
    forget()
    yield tmp_path / "plans"
    forget()


def build(target=None, scale=2.0):
    """A graph of operations of most planners."""
    graph = cl.Graph(target or cl.IPU(num_tiles=12))
    a, b = graph.add_variable("a", (24, 30)), graph.add_variable("b", (30, 17))
    y = cl.ops.map(graph, lambda v: jnp.tanh(v) * scale, cl.ops.matmul(graph, a, b))
    cl.ops.top_k(graph, cl.ops.sort(graph, y), 3)
    cl.ops.sum(graph, y, axis=0)
    image = graph.add_variable("image", (2, 3, 9, 9))
    cl.ops.avg_pool(graph, image, (2, 2), (2, 2), axis=(2, 3))
    cl.ops.conv_general_dilated(graph, image, graph.add_variable("w", (4, 3, 3, 3)), (1, 1), "SAME")
    return graph


def files_of(folder: Path) -> dict[str, bytes]:
    return {own.name: own.read_bytes() for own in folder.iterdir()}


def test_what_is_kept_is_what_is_planned(folder, monkeypatch):
    monkeypatch.setenv("CODELET_CACHE", "0")
    expected = str(build())
    assert not folder.exists()
    monkeypatch.setenv("CODELET_CACHE", str(folder))
    forget()
    assert str(build()) == expected
    before = files_of(folder)
    assert len(before) > 5
    forget()
    keep = []
    monkeypatch.setattr(plan_cache, "keep", lambda *_: keep.append(1))
    assert str(build()) == expected
    assert not keep
    assert files_of(folder) == before


def test_plans_are_equal_in_every_part(folder):
    target = cl.IPU(num_tiles=20)
    made = cl.ops.plan_matmul(target, 100, 64, 30)
    forget()
    again = cl.ops.plan_matmul(target, 100, 64, 30)
    assert again is not made
    assert again == made
    assert str(again) == str(made)
    assert (again.next_best, again.num_options) == (made.next_best, made.num_options)
    assert [own.there_bytes for own in again.steps] == [own.there_bytes for own in made.steps]


def test_a_damaged_file_is_as_none(folder):
    expected = str(build())
    before = files_of(folder)
    chance = random.Random(0)
    for name, data in before.items():
        own = bytearray(data)
        match chance.randrange(4):
            case 0:
                own[chance.randrange(len(own))] ^= 1 << chance.randrange(8)
            case 1:
                del own[chance.randrange(len(own)) :]
            case 2:
                own = bytearray(b"")
            case _:
                own += b"x"
        (folder / name).write_bytes(own)
    forget()
    assert str(build()) == expected
    assert files_of(folder) == before


def test_a_file_made_to_harm_is_as_none(folder):
    expected = str(build())
    before = files_of(folder)
    for name in before:
        for body in (b"[]", b'["x",[["a",1,2,3]],[],["t"],null,1,[]]', b"[" * 100_000, b'{"a":1e999}', b"\xff"):
            (folder / name).write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            assert plan_cache._kept_plan(looked_up(folder, name.removesuffix(".plan"))) is None
    forget()
    assert str(build()) == expected
    assert files_of(folder) == before


def test_a_folder_that_cannot_be_written_to_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("CODELET_CACHE", str(tmp_path / "file" / "plans"))
    forget()
    assert build().num_vertices


def test_keys_tell_what_plans_depend_on(monkeypatch):
    target = cl.IPU(num_tiles=8)
    key = plan_key("planner", (target, 3))
    assert key is not None
    assert key == plan_key("planner", (cl.IPU(num_tiles=8), 3))
    others = [(target, 4), (target, True), (target, 3.0), (cl.IPU(num_tiles=9), 3), (cl.IPU("bow", num_tiles=8), 3)]
    others += [(cl.IPU(num_tiles=8, sync_cycles=91), 3), (target, "3")]
    keys = [plan_key("planner", own) for own in others] + [plan_key("another", (target, 3))]
    assert None not in keys
    assert len({key, *keys}) == len(keys) + 1
    with jax.default_matmul_precision("highest"):
        assert plan_key("planner", (target, 3)) != key
    monkeypatch.setattr(plan_keys, "sources_digest", lambda: "other sources")
    assert plan_key("planner", (target, 3)) != key


def test_keys_and_plans_do_not_depend_on_equal_values_that_were_asked_for_before():
    codelet = cl.codelet(lambda x, *, scale: x * scale)
    target, axes = cl.IPU(num_tiles=8), (Axis("elements", 64, "kept"),)
    fields, results = (Field("x", (0,), np.dtype("f4")),), (Result("out", (0,), np.dtype("f4"), np.dtype("f4")),)

    def work(scale):
        return Work("scale", axes, fields, results, codelet, static=(("scale", scale),))

    values = [1, 1.0, True, 0.0, -0.0, np.float32(1)]
    works = [work(value) for value in values]
    assert all((a == b) == (j == k) for j, a in enumerate(works) for k, b in enumerate(works))
    pairs = [(target, ("a", Cut("x", 4, 1, 1))), (target, ("a", Cut("x", 4, True, 1)))]
    first = [plan_key("planner", own) for own in pairs]
    assert first[0] != first[1]
    assert [plan_key("planner", own) for own in reversed(pairs)] == first[::-1]


def test_functions_are_told_by_what_they_compute():
    from codelet.ops.element_functions import element_function, value_codelets

    x = cl.Graph().add_variable("x", (4,))

    def of(function):
        return plan_key("planner", value_codelets(element_function("map", function, [x])))

    def scaled(k):
        return lambda v: v * k

    keys = [of(jnp.sin), of(jnp.cos), of(scaled(2.0)), of(scaled(3.0)), of(jax.nn.relu), of(lambda v: v + 1)]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert of(scaled(2.0)) == keys[2]
    table = np.arange(3.0, dtype=np.float32)
    assert of(lambda v: v + table[1]) != of(lambda v: v + table[2])
    assert of(lambda v: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), "float32"), v)) is None
    assert plan_key("planner", cl.codelet(lambda x: x)) is None  # a user's: its code is not the library's


def test_the_folder_is_bounded(tmp_path):
    for k in range(20):
        path = tmp_path / f"{k:02}.plan"
        path.write_bytes(bytes(1000))
        os.utime(path, (time.time() - 1000 + k, time.time() - 1000 + k))
    (tmp_path / "other").write_bytes(bytes(100_000))
    bound_folder(tmp_path, 20_000)
    assert len([*tmp_path.iterdir()]) == 21
    bound_folder(tmp_path, 10_000)
    assert sorted(own.name for own in tmp_path.iterdir()) == [*(f"{k:02}.plan" for k in range(13, 20)), "other"]
    bound_folder(tmp_path / "none", 10)


def test_where_the_folder_is(tmp_path, monkeypatch):
    monkeypatch.setenv("CODELET_CACHE", "0")
    assert cache_folder() is None
    monkeypatch.setenv("CODELET_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.setenv("CODELET_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("CODELET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        assert cache_folder() == tmp_path / "b" / "codelet"
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
        assert cache_folder() == tmp_path / "jax" / "codelet"
        jax.config.update("jax_compilation_cache_dir", "gs://bucket")
        assert cache_folder() == tmp_path / "b" / "codelet"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


PLAN = """
import codelet as cl
target = cl.IPU(num_tiles=60)
for k in range(40, 60):
    plan = cl.ops.plan_matmul(target, k, 64, 30)
print(plan)
"""


@pytest.mark.slow
def test_processes_that_plan_the_same_at_once_end_with_one_good_file_each(folder):
    environment = {**os.environ, "CODELET_CACHE": str(folder)}
    start = lambda: subprocess.Popen(  # noqa: E731
        [sys.executable, "-c", PLAN], stdout=subprocess.PIPE, text=True, env=environment
    )
    told = [own.communicate()[0] for own in [start(), start(), start()]]
    assert told[0]
    assert len(set(told)) == 1
    before = files_of(folder)
    assert all(name.endswith(".plan") and not name.startswith(".") for name in before)
    assert all(plan_cache._kept_plan(looked_up(folder, name.removesuffix(".plan"))) is not None for name in before)
    assert start().communicate()[0] == told[0]
    assert files_of(folder) == before
