"""The networks in plain JAX: their sizes, their steps of training, and what of a trace is one function."""

import functools
import math
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from codelet.models import strain
from codelet.models.networks import NETWORKS, step_arguments
from codelet.models.resnet import Stem
from codelet.models.training import apply, cross_entropy, start, train_step
from tests.examples import few

KEY = jax.random.key(0)
PARAMETERS = {
    "mnist": 784 * 128 + 128 + 128 * 10 + 10,
    "alexnet": 61_108_584,  # torchvision's 61,100,840, and 64 x 11 x 11 more for the fourth channel
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "strain": 49_714,
}
NORMS = {"resnet18": 20, "resnet34": 36, "resnet50": 53}


def size(tree) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@functools.cache
def shapes(name):
    return eqx.filter_eval_shape(step_arguments, name, batch=2, key=KEY)


@functools.cache
def traced(name):
    """The network's trace and what it returns, and those of a step; no array is made."""
    training, inputs, labels = shapes(name)
    forward = jax.make_jaxpr(lambda t, x: apply(t.network, t.state, x), return_shape=True)(training, inputs)
    return forward, jax.make_jaxpr(train_step, return_shape=True)(training, inputs, labels)


@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_as_published(name):
    training, inputs, _ = shapes(name)
    assert size(training.parameters) == size(training.velocity) == PARAMETERS[name]
    assert inputs.shape == (2, *NETWORKS[name].shape)
    # A mean and a variance for every channel that is normalised, and how many batches there were.
    norms = [x for x in jax.tree.leaves(training.parameters, is_leaf=is_norm) if is_norm(x)]
    assert len(norms) == NORMS.get(name, 0)
    assert size(training.state) == sum(2 * norm.input_size + 1 for norm in norms)


def is_norm(leaf) -> bool:
    return isinstance(leaf, eqx.nn.BatchNorm)


@few("name", [name for name in NETWORKS if name != "resnet34"], quick=["mnist", "alexnet", "resnet18", "strain"])
def test_step_keeps_every_shape(name):
    training, _, _ = shapes(name)
    (_, (logits, _)), (_, (loss, after)) = traced(name)
    assert logits.shape == (2, NETWORKS[name].classes)
    assert (loss.shape, loss.dtype) == ((), jnp.float32)
    assert jax.tree.structure(after) == jax.tree.structure(training)
    kinds = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (training, after)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("alexnet", [55, 27, 13, 13, 13]),
        # Of a bottleneck that changes shapes: its shortcut, 1 x 1, 3 x 3 with the stride, 1 x 1; then the others.
        ("resnet50", [112, *[56] * 10, 28, 56, *[28] * 11, 14, 28, *[14] * 17, 7, 14, *[7] * 8]),
        ("strain", [1009, 224, 28]),
    ],
)  # fmt: skip
def test_fields_of_convolutions(name, sizes):
    def convolutions(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "conv_general_dilated":
                yield equation.outvars[0].aval.shape[-1]
            for inner in jaxprs_in_params(equation.params):
                yield from convolutions(inner)

    (forward, _), _ = traced(name)
    assert list(convolutions(forward.jaxpr)) == sizes


def test_the_shortest_series_of_strain_leave_one_place():
    assert strain.LEAST_SAMPLES == 639
    network = eqx.filter_eval_shape(strain.StrainNet, 639, key=KEY)
    assert network.hidden.in_features == 64
    assert eqx.filter_eval_shape(network, jax.ShapeDtypeStruct((639,), jnp.float32)).shape == (2,)
    for samples in (638, 320, 0):  # of 638 nothing would be left, and of 320 less than that
        message = rf"(?s)too short for the network.*given: +{samples} samples.*expected: +at least 639.*fix:.*at: "
        with pytest.raises(strain.SeriesError, match=message):
            strain.StrainNet(samples, key=KEY)


@pytest.mark.parametrize(
    ("name", "stages"),
    # Of every stage the block that changes the shape, and the others; none does in the first stage of resnet18.
    [("resnet18", [2, 1, 1, 1, 1, 1, 1]), ("resnet50", [1, 2, 1, 3, 1, 5, 1, 2])],
)
def test_blocks_of_one_shape_are_one_function(name, stages):
    def calls(traced):
        """How often each jitted function named `block` is called: by its trace, which is one object."""
        called = [e.params["jaxpr"] for e in traced.jaxpr.eqns if e.params.get("name") == "block"]
        return sorted(Counter(map(id, called)).values())

    (forward, _), (step, _) = traced(name)
    stem = [1]
    assert calls(forward) == sorted(stem + stages)
    assert calls(step) == sorted(2 * (stem + stages))  # forward, and backward


def test_step_is_momentum_descent():
    layer = eqx.nn.Linear(3, 2, key=KEY)
    x, labels = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 1, 1, 1])
    w, b, velocity = np.asarray(layer.weight), np.asarray(layer.bias), (0, 0)
    step, training = jax.jit(lambda *a: train_step(*a, rate=0.5, momentum=0.75)), start(layer)
    for _ in range(3):
        loss, training = step(training, x, labels)
        exponentials = np.exp(x @ w.T + b)
        probabilities = exponentials / exponentials.sum(1, keepdims=True)
        np.testing.assert_allclose(loss, -np.log(probabilities[range(4), labels]).mean(), rtol=1e-5)
        off = (probabilities - np.eye(2)[labels]) / 4
        velocity = [0.75 * v + g for v, g in zip(velocity, (off.T @ x, off.sum(0)), strict=True)]
        w, b = w - 0.5 * velocity[0], b - 0.5 * velocity[1]
        np.testing.assert_allclose(training.network.weight, w, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(training.network.bias, b, rtol=1e-4, atol=1e-6)


def test_state_holds_running_statistics():
    stem, state = eqx.nn.make_with_state(Stem)(2, key=KEY)
    images = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)

    @jax.jit
    def forward(images):
        return apply(stem, state, images), jax.vmap(stem.first.conv)(images)

    (outputs, once), channels = forward(images)
    assert outputs.shape == (2, 2, 2, 2)
    # From zero and one, a tenth of the way.
    norm = stem.first.norm
    mean, variance = once.get(norm.batch_state_index)
    np.testing.assert_allclose(mean, 0.1 * np.mean(channels, (0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * np.var(channels, (0, 2, 3)), rtol=1e-4)
    assert int(once.get(norm.batch_counter)) == 1
    # In inference the statistics are read and kept.
    _, kept = jax.eval_shape(lambda x: apply(eqx.nn.inference_mode(stem), once, x), images)
    assert jax.tree.structure(kept) == jax.tree.structure(once)
    # Drawn by the key.
    again, other = (Stem(2, key=jax.random.key(seed)).first.conv.weight for seed in (0, 1))
    np.testing.assert_array_equal(again, stem.first.conv.weight)
    assert (other != again).all()


def test_cross_entropy():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])) + jnp.array([[3.0], [-7.0]])
    np.testing.assert_allclose(cross_entropy(logits, jnp.array([0, 2])), -np.log([0.5, 0.8]).mean(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_fall(name):
    training, inputs, labels = eqx.filter_jit(step_arguments)(name, key=KEY)
    step, losses = jax.jit(lambda *a: train_step(*a, rate=NETWORKS[name].rate)), []
    for _ in range(5):
        loss, training = step(training, inputs, labels)
        losses.append(float(loss))
    assert (np.diff(losses) < 0).all()
