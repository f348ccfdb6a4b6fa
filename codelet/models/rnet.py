"""R-Net, the second network of MTCNN: is a picture of 24 x 24 pixels a face? With its trained weights.

In comes a picture of three channels; out come the offsets of the face's box and the probabilities of the two
classes. The weights are the ones that the package `mtcnn` (MIT) carries, read from its installed data files:
the package itself, which would import TensorFlow, is never imported.

Source: Zhang, Zhang, Li and Qiao, "Joint Face Detection and Alignment using Multitask Cascaded Convolutional
Networks" (2016), figure 2.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import io
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import MissingExtraError

SIDE = 24
"""Pixels on a side of the pictures that the network takes."""


class RNet(eqx.Module):
    """Three convolutions with parametric rectifiers, a dense layer, and two heads, for one picture.

    Attributes:
        conv1, conv2, conv3: 28 channels of 3 x 3, 48 of 3 x 3, 64 of 2 x 2, none of them padded.
        prelu1, prelu2, prelu3: their rectifiers, one slope for each channel.
        pool1, pool2: maxima of 3 x 3 at every other place; the first is padded by one behind.
        fc4, prelu4: 576 values to 128, with a slope for each.
        box: 128 values to 4, the offsets of the box as fractions of its sides: left, top, right, bottom.
        face: 128 values to 2, the logits of "no face" and "face".
    """

    conv1: eqx.nn.Conv2d
    prelu1: eqx.nn.PReLU
    pool1: eqx.nn.MaxPool2d
    conv2: eqx.nn.Conv2d
    prelu2: eqx.nn.PReLU
    pool2: eqx.nn.MaxPool2d
    conv3: eqx.nn.Conv2d
    prelu3: eqx.nn.PReLU
    fc4: eqx.nn.Linear
    prelu4: eqx.nn.PReLU
    box: eqx.nn.Linear
    face: eqx.nn.Linear

    def __init__(self, *, key: jax.Array):
        """A network drawn at random; `load_rnet` makes the trained one.

        Args:
            key: a JAX random key.
        """
        keys = jax.random.split(key, 6)
        self.conv1 = eqx.nn.Conv2d(3, 28, 3, key=keys[0])
        self.prelu1 = eqx.nn.PReLU(jnp.full((28, 1, 1), 0.25))
        self.pool1 = eqx.nn.MaxPool2d(3, 2, padding=((0, 1), (0, 1)))
        self.conv2 = eqx.nn.Conv2d(28, 48, 3, key=keys[1])
        self.prelu2 = eqx.nn.PReLU(jnp.full((48, 1, 1), 0.25))
        self.pool2 = eqx.nn.MaxPool2d(3, 2)
        self.conv3 = eqx.nn.Conv2d(48, 64, 2, key=keys[2])
        self.prelu3 = eqx.nn.PReLU(jnp.full((64, 1, 1), 0.25))
        self.fc4 = eqx.nn.Linear(576, 128, key=keys[3])
        self.prelu4 = eqx.nn.PReLU(jnp.full((128,), 0.25))
        self.box = eqx.nn.Linear(128, 4, key=keys[4])
        self.face = eqx.nn.Linear(128, 2, key=keys[5])

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Offsets of the box, of shape (4,), and probabilities of "no face" and "face", of shape (2,).

        Args:
            x: a picture of shape (3, 24, 24), from about -1 to 1; see `as_inputs`.
        """
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu3(self.conv3(x))
        x = self.prelu4(self.fc4(x.reshape(-1)))
        return self.box(x), jax.nn.softmax(self.face(x))


def as_inputs(pictures: np.ndarray) -> np.ndarray:
    """The inputs of the network, for grey pictures of any size: resized, scaled, in three equal channels.

    Args:
        pictures: of shape (n, height, width), from 0 to 1.

    Returns:
        float32 of shape (n, 3, 24, 24): (255 v - 127.5) / 128 of each value v.

    >>> as_inputs(np.ones((5, 25, 25))).shape
    (5, 3, 24, 24)
    """
    n = len(pictures)
    small = jax.image.resize(jnp.asarray(pictures, jnp.float32), (n, SIDE, SIDE), "linear")
    scaled = (255 * np.asarray(small) - 127.5) / 128
    return np.broadcast_to(scaled[:, None], (n, 3, SIDE, SIDE)).astype(np.float32)


def read_weights() -> list[np.ndarray]:
    """The sixteen arrays of the package's file, layer by layer, as Keras orders axes: field first, outputs last.

    Raises:
        MissingExtraError: the package `mtcnn` is not installed.
    """
    try:
        package = importlib.metadata.distribution("mtcnn")
        joblib = importlib.import_module("joblib")  # a dependency of mtcnn, and the format of the file
        lz4 = importlib.import_module("lz4.frame")  # another, and how it is compressed
    except (importlib.metadata.PackageNotFoundError, ModuleNotFoundError) as missing:
        raise MissingExtraError(
            "R-Net's weights are read from a package that is not installed",
            given=f"a Python without {missing.name}",
            expected="the extra `faces`",
            fix="pip install 'codelet-graphs[faces]' (in a checkout: pip install -e '.[faces]')",
        ) from None
    # Decompressed here: the file object that joblib makes of a path fails when it is deleted, on Python 3.13.
    compressed = Path(str(package.locate_file("mtcnn/assets/weights/rnet.lz4"))).read_bytes()
    return joblib.load(io.BytesIO(lz4.decompress(compressed)))


def from_keras(weights: Sequence[np.ndarray]) -> RNet:
    """The network that has these weights.

    A kernel comes as (height, width, inputs, outputs) and a dense layer's matrix as (inputs, outputs). The first
    dense layer takes its 576 inputs by width, height and channel, the last fastest; here they are taken as they
    lie, by channel, height and width.

    Args:
        weights: as `read_weights` has them.
    """
    kernels, (fc4, fc4_bias, fc4_slopes, *heads) = weights[:9], weights[9:]
    values = []
    for kernel, bias, slopes in zip(kernels[0::3], kernels[1::3], kernels[2::3], strict=True):
        values += [kernel.transpose(3, 2, 0, 1), bias.reshape(-1, 1, 1), slopes.reshape(-1, 1, 1)]
    values += [fc4.reshape(3, 3, 64, 128).transpose(3, 2, 1, 0).reshape(128, 576), fc4_bias, fc4_slopes]
    values += [each.T for each in heads]
    # The shapes alone of one drawn at random: what is not an array is in it as well, and nothing is drawn.
    shapes, rest = eqx.partition(eqx.filter_eval_shape(RNet, key=jax.random.key(0)), _is_shape)
    structure = jax.tree.structure(shapes)
    return eqx.combine(jax.tree.unflatten(structure, map(jnp.asarray, values)), rest)


def _is_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def load_rnet() -> RNet:
    """The trained network.

    Raises:
        MissingExtraError: the package `mtcnn` is not installed.

    >>> box, probabilities = jax.eval_shape(load_rnet(), jnp.zeros((3, 24, 24)))
    >>> box.shape, probabilities.shape
    ((4,), (2,))
    """
    return from_keras(read_weights())
