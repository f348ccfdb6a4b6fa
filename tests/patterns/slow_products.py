"""Products that a backend is slow at: by a narrow matrix, of few long rows, and of halves that are rounded."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.patterns.pattern import Closed, Drawn, Pattern, Program
from tests.same_jaxprs import equations, primitives

OVER_FIRST: Any = (((0,), (0,)), ((), ()))
OVER_LAST: Any = (((0,), (1,)), ((), ()))


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-2, 2, shape).astype(np.float32)


@st.composite
def narrow_products(draw: Any) -> Program:
    """Products of a wide matrix with one about as narrow as it may be, both summed along their first dimensions."""
    summed = draw(st.sampled_from((128, 130, 130, 127)))
    wide, narrow = draw(st.sampled_from((512, 530, 530, 511))), draw(st.sampled_from((2, 3, 5, 196, 1, 197)))
    is_turned, looped = draw(st.integers(0, 4)) == 4, draw(st.booleans())

    def function(a: Any, b: Any) -> Any:
        def once(a: Any) -> Any:
            return lax.dot_general(b, a, OVER_FIRST) if is_turned else lax.dot_general(a, b, OVER_FIRST)

        return lax.fori_loop(0, 2, lambda _, a: a + jnp.mean(once(a)), a) if looped else once(a)

    is_narrow = summed >= 128 and wide >= 512 and 2 <= narrow <= 196 and not is_turned
    return Program(function, (_array(summed, wide), _array(summed, narrow)), facts=is_narrow)


def narrow_are_convolutions(closed: Closed, program: Program) -> None:
    """Those that are narrow, and no others, run as convolutions."""
    assert ("conv_general_dilated" in primitives(closed)) == program.facts


@st.composite
def thin_products(draw: Any) -> Program:
    """Products of a transposed matrix of few long rows, which are made by a transpose or by element, or given."""
    summed, columns = draw(st.sampled_from((4, 5, 7, 64, 3, 65))), draw(st.sampled_from((2, 3, 5, 16, 1, 17)))
    numbers, way = (
        draw(st.sampled_from((OVER_FIRST, OVER_LAST))),
        draw(st.sampled_from(("turned", "turned", "map", "given"))),
    )
    inner, outer = draw(st.sampled_from(((8, 300), (7, 300), (9, 300), (8, 200))))

    def function(x: Any, w: Any) -> Any:
        if way == "turned":
            x = jnp.transpose((x * 2).reshape(summed, inner, outer), (0, 2, 1)).reshape(summed, -1)
        if way == "map":
            x = jnp.sin(x)
        return lax.dot_general(x, w, numbers)

    shape = (summed, columns) if numbers is OVER_FIRST else (columns, summed)
    is_thin = 4 <= summed <= 64 and 2 <= columns <= 16 and inner * outer > 2048 and way != "given"
    return Program(function, (_array(summed, inner * outer), _array(*shape)), facts=is_thin, name=way)


@st.composite
def rounded_products(draw: Any) -> Program:
    """Products in float32 of shorter floats that are rounded, moved before or not, and perhaps read otherwise."""
    dtype = draw(st.sampled_from((jnp.float16, jnp.bfloat16)))
    way = draw(st.sampled_from(("rounded", "rounded", "moved", "summed", "twice", "wide", "asked", "convolved")))
    looped, to = draw(st.booleans()), draw(st.sampled_from((dtype, dtype, dtype, jnp.float16)))

    def function(a: Any, b: Any) -> Any:
        def once(a: Any) -> Any:
            b_own = b.astype(jnp.float32) if way == "wide" else b
            a = a.astype(jnp.float32) if way == "wide" else a
            precision = lax.Precision.HIGHEST if way == "asked" else None
            how = {"preferred_element_type": jnp.float32, "precision": precision}
            if way == "convolved":
                made = lax.conv_general_dilated(a[None], b_own[:, :, None], (1,), "VALID", **how)[0]
            else:
                made = lax.dot_general(a, b_own, OVER_FIRST, **how)
            if way == "moved":
                made = made.T.reshape(2, -1)
            if way == "summed":
                made = made + 1
            return (made.astype(to), made) if way == "twice" else made.astype(to)

        if not looped:
            return once(a)
        return lax.scan(lambda held, _: (held * 2, once(held)), a, None, length=2)[1]

    shapes = ((8, 5), (6, 8)) if way == "convolved" else ((8, 5), (8, 6))
    arrays = tuple(_array(*shape).astype(dtype) for shape in shapes)
    is_rounded = way in ("rounded", "moved", "convolved") and to is dtype
    return Program(function, arrays, facts=is_rounded, name=f"{way} to {np.dtype(to)}")


def rounded_are_short(closed: Closed, program: Program) -> None:
    """A product has the shorter dtype where nothing but its rounding reads it."""
    products = [own for own in equations(closed) if own.primitive.name in ("dot_general", "conv_general_dilated")]
    assert all((own.outvars[0].aval.dtype != jnp.float32) == program.facts for own in products)
    assert ("convert_element_type" in primitives(closed)) == (not program.facts)


PATTERN = Pattern(
    "slow_products",
    "Products that a backend is slow at, or writes in a longer dtype than is read, are made in other ways; only those.",
    {
        "rounded_products": Drawn(
            rounded_products(),
            ("round_in_products",),
            quick=16,
            slow=100,
            slopes=0,
            slow_slopes=0,
            tolerance=2e-2,
            forms={"round_in_products": rounded_are_short},
            moves_no_more=False,
        ),
        "narrow_products": Drawn(
            narrow_products(),
            ("multiply_narrowly",),
            quick=12,
            slow=60,
            slopes=1,
            slow_slopes=10,
            tolerance=1e-4,
            forms={"multiply_narrowly": narrow_are_convolutions},
            moves_no_more=False,
        ),
        "thin_products": Drawn(
            thin_products(),
            ("multiply_thinly",),
            quick=8,
            slow=60,
            slopes=1,
            slow_slopes=10,
            tolerance=1e-4,
            moves_no_more=False,
        ),
    },
    (),
)
