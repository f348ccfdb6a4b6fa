"""Answers: whether two programs are equal, with the chance that it is wrong, or with a witness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from codelet.errors import Line

Verdict = Literal["equal", "different", "undecided"]


@dataclass(frozen=True, eq=False)
class Parting:
    """Where two programs first part: what both have computed alike goes in, and what one alone computes comes out.

    Attributes:
        side: 0 of the first program, 1 of the second.
        what: the equation, as it prints.
        line: the user's line that it is of.
    """

    side: int
    what: str
    line: Line | None

    def __str__(self) -> str:
        where = "" if self.line is None else f", at {self.line.written}"
        return f"the {('first', 'second')[self.side]} program at {self.what}{where}"


@dataclass(frozen=True, eq=False)
class Witness:
    """An element in which two programs differ, as both compute it in float64.

    Attributes:
        result: which result, by its path; "" of one alone.
        element: which element of it.
        values: that of each program.
        inputs: what they were given, in the structure of the examples.
        parting: where the programs part, as far as that is found.
    """

    result: str
    element: tuple[int, ...]
    values: tuple[Any, Any]
    inputs: Any
    parting: Parting | None

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.element))}]" if self.element else ""
        rows = [f"{self.result or 'the result'}{at} is {self.values[0]:.12g} and {self.values[1]:.12g}"]
        if self.parting is not None:
            rows.append(f"they part in {self.parting}")
        return "\n".join(rows)


@dataclass(frozen=True, eq=False)
class Equality:
    """Whether two programs are equal.

    Attributes:
        verdict: "equal"; "different", with a witness; or "undecided", with a reason.
        chance: that "equal" is wrong, at most; 0 of the other verdicts.
        witness: an element in which they differ.
        reason: why nothing can be said.
        line: the user's line that the reason is of.
        elements: how many elements of results were compared.
        draws: at how many random points.
    """

    verdict: Verdict
    chance: float = 0.0
    witness: Witness | None = None
    reason: str | None = None
    line: Line | None = None
    elements: int = 0
    draws: int = 0

    def __bool__(self) -> bool:
        return self.verdict == "equal"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.verdict == "equal":
            bits = math.floor(-math.log2(self.chance)) if self.chance else math.inf
            return f"equal: {self.elements:,} elements at {self.draws} random points; wrong by a chance of 2**-{bits}"
        if self.verdict == "different":
            return f"different: {self.witness}"
        at = "" if self.line is None else f"\n  at {self.line.written}"
        return f"undecided: {self.reason}{at}"
