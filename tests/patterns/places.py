"""Rows, windows and elements that are looked up and put at places: counters of loops, data, tables."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.patterns.pattern import Drawn, Pattern, Program
from tests.row_cases import RowCase, row_cases

WITHIN = ("within_bounds", "as_one_slice")
"""The rules that make places as users write them those of slices."""


def of_case(case: RowCase) -> Program:
    """A case of rows as a program."""
    return Program(case.function, case.arguments, name=case.name)


# --- gathers and scatters of rearranged arrays ---------------------------------------------------------------------


@st.composite
def rearranged_tables(draw: Any) -> Program:
    """Elements, rows or windows that are looked up in a rearranged array, or put there, at places of a table."""
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=3)))
    order = tuple(draw(st.permutations(range(len(shape)))))
    along, width = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 2))
    mapped = draw(st.integers(0, len(shape) - 1).filter(lambda d: d != along))
    kind = draw(st.sampled_from(("take", "vmapped take", "windows", "add", "vmapped add", "max", "set")))
    mode, count = draw(st.sampled_from(("clip", "fill", "promise_in_bounds"))), draw(st.integers(1, 4))
    turned, split = tuple(shape[d] for d in order), draw(st.booleans())
    ends = (0, turned[along] - width + 1) if mode == "promise_in_bounds" else (-2, turned[along] + 2)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    places = random.integers(*ends, (count,)).astype(np.int32)
    if kind == "set":  # what is put twice at one place is put in any order
        places = np.unique(places)[:1]

    def at(x: Any, where: Any, axis: int, updates: Any, do: str) -> Any:
        spot = x.at[(slice(None),) * axis + (where,)]
        how = {"mode": "drop" if mode == "fill" else mode, "wrap_negative_indices": False}
        if do == "take":
            return spot.get(mode=mode, wrap_negative_indices=False)
        return getattr(spot, do)(jnp.broadcast_to(updates, spot.get().shape) if updates.ndim else updates, **how)

    def function(x: Any, places: Any, updates: Any) -> Any:
        x = x.reshape(-1).reshape(shape) if split else x
        x = x.transpose(order)
        if kind == "windows":
            kept = tuple(range(x.ndim))
            sizes = tuple(width if d == along else n for d, n in enumerate(x.shape))
            numbers = lax.GatherDimensionNumbers(tuple(d + (d >= along) for d in kept), (), (along,))
            return lax.gather(x, places[:, None], numbers, sizes, mode=mode)
        do = kind.removeprefix("vmapped ")
        if not kind.startswith("vmapped"):
            return at(x, places, along, updates, do)
        inner = along - (mapped < along)
        return jax.vmap(lambda own: at(own, places, inner, updates, do), mapped, mapped)(x)

    x = random.integers(-9, 10, shape).astype(np.float32)
    return Program(function, (x, places, np.float32(random.integers(1, 5))), name=f"{kind}, {mode}, {order}")


@st.composite
def blocks_of_columns(draw: Any) -> Program:
    """Columns of a matrix in groups, of which each looks up, or updates, its own part of some rows."""
    rows, groups, width = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind, count = draw(st.sampled_from(("take", "add", "max", "new"))), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    places = random.integers(-1, rows + 1, (count, 2)).astype(np.int32)
    updates = random.integers(-9, 10, (count, 2, groups * width)).astype(np.float32)

    def function(table: Any, places: Any, updates: Any) -> Any:
        own = table.reshape(rows, groups, width)
        if kind == "take":
            return jax.vmap(lambda x: x.at[places].get(mode="fill"), 1, 2)(own).reshape(count, 2, -1)
        parts = updates.reshape(count, 2, groups, width)
        if kind == "new":
            return jax.vmap(lambda new: jnp.zeros((rows,)).at[places].max(new, mode="drop"), 2, 1)(updates)
        change = lambda x, new: getattr(x.at[places], kind)(new, mode="drop")  # noqa: E731
        return jax.vmap(change, (1, 2), 1)(own, parts).reshape(rows, -1)

    table = random.integers(-9, 10, (rows, groups * width)).astype(np.float32)
    return Program(function, (table, places, updates), name=f"{kind} of {groups} groups of {math.prod((rows, width))}")


PATTERN = Pattern(
    "places",
    "What is looked up or put at one place is a slice there, and no place is bounded that is known to lie within.",
    {
        "rows_at_places": Drawn(
            row_cases().map(of_case),
            ("as_one_slice", "within_bounds"),
            quick=12,
            slow=200,
            slopes=3,
            floats=row_cases((np.float32,)).map(of_case),
            moves_no_more=False,
        ),
        "rearranged_tables": Drawn(rearranged_tables(), ("slices_in_order",), quick=12, slow=200, moves_no_more=False),
        "blocks_of_columns": Drawn(blocks_of_columns(), ("slices_in_order",), quick=6, moves_no_more=False),
    },
    ("ops_embedding", "ops_embedding/gradient", "loops/fori_own/4000x60x60"),
)
