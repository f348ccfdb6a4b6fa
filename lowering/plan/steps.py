"""The steps of a plan: the program as a tree, each step with the variables that it reads and writes.

Each kind of step says here alone what it is as text (`lines`), what it touches beside what it is made of (`touches`),
and in `lowering/plan/control.py` how control goes through what it is made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from codelet.errors import Line
from codelet.graphs.family import Family, Field
from codelet.programs.control import Revolve
from codelet.programs.copies import Stream
from codelet.tracing.hints import GUESSED_TURNS
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.plan.touch import Touch, whole


@dataclass(frozen=True, eq=False, kw_only=True)
class _Flowing:
    """What reads and writes variables.

    Attributes:
        reads: the variables of which it reads any element, in the order in which they were made.
        writes: those of which it writes any; both are filled in by the dataflow pass.
        line: the user's line that made the program it is of; None where none did.
    """

    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    line: Line | None = None


@dataclass(frozen=True, eq=False)
class ExecuteStep(_Flowing):
    """Run the families of a compute set. They read the state as it was before the step.

    Attributes:
        name: of the compute set.
        families: of its vertices.
        parts: the families of the graph that a family stands for, its blocks or parts.
        apart: why a family is not one with others of its codelet that read and write the same.
    """

    name: str
    families: tuple[Family, ...]
    parts: Mapping[Family, tuple[Family, ...]] = dataclasses.field(default_factory=dict, kw_only=True)
    apart: Mapping[Family, str] = dataclasses.field(default_factory=dict, kw_only=True)

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"execute {self.name}{_flow(self)}"
        for family in self.families:
            yield from ("  " + line for line in str(family).split("\n"))

    def touches(self) -> Iterator[Touch]:
        """What each field of its vertices is connected to."""
        return iter(self._touches)

    @cached_property
    def _touches(self) -> tuple[Touch, ...]:
        found = []
        for family in self.families:
            for field in family.fields:
                if field.tensor is not None:
                    by = partial(self._reader, family, field)
                    mode = "update" if field.kind == "inout" else "write" if field.is_written else "read"
                    found.append(Touch(mode, field.tensor, by, family.lines[0], family, field))
        return tuple(found)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_touches"}

    def _reader(self, family: Family, field: Field) -> str:
        return f"field {field.name!r} of codelet {family.codelet.name!r} in compute set {self.name!r}"


@dataclass(frozen=True, eq=False)
class CopyStep(_Flowing):
    """Copy one view to another of the same shape and dtype."""

    source: Tensor
    destination: Tensor

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

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield Touch("read", self.source, lambda: f"a copy to {self.destination}", self.line)
        yield Touch("write", self.destination, line=self.line)


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

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield from (whole("update", variable) for variable in self.variables)


@dataclass(frozen=True, eq=False)
class AddUpStep:
    """Add up a variable along its first dimension, to another. Only the pass `split_sums` makes such steps."""

    source: Variable
    destination: Variable

    @property
    def reads(self) -> tuple[Variable, ...]:
        """What is added up."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Variable, ...]:
        """The sum."""
        return (self.destination,)

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"add up {self.source.name} -> {self.destination.name}"

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield whole("read", self.source)
        yield whole("write", self.destination)


@dataclass(frozen=True, eq=False)
class RepeatStep(_Flowing):
    """Run the steps of a body `count` times; `index`, where there is one, counts the iterations from `first`.

    A variable that is no variable of the graph may say where to count from, if that is known only when it runs.

    With `recompute`, its derivatives keep its state after every so many iterations, or so many states at once, and make
    again what iterations between make.

    `carried` is filled in by the pass `prune`: those of its writes that a later iteration or step needs.
    """

    count: int
    body: tuple[Step, ...]
    index: Variable | None = None
    first: int | Variable = 0
    carried: tuple[Variable, ...] | None = None
    recompute: int | Revolve | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        named = self.first.name if isinstance(self.first, Variable) else self.first
        start = f" from {named}" if named else ""
        counted = f" counted by {self.index.name}{start}" if self.index is not None else ""
        kept = "" if self.recompute is None else f" kept every {self.recompute}"
        if isinstance(self.recompute, Revolve):
            kept = f" kept {self.recompute.snapshots} times at once"
        yield f"repeat {self.count}{counted}{kept}{_flow(self)}{_carried(self)}"
        yield from _indented(self.body)

    def touches(self) -> Iterator[Touch]:
        """What counts the iterations, which is set before each."""
        if self.index is not None:
            yield whole("write", self.index)


class CountedTurns(NamedTuple):
    """How many iterations of a loop on a condition are counted, and by whose word."""

    number: int
    source: str
    is_guess: bool = False


@dataclass(frozen=True, eq=False)
class WhileStep(_Flowing):
    """Run `condition`; as long as the predicate then is not `until`, run `body` and `condition` again.

    With `max_iterations`, a predicate that still holds after so many iterations raises the flag `abort`, with `code`,
    whose error names `bound`. `turns` is how many there are as far as the user says. `carried` is filled in by the pass
    `prune`, as of a `RepeatStep`.
    """

    condition: tuple[Step, ...]
    predicate: Tensor
    body: tuple[Step, ...]
    until: bool = False
    max_iterations: int | None = None
    abort: Variable | None = None
    code: int = 0
    turns: int | None = None
    bound: int | None = None
    carried: tuple[Variable, ...] | None = None

    @property
    def counted_turns(self) -> CountedTurns:
        """How often its body counts, where time is counted; its condition counts once more."""
        if self.turns is not None:
            return CountedTurns(self.turns, "as its trip_count= says")
        if self.max_iterations is not None:
            return CountedTurns(self.max_iterations, "its max_iterations")
        return CountedTurns(GUESSED_TURNS, "a guess: RepeatWhile(..., trip_count=) says it", is_guess=True)

    def lines(self) -> Iterator[str]:
        """The step as text."""
        most = "" if self.max_iterations is None else f" at most {self.max_iterations} times"
        yield f"{'until' if self.until else 'while'} {self.predicate}{most}{_flow(self)}{_carried(self)}"
        yield from _titled("condition", self.condition)
        yield from _titled("body", self.body)

    def touches(self) -> Iterator[Touch]:
        """What it looks at, and the flag."""
        yield Touch("read", self.predicate, lambda: "the predicate of a loop", self.line)
        if self.abort is not None:
            yield whole("update", self.abort)


@dataclass(frozen=True, eq=False)
class SwitchStep(_Flowing):
    """Run the branch of the value that the control has, or the last one where it has none of `values`.

    `carried` is filled in by the pass `prune`: those of its writes that a later step needs.
    """

    control: Tensor
    values: tuple[int, ...]
    branches: tuple[tuple[Step, ...], ...]
    carried: tuple[Variable, ...] | None = None

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"switch {self.control}{_flow(self)}{_carried(self)}"
        for value, branch in zip((*self.values, "else"), self.branches, strict=True):
            yield from _titled(str(value), branch)

    def touches(self) -> Iterator[Touch]:
        """What it looks at."""
        yield Touch("read", self.control, lambda: "a choice between programs", self.line)


class Derivative(NamedTuple):
    """What the derivatives of a function are those of.

    Attributes:
        codelet: computes what the function writes to its parameters.
        inputs: the parameter of each of the codelet's inputs.
        outputs: the parameter of each of its outputs, all that the function writes.
        same_values: whether its values may stand for the function's.
    """

    codelet: TracedCodelet
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    same_values: bool


@dataclass(frozen=True, eq=False)
class FunctionBody(_Flowing):
    """What calls of one function have in common; one object however often it is called.

    `kept` is filled in by the pass `prune`: those of its writes of which something from before a call is needed.
    """

    name: str
    parameters: tuple[Variable, ...]
    body: tuple[Step, ...]
    derivative: Derivative | None = None
    kept: tuple[Variable, ...] | None = None

    @property
    def handed_in(self) -> tuple[Variable, ...]:
        """The variables whose values before a call it depends on: what it reads, and what it writes in part alone."""
        return tuple(dict.fromkeys((*self.reads, *(self.writes if self.kept is None else self.kept))))

    @property
    def looked_at(self) -> tuple[Variable, ...]:
        """The parameters that its derivatives depend on, besides what its body does."""
        return () if self.derivative is None else self.derivative.inputs

    def lines(self) -> Iterator[str]:
        """The function as text, its body indented."""
        kept = f" keeps {_names(self.kept)}" if self.kept else ""
        yield f"function {self.name}({_names(self.parameters)}){_flow(self)}{kept}"
        yield from _indented(self.body)

    @property
    def written(self) -> tuple[int, ...]:
        """The places of the parameters that the body writes."""
        writes = set(self.writes)
        return tuple(k for k, parameter in enumerate(self.parameters) if parameter in writes)


@dataclass(frozen=True, eq=False)
class CallStep(_Flowing):
    """Copy the arguments to a function's parameters, run its body, and copy back what of them it writes."""

    function: FunctionBody
    arguments: tuple[Tensor, ...]

    def lines(self) -> Iterator[str]:
        """The step as text."""
        given = zip(self.function.parameters, self.arguments, strict=True)
        yield f"call {self.function.name}({', '.join(f'{p.name}={t}' for p, t in given)}){_flow(self)}"

    def touches(self) -> Iterator[Touch]:
        """The arguments, as far as the body touches their parameters."""
        handed_in = self.function.handed_in
        for k, (parameter, argument) in enumerate(zip(self.function.parameters, self.arguments, strict=True)):
            if k in self.function.written:
                yield Touch("update" if parameter in handed_in else "write", argument, line=self.line)
            elif parameter in handed_in:
                yield Touch("read", argument, line=self.line)


@dataclass(frozen=True, eq=False)
class CallsStep(_Flowing):
    """Calls of one function, one after another, as a loop. Only the pass `group_calls` makes such steps.

    Attributes:
        calls: the calls.
        shared: parameters that get the same tensor in every call and are only read.
        stacked: parameters that get another tensor in each call, with these stacked along a first dimension.
        carried: parameters whose value goes from one call to the next, with what the first call gets.
        passed_on: for some of these, the parameter that the call before has written it through, if another.
        collected: those of the stacked parameters that the function writes.
    """

    calls: tuple[CallStep, ...]
    shared: dict[Variable, Tensor]
    stacked: dict[Variable, Tensor]
    carried: dict[Variable, Tensor]
    passed_on: dict[Variable, Variable]
    collected: dict[Variable, Tensor]

    @property
    def function(self) -> FunctionBody:
        """What is called."""
        return self.calls[0].function

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"{len(self.calls)} calls of {self.function.name} as one loop{_flow(self)}"
        for what, given in (("shares", self.shared), ("stacks", self.stacked), ("carries", self.carried)):
            if given:
                yield f"  {what} {', '.join(f'{p.name}={t}' for p, t in given.items())}"

    def touches(self) -> Iterator[Touch]:
        """Nothing but what its calls do."""
        yield from ()


@dataclass(frozen=True, eq=False)
class PrintStep(_Flowing):
    """Print a view's value behind a text."""

    tensor: Tensor
    text: str

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"print {self.tensor} as {self.text!r}"

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield Touch("read", self.tensor, lambda: "a print", self.line)


@dataclass(frozen=True, eq=False)
class AbortStep(_Flowing):
    """Raise the flag with a code if a predicate is true and the flag is not raised yet."""

    predicate: Tensor
    abort: Variable
    code: int

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"abort on {self.predicate}"

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield Touch("read", self.predicate, lambda: "the predicate of an abort", self.line)
        yield whole("update", self.abort)


@dataclass(frozen=True, eq=False)
class StreamStep(_Flowing):
    """Copy the next value of an input stream to a view, or a view's value to an output stream."""

    stream: Stream
    tensor: Tensor

    def lines(self) -> Iterator[str]:
        """The step as text."""
        name, view = self.stream.name, self.tensor
        yield f"receive {name} -> {view}" if self.stream.is_input else f"send {view} -> {name}"

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        mode = "write" if self.stream.is_input else "read"
        yield Touch(mode, self.tensor, lambda: f"a copy to stream {self.stream.name!r}", self.line)


@dataclass(frozen=True, eq=False)
class UndefStep(_Flowing):
    """End the life of what a view holds."""

    tensor: Tensor

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"undefine {self.tensor}"

    def touches(self) -> Iterator[Touch]:
        """What it touches."""
        yield Touch("end", self.tensor)


Step = (
    ExecuteStep
    | CopyStep
    | RotateStep
    | AddUpStep
    | RepeatStep
    | WhileStep
    | SwitchStep
    | CallStep
    | CallsStep
    | PrintStep
    | AbortStep
    | StreamStep
    | UndefStep
)


def _indented(steps: Sequence[Step]) -> Iterator[str]:
    return ("  " + line for step in steps for line in step.lines())


def _titled(title: str, steps: Sequence[Step]) -> Iterator[str]:
    yield f"  {title}"
    yield from ("  " + line for line in _indented(steps))


def _names(variables: tuple[Variable, ...]) -> str:
    return ", ".join(variable.name for variable in variables)


def handed_on(step: RepeatStep | WhileStep | SwitchStep) -> tuple[Variable, ...]:
    """What a loop or a choice hands on; all that it writes, where nobody knows what is needed."""
    return step.writes if step.carried is None else step.carried


def _carried(step: RepeatStep | WhileStep | SwitchStep) -> str:
    return "" if step.carried is None else f" carries {_names(step.carried) or 'nothing'}"


def _flow(step: Step | FunctionBody) -> str:
    reads = f" reads {_names(step.reads)}" if step.reads else ""
    writes = f" writes {_names(step.writes)}" if step.writes else ""
    return reads + writes
