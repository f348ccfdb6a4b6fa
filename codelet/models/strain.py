"""A convolutional network over time series of strain: does a binary merge in them?

In comes the whitened strain of one detector; out come the logits of "noise" and "chirp". Three stages of a
convolution in one dimension, maxima over four places and a rectifier, then two dense layers.

Source: George and Huerta, "Deep neural networks to enable real-time multimessenger astrophysics", Phys. Rev. D 97,
044039 (2018), the smaller of its classifiers (figure 4), for series as long as are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax

from codelet.errors import CodeletError

SAMPLES = 1024
CHANNELS = (16, 32, 64)
SIZES = (16, 8, 8)
DILATIONS = (1, 4, 4)
POOL = 4


def _least_samples() -> int:
    """The shortest series of which the last maxima leave a place, from the last stage to the first: 639.

    A place of maxima needs `POOL` of a convolution, which loses `dilation * (size - 1)` of its input.
    """
    needed = 1
    for size, dilation in zip(reversed(SIZES), reversed(DILATIONS), strict=True):
        needed = POOL * needed + dilation * (size - 1)
    return needed


LEAST_SAMPLES = _least_samples()


class SeriesError(CodeletError, ValueError):
    """Series of which a network would leave nothing."""


class StrainNet(eqx.Module):
    """The network, for one series; `jax.vmap` takes it to a batch.

    Attributes:
        convs: convolutions of 16, 8 and 8 samples, the second and third over every fourth sample, not padded.
        pool: maxima of four samples.
        hidden, dense: to 64 values, and to the two classes.
    """

    convs: list[eqx.nn.Conv1d]
    pool: eqx.nn.MaxPool1d
    hidden: eqx.nn.Linear
    dense: eqx.nn.Linear

    def __init__(self, samples: int = SAMPLES, *, channels: Sequence[int] = CHANNELS, hidden: int = 64, key: jax.Array):
        """A network drawn at random, as Equinox's layers are.

        Args:
            samples: how long the series are; at least `LEAST_SAMPLES`, 639.
            channels: how many channels each convolution makes.
            hidden: how many values there are between the dense layers.
            key: a JAX random key.

        Raises:
            SeriesError: shorter series.

        >>> network = eqx.filter_eval_shape(StrainNet, 8192, key=jax.random.key(0))
        >>> network.hidden.weight.shape
        (64, 7616)
        """
        if samples < LEAST_SAMPLES:
            raise SeriesError(
                "the series are too short for the network, whose maxima would leave nothing of them",
                given=f"{samples} samples",
                expected=f"at least {LEAST_SAMPLES}",
                fix=f"StrainNet({LEAST_SAMPLES}, key=key), or a longer stretch of strain",
            )
        keys = jax.random.split(key, len(channels) + 2)
        self.convs, inputs, left = [], 1, samples
        for outputs, size, dilation, each in zip(channels, SIZES, DILATIONS, keys[2:], strict=True):
            self.convs.append(eqx.nn.Conv1d(inputs, outputs, size, dilation=dilation, key=each))
            inputs, left = outputs, (left - dilation * (size - 1)) // POOL
        self.pool = eqx.nn.MaxPool1d(POOL, POOL)
        self.hidden = eqx.nn.Linear(inputs * left, hidden, key=keys[0])
        self.dense = eqx.nn.Linear(hidden, 2, key=keys[1])

    def __call__(self, x: jax.Array) -> jax.Array:
        """The logits, of shape (2,).

        Args:
            x: whitened strain of shape (samples,), of unit variance in noise.
        """
        x = x[None]
        for conv in self.convs:
            x = jax.nn.relu(self.pool(conv(x)))
        return self.dense(jax.nn.relu(self.hidden(x.reshape(-1))))
