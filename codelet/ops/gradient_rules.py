"""Rules of gradients: what `cl.gradient` adds for an operation as a whole, in place of adjoints of its vertices.

A rule is given a call, and the cotangents of its results. It adds operations, and gives the gradients by arguments; or
None where it does not apply: it names every argument that it understands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.errors import FieldTypeError
from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation
from codelet.ops.convolution import conv_general_dilated, conv_input_gradient, conv_kernel_gradient
from codelet.ops.dot_general import dot_general, product_gradient
from codelet.ops.elementwise import element_gradients, map
from codelet.ops.indexing import gather, gather_gradient, gradient_pays
from codelet.ops.pooling import max_pool, max_pool_gradient, max_pool_gradient_pays
from codelet.ops.product_planning import CODELETS
from codelet.ops.softmax import log_softmax, log_softmax_gradient, softmax, softmax_gradient
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class OperationCall:
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


Rule = Callable[[Graph, OperationCall], Mapping[str, Any] | None]
"""From a graph and a call to the gradients by its arguments, each in the structure of its argument."""

RULES: dict[Callable[..., Any], Rule] = {}
"""Rules, by what is called."""


def rule_of(operation: Operation) -> Rule | None:
    """The rule of an operation, if there is one."""
    return None if operation.function is None else RULES.get(operation.function)


def operation(function: Any = None, *, gradient: Rule | None = None) -> Any:
    """A function of a graph, and of what follows, as an operation: graphs remember its calls, as those of `cl.ops`.

    Args:
        function: adds vertices, and returns tensors, in any pytree.
        gradient: what `cl.gradient` adds for a call in place of adjoints of its vertices: from a graph and the call to
            the gradients by the arguments by name, each in the structure of its argument, None for none; or None where
            it does not apply. It is asked only for a call whose vertices are as it left them, nothing beside which
            reads what it keeps to itself.

    Raises:
        FieldTypeError: something that is no function.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def slopes(graph, call):
    ...     return {"x": cl.ops.map(graph, lambda g, x: 2 * g * x, call.cotangents, call.value("x"))}
    >>> @cl.operation(gradient=slopes)
    ... def squared(graph, x):
    ...     return cl.ops.map(graph, jnp.square, x, name="square")
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x = graph.add_variable("x", (3,))
    >>> y = squared(graph, x)
    >>> [own.kind for own in graph.operations], [own.kind for own in graph.operations[0].parts]
    (['squared'], ['map'])
    """
    if function is None:
        return functools.partial(operation, gradient=gradient)
    if not callable(function):
        raise FieldTypeError(
            "an operation is made of something that is no function",
            given=f"{function!r:.80}",
            expected="a function of a graph and of tensors",
            fix="@cl.operation, or @cl.operation(gradient=rule), above it",
        )

    @functools.wraps(function)
    def called(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(graph, Graph):
            raise FieldTypeError(
                f"the operation {function.__name__!r} is not given a graph first",
                given=f"{graph!r:.80}",
                expected="a cl.Graph",
            )
        return graph.call(function, *args, **kwargs)

    if gradient is not None:
        RULES[function] = gradient
    return called


def _rule(operation: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Enter a rule for an operation."""

    def enter(rule: Rule) -> Rule:
        RULES[getattr(operation, "__wrapped__", operation)] = rule
        return rule

    return enter


def _planned(call: OperationCall, *names: str) -> dict[str, Any]:
    """What an operation was told beside tensors that its gradient is told too: how it is planned, and more by name."""
    return {name: call.given[name] for name in ("grain", "memory_share", *names)}


@_rule(dot_general)
def _of_product(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    operands, cotangent = (call.given["a"], call.given["b"]), call.cotangents
    if call.given["codelets"] is not CODELETS or call.given["partials"] is not None:
        return None
    if cotangent.dtype != operands[0].dtype:
        return None
    numbers, planned = call.given["dimension_numbers"], _planned(call)
    others = {"a": "b", "b": "a"}
    gradients = {
        name: product_gradient(graph, cotangent, call.value(other), name, operands, numbers, **planned)
        for name, other in others.items()
        if name in call.wanted
    }
    return {**gradients, "like": None}  # which says where the results are to lie, and is not read


@_rule(conv_general_dilated)
def _of_convolution(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    given, cotangent = call.given, call.cotangents
    if given["partials"] is not None or cotangent.dtype != given["lhs"].dtype:
        return None
    where = given["window_strides"], given["padding"]
    words = ("lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count", "batch_group_count")
    options, gradients = _planned(call, *words), {}
    if "lhs" in call.wanted:
        shape = given["lhs"].shape
        gradients["lhs"] = conv_input_gradient(graph, cotangent, call.value("rhs"), shape, *where, **options)
    if "rhs" in call.wanted:
        shape = given["rhs"].shape
        gradients["rhs"] = conv_kernel_gradient(graph, cotangent, call.value("lhs"), shape, *where, **options)
    return gradients


@_rule(max_pool)
def _of_max_pool(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    where, planned = [call.given[name] for name in ("window_shape", "strides", "padding")], _planned(call, "axes")
    if not max_pool_gradient_pays(graph, call.given["x"], *where, **planned):
        return None
    return {"x": max_pool_gradient(graph, call.cotangents, call.value("x"), *where, **planned)}


@_rule(softmax)
def _of_softmax(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    return {"x": softmax_gradient(graph, call.cotangents, call.result(), call.given["axis"], **_planned(call))}


@_rule(log_softmax)
def _of_log_softmax(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    return {"x": log_softmax_gradient(graph, call.cotangents, call.result(), call.given["axis"], **_planned(call))}


@_rule(gather)
def _of_gather(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    operand, numbers, sizes = (call.given[name] for name in ("operand", "dimension_numbers", "slice_sizes"))
    planned = _planned(call, "mode")
    if not gradient_pays(graph, operand, call.given["start_indices"], numbers, sizes, **planned):
        return None
    indices = call.value("start_indices")
    return {"operand": gather_gradient(graph, call.cotangents, operand, indices, numbers, sizes, **planned)}


MANY = 8
"""So many elements for each worker at least has a map whose gradient is planned as a whole, if any of it is summed.

The adjoints of its vertices lie where these are. Of fewer, and where nothing is summed, they take fewer cycles: of
`tanh` of 500 x 300 elements 1,136 where a plan of its own takes 2,056, with what it brings and takes back.
"""


@_rule(map)
def _of_map(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    function, target = call.given["function"], graph.target
    shapes = {operand.shape for operand in call.given["operands"] if isinstance(operand, Tensor)}
    shape = np.broadcast_shapes(*shapes)
    if len(shapes) == 1 or math.prod(shape) < MANY * target.num_tiles * target.num_workers:
        return None
    if any(own[-1:] != shape[-1:] for own in shapes):  # rows are summed by those that have them
        return None
    gradients = element_gradients(graph, function, call.cotangents, *call.value("operands"), **_planned(call))
    return {"operands": gradients}
