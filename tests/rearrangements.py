"""Rearrangements: values whose elements lie in another order or several times, and products of such values."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st
from jax import lax


@st.composite
def rearranged(draw: Any, shape: tuple[int, ...]) -> Any:
    """A chain of reshapes, transposes and broadcasts from `shape`: the function, and the shape it ends in."""
    steps = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["transpose", "split", "merge", "expand", "repeat", "squeeze"]))
        if kind == "transpose" and shape:
            order = tuple(draw(st.permutations(range(len(shape)))))
            steps.append(lambda x, o=order: lax.transpose(x, o))
            shape = tuple(shape[d] for d in order)
        elif kind == "split" and shape:
            d = draw(st.integers(0, len(shape) - 1))
            factor = draw(st.sampled_from([n for n in (1, 2, 3, 4, 6) if shape[d] % n == 0]))
            shape = (*shape[:d], factor, shape[d] // factor, *shape[d + 1 :])
            steps.append(lambda x, s=shape: x.reshape(s))
        elif kind == "merge" and len(shape) > 1:
            d = draw(st.integers(0, len(shape) - 2))
            shape = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
            steps.append(lambda x, s=shape: x.reshape(s))
        elif kind == "expand":
            shape = (1, *shape)
            steps.append(lambda x, s=shape: lax.broadcast_in_dim(x, s, tuple(range(1, len(s)))))
        elif kind == "repeat" and math.prod(shape) < 300:
            n = draw(st.integers(2, 3))
            shape = (n, *shape)
            steps.append(lambda x, s=shape: lax.broadcast_in_dim(x, s, tuple(range(1, len(s)))))
        elif kind == "squeeze" and 1 in shape:
            d = shape.index(1)
            shape = (*shape[:d], *shape[d + 1 :])
            steps.append(lambda x, d=d: lax.squeeze(x, (d,)))

    def apply(x):
        for step in steps:
            x = step(x)
        return x

    return apply, shape


@st.composite
def summed_products(draw: Any) -> Any:
    """A sum, over some dimensions of a rearrangement, of a product or dot of rearranged operands."""
    shapes = [tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3))) for _ in range(2)]
    (left, a), (right, b) = (draw(rearranged(shape)) for shape in shapes)
    if draw(st.booleans()):
        # An outer product through broadcasts, with some dimensions perhaps in common.
        common = 0
        while common < min(len(a), len(b)) and a[common] == b[common] and draw(st.booleans()):
            common += 1
        shape = (*a, *b[common:])
        spread_a, spread_b = tuple(range(len(a))), (*range(common), *range(len(a), len(shape)))

        full = shape

        def product(x, y):
            return lax.broadcast_in_dim(x, full, spread_a) * lax.broadcast_in_dim(y, full, spread_b)

    else:
        pairs = [(i, j) for i, n in enumerate(a) for j, m in enumerate(b) if n == m]
        chosen: list[tuple[int, int]] = []
        for i, j in draw(st.permutations(pairs)):
            if i not in {p[0] for p in chosen} and j not in {p[1] for p in chosen} and draw(st.booleans()):
                chosen.append((i, j))
        cut = draw(st.integers(0, len(chosen)))
        numbers: Any = tuple(tuple(zip(*part, strict=True)) or ((), ()) for part in (chosen[:cut], chosen[cut:]))

        def product(x, y):
            return lax.dot_general(x, y, numbers)

        shape = jax.eval_shape(product, np.zeros(a), np.zeros(b)).shape
    last, shape = draw(rearranged(shape))
    axes = tuple(d for d in range(len(shape)) if draw(st.booleans()))
    return (lambda x, y: last(product(left(x), right(y))).sum(axes)), shapes
