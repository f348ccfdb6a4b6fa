"""The strain of two black holes or stars that spiral into each other, by the post-Newtonian formula.

In come the masses, in solar masses, the merger's time and phase, and the distance; out comes the strain's Fourier
transform, of bodies that do not spin, to second post-Newtonian order in the phase and leading order in the
amplitude, by stationary phase. It ends at the last stable orbit: merger and ringdown are not in it.

Let M be the sum of the masses as a time, G M / c^3, and eta their product over the square of their sum. Orders are
counted in v = (pi M f)^(1/3), the speed of the orbit over that of light when the wave's frequency is f.

Sources: Blanchet, "Gravitational Radiation from Post-Newtonian Sources and Inspiralling Compact Binaries", Living
Reviews in Relativity 17 (2014), section 9.3, for the frequency's rate; Cutler and Flanagan, Phys. Rev. D 49, 2658
(1994), equations 3.4 and 3.6, for phase and amplitude; Poisson and Will, Phys. Rev. D 52, 848 (1995), equation 3.4,
for the phase's second order.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

SOLAR_MASS = 4.925491e-6
"""Seconds: G times the Sun's mass over the cube of the speed of light."""

MEGAPARSEC = 1.029271e14
"""Seconds that light takes for a million parsecs."""


def symmetric_ratio(m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """The product of two masses over the square of their sum: 1/4 of equal ones, less of others."""
    m1, m2 = jnp.asarray(m1), jnp.asarray(m2)
    return m1 * m2 / (m1 + m2) ** 2


def chirp_mass(m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """The mass that alone sets the rate of the frequency at leading order, in the masses' unit.

    >>> print(jnp.round(chirp_mass(1.4, 1.4), 4))
    1.2188
    """
    m1, m2 = jnp.asarray(m1), jnp.asarray(m2)
    return symmetric_ratio(m1, m2) ** 0.6 * (m1 + m2)


def last_frequency(m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """The wave's frequency on the last stable orbit, in Hz: that of a small body around a hole of both masses.

    >>> print(jnp.round(last_frequency(10.0, 10.0)))
    220.0
    """
    m1, m2 = jnp.asarray(m1), jnp.asarray(m2)
    return 1 / (6**1.5 * math.pi * SOLAR_MASS * (m1 + m2))


def speed(f: ArrayLike, m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """The speed v of the orbit over that of light when the wave's frequency is f, in Hz; masses in solar masses."""
    f, m1, m2 = jnp.asarray(f), jnp.asarray(m1), jnp.asarray(m2)
    return (math.pi * SOLAR_MASS * (m1 + m2) * f) ** (1 / 3)


def frequency_rate(f: ArrayLike, m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """How fast the wave's frequency grows, in Hz/s.

    Args:
        f: the frequency, in Hz.
        m1: one of the masses, in solar masses.
        m2: the other.
    """
    f, m1, m2 = jnp.asarray(f), jnp.asarray(m1), jnp.asarray(m2)
    eta, v = symmetric_ratio(m1, m2), speed(f, m1, m2)
    leading = 96 / 5 * math.pi ** (8 / 3) * (SOLAR_MASS * chirp_mass(m1, m2)) ** (5 / 3) * f ** (11 / 3)
    second = 34103 / 18144 + 13661 / 2016 * eta + 59 / 18 * eta**2
    return leading * (1 - (743 / 336 + 11 / 4 * eta) * v**2 + 4 * math.pi * v**3 + second * v**4)


def phase(f: ArrayLike, m1: ArrayLike, m2: ArrayLike) -> jax.Array:
    """The phase of the transform of a wave that merges at time zero with phase zero, in radians.

    Its slope over 2 pi is the time at which the wave has the frequency, so that its second derivative is 2 pi over
    `frequency_rate`, to second post-Newtonian order.

    Args:
        f: frequencies, in Hz.
        m1: one of the masses, in solar masses.
        m2: the other.
    """
    eta, v = symmetric_ratio(m1, m2), speed(f, m1, m2)
    first = 20 / 9 * (743 / 336 + 11 / 4 * eta)
    second = 10 * (3058673 / 1016064 + 5429 / 1008 * eta + 617 / 144 * eta**2)
    series = 1 + first * v**2 - 16 * math.pi * v**3 + second * v**4
    return -math.pi / 4 + 3 / (128 * eta * v**5) * series


def chirp_spectrum(
    f: ArrayLike,
    m1: ArrayLike,
    m2: ArrayLike,
    *,
    time: ArrayLike = 0.0,
    angle: ArrayLike = 0.0,
    distance: ArrayLike = 100.0,
) -> jax.Array:
    """The Fourier transform of the strain, in 1/Hz, of a binary straight above, seen face on; zero past its end.

    The transform is the integral over time of the strain by exp(-2 pi i f t), as NumPy has its sign.

    Args:
        f: frequencies above zero, in Hz.
        m1: one of the masses, in solar masses.
        m2: the other.
        time: of the merger, in seconds.
        angle: the phase at the merger, in radians.
        distance: in megaparsecs.
    """
    f = jnp.asarray(f)
    mass = SOLAR_MASS * chirp_mass(m1, m2)
    scale = math.sqrt(5 / 24) * math.pi ** (-2 / 3) * mass ** (5 / 6) / (MEGAPARSEC * distance)
    turned = 2 * math.pi * f * time - angle + phase(f, m1, m2)
    return jnp.where(f <= last_frequency(m1, m2), scale * f ** (-7 / 6), 0) * jnp.exp(-1j * turned)
