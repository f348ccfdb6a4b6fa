"""Ragged products: of rows that lie group by group, each group with its matrix, as of a mixture of experts.

How many rows a group has is known only when it runs, and any tile may have to do with any group. So the product is that
of all groups, over rows that are zero where they are of another group, as JAX itself computes it on a CPU. It takes as
many multiply-adds as there are groups for each that counts, but over all tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.frontends.passes.fuse_elementwise import fuse_elementwise
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.jaxprs.rebuild import rebuild, struct
from codelet.ops.lookup_codelets import positions

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _by_group(x: Any, dimension: int, sizes: Any, prefix: Sequence[int]) -> Any:
    """An array once for each group, in front: zero where it is of another group, or beyond the last.

    Args:
        x: the array.
        dimension: along which it lies group by group.
        sizes: of the groups; with those dimensions of the array in front along which they differ.
        prefix: these.
    """
    sizes = positions(sizes)
    ends = jnp.cumsum(sizes, axis=-1)
    starts = ends - sizes

    def spread(bounds: Any) -> Any:
        order = np.argsort(prefix) if bounds.ndim > 1 else []
        extents = [x.shape[d] if d in prefix and bounds.ndim > 1 else 1 for d in range(x.ndim)]
        return bounds.transpose(bounds.ndim - 1, *order).reshape(bounds.shape[-1], *extents)

    places = lax.broadcasted_iota(sizes.dtype, (1, *x.shape), dimension + 1)
    return jnp.where((spread(starts) <= places) & (places < spread(ends)), x[None], jnp.zeros((), x.dtype))


def _dense(lhs: Any, rhs: Any, sizes: Any, numbers: lax.RaggedDotDimensionNumbers, kind: Any) -> Any:
    """A ragged product as a product of all groups."""
    ((summed, summed_of), (batch, batch_of)), (dimension,) = (
        tuple(tuple(tuple(map(int, own)) for own in pair) for pair in numbers.dot_dimension_numbers),
        map(int, numbers.lhs_ragged_dimensions),
    )
    dot = lambda a, b, own: lax.dot_general(a, b, own, preferred_element_type=kind)  # noqa: E731
    later = lambda dims: tuple(d + 1 for d in dims)  # noqa: E731
    if dimension in batch:
        return dot(lhs, rhs, ((summed, summed_of), (batch, batch_of)))
    if dimension in summed:
        number = summed.index(dimension)
        left = _by_group(lhs, dimension, sizes, (*batch, *summed[:number]))
        right = _by_group(rhs, summed_of[number], sizes, (*batch_of, *summed_of[:number]))
        return dot(left, right, ((later(summed), later(summed_of)), ((0, *later(batch)), (0, *later(batch_of)))))
    free = [d for d in range(lhs.ndim) if d not in (*summed, *batch)]
    left = _by_group(lhs, dimension, sizes, (*batch, *free[: free.index(dimension)]))
    (groups,) = numbers.rhs_group_dimensions
    return dot(left, rhs, (((*later(summed), 0), (*summed_of, int(groups))), (later(batch), batch_of)))


@rule("ragged_dot_general", by="`ops.dot_general` of all groups, rows of others zero")
def ragged_dot_general(
    walk: Walk,
    lhs: Value,
    rhs: Value,
    sizes: Value,
    *,
    ragged_dot_dimension_numbers: Any,
    precision: Any,
    preferred_element_type: Any,
) -> Any:
    """Products of rows with the matrix of their group. The machine has one precision of each dtype."""
    eqn = walk.equation

    def dense(x: Any, y: Any, own: Any) -> Any:
        return _dense(x, y, own, ragged_dot_dimension_numbers, preferred_element_type)

    closed = jax.make_jaxpr(dense)(*map(struct, eqn.invars))
    # It is of the line that the product is of.
    traceback = eqn.source_info.traceback
    closed = rebuild(
        fuse_elementwise(closed, {}),
        lambda builder, own, operands: builder.equation(
            own.replace(source_info=own.source_info.replace(traceback=traceback)), operands
        ),
    )
    with walk.graph.scope("ragged_dot_general", unique=True):
        return walk.closed(closed, [lhs, rhs, sizes])
