"""Collect: families in normal form, and the program as steps.

In come a graph and a program. Vertices added one at a time that are regular but for a few are split; see
`lowering/plan/split_exceptions.py`. Out comes a plan whose families have the fewest axes: a table over several
axes or dimensions that is a sum of what depends on each is taken apart, an axis along which
the fields step irregularly at equal intervals is split there (so that vertices added by nested loops
get the axes of the loops back, and `i // 4` becomes an axis of its own), axes of one position are
dropped, the rest are ordered by how far they move through what is written, neighbours that every
field crosses as one are merged, and what then runs on from one dimension of the written variable into the
next is split there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.programs.control import If, Repeat, RepeatWhile, Switch, too_many_turns
from codelet.programs.copies import Copy, Stream
from codelet.programs.functions import Call, Function
from codelet.programs.program import Execute, Program, Recording
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.tensor_steps import AbortOn, Print, WriteUndef
from codelet.views.affine import Table, sorted_symbols
from codelet.views.digits import chains, radices, row_major_strides
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.integers import affine_length, are_equal, narrowed
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.plan.join_ragged import join_rows
from lowering.plan.plan import Plan
from lowering.plan.split_exceptions import changed_fields, split_exceptions
from lowering.plan.steps import (
    AbortStep,
    CallStep,
    CopyStep,
    Derivative,
    ExecuteStep,
    FunctionBody,
    PrintStep,
    RepeatStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
)


def _indices(family: Family) -> list[Index]:
    """All that varies over the axes of a family, as indices."""
    found = [field.tensor.index for field in family.fields if field.tensor is not None]
    found += [f.state.index for f in family.fields if f.state is not None and f.state.index is not None]
    return [*found, family.tile] if family.tile is not None else found


# --- taking tables apart ------------------------------------------------------------------------------


def _lines(values: np.ndarray) -> list[np.ndarray] | None:
    """What an array is the sum of, but for its first number: a line for each dimension, from 0; None if it is none."""
    first = int(values.flat[0])
    ways = [tuple(slice(None) if k == d else 0 for k in range(values.ndim)) for d in range(values.ndim)]
    lines = [values[way].astype(np.int64) - first for way in ways]
    if first + sum(int(line[-1]) for line in lines) != int(values.flat[-1]):
        return None  # most that are no sum are told by their last number
    whole = functools.reduce(np.add.outer, lines)
    return lines if are_equal(values, whole + first) else None


def _apart(index: Index) -> Index:
    """An index, of which each table that is a sum of what depends on each of its keys is one for each of them."""
    if all(len(table.keys) < 2 for table in index.tables):
        return index
    offset, strides, symbols = index.offset, list(index.strides), dict(index.symbols)
    tables: list[Table] = []
    for table in index.tables:
        lines = _lines(table.values) if len(table.keys) > 1 and table.values.size else None
        if lines is None:
            tables.append(table)
            continue
        offset += int(table.values.flat[0]) * table.scale
        for key, line in zip(table.keys, lines, strict=True):
            step = int(line[1]) * table.scale if len(line) > 1 else 0
            if affine_length(line) < len(line):
                tables.append(Table((key,), narrowed(line), table.scale))
            elif isinstance(key, int):
                strides[key] += step
            else:
                symbols[key] = symbols.get(key, 0) + step
    return Index(offset, index.shape, tuple(strides), sorted_symbols(symbols), tuple(tables))


def with_tables_apart(family: Family) -> Family:
    """A family whose tables depend on one axis or dimension each, wherever they are sums of such."""
    if all(len(table.keys) < 2 for index in _indices(family) for table in index.tables):
        return family
    return _on_fields(family, _apart, range(len(family.axes)), family.axes, family.axis_names)


# --- splitting axes -----------------------------------------------------------------------------------


def _split_index(index: Index, axis: Axis, parts: tuple[Axis, ...]) -> Index:
    """An index with `axis` replaced by the axes whose mixed-radix number its position is.

    Tables along `axis` alone become affine wherever they are.
    """
    extents = [part.extent for part in parts]
    symbols = {a: c for a, c in index.symbols if a is not axis}
    own = index.coefficient(axis)
    symbols.update({part: own * weight for part, weight in zip(parts, row_major_strides(extents), strict=True)})
    offset, tables = index.offset, []
    for table in index.tables:
        if axis not in table.keys:
            tables.append(table)
            continue
        place = table.keys.index(axis)
        shape = (*table.values.shape[:place], *extents, *table.values.shape[place + 1 :])
        values = table.values.reshape(shape)
        if table.keys != (axis,):
            keys = (*table.keys[:place], *parts, *table.keys[place + 1 :])
            tables.append(Table(keys, values, table.scale))
            continue
        irregular: list[Axis] = []
        for k, part in enumerate(parts):
            line = values[tuple(slice(None) if j == k else 0 for j in range(len(parts)))]
            step = int(line[1]) - int(line[0]) if part.extent > 1 else 0
            if affine_length(line) == part.extent:
                symbols[part] = symbols.get(part, 0) + step * table.scale
            else:
                irregular.append(part)
        if irregular:
            where = tuple(slice(None) if part in irregular else 0 for part in parts)
            tables.append(Table(tuple(irregular), np.ascontiguousarray(narrowed(values[where])), table.scale))
        else:
            offset += int(values.flat[0]) * table.scale
    ordered = tuple(sorted(((a, c) for a, c in symbols.items() if c), key=lambda item: item[0].sort_key))
    return Index(offset, index.shape, index.strides, ordered, tuple(tables))


def _on_fields(
    family: Family,
    change: Callable[[Index], Index],
    places: Sequence[int],
    axes: tuple[Axis, ...],
    names: tuple[str, ...],
) -> Family:
    """A family over new axes.

    Args:
        family: of which.
        change: the same index over the new axes.
        places: the old axes, those that become one or several new ones in the order of these; an array of vertex
            state is transposed to that order and reshaped, so axes left out must be of extent 1.
        axes: the new axes.
        names: what they are called.
    """
    extents, count = tuple(axis.extent for axis in axes), len(family.axes)

    def arranged(array: np.ndarray) -> np.ndarray:
        gone = [k for k in range(count) if k not in places]
        return array.transpose([*places, *gone, *range(count, array.ndim)]).reshape((*extents, *array.shape[count:]))

    fields = changed_fields(family, change, arranged)
    tile = None if family.tile is None else change(family.tile)
    return replace(family, axes=axes, axis_names=names, fields=fields, tile=tile, line_of_vertex=None)


def split_axis(family: Family, axis: Axis) -> Family:
    """Split an axis along which tables run into the axes over which they are affine, as far as they are."""
    columns = [table.values for index in _indices(family) for table in index.tables if table.keys == (axis,)]
    if not columns or axis.extent < 2:
        return family
    return _with_parts(family, axis, Grid([range(n) for n in radices(columns)]).axes)


def _with_parts(family: Family, axis: Axis, parts: tuple[Axis, ...]) -> Family:
    """A family with an axis replaced by the axes whose mixed-radix number its position is."""
    place = family.axes.index(axis)
    base = family.axis_names[place]
    named = (base,) if len(parts) == 1 else tuple(f"{base}.{k}" for k in range(len(parts)))
    axes = (*family.axes[:place], *parts, *family.axes[place + 1 :])
    names = (*family.axis_names[:place], *named, *family.axis_names[place + 1 :])
    return _on_fields(family, lambda index: _split_index(index, axis, parts), range(len(family.axes)), axes, names)


# --- ordering and merging axes ------------------------------------------------------------------------


def _tabled_axes(family: Family) -> set[Axis]:
    return {key for i in _indices(family) for t in i.tables for key in t.keys if isinstance(key, Axis)}


def _renamed(family: Family, names: dict[Axis, Axis], places: Sequence[int], labels: tuple[str, ...]) -> Family:
    """A family over new axes by those that they stand for, where the other axes are at 0; see `_on_fields`."""
    gone, keys = {axis: 0 for axis in family.axes if axis not in names}, cast(dict[Key, Key], names)

    def change(index: Index) -> Index:
        if index.tables:
            return index.at(gone).rekeyed(keys, index.shape)
        symbols = {names[axis]: coefficient for axis, coefficient in index.symbols if axis in names}
        return Index(index.offset, index.shape, index.strides, sorted_symbols(symbols))

    return _on_fields(family, change, places, tuple(names.values()), labels)


def order_axes(family: Family) -> Family:
    """Drop axes of one position, and order the others by how far they move through what is written."""
    written = [dict(f.tensor.index.symbols) for f in family.fields if f.tensor is not None and f.is_written]
    kept = [k for k, axis in enumerate(family.axes) if axis.extent != 1]
    kept.sort(key=lambda k: [abs(symbols.get(family.axes[k], 0)) for symbols in written], reverse=True)
    parts = Grid([family.axes[k].values for k in kept]).axes  # new axes, so that they are numbered in this order
    labels = tuple(family.axis_names[k] for k in kept)
    return _renamed(family, {family.axes[k]: part for k, part in zip(kept, parts, strict=True)}, kept, labels)


def goes_on(indices: Sequence[Index]) -> Callable[[Sequence[Axis], Axis], bool]:
    """Whether, in all of some indices, one more axis steps on within the steps of the last of others.

    A table that varies along one of them must vary along the other.
    """
    tabled = [set(table.keys) for index in indices for table in index.tables]
    steps = [dict(index.symbols) for index in indices]

    def follows(chain: Sequence[Axis], axis: Axis) -> bool:
        tiles = (own.get(chain[-1], 0) == own.get(axis, 0) * axis.extent for own in steps)
        return all((chain[-1] in keys) == (axis in keys) for keys in tabled) and all(tiles)

    return follows


def merge_axes(family: Family) -> Family:
    """Merge neighbouring axes that every field crosses as one."""
    groups = chains(family.axes, goes_on(_indices(family)))
    if len(groups) == len(family.axes):
        return family
    parts = Grid([range(math.prod(axis.extent for axis in group)) for group in groups]).axes
    labels = tuple("*".join(family.names[axis] for axis in group) for group in groups)
    part_of = {axis: part for group, part in zip(groups, parts, strict=True) for axis in group}
    last = {group[-1]: part for group, part in zip(groups, parts, strict=True)}

    def together(table: Table) -> Table:
        place = {axis: k for k, axis in enumerate(family.axes)}
        order = sorted(range(len(table.keys)), key=lambda k: place.get(table.keys[k], len(place)))  # type: ignore[arg-type]
        keys = tuple(dict.fromkeys(part_of.get(key, key) for key in (table.keys[k] for k in order)))  # type: ignore[arg-type]
        extents = [key.extent if isinstance(key, Axis) else table.values.shape[table.keys.index(key)] for key in keys]
        return Table(keys, np.ascontiguousarray(table.values.transpose(order)).reshape(extents), table.scale)

    def change(index: Index) -> Index:
        symbols = {last[axis]: coefficient for axis, coefficient in index.symbols if axis in last}
        return Index(
            index.offset, index.shape, index.strides, sorted_symbols(symbols), tuple(map(together, index.tables))
        )

    return _on_fields(family, change, range(len(family.axes)), parts, labels)


def _boundary(family: Family, axis: Axis) -> int | None:
    """How many positions of an axis fill a dimension of what is written, where they go on into the next."""
    written = next((f.tensor for f in family.fields if f.is_written and f.tensor is not None), None)
    if written is None or not isinstance(written.source, Variable) or axis in _tabled_axes(family):
        return None
    stride = abs(written.index.coefficient(axis))
    for weight in row_major_strides(written.source.shape):
        count = weight // stride if stride and weight % stride == 0 else 0
        if 1 < count < axis.extent and axis.extent % count == 0 and written.index.offset % weight < stride:
            return count
    return None


def split_at_dimensions(family: Family) -> Family:
    """Split axes that run on from one dimension of what is written into the next.

    Merging made loops and symbols alike; XLA's code for elementwise gradients on CPU is a tenth slower in
    one long dimension than in the dimensions of the variable.
    """
    for axis in family.axes:
        count = _boundary(family, axis)
        if count is not None:
            parts = Grid([range(axis.extent // count), range(count)]).axes
            return split_at_dimensions(_with_parts(family, axis, parts))
    return family


def normalize_family(family: Family) -> Family:
    """A family in normal form; see the module's docstring. One with ragged fields is left as it is."""
    if family.rows:
        return family
    family = with_tables_apart(family)
    for axis in family.axes:
        family = split_axis(family, axis)
    ordered = order_axes(family)
    merged = merge_axes(ordered)
    if merged is not ordered and _tabled_axes(merged):
        return normalize_family(merged)
    made = split_at_dimensions(merged)
    return ordered if made is ordered else order_axes(made)


def may_be_shorter(family: Family) -> bool:
    """Whether a family in normal form, some of whose fields are gone, may have fewer axes."""
    indices = _indices(family)
    if any(index.tables for index in indices) or any(axis.extent < 2 for axis in family.axes):
        return True
    return len(chains(family.axes, goes_on(indices))) < len(family.axes)


# --- the program --------------------------------------------------------------------------------------


class _Collector:
    """Iterations programs into steps, each compute set's families normalized once, each function's body made once."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.by_compute_set: dict[str, list[Family]] = {}
        for family in plan.graph.families:
            self.by_compute_set.setdefault(family.compute_set.name, []).append(family)
        self.executes: dict[str, ExecuteStep] = {}
        self.functions: dict[Function, FunctionBody] = {}
        self.streams: dict[Stream, None] = {}
        self.messages: list[str] = []

    @functools.cached_property
    def abort(self) -> Variable:
        """The flag that aborts raise."""
        self.plan, flag = self.plan.add_variable("aborted", (), np.dtype(np.int32))
        return flag

    def execute(self, name: str) -> ExecuteStep:
        if name not in self.executes:
            joined = join_rows(self.by_compute_set.get(name, ()))
            parts = [part for family in joined for part in split_exceptions(family)]
            families = tuple(normalize_family(part) for part in parts)
            self.executes[name] = ExecuteStep(name, families)
        return self.executes[name]

    def function(self, function: Function) -> FunctionBody:
        if function not in self.functions:
            parameters = tuple(tensor.source for tensor in function.parameters.values())
            derivative = None
            if function.derivative is not None:
                traced, named = function.derivative, function.parameters
                of: Any = lambda names: tuple(named[own].source for own in names)  # noqa: E731
                derivative = Derivative(traced, of(traced.inputs), of(traced.outputs), function.same_values)
            body = self.steps(function.body)
            self.functions[function] = FunctionBody(function.name, parameters, body, derivative)  # type: ignore[arg-type]
        return self.functions[function]

    def code(self, message: str) -> int:
        self.messages.append(message)
        return len(self.messages)

    def copy(self, copy: Copy) -> Step:
        source, destination = copy.source, copy.destination
        if isinstance(source, Tensor) and isinstance(destination, Tensor):
            return CopyStep(source, destination, line=copy.line)
        stream, tensor = (source, destination) if isinstance(source, Stream) else (destination, source)
        assert isinstance(stream, Stream)
        assert isinstance(tensor, Tensor)
        self.streams[stream] = None
        return StreamStep(stream, tensor, line=copy.line)

    def steps(self, program: Program) -> tuple[Step, ...]:
        match program:
            case Execute(compute_set):
                return (self.execute(compute_set.name),)
            case Recording():
                return tuple(self.execute(compute_set.name) for compute_set in program.compute_sets)
            case ProgramSequence(programs):
                found: list[Step] = []
                for part in programs:
                    found += self.steps(part)
                return tuple(found)
            case Copy():
                return (self.copy(program),)
            case Repeat(count, body, index):
                counter = None if index is None else index.source
                assert counter is None or isinstance(counter, Variable)
                return (RepeatStep(count, self.steps(body), counter, recompute=program.recompute),)
            case RepeatWhile(condition, predicate, body, until, most, turns):
                abort = None if most is None else self.abort
                code = 0 if most is None else self.code(too_many_turns(predicate, program.bound))
                parts = self.steps(condition), predicate, self.steps(body)
                return (WhileStep(*parts, until, most, abort, code, turns, program.bound, line=program.line),)
            case If(predicate, then, otherwise):
                return (SwitchStep(predicate, (0,), (self.steps(otherwise), self.steps(then)), line=program.line),)
            case Switch(control, cases, default):
                branches = tuple([self.steps(case) for case in (*cases.values(), default)])
                return (SwitchStep(control, tuple(cases), branches, line=program.line),)
            case Call(function, arguments):
                return (CallStep(self.function(function), tuple(arguments.values()), line=program.line),)
            case Print(tensor):
                return (PrintStep(tensor, program.text, line=program.line),)
            case AbortOn(predicate, message):
                return (AbortStep(predicate, self.abort, self.code(message), line=program.line),)
            case WriteUndef(tensor):
                return (UndefStep(tensor),)
        raise AssertionError(program)


def collect(graph: Graph, program: Program, inputs: Sequence[Variable], outputs: Sequence[Tensor]) -> Plan:
    """The plan of a graph and program: families in normal form, the program as steps."""
    collector = _Collector(Plan(graph, graph.sources, tuple(inputs), tuple(outputs), steps=(), program=program))
    steps = collector.steps(program)
    streams = tuple(stream for stream in graph.streams if stream in collector.streams)
    abort, messages = collector.abort if collector.messages else None, tuple(collector.messages)
    return replace(collector.plan, steps=steps, streams=streams, abort=abort, messages=messages)
