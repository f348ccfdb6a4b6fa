"""Products side by side: products of all parts of a value, put together, are one product; values stay."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun as evaluated

import codelet as cl
from lowering.jaxprs.products_side_by_side import join_side_by_side
from tests.at_once import at_once
from tests.examples import examples, few


def numbers(*shape):
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(np.float32)


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def joined(function, *arrays):
    return join_side_by_side(jax.make_jaxpr(function)(*arrays))


def products(jaxpr):
    return names(jaxpr).count("dot_general")


A, B = numbers(7, 5), numbers(5, 6)
HALVES = ((0, 3), (3, 7))


def updated(pieces, shape, starts):
    """Pieces written one after another to where they start."""
    out = jnp.zeros(shape)
    for piece, start in zip(pieces, starts, strict=True):
        out = lax.dynamic_update_slice(out, piece, start)
    return out


def by_rows(a, b, halves=HALVES):
    return updated([a[i:j] @ b for i, j in halves], (7, 6), [(i, 0) for i, _ in halves])


def by_columns(a, b):
    return jnp.concatenate([a @ piece for piece in jnp.split(b, [2, 3], 1)], 1)


def of_left_transposed(a, b):
    turned = a.T
    return jnp.concatenate([lax.dot_general(turned[:, i:j], b, (((0,), (0,)), ((), ()))) for i, j in HALVES])


def in_another_shape(a, b):
    return updated([(a[i:j] @ b).reshape(j - i, 3, 2) for i, j in HALVES], (7, 3, 2), [(i, 0, 0) for i, _ in HALVES])


def of_batches(a, b):
    a, b = a.reshape(7, 1, 5), jnp.broadcast_to(b, (7, 5, 6))
    pieces = [lax.dot_general(a[i:j], b[i:j], (((2,), (1,)), ((0,), (0,)))) for i, j in HALVES]
    return jnp.concatenate(pieces).reshape(7, 6)


def with_a_last_row(a, b):
    return by_rows_and(a[6:], a, b)


def with_a_first_column(a, b):
    return jnp.concatenate([(a @ b[:, :1].reshape(5)).reshape(7, 1), a @ b[:, 1:]], 1)


def added_by_rows(a, b):
    whole = jnp.arange(42.0).reshape(7, 6)
    return jnp.concatenate([whole[i:j] + a[i:j] @ b for i, j in HALVES]) - whole


def added_by_columns(a, b):
    whole = jnp.arange(42.0).reshape(7, 6)
    pieces = zip(jnp.split(b, [2, 3], 1), jnp.split(whole, [2, 3], 1), strict=True)
    return jnp.concatenate([a @ piece + other for piece, other in pieces], 1) - whole


def in_a_loop(a, b):
    return lax.scan(lambda carry, scale: (by_rows(a, b) * scale + carry * 0, None), jnp.zeros((7, 6)), jnp.ones(2))[0]


@pytest.mark.parametrize(
    "function",
    [
        by_rows,
        by_columns,
        of_left_transposed,
        in_another_shape,
        of_batches,
        with_a_last_row,
        with_a_first_column,
        in_a_loop,
    ],
    ids=lambda f: f.__name__,
)
def test_all_parts_are_one_product(function):
    closed = joined(function, A, B)
    inner = [eqn.params["jaxpr"] for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    for jaxpr in inner or [closed]:
        assert products(jaxpr) == 1
        assert not {"dynamic_update_slice", "concatenate"} & set(names(jaxpr))
    np.testing.assert_array_equal(np.asarray(evaluated(closed)(A, B)[0]).reshape(7, 6), A @ B)


def used_again(a, b):
    first = a[:3] @ b
    return jnp.concatenate([first, a[3:] @ b]), first


def written_twice(a, b):
    return updated([a[:3] @ b, a[3:] @ b, a[3:] @ b], (7, 6), [(0, 0), (1, 0), (3, 0)])


def read_between(a, b):
    out = lax.dynamic_update_slice(jnp.zeros((7, 6)), a[:3] @ b, (0, 0))
    return lax.dynamic_update_slice(out, a[3:] @ b, (3, 0)), out


def by_rows_and(row, a, b):
    return jnp.concatenate([a[:6] @ b, (row.reshape(5) @ b).reshape(1, 6)])


OTHERS = {
    "in another order": lambda a, b: jnp.concatenate([a[3:] @ b, a[:3] @ b]),
    "of which one is left out": lambda a, b: jnp.concatenate([a[:3] @ b, a[4:] @ b]),
    "that overlap": lambda a, b: jnp.concatenate([a[:4] @ b, a[3:] @ b]),
    "of another value": lambda a, b: jnp.concatenate([a[:3] @ b, (a * 2)[3:] @ b]),
    "by another value": lambda a, b: jnp.concatenate([a[:3] @ b, a[3:] @ (b * 2)]),
    "put together elsewhere": lambda a, b: jnp.concatenate([a[:3] @ b, a[:3] @ b], 1),
    "of another precision": lambda a, b: jnp.concatenate([a[:3] @ b, jnp.dot(a[3:], b, precision="highest")]),
    "with strides": lambda a, b: jnp.concatenate([a[::2] @ b, a[1::2] @ b]),
    "of one row of which another is summed": lambda a, b: jnp.concatenate(
        [a[:6, :5] @ b, (a[:5, 4:].reshape(5) @ b).reshape(1, 6)]
    ),
    "of one row of another value": lambda a, b: jnp.concatenate(
        [a[:6] @ b, ((a * 2)[6:].reshape(5) @ b).reshape(1, 6)]
    ),
    "of one row too early": lambda a, b: jnp.concatenate([a[:6] @ b, (a[5:6].reshape(5) @ b).reshape(1, 6)]),
    "added to parts in another order": lambda a, b: jnp.concatenate(
        [a[4:, :4] + a[:3] @ b[:, :4], a[:4, :4] + a[3:] @ b[:, :4]]
    ),
    "added to parts of several": lambda a, b: jnp.concatenate(
        [a[:3, :4] + a[:3] @ b[:, :4], (a + 1)[3:, :4] + a[3:] @ b[:, :4]]
    ),
    "used again": used_again,
    "written twice": written_twice,
    "with something left": lambda a, b: by_rows(a, b, [(0, 3), (4, 7)]),
    "read between": read_between,
    "from where is not known": lambda a, b: updated(
        [a[:3] @ b, a[3:] @ b], (7, 6), [(jnp.int32(a[0, 0]) * 0, 0), (3, 0)]
    ),
    "of nothing": lambda a, b: jnp.concatenate([a[:3, :0] @ b[:0], a[3:, :0] @ b[:0]]),
}


@few(
    "name",
    OTHERS,
    quick=[
        "in another order",
        "of which one is left out",
        "that overlap",
        "of another value",
        "by another value",
        "put together elsewhere",
        "of another precision",
        "with strides",
        "of one row of which another is summed",
        "of one row of another value",
        "of one row too early",
        "added to parts of several",
        "used again",
        "written twice",
        "with something left",
        "read between",
        "from where is not known",
        "of nothing",
    ],
)
def test_other_products_stay(name):
    function = OTHERS[name]
    before, after = jax.make_jaxpr(function)(A, B), joined(function, A, B)
    assert names(after) == names(before)
    for own, plain in zip(evaluated(after)(A, B), evaluated(before)(A, B), strict=True):
        np.testing.assert_array_equal(own, plain)


@st.composite
def pieces(draw: Any) -> Any:
    """Products of stretches of the left or right operand, put together in either way, perhaps in a drawn order."""
    extent, axis = draw(st.integers(2, 6)), draw(st.sampled_from([0, 1]))
    cuts = sorted(draw(st.sets(st.integers(1, extent - 1), max_size=3)))
    stretches = list(itertools.pairwise([0, *cuts, extent]))
    shuffled = draw(st.booleans())
    order = draw(st.permutations(stretches)) if shuffled else stretches
    updates = draw(st.booleans())

    def function(a, b):
        made = [a[i:j] @ b if axis == 0 else a @ b[:, i:j] for i, j in order]
        if not updates:
            return jnp.concatenate(made, axis)
        starts = [(i, 0) if axis == 0 else (0, i) for i, _ in order]
        return updated(made, (a.shape[0], b.shape[1]), starts)

    shapes = [(extent, 3), (3, 4)] if axis == 0 else [(4, 3), (3, extent)]
    return function, shapes, updates or order == stretches


@examples(3, phases=[Phase.generate])
@given(st.lists(pieces(), min_size=8, max_size=8))
def test_values_are_kept(drawn):
    arrays = [[numbers(*shape) for shape in shapes] for _, shapes, _ in drawn]
    closed = [joined(function, *own) for (function, _, _), own in zip(drawn, arrays, strict=True)]
    for one, (_, _, is_whole) in zip(closed, drawn, strict=True):
        assert products(one) == 1 or not is_whole
    made = at_once(
        *(lambda own, k=k, f=f: f(*own[k]) for k, (f, _, _) in enumerate(drawn)),
        *(lambda own, k=k, c=c: evaluated(c)(*own[k])[0] for k, c in enumerate(closed)),
    )(arrays)
    for expected, found in zip(made[: len(drawn)], made[len(drawn) :], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(130, 16, 24), (24, 16, 130)], ids=str)
def test_a_product_in_turns_is_one_product(shape):
    rows, summed, columns = shape
    target = cl.IPU(num_tiles=2)
    share = 0.008
    plan = cl.ops.plan_matmul(target, rows, summed, columns, memory_share=share)
    assert "turns" in str(plan)
    run = cl.lower(lambda graph, a, b: cl.ops.matmul(graph, a, b, memory_share=share), target=target)
    a, b = numbers(rows, summed), numbers(summed, columns)
    assert names(run.at(a, b).jaxpr) == ["dot_general"]
    np.testing.assert_array_equal(run(a, b), a @ b)
