"""Control flow: loops and branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from codelet.deprecated import old_arguments, old_attribute
from codelet.errors import ProgramError
from codelet.programs.checks import check_predicate
from codelet.programs.program import Program, as_program, indented, set_depth
from codelet.schema import is_whole
from codelet.views.sources import source_text, source_variables
from codelet.views.tensor import Tensor

_MOST_TURNS = 2**31 - 1  # JAX counts turns in int32


def _check_index(count: int, index: object) -> None:
    """Check that a variable can count the iterations of a repeat, up to the last one."""
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
            given=f"{count} iterations, counted by {index}",
            expected=f"at most {int(np.iinfo(index.dtype).max) + 1} iterations",
            fix="a wider dtype, int32 say, or a Repeat in a Repeat",
        )


@dataclass(frozen=True)
class Revolve:
    """Checkpoints of a loop by the binomial schedule: the fewest recomputed iterations for a number of saved states.

    `cl.Repeat(1000, body, recompute=cl.Revolve(10))` recomputes 3,640 iterations, and each of the 1,000 once more where
    the backward pass goes through it. Gradients of such a loop are of first order, in reverse mode.

    Args:
        snapshots: the most states that are saved at once, the initial state included.

    Raises:
        ProgramError: `snapshots` is not a positive integer.

    Source: A. Griewank and A. Walther, Algorithm 799: revolve (2000).

    >>> import codelet as cl
    >>> step = cl.Graph().add_compute_set("step")
    >>> print(cl.Repeat(1000, step, recompute=cl.Revolve(10)))
    Repeat(1000, recompute=Revolve(snapshots=10))
      Execute(step)
    """

    snapshots: int

    def __post_init__(self) -> None:
        if not is_whole(self.snapshots, 1):
            raise ProgramError(
                "a number of snapshots counts no states",
                given=repr(self.snapshots),
                expected="a positive integer: cl.Revolve(10) keeps at most ten states of a loop at once",
            )
        object.__setattr__(self, "snapshots", int(self.snapshots))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Repeat(Program):
    """Run a body a fixed number of times.

    Args:
        count: the number of iterations; zero is allowed.
        body: a program, or a compute set.
        index: a variable of shape () and an integer dtype, set to 0, 1, ... before each iteration.
        recompute: for gradients. An integer n: save the loop state every n iterations; the backward pass recomputes the
            iterations in between. `cl.Revolve(s)`: at most s saved states. Default: save everything. It changes no
            value.
        more: nothing; a list is one body.

    Raises:
        ProgramError: a count that is not a non-negative integer, an index that cannot count, or a `recompute` that is
            neither a positive integer nor a `Revolve`.

    Source: program::Repeat of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> n = graph.add_variable("n", (), "int32")
    >>> graph.add_vertex("double", cl.codelet(lambda n: {"n": 2 * n}), n=n)
    >>> int(cl.interpret(graph, cl.Repeat(5, graph.default_program), values={n: 1}, outputs=n)[n])
    32
    """

    count: int
    body: Program
    index: Tensor | None
    recompute: int | Revolve | None = None
    checkpoint = old_attribute("Repeat.checkpoint", "recompute")

    @old_arguments(checkpoint="recompute")
    def __init__(
        self,
        count: int,
        body: object,
        *more: object,
        index: Tensor | None = None,
        recompute: int | Revolve | None = None,
    ):
        if more:
            raise ProgramError(
                "a repeat is given more than a count and a body",
                given=f"{more[0]!r:.80}",
                expected="cl.Repeat(count, body), or cl.Repeat(count, body, index=variable)",
                fix="a list of what is repeated: cl.Repeat(count, [first, second])",
            )
        if not is_whole(count, 0):
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
        if not (recompute is None or isinstance(recompute, Revolve) or is_whole(recompute, 1)):
            raise ProgramError(
                "a repeat's recompute= is not a number of iterations",
                given=repr(recompute),
                expected="a positive integer: cl.Repeat(100, body, recompute=10) saves every tenth state",
                fix="cl.Revolve(10), for ten states at once",
            )
        object.__setattr__(self, "count", int(count))
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "index", index)
        kept = int(recompute) if isinstance(recompute, (int, np.integer)) else recompute
        object.__setattr__(self, "recompute", kept)
        set_depth(self, self.body)

    def lines(self) -> Iterator[str]:
        counted = f", index={self.index}" if self.index is not None else ""
        counted += f", recompute={self.recompute}" if self.recompute is not None else ""
        yield f"Repeat({self.count}{counted})"
        yield from indented(self.body)


def _check_trip_count(trip_count: object, max_iterations: int | None) -> None:
    """Check the trip count of a loop on a condition."""
    if trip_count is None:
        return
    if not is_whole(trip_count, 0) or trip_count > _MOST_TURNS:
        raise ProgramError(
            "a loop's trip_count is not a number of iterations",
            given=f"trip_count={trip_count!r:.60}",
            expected=f"an integer from 0 to {_MOST_TURNS:,}, which a profile counts",
            fix="leave it off where nobody knows: max_iterations, or else a guess, is counted",
        )
    if max_iterations is not None and trip_count > max_iterations:
        raise ProgramError(
            "a loop's trip_count exceeds its max_iterations",
            given=f"trip_count={trip_count}, max_iterations={max_iterations}",
            expected=f"at most {max_iterations} iterations",
            fix="a larger max_iterations, since the program aborts beyond it",
        )


@dataclass(frozen=True, eq=False, init=False, repr=False)
class RepeatWhile(Program):
    """Run a body while a predicate is true: run `condition`, test the predicate, run the body, and start again.

    Without `max_iterations` the loop is differentiable in forward mode alone. With it, it is differentiable in reverse
    mode alone, and JAX refuses forward mode with a TypeError. Reverse mode runs most iterations twice, and stores the
    residuals of about twice the square root of `max_iterations` iterations.

    The loop may copy from and to streams. With `max_iterations` a lowered function takes the largest possible number of
    values of an input stream, and returns how many it read. An engine fetches each value when it is used, and needs no
    bound.

    Args:
        condition: a program or compute set that computes the predicate; it runs before each test.
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        body: a program or compute set.
        until: loop while the predicate is false instead.
        max_iterations: the most iterations. The program aborts if the predicate still holds after them.
        trip_count: how many iterations a profile counts; it changes no value. Default: `max_iterations`, or a guess of
            16.

    Raises:
        ProgramError: an invalid predicate, or a number of iterations that is not a positive integer.

    Source: program::RepeatWhileTrue and RepeatWhileFalse of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> n, more = graph.add_variable("n", (), "int32"), graph.add_variable("more", (), bool)
    >>> test, double = graph.add_compute_set("test"), graph.add_compute_set("double")
    >>> graph.add_vertex(test, cl.codelet(lambda n: n < 100), n=n, out=more)
    >>> graph.add_vertex(double, cl.codelet(lambda n: {"n": 2 * n}), n=n)
    >>> int(cl.interpret(graph, cl.RepeatWhile(test, more, double), values={n: 1}, outputs=n)[n])
    128
    """

    condition: Program
    predicate: Tensor
    body: Program
    until: bool
    max_iterations: int | None
    trip_count: int | None = None
    bound: int | None = None
    max_steps = old_attribute("RepeatWhile.max_steps", "max_iterations")
    turns = old_attribute("RepeatWhile.turns", "trip_count")

    @old_arguments(max_steps="max_iterations", turns="trip_count")
    def __init__(
        self,
        condition: object,
        predicate: Tensor,
        body: object,
        *,
        until: bool = False,
        max_iterations: int | None = None,
        trip_count: int | None = None,
    ):
        check_predicate(predicate, "the predicate of a loop")
        if max_iterations is not None and not is_whole(max_iterations, 1):
            raise ProgramError(
                "max_iterations is not a number of iterations", given=max_iterations, expected="a positive integer"
            )
        if max_iterations is not None and max_iterations > _MOST_TURNS:
            raise ProgramError(
                "max_iterations is too large to be counted",
                given=max_iterations,
                expected=f"at most {_MOST_TURNS:,}",
                fix="leave it off, for a loop without a bound",
            )
        _check_trip_count(trip_count, max_iterations)
        if not isinstance(until, (bool, np.bool_)):
            raise ProgramError(
                "until is not a boolean",
                given=f"{until!r:.80}",
                expected="until=True, to go on as long as the predicate is false",
            )
        object.__setattr__(self, "condition", as_program(condition))
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "body", as_program(body))
        object.__setattr__(self, "until", bool(until))
        object.__setattr__(self, "max_iterations", None if max_iterations is None else int(max_iterations))
        object.__setattr__(self, "trip_count", None if trip_count is None else int(trip_count))
        object.__setattr__(self, "bound", self.max_iterations)
        set_depth(self, self.condition, self.body)

    def told(self, bound: int | None) -> RepeatWhile:
        """Set the bound that the error names, where one iteration here stands for several of the user's.

        Args:
            bound: the bound on the user's iterations, or `None`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> more, body = graph.add_variable("more", (), bool), graph.add_compute_set("body")
        >>> loop = cl.RepeatWhile(body, more, body, max_iterations=3).told(12)
        >>> loop.max_iterations, loop.bound
        (3, 12)
        """
        object.__setattr__(self, "bound", bound)
        return self

    def lines(self) -> Iterator[str]:
        more = ", until=True" * self.until + (
            f", max_iterations={self.max_iterations}" if self.max_iterations is not None else ""
        )
        yield f"RepeatWhile({self.predicate}{more})"
        yield "  condition"
        yield from indented(_Nested(self.condition))
        yield "  body"
        yield from indented(_Nested(self.body))


@dataclass(frozen=True, eq=False, repr=False)
class _Nested(Program):
    """A program indented once more in print."""

    program: Program

    def lines(self) -> Iterator[str]:
        yield from indented(self.program)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class If(Program):
    """Run one program or another.

    Args:
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        then: a program or a compute set, which runs if the predicate is true.
        otherwise: the same, if it is false. Default: nothing.

    Raises:
        ProgramError: an invalid predicate.

    Source: program::If of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> y, is_on = graph.add_variable("y", ()), graph.add_variable("is_on", (), bool)
    >>> program = cl.If(is_on, cl.Copy(1.0, y), cl.Copy(-1.0, y))
    >>> float(cl.interpret(graph, program, values={is_on: False}, outputs=y)[y])
    -1.0
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


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Switch(Program):
    """Run the program that an integer selects.

    Args:
        control: a view of shape () of an integer.
        cases: a program or a compute set for each value.
        default: the same, for any other value. Default: nothing.

    Raises:
        ProgramError: a control that is not an integer, or cases whose keys are not integers.

    Source: program::Switch of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> k, y = graph.add_variable("k", (), "int32"), graph.add_variable("y", ())
    >>> program = cl.Switch(k, {1: cl.Copy(10.0, y), 2: cl.Copy(20.0, y)}, default=cl.Copy(0.0, y))
    >>> float(cl.interpret(graph, program, values={k: 2}, outputs=y)[y])
    20.0
    """

    control: Tensor
    cases: Mapping[int, Program]
    default: Program

    def __init__(self, control: Tensor, cases: Mapping[int, object], default: object = ()):
        check_predicate(control, "the control of a Switch")
        if not isinstance(cases, Mapping) or not all(map(is_whole, cases)):
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


def too_many_turns(predicate: Tensor, max_iterations: int | None) -> str:
    """The error message of a loop that exceeds its `max_iterations`."""
    return f"a loop over {source_text(predicate.source)} went on beyond its max_iterations={max_iterations}"
