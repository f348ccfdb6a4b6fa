"""AlexNet in one tower, for one picture: five convolutions, three maxima over windows, three dense layers.

In comes a picture of 224 x 224 pixels in four channels, the fourth of them zeros that make rows of even length;
out come the logits of a thousand classes. There is no normalisation across channels and no dropout, as in the
benchmarks of machines that take this network as a measure of time.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014), with the first
convolution's padding of three; the network is that of Krizhevsky, Sutskever and Hinton (2012).
"""

from __future__ import annotations

import equinox as eqx
import jax

SIDE = 224
CHANNELS = 4
CLASSES = 1000


class AlexNet(eqx.Module):
    """The network: 61,108,584 parameters, for one picture; `jax.vmap` takes it to a batch.

    Attributes:
        conv1: 64 channels of 11 x 11 at every fourth place, padded by 3: 55 x 55 places.
        conv2: 192 channels of 5 x 5, padded by 2: 27 x 27 places.
        conv3, conv4, conv5: 384, 256 and 256 channels of 3 x 3, padded by 1: 13 x 13 places.
        pool: maxima of 3 x 3 at every other place, after the first, second and fifth convolution.
        fc6, fc7, fc8: 9,216 values to 4,096, to 4,096, to the classes.
    """

    conv1: eqx.nn.Conv2d
    conv2: eqx.nn.Conv2d
    conv3: eqx.nn.Conv2d
    conv4: eqx.nn.Conv2d
    conv5: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    fc6: eqx.nn.Linear
    fc7: eqx.nn.Linear
    fc8: eqx.nn.Linear

    def __init__(self, *, classes: int = CLASSES, key: jax.Array):
        """A network drawn at random, as Equinox's layers are.

        Args:
            classes: how many logits it gives.
            key: a JAX random key.

        >>> network = eqx.filter_eval_shape(AlexNet, key=jax.random.key(0))
        >>> network.conv1.weight.shape, network.fc6.weight.shape
        ((64, 4, 11, 11), (4096, 9216))
        """
        keys = jax.random.split(key, 8)
        self.conv1 = eqx.nn.Conv2d(CHANNELS, 64, 11, 4, padding=3, key=keys[0])
        self.conv2 = eqx.nn.Conv2d(64, 192, 5, padding=2, key=keys[1])
        self.conv3 = eqx.nn.Conv2d(192, 384, 3, padding=1, key=keys[2])
        self.conv4 = eqx.nn.Conv2d(384, 256, 3, padding=1, key=keys[3])
        self.conv5 = eqx.nn.Conv2d(256, 256, 3, padding=1, key=keys[4])
        self.pool = eqx.nn.MaxPool2d(3, 2)
        self.fc6 = eqx.nn.Linear(256 * 6 * 6, 4096, key=keys[5])
        self.fc7 = eqx.nn.Linear(4096, 4096, key=keys[6])
        self.fc8 = eqx.nn.Linear(4096, classes, key=keys[7])

    def __call__(self, x: jax.Array) -> jax.Array:
        """The logits, of shape (classes,).

        Args:
            x: a picture of shape (4, 224, 224).
        """
        x = self.pool(jax.nn.relu(self.conv1(x)))
        x = self.pool(jax.nn.relu(self.conv2(x)))
        x = jax.nn.relu(self.conv3(x))
        x = jax.nn.relu(self.conv4(x))
        x = self.pool(jax.nn.relu(self.conv5(x)))
        x = jax.nn.relu(self.fc6(x.reshape(-1)))
        x = jax.nn.relu(self.fc7(x))
        return self.fc8(x)
