"""Contraction: sums of products become one dot just where they should, and values and gradients stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.contract import contract
from tests.at_once import at_once, with_slopes
from tests.examples import examples
from tests.strategies import dot, total


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def contracted(function, *arrays):
    return contract(jax.make_jaxpr(function)(*arrays))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: lax.dot_general(a, lax.broadcast_in_dim(b, (5, 3), (1,)), (((1,), (1,)), ((), ()))).sum(1),
        lambda a, b: lax.dot_general(lax.broadcast_in_dim(a, (2, 4, 3), (0, 2)), b, (((2,), (0,)), ((), ()))).sum(
            (0, 1)
        ),
        lambda a, b: (lax.broadcast_in_dim(a, (2, 7, 3), (0, 2)) * lax.broadcast_in_dim(b, (2, 7, 3), (2,))).sum(
            (1, 2)
        ),
    ],
)
def test_a_sum_along_which_an_operand_is_only_repeated_counts_all_of_it(function):
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(1, 4, dtype=np.float32)]
    closed = contracted(function, *arrays)
    both = jax.jit(lambda *given: (*jax_core.jaxpr_as_fun(closed)(*given), function(*given)))
    np.testing.assert_array_equal(*both(*arrays))


def block_product(by_loops=False):
    """An 8 x 8 matrix product of 2 x 2 blocks and chunks of 4."""

    def build(graph, a, b):
        t, y = graph.add_variable("t", (2, 8, 8)), graph.add_variable("y", (8, 8))
        adder = cl.codelet(lambda x: jnp.sum(x, 0))
        blocks = [(i, j) for i in range(4) for j in range(4)] if by_loops else [cl.grid(4, 4)]
        places = [(i, j, p) for i, j in blocks for p in range(2)] if by_loops else [cl.grid(4, 4, 2)]
        cut = lambda i, n: slice(n * i, n * i + n)  # noqa: E731
        for i, j, p in places:
            field = {"x": a[cut(i, 2), cut(p, 4)], "w": b[cut(p, 4), cut(j, 2)]}
            graph.add_vertex("multiply", dot, **field, out=t[p, cut(i, 2), cut(j, 2)])
        for i, j in blocks:
            graph.add_vertex("add", adder, x=t[:, cut(i, 2), cut(j, 2)], out=y[cut(i, 2), cut(j, 2)])
        return y

    return cl.lower(build)


MATRICES = [np.random.default_rng(k).normal(size=(8, 8)).astype(np.float32) for k in range(2)]


@pytest.mark.parametrize("by_loops", [False, True])
def test_a_split_matrix_product_is_one_matrix_product(by_loops):
    layer = block_product(by_loops)
    assert names(layer.at(*MATRICES).jaxpr) == ["dot_general"]
    a, b = MATRICES
    (value, slopes), (plain, expected) = at_once(with_slopes(layer), with_slopes(jnp.matmul))(a, b)
    np.testing.assert_allclose(value, a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(plain, a @ b, rtol=1e-5, atol=1e-5)
    for slope, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-4, atol=1e-5)


def test_sums_of_products_of_broadcasts_are_a_product():
    def build(graph, x, w):
        i, k = cl.grid(4, 6)
        times = cl.codelet(lambda x, w: x * w)
        products = graph.add_vertex("times", times, x=x[k], w=w[i, k])
        return graph.add_vertex("add", total, x=products[cl.grid(4)])

    x, w = jnp.arange(6.0), jnp.arange(24.0).reshape(4, 6)
    layer = cl.lower(build)
    assert names(layer.at(x, w).jaxpr) == ["dot_general"]
    np.testing.assert_allclose(layer(x, w), w @ x)


def test_a_product_without_broadcasts_stays_elementwise():
    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 3))
    assert names(contracted(lambda x, w: (x * w).sum(1), x, w)) == ["mul", "reduce_sum"]


def test_a_product_that_is_used_twice_is_kept():
    x, w = jnp.arange(3.0), jnp.ones((2, 3))

    def both(x, w):
        product = x[None] * w
        return product.sum(1), product

    assert "dot_general" not in names(contracted(both, x, w))


def test_a_sum_over_one_operand_alone_is_not_taken_in():
    a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
    assert names(contracted(lambda a, b: (a @ b).sum(0), a, b)) == ["dot_general", "reduce_sum"]


def test_rearrangements_that_cancel_vanish():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    assert names(contracted(lambda x: x.transpose(2, 0, 1).reshape(4, 6).T.reshape(2, 3, 4) + 1, x)) == ["add"]
    assert names(contracted(lambda x: x.reshape(6, 4).reshape(24).reshape(4, 6) * 2, x)) == ["reshape", "mul"]


def test_what_nothing_needs_is_dropped_and_what_speaks_is_kept():
    def speak(x):
        jnp.sin(x)
        jax.debug.print("x is {}", x)
        return x + 1

    assert names(contracted(speak, 1.0)) == ["debug_print", "add"] or "debug_callback" in names(contracted(speak, 1.0))


def test_free_dimensions_that_the_result_separates_are_merged():
    """Of blocks of a matrix product, in the gradient as well: no dot sees the blocks."""
    blocks = lambda a, b: (  # noqa: E731
        jnp.einsum("iapk,pkjb->ijabp", a.reshape(4, 2, 2, 4), b.reshape(2, 4, 4, 2)).sum(4)
    )
    closed = contracted(blocks, *MATRICES)
    (made,) = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert [atom.aval.shape for atom in made.invars] == [(8, 8), (8, 8)]  # type: ignore[attr-defined]
    ours = lambda a, b: jax_core.jaxpr_as_fun(closed)(a, b)[0]  # noqa: E731
    (value, slopes), (plain, expected) = at_once(with_slopes(ours), with_slopes(blocks))(*MATRICES)
    np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-5)
    for slope, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-4, atol=1e-5)


def test_dimensions_of_which_one_is_summed_are_not_merged():
    """The first dimension of both operands stays, the second is summed."""
    a, b = np.ones((3, 2, 4), np.float32), np.ones((3, 2, 5), np.float32)
    batched = lambda a, b: jnp.einsum("ijk,ijl->ijkl", a, b).sum(1)  # noqa: E731
    closed = contracted(batched, a, b)
    (made,) = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert made.params["dimension_numbers"] == (((1,), (1,)), ((0,), (0,)))
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(a, b)[0], batched(a, b))


# --- arithmetic -------------------------------------------------------------------------------------------


def dots(function, *arrays):
    return [eqn.params for eqn in contracted(function, *arrays).jaxpr.eqns if eqn.primitive.name == "dot_general"]


def test_sums_of_products_are_as_precise_as_their_dtype():
    """By default a dot of float32 may have less than float32 has, on GPUs and TPUs."""
    x, w = jnp.ones(3), jnp.ones((2, 3))
    highest = (jax.lax.Precision.HIGHEST,) * 2
    spread = lambda x, w: (x[None] * w).sum(1)  # noqa: E731
    assert [made["precision"] for made in dots(spread, x, w)] == [highest]
    slopes = contracted(jax.grad(lambda x, w: jnp.sin(spread(x, w)).sum(), (0, 1)), x, w)
    assert {e.params["precision"] for e in slopes.jaxpr.eqns if e.primitive.name == "dot_general"} <= {highest}
    assert [made["precision"] for made in dots(spread, x.astype(jnp.complex64), w)] == [highest]


@pytest.mark.parametrize(
    "precision", [None, lax.Precision.HIGHEST, (lax.Precision.HIGH, lax.Precision.DEFAULT), "BF16_BF16_F32_X3"]
)
def test_the_precision_of_dots_survives(precision):
    precision = lax.DotAlgorithmPreset[precision] if isinstance(precision, str) else precision
    numbers = (((2,), (2,)), ((0,), (0,)))
    chunks = lambda a, b: lax.dot_general(a, b, numbers, precision=precision).sum(0)  # noqa: E731
    a, b = jnp.ones((2, 3, 4)), jnp.ones((2, 5, 4))
    (before,) = [e.params for e in jax.make_jaxpr(chunks)(a, b).jaxpr.eqns if e.primitive.name == "dot_general"]
    (after,) = dots(chunks, a, b)
    assert after["precision"] == before["precision"]
    assert names(contracted(chunks, a, b)) == ["dot_general"]


def test_accumulation_types_of_dots_survive():
    numbers = (((2,), (2,)), ((0,), (0,)))
    for dtype, wide in ((jnp.bfloat16, jnp.float32), (jnp.int8, jnp.int32), (jnp.bfloat16, None)):
        chunks = lambda a, b, wide=wide: lax.reduce_sum(  # noqa: E731
            lax.dot_general(a, b, numbers, preferred_element_type=wide), (0,)
        )
        (made,) = dots(chunks, jnp.ones((2, 3, 4), dtype), jnp.ones((2, 5, 4), dtype))
        assert made["preferred_element_type"] == (wide or dtype)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn])
def test_products_that_are_rounded_stay_products(dtype):
    spread = lambda x, w: lax.reduce_sum(x[None] * w, (1,))  # noqa: E731
    assert not dots(spread, jnp.ones(3, dtype), jnp.ones((2, 3), dtype))
    assert not dots(lambda x, w: (x[None] * w).sum(1), jnp.ones(3, dtype), jnp.ones((2, 3), dtype))


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.int32, jnp.uint32])
def test_integers_wrap_as_before(dtype):
    random = np.random.default_rng(0)
    x, w = (random.integers(-(2**30), 2**30, shape).astype(dtype) for shape in ((5,), (3, 5)))
    spread = lambda x, w: lax.reduce_sum(x[None] * w, (1,))  # noqa: E731
    assert dots(spread, x, w)
    (result,) = jax_core.jaxpr_as_fun(contracted(spread, x, w))(x, w)
    np.testing.assert_array_equal(result, (x[None] * w).sum(1, dtype=dtype))


@pytest.mark.slow
@given(st.permutations(range(3)), st.sampled_from([(6, 4), (2, 12), (24,), (4, 3, 2)]))
@examples(20)
def test_reshapes_in_another_order(order, shape):
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    closed = contracted(lambda x: lax.reshape(x, shape, dimensions=tuple(order)), x)
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(x)[0], x.transpose(order).reshape(shape))
