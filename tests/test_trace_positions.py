"""Positions in `cl.trace`, beside plain JAX: starts that lead beyond the ends, and indices of narrow dtypes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from tests.examples import few
from tests.ops_cases import TARGET, array, assert_alike

X, UPDATE = array((6,)), array((2,), seed=1)
LATE: Any = {"allow_negative_indices": False}

AT_STARTS = {
    "slice": lambda x, u, i: (lax.dynamic_slice(x, (i,), (2,), **LATE), lax.dynamic_slice(x, (i,), (2,))),
    "update": lambda x, u, i: (
        lax.dynamic_update_slice(x, u, (i,), **LATE),
        lax.dynamic_update_slice(x, u, (i,)),
        lax.dynamic_update_slice(jnp.stack([x, x]), u[None], (i, jnp.full_like(i, 2)), **LATE),
    ),
    "index": lambda x, u, i: (
        lax.dynamic_index_in_dim(x, i, **LATE),
        lax.dynamic_update_index_in_dim(x, u[0], i, 0, **LATE),
        jnp.take(x, i[None], mode="clip"),
        x[i],
        x.at[i].add(u[1], mode="drop"),
        x.at[i].get(mode="clip"),
    ),
}


def with_slopes(function, dtype):
    def both(x, u, i):
        index = i.astype(dtype)
        values, pull = jax.vjp(lambda x, u: function(x, u, index), x, u)
        return values, pull(jax.tree.map(jnp.cos, values))

    return both


@few(
    "name, dtype",
    [(name, dtype) for name in AT_STARTS for dtype in ("int32", "int8", "int16")],
    quick=["slice, int16", "update, int8", "index, int32"],
)
def test_starts_are_clamped_as_plain_jax_clamps_them(name, dtype):
    function = AT_STARTS[name]
    traced = cl.trace(function, X, UPDATE, jnp.zeros((), dtype), target=TARGET)
    both = jax.jit(lambda *given: (with_slopes(traced, dtype)(*given), with_slopes(function, dtype)(*given)))
    for start in (-100, -7, -6, -1, 0, 3, 5, 100):
        jax.tree.map(assert_alike, *both(X, UPDATE, jnp.asarray(start)))


@few("execution", ["fused", "tiles", "addresses"], quick=["fused"])
def test_starts_are_clamped_in_every_execution(execution):
    function = AT_STARTS["slice"]
    traced = cl.trace(function, X, UPDATE, 0, target=TARGET)
    engine = cl.Engine(traced, execution=execution)
    for start in (-7, -1):
        engine.write(traced.arrays(X, UPDATE, start))
        engine.run()
        plain = function(X, UPDATE, jnp.asarray(start))
        jax.tree.map(lambda own, right: assert_alike(engine.read(own), right), traced.outputs, plain)


ROWS = {
    "look up": lambda x, k: x[k],
    "look up clipped": lambda x, k: x.at[k].get(mode="clip"),
    "slice": lambda x, k: lax.dynamic_slice(x, (k,), (1,)),
    "update": lambda x, k: lax.dynamic_update_slice(x, -x[:1], (k,)),
    "add": lambda x, k: x.at[k].add(x[0]),
    "along": lambda x, k: jnp.take_along_axis(x, k[None], 0),
}


def check_rows(names, dtype, count):
    """Lines of two elements, more than a dtype counts, each with an index of its own."""
    lines, indices = array((count, 2)), jnp.asarray(np.arange(count) % 2, dtype)
    function = jax.vmap(lambda x, k: [ROWS[name](x, k) for name in names])
    traced = cl.trace(function, lines, indices, target=TARGET)
    slopes = lambda run: lambda x: jax.vjp(lambda x: run(x, indices), x)  # noqa: E731

    def of(run, x):
        values, pull = slopes(run)(x)
        return values, pull(jax.tree.map(jnp.cos, values))

    jax.tree.map(assert_alike, *jax.jit(lambda x: (of(traced, x), of(function, x)))(lines))


@few("dtype", ["uint8", "int8"], quick=["uint8"])
def test_rows_are_counted_whatever_the_dtype_of_their_indices(dtype):
    check_rows(list(ROWS), dtype, 300)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_many_rows_are_counted_whatever_the_dtype_of_their_indices(dtype):
    check_rows(["look up", "update"], dtype, 70_000)


def test_rows_of_groups_are_counted_whatever_the_dtype_of_their_sizes():
    x, w, sizes = array((300, 2)), array((3, 2, 2), seed=1), jnp.array([120, 110, 60], jnp.int8)
    traced = cl.trace(lax.ragged_dot, x, w, sizes, target=TARGET)
    assert_alike(jax.jit(traced)(x, w, sizes), lax.ragged_dot(x, w, sizes.astype(jnp.int32)))
