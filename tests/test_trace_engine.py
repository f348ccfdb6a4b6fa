"""Traced functions on an engine, and their profile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.ops_cases import array, assert_alike

ROW, MATRIX = array((4,), seed=1), array((4, 4), seed=2)


@jax.jit
def block(own, x):
    return jnp.tanh(own["w"] @ x) + x


def test_an_engine_and_a_profile_of_a_traced_function():
    function = lambda own, x: (block(own, x), x.sum())  # noqa: E731
    traced = cl.trace(function, {"w": MATRIX}, ROW, target=cl.IPU(num_tiles=4))
    for execution in ("fused", "tiles"):
        engine = cl.Engine(traced, execution=execution)
        engine.write(traced.arrays({"w": MATRIX}, ROW))
        engine.run()
        jax.tree.map(
            lambda out, plain: assert_alike(engine.read(out), plain), traced.outputs, function({"w": MATRIX}, ROW)
        )
    profile = traced.profile()
    assert profile.total_cycles > 0
    assert "block" in str(profile.summary())
    with pytest.raises(cl.ArrayError, match="of another type"):
        traced.arrays({"w": np.ones((4, 5), np.float32)}, ROW)
