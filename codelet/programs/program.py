"""Programs: control flow. They name compute sets and tensors of one graph, and contain one another.

Copies are in `copies.py`, functions and their calls in `functions.py`; `walk.py` walks over all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from codelet.display import as_block, in_one_line
from codelet.errors import Line, ProgramError, user_line
from codelet.programs.compute_sets import ComputeSet
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor

MAX_DEPTH = 200
"""How deep programs may be nested: passes go down into bodies by recursion. Sequences in sequences do not count."""


class Program(ABC):
    """Control flow: which compute sets, copies and streams run, in which order. Each kind of program is a subclass.

    Attributes:
        depth: how deep loops, branches and calls are nested in it.
        line: the user's line that made it.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> first, second = graph.add_compute_set("first"), graph.add_compute_set("second")
    >>> print(cl.Repeat(3, [first, second]))
    Repeat(3)
      Execute(first)
      Execute(second)
    """

    depth: int = 0
    line: Line | None

    def __new__(cls, *_: object, **__: object) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "line", user_line())
        return made

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The program as text, one line per step, with bodies indented.

        >>> import codelet as cl
        >>> step = cl.Graph().add_compute_set("step")
        >>> list(cl.Repeat(3, step).lines())
        ['Repeat(3)', '  Execute(step)']
        """

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return in_one_line(self, type(self).__name__)

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


@dataclass(frozen=True, eq=False, repr=False)
class Execute(Program):
    """Run all vertices of a compute set.

    Args:
        compute_set: made by `Graph.add_compute_set`. Where a program is expected, the compute set may stand for it.

    Raises:
        ProgramError: not a compute set.

    Source: program::Execute of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> n = graph.add_variable("n", (), "int32")
    >>> count = graph.add_compute_set("count")
    >>> graph.add_vertex(count, cl.codelet(lambda n: {"n": n + 1}), n=n)
    >>> int(cl.interpret(graph, [cl.Execute(count), count], values={n: 40}, outputs=n)[n])
    42
    """

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
    """The likely intention behind something that is no program."""
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
    """The parts of nested lists of programs, in order."""
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


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Sequence(Program):
    """Run programs one after another.

    A compute set stands for its `Execute`, and a list for a sequence of its parts. A nested sequence is flattened.

    Args:
        programs: programs, compute sets, or lists of them.

    Raises:
        ProgramError: something else, such as a tensor or a codelet.

    Source: program::Sequence of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> first, second = graph.add_compute_set("first"), graph.add_compute_set("second")
    >>> print(cl.Sequence(first, [second, first]))
    Execute(first)
    Execute(second)
    Execute(first)
    """

    programs: tuple[Program, ...]

    def __init__(self, *programs: object):
        flat = _flattened(programs)
        object.__setattr__(self, "programs", flat)
        object.__setattr__(self, "depth", max((program.depth for program in flat), default=0))

    def lines(self) -> Iterator[str]:
        for program in self.programs:
            yield from program.lines()


class Recording(Program):
    """The compute sets made inside `Graph.record()`, in order.

    Attributes:
        compute_sets: those.
        is_aside: True if they run only where a program names them.
    """

    def __init__(self, is_aside: bool = False) -> None:
        self.compute_sets: list[ComputeSet] = []
        self.is_aside = is_aside

    def lines(self) -> Iterator[str]:
        for compute_set in self.compute_sets:
            yield from Execute(compute_set).lines()
