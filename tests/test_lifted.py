"""Jaxprs of single elements made jaxprs of blocks, beside what `jax.vmap` traces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.lifted import lifted
from codelet.jaxprs.primitives import ELEMENTWISE

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "products": lambda x, y: x * jnp.sin(y) + 1,
    "where, with a number": lambda x, y: jnp.where(x > 0, y, 0.0),
    "select": lambda x, y: lax.select_n(x > y, x, y),
    "select between numbers": lambda x, y: lax.select_n(x > 0, jnp.float32(1), jnp.float32(2)) * y,
    "select by a number": lambda x, y: lax.select_n(jnp.bool_(True), x, y),
    "clamp between numbers": lambda x, y: lax.clamp(0.0, x, 1.0) - y,
    "clamp between elements": lambda x, y: lax.clamp(y, x, y + 1),
    "clamp to one side": lambda x, y: lax.clamp(jnp.float32(0), x, y + 1),
    "clamp a number": lambda x, y: lax.clamp(x, jnp.float32(0.5), y + x),
    "clip": lambda x, y: jnp.clip(x, 0, y),
    "powers": lambda x, y: x**3 / (1 + y) + abs(x) ** 0.5 + 2.0**y + lax.pow(abs(x), y),
    "gradient": lambda x, y: jax.grad(lambda a: jnp.sin(a) * a * y + a * jnp.exp(a))(x),
    "gelu": lambda x, y: jax.nn.gelu(x) + y,
    "a jitted function": lambda x, y: jax.jit(lambda a, b: (a * b, b))(x, y)[0] + jax.jit(jnp.cos)(y),
    "a jitted function of numbers": lambda x, y: x * jax.jit(jnp.cos)(2.0),
    "nextafter": lambda x, y: jnp.nextafter(x, y) + jnp.nextafter(x, 1.0),
    "other dtypes": lambda x, y: (x.astype(jnp.float16) + 1).astype(jnp.float32) * y,
    "remainders": lambda x, y: x % 2.0 + lax.rem(x, y) + jnp.floor_divide(x, y),
    "operands as they are": lambda x, y: (y, x, x),
    "a number": lambda x, y: (x, 2.0, y),
    "two arguments": lambda x, y: jnp.arctan2(x, 1.0) + jnp.arctan2(y, x),
    "maxima": lambda x, y: jnp.maximum(x, 0.0) + jnp.minimum(3, y) + lax.max(x, y) - lax.min(x, y),
    "gamma": lambda x, y: lax.igamma(abs(x) + 1, abs(y) + 1) + lax.igammac(2.0, abs(y) + 1),
    "gradient of gamma": lambda x, y: lax.igamma_grad_a(abs(x) + 1, abs(y) + 1),
    "beta": lambda x, y: lax.betainc(abs(x) + 1, abs(y) + 1, 0.5),
    "zeta": lambda x, y: lax.zeta(abs(x) + 2, abs(y) + 1) + lax.polygamma(1.0, abs(y) + 1),
    "bits": lambda x, y: ((x > 0) & (y < 1)) | (x >= y) | ((x <= 0) ^ ~(y != x)) | (x == y) | jnp.isfinite(x),
    "integers": lambda x, y: (x.astype(int) << 2) + (y.astype(int) >> 1) ^ (x.astype(jnp.uint32) >> 3).astype(int),
    "high words": lambda x, y: lax.mulhi((1e9 * abs(x)).astype(jnp.int32), (1e8 * abs(y)).astype(jnp.int32)),
    "complex": lambda x, y: (lax.complex(x, y) * lax.complex(y, x)).real,
    "precision": lambda x, y: lax.reduce_precision(x, 5, 3) - y,
}

DIMENSIONS = (((0,), (0,)), ((0, 1), (0, 1)), ((0, 1), (1,)), ((0, 1), (0,)), ((1,), (0,)), ((0, 2), (1,)), ((0,), ()))


def _typed(sizes: tuple[int, ...], own: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(sizes[d] for d in own), np.float32)


def _both(name: str, given: Any, sizes: tuple[int, ...]) -> tuple[jax_core.ClosedJaxpr, jax_core.ClosedJaxpr]:
    """The jaxpr of blocks, and what `jax.vmap` traces."""
    function, scalar = FUNCTIONS[name], jax.ShapeDtypeStruct((), np.float32)
    made = lifted(jax.make_jaxpr(function)(scalar, scalar), given, sizes)
    assert made is not None
    mapped = function
    for d in reversed(range(len(sizes))):
        mapped = jax.vmap(mapped, tuple(0 if d in own else None for own in given))
    return made, jax.make_jaxpr(mapped)(*(_typed(sizes, own) for own in given))


@pytest.mark.parametrize("dimensions", DIMENSIONS, ids=str)
def test_it_computes_what_jax_maps(dimensions: Any) -> None:
    """With the same types, whichever dimensions an operand has; and it may be mapped over."""
    sizes = (2, 3, 4)[: 1 + max(d for own in dimensions for d in own)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((7, *_typed(sizes, own).shape), np.float32) for own in dimensions]
    pairs = {name: _both(name, dimensions, sizes) for name in FUNCTIONS}
    run = lambda k, *of_block: {name: jax_core.jaxpr_as_fun(own[k])(*of_block) for name, own in pairs.items()}  # noqa: E731
    results = jax.jit(lambda *own: [jax.vmap(partial(run, k))(*own) for k in range(2)])(*arrays)
    for name, (made, mapped) in pairs.items():
        assert made.out_avals == mapped.out_avals, name
        for own, expected in zip(*(found[name] for found in results), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("sizes", [(1, 3, 1), (1, 1, 1), (5, 1, 2)], ids=str)
def test_dimensions_may_be_one_element_long(sizes: tuple[int, ...]) -> None:
    """Which is another thing than not to have them."""
    for name, dimensions in itertools.product(FUNCTIONS, DIMENSIONS):
        made, mapped = _both(name, dimensions, sizes[: 1 + max(d for own in dimensions for d in own)])
        assert made.out_avals == mapped.out_avals


@pytest.mark.parametrize("name", [own for own in FUNCTIONS if "clamp" not in own and "select between" not in own])
def test_blocks_of_one_shape_are_traced_alike(name: str) -> None:
    """The text of the jaxpr is that of `jax.vmap`."""
    made, mapped = _both(name, [(0,), (0,)], (5,))
    assert str(made) == str(mapped)


def _primitives(jaxpr: jax_core.Jaxpr) -> Iterator[tuple[str, int]]:
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name, len(eqn.invars)
        for inner in inner_jaxprs(eqn):
            yield from _primitives(inner)


_OF_ONE = """
abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil clz conj convert_element_type copy cos cosh digamma
erf erf_inv erfc exp exp2 expm1 floor imag integer_pow is_finite lgamma log log1p logistic neg not one_minus_square
population_count real reduce_precision round rsqrt sign sin sinh sqrt square stop_gradient tan tanh
"""


def test_every_primitive_of_several_operands_is_among_them() -> None:
    """Those of one operand differ in nothing; a primitive that is added to the table is to be added here."""
    scalar = jax.ShapeDtypeStruct((), np.float32)
    seen = {
        own for function in FUNCTIONS.values() for own in _primitives(jax.make_jaxpr(function)(scalar, scalar).jaxpr)
    }
    of_several = {name for name, operands in seen if operands > 1} & ELEMENTWISE
    assert of_several == ELEMENTWISE - set(_OF_ONE.split())


def _printed(x: Any, y: Any) -> Any:
    jax.debug.print("{}", x)
    return x + y


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: jax.nn.relu(x) + y,  # a derivative rule of its own
        lambda x, y: jnp.arange(3.0)[x.astype(int)] * y,
        lambda x, y: lax.cond(x > 0, lambda: x, lambda: y),
        lambda x, y: lax.fori_loop(0, 3, lambda k, z: z * x, y),
        lambda x, y: x + jnp.sum(jnp.arange(3.0) * y),
        _printed,
    ],
    ids=["rule", "table", "branches", "loop", "array", "effects"],
)
def test_of_anything_else_nothing_is_made(function: Callable[..., Any]) -> None:
    """So that JAX traces it."""
    scalar = jax.ShapeDtypeStruct((), np.float32)
    assert lifted(jax.make_jaxpr(function)(scalar, scalar), [(0,), (0,)], (3,)) is None
