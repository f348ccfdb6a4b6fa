"""Rules of gradients: the operations that `cl.gradient` adds for an operation as a whole, in place of adjoints of its
vertices.

A rule is given a call, and the cotangents of its results. It adds operations, and gives the gradients by arguments; or
None where it does not apply: it names every argument that it understands.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.errors import FieldTypeError
from codelet.graphs.graph import Graph
from codelet.graphs.operations import Operation
from codelet.ops.arguments import checked_axes
from codelet.ops.convolution import conv_general_dilated, conv_input_gradient, conv_kernel_gradient
from codelet.ops.dot_general import dot_general, product_gradient
from codelet.ops.elementwise import element_gradients, map
from codelet.ops.indexing import gather, gather_gradient, gradient_pays
from codelet.ops.moments import var, var_gradient
from codelet.ops.norm import (
    batch_norm,
    batch_norm_gradient,
    batch_norm_inference,
    batch_norm_inference_gradient,
    group_norm,
    group_norm_gradient,
    layer_norm,
    layer_norm_gradient,
)
from codelet.ops.pooling import (
    avg_pool,
    avg_pool_gradient,
    max_pool,
    max_pool_gradient,
    max_pool_gradient_pays,
)
from codelet.ops.product_planning import CODELETS
from codelet.ops.reduce import max, min
from codelet.ops.reduce_gradients import max_gradient
from codelet.ops.rms_norm import rms_norm, rms_norm_gradient
from codelet.ops.softmax import (
    log_softmax,
    log_softmax_gradient,
    logsumexp,
    logsumexp_gradient,
    softmax,
    softmax_gradient,
)
from codelet.ops.top_k import top_k, top_k_gradient
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class OperationCall:
    """A call of an operation, as its gradient sees it.

    Attributes:
        given: the arguments as they were given, by name: the values of tensors among them may be gone.
        value: an argument with its tensors as they were before the call.
        result: the returned value, as it was after it; a function, as `value` is, since that may have to be kept.
        intermediates: the intermediates that it noted, by name, as they were after it; a function likewise.
        cotangents: of the results, in their structure; None for one that nothing depends on, or that is not of floats.
        wanted: the arguments by whose tensors, all of an argument together, gradients are wanted.
    """

    given: Mapping[str, Any]
    value: Callable[[str], Any]
    result: Callable[[], Any]
    intermediates: Callable[[], Mapping[str, Tensor]]
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
    """A function of a graph, and of further arguments, as an operation: graphs remember its calls, as those of
    `cl.ops`.

    Args:
        function: adds vertices, and returns tensors, in any pytree.
        gradient: the function that `cl.gradient` calls in place of adjoints of its vertices. It maps a graph and the
            call to the gradients with respect to the arguments by name, each in the structure of its argument, None for
            none; or None where it does not apply. It is asked only for a call whose vertices are unchanged, and whose
            private values no other vertex reads.

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
        RULES[inspect.unwrap(operation)] = rule
        return rule

    return enter


def _planned(call: OperationCall, *names: str) -> dict[str, Any]:
    """The arguments of an operation beside tensors that its gradient takes too: how it is planned, and more by name."""
    return {name: call.given[name] for name in ("grain", "memory_fraction", *names)}


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
    where, planned = [call.given[name] for name in ("window_shape", "strides", "padding")], _planned(call, "axis")
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


# --- reductions, and what is picked -------------------------------------------------------------------------


def _of_extreme(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    where = call.given["axis"]
    return {"x": max_gradient(graph, call.cotangents, call.value("x"), call.result(), where, **_planned(call))}


for _extreme in (max, min):
    _rule(_extreme)(_of_extreme)


@_rule(var)
def _of_variance(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    where, planned = call.given["axis"], _planned(call, "ddof")
    return {"x": var_gradient(graph, call.cotangents, call.value("x"), where, **planned)}


@_rule(logsumexp)
def _of_logsumexp(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    x, where = call.value("x"), call.given["axis"]
    axes = checked_axes("logsumexp", "axis", where, x.ndim)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    cotangent, result = (own.reshape(kept) for own in (call.cotangents, call.result()))
    return {"x": logsumexp_gradient(graph, cotangent, x, result, where, **_planned(call))}


@_rule(top_k)
def _of_top_k(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    axis = call.given["axis"]
    shape = call.given["x"].shape
    if shape[axis] < 4 * call.given["k"]:  # by vertices, which have a few elements each, it takes no more
        return None
    (slopes, _), (_, places) = call.cotangents, call.result()
    return {"x": top_k_gradient(graph, slopes, places, shape, axis=axis, grain=call.given["grain"])}


@_rule(avg_pool)
def _of_avg_pool(graph: Graph, call: OperationCall) -> Mapping[str, Any]:
    where, planned = [call.given[name] for name in ("window_shape", "strides", "padding")], _planned(call, "axis")
    counts = call.given["count_include_pad"]
    x = call.given["x"].shape
    return {"x": avg_pool_gradient(graph, call.cotangents, x, *where, count_include_pad=counts, **planned)}


# --- norms --------------------------------------------------------------------------------------------------

_SCALES = {"scale", "offset"}

ROWS = 8
"""Elements for each that scales some, at least: of fewer rows the slopes by their scales are hardly summed.

By vertices a norm of one row of 4,800 elements takes 0.4 to 1.4 of what it takes as a whole, of eight rows 1.3 to 1.5.
"""


def _has_rows(call: OperationCall) -> bool:
    """Whether elements are scaled by rows, or channels, of which each has several."""
    return call.given["x"].size >= ROWS * call.given["scale"].size


def _of_rows(make: Callable[..., Any], axes: str, *more: str) -> Rule:
    """The rule of a norm of rows, or of groups, with more arguments by name; it pays where all gradients are wanted."""

    def rule(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
        if call.wanted != {"x", *_SCALES} or not _has_rows(call):
            return None
        made, x, scale = call.intermediates(), call.value("x"), call.value("scale")
        statistics = (made["mean"], made["variance"]) if made else None
        told = {name: call.given[name] for name in more}
        planned = _planned(call, axes, "eps")
        slopes = make(graph, call.cotangents, x, scale=scale, statistics=statistics, **told, **planned)
        return slopes._asdict()

    return rule


_rule(layer_norm)(_of_rows(layer_norm_gradient, "axis"))
_rule(group_norm)(_of_rows(group_norm_gradient, "channel_axis", "num_groups"))


@_rule(rms_norm)
def _of_rms_norm(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    if call.wanted != {"x", "scale"} or not _has_rows(call):
        return None
    x, scale = call.value("x"), call.value("scale")
    slopes = rms_norm_gradient(graph, call.cotangents, x, scale, **_planned(call, "axis", "eps"))
    return slopes._asdict()


@_rule(batch_norm)
def _of_batch_norm(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    cotangent, *of_statistics = call.cotangents
    if call.wanted != {"x", *_SCALES} or cotangent is None or any(own is not None for own in of_statistics):
        return None
    _, mean, variance = call.result()
    given = call.value("x"), call.value("scale"), mean, variance
    slopes = batch_norm_gradient(graph, cotangent, *given, **_planned(call, "channel_axis", "eps"))
    return slopes._asdict()


@_rule(batch_norm_inference)
def _of_batch_norm_inference(graph: Graph, call: OperationCall) -> Mapping[str, Any] | None:
    if call.wanted != {"x", *_SCALES, "mean", "variance"}:
        return None
    given = [call.value(name) for name in ("x", "scale", "mean", "variance")]
    slopes = batch_norm_inference_gradient(graph, call.cotangents, *given, **_planned(call, "channel_axis", "eps"))
    return slopes._asdict()


# --- maps ---------------------------------------------------------------------------------------------------

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
