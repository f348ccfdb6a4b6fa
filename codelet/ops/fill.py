"""Numbers made of nothing: `fill` as `jax.lax.full`, `iota` as `jax.lax.broadcasted_iota`.

Nothing is read, so that the fewest cycles are on the most tiles. A number that all elements share needs no memory at
all as a view: `graph.add_constant(name, value).broadcast_to(shape)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.deprecated import old_order
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.arguments import check_tensors, checked_axis, checked_dtype, checked_grain, checked_shape
from codelet.ops.blocks import add_blocks
from codelet.ops.pairs import both
from codelet.ops.schema import checked
from codelet.target import Target
from codelet.tracing.codelets import codelet
from codelet.views.tensor import Tensor


@both
def filled(*, shape, value, dtype):
    """A block of one value."""
    return jnp.full(shape, value, dtype)


@codelet(workers=6, issue="assembly")
def counted(first, *, size, dtype):
    """Integers one after another, from a first."""
    return (lax.iota(jnp.int32, size) + first).astype(dtype)


def _even_cut(target: Target, extent: int, dtype: np.dtype, grain: int | None) -> Cut:
    """Elements spread evenly over all tiles, in whole vectors where there are many."""
    least = -(-extent // target.num_tiles)
    vector = max(1, 8 // dtype.itemsize)
    size = grain or (-(-least // vector) * vector if least >= vector else least)
    return Cut("elements", extent, min(extent, -(-least // size) * size), min(extent, size))


def add_filled(graph: Graph, out: Tensor, value: bool | complex, grain: int | None = None) -> None:
    """The vertices that write one number to all elements of a tensor, on all tiles.

    Args:
        graph: where.
        out: the tensor to write.
        value: the number.
        grain: about how many elements a vertex has; default: spread evenly over the tiles.
    """
    if not out.size:
        return
    flat, cut = out.flatten(), _even_cut(graph.target, out.size, out.dtype, grain)

    def fields(block: Block) -> dict[str, Any]:
        part = flat[block.elements]
        return {"out": part, "shape": part.shape, "value": value, "dtype": out.dtype.name}

    add_blocks(graph, "fill", filled.for_vertices(cut.vertices_of_tile, graph.target.num_workers), [cut], fields)


@old_order(("dtype",), after=3)
@checked
def fill(
    graph: Graph,
    shape: Sequence[int],
    value: Any,
    *,
    dtype: Any = None,
    grain: int | None = None,
    name: str = "fill",
) -> Tensor:
    """An array of one number, as `jax.lax.full`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        shape: of the array.
        value: a number.
        dtype: of the array; default: the number's.
        grain: about how many elements a vertex has; default: spread evenly over the tiles.
        name: of the scope.

    Raises:
        OperationError: a shape, dtype or value that is none.

    >>> import codelet as cl
    >>> cl.lower(lambda graph: cl.ops.fill(graph, (2, 2), 0.5))()
    Array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    check_tensors(name, graph)
    own = checked_shape(name, shape)
    held = np.asarray(value)
    if held.shape or not (held.dtype == bool or jnp.issubdtype(held.dtype, jnp.number)):
        raise OperationError(
            f"the value of ops.{name} is not a number",
            given=f"{value!r:.60}",
            expected="one number",
            fix="a tensor of shape () is spread by tensor.broadcast_to(shape)",
        )
    kind = checked_dtype(name, "dtype", jnp.asarray(value).dtype if dtype is None else dtype)
    number = held.item() if held.dtype.kind in "biufc" else float(held)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        out = graph.add_variable("out", own, kind)
        add_filled(graph, out, number, grain)
        return out


@old_order(("dtype", "shape", "axis"), lambda first: isinstance(first, (str, type, np.dtype)))
@checked
def iota(
    graph: Graph,
    shape: int | Sequence[int],
    axis: int = 0,
    *,
    dtype: Any,
    grain: int | None = None,
    name: str = "iota",
) -> Tensor:
    """Integers from 0 along an axis, as `jax.lax.broadcasted_iota`; along the others the result is a view.

    Args:
        graph: where its compute set is added, in a scope of its name.
        shape: of the result; or one extent.
        axis: along which it counts.
        dtype: of the numbers.
        grain: about how many elements a vertex has; default: spread evenly over the tiles.
        name: of the scope.

    Raises:
        OperationError: a shape, dtype or axis that is none.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph: cl.ops.iota(graph, (2, 3), 1, dtype=jnp.int32))()
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    check_tensors(name, graph)
    own = checked_shape(name, shape)
    d = checked_axis(name, "axis", axis, len(own))
    kind = checked_dtype(name, "dtype", dtype)
    if kind.kind == "b":
        raise OperationError(f"ops.{name} counts in a dtype without numbers", given="bool", expected="jnp.int32, say")
    extent = own[d]
    cut = _even_cut(graph.target, extent, kind, checked_grain(name, grain)) if extent else None
    with graph.scope(name, unique=True):
        out = graph.add_variable("out", (extent,), kind)
        if cut is not None:

            def fields(block: Block) -> dict[str, Any]:
                part = out[block.elements]
                return {"first": block.elements.start, "out": part, "size": part.shape[0], "dtype": kind.name}

            add_blocks(graph, "count", counted, [cut], fields)
    return out.reshape([extent if k == d else 1 for k in range(len(own))]).broadcast_to(own)
