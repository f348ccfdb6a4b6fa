"""The declaration of a variable, a constant or a stream: its shape, its dtype, its value.

Shapes are NumPy's, dtypes and values follow `jnp.asarray`, and a value that would lose meaning is refused.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from codelet.errors import VariableError
from codelet.hostdata import is_of_keys, known_array, lost_number
from codelet.views.index import Index
from codelet.views.tensor import Tensor


def _extent(size: Any) -> int | None:
    """A size as an integer; None where it is none."""
    if isinstance(size, (bool, np.bool_, str, Index, Tensor)):
        return None
    try:
        extent = operator.index(size)
    except TypeError:
        return None
    return extent if extent >= 0 else None


MOST_ELEMENTS = 2**62
"""So many elements no array of a graph has: positions are counted in 64 bits."""


def _shape_fix(sizes: tuple[Any, ...]) -> str | None:
    for size in sizes:
        if isinstance(size, (float, np.floating)):
            return "divide integers by `//`; int(n) makes one of a float"
        if isinstance(size, Index):
            return "a variable has one shape for all of the grid: write how many positions the symbol has"
        if isinstance(size, Tensor):
            return "write its shape: x.shape"
    return None


def checked_shape(shape: Any, whose: str) -> tuple[int, ...]:
    """A shape as a tuple, from one number or a sequence of them.

    Raises:
        VariableError: sizes that are not integers from 0, or more elements than can be counted.
    """
    try:
        sizes = (shape,) if _extent(shape) is not None or isinstance(shape, (str, set, Index)) else tuple(shape)
    except (TypeError, ValueError):
        sizes = (shape,)
    extents = tuple(map(_extent, sizes))
    if None in extents:
        raise VariableError(
            f"the shape of {whose} is not a shape",
            given=repr(shape),
            expected="integers from 0: (4, 8), or 4 for one dimension",
            fix=_shape_fix(sizes),
        )
    if math.prod(extents) >= MOST_ELEMENTS:  # type: ignore[arg-type]
        raise VariableError(
            f"the shape of {whose} has more elements than can be counted",
            given=repr(shape),
            expected="fewer than 2**62 elements",
        )
    return extents  # type: ignore[return-value]


def checked_depth(depth: Any, whose: str) -> int:
    """For how many values a stream has room.

    Raises:
        VariableError: no integer from 1.
    """
    extent = _extent(depth)
    if not extent:
        raise VariableError(
            f"the buffering_depth of {whose} is not a number of values",
            given=f"buffering_depth={depth!r:.60}",
            expected="an integer from 1; from 2 values move while a loop computes",
        )
    return extent


@functools.cache
def _is_jaxs(dtype: np.dtype) -> bool:
    """Whether JAX has arrays of a dtype."""
    try:
        jax.eval_shape(lambda: jnp.zeros((), dtype))
    except TypeError:
        return False
    return True


def _dtype_fix(dtype: Any) -> str | None:
    try:
        kind = np.dtype(dtype).kind
    except TypeError:
        return None
    return {
        "U": "give each string a number, and hold the numbers",
        "S": "hold the bytes as uint8: np.frombuffer(data, np.uint8)",
        "M": "hold dates as integers: dates.astype('int64') under x64, or days as int32",
        "m": "hold durations as integers or as seconds in float32",
        "O": "one variable for each kind of data: numbers or booleans",
        "V": "one variable for each field of a record",
    }.get(kind)


def checked_dtype(dtype: Any, whose: str) -> np.dtype:
    """A dtype as JAX has it at present, with 64 bits under x64 alone; float32 where it is None.

    Raises:
        VariableError: one that is none of JAX's.
    """
    if dtype is None:
        return np.dtype(np.float32)
    if is_of_keys(dtype):
        raise VariableError(
            f"the dtype of {whose} is that of typed PRNG keys",
            given=dtype,
            expected="uint32: keys are data here, and wrapped inside codelets",
            fix='graph.add_variable(name, (..., 2), "uint32") for jax.random.key_data(key), and in the codelet '
            "jax.random.wrap_key_data(data)",
        )
    try:
        if hasattr(dtype, "shape") and not isinstance(dtype, np.dtype) and not isinstance(dtype, type):
            raise TypeError("an array")
        canonical = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    except (TypeError, ValueError):
        canonical = None
    if canonical is None or not _is_jaxs(canonical):
        raise VariableError(
            f"the dtype of {whose} is not one of JAX's",
            given=repr(dtype),
            expected="float32, int32, bool, bfloat16, ...: a name, or a dtype of NumPy's or JAX's",
            fix="write its dtype: x.dtype" if hasattr(dtype, "shape") and canonical is None else _dtype_fix(dtype),
        )
    return canonical


def checked_constant(value: Any, dtype: Any, name: str) -> np.ndarray:
    """The value of a constant, converted as `jnp.asarray` converts, which nothing may change any more.

    Raises:
        VariableError: something that is no array, is traced, or does not fit the dtype.
    """
    whose = f"constant {name!r}"
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        raise VariableError(
            f"the value of {whose} is traced",
            given=value,
            expected="an array whose numbers are known",
            fix="make it an input",
        )
    if isinstance(value, Index):
        raise VariableError(
            f"the value of {whose} is an index expression",
            given=value,
            expected="an array whose numbers are known",
            fix="give it to a field, as vertex state",
        )
    if isinstance(value, Tensor):
        raise VariableError(
            f"the value of {whose} is a tensor, which holds no numbers while the graph is built",
            given=value,
            expected="an array whose numbers are known",
            fix="a copy of it is another variable: cl.Copy(x, variable)",
        )
    kind = None if dtype is None else checked_dtype(dtype, whose)
    if is_of_keys(getattr(value, "dtype", None)):  # keys are data here, and wrapped inside codelets
        with jax.ensure_compile_time_eval():
            value = jax.random.key_data(value)
    try:
        with np.errstate(over="ignore"):
            held = known_array(value, kind)
    except OverflowError as error:
        raise _too_large(whose, f"{value!r:.80}", str(kind or "int32")) from error
    except (TypeError, ValueError) as error:
        raise VariableError(
            f"the value of {whose} is not an array",
            given=f"{type(value).__name__}: {value!r:.80}",
            expected="numbers, or a nest of lists of them of one shape",
        ) from error
    if (lost := lost_number(value, held)) is not None:
        raise _too_large(whose, str(lost), held.dtype.name)
    held.flags.writeable = False
    return held


def _too_large(whose: str, given: str, dtype: str) -> VariableError:
    return VariableError(
        f"the value of {whose} does not fit its dtype",
        given=f"{given}, for {dtype}",
        expected=f"numbers that {dtype} holds",
        fix="another dtype: add_constant(name, value, dtype); 64 bits need jax.enable_x64",
    )
