"""Reductions of partial results, of reshaped arrays, and over a major dimension with many results."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs import reduce_by_halves as by_halves
from tests.patterns.pattern import Closed, Drawn, Pattern, Program, setting
from tests.same_jaxprs import primitives

REDUCTIONS = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min, "reduce_prod": jnp.prod}

# --- join_reductions -----------------------------------------------------------------------------------------------


def blocks_of(x: Any, axis: int, block: int) -> tuple[Any, Any]:
    """The parts of an array along an axis: full blocks as one array with an axis more, then what is left."""
    n = x.shape[axis] // block * block
    full, left = lax.split(x, (n, x.shape[axis] - n), axis)
    return full.reshape(*x.shape[:axis], n // block, block, *x.shape[axis + 1 :]), left


@st.composite
def partial_results(draw: Any, is_tied: bool = True) -> Program:
    """All of an array, or rows of what is computed of it, reduced block by block, and then the blocks' results.

    Of tied elements the slope is shared by all, where partial results would share it in stages.
    """
    name, block = draw(st.sampled_from(sorted(REDUCTIONS))), draw(st.integers(2, 7))
    way, extent = draw(st.sampled_from(("blocks", "stages", "columns", "computed", "two"))), draw(st.integers(8, 23))
    reduce = REDUCTIONS[name]

    def function(x: Any, y: Any) -> Any:
        match way:
            case "blocks":  # the last is shorter
                flat = x.reshape(-1)
                full = flat.size // block * block
                parts = [reduce(flat[:full].reshape(-1, block), 1)]
                if full < flat.size:
                    parts.append(reduce(flat[full:], 0)[None])
                return reduce(jnp.concatenate(parts), 0)
            case "stages":
                return reduce(reduce(reduce(x.reshape(2, 3, extent), 2), 1), 0)
            case "columns":  # in groups of two
                parts = reduce(x.T.reshape(extent, 3, 2, 1), 0)
                return parts.transpose(1, 2, 0).reshape(2, 3), reduce(x.T.reshape(extent, 6), 0)
        scale = y if way == "computed" else x
        scaled = []
        if extent % block == 0:  # something is left of every block
            return reduce(jnp.exp(x) * y, 1)
        for own, other in zip(blocks_of(x, 1, block), blocks_of(y, 1, block), strict=True):
            rows = scale[:, 0].reshape(6, *[1] * (own.ndim - 1))
            scaled.append(reduce(jnp.exp(0.1 * own - rows) * other, own.ndim - 1))
        return reduce(jnp.concatenate([scaled[0].T, scaled[1][None]]), 0)

    numbers = [1.0, 0.9, 1.1] if is_tied else np.linspace(0.9, 1.1, 6 * extent)
    x, y = (np.random.default_rng(k).choice(numbers, (6, extent), is_tied).astype(np.float32) for k in range(2))
    return Program(function, (x, y), facts=name, name=f"{name} in {way}")


# --- reduce_in_shape -----------------------------------------------------------------------------------------------


@st.composite
def reshapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))

    def shape() -> tuple[int, ...]:
        cuts = sorted(draw(st.sets(st.integers(0, len(factors)))) | {0, len(factors)})
        own = [int(np.prod(factors[a:b])) for a, b in itertools.pairwise(cuts)]
        return tuple(own) + (1,) * draw(st.integers(0, 1))

    return shape(), shape()


@st.composite
def reductions_of_reshaped(draw: Any) -> Program:
    """A reduction of a reshaped array that something reads as it is, in a loop or not."""
    was, shape = draw(reshapes())
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    name, looped = draw(st.sampled_from(("sum", "max", "min", "prod"))), draw(st.booleans())

    def function(x: Any) -> Any:
        return getattr(x.reshape(shape), name)(axes), jnp.sin(x)

    def in_a_loop(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) + jnp.sum(function(x)[0]), x)

    x = np.random.default_rng(len(was)).normal(size=was).astype(np.float32)
    return Program(in_a_loop if looped else function, (x,), name=f"{name} of {was} as {shape} along {axes}")


# --- reduce_by_halves ----------------------------------------------------------------------------------------------


@st.composite
def reductions_over_rows(draw: Any) -> Program:
    """A reduction of a few rows over a major dimension, of floats, whole numbers or truth values."""
    shape = tuple(draw(st.lists(st.integers(2, 8), min_size=2, max_size=3)))
    axes = draw(st.sampled_from([(0,), (0, 1), (1,)])) if len(shape) == 3 else (0,)
    kind = draw(st.sampled_from((np.float32, np.float32, np.int32, np.bool_)))
    reduction = draw(st.sampled_from((jnp.all, jnp.any) if kind is np.bool_ else (*REDUCTIONS.values(), jnp.mean)))
    looped = draw(st.booleans())

    def function(x: Any) -> Any:
        once = functools.partial(reduction, axis=axes)
        return lax.scan(lambda s, _: (s, once(x)), x, length=2)[1] if looped else once(x)

    # Few different numbers, so that greatest ones are tied.
    x = np.random.default_rng(len(shape)).choice([0.5, 1.0, -1.5] if kind is np.float32 else [0, 1, -2], shape)
    return Program(function, (x.astype(kind),), name=f"{reduction.__name__} along {axes}")


def is_a_choice_of_platforms(closed: Closed, program: Program) -> None:
    """One that has many results beneath each other is done by halves, on CPUs alone."""
    own = "cond" in primitives(closed)
    assert own == ("platform_index" in primitives(closed))


PATTERN = Pattern(
    "reductions",
    "A reduction of partial results is one of the whole, in the shape that it has, and by halves where it is slow.",
    {
        "partial_results": Drawn(
            partial_results(),
            ("join_reductions",),
            quick=12,
            slow=150,
            floats=partial_results(is_tied=False),
            tolerance=1e-4,
            moves_no_more=False,
        ),
        "reductions_of_reshaped": Drawn(
            reductions_of_reshaped(), ("reduce_in_shape",), quick=24, tolerance=1e-5, moves_no_more=False
        ),
        "reductions_over_rows": Drawn(
            reductions_over_rows(),
            ("reduce_by_halves",),
            quick=8,
            floats=reductions_over_rows().map(Program.in_floats),
            tolerance=1e-5,
            forms={"reduce_by_halves": is_a_choice_of_platforms},
            around=lambda: setting(by_halves, "LEAST_BENEATH", 4),
            moves_no_more=False,
        ),
    },
    ("ops_reduce/max/all/gradient", "ops_reduce/sum/all", "join/sum", "ops_reduce/sum/minor", "ops_reduce/max/minor"),
)
