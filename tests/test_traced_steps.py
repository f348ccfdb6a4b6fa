"""Training steps that are traced lower to what their function is: its convolutions, each as one, and little beside."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from benchmarks.traced_steps import by_vertices, lowered_vertices
from codelet.jaxprs.rebuild import inline
from tests.at_once import at_once


def two_convolutions(kernels, x):
    """Convolutions of some lines with a pooling and a rectifier between them, as `jax.vmap` makes them of one line."""

    def of_line(x):
        for w, dilation in zip(kernels, (1, 2), strict=True):
            x = lax.conv_general_dilated(x[None], w, (1,), "VALID", rhs_dilation=(dilation,))[0]
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 4), (1, 4), "VALID")
            x = jax.nn.relu(x)
        return x

    return jnp.sin(jax.vmap(of_line)(x)).sum()


@pytest.mark.parametrize("lowered", [lowered_vertices, lambda traced: traced.lowered], ids=["vertices", "uncut"])
def test_convolutions_between_poolings_and_rectifiers_stay_whole(lowered):
    random = np.random.default_rng(0)
    kernels = [random.normal(size=shape).astype(np.float32) for shape in ((4, 2, 3), (4, 4, 4))]
    x = random.normal(size=(3, 2, 61)).astype(np.float32)  # 59 places are pooled, then 8
    slopes = jax.grad(two_convolutions)
    traced = cl.trace(slopes, kernels, x, grain=40, target=cl.IPU(num_tiles=16))
    run = lowered(traced)
    names, others = (
        Counter(eqn.primitive.name for eqn in own.eqns)
        for own in (run.jaxpr, inline(jax.make_jaxpr(slopes)(kernels, x)))
    )
    for name in ("conv_general_dilated", "reduce_window_max"):
        assert names[name] == others[name] > 0
    assert not names["scatter"] + names["stack"]
    *ours, expected = at_once(traced, by_vertices(traced), slopes)(kernels, x)
    for found in ours:
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_results_of_maps_keep_the_dimensions_of_their_operands():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    traced = cl.trace(lambda x: jnp.tanh(x.transpose(0, 2, 1)) + 1, x)
    assert [v.shape for v in traced.graph.variables] == [(2, 3, 4)] * 2  # as the operand lies
    np.testing.assert_allclose(traced(x), jnp.tanh(x.transpose(0, 2, 1)) + 1, rtol=1e-6)


def test_reductions_of_single_elements_are_views():
    x = jnp.asarray(np.random.default_rng(1).integers(-4, 5, (3, 1, 4, 1)), jnp.float32)

    def single(x):
        whole = x.sum((1, 3)), x.prod(1), x.max((1, 3)), x.min(3), (x > 0).any(1), (x > 0).all((1, 3))
        return [own.T for own in whole]

    traced = cl.trace(single, x)
    assert {c.name for c in traced.graph.compute_sets} == {"gt/map"}
    found, *others = at_once(traced, single)(x)
    for a, b in zip(found, others[0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
