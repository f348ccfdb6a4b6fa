"""Graphs of files: plain data as a graph again, by the classes that users' calls make.

Every number of the file is within its bounds before it is used: elements are those of variables that are there, types
of fields are those of their codelets. Races between vertices are found where the graph is lowered, as of any graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from codelet.graphs.declared import checked_shape
from codelet.graphs.family import Family, Field, FieldKind, VertexState
from codelet.graphs.graph import Graph
from codelet.graphs.tiles import Constraint, TileMapping
from codelet.jaxprs.jaxpr_codec import JaxprReader
from codelet.jaxprs.plain import Plain, check_form, dtype_named, listed, text, whole
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.programs.functions import Function
from codelet.programs.program import Program, Recording
from codelet.saved.codelet_tables import CodeletReader
from codelet.saved.operation_forms import OperationReader
from codelet.saved.program_forms import ProgramReader
from codelet.saved.saved_lines import LineReader
from codelet.saved.target_forms import read_target
from codelet.saved.view_forms import ViewReader
from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis
from codelet.views.rows import Rows, together
from codelet.views.sources import source_variables
from codelet.views.tensor import Tensor, views_padding, whole_view

NAMES = (
    *("target", "variables", "streams", "recordings", "compute_sets", "families", "functions", "mappings", "copied"),
    *("constraints", "operations", "names", "scopes", "grids", "axes", "rows", "patchworks", "programs", "lines"),
)
"""The parts of a graph in a file."""


class GraphReader:
    """Reads a graph, and programs that run on it.

    Args:
        plain: as `GraphWriter.plain` wrote it.
        codelets: as its codelets were written.
        arrays: those of the file.
        beside: reads another graph of the file, whose lines and codelets it shares.

    Attributes:
        graph: the graph.
        views: reads tensors.
        programs: reads programs.
        values: reads values.
    """

    def __init__(self, plain: Plain, codelets: Plain, arrays: Sequence[np.ndarray], beside: GraphReader | None = None):
        shared = {"lines"} if beside is not None else set()
        check_form(type(plain) is dict and {*NAMES} <= {*plain, *shared}, "the parts of a graph")
        self.values = JaxprReader(arrays)
        self._lines = LineReader(plain["lines"]) if beside is None else beside._lines
        self.graph = graph = Graph(read_target(plain["target"]))
        for item in listed(plain["variables"]):
            self._add_variable(item)
        self.views = ViewReader(plain, self.values, graph, graph.sources)
        self._codelets = CodeletReader(codelets, arrays, self._lines) if beside is None else beside._codelets
        self._add_streams(listed(plain["streams"]))
        recordings = self._add_compute_sets(listed(plain["compute_sets"]), listed(plain["recordings"]))
        self._compute_sets = graph.compute_sets
        self.programs = ProgramReader(
            plain["programs"], self.views, self._lines, self._compute_sets, recordings, graph.streams
        )
        for item in listed(plain["families"]):
            graph._vertices.entries.append(self._family(item))
        for item in listed(plain["functions"]):
            self._add_function(item)
        self._add_tiles(listed(plain["mappings"]), listed(plain["copied"]))
        for item in listed(plain["constraints"]):
            self._add_constraint(item)
        operations = OperationReader(self.views, self._codelets, self._lines, self._compute_sets, graph.streams)
        graph._operations.outermost.extend(operations.operations(plain["operations"]))
        self._add_names(listed(plain["names"]), listed(plain["scopes"]))

    # --- variables, streams, compute sets ---------------------------------------------------------------

    def _shape(self, plain: Plain) -> tuple[int, ...]:
        return checked_shape(tuple(whole(n) for n in listed(plain)), "a variable of a file")

    def _add_variable(self, plain: Plain) -> None:
        name, shape, dtype, value, aside = listed(plain, 5)
        item, sizes, array = dtype_named(dtype), self._shape(shape), None
        check_form(isinstance(item, np.dtype) and item.itemsize and type(aside) is bool, "the type of a variable")
        check_form(text(name) and name not in self.graph._variables.by_name, f"the name {name!r:.60} of a variable")
        if value is not None:
            array = self.values.array(value)
            check_form(array.shape == sizes and array.dtype == item, f"the value of the constant {name!r:.60}")
        self.graph._variables.add(self.graph, name, sizes, item, array, is_aside=aside)
        check_form(self.graph._variables.num_elements < 1 << 62, "the number of elements")

    def _add_streams(self, plain: list[Plain]) -> None:
        for item in plain:
            name, shape, dtype, is_input, depth = listed(item, 5)
            kind = dtype_named(dtype)
            check_form(isinstance(kind, np.dtype) and type(is_input) is bool and text(name), "a stream")
            check_form(name not in self.graph._streams, f"the name {name!r:.60} of a stream")
            stream = Stream(self.graph, name, self._shape(shape), kind, is_input, whole(depth, 1))
            self.graph._streams[name] = stream

    def _add_compute_sets(self, plain: list[Plain], recordings: list[Plain]) -> list[Recording]:
        built = []
        for item in recordings:
            check_form(type(listed(item, 2)[0]) is bool, "a recording")
            built.append(Recording(item[0]))
        for number, item in enumerate(plain):
            name, recording, line = listed(item, 3)
            check_form(text(name) and name not in self.graph._compute_sets, f"the name {name!r:.60} of a compute set")
            inside = None if recording is None else built[whole(recording, 0, len(built) - 1)]
            compute_set = ComputeSet(self.graph, name, number, self._lines.line(line), inside)
            self.graph._compute_sets[name] = compute_set
        every = self.graph.compute_sets
        for item, recording in zip(recordings, built, strict=True):
            recording.compute_sets.extend(every[whole(k, 0, len(every) - 1)] for k in listed(item[1]))
        return built

    def _add_function(self, plain: Plain) -> None:
        name, body, parameters, derivative, same = listed(plain, 5)
        pairs = [listed(item, 2) for item in listed(parameters)]
        views = {text(key, 1000): self.views.tensor(item) for key, item in pairs}
        check_form(len(views) == len(pairs) and type(same) is bool and text(name), "the parameters of a function")
        whole_ones = [item.is_whole_variable and item.source.value is None for item in views.values()]  # type: ignore[union-attr]
        check_form(all(whole_ones), "a parameter of a function")
        traced = None if derivative is None else self._codelets.trace(derivative)
        if traced is not None:
            kinds = {key: (item.shape, item.dtype) for key, item in views.items()}
            fields = [*traced.inputs.items(), *traced.outputs.items()]
            check_form(all(kinds.get(key) == tuple(kind)[:2] for key, kind in fields), "the derivative of a function")
        named = {key: whole_view(item.source) for key, item in views.items()}
        function = Function(self.graph, name, self.programs.program(body), named, traced, same)
        self.graph._functions.append(function)
        self.programs.functions.append(function)

    def _add_tiles(self, mappings: list[Plain], copied: list[Plain]) -> None:
        graph = self.graph
        for item in mappings:
            tensor, tile = self.views.tensor(listed(item, 2)[0]), self.views.index(item[1])
            check_form(tile.shape == tensor.shape and not views_padding(tensor), "a mapping to tiles")
            self.views.check_within(tile, graph.target.num_tiles, "a tile")
            graph._tiles.mappings.append(TileMapping(tensor, tile))
        graph._tiles.num_tiles = graph.target.num_tiles
        for item in copied:
            number, where = listed(item, 2)
            constant, value = self.views.variable(number), self.views.variable(number).value
            check_form(value is not None, "a constant that is copied")
            key = (value.dtype.name, value.shape, value.tobytes())  # type: ignore[union-attr]
            graph._variables.copied[key] = whole_view(constant), self.programs.side(where)

    def _add_constraint(self, plain: Plain) -> None:
        is_together, views, axes = listed(plain, 3)
        tensors, over = tuple(map(self.views.tensor, listed(views))), tuple(self.views.axes(axes))
        check_form(type(is_together) is bool and len(tensors) > 0, "a constraint of the placement")
        fits = is_together or len(tensors) <= self.graph.target.num_tiles
        check_form(fits and len({*over}) == len(over), "a constraint of the placement")
        for tensor in tensors:
            within = {*tensor.axes} <= {*over} and tensor.rows is None and not views_padding(tensor)
            check_form(within, "a view of a constraint")
        self.graph._tiles.constraints.append(Constraint(is_together, tensors, over))

    def _add_names(self, names: list[Plain], scopes: list[Plain]) -> None:
        pairs = [listed(item, 2) for item in names]
        self.graph._names.lines.update({text(name): self._lines.line(line) for name, line in pairs})
        self.graph._names._entered.update(map(text, scopes))
        graph = self.graph
        every = [
            *graph._variables.by_name,
            *graph._streams,
            *graph._compute_sets,
            *(item.name for item in graph.functions),
        ]
        check_form(len(set(every)) == len(every) and {*every} <= graph._names.lines.keys(), "the names of a graph")

    # --- families ---------------------------------------------------------------------------------------

    def _family(self, plain: Plain) -> Family:
        number, trace, axes, names, fields, tile, lines, line_of_vertex, inside = listed(plain, 9)
        over = self.views.axes(axes)
        check_form(len(listed(names, len(over))) == len(over), "the names of axes")
        read = [self._field(item, over) for item in listed(fields)]
        lengths = _lengths_of(read)
        traced = self._codelets.trace(trace, lengths)
        check_form(tuple(item.name for item in read) == traced.field_names, "the fields of a family")
        for field in read:
            self._check_field(field, traced)
        added = [self._lines.line(item) for item in listed(lines)]
        check_form(added and None not in added, "the lines of a family")
        compute_set = self._compute_sets[whole(number, 0, len(self._compute_sets) - 1)]
        pairs = [listed(item, 2) for item in listed(inside)]
        family = Family(
            compute_set,
            traced,
            over,
            tuple(text(name, 1000) for name in names),
            tuple(read),
            None if tile is None else self._tile(tile, over),
            tuple(added),  # type: ignore[arg-type]
            None if line_of_vertex is None else self._line_numbers(line_of_vertex, over, len(added)),
            tuple((self.views.axis(axis), text(name, 1000)) for axis, name in pairs),
        )
        check_form(0 < family.num_vertices < 1 << 62, "the number of vertices")
        return family

    def _field(self, plain: Plain, over: Sequence[Axis]) -> Field:
        name, kind, type_, item = listed(plain, 4)
        form, value = listed(item, 2)
        check_form(kind in get_args(FieldKind), f"the kind of field {kind!r:.40}")
        field_type, tensor, state = self._codelets.kind(type_), None, None
        if form == "view":
            tensor = self.views.tensor(value)
            check_form({*tensor.axes} <= {*over}, "the symbols of a field")
        elif form == "index":
            index = self.views.index(value)
            check_form({*index.axes} <= {*over} and index.shape == field_type.shape, "vertex state")
            ends, holding = self.views.bounds(index), field_type.dtype
            if holding.kind in "iu" and ends is not None:
                info = np.iinfo(holding)
                check_form(int(info.min) <= ends[0] and ends[1] <= int(info.max), "vertex state that does not fit")
            state = VertexState(index=index)
        else:
            check_form(form == "array", f"the field {form!r:.40}")
            array, extents = self.values.array(value), tuple(axis.extent for axis in over)
            shapes = (field_type.shape, (*extents, *field_type.shape))
            check_form(array.shape in shapes and array.dtype == field_type.dtype, "vertex state")
            state = VertexState(array=array)
        check_form((state is None) == (kind != "state"), "the kind of a field")
        return Field(text(name, 1000), kind, field_type, tensor, state)

    def _check_field(self, field: Field, traced: TracedCodelet) -> None:
        """Check that a field's tensor has the type that the codelet has for it."""
        is_in, is_out = field.name in traced.inputs, field.name in traced.outputs
        kinds: Mapping[tuple[bool, bool], Any] = {
            (True, True): ("inout",),
            (True, False): ("in", "state"),
            (False, True): ("out",),
        }
        check_form(field.kind in kinds[is_in, is_out], f"the kind of field {field.name!r:.60}")
        expected = (traced.inputs if is_in else traced.outputs)[field.name]
        check_form(field.type[:2] == expected[:2], f"the type of field {field.name!r:.60}")
        tensor = field.tensor
        if tensor is None:
            return
        shape: list[Any] = list(field.type.shape)
        if tensor.rows is not None:
            check_form(field.type.is_ragged, f"the rows of field {field.name!r:.60}")
            shape[tensor.ragged_dimension] = tensor.rows.total
        check_form(tuple(shape) == tensor.index.shape, f"the shape of field {field.name!r:.60}")
        check_form(tensor.source.dtype == field.type.dtype, f"the dtype of field {field.name!r:.60}")
        if field.is_written:
            constants = [item for item in source_variables(tensor.source) if item.value is not None]
            check_form(not constants and not views_padding(tensor), f"what field {field.name!r:.60} writes")

    def _tile(self, plain: Plain, over: Sequence[Axis]) -> Any:
        tile = self.views.index(plain)
        check_form(not tile.shape and {*tile.axes} <= {*over}, "the tiles of a family")
        self.views.check_within(tile, self.graph.target.num_tiles, "a tile")
        return tile

    def _line_numbers(self, number: Plain, over: Sequence[Axis], count: int) -> np.ndarray:
        array = self.values.array(number)
        check_form(array.dtype == np.int64 and array.ndim == 1, "the lines of vertices")
        check_form(len(array) == math.prod(axis.extent for axis in over), "the lines of vertices")
        check_form(not len(array) or (int(array.min()) >= 0 and int(array.max()) < count), "the lines of vertices")
        return array

    def program(self, number: Plain) -> Program:
        """A program by its number."""
        return self.programs.program(number)

    def tensor(self, plain: Plain) -> Tensor:
        """A view."""
        return self.views.tensor(plain)


def _lengths_of(fields: Sequence[Field]) -> list[dict[Any, int]]:
    """The lengths of ragged fields that occur together."""
    rows: dict[Any, Rows] = {}
    for field in fields:
        if field.tensor is not None and field.tensor.rows is not None:
            check_form(field.type.is_ragged, "the rows of a field")
            rows[_symbol(field.type, field.tensor.ragged_dimension)] = field.tensor.rows
    if not rows:
        return []
    return [dict(zip(rows, some, strict=True)) for some in together(rows.values()).lengths.tolist()]


def _symbol(kind: FieldType, dimension: int) -> Any:
    symbol = kind.shape[dimension]
    check_form(not isinstance(symbol, int), "the ragged dimension of a field")
    return symbol
