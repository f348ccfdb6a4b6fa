"""Gradients as graphs beside JAX's: what the tests of these compare."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from tests.drawn_dtypes import ROUNDINGS, epsilon


def agree(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Gradients are alike, up to what sums in another order differ by; of short floats, to so many roundings."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, name
    relative = max(2e-4, ROUNDINGS * epsilon(expected.dtype) * (expected.dtype.itemsize < 4))
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, relative, relative * scale, err_msg=name)


def compare(graph, of, wrt, holds: str | None, by_tables: bool = False) -> cl.Lowered:
    """The gradient of a tensor by others as vertices, lowered and interpreted, beside JAX's; what it is lowered to.

    Args:
        graph: of all.
        of: what is differentiated, along a random cotangent.
        wrt: by which, whose values are random too.
        holds: what the plan is to tell.
        by_tables: whether anything may be read or written through a table.
    """
    random = np.random.default_rng(0)
    values = {own.name: random.uniform(-1, 1, own.shape).astype(np.float32) for own in wrt}
    cotangent = random.uniform(-1, 1, of.shape).astype(np.float32)
    run = cl.lower(graph, inputs=[*values], outputs=[of])
    expected = jax.jit(jax.grad(lambda own: jnp.vdot(run(own)[of.name], cotangent)))(values)
    found = cl.gradient(graph, of, wrt, cotangent=cotangent)
    both = cl.Sequence(found.forward, found.backward)
    lowered = cl.lower(graph, both, inputs=[*values], outputs=[*found])
    made = jax.jit(lowered)(values)
    for own in wrt:
        agree(made[found[own].source.name], expected[own.name], own.name)
    simple = cl.interpret(graph, values, [*found], both)
    for own in wrt:
        agree(simple[found[own].source.name], expected[own.name], own.name)
    if holds is not None:
        assert holds in str(lowered.plan)
    # What is gathered is read through no table, and no contribution is held.
    for family in () if by_tables else lowered.families:
        assert not any(own.tensor.index.tables for own in family.fields if own.tensor is not None)
    return lowered
