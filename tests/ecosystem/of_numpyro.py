"""Programs in numpyro."""

# pyright: reportMissingImports=false

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import initialize_model

from tests.ecosystem.program import drawn, program, whole

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)


def _schools(errors, effects):
    mean, spread = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        numpyro.sample("effects", dist.Normal(mean + spread * offset, errors), obs=effects)


def _regression(x, y):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 1).to_event(1))
    spread = numpyro.sample("spread", dist.Exponential(1.0))
    numpyro.sample("y", dist.Normal(x @ weights, spread), obs=y)


@program("numpyro/schools_density", "num.pyro.ai: eight schools, the potential energy", slopes=(0,))
def schools_density():
    found = initialize_model(jax.random.key(0), _schools, model_args=(ERRORS, EFFECTS))
    return found.potential_fn, (found.param_info.z,)


def _sampled(kernel, *given):
    def run(key, *given):
        sampler = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
        sampler.run(key, *given)
        return sampler.get_samples()

    return run, (jax.random.key(1), *given)


@program("numpyro/schools_nuts", "num.pyro.ai: eight schools, by NUTS")
def schools_nuts():
    return _sampled(NUTS(_schools, max_tree_depth=4), ERRORS, EFFECTS)


@program("numpyro/regression_hmc", "num.pyro.ai: Bayesian regression, by HMC")
def regression_hmc():
    x = drawn(30, 3)
    return _sampled(HMC(_regression, num_steps=8), x, x @ np.array([1.0, -2, 0.5], np.float32) + 0.1 * drawn(30))


@program("numpyro/variational", "num.pyro.ai: stochastic variational inference")
def variational():
    svi = SVI(_regression, AutoNormal(_regression), numpyro.optim.Adam(0.01), Trace_ELBO())
    x, y = drawn(30, 3), drawn(30)
    return svi.update, (svi.init(jax.random.key(0), x, y), x, y)


@program("numpyro/hidden_markov", "num.pyro.ai: hidden Markov model, forward algorithm", slopes=(0, 1))
def hidden_markov():
    words = whole(7, 40)

    def density(moves, says):
        moves, says = jax.nn.log_softmax(moves), jax.nn.log_softmax(says)

        def turn(own, word):
            return jax.scipy.special.logsumexp(own[:, None] + moves, 0) + says[:, word], None

        last, _ = jax.lax.scan(turn, says[:, words[0]], words[1:])
        return jax.scipy.special.logsumexp(last)

    return density, (drawn(3, 3), drawn(3, 7))


@program("numpyro/gaussian_process", "num.pyro.ai: Gaussian process, log density", slopes=(0, 1))
def gaussian_process():
    x, y = np.linspace(-1, 1, 20, dtype=np.float32), drawn(20)

    def density(scale, length):
        kernel = jnp.exp(scale) * jnp.exp(-0.5 * (x[:, None] - x) ** 2 / jnp.exp(length)) + 0.1 * jnp.eye(20)
        return dist.MultivariateNormal(jnp.zeros(20), covariance_matrix=kernel).log_prob(y)

    return density, (np.float32(0.1), np.float32(-0.5))
