"""Vertices as they are added: to columns of those like them, or a family at once.

The last vertices of each instruction of the user's are kept as a `Site`, by which `Graph.add_vertex` adds others like
them by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import (
    FieldTypeError,
    ForeignGraphError,
    Line,
    MissingFieldError,
    ProgramError,
    TileError,
    adding_line,
)
from codelet.graphs.connect import check_fits, check_no_padding, connect
from codelet.graphs.family import Columns, Family, Field
from codelet.graphs.names import Names
from codelet.graphs.recordings import Recordings
from codelet.graphs.tiles import Tiles, tile_index
from codelet.graphs.variants import Variants
from codelet.programs.compute_sets import ComputeSet
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import restored, static_key, trace_settings
from codelet.views.conditions import Condition
from codelet.views.grids import Axis, whole_grids
from codelet.views.index import Index
from codelet.views.sources import Patchwork
from codelet.views.symbols import symbol_names
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph

MOST_LISTED = 1 << 12
"""Elements of several places of one array that one vertex of many reads: the places are listed in a table."""


def _over(value: Any, axes: tuple[Axis, ...]) -> Any:
    """The value of a field as a family over `axes` stores it: over these alone, without idle symbols."""
    if isinstance(value, Index):
        return value.over(axes).without_idle_symbols()
    return value.over(axes) if isinstance(value, (Tensor, Condition)) else value


def _has_dtype(kind: type) -> bool:
    """Whether values of a type are numbers or arrays of NumPy's, or Python numbers other than whole ones."""
    return kind in (float, bool, complex) or issubclass(kind, (np.generic, np.ndarray))


def not_a_vertex(compute_set: object, codelet: object, unnamed: tuple[object, ...]) -> FieldTypeError:
    """The mistake in the positional arguments of `add_vertex`."""
    if isinstance(compute_set, Codelet) and not isinstance(codelet, Codelet):
        return FieldTypeError(
            "a vertex is given its codelet before its compute set",
            given=f"add_vertex({compute_set.name}, {codelet!r:.40}, ...)",
            expected="add_vertex(compute_set, codelet, field=..., ...)",
        )
    if not isinstance(codelet, Codelet):
        return FieldTypeError(
            "a vertex needs a codelet",
            given=f"{codelet!r:.80}",
            expected="a function decorated with @cl.codelet",
            fix="decorate it, or write cl.codelet(...) around it" if callable(codelet) else None,
        )
    names = [*codelet.inputs[: len(unnamed)], *["..."] * (len(unnamed) - len(codelet.inputs))]
    return FieldTypeError(
        f"the fields of codelet {codelet.name!r} are given by place",
        given=f"{len(unnamed)} after the codelet: {unnamed[0]!r:.60}, ..."[: None if unnamed[1:] else -5],
        expected="each field by its name",
        fix=f"add_vertex(compute_set, {codelet.name}, {', '.join(f'{name}=...' for name in names)})",
    )


WHOLE_NUMBER = object()
"""What a `Site` expects where a field is given another integer each time."""

Site = tuple[CodeType, ComputeSet, Codelet, tuple[object, ...], tuple[object, ...], Columns, int, bool]
"""What an instruction of the user's, the call of `add_vertex` in a loop, say, did last.

The code that it is in; the compute set; the codelet; the names of the fields; for each field the layout of its tensor,
its static value or `WHOLE_NUMBER`; the columns it added to; the number of the line; and whether x64 was on.
Known weakness: other settings of JAX, which one instruction hardly ever meets both ways, are not looked at again.
"""


def listed(tensor: Tensor) -> Tensor:
    """Parts of one array laid end to end as a view of that array, where they are few; other tensors as they are.

    Vertices that have a join each, of whatever parts, are then of one kind, as those are that have an array of places.
    """
    source = tensor.source
    variables = {patch.variable for patch in source.patches} if isinstance(source, Patchwork) else set()
    if len(variables) != 1 or tensor.axes or tensor.rows is not None or not 0 < tensor.size <= MOST_LISTED:
        return tensor
    (variable,) = variables
    if variable is None:
        return tensor
    places = tensor.elements() - variable.first_element
    return Tensor(variable, Index.from_values(places, tuple(range(places.ndim)), places.shape))


def _joins(fields: Mapping[str, Any]) -> dict[str, Tensor]:
    """Those of the fields of a vertex that join parts of an array, as views of that array."""
    joined = {
        name: value for name, value in fields.items() if type(value) is Tensor and type(value.source) is Patchwork
    }
    return {name: view for name, value in joined.items() if (view := listed(value)) is not value}


class VertexColumns:
    """The vertices of a graph: families, and columns of those that are added one at a time.

    Attributes:
        entries: families and columns, in the order in which their first vertices were added.
        sites: the last vertices of each instruction of the user's, by its place in its code; of two such places the
            last.
    """

    def __init__(
        self, graph: Graph, compute_sets: dict[str, ComputeSet], names: Names, recordings: Recordings, tiles: Tiles
    ):
        self._graph = graph
        self._compute_sets = compute_sets
        self._names = names
        self._recordings = recordings
        self._tiles = tiles
        self.entries: list[Family | Columns] = []
        self.sites: dict[int, Site] = {}
        self._columns: dict[tuple[object, ...], Columns] = {}
        # By the identity of code, since equal code may be of different files; a line keeps its code alive.
        self._lines: list[Line] = []
        self._line_numbers: dict[tuple[int, int], int] = {}
        self._variants = Variants()

    def __getstate__(self) -> dict[str, Any]:
        """Lines of code are the user's, not the graph's."""
        return {**self.__dict__, "sites": {}, "_line_numbers": {}}

    @property
    def num_vertices(self) -> int:
        """The exact number of vertices."""
        return sum(entry.num_vertices for entry in self.entries)

    def families(self) -> tuple[Family, ...]:
        """All vertices, as families, in the order in which their first vertices were added."""
        entries = [entry for entry in self.entries if entry.num_vertices]
        return tuple(self._gathered(entry) if isinstance(entry, Columns) else entry for entry in entries)

    def _gathered(self, columns: Columns) -> Family:
        """The family of vertices added one at a time, once the numbers in their columns are known to fit."""
        family = columns.family(self._lines)
        for field in family.fields:
            if field.state is not None and field.state.index is not None:
                with restored(family.codelet.settings):
                    check_fits(family.codelet.codelet, field.name, field.state.index, family.lines[0])
        return family

    def _number_line(self, frame: FrameType) -> int:
        """The number of the line that a frame is at."""
        line = adding_line(frame)
        number = self._line_numbers.setdefault((id(line.code), line.number), len(self._lines))
        if number == len(self._lines):
            self._lines.append(line)
        return number

    def _new_columns(
        self, key: tuple[object, ...], fields: Mapping[str, Any], frame: FrameType, joins: dict[str, Tensor]
    ) -> Columns | None:
        """Columns for vertices of a new kind; None when an output is left off, so that one must be made."""
        compute_set, codelet = key[0], key[1]
        assert isinstance(compute_set, ComputeSet)
        assert isinstance(codelet, Codelet)
        traced, connected = connect(self._graph, codelet, fields, ())
        self._variants.note(compute_set, traced, frame)
        if any(name not in fields for name in traced.outputs):
            return None
        by_name = {field.name: field for field in connected}
        has_tile = not key[2]
        columns = Columns(compute_set, traced, [by_name[name] for name in fields if name in by_name], has_tile, joins)
        self._columns[key] = columns
        self.entries.append(columns)
        return columns

    def _compute_set(self, given: object) -> ComputeSet:
        """A compute set from itself or its name; a new name makes one."""
        found = given
        if isinstance(given, str):
            found = self._compute_sets.get(self._names.full(given))
            if found is None:
                return self._graph.add_compute_set(given)
        if not isinstance(found, ComputeSet):
            raise FieldTypeError(
                "a vertex is added to something else than a compute set",
                given=f"{given!r:.80}",
                expected="a compute set, or a name for one",
            )
        if found.graph is not self._graph:
            raise ForeignGraphError(
                "a vertex is added to a compute set of another graph",
                given=found,
                expected="one of this graph: graph.add_compute_set, or a name",
            )
        if not self._recordings.is_open(found):
            raise ProgramError(
                f"a vertex is recorded into compute set {found.name!r}, which was made outside the recording",
                expected="compute sets that are made inside `with graph.record()`",
                fix="use another name, or `with graph.scope(...)` inside the recording",
            )
        return found

    def _add_family(
        self,
        compute_set: ComputeSet,
        codelet: Codelet,
        tile: object,
        fields: Mapping[str, Any],
        frame: FrameType,
    ) -> Any:
        place = tile_index(tile) if tile is not None else None
        # A symbol brings its whole grid: an axis that no field uses still multiplies the vertices.
        varying = [value for value in (*fields.values(), place) if isinstance(value, (Tensor, Index, Condition))]
        axes = whole_grids(axis for value in varying for axis in value.axes)
        fields = {name: _over(value, axes) for name, value in fields.items()}
        place = _over(place, axes)
        traced, connected = connect(self._graph, codelet, fields, axes)
        self._variants.note(compute_set, traced, frame)
        extents = tuple(axis.extent for axis in axes)
        if place is not None:
            if place.shape:
                if place.shape != extents:
                    raise TileError(
                        "an array of tiles does not fit the grid",
                        given=f"shape {place.shape}",
                        expected=f"shape {extents}",
                    )
                place = place.bound(axes)
            if (ends := place.bounds()) is not None:
                self._tiles.check(*ends)
        made = {}
        for name, kind in traced.outputs.items():
            if name not in fields:
                if kind.is_ragged:
                    raise MissingFieldError(
                        f"codelet {codelet.name!r} was given nothing for {name!r}, whose length depends on the vertex",
                        given=str(kind),
                        expected="a ragged view of a variable to write to",
                    )
                label = compute_set.name.removeprefix(self._names.full("")) + "/" + name
                variable = self._graph.add_variable(self._names.free(label), (*extents, *kind.shape), kind.dtype)
                made[name] = variable
                tensor = Tensor(variable.source, variable.index.bound(axes))
                connected.append(Field(name, "out", FieldType(kind.shape, kind.dtype), tensor))
        by_name = {field.name: field for field in connected}
        names = symbol_names(axes, frame.f_locals)
        family = Family(
            compute_set,
            traced,
            axes,
            names.of_axes,
            tuple(by_name[name] for name in traced.field_names),
            place,
            (adding_line(frame),),
            inside=names.of_symbols,
        )
        if family.num_vertices:
            self.entries.append(family)
        return None if not made else next(iter(made.values())) if len(made) == 1 else made

    def add(
        self,
        compute_set: ComputeSet | str,
        codelet: Codelet,
        tile: object,
        fields: Mapping[str, Any],
        frame: FrameType,
    ) -> Any:
        """Add a vertex to the columns of those like it, the first of its kind to new ones; or a family."""
        if type(compute_set) is not ComputeSet or compute_set.graph is not self._graph or self._recordings.num_open:
            compute_set = self._compute_set(compute_set)
        key: list[object] = [compute_set, codelet.frozen(), tile is None, trace_settings()]
        row: list[int] = []
        objects: list[object] = []
        expected: list[object] = []
        joins = _joins(fields)
        for name, value in ({**fields, **joins} if joins else fields).items():
            kind = type(value)
            if kind is Tensor:
                layout = value.layout or value.find_layout()
                if layout is not None:
                    key += (name, layout)
                    row.append(value.offset)
                elif value.axes:
                    break
                else:
                    key += (name, value.source, value.shape)
                    objects.append(value)
                expected.append(layout)
            elif name in codelet.static:
                try:
                    key += (name, static_key(value))
                except TypeError:  # one that cannot be hashed: the full check words it
                    break
                expected.append(value)
            elif kind is int:
                key += (name, int)
                row.append(value)
                expected.append(WHOLE_NUMBER)
            elif _has_dtype(kind):
                key += (name, kind, np.shape(value), getattr(value, "dtype", kind))
                objects.append(value.copy() if kind is np.ndarray else value)
                expected.append(None)
            else:
                break
        else:
            if isinstance(tile, np.integer):
                tile = int(tile)
            if tile is None or type(tile) is int:
                of_kind = tuple(key)
                columns = self._columns.get(of_kind) or self._new_columns(
                    of_kind, {**fields, **joins}, frame, {name: fields[name] for name in joins}
                )
                if columns is not None:
                    for name in columns.padded_outputs:
                        check_no_padding(codelet, name, fields[name])
                    if tile is not None and not 0 <= tile < self._tiles.num_tiles:
                        self._tiles.check(tile, tile)
                    line = self._number_line(frame)
                    columns.add(row if tile is None else [*row, tile], objects, line)
                    if None not in expected and not columns.padded_outputs:
                        names = tuple(fields)
                        x64 = columns.codelet.settings[0]
                        site = frame.f_code, compute_set, codelet, names, tuple(expected), columns, line, x64
                        self.sites[frame.f_lasti] = site
                    return None
        return self._add_family(compute_set, codelet, tile, fields, frame)
