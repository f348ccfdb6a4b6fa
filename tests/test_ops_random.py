"""Random numbers as operations: those that JAX draws from the same key, whatever the grain; plans; mistakes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.errors import FieldTypeError, OperationError
from codelet.ops.random_codelets import draw_uniform
from tests.examples import examples, few
from tests.ops_cases import TARGET, Case, array, check

KEY = jax.random.key_data(jax.random.key(2**40 + 7))


def exact(build, plain, *arguments, **ways):
    """See that both give the same to the bit."""
    check(Case(build, plain, arguments, tolerance=1e-300, slopes=False), **ways)


@pytest.mark.slow
@few("grain", [7, None], quick=["7"])
def test_all_from_one_key(grain):
    def ours(graph, key):
        ops = cl.ops
        return {
            "bits": ops.random_bits(graph, (5, 11), key=key, grain=grain),
            "bits8": ops.random_bits(graph, (7,), key=key, dtype=jnp.uint8, grain=grain),
            "bits16": ops.random_bits(graph, (3, 1, 5), key=key, dtype=jnp.uint16, grain=grain),
            "one": ops.random_bits(graph, (), key=key, grain=grain),
            "none": ops.random_bits(graph, (3, 0), key=key, grain=grain),
            "uniform": ops.uniform(graph, (101,), key=key, grain=grain),
            "half": ops.uniform(graph, (33,), key=key, dtype=jnp.float16, grain=grain),
            "brain": ops.uniform(graph, (33,), key=key, dtype=jnp.bfloat16, minval=1, maxval=3, grain=grain),
            "truth": ops.bernoulli(graph, 0.3, (53,), key=key, grain=grain),
            "rare": ops.bernoulli(graph, 0.3, (53,), key=key, mode="high", grain=grain),
            "keys": ops.split_key(graph, key, 5, grain=grain),
            "grid of keys": ops.split_key(graph, key, (2, 3), grain=grain),
            "folded": ops.fold_in(graph, key, 2**32 - 3),
        }

    def plain(key):
        random, key = jax.random, jax.random.wrap_key_data(key, impl="threefry2x32")
        return {
            "bits": random.bits(key, (5, 11)),
            "bits8": random.bits(key, (7,), jnp.uint8),
            "bits16": random.bits(key, (3, 1, 5), jnp.uint16),
            "one": random.bits(key, ()),
            "none": random.bits(key, (3, 0)),
            "uniform": random.uniform(key, (101,)),
            "half": random.uniform(key, (33,), jnp.float16),
            "brain": random.uniform(key, (33,), jnp.bfloat16, 1, 3),
            "truth": random.bernoulli(key, 0.3, (53,)),
            "rare": random.bernoulli(key, 0.3, (53,), "high"),
            "keys": random.key_data(random.split(key, 5)),
            "grid of keys": random.key_data(random.split(key, (2, 3))),
            "folded": random.key_data(random.fold_in(key, np.uint32(2**32 - 3))),
        }

    exact(ours, plain, KEY)


@pytest.mark.slow
def test_one_vertex_at_a_time_and_on_tiles():
    exact(
        lambda graph, key: (
            cl.ops.uniform(graph, (3, 7), key=key),
            cl.ops.random_bits(graph, (13,), key=key, dtype=jnp.uint16, grain=1),
            cl.ops.split_key(graph, key, 3),
        ),
        lambda key: (
            jax.random.uniform(key, (3, 7)),
            jax.random.bits(key, (13,), jnp.uint16),
            jax.random.split(key, 3),
        ),
        KEY,
        interpreted=True,
        on_tiles=True,
    )


@few("dtype", [jnp.float32, jnp.float16, jnp.bfloat16], quick=["float16"])
def test_normal_and_between(dtype):
    exact(
        lambda graph, key: (
            cl.ops.normal(graph, (9, 23), key=key, dtype=dtype),
            cl.ops.uniform(graph, (9, 3), key=key, dtype=dtype, minval=-3, maxval=0.7, grain=4),
        ),
        lambda key: (jax.random.normal(key, (9, 23), dtype), jax.random.uniform(key, (9, 3), dtype, -3, 0.7)),
        KEY,
    )


def test_words_of_64_bits():
    with jax.enable_x64(True):
        exact(
            lambda graph, key: (
                cl.ops.random_bits(graph, (5, 7), key=key),
                cl.ops.uniform(graph, (41,), key=key, grain=6),
                cl.ops.bernoulli(graph, 0.3, (41,), key=key, grain=6),
            ),
            lambda key: (
                jax.random.bits(key, (5, 7)),
                jax.random.uniform(key, (41,)),
                jax.random.bernoulli(key, 0.3, (41,)),
            ),
            KEY,
        )


@few("interpreted", [False, True], quick=["False"])
def test_bounds_and_probabilities_of_each_element(interpreted):
    low, high, p = array((5, 1)), array((7,), low=3, high=4), array((3, 5), low=0, high=1)
    case = Case(
        lambda graph, key, low, high, p: (
            cl.ops.uniform(graph, (5, 7), key=key, minval=low, maxval=high),
            cl.ops.uniform(graph, (5, 7), key=key, minval=low, maxval=3.5, grain=3),
            cl.ops.bernoulli(graph, p, key=key),
            cl.ops.bernoulli(graph, p, (2, 3, 5), key=key, mode="high"),
        ),
        lambda key, low, high, p: (
            jax.random.uniform(key, (5, 7), minval=low, maxval=high),
            jax.random.uniform(key, (5, 7), minval=low, maxval=3.5),
            jax.random.bernoulli(key, p),
            jax.random.bernoulli(key, p, (2, 3, 5), "high"),
        ),
        (KEY, low, high, p),
    )
    check(case, interpreted=interpreted)


def dropped(key, x, rate):
    """As `equinox.nn.Dropout` has it."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


@few("dtype", [jnp.float32, jnp.float16, jnp.bfloat16], quick=["float32", "float16"])
def test_dropout(dtype):
    def ours(graph, key, x, cotangent):
        return {
            "values": cl.ops.dropout(graph, x, 0.2, key=key),
            "fine": cl.ops.dropout(graph, x, 0.2, key=key, grain=1),
            "all": cl.ops.dropout(graph, x, 1.0, key=key),
            "none": cl.ops.dropout(graph, x, 0, key=key),
            "gradient": cl.ops.dropout_gradient(graph, cotangent, 0.2, key=key),
        }

    def plain(key, x, cotangent):
        slope = jax.vjp(lambda x: dropped(key, x, 0.2), x)[1](cotangent)[0]
        values = dropped(key, x, 0.2)
        return {"values": values, "fine": values, "all": jnp.zeros_like(x), "none": x, "gradient": slope}

    given = KEY, array((13, 5), dtype), array((13, 5), dtype, seed=1)
    check(Case(ours, plain, given), interpreted=dtype is jnp.bfloat16)


def test_a_key_of_its_own_at_each_turn():
    @cl.codelet
    def add(x, sums):
        return {"sums": sums + x}

    def build(graph, key):
        turn = graph.add_variable("turn", (), np.int32)
        sums = graph.add_variable("sums", (3,))
        with graph.record() as step:
            x = cl.ops.uniform(graph, (3,), key=cl.ops.fold_in(graph, key, turn))
            graph.add_vertex("add", add, x=x, sums=sums)
        return sums, [cl.Copy(0.0, sums), cl.Repeat(4, step, index=turn)]

    expected = sum(jax.random.uniform(jax.random.fold_in(KEY, turn), (3,)) for turn in range(4))
    np.testing.assert_allclose(cl.lower(build)(KEY), expected, rtol=1e-6)


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 9))
@examples(3)
def test_any_grain_on_any_number_of_tiles_draws_the_same(count, grain, tiles):
    target = cl.IPU(num_tiles=tiles)
    ours = cl.lower(lambda graph, key: cl.ops.random_bits(graph, (count,), key=key, grain=grain), target=target)
    np.testing.assert_array_equal(ours(KEY), jax.random.bits(KEY, (count,)))


def test_the_program_is_the_same_whatever_the_grain():
    def lowered(grain):
        def build(graph, key, x):
            return cl.ops.uniform(graph, (103,), key=key, grain=grain), cl.ops.dropout(graph, x, key=key, grain=grain)

        return str(cl.lower(build, target=TARGET).at(KEY, jnp.ones((17, 29))).jaxpr)

    assert lowered(None) == lowered(10)


# --- plans ------------------------------------------------------------------------------------------------


def _profiled(target, operation, count, grain=None):
    graph = cl.Graph(target)
    key = graph.add_variable("key", (2,), np.uint32)
    operands = [graph.add_variable("x", (count,))] if operation == "dropout" else [(count,)]
    getattr(cl.ops, operation)(graph, *operands, key=key, grain=grain)
    return cl.Engine(graph).profile().total_cycles


@pytest.mark.parametrize("target", [cl.IPU("mk2"), TARGET], ids=["mk2", "small"])
@few("operation", ["random_bits", "uniform", "normal", "dropout"], quick=["normal"])
def test_the_profile_agrees_with_the_plan(operation, target, recwarn):
    count = 100_000 if target is not TARGET else 3001
    dtype = jnp.uint32 if operation == "random_bits" else jnp.float32
    for grain in (None, 50):
        plan = cl.ops.plan_draw(target, operation, count, dtype=dtype, grain=grain)
        assert _profiled(target, operation, count, grain) == pytest.approx(plan.total_cycles, rel=0.1)
    assert not recwarn.list


@pytest.mark.parametrize("count", [1, 5, 97, 1000])
def test_no_other_plan_is_cheaper(count):
    plan = cl.ops.plan_draw(TARGET, "uniform", count)
    every = [_profiled(TARGET, "uniform", count, grain) for grain in sorted({1, 2, 7, 20, 125, count})]
    assert plan.total_cycles <= 1.05 * min(every)


def test_a_plan_in_print():
    plan = cl.ops.plan_draw(TARGET, "uniform", 1000)
    assert str(plan).startswith("plan of draw_uniform of elements 1,000 kept, ")
    assert "elements 1,000 in 8 x 125" in str(plan)
    assert plan is cl.ops.plan_draw(TARGET, "uniform", 1000)


def test_codelets_are_pickled():
    import pickle

    graph = cl.Graph(TARGET)
    key = graph.add_variable("key", (2,), np.uint32)
    cl.ops.uniform(graph, (10,), key=key)
    assert pickle.loads(pickle.dumps(graph)).num_vertices == graph.num_vertices
    assert draw_uniform.shared.name == draw_uniform.worker.name == "draw_uniform"


# --- mistakes ---------------------------------------------------------------------------------------------

MISTAKES = {
    "is not a key": lambda graph, key, x: cl.ops.uniform(graph, (3,), key=x),
    "is invalid or too large": lambda graph, key, x: cl.ops.uniform(graph, (3, -1), key=key),
    "not of floating point": lambda graph, key, x: cl.ops.uniform(graph, (3,), key=key, dtype=jnp.int32),
    "is no dtype": lambda graph, key, x: cl.ops.normal(graph, (3,), key=key, dtype="reals"),
    "not of unsigned": lambda graph, key, x: cl.ops.random_bits(graph, (3,), key=key, dtype=jnp.int32),
    "does not broadcast": lambda graph, key, x: cl.ops.uniform(graph, (3,), key=key, minval=x),
    "p of ops.bernoulli is no number": lambda graph, key, x: cl.ops.bernoulli(graph, 1.5, key=key),
    "mode of": lambda graph, key, x: cl.ops.bernoulli(graph, 0.5, (3,), key=key, mode="lower"),
    "rate of ops.dropout": lambda graph, key, x: cl.ops.dropout(graph, x, -0.1, key=key),
    "numbers that are not of floating": lambda graph, key, x: cl.ops.dropout(graph, key, 0.1, key=key),
    "grain of": lambda graph, key, x: cl.ops.uniform(graph, (3,), key=key, grain=0),
    "data of ops.fold_in": lambda graph, key, x: cl.ops.fold_in(graph, key, x),
    "no operation that draws": lambda graph, key, x: cl.ops.plan_draw(TARGET, "cauchy", 3),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_mistakes(told):
    graph = cl.Graph(TARGET)
    key, x = graph.add_variable("key", (2,), np.uint32), graph.add_variable("x", (4, 2))
    with pytest.raises(OperationError, match=told) as caught:
        MISTAKES[told](graph, key, x)
    assert caught.value.line is not None
    assert not graph.num_vertices


@pytest.mark.parametrize("key", [jax.random.key(7), jax.random.PRNGKey(7), np.array([0, 7], np.uint32)])
def test_keys_that_are_known(key):
    def build(graph, x):
        ops = cl.ops
        return ops.uniform(graph, (5,), key=key), ops.dropout(graph, x, key=key), ops.fold_in(graph, key, 3)

    uniform, dropped, folded = cl.lower(build, target=TARGET)(jnp.ones(9))
    own = jax.random.key(7)
    np.testing.assert_array_equal(uniform, jax.random.uniform(own, (5,)))
    np.testing.assert_array_equal(dropped, 2 * jax.random.bernoulli(own, 0.5, (9,)))
    np.testing.assert_array_equal(folded, jax.random.key_data(jax.random.fold_in(own, 3)))


def test_typed_keys_are_constants_of_their_data():
    keys = jax.random.split(jax.random.key(3), 4)
    held = cl.Graph(TARGET).add_constant("keys", keys)
    assert (held.shape, held.dtype) == ((4, 2), np.uint32)
    with pytest.raises(OperationError, match="not a key"):
        cl.ops.uniform(cl.Graph(TARGET), key=jax.random.key(0, impl="rbg"))


def test_no_tensor():
    with pytest.raises(FieldTypeError, match="something else than a tensor for 'key'"):
        cl.ops.uniform(cl.Graph(TARGET), (3,), key=3)  # type: ignore[arg-type]
