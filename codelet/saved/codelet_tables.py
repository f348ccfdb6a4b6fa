"""The codelets of a file: each once, with its trace for every combination of types that occurs.

Families, functions and operations refer to traces and codelets by number.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from codelet.errors import CodeletError
from codelet.jaxprs.jaxpr_codec import JaxprReader, JaxprWriter
from codelet.jaxprs.plain import NotPlainError, Plain, check_form, dtype_name, dtype_named, listed, mapped, text, whole
from codelet.jaxprs.saved_jaxprs import refused_codelet
from codelet.saved.saved_lines import LineReader, LineWriter
from codelet.tracing.codelets import Codelet
from codelet.tracing.defined_at import defined_at
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.hints import Issue
from codelet.tracing.lengths import length_symbols
from codelet.tracing.saved_codelets import SavedCodelet, SavedHints, SavedNumbers, SavedTrace, UnsavedValue
from codelet.tracing.statics import Settings, restored, trace_settings
from codelet.tracing.trace_ragged import trace_ragged
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.rows import LENGTH_NAMES

MOST_LENGTHS = 8
"""Up to so many lengths of ragged fields, the equations for each are written beside those for all of them."""

# --- writing ----------------------------------------------------------------------------------------------------


class _ValueWriter(JaxprWriter):
    """Writes static values; those of unknown types as their text."""

    def other(self, value: Any) -> Plain:
        try:
            return super().other(value)
        except NotPlainError:
            return ["x", UnsavedValue.of(value).text]


class CodeletWriter:
    """Writes the codelets of a file.

    Args:
        jaxprs: writes their equations.
        lines: writes where they are defined, an attribute as well.
    """

    def __init__(self, jaxprs: JaxprWriter, lines: LineWriter):
        self._jaxprs, self.lines = jaxprs, lines
        self._values = _ValueWriter()
        self._codelets: dict[Codelet, int] = {}
        self._of_codelet: list[dict[str, Plain]] = []
        self._traces: dict[Any, int] = {}
        self._of_trace: list[Plain] = []

    @property
    def plain(self) -> Plain:
        """All that was written."""
        return {"codelets": self._of_codelet, "traces": self._of_trace}

    def codelet(self, codelet: Codelet) -> int:
        """The number of a codelet."""
        if codelet not in self._codelets:
            hints = codelet.hints
            self._codelets[codelet] = len(self._of_codelet)
            self._of_codelet.append(
                {
                    "name": codelet.name,
                    "inputs": list(codelet.inputs),
                    "static": [
                        [name, [] if default is inspect.Parameter.empty else [self._values.value(default)]]
                        for name, default in codelet.static.items()
                    ],
                    "workers": hints.workers,
                    "issue": hints.issue,
                    "vectorised": hints.vectorised,
                    "trip_count": [] if callable(hints.trip_count) else hints.trip_count,
                    "cycles": [] if hints.cycles is not None else None,
                    "line": self.lines.number(defined_at(codelet)),
                }
            )
        return self._codelets[codelet]

    def kind(self, kind: FieldType) -> Plain:
        """The type of a field."""
        return [[n if isinstance(n, int) else str(n) for n in kind.shape], dtype_name(kind.dtype), kind.weak]

    def trace(self, traced: TracedCodelet, lengths: Sequence[Lengths] = ()) -> int:
        """The number of a traced codelet; of one with ragged fields, for these lengths.

        Raises:
            SavingError: its equations cannot be written.
        """
        few = len(lengths) <= MOST_LENGTHS
        apart = [traced.at(some) for some in lengths if few or tuple(some.values()) in traced.apart]
        for one in apart:
            self._one(one)
        # Where its equations stand for no symbol, they are those of the longest, and each length has a trace.
        number = self._one(traced, has_jaxpr=not traced.is_ragged or traced.answers is not None)
        if traced.codelet.hints.functions:
            for one in [traced.at(some) for some in lengths] if traced.is_ragged else [traced]:
                self._note_numbers(one)
        return number

    def _one(self, traced: TracedCodelet, *, has_jaxpr: bool = True) -> int:
        if traced in self._traces:
            return self._traces[traced]
        codelet = traced.codelet
        try:
            jaxpr = self._jaxprs.jaxpr(traced.jaxpr) if has_jaxpr else None
        except NotPlainError as error:
            line = defined_at(codelet)
            raise refused_codelet(codelet.name, str(error), "" if line is None else f" ({line.place})") from None
        self._traces[traced] = len(self._of_trace)
        self._of_trace.append(
            {
                "codelet": self.codelet(codelet),
                "inputs": [self.kind(kind) for kind in traced.inputs.values()],
                "static": [[name, self._values.value(value)] for name, value in traced.static.items()],
                "outputs": list(traced.outputs),
                "settings": list(traced.settings),
                "jaxpr": jaxpr,
            }
        )
        return self._traces[traced]

    def _note_numbers(self, traced: TracedCodelet) -> None:
        """Write the values of functions among the hints of a codelet for some fields."""
        for name in ("cycles", "trip_count"):
            function: Any = getattr(traced.codelet.hints, name)
            if callable(function):
                fields = {item: kind.struct() for item, kind in traced.inputs.items()}
                kinds = [self.kind(kind) for kind in traced.inputs.values()]
                try:
                    value: Any = function(**fields, **traced.static)
                    number = math.ceil(value)
                except Exception:  # one that fails does so when it is profiled, which nobody may do
                    continue
                said = self._of_codelet[self.codelet(traced.codelet)][name]
                static = [[item, self._values.value(value)] for item, value in traced.static.items()]
                if [kinds, static, number] not in said:
                    said.append([kinds, static, number])


# --- reading ----------------------------------------------------------------------------------------------------

_SETTING_TYPES = ((bool,), (str, type(None)), (str,), (str,), (bool,))


class _ValueReader(JaxprReader):
    """Reads static values."""

    def other(self, tag: str, parts: list[Plain]) -> Any:
        return UnsavedValue(text(parts[0])) if tag == "x" and len(parts) == 1 else super().other(tag, parts)


class CodeletReader:
    """Reads the codelets of a file.

    Args:
        plain: as `CodeletWriter` wrote it.
        arrays: those of the file.
        lines: the lines of the file.
    """

    def __init__(self, plain: Plain, arrays: Sequence[np.ndarray], lines: LineReader):
        parts = mapped(plain, "codelets", "traces")
        self._arrays, self._lines, self._values = arrays, lines, _ValueReader(())
        self._traces = [self._trace(item) for item in listed(parts["traces"])]
        self._of_trace = listed(parts["traces"])
        of_codelet: list[list[SavedTrace]] = [[] for _ in listed(parts["codelets"])]
        for item, trace in zip(self._of_trace, self._traces, strict=True):
            number = whole(item["codelet"], 0, len(of_codelet) - 1)
            if item["jaxpr"] is not None:
                of_codelet[number].append(trace)
        pairs = zip(parts["codelets"], of_codelet, strict=True)
        self.codelets = [self._codelet(item, traces) for item, traces in pairs]
        self._read: dict[Any, TracedCodelet] = {}

    def codelet(self, number: Plain) -> SavedCodelet:
        """A codelet by its number."""
        return self.codelets[whole(number, 0, len(self.codelets) - 1)]

    def kind(self, plain: Plain) -> FieldType:
        """The type of a field."""
        shape, dtype, weak = listed(plain, 3)
        symbols: dict[str, Any] = dict(zip(LENGTH_NAMES, length_symbols(), strict=True))
        sizes = tuple(symbols.get(n) if type(n) is str else whole(n) for n in listed(shape))
        check_form(None not in sizes and type(weak) is bool, "the type of a field")
        return FieldType(sizes, dtype_named(dtype), weak)  # type: ignore[arg-type]

    def _static(self, plain: Plain) -> dict[str, Any]:
        return {text(listed(pair, 2)[0]): self._values.value(pair[1]) for pair in listed(plain)}

    def _settings(self, plain: Plain) -> Settings:
        check_form(len(listed(plain)) == len(trace_settings()), "the settings of a trace")
        fits = [type(item) in kinds for item, kinds in zip(plain, _SETTING_TYPES, strict=True)]
        check_form(all(fits), "the settings of a trace")
        return tuple(plain)

    def _trace(self, plain: Plain) -> SavedTrace:
        mapped(plain, "codelet", "inputs", "static", "outputs", "settings", "jaxpr")
        inputs = tuple(self.kind(item) for item in listed(plain["inputs"]))
        outputs = tuple(text(item, 1000) for item in listed(plain["outputs"]))
        check_form(len(set(outputs)) == len(outputs) > 0, "the outputs of a codelet")
        return SavedTrace(
            inputs, self._static(plain["static"]), outputs, self._settings(plain["settings"]), plain["jaxpr"]
        )

    def _numbers(self, plain: Plain, names: Sequence[str], name: str) -> SavedNumbers:
        numbers = {}
        for entry in listed(plain):
            kinds, static, number = listed(entry, 3)
            fields = {item: self.kind(kind).struct() for item, kind in zip(names, listed(kinds), strict=True)}
            fields.update(self._static(static))
            numbers[SavedNumbers.key(fields)] = whole(number)
        return SavedNumbers(name, numbers)

    def _codelet(self, plain: Plain, traces: Sequence[SavedTrace]) -> SavedCodelet:
        parts = mapped(
            plain, *("name", "inputs", "static", "workers", "issue", "vectorised", "trip_count", "cycles", "line")
        )
        name, inputs = text(parts["name"], 1000), [text(item, 1000) for item in listed(parts["inputs"])]
        static = {}
        for item, default in (listed(pair, 2) for pair in listed(parts["static"])):
            values = [self._values.value(value) for value in listed(default)]
            check_form(len(values) <= 1, "the default of a static value")
            static[text(item, 1000)] = values[0] if values else inspect.Parameter.empty
        check_form(parts["issue"] in (None, *get_args(Issue)) and type(parts["vectorised"]) is bool, "hints")
        turns, cycles = parts["trip_count"], parts["cycles"]
        hints = SavedHints(
            whole(parts["workers"], 1, 1 << 16),
            parts["issue"],
            parts["vectorised"],
            self._numbers(turns, inputs, name) if type(turns) is list else None if turns is None else whole(turns),
            None if cycles is None else self._numbers(cycles, inputs, name),
        )
        check_form("tile" not in inputs and not set(inputs) & static.keys(), "the fields of a codelet")
        return SavedCodelet(name, inputs, static, hints, traces, self._arrays, self._lines.line(parts["line"]))

    def trace(self, number: Plain, lengths: Sequence[Lengths] = ()) -> TracedCodelet:
        """A traced codelet by its number; of one with ragged fields, for these lengths."""
        place = whole(number, 0, len(self._traces) - 1)
        item, codelet = self._traces[place], self.codelet(self._of_trace[place]["codelet"])
        key = place, tuple(tuple(some.values()) for some in lengths) if item.is_ragged else ()
        if key not in self._read:
            inputs: Mapping[str, FieldType] = dict(zip(codelet.inputs, item.inputs, strict=True))
            check_form(item.static.keys() == codelet.static.keys(), "the static values of a trace")
            try:
                with restored(item.settings):
                    if item.is_ragged:
                        built = trace_ragged(codelet, inputs, item.static, lengths)
                    else:
                        built = codelet.specialise(inputs, item.static)
            except CodeletError as error:
                check_form(False, f"the equations of codelet {codelet.name!r:.60}: {str(error).splitlines()[0]:.200}")
                raise
            check_form(tuple(built.outputs) == item.outputs, f"the outputs of codelet {codelet.name!r:.60}")
            self._read[key] = built
        return self._read[key]
