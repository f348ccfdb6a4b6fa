"""Programs in lineax."""

# pyright: reportMissingImports=false

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from tests.ecosystem.program import drawn, program


def _definite(n: int) -> np.ndarray:
    own = drawn(n, n)
    return own @ own.T + n * np.eye(n, dtype=np.float32)


@program("lineax/quick", "docs.kidger.site/lineax: quick example", slopes=(0, 1))
def quick():
    solve = lambda matrix, vector: lx.linear_solve(lx.MatrixLinearOperator(matrix), vector).value  # noqa: E731
    return solve, (_definite(10), drawn(10))


@program("lineax/least_squares", "docs.kidger.site/lineax: least squares, by QR", slopes=(0, 1))
def least_squares():
    def solve(matrix, vector):
        return lx.linear_solve(lx.MatrixLinearOperator(matrix), vector, solver=lx.QR()).value

    return solve, (drawn(30, 8), drawn(30))


@program("lineax/svd", "docs.kidger.site/lineax: AutoLinearSolver(well_posed=False)", slopes=(1,))
def svd():
    def solve(matrix, vector):
        return lx.linear_solve(lx.MatrixLinearOperator(matrix), vector, lx.AutoLinearSolver(well_posed=False)).value

    return solve, (drawn(12, 8), drawn(12))


@program("lineax/conjugate_gradients", "docs.kidger.site/lineax: structured matrices, CG", slopes=(0, 1))
def conjugate_gradients():
    def solve(matrix, vector):
        operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
        return lx.linear_solve(operator, vector, solver=lx.CG(rtol=1e-5, atol=1e-5)).value

    return solve, (_definite(20), drawn(20))


@program("lineax/gmres", "docs.kidger.site/lineax: GMRES of a function", slopes=(0,))
def gmres():
    def solve(vector):
        operator = lx.FunctionLinearOperator(lambda x: 3 * x + 0.5 * jnp.roll(x, 1), jax.eval_shape(lambda: vector))
        return lx.linear_solve(operator, vector, solver=lx.GMRES(rtol=1e-4, atol=1e-4)).value

    return solve, (drawn(24),)


@program("lineax/tridiagonal", "docs.kidger.site/lineax: tridiagonal operators", slopes=(0, 3))
def tridiagonal():
    def solve(middle, below, above, vector):
        return lx.linear_solve(lx.TridiagonalLinearOperator(middle, below, above), vector).value

    return solve, (4 + np.abs(drawn(40)), drawn(39), drawn(39, seed=1), drawn(40))


@program("lineax/jacobian", "docs.kidger.site/lineax: a Jacobian as an operator, a step of Newton's", slopes=(0,))
def jacobian():
    def newton(x):
        function = lambda own, _: jnp.sin(own) + own**3 + own[::-1]  # noqa: E731
        operator = lx.JacobianLinearOperator(function, x)
        return x - lx.linear_solve(operator, function(x, None)).value

    return newton, (drawn(9),)
