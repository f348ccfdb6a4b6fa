"""Rewriting: variables written in part, in one way after another, from what they hold.

The steps that `tests/strategies.py` draws of these are copies and compute sets, whose views are strided, reversed,
transposed, reshaped, flat, and vertices alone that update an array. What they write to was given, or is a product, a
gather or a join, whose shape XLA may lay out as it likes; all of it may be in a loop of one turn.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from tests.bounded import squash


@cl.codelet
def passed_on(x):
    return x


@cl.codelet
def multiplied(x, *, shape):
    """A product with numbers, as an array of any shape that begins with the rows of `x`."""
    numbers = np.arange(x.shape[1] * math.prod(shape)).reshape(x.shape[1], *shape) * 5 % 3 - 1
    return squash(jnp.tensordot(x, numbers.astype(x.dtype), 1)).astype(x.dtype)


@cl.codelet
def looked_up(x, *, at, shape):
    return x[np.array(at)].reshape(shape)


@cl.codelet
def updated(x, *, shape, at, start, back, way):
    """Some rows of an array, in a shape of its own, from as many of its elements from a place of it on."""
    rows = x.reshape(shape)
    size = (at[1] - at[0]) * math.prod(shape[1:])
    flat = x.reshape(-1)[::-1] if back else x.reshape(-1)
    read = (flat[start : start + size].reshape(at[1] - at[0], *shape[1:]) + 1).astype(x.dtype)
    if way == "add":
        rows = rows.at[at[0] : at[1]].add(read)
    elif way == "slice":
        rows = lax.dynamic_update_slice(rows, read, (at[0],) + (0,) * (len(shape) - 1))
    else:
        rows = rows.at[at[0] : at[1]].set(read)
    return {"x": squash(rows.reshape(x.shape)).astype(x.dtype)}


def _one_vertex(builder: Any, kind: cl.Codelet, **fields: Any) -> list[Any]:
    step = builder.case.graph.add_compute_set(f"alone{next(builder.numbers)}")
    builder.case.graph.add_vertex(step, kind, **fields)
    return [cl.Execute(step)]


def _made(builder: Any, held: cl.Tensor) -> list[Any]:
    """What gives a variable its values first: nothing, a product, a gather, a join of what was cut."""
    draw = builder.draw
    kind = draw(st.sampled_from(["given", "product", "gather", "join"]))
    if kind == "product":
        x = builder.variable((held.shape[0], draw(st.integers(1, 3))))
        return _one_vertex(builder, multiplied, x=x, out=held, shape=held.shape[1:])
    if kind == "gather":
        x = builder.variable((draw(st.integers(1, 4)), *held.shape[1:]))
        rows = st.lists(st.integers(0, len(x) - 1), min_size=held.shape[0], max_size=held.shape[0])
        return _one_vertex(builder, looked_up, x=x, out=held, at=tuple(draw(rows)), shape=held.shape)
    if kind == "join":
        flat = builder.variable(tuple(held.shape)).flatten()
        cut = draw(st.integers(0, held.size))
        return [cl.Copy(cl.concatenate([flat[cut:], flat[:cut]]).reshape(held.shape), held)]
    return []


def _updated(builder: Any, held: cl.Tensor) -> list[Any]:
    """A vertex alone that writes some rows of a variable, in any shape of it, from its other elements."""
    draw, size = builder.draw, held.size
    shapes = [held.shape, (size,), *[(n, size // n) for n in range(2, size) if size % n == 0]]
    shape = tuple(draw(st.sampled_from([*shapes, *[(*own[:1], *own[:0:-1]) for own in shapes]])))
    first, last = sorted(draw(st.permutations(range(shape[0] + 1)))[:2])
    start = draw(st.integers(0, size - (last - first) * math.prod(shape[1:])))
    way, back = draw(st.sampled_from(["set", "set", "add", "slice"])), draw(st.booleans())
    return _one_vertex(builder, updated, x=held, shape=shape, at=(first, last), start=start, back=back, way=way)


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
    draw, graph = builder.draw, builder.case.graph
    held = builder.variable(tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))))
    program = _made(builder, held)
    for _ in range(draw(st.integers(2, 3))):
        if draw(st.integers(0, 3)) == 0:
            program += _updated(builder, held)
            continue
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
    cut = draw(st.sampled_from([None, None, 0, 1]))
    return program if cut is None else [*program[:cut], cl.Repeat(1, cl.Sequence(*program[cut:]))]
