"""In which shapes maps are made, and which reshapes, transposes, pads and single dimensions are left."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from benchmarks.traced_steps import lowered_vertices
from codelet.jaxprs.equations import inner_jaxprs
from lowering.jaxprs.common_pads import pad_in_common
from lowering.jaxprs.map_shapes import make_in_shape
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.reshape_once import reshape_once
from lowering.jaxprs.single_dimensions import broadcast_positions, drop_single_dimensions
from lowering.platforms import lowering_for
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.ops_cases import array, assert_alike
from tests.patterns.shapes import ABOVE, BELOW, padded, with_repeats

# --- make_in_shape ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("platform", "shape"), [("gpu", (6,)), ("cpu", (6, 1))])
def test_numbers_of_places_are_made_as_a_vector_for_gpus(platform, shape):
    def function(x, values):
        places = jnp.minimum(x.astype("int32") % 5, 3).reshape(6, 1)
        added = lax.scatter_add(jnp.zeros(5), places, values, lax.ScatterDimensionNumbers((), (0,), (0,)), mode="clip")
        return lax.gather(jnp.sin(added), places, lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="clip")

    with lowering_for(platform):
        made = shaped(function, X[0], X[1])
    (smaller,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "min")
    assert smaller.outvars[0].aval.shape == shape


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


REPEATED = {
    "a column times a row": lambda x, c, r: ((own := x.T + c.T * r.T).T, jnp.sum(own, 0)),
    "rows of rows": lambda x, c, r: (jnp.exp(x.reshape(2, 2, 6) - c.reshape(2, 2, 1)).reshape(4, 6),),
    "rows of all": lambda x, c, r: ((x.reshape(2, 2, 6) * r.reshape(1, 1, 6)).reshape(4, 6),),
    "one of all": lambda x, c, r: ((x.reshape(24) * c[:1].reshape(1)).reshape(4, 6),),
    "not of whole dimensions": lambda x, c, r: ((x.reshape(2, 12) * c[:2].reshape(2, 1)).reshape(4, 6),),
}


@few("name", REPEATED, quick=["rows of rows"])
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


def _sum_of(*parts):
    return 2.0 * parts[0] - sum(parts[1:])


SLICED = {
    "neighbours": (lambda x: (_sum_of(x[:, :-2], x[:, 1:-1], x[:, 2:]).T,), True),
    "in steps": (lambda x: (_sum_of(x[:, ::2], x[:, 1::2]).T,), True),
    "of which one is of another": (lambda x: (_sum_of(x[:, :-1], x[:, 1:], jnp.sin(x).T[1:].T).T,), True),
    "of three dimensions": (
        lambda x: (_sum_of((y := jnp.sin(x).reshape(2, 2, 6))[..., :4], y[..., 2:]).transpose(2, 0, 1),),
        True,
    ),
    "one": (lambda x: ((2.0 * x[:, 1:]).T,), False),
    "smaller together": (lambda x: (_sum_of(x[:, :2], x[:, 2:4]).T,), False),
    "read as they lie": (lambda x: ((own := _sum_of(x[:, :-1], x[:, 1:])).T, own), False),
    "beside what lies so": (lambda x: (_sum_of(x[:, :-1], x[:, 1:], jnp.cumsum(x[:, 1:], 0)).T,), False),
    "only reshaped": (lambda x: (_sum_of(x[:2], x[2:]).reshape(12),), False),
}


@pytest.mark.parametrize("name", SLICED)
def test_slices_of_what_is_transposed_once(name):
    """Where the slices are as large together as the array; else what is made of them is transposed."""
    function, is_before = SLICED[name]
    eqns = shaped(function, X).jaxpr.eqns
    turned = [eqn for eqn in eqns if eqn.primitive.name == "transpose"]
    if name == "only reshaped":
        assert not turned
        return
    slices = [k for k, eqn in enumerate(eqns) if eqn.primitive.name == "slice"]
    assert (eqns.index(turned[0]) < slices[0]) is is_before
    assert all((eqn.invars[0].aval.size == 24) is is_before for eqn in turned)


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


# --- reshape_once -----------------------------------------------------------------------------------------------------


def test_an_array_is_reshaped_to_a_shape_once():
    def function(x):
        flat = x.reshape(2, 2, 6).reshape(24)
        return flat * x.reshape(24), flat.reshape(4, 6) + x, x.reshape(6, 4).sum(0)

    x = jnp.arange(24.0).reshape(4, 6)
    closed = jax.make_jaxpr(function)(x)
    made = reshape_once(closed)
    assert names(made) == ["reshape", "mul", "add", "reshape", "reduce_sum"]
    for own, other in zip(jax_core.jaxpr_as_fun(made)(x), function(x), strict=True):
        np.testing.assert_array_equal(own, other)


def test_in_loops_too_but_not_in_another_order():
    def turn(x, _):
        moved = jax.lax.reshape(x.reshape(2, 3), (6,), dimensions=(1, 0))
        return moved + x.reshape(3, 2).reshape(6), None

    x = jnp.arange(6.0)
    closed = jax.make_jaxpr(lambda x: jax.lax.scan(turn, x, length=3)[0])(x)
    made = reshape_once(closed)
    (loop,) = made.jaxpr.eqns
    assert names(loop.params["jaxpr"]).count("reshape") == 2
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(made)(x)[0], jax.lax.scan(turn, x, length=3)[0])


# --- drop_single_dimensions -------------------------------------------------------------------------------------------


def ranks(closed):
    """The number of dimensions of everything that is made of arrays."""
    return [var.aval.ndim for eqn in closed.jaxpr.eqns for var in eqn.outvars]


def every_equation(jaxpr):
    """The equations of a jaxpr, and of the bodies of its loops."""
    return [
        own for eqn in jaxpr.eqns for own in (eqn, *(e for inner in inner_jaxprs(eqn) for e in every_equation(inner)))
    ]


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def by_root(x, y):
    """Rows by the root of the mean of their squares, with a dimension that nothing needs."""
    x = x[:, None]
    return (x * lax.rsqrt(jnp.mean(x * x, 2, keepdims=True) + 1e-5) * y)[:, 0]


def turned(x, y):
    """Through a transpose, a repetition, and reductions of one element and of more."""
    laid = lax.broadcast_in_dim(jnp.transpose(x[None, :, None], (3, 0, 2, 1)), (8, 1, 3, 6), (0, 1, 2, 3))
    return jnp.max(laid * y.reshape(8, 1, 1, 1), (1, 2))


def in_a_loop(x, y):
    return lax.scan(lambda own, _: ((own[:, None] * y[None, None] + 1)[:, 0], None), x, length=3)[0]


def given_with_one(x, y):
    """What is given and what comes out keep theirs."""
    return x.reshape(6, 1, 8) * y.reshape(1, 8)[None]


def of_others(x, y):
    """What equations are given that nothing is known of keep theirs."""
    return lax.sort(x[:, None] * y, dimension=1) + lax.cumsum(x[:, None], axis=2)


def sliced(x, y):
    """Slices that take all of a dimension of one element, of an array that has it and of one that is put there."""
    k = y[0].astype(np.int32) * 0 + 2
    laid = (x[:, None] * y)[:, :, None]
    row = lax.dynamic_slice(laid, (k, 0, 5, k), (1, 1, 1, 8)) * 2
    put = lax.dynamic_update_slice(laid, row.reshape(1, 1, 1, 8), (k - 1, k, 0, 0)) + 1
    return lax.slice(put, (1, 0, 0, 0), (5, 1, 1, 8), (2, 1, 1, 1)).reshape(2, 8)


def sliced_empty(x, y):
    """A slice of nothing of a dimension of one element."""
    laid = (x[:, None] * y)[:, :, None]
    return jnp.concatenate([lax.slice_in_dim(laid, 0, 0, axis=1), laid], 1)[:, 0, 0]


CASES = {
    "sliced": (sliced, 2),
    "of nothing": (sliced_empty, 4),
    "rows": (by_root, 2),
    "turned": (turned, 3),
    "in a loop": (in_a_loop, 2),
    "given with one": (given_with_one, 3),
    "of others": (of_others, 3),
}


def test_functions_mean_the_same_with_fewer_dimensions():
    x, y = normal(6, 8), normal(8)
    made = {name: drop_single_dimensions(jax.make_jaxpr(function)(x, y)) for name, (function, _) in CASES.items()}
    runs = [run for name, (function, _) in CASES.items() for run in (function, jax_core.jaxpr_as_fun(made[name]))]
    results = at_once(*(with_slopes(lambda *own, run=run: jax.tree.leaves(run(*own))[0]) for run in runs))(x, y)
    for own, other in zip(results[::2], results[1::2], strict=True):
        for first, second in zip(*map(jax.tree.leaves, (own, other)), strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6)
    for name, (_, most) in CASES.items():
        assert max(ranks(made[name])) == most, made[name]
    (loop,) = (eqn for eqn in made["in a loop"].jaxpr.eqns if eqn.primitive.name == "scan")
    assert max(ranks(loop.params["jaxpr"])) == 2
    plain = jax.make_jaxpr(lambda x, y: x * y)(x, y)
    assert drop_single_dimensions(plain) is plain


@pytest.mark.parametrize("grain", [8, 4])
def test_a_block_of_one_row_is_that_row(grain):
    x, scale = normal(6, 8), normal(8)
    run = cl.lower(lambda graph, x, scale: cl.ops.rms_norm(graph, x, scale, eps=1e-5, grain=grain))
    closed = run.at(x, scale).jaxpr
    shapes = {var.aval.shape for eqn in closed.jaxpr.eqns for var in eqn.outvars}
    assert not any(1 in shape[1:-1] for shape in shapes if len(shape) > 2 and shape[-1] > 1), shapes
    plain = lambda x, scale: x * lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 1e-5) * scale  # noqa: E731
    made = at_once(with_slopes(run), with_slopes(plain))(x, scale)
    for own, other in zip(*map(jax.tree.leaves, made), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def masked(x, y):
    """A triangle of a matrix by its rows and columns, times a column that is repeated after a transpose."""
    rows, columns = lax.iota(np.int32, 6)[:, None] + 1, lax.iota(np.int32, 8)[None]
    return jnp.where(rows >= columns, x, 0) * jnp.max(x, 1)[None].T + y[None]


def by_given(x, y):
    """Rows that something else is given keep their dimension, and so does what values take part in."""
    rows, columns = lax.iota(np.int32, 6)[:, None], lax.iota(np.int32, 8)[None]
    return jnp.where(lax.cumsum(rows, 0) >= columns, x, y[None]), x * (rows + jnp.max(x, 1)[:, None])


REPEATS = {
    "masked": (masked, ["ge"]),
    "in a loop": (lambda x, y: lax.scan(lambda own, _: (masked(own, y), None), x, length=3)[0], ["ge"]),
    "by given": (by_given, []),
}


@pytest.mark.parametrize("name", REPEATS)
def test_positions_that_are_repeated_are_broadcast(name):
    function, broadcast = REPEATS[name]
    x, y = normal(6, 8), normal(8)
    closed = with_repeats(function, x, y)
    made = broadcast_positions(closed)
    for own, other in zip(jax_core.jaxpr_as_fun(made)(x, y), jax_core.jaxpr_as_fun(closed)(x, y), strict=True):
        np.testing.assert_array_equal(own, other)
    eqns = [eqn for eqn in every_equation(made.jaxpr) if eqn.primitive.name in ("ge", "mul")]
    filled = [len({atom.aval.shape for atom in eqn.invars}) == 1 for eqn in eqns]
    assert len(eqns) == 2
    assert [eqn.primitive.name for eqn, is_one in zip(eqns, filled, strict=True) if is_one] == broadcast
    assert str(broadcast_positions(made)) == str(made)


# --- pad_in_common ----------------------------------------------------------------------------------------------------


CUBE = array((4, 3, 5))


def _check(function, *arguments):
    """What the rule makes of a function, which gives what the function gives."""
    closed = jax.make_jaxpr(function)(*arguments)
    found = pad_in_common(closed)
    for own, plain in zip(
        jax_core.jaxpr_as_fun(found)(*arguments), jax_core.jaxpr_as_fun(closed)(*arguments), strict=True
    ):
        np.testing.assert_array_equal(own, plain)
    return closed, found


@pytest.mark.slow
@examples(5)
@given(st.sampled_from(["float32", "int32", "bool"]), st.sampled_from([0, 1]))
def test_what_is_padded_with(dtype, value):
    x = (CUBE * 10).astype(dtype)

    def function(x):
        moved = x.transpose(1, 2, 0)
        return tuple(padded(moved, own, (0, 0, 0), (1, 0, 0), value=value) for own in (BELOW, ABOVE))

    before, after = _check(function, x)
    assert names(before).count("pad") == 2
    assert names(after) == ["pad", "transpose", "pad", "pad"]
    assert after.jaxpr.eqns[0].outvars[0].aval.shape == (5, 3, 5)


@pytest.mark.parametrize("reason", ["not transposed", "nothing in common", "read besides", "other values", "between"])
def test_what_stays(reason):
    def function(x):
        moved = x.reshape(4, 15) if reason == "not transposed" else x.transpose(1, 2, 0).reshape(15, 4)
        common = {"nothing in common": (0, 0, 0), "between": (1, 0, 1)}.get(reason, ABOVE)
        values = (0.0, 1.0) if reason == "other values" else (0.0, 0.0)
        made = [padded(moved, own, common, value=v) for own, v in zip((BELOW, ABOVE), values, strict=True)]
        return (*made, jnp.sin(moved)) if reason == "read besides" else tuple(made)

    before, after = _check(function, CUBE)
    assert names(before) == names(after)


def test_the_gradient_of_differences_between_neighbours():
    """Of columns as rows, as those of weather models: one pad along the columns, before they are transposed."""

    def function(x):
        columns = jnp.moveaxis(x[1:] + x[:-1], -1, 0)[1:]
        return jnp.sum(jnp.sin(columns[1:] - columns[:-1]))

    gradient = jax.grad(function)
    traced = cl.trace(gradient, CUBE)
    assert_alike(traced(CUBE), gradient(CUBE))
    assert_alike(
        jax.jit(jax.grad(lambda x: jnp.sum(traced(x) ** 2)))(CUBE), jax.grad(lambda x: jnp.sum(gradient(x) ** 2))(CUBE)
    )
    for run, transposed in ((traced.lowered, (3, 3, 5)), (lowered_vertices(traced), (9, 5))):
        moved = [own for own in run.jaxpr.jaxpr.eqns if own.primitive.name in ("pad", "transpose")]
        last = [(own.primitive.name, own.outvars[0].aval.shape) for own in moved[-4:]]
        assert last == [("pad", (5, 3, 3)), ("transpose", transposed), ("pad", (4, 3, 5)), ("pad", (4, 3, 5))]
