"""What was cut runs as what was cut: one or two equations, whatever lies over, with plain JAX's values and slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from benchmarks.blocks import num_equations
from benchmarks.join import CASES
from tests.at_once import at_once, with_slopes
from tests.ops_cases import array

SHAPES = {
    "matmul": [(37, 53), (53, 41)],
    "matmul/prime": [(131, 257), (257, 67)],
    "conv": [(2, 6, 13, 13), (10, 6, 3, 3)],
    "sum": [(20_011, 3)],
    "dot/symbols": [(70,), (9, 70)],
    "dot/loops": [(70,), (9, 70)],
}
"""Of the cases; the gradient by an image of a known shape is of that."""

MOST_EQUATIONS = 4


@pytest.mark.parametrize("name", CASES)
def test_few_equations(name):
    case = CASES[name]
    given = [jax.ShapeDtypeStruct(shape, np.float32) for shape in case.shapes]
    assert num_equations(jax.make_jaxpr(cl.lower(case.build))(*given)) <= MOST_EQUATIONS


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_slopes(name):
    case, arrays = CASES[name], [array(shape, seed=k) for k, shape in enumerate(SHAPES[name])]
    run = cl.lower(case.build)
    for own, plain in zip(
        *map(jax.tree.leaves, at_once(with_slopes(run), with_slopes(case.plain))(*arrays)), strict=True
    ):
        np.testing.assert_allclose(own, plain, rtol=1e-3, atol=1e-3 * float(jnp.abs(plain).max()))
    assert num_equations(jax.make_jaxpr(run)(*arrays)) <= MOST_EQUATIONS
