"""Programs in optimistix."""

# pyright: reportMissingImports=false

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optimistix as optx

from tests.ecosystem.program import drawn, program


def _implicit(y, scale):
    """A step of an implicit method for an equation of motion."""
    return y - scale * jnp.tanh(y @ jnp.linspace(0.1, 0.9, y.size**2).reshape(y.size, y.size))


@program("optimistix/newton", "docs.kidger.site/optimistix: quick example, an implicit Euler step", slopes=(1,))
def newton():
    def solve(start, scale):
        return optx.root_find(
            lambda y, own: _implicit(y, own) - start, optx.Newton(rtol=1e-5, atol=1e-5), start, scale
        ).value

    return solve, (drawn(5), np.float32(0.2))


@program("optimistix/fixed_point", "docs.kidger.site/optimistix: fixed points", slopes=(1,))
def fixed_point():
    def solve(start, scale):
        return optx.fixed_point(
            lambda y, own: own * jnp.cos(y) + 0.1, optx.FixedPointIteration(rtol=1e-5, atol=1e-5), start, scale
        ).value

    return solve, (drawn(6), np.float32(0.4))


def _rosenbrock(y, targets):
    return jnp.concatenate([10 * (y[1:] - y[:-1] ** 2), 1 - y[:-1]]) - targets


@program("optimistix/levenberg_marquardt", "docs.kidger.site/optimistix: nonlinear least squares", slopes=(1,))
def levenberg_marquardt():
    def solve(start, targets):
        solver = optx.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
        return optx.least_squares(_rosenbrock, solver, start, targets, max_steps=64, throw=False).value

    return solve, (np.full(6, 1.3, np.float32), 0.01 * drawn(10))


@program("optimistix/gauss_newton", "docs.kidger.site/optimistix: Gauss-Newton", slopes=(1,))
def gauss_newton():
    def solve(start, targets):
        solver = optx.GaussNewton(rtol=1e-4, atol=1e-4)
        return optx.least_squares(_rosenbrock, solver, start, targets, max_steps=64, throw=False).value

    return solve, (np.full(6, 1.1, np.float32), np.zeros(10, np.float32))


@program("optimistix/bfgs", "docs.kidger.site/optimistix: minimisation, BFGS", slopes=(1,))
def bfgs():
    def solve(start, centre):
        function = lambda y, own: ((y - own) ** 2).sum() + 0.1 * (y**4).sum()  # noqa: E731
        return optx.minimise(function, optx.BFGS(rtol=1e-4, atol=1e-4), start, centre, max_steps=64, throw=False).value

    return solve, (drawn(8), drawn(8, seed=1))


@program("optimistix/bisection", "docs.kidger.site/optimistix: bisection, with bounds", slopes=(0,))
def bisection():
    def solve(level):
        options = {"lower": jnp.float32(0), "upper": jnp.float32(3)}
        solver = optx.Bisection(rtol=1e-4, atol=1e-4)
        return optx.root_find(lambda y, own: y**3 - own, solver, jnp.float32(1), level, options).value

    return solve, (np.float32(2.0),)
