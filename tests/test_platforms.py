"""Platforms: where each rule and kernel is meant to run, and that what is lowered for each means the same."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from benchmarks.ablation import RULES as ON_JAXPRS
from lowering import platforms
from lowering.fast import kernels
from lowering.jaxprs import slopes
from lowering.platforms import MEANT, PLATFORMS, Meant, lowering_for, platform_now
from tests.examples import examples
from tests.strategies import Case, cases
from tests.ways import assert_close, assert_same, interpreted, lowered, weighted

OF_SLOPES = {
    *("with_steady_winners", "with_slopes_added", "with_slices_together", "with_slopes_of_scans"),
}


def doubled():
    graph = cl.Graph()
    x, i = graph.add_variable("x", (3,)), cl.grid(3)
    y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    return graph, x, y


def test_every_rule_and_kernel_has_a_line_and_no_line_is_of_nothing():
    others = {"windows of one element", "updates by comparisons", "numbers of places"}
    assert set(MEANT) == {*kernels.RULES, *ON_JAXPRS, *OF_SLOPES, *others}
    assert all(hasattr(slopes, name) for name in OF_SLOPES)
    assert all(meant.why and meant.on and {*meant.on} <= {*PLATFORMS} for meant in MEANT.values())


def test_what_every_family_needs_is_meant_everywhere():
    """A family of which no rule takes another way runs under `vmap`, or in buckets."""
    assert all(MEANT[name].on == PLATFORMS for name in ("vmap", "buckets", "segments"))


def test_the_platform_is_that_of_the_default_device_or_the_one_that_is_given():
    assert platform_now() == jax.default_backend()
    with jax.default_device(jax.devices("cpu")[0]):
        assert platform_now() == "cpu"
    with lowering_for("gpu"), lowering_for(None):
        assert platform_now() == "gpu"


def test_it_is_part_of_what_a_lowered_graph_is_and_shows_in_its_plan():
    graph, x, y = doubled()
    runs = {name: cl.lower(graph, inputs=x, outputs=y, platform=name) for name in ("cpu", "gpu")}
    assert runs["cpu"] != runs["gpu"]
    assert runs["gpu"] == cl.lower(graph, inputs=x, outputs=y, platform="cuda")
    assert str(runs["gpu"].plan).startswith("platform  gpu\n")
    assert pickle.loads(pickle.dumps(runs["gpu"])).plan.platform == "gpu"


def test_a_builder_and_a_traced_function_lower_again_for_another_platform():
    layer = cl.lower(lambda graph, x: graph.add_vertex("d", cl.codelet(lambda x: 2 * x), x=x[cl.grid(3)]))
    traced = cl.trace(jnp.tanh, jnp.ones(3))
    for name in ("cpu", "gpu"):
        with lowering_for(name):
            assert layer.at(jnp.ones(3)).plan.platform == name
            assert traced.lowered.plan.platform == name
    assert cl.lower(traced, platform="tpu").plan.platform == "tpu"


def test_a_platform_that_there_is_not():
    graph, x, y = doubled()
    with pytest.raises(cl.ProgramError, match="platform that there is not") as raised:
        cl.lower(graph, inputs=x, outputs=y, platform="ipu")
    assert "'cpu', 'gpu', 'tpu'" in str(raised.value)


def test_a_kernel_that_is_not_meant_is_refused_and_says_why(monkeypatch):
    graph = cl.Graph()
    x, i = graph.add_variable("x", (8,)), cl.grid(6)
    y = graph.add_vertex("sum", cl.codelet(lambda w: w[0] + w[1] * w[2]), w=x[i : i + 3])
    name = "windows element by element"
    monkeypatch.setitem(platforms.MEANT, name, Meant(("cpu",), "a row"))
    plans = {own: str(cl.lower(graph, inputs=x, outputs=y, platform=own).plan) for own in ("cpu", "gpu")}
    assert "element by element" in plans["cpu"]
    assert f"not {name}: on a gpu it is not meant: a row" in plans["gpu"]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((2, 3, 8, 6), (2, 2)), ((1, 5, 7, 9), (3, 2)), ((1, 3, 6, 6), (1, 2)), ((2, 3, 7, 5), (1, 1))],
)
def test_a_convolution_of_single_elements_strides_by_itself_on_a_gpu(shape, strides):
    x, w = (np.random.default_rng(0).normal(size=own).astype(np.float32) for own in (shape, (4, shape[1])))
    plain = lambda x, w: jax.lax.conv_general_dilated(x, w[..., None, None], strides, "VALID")  # noqa: E731
    graph = cl.Graph()
    image, kernel = graph.add_variable("x", x.shape), graph.add_variable("w", w.shape)
    sizes = jax.eval_shape(plain, x, w).shape
    b, o, i, j = cl.grid(*sizes)
    held = {"x": x, "w": w}
    own = image[b, :, strides[0] * i, strides[1] * j]
    out = graph.add_vertex("conv", cl.codelet(lambda x, w: jnp.dot(x, w)), x=own, w=kernel[o, :])
    for name in ("cpu", "gpu"):
        run = cl.lower(graph, inputs=[image, kernel], outputs=out, platform=name)
        assert ("as a convolution" in str(run.plan)) == (name == "gpu" and min(strides) > 1)
        np.testing.assert_allclose(jax.jit(run)(held)["conv/out"], plain(x, w), rtol=1e-5, atol=1e-5)
        ours = jax.grad(lambda own: (run(own)["conv/out"] ** 2).sum())(held)
        assert_close(ours, jax.grad(lambda own: (plain(**own) ** 2).sum())(held), 1e-4)


@examples(5)
@given(cases(np.int32, max_iterations=2))
def test_what_is_lowered_for_a_gpu_means_the_same(case: Case):
    with lowering_for("gpu"):
        run = lowered(case)
    assert_same(jax.jit(run)(case.inputs), interpreted(case))


@examples(3)
@given(cases(np.float32, max_iterations=2, bounded=True))
def test_gradients_are_the_same_on_every_platform(case: Case):
    smooth, loss_of = weighted(case)
    slopes_on = {}
    for name in ("cpu", "gpu"):
        with lowering_for(name):
            slopes_on[name] = jax.jit(jax.grad(loss_of(lowered(case))))(smooth)
    assert_close(slopes_on["gpu"], slopes_on["cpu"], 1e-4)
