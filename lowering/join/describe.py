"""Describe: what compute sets compute of each element, however they were cut into vertices, by whoever wrote them.

In come the families of compute sets that run one after another. Out come descriptions: a family that all families of a
compute set are blocks and phases of, found and checked as for fast execution (`join.py`); sums of partial sums as sums
of what these are sums of. What is no partition of one is several descriptions, each of what it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_arguments
from codelet.errors import ForeignGraphError, ProgramError
from codelet.graphs.descriptions import Description, Operand
from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.graphs.operations import recorded
from codelet.jaxprs.rebuild import inline
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.program import Execute, Program, Recording, as_program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.affine import sorted_symbols
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.join.alike_families import join_alike
from lowering.join.join import Composing, WholeReduction
from lowering.join.lattice_pieces import numbers_as_access
from lowering.join.reduced import ReducedFamily, strided_index, wholes_of
from lowering.join.refine import refine
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow

Computed = Mapping[Family, WholeReduction | tuple[Family, ...]]
"""What the families of a compute set compute: reductions, or what they are of the graph's."""

StageNames = Mapping[ComputeSet, Mapping[frozenset[str], str]]
"""What the axes of compute sets are called, by the fields that move along them."""

# --- names --------------------------------------------------------------------------------------------------


def _apart(names: Iterable[tuple[Axis, str]]) -> dict[Axis, str]:
    """The names of axes, of which none has that of another; those of axes that stand within a block are numbers."""
    given: dict[Axis, str] = {}
    for axis, name in names:
        own = name.partition("*")[0]
        tried = itertools.chain([own] if own.isidentifier() else [], map("i{}".format, itertools.count(len(given))))
        given[axis] = next(each for each in tried if each not in given.values())
    return given


def _alone(axes: Mapping[str, Iterable[str]]) -> dict[frozenset[str], str]:
    """Axes by the fields that move along them: those along which no other axis's fields do, all of them."""
    moving = {axis: frozenset(fields) for axis, fields in axes.items()}
    return {fields: axis for axis, fields in moving.items() if [*moving.values()].count(fields) == 1}


def _stage_names(graph: Graph, compute_sets: Sequence[ComputeSet]) -> StageNames:
    """What records call the axes of compute sets, by the fields that move along them, or by the operands that do."""
    chosen = set(compute_sets)
    found: dict[ComputeSet, dict[frozenset[str], str]] = {}
    for operation in recorded(graph):
        for compute_set in chosen & operation.stages.keys():
            stage, *others = operation.stages[compute_set]
            axes: dict[str, list[str]] = {}
            for field, own in stage.along.items() if not others else ():
                for axis in own:
                    axes.setdefault(axis, []).append(field)
            read = {axis: [field for field in own if field in stage.codelet.inputs] for axis, own in axes.items()}
            found[compute_set] = _alone(read) | _alone(axes)
    return found


def _names_of(
    axes: Sequence[tuple[Axis, str]],
    operands: Sequence[Operand],
    results: Sequence[Operand],
    given: Mapping[frozenset[str], str],
) -> dict[Axis, str]:
    """What axes are called: as those of a record along which the same fields move, if some do; or as in their grid."""
    named = [name for _, name in axes]
    for fields in (operands, [*operands, *results]):
        moving = [
            frozenset(f.name for f in fields if any(axis in line.keys for line in f.access.lines)) for axis, _ in axes
        ]
        named = [
            given.get(own, name) if moving.count(own) == 1 else name for own, name in zip(moving, named, strict=True)
        ]
    return _apart((axis, name) for (axis, _), name in zip(axes, named, strict=True))


# --- axes ---------------------------------------------------------------------------------------------------


class _Views:
    """Views of one element each, or of a block, over some axes, that may be told apart along what they are views of.

    Attributes:
        axes: and what they are called in the grid.
        indices: of the views, none of a ragged one.
        sources: what they are of; None for constants.
    """

    def __init__(self, axes: Iterable[tuple[Axis, str]], views: Sequence[tuple[Index, Tensor | None]]):
        self.axes = [(axis, name) for axis, name in axes if axis.extent > 1]
        self.indices = [index for index, _ in views]
        self.sources = [None if tensor is None else tensor.source for _, tensor in views]
        while self._splits():
            pass

    def accesses(self) -> list[Access]:
        """Where each view is along the dimensions of its source, or of these with neighbours made one."""
        return [
            numbers_as_access(index) if source is None else Access.of(index, source.shape)
            for index, source in zip(self.indices, self.sources, strict=True)
        ]

    def _splits(self) -> bool:
        """Cut one axis that runs on from one row of a source into the next, if there is one, at the ends of rows."""
        for access, source in zip(self.accesses(), self.sources, strict=True):
            if source is None or access.shape == source.shape:
                continue
            merged = next(d for d, n in enumerate(access.shape) if n != source.shape[d])
            steps = [(key, abs(step)) for line in access.lines for key, step in line.steps if isinstance(key, Axis)]
            for (axis, step), length in itertools.product(steps, reversed(source.shape[merged + 1 :])):
                count, left = divmod(length, step)
                ends_rows = not left and 1 < count < axis.extent and axis.extent % count == 0
                if ends_rows and self._cut(axis, count):
                    return True
        return False

    def _cut(self, axis: Axis, count: int) -> bool:
        """Cut an axis in two, of which the inner has so many places; False where a table goes along it."""
        if any(axis in table.keys for index in self.indices for table in index.tables):
            return False
        outer, inner = Grid([range(axis.extent // count), range(count)]).axes

        def cut(index: Index) -> Index:
            steps = dict(index.symbols)
            step = steps.pop(axis, 0)
            steps |= {outer: step * count, inner: step} if step else {}
            return replace(index, symbols=sorted_symbols(steps))

        self.indices = [*map(cut, self.indices)]
        at = [own for own, _ in self.axes].index(axis)
        self.axes[at : at + 1] = [(outer, self.axes[at][1]), (inner, "")]
        return True


def _by_axes(index: Index, axes: Sequence[Axis]) -> Index:
    """An index without tables, with axes for its dimensions."""
    return strided_index(index.offset, (), (), {**dict(index.symbols), **dict(zip(axes, index.strides, strict=True))})


# --- descriptions -------------------------------------------------------------------------------------------


def _multiplied(*factors: jax.Array, dtype: np.dtype | None) -> jax.Array:
    """The product of some numbers, in a dtype; of one that itself."""
    return functools.reduce(jnp.multiply, [factor.astype(dtype) for factor in factors])


def _of_reduction(own: ReducedFamily, compute_sets: tuple[ComputeSet, ...], names: StageNames) -> Description:
    """The description of a family of reductions."""
    summed = Grid([range(n) for n in own.factors[0].shape]).axes
    axes = [*own.axes, *((axis, "") for axis in summed)]
    tensors = [*own.factors, own.out]
    views = _Views(axes, [(_by_axes(t.index, summed if t is not own.out else ()), t) for t in tensors])
    *read, written = views.accesses()
    called = own.map.fields if len(set(own.map.fields)) == len(read) else [f"x{k}" for k in range(len(read))]
    operands = tuple(map(Operand, called, (t.source for t in own.factors), read))
    numbers = [jax.ShapeDtypeStruct((), factor.dtype) for factor in own.factors]
    element = own.map.term or jax.make_jaxpr(functools.partial(_multiplied, dtype=own.map.reduced_in))(*numbers)
    (name,) = own.family.codelet.outputs
    results = (Operand(name, own.out.source, written),)
    return Description(
        compute_sets,
        _names_of(views.axes, operands, results, names.get(compute_sets[0], {})),
        operands,
        results,
        element,
        own.map.name.removeprefix("reduce_"),
        own.map.reduced_in,
        own.family.codelet.name,
    )


def _view(field: Field) -> tuple[Index, Tensor | None] | Refused:
    """What a field is connected to."""
    if field.tensor is None:
        assert field.state is not None
        numbers = field.state.index
        return (
            Refused("its vertices have constants that are no numbers of a grid") if numbers is None else (numbers, None)
        )
    if field.tensor.rows is not None:
        return Refused("its fields have lengths of their own")
    return (field.tensor.index, field.tensor) if field.tensor.size else Refused("it has no elements")


def _of_family(family: Family, names: StageNames) -> Description | Refused:
    """The description of a family as it is."""
    fields = [*family.inputs, *family.outputs]
    views = [_view(field) for field in fields]
    refused = next((own for own in views if isinstance(own, Refused)), None)
    if refused is not None or not family.num_vertices:
        return refused or Refused("it has no vertices")
    apart = _Views(
        zip(family.axes, family.axis_names, strict=True), [own for own in views if not isinstance(own, Refused)]
    )
    operands = [
        Operand(field.name, source, access)
        for field, source, access in zip(fields, apart.sources, apart.accesses(), strict=True)
    ]
    read, written = tuple(operands[: len(family.inputs)]), tuple(operands[len(family.inputs) :])
    called_so = _names_of(apart.axes, read, written, names.get(family.compute_set, {}))
    element, called = inline(family.codelet.jaxpr), family.codelet.name
    return Description((family.compute_set,), called_so, read, written, element, called=called)


def _together(found: Sequence[WholeReduction]) -> Iterator[tuple[ReducedFamily, tuple[Family, ...]]]:
    """Reductions, all of one kind as the one that they are parts of, if they are; with their families in the graph."""
    if len(found) > 1:
        whole = next((own for own in wholes_of([one.reduced for one in found]) if isinstance(own, ReducedFamily)), None)
        if whole is not None:
            yield whole, tuple(dict.fromkeys(family for one in found for family in one.parts))
            return
    yield from found


def _of_step(computed: Computed, names: StageNames) -> Iterator[Description | Refused]:
    """The descriptions of what a compute set computes."""
    reductions: dict[object, list[WholeReduction]] = {}
    for own in computed.values():
        if isinstance(own, WholeReduction):
            kind = own.reduced.out.source, own.reduced.map.name, *(t.source for t in own.reduced.factors)
            reductions.setdefault(kind, []).append(own)
    for found in reductions.values():
        for reduced, parts in _together(found):
            of_parts = [*(family.compute_set for family in parts), reduced.family.compute_set]
            last = of_parts[-1]
            before = sorted({own for own in of_parts if own is not last}, key=lambda own: own.number)
            yield _of_reduction(reduced, (*before, last), names)
    rest = [family for family, own in computed.items() if not isinstance(own, WholeReduction)]
    for joined in join_alike([refine(family) or family for family in rest]):
        yield _of_family(joined.family, names)


def _composed(computed: Computed) -> Iterator[Variable]:
    """The variables of which a compute set reads nothing where it is composed with what wrote them."""
    for family, own in computed.items():
        if isinstance(own, WholeReduction):
            read = {variable for factor in own.reduced.factors for variable in source_variables(factor.source)}
            for field in family.inputs:
                tensor = field.tensor
                yield from set(source_variables(tensor.source)) - read if tensor is not None else ()


def _compute_sets(program: Program) -> list[ComputeSet]:
    """Those that a program runs one after another.

    Raises:
        ProgramError: a program of something else.
    """
    match program:
        case Execute(compute_set):
            return [compute_set]
        case Recording():
            return [*program.compute_sets]
        case ProgramSequence(programs):
            return [own for part in programs for own in _compute_sets(part)]
    raise ProgramError(
        "what is described does more than to run compute sets one after another",
        given=f"{program!s:.80}",
        expected="compute sets of the graph: one, or a list of them",
    )


@old_arguments(compute_sets="program")
def describe(graph: Graph, program: object = None) -> tuple[Description | Refused, ...]:
    """Describe vertices as equations. Partial sums in several compute sets are described as the whole sum.

    Args:
        graph: the graph of the compute sets.
        program: a compute set, or a list of them, in order. Default: all.

    Returns:
        Descriptions, which print as equations, in the order of the compute sets; `Refused` with a reason if a compute
            set has none.

    Raises:
        ProgramError: not a graph, or a program of more than compute sets.
        ForeignGraphError: compute sets of another graph.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def dot(a, b):
    ...     return a @ b
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> a, b = graph.add_variable("a", (4, 6)), graph.add_variable("b", (6, 2))
    >>> y = graph.add_variable("y", (4, 2))
    >>> i, j = cl.grid(i=4, j=2)
    >>> graph.add_vertex("multiply", dot, a=a[i], b=b[:, j], out=y[i, j])
    >>> print(*cl.describe(graph))
    out[i, j] = sum over i2 of a[i, i2] * b[i2, j]
    """
    if not isinstance(graph, Graph):
        raise ProgramError("something other than a graph is described", given=f"{graph!r:.80}", expected="a cl.Graph")
    chosen = graph.compute_sets if program is None else _compute_sets(as_program(program))
    if any(own.graph is not graph for own in chosen):
        raise ForeignGraphError("a compute set of another graph is described", given=chosen, expected=graph)
    given, others = {own.number for own in chosen}, []
    for family in graph.families:
        if family.compute_set.number not in given:
            others += [field.tensor for field in family.fields if field.is_read and field.tensor is not None]
    read = dict.fromkeys(variable for tensor in others for variable in source_variables(tensor.source))
    plan = flow(collect(graph, ProgramSequence(*map(Execute, chosen)), (), [*map(whole_view, read)]))
    composing, names = Composing(plan), _stage_names(graph, chosen)
    composing.body(plan.steps)
    found: list[Description | Refused] = []
    for step in plan.steps:
        computed = composing.computed.get(step, {})
        left_out = set(_composed(computed))
        found = [own for own in found if isinstance(own, Refused) or not {f.source for f in own.results} <= left_out]
        found += _of_step(computed, names)
    return tuple(found)
