"""Which sums of products, and which products of parts, are one product, and how it lies."""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core
from jax.extend.core import jaxpr_as_fun as evaluated

import codelet as cl
from codelet.tracing.alike import alike
from lowering.jaxprs.contract import contract
from lowering.jaxprs.dots_in_memory_order import dots_in_memory_order
from lowering.jaxprs.narrow_products import multiply_narrowly
from lowering.jaxprs.products_side_by_side import join_side_by_side
from lowering.jaxprs.repeat_less import repeat_less
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.ops_cases import array, assert_alike
from tests.patterns.products import normal, updated, whole_numbers
from tests.rearrangements import summed_products
from tests.same_jaxprs import after, primitives

# --- contract ---------------------------------------------------------------------------------------------------------


def joined(function, *arrays):
    return contract(jax.make_jaxpr(function)(*arrays))


def names(function, *arrays):
    return [eqn.primitive.name for eqn in joined(function, *arrays).jaxpr.eqns]


def slices(a, b, size):
    """A product by slices of both: of the right one where what is summed is merged with what is behind it."""
    flat, (count, columns) = b.reshape(-1), b.shape
    left = [lax.slice_in_dim(a, 0, size, axis=1), lax.slice_in_dim(a, size, count, axis=1)]
    right = [flat[: size * columns].reshape(-1, columns), flat[size * columns :].reshape(-1, columns)]
    return left[0] @ right[0] + left[1] @ right[1]


PARTS = {
    "slices": lambda a, b: slices(a, b, 4),
    "parts in another order": lambda a, b: (lambda p, q: p[1] @ q[1] + p[0] @ q[0])(
        lax.split(a, (4, 6), 1), lax.split(b, (4, 6), 0)
    ),
    "three parts": lambda a, b: functools.reduce(
        operator.add, map(operator.matmul, lax.split(a, (4, 5, 1), 1), lax.split(b, (4, 5, 1), 0))
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_sums_of_products_of_parts_are_sums_of_whole_products(name):
    a, b = normal(3, 10), normal(10, 5)
    assert not {"concatenate", "reduce_sum"} & set(names(PARTS[name], a, b))
    run = joined(PARTS[name], a, b)
    result, expected = at_once(evaluated(run), lambda a, b: [a @ b])(a, b)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5, atol=1e-5)


MOVED = {
    "transposed": (lambda x: x.transpose(2, 0, 1), ["transpose"]),
    "transposed between reshapes": (lambda x: x.reshape(6, 4).T.reshape(4, 2, 3), ["transpose"]),
    "transposed twice": (lambda x: x.transpose(2, 0, 1).transpose(1, 0, 2), ["transpose"]),
    "of other dimensions": (lambda x: x.reshape(6, 4).T.reshape(2, 2, 6), ["reshape", "transpose", "reshape"]),
    "repeated": (
        lambda x: jnp.broadcast_to(x.transpose(2, 0, 1)[:, None], (4, 5, 2, 3)),
        ["reshape", "transpose", "reshape", "broadcast_in_dim"],
    ),
    "of one element along some": (lambda x: x[:, None].transpose(3, 1, 0, 2), ["reshape", "transpose", "reshape"]),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_is_only_transposed_is_one_transpose(name):
    function, expected = MOVED[name]
    x = normal(2, 3, 4)
    assert names(function, x) == expected
    np.testing.assert_array_equal(evaluated(joined(function, x))(x)[0], function(x))


def test_columns_that_were_rows_stay_what_they_are():
    a, b = normal(3, 5), normal(3, 7)

    def function(a, b):
        outer = [lax.dot(a[k : k + 1].reshape(5, 1), b[k : k + 1]) for k in range(3)]
        return outer[0] + outer[1] + outer[2]

    (value,) = evaluated(joined(function, a, b))(a, b)
    np.testing.assert_allclose(value, a.T @ b, rtol=1e-5, atol=1e-5)


def test_a_sum_of_what_is_made_of_nothing():
    """What has no operands, as numbers that count up, is not looked behind."""
    graph = cl.Graph()
    y = graph.add_variable("y", (3,))
    i = cl.grid(3)
    graph.add_vertex("count", cl.codelet(lambda: {"out": jnp.arange(6.0).reshape(2, 3).sum(0)[0]}), out=y[i])
    run = cl.lower(graph, inputs=[], outputs=[y])
    np.testing.assert_array_equal(run({})["y"], [3, 3, 3])


@pytest.mark.parametrize("shape", [(21 * 400, 56), (21 * 22400,)])
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


@pytest.mark.parametrize("shapes", [((8, 9, 5), (8, 45)), ((72, 5), (4, 2, 45)), ((8, 3, 15), (8, 3, 15))])
def test_a_product_of_blocks_that_two_read_is_transposed_for_neither(shapes):
    def function(a, b):
        product = jnp.einsum("xynk,km->xnym", a.reshape(2, 4, 9, 6), b)
        first, second = (product.transpose(0, 2, 1, 3).reshape(shape) for shape in shapes)
        return first * 2, second.sum(0)

    closed = after(lambda own: dots_in_memory_order(contract(own)), function, *whole_numbers((72, 6), (6, 5)))
    assert not {"transpose", "broadcast_in_dim"} & set(primitives(closed))


def test_a_product_that_is_read_in_two_orders_is_transposed_for_both():
    """In the first and the last the dimensions stand in other orders, which no shape tells."""

    def function(a, b):
        product = jnp.einsum("xynk,km->xnym", a.reshape(2, 2, 2, 6), b)
        return [product.transpose(order).reshape(8, 2) for order in ((0, 2, 1, 3), (0, 1, 2, 3), (2, 0, 1, 3))]

    after(lambda own: dots_in_memory_order(contract(own)), function, *whole_numbers((8, 6), (6, 2)))


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


# --- repeat_less ------------------------------------------------------------------------------------------------------


def repeated(x, count):
    """An array for each of some blocks, first of all dimensions."""
    return lax.broadcast_in_dim(x, (count, *x.shape), tuple(range(1, x.ndim + 1)))


def in_blocks(x, y):
    """What is repeated for blocks and the rest of them, taken apart again, and repeated for the elements of each."""
    partial = jnp.concatenate([repeated(x, 6), repeated(x, 2)])
    blocks, rest = lax.split(partial, (7, 1), 0)
    blocks = lax.broadcast_in_dim(blocks.T, (4, 7, 5), (0, 1)).reshape(4, 35)
    return jnp.concatenate([blocks, lax.broadcast_in_dim(rest[0], (4, 3), (0,))], 1) * y


JOINS = {
    "in blocks": (in_blocks, 0),
    "others": (lambda x, y: jnp.concatenate([repeated(x, 6), repeated(x + 1, 2)]) * y[0, 0], 1),
    "along others": (lambda x, y: jnp.concatenate([repeated(x, 6), repeated(x, 6)], 1) * y[0, 0], 1),
    "what is repeated": (lambda x, y: jnp.concatenate([repeated(x, 1), x[None]]) * y[0, 0], 0),
    "turned": (lambda x, y: jnp.concatenate([repeated(y, 4), repeated(y[:4, :4].T, 4)[:, :, :1]], 2) * x[0], 1),
}


@pytest.mark.parametrize("name", JOINS)
def test_parts_that_repeat_one_array_are_joined_to_one(name):
    function, count = JOINS[name]
    x, y = jnp.arange(1.0, 5), jnp.arange(1.0, 153).reshape(4, 38)
    closed = jax.make_jaxpr(function)(x, y)
    made = repeat_less(closed)
    np.testing.assert_array_equal(evaluated(made)(x, y)[0], function(x, y))
    kept = [eqn.primitive.name for eqn in made.jaxpr.eqns if eqn.primitive.name in ("concatenate", "split")]
    assert len(kept) == count
    assert count == 0 or made is closed


# --- join_side_by_side ------------------------------------------------------------------------------------------------


def numbers(*shape):
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(np.float32)


def names_of(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def side_by_side(function, *arrays):
    return join_side_by_side(jax.make_jaxpr(function)(*arrays))


def products(jaxpr):
    return names_of(jaxpr).count("dot_general")


ROWS, COLUMNS = numbers(7, 5), numbers(5, 6)


HALVES = ((0, 3), (3, 7))


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
        added_by_rows,
        added_by_columns,
        in_a_loop,
    ],
    ids=lambda f: f.__name__,
)
def test_all_parts_are_one_product(function):
    closed = side_by_side(function, ROWS, COLUMNS)
    inner = [eqn.params["jaxpr"] for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    for jaxpr in inner or [closed]:
        assert products(jaxpr) == 1
        assert not {"dynamic_update_slice", "concatenate"} & set(names_of(jaxpr))
    np.testing.assert_array_equal(np.asarray(evaluated(closed)(ROWS, COLUMNS)[0]).reshape(7, 6), ROWS @ COLUMNS)


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
    before, after = jax.make_jaxpr(function)(ROWS, COLUMNS), side_by_side(function, ROWS, COLUMNS)
    assert names_of(after) == names_of(before)
    for own, plain in zip(evaluated(after)(ROWS, COLUMNS), evaluated(before)(ROWS, COLUMNS), strict=True):
        np.testing.assert_array_equal(own, plain)


@pytest.mark.parametrize("shape", [(130, 16, 24), (24, 16, 130)], ids=str)
def test_a_product_in_turns_is_one_product(shape):
    rows, summed, columns = shape
    target = cl.IPU(num_tiles=2)
    share = 0.008
    plan = cl.ops.plan_matmul(target, rows, summed, columns, memory_fraction=share)
    assert "turns" in str(plan)
    run = cl.lower(lambda graph, a, b: cl.ops.matmul(graph, a, b, memory_fraction=share), target=target)
    a, b = numbers(rows, summed), numbers(summed, columns)
    assert names_of(run.at(a, b).jaxpr) == ["dot_general"]
    np.testing.assert_array_equal(run(a, b), a @ b)


# --- dots_in_memory_order ---------------------------------------------------------------------------------------------


def rewritten(function, *arrays):
    return dots_in_memory_order(jax.make_jaxpr(function)(*arrays))


def dot_of(closed):
    (eqn,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general")
    return eqn


def numbers_of(closed):
    return tuple(tuple(tuple(map(int, own)) for own in pair) for pair in dot_of(closed).params["dimension_numbers"])


@examples(6, phases=[Phase.generate])
@given(st.lists(summed_products(), min_size=8, max_size=8))
def test_dots_that_are_in_order_stay_as_they_are(drawn):
    for function, shapes in drawn:
        closed = rewritten(function, *whole_numbers(*shapes))
        again = dots_in_memory_order(closed)
        assert alike(again, {}, closed)
        assert sorted(primitives(again)) == sorted(primitives(closed))


def transposed_dot(a, b):
    return lax.dot_general(a.T.reshape(3, 2, 5), b, (((2,), (1,)), ((), ())))


LEFT, RIGHT = whole_numbers((5, 6), (4, 5))


def used_transposed_again(a, b):
    flat = transposed_dot(a, b).reshape(6, 4)
    return flat.T, flat


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (transposed_dot, ["dot_general", "reshape"]),
        (lambda a, b: transposed_dot(a, b).reshape(6, 4).T, ["dot_general"]),
        (used_transposed_again, ["dot_general", "transpose"]),
        (lambda a, b: a.T @ b.T, ["dot_general"]),
        (lambda a, b: (b @ a).T, ["dot_general"]),
        (lambda a, b: b @ a, ["dot_general"]),
        # The smaller one is transposed, rather than the result.
        (
            lambda a, b: lax.dot_general(b.reshape(2, 2, 5).transpose(1, 0, 2), a, (((2,), (0,)), ((), ()))),
            ["reshape", "transpose", "reshape", "dot_general", "reshape"],
        ),
        # So it is where the result is, unless the operand is not much smaller.
        (
            lambda a, b: (a.T @ a).reshape(6, 3, 2).transpose(0, 2, 1),
            ["dot_general", "reshape", "transpose"],
        ),
        (
            lambda a, b: (b[:, :2] @ a.reshape(2, 15)).reshape(4, 5, 3).transpose(0, 2, 1),
            ["slice", "reshape", "transpose", "reshape", "dot_general", "reshape"],
        ),
        # What lies in memory in parts that are apart stays laid out.
        (lambda a, b: a.reshape(5, 3, 2).transpose(1, 0, 2).reshape(3, 10) @ b.reshape(10, 2), None),
        # Nothing that a dot of matrices could do.
        (lambda a, b: lax.dot_general(a, b, (((), ()), ((0,), (1,)))), None),
        (lambda a, b: lax.dot_general(a.T, b[0], (((), ()), ((), ()))), None),
    ],
)
def test_form(function, expected):
    before = jax.make_jaxpr(function)(LEFT, RIGHT)
    after = rewritten(function, LEFT, RIGHT)
    assert names_of(after) == (names_of(before) if expected is None else expected)
    for own, plain in zip(
        jax_core.jaxpr_as_fun(after)(LEFT, RIGHT), jax_core.jaxpr_as_fun(before)(LEFT, RIGHT), strict=True
    ):
        np.testing.assert_array_equal(own, plain)


def test_batches_stay_in_order():
    q, k = whole_numbers((2, 5, 3, 4), (2, 6, 3, 4))

    def scores(q, k):
        return lax.dot_general(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), (((3,), (2,)), ((0, 1), (0, 1))))

    closed = rewritten(scores, q, k)
    assert names_of(closed) == ["dot_general"]
    assert numbers_of(closed) == (((3,), (3,)), ((0, 2), (0, 2)))
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(q, k)[0], scores(q, k))


ALGORITHM = lax.DotAlgorithm(np.float32, np.float32, np.float32, 1, 1, 1, False)


@pytest.mark.parametrize(
    "parameters",
    [{"precision": lax.Precision.HIGH, "preferred_element_type": np.int8}, {"preferred_element_type": np.int32}],
    ids=str,
)
def test_parameters_are_kept(parameters):
    def function(a, b):
        return lax.dot_general(b, a, (((1,), (0,)), ((), ())), **parameters).T

    a, b = LEFT.astype(np.int8), RIGHT.astype(np.int8)
    after, before = (dot_of(own) for own in (rewritten(function, a, b), jax.make_jaxpr(function)(a, b)))
    assert [atom.aval.shape for atom in after.invars] == [LEFT.shape, RIGHT.shape]
    assert {**after.params, "dimension_numbers": None} == {**before.params, "dimension_numbers": None}


def test_operands_of_an_algorithm_are_not_exchanged():
    closed = rewritten(lambda a, b: lax.dot(b, a, precision=ALGORITHM).T, LEFT, RIGHT)
    assert names_of(closed) == ["dot_general", "transpose"]


def test_a_parameter_that_is_not_known_keeps_all():
    closed = jax.make_jaxpr(transposed_dot)(LEFT, RIGHT)
    eqns = [
        eqn.replace(params={**eqn.params, "told_later": 1}) if eqn.primitive.name == "dot_general" else eqn
        for eqn in closed.jaxpr.eqns
    ]
    unknown = jax_core.ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)
    assert names_of(dots_in_memory_order(unknown)) == names_of(closed)


def test_in_the_bodies_of_loops():
    def function(a, b):
        return lax.scan(lambda carry, x: (carry + transposed_dot(a, x).sum(), transposed_dot(a, x)), 0.0, b)[1]

    a, b = whole_numbers((5, 6), (3, 4, 5))
    closed = rewritten(function, a, b)
    (loop,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    assert "transpose" not in names_of(loop.params["jaxpr"])
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(a, b)[0], function(a, b))


def test_a_narrow_product_is_found_behind_any_layout():
    a, b = array((130, 2, 256)), array((130, 3, 3))

    def function(a, b):
        a, b = a.transpose(1, 2, 0)[..., None], b.transpose(1, 2, 0)[..., None]
        return lax.dot_general(b, a, (((2, 3), (2, 3)), ((), ()))).reshape(9, 512).T

    closed = multiply_narrowly(rewritten(function, a, b))
    assert "dot_general" not in names_of(closed)
    run = lambda a, b: jax_core.jaxpr_as_fun(closed)(a, b)[0]  # noqa: E731
    ours, plain = at_once(with_slopes(run), with_slopes(function))(a, b)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert_alike(mine, other, 1e-4)


@pytest.mark.parametrize(
    "build",
    [
        lambda graph, x, w, grain: cl.ops.conv_general_dilated(graph, x, w, (1, 1), "VALID", grain=grain),
        lambda graph, g, w, grain: cl.ops.conv_input_gradient(
            graph, g, w.transpose(1, 0, 2, 3), (1, 24, 3, 3), (1, 1), ((0, 0), (0, 0)), grain=grain
        ),
    ],
    ids=["forward", "by input"],
)
def test_convolutions_of_one_by_one_are_one_product_whatever_the_grain(build):
    x, w = array((1, 16, 3, 3)), array((24, 16, 1, 1))
    programs = [
        str(jax.make_jaxpr(cl.lower(lambda graph, x, w, grain=grain: build(graph, x, w, grain)))(x, w))
        for grain in (None, 16)
    ]
    assert programs[0] == programs[1]
    assert "transpose" not in programs[0]
