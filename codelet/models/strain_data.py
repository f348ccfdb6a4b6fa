"""Stretches of one detector's strain: coloured noise, with or without a chirp in it, and whitened.

In comes a key; out come time series and labels. Noise is Gaussian and stationary, coloured as the design of Advanced
LIGO has it. A stretch is taken as periodic, noise and chirp alike, so that whitening is exact at its ends too. Real
data are cut from longer ones, and lose their ends to the whitening filter.

With the sampling rate and the length of a stretch, a transform over the stretch and a series are related by
`series = rate * irfft(transform)`. Below the lowest frequency nothing is kept.

Source of the noise: Sathyaprakash and Schutz, "Physics, Astrophysics and Cosmology with Gravitational Waves", Living
Reviews in Relativity 12 (2009), table 1, "Advanced LIGO".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from codelet.models.chirps import chirp_spectrum


@dataclass(frozen=True)
class Stretch:
    """How strain is sampled and which binaries may be in it.

    Every chirp that may be in it fits: from the lowest frequency on, the longest lasts 1.3 seconds, and it ends
    below half the sampling rate.

    Attributes:
        samples: how many, even.
        rate: samples a second.
        lowest: the lowest frequency that is kept, in Hz.
        masses: the lightest and the heaviest mass of a body, in solar masses.
        merger: the earliest and the latest time of the merger, in seconds.
    """

    samples: int = 1024
    rate: int = 512
    lowest: float = 35.0
    masses: tuple[float, float] = (10.0, 30.0)
    merger: tuple[float, float] = (1.6, 1.9)

    @property
    def frequencies(self) -> np.ndarray:
        """Of the transform, in Hz, without those that are zero: neither below the lowest nor at half the rate."""
        return np.arange(self.first, self.samples // 2, dtype=np.float32) * (self.rate / self.samples)

    @property
    def first(self) -> int:
        """The number of the first frequency that is kept."""
        return math.ceil(self.lowest * self.samples / self.rate)

    def series(self, transform: jax.Array) -> jax.Array:
        """The series, of shape (..., samples), of a transform over `frequencies`, in its unit times Hz."""
        zeros = [(0, 0)] * (transform.ndim - 1)
        return self.rate * jnp.fft.irfft(jnp.pad(transform, [*zeros, (self.first, 1)]), self.samples)

    def transform(self, series: jax.Array) -> jax.Array:
        """The transform over `frequencies` of a series of shape (..., samples)."""
        return jnp.fft.rfft(series)[..., self.first : -1] / self.rate


STRETCH = Stretch()


def amplitude_density(f: ArrayLike) -> jax.Array:
    """The square root of the noise's one-sided power spectral density, in 1/sqrt(Hz), from 20 Hz up.

    The root, as the density itself, about 1e-47, is no number of float32.

    Args:
        f: frequencies, in Hz.

    >>> f"{amplitude_density(215):.3g}"
    '1.82e-24'
    """
    x = jnp.asarray(f) / 215
    hundredfold = x**-4.14 - 5 * x**-2 + 111 * (1 - x**2 + x**4 / 2) / (1 + x**2 / 2)
    return 10**-24.5 * jnp.sqrt(hundredfold)


def noise(key: jax.Array, shape: tuple[int, ...] = (), stretch: Stretch = STRETCH) -> jax.Array:
    """Strain of noise alone, of shape (*shape, samples).

    Args:
        key: a JAX random key.
        shape: how many stretches.
        stretch: how it is sampled.
    """
    seconds = stretch.samples / stretch.rate
    parts = jax.random.normal(key, (2, *shape, len(stretch.frequencies)))
    scale = amplitude_density(stretch.frequencies) * math.sqrt(seconds / 4)
    return stretch.series(scale * jax.lax.complex(parts[0], parts[1]))


def whiten(strain: jax.Array, stretch: Stretch = STRETCH) -> jax.Array:
    """The strain with each frequency divided by the noise's amplitude: noise gets variance one at every frequency.

    The sum of the squares of a whitened chirp is its signal-to-noise ratio squared, that of the best filter.

    Args:
        strain: of shape (..., samples).
        stretch: how it is sampled.
    """
    return stretch.series(stretch.transform(strain) / _whitening(stretch))


def _whitening(stretch: Stretch) -> jax.Array:
    return amplitude_density(stretch.frequencies) * math.sqrt(stretch.rate / 2)


class Binary(NamedTuple):
    """The parameters of a chirp, each an array of one shape.

    Attributes:
        m1, m2: the masses, in solar masses.
        time: of the merger, in seconds from the stretch's start.
        angle: the phase at the merger, in radians.
    """

    m1: jax.Array
    m2: jax.Array
    time: jax.Array
    angle: jax.Array


def draw_binaries(key: jax.Array, shape: tuple[int, ...] = (), stretch: Stretch = STRETCH) -> Binary:
    """Binaries with masses, times and phases drawn evenly from the range of the stretch."""
    keys = jax.random.split(key, 4)
    ranges = (stretch.masses, stretch.masses, stretch.merger, (0, 2 * math.pi))
    drawn = [jax.random.uniform(k, shape, minval=low, maxval=high) for k, (low, high) in zip(keys, ranges, strict=True)]
    return Binary(*drawn)


def chirp(binary: Binary, ratio: jax.Array | float, stretch: Stretch = STRETCH) -> jax.Array:
    """The strain of a binary at the distance where its signal-to-noise ratio is as given, of shape (samples,).

    Args:
        binary: one of them.
        ratio: of the best filter in this noise.
        stretch: how it is sampled.
    """
    m1, m2, time, angle = binary
    transform = chirp_spectrum(jnp.asarray(stretch.frequencies), m1, m2, time=time, angle=angle)
    nearby = stretch.series(transform)
    return nearby * (ratio / jnp.linalg.norm(whiten(nearby, stretch)))


def draw_examples(
    key: jax.Array, number: int, ratios: tuple[float, float], stretch: Stretch = STRETCH
) -> tuple[jax.Array, jax.Array]:
    """Whitened stretches, and whether there is a chirp in them: in about half of them there is.

    Args:
        key: a JAX random key.
        number: how many.
        ratios: the least and the greatest signal-to-noise ratio, drawn evenly between.
        stretch: how they are sampled.

    Returns:
        Series of shape (number, samples), and labels of shape (number,): 1 with a chirp, 0 without.
    """
    for_noise, for_binaries, for_ratios, for_labels = jax.random.split(key, 4)
    labels = jax.random.bernoulli(for_labels, shape=(number,)).astype(jnp.int32)
    loud = jax.random.uniform(for_ratios, (number,), minval=ratios[0], maxval=ratios[1])
    chirps = jax.vmap(lambda b, r: chirp(b, r, stretch))(draw_binaries(for_binaries, (number,), stretch), loud)
    strain = noise(for_noise, (number,), stretch) + labels[:, None] * chirps
    return whiten(strain, stretch), labels
