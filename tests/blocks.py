"""Graphs of blocks: products, convolutions and maps as plans over tiles cut them, whatever divides them or does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from benchmarks.hand_gradients import blocks, cuts


@cl.codelet
def product(a, b):
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)


@cl.codelet
def product_as_given(a, b):
    return product.function(a, b).astype(a.dtype)


@cl.codelet
def added_up(parts):
    return parts.sum(0)


@cl.codelet
def convolved(x, w, *, stride):
    return lax.conv_general_dilated(x[None], w, (stride, stride), "VALID")[0]


def matmul(sizes: tuple[int, int, int], codelet: Any = product, dtype: Any = jnp.float32) -> Callable[..., Any]:
    """A product of matrices by blocks of some rows, columns and length; partial products are added up."""

    def build(graph: cl.Graph, a: cl.Tensor, b: cl.Tensor) -> cl.Tensor:
        (rows, length), columns = a.shape, b.shape[1]
        inner = cuts(length, sizes[2])
        partials = graph.add_variable("partials", (sum(n for _, n, _ in inner), rows, columns), dtype)
        multiply, at = graph.add_compute_set("multiply"), 0
        for first, count, size in inner:
            for i, j in blocks((rows, columns), sizes[:2]):
                p = cl.grid(count)
                k = slice(first + size * p, first + size * p + size)
                graph.add_vertex(multiply, codelet, a=a[i, k], b=b[k, j], out=partials[at + p, i, j])
            at += count
        if len(partials) == 1:
            return partials[0]
        c = graph.add_variable("c", (rows, columns), dtype)
        add = graph.add_compute_set("add up")
        for i, j in blocks((rows, columns), sizes[:2]):
            graph.add_vertex(add, added_up, parts=partials[:, i, j], out=c[i, j])
        return c

    return build


def convolution(sizes: tuple[int, int], stride: int = 1, padding: int = 1) -> Callable[..., Any]:
    """A convolution of images by patches of some rows for some channels, with a frame of zeros around the images."""

    def build(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
        around = x.pad(((0, 0), (0, 0), (padding, padding), (padding, padding)))
        images, _, height, width = around.shape
        channels, _, *kernel = w.shape
        rows, columns = ((n - k) // stride + 1 for n, k in zip((height, width), kernel, strict=True))
        y = graph.add_variable("y", (images, channels, rows, columns))
        convolve = graph.add_compute_set("convolve")
        for i, o in blocks((rows, channels), sizes):
            n = cl.grid(images)
            size = i.stop - i.start
            patch = slice(stride * i.start, stride * i.start + stride * (size - 1) + kernel[0])
            graph.add_vertex(convolve, convolved, x=around[n, :, patch], w=w[o], out=y[n, o, i], stride=stride)
        return y

    return build


def partial_convolution(sizes: tuple[int, int, int, int], stride: int = 1) -> Callable[..., Any]:
    """A convolution by rows, filters, channels and rows of the kernel; what patches add up to is added up."""

    def build(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
        _, height, width = x.shape
        filters, channels, *kernel = w.shape
        rows, columns = ((n - k) // stride + 1 for n, k in zip((height, width), kernel, strict=True))
        inner = list(itertools.product(cuts(channels, sizes[2]), cuts(kernel[0], sizes[3])))
        counts = tuple(sum(n for _, n, _ in cuts(*own)) for own in ((channels, sizes[2]), (kernel[0], sizes[3])))
        partials = graph.add_variable("partials", (*counts, filters, rows, columns))
        convolve = graph.add_compute_set("convolve")
        for (first, many, c), (top, several, k) in inner:
            for i, o in blocks((rows, filters), sizes[:2]):
                p, q = cl.grid(many, several)
                patch = slice(
                    stride * i.start + top + q * k, stride * i.start + top + q * k + stride * (i.stop - i.start - 1) + k
                )
                channel, row = slice(first + p * c, first + p * c + c), slice(top + q * k, top + q * k + k)
                out = partials[first // sizes[2] + p, top // sizes[3] + q, o, i]
                graph.add_vertex(convolve, convolved, x=x[channel, patch], w=w[o, channel, row], out=out, stride=stride)
        y = graph.add_variable("y", (filters, rows, columns))
        flat, parts = y.flatten(), partials.reshape(counts[0] * counts[1], y.size)
        add = graph.add_compute_set("add up")
        for (i,) in blocks((y.size,), (50,)):
            graph.add_vertex(add, added_up, parts=parts[:, i], out=flat[i])
        return y

    return build


def mapped(size: int, codelet: Any) -> Callable[..., Any]:
    """A function of every element, by stretches of so many."""

    def build(graph: cl.Graph, *tensors: cl.Tensor) -> cl.Tensor:
        y = graph.add_variable("y", tensors[0].shape)
        compute = graph.add_compute_set("map")
        for (i,) in blocks(y.shape, (size,)):
            given = {name: tensor[i] for name, tensor in zip(codelet.inputs, tensors, strict=True)}
            graph.add_vertex(compute, codelet, **given, out=y[i])
        return y

    return build


# --- drawn ----------------------------------------------------------------------------------------------------


@cl.codelet
def product_of_blocks(a, b):
    return a @ b


@cl.codelet
def shifted(x, row, *, by):
    return jnp.where(x > by, x, row + x)


@cl.codelet
def convolved_line(x, w, *, stride):
    return lax.conv_general_dilated(x[None], w, (stride,), "VALID")[0].T


@cl.codelet
def rows_scaled(x, y):
    return x * y[:, None] + x.max(1, keepdims=True)


@cl.codelet
def repeated(x, column, row):
    return x * column + row


def blocked(builder: Any) -> list[Any]:
    """A compute set of several families of blocks, all that write one variable, of one codelet for the most part."""
    draw, graph = builder.draw, builder.case.graph
    size = st.integers(1, 4)
    kind = draw(st.sampled_from(["product", "convolution", "map", "repeated", "rows"]))
    step = graph.add_compute_set(f"blocks{next(builder.numbers)}")
    # A part of what is written, so that families may begin and end anywhere.
    first = draw(st.integers(0, 2))
    shape = (draw(size) + draw(size), draw(size) + 1)
    held = builder.variable((shape[0] + first, shape[1]))
    target = held[first:]
    sizes = (draw(size), draw(size))
    if kind == "product":
        length = draw(size)
        a, b = builder.variable((shape[0], length)), builder.variable((length, shape[1] + 1))
        for i, j in blocks(shape, sizes):
            graph.add_vertex(step, product_of_blocks, a=a[i], b=b[:, j.start + 1 : j.stop + 1], out=target[i, j])
    elif kind == "convolution":
        stride, kernel = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        x = builder.variable((2, stride * (shape[0] - 1) + kernel)).pad(((0, 0), (1, 1)))
        w = builder.variable((shape[1], 2, kernel))
        for i, j in blocks(shape, sizes):
            patch = slice(stride * i.start, stride * i.start + stride * (i.stop - i.start - 1) + kernel)
            graph.add_vertex(step, convolved_line, x=x[:, patch], w=w[j], out=target[i, j], stride=stride)
    elif kind == "map":
        x, by = builder.variable(shape), draw(st.integers(0, 1))
        for i, j in blocks(shape, sizes):
            row = draw(st.sampled_from([3, i.start]))
            graph.add_vertex(step, shifted, x=x[i, j], row=row, out=target[i, j], by=by)
    elif kind == "repeated":
        x, column, row = builder.variable(shape), builder.variable((shape[0], 2)), builder.variable((1, shape[1]))
        for i, j in blocks(shape, sizes):
            graph.add_vertex(step, repeated, x=x[i, j], column=column[i, 1:], row=row[:, j], out=target[i, j])
    else:
        x, y = builder.variable(shape), builder.variable((shape[0],))
        table = cl.table(draw(st.permutations(range(shape[0])))) if draw(st.booleans()) else None
        for (i,) in blocks(shape[:1], sizes[:1]):
            scale = y[i] if table is None else y[table[i]]
            graph.add_vertex(step, rows_scaled, x=x[i], y=scale, out=target[i])
    return [cl.Execute(step)]


def _term(x: Any, m: Any, of: str) -> Any:
    return {"itself": x, "square": x * x, "more": x + m, "chosen": jnp.where(x > m, x, m)}[of]


@cl.codelet
def reduced(x, m, *, of, by):
    return getattr(jnp, by)(_term(x, m[:, None], of), 1).astype(x.dtype)


@cl.codelet
def reduced_twice(x, m, *, of, by):
    return {
        "out": getattr(jnp, by)(_term(x, m[:, None], of), 1).astype(x.dtype),
        "beside": getattr(jnp, by)(x, 1).astype(x.dtype),
    }


@cl.codelet
def reduced_parts(parts, *, by):
    return getattr(jnp, by)(parts, 0).astype(parts.dtype)


def staged(builder: Any) -> list[Any]:
    """Rows of a term reduced block by block, and then what blocks gave, which something else may read as well."""
    draw, graph = builder.draw, builder.case.graph
    number = next(builder.numbers)
    parts, last = (graph.add_compute_set(f"{name}{number}") for name in ("partial", "reduced"))
    rows, n, first = draw(st.integers(1, 3)), draw(st.integers(2, 7)), draw(st.integers(0, 1))
    sizes = draw(st.integers(1, rows)), draw(st.integers(1, n))
    count = sum(own for _, own, _ in cuts(n, sizes[1]))
    x, m = builder.variable((rows, n + first))[:, first:], builder.variable((rows,))
    by, of = draw(st.sampled_from(["sum", "max", "min"])), draw(st.sampled_from(["itself", "square", "more", "chosen"]))
    held = [
        (builder.variable if draw(st.integers(0, 3)) == 0 else builder.short)((count + first, rows))[first:]
        for _ in range(draw(st.integers(1, 2)))
    ]
    at = 0
    for start, many, size in cuts(n, sizes[1]):
        for (i,) in blocks((rows,), sizes[:1]):
            k = cl.grid(many)
            written = {name: view[at + k, i] for name, view in zip(("out", "beside"), held, strict=False)}
            columns = slice(start + size * k, start + size * k + size)
            kind = (reduced, reduced_twice)[len(held) - 1]
            graph.add_vertex(parts, kind, x=x[i, columns], m=m[i], of=of, by=by, **written)
        at += many
    taken = count - draw(st.sampled_from([0, 0, 0, min(1, count - 1)]))
    for own in held:
        out = builder.variable((rows,))
        for (i,) in blocks((rows,), (draw(st.integers(1, rows)),)):
            graph.add_vertex(
                last, reduced_parts, parts=own[:taken, i], out=out[i], by=draw(st.sampled_from([by, by, "max"]))
            )
    written = draw(st.sampled_from([None, None, x[:, 1:], m[:1], held[0][:1]]))
    return [cl.Execute(parts), *([] if written is None else [cl.Copy(3, written)]), cl.Execute(last)]
