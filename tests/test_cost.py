"""Cycles of vertices: PopLibs' closed forms of operations, what the user says, and families."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.vertex_cycles import family_cycles
from codelet.graphs.vertices import Vertex
from codelet.tracing.field_types import FieldType
from ipu_backend.model.cost import codelet_cycles
from ipu_backend.model.costs import CyclesError, UnknownCyclesWarning
from lowering.pipeline import plan_engine
from tests.estimates import F16, F32, I32, MK2, cycles, ones
from tests.examples import examples
from tests.strategies import Case, cases

SIZES = (2, 3, 6, 7, 16, 100, 1001)

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


# --- what the user says -----------------------------------------------------------------------------------

VECTOR = FieldType((125,), F32)


def test_a_codelets_own_cycles_override():
    @cl.codelet(cycles=lambda x, w: 5 + (x.size + 1) // 2)
    def dot(x, w):
        return jnp.dot(x, w)

    assert MK2.estimate_cycles(dot.specialise({"x": VECTOR, "w": VECTOR})).worker == 68

    @cl.codelet(cycles=lambda x, *, rate: x.shape[0] * x.dtype.itemsize * rate)
    def descend(x, *, rate):
        return x * rate

    assert MK2.estimate_cycles(descend.specialise({"x": VECTOR}, {"rate": 0.1})).worker == 50


def _user(cycles):
    @cl.codelet(cycles=cycles)
    def own(x, *, rate=1):
        return x * rate

    return own.specialise({"x": VECTOR})


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


@pytest.mark.slow
@examples(20)
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
            traced = family.codelet.codelet.specialise(
                {name: types[name] for name in family.codelet.inputs}, family.codelet.static
            )
            assert each[number] == MK2.estimate_cycles(traced).counted


@given(st.integers(0, 300), st.sampled_from([F16, F32, I32]))
def test_more_elements_never_take_less(n, dtype):
    assert cycles(jnp.add, ones(n, dtype=dtype), ones(n, dtype=dtype)) <= cycles(
        jnp.add, ones(n + 1, dtype=dtype), ones(n + 1, dtype=dtype)
    )
