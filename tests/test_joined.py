"""What was cut runs as what was cut: one or two equations, whatever lies over, with plain JAX's values and slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from benchmarks.blocks import num_equations
from benchmarks.coverage import NETWORKS, drawn, traced, verdicts
from benchmarks.join import CASES, input_gradient
from benchmarks.traced_steps import by_vertices, lowered_vertices
from tests.at_once import at_once, with_slopes
from tests.examples import few
from tests.ops_cases import array

SHAPES = {
    "matmul": [(37, 53), (53, 41)],
    "matmul/prime": [(131, 257), (257, 67)],
    "conv": [(2, 6, 13, 13), (10, 6, 3, 3)],
    "sum": [(20_011, 3)],
    "dot/symbols": [(70,), (9, 70)],
    "dot/loops": [(70,), (9, 70)],
}
"""Of the cases; the gradient by an image of a known shape is of that."""

MOST_EQUATIONS = 4


@cl.codelet
def bent(x):
    return jnp.tanh(x)


@pytest.mark.parametrize("name", CASES)
def test_few_equations(name):
    case = CASES[name]
    given = [jax.ShapeDtypeStruct(shape, np.float32) for shape in case.shapes]
    assert num_equations(jax.make_jaxpr(cl.lower(case.build))(*given)) <= MOST_EQUATIONS


@few("name", SHAPES, quick=["dot/symbols"])
def test_values_and_slopes(name):
    case, arrays = CASES[name], [array(shape, seed=k) for k, shape in enumerate(SHAPES[name])]
    run = cl.lower(case.build)
    for own, plain in zip(
        *map(jax.tree.leaves, at_once(with_slopes(run), with_slopes(case.plain))(*arrays)), strict=True
    ):
        np.testing.assert_allclose(own, plain, rtol=1e-3, atol=1e-3 * float(jnp.abs(plain).max()))
    assert num_equations(jax.make_jaxpr(run)(*arrays)) <= MOST_EQUATIONS


def test_what_is_joined_is_proved_equal():
    for name, shapes in SHAPES.items():
        arrays = [array(shape, seed=k) for k, shape in enumerate(shapes)]
        assert isinstance(cl.lower(CASES[name].build, check="equal").at(*arrays), cl.Lowered), name


def test_dilated_convolutions_meet_infinities_as_those_of_jax_do():
    """Vertices never multiply what is between elements, which is zero; one convolution may, and zero by inf is NaN."""
    build, plain = input_gradient((2, 3, 9, 9))
    w = array((4, 3, 3, 3), seed=0).at[1, 2, 0, 1].set(np.inf)
    cotangent = array((2, 4, 5, 5), seed=1)
    own, expected = (np.asarray(run(cotangent, w)) for run in (cl.lower(build), plain))
    assert not np.isfinite(expected).all()
    np.testing.assert_array_equal(np.isnan(own), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(own), np.isinf(expected))


@pytest.mark.slow
def test_what_becomes_of_compute_sets_is_counted():
    matmuls = [verdict for seed in range(4) for verdict, _ in verdicts(drawn("matmul", seed))]
    assert "joined" in matmuls
    assert "apart" not in matmuls
    turns = [verdict for verdict, _ in verdicts(traced(NETWORKS["lstm"]))]
    assert turns.count("joined") > 20
    assert set(turns) == {"joined", "of one family"}


def test_a_plan_says_why_families_that_are_alike_stay_apart():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (10, 10)), graph.add_variable("y", (10, 10))
    both = graph.add_compute_set("both")
    for rows, columns in ((slice(5), slice(5)), (slice(5, 10), slice(5)), (slice(5, 10), slice(5, 8))):
        graph.add_vertex(both, bent, x=x[rows, columns], out=y[rows, columns])
    text = str(cl.lower(graph, inputs=[x, y], outputs=[y]).plan)
    assert text.count("apart from those like it: a point is computed by no piece") == 2
    assert "made of 2 vertices" in text


@cl.codelet
def more_by_sum(x, y):
    return jnp.sum(x) + y


def test_vertices_that_read_nothing_of_an_empty_array():
    graph, i = cl.Graph(), cl.grid(2)
    x, y, z = graph.add_variable("x", (1, 0)), graph.add_variable("y", (7,)), graph.add_variable("z", (7,))
    step = graph.add_compute_set("step")
    for k in (0, 1, 2, 3, 6):
        graph.add_vertex(step, more_by_sum, x=x[0], y=y[k], out=z[k])
    graph.add_vertex(step, more_by_sum, x=x[0], y=y[i + 4], out=z[i + 4])
    values = {"x": np.zeros((1, 0), np.float32), "y": np.arange(7, dtype=np.float32)}
    made = cl.lower(graph, inputs=["x", "y"], outputs=["z"])(values)
    np.testing.assert_array_equal(made["z"], np.arange(7))
    found = cl.gradient(graph, of=z, wrt=[y], cotangent=np.arange(7.0))
    run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=["x", "y"], outputs=[found[y]])
    np.testing.assert_array_equal(run.flat([values["x"], values["y"]])[0], np.arange(7))


def test_a_loop_does_not_carry_what_a_joined_family_writes_all_of():
    """Blocks and the rest of them wrote a part of it each, and kept the others."""

    def function(x):
        return lax.fori_loop(0, 3, lambda _, own: jnp.cumsum(0.5 * own, 1) + own, x)

    x = array((31, 41))
    traced = cl.trace(function, x, target=cl.IPU(num_tiles=8))
    made = lowered_vertices(traced)
    (loop,) = (eqn for eqn in made.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan")
    assert [var.aval.shape for var in loop.outvars] == [(31, 41)]
    np.testing.assert_allclose(by_vertices(traced)(x), function(x), rtol=1e-5, atol=1e-5)
