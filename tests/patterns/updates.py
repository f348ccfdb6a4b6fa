"""Updates of parts of arrays: what XLA would compile wrongly, and what it would run over all of the array."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.patterns.pattern import Drawn, Pattern, Program

# --- scatter_small_updates -----------------------------------------------------------------------------------------

SHAPES = ((2048,), (64, 40), (12, 20, 9))


@st.composite
def small_updates(draw: Any) -> Program:
    """A function of an array and a number that updates parts of the array in turn."""
    shape = draw(st.sampled_from(SHAPES))
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 3))):
        sizes = [draw(st.sampled_from((1, min(3, n), max(1, n // 3), n))) for n in shape]
        starts = [draw(st.integers(0, n - m)) for n, m in zip(shape, sizes, strict=True)]
        moved = [draw(st.sampled_from((0, 0, 0, 1))) for _ in shape]
        elsewhere = [min(a + b, n - m) for a, b, n, m in zip(starts, moved, shape, sizes, strict=True)]
        late = draw(st.sampled_from((None, None, np.int32, np.uint16)))
        if late is not None:  # out of bounds now and then, where it is clamped
            limits = [min(n, np.iinfo(late).max) for n in shape]
            starts = [draw(st.integers(0 if late is np.uint16 else -2, n)) for n in limits]
        steps.append((starts, elsewhere, sizes, draw(st.sampled_from(("map", "flat", "split", "sum", "old"))), late))
    in_loop, seed = draw(st.booleans()), draw(st.integers(0, 9))

    def turn(x: Any, s: Any) -> Any:
        first = x
        for starts, elsewhere, sizes, way, late in steps:
            stops = [a + n for a, n in zip(elsewhere, sizes, strict=True)]
            own = lax.slice(first if way == "old" else x, elsewhere, stops)
            if way == "split" and list(sizes[1:]) == list(shape[1:]):
                own = lax.split(x, [elsewhere[0], sizes[0], len(x) - stops[0]])[1]
            if way == "flat":
                own = jnp.sin(own.reshape(-1)).reshape(own.shape)
            elif way == "sum":
                own = own + jnp.sum(own)
            if late is None:
                x = lax.dynamic_update_slice(x, s * own + 0.25, starts)
                continue
            known_late = [late(start) + (s > 1e6).astype(late) for start in starts]
            x = lax.dynamic_update_slice(2 * x, s * own + 0.25, known_late, allow_negative_indices=False)
        return x

    def function(x: Any, s: Any) -> Any:
        return [lax.fori_loop(0, 3, lambda _, x: turn(x, s), x) if in_loop else turn(x, s)]

    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return Program(function, (x, np.float32(0.5)), name=f"{len(steps)} updates{' in a loop' * in_loop}")


# --- update_safely -------------------------------------------------------------------------------------------------

KINDS = ["reshape", "transpose", "add", "back", "product", "rows", "join"]
MATRICES = [(8,), (2, 4), (4, 2), (2, 2, 2)]
MIXED = np.arange(64, dtype=np.float32).reshape(8, 8) * 5 % 3
SHAPES_OF_64 = [(64,), (8, 8), (4, 16), (8, 4, 2), (4, 4, 4)]


@st.composite
def updates_among_moves(draw: Any) -> Program:
    """A function of an array of 8 x 8, of rearrangements, sums, products and updates of what it has made so far."""
    steps = []
    for _ in range(draw(st.integers(3, 8))):
        kind = draw(st.sampled_from([*KINDS, *["update"] * 4, "at one place"]))
        numbers = draw(st.tuples(*[st.integers(0, 63)] * 6))
        steps.append((kind, numbers))

    def box(shape: Any, a: int, b: int) -> Any:
        sizes = [1 + (a >> k) % n for k, n in enumerate(shape)]
        sizes[-1] -= sizes == list(shape)
        return sizes, [(b >> k) % (n - size + 1) for k, (n, size) in enumerate(zip(shape, sizes, strict=True))]

    def function(x: Any) -> Any:
        made = [x]
        for kind, (a, b, c, d, e, f) in steps:
            one, other = made[max(a - 31, 0) % len(made) - (a < 32)], made[max(b - 31, 0) % len(made) - (b < 32)]
            if kind == "reshape":
                made.append(one.reshape(SHAPES_OF_64[c % 5]))
            elif kind == "transpose":
                made.append(one.T)
            elif kind == "back":
                made.append(lax.rev(one, (0,)))
            elif kind == "add":
                made.append(one + 2 * other.reshape(one.shape))
            elif kind == "product":
                made.append(jnp.tensordot(one.reshape(8, 8), MIXED.reshape(8, *MATRICES[c % 4]), 1))
            elif kind == "rows":
                made.append(one.reshape(8, 8)[(np.arange(8) * (1 + c % 4) + d).reshape(2, 4) % 8])
            elif kind == "join":
                flat, cut = one.reshape(-1), 1 + d % 63
                made.append(jnp.concatenate([flat[:cut], flat[cut:]]).reshape(SHAPES_OF_64[c % 5]))
            elif kind == "at one place":
                count = 1 + c % (len(one) - 1)
                start = d % (len(one) - count + 1)
                read = other.reshape(-1)[: count * one[0].size].reshape(count, *one.shape[1:]) / 2 + 1
                made.append(one.at[start : start + count].set(read))
            else:
                sizes, starts = box(one.shape, c, d)
                count = int(np.prod(sizes))
                flat = other.reshape(SHAPES_OF_64[e % 5]).reshape(-1)
                read = [flat[:count], flat[::-1][:count], flat[64 - count :]][f % 3] / 2 + 1
                made.append(lax.dynamic_update_slice(one, read.reshape(sizes), starts))
        return made[-1].reshape(8, 8)

    return Program(function, (jnp.arange(64.0).reshape(8, 8),), name=", ".join(kind for kind, _ in steps))


# --- forward_updates -----------------------------------------------------------------------------------------------


@st.composite
def reads_of_updates(draw: Any) -> Program:
    """A function that puts zeros and other values into rows of an array, reads them there, and adds what it read."""
    rows = draw(st.integers(2, 5))
    place = st.sampled_from(("k", "k", "also k", "before", "first", "beyond", "late"))
    kind = st.sampled_from(("zeros", "taken", "taken", "sum", "bent", "wider"))
    steps = draw(st.lists(st.tuples(kind, place, place), min_size=2, max_size=6))
    how, reverse, is_read = draw(st.sampled_from(("none", "scan", "fori"))), draw(st.booleans()), draw(st.booleans())

    def turn(x: Any, own: Any, late: Any, k: Any) -> Any:
        at = {"k": k, "also k": k + 0, "before": k - 1, "first": 0, "beyond": rows + 3, "late": late}
        for what, there, where in steps:
            start, size = (at[there], 0), (2 if what == "wider" else 1, 3)
            taken = lax.dynamic_slice(x, (at[where], 0), size, allow_negative_indices=False)
            new = {"zeros": jnp.zeros_like(taken), "taken": taken}.get(what, jnp.sin(taken))
            if what == "sum":
                new = lax.dynamic_slice(x, start, size, allow_negative_indices=False) + own
            own = taken[:1] * 0.5
            x = lax.dynamic_update_slice(x, new, start, allow_negative_indices=False)
        return x, own

    def function(x: Any, own: Any, late: Any) -> Any:
        if how == "none":
            made = turn(x, own, late, 1)
        elif how == "fori":
            made = lax.fori_loop(0, rows, lambda k, held: turn(held[0], held[1], late, k), (x, own))
        else:
            numbers = jnp.arange(rows, dtype=jnp.int32)
            made, _ = lax.scan(lambda held, k: (turn(held[0], held[1], late, k), k), (x, own), numbers, reverse=reverse)
        return made if is_read else made[:1]

    x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    return Program(function, (x, x[:1], np.int32(draw(st.integers(-1, rows)))), name=f"{steps}, {how}")


PATTERN = Pattern(
    "updates",
    "An update is in place where XLA compiles that rightly, and is scattered where XLA would run over the whole array; "
    "what is read of it where it was put is what was put.",
    {
        "reads_of_updates": Drawn(
            reads_of_updates(),
            ("forward_updates",),
            quick=20,
            slow=300,
            slopes=4,
            slow_slopes=100,
            tolerance=1e-5,
            moves_no_more=False,
        ),
        "small_updates": Drawn(
            small_updates(),
            ("scatter_small_updates",),
            quick=4,
            slopes=8,
            slow_slopes=200,
            tolerance=1e-4,
            moves_no_more=False,
        ),
        "updates_among_moves": Drawn(
            updates_among_moves(),
            ("update_safely",),
            quick=3,
            slow=500,
            slopes=0,
            slow_slopes=0,
            tolerance=1e-5,
            by_operation=True,
            moves_no_more=False,
        ),
    },
    ("loops/fori_own/4000x100/adjoint",),
)
