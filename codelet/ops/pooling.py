"""Maximum and average pooling, as `flax.linen` has them, and their gradients as operations.

A vertex pools a patch of its tensor, with its halo. The gradient of a maximum goes to the first of the greatest
elements of a window, as JAX has it. One compute set finds which that is, a second gathers for every element the slopes
of the windows that have chosen it. Elements with other windows than their neighbours are of another phase: see
`windows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axis, checked_grain
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.pool_planning import Pooled, plan_pooled
from codelet.ops.pool_vertices import add_pooled
from codelet.ops.pooling_codelets import CODELETS, least
from codelet.ops.schema import checked
from codelet.ops.windows import WindowedDimension, checked_padding, num_windows, whole_numbers, windowed
from codelet.views.tensor import Tensor

# --- what they are given ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CheckedPooling:
    """A pooling, checked; for every dimension of the tensor.

    Attributes:
        shape: of the tensor.
        window: elements of a window.
        strides: by how many windows move.
        padding: positions before and after.
        results: how many windows there are.
    """

    shape: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    results: tuple[int, ...]

    @property
    def forward(self) -> tuple[WindowedDimension, ...]:
        """How windows move over the tensor."""
        rows = zip(self.shape, self.results, self.window, self.strides, self.padding, strict=True)
        return tuple(windowed(n, count, k, low=low, stride=s) for n, count, k, s, (low, _) in rows)

    @property
    def backward(self) -> tuple[WindowedDimension, ...]:
        """How the windows that meet an element move over the results."""
        return tuple(field.transposed for field in self.forward)

    def covers(self, d: int) -> bool:
        """Whether there is one window along a dimension, of all elements."""
        low = self.padding[d][0]
        return self.results[d] == 1 and 0 <= low <= self.window[d] - self.shape[d]

    @property
    def backward_of_sums(self) -> tuple[WindowedDimension, ...]:
        """How windows of the slopes of sums move over the results: where one covers all they are spread out before."""
        rows = enumerate(zip(self.shape, self.backward, strict=True))
        return tuple(windowed(n, n, 1, low=0) if self.covers(d) else field for d, (n, field) in rows)

    def spread(self, slopes: Tensor) -> Tensor:
        """A tensor of the shape of the results, spread out over the dimensions that one window covers."""
        sizes = zip(self.shape, self.results, strict=True)
        return slopes.broadcast_to([n if self.covers(d) else count for d, (n, count) in enumerate(sizes)])

    def counts(self, dtype: np.dtype) -> np.ndarray:
        """How many elements of the tensor each window has."""
        rows = zip(self.shape, self.results, self.window, self.strides, self.padding, strict=True)
        counts = np.ones((1,) * len(self.shape))
        for d, (n, count, k, s, (low, _)) in enumerate(rows):
            starts = np.arange(count) * s - low
            own = np.minimum(starts + k, n) - np.maximum(starts, 0)
            counts = counts * np.maximum(own, 0).reshape([-1 if e == d else 1 for e in range(len(self.shape))])
        return np.asarray(counts, np.float64).astype(dtype)


def _checked(
    name: str, shape: tuple[int, ...], window_shape: Any, strides: Any, padding: Any, axis: Any
) -> _CheckedPooling:
    """A pooling over some axes of a tensor.

    Raises:
        OperationError: arguments that do not fit.
    """
    rank = len(shape)
    try:
        count = len(window_shape)
    except TypeError:
        count = -1
    if axis is None:
        if count != rank - 2:
            raise OperationError(
                f"window_shape of ops.{name} has not a size for each dimension that is pooled",
                given=f"{window_shape!r} for a tensor of shape {shape}",
                expected=f"{max(0, rank - 2)} of them: (batch, field..., channels)",
                fix="axis=(2, 3), say, for those that are pooled",
            )
        own = tuple(range(1, rank - 1))
    else:
        several = tuple(axis) if isinstance(axis, Iterable) else (axis,)
        own = tuple(checked_axis(name, "axis", each, rank) for each in several)
        if len(set(own)) < len(own) or len(own) != count:
            raise OperationError(
                f"axis of ops.{name} does not fit", given=repr(axis), expected=f"one for each size of {window_shape!r}"
            )
    window = whole_numbers(name, "window_shape", window_shape, count)
    moved = whole_numbers(name, "strides", strides, count)
    pads = checked_padding(name, padding, [shape[d] for d in own], window, moved)
    if any(pad < 0 for pair in pads for pad in pair):
        raise OperationError(
            f"the padding of ops.{name} cuts elements off",
            given=repr(padding),
            expected="positions that are added, none or more",
            fix="a slice of the tensor, x[:, 1:-1], say",
        )
    every = [(1, 1, (0, 0))] * rank
    for d, k, s, pair in zip(own, window, moved, pads, strict=True):
        every[d] = (k, s, pair)
    windows, steps, padded = zip(*every, strict=True) if every else ((), (), ())
    results = tuple(num_windows(n, k, pair, s, 1) for n, (k, s, pair) in zip(shape, every, strict=True))
    return _CheckedPooling(shape, windows, steps, padded, results)


def _check_cotangent(name: str, cotangent: Tensor, own: _CheckedPooling) -> None:
    if cotangent.shape != own.results:
        raise OperationError(
            f"the cotangent of ops.{name} has not the shape of the results",
            given=cotangent.shape,
            expected=f"{own.results}, of windows {own.window} over {own.shape}",
        )


# --- operations -------------------------------------------------------------------------------------------


@checked
def max_pool(
    graph: Graph,
    x: Tensor,
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    axis: int | Sequence[int] | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "max_pool",
) -> Tensor:
    """The greatest element of each window, as `flax.linen.max_pool` and `jax.lax.reduce_window`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to pool.
        window_shape: elements of a window along each dimension that is pooled.
        strides: by how many elements windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension that is pooled.
        axis: these dimensions; default: all between the first and the last, of (batch, field..., channels).
        grain: about how many results a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> pool = cl.lower(lambda graph, x: cl.ops.max_pool(graph, x, (2, 2), (2, 2), axis=(2, 3)))
    >>> pool(jnp.arange(16.0).reshape(1, 1, 4, 4)).reshape(-1).tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    check_tensors(name, graph, x=x)
    own = _checked(name, x.shape, window_shape, strides, padding, axis)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        windows = {"x": (x, least(x.dtype))}
        return add_pooled(graph, "pool", "greatest", own.forward, windows, {}, x.dtype, grain, memory_fraction)


@checked
def plan_max_pool(
    graph: Graph,
    x: Tensor,
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    axis: int | Sequence[int] | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "plan_max_pool",
) -> Plan:
    """The plan of a `max_pool` of the same arguments; nothing is added.

    Args:
        graph: of the tensor.
        x: the tensor to pool.
        window_shape: elements of a window along each dimension that is pooled.
        strides: by how many elements windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension that is pooled.
        axis: these dimensions; default: all between the first and the last, of (batch, field..., channels).
        grain: about how many results a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: for errors.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> plan = cl.ops.plan_max_pool(graph, graph.add_variable("x", (2, 8, 8, 4)), (2, 2), (2, 2))
    >>> plan.total_cycles > 0
    True
    """
    check_tensors(name, graph, x=x)
    own = _checked(name, x.shape, window_shape, strides, padding, axis)
    work = Pooled("pool", own.forward, (("x", x.dtype),), (), x.dtype, CODELETS["greatest"])
    return plan_pooled(graph.target, work, checked_grain(name, grain), memory_fraction)


@checked
def max_pool_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    axis: int | Sequence[int] | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "max_pool_gradient",
) -> Tensor:
    """The gradient of `max_pool`, from that of its results: of equal elements of a window the first takes the slope.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the results.
        x: the tensor to pool.
        window_shape: elements of a window along each dimension that is pooled.
        strides: by how many elements windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension that is pooled.
        axis: these dimensions; default: all between the first and the last, of (batch, field..., channels).
        grain: about how many results, and then elements, a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slope = cl.lower(lambda graph, g, x: cl.ops.max_pool_gradient(graph, g, x, (2,), (2,), axis=0))
    >>> slope(jnp.array([2.0, 4.0]), jnp.array([1.0, 3.0, 7.0, 5.0]))
    Array([0., 2., 4., 0.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, x=x)
    own = _checked(name, x.shape, window_shape, strides, padding, axis)
    _check_cotangent(name, cotangent, own)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        with graph.scope("choose"):
            windows = {"x": (x, least(x.dtype))}
            chosen = add_pooled(
                graph, "choose", "first_greatest", own.forward, windows, {}, np.int32, grain, memory_fraction
            )
        slopes = {"g": (cotangent, 0), "chosen": (chosen, -1)}
        return add_pooled(
            graph,
            "gather",
            "slopes_of_chosen",
            own.backward,
            slopes,
            {},
            cotangent.dtype,
            grain,
            memory_fraction,
            is_elsewhere=True,
        )


_ADJOINT = 1.4
"""So many times the cycles of a pooling its vertices' adjoints take at least, where no two windows meet.

Measured from 1.48 to 1.77. Where they meet, slopes are summed: from 1.48 to 117 times, in 16 cases of 64 and 1,472
tiles, in 4 of them less than `max_pool_gradient` takes, which takes a tenth to a third of the time when lowered.
"""


def max_pool_gradient_pays(
    graph: Graph,
    x: Tensor,
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None,
    padding: Any,
    *,
    axis: int | Sequence[int] | None,
    grain: int | None,
    memory_fraction: float,
) -> bool:
    """Whether `max_pool_gradient` is taken for less than the adjoints of a pooling's vertices."""
    own = _checked("max_pool", x.shape, window_shape, strides, padding, axis)
    if any(step < size for step, size in zip(own.strides, own.window, strict=True)):
        return True
    planned: dict[str, Any] = {"grain": grain, "memory_fraction": memory_fraction}
    pool = plan_max_pool(graph, x, window_shape, strides, padding, axis=axis, **planned)
    places, slopes = np.dtype(np.int32), (("g", x.dtype), ("chosen", np.dtype(np.int32)))
    choose = Pooled("choose", own.forward, (("x", x.dtype),), (), places, CODELETS["first_greatest"])
    gather = Pooled("gather", own.backward, slopes, (), x.dtype, CODELETS["slopes_of_chosen"], True)
    steps = [plan_pooled(graph.target, each, **planned) for each in (choose, gather)]
    return sum(plan.total_cycles for plan in steps) <= _ADJOINT * pool.total_cycles


@checked
def avg_pool(
    graph: Graph,
    x: Tensor,
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    axis: int | Sequence[int] | None = None,
    count_include_pad: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "avg_pool",
) -> Tensor:
    """The average of each window, as `flax.linen.avg_pool`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the pooled tensor, of floating point.
        window_shape: elements of a window along each dimension that is pooled.
        strides: by how many elements windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension that is pooled.
        axis: these dimensions; default: all between the first and the last, of (batch, field..., channels).
        count_include_pad: whether positions of padding count as elements of a window.
        grain: about how many results a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> pool = cl.lower(lambda graph, x: cl.ops.avg_pool(graph, x, (2,), (2,), axis=0))
    >>> pool(jnp.array([1.0, 3.0, 5.0, 7.0]))
    Array([2., 6.], dtype=float32)
    """
    check_tensors(name, graph, x=x)
    check_floating(name, x=x)
    own = _checked(name, x.shape, window_shape, strides, padding, axis)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        windows = {"x": (x, 0)}
        if count_include_pad or not any(map(any, own.padding)):
            count = math.prod(own.window)
            return add_pooled(
                graph, "pool", "average", own.forward, windows, {}, x.dtype, grain, memory_fraction, count=count
            )
        counts = graph.add_constant("counts", own.counts(x.dtype)).broadcast_to(own.results)
        return add_pooled(
            graph,
            "pool",
            "average_of_counts",
            own.forward,
            windows,
            {"counts": counts},
            x.dtype,
            grain,
            memory_fraction,
        )


@checked
def avg_pool_gradient(
    graph: Graph,
    cotangent: Tensor,
    x_shape: Sequence[int],
    window_shape: Sequence[int],
    strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    axis: int | Sequence[int] | None = None,
    count_include_pad: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "avg_pool_gradient",
) -> Tensor:
    """The gradient of `avg_pool`, from that of its results.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the results.
        x_shape: the shape of the pooled tensor.
        window_shape: elements of a window along each dimension that is pooled.
        strides: by how many elements windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension that is pooled.
        axis: these dimensions; default: all between the first and the last, of (batch, field..., channels).
        count_include_pad: whether padding counted as elements of a window.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slope = cl.lower(lambda graph, g: cl.ops.avg_pool_gradient(graph, g, (4,), (2,), (2,), axis=0))
    >>> slope(jnp.array([2.0, 4.0]))
    Array([1., 1., 2., 2.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent)
    check_floating(name, cotangent=cotangent)
    own = _checked(name, tuple(x_shape), window_shape, strides, padding, axis)
    _check_cotangent(name, cotangent, own)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        slopes = {"g": (own.spread(cotangent), 0)}
        if count_include_pad or not any(map(any, own.padding)):
            count = math.prod(own.window)
            return add_pooled(
                graph,
                "gather",
                "slopes_of_sums",
                own.backward_of_sums,
                slopes,
                {},
                cotangent.dtype,
                grain,
                memory_fraction,
                count=count,
            )
        counts = graph.add_constant("counts", own.counts(cotangent.dtype)).broadcast_to(own.results)
        slopes["counts"] = (own.spread(counts), 1)
        return add_pooled(
            graph,
            "gather",
            "slopes_of_counts",
            own.backward_of_sums,
            slopes,
            {},
            cotangent.dtype,
            grain,
            memory_fraction,
        )
