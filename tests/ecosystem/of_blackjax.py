"""Programs in blackjax."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from tests.ecosystem.program import drawn, program

X = drawn(50, 3)
Y = (X @ np.array([1.0, -1.0, 0.5]) + 0.3 * drawn(50)).astype(np.float32)
START = {"weights": np.zeros(3, np.float32), "scale": np.float32(0.0)}


def _density(own: Any) -> Any:
    spread = jnp.exp(own["scale"])
    likely = jax.scipy.stats.norm.logpdf(Y, X @ own["weights"], spread).sum()
    return likely + jax.scipy.stats.norm.logpdf(own["weights"]).sum() + jax.scipy.stats.norm.logpdf(own["scale"])


def _chain(algorithm: Any, turns: int = 5) -> tuple[Any, tuple[Any, ...]]:
    """Some turns of a sampler."""

    def run(state, key):
        def turn(state, key):
            state, _ = algorithm.step(key, state)
            return state, state.position

        return jax.lax.scan(turn, state, jax.random.split(key, turns))

    return run, (algorithm.init(START), jax.random.key(1))


METRIC = np.ones(4, np.float32)


@program("blackjax/nuts", "blackjax-devs.github.io: quickstart, NUTS")
def nuts():
    return _chain(blackjax.nuts(_density, 1e-2, METRIC, max_num_doublings=4))


@program("blackjax/hmc", "blackjax-devs.github.io: quickstart, HMC")
def hmc():
    return _chain(blackjax.hmc(_density, 1e-2, METRIC, 10))


@program("blackjax/mala", "blackjax-devs.github.io: MALA")
def mala():
    return _chain(blackjax.mala(_density, 1e-3), 20)


@program("blackjax/random_walk", "blackjax-devs.github.io: random walk of Metropolis and Hastings")
def random_walk():
    return _chain(blackjax.additive_step_random_walk(_density, blackjax.mcmc.random_walk.normal(0.05 * np.eye(4))), 20)


@program("blackjax/elliptical_slice", "blackjax-devs.github.io: elliptical slice sampling")
def elliptical_slice():
    likely = lambda own: jax.scipy.stats.norm.logpdf(Y, X @ own, 0.5).sum()  # noqa: E731
    algorithm = blackjax.elliptical_slice(likely, mean=jnp.zeros(3), cov=jnp.eye(3))

    def run(state, key):
        turn = lambda state, key: (algorithm.step(key, state)[0], None)  # noqa: E731
        return jax.lax.scan(turn, state, jax.random.split(key, 5))[0]

    return run, (algorithm.init(jnp.zeros(3)), jax.random.key(1))


@program("blackjax/sgld", "blackjax-devs.github.io: stochastic gradients, SGLD")
def sgld():
    slopes_of = blackjax.sgmcmc.gradients.grad_estimator(
        lambda own: jax.scipy.stats.norm.logpdf(own).sum(),
        lambda own, row: jax.scipy.stats.norm.logpdf(row[1], row[0] @ own, 0.5),
        50,
    )
    algorithm = blackjax.sgld(slopes_of)

    def run(position, key):
        turn = lambda own, key: (algorithm.step(key, own, (X[:10], Y[:10]), 1e-3), None)  # noqa: E731
        return jax.lax.scan(turn, position, jax.random.split(key, 10))[0]

    return run, (np.zeros(3, np.float32), jax.random.key(2))
