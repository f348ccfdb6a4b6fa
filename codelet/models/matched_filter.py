"""A matched filter: whitened strain against a bank of chirps, the best linear search there is in such noise.

In come whitened stretches; out comes, for each, the greatest signal-to-noise ratio over the bank and over the times at
which a merger may be. Phases need no further templates: a template and the same a quarter turn on are the real and the
imaginary part of one filter.

Source: Allen et al., "FINDCHIRP: an algorithm for detection of gravitational waves from inspiraling compact
binaries", Phys. Rev. D 85, 122006 (2012), section III.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from codelet.models.chirps import chirp_spectrum
from codelet.models.strain_data import STRETCH, Stretch, amplitude_density


def bank_masses(stretch: Stretch = STRETCH, *, steps: int = 20) -> np.ndarray:
    """The masses of a bank's binaries, of shape (templates, 2), the heavier first.

    The logarithms of the two masses lie on a square grid over the range of the stretch.

    Args:
        stretch: the range of masses.
        steps: how many values a mass takes.

    >>> len(bank_masses())
    210
    """
    masses = np.geomspace(*stretch.masses, steps)
    return np.array([(a, b) for a in masses for b in masses if a >= b], np.float32)


def templates(masses: np.ndarray | jax.Array, stretch: Stretch = STRETCH) -> jax.Array:
    """Whitened transforms of chirps that merge at time zero, each of norm one, of shape (templates, frequencies).

    Args:
        masses: in solar masses, of shape (templates, 2).
        stretch: how the strain is sampled.
    """
    f = jnp.asarray(stretch.frequencies)
    spectra = jax.vmap(lambda pair: chirp_spectrum(f, pair[0], pair[1]))(jnp.asarray(masses))
    white = spectra / (amplitude_density(f) * math.sqrt(stretch.rate / 2))
    return white / jnp.sqrt(
        jnp.sum(jnp.abs(white) ** 2, axis=-1, keepdims=True) * 2 * stretch.rate**2 / stretch.samples
    )


def filtered(series: jax.Array, bank: jax.Array, stretch: Stretch = STRETCH) -> jax.Array:
    """The complex signal-to-noise ratio at every time of merging, of shape (templates, samples).

    In noise its real and imaginary parts are normal with variance one, so that its size follows Rayleigh's law.
    Where the series is a template at some time and phase, its size there is the template's ratio.

    Args:
        series: whitened strain, of shape (samples,).
        bank: as `templates` makes it.
        stretch: how the strain is sampled.
    """
    product = stretch.transform(series) * jnp.conj(bank) * (2 * stretch.rate)
    ends = (stretch.first, stretch.samples - stretch.first - product.shape[-1])
    return jnp.fft.ifft(jnp.pad(product, ((0, 0), ends))) * stretch.rate


@jax.jit(static_argnums=2)
def loudest(series: jax.Array, bank: jax.Array, stretch: Stretch = STRETCH) -> jax.Array:
    """The greatest ratio over the bank and over the times of merging that the stretch allows, one for each series.

    Args:
        series: whitened strain, of shape (n, samples).
        bank: as `templates` makes it.
        stretch: how the strain is sampled.
    """
    early, late = (round(time * stretch.rate) for time in stretch.merger)

    def of_one(one):
        return jnp.max(jnp.abs(filtered(one, bank, stretch)[:, early : late + 1]))

    return jax.lax.map(of_one, series)
