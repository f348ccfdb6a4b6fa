"""Operations in files: the calls that added a graph's vertices.

Arguments that files have no form for are written as their text; an operation with such an argument has no gradient as a
whole when it is read, so that its vertices are differentiated instead. So has one that is not of `codelet.ops`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from codelet.graphs.operations import Operation
from codelet.graphs.stages import Cut, Stage
from codelet.jaxprs.plain import NotPlainError, Plain, PlainReader, PlainWriter, check_form, listed, text, whole
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.saved.codelet_tables import CodeletReader, CodeletWriter
from codelet.saved.program_forms import ProgramWriter
from codelet.saved.saved_lines import LineReader, LineWriter
from codelet.saved.view_forms import ViewReader, ViewWriter
from codelet.tracing.codelets import Codelet
from codelet.tracing.saved_codelets import UnsavedValue
from codelet.views.tensor import Tensor

MOST_NESTED = 100
"""How deep operations are nested."""


@functools.cache
def _functions() -> Mapping[str, Callable[..., Any]]:
    """The operations of the library that are differentiated as a whole, by name."""
    rules = importlib.import_module("codelet.ops.gradient_rules").RULES
    return {item.__name__: item for item in rules if str(item.__module__).startswith("codelet.ops.")}


_OF_NUMPY = (
    *("abs", "add", "arccos", "arcsin", "arctan", "arctan2", "cos", "cosh", "divide", "exp", "exp2", "expm1", "floor"),
    *("log", "log1p", "maximum", "minimum", "multiply", "negative", "power", "reciprocal", "sign", "sin", "sinh"),
    *("sqrt", "square", "subtract", "tan", "tanh"),
)
_OF_NN = ("elu", "gelu", "leaky_relu", "log_sigmoid", "relu", "relu6", "selu", "sigmoid", "silu", "softplus")


@functools.cache
def _known_values() -> Mapping[str, Any]:
    """Values of the library and of JAX that arguments may be, by the names that files have for them."""
    products = importlib.import_module("codelet.ops.product_planning").CODELETS
    of_numpy = {f"jax.numpy.{name}": getattr(jax.numpy, name) for name in _OF_NUMPY}
    return {"product codelets": products, **of_numpy, **{f"jax.nn.{name}": getattr(jax.nn, name) for name in _OF_NN}}


class _ArgumentWriter(PlainWriter):
    """Writes arguments and results of operations: plain values, and views in pytrees."""

    def __init__(self, views: ViewWriter, codelets: CodeletWriter, programs: ProgramWriter):
        super().__init__()
        self._views, self._codelets, self._programs = views, codelets, programs
        self.is_whole = True

    def array(self, value: Any) -> int:
        raise NotPlainError("an array")

    def other(self, value: Any) -> Plain:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Stream):
            return ["S", *self._programs.side(value)[1:]]
        try:
            return super().other(value)
        except NotPlainError:
            return self.unsaved(value)

    def _tensor(self, value: Tensor) -> Plain:
        try:
            return ["T", self._views.tensor(value)]
        except KeyError:  # a view along symbols that no vertex has
            return self.unsaved(value)

    def unsaved(self, value: Any) -> Plain:
        """The remainder of a value that has no form."""
        self.is_whole = False
        return ["x", UnsavedValue.of(value).text]

    def argument(self, value: Any) -> Plain:
        """An argument, or its remainder."""
        known = next((name for name, item in _known_values().items() if item is value), None)
        if known is not None:
            return ["L", known]
        if isinstance(value, Codelet):
            self.is_whole = False
            return ["x", value.name]
        try:
            return self.value(value)
        except NotPlainError:
            return self.unsaved(value)


class OperationWriter:
    """Writes operations.

    Args:
        views: writes tensors.
        codelets: writes codelets.
        programs: writes streams.
    """

    def __init__(self, views: ViewWriter, codelets: CodeletWriter, programs: ProgramWriter):
        self._views, self._codelets, self._programs = views, codelets, programs
        self._lines: LineWriter = codelets.lines

    def operations(self, operations: Sequence[Operation]) -> Plain:
        """Several operations."""
        return [self._operation(item) for item in operations]

    def _operation(self, operation: Operation) -> Plain:
        writer = _ArgumentWriter(self._views, self._codelets, self._programs)
        arguments = [[name, writer.argument(value)] for name, value in operation.arguments.items()]
        result = writer.argument(operation.result)
        intermediates = [[name, writer.argument(item)] for name, item in operation.intermediates.items()]
        name = next((name for name, item in _functions().items() if item is operation.function), None)
        return {
            "kind": operation.kind,
            "function": name if writer.is_whole else None,
            "arguments": arguments,
            "result": result,
            "intermediates": intermediates,
            "scope": operation.scope,
            "line": self._lines.number(operation.line),
            "compute_sets": [item.number for item in operation.compute_sets],
            "vertices": [[item.number, int(count)] for item, count in operation.num_vertices.items()],
            "stages": [[item.number, [self._stage(each) for each in all_]] for item, all_ in operation.stages.items()],
            "parts": self.operations(operation.parts),
        }

    def _stage(self, stage: Stage) -> Plain:
        cuts = [[item.name, int(item.extent), int(item.block), int(item.grain)] for item in stage.cuts]
        along = [[name, list(axes)] for name, axes in stage.along.items()]
        return [self._codelets.codelet(stage.codelet), cuts, along]


# --- reading ----------------------------------------------------------------------------------------------------


class _ArgumentReader(PlainReader):
    def __init__(self, views: ViewReader, streams: Sequence[Stream]):
        super().__init__(())
        self._views, self._streams = views, streams

    def other(self, tag: str, parts: list[Plain]) -> Any:
        check_form(tag in ("T", "S", "L", "x") and len(parts) == 1, f"the argument {tag!r:.40}")
        if tag == "L":
            check_form(parts[0] in _known_values(), f"the argument {parts[0]!r:.40}")
            return _known_values()[parts[0]]
        if tag == "T":
            return self._views.tensor(parts[0])
        if tag == "S":
            return self._streams[whole(parts[0], 0, len(self._streams) - 1)]
        return UnsavedValue(text(parts[0]))


class OperationReader:
    """Reads operations.

    Args:
        views: reads tensors.
        codelets: reads codelets.
        lines: reads lines.
        compute_sets: those of the graph.
        streams: those of the graph.
    """

    def __init__(
        self,
        views: ViewReader,
        codelets: CodeletReader,
        lines: LineReader,
        compute_sets: Sequence[ComputeSet],
        streams: Sequence[Stream],
    ):
        self._values, self._codelets, self._lines = _ArgumentReader(views, streams), codelets, lines
        self._compute_sets = compute_sets

    def operations(self, plain: Plain, parent: Operation | None = None, depth: int = 0) -> list[Operation]:
        """Several operations."""
        check_form(depth < MOST_NESTED, "operations that are nested too deep")
        return [self._operation(item, parent, depth) for item in listed(plain)]

    def _set(self, number: Plain) -> ComputeSet:
        return self._compute_sets[whole(number, 0, len(self._compute_sets) - 1)]

    def _named(self, plain: Plain) -> dict[str, Any]:
        return {text(listed(pair, 2)[0], 1000): self._values.value(pair[1]) for pair in listed(plain)}

    def _operation(self, plain: Plain, parent: Operation | None, depth: int) -> Operation:
        names = ("kind", "function", "arguments", "result", "intermediates", "scope", "line")
        check_form(type(plain) is dict, "an operation")
        check_form(plain.keys() == {*names, "compute_sets", "vertices", "stages", "parts"}, "an operation")
        function = None if plain["function"] is None else _functions().get(text(plain["function"]))
        line = self._lines.line(plain["line"])
        operation = Operation(function, text(plain["kind"], 1000), text(plain["scope"]), line, parent)
        operation.arguments, operation.result = self._named(plain["arguments"]), self._values.value(plain["result"])
        operation.intermediates = self._named(plain["intermediates"])
        check_form(all(isinstance(item, Tensor) for item in operation.intermediates.values()), "intermediates")
        operation.compute_sets = [self._set(item) for item in listed(plain["compute_sets"])]
        pairs = [listed(item, 2) for item in listed(plain["vertices"])]
        operation.num_vertices = {self._set(number): whole(count) for number, count in pairs}
        check_form({*operation.num_vertices} == {*operation.compute_sets}, "the vertices of an operation")
        stages = [listed(item, 2) for item in listed(plain["stages"])]
        operation.stages = {self._set(number): [self._stage(item) for item in listed(item)] for number, item in stages}
        operation.parts = self.operations(plain["parts"], operation, depth + 1)
        return operation

    def _stage(self, plain: Plain) -> Stage:
        codelet, cuts, along = listed(plain, 3)
        read = []
        for item in listed(cuts):
            name, extent, block, grain = listed(item, 4)
            sizes = whole(extent), whole(block, 1), whole(grain, 1)
            check_form(sizes[2] <= sizes[1] <= max(1, sizes[0]), "how a dimension is cut")
            check_form(sizes[1] % sizes[2] == 0 or sizes[1] >= sizes[0], "how a dimension is cut")
            read.append(Cut(text(name, 1000), *sizes))
        stage = Stage(self._codelets.codelet(codelet), tuple(read), _no_fields)
        pairs = [listed(item, 2) for item in listed(along)]
        stage.__dict__["along"] = {text(name): tuple(map(text, listed(axes))) for name, axes in pairs}
        return stage


def _no_fields(*_: Any) -> dict[str, Any]:
    """The fields of a stage of a file: it has only the axes along which they move."""
    return {}
