"""Rules: which primitive is added to a graph by which function.

A rule is a function of the walk, the values of the operands and, by keyword, all parameters of the primitive that it
understands; a parameter that it does not name must be None, unless it takes all (`**parameters`) and passes them on.
It returns the results' values, or `NotImplemented` where it does not know how: then one vertex runs the primitive, as
where there is no rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Function = Callable[..., Any]


class Rule(NamedTuple):
    """How a primitive is added.

    Attributes:
        function: adds it.
        parameters: the names of those that it understands; None where it passes all of them on.
        by: the added operations, in words, for the table in the docs.
    """

    function: Function
    parameters: frozenset[str] | None
    by: str

    def understands(self, parameters: Mapping[str, Any]) -> bool:
        """Whether nothing is asked for that it does not know."""
        if self.parameters is None:
            return True
        return all(name in self.parameters or value is None for name, value in parameters.items())

    def understood(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Those that it is given."""
        return {k: v for k, v in parameters.items() if self.parameters is None or k in self.parameters}


RULES: dict[str, Rule] = {}
"""By the name of the primitive."""


def rule(*primitives: str, by: str) -> Callable[[Function], Function]:
    """Make a function the rule of some primitives.

    Args:
        primitives: their names.
        by: the added operations, in words.
    """

    def register(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        passes_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        names = None if passes_on else frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        for primitive in primitives:
            assert primitive not in RULES, primitive
            RULES[primitive] = Rule(function, names, by)
        return function

    return register
