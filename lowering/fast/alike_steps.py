"""Alike steps: compute sets that are the same but for which variables they touch, put together once.

The updates of parameters of one shape, and the layers of one kind of block, are compute sets whose families differ in
the variables alone. In come a compute set and a pass that changes its families; out comes the result of the pass,
which, where a compute set like it came before, is that of that one, with the variables of this one.

The form of a compute set names all of it except which variables they are, in which order lines were written, and on
which tiles vertices lie. Of tiles the pass may ask no more than whether they have any. Those with tables, ragged
fields, arrays for vertices, combined axes or constants have no form, and are passed each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codelet.errors import Line
from codelet.graphs.family import Family, Field, VertexState
from codelet.programs.compute_sets import ComputeSet
from codelet.views.affine import sorted_symbols
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.sources import Patch, Patchwork, Source, Variable
from codelet.views.tensor import Tensor
from lowering.plan.dataflow import ordered
from lowering.plan.steps import ExecuteStep


class _NoForm(Exception):
    """Something of a compute set that its form does not name."""


def _index_form(index: Index, axes: Sequence[Axis]) -> Hashable:
    if index.tables:
        raise _NoForm
    symbols = tuple((axes.index(axis), coefficient) for axis, coefficient in index.symbols)
    return index.offset, index.shape, index.strides, symbols


@dataclass
class _Renaming:
    """The names of a compute set for those of one that is like it.

    Attributes:
        sources: for each variable and patchwork, and all that are made of them, that of the other compute set.
        lines, families: the same of lines and families.
        compute_set: the other one's.
    """

    sources: dict[Source, Source]
    lines: dict[Line, Line]
    families: dict[Family, Family]
    compute_set: ComputeSet

    def source(self, source: Source) -> Source:
        if source not in self.sources:
            assert isinstance(source, Patchwork)  # one that was made of those of the compute set
            patches = [
                patch if patch.variable is None else replace(patch, variable=self.source(patch.variable))
                for patch in source.patches
            ]
            self.sources[source] = Patchwork(source.graph, source.dtype, source.shape, tuple(patches))
        return self.sources[source]

    def variables(self, variables: Sequence[Variable]) -> tuple[Variable, ...]:
        return ordered(self.source(variable) for variable in variables)  # type: ignore[arg-type]

    def family(self, family: Family) -> Family:
        """A family, over new axes: two that are composed must not have one in common."""
        if family not in self.families:
            assert family.tile is None
            by_place = sorted(family.axes, key=lambda axis: axis.sort_key)
            fresh = Grid([axis.values for axis in by_place], [axis.name for axis in by_place]).axes
            axes = dict(zip(by_place, fresh, strict=True))

            def index(own: Index) -> Index:
                assert not own.tables
                symbols = sorted_symbols({axes[axis]: coefficient for axis, coefficient in own.symbols})
                return Index(own.offset, own.shape, own.strides, symbols)

            def field(own: Field) -> Field:
                if own.tensor is not None:
                    tensor = Tensor(self.source(own.tensor.source), index(own.tensor.index))
                    return Field(own.name, own.kind, own.type, tensor)
                assert own.state is not None
                assert own.state.index is not None
                return Field(own.name, own.kind, own.type, None, VertexState(index(own.state.index)))

            self.families[family] = Family(
                self.compute_set,
                family.codelet,
                tuple(axes[axis] for axis in family.axes),
                family.axis_names,
                tuple(map(field, family.fields)),
                None,
                tuple(self.lines[line] for line in family.lines),
            )
        return self.families[family]

    def step(self, made: ExecuteStep, given: ExecuteStep) -> ExecuteStep:
        """The result of a pass on a compute set, for one that is like it."""
        own: dict[str, Any] = {
            "name": given.name,
            "families": tuple(map(self.family, made.families)),
            "reads": self.variables(made.reads),
            "writes": self.variables(made.writes),
            "line": given.line,
        }
        own["parts"] = {self.family(family): tuple(map(self.family, parts)) for family, parts in made.parts.items()}
        own["apart"] = {self.family(family): reason for family, reason in made.apart.items()}
        return replace(made, **own)


class Names:
    """The variables that a compute set names, in the order in which its form names them; and that form.

    Attributes:
        sources: variables and patchworks.
        lines: the user's lines.
        families: all of them.
        compute_set: the compute set of its vertices.
        form: the rest of it.
    """

    def __init__(self, step: ExecuteStep):
        self.sources: dict[Source, int] = {}
        self.lines: dict[Line, int] = {}
        self.families = {family: k for k, family in enumerate(step.families)}
        self.compute_set = step.families[0].compute_set
        families = tuple(map(self._family, step.families))
        variables = [source.number for source in self.sources if isinstance(source, Variable)]
        order = tuple(sorted(range(len(variables)), key=variables.__getitem__))
        self.form: Hashable = type(step), families, order

    def _source(self, source: Source) -> Hashable:
        if source in self.sources:
            return self.sources[source]
        patches: Hashable = None
        if isinstance(source, Patchwork):
            patches = tuple(map(self._patch, source.patches))
        elif source.value is not None:
            raise _NoForm
        self.sources[source] = len(self.sources)
        return source.shape, source.dtype, patches

    def _patch(self, patch: Patch) -> Hashable:
        own = None if patch.variable is None else self._source(patch.variable)
        value = None if patch.value is None else patch.value.tobytes()
        return own, value, _index_form(patch.index, ()), _index_form(patch.places, ())

    def _field(self, field: Field, axes: Sequence[Axis]) -> Hashable:
        kind = field.name, field.kind, field.type
        if field.tensor is not None:
            return (*kind, self._source(field.tensor.source), _index_form(field.tensor.index, axes))
        if field.state is None or field.state.index is None:
            raise _NoForm
        return (*kind, _index_form(field.state.index, axes))

    def _family(self, family: Family) -> Hashable:
        axes = family.axes
        if family.rows or family.inside or family.line_of_vertex is not None or any(axis.ancestors for axis in axes):
            raise _NoForm
        order = tuple(sorted(range(len(axes)), key=lambda k: axes[k].sort_key))
        kinds = tuple((axis.values, axis.name) for axis in axes)
        lines = tuple(self.lines.setdefault(line, len(self.lines)) for line in family.lines)
        fields = tuple(self._field(field, axes) for field in family.fields)
        return family.codelet, kinds, order, family.axis_names, fields, family.tile is None, lines

    def instead_of(self, other: Names) -> _Renaming:
        """These names for those of a compute set of the same form."""
        pairs = (zip(theirs, own, strict=True) for theirs, own in zip(other._all, self._all, strict=True))
        sources, lines, families = map(dict, pairs)
        return _Renaming(sources, lines, families, self.compute_set)

    def variables_for(self, other: Names) -> dict[Variable, Variable]:
        """For each variable of a compute set of the same form the one that stands in its place here."""
        pairs = zip(other.sources, self.sources, strict=True)
        return {their: own for their, own in pairs if isinstance(their, Variable) and isinstance(own, Variable)}

    @property
    def _all(self) -> tuple[Any, Any, Any]:
        return self.sources, self.lines, self.families


def names_of(step: ExecuteStep) -> Names | None:
    """The variables that a compute set names, and its form; None where it has no form."""
    if len({family.compute_set for family in step.families}) != 1:
        return None
    try:
        return Names(step)
    except _NoForm:
        return None


class OncePerForm:
    """A pass over compute sets that is run once for all that are alike."""

    def __init__(self, change: Callable[[ExecuteStep], ExecuteStep]):
        self.change = change
        self.known: dict[Hashable, tuple[Names, ExecuteStep, ExecuteStep]] = {}

    def __call__(self, step: ExecuteStep) -> ExecuteStep:
        """The result of the pass on a compute set."""
        names = names_of(step)
        if names is None:
            return self.change(step)
        if names.form not in self.known:
            made = self.change(step)
            self.known[names.form] = names, step, made
            return made
        before, given, made = self.known[names.form]
        return step if made is given else names.instead_of(before).step(made, step)
