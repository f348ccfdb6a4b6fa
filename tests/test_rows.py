"""Rows: what is told of lengths however many there are, and how little is held of them."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.views.index import Index
from codelet.views.ragged import Ragged
from codelet.views.rows import KEPT, Rows, together
from tests.examples import few
from tests.strategies import total

MANY = KEPT + 1000


def lengths_of(count: int, most: int) -> np.ndarray:
    return np.random.default_rng(count + most).integers(0, most + 1, count)


@pytest.mark.parametrize(
    ("count", "most"), [(0, 0), (1, 0), (5, 3), (300, 255), (700, 256), (20_000, 70_000), (40_000, 2), (MANY, 3)]
)
def test_what_is_told_of_rows(count: int, most: int):
    lengths = lengths_of(count, most)
    offsets = np.append(0, np.cumsum(lengths))
    rows = Rows(cl.grid(max(1, count)).axes, lengths)
    assert (rows.count, rows.total) == (count, lengths.sum())
    np.testing.assert_array_equal(rows.lengths, lengths)
    np.testing.assert_array_equal(rows.offsets, offsets)
    assert rows.lengths.dtype == rows.offsets.dtype == np.int64
    np.testing.assert_array_equal(rows.occurring, np.unique(lengths))
    found = together([rows])
    np.testing.assert_array_equal(found.lengths, np.unique(lengths)[:, None])
    np.testing.assert_array_equal(found.lengths[found.group_of, 0], lengths)
    for number in {*range(min(count, 3)), *range(count)[255:258], *range(count)[-1:]}:
        assert rows.elements(number) == slice(offsets[number], offsets[number + 1])
    if rows.total < 10**7:
        owners = np.repeat(np.arange(count), lengths)
        np.testing.assert_array_equal(rows.owners, owners)
        np.testing.assert_array_equal(rows.places, np.arange(rows.total) - offsets[:-1][owners])


def test_rows_of_equal_lengths_have_equal_keys():
    axes, lengths = cl.grid(3).axes, np.array([1, 0, 2])
    key = Rows(axes, lengths).key
    assert key == Rows(axes, lengths.astype(np.int32)).key
    others = [(axes, lengths[::-1]), (axes, lengths + 255), (axes, lengths[:2]), (cl.grid(3).axes, lengths)]
    assert all(Rows(*other).key != key for other in others)


@pytest.mark.parametrize("count", [7, 20_000])
@pytest.mark.parametrize("step", [1, -2])
def test_stretches_from_starts(count: int, step: int):
    lengths = lengths_of(count, 3)
    rows = Rows(cl.grid(count).axes, lengths)
    for starts in (np.arange(count) * 5 % 11 + 100, step * rows.offsets[:-1] + 4, np.full(count, 2**40)):
        wanted = [
            start + step * k for start, length in zip(starts.tolist(), lengths, strict=True) for k in range(length)
        ]
        found = Index.stretched(starts, step, rows)
        np.testing.assert_array_equal(found.values(), wanted)
    assert not Index.stretched(step * rows.offsets[:-1] + 4, step, rows).tables


@pytest.mark.parametrize("first", [0, 2])
def test_a_table_is_looked_up_in_any_order(first: int):
    offsets, entries = np.array([0, 2, 2, 5, 6, 9, 10]) + first, np.arange(12) * 7 % 12
    own = [entries[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    table, x = cl.table(entries, offsets=offsets), cl.Graph().add_variable("x", (12,))
    assert table.offsets.tolist() == offsets.tolist()
    i, (a, b) = cl.grid(6), cl.grid(3, 2)
    across = [own[3 * q + p] for p in range(3) for q in range(2)]
    for found, wanted in [
        (table[i], own),
        (table[5 - i], own[::-1]),
        (table[2 * a + b], own),
        (table[3 * b + a], across),
    ]:
        assert isinstance(found, Ragged)
        ends, numbers = found.rows.offsets.tolist(), x[found].index.values().tolist()
        assert [numbers[p:q] for p, q in itertools.pairwise(ends)] == wanted


@few("step, scale", [(1, 1), (3, 1), (1, 2), (2, 3)], quick=["2, 3"])
def test_elements_in_the_order_of_memory(step: int, scale: int):
    offsets = np.append(0, np.cumsum(lengths_of(100, 3) + 1))
    order = np.random.default_rng(0).permutation(offsets[-1])
    size, graph, i = 5 + scale * step * len(order), cl.Graph(), cl.grid(100)
    x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (100,))
    lists = x[3::scale][cl.table(step * order, offsets=offsets)[i]]
    graph.add_vertex("sums", total, x=lists, out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert "elements in the order of memory" in str(run.plan)
    values = np.random.default_rng(1).standard_normal(size, np.float32)
    wanted = [values[3::scale][step * order[a:b]].sum() for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(jax.jit(run)({"x": values})["y"], wanted, rtol=1e-5)


# --- memory -------------------------------------------------------------------------------------------------


LARGE = 1 << 14
"""Bytes of an array that counts: there are few others, of whatever size a graph is, and JAX's own among them."""


def bytes_of(make: Callable[[], Any]) -> tuple[int, int]:
    """How many bytes large arrays of NumPy have of what a function makes, and the most that there were of anything."""
    gc.collect()
    tracemalloc.start(1)
    try:
        made = make()
        gc.collect()
        held = sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= LARGE)
        _, peak = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return held, peak


@pytest.mark.slow
def test_of_many_short_rows_a_byte_each_is_held():
    count = KEPT + 40_000
    lengths, axes = lengths_of(count, 7), cl.grid(count).axes

    def make() -> Rows:
        rows = Rows(axes, lengths)
        for what in ("lengths", "offsets", "owners", "places", "occurring", "key"):
            getattr(rows, what)
        return rows

    held, _ = bytes_of(make)
    assert held <= 1.1 * count


@pytest.mark.slow
def test_the_gradient_of_a_gather_holds_its_tables():
    vertices, length = 32_768, 16
    count = vertices * length

    @cl.codelet
    def dot(a, b):
        return jnp.dot(a, b)

    def lowered(size: int) -> cl.Lowered:
        tables = np.random.default_rng(0).integers(0, size * length, (2, size, length), np.int32)
        graph = cl.Graph()
        x, y = graph.add_variable("x", (size * length,)), graph.add_variable("y", (size,))
        v = cl.grid(size)
        graph.add_vertex("dots", dot, a=x[cl.table(tables[0])[v]], b=x[cl.table(tables[1])[v]], out=y[v])
        found = cl.gradient(graph, of=y, wrt=[x], cotangent=graph.add_variable("g", y.shape))
        return cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=["x", "g"], outputs=[y, found[x]])

    lowered(100)  # what is traced once
    held, peak = bytes_of(lambda: lowered(vertices))
    # Two tables, for each an order of 4 bytes and a length of 1, and where every so many lists start; beside them what
    # JAX's two arrays are made of, where these share the memory of NumPy's, which is by chance.
    assert held <= (18.1 + 8) * count
    assert peak <= 55 * count
    # The two tables say of the sums, too, which element each contribution is for.
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(lowered(vertices))) == 2 * 4 * count
