"""Elementwise: what a codelet says each element depends on is so, by changing the inputs one element at a time."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.tracing.field_types import FieldType
from lowering.jaxprs.elementwise import dependences, may_overwrite
from tests.examples import few

F32 = np.dtype(np.float32)

ALONE = {
    "arithmetic": lambda x, y: 2 * x + y * y - lax.integer_pow(x, 3),
    "functions": lambda x, y: jnp.tanh(jnp.exp(x)) + jax.nn.relu(y) + jax.nn.sigmoid(x),
    "choices": lambda x, y: jnp.where(x > y, jnp.clip(x, -1, 1), y),
    "casts": lambda x, y: (x + y).astype(jnp.int32).astype(jnp.float32),
    "reshapes": lambda x, y: (x.reshape(2, 2) * y.reshape(2, 2)[None]).reshape(-1) + x[None].squeeze(0),
    "calls": lambda x, y: jax.checkpoint(jnp.sin)(x) + jax.jit(lambda z: z + 1)(y),
    "nothing of one": lambda x, y: x + 1,
}
TOGETHER = {
    "reversed": lambda x, y: x[::-1] + y,
    "shifted": lambda x, y: jnp.roll(x, 1) + y,
    "reduced": lambda x, y: x.sum() + y,
    "one for all": lambda x, y: x[0] * y,
    "cumulative": lambda x, y: jnp.cumsum(x) + y,
    "sorted": lambda x, y: jnp.sort(x) + y,
    "transposed": lambda x, y: x.reshape(2, 2).T.reshape(-1) + y,
    "ordered": lambda x, y: lax.reshape(x.reshape(2, 2), (4,), dimensions=(1, 0)) + y,
    "gathered": lambda x, y: x[jnp.array([0, 2, 1, 3])] + y,
    "looped": lambda x, y: lax.fori_loop(0, 2, lambda _, z: z[::-1], x) + y,
    "written in": lambda x, y: y.at[0].set(x[3]),
    "multiplied": lambda x, y: jnp.outer(x, x)[0] + y,
}


def traced(function, *shapes):
    kinds = dict(zip("xyz", [FieldType(shape, F32) for shape in shapes], strict=False))
    return cl.codelet(function).specialise(kinds)


def observed(function, number):
    """Whether changing an element of an input changes the same element of the result alone, tried one by one."""
    random, alone = np.random.default_rng(0), True
    for _ in range(3):
        given = [random.normal(size=4).astype(np.float32) for _ in range(2)]
        before = np.asarray(function(*given))
        for k in range(4):
            changed = [own.copy() for own in given]
            changed[number][k] += 1
            different = np.flatnonzero(np.asarray(function(*changed)) != before)
            alone &= set(different.tolist()) <= {k}
    return alone


@few("name", [*ALONE, *TOGETHER], quick=["ordered"])
def test_what_each_element_depends_on(name):
    function = (ALONE | TOGETHER)[name]
    (found,) = dependences(traced(function, (4,), (4,)))
    jitted = jax.jit(function)
    for number in (0, 1):
        said = found.get(number, True)
        assert observed(jitted, number) or not said  # what is said to stay at its place does
    assert all(found.values()) == (name in ALONE)
    assert may_overwrite(traced(function, (4,), (4,)), "x", "out") == (name in ALONE)
    # Of one element nothing else can be needed.
    if name not in ("transposed", "ordered", "reshapes", "gathered", "written in"):
        assert may_overwrite(traced(function, (1,), (1,)), "x", "out")


def test_another_result_must_not_need_other_elements_of_what_is_overwritten():
    two = traced(lambda x, y: {"a": 2 * x, "b": x[::-1] + y}, (4,), (4,))
    assert not may_overwrite(two, "x", "a")
    assert not may_overwrite(two, "x", "b")
    assert may_overwrite(two, "y", "b")
    assert may_overwrite(two, "y", "a")
    alike = traced(lambda x, y: {"a": 2 * x, "b": x + y}, (4,), (4,))
    assert may_overwrite(alike, "x", "a")
    assert may_overwrite(alike, "x", "b")
    one = traced(lambda x, y: {"a": 2 * x, "b": x + y}, (1,), (4,))
    assert not may_overwrite(one, "x", "a")


def test_what_is_not_looked_at():
    def speak(x):
        jax.debug.print("{}", x)
        return 2 * x

    assert not may_overwrite(traced(speak, (4,)), "x", "out")
    graph = cl.Graph()
    x, i = graph.add_variable("x", (6,)), cl.grid(3)
    table = cl.table(np.arange(6), offsets=[0, 1, 3, 6])
    graph.add_vertex("rows", cl.codelet(lambda x: 2 * x), x=x[table[i]], out=graph.add_variable("y", (6,))[table[i]])
    assert not may_overwrite(graph.families[0].codelet, "x", "out")


def test_a_primitive_with_a_parameter_that_is_not_known_is_not_understood():
    """As of a later release of JAX: the list names every parameter that it understands."""
    (eqn,) = jax.make_jaxpr(jnp.exp)(np.ones(4, np.float32)).jaxpr.eqns
    assert is_understood(eqn, *ELEMENTWISE)
    assert not is_understood(eqn.replace(params={**eqn.params, "new": 1}), *ELEMENTWISE)
    assert "dot_general" not in ELEMENTWISE
    assert "cumsum" not in ELEMENTWISE
