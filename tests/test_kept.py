"""What keeps its memory: one default, which every figure of memory says."""

from __future__ import annotations

import copy
import json

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from ipu_backend.jobs.build import build


def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2))(w)


def example():
    """As `codelet build` takes it."""
    return step, jnp.ones((64, 64)), jnp.ones((32, 64))


@pytest.fixture(scope="module")
def traced():
    return cl.trace(*example(), target=cl.IPU(num_tiles=16))


@pytest.mark.slow
def test_one_default_wherever_a_traced_function_is_profiled(traced):
    expected = traced.profile()
    assert expected.kept == tuple(sorted(set(expected.kept), key=expected.kept.index))
    assert set(expected.kept) == {variable.name for own in traced.ends for variable in [own.source]}
    engine = cl.Engine(traced)
    for profile in (engine.profile(), copy.deepcopy(engine).profile()):
        assert profile.kept == expected.kept
        assert profile.memory_by_tile.tolist() == expected.memory_by_tile.tolist()
    built = build(f"{__name__}:example", target=cl.IPU(num_tiles=16))
    assert built.memory is not None
    assert built.memory.kept == expected.kept_text
    assert built.memory.fullest_tile_bytes == expected.memory_by_tile.max()
    assert built.memory.mean_tile_bytes == expected.memory_by_tile.mean()


def test_another_choice_is_said(traced):
    whole = cl.Engine(traced.graph, traced.program).profile()
    assert whole.kept_text == "all variables keep their memory"
    one = traced.profile(host_visible=["w"])
    assert set(one.kept) == {"w", "x"}  # what is read before it is written keeps its memory anyway
    assert one.memory_by_tile.sum() < traced.profile().memory_by_tile.sum() < whole.memory_by_tile.sum()


def test_every_figure_says_what_was_kept(traced, tmp_path):
    profile = traced.profile()
    assert profile.kept_text.startswith("3 of ")
    assert profile.kept_text in str(profile)
    profile.tables().write_json(tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text())["about"]["kept"] == profile.kept_text
    profile.write_report(tmp_path / "page.html", picture=False)
    assert profile.kept_text in (tmp_path / "page.html").read_text()
    assert f"of it, {profile.kept_text}" in str(build(f"{__name__}:example", target=cl.IPU(num_tiles=16)))
