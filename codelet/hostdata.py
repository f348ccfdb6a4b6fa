"""Host data: what a user hands to a graph or a variable, checked and converted."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from codelet.errors import ArrayError
from codelet.hostcopies import copied, on_device
from codelet.views.sources import type_text


def known_array(value: Any, dtype: Any = None) -> np.ndarray:
    """A value that is known while a graph is built, converted as `jnp.asarray` converts; also under a trace."""
    with jax.ensure_compile_time_eval():
        fits = dtype is None or getattr(value, "dtype", None) == dtype
        return np.asarray(on_device(value) if fits else jnp.asarray(value, dtype))


def is_of_keys(dtype: Any) -> bool:
    """Whether a dtype is that of typed PRNG keys."""
    try:
        return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
    except TypeError:
        return False


def lost_number(value: Any, held: np.ndarray) -> Any:
    """The first number that a conversion did not keep: whole ones as they were, finite ones finite; None if it did."""
    given = np.asarray(value)
    if held.dtype == given.dtype or not given.size or given.dtype.kind not in "iufb":
        return None
    if held.dtype.kind in "iub":
        with np.errstate(all="ignore"):
            # A negative number comes back from an unsigned dtype of its size.
            back = held.astype(np.float64 if given.dtype.kind == "f" else given.dtype)
            lost = (back != given) | ((given < 0) != (held < 0))
    else:
        lost = np.isfinite(given) & ~np.isfinite(held.astype(np.complex128))
    return given[lost].reshape(-1)[0] if np.any(lost) else None


class Place(Protocol):
    """What an array is for: a variable, or all values of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


_KINDS = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
"""Kinds of numbers, each of which stands for those before; NumPy knows the kind of no short float."""


def _kind(dtype: np.dtype) -> int:
    """The place in `_KINDS` of what a dtype holds."""
    return next(k for k, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind))


def as_array(value: Any, variable: Place) -> jax.Array:
    """`value` as a JAX array for a variable, converted as `jnp.asarray` converts.

    Raises:
        ArrayError: another shape, or a dtype from which the variable's would lose meaning.
    """
    plain = not hasattr(value, "dtype")
    try:
        array = on_device(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArrayError(
            f"what was given for {variable.name!r} is not an array",
            given=f"{type(value).__name__} {value!r:.60}",
            expected=type_text(variable.dtype, variable.shape),
        ) from error
    fits = array.dtype == variable.dtype
    if not fits and plain:
        # Plain Python numbers have no dtype to lose: integers may stand for floats, not the reverse.
        own, wanted = _kind(array.dtype), _kind(variable.dtype)
        fits = own < wanted or (own == wanted and _holds(variable.dtype, value))
    if array.shape != variable.shape or not fits:
        what = "shape" if array.shape != variable.shape else "dtype"
        raise ArrayError(
            f"the array for {variable.name!r} has the wrong {what}",
            given=type_text(array.dtype, array.shape),
            expected=type_text(variable.dtype, variable.shape),
            fix=None if what == "shape" else f"convert it first: jnp.asarray(..., {variable.dtype.name!r})",
        )
    return array if array.dtype == variable.dtype else array.astype(variable.dtype)


def as_own_array(value: Any, variable: Place) -> jax.Array:
    """`value` as `as_array` has it, in memory of its own: a run may overwrite it, and an array of JAX may be donated.

    Raises:
        ArrayError: as `as_array`.
    """
    array = as_array(value, variable)
    return copied(array) if isinstance(value, jax.Array) or hasattr(value, "__jax_array__") else array


def _holds(dtype: np.dtype, value: Any) -> bool:
    """Whether plain numbers keep their kind's values in another dtype; traced ones among them may not."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return True
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        return False
    numbers, limits = known_array(value), jnp.iinfo(dtype)
    return not numbers.size or (int(numbers.min()) >= limits.min and int(numbers.max()) <= limits.max)
