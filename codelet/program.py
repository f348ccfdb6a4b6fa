"""Programs: what runs when. They name compute sets and tensors of one graph and are made of one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import ForeignGraphError, ProgramError
from codelet.family import ComputeSet
from codelet.tensor import Tensor, Variable, source_text, source_variables, type_text, views_padding

if TYPE_CHECKING:
    from codelet.graph import Graph


class Program(ABC):
    """What runs when. The kinds of program are the subclasses."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The program as text, one line a step, the steps of a body indented."""

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _indented(program: Program) -> Iterator[str]:
    return ("  " + line for line in program.lines())


@dataclass(frozen=True, eq=False)
class Execute(Program):
    """Run all vertices of a compute set."""

    compute_set: ComputeSet

    def lines(self) -> Iterator[str]:
        yield f"Execute({self.compute_set.name})"


@dataclass(frozen=True, eq=False, init=False)
class Sequence(Program):
    """Run programs one after another. A compute set stands for its `Execute`."""

    programs: tuple[Program, ...]

    def __init__(self, *programs: object):
        object.__setattr__(self, "programs", tuple(map(as_program, programs)))

    def lines(self) -> Iterator[str]:
        for program in self.programs:
            yield from program.lines()


@dataclass(frozen=True, eq=False)
class Stream:
    """Values that come from the host or go to it, one each time a copy from or to it runs.

    Made by `Graph.add_input_stream` and `Graph.add_output_stream`.

    Attributes:
        graph: the graph it belongs to.
        name: unique within the graph, scopes included.
        shape: the shape of one value.
        dtype: its NumPy dtype.
        is_input: whether it comes from the host.
    """

    graph: Graph
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    is_input: bool

    @property
    def type_text(self) -> str:
        """Shape and dtype of one value, as text."""
        return type_text(self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {'input' if self.is_input else 'output'} stream of {self.type_text}"


def _check_side(side: object, is_source: bool) -> None:
    """One side of a copy: a view without symbols, or a stream that goes its way."""
    if isinstance(side, Stream):
        if side.is_input != is_source:
            way = "comes from the host: nothing is copied to it" if side.is_input else "goes to the host: nothing comes"
            raise ProgramError(f"stream {side.name!r} {way}", given=side)
    elif not isinstance(side, Tensor):
        raise ProgramError(
            "a copy is between tensors and streams", given=side, expected="a tensor or a stream of the graph"
        )
    else:
        check_plain(side, "a copy")


def check_plain(tensor: Tensor, what: str) -> None:
    """See that a view in a program depends on no symbol.

    Raises:
        ProgramError: one that does.
    """
    if tensor.axes:
        raise ProgramError(
            f"{what} depends on a symbol",
            given=tensor,
            expected="a view without symbols",
            fix="name the whole range",
        )


@dataclass(frozen=True, eq=False)
class Copy(Program):
    """Copy the elements of one view to another, as if the source were read whole first; or a value of a stream.

    Args:
        source: a view, which may be of several variables, or an input stream, which gives its next value.
        destination: a view, or an output stream, to which the value is sent.

    Raises:
        ProgramError: views that differ in shape or dtype, or depend on symbols; padding as destination.
        ForeignGraphError: views of different graphs.
    """

    source: Tensor | Stream
    destination: Tensor | Stream

    def __post_init__(self) -> None:
        _check_side(self.source, True)
        _check_side(self.destination, False)
        if isinstance(self.source, Stream) and isinstance(self.destination, Stream):
            raise ProgramError(
                "a copy goes from a stream to a stream",
                given=f"{self.source} to {self.destination}",
                expected="a tensor",
            )
        if self.source.graph is not self.destination.graph:
            raise ForeignGraphError("a copy joins two graphs", given=f"{self.source} to {self.destination}")
        if self.source.shape != self.destination.shape or self.source.dtype != self.destination.dtype:
            raise ProgramError(
                "the two sides of a copy differ",
                given=f"{self.source} to {self.destination}",
                expected="one shape and dtype",
            )
        if isinstance(self.destination, Tensor) and views_padding(self.destination):
            raise ProgramError(
                "a copy would write padding, which is an element of no variable",
                given=self.destination,
                expected="a destination of elements of variables alone",
                fix="copy to the tensor that was padded, or slice the padding off both sides",
            )

    def lines(self) -> Iterator[str]:
        yield f"Copy({self.source} -> {self.destination})"


def _check_predicate(tensor: object, what: str) -> None:
    if (
        not isinstance(tensor, Tensor)
        or tensor.axes
        or tensor.shape != ()
        or not (tensor.dtype == bool or tensor.dtype.kind in "iu")
    ):
        raise ProgramError(
            f"{what} is not a truth value or a whole number in a variable",
            given=tensor,
            expected="a view of one element, of shape () and dtype bool or int32, say",
            fix="x.reshape(()) or x[0], and a codelet that compares",
        )


@dataclass(frozen=True, eq=False, init=False)
class Repeat(Program):
    """Run a body a fixed number of times.

    Args:
        count: how often; zero is allowed.
        body: a program, or a compute set.
        index: a variable of shape () and an integer dtype, set to 0, 1, ... before each turn.

    Raises:
        ProgramError: a count that is not a number, or an index that cannot count.
    """

    count: int
    body: Program
    index: Tensor | None

    def __init__(self, count: int, body: object, *, index: Tensor | None = None):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ProgramError(
                "a repeat's count is not a number of times", given=count, expected="a non-negative integer"
            )
        if index is not None and not (
            isinstance(index, Tensor) and index.is_whole_variable and index.shape == () and index.dtype.kind in "iu"
        ):
            raise ProgramError(
                "a repeat's index cannot count", given=index, expected="a variable of shape (), int32 say"
            )
        object.__setattr__(self, "count", int(count))
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "index", index)

    def lines(self) -> Iterator[str]:
        counted = f", index={self.index}" if self.index is not None else ""
        yield f"Repeat({self.count}{counted})"
        yield from _indented(self.body)


@dataclass(frozen=True, eq=False, init=False)
class RepeatWhile(Program):
    """Run a body as long as a predicate is true: run `condition`, look at the predicate, run the body, and again.

    It is differentiable in forward mode. With `max_steps` it is so in reverse mode instead, at the cost of running
    most turns a second time (by equinox's checkpointed loop, which refuses forward mode with a TypeError of JAX).

    Args:
        condition: a program or compute set that gives the predicate its value; it runs before each look.
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        body: a program or compute set.
        until: go on as long as the predicate is false instead.
        max_steps: the most turns there may be. The program aborts where the predicate still holds after them.

    Raises:
        ProgramError: a predicate that is none, or a number of steps that is no count.

    Source: program::RepeatWhileTrue and RepeatWhileFalse of Poplar's API reference.
    """

    condition: Program
    predicate: Tensor
    body: Program
    until: bool
    max_steps: int | None

    def __init__(
        self, condition: object, predicate: Tensor, body: object, *, until: bool = False, max_steps: int | None = None
    ):
        _check_predicate(predicate, "the predicate of a loop")
        if max_steps is not None and (
            isinstance(max_steps, bool) or not isinstance(max_steps, (int, np.integer)) or max_steps < 1
        ):
            raise ProgramError("max_steps is not a number of turns", given=max_steps, expected="a positive integer")
        object.__setattr__(self, "condition", as_program(condition))
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "until", bool(until))
        object.__setattr__(self, "max_steps", None if max_steps is None else int(max_steps))

    def lines(self) -> Iterator[str]:
        more = ", until=True" * self.until + (f", max_steps={self.max_steps}" if self.max_steps is not None else "")
        yield f"RepeatWhile({self.predicate}{more})"
        yield "  condition"
        yield from _indented(_Nested(self.condition))
        yield "  body"
        yield from _indented(_Nested(self.body))


@dataclass(frozen=True, eq=False)
class _Nested(Program):
    """A program indented once more in print."""

    program: Program

    def lines(self) -> Iterator[str]:
        yield from _indented(self.program)


@dataclass(frozen=True, eq=False, init=False)
class If(Program):
    """Run one program or another.

    Args:
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        then: what runs where it is true: a program or a compute set.
        otherwise: what runs where it is not; nothing when left off.

    Raises:
        ProgramError: a predicate that is none.

    Source: program::If of Poplar's API reference.
    """

    predicate: Tensor
    then: Program
    otherwise: Program

    def __init__(self, predicate: Tensor, then: object, otherwise: object = ()):
        _check_predicate(predicate, "the predicate of an If")
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "then", as_program(then))
        object.__setattr__(self, "otherwise", as_program(otherwise))

    def lines(self) -> Iterator[str]:
        yield f"If({self.predicate})"
        yield from _indented(self.then)
        other = list(_indented(self.otherwise))
        if other:
            yield "otherwise"
            yield from other


@dataclass(frozen=True, eq=False, init=False)
class Switch(Program):
    """Run the program that a number chooses.

    Args:
        control: a view of shape () of an integer.
        cases: for each value a program or a compute set.
        default: what runs for any other value; nothing when left off.

    Raises:
        ProgramError: a control that is no integer, or cases that are not numbered.

    Source: program::Switch of Poplar's API reference.
    """

    control: Tensor
    cases: Mapping[int, Program]
    default: Program

    def __init__(self, control: Tensor, cases: Mapping[int, object], default: object = ()):
        _check_predicate(control, "the control of a Switch")
        if not isinstance(cases, Mapping) or not all(
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in cases
        ):
            raise ProgramError(
                "the cases of a Switch are not numbered", given=cases, expected="{0: program, 1: program, ...}"
            )
        object.__setattr__(self, "control", control)
        object.__setattr__(self, "cases", {int(value): as_program(body) for value, body in cases.items()})
        object.__setattr__(self, "default", as_program(default))

    def lines(self) -> Iterator[str]:
        yield f"Switch({self.control})"
        for value, body in self.cases.items():
            yield f"case {value}"
            yield from _indented(body)
        other = list(_indented(self.default))
        if other:
            yield "default"
            yield from other


@dataclass(frozen=True, eq=False)
class Function:
    """A body that is defined once and called on different tensors. Made by `Graph.add_function`.

    Attributes:
        graph: the graph it belongs to.
        name: what it is called in print.
        body: what a call runs.
        parameters: the variables that stand for the arguments, by name.
    """

    graph: Graph
    name: str
    body: Program
    parameters: Mapping[str, Tensor]

    def lines(self) -> Iterator[str]:
        """The function as text, its body indented."""
        yield f"function {self.name}({', '.join(f'{name}={tensor}' for name, tensor in self.parameters.items())})"
        yield from _indented(self.body)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"function {self.name}({', '.join(self.parameters)})"


@dataclass(frozen=True, eq=False, init=False)
class Call(Program):
    """Run a function's body on tensors: they are copied to its parameters, and what the body writes is copied back.

    Between calls the parameters hold nothing. However often a function is called, its vertices are there
    once. A function cannot call itself: what it calls must exist before it.

    Args:
        function: made by `Graph.add_function`.
        arguments: a view for each of its parameters, by name.

    Raises:
        ProgramError: arguments that do not fit the parameters.
        ForeignGraphError: a tensor of another graph.

    Source: program::Call and Graph::addFunction of Poplar's API reference, where functions have no parameters.
    """

    function: Function
    arguments: Mapping[str, Tensor]

    def __init__(self, function: Function, /, **arguments: Tensor):
        if not isinstance(function, Function):
            raise ProgramError("something is called that is no function", given=function, expected="graph.add_function")
        if set(arguments) != set(function.parameters):
            raise ProgramError(
                f"the arguments of a call are not the parameters of {function.name!r}",
                given=", ".join(arguments) or "none",
                expected=", ".join(function.parameters) or "none",
            )
        for name, parameter in function.parameters.items():
            tensor = arguments[name]
            if not isinstance(tensor, Tensor) or tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
                raise ProgramError(
                    f"argument {name!r} does not fit the parameter of {function.name!r}",
                    given=tensor,
                    expected=type_text(parameter.dtype, parameter.shape),
                )
            check_plain(tensor, f"argument {name!r}")
            if tensor.graph is not function.graph:
                raise ForeignGraphError(f"argument {name!r} belongs to another graph", given=tensor)
            own = {parameter.source for parameter in function.parameters.values()}
            if own & set(source_variables(tensor.source)):
                raise ProgramError(
                    f"argument {name!r} is a parameter of {function.name!r} itself, which holds nothing between calls",
                    given=tensor,
                    expected="a view of other variables",
                    fix="variables of their own for the parameters of graph.add_function",
                )
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "arguments", {name: arguments[name] for name in function.parameters})

    def lines(self) -> Iterator[str]:
        given = ", ".join(f"{name}={tensor}" for name, tensor in self.arguments.items())
        yield f"Call({self.function.name}{', ' if given else ''}{given})"


@dataclass(frozen=True, eq=False)
class Print(Program):
    """Print a tensor's value each time it runs (`jax.debug.print`).

    Under `jax.vmap` each row prints; of an If or a Switch whose control differs between rows, every case does,
    since JAX then runs all of them.

    Args:
        tensor: a view without symbols.
        label: what stands before the value; the view's variable when left off.

    Raises:
        ProgramError: something else than a tensor, or a label that is no text.
    """

    tensor: Tensor
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise ProgramError("something other than a tensor is printed", given=self.tensor, expected="a tensor")
        if not isinstance(self.label, str | None):
            raise ProgramError("the label of a print is not text", given=self.label, expected="a string")
        check_plain(self.tensor, "what is printed")

    @property
    def text(self) -> str:
        """What stands before the value."""
        return source_text(self.tensor.source) if self.label is None else self.label

    def lines(self) -> Iterator[str]:
        yield f"Print({self.tensor}, {self.text!r})"


@dataclass(frozen=True, eq=False)
class AbortOn(Program):
    """Abort if a predicate is true. The engine then raises, and its state stays what it was before the run.

    What follows in the program may still run; nobody sees what it does. A lowered function raises as well,
    by `equinox.error_if`.

    Args:
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        message: what the error says.

    Raises:
        ProgramError: a predicate that is none, or a message that is no text.

    Source: program::AbortOnCondition of Poplar's API reference.
    """

    predicate: Tensor
    message: str

    def __post_init__(self) -> None:
        _check_predicate(self.predicate, "the predicate of an abort")
        if not isinstance(self.message, str):
            raise ProgramError("the message of an abort is not text", given=self.message, expected="a string")

    def lines(self) -> Iterator[str]:
        yield f"AbortOn({self.predicate}, {self.message!r})"


@dataclass(frozen=True, eq=False)
class WriteUndef(Program):
    """End the life of what a view holds: until it is written again, to read it is an error.

    Args:
        tensor: a view without symbols, of variables.

    Raises:
        ProgramError: something else.

    Source: program::WriteUndef of Poplar's API reference.
    """

    tensor: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise ProgramError(
                "something other than a tensor is made undefined", given=self.tensor, expected="a tensor"
            )
        check_plain(self.tensor, "what is made undefined")
        for variable in source_variables(self.tensor.source):
            if variable.value is not None:
                raise ProgramError("a constant is made undefined", given=self.tensor, expected="variables")

    def lines(self) -> Iterator[str]:
        yield f"WriteUndef({self.tensor})"


class Recording(Program):
    """The compute sets made inside `Graph.record()`, in order."""

    def __init__(self) -> None:
        self.compute_sets: list[ComputeSet] = []

    def lines(self) -> Iterator[str]:
        for compute_set in self.compute_sets:
            yield from Execute(compute_set).lines()


def as_program(value: object) -> Program:
    """A program as it is, a compute set as its execution, a list of them as their sequence.

    Raises:
        ProgramError: anything else.
    """
    if isinstance(value, Program):
        return value
    if isinstance(value, ComputeSet):
        return Execute(value)
    if isinstance(value, (list, tuple)):
        return Sequence(*value)
    raise ProgramError("a program is made of something else", given=value, expected="programs and compute sets")


def _parts(program: Program) -> tuple[list[Program], list[Any]]:
    """The programs a program is made of, and what else it names."""
    match program:
        case Execute(compute_set):
            return [], [compute_set]
        case Recording():
            return [], list(program.compute_sets)
        case Copy(source, destination):
            return [], [source, destination]
        case Sequence(programs):
            return list(programs), []
        case Repeat(_, body, index):
            return [body], [] if index is None else [index]
        case RepeatWhile(condition, predicate, body):
            return [condition, body], [predicate]
        case If(predicate, then, otherwise):
            return [then, otherwise], [predicate]
        case Switch(control, cases, default):
            return [*cases.values(), default], [control]
        case Call(function):
            return [], [function]  # its arguments are of the same graph, and its body was checked
        case Print(tensor) | AbortOn(tensor) | WriteUndef(tensor):
            return [], [tensor]
    raise ProgramError("a program of an unknown kind", given=type(program).__name__)


def check_program(program: Program, graph: Graph) -> None:
    """See that a program names only what belongs to `graph`.

    Raises:
        ForeignGraphError: a compute set, tensor, stream or function of another graph.
    """
    parts, named = _parts(program)
    for part in parts:
        check_program(part, graph)
    for thing in named:
        if thing.graph is not graph:
            raise ForeignGraphError(
                "a program names something of another graph",
                given=thing,
                expected="compute sets and tensors of the graph it runs on",
            )


def too_many_turns(predicate: Tensor, max_steps: int) -> str:
    """What the error says where a loop goes on beyond its `max_steps`."""
    return f"a loop over {source_text(predicate.source)} went on beyond its max_steps={max_steps}"


def written_variables(program: Program) -> set[Variable]:
    """The variables of which a program may write any element, the parameters of functions it calls aside."""
    match program:
        case Execute() | Recording():
            sets = [program.compute_set] if isinstance(program, Execute) else program.compute_sets
            written = [
                field.tensor
                for compute_set in sets
                for family in compute_set.graph.families
                if family.compute_set is compute_set
                for field in family.fields
                if field.is_written and field.tensor is not None
            ]
        case Copy(_, destination):
            written = [destination] if isinstance(destination, Tensor) else []
        case Repeat(_, _, index):
            written = [] if index is None else [index]
        case Call(function, arguments):
            own = written_variables(function.body)
            given = {parameter.source: arguments[name] for name, parameter in function.parameters.items()}
            named = {variable for part in own & set(given) for variable in source_variables(given[part].source)}
            return (own - set(given)) | named
        case _:
            written = []
    found = {variable for tensor in written for variable in source_variables(tensor.source)}
    return found.union(*(written_variables(part) for part in _parts(program)[0]))
