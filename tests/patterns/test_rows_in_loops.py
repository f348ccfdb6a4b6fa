"""What becomes of rows and columns that loops take and put, by each rule and in traced programs."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.columns_as_rows import columns_as_rows
from lowering.jaxprs.one_number import as_one_number
from lowering.jaxprs.one_slice import as_one_slice
from lowering.jaxprs.recompute import recompute
from lowering.jaxprs.scan_rows import scan_rows, with_slopes_of_scans
from lowering.jaxprs.slice_before_loops import slice_before_loops
from lowering.jaxprs.turns_at_once import turns_at_once
from lowering.platforms import lowering_for
from tests.examples import examples, few
from tests.loop_programs import loop_programs
from tests.patterns.pattern import simplified
from tests.same_jaxprs import after, assert_same_slopes, equations, primitives

# --- scan_rows --------------------------------------------------------------------------------------------------------


def row(x, k):
    return lax.dynamic_index_in_dim(x, k, 0, keepdims=False, allow_negative_indices=False)


def put(a, own, k):
    return lax.dynamic_update_slice(a, own[None], (k, *[0] * own.ndim), allow_negative_indices=False)


X = jnp.arange(200.0)


FIVE = X[:15].reshape(5, 3)


def is_scanned(function, *arguments):
    """Whether no turn takes or puts a row any more."""
    names = primitives(after(scan_rows, function, *arguments))
    return not {"dynamic_slice", "dynamic_update_slice"} & set(names)


def counting(dtype, start, step, length):
    """A loop that takes rows at a counter."""
    by = np.asarray(step).astype(dtype)
    return lambda x: lax.scan(lambda k, _: (k + by, row(x, k)), jnp.asarray(start, dtype), None, length=length)[1]


@few(
    "dtype, start, step, length, expected",
    [
        ("int32", 0, 1, 200, True),
        ("int32", 199, -1, 200, True),
        ("int32", 3, 1, 5, True),
        ("int32", -1, 1, 5, False),
        ("int32", 196, 1, 5, False),
        ("int32", 0, 2, 5, False),
        ("int32", 4, 0, 5, False),
        ("int8", 0, 1, 128, True),
        ("int8", 0, 1, 129, False),
        ("uint8", 3, -1, 4, False),
        ("int32", 0, 1, 1, False),
        ("int32", 0, 1, 0, False),
    ],
    quick=["int32, 0, 1, 0, False"],
)
def test_a_row_is_at_a_counter_that_goes_by_one_within(dtype, start, step, length, expected):
    assert is_scanned(counting(dtype, start, step, length), X) is expected


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_places_that_leave_their_dtype_are_no_rows(dtype):
    places = lambda x: lax.scan(lambda s, k: (s, row(x, k)), 0.0, lax.iota(dtype, 200))[1]  # noqa: E731
    assert is_scanned(places, X) is (dtype != np.int8)
    added = lambda x: lax.scan(lambda s, k: (s, row(x, k + dtype(60))), 0.0, lax.iota(dtype, 100))[1]  # noqa: E731
    assert is_scanned(added, X) is (dtype != np.int8)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("downwards", [False, True])
@pytest.mark.parametrize("few", [0, 2])
def test_rows_that_are_put_are_stacked_in_their_order(reverse, downwards, few):
    """Those that are not put stay as they were."""

    def function(a, x):
        def turn(held, k):
            a, s = held
            at = 4 - k if downwards else k
            s = s + row(x, k)
            return (put(a, s * row(a, at), at), s), s

        return lax.scan(turn, (a, x[0]), jnp.arange(5 - few), reverse=reverse)

    assert is_scanned(function, FIVE + 1, FIVE) or few
    (loop,) = (eqn for eqn in equations(after(scan_rows, function, FIVE + 1, FIVE)) if eqn.primitive.name == "scan")
    assert not {"dynamic_slice", "dynamic_update_slice"} & set(primitives(loop.params["jaxpr"]))
    assert_same_slopes(scan_rows, function, FIVE + 1, FIVE)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("way", ["stacked", "put", "put downwards"])
def test_what_counts_is_made_behind_the_loop(way, reverse, dtype):
    def function(x):
        def turn(held, k):
            at, lines = held
            number = 4 - at if way == "put downwards" else at
            lines = put(lines, number + dtype(2), at) if way != "stacked" else lines
            return (at + dtype(1), lines), (x[0] * k, number, number + dtype(7))

        return lax.scan(turn, (dtype(0), jnp.zeros(5, dtype)), jnp.arange(5.0), reverse=reverse)

    made = after(scan_rows, function, FIVE)
    (loop,) = (eqn for eqn in equations(made) if eqn.primitive.name == "scan")
    assert [var.aval.shape for var in loop.outvars if var.aval.shape] == [(5, 3)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2])
def test_rows_that_are_stacked_as_they_are_given_are_what_is_given(reverse, unroll):
    """Reshaped or not; nor are those that a turn takes of what it is given at once. All others are stacked."""

    def function(x, y, s):
        def turn(held, given):
            (own, at), (other, k) = held, given
            taken = lax.dynamic_slice(x, (k, 0), (1, 3), allow_negative_indices=False).reshape(3)
            own = jnp.tanh(own + other.sum() + taken)
            changed = own + 1, other[::-1], at, s, (k + 1).astype(jnp.float32) * s
            return (own, other), (other, other.reshape(2, 2).reshape(1, 4), taken, k, *changed)

        return lax.scan(turn, (s, y[0]), (y, jnp.arange(5)), reverse=reverse, unroll=unroll)

    y = jnp.cos(X[:20]).reshape(5, 4)
    made = after(scan_rows, function, FIVE, y, FIVE[0])
    (loop,) = (eqn for eqn in equations(made) if eqn.primitive.name == "scan")
    assert [var.aval.shape for var in loop.outvars[2:]] == [(5, 3), (5, 4), (5, 4), (5, 3), (5, 3)]
    assert_same_slopes(scan_rows, function, FIVE, y, FIVE[0])


def test_a_loop_with_effects_stacks_what_it_is_given(capfd):
    def function(x):
        def turn(s, own):
            jax.debug.print("turn {}", own[0])
            return s, own.reshape(1, 3)

        return lax.scan(turn, 0.0, x)[1]

    made = scan_rows(jax.make_jaxpr(function)(FIVE))
    (loop,) = (eqn for eqn in equations(made) if eqn.primitive.name == "scan")
    assert (5, 1, 3) in [var.aval.shape for var in loop.outvars]
    np.testing.assert_array_equal(jax.jit(jax_core.jaxpr_as_fun(made))(FIVE)[0], FIVE[:, None])
    jax.effects_barrier()
    assert capfd.readouterr().out.count("turn") == 5


@pytest.mark.parametrize(
    ("dtype", "start", "step"), [(np.int32, 0, 2), (np.int8, 125, 1), (np.uint8, 3, -1), (np.float32, 0, 1)]
)
def test_what_leaves_its_dtype_or_goes_by_other_steps_is_stacked(dtype, start, step):
    by = np.asarray(step).astype(dtype)
    made = after(scan_rows, lambda x: lax.scan(lambda at, _: (at + by, at), dtype(start), x), FIVE)
    (loop,) = (eqn for eqn in equations(made) if eqn.primitive.name == "scan")
    assert (5,) in [var.aval.shape for var in loop.outvars]


def carried(turn):
    return lambda a, x: lax.fori_loop(0, 5, lambda k, a: turn(k, a, x), a)


NOT_STACKED = {
    "read at another row": lambda k, a, x: put(a, row(a, 4 - k) + row(x, 0), k),
    "read after it is put": lambda k, a, x: (own := put(a, row(x, 0), k)) + 0 * row(own, 0),
    "read in full": lambda k, a, x: put(a, a.sum(0), k),
    "put twice": lambda k, a, x: put(put(a, row(x, 1), k), row(x, 2), 4 - k),
    "put only sometimes": lambda k, a, x: jnp.where(k % 2 == 0, put(a, row(x, 0), k), a),
    "put into what is given": lambda k, a, x: put(x, row(a, 0), k),
    "put at data": lambda k, a, x: put(a, row(x, 0), a[0, 0].astype(int)),
    "two rows": lambda k, a, x: lax.dynamic_update_slice(a, a[:2] + 1, (k, 0)),
    "a part of a row": lambda k, a, x: lax.dynamic_update_slice(a, row(x, 0)[None, :2], (k, 0)),
}


@few("name", NOT_STACKED, quick=["put into what is given"])
def test_what_is_more_than_a_row_is_put_as_it_is(name):
    made = after(scan_rows, carried(NOT_STACKED[name]), FIVE, FIVE * FIVE)
    (loop,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    assert "dynamic_update_slice" in primitives(loop.params["jaxpr"])


def test_an_array_that_is_used_twice_is_scanned_over_where_it_is_a_row():
    def function(x):
        turn = lambda s, k: (s + x[0], row(x, k) * x.sum())  # noqa: E731
        return lax.scan(turn, x[0], jnp.arange(5))

    after(scan_rows, function, FIVE)

    def both(a):
        turn = lambda k, h: (put(h[0], row(h[1], k) + 1, k), put(h[1], row(h[0], k), k))  # noqa: E731
        return lax.fori_loop(0, 5, turn, (a, a))

    assert is_scanned(both, FIVE)


def test_the_same_rows_are_stacked_once():
    def function(a, x):
        own = lambda k, x: jnp.sin(row(x, k))  # noqa: E731
        turn = lambda k, held: (put(held[0], own(k, x), k), put(held[1], own(k, x), 4 - k))  # noqa: E731
        return lax.fori_loop(0, 5, turn, (a, x))

    after(scan_rows, function, FIVE, FIVE + 1)


def test_a_loop_with_effects_stays(capfd):
    def function(x):
        def turn(s, k):
            jax.debug.print("turn {}", k)
            return s, row(x, k)

        return lax.scan(turn, 0.0, jnp.arange(5))[1]

    closed = jax.make_jaxpr(function)(FIVE)
    assert "dynamic_slice" in primitives(scan_rows(closed))
    jax.block_until_ready(jax.jit(jax_core.jaxpr_as_fun(scan_rows(closed)))(FIVE))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split()) == sorted(
        ["turn", "0", "turn", "1", "turn", "2", "turn", "3", "turn", "4"]
    )


def test_lines_without_elements_are_looked_at():
    """They have no first element, and a loop of none stacks none."""

    def function(x):
        none = lax.iota(np.int32, 0) + 1
        stacked = lax.map(lambda k: k + 1, lax.iota(np.int32, 0))
        return lax.fori_loop(0, 3, lambda k, a: a + row(x, k) + none.sum() + stacked.sum(), 0.0)

    after(scan_rows, function, X)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float32, np.int8])
def test_results_that_are_literals_keep_their_dtypes(dtype):
    one = np.asarray(1).astype(dtype)

    def function(x, s):
        return lax.scan(lambda h, k: (one, (row(x, k).astype(dtype) + h, one)), s, jnp.arange(5))

    after(scan_rows, function, X[:5], jnp.asarray(3, dtype))


def test_rows_at_one_number_that_every_turn_stacks():
    def function(x):
        places = lax.scan(lambda count, _: (count + 1, jnp.int32(2)), jnp.int32(0), None, length=3)[1]
        return lax.scan(lambda total, k: (total + lax.dynamic_index_in_dim(x, k, 0, False), k), x[0], places)

    after(simplified, function, jnp.arange(12.0).reshape(4, 3))


def test_the_gradient_of_rows_is_scanned_over_too():
    loss = lambda x: jnp.sum(lax.scan(lambda s, k: (jnp.tanh(s + row(x, k)), s), x[0], jnp.arange(5))[1])  # noqa: E731
    ruled = jax.grad(lambda x: jax_core.jaxpr_as_fun(scan_rows(inline(jax.make_jaxpr(loss)(FIVE))))(x)[0])
    names = primitives(jax.make_jaxpr(ruled)(FIVE))
    assert not {"dynamic_slice", "dynamic_update_slice"} & set(names)


OWN = {
    "of itself": lambda k, a, x: put(a, jnp.sin(row(a, k)), k),
    "with another's": lambda k, a, x: put(a, jnp.sin(row(a, k)) * row(x, k), k),
    "with all of another": lambda k, a, x: put(a, row(a, k) @ x[:3] + row(x, 4 - k), k),
    "from the last": lambda k, a, x: put(a, jnp.cos(row(a, 4 - k)) + k, 4 - k),
}


@few("name", OWN, quick=["of itself"])
def test_a_loop_that_changes_rows_by_themselves_keeps_the_array(name):
    """And has the slopes of the scan over these, batched and differentiated twice too."""
    function, arguments = carried(OWN[name]), (FIVE / 7, FIVE / 9 + 1)
    (loop,) = (eqn for eqn in after(scan_rows, function, *arguments).jaxpr.eqns if eqn.primitive.name == "scan")
    assert primitives(loop.params["jaxpr"]).count("dynamic_update_slice") == 1
    called = lambda closed: with_slopes_of_scans(scan_rows(closed), recompute)  # noqa: E731
    assert_same_slopes(called, function, *arguments)
    made = jax_core.jaxpr_as_fun(called(inline(jax.make_jaxpr(function)(*arguments))))
    loss = lambda own: lambda a, x: jnp.sum(jnp.sin(own(a, x)[0]) * FIVE)  # noqa: E731
    slopes = [jax.grad(loss(own)) for own in (made, lambda a, x: [function(a, x)])]
    assert "dynamic_update_slice" not in primitives(jax.make_jaxpr(slopes[0])(*arguments))
    several = [jnp.stack([own, own + 1]) for own in arguments]
    twice = [jax.vmap(jax.grad(lambda a, x, slope=slope: jnp.sum(slope(a, x) ** 2))) for slope in slopes]
    found, expected = (jax.jit(own)(*several) for own in twice)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_rows_of_integers_are_changed_in_place():
    function = carried(lambda k, a, x: put(a, row(a, k) * 2 + row(x, k), k))
    called = lambda closed: with_slopes_of_scans(scan_rows(closed), recompute)  # noqa: E731
    made = after(called, function, FIVE.astype(int), FIVE.astype(int) + 1)
    assert "dynamic_update_slice" in primitives(made)


# --- traced programs --------------------------------------------------------------------------------------------------


def same(found, expected, tolerance=2e-5):
    """Whether two trees of arrays are the same, but for rounding."""
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert own.shape == other.shape
        assert own.dtype == other.dtype
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)


def loss_of(function):
    """A number of all that a function gives."""

    def loss(*arguments):
        return sum(jnp.sum(jnp.sin(own) * (1 + k)) for k, own in enumerate(jax.tree.leaves(function(*arguments))))

    return loss


def are_what_jax_makes_of_them(case):
    expected = case.function(*case.arguments)
    traced = cl.trace(case.function, *case.arguments, target=cl.IPU(num_tiles=4))
    same(traced(*case.arguments), expected)
    values = dict(zip((own.name for own in traced.inputs), case.arguments, strict=True))
    outputs = jax.tree.leaves(traced.outputs)
    found = cl.interpret(traced.graph, values=values, outputs=outputs, program=traced.program)
    same([found[own.name] for own in outputs], jax.tree.leaves(expected))


@pytest.mark.slow
@examples(6)
@given(loop_programs())
def test_traced_programs_are_what_jax_makes_of_them(case):
    are_what_jax_makes_of_them(case)


@pytest.mark.slow
@examples(150)
@given(loop_programs())
def test_many_traced_programs_are_what_jax_makes_of_them(case):
    are_what_jax_makes_of_them(case)


def slopes_are_those_of_jax(case, as_a_graph):
    if "while" in case.name:
        return
    loss = loss_of(case.function)
    expected = jax.jit(jax.grad(loss, (0, 1, 2)))(*case.arguments)
    traced = cl.trace(loss, *case.arguments, target=cl.IPU(num_tiles=4))
    if not as_a_graph:
        same(jax.jit(jax.grad(traced, (0, 1, 2)))(*case.arguments), expected)
        return
    made = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    program = cl.Sequence(made.forward, made.backward)
    run = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=[made[own] for own in traced.inputs])
    same(jax.jit(run.flat)(list(case.arguments)), expected)


@pytest.mark.slow
@examples(3)
@given(loop_programs(), st.booleans())
def test_slopes_of_traced_programs_are_those_of_jax(case, as_a_graph):
    slopes_are_those_of_jax(case, as_a_graph)


@pytest.mark.slow
@examples(100)
@given(loop_programs(), st.booleans())
def test_many_slopes_of_traced_programs_are_those_of_jax(case, as_a_graph):
    slopes_are_those_of_jax(case, as_a_graph)


ROWS = [(7,), (7, 1), (9, 64), (5, 67), (6, 5, 13)]


LOOPS = {
    "scan": lambda x: lax.scan(lambda s, row: (own := jnp.tanh(s + row), own), x[0], x)[1],
    "reversed scan": lambda x: lax.scan(lambda s, row: (own := jnp.tanh(s + row), own), x[0], x, reverse=True)[1],
    "map": lambda x: lax.map(lambda row: jnp.tanh(row) * 2, x),
    "put": lambda x: lax.fori_loop(0, len(x), lambda k, x: x.at[k].set(0.5 * jnp.sin(x[k])), x),
    "backwards": lambda x: lax.fori_loop(
        0, len(x), lambda k, x: x.at[len(x) - 1 - k].set(0.5 * jnp.sin(x[len(x) - 1 - k])), x
    ),
}


IN_PLACE = {"dynamic_slice", "dynamic_update_slice"}


MOVES = {"gather", "scatter", "scatter-add", "transpose", "concatenate", *IN_PLACE}


def inside_loops(closed):
    """The primitives in the loops of a jaxpr."""
    found = set()
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "scan":
            found |= set(primitives(eqn.params["jaxpr"]))
    return found


@few(
    "name, shape",
    itertools.product(LOOPS, ROWS),
    quick=["scan, (7, 1)", "put, (5, 67)"],
)
def test_rows_are_scanned_over_and_stacked(name, shape):
    """By the loop itself, whatever the cut of a row over tiles, and in the gradient too.

    A loop that changes each row by itself keeps the array; its gradients are those of rows that are scanned over.
    """
    function = LOOPS[name]
    x = jnp.linspace(-1, 1, math.prod(shape)).reshape(shape)
    traced = cl.trace(function, x)
    in_place = IN_PLACE if name in ("put", "backwards") else set()
    assert inside_loops(traced.lowered.jaxpr) & MOVES == in_place
    same(traced(x), function(x))
    loss = loss_of(function)
    names = primitives(jax.make_jaxpr(jax.grad(lambda x: loss_of(traced)(x)))(x))
    assert not set(names) & MOVES
    same(jax.grad(lambda x: loss_of(traced)(x))(x), jax.grad(loss)(x))
    traced = cl.trace(loss, x)
    made = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    program = cl.Sequence(made.forward, made.backward)
    run = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=[made[own] for own in traced.inputs])
    assert not inside_loops(run.jaxpr) & (MOVES - in_place)
    (slope,) = run.flat([x])
    same(slope, jax.grad(loss)(x))


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("behind", [1, 2])
def test_rows_of_what_is_written_are_slices(along, behind):
    """A row that was written before is taken from what the loop carries, and put there: one slice each."""

    def function(a):
        a = jnp.moveaxis(a, along, 0)
        turn = lambda k, a: a.at[k].set(a[k - behind] * 0.9 + a[k])  # noqa: E731
        return jnp.moveaxis(lax.fori_loop(behind, len(a), turn, a), 0, along)

    x = jnp.linspace(-1, 1, 67 * 70).reshape(67, 70)
    traced = cl.trace(function, x)
    same(traced(x), function(x))
    found = inside_loops(traced.lowered.jaxpr)
    assert found & MOVES == {"dynamic_slice", "dynamic_update_slice"}
    assert "select_n" not in found  # places are known to lie within


@pytest.mark.parametrize("name", ["put", "backwards"])
@pytest.mark.parametrize("shape", [(4000, 60, 60), (1000, 3601)])
def test_rows_of_tall_arrays_are_scanned_over(name, shape):
    """Of which tiles hold rows, so that each would look whether the row is one of its own."""
    lowered = cl.trace(LOOPS[name], jax.ShapeDtypeStruct(shape, np.float32)).lowered
    assert inside_loops(lowered.jaxpr) & {*MOVES, "select_n"} == IN_PLACE


def sweeps(a):
    """Means of neighbours in turn, of which those before are new: rows in rows."""

    def row(above, own):
        here, below = own
        known = above[:-2] + above[2:] + here[1:-1] + here[2:] + below[1:-1]
        new = here.at[1:-1].set(lax.scan(lambda left, known: ((known + left) / 6,) * 2, here[0], known)[1])
        return new, new

    return lax.fori_loop(0, 3, lambda _, a: a.at[1:-1].set(lax.scan(row, a[0], (a[1:-1], a[2:]))[1]), a)


@few("shape", [(6, 8), (7, 5)], quick=["(6, 8)"])
def test_rows_of_a_part_of_what_a_loop_reads_are_scanned_over(shape):
    """In the gradient no turn of the inner loop makes an array as large as what the outer one carries."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    traced = cl.trace(sweeps, a, target=cl.IPU(num_tiles=4))
    gradient = jax.grad(loss_of(traced))
    same(*jax.jit(lambda: ((traced(a), gradient(a)), (sweeps(a), jax.grad(loss_of(sweeps))(a))))())

    def largest(jaxpr, inside):
        """The most elements of what is made in loops in loops."""
        found = 0
        for eqn in jaxpr.eqns:
            if inside > 1:
                found = max(found, *(math.prod(var.aval.shape) for var in eqn.outvars))
            for own in eqn.params.values():
                body = getattr(own, "jaxpr", own)
                if isinstance(body, jax_core.Jaxpr):
                    found = max(found, largest(body, inside + (eqn.primitive.name == "scan")))
        return found

    assert largest(jax.make_jaxpr(gradient)(a).jaxpr, 0) <= max(shape)


def test_slices_that_a_turn_reads_whole_stay():
    def function(x, y):
        turn = lambda s, k: (s + jnp.sum(x[1:]) + lax.dynamic_slice(x[:-1], (k, 0), (1, 2)).sum(), s)  # noqa: E731
        return lax.scan(turn, y, jnp.arange(3, dtype=jnp.int32))

    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
    closed = inline(jax.make_jaxpr(function)(x, 1.0))
    made = slice_before_loops(closed)
    same(jax_core.jaxpr_as_fun(made)(x, 1.0), function(x, 1.0))
    (loop,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    assert primitives(loop.params["jaxpr"]).count("slice") == 1
    assert primitives(made).count("slice") == primitives(closed).count("slice")


def test_zeros_that_a_loop_is_given_are_not_added():
    """A slice among them is added where it lies; among what is made by element, all is added."""
    zeros = jnp.zeros((4, 3))

    def function(x, y):
        def turn(s, k):
            row = lax.dynamic_update_slice(zeros, y, (k, 0))
            return s + row, jnp.sin(x) + row

        return lax.scan(turn, x, jnp.arange(4, dtype=jnp.int32))

    x, y = (jnp.asarray(np.random.default_rng(k).normal(size=(n, 3)), jnp.float32) for k, n in enumerate((4, 1)))
    made = as_one_slice(as_one_number(inline(jax.make_jaxpr(function)(x, y))))
    same(jax_core.jaxpr_as_fun(made)(x, y), function(x, y))
    (loop,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    assert [eqn.primitive.name for eqn in loop.params["jaxpr"].jaxpr.eqns].count("dynamic_slice") == 1


# --- columns_as_rows --------------------------------------------------------------------------------------------------


def array(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape), jnp.float32)


def test_columns_of_what_is_made_by_element_are_scanned_over():
    def function(x):
        turned = 0.5 * x.T
        both = turned + 0.1 * jnp.pad(turned, ((1, 2), (0, 0)))[:-3]
        return lax.scan(lambda state, row: (jnp.tanh(state + row), state), jnp.zeros(x.shape[:1]), both)

    x = array(70, 90)
    run = cl.trace(function, x, target=cl.IPU(num_tiles=4)).lowered
    assert "dynamic_slice" not in primitives(run.jaxpr)


def test_columns_of_what_is_given_stay():
    def function(x):
        turn = lambda state, k: (state + lax.dynamic_slice_in_dim(x, k, 1, 1), None)  # noqa: E731
        return lax.scan(turn, jnp.zeros((len(x), 1)), jnp.arange(x.shape[1]))[0]

    assert "transpose" not in primitives(after(columns_as_rows, function, array(5, 4)))


# --- turns_at_once ----------------------------------------------------------------------------------------------------


THREE = np.arange(3.0, dtype=np.float32)


def turns(turn, state=None, **settings):
    """A loop over rows, as `jax.lax.scan` has it."""
    return lambda x: lax.scan(turn, state, x, **settings)


def count(k, own):
    return k + 1, own * 2


def count_both(held, own):
    return (held[1], held[0] + held[1]), own + FIVE


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (turns(lambda _, own: (None, jnp.sin(own) * THREE)), []),
        (turns(lambda _, own: (None, own[::1, None].T), reverse=True, unroll=2), []),
        (lambda x: turns(count, jnp.int32(3))(x)[1], []),
        (turns(count, jnp.int32(3)), ["scan"]),  # of the numbers alone
        (turns(count_both, (jnp.int32(1), jnp.int32(2))), ["scan"]),
        (turns(lambda _, own: (None, lax.scan(lambda _, one: (None, one * 2), None, own)[1])), ["scan"]),
    ],
    ids=["map", "moved", "unread number", "read number", "numbers", "within"],
)
def test_turns_that_map_rows_are_at_once(loop, expected):
    made = after(turns_at_once, loop, FIVE)
    assert [name for name in primitives(made) if name in ("scan", "while")] == expected
    assert all(
        FIVE.shape[1:] not in {var.aval.shape for var in eqn.invars} for eqn in made.eqns if eqn.params.get("jaxpr")
    )
    assert_same_slopes(turns_at_once, lambda x: loop(x)[-1] if isinstance(loop(x), tuple) else loop(x), FIVE)


@pytest.mark.parametrize(
    "loop",
    [
        turns(lambda last, own: (own, own + last), FIVE[0]),
        turns(lambda total, own: (total + own.sum(), own), jnp.float32(0)),
        turns(lambda _, own: (None, own - own.max())),
        turns(lambda k, own: (k + 1, own * k), jnp.float32(1)),
        turns(lambda _, own: (None, own[jnp.array([0, 0, 1])])),
        turns(lambda k, _: (k + 1, FIVE), jnp.int32(0)),
        lambda x: lax.fori_loop(0, 5, lambda k, a: a.at[k].set(a[k] * 2), x),
    ],
    ids=["of the last", "sum", "reduced", "number", "gathered", "no rows", "in place"],
)
def test_other_turns_stay(loop):
    assert "scan" in primitives(after(turns_at_once, loop, FIVE))


def test_turns_are_at_once_on_a_gpu_and_in_gradients():
    def function(x):
        return lax.fori_loop(0, 5, lambda k, a: a.at[k].set(jnp.sin(a[k]) * 2), x)

    def loops(platform):
        with lowering_for(platform):
            traced = cl.trace(function, FIVE)
            gradient = jax.grad(lambda x: traced(x).sum())
            np.testing.assert_allclose(gradient(FIVE), 2 * np.cos(FIVE), rtol=1e-6)
            return [eqn for eqn in equations(jax.make_jaxpr(gradient)(FIVE)) if eqn.primitive.name == "scan"]

    of_rows = lambda eqn: any(var.aval.shape for var in eqn.invars)  # noqa: E731
    assert any(map(of_rows, loops("cpu")))
    assert not any(map(of_rows, loops("gpu")))
