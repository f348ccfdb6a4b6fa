"""The results of a codelet's function, as its output fields: one array, or a flat dict of arrays by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import CodeletTraceError

_ARRAYS = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def _instead(value: Any) -> tuple[str, str]:
    """The name of a value that is no array, and the value to return in place of it."""
    match value:
        case None:
            return "None", "return what it computes; what it only prints or checks still needs a result"
        case Mapping() if not value:
            return "an empty dict", "return what it computes"
        case Mapping():
            return "a dict in a dict", 'give the fields names of their own: {"a_x": ..., "a_y": ...}'
        case tuple() | list():
            kind = type(value).__name__
            return f"a {kind} of {len(value)}", (
                'name them, return {"first": ..., "second": ...}, or make them one array, return jnp.stack(...)'
            )
    return f"{type(value).__name__} {value!r:.60}", "return arrays"


def _field(codelet: str, name: str, value: Any) -> Any:
    """One returned value as an array: a Python number has the dtype that `jnp.asarray` gives it, and keeps it."""
    if hasattr(value, "__jax_array__"):
        value = jnp.asarray(value)
    if not isinstance(value, _ARRAYS) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
        given, fix = _instead(value)
        raise CodeletTraceError(
            f"codelet {codelet!r} returns something other than arrays",
            given=given if name == "out" else f"{given} for its field {name!r}",
            expected="one array, or a flat dict of arrays by the names of its fields",
            fix=fix,
        )
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise CodeletTraceError(
            f"codelet {codelet!r} returns a typed PRNG key",
            given=f"{value.dtype} for its field {name!r}",
            expected="uint32 data: keys are wrapped inside codelets alone",
            fix="return jax.random.key_data(key), and wrap it where it is used: jax.random.wrap_key_data(data)",
        )
    if not isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return np.asarray(value, jax.dtypes.canonicalize_dtype(type(value)))
    if isinstance(value, jax.Array) and value.aval.weak_type:
        return jax.lax.convert_element_type(value, value.dtype)
    return value


def returned_fields(codelet: str, returned: Any, static: Collection[str] = ()) -> dict[str, Any]:
    """The results of a codelet's function, as arrays by field.

    Args:
        codelet: its name, for errors.
        returned: the returned value.
        static: the names of its static values, which are no fields.

    Raises:
        CodeletTraceError: something other than an array, or a flat dict of arrays whose names can be fields'.
    """
    if not isinstance(returned, Mapping) or not returned:
        return {"out": _field(codelet, "out", returned)}
    strange = [name for name in returned if not isinstance(name, str) or name == "tile" or name in static]
    if strange:
        raise CodeletTraceError(
            f"codelet {codelet!r} returns a field it may not have",
            given=", ".join(map(repr, returned)),
            expected="names that are strings, other than 'tile' and those of its static values",
            fix=f"another name than {strange[0]!r}",
        )
    return {name: _field(codelet, name, value) for name, value in returned.items()}
