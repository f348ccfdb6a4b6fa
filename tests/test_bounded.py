"""Gradients of loops on conditions: for any bound and any number of turns, and that turns are what they cost."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from lowering.adjoint import checkpoints
from tests.examples import few


@cl.codelet
def push(x, w, *, scale):
    """A turn that reads what it does not write."""
    return {"x": jnp.sin(x) * w + scale * x[::-1]}


@cl.codelet
def less(left):
    return {"left": left - 1}


@cl.codelet
def is_left(left, *, until=False):
    return (left > 0) != until


def pushed(most, *, until=False, scale=0.3):
    """A loop that runs as often as an input says."""
    graph = cl.Graph()
    x, w = graph.add_variable("x", (5,), "float64"), graph.add_variable("w", (5,), "float64")
    left, goes_on = graph.add_variable("left", (), "int32"), graph.add_variable("goes on", (), "bool")
    graph.add_vertex("push", push, x=x, w=w, scale=scale)
    graph.add_vertex("less", less, left=left)
    graph.add_vertex("look", is_left, left=left, out=goes_on, until=until)
    turn, count, look = graph.compute_sets
    return graph, cl.RepeatWhile(look, goes_on, [turn, count], until=until, max_iterations=most)


def plain(x, w, turns, scale=0.3):
    return functools.reduce(lambda x, _: jnp.sin(x) * w + scale * x[::-1], range(turns), x)


def plain_slopes(x, w, turns):
    return jax.grad(lambda x, w: jnp.sum(plain(x, w, turns) ** 2), (0, 1))(x, w)


X, W = (np.random.default_rng(k).uniform(0.5, 1.5, 5) for k in range(2))


def by_lowered(most, **options):
    """From what the loop reads, and its turns, to the slopes by JAX's gradient of what is lowered."""
    graph, program = pushed(most, **options)
    run = cl.lower(graph, program, inputs=["x", "w", "left"], outputs=["x"])
    return jax.jit(jax.grad(lambda x, w, left: jnp.sum(run.flat((x, w, jnp.asarray(left, jnp.int32)))[0] ** 2), (0, 1)))


def by_gradient(most, **options):
    """The same by a backward pass of vertices."""
    graph, program = pushed(most, **options)
    x, w, cotangent = graph.variable("x"), graph.variable("w"), graph.add_variable("cotangent", (5,), "float64")
    found = cl.gradient(graph, of=x, wrt=[x, w], program=program, cotangent=cotangent)
    both = cl.lower(graph, found.forward, inputs=["x", "w", "left"], outputs=["x"])
    made = graph.add_variable("made", (5,), "float64")
    whole = cl.Sequence(found.forward, cl.Copy(x, made), found.backward)
    run = cl.lower(graph, whole, inputs=["x", "w", "left", "cotangent"], outputs=[found[x], found[w]])

    @jax.jit
    def slopes(x, w, left):
        own = x, w, jnp.asarray(left, jnp.int32)
        return run.flat((*own, 2 * both.flat(own)[0]))

    return slopes


@pytest.mark.parametrize("most", [1, 2, 3, 7, 12, 16])
@pytest.mark.parametrize("way", [by_lowered, by_gradient])
def test_slopes_for_any_bound_and_number_of_turns(monkeypatch, way, most):
    monkeypatch.setattr(checkpoints, "_LARGE", 0)
    with jax.enable_x64(True):
        slopes = way(most, until=most == 7)
        for turns in range(most + 1):
            for own, other in zip(slopes(X, W, turns), plain_slopes(X, W, turns), strict=True):
                np.testing.assert_allclose(own, other, rtol=1e-12)


@pytest.mark.parametrize("least", [2**18, 0])
def test_gradients_are_equal_where_the_number_of_turns_is_known(monkeypatch, least):
    monkeypatch.setattr(checkpoints, "_LARGE", least)
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error", cl.UndecidedWarning)
        graph, program = pushed(9)
        x, w, left = map(graph.variable, ("x", "w", "left"))
        counted = cl.Sequence(cl.Copy(5, left), program)
        cl.gradient(graph, of=x, wrt=[x, w], program=counted, cotangent=np.ones(5), check="equal")


@few("turns", [[3, 0, 9], [1, 1, 1], [12, 5, 4]], quick=["(3, 0, 9)"])
def test_a_batch_whose_elements_have_other_numbers_of_turns(turns):
    with jax.enable_x64(True):
        slopes = by_lowered(12)
        xs = np.random.default_rng(1).normal(size=(3, 5))
        many = xs[:, None]
        ways = {
            "all": (jax.vmap(slopes)(xs, xs + 1, np.array(turns)), lambda k: (xs[k], xs[k] + 1)),
            "one w": (jax.vmap(slopes, (0, None, 0))(xs, W, np.array(turns)), lambda k: (xs[k], W)),
            "one x": (jax.vmap(slopes, (None, None, 0))(X, W, np.array(turns)), lambda k: (X, W)),
            "twice": (jax.vmap(jax.vmap(slopes), (0, 0, None))(many, many + 1, np.array(turns[:1])), None),
        }
        for batch, given in ways.values():
            for k in range(3):
                n, (x, w) = (turns[k], given(k)) if given else (turns[0], (xs[k], xs[k] + 1))
                for made, other in zip(batch, plain_slopes(x, w, n), strict=True):
                    np.testing.assert_allclose(made[k].reshape(5), other, rtol=1e-12)


@pytest.mark.parametrize("most", [40, 4000])
def test_turns_run_twice_whatever_the_bound(most):
    ran = []

    @cl.codelet
    def counted(x):
        jax.debug.callback(lambda: ran.append(1))
        return {"x": x * 1.5}

    graph = cl.Graph()
    x, goes_on = graph.add_variable("x", ()), graph.add_variable("goes on", (), "bool")
    graph.add_vertex("turn", counted, x=x)
    graph.add_vertex("look", cl.codelet(lambda x: x < 100.0), x=x, out=goes_on)
    turn, look = graph.compute_sets
    run = cl.lower(graph, cl.RepeatWhile(look, goes_on, turn, max_iterations=most), inputs=["x"], outputs=["x"])
    slope = jax.jit(jax.grad(lambda x: run.flat([x])[0]))(1.0)
    jax.effects_barrier()
    turns = round(float(np.log(slope) / np.log(1.5)))
    assert turns == 12
    assert len(ran) == 2 * turns


@pytest.mark.parametrize("way", [by_lowered, by_gradient])
def test_memory_is_that_of_the_root_of_the_bound(way):
    with jax.enable_x64(True):
        held = [way(most).lower(X, W, 3).compile().memory_analysis().temp_size_in_bytes for most in (2**14, 2**18)]
    rows = 2**9 * (8 * (5 + 5) + 4)  # as many states, and as many turns, as the root of the bound
    assert held[1] - held[0] < 4 * rows, held


def test_a_loop_that_goes_on_says_the_bound_it_was_given(monkeypatch):
    monkeypatch.setattr(checkpoints, "_LARGE", 0)
    with jax.enable_x64(True):
        graph, program = pushed(11)
        x = graph.variable("x")
        found = cl.gradient(graph, of=x, wrt=[x], program=program, cotangent=np.ones(5))
        assert "max_iterations=3" in str(found.forward)  # stretches of as many turns
        values = {"x": X, "w": W, "left": 12}
        engine = cl.Engine(graph, found.forward)
        engine.write(values)
        with pytest.raises(cl.ProgramAbortedError, match="went on beyond its max_iterations=11"):
            engine.run()
        with pytest.raises(cl.ProgramAbortedError, match="went on beyond its max_iterations=11"):
            cl.interpret(graph, values=values, outputs=["left"], program=found.forward)
        assert cl.interpret(graph, values={**values, "left": 11}, outputs=["left"], program=found.forward)["left"] == 0


def test_products_with_a_hessian_in_forward_mode_over_reverse():
    with jax.enable_x64(True):
        slopes, along = by_lowered(9), W - X
        _, made = jax.jvp(lambda x: slopes(x, W, 5)[0], (X,), (along,))
        _, expected = jax.jvp(jax.grad(lambda x: jnp.sum(plain(x, W, 5) ** 2)), (X,), (along,))
        np.testing.assert_allclose(made, expected, rtol=1e-12)


def test_integers_and_conditions_on_what_is_differentiated():
    graph = cl.Graph()
    x, n, goes_on = (
        graph.add_variable("x", ()),
        graph.add_variable("n", (), "int32"),
        graph.add_variable("b", (), "bool"),
    )
    graph.add_vertex("turn", cl.codelet(lambda x, n: {"x": x * (n + 1.0), "n": n + 1}), x=x, n=n)
    graph.add_vertex("look", cl.codelet(lambda x: x < 100.0), x=x, out=goes_on)
    turn, look = graph.compute_sets
    run = cl.lower(graph, cl.RepeatWhile(look, goes_on, turn, max_iterations=99), inputs=["x", "n"], outputs=["x", "n"])
    value, slope = jax.jit(jax.value_and_grad(lambda x: run.flat([x, 1])[0]))(0.5)
    expected = lax.while_loop(lambda at: at[0] < 100.0, lambda at: (at[0] * (at[1] + 1.0), at[1] + 1), (0.5, 1))[0]
    np.testing.assert_allclose([value, slope], [expected, expected / 0.5], rtol=1e-6)
