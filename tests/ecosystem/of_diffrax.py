"""Programs in diffrax."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.ecosystem.program import drawn, program

KEY = jax.random.key(0)


def _lotka_volterra(t: Any, y: Any, rates: Any) -> Any:
    prey, predators = y
    a, b, c, d = rates
    return jnp.stack([a * prey - b * prey * predators, -c * predators + d * prey * predators])


RATES = np.array([0.8, 0.4, 1.1, 0.3], np.float32)


@program("diffrax/quick", "docs.kidger.site/diffrax: getting started", slopes=(0,))
def quick():
    def solve(start):
        field = dfx.ODETerm(lambda t, y, args: -y)
        return dfx.diffeqsolve(field, dfx.Dopri5(), t0=0, t1=1, dt0=0.1, y0=start).ys

    return solve, (np.float32(1.5),)


@program("diffrax/adaptive", "docs.kidger.site/diffrax: saving and step size control", slopes=(0, 1))
def adaptive():
    def solve(start, rates):
        control = dfx.PIDController(rtol=1e-4, atol=1e-4)
        at = dfx.SaveAt(ts=jnp.linspace(0, 10, 21))
        field = dfx.ODETerm(_lotka_volterra)
        return dfx.diffeqsolve(field, dfx.Tsit5(), 0, 10, 0.1, start, rates, saveat=at, stepsize_controller=control).ys

    return solve, (np.array([2.0, 1.0], np.float32), RATES)


@program("diffrax/direct", "docs.kidger.site/diffrax: adjoints, DirectAdjoint", slopes=(0, 1))
def direct():
    def solve(start, rates):
        field, adjoint = dfx.ODETerm(_lotka_volterra), dfx.DirectAdjoint()
        return dfx.diffeqsolve(field, dfx.Heun(), 0, 2, 0.1, start, rates, adjoint=adjoint, max_steps=32).ys

    return solve, (np.array([2.0, 1.0], np.float32), RATES)


@program("diffrax/backsolve", "docs.kidger.site/diffrax: adjoints, BacksolveAdjoint", slopes=(0, 1))
def backsolve():
    def solve(start, rates):
        field, adjoint = dfx.ODETerm(_lotka_volterra), dfx.BacksolveAdjoint()
        return dfx.diffeqsolve(field, dfx.Tsit5(), 0, 2, 0.1, start, rates, adjoint=adjoint).ys

    return solve, (np.array([2.0, 1.0], np.float32), RATES)


@program("diffrax/stiff", "docs.kidger.site/diffrax: stiff differential equations", slopes=(0,))
def stiff():
    def robertson(t, y, args):
        first = -0.04 * y[0] + 1e4 * y[1] * y[2]
        last = 3e7 * y[1] ** 2
        return jnp.stack([first, -first - last, last])

    def solve(start):
        control = dfx.PIDController(rtol=1e-4, atol=1e-6)
        term = dfx.ODETerm(robertson)
        return dfx.diffeqsolve(term, dfx.Kvaerno3(), 0, 1, 2e-4, start, stepsize_controller=control).ys

    return solve, (np.array([1.0, 0.0, 0.0], np.float32),)


@program("diffrax/neural_ode", "docs.kidger.site/diffrax: neural ODE, a step of training")
def neural_ode():
    model = eqx.nn.MLP(2, 2, 64, 2, jax.nn.softplus, key=KEY)
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer, times = optax.adabelief(3e-3), jnp.linspace(0, 3, 20)

    def loss(parameters, rows):
        network = eqx.combine(parameters, static)

        def one(start):
            field = dfx.ODETerm(lambda t, y, args: network(y))
            control = dfx.PIDController(rtol=1e-3, atol=1e-6)
            at = dfx.SaveAt(ts=times)
            return dfx.diffeqsolve(field, dfx.Tsit5(), 0, 3, 0.1, start, saveat=at, stepsize_controller=control).ys

        return ((jax.vmap(one)(rows[:, 0]) - rows) ** 2).mean()

    def step(parameters, state, rows):
        value, slopes = jax.value_and_grad(loss)(parameters, rows)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return step, (parameters, optimizer.init(parameters), drawn(8, 20, 2))


@program("diffrax/neural_cde", "docs.kidger.site/diffrax: neural CDE", slopes=(1,))
def neural_cde():
    model = eqx.nn.MLP(8, 24, 32, 1, jax.nn.softplus, jnp.tanh, key=KEY)

    def solve(times, rows):
        control = dfx.LinearInterpolation(times, rows)
        field = lambda t, y, args: model(y).reshape(8, 3)  # noqa: E731
        term = dfx.ControlTerm(field, control).to_ode()
        return dfx.diffeqsolve(term, dfx.Tsit5(), 0, 1, 0.05, jnp.ones(8)).ys

    return solve, (np.linspace(0, 1, 11, dtype=np.float32), drawn(11, 3))


@program("diffrax/stochastic", "docs.kidger.site/diffrax: stochastic differential equations", slopes=(0,))
def stochastic():
    def solve(start, key):
        path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key)
        drift, noise = dfx.ODETerm(lambda t, y, args: -y), dfx.ControlTerm(lambda t, y, args: 0.1 * t, path)
        return dfx.diffeqsolve(dfx.MultiTerm(drift, noise), dfx.Euler(), 0, 1, 0.05, start).ys

    return solve, (np.float32(1.0), jax.random.key(4))
