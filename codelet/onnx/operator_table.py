"""The table of operators: a function for each opset in which the meaning of one changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Function = Callable[..., Any]
"""From a node and its operands, None for those left out, to its result, or a tuple of them."""


class Operator(NamedTuple):
    """Computes an operator from an opset on.

    Attributes:
        since: the first opset of it.
        function: computes it.
        fixed: the places of operands on which shapes depend.
        is_folded: whether it is computed when the model is traced where all of its operands are known.
        by_type: the places of operands of which only the type matters.
        sees_constants: whether it asks if an operand is known, which is given as it is then.
    """

    since: int
    function: Function
    fixed: tuple[int, ...]
    is_folded: bool
    by_type: tuple[int, ...] = ()
    sees_constants: bool = False


_OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    fixed: tuple[int, ...] = (),
    is_folded: bool = True,
    by_type: tuple[int, ...] = (),
    sees_constants: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function for operators, from an opset on until another takes over."""

    def enter(function: Function) -> Function:
        for name in names:
            several = _OPERATORS.setdefault((domain, name), [])
            several.append(Operator(since, function, fixed, is_folded, by_type, sees_constants))
            several.sort(key=lambda item: item.since)
        return function

    return enter


def find(domain: str, name: str, version: int) -> Operator | None:
    """The function that computes an operator of an opset; None where nothing here does."""
    older = [item for item in _OPERATORS.get((domain, name), ()) if item.since <= version]
    return older[-1] if older else None


def known_operators() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """The domain and the name of every operator, and the opsets in which its meaning changed."""
    for (domain, name), several in sorted(_OPERATORS.items()):
        yield domain, name, tuple(item.since for item in several)
