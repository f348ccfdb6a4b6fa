"""Connect: a user's arguments for the fields of a vertex, as fields of a family.

In come a codelet, and for each field a tensor, an index expression, a number or an array. Out come the codelet, traced
for them, and the fields, every mistake reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from codelet.errors import FieldTypeError, ForeignGraphError, Line
from codelet.graphs.family import Field, VertexState
from codelet.hostdata import is_of_keys, known_array, lost_number
from codelet.programs.copies import Stream
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.lengths import length_symbols
from codelet.tracing.trace_ragged import trace_ragged
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.conditions import Condition
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.ragged import Ragged
from codelet.views.ragged_tables import RaggedTable
from codelet.views.rows import Rows, together
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, views_padding

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


def _integer() -> np.dtype:
    """The dtype of plain integers."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.int64))


def check_fits(codelet: Codelet, name: str, index: Index, line: Line | None = None) -> None:
    """See that integers given to a field fit the dtype of plain integers.

    Raises:
        FieldTypeError: numbers too large.
    """
    ends, limits = index.bounds(), np.iinfo(_integer())
    if ends is not None and not (limits.min <= ends[0] and ends[1] <= limits.max):
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} is given numbers too large for {_integer()}",
            given=f"{ends[0]} to {ends[1]}",
            expected=f"{limits.min} to {limits.max}",
            fix="smaller numbers, as by `%`; 64 bits need jax.enable_x64",
            line=line,
        )


def _no_tensor(codelet: Codelet, name: str, value: object, what: str) -> FieldTypeError:
    return FieldTypeError(
        f"the {what} field {name!r} of codelet {codelet.name!r} is given something that cannot be written",
        given=f"{value!r:.80}",
        expected="a tensor",
        fix=_in_place_of(value)
        or ("leave it off, and a variable is made for it" if what == "output" else "a variable: graph.add_variable"),
    )


def _in_place_of(value: object) -> str | None:
    """The fix for something that a user may take for a tensor."""
    match value:
        case str():
            return f"a variable by its name is graph.variable({value!r:.40})"
        case Variable():
            return f"all of a variable is graph.variable({value.name!r})"
        case list() | tuple() if value and all(isinstance(part, Tensor) for part in value):
            return "tensors laid end to end are one: cl.concatenate([...]), of parts with that dimension: x.expand(0)"
        case Stream():
            return "copy it to a variable first: cl.Copy(stream, x)"
    if is_of_keys(getattr(value, "dtype", None)):
        return "give jax.random.key_data(key), and in the codelet jax.random.wrap_key_data(data)"
    return None


def check_no_padding(codelet: Codelet, name: str, tensor: Tensor) -> None:
    """See that a view that a field writes holds no padding.

    Raises:
        FieldTypeError: a view of padding.
    """
    if views_padding(tensor):
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} would write padding, which is an element of no variable",
            given=tensor,
            expected="a view of elements of variables alone",
            fix="write to the tensor that was padded, or slice the padding off",
        )


def _check_writable(codelet: Codelet, field: Field) -> None:
    assert field.tensor is not None
    check_no_padding(codelet, field.name, field.tensor)
    for variable in source_variables(field.tensor.source):
        if variable.value is not None:
            raise FieldTypeError(
                f"field {field.name!r} of codelet {codelet.name!r} would write the constant {variable.name!r}",
                given=field.tensor,
                expected="a view of variables",
            )


def own_tensor(graph: Graph, tensor: Tensor, field: str | None = None) -> Tensor:
    """A tensor, once it is known to be of a graph.

    Raises:
        ForeignGraphError: one of another graph.
    """
    if not isinstance(tensor, Tensor):
        raise FieldTypeError(
            "something other than a tensor is used as one",
            given=f"{tensor!r:.80}",
            expected="what graph.add_variable or graph.variable returns, or a view of it",
            fix=_in_place_of(tensor),
        )
    if tensor.graph is not graph:
        what = (
            "a tensor of another graph is used"
            if field is None
            else f"field {field!r} is given a tensor of another graph"
        )
        raise ForeignGraphError(what, given=tensor, expected="tensors of the graph that the method is called on")
    return tensor


class Kinds:
    """The kinds of rows that the ragged fields of a vertex have, each with the symbol that stands for its length."""

    def __init__(self) -> None:
        self.rows: dict[Hashable, Rows] = {}

    def type_of(self, tensor: Tensor) -> FieldType:
        """The type of a field that is given a tensor."""
        shape = list(tensor.shape)
        if tensor.rows is not None:
            if tensor.rows.key not in self.rows and len(self.rows) == len(length_symbols()):
                raise FieldTypeError(
                    "the fields of a vertex have too many lengths that depend on symbols in different ways",
                    given=", ".join(str(rows) for rows in self.rows.values()),
                    expected=f"at most {len(length_symbols())}",
                )
            self.rows.setdefault(tensor.rows.key, tensor.rows)
            shape[tensor.ragged_dimension] = length_symbols()[list(self.rows).index(tensor.rows.key)]
        return FieldType(tuple(shape), tensor.dtype)

    def lengths(self) -> list[Lengths]:
        """The lengths that occur together, each once, the shortest first."""
        symbols = length_symbols()[: len(self.rows)]
        found = together(self.rows.values()).lengths
        return [dict(zip(symbols, some, strict=True)) for some in found.tolist() or [[0] * len(symbols)]]


def _output(graph: Graph, codelet: Codelet, name: str, value: object, kind: FieldType, kinds: Kinds) -> Field:
    if not isinstance(value, Tensor):
        raise _no_tensor(codelet, name, value, "output")
    given = kinds.type_of(value)
    if given.shape != kind.shape or given.dtype != kind.dtype:
        raise FieldTypeError(
            f"what codelet {codelet.name!r} returns does not fit the view given for its field {name!r}",
            given=f"a view {given}",
            expected=str(kind),
        )
    return Field(name, "out", FieldType(kind.shape, kind.dtype), own_tensor(graph, value, name))


def _input(graph: Graph, codelet: Codelet, name: str, value: object, axes: tuple[Axis, ...], kinds: Kinds) -> Field:
    if isinstance(value, Tensor):
        return Field(name, "in", kinds.type_of(value), own_tensor(graph, value, name))
    if isinstance(value, (Ragged, RaggedTable)):
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} is given a ragged table itself",
            given=value,
            expected="a tensor indexed by it, or numbers of the same shape for all vertices",
            fix="make its entries a constant of the graph, and give rows of that",
        )
    if isinstance(value, Index) or type(value) is int:
        index = value if isinstance(value, Index) else Index(value)
        check_fits(codelet, name, index)
        return Field(name, "state", FieldType(index.shape, _integer(), weak=True), state=VertexState(index=index))
    if isinstance(value, Tracer):
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} is given a traced value",
            given=value,
            expected="a tensor, or numbers known while the graph is built",
            fix="make it a variable and pass the value as an input",
        )
    if isinstance(value, Condition):
        truth = value.index.values(axes).astype(bool)
        return Field(name, "state", FieldType(value.shape, truth.dtype), state=VertexState(array=truth))
    return _array_state(codelet, name, value, axes)


def _array_state(codelet: Codelet, name: str, value: object, axes: tuple[Axis, ...]) -> Field:
    """A number, or an array over the grid, as vertex state."""
    try:
        if _in_place_of(value) is not None:
            raise TypeError("no array")
        with np.errstate(over="ignore"):
            values = known_array(value)
    except (TypeError, ValueError):
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} is given something that cannot be a field",
            given=f"{value!r:.80}",
            expected="a tensor, an index expression, a number, or an array over the grid",
            fix=_in_place_of(value),
        ) from None
    if (lost := lost_number(value, values)) is not None:
        raise FieldTypeError(
            f"field {name!r} of codelet {codelet.name!r} is given numbers that its dtype does not hold",
            given=f"{lost}, for {values.dtype.name}",
            expected=f"numbers that {values.dtype.name} holds",
            fix="smaller numbers; 64 bits need jax.enable_x64",
        )
    extents = tuple(axis.extent for axis in axes)
    weak = isinstance(value, (bool, float, complex)) and not isinstance(value, np.generic)
    if values.ndim and values.shape[: len(extents)] != extents:
        raise FieldTypeError(
            f"the array for field {name!r} of codelet {codelet.name!r} does not fit the grid",
            given=f"shape {values.shape}",
            expected=f"shape {extents}, then that of the field",
            fix="an array that is the same for all vertices is a constant of the graph: graph.add_constant",
        )
    shape = values.shape[len(extents) :] if values.ndim else ()
    return Field(name, "state", FieldType(shape, values.dtype, weak), state=VertexState(array=values))


def connect(
    graph: Graph, codelet: Codelet, fields: Mapping[str, Any], axes: tuple[Axis, ...]
) -> tuple[TracedCodelet, list[Field]]:
    """The codelet traced for its connected inputs, and its fields as far as they are given, in its order.

    Args:
        graph: the graph that all tensors must belong to.
        codelet: whose fields they are.
        fields: the value of each, static values among them.
        axes: the grid that arrays of vertex state are over.

    Raises:
        UnknownFieldError, MissingFieldError, FieldTypeError, ForeignGraphError, CodeletTraceError.
    """
    codelet.check_names(fields)
    inputs: dict[str, FieldType] = {}
    connected: dict[str, Field] = {}
    kinds = Kinds()
    for name in codelet.inputs:
        connected[name] = _input(graph, codelet, name, fields[name], axes, kinds)
        inputs[name] = connected[name].type
    static = {name: fields[name] for name in codelet.static if name in fields}
    ragged = bool(kinds.rows)
    traced = trace_ragged(codelet, inputs, static, kinds.lengths()) if ragged else codelet.specialise(inputs, static)
    for name in fields:
        if name not in inputs and name not in codelet.static and name not in traced.outputs:
            raise codelet.unknown_field(name, traced.outputs)
    for name, kind in traced.outputs.items():
        if name in inputs:
            if connected[name].tensor is None:
                raise _no_tensor(codelet, name, fields[name], "in-out")
            connected[name] = Field(name, "inout", connected[name].type, connected[name].tensor)
        elif name in fields:
            connected[name] = _output(graph, codelet, name, fields[name], kind, kinds)
    for field in connected.values():
        if field.is_written and field.tensor is not None:
            _check_writable(codelet, field)
    return traced, list(connected.values())
