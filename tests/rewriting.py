"""Rewriting: variables written in part, in one way after another, from what they hold.

The steps that `tests/strategies.py` draws of these are copies and compute sets, whose views are strided, reversed,
transposed, reshaped, flat.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

import codelet as cl


@cl.codelet
def passed_on(x):
    return x


@st.composite
def parts(draw: Any, tensor: cl.Tensor) -> cl.Tensor:
    """Part of a tensor, or all of it, no element twice."""
    kind = draw(st.sampled_from(["strided", "strided", "flat", "blocks", "transposed"]))
    if kind == "transposed":
        tensor = tensor.T
    if kind == "flat":
        tensor = tensor.flatten()
    if kind == "blocks":
        shape = [n for size in tensor.shape for n in ((size // 2, 2) if size % 2 == 0 else (size,))]
        tensor = tensor.reshape(*shape)
    items = []
    for size in tensor.shape:
        step = draw(st.sampled_from([1, 1, 2, 3]))
        start = draw(st.integers(0, min(step, size - 1)))
        items.append(slice(start, None, step) if draw(st.booleans()) else slice(size - 1 - start, None, -step))
    return tensor[tuple(items)]


def rewritten(builder: Any) -> list[Any]:
    """Two or three writes to parts of one variable, each of elements that it held before."""
    draw, graph, program = builder.draw, builder.case.graph, []
    held = builder.variable(tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(2, 3))):
        target = draw(parts(held))
        count = math.prod(target.shape)
        flat = draw(st.sampled_from([held, held.T, held[::-1]])).flatten()
        source = draw(st.sampled_from([flat[:count], flat[held.size - count :]]))
        if draw(st.booleans()):
            program.append(cl.Copy(source.reshape(*target.shape), target))
            continue
        between, number = builder.variable((count,)), next(builder.numbers)
        i = cl.grid(count)
        for name, read, write in ((f"take{number}", source, between), (f"put{number}", between, target.flatten())):
            graph.add_vertex(graph.add_compute_set(name), passed_on, x=read[i], out=write[i])
            program.append(cl.Execute(graph.compute_sets[-1]))
    return program
