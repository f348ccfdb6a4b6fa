"""How often a search finds a chirp, at a false-alarm rate: of the trained network, beside the matched filter.

In come scores of stretches, or a network; out come rates. A search is a number for every stretch, and a threshold
that noise alone passes as often as is allowed.

Measured, with the defaults and two keys (57 s of CPU to train). At one false alarm in a hundred stretches the network
finds 0.82 to 0.83, 0.94 to 0.95 and 0.98 to 0.99 of chirps with ratios of 6, 7 and 8. The matched filter, which knows
the waveforms, finds 0.92 to 0.93, 0.99 and 1.00.

Source: Neyman and Pearson (1933), as Gabbard et al., "Matching matched filtering with deep networks for
gravitational-wave astronomy", Phys. Rev. Lett. 120, 141103 (2018), compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from codelet.models.matched_filter import bank_masses, loudest, templates
from codelet.models.strain import StrainNet
from codelet.models.strain_data import STRETCH, Stretch, chirp, draw_binaries, draw_examples, noise, whiten
from codelet.models.training import start, train_step


def train(
    key: jax.Array,
    *,
    steps: int = 1500,
    batch: int = 64,
    ratios: tuple[float, float] = (4.0, 10.0),
    rate: float = 0.03,
    stretch: Stretch = STRETCH,
) -> tuple[StrainNet, np.ndarray]:
    """A network trained on stretches that are drawn anew for every step, and the losses of the steps.

    Args:
        key: a JAX random key: it decides everything that is drawn.
        steps: of the descent, its momentum 0.9.
        batch: stretches a step, half of them with a chirp.
        ratios: the least and the greatest signal-to-noise ratio of chirps.
        rate: of the first step; it falls evenly to zero.
        stretch: how the strain is sampled.
    """
    for_network, for_data = jax.random.split(key)
    training = start(eqx.filter_jit(StrainNet)(stretch.samples, key=for_network))

    @jax.jit(donate_argnums=0)
    def step(training, number):
        inputs, labels = draw_examples(jax.random.fold_in(for_data, number), batch, ratios, stretch)
        return train_step(training, inputs, labels, rate=rate * (1 - number / steps))

    losses = []
    for number in range(steps):
        loss, training = step(training, number)
        losses.append(loss)
    return training.network, np.array(losses)


@eqx.filter_jit
def network_scores(network: StrainNet, series: jax.Array) -> jax.Array:
    """The logarithm of the odds that the network gives a chirp, one for each series, of shape (n,)."""
    logits = jax.vmap(network)(series)
    return logits[:, 1] - logits[:, 0]


def detection_rate(with_chirps: np.ndarray, of_noise: np.ndarray, false_alarms: float) -> float:
    """The share of scores with chirps above the threshold that this share of scores of noise is above.

    >>> detection_rate(np.array([0.5, 2.5, 3.5, 9.5]), np.arange(5), false_alarms=0.25)
    0.5
    """
    return float(np.mean(np.asarray(with_chirps) > np.quantile(of_noise, 1 - false_alarms)))


class Rates(NamedTuple):
    """Detection rates of two searches at one signal-to-noise ratio and one false-alarm rate."""

    network: float
    matched_filter: float


def compare(
    network: StrainNet,
    key: jax.Array,
    ratios: Sequence[float],
    *,
    number: int = 4000,
    false_alarms: float = 0.01,
    stretch: Stretch = STRETCH,
) -> dict[float, Rates]:
    """Detection rates of the network and of the matched filter on the same stretches, by signal-to-noise ratio.

    Args:
        network: as `train` returns it.
        key: a JAX random key; let it be none that the network was trained with.
        ratios: signal-to-noise ratios, for each of which the chirps are the same and the noise too.
        number: stretches of noise, and as many with chirps.
        false_alarms: the share of stretches of noise that pass for chirps.
        stretch: how the strain is sampled.
    """
    bank = templates(bank_masses(stretch), stretch)
    for_quiet, for_noise, for_binaries = jax.random.split(key, 3)
    quiet = whiten(noise(for_quiet, (number,), stretch), stretch)
    loud = whiten(noise(for_noise, (number,), stretch), stretch)
    binaries = draw_binaries(for_binaries, (number,), stretch)
    chirps = whiten(jax.jit(jax.vmap(lambda binary: chirp(binary, 1.0, stretch)))(binaries), stretch)
    searches = (lambda x: network_scores(network, x), lambda x: loudest(x, bank, stretch))
    of_noise_alone = [np.asarray(search(quiet)) for search in searches]
    return {
        ratio: Rates(
            *(
                detection_rate(np.asarray(search(loud + ratio * chirps)), of_noise, false_alarms)
                for search, of_noise in zip(searches, of_noise_alone, strict=True)
            )
        )
        for ratio in ratios
    }
