"""Where two programs part: the first equation whose results the other program has nowhere, though it has
the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field.evaluate import Evaluation
from codelet.field.hashing import words_of
from codelet.field.meanings import runs_jaxprs
from codelet.field.values import Unknown, Value
from codelet.frontends.labels import line_of
from lowering.equality.answer import Parting
from lowering.equality.sides import Side

MOST_ELEMENTS = 1 << 24
"""Of what a program computes, which are remembered."""


def _words(value: Value) -> np.ndarray:
    return np.unique(words_of(value.residues)[0]) if isinstance(value, Unknown) else np.zeros(0, np.uint64)


def _everything(side: Any, given: Sequence[Value], draws: int, casts: bool) -> np.ndarray | None:
    """A word for every element that a program computes; None where these are too many."""
    found, count = [_words(own) for own in given], 0

    def watch(eqn: Any, operands: Sequence[Value], results: Sequence[Value]) -> None:
        nonlocal count
        for own in results:
            words = _words(own)
            count += words.size
            if count <= MOST_ELEMENTS:
                found.append(words)

    side.results(Evaluation(draws, casts, watch), given)
    return None if count > MOST_ELEMENTS else np.unique(np.concatenate(found))


class _EquationFound(Exception):
    """An equation was found."""


def parting_of(sides: Sequence[Side], given: Sequence[Value], draws: int, casts: bool) -> Parting | None:
    """Where the second program parts from the first, or the first from the second."""
    for side in (1, 0):
        known = _everything(sides[1 - side], given, draws, casts)
        if known is None:
            return None
        parting: list[Parting] = []

        def watch(
            eqn: Any,
            operands: Sequence[Value],
            results: Sequence[Value],
            known: Any = known,
            side: int = side,
            to: Any = parting,
        ) -> None:
            if runs_jaxprs(eqn):
                return
            if all(np.isin(_words(own), known).all() for own in operands) and not all(
                np.isin(_words(own), known).all() for own in results
            ):
                to.append(Parting(side, _text(eqn), line_of(eqn)))
                raise _EquationFound

        try:
            sides[side].results(Evaluation(draws, casts, watch), given)
        except _EquationFound:
            return parting[0]
    return None


def _text(eqn: Any) -> str:
    """An equation in a line."""
    types = lambda atoms: ", ".join(atom.aval.str_short() for atom in atoms)  # noqa: E731
    return f"{eqn.primitive.name} of {types(eqn.invars)} to {types(eqn.outvars)}"
