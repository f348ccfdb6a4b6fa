"""Nothing large is one vertex: by element, row, batch or block; and what is one is told, with what it takes."""

from __future__ import annotations

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import codelet as cl
from codelet.graphs.edge_counts import count_edges
from tests.at_once import at_once
from tests.examples import few

FEW = 4096
"""Elements that one vertex may read and write."""


def alone(graph: cl.Graph) -> list[str]:
    """The compute sets in which one vertex reads and writes more than a few thousand elements."""
    sets: dict[str, list] = {}
    for family in graph.families:
        sets.setdefault(family.compute_set.name, []).append(family)
    found = []
    for name, families in sets.items():
        if sum(own.num_vertices for own in families) == 1:
            (family,) = families
            size = sum(int(np.prod(own.type.shape)) for own in family.fields)
            if size > FEW:
                found.append(f"{name}: {size:,}")
    return found


def standardised(x):
    return (((x - x.mean()) * lax.rsqrt(x.var() + 1e-3)) ** 3).sum()


@few("dtype", ["float32", "float16", "bfloat16"], quick=["float32"])
@pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")
def test_conversions_of_the_gradient_of_a_variance_are_by_element(dtype):
    x = jnp.linspace(0, 1, 10_007).astype(dtype)
    traced = cl.trace(jax.grad(standardised), x)
    assert alone(traced.graph) == []
    assert not [own.name for own in traced.graph.compute_sets if own.name.endswith("/run")]
    in_float32 = cl.trace(jax.grad(standardised), x.astype("float32")).profile().total_cycles
    assert traced.profile().total_cycles <= 1.2 * in_float32
    small = x[:40]
    run = cl.trace(jax.grad(standardised), small)
    found, expected = map(np.asarray, at_once(run, lambda x: jax.grad(standardised)(x.astype("float32")))(small))
    scale = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-1}[dtype]
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=scale * np.abs(expected).max())


# --- look-ups ---------------------------------------------------------------------------------------------------


def picked(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def looked_up(e, ids):
    return (e[ids] ** 2).sum()


def looked_up_one_by_one(e, ids):
    return (jax.vmap(jax.vmap(lambda i: e[i]))(ids) ** 2).sum()


def taken(x, i):
    return (jnp.take_along_axis(x, i, 1) ** 2).sum()


def windows(x, i):
    """Of each row some numbers from a place on."""
    return (jax.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (7,)))(x, i) ** 2).sum()


def put(x, i):
    """In each row a number at a place."""
    return jnp.tanh(jax.vmap(lambda row, k: row.at[k].set(2.0, mode="drop"))(x, i)).sum()


LOOK_UPS = {
    "labels": (picked, (128, 8192), (128,)),
    "labels, uneven": (picked, (37, 5003), (37,)),
    "rows": (looked_up, (1000, 64), (8, 32)),
    "rows, one by one": (looked_up_one_by_one, (1000, 64), (8, 32)),
    "along an axis": (taken, (128, 1000), (128, 16)),
    "along an axis, uneven": (taken, (131, 509), (131, 3)),
    "windows": (windows, (128, 1000), (128,)),
    "updates": (put, (128, 1000), (128,)),
}
"""Functions of a table and places in it, and the shapes of both."""


@few("name", LOOK_UPS, quick=["labels", "rows", "rows, one by one", "along an axis, uneven", "windows"])
@pytest.mark.parametrize("differentiated", [False, True], ids=["forward", "gradient"])
def test_look_ups_are_spread(name, differentiated):
    function, table, places = LOOK_UPS[name]
    function = jax.grad(function) if differentiated else function
    random = np.random.default_rng(0)
    x = random.standard_normal(table).astype(np.float32)
    indices = random.integers(0, table[1] if len(places) == 1 or table[0] == places[0] else table[0], places, np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cl.OneVertexWarning)
        traced = cl.trace(function, x, indices)
    assert alone(traced.graph) == []
    profile = traced.profile()
    by_tile = profile.memory_by_tile
    assert by_tile.max() < 0.1 * profile.target.bytes_per_tile
    held = 4 * sum(map(np.size, (x, indices)))  # exchange of one tile with all others takes as long as it has bytes
    assert profile.total_cycles < 25_000 + held / 16
    np.testing.assert_allclose(*at_once(traced, function)(x, indices), rtol=2e-5, atol=1e-5)


def test_labels_are_picked_from_all_tiles():
    """4.2 MB of one tile, and a million cycles, where all rows are looked up on one."""
    traced = cl.trace(picked, jnp.ones((128, 8192)), jnp.zeros(128, jnp.int32))
    by_tile = traced.profile().memory_by_tile
    assert by_tile.max() <= 1.5 * by_tile.mean()
    assert traced.profile().total_cycles < 15_000


def test_rows_one_by_one_are_rows():
    """`vmap(vmap(lambda i: e[i]))` and `e[ids]` are the same vertices."""
    arguments = jnp.ones((1000, 64)), jnp.zeros((8, 32), jnp.int32)
    graphs = [cl.trace(jax.grad(own), *arguments).graph for own in (looked_up, looked_up_one_by_one)]
    one, other = (
        [(own.codelet.name, own.num_vertices, count_edges(own)) for own in graph.families] for graph in graphs
    )
    assert one == other


# --- what is told -----------------------------------------------------------------------------------------------


def told(function, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cl.trace(function, *arguments)
    return [str(own.message) for own in caught if issubclass(own.category, cl.OneVertexWarning)]


def test_one_vertex_is_told_with_its_elements_and_cycles():
    (text,) = told(lambda x: jnp.linalg.svd(x, compute_uv=False), jnp.ones((8, 8)))
    assert re.match(r"one vertex on one tile runs 'svd', of 72 elements, in about [\d,]+ cycles: its rule, 'a ve", text)
    assert "'a vertex for each of a batch; else one vertex', spreads it no further; docs/frontends.md lists" in text
    assert "test_one_vertex.py" in text


def test_few_elements_are_told_once_and_many_each_time():
    def several(small, large):
        parts = [jnp.linalg.svd(k * own, compute_uv=False).sum() for own in (small, large) for k in (1.0, 2.0, 3.0)]
        return sum(parts)

    found = told(several, jnp.ones((4, 4)), jnp.ones((70, 70)))
    assert [re.findall(r"of ([\d,]+) elements", own)[0] for own in found] == ["20"] + 3 * ["4,970"]


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (jnp.linalg.cholesky, (100, 100)),
        (jnp.fft.rfft, (5000,)),
        (lambda x: lax.reduce(x, 0.0, lambda a, b: a + jnp.sin(b), (0,)), (10_000,)),
    ],
    ids=["cholesky", "rfft", "reduce"],
)
@pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")
def test_what_is_planned_as_one_vertex_is_told_where_it_is_large(function, size):
    x = jnp.eye(*size) if len(size) == 2 else jnp.ones(size)
    assert len(told(function, x)) == 1


def test_what_is_planned_as_one_vertex_is_not_told_where_it_is_small():
    assert told(lambda x: lax.reduce(x, 0.0, lambda a, b: a + jnp.sin(b), (0,)), jnp.ones(100)) == []
