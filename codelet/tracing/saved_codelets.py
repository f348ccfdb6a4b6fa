"""Codelets of files: they run the equations that were traced when their vertices were added.

In come plain data: for each combination of field types and static values that occurred, a jaxpr. Out comes a `Codelet`
that is traced by binding these equations, for the types that are in the file and for no others. Of a codelet with
ragged fields the equations have symbols for lengths, and stand for every length without separate equations.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from codelet.errors import CodeletTraceError, Line, SavingError
from codelet.jaxprs import saved_jaxprs
from codelet.jaxprs.jaxpr_codec import JaxprReader, JaxprWriter
from codelet.jaxprs.plain import NotPlainError, Plain
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.hints import Hints, Issue
from codelet.tracing.statics import Settings, static_key, trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_LONGEST = 200
"""Characters of a text that is left."""


@dataclass(frozen=True)
class UnsavedValue:
    """A static value, or an argument of an operation, of a type that files have no form for: its text is left of it.

    Attributes:
        text: as it was printed.
    """

    text: str

    @classmethod
    def of(cls, value: object) -> UnsavedValue:
        """What is left of a value: its text, without where in memory it lies, which is not the same twice."""
        if isinstance(value, cls):
            return value
        return cls(_ADDRESS.sub("", f"{value!r:.500}")[:_LONGEST])

    def __repr__(self) -> str:
        return self.text


class SavedTrace(NamedTuple):
    """A codelet for one combination of field types and static values, as a file has it.

    Attributes:
        inputs: the types of its fields, in order.
        static: its static values, by name.
        outputs: the names of its results, in order.
        settings: of JAX, when it was traced.
        jaxpr: its equations, as plain data.
    """

    inputs: tuple[FieldType, ...]
    static: Mapping[str, Hashable]
    outputs: tuple[str, ...]
    settings: Settings
    jaxpr: Plain

    @property
    def is_ragged(self) -> bool:
        """Whether it stands for all lengths of some fields."""
        return any(kind.is_ragged for kind in self.inputs)


def _types_key(kinds: Sequence[Any]) -> Hashable:
    return tuple((tuple(kind.shape), np.dtype(kind.dtype)) for kind in kinds)


@dataclass(frozen=True)
class SavedNumbers:
    """The values of a codelet's `cycles=` or `trip_count=` for the fields that occurred.

    Attributes:
        name: the codelet's.
        numbers: by the names, shapes and dtypes of fields.
    """

    name: str
    numbers: Mapping[Hashable, int] = field(hash=False)

    @staticmethod
    def key(fields: Mapping[str, Any]) -> Hashable:
        """The key that distinguishes fields."""
        return tuple((name, _types_key([item])) for name, item in fields.items() if hasattr(item, "dtype"))

    def __call__(self, **fields: Any) -> int:
        """The number.

        Raises:
            CodeletTraceError: the file has none for these fields.
        """
        key = self.key(fields)
        if key not in self.numbers:
            raise CodeletTraceError(
                f"codelet {self.name!r} was read from a file that has no cycles for these fields",
                given=", ".join(map(str, fields)),
                expected=f"one of {len(self.numbers)} combinations of types, for which it was saved",
            )
        return self.numbers[key]


class SavedHints(NamedTuple):
    """The hints of a codelet as a file has them; functions as their values."""

    workers: int = 1
    issue: Issue | None = None
    vectorised: bool = False
    trip_count: SavedNumbers | int | None = None
    cycles: SavedNumbers | None = None


class SavedCodelet(Codelet):
    """A codelet that was read from a file. Calling it runs its equations.

    Attributes:
        traces: its traces in the file.
        line: where the codelet was defined that was saved, if that is known.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        static: Mapping[str, Any],
        hints: SavedHints,
        traces: Sequence[SavedTrace],
        arrays: Sequence[np.ndarray],
        line: Line | None = None,
    ):
        kinds = [(item, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty) for item in inputs]
        kinds += [(item, inspect.Parameter.KEYWORD_ONLY, default) for item, default in static.items()]
        parameters = [inspect.Parameter(item, kind, default=default) for item, kind, default in kinds]
        signature = inspect.Signature(parameters)
        own_inputs = tuple(inputs)

        def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return self._run([bound.arguments[item] for item in own_inputs], bound.kwargs)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = name
        self.traces, self.line, self._arrays, self._saved_hints = tuple(traces), line, arrays, hints
        super().__init__(run, Hints(hints.cycles, hints.workers, hints.issue, hints.vectorised, hints.trip_count))
        self._by_types: dict[Hashable, list[SavedTrace]] = {}
        for trace in self.traces:
            if not trace.is_ragged:
                self._by_types.setdefault(_types_key(trace.inputs), []).append(trace)

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        return ()

    def _run(self, fields: Sequence[Any], static: Mapping[str, Any]) -> dict[str, Any]:
        kinds = [jax.typeof(item) for item in fields]
        trace, lengths = self._fitting(kinds, static)
        reader = JaxprReader(self._arrays, lengths)
        operands = [
            jax.lax.convert_element_type(item, kind.dtype) if is_plain else item
            for item, kind, is_plain in zip(fields, trace.inputs, map(_is_plain_number, fields), strict=True)
        ]
        return dict(zip(trace.outputs, reader.run(trace.jaxpr, operands), strict=True))

    def _fitting(self, kinds: Sequence[Any], static: Mapping[str, Any]) -> tuple[SavedTrace, Mapping[str, Any]]:
        """The trace for fields of some types, and the values of the symbols in it.

        Raises:
            CodeletTraceError: the file has none.
        """
        key, settings = {name: static_key(item) for name, item in static.items()}, trace_settings()
        same = lambda item: {name: static_key(part) for name, part in item.static.items()} == key  # noqa: E731
        exact = [item for item in self._by_types.get(_types_key(kinds), ()) if same(item)]
        weak = [bool(getattr(kind, "weak_type", False)) for kind in kinds]
        exact.sort(key=lambda item: (item.settings != settings, [kind.weak for kind in item.inputs] != weak))
        if exact:
            return exact[0], {}
        for trace in self.traces:
            lengths = _lengths(trace.inputs, kinds) if trace.is_ragged and same(trace) else None
            if lengths is not None:
                return trace, lengths
        raise CodeletTraceError(
            f"codelet {self.name!r} was read from a file that has no equations for these fields",
            given=", ".join(f"{name}: {kind.dtype}{list(kind.shape)}" for name, kind in zip(self.inputs, kinds)),  # noqa: B905
            expected=f"one of the {len(self.traces)} combinations of types and static values that it was saved with",
            fix="a graph that has vertices of these types when it is saved",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.name, self.inputs, self.static, self._saved_hints, self.traces, self._arrays, self.line)
        return SavedCodelet, parts


def _numbers(codelet: Codelet, hint: str, traces: Sequence[TracedCodelet]) -> Any:
    """The value of a hint for each trace, where it is a function; else the hint."""
    function: Any = getattr(codelet.hints, hint)
    if not callable(function):
        return function
    numbers = {}
    for traced in traces:
        fields = {**{name: kind.struct() for name, kind in traced.inputs.items()}, **traced.static}
        with contextlib.suppress(Exception):  # one that fails does so where it is profiled
            value: Any = function(**fields)
            numbers[SavedNumbers.key(fields)] = math.ceil(value)
    return SavedNumbers(codelet.name, numbers)


_TWINS: weakref.WeakKeyDictionary[Codelet, tuple[int, SavedCodelet]] = weakref.WeakKeyDictionary()
"""Codelets by those that they stand for in pickles, each with how many traces it has."""


def twin_of(codelet: Codelet) -> SavedCodelet:
    """A codelet of the equations that another was traced to, which stands for it where it has no name.

    Raises:
        SavingError: equations that cannot be written.
    """
    traces = [traced for traced in codelet._traced.values() if not traced.is_ragged]
    if len(traces) < len(codelet._traced):
        raise SavingError(
            f"codelet {codelet.name!r} cannot be pickled: it has ragged fields, and no name to import",
            given=f"{len(codelet._traced) - len(traces)} traces for lengths of every kind",
            expected="a function at the top of a module",
            fix="define it there, with `def`; or cl.save, which writes the equations of its vertices",
        )
    before = _TWINS.get(codelet)
    if before is not None and before[0] == len(traces):
        return before[1]
    writer = JaxprWriter()
    try:
        saved = [
            SavedTrace(tuple(t.inputs.values()), t.static, tuple(t.outputs), t.settings, writer.jaxpr(t.jaxpr))
            for t in traces
        ]
    except NotPlainError as error:
        raise saved_jaxprs.refused_codelet(codelet.name, str(error)) from None
    hints = codelet.hints
    turns, cycles = (_numbers(codelet, name, traces) for name in ("trip_count", "cycles"))
    said = SavedHints(hints.workers, hints.issue, hints.vectorised, turns, cycles)
    twin = SavedCodelet(codelet.name, codelet.inputs, codelet.static, said, saved, tuple(writer.arrays))
    _TWINS[codelet] = len(traces), twin
    return twin


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _lengths(expected: Sequence[FieldType], kinds: Sequence[Any]) -> Mapping[str, Any] | None:
    """The values of symbols in types, given fields of other types; None where these do not fit."""
    result: dict[str, Any] = {}
    for item, kind in zip(expected, kinds, strict=True):
        if len(item.shape) != len(kind.shape) or item.dtype != kind.dtype:
            return None
        for size, passed in zip(item.shape, kind.shape, strict=True):
            if isinstance(size, int):
                if size is not passed and size != passed:
                    return None
            elif result.setdefault(str(size), passed) is not passed and result[str(size)] != passed:
                return None
    return result
