"""Sums over pieces: those of products are sums of whole products; values stay."""

import functools
import itertools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun as evaluated

import codelet as cl
from lowering.jaxprs.contract import contract
from lowering.jaxprs.sum_rows import sum_rows
from tests.at_once import at_once
from tests.examples import examples


def joined(function, *arrays):
    return contract(sum_rows(jax.make_jaxpr(function)(*arrays)))


def names(function, *arrays):
    return [eqn.primitive.name for eqn in joined(function, *arrays).jaxpr.eqns]


def normal(*shape, dtype: Any = np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def chunks(a, b, size):
    """The partial products of as many chunks as there are whole ones, and of what is left, stacked."""
    count = a.shape[1] // size
    first, left = lax.split(a, (count * size, a.shape[1] - count * size), 1)
    second, last = lax.split(b, (count * size, b.shape[0] - count * size), 0)
    many = jnp.einsum("mpk,pkn->pmn", first.reshape(len(a), count, size), second.reshape(count, size, -1))
    return jnp.concatenate([many, (left @ last)[None]])


def by_groups(parts, size):
    """Sums of rows by groups of so many, and of what is left, stacked and added up."""
    count, row = len(parts) // size, parts.shape[1:]
    flat = parts.reshape(-1)
    stop = count * size * int(np.prod(row))
    sums = [lax.slice(flat, (0,), (stop,)).reshape(count, size, -1).sum(1)]
    if stop < flat.size:
        sums.append(lax.slice(flat, (stop,), (flat.size,)).reshape(-1, int(np.prod(row))).sum(0)[None])
    return jnp.concatenate(sums).sum(0).reshape(row)


def slices(a, b, size):
    """A product by slices of both: of the right one where what is summed is merged with what is behind it."""
    flat, (count, columns) = b.reshape(-1), b.shape
    left = [lax.slice_in_dim(a, 0, size, axis=1), lax.slice_in_dim(a, size, count, axis=1)]
    right = [flat[: size * columns].reshape(-1, columns), flat[size * columns :].reshape(-1, columns)]
    return left[0] @ right[0] + left[1] @ right[1]


PARTS = {
    "slices": lambda a, b: slices(a, b, 4),
    "chunks": lambda a, b: chunks(a, b, 3).sum(0),
    "chunks of another shape": lambda a, b: chunks(a, b, 3).reshape(4, -1).sum(0).reshape(3, 5),
    "groups of products": lambda a, b: by_groups(jnp.einsum("mk,kn->kmn", a, b), 4),
    "groups of chunks": lambda a, b: by_groups(chunks(a, b, 3), 3),
    "parts in another order": lambda a, b: (lambda p, q: p[1] @ q[1] + p[0] @ q[0])(
        lax.split(a, (4, 6), 1), lax.split(b, (4, 6), 0)
    ),
    "three parts": lambda a, b: functools.reduce(
        operator.add, map(operator.matmul, lax.split(a, (4, 5, 1), 1), lax.split(b, (4, 5, 1), 0))
    ),
    "transposed": lambda a, b: (lambda p, q: jnp.concatenate([(p[0] @ q[0].T)[None], (p[1] @ q[1].T)[None]]).sum(0))(
        lax.split(a, (4, 6), 1), lax.split(b.T, (4, 6), 1)
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_sums_of_products_of_parts_are_sums_of_whole_products(name):
    a, b = normal(3, 10), normal(10, 5)
    assert not {"concatenate", "reduce_sum"} & set(names(PARTS[name], a, b))
    run = joined(PARTS[name], a, b)
    result, expected = at_once(evaluated(run), lambda a, b: [a @ b])(a, b)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5, atol=1e-5)


def test_a_sum_over_groups_of_products_is_one_product():
    assert names(PARTS["groups of products"], normal(3, 10), normal(10, 5)) == ["dot_general"]


def test_parts_of_which_one_is_used_again_are_several():
    function = lambda a, b: (lambda c: (c.sum(0), c))(chunks(a, b, 3))  # noqa: E731
    assert names(function, normal(3, 10), normal(10, 5)).count("dot_general") == 2


def test_columns_that_were_rows_stay_what_they_are():
    a, b = normal(3, 5), normal(3, 7)

    def function(a, b):
        outer = [lax.dot(a[k : k + 1].reshape(5, 1), b[k : k + 1]) for k in range(3)]
        return outer[0] + outer[1] + outer[2]

    (value,) = evaluated(joined(function, a, b))(a, b)
    np.testing.assert_allclose(value, a.T @ b, rtol=1e-5, atol=1e-5)


def test_sums_that_are_rounded_stay():
    a, b = normal(3, 10, dtype=np.float16), normal(10, 5, dtype=np.float16)
    assert "concatenate" in names(lambda a, b: chunks(a, b, 3).sum(0), a, b)


def test_sums_in_loops():
    a, b = normal(5, 10), normal(10, 5)
    run = lambda a, b: lax.fori_loop(0, 3, lambda _, x: chunks(x, b, 3).sum(0) @ b.T, a)  # noqa: E731
    (loop,) = [eqn for eqn in joined(run, a, b).jaxpr.eqns if eqn.primitive.name in ("scan", "while")]
    body = loop.params.get("jaxpr") or loop.params["body_jaxpr"]
    assert "concatenate" not in [eqn.primitive.name for eqn in body.jaxpr.eqns]


@st.composite
def sums(draw):
    """A function of a matrix and a vector: sums of rows of products, cut, put together and summed again."""
    rows, row = draw(st.integers(1, 6)), draw(st.sampled_from([(4,), (2, 3), (1,), ()]))
    steps = draw(st.lists(st.sampled_from(["cut", "join", "groups", "reshape", "scale"]), max_size=5))
    numbers = [draw(st.integers(1, 3)) for _ in steps]

    def function(a, b):
        value = a.reshape(rows, -1, *row) * b.reshape(1, -1, *[1] * len(row))
        value = value.sum(1) if draw_sum else value.reshape(-1, *row)
        for step, number in zip(steps, numbers, strict=True):
            if step == "cut":
                value = value[min(number, len(value) - 1) :]
            elif step == "join":
                value = jnp.concatenate([value[:number], 2 * value, value[number:]])
            elif step == "groups" and len(value) % number == 0:
                value = value.reshape(-1, number, *row).sum(1)
            elif step == "reshape":
                value = value.reshape(1, len(value), 1, *row).reshape(len(value), *row)
            elif step == "scale":
                value = value * 1.5
        return value.sum(0)

    draw_sum, size = draw(st.booleans()), int(np.prod(row))
    return function, (normal(rows * 3 * size), normal(3))


@examples(10)
@given(st.lists(sums(), min_size=3, max_size=3))
def test_values_are_kept(drawn):
    both = [(own, joined(own, *arrays)) for own, arrays in drawn]
    runs = [
        (
            lambda given, k=k, own=own: own(*given[k]),
            lambda given, k=k, run=run: evaluated(run)(*given[k])[0],
        )
        for k, (own, run) in enumerate(both)
    ]
    made = at_once(*itertools.chain(*runs))([arrays for _, arrays in drawn])
    for expected, result in zip(made[::2], made[1::2], strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


def test_a_sum_of_what_is_made_of_nothing():
    """What has no operands, as numbers that count up, is not looked behind."""
    graph = cl.Graph()
    y = graph.add_variable("y", (3,))
    i = cl.grid(3)
    graph.add_vertex("count", cl.codelet(lambda: {"out": jnp.arange(6.0).reshape(2, 3).sum(0)[0]}), out=y[i])
    run = cl.lower(graph, inputs=[], outputs=[y])
    np.testing.assert_array_equal(run({})["y"], [3, 3, 3])


@pytest.mark.parametrize("shape", [(21, 70, 320), (21 * 400, 56), (21 * 22400,)])
def test_a_product_that_is_reshaped_before_it_is_summed_is_one_product(shape):
    def function(a, b):
        parts = jnp.einsum("pmn,pkn->pmk", a.reshape(5, 21 * 400, 4), b.reshape(5, 56, 4))
        return parts.reshape(5, *shape).sum(0)

    a, b = normal(5, 8400, 4), normal(5, 56, 4)
    assert [name for name in names(function, a, b) if name in ("dot_general", "reduce_sum")] == ["dot_general"]
    np.testing.assert_allclose(evaluated(joined(function, a, b))(a, b)[0], function(a, b), rtol=1e-4, atol=1e-4)


def test_a_sum_of_inner_products_is_one_inner_product():
    def function(a, b):
        return jnp.einsum("pk,pk->p", a.reshape(50, 40), b.reshape(50, 40)).sum()

    a, b = normal(2000), normal(1, 2000)[0]
    assert [name for name in names(function, a, b) if name in ("dot_general", "reduce_sum")] == ["dot_general"]
    np.testing.assert_allclose(evaluated(joined(function, a, b))(a, b)[0], function(a, b), rtol=1e-4)


@pytest.mark.parametrize("is_summed", [False, True])
def test_what_is_cut_with_rows_behind_it_and_one_element_that_is_left_over(is_summed):
    """Three elements are summed, of an array in which each is two rows: two of them, and the one that is left."""

    def function(a, b):
        many, one = lax.slice_in_dim(a, 0, 4).reshape(2, 20), lax.slice_in_dim(a, 4, 6).reshape(1, 20)
        few, last = lax.split(b, (2, 1), 1)
        products = [jnp.einsum("kn,mk->nm", *own) for own in ((many, few), (one, last))]
        if is_summed:  # as vertices that add up rows of partial products do, here of one each
            products = [own.reshape(20, 1, 3).sum(1) for own in products]
        return products[0] + products[1]

    a, b = normal(6, 5, 2), normal(3, 3)
    np.testing.assert_allclose(evaluated(joined(function, a, b))(a, b)[0], function(a, b), 1e-5, 1e-5)
