"""Dimensions of one element that only a reshape put there are left out, and all means the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.single_dimensions import drop_single_dimensions
from tests.at_once import at_once, with_slopes


def ranks(closed):
    """The number of dimensions of everything that is made of arrays."""
    return [var.aval.ndim for eqn in closed.jaxpr.eqns for var in eqn.outvars]


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def by_root(x, y):
    """Rows by the root of the mean of their squares, with a dimension that nothing needs."""
    x = x[:, None]
    return (x * lax.rsqrt(jnp.mean(x * x, 2, keepdims=True) + 1e-5) * y)[:, 0]


def turned(x, y):
    """Through a transpose, a repetition, and reductions of one element and of more."""
    laid = lax.broadcast_in_dim(jnp.transpose(x[None, :, None], (3, 0, 2, 1)), (8, 1, 3, 6), (0, 1, 2, 3))
    return jnp.max(laid * y.reshape(8, 1, 1, 1), (1, 2))


def in_a_loop(x, y):
    return lax.scan(lambda own, _: ((own[:, None] * y[None, None] + 1)[:, 0], None), x, length=3)[0]


def given_with_one(x, y):
    """What is given and what comes out keep theirs."""
    return x.reshape(6, 1, 8) * y.reshape(1, 8)[None]


def of_others(x, y):
    """What equations are given that nothing is known of keep theirs."""
    return lax.sort(x[:, None] * y, dimension=1) + lax.cumsum(x[:, None], axis=2)


def sliced(x, y):
    """Slices that take all of a dimension of one element, of an array that has it and of one that is put there."""
    k = y[0].astype(np.int32) * 0 + 2
    laid = (x[:, None] * y)[:, :, None]
    row = lax.dynamic_slice(laid, (k, 0, 5, k), (1, 1, 1, 8)) * 2
    put = lax.dynamic_update_slice(laid, row.reshape(1, 1, 1, 8), (k - 1, k, 0, 0)) + 1
    return lax.slice(put, (1, 0, 0, 0), (5, 1, 1, 8), (2, 1, 1, 1)).reshape(2, 8)


def sliced_empty(x, y):
    """A slice of nothing of a dimension of one element."""
    laid = (x[:, None] * y)[:, :, None]
    return jnp.concatenate([lax.slice_in_dim(laid, 0, 0, axis=1), laid], 1)[:, 0, 0]


CASES = {
    "sliced": (sliced, 2),
    "of nothing": (sliced_empty, 4),
    "rows": (by_root, 2),
    "turned": (turned, 3),
    "in a loop": (in_a_loop, 2),
    "given with one": (given_with_one, 3),
    "of others": (of_others, 3),
}


def test_functions_mean_the_same_with_fewer_dimensions():
    x, y = normal(6, 8), normal(8)
    made = {name: drop_single_dimensions(jax.make_jaxpr(function)(x, y)) for name, (function, _) in CASES.items()}
    runs = [run for name, (function, _) in CASES.items() for run in (function, jax_core.jaxpr_as_fun(made[name]))]
    results = at_once(*(with_slopes(lambda *own, run=run: jax.tree.leaves(run(*own))[0]) for run in runs))(x, y)
    for own, other in zip(results[::2], results[1::2], strict=True):
        for first, second in zip(*map(jax.tree.leaves, (own, other)), strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6)
    for name, (_, most) in CASES.items():
        assert max(ranks(made[name])) == most, made[name]
    (loop,) = (eqn for eqn in made["in a loop"].jaxpr.eqns if eqn.primitive.name == "scan")
    assert max(ranks(loop.params["jaxpr"])) == 2
    plain = jax.make_jaxpr(lambda x, y: x * y)(x, y)
    assert drop_single_dimensions(plain) is plain


@pytest.mark.parametrize("grain", [8, 4])
def test_a_block_of_one_row_is_that_row(grain):
    x, scale = normal(6, 8), normal(8)
    run = cl.lower(lambda graph, x, scale: cl.ops.rms_norm(graph, x, scale, eps=1e-5, grain=grain))
    closed = run.at(x, scale).jaxpr
    shapes = {var.aval.shape for eqn in closed.jaxpr.eqns for var in eqn.outvars}
    assert not any(1 in shape[1:-1] for shape in shapes if len(shape) > 2 and shape[-1] > 1), shapes
    plain = lambda x, scale: x * lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 1e-5) * scale  # noqa: E731
    made = at_once(with_slopes(run), with_slopes(plain))(x, scale)
    for own, other in zip(*map(jax.tree.leaves, made), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
