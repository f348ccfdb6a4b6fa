"""Codelets of ragged fields: reductions, moves and decisions on rows whose lengths differ from vertex to vertex."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import codelet as cl
from tests.bounded import bend, squash


@cl.codelet
def row_sum(x, y):
    return squash(jnp.sum(x) + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_mean(x, y):
    scaled = bend(x) if jnp.issubdtype(x.dtype, jnp.floating) else x
    return jnp.sum(scaled * y) // (1 + x.shape[0]) + jnp.arange(x.shape[0]).sum().astype(x.dtype)


@cl.codelet
def row_shift(x, y):
    return squash(x - jnp.sum(x) + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_order(x, y):
    """What no rule for segments runs: a sort, and a loop over the elements."""
    ranks = jnp.sort(x)[::-1]
    return {"out": ranks, "sum": squash(sum((x[k] * (k + 1) for k in range(x.shape[0])), jnp.sum(y))).astype(x.dtype)}


HOW = {
    "equal": lambda n, of: n == of,
    "unequal": lambda n, of: n != of,
    "within": lambda n, of: n in (of, 1),
    "of a set": lambda n, of: n in {of, 0},
    "more": lambda n, of: n > of,
    "even": lambda n, of: n % 2 == of % 2,
    "none": lambda n, of: not n,
    "as text": lambda n, of: f"{n}" == f"{of}",
}
"""Ways in which a codelet may look at a length."""


@cl.codelet
def row_case(x, y, *, how, of):
    """What does something else where the row is of some length, which every way of running must notice."""
    if HOW[how](x.shape[0], of):
        return (jnp.sum(y) - 3).astype(x.dtype)
    return squash(jnp.sum(x) + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_shift_case(x, y, *, how, of):
    moved = x + 2 * jnp.sum(y) if HOW[how](x.shape[0], of) else x - jnp.sum(x)
    return squash(moved).astype(x.dtype)


@cl.codelet
def row_counted(x, y):
    """A factor that is a length, and no element of the row: the derivative reads nothing that shows it."""
    return (y * x.shape[0]).astype(x.dtype)


@cl.codelet
def row_counted_case(x, y, *, how, of):
    return (2 * y if HOW[how](x.shape[0], of) else y * (x.shape[0] - 2)).astype(x.dtype)


@cl.codelet
def row_filled(x, y):
    return jnp.full(x.shape, y * (1 + x.shape[0])).astype(x.dtype)


@cl.codelet
def row_dot(x, z):
    return squash(jnp.dot(x, z)).astype(x.dtype)


# --- what rules for segments, and traces for a symbolic length, may get wrong -------------------------------


@cl.codelet
def row_product(x, y):
    """A product, which for one element, or none, is no sum of logarithms."""
    return squash(jnp.prod(squash(x) + 1, axis=0).sum() + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_running(x, y):
    return squash(jnp.cumsum(x, axis=0) + lax.cummax(x, 0, reverse=True) + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_sorted(x, y):
    return squash(jnp.sort(x, axis=0) + jnp.sum(y)).astype(x.dtype)


@cl.codelet
def row_softmax(x, y):
    moved = jax.nn.softmax(x, axis=0) if jnp.issubdtype(x.dtype, jnp.floating) else x - x.max(0, initial=0)
    return squash(moved * jnp.sum(y) + moved.sum(axis=0)).astype(x.dtype)


@cl.codelet
def row_chosen(x, y):
    """Elements by a mask of their places, and the place of the largest of them."""
    kept = jnp.where(jnp.arange(x.shape[0]) % 2 == 0, x, -x)
    place = jnp.argmax(kept) if x.shape[0] else jnp.int32(7)
    return squash(kept.sum() + jnp.sum(y) + place.astype(x.dtype)).astype(x.dtype)


@cl.codelet
def row_looked_up(x, y):
    """Elements at a place that is known when it runs, counted from either end, or beyond both."""
    if not x.shape[0]:
        return jnp.sum(y).astype(x.dtype)
    place = jnp.sum(y * 2).astype(jnp.int32)
    found = x.at[place].get(mode="clip") + lax.dynamic_slice_in_dim(x, place, 1)[0]
    return squash(found + x[x.shape[0] - 1]).astype(x.dtype)


def _folded(x, start, function):
    return lax.reduce(x, start, function, tuple(range(x.ndim)))


@cl.codelet
def row_begun(x, y):
    """Reductions from a number that a field holds, which rows of one element leave out."""
    begun = _folded(x, y, lax.add) + 2 * _folded(x, y, lax.max) - _folded(x, y, lax.min)
    return squash(begun + jnp.max(x, initial=y) + jnp.sum(x, initial=y)).astype(x.dtype)


@cl.codelet
def row_folded(x, y):
    """The same by functions that no primitive is, each of which depends on the order of the elements."""
    half = (lambda a, b: a / 2 + b) if jnp.issubdtype(x.dtype, jnp.floating) else (lambda a, b: 3 * a + b)
    return squash(_folded(x, y, half) - _folded(squash(x) + 1, squash(y), lax.mul)).astype(x.dtype)


@jax.custom_jvp
def by_rule(x):
    """A function with a derivative rule of its own, which asks for the length of the row."""
    return jnp.sin(x)


@by_rule.defjvp
def _by_rule_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return by_rule(x), jnp.cos(x) * t * jnp.ones(x.shape, x.dtype)


@cl.codelet
def row_by_rule(x, y):
    bent = by_rule(x) if jnp.issubdtype(x.dtype, jnp.floating) else 3 * x
    return squash(bent + jnp.sum(y) * jnp.cumsum(bent, axis=0)).astype(x.dtype)


BY_CASES = (row_case, row_shift_case, row_counted_case)
"""Those that take a way to look at a length."""

OF_ROWS = [
    *(row_sum, row_mean, row_order, row_dot, row_case, row_case, row_product, row_chosen, row_looked_up),
    *(row_counted, row_counted_case, row_begun, row_folded),
]
"""Those that the strategies draw which give a number for each row, `row_order` also the row."""

ROWS_OF_ROWS = [row_shift, row_shift_case, row_running, row_sorted, row_softmax, row_by_rule, row_filled]
"""Those that give a row for each row."""
