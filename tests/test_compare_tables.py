"""Tables that a program only compares with numbers are held as what the comparisons say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.compare_tables import compare_tables

MANY = 100


def made(function, x):
    """A jaxpr before and after, of which the values are compared."""
    closed = jax.make_jaxpr(function)(x)
    after = compare_tables(closed)
    for own, other in zip(jax_core.jaxpr_as_fun(after)(x), jax_core.jaxpr_as_fun(closed)(x), strict=True):
        np.testing.assert_array_equal(own, other)
    return after


def kinds(closed):
    return sorted(str(np.asarray(own).dtype) for own in closed.consts)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_every_comparison_on_either_side(dtype):
    limits, x = np.iinfo(dtype), jnp.arange(float(MANY))
    table = jnp.asarray(np.resize(np.array([0, 3, 4, limits.min, limits.max], dtype), MANY))
    numbers = [dtype(number) for number in (3, limits.min, limits.max)]
    for compare in (jnp.equal, jnp.not_equal, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal):
        for number in numbers:
            for own in ((table, number), (number, table)):
                assert kinds(made(lambda x, c=compare, own=own: jnp.where(c(*own), x, -x), x)) == ["bool"]


@pytest.mark.parametrize(("dtype", "left"), [(np.uint8, ["uint8"]), (np.int16, ["bool", "bool"])])
def test_answers_take_no_more_memory_than_the_table(dtype, left):
    table, x = jnp.asarray(np.arange(MANY) % 7, dtype), jnp.arange(float(MANY))
    assert kinds(made(lambda x: jnp.where(table <= 3, x, -x) + jnp.where(table == 5, x, 2 * x), x)) == left


def test_the_same_question_is_answered_once():
    table, x = jnp.arange(MANY) % 2, jnp.arange(float(MANY))
    after = made(lambda x: (jnp.where(table == 1, x, 0.0), jnp.where(table == 1, 1.0, x)), x)
    assert kinds(after) == ["bool"] * len(after.consts)
    assert len({id(own) for own in after.consts}) == 1
    assert not [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "eq"]


@pytest.mark.parametrize(
    "function",
    [
        lambda table, x: jnp.where(table == 1, x, table),  # it is read as well
        lambda table, x: (jnp.where(table == 1, x, 0.0), table),  # it is a result
        lambda table, x: jnp.where(table == x.astype(int), x, 0.0),  # not with a number
        lambda table, x: sum(jnp.where(table == k, x, k) for k in range(5)),  # the answers take more memory
    ],
)
def test_tables_that_stay(function):
    table, x = jnp.arange(MANY) % 3, jnp.arange(float(MANY))
    assert "int32" in kinds(made(lambda x: function(table, x), x))


def test_floats_and_arguments_stay():
    table, x = jnp.arange(float(MANY)), jnp.arange(MANY)
    after = made(lambda x: (table == 3.0) & (x == 3), x)
    assert [eqn.primitive.name for eqn in after.jaxpr.eqns].count("eq") == 2


def test_a_flag_of_vertices_is_a_byte_for_each():
    """And the program means what it says, with its gradient."""

    @cl.codelet
    def exchange(low, high, up):
        least, most = jnp.minimum(low, high), jnp.maximum(low, high)
        return {"low": jnp.where(up == 1, least, most), "high": jnp.where(up == 1, most, least)}

    graph = cl.Graph()
    x = graph.add_variable("x", (2 * MANY,))
    i = cl.grid(MANY)
    graph.add_vertex("one", exchange, low=x[2 * i], high=x[2 * i + 1], up=1 - i // 2 % 2)
    run = cl.lower(graph, inputs=[x], outputs=[x])
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(run)} == {"bool"}
    values = {"x": np.random.default_rng(0).standard_normal(2 * MANY, np.float32)}
    expected = cl.interpret(graph, values, [x])["x"]
    np.testing.assert_array_equal(jax.jit(run)(values)["x"], expected)
    weights = np.arange(2.0 * MANY, dtype=np.float32)
    slopes = jax.jit(jax.grad(lambda v: run(v)["x"] @ weights))(values)["x"]
    np.testing.assert_array_equal(weights, slopes[np.argsort(values["x"])][np.argsort(expected).argsort()])
