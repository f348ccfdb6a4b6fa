"""Static values: which of them are alike to everything that is traced with them.

In comes a value that a trace may depend on: a static value of a codelet, an argument's structure, a number that a
function captures. Out comes its key in tables of traces. Python's equality does not serve: 1, 1.0 and True are equal
but make other dtypes, and 0.0 and -0.0 are equal but their reciprocals are not. A NaN is not even equal to itself, and
tuples and frozen dataclasses are equal where their parts are. Here types belong to the key all the way down, and floats
are alike where their bits are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import struct
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from codelet.errors import FieldTypeError
from codelet.views.index import Index
from codelet.views.ragged import Ragged
from codelet.views.ragged_tables import RaggedTable
from codelet.views.tensor import Tensor


def _field_keys(value: Any) -> Hashable:
    """The keys of the fields of a dataclass that its equality looks at."""
    compared = (field.name for field in dataclasses.fields(value) if field.compare)
    return tuple((name, static_key(getattr(value, name))) for name in compared)


@functools.singledispatch
def _content(value: Any) -> Hashable:
    """The key of a value among others of its type: the value, where its equality does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__eq__ is not object.__eq__:
        hash(value)  # one that may change cannot be hashed
        return _field_keys(value)
    hash(value)
    return value


@_content.register(float)
def _(value: float) -> Hashable:
    return struct.pack("<d", value)


@_content.register(complex)
def _(value: complex) -> Hashable:
    return struct.pack("<dd", value.real, value.imag)


@_content.register(np.generic)
def _(value: np.generic) -> Hashable:
    return value.dtype, value.tobytes()


@_content.register(Decimal)
def _(value: Decimal) -> Hashable:
    return value.as_tuple()


@_content.register(tuple)
def _(value: tuple[Any, ...]) -> Hashable:
    return tuple(map(static_key, value))


@_content.register(frozenset)
def _(value: frozenset[Any]) -> Hashable:
    return frozenset(map(static_key, value))


@_content.register(slice)
@_content.register(range)
def _(value: slice | range) -> Hashable:
    return static_key((value.start, value.stop, value.step))


_PLAIN = (int, bool, str)
"""Types whose values are equal where nothing can tell them apart."""


def static_key(value: Any) -> Hashable:
    """The common key of two values that nothing traced with them could distinguish.

    Raises:
        TypeError: a value that may change, or holds one: a list, a dict, an array.

    >>> static_key((2, -0.0)) == static_key((2, 0.0)), static_key(2) == static_key(2.0)
    (False, False)
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    return kind, _content(value)


def _in_place_of(value: Any) -> str | None:
    """The fix for a value that may change."""
    match value:
        case list():
            return f"a tuple does not change: {tuple(value)!r:.60}"
        case set():
            return f"a frozenset does not change: frozenset({value!r:.60})"
        case dict():
            return "a tuple of its items does not change, nor does a frozen dataclass"
        case tuple() | frozenset():
            return next(filter(None, map(_in_place_of, value)), None)
    return None


def check_static(value: Any, what: str, otherwise: str) -> Hashable:
    """The key of a user's static value.

    Args:
        value: the value.
        what: its role.
        otherwise: the fix for data, which are not static.

    Raises:
        FieldTypeError: a symbol, a tensor, something traced, or a value that may change.
    """
    if type(value) in _PLAIN:
        return static_key(value)
    kinds = {Index: "a symbol", Ragged: "a ragged table", RaggedTable: "a ragged table", Tensor: "a tensor"}
    kinds |= {Tracer: "a traced value", np.ndarray: "an array", jax.Array: "an array"}
    given = next((text for kind, text in kinds.items() if isinstance(value, kind)), None)
    if given is not None:
        raise FieldTypeError(
            f"{what} is {given}",
            given=f"{value!r:.80}",
            expected="one value, known while the graph is built: a number, a string, a tuple, ...",
            fix=otherwise,
        )
    try:
        return static_key(value)
    except TypeError:
        raise FieldTypeError(
            f"{what} cannot be hashed, as it may change, or holds something that may",
            given=f"{value!r:.80}",
            expected="a number, a string, a tuple, a frozen dataclass, ... : what is traced may depend on it",
            fix=_in_place_of(value) or otherwise,
        ) from None


def structure_key(tree: Any) -> Hashable:
    """The common key of two structures of pytrees that nothing could distinguish; `tree` is a `PyTreeDef`.

    A static part of a node beside its children, a static field of an Equinox module, say, is a static value.

    Raises:
        TypeError: a structure that holds a value that may change.
    """
    node = tree.node_data()
    if node is None:
        return None
    kind, held = node
    return kind, static_key(tuple(held) if isinstance(held, list) else held), tuple(map(structure_key, tree.children()))


Settings = tuple[Any, ...]
"""The settings of JAX that what is traced depends on."""

_SETTINGS: dict[str, Callable[[Any], Any]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}
"""What of `jax.config` a jaxpr depends on, and how each is set for a while."""


def trace_settings() -> Settings:
    """The settings of JAX at present that traces depend on."""
    return tuple(getattr(jax.config, name) for name in _SETTINGS)


@contextlib.contextmanager
def restored(settings: Settings) -> Iterator[None]:
    """With JAX's settings as they were."""
    now = trace_settings()
    with contextlib.ExitStack() as stack:
        for setting, before, present in zip(_SETTINGS.values(), settings, now, strict=True):
            if before != present:
                stack.enter_context(setting(before))
        yield
