"""Diffrax finds the length and the friction of a pendulum from how it was seen to swing."""

# pyright: reportMissingImports=false

import diffrax
import jax
import jax.numpy as jnp
import optax

TIMES = jnp.linspace(0.0, 4.0, 25)


def swing(t, state, parameters):
    angle, speed = state
    return jnp.stack([speed, -9.81 / parameters["length"] * jnp.sin(angle) - parameters["friction"] * speed])


@jax.jit
def seen(parameters, start):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(swing),
        diffrax.Tsit5(),
        t0=0.0,
        t1=4.0,
        dt0=0.05,
        y0=start,
        args=parameters,
        saveat=diffrax.SaveAt(ts=TIMES),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6),
        max_steps=512,
    )
    return solution.ys[:, 0]


OPTIMIZER = optax.adam(0.05)


@jax.jit
def fit_step(parameters, state, start, angles):
    loss, grads = jax.value_and_grad(lambda own: ((seen(own, start) - angles) ** 2).mean())(parameters)
    updates, state = OPTIMIZER.update(grads, state)
    return optax.apply_updates(parameters, updates), state, loss


def main():
    start = jnp.array([1.0, 0.0])
    angles = seen({"length": 1.3, "friction": 0.25}, start)
    parameters = {"length": jnp.float32(1.0), "friction": jnp.float32(0.1)}
    state, found = OPTIMIZER.init(parameters), []
    for _ in range(15):
        parameters, state, loss = fit_step(parameters, state, start, angles)
        found.append(float(loss))
    return [*found, *map(float, parameters.values())]
