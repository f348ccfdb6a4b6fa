"""Traced functions uncut: a call runs an operation as one vertex; the graph is planned when it is asked for."""

from __future__ import annotations

import importlib
import pickle
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

import codelet as cl
from benchmarks.traced_steps import by_vertices, lowered_vertices
from codelet.saved.archive import UNCUT
from tests.at_once import at_once
from tests.examples import examples, few
from tests.functions import Drawn, drawn_functions
from tests.ops_cases import array, assert_alike

X = array((6, 5), seed=1)
IMAGE = array((2, 3, 9, 8), seed=2)
KERNEL = array((4, 3, 3, 2), seed=3)

OPERATIONS = {
    "map": (lambda x: jnp.tanh(x) * x[0], X),
    "reduction": (lambda x: x.max(0), X),
    "product": (lambda x: x @ x.T, X),
    "pooling": (lambda x: eqx.nn.MaxPool2d(2, 2)(x[0]), IMAGE),
    "sort": (lambda x: jnp.sort(x, 0), X),
    "greatest": (lambda x: lax.top_k(x, 2), X),
    "lookup": (lambda x: x[jnp.array([0, 3, 3])], X),
    "update": (lambda x: x.at[jnp.array([0, 3, 3])].add(x[:3]), X),
    "sums": (lambda x: jnp.cumsum(x, 1), X),
    "draws": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), X),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_uncut_operation_is_one_vertex_for_each_compute_set(name: str):
    function, x = OPERATIONS[name]
    traced = cl.trace(function, x)
    graph = traced.uncut.graph
    assert graph.num_vertices == len(graph.compute_sets) > 0
    assert traced.graph.num_vertices > graph.num_vertices
    for own, plain in zip(*map(jax.tree.leaves, jax.jit(lambda x: (traced(x), function(x)))(x)), strict=True):
        assert_alike(own, plain)


CONVOLUTIONS = {
    "plain": (lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME"), KERNEL, 9 * 4),
    "grouped": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=3),
        array((6, 1, 3, 3), seed=4),
        3 * 9 * 8,
    ),
    "transposed": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), [(1, 2), (1, 2)], lhs_dilation=(2, 2)),
        array((4, 3, 3, 3), seed=4),
        18 * 16,
    ),
    "of single elements": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), KERNEL[..., :1, :1], 9 * 8),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_cut_by_positions_and_is_one_equation(name: str):
    function, kernel, count = CONVOLUTIONS[name]
    traced = cl.trace(function, IMAGE, kernel)
    assert traced.uncut.graph.num_vertices == count
    kinds = [eqn.primitive.name for eqn in traced.lowered.jaxpr.eqns]
    assert kinds.count("conv_general_dilated") == (name != "of single elements")
    assert kinds.count("dot_general") == (name == "of single elements")
    assert not {"concatenate", "stack", "scatter"} & {*kinds}
    assert_alike(*jax.jit(lambda x, w: (traced(x, w), function(x, w)))(IMAGE, kernel))


PLANNERS = ("planning", "block_planning", "conv_planning", "pool_planning")
"""The files of `codelet/ops` that look for the best of several ways."""


def test_nothing_is_planned_until_the_graph_is_asked_for():
    def step(x, w):
        return jax.grad(lambda w: jnp.sum(jax.nn.softmax(jnp.sort(x @ w)[jnp.array([0, 2, 2])])))(w)

    def planned(*given: Any, **named: Any) -> Any:
        raise AssertionError("something was planned")

    with pytest.MonkeyPatch.context() as patched:
        for name in PLANNERS:
            patched.setattr(importlib.import_module(f"codelet.ops.{name}"), "best_of", planned)
        traced = cl.trace(step, X, X.T)
        found = jax.jit(traced)(X, X.T)
    assert_alike(found, step(X, X.T))
    assert traced._cut is None
    assert traced.graph.num_vertices > traced.uncut.graph.num_vertices
    assert traced.graph is traced.graph


def test_a_graph_is_cut_as_it_was_traced():
    """Settings of JAX are those of the trace, whenever the vertices are planned."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        x = np.linspace(0, 1, 12).reshape(3, 4)
        traced = cl.trace(lambda x: (x @ x.T).sum(0), x)
    assert [own.dtype for own in traced.flat_outputs] == [np.dtype(np.float64)]
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        again = cl.trace(lambda x: (x @ x.T).sum(0), x)
        assert str(again.graph) == str(traced.graph)
        precisions = [
            {str(eqn.params["precision"]) for eqn in run.jaxpr.eqns if eqn.primitive.name == "dot_general"}
            for run in map(lowered_vertices, (traced, again))
        ]
        assert precisions[0] == precisions[1]


def test_a_graph_that_is_asked_for_within_a_trace_holds_no_tracers():
    traced = cl.trace(lambda x: jnp.tanh(x) * jnp.arange(5.0), X)
    assert_alike(jax.jit(lambda x: by_vertices(traced)(x))(X), traced(X))
    assert cl.Engine(traced).profile().num_vertices == traced.graph.num_vertices


def test_threads_that_ask_for_the_graph_have_the_same_one():
    traced = cl.trace(lambda x: jnp.tanh(x @ x.T).sum(0), X)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: traced.graph, range(8)))
    assert all(own is traced.graph for own in found)


def test_one_vertex_is_told_of_once():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        traced = cl.trace(jnp.linalg.eigvals, jnp.eye(8))
        assert traced.graph.num_vertices
    assert sum(own.category is cl.OneVertexWarning for own in told) == 1


def test_what_is_written_by_hand_is_made_once():
    made = []

    @jax.jit
    def block(x):
        return 2 * x

    def by_hand(graph, x):
        made.append(graph)
        i = cl.grid(*x.shape)
        return graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])

    traced = cl.trace(lambda x: block(jnp.sin(x)), X, replace={block: by_hand})
    np.testing.assert_allclose(traced(X), 2 * np.sin(X), rtol=1e-6)
    assert made == [traced.graph]
    assert traced.uncut is traced.cut


def test_a_grain_is_that_of_the_graph():
    traced = cl.trace(jnp.sin, X, grain=3)
    assert traced.graph.num_vertices == 10
    assert traced.uncut.graph.num_vertices == 1
    assert "10 vertices" in repr(traced)


def check_drawn(drawn: Drawn) -> None:
    """A function that is drawn, uncut and by its vertices, has its values."""
    traced = cl.trace(drawn, *drawn.arguments, target=cl.IPU(num_tiles=4))
    uncut, cut, plain = at_once(traced, by_vertices(traced), drawn)(*drawn.arguments)
    for *ours, own in zip(*map(jax.tree.leaves, (uncut, cut, plain)), strict=True):
        for found in ours:
            assert_alike(found, own)


@examples(4)
@given(drawn_functions())
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_drawn_functions_have_their_values_uncut_and_cut(drawn: Drawn):
    check_drawn(drawn)


@pytest.mark.slow
@examples(100)
@given(drawn_functions(most_steps=12))
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_many_drawn_functions_have_their_values_uncut_and_cut(drawn: Drawn):
    check_drawn(drawn)


# --- files ------------------------------------------------------------------------------------------------------


def network(w, x):
    return {"loss": jnp.sum(jax.nn.gelu(x @ w) ** 2), "shifted": jnp.pad(x, ((1, 0), (0, 0)))}


def without(path: Path, part: str) -> Path:
    """A file without one of its parts."""
    made = path.with_name("without.codelet")
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as other:
        for info in file.infolist():
            if info.filename != part:
                other.writestr(info, file.read(info.filename))
    return made


@few("form", ["a file", "a pickle"], quick=["a file"])
def test_a_file_holds_what_a_call_runs(form: str, tmp_path: Path):
    traced = cl.trace(network, X.T, X)
    cl.save(tmp_path / "own", traced)
    read = cl.load(tmp_path / "own") if form == "a file" else pickle.loads(pickle.dumps(traced))
    assert str(read.lowered.jaxpr) == str(traced.lowered.jaxpr)
    assert str(read.graph) == str(traced.graph)
    assert str(read.uncut.graph) == str(traced.uncut.graph)
    for own, before in zip(*map(jax.tree.leaves, (read(X.T, X), traced(X.T, X))), strict=True):
        np.testing.assert_array_equal(own, before)


def test_a_file_without_its_uncut_graph_runs_its_vertices(tmp_path: Path):
    traced = cl.trace(network, X.T, X)
    cl.save(tmp_path / "own", traced)
    read = cl.load(without(tmp_path / "own", UNCUT))
    assert str(read.lowered.jaxpr) == str(lowered_vertices(traced).jaxpr)
    for own, before in zip(*map(jax.tree.leaves, (read(X.T, X), traced(X.T, X))), strict=True):
        assert_alike(own, before)


def test_constants_are_in_a_file_once(tmp_path: Path):
    table = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    cl.save(tmp_path / "own", cl.trace(lambda x: x @ table, np.ones((2, 300), np.float32)))
    assert table.nbytes < (tmp_path / "own").stat().st_size < 1.5 * table.nbytes
