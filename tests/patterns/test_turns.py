"""What loops keep for their gradients, and what they carry extended."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from benchmarks.loops import windows
from codelet.jaxprs.equations import bodies_of, scan_counts
from lowering.jaxprs.carry_extended import carry_extended
from lowering.jaxprs.recompute import recompute
from tests.at_once import at_once
from tests.examples import examples
from tests.patterns.turns import FIXED, ROWS, START, TURNS, WIDTH, add_up, scanned, turns_over_neighbours

# --- recompute --------------------------------------------------------------------------------------------------------


def _loop(function, dtype=np.float32, size=6, turns=5):
    """A function of each number and its neighbour on a ring, again and again: the lowered graph."""
    graph = cl.Graph()
    x = graph.add_variable("x", (size,), dtype)
    i = cl.grid(size)
    with graph.record() as step:
        y = graph.add_vertex("step", cl.codelet(function), a=x[i], b=x[(i + 1) % size])
    return cl.lower(graph, cl.Repeat(turns, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x])


def _body(run):
    """The names of the primitives in the body of the loop."""
    (scan,) = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    return [eqn.primitive.name for eqn in scan.params["jaxpr"].jaxpr.eqns]


def _kept(run):
    """The numbers that the gradient keeps for all turns, as many as the loop has of them."""
    jaxpr = jax.make_jaxpr(lambda x: jax.vjp(lambda x: run({"x": x})["x"], x)[1](x))(jnp.ones(6))
    forward = next(eqn for eqn in jaxpr.jaxpr.eqns if eqn.primitive.name == "scan")
    floats = [var.aval for var in forward.outvars if jnp.issubdtype(var.aval.dtype, jnp.floating)]
    return sum(aval.size for aval in floats) // 5  # some releases of JAX keep the turn's number too


@pytest.mark.slow
def test_what_is_computed_element_by_element_is_not_kept():
    run = _loop(lambda a, b: jnp.sin(a) * jnp.tanh(b) + jnp.exp(-a * a) / (2 + jnp.cos(b)))
    assert len(_body(run)) == 1  # a checkpoint
    assert _kept(run) <= 2 * 6
    x = np.linspace(-1, 1, 6).astype(np.float32)

    def by_hand(x):
        for _ in range(5):
            b = jnp.roll(x, -1)
            x = jnp.sin(x) * jnp.tanh(b) + jnp.exp(-x * x) / (2 + jnp.cos(b))
        return x

    weights = np.arange(6.0)
    losses = [lambda x: weights @ run({"x": x})["x"], lambda x: weights @ by_hand(x)]
    ours, expected = at_once(*(lambda x, f=f: (jax.grad(f)(x), jax.jacfwd(f)(x)) for f in losses))(x)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda a, b: a + 2 * b, np.float32),
        (lambda a, b: a * b, np.int32),
        (lambda a, b: jax.nn.relu(a * b), np.float32),
    ],
)
def test_loops_that_keep_nothing_or_call_stay_as_they_are(function, dtype):
    run = _loop(function, dtype)
    assert len(_body(run)) > 1
    values = {"x": np.arange(-2, 4).astype(dtype)}
    assert jax.jit(run)(values)["x"].shape == (6,)


# --- recompute, of scans ----------------------------------------------------------------------------------------------


def changed(function, *arguments):
    return recompute(jax.make_jaxpr(function)(*arguments))


def is_again(closed):
    """Whether any turn in it is computed again."""
    return any(
        eqn.primitive.name in ("remat2", "checkpoint") or any(is_again(body) for body in bodies_of(eqn))
        for eqn in closed.jaxpr.eqns
    )


def long(state, row, fixed):
    """Many equations, of which each would be kept."""
    for _ in range(6):
        state = jnp.sin(state * row) + jnp.cos(state) * fixed
    return state, state


def short(state, row, fixed):
    """One product of what is there."""
    return state + row * fixed, row * fixed


@pytest.mark.parametrize(("turn", "again"), [(long, True), (short, False)])
def test_a_turn_is_computed_again_where_that_keeps_less(turn, again):
    assert is_again(changed(scanned(turn), ROWS, START, FIXED)) is again


def shortest(state, row, fixed):
    """Of ways through one node more: what is chosen from is kept, and so what is sliced of it."""
    ways = lax.dynamic_slice(state, (0, row[0]), (WIDTH, 1)) + lax.dynamic_slice(state, (row[0], 0), (1, WIDTH))
    return jnp.minimum(state, ways) + fixed, None


def by_one(state, row, fixed):
    """What is sliced is kept, and not the state, of which nothing else is needed."""
    own = lax.dynamic_slice(state, (row[0], 0), (1, WIDTH))
    return state + jnp.sin(own) * jnp.cos(own), None


@pytest.mark.parametrize(("turn", "kept_of_a_turn"), [(shortest, WIDTH * WIDTH), (by_one, WIDTH)])
def test_slices_are_taken_again_of_what_is_kept_anyway(turn, kept_of_a_turn):
    places, start = np.arange(TURNS * WIDTH, dtype=np.int32).reshape(TURNS, WIDTH) % 4, np.cos(np.arange(25.0))
    start = start.astype(np.float32).reshape(WIDTH, WIDTH)
    made = changed(scanned(turn), places, start, FIXED)
    plain, again = scanned(turn), lambda *own: jax_core.jaxpr_as_fun(made)(*own)[:1]
    loss = lambda run: jax.grad(lambda own: jnp.sum(run(places, own, FIXED)[0] ** 2))  # noqa: E731
    np.testing.assert_allclose(*at_once(loss(plain), loss(again))(start), rtol=1e-6)
    forward = jax.make_jaxpr(lambda own: jax.tree.leaves(jax.vjp(lambda own: again(places, own, FIXED), own)[1]))(start)
    (scan,) = (eqn for eqn in forward.jaxpr.eqns if eqn.primitive.name == "scan")
    (_, carries) = scan_counts(scan)
    stacked = [var.aval for var in scan.outvars[carries:] if jnp.issubdtype(var.aval.dtype, jnp.floating)]
    assert sum(aval.size for aval in stacked) == TURNS * kept_of_a_turn


def test_a_mean_of_a_window_is_kept_as_well_as_what_it_is_added_to():
    assert not is_again(changed(windows, np.ones((40, WIDTH), np.float32)))


def test_a_turn_may_carry_a_key():
    def draws(key, x):
        return lax.scan(lambda key, x: (jax.random.fold_in(key, 1), jnp.sin(x) * jnp.cos(x)), key, x)[1]

    key = jax.random.key(0)
    closed = changed(draws, key, ROWS)
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(key, ROWS)[0], draws(key, ROWS))


# --- carry_extended ---------------------------------------------------------------------------------------------------


def carried_shapes(run):
    """The shapes that the loops of a lowered graph carry."""
    scans = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    counts = [scan_counts(eqn) for eqn in scans]
    carried = [eqn.invars[first : first + count] for eqn, (first, count) in zip(scans, counts, strict=True)]
    return [var.aval.shape for own in carried for var in own]


def agrees(made):
    """A loop does what `interpret` says, and its gradient is that of one that carries nothing extended."""
    graph, program, (x, y, w) = made
    random = np.random.default_rng(0)
    values = {"x": random.integers(0, 8, x.shape, np.int8), "w": random.normal(size=x.shape).astype(np.float32)}
    outputs = [x, y, w]
    expected = cl.interpret(graph, values=values, outputs=outputs, program=program)

    def lowered():
        return cl.lower(graph, program, inputs=[x, w], outputs=outputs)

    def both(run):
        loss = lambda weight: ((found := run({**values, "w": weight}))["w"].sum(), found)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, has_aux=True))(values["w"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowering.jaxprs.simplify.carry_extended", lambda closed: closed)
        (_, _), plain = both(lowered())
    run = lowered()
    (_, found), slope = both(run)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, plain, rtol=1e-5, atol=1e-5)
    assert str(carry_extended(run.jaxpr)) == str(run.jaxpr)


@pytest.mark.slow
@examples(3)
@given(turns_over_neighbours())
def test_loops_over_neighbours(made):
    agrees(made)


@pytest.mark.slow
@examples(150)
@given(turns_over_neighbours())
def test_more_loops_over_neighbours(made):
    agrees(made)


@cl.codelet
def divided(here, left, right):
    """What takes long."""
    return (left + right) // (here + 1)


def repeat(mode="wrap", codelet=add_up, dtype: type = np.int8, steps=3):
    """Turns that read what is left and right of twelve elements."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, 12, dtype) for name in "xy")
    i = cl.grid(12)
    padded = x.pad((1, 2), mode)
    with graph.record() as step:
        graph.add_vertex("step", codelet, here=x[i], left=padded[i], right=padded[i + 3], out=y[i])
    return cl.lower(graph, cl.Repeat(steps, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x])


@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect"])
def test_is_carried_extended(mode):
    run, x = repeat(mode), np.arange(12, dtype=np.int8)
    assert carried_shapes(run) == [(15,)]
    expected = x
    for _ in range(3):
        padded = np.pad(expected, (1, 2), mode)
        expected = expected + padded[:12] + padded[3:]
    np.testing.assert_array_equal(run({"x": x})["x"], expected)


def test_what_is_costly_has_a_gradient_or_runs_once_is_not():
    assert carried_shapes(repeat(codelet=divided)) == [(12,)]
    assert carried_shapes(repeat(dtype=np.float32)) == [(12,)]
    assert (15,) not in carried_shapes(repeat(steps=1))


def test_what_is_read_whole_is_not():
    summed = cl.codelet(lambda whole: jnp.cumsum(whole, dtype=np.int8))
    graph = cl.Graph()
    x, y, sums = (graph.add_variable(name, 12, np.int8) for name in ("x", "y", "sums"))
    i = cl.grid(12)
    with graph.record() as step:
        graph.add_vertex("step", add_up, here=x[i], left=x[(i - 1) % 12], right=x[(i + 1) % 12], out=y[i])
        graph.add_vertex("sum", summed, whole=x, out=sums)
    run = cl.lower(graph, cl.Repeat(3, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x, sums])
    assert set(carried_shapes(run)) == {(12,)}
