"""Vertices and edges as small objects, made on demand from the columns that hold them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_attribute
from codelet.errors import ArrayError, Line, NotInGraphError
from codelet.graphs.by_tensor import by_name
from codelet.graphs.family import Family, Field
from codelet.hostcopies import on_device
from codelet.hostdata import as_array
from codelet.schema import is_whole
from codelet.tracing.field_types import Lengths
from codelet.tracing.returned import returned_fields
from codelet.tracing.statics import restored
from codelet.tracing.unchanged import check_as_traced, check_unchanged
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.sources import Source, Variable, assembled, source_elements, source_variables
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph
    from codelet.programs.compute_sets import ComputeSet


class Edge(NamedTuple):
    """A maximal run of consecutive elements of one variable, in the order of a field.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (6,)), cl.grid(2)
    >>> y = graph.add_vertex("sums", cl.codelet(lambda x: x.sum()), x=x[3 * i : 3 * i + 3])
    >>> [(edge.field, edge.variable.name, edge.start, edge.length) for edge in graph.iter_edges()][:2]
    [('x', 'x', 0, 3), ('out', 'sums/out', 0, 1)]
    """

    vertex: Vertex
    field: str
    variable: Variable
    start: int
    length: int

    def __repr__(self) -> str:
        what = f"{self.variable.name}[{self.start}:{self.start + self.length}]"
        return f"edge of {what} to field {self.field!r} of {self.vertex!r}"


def starts_of_runs(elements: np.ndarray) -> np.ndarray:
    """Whether each element starts a run, along the last axis of `(vertices, elements per vertex)`.

    Padding is of no run and ends those before it.
    """
    starts = elements >= 0
    starts[:, 1:] &= (np.diff(elements, axis=1) != 1) | (elements[:, :-1] < 0)
    return starts


def starts_by_vertex(elements: np.ndarray, vertex: np.ndarray) -> np.ndarray:
    """Whether each element starts a run, of elements in one dimension with the vertex that each is of beside them.

    Padding is of no run and ends those before it.
    """
    starts = elements >= 0
    starts[1:] &= (np.diff(elements) != 1) | (elements[:-1] < 0) | (vertex[1:] != vertex[:-1])
    return starts


def has_same_steps(tensor: Tensor) -> bool:
    """Whether all vertices have the same steps from one element of a field to the next, within one variable."""
    tabled = any(isinstance(key, int) for table in tensor.index.tables for key in table.keys)
    return isinstance(tensor.source, Variable) and not tabled


def _plain_numbers(value: Any) -> jax.Array:
    """Plain numbers as a JAX array whose dtype yields to those it meets, as that of a Python number does."""
    numbers = np.asarray(value)
    if not numbers.size or not numbers.ndim:
        return jnp.asarray(numbers.item() if numbers.size else numbers)
    return jnp.stack([jnp.asarray(number) for number in numbers.reshape(-1).tolist()]).reshape(numbers.shape)


@dataclass(frozen=True, repr=False)
class Vertex:
    """One instance of a codelet. Made by `Graph.vertex` and `Graph.iter_vertices`.

    Attributes:
        family: the family it belongs to.
        number: its place in the family, in row-major order over the grid.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> vertex = graph.vertex("double", i=3)
    >>> vertex.symbols, vertex.fields["x"].elements().tolist(), vertex.tile is None
    ({'i': 3}, 3, True)
    >>> float(vertex.run({x: [1, 2, 3, 4]})["out"])
    8.0
    """

    family: Family
    number: int

    @functools.cached_property
    def _position(self) -> dict[Any, int]:
        places = np.unravel_index(self.number, self.family.extents) if self.family.axes else ()
        return {axis: int(place) for axis, place in zip(self.family.axes, places, strict=True)}

    @property
    def symbols(self) -> dict[str, int]:
        """The values of the grid's symbols at this vertex.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, (i, j) = graph.add_variable("x", (2, 3)), cl.grid(2, 3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i, j])
        >>> [vertex.symbols for vertex in graph.iter_vertices()][:2]
        [{'i': 0, 'j': 0}, {'i': 0, 'j': 1}]
        """
        names, position = self.family.names, self._position.items()
        return {names[symbol]: axis.number(symbol, place) for axis, place in position for symbol in axis.symbols}

    @property
    def fields(self) -> dict[str, Any]:
        """The tensor, without symbols, or the constant that each field is connected to, by name.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(2)
        >>> scaled = cl.codelet(lambda x, by: by * x.sum())
        >>> y = graph.add_vertex("scaled sum", scaled, x=x.reshape(2, 2)[i], by=0.5)
        >>> fields = graph.vertex("scaled sum", i=1).fields
        >>> fields["x"].elements().tolist(), fields["by"]
        ([2, 3], 0.5)
        """
        return {field.name: self._field(field) for field in self.family.fields}

    def _field(self, field: Field) -> Any:
        if field.tensor is not None:
            tensor = field.tensor
            index = tensor.index.at(self._position)
            if tensor.rows is not None:
                index = index[(slice(None),) * tensor.ragged_dimension + (tensor.rows.row(self._position),)]
            return Tensor(tensor.source, index)
        assert field.state is not None
        if field.state.index is not None:
            value = field.state.index.at(self._position).values()
            return int(value) if not value.shape else value
        array = field.state.array
        assert array is not None
        per_vertex = array.ndim > len(field.type.shape)
        value = array[tuple(self._position.values())] if per_vertex else array
        # A plain number of the user's stays one: its dtype yields to those it meets.
        return value.item() if field.type.weak else value

    @property
    def tile(self) -> int | None:
        """Its tile, or `None`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=10 * i)
        >>> graph.vertex("double", i=3).tile
        30
        """
        if self.family.tile is None:
            return None
        return self.family.tile.at(self._position).constant

    @property
    def line(self) -> Line:
        """The user's line that added it.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> graph.vertex("double").line.text
        'y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))'
        """
        return self.family.line(self.number)

    edges = old_attribute("Vertex.edges", "iter_edges")

    def iter_edges(self) -> Iterator[Edge]:
        """Its edges, field by field; an in-out field is connected once.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (6,))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x[::3])
        >>> [(edge.field, edge.start) for edge in graph.vertex("sum", 0).iter_edges()]
        [('x', 0), ('x', 3), ('out', 0)]
        """
        graph = self.family.compute_set.graph
        for name, tensor in self.fields.items():
            if isinstance(tensor, Tensor) and tensor.size:
                elements = tensor.elements().reshape(1, -1)
                starts = starts_of_runs(elements)
                runs = np.cumsum(starts)[elements[0] >= 0] - 1
                for start, length in zip(elements[starts], np.bincount(runs), strict=True):
                    variable, position = graph.locate(int(start))
                    yield Edge(self, name, variable, position, int(length))

    def call(self, read: Any, *, check: bool = False) -> dict[str, np.ndarray]:
        """Call the codelet's function, as plain Python, on `read(tensor)` for each input tensor.

        Every input is a JAX array of the traced dtype; a plain number is weakly typed.

        Args:
            read: a function from a tensor to its array.
            check: True to check that the result has the traced type.

        Returns:
            The values it would write, by field.

        Raises:
            CodeletTraceError: the result differs from the trace.

        >>> import codelet as cl, numpy as np
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("square", cl.codelet(lambda x: x * x), x=graph.add_variable("x", ()))
        >>> float(graph.vertex("square", 0).call(lambda tensor: np.float32(3.0))["out"])
        9.0
        """
        with restored(self.family.codelet.settings):
            inputs = self._inputs(read)
            if not check:
                return self._call(inputs)
            traced, lengths = self.family.codelet, self._lengths(inputs)
            try:
                results = self._call(inputs)
            except Exception:
                check_unchanged(traced, self.line, lengths)
                raise
            check_as_traced(traced, inputs, results, self.line, lengths)
        return results

    def _inputs(self, read: Any) -> list[Any]:
        traced = self.family.codelet
        fields, types = self.fields, {field.name: field.type for field in self.family.fields}
        inputs = []
        for name in traced.inputs:
            value, kind = fields[name], types[name]
            if kind.weak:
                inputs.append(_plain_numbers(value))
            else:
                # A copy: what is computed from it may be looked at after the memory that it was read from has changed.
                inputs.append(on_device(np.asarray(read(value) if isinstance(value, Tensor) else value, kind.dtype)))
        return inputs

    def _call(self, inputs: list[Any]) -> dict[str, np.ndarray]:
        traced = self.family.codelet
        named = returned_fields(traced.name, traced.codelet.function_now(*inputs, **traced.static), traced.static)
        return {name: np.asarray(named[name], kind.dtype) for name, kind in traced.outputs.items()}

    def run(self, values: Mapping[Any, Any]) -> dict[str, np.ndarray]:
        """Call its codelet as plain Python, so that `print` and `breakpoint()` in it work.

        Args:
            values: an array for every variable it reads, by tensor or name.

        Returns:
            The values it would write, by field.

        Raises:
            NotInGraphError: a variable it reads is missing in `values`.
            ArrayError: a value that does not fit its variable.
            CodeletTraceError: a captured value has changed since the codelet was traced.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", ())
        >>> y = graph.add_vertex("square", cl.codelet(lambda x: x * x), x=x)
        >>> float(graph.vertex("square", 0).run({x: 3.0})["out"])
        9.0
        """
        if not isinstance(values, Mapping):
            raise ArrayError(
                "the values for a vertex are no dict",
                given=f"{type(values).__name__}",
                expected="an array for every variable it reads, by name: vertex.run({'x': x0})",
            )
        values = by_name(self.family.compute_set.graph, values)
        arrays: dict[int, np.ndarray] = {}

        def read(tensor: Tensor) -> np.ndarray:
            for variable in source_variables(tensor.source):
                value = variable.value if variable.value is not None else values.get(variable.name)
                if value is None:
                    raise NotInGraphError(
                        f"the vertex reads {variable.name!r}, which was given no value",
                        given=", ".join(map(str, values)) or "no values",
                        expected=variable.name,
                    )
                if variable.value is None:
                    value = as_array(value, variable)
                arrays[variable.first_element] = np.asarray(value).reshape(-1)
            return gather(arrays, tensor)

        return self.call(read, check=True)

    def _lengths(self, inputs: list[Any]) -> list[Lengths]:
        """The lengths of its ragged fields, by their symbols."""
        sizes = {
            size: np.shape(own)[d]
            for own, kind in zip(inputs, self.family.codelet.inputs.values(), strict=True)
            for d, size in enumerate(kind.shape)
        }
        return [{symbol: sizes[symbol] for symbol in self.family.rows}] if self.family.rows else []

    @property
    def number_in_compute_set(self) -> int:
        """Its place among all vertices of its compute set, in the order in which they were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i, double = graph.add_variable("x", (4,)), cl.grid(4), cl.codelet(lambda x: 2 * x)
        >>> first, second = (graph.add_vertex("double", double, x=x[i]) for _ in range(2))
        >>> graph.writers(second[1])[0].number, graph.writers(second[1])[0].number_in_compute_set
        (1, 5)
        """
        before = 0
        for family in self.family.compute_set.graph.families:
            if family is self.family:
                break
            before += family.num_vertices if family.compute_set is self.family.compute_set else 0
        return before + self.number

    def __repr__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.symbols.items())
        if self.family.is_gathered or not where:
            where = f"number {self.number_in_compute_set}"
        return f"vertex of {self.family.compute_set.name} / {self.family.codelet.name} at {where}"

    def __str__(self) -> str:
        rows = [repr(self)]
        for field in self.family.fields:
            rows.append(f"  {field.kind:5} {field.name}: {field.type} = {self.fields[field.name]!r}")
        rows.append(f"  tile  {'chosen by placement' if self.tile is None else self.tile}")
        rows.append(f"  at    {self.line.written}")
        return "\n".join(rows)


def _source_values(arrays: Mapping[int, np.ndarray], source: Source) -> np.ndarray:
    """The values of a source, in one dimension; padding holds its own."""
    if isinstance(source, Variable):
        return arrays[source.first_element]
    of_variable = lambda own, positions: arrays[own.first_element][positions]  # noqa: E731
    return assembled(source, source.dtype, of_variable, lambda value: value)


def gather(arrays: Mapping[int, np.ndarray], tensor: Tensor) -> np.ndarray:
    """The values of a view, from flat arrays of variables keyed by their first element's number."""
    return _source_values(arrays, tensor.source)[tensor.index.values()]


def free_axes(family: Family, tensor: Tensor) -> tuple[Axis, ...]:
    """The axes of a family that choose no row of a ragged field, over which its index is evaluated."""
    assert tensor.rows is not None
    return tuple(axis for axis in family.axes if axis not in tensor.rows.axes)


def vertex_numbers(family: Family, tensor: Tensor) -> np.ndarray:
    """The number in the family of the vertex at each position of a ragged field's index.

    Of shape `(extents of the family's axes that choose no row..., *shape)`, or extents of 1 where it is the same
    along a dimension.
    """
    assert tensor.rows is not None
    weights = dict(zip(family.axes, row_major_strides(family.extents), strict=True))
    of_rows = sum(weights[axis] * tensor.rows.position(axis).astype(np.int64) for axis in tensor.rows.axes)
    free = free_axes(family, tensor)
    ones = [1] * tensor.ndim
    ones[tensor.ragged_dimension] = tensor.rows.total
    numbers = np.reshape(of_rows, (*[1] * len(free), *ones))
    for k, axis in enumerate(free):
        own = np.arange(axis.extent) * weights[axis]
        numbers = numbers + own.reshape([-1 if k == d else 1 for d in range(numbers.ndim)])
    return numbers


def family_vertices(family: Family) -> Iterator[Vertex]:
    """All vertices of a family, in order."""
    return (Vertex(family, number) for number in range(family.num_vertices))


def _place(axis: Axis, numbers: Mapping[Axis, int]) -> int | None:
    """The position of an axis at which its symbols stand for given numbers; None if there is none."""
    if any(number not in symbol.values for symbol, number in numbers.items()):
        return None
    if not axis.ancestors:
        return axis.values.index(numbers[axis])
    holds = np.ones(axis.extent, bool)
    for symbol, number in numbers.items():
        holds &= axis.ancestors[symbol] == symbol.values.index(number)
    return int(holds.argmax()) if holds.any() else None


def find_vertex(graph: Graph, compute_set: ComputeSet | str, number: int | None, symbols: Mapping[str, int]) -> Vertex:
    """One vertex of a compute set; see `Graph.vertex`."""
    if not isinstance(compute_set, str) and not hasattr(compute_set, "name"):
        raise NotInGraphError(
            "a vertex is looked up in something other than a compute set",
            given=f"{compute_set!r:.80}",
            expected="a compute set or its name: " + ", ".join(own.name for own in graph.compute_sets),
        )
    if number is not None and not is_whole(number):
        raise NotInGraphError(
            "a vertex is looked up by something other than a number",
            given=f"{number!r:.80}",
            expected="its number in the order of adding",
            fix="the values of symbols are given by name: graph.vertex(compute_set, i=3)",
        )
    wanted = number
    name = compute_set if isinstance(compute_set, str) else compute_set.name
    families = [family for family in graph.families if family.compute_set.name == name]
    if number is not None:
        for family in families:
            if 0 <= number < family.num_vertices:
                return Vertex(family, number)
            number -= family.num_vertices
    found = []
    for family in families:
        if number is None and not family.is_gathered:
            named = {symbol: family.names[symbol] for axis in family.axes for symbol in axis.symbols}
            if set(named.values()) == set(symbols):
                places = [_place(axis, {own: symbols[named[own]] for own in axis.symbols}) for axis in family.axes]
                known = [place for place in places if place is not None]
                if len(known) == len(places):
                    found.append(Vertex(family, int(np.ravel_multi_index(known, family.extents)) if known else 0))
    if len(found) == 1:
        return found[0]
    has = "; ".join(str(family).split("\n")[0] for family in families)
    raise NotInGraphError(
        f"compute set {name!r} has {'no such vertex' if not found else f'{len(found)} such vertices'}",
        given=", ".join(f"{k}={v}" for k, v in symbols.items()) or wanted,
        expected=has or "a compute set with vertices",
        fix="give the value of every symbol, or the vertex's number in the order of adding",
    )


def _vertices_in_box(index: Index, box: list[range], wanted: np.ndarray) -> Iterator[np.ndarray]:
    """Where, in a box of its leading dimensions, an index without tables takes any of some values, in order.

    Halves that take none are left out, which their bounds tell.
    """
    part = index[tuple(slice(side.start, side.stop) for side in box)]
    ends = part.bounds()
    if ends is None or not len(wanted[np.searchsorted(wanted, ends[0]) : np.searchsorted(wanted, ends[1], "right")]):
        return
    if part.size <= 1 << 16 or all(len(side) == 1 for side in box):
        hits = np.isin(part.values(), wanted).reshape(*map(len, box), -1).any(axis=-1)
        yield np.stack([at + side.start for at, side in zip(np.nonzero(hits), box, strict=True)])
        return
    longest = max(range(len(box)), key=lambda k: (abs(index.strides[k]) * (len(box[k]) - 1), len(box[k])))
    half = len(box[longest]) // 2
    for side in (box[longest][:half], box[longest][half:]):
        yield from _vertices_in_box(index, [*box[:longest], side, *box[longest + 1 :]], wanted)


def _numbers_at(family: Family, tensor: Tensor, wanted: np.ndarray) -> np.ndarray:
    """The numbers of the vertices that touch any of some elements through a tensor."""
    axes = family.axes
    if isinstance(tensor.source, Variable):
        positions = wanted - tensor.source.first_element
    else:
        positions = np.flatnonzero(np.isin(source_elements(tensor.source), wanted))
    if tensor.rows is not None:
        found_here = np.isin(tensor.index.values(free_axes(family, tensor)), positions)
        return np.broadcast_to(vertex_numbers(family, tensor), found_here.shape)[found_here]
    if axes and not tensor.index.tables:
        extents = tuple(axis.extent for axis in axes)
        found = list(_vertices_in_box(tensor.index.lifted(axes), [range(n) for n in extents], positions))
        places = np.concatenate(found, axis=1) if found else np.zeros((len(axes), 0), np.int64)
        return np.ravel_multi_index(tuple(places), extents)
    found = []
    for first, block in tensor.index.blocks(axes):
        hits = block == positions[0] if len(positions) == 1 else np.isin(block, positions)
        found.append(np.flatnonzero(hits.reshape(len(block), -1).any(axis=1)) + first)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _ascending(numbers: np.ndarray) -> np.ndarray:
    """Numbers, which mostly ascend already, in order and each once: `numpy.unique` hashes, which is far slower."""
    ordered = np.sort(numbers, axis=None, kind="stable")
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def touching_vertices(
    graph: Graph, tensor: Tensor, *, written: bool, compute_set: str | None = None
) -> Iterator[Vertex]:
    """The vertices, of one compute set or of all, that write, or that read, any element of a view, in order."""
    wanted = _ascending(tensor.elements(tensor.axes))
    wanted = wanted[wanted >= 0]  # padding is nobody's
    variables = set(source_variables(tensor.source))
    for family in graph.families:
        if compute_set is not None and family.compute_set.name != compute_set:
            continue
        found = [np.zeros(0, np.int64)]
        for field in family.fields:
            concerned = field.is_written if written else field.is_read
            if concerned and field.tensor is not None and variables & set(source_variables(field.tensor.source)):
                found.append(_numbers_at(family, field.tensor, wanted))
        for number in _ascending(np.concatenate(found)):
            yield Vertex(family, int(number))


def over_axes(values: np.ndarray, axes: Sequence[Axis], family_axes: Sequence[Axis]) -> np.ndarray:
    """Values for all positions of `axes`, in row-major order, with a dimension for each of `family_axes`.

    It has extent 1 along those that are not among `axes`.
    """
    values = values.reshape([axis.extent for axis in axes])
    ordered = values.transpose([list(axes).index(axis) for axis in family_axes if axis in axes])
    return ordered.reshape([axis.extent if axis in axes else 1 for axis in family_axes])
