"""Host data: a user's values for a graph or a variable, checked and converted."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import ArrayError, CodeletError
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
    """The purpose of an array: a variable, or all values of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


_KINDS = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
"""Kinds of numbers, each of which stands for those before; NumPy knows the kind of no short float."""


def _kind(dtype: np.dtype) -> int:
    """The place in `_KINDS` of a dtype's kind of values."""
    return next(k for k, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind))


def as_array(value: Any, variable: Place) -> jax.Array:
    """`value` as a JAX array for a variable, converted as `jnp.asarray` converts.

    Plain numbers go wherever the dtype takes them; arrays have that dtype.

    Raises:
        ArrayError: another shape, a dtype from which the variable's would lose meaning, a number that it does not hold.
    """
    held = _of_numbers(value, variable)
    if held is None:
        try:
            held = on_device(value)
        except CodeletError:  # a tensor, which has no numbers, and says so
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise ArrayError(
                f"what was given for {variable.name!r} is not an array",
                given=f"{type(value).__name__} {value!r:.60}",
                expected=type_text(variable.dtype, variable.shape),
                fix="give an array, a number, or lists of numbers that are all as long",
            ) from error
    # Traced numbers without a dtype to lose: integers may stand for floats, not the reverse.
    is_wider = not hasattr(value, "dtype") and _kind(held.dtype) < _kind(variable.dtype)
    fits = held.dtype == variable.dtype or is_wider
    if held.shape != variable.shape or not fits:
        what = "shape" if held.shape != variable.shape else "dtype"
        raise ArrayError(
            f"the array for {variable.name!r} has the wrong {what}",
            given=type_text(held.dtype, held.shape),
            expected=type_text(variable.dtype, variable.shape),
            fix=None if what == "shape" else f"convert it first: jnp.asarray(..., {variable.dtype.name!r})",
        )
    return held if held.dtype == variable.dtype else held.astype(variable.dtype)


def _of_numbers(value: Any, variable: Place) -> jax.Array | None:
    """Plain numbers, or lists of these, for a variable; None of anything else.

    Raises:
        ArrayError: a number that the dtype does not hold.
    """
    if hasattr(value, "dtype") or any(type(leaf) not in (bool, int, float, complex) for leaf in jax.tree.leaves(value)):
        return None
    try:
        given = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    dtype = variable.dtype
    if given.shape != variable.shape:
        return None
    are_whole = given.dtype.kind in "iu" or (given.dtype.kind == "O" and all(type(n) is int for n in given.reshape(-1)))
    if not are_whole and given.dtype.kind not in "bfc":
        return None
    if (_KINDS.index(jnp.integer) if are_whole else _kind(given.dtype)) > _kind(dtype):
        return None
    lost = _beyond(given, dtype) if are_whole else None
    if lost is None:
        with np.errstate(all="ignore"):
            known = given if given.dtype.kind != "O" else given.astype(np.float64)  # of which short floats are made
            held = known.astype(dtype)
        lost = None if are_whole else lost_number(given, held)
    if lost is not None:
        raise ArrayError(
            f"a number for {variable.name!r} does not fit its dtype",
            given=f"{lost!s:.60}, for {type_text(dtype, variable.shape)}",
            expected=f"numbers that {dtype.name} holds",
        )
    return jnp.asarray(held)


def _beyond(numbers: np.ndarray, dtype: np.dtype) -> int | None:
    """The first of integers that lies beyond those of a dtype; None where all lie within."""
    ends: Any = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    least, most = int(float(ends.min)), int(float(ends.max))
    return next((own for own in numbers.reshape(-1).tolist() if not least <= own <= most), None)


def as_own_array(value: Any, variable: Place) -> jax.Array:
    """`value` as `as_array` has it, copied: a run may overwrite it, and an array of JAX may be donated.

    Raises:
        ArrayError: as `as_array`.
    """
    array = as_array(value, variable)
    return copied(array) if isinstance(value, jax.Array) or hasattr(value, "__jax_array__") else array
