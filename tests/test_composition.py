"""How rules for cycles compose over a codelet: loops, views, numbers, turns, assembly or compiled."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.core import Primitive

import codelet as cl
from ipu_backend.model.body_cycles import ENTRY_CYCLES, TURN_CYCLES, WHILE_TURNS, jaxpr_cost
from ipu_backend.model.costs import Mode, UnknownCyclesWarning
from ipu_backend.model.cycle_rules import cycle_rules
from ipu_backend.model.library_rules import THREEFRY_CYCLES
from tests.estimates import F16, F32, MK2, cycles, estimate, ones


def test_neighbouring_elementwise_equations_are_one_loop():
    x = ones(16)
    # assembly: max(A, L + S) for two elements; compiled: A + L + S + 3 for one, or + 1 for two
    for mode, turns, multiply_add, exponential in (
        ({}, 8, max(2, 3 + 1), max(6 + 1, 2 + 1)),
        ({"compiled": True}, 16, 2 + 3 + 1 + 3, 3 + 1 + 2 + 1 + 3),
        ({"compiled": True, "vectorised": True}, 8, 2 + 3 + 1 + 1, 6 + 1 + 2 + 1 + 1),
    ):
        assert cycles(lambda x, y, z: x * y + z, x, x, x, **mode) == 29 + turns * multiply_add
        assert cycles(lambda x, y: jnp.exp(x) + y, x, x, **mode) == 33 + turns * exponential
    # A reduction between two loops: both pay their bases.
    assert cycles(lambda x: x * x.sum(), x) == (17 + 8) + (20 + 8 * 2)
    # Of what a loop computes it is part of the loop.
    subtracted_and_summed, divided = 33 + 8 * (6 + 1 + 1) + 12, 20 + 8 * 6
    assert cycles(jax.nn.softmax, x) == (17 + 8) + 1 + subtracted_and_summed + divided
    # What a loop reads twice it loads once; what nothing else reads it does not store.
    assert cycles(lambda x, y: (x + y) * x - y, x, x, compiled=True) == 29 + 16 * (3 + 2 + 1 + 3)
    assert cycles(lambda x, y: (x + y, (x + y) * x), x, x, compiled=True) == 29 + 16 * (3 + 2 + 2 + 3)
    # What is the same for all is held in a register; a row that is repeated is loaded.
    assert cycles(lambda x, s: (x + s) * s + x[0], x, 1.0, compiled=True) == 20 + 16 * (3 + 1 + 1 + 3)
    assert cycles(lambda x, b: (x + b) * x, ones(4, 4), ones(4), compiled=True) == 29 + 16 * (2 + 2 + 1 + 3)
    # Another order of elements is another loop: what it reads is stored first.
    assert cycles(lambda x: (x * x)[1:] + 1, x) == (29 + 8 * 3) + (20 + 8 * 2)
    assert cycles(lambda x: jnp.clip(x, 0, 1) + 1, x) == 20 + 8 * 3


def test_the_same_function_called_twice_computes_twice():
    half = jax.jit(lambda x: jnp.exp(x) * 0.5)
    x = ones(16)
    assert cycles(lambda x, y: half(x) + half(y), x, x) == 33 + 8 * (2 * (6 + 1) + 1)
    assert cycles(lambda x, y: (half(x), half(y)), x, x, compiled=True) == 33 + 16 * (2 * (3 + 1) + 2 + 2 + 3)


_STEPS = {"add": (2, 1, 29), "mul": (2, 1, 29), "exp": (1, 3, 33), "tanh": (1, 6, 17)}  # operands, arithmetic, base


@given(st.data())
def test_any_operations_on_one_shape_are_one_loop(data):
    steps = data.draw(st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=6))
    reads, arrays = set(), 3  # of which the first are the operands
    taken = []
    for name in steps:
        taken.append([data.draw(st.integers(0, arrays - 1)) for _ in range(_STEPS[name][0])])
        reads.update(own for own in taken[-1] if own < 3)
        arrays += 1
    stored = data.draw(st.sets(st.integers(3, arrays - 1), min_size=1))

    def run(*held):
        held = list(held)
        for name, own in zip(steps, taken, strict=True):
            held.append(getattr(jax.lax, name)(*(held[k] for k in own)))
        return [held[k] for k in stored]

    arithmetic, base = sum(_STEPS[name][1] for name in steps), max(_STEPS[name][2] for name in steps)
    turn = arithmetic + len(reads) + len(stored) + 3
    assert cycles(run, *[ones(10)] * 3, compiled=True) == base + 10 * turn
    if len(steps) > 1:
        in_vectors = sum(2 * _STEPS[name][1] if name in ("exp", "tanh") else 1 for name in steps)
        assert cycles(run, *[ones(10)] * 3) == base + 5 * max(in_vectors, len(reads) + len(stored))


def test_reductions_of_what_a_loop_computes_are_part_of_it():
    x, rows = ones(16), ones(4, 6)
    assert cycles(lambda x: jnp.exp(x).max(), x, compiled=True) == 33 + 16 * (3 + 1 + 1) + 12
    assert cycles(lambda x: jnp.exp(x).max(1), rows, compiled=True) == 33 + 24 * (3 + 1 + 1) + 4 * 12
    # what is read beyond the loop too is stored; what needs the sum is another loop
    stored = 33 + 16 * (3 + 1 + 1 + 1 + 3) + 12
    assert cycles(lambda x: (jnp.exp(x), jnp.exp(x).max()), x, compiled=True) == 33 + 16 * (6 + 1 + 1 + 1 + 3) + 12
    divided = 20 + 16 * (5 + 1 + 1 + 3)
    assert cycles(lambda x: jax.jit(jnp.exp)(x) / 2, x, compiled=True) == 33 + 16 * (3 + 5 + 1 + 1 + 3)
    own = lambda x: (lambda e: e / e.max())(jnp.exp(x))  # noqa: E731
    assert cycles(own, x, compiled=True) == stored + divided
    # along the first axis the elements of a result are no neighbours: the loop stores, and the reduction reads
    across = cycles(lambda x: jnp.exp(x).max(0), rows, compiled=True) - (33 + 24 * (3 + 1 + 1 + 3))
    assert across == cycles(lambda x: x.max(0), rows, compiled=True)
    # workers that share it each find one, of which one makes the last
    shared = estimate(lambda x: jnp.exp(x).max(), x, workers=6, issue="compiled")
    assert (shared.worker, shared.supervisor) == (33 + 3 * 5 + 12 + 17 + 12 + 6 * 2, 20 + 11)


def test_one_element_pays_no_base():
    assert cycles(jnp.add, 1.0, 2.0) == ENTRY_CYCLES + 3
    assert cycles(jnp.add, 1.0, 2.0, compiled=True) == ENTRY_CYCLES + 4
    assert cycles(lambda x, b: x.sum() + b, ones(16), 1.0) == (17 + 8) + 2
    assert cycles(jnp.add, ones(1), ones(1)) == ENTRY_CYCLES + 3
    assert cycles(jnp.add, ones(0), ones(0)) == ENTRY_CYCLES


def test_views_are_free_and_copies_are_not():
    x = ones(4, 4)
    assert cycles(lambda x: x[1:3].reshape(-1) + 1, x) == 20 + 4 * 2
    assert cycles(lambda x: (x + 1).reshape(-1), x) == 20 + 8 * 2
    assert cycles(lambda x: x, x) == cycles(lambda x: x.reshape(-1), x) == 23 + 8
    assert cycles(lambda x: x[1:3], x) == 23 + 4
    assert cycles(lambda x: x.T + 0, x) == (27 + 11 + 2 * (6 + 3)) + (20 + 8 * 2)
    assert cycles(lambda x: x[None].transpose(1, 0, 2) + 1, x) == 20 + 8 * 2
    assert cycles(lambda x: x, 1.0) == ENTRY_CYCLES + 2
    assert cycles(lambda x: jnp.concatenate([x, x]), ones(8)) == 2 * 23 + 8
    assert estimate(lambda x: {"x": x, "y": x + 1}, x).worker == 20 + 8 * 2  # what stays in place is no copy
    assert estimate(lambda x: {"x": 0.0, "y": x}, np.float32(1)).worker == ENTRY_CYCLES + 2 * 2


def test_powers_casts_and_random_numbers():
    x = ones(16)
    assert cycles(lambda x: x**2, x) == 17 + 8 * 2
    assert cycles(lambda x: x**3, x) == 17 + 8 * 2
    assert cycles(lambda x: x**7, x) == 17 + 8 * 4
    assert cycles(lambda x: 1 / x**2, x, compiled=True) == 20 + 16 * (1 + 5 + 1 + 1 + 3)
    assert cycles(lambda x: x.astype(jnp.float16), x) == 5 + 19 + 2 * 4 + 2
    assert cycles(lambda x: x.astype(jnp.int32), x) == 5 + 19 + 2 * 16
    # within a loop only its own instructions: two for four elements
    assert cycles(lambda x: jnp.exp(x).astype(jnp.float16), x) == 33 + 8 * (6 + 1)

    def draw(data, site):
        return jax.random.bits(jax.random.fold_in(jax.random.wrap_key_data(data), site), (5,))

    # a block for the key, three for five words, and the site's cast
    assert cycles(draw, jnp.zeros(2, jnp.uint32), jnp.uint32(1)) == 4 * THREEFRY_CYCLES


def test_a_vector_beside_a_matrix():
    x, row, column = ones(8, 64), ones(64), ones(8, 1)
    assert cycles(jnp.add, x, row) == cycles(jnp.multiply, row, x) == 17 + 7 + 64 * (8 + 2 * 8)
    assert cycles(jnp.divide, x, row) == 19 + 10 + 32 * (11 + 6 * 7)
    assert cycles(jnp.multiply, x, column) == 15 + 8 * (7 + 65)
    halves = [own.astype(F16) for own in (x, row, column)]
    assert cycles(jnp.add, halves[0], halves[1]) == 19 + 5 + 2 + 4 + 8 * (15 + 2 * 7) + 1
    assert cycles(jnp.multiply, halves[0], halves[1]) == 19 + 9 + 3 + 16 * (9 + 8) + 1
    assert cycles(jnp.add, halves[0], halves[2]) == 15 + 8 * (7 + 2 * 67 // 4)
    whole = estimate(lambda x, b: x + b, x, row, workers=6)
    assert (whole.worker, whole.supervisor) == (17 + 7 + 64 * (8 + 2 * 2), 13 + 6 + 18)
    # no such vertex: a number by a row, a row of another dtype's, compiled
    assert cycles(lambda x, b: b / x, x, row) == 29 + 256 * 10
    assert cycles(jnp.add, x, row, compiled=True) == 29 + 512 * (1 + 2 + 1 + 3)


def test_choices_and_tests():
    x, chosen = ones(16), np.ones(16, bool)
    assert cycles(jnp.where, chosen, x, x) == 11 + 5 * 16
    assert cycles(lambda m: jnp.where(m, np.float32(1), np.float32(2)), chosen) == 18 + 4 * 16
    assert cycles(lambda x, y, s: jax.lax.select(s, x, y), x, x, True) == 47 + 16
    assert cycles(lambda lo, x: jax.lax.clamp(lo, x, lo), np.float32(0), x) == 11 + 2 * 17 // 2
    assert cycles(jnp.isnan, x) == 17 + (3 + 4) * 17 // 2
    assert cycles(jnp.isfinite, x) == 17 + (5 + 4) * 17 // 2
    # within a loop a comparison is one instruction, as a choice is
    assert cycles(lambda x: jnp.where(x > 0, x, 0.0), x, compiled=True) == 20 + 16 * (2 + 1 + 1 + 3)


def test_control_flow():
    x, once = ones(16), 20 + 8 * 2
    assert cycles(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, None, 10)[0], x) == 10 * (once + TURN_CYCLES)

    def branch(x):
        return jax.lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x * 2 * 3, x)

    def plain(x):
        return (x[0] > 0).astype(jnp.int32)

    assert cycles(branch, x) == cycles(plain, x) - ENTRY_CYCLES + TURN_CYCLES + once


def test_turns_of_loops():
    x, turn = ones(16), (20 + 8 * 2) + TURN_CYCLES + 2 + 2  # what counts: a sum, a comparison, each to be stored

    def until(last, first=0):
        return lambda x: jax.lax.while_loop(lambda c: c[0] < last, lambda c: (c[0] + 1, c[1] * 2), (first, x))[1]

    def as_long_as_small(x):
        return jax.lax.while_loop(lambda x: x[0] < 3, lambda x: x * 2, x)

    assert cycles(until(10), x) == 10 * turn
    assert cycles(until(10, 4), x) == 6 * turn
    assert cycles(until(4, 10), x) == cycles(lambda x: x, x)

    def until_small_or(last):
        asks = lambda c: (c[0] < last) & (c[1][0] < 3)  # noqa: E731
        return lambda x: jax.lax.while_loop(asks, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]

    with pytest.warns(cl.UnknownCyclesWarning, match="at most 100, which are counted; cl.codelet"):
        at_most = estimate(until_small_or(100), x, issue="assembly")
    assert at_most.guessed == at_most.worker > 100 * turn
    down = lambda x: jax.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] - 1, c[1]), (0, x))[1]  # noqa: E731
    with pytest.warns(cl.UnknownCyclesWarning, match="16 are counted"):
        assert estimate(down, x).guessed
    bound = lambda n, x: jax.lax.fori_loop(0, n, lambda _, x: x * 2, x)  # noqa: E731
    assert estimate(bound, 5, x, trip_count=10, issue="assembly").worker == 10 * (turn + 1)
    assert estimate(as_long_as_small, x, trip_count=lambda x: x.size, issue="assembly").guessed == 16 * TURN_CYCLES
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, again = (estimate(as_long_as_small, x, issue="assembly") for _ in range(2))
    assert found == again
    assert found.guessed == found.worker == WHILE_TURNS * (20 + 8 * 2 + TURN_CYCLES + 2)
    assert len(told) == 1
    assert (told[0].filename, told[0].lineno) == (__file__, as_long_as_small.__code__.co_firstlineno)
    assert "codelet 'as_long_as_small' (" in str(told[0].message)
    assert "16 are counted; cl.codelet(trip_count=...) says it" in str(told[0].message)


def test_calls_and_derivative_rules_are_inlined():
    x = ones(16)

    def twice(x):
        return 2 * x

    assert cycles(jax.jit(twice), x) == cycles(jax.checkpoint(twice), x) == cycles(twice, x)
    assert cycles(lambda x: jax.nn.relu(x) + 1, x) == 20 + 8 * 2


def test_a_primitive_without_a_rule_is_named_once():
    odd = Primitive("odd_one")
    odd.def_abstract_eval(lambda x: x)

    def user(x):
        return odd.bind(x)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert {estimate(user, ones(4, 4)).worker for _ in range(2)} == {100 * 32}
    assert len(told) == 1
    assert "the primitive 'odd_one'" in str(told[0].message)
    assert "give the codelet cycles=" in str(told[0].message)


# --- assembly or compiled, one worker or all -----------------------------------------------------------


def test_what_is_no_vertex_of_poplibs_is_compiled():
    x = ones(16)
    for function in (lambda x: jnp.exp(x), lambda x: jax.nn.relu(x), lambda x: x**2, lambda x: x[1:] + 1):
        found = estimate(function, x)
        assert (found.worker, found.if_assembly) == (cycles(function, x), None)
    whole = estimate(lambda x, y: x + y, x, x)
    assert (whole.worker, whole.if_assembly, whole.fitted, whole.guessed) == (29 + 8 * 3, None, 0, 0)
    two = estimate(lambda x, y, z: x * y + z, x, x, x)
    assert (two.worker, two.if_assembly) == (29 + 16 * 9, 29 + 8 * 4)
    assert (two.fitted, two.guessed) == (16 * 3, 0)
    said = estimate(lambda x, y, z: x * y + z, x, x, x, issue="assembly")
    assert (said.worker, said.if_assembly) == (29 + 8 * 4, None)
    assert estimate(lambda x, y: x + y, x, x, issue="compiled").worker == 29 + 16 * 7
    assert estimate(lambda x, y: x + y, x, x, issue="compiled", vectorised=True).worker == 29 + 8 * 5
    # nothing that PopLibs lacks is one of its vertices, and its cycles are guesses
    guess = estimate(lambda x: jnp.sinh(x), x)
    assert (guess.worker, guess.guessed, guess.if_assembly) == (17 + 16 * (102 + 5), 16 * 102, 17 + 8 * 204)
    assert estimate(lambda x, y: x + y, x, x, cycles=lambda x, y: 7).if_assembly is None


@pytest.mark.parametrize("n", [100, 1000, 6000])
def test_vertices_of_all_workers(n):
    x, half, own = ones(n), ones(n, dtype=F16), math.ceil(n / 6)

    def tile(function, *arguments):
        found = estimate(function, *arguments, workers=6)
        assert found.shared
        return found.tile_cycles(6)

    assert tile(lambda x, y: x + y, x, x) == 6 * (29 + math.ceil(own / 2) * 3) + 11
    assert tile(lambda x, y: {"x": x + y}, x, x) == 6 * (58 + math.ceil(own / 2) * 3) + 11
    assert tile(lambda x, y: {"y": jnp.maximum(x, y)}, x, x) == 6 * (58 + math.ceil(own / 2) * 4) + 11
    assert tile(lambda x: x / 3, half) == 6 * (20 + math.ceil(own / 2) * 8) + 11
    assert tile(lambda x: jnp.log1p(x), x) == 6 * (17 + 22 * (own + 1) // 2) + 20
    assert tile(lambda x: {"x": jnp.tanh(x)}, x) == 6 * (55 + math.ceil(own / 2) * 10) + 20
    assert tile(lambda x: x.astype(F16), x) == 12 + 6 * (18 + 21 + 2 * (own // 4) + 2 * (own % 4).bit_count())
    # several operations in one loop, started once: as one of two operands if there is any
    assert tile(lambda x: jnp.exp(x).astype(F16), x) == 6 * (33 + own * (3 + 1 + 1 + 1 + 3)) + 20
    assert tile(lambda x, y: jnp.exp(x) + y, x, x) == 6 * (33 + own * (3 + 1 + 2 + 1 + 3)) + 11


def test_the_table_names_primitives():
    assert {"add", "dot_general", "exp", "reduce_sum", "scan", "gather", "scatter-add"} <= cycle_rules.keys()
    assert all(callable(rule) for rule in cycle_rules.values())


def test_dtypes_the_machine_lacks_take_longer():
    x = ones(16)
    with jax.enable_x64(True):
        assert cycles(jnp.add, ones(16, dtype=np.float64), ones(16, dtype=np.float64)) > 5 * 53
        assert cycles(jnp.multiply, ones(16, dtype=np.int64), ones(16, dtype=np.int64)) == 26 + 30 * 16
    # What is converted is converted where it is read and where it is written, and nowhere between: said, not silent.
    for dtype, within in ((jnp.bfloat16, F32), (jnp.float8_e4m3fn, F16)):
        small = ones(16, dtype=dtype)
        with pytest.warns(UnknownCyclesWarning, match=f"the machine has no {jnp.dtype(dtype)}: .* a guess"):
            found = estimate(lambda x, y: jnp.exp(x * y) + x, small, small)
        inside = estimate(lambda x, y: jnp.exp(x * y) + x, x.astype(within), x.astype(within))
        assert found.worker == inside.worker + 16 * (2 * 1 + 5)
        assert found.guessed == 16 * (2 * 1 + 5)
        matrix = ones(64, 64, dtype=dtype)
        assert cycles(jnp.dot, matrix, matrix) - cycles(jnp.dot, *[matrix.astype(within)] * 2) == 64 * 64 * 7
        assert cycles(lambda x: x.astype(within), small, compiled=True) == 17 + 16 * (0 + 1 + 1 + 3 + 1)
    for target, said in ((MK2, "the machine has no float8_e4m3fn: it is counted as float16"), (cl.IPU("bow"), "")):
        graph = cl.Graph(target)
        x = graph.add_variable("x", (8,), dtype=jnp.float8_e4m3fn)
        graph.add_vertex("copy", cl.codelet(lambda x: x), x=x, tile=0)
        assert [note[: len(said)] for note in cl.Engine(graph).profile().notes] == [said] * bool(said)
    # A Bow converts float8 in a unit of its own: four a cycle
    small = ones(16, dtype=jnp.float8_e4m3fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_bow = estimate(lambda x, y: x + y, small, small, target=cl.IPU("bow"))
        assert (on_bow.worker, on_bow.guessed) == (26 + 4 * (1 + 2) + 4 * 3, 0)
        assert estimate(lambda x: x.astype(F16), small, target=cl.IPU("bow")).worker == 5 + 19 + 2 + 16 // 4
        assert estimate(lambda x: x.astype(small.dtype), small.astype(F16), target=cl.IPU("bow")).worker == 5 + 22 + 4


def test_a_wider_machine_takes_fewer_turns():
    jaxpr = jax.make_jaxpr(jnp.add)(ones(16), ones(16))
    assert jaxpr_cost(jaxpr, Mode(cl.IPU(vector_bytes=16))).worker == 29 + 4 * 3
