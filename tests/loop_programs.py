"""Loop programs: functions of JAX with loops that take rows of arrays and put them, drawn by hypothesis.

A program carries an array of rows and a row, and reads another array. Each of its turns takes a row or a window of one
at a place that the turn's number or data say, bends it, and puts it somewhere. Places beyond the ends are drawn as
well: what JAX does about these is part of what a program means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

KINDS = ("scan", "reversed scan", "fori", "fori from one", "downwards", "while", "map", "nested")
"""The loops there are."""

Turn = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
"""The array and the row after a turn, from its number, these before it, and the array that is only read."""


class LoopProgram(NamedTuple):
    """A function with a loop, and arguments for it.

    Attributes:
        name: what it does, as text.
        function: of `arguments`; floats in, floats out.
        arguments: an array of rows, another of the same shape, and a row.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        return f"{self.name} on {self.arguments[0].dtype}{list(self.arguments[0].shape)}"


_PLACES: dict[str, Callable[[Any, int], Any]] = {
    "k": lambda k, n: k,
    "k - 1": lambda k, n: k - 1,
    "k + 1": lambda k, n: k + 1,
    "n - k": lambda k, n: n - k,
    "n - 1 - k": lambda k, n: n - 1 - k,
    "2 k mod n": lambda k, n: (2 * k) % n,
    "0": lambda k, n: 0 * k,
    "-1": lambda k, n: -1,
}


def _bent(a: Any, b: Any) -> Any:
    """Something of two numbers that stays small."""
    return jnp.sin(a) * 0.5 + b * 0.25


def _sized(kind: str, a: Any, k: Any, place: Callable[[Any, int], Any]) -> Any:
    """A place, by the turn's number or by what is in the array."""
    if kind == "by data":
        return jnp.int32(jnp.floor(3 * jnp.sum(jnp.sin(a[0])))) + k
    return place(k, a.shape[0])


@st.composite
def turns(draw: Any, rank: int) -> tuple[str, Turn]:
    """One thing that a turn does."""
    by = draw(st.sampled_from(("by number", "by number", "by number", "by data")))
    name = draw(st.sampled_from(sorted(_PLACES)))
    place, along = _PLACES[name], draw(st.integers(0, max(rank - 1, 0)))
    at = lambda a, k: _sized(by, a, k, place)  # noqa: E731

    def taken(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a, _bent(s, x[at(x, k)])

    def taken_of_carried(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a, _bent(s, a[at(a, k)])

    def put(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a.at[at(a, k)].set(_bent(s, x[k % x.shape[0]])), s

    def put_of_before(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a.at[k].set(_bent(a[at(a, k)], a[k])), s

    def added(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a.at[at(a, k)].add(0.5 * s), s

    def greatest(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a.at[at(a, k)].max(0.5 * s + x[0]), s

    def window(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        size = max(1, a.shape[along] // 2)
        own = lax.dynamic_slice_in_dim(x, at(x, k), size, along)
        return lax.dynamic_update_slice_in_dim(a, jnp.sin(own) * 0.5, at(a, k), along), s

    def column(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        own = lax.dynamic_index_in_dim(a, k, along, keepdims=True)
        return lax.dynamic_update_index_in_dim(a, 0.5 * jnp.cos(own), at(a, k), along), s

    def fixed(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return a.at[1:].add(0.25 * a[:-1]), s

    def whole(k: Any, a: Any, s: Any, x: Any) -> tuple[Any, Any]:
        return jnp.where(jnp.arange(a.shape[0]).reshape(-1, *[1] * (a.ndim - 1)) > k, 0.5 * a + x, a), s

    made = draw(
        st.sampled_from((taken, taken_of_carried, put, put_of_before, added, greatest, window, column, fixed, whole))
    )
    return f"{made.__name__} {by} at {name} along {along}", made


@st.composite
def loop_programs(draw: Any, dtype: Any = np.float32, most: int = 6) -> LoopProgram:
    """A program.

    Args:
        draw: of hypothesis.
        dtype: of its arrays.
        most: how many rows there are at most.
    """
    n = draw(st.integers(1, most))
    row = draw(st.sampled_from(((), (1,), (3,), (2, 3), (1, 2))))
    kind = draw(st.sampled_from(KINDS))
    count = draw(st.integers(1, n + 1))
    several = [draw(turns(1 + len(row))) for _ in range(draw(st.integers(1, 3)))]
    unroll = draw(st.sampled_from((1, 1, 2)))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))

    def turn(k: Any, held: Any, x: Any) -> tuple[Any, Any]:
        a, s = held
        for _, own in several:
            a, s = own(k, a, s, x)
        return a, s

    def function(a: Any, x: Any, s: Any) -> Any:
        a, x, s = map(jnp.asarray, (a, x, s))
        start = (a, s)
        if kind in ("scan", "reversed scan"):

            def scanned(held: Any, given: Any) -> Any:
                k, fed = given
                made = turn(k, held, x)
                return (made[0], made[1] + 0.25 * fed), (made[1], jnp.sum(fed))

            rows = jnp.arange(n), x
            return lax.scan(scanned, start, rows, reverse=kind == "reversed scan", unroll=unroll)
        if kind == "map":
            return lax.map(lambda own: jnp.sin(turn(own[0], start, x)[1]) + own[1], (jnp.arange(n), x))
        if kind == "while":
            goes_on = lambda held: held[0] < count  # noqa: E731
            return lax.while_loop(goes_on, lambda held: (held[0] + 1, *turn(held[0], held[1:], x)), (0, *start))[1:]
        if kind == "nested":
            inner = lambda k, held: lax.fori_loop(0, 2, lambda j, own: turn(k + j, own, x), held)  # noqa: E731
            return lax.fori_loop(0, count, inner, start)
        if kind == "downwards":
            return lax.fori_loop(0, count, lambda k, held: turn(n - 1 - k, held, x), start)
        return lax.fori_loop(int(kind == "fori from one"), count, lambda k, held: turn(k, held, x), start)

    arrays = (n, *row), (n, *row), row
    arguments = tuple(np.asarray(random.normal(size=shape), dtype) for shape in arrays)
    name = f"{kind} of {n} rows, {count} turns: {'; '.join(text for text, _ in several)}"
    return LoopProgram(name, function, arguments)
