"""Row cases: slices that are taken and put at places of every dtype, by gathers and scatters of every mode, in loops.

The places are data, literals and constants, counters of loops that step by any number and may leave their dtype, and
rows that are scanned over; they lie beyond the ends too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

KINDS = (np.float32, jnp.bfloat16, np.int8, np.uint8, np.int32, np.bool_)
PLACES = (np.int8, np.uint8, np.int32, np.uint32)
MODES = ("clip", "fill", "drop")
MOVES = ("take", "take an index", "put", "add", "greatest", "window", "put a window", "write before", "move a row")

Turn = Callable[[Any, Any, Any], tuple[Any, Any]]
"""An array after a turn, and what the turn gives, from the array before it, one that is only read, and a place."""


class RowCase(NamedTuple):
    """A function of arrays with slices, and its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        return f"{self.name} of {self.arguments[0].dtype}{list(self.arguments[0].shape)}"


def _as_int(place: Any, by: int) -> Any:
    """A place that lies so far from another."""
    return place + np.asarray(by).astype(place.dtype)


@st.composite
def _turns(draw: Any) -> tuple[str, Turn]:
    """What a turn does with rows."""
    name, mode, by = draw(st.sampled_from(MOVES)), draw(st.sampled_from(MODES)), draw(st.integers(-2, 2))
    counts_back = draw(st.booleans())
    get, put = ("fill" if mode == "drop" else mode), ("drop" if mode == "fill" else mode)

    def turn(a: Any, x: Any, place: Any) -> tuple[Any, Any]:
        at = _as_int(place, by)
        size, row = max(1, len(a) // 2), x[0]
        # JAX adds the length in the place's dtype, and XLA limits an update's place in that: beyond its end it writes
        # where nothing of the array is.
        is_narrow = len(a) > np.iinfo(place.dtype).max
        wraps = counts_back and not is_narrow
        start, begin = (own.astype(np.int32) if is_narrow else own for own in (at, place))
        match name:
            case "take":
                return a, x.at[at].get(mode=get, wrap_negative_indices=wraps)
            case "take an index":
                return a, lax.dynamic_index_in_dim(a, start, 0, keepdims=False, allow_negative_indices=wraps)
            case "put":
                return a.at[at].set(row, mode=put, wrap_negative_indices=wraps), row
            case "add":
                return (a.at[at].add(row, mode=put, wrap_negative_indices=wraps) if a.dtype != bool else a), row
            case "greatest":
                return a.at[at].max(row, mode=put, wrap_negative_indices=wraps), row
            case "window":
                return a, lax.dynamic_slice_in_dim(x, start, size, 0, allow_negative_indices=wraps).max(0)
            case "put a window":
                return lax.dynamic_update_slice_in_dim(a, x[:size], start, 0, allow_negative_indices=wraps), row
            case "write before":
                own = lax.dynamic_index_in_dim(a, begin, 0, keepdims=True, allow_negative_indices=False)
                made = lax.dynamic_update_slice_in_dim(a, own, start, 0, allow_negative_indices=False)
                return made, own[0]
        own = lax.dynamic_index_in_dim(x, begin, 0, keepdims=True, allow_negative_indices=False)
        own = own & own if a.dtype == bool else own * own
        return lax.dynamic_update_slice_in_dim(a, own, begin, 0, allow_negative_indices=False), row

    return f"{name} {by} {mode}{' wrapping' * counts_back}", turn


@st.composite
def row_cases(draw: Any, kinds: Sequence[Any] = KINDS) -> RowCase:
    """A case, of arrays of some dtypes."""
    count = draw(st.sampled_from((1, 2, 3, 5, 7, 131)))
    shape = (count, *draw(st.sampled_from(((), (1,), (3,), (2, 1)))))
    kind, place = draw(st.sampled_from(kinds)), np.dtype(draw(st.sampled_from(PLACES)))
    several = [draw(_turns()) for _ in range(draw(st.integers(1, 2)))]
    of = draw(st.sampled_from(("data", "literal", "constant", "carried", "scanned", "iota", "nested", "while")))
    step, start = draw(st.sampled_from((1, 1, 1, -1, 2, -3))), draw(st.integers(-1, 2))
    start = start if step > 0 else start + count - 1
    length = draw(st.sampled_from((count, count - 1, count + 1, 0, 1, 2, 131)))
    length = length if of in ("carried", "iota") or length < 20 else 2
    reverse, unroll, stack = draw(st.booleans()), draw(st.sampled_from((1, 1, 2))), draw(st.booleans())

    def all_of(a: Any, x: Any, at: Any) -> tuple[Any, Any]:
        given = x[0]
        for _, own in several:
            a, given = own(a, x, at)
        return a, given

    def function(a: Any, x: Any, at: Any) -> Any:
        begin, by = np.asarray(start).astype(place), np.asarray(step).astype(place)
        if of in ("data", "literal", "constant"):
            # JAX refuses a place that it sees to be negative where that is not counted from the end.
            literal = np.asarray(abs(start) % 100 + 2).astype(place)
            return all_of(a, x, at if of == "data" else literal if of == "literal" else jnp.asarray(begin))
        if of == "while":
            last = np.asarray(min(length, 100)).astype(place)
            goes_on = lambda held: held[0] < last  # noqa: E731
            begin, by = np.asarray(max(start, 0) % 90).astype(place), np.asarray(abs(step)).astype(place)
            return lax.while_loop(goes_on, lambda held: (held[0] + by, all_of(held[1], x, held[0])[0]), (begin, a))
        rows = None
        if of == "scanned":
            rows = (jnp.arange(length) * step + start).astype(place)
        if of == "iota":
            rows = lax.iota(place, length)

        def turn(held: Any, row: Any) -> Any:
            own, counter = held
            if of == "nested":
                inner = lambda j, own: all_of(own, x, counter + lax.convert_element_type(j, place))[0]  # noqa: E731
                made = lax.fori_loop(0, 2, inner, own), own[0]
            else:
                made = all_of(own, x, counter if row is None else row)
            return (made[0], counter + by), (made[1], counter) if stack else None

        return lax.scan(turn, (a, jnp.asarray(begin)), rows, length=length, reverse=reverse, unroll=unroll)

    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = (random.integers(-9, 10, shape).astype(kind) for _ in range(2))
    at = np.asarray(draw(st.integers(-count - 1, count + 1))).astype(place)
    loop = f"{of} {place} by {step} from {start}, {length} turns{' reversed' * reverse}, unrolled {unroll}"
    return RowCase(f"{'; '.join(name for name, _ in several)} at {loop}", function, (*arrays, at))
