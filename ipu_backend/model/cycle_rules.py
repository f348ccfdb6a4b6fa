"""The table of rules for cycles: what one equation takes of a vertex, by its primitive.

In comes an equation, and how the vertex runs; out comes what it takes, or for an elementwise one the loop it is, which
joins that of its neighbours (`body_cycles.py`). The rules stand in files by what they count: `elementwise_rules.py`,
`moving_rules.py`, `reduction_rules.py`, `product_rules.py`, `library_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ipu_backend.model.costs import Cost, Mode
from ipu_backend.model.equations import Equation
from ipu_backend.model.rows import Loop

Rule = Callable[[Equation, Mode], Cost | Loop]
"""From an equation to what it takes, or to the loop of an elementwise one."""

cycle_rules: dict[str, Rule] = {}
"""The rule of each JAX primitive, by its name. A rule that returns `FREE` says that the equation is free."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """What puts a function into the table, as the rule of some primitives."""

    def add(function: Rule) -> Rule:
        cycle_rules.update(dict.fromkeys(primitives, function))
        return function

    return add


MOVING = {
    *("iota", "concatenate", "stack", "pad", "empty", "empty2", "transpose", "rev", "gather", "scatter"),
    *("dynamic_slice", "dynamic_update_slice"),
}
"""Primitives that move elements without computing with them: what their dtype is does not matter."""
