"""Checks: the rules that a graph must obey before anything runs. Each raises a special error, or returns.

A compute set's vertices run in no order, so no element may be written by two of them, nor written by one and read by
another; a vertex may read its results. All answers are exact: by arithmetic for affine fields
(`lowering/check/races.py`), by stamping elements for tables, joins and pads (`stamps.py`). The rules for writes of
copies and calls are in `lowering/check/aliases.py`, those for reads in `lowering/check/initialized.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from codelet.errors import (
    ReadWriteRaceError,
    SelfAliasError,
    VariableError,
    WriteRaceError,
)
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import free_axes, touching_vertices, vertex_numbers
from codelet.views.sources import Variable, source_elements, source_variables
from codelet.views.tensor import Tensor
from lowering.check.aliases import affine_image, check_aliases
from lowering.check.constraints import placement_groups
from lowering.check.initialized import check_initialized, given_elements
from lowering.check.races import Image, aliased_address, shared_across_vertices, shared_by_families, shared_by_vertices
from lowering.check.stamps import (
    Addresses,
    Stamps,
    aliased_table_address,
    are_distinct,
    by_rows,
    shared_by_table_vertices,
    shared_by_tables,
)
from lowering.plan.plan import Plan
from lowering.plan.steps import ExecuteStep, Step
from lowering.plan.streams import check_streams
from lowering.plan.touch import Touch
from lowering.plan.walk import all_steps

# --- races --------------------------------------------------------------------------------------------


class _TouchedElements:
    """The elements that a field of a family touches, by the graph's numbers, in both of their forms."""

    def __init__(self, touch: Touch):
        assert touch.family is not None
        self.family: Family = touch.family
        self.is_written = touch.is_written
        self.tensor = touch.tensor

    @cached_property
    def image(self) -> Image | None:
        """The affine form; None for tables, joins and pads."""
        return affine_image(self.tensor, self.family.axes)

    @cached_property
    def addresses(self) -> Addresses:
        """Element numbers, -1 for padding, and the vertices that touch them."""
        tensor, ragged = self.tensor, self.tensor.rows is not None
        axes = free_axes(self.family, tensor) if ragged else self.family.axes
        if isinstance(tensor.source, Variable):
            narrow = tensor.source.size < 2**31
            touched = tensor.index.values_over((*axes, *range(tensor.ndim)), np.int32 if narrow else np.int64)
            origin = -tensor.source.first_element
        else:
            touched, origin = source_elements(tensor.source)[tensor.index.values(axes)], 0
        if ragged:
            return Addresses(touched, vertex_numbers(self.family, tensor).astype(np.int32), origin)
        return by_rows(touched.reshape(self.family.num_vertices, -1), origin)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the greatest of its addresses."""
        touched, origin = self.addresses.touched, self.addresses.origin
        return int(touched.min()) - origin, int(touched.max()) - origin

    @cached_property
    def is_one_to_one(self) -> bool:
        """Whether no two of its addresses are the same: the usual case, and seen the fastest."""
        low, high = self.span
        return are_distinct(self.addresses.counted_from(low), high - low + 1)

    @cached_property
    def interval(self) -> tuple[int, int]:
        """The least and the greatest element that it may touch."""
        if self.image is not None:
            return self.image.ends
        if isinstance(self.tensor.source, Variable):
            ends = self.tensor.index.bounds()
            assert ends is not None
            return ends[0] + self.tensor.source.first_element, ends[1] + self.tensor.source.first_element
        found = source_variables(self.tensor.source)
        if not found:  # padding alone
            return -1, -1
        return found[0].first_element, found[-1].first_element + found[-1].size


def _on_tables(question, first: _TouchedElements, second: _TouchedElements | None, *more: bool) -> int | None:
    """Ask a question of enumerated addresses, counted from the least one that `first`, which is written, touches."""
    low, high = first.span
    counted = [touch.addresses.counted_from(low) for touch in (first, second) if touch is not None]
    found = question(*counted, high - low + 1, *more)
    return None if found is None else found + low


def _aliased(touch: _TouchedElements) -> int | None:
    """An element that one vertex names twice in this field."""
    if touch.image is not None:
        return aliased_address(touch.image)
    return None if touch.is_one_to_one else _on_tables(aliased_table_address, touch, None)


def _shared_within(touch: _TouchedElements) -> int | None:
    """An element that two vertices touch through one field."""
    if touch.image is not None:
        return shared_by_vertices(touch.image)
    return None if touch.is_one_to_one else _on_tables(shared_by_table_vertices, touch, None)


def _shared_between(a: _TouchedElements, b: _TouchedElements) -> int | None:
    """An element that a vertex touches through `a` and a different vertex through `b`."""
    same = a.family is b.family
    if a.image is not None and b.image is not None:
        return shared_across_vertices(a.image, b.image) if same else shared_by_families(a.image, b.image)
    ragged = a.tensor.rows is not None or b.tensor.rows is not None
    alike = same and not ragged and a.addresses.origin == b.addresses.origin
    if alike and np.array_equal(a.addresses.touched, b.addresses.touched):
        return _shared_within(a)
    return _on_tables(shared_by_tables, a, b, same)


def _shared_by_one(a: _TouchedElements, b: _TouchedElements) -> int | None:
    """An element that one vertex touches through both of two fields, given that no two vertices share any."""
    if a.image is not None and b.image is not None:
        return shared_by_families(a.image, b.image)
    return _on_tables(shared_by_tables, a, b, False)


def _overlapping(touches: Sequence[_TouchedElements]) -> Iterator[tuple[_TouchedElements, _TouchedElements]]:
    """Pairs whose intervals overlap and of which one at least writes, by a sweep over their starts."""
    active: list[_TouchedElements] = []
    for touch in sorted(touches, key=lambda touch: touch.interval[0]):
        active = [other for other in active if other.interval[1] >= touch.interval[0]]
        for other in active:
            if touch.is_written or other.is_written:
                yield (other, touch) if other.is_written else (touch, other)
        active.append(touch)


_Pair = tuple[_TouchedElements, _TouchedElements]


def _of_affine(pairs: Sequence[_Pair]) -> list[_Pair]:
    """The pairs that arithmetic decides."""
    return [(a, b) for a, b in pairs if a.image is not None and b.image is not None]


def _are_apart_by_tables(pairs: Sequence[_Pair]) -> bool:
    """Whether no two vertices meet in those pairs that arithmetic does not decide; all of them are stamped at once.

    That no two vertices share an element through one written field is known. Of several fields of one shape each pair
    would go through all the elements of both: as many times as there are families.
    """
    by_table = [(a, b) for a, b in pairs if a.image is None or b.image is None]
    if len(by_table) < 2:
        return not by_table
    return all(map(_are_apart, _components(dict.fromkeys(touch for pair in by_table for touch in pair))))


def _components(touches: Iterable[_TouchedElements]) -> Iterator[list[_TouchedElements]]:
    """Touches in groups whose intervals do not overlap."""
    group: list[_TouchedElements] = []
    end = -1
    for touch in sorted(touches, key=lambda touch: touch.interval[0]):
        if group and touch.interval[0] > end:
            yield group
            group = []
        group.append(touch)
        end = max(end, touch.interval[1])
    yield group


def _are_apart(touches: Sequence[_TouchedElements]) -> bool:
    """Whether no two vertices of any family meet at an element that one of them writes."""
    families = list(dict.fromkeys(touch.family for touch in touches))
    starts = itertools.accumulate((family.num_vertices for family in families), initial=0)
    first_numbers = dict(zip(families, starts, strict=False))
    spans = [touch.span for touch in touches if touch.is_written]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    stamps = Stamps(high - low + 1)
    counted = [(touch, touch.addresses.counted_from(low), first_numbers[touch.family]) for touch in touches]
    written = (stamps.write(addresses, first) for touch, addresses, first in counted if touch.is_written)
    read = (stamps.is_read_elsewhere(addresses, first) for touch, addresses, first in counted if not touch.is_written)
    return all(written) and not any(read)


class _Conflict(NamedTuple):
    """An element, and whether vertices conflict by writing it twice rather than by reading it."""

    element: int
    both_write: bool


def _find_conflict(touches: Sequence[_TouchedElements]) -> _Conflict | None:
    for touch in touches:
        if touch.is_written:
            if (element := _aliased(touch)) is not None:
                return _Conflict(element, True)
            if (element := _shared_within(touch)) is not None:
                return _Conflict(element, True)
    # Writers first: an element that is both written twice and read is best told as written twice, and
    # once each element has one writer, whoever else reads it is another vertex.
    pairs = sorted(_overlapping(touches), key=lambda pair: not pair[1].is_written)
    pairs = _of_affine(pairs) if _are_apart_by_tables(pairs) else pairs
    for writer, other in pairs:
        element = _shared_between(writer, other)
        both = other.is_written
        if element is None and both and writer.family is other.family:
            element = _shared_by_one(writer, other)
        if element is not None:
            return _Conflict(element, both)
    return None


def _view_of(graph: Graph, element: int) -> Tensor:
    variable, position = graph.locate(element)
    return graph.variable(variable.name).flatten()[position : position + 1]


def _raise_conflict(graph: Graph, step: ExecuteStep, conflict: _Conflict) -> None:
    """Name the vertices that conflict, as the user knows them."""
    view, name = _view_of(graph, conflict.element), graph.element_text(conflict.element)
    # Of all that touch the element, which may be millions, two are named.
    writers = list(itertools.islice(touching_vertices(graph, view, written=True, compute_set=step.name), 2))
    if len(writers) == 1 and conflict.both_write:
        raise SelfAliasError(
            f"a vertex of compute set {step.name!r} writes {name} twice",
            given=writers[0],
            expected="outputs that name every element once",
            line=writers[0].line,
        )
    if conflict.both_write:
        raise WriteRaceError(
            f"two vertices of compute set {step.name!r} write {name}",
            given=f"{writers[0]}\n{writers[1]}",
            expected="at most one writer of an element in a compute set",
            fix="write to an element of its own for each vertex, or use two compute sets",
            line=writers[0].line,
        )
    readers = touching_vertices(graph, view, written=False, compute_set=step.name)
    reader = next(vertex for vertex in readers if vertex != writers[0])
    raise ReadWriteRaceError(
        f"a vertex of compute set {step.name!r} writes {name}, which another vertex of it reads",
        given=f"writer: {writers[0]}\nreader: {reader}",
        expected="that a compute set reads nothing that its other vertices write",
        fix="write to another variable, or use two compute sets",
        line=writers[0].line,
    )


def check_races(plan: Plan) -> None:
    """No two vertices of a compute set meet at an element that one of them writes.

    Raises:
        WriteRaceError, ReadWriteRaceError, SelfAliasError: naming an element and both vertices.
    """
    for step in dict.fromkeys(all_steps(plan.steps)):
        if isinstance(step, ExecuteStep):
            conflict = _find_conflict([_TouchedElements(touch) for touch in step.touches() if not touch.is_empty])
            if conflict is not None:
                _raise_conflict(plan.graph, step, conflict)


# --- variables and tiles ------------------------------------------------------------------------------


def _written_variables(steps: Sequence[Step]) -> Iterator[Variable]:
    for step in all_steps(tuple(steps)):
        yield from step.writes


def check_constants(plan: Plan) -> None:
    """Nothing writes a constant. (Vertices that would are refused when they are added.)

    Raises:
        VariableError: naming the constant.
    """
    for variable in _written_variables(plan.steps):
        if variable.value is not None:
            raise VariableError(f"a program writes the constant {variable.name!r}", expected="a variable")


def check_constraints(plan: Plan) -> None:
    """The constraints on the placement can be met, as far as is seen before it is placed.

    Raises:
        PlacementError: naming elements with contradicting constraints.
    """
    placement_groups(plan.graph)


def check_graph(plan: Plan) -> Plan:
    """The plan, once it has passed every check that does not depend on values of the host."""
    check_constraints(plan)
    check_streams(plan)
    check_aliases(plan)
    check_constants(plan)
    check_races(plan)
    return plan


def check(plan: Plan) -> Plan:
    """The plan, once it has passed every check, its inputs being all that the host gives."""
    check_graph(plan)
    check_initialized(plan, given_elements(plan))
    return plan
