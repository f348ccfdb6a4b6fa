"""Loops over rows: what they become means the same, and takes and puts rows as JAX's own loops do."""

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
from codelet.jaxprs.within_bounds import within_bounds
from lowering.jaxprs.map_shapes import make_in_shape
from lowering.jaxprs.one_number import as_one_number
from lowering.jaxprs.one_slice import as_one_slice
from lowering.jaxprs.scan_rows import scan_rows
from lowering.jaxprs.slice_before_loops import slice_before_loops
from lowering.jaxprs.slice_order import slices_in_order
from tests.examples import examples, few
from tests.loop_programs import loop_programs
from tests.same_jaxprs import primitives

PASSES = (
    inline,
    as_one_number,
    within_bounds,
    slices_in_order,
    as_one_slice,
    slice_before_loops,
    scan_rows,
    make_in_shape,
)


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


# --- the rules ---------------------------------------------------------------------------------------------------


def keep_the_meaning(case):
    expected = jax.tree.leaves(case.function(*case.arguments))
    closed = jax.make_jaxpr(case.function)(*case.arguments)
    for rule in PASSES:
        closed = rule(closed)
        same(jax.jit(jax_core.jaxpr_as_fun(closed))(*case.arguments), expected)


@examples(8)
@given(loop_programs())
def test_every_rule_keeps_the_meaning(case):
    keep_the_meaning(case)


@pytest.mark.slow
@examples(400)
@given(loop_programs())
def test_many_every_rule_keeps_the_meaning(case):
    keep_the_meaning(case)


def keep_the_slopes(case):
    """Of what the rules make of a program, and what they make of its gradient."""
    gradient = jax.grad(loss_of(case.function), (0, 1, 2))
    if "while" in case.name:
        return
    expected = jax.tree.leaves(gradient(*case.arguments))
    closed = jax.make_jaxpr(case.function)(*case.arguments)
    of_gradient = jax.make_jaxpr(gradient)(*case.arguments)
    for rule in PASSES:
        closed, of_gradient = rule(closed), rule(of_gradient)
    same(jax.jit(jax.grad(loss_of(jax_core.jaxpr_as_fun(closed)), (0, 1, 2)))(*case.arguments), expected)
    same(jax.jit(jax_core.jaxpr_as_fun(of_gradient))(*case.arguments), expected)


@examples(4)
@given(loop_programs())
def test_every_rule_keeps_the_slopes(case):
    keep_the_slopes(case)


@pytest.mark.slow
@examples(150)
@given(loop_programs())
def test_many_every_rule_keeps_the_slopes(case):
    keep_the_slopes(case)


# --- the programs ------------------------------------------------------------------------------------------------


def are_what_jax_makes_of_them(case):
    expected = case.function(*case.arguments)
    traced = cl.trace(case.function, *case.arguments, target=cl.IPU(num_tiles=4))
    same(traced(*case.arguments), expected)
    values = dict(zip((own.name for own in traced.inputs), case.arguments, strict=True))
    outputs = jax.tree.leaves(traced.outputs)
    found = cl.interpret(traced.graph, values, outputs, traced.program)
    same([found[own.name] for own in outputs], jax.tree.leaves(expected))


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
    made = cl.gradient(traced.graph, traced.outputs, list(traced.inputs), program=traced.program)
    program = cl.Sequence(made.forward, made.backward)
    run = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=[made[own] for own in traced.inputs])
    same(jax.jit(run.flat)(list(case.arguments)), expected)


@examples(3)
@given(loop_programs(), st.booleans())
def test_slopes_of_traced_programs_are_those_of_jax(case, as_a_graph):
    slopes_are_those_of_jax(case, as_a_graph)


@pytest.mark.slow
@examples(100)
@given(loop_programs(), st.booleans())
def test_many_slopes_of_traced_programs_are_those_of_jax(case, as_a_graph):
    slopes_are_those_of_jax(case, as_a_graph)


# --- how they run ------------------------------------------------------------------------------------------------

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
    quick=[
        "scan, (7, 1)",
        "reversed scan, (7, 1)",
        "map, (9, 64)",
        "map, (6, 5, 13)",
        "put, (5, 67)",
        "backwards, (7)",
    ],
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
    made = cl.gradient(traced.graph, traced.outputs, list(traced.inputs), program=traced.program)
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


@pytest.mark.parametrize("shape", [(6, 8), (7, 5)])
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
