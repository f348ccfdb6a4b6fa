"""Operations of the library in drawn graphs: what they read was written by hand, and what is by hand reads them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import codelet as cl
from codelet import ops


@cl.codelet
def bounded(x):
    """What keeps numbers small that a program makes of themselves again and again."""
    return jnp.sin(x) if jnp.issubdtype(x.dtype, jnp.floating) else (x % 7).astype(x.dtype)


SMOOTH = ["sum", "product", "map", "concatenate", "prefix sums", "lookup"]
"""Of all dtypes, and with slopes everywhere."""

OF_FLOATS = ["softmax", "norm"]

WITH_TIES = ["max", "pool", "running", "sort"]
"""Where elements are equal, slopes by finite differences are none."""


def less(a: Any, b: Any) -> Any:
    """A function of elements; one with a name can be pickled."""
    return a - b * a


def _added(kind: str, graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, axis: int, grain: int | None) -> cl.Tensor:
    """An operation of some kind on two matrices of one shape."""
    if kind == "sum":
        return ops.sum(graph, x, axis, dtype=x.dtype, grain=grain)
    if kind == "max":
        return ops.max(graph, x, axis, grain=grain)
    if kind == "product":
        return ops.matmul(graph, x, y.T, grain=grain)
    if kind == "map":
        return ops.map(graph, less, x, y[:1], grain=grain)  # type: ignore[return-value]
    if kind == "prefix sums":
        return ops.cumsum(graph, x, axis, grain=grain)
    if kind == "sort":
        return ops.sort(graph, x, axis, grain=grain)
    if kind == "lookup":
        places = graph.add_constant(f"places{len(graph.variables)}", np.arange(-1, x.shape[axis], dtype=np.int32))
        return ops.take(graph, x, places, axis, grain=grain)
    if kind == "running":
        return ops.cummax(graph, x, axis, grain=grain)
    if kind == "pool":
        images = x.reshape((1, *x.shape, 1))
        return ops.max_pool(graph, images, (1, min(2, x.shape[1])), (1, 1), grain=grain)
    if kind == "softmax":
        return ops.softmax(graph, x, axis, grain=grain)
    if kind == "norm":
        return ops.layer_norm(graph, x, y[0], y[0], grain=grain)
    return ops.concatenate(graph, [x, y], axis)


def operated(builder: Any) -> list[Any]:
    """One operation or two, of which the second reads the first; a vertex by hand for each element of the last."""
    draw, graph = builder.draw, builder.case.graph
    dtype = np.dtype(builder.dtype)
    kinds = SMOOTH + OF_FLOATS * jnp.issubdtype(dtype, jnp.floating) + WITH_TIES * (dtype != np.float64)
    before = len(graph.compute_sets), len(graph.variables)
    source = builder.readable().flatten()
    width = draw(st.integers(1, min(4, source.size)))
    height = draw(st.integers(1, min(5, source.size // width)))
    x, y = source[: width * height].reshape((height, width)), builder.variable((height, width))
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2)):
        found = _added(kind, graph, x, y, draw(st.integers(0, 1)), draw(st.none() | st.integers(1, 9)))
        x = found.reshape((1, found.size)) if found.ndim != 2 else found
        y = (
            y.flatten()[: x.size]
            if y.size >= x.size
            else cl.concatenate([y.flatten()] * -(-x.size // y.size))[: x.size]
        )
        y = y.reshape(x.shape)
    last, step = x.flatten(), graph.add_compute_set(f"by hand{next(builder.numbers)}")
    i = cl.grid(last.size)
    graph.add_vertex(step, bounded, x=last[i], out=builder.variable((last.size,))[i])
    for variable in graph.sources[before[1] :]:
        if variable.value is None and variable.name not in builder.case.inputs:  # where it is read but not run
            builder.case.inputs[variable.name] = np.zeros(variable.shape, variable.dtype)
    return [cl.Execute(own) for own in graph.compute_sets[before[0] :]]
