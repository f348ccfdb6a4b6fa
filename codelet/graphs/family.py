"""Families: the vertices of a graph, stored in columns.

A family is vertices of one compute set with one codelet, the same static values, field types and variables, over one
grid. A call of `Graph.add_vertex` with symbols is a family at once; calls without are gathered, by everything that
makes vertices alike, in `Columns`, which become a family over a grid of one axis, with the vertices in the order in
which they were added.
"""

from __future__ import annotations

import copy
import functools
import math
from array import array
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any, Literal, NamedTuple

import numpy as np

from codelet.errors import FieldTypeError, Line
from codelet.hostdata import lost_number
from codelet.programs.compute_sets import ComputeSet
from codelet.saving import Unchanging
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.lengths import length_symbols
from codelet.tracing.statics import restored
from codelet.tracing.trace_ragged import trace_ragged
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.affine import Table
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.rows import Rows, together
from codelet.views.sources import Variable, source_text, source_variables
from codelet.views.tensor import Tensor


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun: `1 vertex`, `2,000 vertices`."""
    return f"{number:,} {one if number == 1 else many}"


@dataclass(frozen=True, eq=False)
class VertexState(Unchanging):
    """Constants of vertices: one value, or small array, for each vertex of a family.

    Exactly one of `index` and `array` is there.

    Attributes:
        index: integers that depend on the grid, as an index of the field's shape.
        array: other values, of shape `(extents of all the family's axes..., *field shape)`, or of the
            field's shape alone where all vertices have the same.
    """

    index: Index | None = None
    array: np.ndarray | None = None


FieldKind = Literal["in", "out", "inout", "state"]


@dataclass(frozen=True, eq=False)
class Field:
    """A field of a family, and its connection: a tensor over the family's axes, or vertex state."""

    name: str
    kind: FieldKind
    type: FieldType
    tensor: Tensor | None = None
    state: VertexState | None = None

    @property
    def is_read(self) -> bool:
        """Whether vertices read elements through it."""
        return self.kind in ("in", "inout")

    @property
    def is_written(self) -> bool:
        """Whether vertices write elements through it."""
        return self.kind in ("out", "inout")

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that it views."""
        return () if self.tensor is None else source_variables(self.tensor.source)


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """Vertices of one compute set with one traced codelet, over the grid of `axes`.

    Attributes:
        compute_set: the compute set of its vertices.
        codelet: the traced codelet that its vertices run.
        axes: the axes of the grid; vertices are numbered in row-major order over them.
        axis_names: the printed names of their symbols.
        fields: in the order of the codelet's fields.
        tile: the tile of each vertex, as an index of shape () over the axes, or `None`.
        lines: the user's lines that added its vertices.
        line_of_vertex: for vertices added one at a time, which of `lines` added each; `None` if the first added all.
        inside: the printed names of the symbols that combined axes stand for.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> (family,) = graph.families
    >>> family.num_vertices, family.extents, [field.name for field in family.inputs], family.is_gathered
    (4, (4,), ['x'], False)
    """

    compute_set: ComputeSet
    codelet: TracedCodelet
    axes: tuple[Axis, ...]
    axis_names: tuple[str, ...]
    fields: tuple[Field, ...]
    tile: Index | None
    lines: tuple[Line, ...]
    line_of_vertex: np.ndarray | None = None
    inside: tuple[tuple[Axis, str], ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Family:
        made = memo[id(self)] = object.__new__(Family)
        for field in dataclass_fields(self):
            made.__dict__[field.name] = copy.deepcopy(getattr(self, field.name), memo)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclass_fields(self)}
        if self.rows:
            # A codelet with ragged fields is traced anew for the lengths that occur.
            found = together(self.rows.values()).lengths
            traced = self.codelet
            symbols = [str(symbol) for symbol in self.rows]
            state["codelet"] = traced.codelet, dict(traced.inputs), dict(traced.static), traced.settings, symbols, found
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.codelet, tuple):
            codelet, inputs, static, settings, names, found = self.codelet
            symbols = [symbol for name in names for symbol in length_symbols() if str(symbol) == name]
            lengths = [dict(zip(symbols, some, strict=True)) for some in found.tolist() or [[0] * len(symbols)]]
            with restored(settings):
                self.__dict__["codelet"] = trace_ragged(codelet, inputs, static, lengths)

    @functools.cached_property
    def lengths(self) -> list[Lengths]:
        """The lengths of ragged fields that occur together, each once, the shortest first.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("running sum", cl.codelet(lambda x: x.sum()), x=x[: i + 1])
        >>> [list(lengths.values()) for lengths in graph.families[0].lengths]
        [[1], [2], [3], [4]]
        """
        found = together(self.rows.values()).lengths.tolist() if self.rows else []
        return [dict(zip(self.rows, some, strict=True)) for some in found]

    @property
    def extents(self) -> tuple[int, ...]:
        """The number of positions along each axis.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, (i, j) = graph.add_variable("x", (2, 3)), cl.grid(2, 3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i, j])
        >>> graph.families[0].extents
        (2, 3)
        """
        return tuple(axis.extent for axis in self.axes)

    @property
    def num_vertices(self) -> int:
        """The number of vertices.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, (i, j) = graph.add_variable("x", (2, 3)), cl.grid(2, 3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i, j])
        >>> graph.families[0].num_vertices
        6
        """
        return math.prod(self.extents)

    def line(self, vertex: int) -> Line:
        """The user's line that added a vertex.

        Args:
            vertex: its number in the family.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> graph.families[0].line(0).number
        1
        """
        return self.lines[0 if self.line_of_vertex is None else int(self.line_of_vertex[vertex])]

    @functools.cached_property
    def by_name(self) -> dict[str, Field]:
        """Its fields, by name.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> {name: field.kind for name, field in graph.families[0].by_name.items()}
        {'x': 'in', 'out': 'out'}
        """
        return {field.name: field for field in self.fields}

    @property
    def inputs(self) -> list[Field]:
        """The fields of the codelet's inputs, in order.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("sum", cl.codelet(lambda a, b: a + b), a=x[i], b=1.0)
        >>> [(field.name, str(field.type)) for field in graph.families[0].inputs]
        [('a', 'float32[]'), ('b', 'float32[]~')]
        """
        return [self.by_name[name] for name in self.codelet.inputs]

    @property
    def outputs(self) -> list[Field]:
        """The fields of the codelet's outputs, in order.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("split", cl.codelet(lambda x: {"sign": x > 0, "size": abs(x)}), x=x[i])
        >>> [(field.name, str(field.type)) for field in graph.families[0].outputs]
        [('sign', 'bool[]'), ('size', 'float32[]')]
        """
        return [self.by_name[name] for name in self.codelet.outputs]

    @functools.cached_property
    def rows(self) -> dict[Any, Rows]:
        """The rows of ragged fields, by the symbol that stands for the length of each kind of rows.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("running sum", cl.codelet(lambda x: x.sum()), x=x[: i + 1])
        >>> [rows] = graph.families[0].rows.values()
        >>> rows.lengths.tolist()
        [1, 2, 3, 4]
        """
        ragged = [(field.type, field.tensor) for field in self.fields if field.tensor is not None]
        return {kind.shape[t.ragged_dimension]: t.rows for kind, t in ragged if t.rows is not None}

    @functools.cached_property
    def names(self) -> dict[Axis, str]:
        """The printed names of the axes, and of the symbols that combined axes stand for.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, (row, column) = graph.add_variable("x", (2, 3)), cl.grid(2, 3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[row, column])
        >>> list(graph.families[0].names.values())
        ['row', 'column']
        """
        return {**dict(self.inside), **dict(zip(self.axes, self.axis_names, strict=True))}

    @property
    def is_gathered(self) -> bool:
        """True if its vertices were added one at a time, so that its axis has no symbol.

        >>> import codelet as cl
        >>> graph, double = cl.Graph(), cl.codelet(lambda x: 2 * x)
        >>> x, y = graph.add_variable("x", (2,)), graph.add_variable("y", (2,))
        >>> for k in range(2):
        ...     graph.add_vertex("double", double, x=x[k], out=y[k])
        >>> [(family.num_vertices, family.is_gathered) for family in graph.families]
        [(2, True)]
        """
        return self.line_of_vertex is not None

    def __repr__(self) -> str:
        return f"<Family {self._head}>"

    @property
    def _head(self) -> str:
        over = " x ".join(f"{name}: {axis.extent}" for axis, name in zip(self.axes, self.axis_names, strict=True))
        what = f"{self.compute_set.name} / {self.codelet.name}"
        where = "added one at a time" if self.is_gathered else f"over {over or 'no grid'}"
        return f"{what}: {counted(self.num_vertices, 'vertex', 'vertices')} {where}"

    def __str__(self) -> str:
        rows = [self._head]
        for field in self.fields:
            if field.tensor is not None:
                where = f"{source_text(field.tensor.source)} at {field.tensor.index.text(self.names)}"
                where += f", {field.tensor.rows}" if field.tensor.rows is not None else ""
            else:
                assert field.state is not None
                where = "array" if field.state.index is None else field.state.index.text(self.names)
            rows.append(f"  {field.kind:5} {field.name}: {field.type} = {where}")
        if self.tile is not None:
            rows.append(f"  tile = {self.tile.text(self.names)}")
        return "\n".join(rows)


class ColumnField(NamedTuple):
    """A field of vertices added one at a time: `column` is its place among the integers, or `None`.

    Values that are not single integers, position arrays or other numbers, are in `objects`, one per vertex.
    """

    field: Field
    column: int | None
    objects: list[Any]


class Columns:
    """Vertices added one at a time that are alike in all but their offsets, numbers, tiles and lines.

    Attributes:
        compute_set: the compute set of the vertices.
        codelet: their codelet.
        fields: in the order in which the user's calls name them.
        has_tile: True if the vertices were given tiles.
        integers: for each vertex the offsets and integers of its fields, and its tile, if they have tiles.
        line: the number of the line that added the last vertex.
        padded_outputs: the fields written through a source with padding, which each vertex must avoid.
        joins: the concatenated tensors of fields of the first vertex; for several vertices, positions are listed.
    """

    __slots__ = (
        "_family",
        "_line_starts",
        "_lines",
        "codelet",
        "compute_set",
        "fields",
        "has_tile",
        "integers",
        "joins",
        "line",
        "padded_outputs",
        "width",
    )

    def __init__(
        self,
        compute_set: ComputeSet,
        codelet: TracedCodelet,
        fields: list[Field],
        has_tile: bool,
        joins: dict[str, Tensor],
    ):
        self.compute_set = compute_set
        self.codelet = codelet
        self.fields: list[ColumnField] = []
        self.integers = array("q")
        column = 0
        for field in fields:
            whole = (
                field.state.index if field.state is not None else None if field.tensor is None else field.tensor.index
            )
            if whole is not None and whole.is_strided:
                self.fields.append(ColumnField(field, column, []))
                column += 1
            else:
                self.fields.append(ColumnField(field, None, []))
        self.joins = joins
        self.has_tile = has_tile
        self.width = column + has_tile
        self.line = -1
        self._lines = array("q")  # of runs of vertices that one line added
        self._line_starts = array("q")
        self.padded_outputs = tuple(
            f.name for f in fields if f.is_written and f.tensor is not None and f.tensor.source.has_padding
        )
        self._family: Family | None = None

    @property
    def num_vertices(self) -> int:
        """The number of vertices so far."""
        # A field that is written has one or the other.
        return len(self.integers) // self.width if self.width else len(self.fields[0].objects)

    def begin_line(self, line: int) -> None:
        """Note that the vertices from here on are added by the line of this number."""
        self.line = line
        self._lines.append(line)
        self._line_starts.append(self.num_vertices)

    def add(self, integers: list[int], objects: list[object], line: int) -> None:
        """Add a vertex: its integers, and the values of its other fields, in the order of `fields`; and its line."""
        if line != self.line:
            self.begin_line(line)
        self.integers.fromlist(integers)
        if objects:
            held = [field.objects for field in self.fields if field.column is None]
            for column, value in zip(held, objects, strict=True):
                column.append(value.index.values() if isinstance(value, Tensor) else value)

    def family(self, lines: list[Line]) -> Family:
        """The vertices so far, as a family over one axis."""
        count = self.num_vertices
        if self._family is not None and self._family.num_vertices == count:
            return self._family
        axis = Grid([range(count)]).axes[0]
        # A copy: the array may not grow while NumPy looks into it.
        integers = np.asarray(self.integers, np.int64).reshape(count, self.width).T.copy()
        integers.flags.writeable = False
        fields = {entry.field.name: _over_axis(entry, axis, integers) for entry in self.fields}
        for name, join in self.joins.items() if count == 1 else ():
            fields[name] = replace(fields[name], tensor=join)
        used, line_of_run = np.unique(np.array(self._lines, np.int64), return_inverse=True)
        line_of_vertex = np.repeat(line_of_run, np.diff([*self._line_starts, count]))
        self._family = Family(
            self.compute_set,
            self.codelet,
            (axis,),
            ("vertex",),
            tuple(fields[name] for name in self.codelet.field_names),
            Index(0, (), (), (), (Table((axis,), narrowed(integers[-1]), 1),)) if self.has_tile else None,
            tuple(lines[k] for k in used),
            line_of_vertex,
        )
        return self._family


def _over_axis(entry: ColumnField, axis: Axis, integers: np.ndarray) -> Field:
    """A field of gathered vertices, over the axis that numbers them."""
    field, column, objects = entry
    if column is not None:
        offsets = Table((axis,), narrowed(integers[column]), 1)
        if field.tensor is None:
            return replace(field, state=VertexState(index=Index(0, (), (), (), (offsets,))))
        strided = field.tensor.index
        index = Index(0, strided.shape, strided.strides, (), (offsets,))
        return replace(field, tensor=Tensor(field.tensor.source, index))
    values = np.stack([np.asarray(value) for value in objects])
    if field.tensor is None:
        with np.errstate(all="ignore"):
            held = values.astype(field.type.dtype)
        if (lost := lost_number(values, held)) is not None:
            raise FieldTypeError(
                f"field {field.name!r} of vertices added one at a time is given numbers that its dtype does not hold",
                given=f"{lost}, for {held.dtype.name}",
                expected=f"numbers that {held.dtype.name} holds",
                fix="smaller numbers; 64 bits need jax.enable_x64",
            )
        held.flags.writeable = False
        return replace(field, state=VertexState(array=held))
    shape = field.tensor.shape
    elements = Table((axis, *range(len(shape))), narrowed(values), 1)
    return replace(field, tensor=Tensor(field.tensor.source, Index(0, shape, (0,) * len(shape), (), (elements,))))
