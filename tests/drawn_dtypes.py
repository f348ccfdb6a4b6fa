"""The dtypes that generators draw from, and how far results in each of them may lie from one another."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

FLOATS = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(jnp.bfloat16)]
"""What floats are drawn of where x64 is off."""

MOSTLY_WIDE = [FLOATS[0], *FLOATS]
"""Floats of programs, of which a tolerance tells more the longer they are."""

DTYPES = [*FLOATS, np.dtype(np.int32), np.dtype(np.int8), np.dtype(bool)]

OF_WORDS = [
    *DTYPES,
    *(np.dtype(own) for own in ("uint8", "int16", "uint16", "uint32", "complex64")),
    *(np.dtype(getattr(jnp, own)) for own in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e5m2fnuz")),
]
"""Dtypes that variables have and elements are moved in, where nothing is computed."""

ROUNDINGS = 32
"""How many roundings of the sum of magnitudes a result may be off by."""


def epsilon(dtype: Any) -> float:
    """The relative distance of neighbouring numbers of a dtype; of integers none."""
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0.0


def assert_near(result: Any, expected: Any, computed_in: Any, message: str = "") -> None:
    """Results are alike: of one shape and dtype, floats to a tolerance scaled by the sum of magnitudes.

    `computed_in` is the shortest dtype of what was computed with: its roundings are those of the result.
    """
    result, expected = np.asarray(result), np.asarray(expected)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype), message
    if not jnp.issubdtype(expected.dtype, jnp.floating):
        np.testing.assert_array_equal(result, expected, err_msg=message)
        return
    relative = ROUNDINGS * max(epsilon(computed_in), epsilon(expected.dtype))
    result, expected = result.astype(np.float64), expected.astype(np.float64)
    scale = 1 + np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape)).sum()
    np.testing.assert_allclose(result, expected, rtol=0, atol=relative * scale, err_msg=message)
