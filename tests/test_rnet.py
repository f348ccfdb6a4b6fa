"""The trained face network on real pictures: what its weights are good for shows that they were read right."""

import importlib.metadata

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.models.rnet import RNet, as_inputs, from_keras, load_rnet, read_weights


@pytest.fixture(scope="module")
def pictures():
    """200 pictures, the first hundred of them faces."""
    from skimage.data import lfw_subset

    return as_inputs(lfw_subset())


@pytest.fixture(scope="module")
def outputs(pictures):
    """Boxes and probabilities."""
    assert (pictures.shape, pictures.dtype) == ((200, 3, 24, 24), np.float32)
    assert -127.5 / 128 <= pictures.min() < pictures.max() <= 127.5 / 128
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(load_rnet()))(pictures))


def test_faces_are_told_from_the_rest(outputs):
    _, probabilities = outputs
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    right = (probabilities[:, 1] > 0.5) == (np.arange(200) < 100)
    assert right.sum() >= 199  # all 200 when it was written
    # ... and clearly: 0.98 was the least of a face, 0.15 the most of anything else.
    assert np.median(probabilities[:100, 1]) > 0.99
    assert np.median(probabilities[100:, 1]) < 0.01


@pytest.mark.slow
def test_traced_network_tells_faces_from_the_rest(pictures, outputs):
    traced = cl.trace(jax.vmap(load_rnet()), pictures)
    found = jax.tree.map(np.asarray, traced(pictures))
    for ours, plain in zip(found, outputs, strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)
    assert ((found[1][:, 1] > 0.5) == (np.arange(200) < 100)).sum() >= 199


def test_boxes_of_faces_stay_near_the_picture(outputs):
    boxes, _ = outputs
    assert np.abs(np.median(boxes[:100], 0)).max() < 0.2  # in sides of the picture, which the face fills


def test_trained_network_is_one_as_drawn():
    trained, drawn = jax.eval_shape(load_rnet_arrays), jax.eval_shape(drawn_arrays)
    assert [leaf.shape for leaf in trained] == [leaf.shape for leaf in drawn]
    assert sum(leaf.size for leaf in trained) == 100_178
    # The dense layer's columns are the inputs by channel, height and width; Keras has them by width, height, channel.
    rows = read_weights()[9]
    np.testing.assert_array_equal(
        load_rnet().fc4.weight.reshape(128, 64, 3, 3)[:, 5, 1, 2], rows.reshape(3, 3, 64, 128)[2, 1, 5]
    )


def load_rnet_arrays():
    return [leaf for leaf in jax.tree.leaves(from_keras(read_weights())) if isinstance(leaf, jax.Array)]


def drawn_arrays():
    return [leaf for leaf in jax.tree.leaves(RNet(key=jax.random.key(0))) if isinstance(leaf, jax.Array)]


def test_package_that_is_missing(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(cl.MissingExtraError, match=r"without mtcnn[\s\S]*pip install 'codelet-graphs\[faces\]'"):
        load_rnet()


def test_scaling():
    grey = as_inputs(np.full((1, 30, 30), 0.5))
    np.testing.assert_allclose(grey, jnp.zeros((1, 3, 24, 24)), atol=1e-6)
