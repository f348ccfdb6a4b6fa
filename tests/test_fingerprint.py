"""Fingerprints: the same for codelets that compute the same, others for those of other constants, wherever they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from codelet.tracing.field_types import FieldType
from lowering.plan.fingerprint import fingerprint


def with_a_rule(x, table):
    function = jax.custom_jvp(lambda y: jnp.sin(y * table))
    function.defjvp(lambda primals, tangents: (function(*primals), tangents[0]))
    return function(x)


def solved(x, table):
    return lax.custom_linear_solve(lambda v: v * table, x, lambda _, b: b / table, lambda _, b: b / table)


HOW = {
    "plain": lambda x, table: x + table,
    "in a jit": lambda x, table: jax.jit(lambda y: y + table)(x),
    "in a jit in a jit": lambda x, table: jax.jit(lambda y: jax.jit(lambda z: z * table)(y))(x),
    "in a loop": lambda x, table: lax.scan(lambda carry, _: (jax.jit(lambda y: y * table)(carry), None), x, None, 2)[0],
    "in a branch": lambda x, table: lax.cond(x[0] > 0, jax.jit(lambda x: x + table), lambda x: x, x),
    "in a solve": solved,
    "in a function with a rule": with_a_rule,
}


@pytest.mark.parametrize("how", HOW)
def test_constants_tell_codelets_apart(how):
    def found(table: np.ndarray) -> bytes:
        codelet = cl.codelet(lambda x: HOW[how](x, table))
        return fingerprint(codelet.specialise({"x": FieldType((3,), np.dtype(np.float32))}))

    table = np.array([1, 2, 3], np.float32)
    assert found(table) == found(table.copy())
    assert len({found(own) for own in (table, 2 * table, table + np.array([0, 0, 1e-6], np.float32))}) == 3
