"""Maps made in the shapes of what is around them, and meaning the same."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.map_shapes import make_in_shape
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.reshape_once import reshape_once
from tests.examples import examples
from tests.same_jaxprs import after, assert_same_slopes


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def shaped(function, *arguments):
    """A function after the rule, seen to mean the same."""
    closed = jax.make_jaxpr(function)(*arguments)
    made = reshape_once(make_in_shape(closed))
    found = jax_core.jaxpr_as_fun(made)(*arguments)
    for own, other in zip(found, jax.tree.leaves(function(*arguments)), strict=True):
        np.testing.assert_array_equal(own, other)
    return made


X = jnp.arange(24.0).reshape(4, 6)


def test_what_is_also_used_within_is_made_as_it_leaves():
    def function(v, g, p):
        v = 0.9 * v.reshape(24) + g.T.reshape(24)
        return v.reshape(4, 6), (p.reshape(24) - 0.1 * v).reshape(4, 6)

    made = shaped(function, X, X.reshape(6, 4), X + 1)
    (momentum, _) = made.jaxpr.outvars
    (eqn,) = (eqn for eqn in made.jaxpr.eqns if momentum in eqn.outvars)
    assert eqn.primitive.name == "add"


def test_a_map_between_reshapes_is_made_beyond_them():
    made = shaped(lambda x: (2 * x.reshape(24)).reshape(4, 6), X)
    assert names(made) == ["mul"]
    closed = jax.make_jaxpr(lambda x: (jnp.cumsum(x.reshape(24)).reshape(4, 6), jnp.cumsum(x.reshape(24)) + 1))(X)
    assert make_in_shape(closed) is closed
    shaped(lambda x: ((own := x.reshape(24) > 3).reshape(4, 6), own.reshape(2, 12), own[:2]), X)


def test_maps_of_each_other_are_in_one_shape():
    """In that of most of what they are made from, and for; the other is brought to it."""

    def function(x, y, z):
        own = jnp.tanh(x.reshape(24)) * y.reshape(24) + z
        return own.reshape(4, 6)

    made = shaped(function, X, X + 1, X.reshape(24))
    assert [eqn.outvars[0].aval.shape for eqn in made.jaxpr.eqns] == [(4, 6)] * 4
    assert names(made).count("reshape") == 1


def test_maps_of_each_other_reshaped_are_in_one_shape():
    """Rows in fours, rows in pairs: a softmax as JAX would write it, if its rows can be reduced in the shape of all."""

    def softmax(x, rows=(2, 2)):
        own = x.reshape(2, 2, 6)
        own = jnp.exp(own - own.max(-1, keepdims=True))
        return ((own := own.reshape(rows)) / own.sum(-1, keepdims=True)).reshape(4, 6)

    closed = with_repeats(functools.partial(softmax, rows=(1, 4, 6)), X)
    made = reshape_once(reduce_in_shape(make_in_shape(closed)))
    assert {eqn.outvars[0].aval.shape for eqn in made.jaxpr.eqns if eqn.primitive.name in ("sub", "exp", "div")} == {
        (4, 6)
    }
    assert {eqn.invars[0].aval.shape for eqn in made.jaxpr.eqns if eqn.primitive.name.startswith("reduce")} == {(4, 6)}
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(made)(X)[0], jax.nn.softmax(X), rtol=1e-6)


def test_a_reduction_along_part_of_a_dimension_keeps_the_shape():
    made = shaped(lambda x: ((own := 2 * x.reshape(4, 2, 3)).sum(1), own.max(2), own.reshape(4, 6)), X)
    assert names(made)[:2] == ["reshape", "mul"]


def test_maps_in_loops_are_made_in_their_shapes_too():
    def function(x, y):
        return jax.lax.fori_loop(0, 3, lambda _, x: (0.5 * x.reshape(24) + y.reshape(24)).reshape(4, 6), x)

    made = shaped(function, X, X + 1)
    (loop,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    assert "reshape" not in {eqn.primitive.name for eqn in loop.params["jaxpr"].jaxpr.eqns}


def with_repeats(function, *arguments):
    """The jaxpr of a function without its broadcasts to shapes of as many dimensions, which equations repeat."""
    closed = jax.make_jaxpr(function)(*arguments)
    spread, kept = {}, []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0].aval.ndim == eqn.outvars[0].aval.ndim:
            spread[eqn.outvars[0]] = eqn.invars[0]
        else:
            own = [atom if isinstance(atom, jax_core.Literal) else spread.get(atom, atom) for atom in eqn.invars]
            kept.append(eqn.replace(invars=own))
    return jax_core.ClosedJaxpr(closed.jaxpr.replace(eqns=kept), closed.consts)


REPEATED = {
    "a column times a row": lambda x, c, r: ((own := x.T + c.T * r.T).T, jnp.sum(own, 0)),
    "rows of rows": lambda x, c, r: (jnp.exp(x.reshape(2, 2, 6) - c.reshape(2, 2, 1)).reshape(4, 6),),
    "rows of all": lambda x, c, r: ((x.reshape(2, 2, 6) * r.reshape(1, 1, 6)).reshape(4, 6),),
    "one of all": lambda x, c, r: ((x.reshape(24) * c[:1].reshape(1)).reshape(4, 6),),
    "not of whole dimensions": lambda x, c, r: ((x.reshape(2, 12) * c[:2].reshape(2, 1)).reshape(4, 6),),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_repeated_is_so_in_the_form_too(name):
    arguments = X, X[:, :1] + 1, X[:1] + 2
    closed = with_repeats(REPEATED[name], *arguments)
    made = reshape_once(make_in_shape(closed))
    found = jax_core.jaxpr_as_fun(made)(*arguments)
    for own, other in zip(found, REPEATED[name](*arguments), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)
    maps = [eqn.outvars[0].aval.shape for eqn in made.jaxpr.eqns if eqn.primitive.name in ("add", "mul", "sub", "exp")]
    assert set(maps) == ({(2, 12)} if name == "not of whole dimensions" else {(4, 6)})
    assert [eqn.invars[0].aval.shape for eqn in made.jaxpr.eqns if eqn.primitive.name == "transpose"].count((4, 6)) <= 1


def test_a_step_with_momentum_is_as_one_would_write_it():
    def step(v, p, g):
        v = 0.9 * v + g.T
        return v, p - 0.1 * v

    traced = cl.trace(step, X, X, X.T, target=cl.IPU(num_tiles=4))
    made = traced.lowered.jaxpr
    momentum, _ = made.jaxpr.outvars
    assert names(made).count("transpose") == 1
    np.testing.assert_allclose(traced(X, X, X.T)[1], step(X, X, X.T)[1], rtol=1e-6)
    (eqn,) = (eqn for eqn in made.jaxpr.eqns if momentum in eqn.outvars)
    assert eqn.primitive.name == "add"


def test_numbers_are_made_as_they_are():
    """The operands of a map of numbers are literals too, and predicates and bounds, which have no shape to change."""
    for function in (
        lambda a, b: ((own := jax.lax.select_n(a > 0, a, jnp.float32(jnp.nan))).reshape(1), own * b),
        lambda a, b: ((own := jax.lax.clamp(0.0, a * 2, b)).reshape(1, 1), own * b),
        lambda a, b: ((own := jax.lax.select_n(a > 0, b, a)).reshape(1), own + 1),
    ):
        closed = jax.make_jaxpr(function)(1.0, 2.0)
        assert make_in_shape(closed) is closed
    for function in (
        lambda x, p: ((own := jax.lax.select_n(p, x, -x)).reshape(()), own + 1),
        lambda x, p: ((own := jax.lax.clamp(0.0, x, x.sum())).reshape(()), own + 1),
    ):
        shaped(function, jnp.ones(1), True)


def test_single_elements_are_made_as_rows_of_one_where_they_come_from_such():
    def turn(carry, row):
        before, here = carry.reshape(()), jnp.tanh(carry.reshape(()) + 2 * row.reshape(()))
        own = jax.lax.select_n(before > 0.5, here, jnp.float32(0.25)).reshape(1)
        return own, own

    made = shaped(lambda x: jax.lax.scan(turn, x[0], x), jnp.linspace(-1, 1, 5).reshape(5, 1))
    (scan,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    eqns = scan.params["jaxpr"].jaxpr.eqns
    assert all(isinstance(eqn.invars[0], jax_core.Literal) for eqn in eqns if eqn.primitive.name == "reshape")
    tanh = next(eqn for eqn in eqns if eqn.primitive.name == "tanh")
    assert tanh.outvars[0].aval.shape == (1,)


def test_single_elements_that_decide_where_something_is_stay_numbers():
    def function(x, k):
        place = k.reshape(()) * 2 + 1
        return jax.lax.dynamic_slice(x, (place, place), (1, 2))

    made = shaped(function, X, jnp.array([1]))
    assert all(eqn.outvars[0].aval.shape == () for eqn in made.jaxpr.eqns if eqn.primitive.name in ("mul", "add"))


@pytest.mark.parametrize("execution", ["fused", "tiles", "addresses"])
def test_the_variance_of_one_number_leaves_in_the_shape_of_its_view(execution):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    a, out, twice = (graph.add_variable(name, (1,)) for name in ("a", "out", "twice"))
    graph.add_vertex("vary", cl.codelet(lambda a: a.var()), a=a, out=out[0])
    graph.add_vertex("double", cl.codelet(lambda v: 2 * v), v=out[0], out=twice[0])
    engine = cl.Engine(graph, execution=execution)
    engine.write({a: np.ones(1, np.float32)})
    engine.run()
    assert engine.read(out).tolist() == engine.read(twice).tolist() == [0.0]


# --- whatever is around maps ------------------------------------------------------------------------------------


@st.composite
def maps_among_moves(draw):
    """A function that maps, reshapes and transposes two arrays in turn, in a loop or not; and the arrays."""
    shape = draw(st.sampled_from([(2, 6), (3, 4), (12,), (7, 1), (1, 1), (0, 3), (2, 3, 2)]))
    kind = draw(st.sampled_from((np.float32, jnp.bfloat16, np.int8, np.uint8, np.int32, np.bool_)))
    steps, shapes = [], [shape, shape]
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(shapes) - 1))
        own = shapes[at]
        name = draw(
            st.sampled_from(("two", "two", "choice", "one", "reshape", "reshape", "transpose", "greatest", "less"))
        )
        if name == "reshape":
            size = math.prod(own)
            to = draw(st.sampled_from([(size,), (1, size), (size, 1), *([(2, size // 2)] if size % 2 == 0 else [])]))
            steps.append((name, at, to))
            shapes.append(to)
        elif name == "transpose":
            order = tuple(draw(st.permutations(range(len(own)))))
            steps.append((name, at, order))
            shapes.append(tuple(own[d] for d in order))
        elif name in ("greatest", "less"):
            axes = tuple(d for d in range(len(own)) if draw(st.booleans()))
            steps.append((name, at, axes))
            shapes.append(own if name == "less" else tuple(n for d, n in enumerate(own) if d not in axes))
        else:
            alike = [k for k, shape in enumerate(shapes) if shape == own]
            steps.append((name, at, draw(st.sampled_from(alike))))
            shapes.append(own)
    looped = draw(st.booleans())

    def apply(values, name, at, how):
        a = values[at]
        match name:
            case "reshape":
                return a.reshape(how)
            case "transpose":
                return a.transpose(how)
            case "two":
                return jax.lax.max(a, values[how])
            case "choice":
                return jax.lax.select_n(jax.lax.lt(a, values[how]), values[how], a)
            case "one":
                return jax.lax.convert_element_type(jax.lax.ne(a, jax.lax.full_like(a, 1)), a.dtype)
            case "less":  # than the greatest of its row
                return jax.lax.convert_element_type(a < a.max(how, keepdims=True, initial=0), a.dtype)
        return a.max(how, initial=0)

    def function(*given):
        values = list(map(jnp.asarray, given))
        for own in steps:
            values.append(apply(values, *own))
        return values[2:]

    def in_a_loop(*given):
        return jax.lax.scan(lambda held, _: (held, function(*held)), given, length=2)[1]

    arrays = [(np.arange(math.prod(shape)).reshape(shape) % n).astype(kind) for n in (5, 7)]
    if looped:
        return in_a_loop, arrays
    repeated = with_repeats(function, *arrays) if draw(st.booleans()) else None
    return (jax_core.jaxpr_as_fun(repeated) if repeated else function), arrays


@examples(20)
@given(maps_among_moves())
def test_maps_are_the_same(case):
    function, arrays = case
    after(make_in_shape, function, *arrays)


@pytest.mark.slow
@examples(300)
@given(maps_among_moves())
def test_many_maps_are_the_same(case):
    function, arrays = case
    after(make_in_shape, function, *arrays)


@examples(3)
@given(maps_among_moves())
def test_slopes_of_maps_are_the_same(case):
    """Where two are as great, the slope of both counts a half, in every form."""
    function, arrays = case
    assert_same_slopes(make_in_shape, function, *(own.astype(np.float32) for own in arrays))
