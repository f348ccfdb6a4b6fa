"""Programs: what runs when. They name compute sets and tensors of one graph and are made of one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from codelet.errors import ForeignGraphError, ProgramError
from codelet.family import ComputeSet
from codelet.tensor import Tensor, views_padding

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
class Copy(Program):
    """Copy the elements of one view to another, as if the source were read whole first.

    Raises:
        ProgramError: views that differ in shape or dtype, or depend on symbols; padding as destination.
        ForeignGraphError: views of different graphs.
    """

    source: Tensor
    destination: Tensor

    def __post_init__(self) -> None:
        for tensor in (self.source, self.destination):
            if not isinstance(tensor, Tensor):
                raise ProgramError("a copy is between tensors", given=tensor, expected="a tensor of the graph")
            if tensor.axes:
                raise ProgramError(
                    "a copy depends on a symbol",
                    given=tensor,
                    expected="a view without symbols",
                    fix="copy the whole range",
                )
        if self.source.graph is not self.destination.graph:
            raise ForeignGraphError("a copy joins two graphs", given=f"{self.source} to {self.destination}")
        if self.source.shape != self.destination.shape or self.source.dtype != self.destination.dtype:
            raise ProgramError(
                "the two sides of a copy differ",
                given=f"{self.source} to {self.destination}",
                expected="one shape and dtype",
            )
        if views_padding(self.destination):
            raise ProgramError(
                "a copy would write padding, which is an element of no variable",
                given=self.destination,
                expected="a destination of elements of variables alone",
                fix="copy to the tensor that was padded, or slice the padding off both sides",
            )

    def lines(self) -> Iterator[str]:
        yield f"Copy({self.source} -> {self.destination})"


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


def check_program(program: Program, graph: Graph) -> None:
    """See that a program names only what belongs to `graph`.

    Raises:
        ForeignGraphError: a compute set or a tensor of another graph.
    """
    match program:
        case Execute(compute_set):
            named = [compute_set]
        case Recording():
            named = list(program.compute_sets)
        case Copy(source, _):
            named = [source]
        case Sequence(programs):
            named = []
            for part in programs:
                check_program(part, graph)
        case Repeat(_, body, index):
            named = [] if index is None else [index]
            check_program(body, graph)
        case _:
            raise ProgramError("a program of an unknown kind", given=type(program).__name__)
    for thing in named:
        if thing.graph is not graph:
            raise ForeignGraphError(
                "a program names something of another graph",
                given=thing,
                expected="compute sets and tensors of the graph it runs on",
            )
