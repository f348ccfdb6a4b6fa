"""Rules of gradients: what `cl.gradient` adds for an operation as a whole, in place of adjoints of its vertices.

A rule is given a call, and the cotangents of its results. It adds operations, and gives the gradients by arguments; or
None where it does not apply: it names every argument that it understands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation
from codelet.ops.dot_general import dot_general, product_gradient
from codelet.ops.product_planning import CODELETS


@dataclass(frozen=True)
class Call:
    """A call of an operation, as its gradient sees it.

    Attributes:
        given: the arguments as they were given, by name: what tensors among them hold may be gone.
        value: an argument with its tensors as they were before the call.
        result: what it returned, as it was after it; a function, as `value` is, since that may have to be kept.
        cotangents: of the results, in their structure; None for one that nothing depends on, or that is not of floats.
        wanted: the arguments by whose tensors, all of an argument together, gradients are wanted.
    """

    given: Mapping[str, Any]
    value: Callable[[str], Any]
    result: Callable[[], Any]
    cotangents: Any
    wanted: frozenset[str]


Rule = Callable[[Graph, Call], Mapping[str, Any] | None]
"""From a graph and a call to the gradients by its arguments, each in the structure of its argument."""

RULES: dict[Callable[..., Any], Rule] = {}
"""Rules, by what is called."""


def rule_of(operation: Operation) -> Rule | None:
    """The rule of an operation, if there is one."""
    return RULES.get(operation.function)


def _rule(operation: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Enter a rule for an operation."""

    def enter(rule: Rule) -> Rule:
        RULES[getattr(operation, "__wrapped__", operation)] = rule
        return rule

    return enter


@_rule(dot_general)
def _of_product(graph: Graph, call: Call) -> Mapping[str, Any] | None:
    given = call.given
    a, b, cotangent = given["a"], given["b"], call.cotangents
    if given["codelets"] is not CODELETS or given["partials"] is not None or cotangent.dtype != a.dtype:
        return None
    options = {name: given[name] for name in ("grain", "memory_share")}
    return {
        name: product_gradient(
            graph,
            cotangent,
            call.value("b" if name == "a" else "a"),
            name,
            (a, b),
            given["dimension_numbers"],
            **options,
        )
        for name in call.wanted
    }
