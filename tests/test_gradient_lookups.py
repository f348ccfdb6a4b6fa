"""Gradients as graphs: what vertices look up at places that are known late, gone back through together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from tests.examples import examples
from tests.gradients import compare, prove

HEADS, ROWS, COLUMNS, VERTICES = 2, 5, 3, 6


@cl.codelet
def row(table, i):
    return table[i]


@cl.codelet
def rows(table, i):
    return table[jnp.stack([i, i + 1, i])]


@cl.codelet
def weighted(table, i, w):
    return table[i] * w


@cl.codelet
def twice(table, i):
    """Of one table the difference of two rows, of which one is asked for in another way."""
    return table[i] - 2 * jnp.take(table, i + 1, axis=0, mode="clip")


@cl.codelet
def window(table, i):
    """A window, which is moved to where it fits."""
    return lax.dynamic_slice(table, (i, i - 1), (2, 2))


@cl.codelet
def filled(table, i):
    """Beyond the ends nothing, which contributes nothing."""
    return jnp.take(table, jnp.stack([i, i + 3]), axis=0, mode="fill", fill_value=0)


@cl.codelet
def column(table, i):
    return table[:, i % COLUMNS]


@cl.codelet
def flat(table, i):
    return table.reshape(-1)[i]


@cl.codelet
def element(table, i):
    return table[i, i % COLUMNS] ** 2


@cl.codelet
def put(table, i):
    """A table with a row in the place of another: it contributes all that is not overwritten."""
    return table.at[i].set(0.0)


@cl.codelet
def scanned(table, i):
    """Row after row: what loops contribute is held."""
    return lax.fori_loop(0, 3, lambda k, total: total + table[(i + k) % ROWS], jnp.zeros(COLUMNS))


TOGETHER = {own.name: own for own in (row, rows, weighted, twice, window, filled, column, flat, element)}
HELD = {own.name: own for own in (put, scanned)}


def looked_up(codelet: cl.Codelet, indices: np.ndarray, by_head: bool) -> tuple[cl.Graph, cl.Tensor, list[cl.Tensor]]:
    """Vertices that each look up in one table, or those of each head in one of its own."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    tables = graph.add_variable("table", (HEADS, ROWS, COLUMNS) if by_head else (ROWS, COLUMNS))
    i = graph.add_constant("i", indices)
    w = graph.add_variable("w", (HEADS, VERTICES))
    h, k = cl.grid(HEADS, VERTICES)
    given = (jnp.zeros((ROWS, COLUMNS)), jnp.zeros((), indices.dtype), jnp.zeros(()))[: len(codelet.inputs)]
    shape = jax.eval_shape(codelet.function, *given).shape
    out = graph.add_variable("out", (HEADS, VERTICES, *shape))
    more = {"w": w[h, k]} if "w" in codelet.inputs else {}
    graph.add_vertex("look", codelet, table=tables[h] if by_head else tables, i=i[h, k], **more, out=out[h, k])
    return graph, out, [tables, w] if more else [tables]


INDICES = np.random.default_rng(0).integers(-ROWS, ROWS, (HEADS, VERTICES))


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("name", [*TOGETHER, *HELD])
def test_no_vertex_contributes_a_table(name: str, by_head: bool):
    graph, out, wrt = looked_up({**TOGETHER, **HELD}[name], INDICES.astype(np.int32), by_head)
    compare(graph, out, wrt, None, by_tables=True)
    back = [own for own in graph.families if own.compute_set.name == "backward/look"]
    assert any("d_table" in family.by_name for family in back) == (name in HELD)


@pytest.mark.parametrize("name", ["weighted", "window"])
def test_slopes_of_tables_are_proved(name: str):
    prove(*looked_up(TOGETHER[name], INDICES.astype(np.int32), False))


@pytest.mark.slow
@examples(20)
@given(st.data())
def test_indices_of_any_kind(data: st.DataObject):
    """Beyond the ends, of short integers too, in a loop that moves them on."""
    codelet = {**TOGETHER, **HELD}[data.draw(st.sampled_from([*TOGETHER, *HELD]))]
    kind = np.dtype(data.draw(st.sampled_from(["int8", "uint8", "int16", "uint32", "int32"])))
    least = 0 if kind.kind == "u" else -2 * ROWS
    indices = data.draw(st.lists(st.integers(least, 2 * ROWS), min_size=HEADS * VERTICES, max_size=HEADS * VERTICES))
    graph, out, wrt = looked_up(codelet, np.array(indices, kind).reshape(HEADS, VERTICES), data.draw(st.booleans()))
    compare(graph, out, wrt, None, by_tables=True)
