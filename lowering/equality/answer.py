"""Answers: whether two programs are equal, with the chance that it is wrong, or with a witness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from codelet.errors import Line

Verdict = Literal["equal", "different", "undecided"]


@dataclass(frozen=True, eq=False)
class Parting:
    """The first equation at which two programs differ: its inputs are equal, and its result is in one program alone.

    Attributes:
        side: 0 for the first program, 1 for the second.
        what: the equation, as printed.
        line: the user's line of it.
    """

    side: int
    what: str
    line: Line | None

    def __str__(self) -> str:
        where = "" if self.line is None else f", at {self.line.written}"
        return f"the {('first', 'second')[self.side]} program at {self.what}{where}"


@dataclass(frozen=True, eq=False)
class Witness:
    """An element in which two programs differ, evaluated by both in float64. Found by `cl.equal`.

    Attributes:
        result: the path of the result in the results; "" for a single one.
        element: the position in it.
        values: the value in each program.
        inputs: the arguments of both, in the structure of the examples.
        parting: the first equation that differs, or `None`.

    >>> import codelet as cl, jax.numpy as jnp
    >>> witness = cl.equal(lambda x: 2 * x, lambda x: 2 * x.at[1].set(0), jnp.ones(3)).witness
    >>> witness.element, witness.values[0] == witness.values[1], witness.inputs[0].shape
    ((1,), False, (3,))
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
    """The answer of `cl.equal`. It is true if the programs are equal.

    Attributes:
        verdict: "equal"; "different", with a witness; or "undecided", with a reason.
        chance: the probability that "equal" is wrong, at most; 0 for the other verdicts.
        witness: an element in which they differ, or `None`.
        reason: why it is undecided, or `None`.
        line: the user's line of the reason, or `None`.
        elements: how many elements of results were compared.
        draws: at how many random points.

    >>> import codelet as cl, jax.numpy as jnp
    >>> answer = cl.equal(lambda x: (x + 1) ** 2, lambda x: x * x + 2 * x + 1, jnp.ones(3))
    >>> bool(answer), answer.verdict, answer.elements, answer.chance < 1e-9
    (True, 'equal', 3, True)
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
