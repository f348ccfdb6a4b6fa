"""Hints: a user's facts about how a codelet runs on a tile, which no jaxpr contains. They change cycles,
never values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from codelet.errors import CodeletDefinitionError
from codelet.schema import one_of

Issue = Literal["assembly", "compiled"]
"""How a codelet's loops issue instructions: loads and stores beside arithmetic, or one after another."""

GUESSED_TURNS = 16
"""How often a loop turns of which nobody says how often: a guess."""


@dataclass(frozen=True)
class Hints:
    """How a codelet runs on a tile, as far as the user says.

    Attributes:
        cycles: the cycles of one worker, from the inputs' types and static values; None to count its equations.
        workers: the workers that share the work of each vertex; 1 for a plain vertex.
        issue: how its loops issue instructions; None for as its target supposes.
        vectorised: whether compiled loops take vectors rather than elements.
        trip_count: of each of its while loops: a number, or a function as `cycles` is; None for not known.
    """

    cycles: Callable[..., int] | None = None
    workers: int = 1
    issue: Issue | None = None
    vectorised: bool = False
    trip_count: Callable[..., int] | int | None = None

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Those of the user's functions that are among them."""
        return tuple(own for own in (self.cycles, self.trip_count) if callable(own))

    def of(self, *functions: Callable[..., Any]) -> Hints:
        """The same with other functions, in the order of `functions`."""
        names = [name for name in ("cycles", "trip_count") if callable(getattr(self, name))]
        return replace(self, **dict(zip(names, functions, strict=True)))


NO_HINTS = Hints()
"""What is said of a codelet of which nothing is said."""


def _refused(name: str, value: object, expected: str, fix: str | None = None) -> CodeletDefinitionError:
    return CodeletDefinitionError(
        f"a codelet's {name} {'are' if name.endswith('s') else 'is'} not {expected.split(':')[0]}",
        given=f"{name}={value!r:.60}",
        expected=expected.split(": ")[-1],
        fix=fix,
    )


def check_hints(hints: Hints) -> None:
    """Check that a user's hints for a codelet are meaningful.

    Raises:
        CodeletDefinitionError: a number for `cycles`, say.
    """
    cycles, trip_count = hints.cycles, hints.trip_count
    seen = "a function of the input fields, of which it sees shape, size and dtype"
    if cycles is not None and not callable(cycles):
        fix = f"cycles=lambda x: {cycles!r:.20}, with the codelet's own fields for x"
        raise _refused("cycles", cycles, f"a function: {seen}", fix)
    whole = isinstance(trip_count, int) and not isinstance(trip_count, bool) and trip_count >= 0
    if trip_count is not None and not callable(trip_count) and not whole:
        expected = f"an integer from 0, or a function: an integer from 0, or {seen}"
        raise _refused("trip_count", trip_count, expected)
    if not isinstance(hints.workers, int) or isinstance(hints.workers, bool) or hints.workers < 1:
        fix = "workers=6 to share each vertex among all workers of a tile"
        raise _refused("workers", hints.workers, "an integer from 1", fix)
    if hints.issue is not None and not one_of(*get_args(Issue)).accepts(hints.issue):
        raise _refused("issue", hints.issue, f"a way to issue instructions: {' or '.join(map(repr, get_args(Issue)))}")
    if not isinstance(hints.vectorised, bool):
        raise _refused("vectorised", hints.vectorised, "True or False")
