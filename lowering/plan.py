"""The plan: what the passes share. Families, the program as a tree of steps, reads and writes of every step."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.copies import Stream
from codelet.display import as_block, as_html
from codelet.errors import Line
from codelet.family import Family
from codelet.graph import Graph
from codelet.index import Axis, Index
from codelet.program import Program
from codelet.tensor import Pad, Source, Tensor, Variable


@dataclass(frozen=True, eq=False)
class ExecuteStep:
    """Run the families of a compute set. They read the state as it was before the step.

    `reads` and `writes`, here and in the other steps, are filled in by the dataflow pass: the variables
    of which the step reads or writes any element, in the order in which they were made. `line`, of other steps, is
    the user's line that made the program they are of.
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
    line: Line | None = None

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

    A variable that is no variable of the graph may say where to count from, if that is known only when it runs.

    `carried` is filled in by the pass `prune`: those of its writes that a later turn or step needs.
    """

    count: int
    body: tuple[Step, ...]
    index: Variable | None = None
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    first: int | Variable = 0
    carried: tuple[Variable, ...] | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        named = self.first.name if isinstance(self.first, Variable) else self.first
        start = f" from {named}" if named else ""
        counted = f" counted by {self.index.name}{start}" if self.index is not None else ""
        carried = "" if self.carried is None else f" carries {_names(self.carried) or 'nothing'}"
        yield f"repeat {self.count}{counted}{_flow(self)}{carried}"
        for step in self.body:
            yield from ("  " + line for line in step.lines())


@dataclass(frozen=True, eq=False)
class WhileStep:
    """Run `condition`; as long as the predicate then is not `until`, run `body` and `condition` again.

    With `max_steps`, a predicate that still holds after so many turns raises the flag `abort`, with `code`.
    """

    condition: tuple[Step, ...]
    predicate: Tensor
    body: tuple[Step, ...]
    until: bool = False
    max_steps: int | None = None
    abort: Variable | None = None
    code: int = 0
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        most = "" if self.max_steps is None else f" at most {self.max_steps} times"
        yield f"{'until' if self.until else 'while'} {self.predicate}{most}{_flow(self)}"
        yield from _indented("condition", self.condition)
        yield from _indented("body", self.body)


@dataclass(frozen=True, eq=False)
class SwitchStep:
    """Run the branch of the value that the control has, or the last one where it has none of `values`."""

    control: Tensor
    values: tuple[int, ...]
    branches: tuple[tuple[Step, ...], ...]
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"switch {self.control}{_flow(self)}"
        for value, branch in zip((*self.values, "else"), self.branches, strict=True):
            yield from _indented(str(value), branch)


@dataclass(frozen=True, eq=False)
class FunctionBody:
    """What calls of one function have in common; one object however often it is called."""

    name: str
    parameters: tuple[Variable, ...]
    body: tuple[Step, ...]
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()

    def lines(self) -> Iterator[str]:
        """The function as text, its body indented."""
        yield f"function {self.name}({_names(self.parameters)}){_flow(self)}"
        for step in self.body:
            yield from ("  " + line for line in step.lines())

    @property
    def written(self) -> tuple[int, ...]:
        """The places of the parameters that the body writes."""
        return tuple(k for k, parameter in enumerate(self.parameters) if parameter in self.writes)


@dataclass(frozen=True, eq=False)
class CallStep:
    """Copy the arguments to a function's parameters, run its body, and copy back what of them it writes."""

    function: FunctionBody
    arguments: tuple[Tensor, ...]
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        given = zip(self.function.parameters, self.arguments, strict=True)
        yield f"call {self.function.name}({', '.join(f'{p.name}={t}' for p, t in given)}){_flow(self)}"


@dataclass(frozen=True, eq=False)
class PrintStep:
    """Print a view's value behind a text."""

    tensor: Tensor
    text: str
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"print {self.tensor} as {self.text!r}"


@dataclass(frozen=True, eq=False)
class AbortStep:
    """Raise the flag with a code if a predicate is true and the flag is not raised yet."""

    predicate: Tensor
    abort: Variable
    code: int
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"abort on {self.predicate}"


@dataclass(frozen=True, eq=False)
class StreamStep:
    """Copy the next value of an input stream to a view, or a view's value to an output stream."""

    stream: Stream
    tensor: Tensor
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield (
            f"receive {self.stream.name} -> {self.tensor}"
            if self.stream.is_input
            else (f"send {self.tensor} -> {self.stream.name}")
        )


@dataclass(frozen=True, eq=False)
class UndefStep:
    """End the life of what a view holds."""

    tensor: Tensor
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"undefine {self.tensor}"


Step = (
    ExecuteStep
    | CopyStep
    | RotateStep
    | RepeatStep
    | WhileStep
    | SwitchStep
    | CallStep
    | PrintStep
    | AbortStep
    | StreamStep
    | UndefStep
)


def bodies(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps that a step is made of; a call's is that of its function."""
    match step:
        case RepeatStep():
            return (step.body,)
        case WhileStep():
            return (step.condition, step.body)
        case SwitchStep():
            return step.branches
        case CallStep():
            return (step.function.body,)
    return ()


def with_bodies(step: Step, made: Sequence[tuple[Step, ...]]) -> Step:
    """A step made of other lists of steps. Not for calls, which share theirs."""
    match step:
        case RepeatStep():
            return replace(step, body=made[0])
        case WhileStep():
            return replace(step, condition=made[0], body=made[1])
        case SwitchStep():
            return replace(step, branches=tuple(made))
    assert not made
    return step


def _indented(title: str, steps: Sequence[Step]) -> Iterator[str]:
    yield f"  {title}"
    for step in steps:
        yield from ("    " + line for line in step.lines())


def _names(variables: tuple[Variable, ...]) -> str:
    return ", ".join(variable.name for variable in variables)


def _flow(step: Step | FunctionBody) -> str:
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
        streams: those that the steps copy from or to, in the order in which they were added.
        abort: the flag of shape () that says whether the program aborted, and which of `messages` it aborted
            with, counted from 1. It is no variable of the graph; None where nothing aborts.
        messages: what the aborts say.
        program: what was collected, of which the steps may be a part.
    """

    graph: Graph
    variables: tuple[Variable, ...]
    inputs: tuple[Variable, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    streams: tuple[Stream, ...] = ()
    abort: Variable | None = None
    messages: tuple[str, ...] = ()
    program: Program | None = None

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of all steps, each once, in the order in which they first run."""
        return tuple(dict.fromkeys(family for step in all_steps(self.steps) for family in _families(step)))

    def __str__(self) -> str:
        rows = [f"inputs  {', '.join(variable.name for variable in self.inputs)}"]
        rows += [f"streams {', '.join(stream.name for stream in self.streams)}"] * bool(self.streams)
        called = (step.function for step in all_steps(self.steps) if isinstance(step, CallStep))
        rows += [line for function in dict.fromkeys(called) for line in function.lines()]
        rows += [line for step in self.steps for line in step.lines()]
        rows += [f"outputs {', '.join(map(str, self.outputs))}"]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        heading = f"plan of {len(self.steps):,} steps, {sum(f.num_vertices for f in self.families):,} vertices"
        return as_html(heading, as_block(self))


def _families(step: Step) -> tuple[Family, ...]:
    return step.families if isinstance(step, ExecuteStep) else ()


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step and, after it, those it is made of; those of a function after its first call."""
    functions: set[FunctionBody] = set()
    waiting = list(reversed(steps))
    while waiting:
        step = waiting.pop()
        yield step
        if isinstance(step, CallStep):
            if step.function in functions:
                continue
            functions.add(step.function)
        for body in reversed(bodies(step)):
            waiting += reversed(body)


def has_effects(step: Step) -> bool:
    """Whether a step does more than to give variables values: prints, or takes or gives values of streams."""
    return any(
        isinstance(part, (PrintStep, StreamStep))
        or (isinstance(part, ExecuteStep) and any(family.codelet.has_effects for family in part.families))
        for part in all_steps((step,))
    )


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


class _Keys:
    """The keys of steps; that of a function is made once."""

    def __init__(self) -> None:
        self.functions: dict[FunctionBody, Hashable] = {}

    def of(self, step: Step) -> Hashable:
        """What two steps have in common that do the same."""
        kind, inner = type(step).__name__, tuple(tuple(map(self.of, body)) for body in self._bodies(step))
        match step:
            case ExecuteStep():
                return tuple(map(_family_key, step.families))
            case CopyStep():
                return kind, _tensor_key(step.source, ()), _tensor_key(step.destination, ())
            case RotateStep():
                return kind, tuple(variable.number for variable in step.variables)
            case RepeatStep():
                return kind, step.count, inner, step.index and step.index.number
            case WhileStep():
                return kind, _tensor_key(step.predicate, ()), step.until, step.max_steps, inner
            case SwitchStep():
                return kind, _tensor_key(step.control, ()), step.values, inner
            case CallStep():
                return kind, self._function(step.function), tuple(_tensor_key(t, ()) for t in step.arguments)
            case PrintStep():
                return kind, _tensor_key(step.tensor, ()), step.text
            case AbortStep():
                return kind, _tensor_key(step.predicate, ()), step.code
            case StreamStep():
                return kind, step.stream.name, _tensor_key(step.tensor, ())
            case UndefStep():
                return kind, _tensor_key(step.tensor, ())
        raise AssertionError(step)

    def _bodies(self, step: Step) -> tuple[tuple[Step, ...], ...]:
        return () if isinstance(step, CallStep) else bodies(step)

    def _function(self, function: FunctionBody) -> Hashable:
        if function not in self.functions:
            body = tuple(map(self.of, function.body))
            self.functions[function] = function.name, tuple(p.number for p in function.parameters), body
        return self.functions[function]


def structure(plan: Plan) -> Hashable:
    """What two plans have in common when they compute the same thing from the same inputs in the same way."""
    variables = tuple((v.name, v.shape, v.dtype.name, _array_key(v.value)) for v in plan.variables)
    return (
        variables,
        tuple(variable.number for variable in plan.inputs),
        tuple(_tensor_key(tensor, ()) for tensor in plan.outputs),
        tuple(map(_Keys().of, plan.steps)),
        plan.messages,
        tuple((stream.name, stream.shape, stream.dtype.name) for stream in plan.streams),
    )
