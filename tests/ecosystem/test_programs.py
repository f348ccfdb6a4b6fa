"""Programs that nobody here wrote the libraries of: traced as they are, with the values and slopes of plain JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.ecosystem.program import PACKAGES, is_there, programs_of

ALL = [own for package in PACKAGES if is_there(package) for own in programs_of(package)]


def checked(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Two results alike: of one structure, whole numbers the same, floats within a tolerance of the greatest."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        if jnp.issubdtype(own.dtype, jax.dtypes.prng_key):
            own, other = jax.random.key_data(own), jax.random.key_data(other)
        own, other = np.asarray(own), np.asarray(other)
        if np.issubdtype(own.dtype, np.inexact):
            np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * (1 + np.abs(other).max(initial=0)))
        else:
            np.testing.assert_array_equal(own, other)


def loss_of(function: Any) -> Any:
    """The sum of the squares of all floats that a function gives."""
    floats = lambda own: [leaf for leaf in jax.tree.leaves(own) if jnp.issubdtype(leaf.dtype, np.inexact)]  # noqa: E731
    return lambda *given: sum((leaf**2).sum() for leaf in floats(function(*given)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ALL, ids=[own.name for own in ALL])
def test_values(program):
    function, given = program.make()
    checked(jax.jit(cl.trace(function, *given))(*given), jax.jit(function)(*given))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", SLOPED := [own for own in ALL if own.slopes], ids=[own.name for own in SLOPED])
def test_slopes(program):
    function, given = program.make()
    expected = jax.jit(jax.grad(loss_of(function), program.slopes))(*given)
    checked(jax.jit(jax.grad(loss_of(cl.trace(function, *given)), program.slopes))(*given), expected, 1e-3)


@pytest.mark.slow
def test_there_are_as_many_as_were_named():
    """All packages installed, they are sixty and more."""
    missing = [package for package in PACKAGES if not is_there(package)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert len(ALL) >= 60
