"""Keys of plans: the inputs of a plan, by their contents, the same in every process.

In come the arguments of a planner: a machine, sizes, codelets. Out comes a digest. Code is represented by the sources
of the library, so that a change of a price or of a search makes other keys; a user's function of elements by its
equations. A value without describable contents, as a user's codelet, has no key, and its plans are not kept.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np

from codelet.errors import SavingError
from codelet.jaxprs.saved_jaxprs import saved_jaxpr
from codelet.ops.element_functions import ElementFunction
from codelet.tracing.codelets import Codelet
from codelet.tracing.statics import restored, trace_settings
from codelet.version import VERSION

PACKAGES = ("codelet", "lowering", "ipu_backend")


class NoKeyError(Exception):
    """Something whose contents cannot be described."""


@functools.cache
def sources_digest() -> str:
    """A digest of the sources of the library."""
    root, digest = Path(__file__).parents[2], hashlib.blake2b(digest_size=16)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_librarys(function: FunctionType) -> bool:
    return str(function.__module__).split(".")[0] in PACKAGES


def _function(function: Any) -> Any:
    """A function of the library: its place, and its closure."""
    if isinstance(function, functools.partial):
        return ["partial", described(function.func), described(function.args), described(function.keywords)]
    if not isinstance(function, FunctionType) or not _is_librarys(function):
        raise NoKeyError(f"{function!r:.60}")
    closed = inspect.getclosurevars(function).nonlocals
    defaults = described([function.__defaults__, function.__kwdefaults__])
    place = [function.__module__, function.__qualname__, function.__code__.co_firstlineno]
    return ["function", *place, described(closed), defaults]


@functools.lru_cache(maxsize=4096)
def _element_function(function: ElementFunction) -> Any:
    """A function of elements, by its equations for single ones."""
    with restored(function.settings):
        elements = [jax.ShapeDtypeStruct((), dtype) for dtype in function.dtypes if dtype is not None]
        try:
            closed = jax.make_jaxpr(lambda *passed: jax.tree.leaves(function.on(*passed)))(*elements)
            saved = saved_jaxpr(closed, function.name)
        except SavingError as error:
            raise NoKeyError(str(error)) from None
    arrays = [described(array) for array in saved.arrays]
    return ["elements", function.name, saved.plain, arrays, described(function.settings)]


@functools.lru_cache(maxsize=4096)
def _codelet(codelet: Codelet) -> Any:
    hints = codelet.hints
    rest = [hints.workers, hints.issue, hints.vectorised, described(hints.cycles), described(hints.trip_count)]
    computed = getattr(codelet, "computed", None)
    if computed is not None:
        return ["element codelet", *rest, described(computed)]
    origin, captures = codelet.of_function
    if captures is not None and not captures.is_empty:
        raise NoKeyError(codelet.name)
    return ["codelet", *rest, _function(origin)]


_KNOWN: dict[int, tuple[Any, Any]] = {}
"""Data that do not change, by identity, with what they are described as: `==` does not tell 1 from 1.0."""

_MOST_KNOWN = 256


def _data(value: Any) -> Any:
    """An instance of a dataclass: by its class and its fields."""
    known, plain = _KNOWN.get(id(value), (None, None))
    if known is not value:
        plain = [type(value).__qualname__, *map(described, _fields(value))]
        if value.__dataclass_params__.frozen:
            while len(_KNOWN) >= _MOST_KNOWN:
                del _KNOWN[next(iter(_KNOWN))]
            _KNOWN[id(value)] = value, plain
    return plain


def _fields(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare and field.init]


def described(value: Any) -> Any:
    """A value as plain data, by its contents.

    Raises:
        NoKeyError: a value whose contents cannot be described.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return ["float", value.hex()]
        case np.dtype():
            return ["dtype", str(value)]
        case np.generic() | np.ndarray():
            return ["array", str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
        case enum.Enum():
            return ["enum", str(value)]
        case Codelet():
            return _codelet(value)
        case tuple() | list():
            return [type(value).__name__, *map(described, value)]
        case frozenset() | set():
            return ["set", *sorted((described(item) for item in value), key=json.dumps)]
        case Mapping():
            return ["mapping", *([described(key), described(item)] for key, item in value.items())]
    if isinstance(value, ElementFunction):
        return _element_function(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _data(value)
    if isinstance(value, type):
        return ["type", value.__module__, value.__qualname__]
    return _function(value)


def plan_key(planner: str, arguments: Any) -> str | None:
    """A digest of a planner's arguments, and of all else that its plans depend on; None where something has no key.

    Args:
        planner: its name.
        arguments: its arguments.
    """
    try:
        contents = described(arguments)
    except NoKeyError:
        return None
    versions = [VERSION, sources_digest(), jax.__version__, version("jaxlib"), np.__version__]
    parts = [planner, versions, described(trace_settings()), contents]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
