"""Cross-entropy of logits, with probabilities or classes for labels, and its gradients: as optax has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axis, checked_grain
from codelet.ops.lookup_codelets import positions
from codelet.ops.pairs import Pair, both
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor


def _loss(logits, labels, axes):
    return -jnp.sum(labels * jax.nn.log_softmax(logits, axes), axes)


def _loss_of_classes(logits, labels, axes):
    (axis,) = axes
    own = jnp.take_along_axis(logits, jnp.expand_dims(positions(labels), axis), axis).squeeze(axis)
    return jax.nn.logsumexp(logits, axis) - own


@both
def losses(logits, labels, *, axes):
    """The cross-entropy of rows with probabilities."""
    return _loss(logits, labels, axes)


@both
def losses_of_classes(logits, labels, *, axes):
    """The cross-entropy of rows with the numbers of classes."""
    return _loss_of_classes(logits, labels, axes)


@both
def slopes_of_losses(cotangent, logits, labels, *, axes):
    """The slopes of the cross-entropy by the logits of rows, with probabilities."""
    slopes = jax.nn.softmax(logits, axes) * jnp.sum(labels, axes, keepdims=True) - labels
    return jnp.expand_dims(cotangent, axes) * slopes


@both
def slopes_of_labels(cotangent, logits, *, axes):
    """The slopes of the cross-entropy by the probabilities of rows."""
    return -jnp.expand_dims(cotangent, axes) * jax.nn.log_softmax(logits, axes)


@both
def slopes_of_classes(cotangent, logits, labels, *, axes):
    """The slopes of the cross-entropy by the logits of rows, with the numbers of classes."""
    (axis,) = axes
    own = jax.nn.one_hot(positions(labels), logits.shape[axis], dtype=logits.dtype, axis=axis)
    return jnp.expand_dims(cotangent, axis) * (jax.nn.softmax(logits, axis) - own)


def _rows(
    operation: str, graph: Graph, axis: int, grain: int | None, share: float, logits: Tensor, labels: Tensor
) -> tuple[Rows, Any]:
    """The rows of logits, and which axes labels have; arguments checked."""
    check_tensors(operation, graph, logits=logits, labels=labels)
    check_floating(operation, logits=logits)
    own = checked_axis(operation, "axis", axis, logits.ndim)
    of_classes = jnp.issubdtype(labels.dtype, jnp.integer)
    expected = tuple(n for d, n in enumerate(logits.shape) if not of_classes or d != own)
    if labels.shape != expected:
        raise OperationError(
            f"labels of ops.{operation} do not fit the logits", given=labels, expected=f"shape {expected}"
        )
    if not of_classes and labels.dtype != logits.dtype:
        raise OperationError(
            f"labels of ops.{operation} are neither integers nor like the logits",
            given=labels,
            expected=f"{logits.dtype}, or integers",
        )
    alike = () if of_classes else (labels,)
    rows = Rows(graph, (own,), logits, *alike, grain=checked_grain(operation, grain), memory_fraction=share)
    return rows, "one" if of_classes else "all"


def _check_cotangent(operation: str, graph: Graph, cotangent: Tensor, rows: Rows) -> None:
    """See that a cotangent has an element for each row."""
    check_tensors(operation, graph, cotangent=cotangent)
    kept = tuple(n for d, n in enumerate(rows.shape) if d not in rows.axes)
    if cotangent.shape != kept:
        raise OperationError(
            f"the cotangent of ops.{operation} is not like the result", given=cotangent, expected=f"shape {kept}"
        )


@checked
def cross_entropy(
    graph: Graph,
    logits: Tensor,
    labels: Tensor,
    axis: int = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cross_entropy",
) -> Tensor:
    """The cross-entropy of each row of logits: `optax.softmax_cross_entropy`, or with integer labels.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        logits: of floating point.
        labels: probabilities like the logits; or the number of a class for each row.
        axis: of the classes.
        grain: about how many elements a vertex has; whole rows at least.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: labels that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cross_entropy)(jnp.zeros((1, 4)), jnp.array([2])).round(4)
    Array([1.3863], dtype=float32)
    """
    rows, kind = _rows("cross_entropy", graph, axis, grain, memory_fraction, logits, labels)
    codelets: Pair = losses_of_classes if kind == "one" else losses
    fields: Any = {"logits": ("all", logits), "labels": (kind, labels)}
    with graph.scope(name, unique=True):
        if not rows.size:
            kept = tuple(n for d, n in enumerate(logits.shape) if d not in rows.axes)
            return graph.add_variable("out", kept, logits.dtype)
        work = rows.work("losses", codelets, fields, {"out": ("one", logits.dtype)}, "whole")
        return rows.add(work, rows.plan(work), logits=logits, labels=labels)[0]


@checked
def cross_entropy_gradient(
    graph: Graph,
    cotangent: Tensor,
    logits: Tensor,
    labels: Tensor,
    axis: int = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cross_entropy_gradient",
) -> Tensor:
    """The gradient of `cross_entropy` by the logits.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, one number for each row.
        logits: of floating point.
        labels: probabilities, of the shape of the logits; or the number of a class for each row, int32.
        axis: of the classes.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the logits.

    Raises:
        OperationError: labels or a cotangent that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cross_entropy_gradient)(jnp.ones(1), jnp.zeros((1, 4)), jnp.array([2]))
    Array([[ 0.25,  0.25, -0.75,  0.25]], dtype=float32)
    """
    rows, kind = _rows("cross_entropy_gradient", graph, axis, grain, memory_fraction, logits, labels)
    _check_cotangent("cross_entropy_gradient", graph, cotangent, rows)
    codelets: Pair = slopes_of_classes if kind == "one" else slopes_of_losses
    dtype = logits.dtype
    fields: Any = {"cotangent": ("one", cotangent), "logits": ("all", logits), "labels": (kind, labels)}
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", logits.shape, dtype)
        work = rows.work("slopes", codelets, fields, {"out": ("all", dtype)}, "whole")
        return rows.add(work, rows.plan(work), cotangent=cotangent, logits=logits, labels=labels)[0]


@checked
def cross_entropy_label_gradient(
    graph: Graph,
    cotangent: Tensor,
    logits: Tensor,
    labels: Tensor,
    axis: int = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cross_entropy_label_gradient",
) -> Tensor:
    """The gradient of `cross_entropy` by labels that are probabilities: the negative logarithm of the softmax.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, one number for each row.
        logits: of floating point.
        labels: probabilities, of the shape of the logits.
        axis: of the classes.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the labels.

    Raises:
        OperationError: labels or a cotangent that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(cl.ops.cross_entropy_label_gradient)(jnp.ones(1), jnp.zeros((1, 2)), jnp.ones((1, 2)))
    >>> slopes.round(4)
    Array([[0.6931, 0.6931]], dtype=float32)
    """
    operation = "cross_entropy_label_gradient"
    rows, kind = _rows(operation, graph, axis, grain, memory_fraction, logits, labels)
    _check_cotangent(operation, graph, cotangent, rows)
    if kind == "one":
        raise OperationError(
            f"labels of ops.{operation} are classes, which have no gradient", given=labels, expected=f"like {logits}"
        )
    dtype = logits.dtype
    fields: Any = {"cotangent": ("one", cotangent), "logits": ("all", logits)}
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", logits.shape, dtype)
        work = rows.work("slopes", slopes_of_labels, fields, {"out": ("all", dtype)}, "whole")
        return rows.add(work, rows.plan(work), cotangent=cotangent, logits=logits)[0]
