"""Fused execution over a mesh: what one device gives, and what crosses is what must."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh

import codelet as cl
from lowering.lower import lower_plan, named_variables
from lowering.mesh.choose_homes import Homes
from lowering.mesh.homes import Home, blocked
from lowering.mesh.mesh_fused import MeshFused
from lowering.pipeline import plan_graph
from lowering.plan.plan import Plan
from tests.at_once import at_once
from tests.examples import examples
from tests.meshes import MESHES
from tests.strategies import Case, arrived, cases
from tests.test_lowered import assert_close, interpreted, lowered


def over(case: Case, mesh: Mesh, data: Any = None) -> cl.Lowered:
    """A case over a mesh, its variables where they cost least; or, if there is data, anywhere."""
    if data is None:
        return cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs, mesh=mesh)
    sources, targets = named_variables(case.graph, list(case.inputs), case.outputs)
    plan = plan_graph(case.graph, case.sequence(), sources, [case.graph.variable(v.name) for v in targets])
    execution = MeshFused(plan, mesh, any_homes(data, plan, mesh.size))
    return lower_plan(plan, targets, execution.compile_logical(plan), ("mesh", id(execution)))


def any_homes(data: Any, plan: Plan, count: int) -> Homes:
    """Variables cut along any dimension, spread in any way, or everywhere."""
    homes, random = Homes(count), np.random.default_rng(data.draw(st.integers(0, 1 << 16)))
    for variable in plan.variables:
        way = data.draw(st.sampled_from(["cut", "cut", "cut", "cut", "any", "everywhere"]))
        if variable.value is not None or way == "everywhere" or not variable.size:
            continue
        if way == "any":
            devices = random.integers(0, count, variable.size)
            homes[variable] = blocked(devices, variable, count)
        elif variable.shape:
            homes[variable] = Home(variable, count, data.draw(st.integers(0, len(variable.shape) - 1)))
    return homes


def check_integers(case: Case, mesh: Mesh, data: Any = None) -> None:
    results = arrived(jax.jit(over(case, mesh, data))(case.inputs))
    for name, value in interpreted(case).items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(12)
@given(cases(np.int32), MESHES, st.data())
def test_integers_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@examples(4)
@given(cases(np.int32), MESHES)
def test_integers_where_they_cost_least(case: Case, mesh):
    check_integers(case, mesh)


@pytest.mark.slow
@examples(300)
@given(cases(np.int32), MESHES, st.data())
def test_integers_exactly_very_often(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, ragged=True), MESHES, st.data())
def test_ragged_fields_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, calls=True), MESHES, st.data())
def test_calls_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, loops=True), MESHES, st.data())
def test_loops_that_pass_variables_on_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32), MESHES)
def test_integers_where_they_cost_least_very_often(case: Case, mesh):
    check_integers(case, mesh)


@examples(4)
@given(cases(np.float32), MESHES, st.data())
def test_floats(case: Case, mesh, data):
    assert_close(jax.jit(over(case, mesh, data))(case.inputs), interpreted(case), 1e-5)


def check_gradients(data: Any) -> None:
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_steps=2, bounded=True))
        one, several = lowered(case), over(case, data.draw(MESHES), data)
        random = np.random.default_rng(0)
        smooth = {k: v for k, v in case.inputs.items() if v.dtype.kind == "f"}
        rest = {k: v for k, v in case.inputs.items() if k not in smooth}
        weights = {v.name: random.normal(size=v.shape) for v in case.graph.variables}

        def slope(run):
            def loss(values):
                results = run({**values, **rest})
                return sum((weights[k] * results[k]).sum() for k in case.outputs if results[k].dtype.kind == "f")

            return jax.grad(loss)

        ours, expected = at_once(slope(several), slope(one))(smooth)
        for name, value in expected.items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


@examples(5)
@given(st.data())
def test_gradients_are_those_of_one_device(data):
    check_gradients(data)


@pytest.mark.slow
@examples(80)
@given(st.data())
def test_gradients_are_those_of_one_device_very_often(data):
    check_gradients(data)


# --- the engine -------------------------------------------------------------------------------------------


def execution_of(engine: cl.Engine) -> MeshFused:
    assert isinstance(engine._execution, MeshFused)
    return engine._execution


def check_parts(engine: cl.Engine) -> None:
    """Every device holds its own part of every variable that is cut, and no other's."""
    homes = execution_of(engine).homes
    for variable, held in engine._state.arrays.items():
        assert {shard.data.shape for shard in held.addressable_shards} == {homes[variable].shape}


def check_engine(case: Case, mesh: Mesh) -> None:
    engine = cl.Engine(case.graph, case.sequence(), stream_bytes=40, mesh=mesh)
    streams = {stream.name for stream in case.graph.streams}
    engine.write({name: value for name, value in case.inputs.items() if name not in streams})
    for name in streams & case.inputs.keys():
        engine.connect(name, case.inputs[name])
    engine.run()
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(engine.read(name), value, err_msg=name)
    check_parts(engine)


@examples(4)
@given(cases(np.int32), MESHES)
def test_the_engine(case: Case, mesh):
    check_engine(case, mesh)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32), MESHES)
def test_the_engine_very_often(case: Case, mesh):
    check_engine(case, mesh)
