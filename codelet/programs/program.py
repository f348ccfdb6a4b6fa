"""Programs: what runs when. They name compute sets and tensors of one graph and are made of one another.

Copies are in `copies.py`, functions and their calls in `functions.py`; `walk.py` looks through all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from codelet.display import as_block
from codelet.errors import Line, ProgramError, VariableError, user_line
from codelet.graphs.family import ComputeSet
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor, source_text, source_variables

MAX_DEPTH = 200
"""How deep programs may be nested: passes go down into bodies by recursion. Sequences in sequences do not count."""


class Program(ABC):
    """What runs when. The kinds of program are the subclasses.

    Attributes:
        depth: how deep loops, choices and calls are nested in it.
        line: the user's line that made it.
    """

    depth: int = 0
    line: Line | None

    def __new__(cls, *_: object, **__: object) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "line", user_line())
        return made

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The program as text, one line a step, the steps of a body indented."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return as_block(self)


def set_depth(program: Program, *bodies: Program) -> None:
    """Note how deep a program is that is made of others.

    Raises:
        ProgramError: it is nested too deep.
    """
    depth = 1 + max(body.depth for body in bodies)
    if depth > MAX_DEPTH:
        raise ProgramError(
            "a program is nested too deep",
            given=f"{depth} loops, choices and calls within one another",
            expected=f"at most {MAX_DEPTH}",
            fix="put programs that follow one another into one sequence; let a Switch choose between many cases",
        )
    object.__setattr__(program, "depth", depth)


def indented(program: Program) -> Iterator[str]:
    """The lines of a program, indented."""
    return ("  " + line for line in program.lines())


@dataclass(frozen=True, eq=False)
class Execute(Program):
    """Run all vertices of a compute set."""

    compute_set: ComputeSet

    def __post_init__(self) -> None:
        if not isinstance(self.compute_set, ComputeSet):
            raise ProgramError(
                "something other than a compute set is executed",
                given=f"{self.compute_set!r:.80}",
                expected="what graph.add_compute_set returns",
                fix="a program and a list of programs run as they are, without Execute",
            )

    def lines(self) -> Iterator[str]:
        yield f"Execute({self.compute_set.name})"


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
        return Sequence(value)
    raise ProgramError(
        "a program is made of something else",
        given=f"{value!r:.80}",
        expected="programs and compute sets, or lists of them",
        fix=_advice(value),
    )


def _advice(value: object) -> str | None:
    """What may have been meant by something that is no program."""
    if value is None:
        return "[] does nothing"
    if isinstance(value, type) and issubclass(value, Program):
        return f"make one: cl.{value.__name__}(...)"
    if isinstance(value, str):
        return "graph.add_compute_set gives the compute set itself, as does `with graph.record()` around its vertices"
    if isinstance(value, (Tensor, Codelet)):
        return "graph.add_vertex(compute_set, codelet, ...), and the compute set in the program"
    if isinstance(value, Mapping):
        return "one of them, or an engine of several programs: cl.Engine(graph, programs)"
    if isinstance(value, Iterable):
        return "a list of it, as in cl.Sequence(*programs)"
    if hasattr(value, "parameters") and hasattr(value, "body"):
        return "call it: cl.Call(function, parameter=view, ...)"
    return "what a function makes is a program, the function is none: call it" if callable(value) else None


def _flattened(programs: Iterable[object]) -> tuple[Program, ...]:
    """Programs, and what stands for programs, in lists however deep, one after another."""
    found: list[Program] = []
    inside: list[tuple[Iterator[object], object]] = [(iter(programs), None)]
    while inside:
        for value in inside[-1][0]:
            if isinstance(value, (list, tuple)):
                if any(value is outer for _, outer in inside):
                    raise ProgramError(
                        "a list of programs contains itself",
                        given=f"a list of {len(value)}",
                        expected="programs that are made before what is made of them",
                        fix="cl.Repeat or cl.RepeatWhile, to run something again and again",
                    )
                inside.append((iter(value), value))
                break
            program = as_program(value)
            if isinstance(program, Sequence):
                found.extend(program.programs)
            else:
                found.append(program)
        else:
            inside.pop()
    return tuple(found)


@dataclass(frozen=True, eq=False, init=False)
class Sequence(Program):
    """Run programs one after another. A compute set stands for its `Execute`, a list for its parts.

    A sequence in a sequence is its parts: however one is put together, it is flat.
    """

    programs: tuple[Program, ...]

    def __init__(self, *programs: object):
        flat = _flattened(programs)
        object.__setattr__(self, "programs", flat)
        object.__setattr__(self, "depth", max((program.depth for program in flat), default=0))

    def lines(self) -> Iterator[str]:
        for program in self.programs:
            yield from program.lines()


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


def check_variables(tensor: Tensor, what: str, line: Line | None = None) -> None:
    """See that what a program writes is of no constant.

    Raises:
        VariableError: naming the constant.
    """
    for variable in source_variables(tensor.source):
        if variable.value is not None:
            raise VariableError(
                f"{what} writes the constant {variable.name!r}",
                given=tensor,
                expected="a variable",
                fix="graph.add_variable, and a copy of the constant to it",
                line=line,
            )


def check_predicate(tensor: object, what: str) -> None:
    if (
        not isinstance(tensor, Tensor)
        or tensor.axes
        or tensor.shape != ()
        or not (tensor.dtype == bool or tensor.dtype.kind in "iu")
    ):
        fix = "x.reshape(()) or x[0], and a codelet that compares"
        if isinstance(tensor, (Program, ComputeSet)):
            fix = "the order is RepeatWhile(condition, predicate, body), If(predicate, then, otherwise)"
        elif isinstance(tensor, (bool, int, np.bool_)):
            fix = "Python's own if, where the answer is known while the program is made"
        raise ProgramError(
            f"{what} is not a truth value or a whole number in a variable",
            given=f"{tensor!r:.80}",
            expected="a view of one element, of shape () and dtype bool or int32, say",
            fix=fix,
        )


_MOST_TURNS = 2**31 - 1  # JAX counts turns in int32


def _check_index(count: int, index: object) -> None:
    """See that a variable can count the turns of a repeat, up to the last one."""
    if not (isinstance(index, Tensor) and index.is_whole_variable and index.shape == () and index.dtype.kind in "iu"):
        raise ProgramError(
            "a repeat's index cannot count",
            given=f"{index!r:.80}",
            expected="a whole variable of shape () and an integer dtype: graph.add_variable('turn', (), 'int32')",
            fix="cl.Copy(turn, view) in the body, where the count is needed elsewhere",
        )
    if next(iter(source_variables(index.source))).value is not None:
        raise ProgramError("a repeat's index is a constant, which cannot count", given=index, expected="a variable")
    if count and count - 1 > np.iinfo(index.dtype).max:
        raise ProgramError(
            "a repeat's index cannot count so far",
            given=f"{count} turns, counted by {index}",
            expected=f"at most {int(np.iinfo(index.dtype).max) + 1} turns",
            fix="a wider dtype, int32 say, or a Repeat in a Repeat",
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

    def __init__(self, count: int, body: object, *more: object, index: Tensor | None = None):
        if more:
            raise ProgramError(
                "a repeat is given more than a count and a body",
                given=f"{more[0]!r:.80}",
                expected="cl.Repeat(count, body), or cl.Repeat(count, body, index=variable)",
                fix="a list of what is repeated: cl.Repeat(count, [first, second])",
            )
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ProgramError(
                "a repeat's count is not a number of times",
                given=f"{count!r:.80}",
                expected="a non-negative integer, and then what is repeated",
                fix="cl.RepeatWhile, for a number that only the program knows",
            )
        if count > _MOST_TURNS:
            raise ProgramError(
                "a repeat's count is too large to be counted",
                given=count,
                expected=f"at most {_MOST_TURNS:,}",
                fix="a Repeat in a Repeat",
            )
        if index is not None:
            _check_index(int(count), index)
        object.__setattr__(self, "count", int(count))
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "index", index)
        set_depth(self, self.body)

    def lines(self) -> Iterator[str]:
        counted = f", index={self.index}" if self.index is not None else ""
        yield f"Repeat({self.count}{counted})"
        yield from indented(self.body)


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
        check_predicate(predicate, "the predicate of a loop")
        if max_steps is not None and (
            isinstance(max_steps, bool) or not isinstance(max_steps, (int, np.integer)) or max_steps < 1
        ):
            raise ProgramError("max_steps is not a number of turns", given=max_steps, expected="a positive integer")
        if max_steps is not None and max_steps > _MOST_TURNS:
            raise ProgramError(
                "max_steps is too large to be counted",
                given=max_steps,
                expected=f"at most {_MOST_TURNS:,}",
                fix="leave it off, for a loop without a bound",
            )
        if not isinstance(until, (bool, np.bool_)):
            raise ProgramError(
                "until is not a truth value",
                given=f"{until!r:.80}",
                expected="until=True, to go on as long as the predicate is false",
            )
        object.__setattr__(self, "condition", as_program(condition))
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "until", bool(until))
        object.__setattr__(self, "max_steps", None if max_steps is None else int(max_steps))
        set_depth(self, self.condition, self.body)

    def lines(self) -> Iterator[str]:
        more = ", until=True" * self.until + (f", max_steps={self.max_steps}" if self.max_steps is not None else "")
        yield f"RepeatWhile({self.predicate}{more})"
        yield "  condition"
        yield from indented(_Nested(self.condition))
        yield "  body"
        yield from indented(_Nested(self.body))


@dataclass(frozen=True, eq=False)
class _Nested(Program):
    """A program indented once more in print."""

    program: Program

    def lines(self) -> Iterator[str]:
        yield from indented(self.program)


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
        check_predicate(predicate, "the predicate of an If")
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "then", as_program(then))
        object.__setattr__(self, "otherwise", as_program(otherwise))
        set_depth(self, self.then, self.otherwise)

    def lines(self) -> Iterator[str]:
        yield f"If({self.predicate})"
        yield from indented(self.then)
        other = list(indented(self.otherwise))
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
        check_predicate(control, "the control of a Switch")
        if not isinstance(cases, Mapping) or not all(
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in cases
        ):
            raise ProgramError(
                "the cases of a Switch are not numbered", given=cases, expected="{0: program, 1: program, ...}"
            )
        object.__setattr__(self, "control", control)
        object.__setattr__(self, "cases", {int(value): as_program(body) for value, body in cases.items()})
        object.__setattr__(self, "default", as_program(default))
        set_depth(self, *self.cases.values(), self.default)

    def lines(self) -> Iterator[str]:
        yield f"Switch({self.control})"
        for value, body in self.cases.items():
            yield f"case {value}"
            yield from indented(body)
        other = list(indented(self.default))
        if other:
            yield "default"
            yield from other


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
        check_predicate(self.predicate, "the predicate of an abort")
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


def too_many_turns(predicate: Tensor, max_steps: int) -> str:
    """What the error says where a loop goes on beyond its `max_steps`."""
    return f"a loop over {source_text(predicate.source)} went on beyond its max_steps={max_steps}"
