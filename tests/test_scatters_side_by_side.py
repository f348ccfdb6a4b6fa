"""Updates of a table that no number of rows divides run as one scatter, with windows, single elements, or numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.traced_steps import lowered_vertices
from tests.examples import examples
from tests.test_trace import count_of

ROWS = st.sampled_from([997, 1009, 2053, 4099])
"""Primes."""


def added(table, at, slopes):
    """Rows added to those of a table."""
    return table.at[at].add(slopes)


def added_to_zeros(table, at, slopes):
    """Rows added to zeros: the gradient of an embedding."""
    return jnp.zeros_like(table).at[at].add(slopes)


def of_labels(table, at, slopes):
    """The gradient of the labels picked of logits: a number added to one element of each row."""
    labels = jnp.resize(at, (table.shape[1], 1))
    return jax.grad(lambda logits: 2 * jnp.take_along_axis(logits, labels, axis=1).sum())(table.T)


def greatest(table, at, slopes):
    """Rows kept where they are greater."""
    return table.at[at].max(slopes, mode="drop")


@examples(12)
@given(ROWS, st.integers(1, 40), st.integers(1, 30), st.sampled_from([added, added_to_zeros, of_labels, greatest]))
def test_values_are_those_of_jax(rows, columns, count, function):
    random = np.random.default_rng(rows * columns + count)
    table = random.standard_normal((rows, columns)).astype(np.float32)
    at = random.integers(-rows, rows, count).astype(np.int32)
    if function is greatest:
        at[::2] += rows // 2  # some beyond the end
    slopes = random.standard_normal((count, columns)).astype(np.float32)
    found = cl.trace(function, table, at, slopes)(table, at, slopes)
    np.testing.assert_allclose(found, jax.jit(function)(table, at, slopes), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [50_257, 40_009])
@pytest.mark.parametrize("function", [added_to_zeros, of_labels])
def test_one_scatter_updates_all_rows(function, rows):
    given = jnp.zeros((rows, 48)), jnp.zeros(64, jnp.int32), jnp.ones((64, 48))
    traced = cl.trace(function, *given)
    for made in (traced.lowered.jaxpr, lowered_vertices(traced).jaxpr):
        assert count_of("scatter-add", made) == 1
        assert not count_of("concatenate", made)


def test_what_is_updated_by_other_rows_stays_apart():
    """Each half by its own updates: a scatter for either."""

    def halves(table, at, slopes):
        return jnp.concatenate([added_to_zeros(table[:500], at, slopes), added_to_zeros(table[500:], at, 2 * slopes)])

    random = np.random.default_rng(0)
    given = np.zeros((997, 7), np.float32), random.integers(0, 497, 20), random.standard_normal((20, 7), np.float32)
    traced = cl.trace(halves, *given)
    assert count_of("scatter-add", lowered_vertices(traced).jaxpr) >= 2
    np.testing.assert_allclose(traced(*given), jax.jit(halves)(*given), rtol=1e-6, atol=1e-6)
