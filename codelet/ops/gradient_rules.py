"""Rules of gradients: what `cl.gradient` adds for an operation as a whole, in place of adjoints of its vertices.

A rule is given a call, and the cotangents of its results. It adds operations, and gives the gradients by arguments; or
None where it does not apply: it names every argument that it understands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation
from codelet.ops.convolution import conv_general_dilated, conv_input_gradient, conv_kernel_gradient
from codelet.ops.dot_general import dot_general, product_gradient
from codelet.ops.elementwise import element_gradients, map
from codelet.ops.lookups import take, take_gradient
from codelet.ops.product_planning import CODELETS
from codelet.ops.softmax import log_softmax, log_softmax_gradient, softmax, softmax_gradient
from codelet.views.tensor import Tensor


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


_PLANNED = ("grain", "memory_share")


def _options(call: Call, *names: str) -> dict[str, Any]:
    """What an operation was told beside tensors that its gradient is told too: how it is planned, and more by name."""
    return {name: call.given[name] for name in (*_PLANNED, *names)}


@_rule(dot_general)
def _of_product(graph: Graph, call: Call) -> Mapping[str, Any] | None:
    given = call.given
    a, b, cotangent = given["a"], given["b"], call.cotangents
    if given["codelets"] is not CODELETS or given["partials"] is not None or cotangent.dtype != a.dtype:
        return None
    by = lambda name, other: product_gradient(  # noqa: E731
        graph, cotangent, call.value(other), name, (a, b), given["dimension_numbers"], **_options(call)
    )
    return {name: by(name, "b" if name == "a" else "a") for name in call.wanted}


@_rule(conv_general_dilated)
def _of_convolution(graph: Graph, call: Call) -> Mapping[str, Any] | None:
    given, cotangent = call.given, call.cotangents
    lhs, rhs = given["lhs"], given["rhs"]
    if given["partials"] is not None or cotangent.dtype != lhs.dtype:
        return None
    where = given["window_strides"], given["padding"]
    words = ("lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count", "batch_group_count")
    own, made = _options(call, *words), {}
    if "lhs" in call.wanted:
        made["lhs"] = conv_input_gradient(graph, cotangent, call.value("rhs"), lhs.shape, *where, **own)
    if "rhs" in call.wanted:
        made["rhs"] = conv_kernel_gradient(graph, cotangent, call.value("lhs"), rhs.shape, *where, **own)
    return made


@_rule(softmax)
def _of_softmax(graph: Graph, call: Call) -> Mapping[str, Any]:
    return {"x": softmax_gradient(graph, call.cotangents, call.result(), call.given["axis"], **_options(call))}


@_rule(log_softmax)
def _of_log_softmax(graph: Graph, call: Call) -> Mapping[str, Any]:
    return {"x": log_softmax_gradient(graph, call.cotangents, call.result(), call.given["axis"], **_options(call))}


@_rule(take)
def _of_take(graph: Graph, call: Call) -> Mapping[str, Any]:
    words = call.given["axis"]
    own = _options(call, "mode")
    return {"x": take_gradient(graph, call.cotangents, call.given["x"], call.value("indices"), words, **own)}


MANY = 8
"""So many elements for each worker at least has a map whose gradient is planned as a whole, if any of it is summed.

The adjoints of its vertices lie where these are. Of fewer, and where nothing is summed, they take fewer cycles: of
`tanh` of 500 x 300 elements 1,136 where a plan of its own takes 2,056, with what it brings and takes back.
"""


@_rule(map)
def _of_map(graph: Graph, call: Call) -> Mapping[str, Any] | None:
    function, shapes = call.given["function"], {own.shape for own in call.given["operands"] if isinstance(own, Tensor)}
    num_elements, target = math.prod(np.broadcast_shapes(*shapes)), graph.target
    if len(shapes) == 1 or num_elements < MANY * target.num_tiles * target.num_workers:
        return None
    operands = call.value("operands")
    made = element_gradients(graph, function, call.cotangents, *operands, **_options(call))
    return {"operands": made}
