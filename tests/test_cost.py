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
from ipu_backend.model import poplibs
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


def cycles(function, *arguments):
    return jaxpr_cost(jax.make_jaxpr(function)(*arguments), Mode(MK2)).worker


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
    assert cycles(jnp.add, ones(n, dtype=I32), ones(n, dtype=I32)) == 29 + 7 * n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("operation", "base", "f32", "f16"),
    [
        ("exp", 33, (6, 2), (4, 4)),
        ("tanh", 17, (12, 2), (4, 4)),
        ("logistic", 17, (12, 2), (6, 4)),
        ("sqrt", 17, (10, 2), (23, 4)),
        ("relu", 17, (2, 2), (2, 4)),
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
    assert cycles(lambda x, y, z: x * y + z, x, x, x) == 29 + 8 * (1 + 1 + 2)
    assert cycles(lambda x, y: jnp.exp(x) + y, x, x) == 33 + 8 * (6 + 1 + 2)
    # A reduction between two loops: both pay their bases.
    assert cycles(lambda x: x * x.sum(), x) == (17 + 8) + (29 + 8 * 3)
    assert cycles(jax.nn.softmax, x) == (17 + 8) + 4 + (33 + 8 * (6 + 1 + 2)) + (17 + 8) + (29 + 8 * 10)


def test_one_element_pays_no_base():
    assert cycles(jnp.add, 1.0, 2.0) == ENTRY_CYCLES + 3
    assert cycles(lambda x, b: x.sum() + b, ones(16), 1.0) == (17 + 8) + 3
    assert cycles(jnp.add, ones(1), ones(1)) == ENTRY_CYCLES + 3


def test_views_are_free_and_copies_are_not():
    x = ones(4, 4)
    assert cycles(lambda x: x[1:3].reshape(-1) + 1, x) == 29 + 4 * 3
    assert cycles(lambda x: (x + 1).reshape(-1), x) == 29 + 8 * 3
    assert cycles(lambda x: x, x) == cycles(lambda x: x.reshape(-1), x) == 23 + 8
    assert cycles(lambda x: x[1:3], x) == 23 + 4
    assert cycles(lambda x: x.T + 0, x) == (27 + 11 + 2 * (6 + 3)) + (29 + 8 * 3)
    assert cycles(lambda x: x[None].transpose(1, 0, 2) + 1, x) == 29 + 8 * 3
    assert cycles(lambda x: x, 1.0) == ENTRY_CYCLES + 2
    assert cycles(lambda x: jnp.concatenate([x, x]), ones(8)) == 2 * 23 + 8


def test_powers_casts_and_random_numbers():
    x = ones(16)
    assert cycles(lambda x: x**3, x) == 29 + 8 * (2 + 2)
    assert cycles(lambda x: x.astype(jnp.float16), x) == 17 + 8 * 3

    def draw(data, site):
        return jax.random.bits(jax.random.fold_in(jax.random.wrap_key_data(data), site), (5,))

    # a block for the key, three for five words, and the site's cast
    assert cycles(draw, jnp.zeros(2, jnp.uint32), jnp.uint32(1)) == 4 * THREEFRY_CYCLES


def test_control_flow():
    x, once = ones(16), 29 + 8 * 3
    assert cycles(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, None, 10)[0], x) == 10 * (once + TURN_CYCLES)

    def branch(x):
        return jax.lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x * 2 * 3, x)

    def plain(x):
        return (x[0] > 0).astype(jnp.int32)

    assert cycles(branch, x) == cycles(plain, x) - ENTRY_CYCLES + TURN_CYCLES + once + 8
    with pytest.warns(UnknownCyclesWarning, match=r"16 are counted; give the codelet cycles="):
        found = cycles(lambda x: jax.lax.while_loop(lambda x: x[0] < 3, lambda x: x * 2, x), x)
    assert found == WHILE_TURNS * (14 + once + TURN_CYCLES)


def test_calls_and_derivative_rules_are_inlined():
    x = ones(16)

    def twice(x):
        return 2 * x

    assert cycles(jax.jit(twice), x) == cycles(jax.checkpoint(twice), x) == cycles(twice, x)
    assert cycles(lambda x: jax.nn.relu(x) + 1, x) == 29 + 8 * (2 + 1 + 2)


def test_a_primitive_without_a_rule_is_named_once(recwarn):
    of_the_future = Primitive("of_the_future")
    of_the_future.def_abstract_eval(lambda x: x)
    warnings.simplefilter("default")
    for _ in range(2):
        assert cycles(of_the_future.bind, ones(4, 4)) >= 100 * 32
    named = [w for w in recwarn if w.category is UnknownCyclesWarning]
    assert len(named) == 1
    assert "the primitive 'of_the_future'" in str(named[0].message)
    assert "give the codelet cycles=" in str(named[0].message)


def test_the_table_names_primitives():
    assert {"add", "dot_general", "exp", "reduce_sum", "scan", "gather", "scatter-add"} <= cycle_rules.keys()
    assert all(callable(rule) for rule in cycle_rules.values())


def test_dtypes_the_machine_lacks_take_longer():
    with jax.enable_x64(True):
        assert cycles(jnp.add, ones(16, dtype=np.float64), ones(16, dtype=np.float64)) > 5 * 53
    # what the machine has no instructions for is computed in what it has, and each element converted: said, not silent
    products = {}
    for dtype, within in ((jnp.bfloat16, F32), (jnp.float8_e4m3fn, F16)):
        for function, shape in ((jnp.add, (16,)), (jnp.dot, (16,)), (jnp.dot, (64, 64)), (jnp.exp, (32,))):
            operands = [ones(*shape, dtype=dtype)] * (1 if function is jnp.exp else 2)
            with pytest.warns(UnknownCyclesWarning, match=f"the machine has no {jnp.dtype(dtype)}: .* a guess"):
                found = cycles(function, *operands)
            inside = cycles(function, *(one.astype(within) for one in operands))
            moved = sum(one.size for one in operands) + function(*operands).size
            assert found == inside + poplibs.CONVERT_CYCLES * moved
            products[str(within), function, shape] = found / inside
    # A product of matrices is mostly computing: it used to take ten times float32's.
    assert products["float32", jnp.dot, (64, 64)] < 2.5
    with pytest.warns(UnknownCyclesWarning, match="no bfloat16"):
        assert cycles(lambda x: x.astype(F32), ones(16, dtype=jnp.bfloat16)) > cycles(
            lambda x: x.astype(F32), ones(16, dtype=F16)
        )


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
