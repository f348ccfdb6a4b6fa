"""The plan: what the passes share. Families, the program as a tree of steps, reads and writes of every step."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from codelet.family import Family
from codelet.graph import Graph
from codelet.index import Axis, Index
from codelet.tensor import Pad, Source, Tensor, Variable


@dataclass(frozen=True, eq=False)
class ExecuteStep:
    """Run the families of a compute set. They read the state as it was before the step.

    `reads` and `writes`, here and in the other steps, are filled in by the dataflow pass: the variables
    of which the step reads or writes any element, in the order in which they were made.
    """

    name: str
    families: tuple[Family, ...]
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"execute {self.name}{_flow(self)}"
        for family in self.families:
            yield from ("  " + line for line in str(family).split("\n"))


@dataclass(frozen=True, eq=False)
class CopyStep:
    """Copy one view to another of the same shape and dtype."""

    source: Tensor
    destination: Tensor
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()

    @property
    def whole_variables(self) -> tuple[Variable, Variable] | None:
        """Source and destination, where all of a variable is copied to all of another."""
        if not (self.source.is_whole_variable and self.destination.is_whole_variable):
            return None
        source, destination = self.source.source, self.destination.source
        assert isinstance(source, Variable)
        assert isinstance(destination, Variable)
        return None if source is destination else (source, destination)

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"copy {self.source} -> {self.destination}"


@dataclass(frozen=True, eq=False)
class RotateStep:
    """Give each variable the array of the one before it, and the first that of the last: nothing is copied.

    The variables, two or more, have one shape and dtype. Only the pass `rotate` makes such steps.
    """

    variables: tuple[Variable, ...]

    @property
    def reads(self) -> tuple[Variable, ...]:
        """All of its variables."""
        return self.variables

    @property
    def writes(self) -> tuple[Variable, ...]:
        """All of its variables."""
        return self.variables

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"rotate {' -> '.join(variable.name for variable in (*self.variables, self.variables[0]))}"


@dataclass(frozen=True, eq=False)
class RepeatStep:
    """Run the steps of a body `count` times; `index`, where there is one, counts the turns from `first`.

    `carried` is filled in by the pass `prune`: those of its writes that a later turn or step needs.
    """

    count: int
    body: tuple[Step, ...]
    index: Variable | None = None
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    first: int = 0
    carried: tuple[Variable, ...] | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        start = f" from {self.first}" if self.first else ""
        counted = f" counted by {self.index.name}{start}" if self.index is not None else ""
        carried = "" if self.carried is None else f" carries {_names(self.carried) or 'nothing'}"
        yield f"repeat {self.count}{counted}{_flow(self)}{carried}"
        for step in self.body:
            yield from ("  " + line for line in step.lines())


Step = ExecuteStep | CopyStep | RotateStep | RepeatStep


def _names(variables: tuple[Variable, ...]) -> str:
    return ", ".join(variable.name for variable in variables)


def _flow(step: Step) -> str:
    reads = f" reads {_names(step.reads)}" if step.reads else ""
    writes = f" writes {_names(step.writes)}" if step.writes else ""
    return reads + writes


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph and program as the passes see them. Passes return new plans and never change one.

    Attributes:
        graph: what was lowered; the plan holds all it needs of the graph, which may grow meanwhile.
        variables: all variables of the graph when it was lowered.
        inputs: the variables that are given a value from outside.
        outputs: the views that are read at the end.
        steps: what runs, in order.
    """

    graph: Graph
    variables: tuple[Variable, ...]
    inputs: tuple[Variable, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of all steps, each once, in the order in which they first run."""
        return tuple(dict.fromkeys(family for step in all_steps(self.steps) for family in _families(step)))

    def __str__(self) -> str:
        rows = [f"inputs  {', '.join(variable.name for variable in self.inputs)}"]
        rows += [line for step in self.steps for line in step.lines()]
        rows += [f"outputs {', '.join(map(str, self.outputs))}"]
        return "\n".join(rows)


def _families(step: Step) -> tuple[Family, ...]:
    return step.families if isinstance(step, ExecuteStep) else ()


def all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step and, after a repeat, those of its body."""
    for step in steps:
        yield step
        if isinstance(step, RepeatStep):
            yield from all_steps(step.body)


# --- structural equality ------------------------------------------------------------------------------


def _array_key(array: np.ndarray | None) -> Hashable:
    if array is None:
        return None
    numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # not `tobytes`, which would copy
    digest = hashlib.blake2b(numbers.data, digest_size=16).digest()
    return array.shape, array.dtype.name, digest


def _index_key(index: Index | None, axes: tuple[Axis, ...]) -> Hashable:
    if index is None:
        return None
    name = lambda key: key if isinstance(key, int) else f"axis {axes.index(key)}"  # noqa: E731
    symbols = tuple((axes.index(axis), coefficient) for axis, coefficient in index.symbols)
    tables = tuple((tuple(map(name, t.keys)), _array_key(t.values), t.scale) for t in index.tables)
    return index.offset, index.shape, index.strides, symbols, tables


def _source_key(source: Source) -> Hashable:
    if isinstance(source, Variable):
        return source.number
    if isinstance(source, Pad):
        # Bytes, since a NaN is not equal to itself.
        return source.widths, source.value.tobytes(), _tensor_key(source.part, ())
    return source.dimension, tuple(_tensor_key(part, ()) for part in source.parts)


def _tensor_key(tensor: Tensor | None, axes: tuple[Axis, ...]) -> Hashable:
    if tensor is None:
        return None
    rows = tensor.rows
    ragged = rows and (tensor.ragged_dimension, tuple(map(axes.index, rows.axes)), _array_key(rows.offsets))
    return _source_key(tensor.source), _index_key(tensor.index, axes), ragged


def _family_key(family: Family) -> Hashable:
    fields = tuple(
        (
            field.name,
            field.kind,
            field.type,
            _tensor_key(field.tensor, family.axes),
            None
            if field.state is None
            else (_index_key(field.state.index, family.axes), _array_key(field.state.array)),
        )
        for field in family.fields
    )
    return family.codelet, family.extents, fields


def _step_key(step: Step) -> Hashable:
    if isinstance(step, ExecuteStep):
        return tuple(map(_family_key, step.families))
    if isinstance(step, CopyStep):
        return _tensor_key(step.source, ()), _tensor_key(step.destination, ())
    if isinstance(step, RotateStep):
        return tuple(variable.number for variable in step.variables)
    return step.count, tuple(map(_step_key, step.body)), step.index and step.index.number, step.first


def structure(plan: Plan) -> Hashable:
    """What two plans have in common when they compute the same thing from the same inputs in the same way."""
    variables = tuple((v.name, v.shape, v.dtype.name, _array_key(v.value)) for v in plan.variables)
    return (
        variables,
        tuple(variable.number for variable in plan.inputs),
        tuple(_tensor_key(tensor, ()) for tensor in plan.outputs),
        tuple(map(_step_key, plan.steps)),
    )
