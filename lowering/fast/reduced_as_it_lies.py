"""Reduced as it lies: reductions of maps whose arrays are reduced along a dimension that is outside of others.

Under `vmap` the axes of the results come first. A sum over rows, of what a map makes of a matrix and of a number for
each row and each column, would so be of transposed arrays. In come the reduced map that a codelet is, and the keys of
its operands; out comes the function of all vertices, which maps whole arrays in the order of the largest one
(`codelet/jaxprs/lifted.py`), and reduces along dimensions wherever these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.jaxprs.lifted import lifted
from codelet.refused import Refused
from codelet.views.grids import Axis, Key
from lowering.jaxprs.reduced_maps import reduced_map

Reducing = Callable[[Sequence[Any]], Any]
"""The results of all vertices, of the operand of each field."""


def reduced_as_it_lies(family: Family, keys: Sequence[tuple[Key, ...]]) -> tuple[Reducing, tuple[Key, ...]] | None:
    """How a family reduces maps of its operands as they lie; None where it does not, or `vmap` transposes nothing.

    Args:
        family: of one result.
        keys: of the dimensions of the operand of each of its inputs, in memory order.

    Returns:
        The function of the operands; and the axes along the dimensions of its result.
    """
    order = max(keys, key=len, default=())
    first = next((k for k, key in enumerate(order) if not isinstance(key, Axis)), len(order))
    if len(family.codelet.outputs) != 1 or not any(isinstance(key, Axis) for key in order[first:]):
        return None
    reduces = reduced_map(family.codelet)
    if isinstance(reduces, Refused) or reduces.term is None:
        return None
    numbers = {name: k for k, name in enumerate(family.codelet.inputs)}
    fields = [numbers[name] for name in reduces.fields]
    leaves: list[tuple[Key, ...]] = []  # the keys of each, by dimensions of the terms
    for field, dims in zip(fields, reduces.dims, strict=True):
        shape = family.inputs[field].type.shape
        along = dict(zip((d for d, n in enumerate(shape) if n != 1), dims, strict=True))
        leaves.append(tuple(along.get(key, -1) if isinstance(key, int) else key for key in keys[field]))
    order = max(leaves, key=len)
    every = {*family.axes, *(d for d, n in enumerate(reduces.shape) if n != 1)}
    if every != {*order} or any(own != tuple(key for key in order if key in own) for own in leaves):
        return None
    extents = [key.extent if isinstance(key, Axis) else reduces.shape[key] for key in order]
    terms = lifted(reduces.term, [tuple(map(order.index, own)) for own in leaves], extents)
    if terms is None:
        return None
    (dtype,) = (kind.dtype for kind in family.codelet.outputs.values())
    axes = tuple(k for k, key in enumerate(order) if not isinstance(key, Axis))

    def run(operands: Sequence[jax.Array]) -> jax.Array:
        (made,) = jax_core.jaxpr_as_fun(terms)(*(operands[field] for field in fields))
        return lax.convert_element_type(getattr(lax, reduces.name)(made, axes), dtype)

    return run, tuple(key for key in order if isinstance(key, Axis))
