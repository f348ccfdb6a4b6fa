"""Reductions of reshaped and transposed arrays, and over a major dimension with many results."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from codelet.jaxprs.equations import inner_jaxprs
from lowering.jaxprs import reduce_by_halves as by_halves
from tests.patterns.pattern import Closed, Drawn, Pattern, Program, setting
from tests.same_jaxprs import primitives

REDUCTIONS = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min, "reduce_prod": jnp.prod}

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
    """A reduction of an array that something reads as it is, reshaped, transposed and converted, in a loop or not."""
    was, shape = draw(reshapes())
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    name, looped = draw(st.sampled_from(("sum", "max", "min", "prod"))), draw(st.booleans())
    order = draw(st.none() | st.permutations(range(len(shape))))
    stored, kind = draw(st.sampled_from((np.float32, np.float16))), draw(st.sampled_from((None, np.float32, np.int32)))

    def function(x: Any) -> Any:
        own = x.astype(stored).reshape(shape)
        own = own if order is None else own.transpose(order)
        own = own if kind is None else own.astype(kind)
        return getattr(own, name)(axes).astype(np.float32), jnp.sin(x)

    def in_a_loop(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) + jnp.sum(function(x)[0]), x)

    x = np.random.default_rng(len(was)).normal(size=was).astype(np.float32)
    return Program(in_a_loop if looped else function, (x,), name=f"{name} of {was} as {shape} along {axes}")


@st.composite
def reductions_of_parts(draw: Any) -> Program:
    """Rows reduced in blocks of uneven lengths, and what is found reduced again, in the same way or another one."""
    lengths = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    name, again = draw(st.sampled_from(("sum", "max", "prod"))), draw(st.sampled_from(("sum", "max", "prod")))
    dtype, axis = draw(st.sampled_from((np.float32, np.float16))), draw(st.integers(0, 1))

    def function(x: Any) -> Any:
        blocks = jnp.split(x.astype(dtype), np.cumsum(lengths)[:-1])
        found = [getattr(block, name)(0).reshape(1, -1) for block in blocks]
        return getattr(jnp.concatenate(found), again)(axis).astype(np.float32), jnp.sin(x)

    x = np.random.default_rng(len(lengths)).uniform(0.5, 1.5, (sum(lengths), 3)).astype(np.float32)
    return Program(function, (x,), name=f"{again} along {axis} of {name} of {lengths} rows")


# --- reduce_by_halves ----------------------------------------------------------------------------------------------


@st.composite
def reductions_over_rows(draw: Any) -> Program:
    """A reduction of a few rows over a major dimension, of floats, integers or booleans."""
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


# --- sum_divided_others --------------------------------------------------------------------------------------------

OF_SHARES = ("dot", "product", "reshaped", "in part", "squared", "kept", "alone", "unbounded", "of others")


@st.composite
def sums_of_shares(draw: Any) -> Program:
    """The gradient of a softmax, or what is like it: shares a result or not, products read elsewhere or not."""
    shape = draw(st.sampled_from(((3, 5), (2, 4, 6), (1, 7))))
    way, looped = draw(st.sampled_from(OF_SHARES)), draw(st.booleans())

    def function(x: Any, g: Any) -> Any:
        rows = tuple(range(len(shape) - 1))
        greatest = 0 * x if way == "unbounded" else lax.stop_gradient(jnp.max(x, -1, keepdims=True, initial=-1e9))
        powers = jnp.exp(x - greatest)
        shares = powers / jnp.sum(g * g if way == "of others" else powers, -1, keepdims=True)
        other = shares if way == "squared" else g
        products = shares if way == "dot" else other * shares
        if way == "dot":
            summed = lax.dot_general(other, shares, (((len(rows),), (len(rows),)), (rows, rows)))
        else:
            summed = jnp.sum(products.reshape(-1, shape[-1]) if way == "reshaped" else products, -1)
        if way == "in part":
            summed = summed + products[..., 0]
        made = shares * (g - summed.reshape(*shape[:-1], 1))
        return (made, products) if way == "kept" else (made,) if way == "alone" else (made, shares)

    def in_a_loop(x: Any, g: Any) -> Any:
        return lax.scan(lambda own, _: (own, function(own, g)), x, length=2)[1]

    random = np.random.default_rng(len(shape))
    arrays = tuple(random.normal(size=shape).astype(np.float32) for _ in range(2))
    return Program(in_a_loop if looped else function, arrays, facts=way, name=f"shares, {way}")


def others_are_divided(closed: Closed, program: Program) -> None:
    """There is a quotient of shares, and one of what they are multiplied by, where the products are only summed."""
    jaxprs = closed.jaxpr, *(own for eqn in closed.jaxpr.eqns for own in inner_jaxprs(eqn))
    count = sum(eqn.primitive.name == "div" for jaxpr in jaxprs for eqn in jaxpr.eqns)
    assert count == 1 + (program.facts in ("dot", "product", "reshaped"))


PATTERN = Pattern(
    "reductions",
    "A reduction is of an array in the shape that it has, as it lies, by halves where it is slow, and not of shares.",
    {
        "reductions_of_reshaped": Drawn(
            reductions_of_reshaped(), ("reduce_in_shape",), quick=24, tolerance=1e-5, moves_no_more=False
        ),
        "reductions_of_parts": Drawn(
            reductions_of_parts(), ("reduce_in_shape",), quick=8, tolerance=2e-3, moves_no_more=False
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
        "sums_of_shares": Drawn(
            sums_of_shares(),
            ("sum_divided_others",),
            quick=20,
            tolerance=1e-5,
            forms={"sum_divided_others": others_are_divided},
            moves_no_more=False,
        ),
    },
    ("ops_reduce/sum/minor", "ops_reduce/max/minor"),
)
