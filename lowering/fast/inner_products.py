"""Inner products: families of them made by the lowering, in the place of several of the user's.

In come two views over axes, with one dimension for each that is summed over, and what is written; out comes a family
whose codelet is their inner product, as a user might have written it. What then runs it, `kernels.py` finds as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis
from codelet.views.tensor import Tensor

LEFT, RIGHT, OUT = "left", "right", "out"
"""What the fields of an inner product are called."""


@functools.lru_cache(maxsize=256)
def inner_product(
    shape: tuple[int, ...], dtype: np.dtype, summed_in: np.dtype, result: np.dtype, precision: Any
) -> TracedCodelet:
    """The inner product of two fields of a shape and dtype, summed in one dtype and given in another."""
    every = tuple(range(len(shape)))

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        numbers = (every, every), ((), ())
        summed = lax.dot_general(left, right, numbers, precision=precision, preferred_element_type=summed_in)
        return lax.convert_element_type(summed, result)

    field = jax.ShapeDtypeStruct(shape, dtype)
    codelet = JaxprCodelet([jax.make_jaxpr(product)(field, field)], (LEFT, RIGHT), (OUT,), "inner product")
    return codelet.trace(dict.fromkeys((LEFT, RIGHT), FieldType(shape, dtype)))


def product_family(
    like: Family,
    axes: Sequence[tuple[Axis, str]],
    left: Tensor,
    right: Tensor,
    out: Tensor,
    summed_in: np.dtype,
    precision: Any,
) -> Family:
    """A family of inner products.

    Args:
        like: one whose place it takes.
        axes: of its grid, and what they are called.
        left: the first factor.
        right: the second, of the same shape and dtype.
        out: what is written, of shape ().
        summed_in: the dtype of the sums, before they are given that of what is written.
        precision: of the products.
    """
    codelet = inner_product(left.shape, left.dtype, np.dtype(summed_in), out.dtype, precision)
    kind = codelet.inputs[LEFT]
    fields = (
        Field(LEFT, "in", kind, left),
        Field(RIGHT, "in", kind, right),
        Field(OUT, "out", codelet.outputs[OUT], out),
    )
    own, names = zip(*axes, strict=True) if axes else ((), ())
    made = replace(like, codelet=codelet, axes=tuple(own), axis_names=tuple(names), fields=fields, inside=())
    return replace(made, tile=None, line_of_vertex=None)
