"""Loops that take rows or columns of arrays, and put them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.loop_programs import LoopProgram, loop_programs
from tests.patterns.pattern import Drawn, Pattern, Program
from tests.patterns.places import WITHIN, of_case
from tests.row_cases import row_cases

IN_ORDER = ("as_one_number", "within_bounds", "slices_in_order", "as_one_slice")
"""The rules that loops have gone through before their rows are scanned over."""


def of_loop(program: LoopProgram) -> Program:
    """A program with a loop."""
    return Program(program.function, program.arguments, name=program.name)


@st.composite
def columns_in_loops(draw: Any) -> Program:
    """A loop that takes columns of some arrays, forwards or backwards."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    along = draw(st.integers(0, len(shape) - 1))
    how, reverse, is_read = draw(st.integers(0, 2)), draw(st.booleans()), draw(st.sampled_from(["", "whole", "twice"]))
    step = draw(st.sampled_from([1, 2]))

    def function(x: Any) -> Any:
        own = (x, jnp.sin(x), jnp.sin(x.reshape(-1)).reshape(shape))[how]

        def turn(state: Any, k: Any) -> Any:
            column = lax.dynamic_slice_in_dim(own, step * k, 1, along)
            if is_read == "twice":
                column = column * lax.dynamic_slice_in_dim(own, jnp.maximum(k - 1, 0), 1, along)
            if is_read == "whole":
                column = column + own.sum()
            state = jnp.tanh(state + column)
            return state, state.sum()

        start = jnp.zeros([1 if d == along else n for d, n in enumerate(shape)])
        return lax.scan(turn, start, jnp.arange(shape[along] // step), reverse=reverse)

    array = np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype(np.float32)
    return Program(function, (array,), name=f"columns along {along}, read {is_read}")


@st.composite
def slices_in_turns(draw: Any) -> Program:
    """A loop that slices what it is given, and takes rows of the slices, or reads them whole."""
    n, columns = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    cuts = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), min_size=1, max_size=3))
    reverse, carried = draw(st.booleans()), draw(st.booleans())

    def function(x: Any, s: Any) -> Any:
        def turn(held: Any, k: Any) -> Any:
            a, s = held
            for below, above, is_whole in cuts:
                part = lax.slice_in_dim(a if carried else x, below, n - above, axis=0)
                own = part.sum(0) if is_whole else lax.dynamic_slice_in_dim(part, k, 1, 0)[0]
                s = jnp.tanh(s + own)
            return (a * 0.5 if carried else a, s), s

        return lax.scan(turn, (x, s), jnp.arange(n - 2, dtype=jnp.int32), reverse=reverse)

    random = np.random.default_rng(n)
    arrays = random.normal(size=(n, columns)), random.normal(size=(columns,))
    return Program(function, tuple(own.astype(np.float32) for own in arrays), name=f"slices {cuts}")


@st.composite
def rows_in_turns(draw: Any) -> Program:
    """A loop that takes rows at a counter that goes by one, bends them, and puts them into what it carries."""
    n, row = draw(st.integers(2, 6)), draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    first = draw(st.integers(0, n - 2))
    length = draw(st.integers(2, n - first))
    ways = ("of itself", "of what is read", "of both", "from the last", "stacked", "of the last row", "twice")
    way, reverse, downwards = draw(st.sampled_from(ways)), draw(st.booleans()), draw(st.booleans())
    kind, unroll = draw(st.sampled_from((np.float32, np.float32, np.int32))), draw(st.sampled_from((1, 1, 2)))

    def take(x: Any, k: Any) -> Any:
        return lax.dynamic_index_in_dim(x, k, 0, keepdims=False, allow_negative_indices=False)

    def put(x: Any, own: Any, k: Any) -> Any:
        return lax.dynamic_update_slice(x, own[None], (k, *[0] * own.ndim), allow_negative_indices=False)

    def turn(held: Any, k: Any, x: Any) -> Any:
        a, s = held
        at = n - 1 - k if downwards else k
        bent = lambda own: jnp.sin(own) * 0.5 if kind is np.float32 else own * 3 - 1  # noqa: E731
        match way:
            case "of itself":
                return (put(a, bent(take(a, at)), at), s), ()
            case "of what is read":
                return (put(a, bent(take(x, k)), at), s), take(x, at)
            case "of both":
                return (put(a, take(a, at) + bent(take(x, k)) + x[0], at), s), s
            case "from the last":
                return (put(a, bent(s), at), take(a, at) + take(x, k)), ()
            case "stacked":
                return (a, bent(s + take(x, at))), s
            case "of the last row":
                return (put(a, bent(take(a, jnp.maximum(k - 1, 0))) + take(a, k), k), s), ()
        return (put(put(a, bent(take(x, k)), k), bent(s), at), s + take(x, k)), s

    def function(a: Any, x: Any, s: Any) -> Any:
        counter = jnp.arange(first, first + length, dtype=jnp.int32)
        return lax.scan(lambda held, k: turn(held, k, x), (a, s), counter, reverse=reverse, unroll=unroll)

    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = tuple(random.integers(-5, 6, shape).astype(kind) for shape in ((n, *row), (n, *row), row))
    return Program(function, arrays, name=f"{way}, {length} of {n} rows{', downwards' * downwards}")


@st.composite
def maps_in_turns(draw: Any, kinds: Sequence[Any] = (np.float32, np.int32)) -> Program:
    """A loop that maps rows one by one, with constants, and may do what depends on other turns, or reduces."""
    n, row = draw(st.integers(1, 5)), draw(st.sampled_from([(), (1,), (3,), (2, 3)]))
    kind, others = draw(st.sampled_from(kinds)), draw(st.sets(st.sampled_from(OTHERS), max_size=2))
    reverse, unroll = draw(st.booleans()), draw(st.sampled_from((1, 2)))

    def function(x: Any, y: Any, s: Any, k: Any) -> Any:
        def turn(held: Any, own: Any) -> Any:
            count, last = held
            first, second = own
            made = (first * s + second) * 3
            if "turned" in others:
                made = made.reshape(-1)[None].T.reshape(row)
            if "summed" in others:
                made = made + first.sum()
            if "of the last" in others:
                made, last = made + last, first
            if "counted" in others:
                made = made + count.astype(kind)
            given = (made, s) if "constant" in others else (made, first < made)
            return (count * 2 + 1, last), given

        start = (k, jnp.zeros(row, kind)) if "of the last" in others else (k, k)
        (count, last), made = lax.scan(turn, start, (x, y), reverse=reverse, unroll=unroll)
        return made, count if "number" in others else last

    random = np.random.default_rng(n)
    arrays = [random.integers(-5, 6, shape).astype(kind) for shape in ((n, *row), (n, *row), row)]
    return Program(function, (*arrays, np.int32(2)), name=f"maps of {n} rows {sorted(others)}")


OTHERS = ("turned", "summed", "of the last", "counted", "constant", "number")

PATTERN = Pattern(
    "rows_in_loops",
    "Rows that each turn takes are scanned over, and those it puts are stacked, all at once where turns only map rows.",
    {
        "maps_in_turns": Drawn(
            maps_in_turns(),
            ("turns_at_once",),
            quick=20,
            slow=200,
            floats=maps_in_turns((np.float32,)),
            tolerance=1e-6,
            moves_no_more=False,
        ),
        "rows_in_turns": Drawn(
            rows_in_turns(),
            ("scan_rows",),
            quick=10,
            floats=rows_in_turns().map(Program.in_floats),
            tolerance=1e-5,
            first={"scan_rows": ("within_bounds",)},
            moves_no_more=False,
        ),
        "rows_by_counters": Drawn(
            row_cases().map(of_case),
            ("scan_rows",),
            quick=20,
            slow=200,
            slopes=4,
            floats=row_cases((np.float32,)).map(of_case),
            first={"scan_rows": WITHIN},
            moves_no_more=False,
        ),
        "columns_in_loops": Drawn(
            columns_in_loops(),
            ("columns_as_rows",),
            quick=20,
            slow=300,
            slow_slopes=300,
            first={"columns_as_rows": WITHIN},
            moves_no_more=False,
        ),
        "slices_in_turns": Drawn(
            slices_in_turns(),
            ("slice_before_loops",),
            quick=8,
            first={"slice_before_loops": WITHIN},
            moves_no_more=False,
        ),
        "loop_programs": Drawn(
            loop_programs().map(of_loop),
            ("within_bounds", "as_one_slice", "slice_before_loops", "scan_rows", "make_in_shape"),
            quick=8,
            slow=400,
            slopes=4,
            slow_slopes=150,
            tolerance=2e-5,
            first={
                "as_one_slice": IN_ORDER[:-1],
                "slice_before_loops": IN_ORDER,
                "scan_rows": IN_ORDER,
                "make_in_shape": (*IN_ORDER, "scan_rows"),
            },
            moves_no_more=False,
        ),
    },
    ("loops/scan/4000x100/grad_of_traced", "npbench/deriche/grad_of_traced", "npbench/seidel_2d/grad_of_traced"),
)
