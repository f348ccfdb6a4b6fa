"""The plainest loops of JAX, traced, and their gradients, beside plain JAX: few turns and many, narrow rows and wide.

A loop has as many turns as its array has rows, or columns. Every turn does a little arithmetic, so that what a loop
costs beside it is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_ways import WAYS, compare_way

BAR_FROM_SECONDS = 1e-4
"""What is shorter in plain JAX is only reported."""

GROWTH_BAR = 1.2

MOST_BYTES = 2e8
"""Larger arrays are left out."""

WINDOW = 8


def _next(state, row):
    new = jnp.tanh(state + row)
    return new, new


def scan(x):
    """A state that every row changes, and all states."""
    return lax.scan(_next, jnp.zeros_like(x[0]), x)[1]


def scan_reversed(x):
    """The same from the last row to the first."""
    return lax.scan(_next, jnp.zeros_like(x[0]), x, reverse=True)[1]


def fori_rows(x):
    """A row of the row before it, in place."""
    return lax.fori_loop(1, len(x), lambda k, x: x.at[k].set(0.9 * x[k - 1] + x[k]), x)


def fori_rows_reversed(x):
    """A row of the row behind it, in place, from the last but one to the first."""
    n = len(x) - 1
    return lax.fori_loop(1, len(x), lambda k, x: x.at[n - k].set(0.9 * x[n - k + 1] + x[n - k]), x)


def fori_columns(x):
    """A column of the column before it, in place: the last dimension is that of turns."""
    return lax.fori_loop(1, x.shape[-1], lambda k, x: x.at[..., k].set(0.9 * x[..., k - 1] + x[..., k]), x)


def fori_own(x):
    """A row of itself alone, in place."""
    return lax.fori_loop(0, len(x), lambda k, x: x.at[k].set(0.5 * x[k]), x)


def map_rows(x):
    """Every row by itself."""
    return lax.map(lambda row: jnp.tanh(row).sum() * row, x)


def windows(x):
    """A state that every window of rows changes."""

    def turn(k, state):
        return jnp.tanh(state + lax.dynamic_slice_in_dim(x, k, WINDOW).mean(0))

    return lax.fori_loop(0, len(x) - WINDOW + 1, turn, jnp.zeros_like(x[0]))


def while_rows(x):
    """A state that one row after the other changes, as long as there are any."""

    def turn(both):
        k, state = both
        return k + 1, jnp.tanh(state + x[k])

    return lax.while_loop(lambda both: both[0] < len(x), turn, (0, jnp.zeros_like(x[0])))[1]


@dataclass(frozen=True)
class Loop:
    """A loop over an array.

    Attributes:
        function: of the array.
        last: whether its turns are along the last dimension, rather than the first.
        has_gradient: whether JAX has its gradient.
    """

    function: Callable[[Any], Any]
    last: bool = False
    has_gradient: bool = True

    def shape(self, turns: int, row: tuple[int, ...]) -> tuple[int, ...]:
        """Of the array of so many turns."""
        return (*row, turns) if self.last else (turns, *row)


LOOPS = {
    "scan": Loop(scan),
    "scan_reversed": Loop(scan_reversed),
    "fori_rows": Loop(fori_rows),
    "fori_rows_reversed": Loop(fori_rows_reversed),
    "fori_columns": Loop(fori_columns, last=True),
    "fori_own": Loop(fori_own),
    "map_rows": Loop(map_rows),
    "windows": Loop(windows),
    "while_rows": Loop(while_rows, has_gradient=False),
}

TURNS = (40, 400, 4000)

ROWS = ((1,), (64,), (100,), (3600,), (60, 60), (61, 67), (512, 512))

EVERY_SIZE = ("scan", "fori_rows")
"""The loops that are run at every size; the others at `SOME`."""

SOME = ((40, (512, 512)), (40, (60, 60)), (400, (64,)), (400, (61, 67)), (4000, (1,)), (4000, (100,)), (4000, (60, 60)))

GRADIENTS = ((40, (60, 60)), (400, (61, 67)), (4000, (100,)))
"""The sizes at which gradients are taken, where a loop has one."""

GROWTHS = ((60, 60),)
"""The rows for which the time of a turn is compared between the fewest turns and the most."""

Size = tuple[int, tuple[int, ...]]


def _name(loop: str, turns: int, row: tuple[int, ...]) -> str:
    return f"loops/{loop}/{'x'.join(map(str, LOOPS[loop].shape(turns, row)))}"


def compare_loop(loop: str, turns: int, row: tuple[int, ...], way: str) -> Comparison:
    """A traced loop, or its gradient in one of the ways, beside plain JAX."""
    shape = LOOPS[loop].shape(turns, row)
    return compare_way(
        _name(loop, turns, row),
        LOOPS[loop].function,
        lambda random: (random.standard_normal(shape, np.float32),),
        way,
        bar_from_seconds=BAR_FROM_SECONDS,
        tolerance=1e-4 if way else 1e-5,
    )


def growth_row(loop: str, row: tuple[int, ...], few: Row, many: Row) -> Generator[Row, Row, None]:
    """How much longer a turn is among many turns than among few, as a part of how much longer it is in plain JAX."""
    if few.ratio is not None and many.ratio is not None:
        name = f"loops/{loop}/growth/{'x'.join(map(str, row))}"
        yield Row(name, None, None, many.ratio / few.ratio, GROWTH_BAR, note="of plain JAX's own growth by turn")


@benchmark
def loops(
    names: Sequence[str] = tuple(LOOPS),
    turns: Sequence[int] = TURNS,
    rows: Sequence[tuple[int, ...]] = ROWS,
    some: Sequence[Size] = SOME,
    gradients: Sequence[Size] = GRADIENTS,
    growths: Sequence[tuple[int, ...]] = GROWTHS,
) -> Generator[Comparison | Row, Row, None]:
    """The plainest loops, at 40 to 4,000 turns and rows of 1 to 262,144 numbers, and their gradients in three ways."""
    for loop in names:
        sizes = product(turns, rows) if loop in EVERY_SIZE else some
        found = {}
        for size in sizes:
            if 4 * math.prod(LOOPS[loop].shape(*size)) > MOST_BYTES:
                continue
            found[size] = yield compare_loop(loop, *size, "")
        if LOOPS[loop].has_gradient:
            for size, way in product(gradients, [way for way in WAYS if way]):
                yield compare_loop(loop, *size, way)
        for row in growths:
            yield from growth_row(loop, row, found[min(turns), row], found[max(turns), row])
