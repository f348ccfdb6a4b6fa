"""Views drawn beside NumPy's, and views of neighbours, as stencils read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import codelet as cl

# --- views ------------------------------------------------------------------------------------------------


@st.composite
def viewed(draw: Any, dtype: Any = np.float32) -> tuple[cl.Tensor, np.ndarray]:
    """A chain of views of variables, and NumPy's same chain on the numbers of their elements.

    Where padding stands these are -1 less its value.
    """
    graph = cl.Graph()
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=0, max_size=3)))
    tensor = graph.add_variable("x", shape, dtype)
    array = np.arange(tensor.size).reshape(shape)
    for step in range(draw(st.integers(0, 5))):
        tensor, array = draw(view_step(graph, tensor, array, step))
    return tensor, array


@st.composite
def view_step(draw: Any, graph: cl.Graph, tensor: cl.Tensor, array: np.ndarray, step: int) -> Any:
    """One more view of both."""
    kinds = ["reshape", "flatten", "transpose", "concat", "broadcast", "expand", "index"]
    if array.ndim:
        kinds += ["index", "reverse", "reverse"]
    if array.size < 2000:
        kinds += ["pad", "pad"]
    if 1 in array.shape:
        kinds.append("squeeze")
    kind = draw(st.sampled_from(kinds))
    if kind == "flatten":
        return tensor.flatten(), array.reshape(-1)
    if kind == "reshape":
        factors = _factors(array.size) if array.size else [array.size]
        order = draw(st.permutations(factors))
        cut = draw(st.integers(0, len(order)))
        shape = (int(np.prod(order[:cut])), int(np.prod(order[cut:])))
        return tensor.reshape(shape), array.reshape(shape)
    if kind == "transpose":
        order = draw(st.permutations(range(array.ndim)))
        return tensor.transpose(*order), array.transpose(order) if array.ndim else array
    if kind == "concat" and array.ndim:
        axis = draw(st.integers(0, array.ndim - 1))
        other = graph.add_variable(f"y{step}", array.shape, tensor.dtype)
        numbers = other.elements()
        return cl.concatenate([tensor, other, tensor], axis), np.concatenate([array, numbers, array], axis)
    if kind == "broadcast":
        shape = (draw(st.integers(1, 3)), *(draw(st.integers(1, 3)) if n == 1 else n for n in array.shape))
        return tensor.broadcast_to(shape), np.broadcast_to(array, shape)
    if kind == "expand":
        axis = draw(st.integers(-array.ndim - 1, array.ndim))
        return tensor.expand(axis), np.expand_dims(array, axis)
    if kind == "squeeze":
        return tensor.squeeze(), array.squeeze()
    if kind == "reverse":
        axis = draw(st.integers(0, array.ndim - 1))
        return tensor.reverse(axis), np.flip(array, axis)
    if kind == "pad":
        widths = draw(padding(array.ndim, 9 if array.ndim == 1 else 3))
        full = np.broadcast_to(widths, (array.ndim, 2))
        extends_nothing = any(n == 0 and pair.any() for n, pair in zip(array.shape, full, strict=True))
        mode = "constant" if extends_nothing else draw(st.sampled_from(["constant", "edge", "wrap", "reflect"]))
        value = draw(st.integers(0, 1 if tensor.dtype == np.bool_ else 2)) if mode == "constant" else 0
        return tensor.pad(widths, mode, value), padded_numbers(array, widths, mode, value)
    items = draw(items_for(array.shape))
    return tensor[items], array[items]


def padded_numbers(numbers: np.ndarray, widths: Any, mode: Any, value: int = 0) -> np.ndarray:
    """The numbers of elements after a pad. Padding is an element of no variable: its number is -1 less its value."""
    return np.pad(numbers, widths, constant_values=-1 - value) if mode == "constant" else np.pad(numbers, widths, mode)


@st.composite
def padding(draw: Any, ndim: int, most: int = 2) -> Any:
    """Widths of padding: one number, one pair, or a pair for each dimension."""
    width = st.integers(0, most)
    forms = [width, st.tuples(width, width)]
    if ndim:
        forms.append(st.tuples(*[st.tuples(width, width)] * ndim))
    return draw(st.one_of(forms))


def _factors(number: int) -> list[int]:
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


@st.composite
def items_for(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """What may stand between the brackets for an array of `shape`, NumPy's advanced indexing included."""
    items: list[Any] = []
    block = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))
    count, at_end = draw(st.integers(0, len(shape))), draw(st.booleans())
    for size in shape[len(shape) - count :] if at_end else shape[:count]:
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "new"]))
        if kind == "new":
            items.append(None)
        if kind == "int" and size:
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array" and size:
            entries = st.integers(-size, size - 1)
            length = int(np.prod(block))
            drawn = draw(st.lists(entries, min_size=length, max_size=length))
            items.append(np.asarray(drawn).reshape(block))
        else:
            ends = st.none() | st.integers(-size - 1, size + 1)
            step = draw(st.sampled_from([None, 1, 2, -1, -2]))
            items.append(slice(draw(ends), draw(ends), step))
    if at_end:
        items.insert(0, Ellipsis)
    elif draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


# --- neighbours ---------------------------------------------------------------------------------------


@st.composite
def neighbour(draw: Any, tensor: cl.Tensor, symbols: Sequence[Any], extents: Sequence[int]) -> cl.Tensor:
    """A view of an element, or of a small window, around where symbols stand: by `%`, by a pad, or as it is."""
    mode = draw(st.sampled_from(["modulo", "wrap", "edge", "reflect", "constant", "plain"]))
    items: list[Any] = []
    if mode in ("modulo", "plain"):
        for n, symbol, extent in zip(tensor.shape, symbols, extents, strict=True):
            step = draw(st.sampled_from([1, 1, 1, -1, 2]))
            shift = draw(st.integers(-n, n) | st.integers(-1, 1))
            fits = shift >= 0 and step > 0 and step * (extent - 1) + shift < n
            items.append(step * symbol + shift if fits and mode == "plain" else (step * symbol + shift) % n)
        return tensor[tuple(items)]
    widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in tensor.shape]
    padded = tensor.pad(widths, mode)
    is_window = draw(st.booleans())
    for n, symbol, extent in zip(padded.shape, symbols, extents, strict=True):
        start = draw(st.integers(0, max(0, n - extent)))
        reach = draw(st.integers(1, min(3, n - extent - start + 1))) if is_window and extent + start <= n else 1
        at = symbol + start if extent + start <= n else (symbol + start) % n
        items.append(slice(at, at + reach) if is_window and extent + start <= n else at)
    return padded[tuple(items)]


@st.composite
def neighbours(draw: Any, dtype: Any = np.float32, most: int = 200) -> list[cl.Tensor]:
    """Views of one variable, over one grid of about as many vertices as it has elements."""
    shape: tuple[int, ...] = ()
    for n in draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)):
        shape = (*shape, max(1, min(n, most // max(1, math.prod(shape)))))
    x = cl.Graph().add_variable("x", shape, dtype)
    extents = [draw(st.sampled_from([n, n, n, max(1, n - 1), n + 2])) for n in shape]
    symbols = cl.grid(*extents)
    symbols = symbols if isinstance(symbols, tuple) else (symbols,)
    return draw(st.lists(neighbour(x, symbols, extents), min_size=1, max_size=5))


def combined(*fields: Any) -> Any:
    """A number of fields: their sums, the greatest and the last of their elements."""
    made = [jnp.sum(field, dtype=field.dtype) + field.max() * field.ravel()[-1] for field in fields]
    return sum([(k + 1) * value for k, value in enumerate(made[1:])], made[0] * made[-1])


_COMBINING = [
    cl.codelet(lambda a: combined(a)),
    cl.codelet(lambda a, b: combined(a, b)),
    cl.codelet(lambda a, b, c: combined(a, b, c)),
    cl.codelet(lambda a, b, c, d: combined(a, b, c, d)),
    cl.codelet(lambda a, b, c, d, e: combined(a, b, c, d, e)),
]


def neighbourhood(views: Sequence[cl.Tensor]) -> cl.Tensor:
    """What vertices make of views: what they write."""
    return views[0].graph.add_vertex("around", _COMBINING[len(views) - 1], **dict(zip("abcde", views, strict=False)))
