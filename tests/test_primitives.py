"""Rules look through what they understand: operations with drawn parameters, over a grid, mean what JAX means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import primitives

import codelet as cl
from codelet.jaxprs.primitives import UNDERSTOOD, is_understood
from tests.at_once import at_once
from tests.examples import examples
from tests.operations import KINDS, as_codelet, operations
from tests.strategies import total

ALONG = {"both": (0, 1), "first": (0,), "second": (1,), "neither": ()}
COUNTS = (2, 3)


def over_vertices(function, along):
    """A function of two arrays over a grid of 2 x 3, of whose axes each array has some, by plain JAX."""
    for axis in (1, 0):
        function = jax.vmap(function, tuple(0 if axis in ALONG[own] else None for own in along))
    return function


def check(chosen, dtype):
    """A graph of some operations, each over a grid, and its sums, against plain JAX, with the gradient."""
    random = np.random.default_rng(len(chosen))
    shapes = [
        tuple((*(COUNTS[axis] for axis in ALONG[own]), *s) for own, s in zip(along, op.shapes, strict=True))
        for op, along in chosen
    ]
    values = [tuple(random.integers(-3, 4, s).astype(dtype) for s in pair) for pair in shapes]
    codelets = [as_codelet(op) for op, _ in chosen]

    def build(graph, values):
        results = []
        for k, ((_, along), code, (a, b)) in enumerate(zip(chosen, codelets, values, strict=True)):
            grid = cl.grid(*COUNTS)
            a, b = (t[tuple(grid[axis] for axis in ALONG[own])] for t, own in zip((a, b), along, strict=True))
            made = graph.add_vertex(f"apply{k}", code, a=a, b=b)
            # An axis that neither has is none of what is made.
            results.append(
                (made, graph.add_vertex(f"add{k}", total, x=made[cl.grid(made.shape[0])] if made.ndim else made))
            )
        return results

    def plain(values):
        results = []
        for (op, along), (a, b) in zip(chosen, values, strict=True):
            made = over_vertices(op.function, along)(a, b)
            results.append((made, made.sum(tuple(range(1, made.ndim)))))
        return results

    ours, weights = cl.lower(build), lambda x: np.cos(np.arange(x.size, dtype=np.float32)).astype(x.dtype)
    exact = np.issubdtype(dtype, np.integer)
    weigh = lambda run: lambda v: sum(jnp.vdot(weights(x), x) for x in jax.tree.leaves(run(v)))  # noqa: E731
    both = lambda run: lambda v: (run(v), () if exact else jax.grad(weigh(run))(v))  # noqa: E731
    made = jax.device_get(at_once(both(ours), both(plain))(values))
    for result, expected in zip(*map(jax.tree.leaves, made), strict=True):
        assert result.dtype == expected.dtype
        scale = max(1, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(result, expected, rtol=0, atol=0 if exact else 5e-6 * scale)


def drawn(draw, count):
    along = st.tuples(st.sampled_from(list(ALONG)), st.sampled_from(list(ALONG)))
    along = along.filter(lambda own: {*ALONG[own[0]], *ALONG[own[1]]} == {0, 1})
    return [(draw(kind), draw(along)) for kind in count]


@pytest.mark.slow
@examples(1, phases=[Phase.generate])
@given(st.data())
def test_operations_over_a_grid(data):
    assume(data.draw(st.booleans()))  # the least of everything would tell little
    check(drawn(data.draw, [st.composite(kind)() for kind in KINDS]), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@examples(40, phases=[Phase.generate])
@given(st.data())
def test_many_operations_over_a_grid(dtype, data):
    check(drawn(data.draw, [operations()] * 10), dtype)


def test_parameters_that_no_rule_knows_are_not_understood():
    x = jnp.ones((2, 3))
    (eqn,) = jax.make_jaxpr(lambda x: x.T)(x).eqns
    assert is_understood(eqn, "transpose")
    assert not is_understood(eqn, "reshape")
    assert not is_understood(eqn.replace(params={**eqn.params, "new": 1}), "transpose")
    assert is_understood(eqn.replace(params={**eqn.params, "new": None}), "transpose")
    (wide,) = jax.make_jaxpr(lambda x: lax.mul(x, x))(x).eqns
    assert is_understood(wide, "mul")
    assert not is_understood(wide.replace(params={**wide.params, "out_dtype": np.dtype(np.float64)}), "mul")


def test_the_order_of_a_reshape_is_kept():
    a = jnp.arange(12.0).reshape(2, 3, 2)
    column = cl.codelet(lambda a: a.reshape(-1, order="F"))
    layer = cl.lower(lambda graph, a: graph.add_vertex("turn", column, a=a[cl.grid(2)]))
    np.testing.assert_array_equal(layer(a), [part.reshape(-1, order="F") for part in np.asarray(a)])


def test_every_understood_primitive_is_one_of_jax():
    names = {getattr(own, "name", None) for own in (*vars(lax).values(), *vars(primitives).values())}
    of_some_releases = {"pjit", "one_minus_square"}
    assert set(UNDERSTOOD) - names - of_some_releases == {"dim_as_value"}  # of symbolic shapes
