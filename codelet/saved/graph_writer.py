"""Graphs in files: variables, families, compute sets, functions, streams and tiles as plain data.

There is no entry for a vertex: a family is written by its grid, its access maps and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.graphs.operations import recorded
from codelet.jaxprs.jaxpr_codec import JaxprWriter
from codelet.jaxprs.plain import Plain, dtype_name
from codelet.programs.copies import Stream
from codelet.programs.program import Program
from codelet.saved.codelet_tables import CodeletWriter
from codelet.saved.operation_forms import OperationWriter
from codelet.saved.program_forms import ProgramWriter
from codelet.saved.saved_lines import LineWriter
from codelet.saved.target_forms import written_target
from codelet.saved.view_forms import ViewWriter, axes_of_index
from codelet.views.grids import Axis
from codelet.views.tensor import Tensor


def _axes_of_tensor(tensor: Tensor) -> Iterable[Axis]:
    yield from axes_of_index(tensor.index)
    if tensor.rows is not None:
        yield from tensor.rows.axes


def _axes_of_family(family: Family) -> Iterable[Axis]:
    yield from family.axes
    yield from (axis for axis, _ in family.inside)
    for field in family.fields:
        if field.tensor is not None:
            yield from _axes_of_tensor(field.tensor)
        elif field.state is not None and field.state.index is not None:
            yield from axes_of_index(field.state.index)
    if family.tile is not None:
        yield from axes_of_index(family.tile)


class GraphWriter:
    """Writes a graph, with programs that run on it.

    Args:
        graph: the graph.
        beside: writes another graph of the same file, whose arrays, lines and codelets it shares.

    Attributes:
        jaxprs: writes values; its `arrays` are those that the parts of the file refer to.
        lines: writes lines.
        codelets: writes codelets.
        views: writes tensors.
        programs: writes programs.
    """

    def __init__(self, graph: Graph, beside: GraphWriter | None = None):
        self.graph = graph
        if beside is None:
            self.jaxprs, self.lines = JaxprWriter(), LineWriter()
            self.codelets = CodeletWriter(self.jaxprs, self.lines)
        else:
            self.jaxprs, self.lines, self.codelets = beside.jaxprs, beside.lines, beside.codelets
        self._families = graph.families
        self._calls = recorded(graph)
        self.views = ViewWriter(self.jaxprs, self._axes())
        self._recordings = self._found_recordings()
        self.programs = ProgramWriter(self.views, self.lines, self._recordings, graph.functions, graph.streams)

    def _axes(self) -> Iterable[Axis]:
        for family in self._families:
            yield from _axes_of_family(family)
        for tensor, tile in self.graph._tiles.mappings:
            yield from _axes_of_tensor(tensor)
            yield from axes_of_index(tile)
        for constraint in self.graph._tiles.constraints:
            yield from constraint.axes
            yield from (axis for tensor in constraint.tensors for axis in _axes_of_tensor(tensor))

    def _found_recordings(self) -> list[Any]:
        result = {id(item.recording): item.recording for item in self.graph.compute_sets if item.recording is not None}
        return [*result.values()]

    def plain(self, more: Callable[[], dict[str, Plain]]) -> dict[str, Plain]:
        """The graph as plain data.

        Args:
            more: makes other parts, which may refer to views and programs, behind those of the graph.
        """
        graph = self.graph
        written = {
            "target": written_target(graph.target),
            "variables": [self._variable(item) for item in graph.sources],
            "streams": [self._stream(item) for item in graph.streams],
            "recordings": [[item.is_aside, [each.number for each in item.compute_sets]] for item in self._recordings],
            "compute_sets": [
                [item.name, self._recording(item.recording), self.lines.number(item.line)]
                for item in graph.compute_sets
            ],
            "families": [self._family(item) for item in self._families],
            "functions": [self._function(item) for item in graph.functions],
            "mappings": [[self.views.tensor(item), self.views.index(tile)] for item, tile in graph._tiles.mappings],
            "constraints": [
                [item.is_together, [self.views.tensor(each) for each in item.tensors], self.views.axes(item.axes)]
                for item in graph._tiles.constraints
            ],
            "copied": [
                [constant.source.number, self.programs.side(where)]  # type: ignore[union-attr]
                for constant, where in graph._variables.copied.values()
            ],
            "operations": OperationWriter(self.views, self.codelets, self.programs).operations(self._calls),
            "names": [[name, self.lines.number(line)] for name, line in graph.lines.items()],
            "scopes": sorted(graph._names._entered),
        }
        written.update(more())
        return {**written, **self.views.plain, "programs": self.programs.plain, "lines": self.lines.plain}

    def _recording(self, recording: Any) -> int | None:
        return next((k for k, item in enumerate(self._recordings) if item is recording), None)

    def _variable(self, variable: Any) -> Plain:
        value = None if variable.value is None else self.jaxprs.array(variable.value)
        shape = [int(n) for n in variable.shape]
        return [variable.name, shape, dtype_name(variable.dtype), value, bool(variable.is_aside)]

    def _stream(self, stream: Stream) -> Plain:
        shape = [int(n) for n in stream.shape]
        return [stream.name, shape, dtype_name(stream.dtype), stream.is_input, int(stream.buffering_depth)]

    def _field(self, field: Field) -> Plain:
        state = field.state
        item: Plain = None
        if field.tensor is not None:
            item = ["view", self.views.tensor(field.tensor)]
        elif state is not None and state.index is not None:
            item = ["index", self.views.index(state.index)]
        elif state is not None and state.array is not None:
            item = ["array", self.jaxprs.array(state.array)]
        return [field.name, field.kind, self.codelets.kind(field.type), item]

    def _family(self, family: Family) -> Plain:
        lines = family.line_of_vertex
        return [
            family.compute_set.number,
            self.codelets.trace(family.codelet, family.lengths),
            self.views.axes(family.axes),
            list(family.axis_names),
            [self._field(item) for item in family.fields],
            None if family.tile is None else self.views.index(family.tile),
            [self.lines.number(item) for item in family.lines],
            None if lines is None else self.jaxprs.array(np.asarray(lines, np.int64)),
            [[*self.views.axes([axis]), name] for axis, name in family.inside],
        ]

    def _function(self, function: Any) -> Plain:
        return [
            function.name,
            self.programs.program(function.body),
            [[name, self.views.tensor(item)] for name, item in function.parameters.items()],
            None if function.derivative is None else self.codelets.trace(function.derivative),
            bool(function.same_values),
        ]

    def program(self, program: Program | None) -> int | None:
        """The number of a program, if there is one."""
        return None if program is None else self.programs.program(program)
