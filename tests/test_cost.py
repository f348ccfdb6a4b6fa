"""Cycles of vertices: PopLibs' formulae, and the rules that compose them over codelets."""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.core import Primitive

import codelet as cl
from codelet.graphs.vertices import Vertex
from codelet.tracing.field_types import FieldType
from ipu_backend.model.body_cycles import ENTRY_CYCLES, TURN_CYCLES, WHILE_TURNS, jaxpr_cost
from ipu_backend.model.cost import codelet_cycles
from ipu_backend.model.costs import CyclesError, Mode, UnknownCyclesWarning
from ipu_backend.model.cycle_rules import cycle_rules
from ipu_backend.model.library_rules import THREEFRY_CYCLES
from lowering.machine.vertex_cycles import family_cycles
from lowering.pipeline import plan_engine
from tests.examples import examples
from tests.strategies import Case, cases

MK2 = cl.IPU()
F16, F32, I32 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int32)
SIZES = (2, 3, 6, 7, 16, 100, 1001)


def cycles(function, *arguments, **mode):
    """Cycles of one worker, of assembly unless told otherwise."""
    return jaxpr_cost(jax.make_jaxpr(function)(*arguments), Mode(MK2, **mode)).worker


def estimate(function, *arguments, target=MK2, **hints):
    """What a vertex of a codelet of a function takes."""
    made = cl.codelet(function, **hints)
    types = [FieldType(np.shape(own), np.result_type(own)) for own in arguments]
    return target.estimate_cycles(made.trace(dict(zip(made.inputs, types, strict=True))))


def ones(*shape: int, dtype: Any = F32):
    return np.ones(shape, dtype)


# --- the closed forms, written out again ---------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("dtype", "base", "v"), [(F32, 29, 2), (F16, 26, 4)])
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_binary_elementwise(n, dtype, base, v, operation):
    worker = base + math.ceil(n / v) * (1 + 2)
    assert cycles(getattr(jax.lax, operation), ones(n, dtype=dtype), ones(n, dtype=dtype)) == worker


@pytest.mark.parametrize("n", SIZES)
def test_integers_take_seven_cycles_an_element(n):
    assert cycles(jnp.add, ones(n, dtype=I32), ones(n, dtype=I32)) == 26 + 7 * n
    # which is A + L + S + 3 of what is compiled from C++, as PopLibs' is
    assert cycles(jnp.add, ones(n, dtype=I32), ones(n, dtype=I32), compiled=True) == 26 + n * (1 + 2 + 1 + 3)
    assert cycles(lambda x: x + 2, ones(n, dtype=I32), compiled=True) == 20 + n * (1 + 1 + 1 + 3) == 20 + 6 * n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("operation", "base", "f32", "f16"),
    [
        ("exp", 33, (6, 2), (4, 4)),
        ("tanh", 17, (12, 2), (4, 4)),
        ("logistic", 17, (12, 2), (6, 4)),
        ("sqrt", 17, (10, 2), (23, 4)),
        ("relu", 17, (3, 2), (3, 4)),
    ],
)
def test_unary_elementwise(n, operation, base, f32, f16):
    function = jax.nn.relu if operation == "relu" else getattr(jax.lax, operation)
    for dtype, (each, elements) in ((F32, f32), (F16, f16)):
        worker = base + math.ceil(n / elements) * each
        assert cycles(function, ones(n, dtype=dtype)) == worker


# --- composition ----------------------------------------------------------------------------------------


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
    assert estimate(bound, 5, x, turns=10, issue="assembly").worker == 10 * (turn + 1)
    assert estimate(as_long_as_small, x, turns=lambda x: x.size, issue="assembly").guessed == 16 * TURN_CYCLES
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, again = (estimate(as_long_as_small, x, issue="assembly") for _ in range(2))
    assert found == again
    assert found.guessed == found.worker == WHILE_TURNS * (20 + 8 * 2 + TURN_CYCLES + 2)
    assert len(told) == 1
    assert (told[0].filename, told[0].lineno) == (__file__, as_long_as_small.__code__.co_firstlineno)
    assert "codelet 'as_long_as_small' (" in str(told[0].message)
    assert "16 are counted; cl.codelet(turns=...) says how many" in str(told[0].message)


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


# --- what the user says -----------------------------------------------------------------------------------

VECTOR = FieldType((125,), F32)


def test_a_codelets_own_cycles_override():
    @cl.codelet(cycles=lambda x, w: 5 + (x.size + 1) // 2)
    def dot(x, w):
        return jnp.dot(x, w)

    assert MK2.estimate_cycles(dot.trace({"x": VECTOR, "w": VECTOR})).worker == 68

    @cl.codelet(cycles=lambda x, *, rate: x.shape[0] * x.dtype.itemsize * rate)
    def descend(x, *, rate):
        return x * rate

    assert MK2.estimate_cycles(descend.trace({"x": VECTOR}, {"rate": 0.1})).worker == 50


def _user(cycles):
    @cl.codelet(cycles=cycles)
    def own(x, *, rate=1):
        return x * rate

    return own.trace({"x": VECTOR})


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (lambda x: 5, "unexpected keyword argument 'rate'"),
        (lambda x, rate: x.length, "has no attribute 'length'"),
        (lambda x, rate: -1, "given:    -1, for x: float32[125]"),
        (lambda x, rate: "many", "are not a number of cycles"),
        (lambda x, rate: float("nan"), "expected: a number from 0"),
        (lambda x, rate: True, "are not a number of cycles"),
    ],
)
def test_wrong_cycles_are_errors(own, said):
    with pytest.raises(CyclesError) as error:
        codelet_cycles(_user(own), MK2)
    assert said in str(error.value)
    assert "codelet 'own'" in str(error.value)


# --- families -----------------------------------------------------------------------------------------------


def test_ragged_vertices_take_what_their_lengths_take():
    @cl.codelet(cycles=lambda x, y: 10 * x.shape[0] + y.size)
    def own(x, y):
        return x.sum() + y.sum()

    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y = graph.add_variable("x", (20,)), graph.add_variable("y", (20,))
    i, j = cl.grid(3, 4)
    graph.add_vertex("own", own, x=x[j : 2 * j + 1], y=y[i : i + 2])
    (family,) = graph.families
    found = family_cycles(family, graph.target)
    assert [own.worker for own in found.distinct] == [12, 22, 32, 42]
    assert found.of_each(12).tolist() == [12, 22, 32, 42] * 3


@examples(40)
@given(cases(np.float32))
def test_every_vertex_takes_what_its_codelet_takes_for_its_fields(case: Case):
    plan = plan_engine(case.graph, case.sequence())
    for family in plan.families:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnknownCyclesWarning)
            each = family_cycles(family, plan.graph.target).of_each(family.num_vertices)
        assert each.shape == (family.num_vertices,)
        for own in family_cycles(family, plan.graph.target).distinct:
            assert 0 <= own.fitted + own.guessed <= own.counted
        assert each.min(initial=1) > 0
        for number in range(0, family.num_vertices, 1 + family.num_vertices // 4):
            fields = Vertex(family, number).fields
            shape = lambda held: held.shape if isinstance(held, cl.Tensor) else np.shape(held)  # noqa: E731
            types = {f.name: f.type._replace(shape=shape(fields[f.name])) for f in family.fields if f.name in fields}
            traced = family.codelet.codelet.trace(
                {name: types[name] for name in family.codelet.inputs}, family.codelet.static
            )
            assert each[number] == MK2.estimate_cycles(traced).worker


@given(st.integers(0, 300), st.sampled_from([F16, F32, I32]))
def test_more_elements_never_take_less(n, dtype):
    assert cycles(jnp.add, ones(n, dtype=dtype), ones(n, dtype=dtype)) <= cycles(
        jnp.add, ones(n + 1, dtype=dtype), ones(n + 1, dtype=dtype)
    )
