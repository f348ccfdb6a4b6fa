"""The backbone: a lowered graph means what the interpreter says it means."""

import re

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import codelet as cl
from tests.at_once import at_once
from tests.drawn_dtypes import MOSTLY_WIDE
from tests.examples import examples
from tests.strategies import Case, cases
from tests.ways import assert_close, assert_same, check_engine, interpreted, lowered, weighted

pytestmark = pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")  # of floats the machine has not


@examples(4)
@given(st.sampled_from(MOSTLY_WIDE).flatmap(cases))
def test_floats(case: Case):
    assert_close(jax.jit(lowered(case))(case.inputs), interpreted(case), 1e-5)


@examples(7)
@given(cases(np.int32))
def test_integers_exactly(case: Case):
    assert_same(jax.jit(lowered(case))(case.inputs), interpreted(case))


@examples(2)
@given(cases(np.int32))
def test_without_jit(case: Case):
    """One operation after another, each compiled by itself: slow, and the same jaxpr."""
    assert_same(lowered(case)(case.inputs), interpreted(case))


@examples(6)
@given(cases(np.int32, max_iterations=2, loops=True))
def test_loops_that_pass_variables_on(case: Case):
    assert_same(jax.jit(lowered(case))(case.inputs), interpreted(case))


@examples(4)
@given(cases(np.int32), st.sampled_from(["fused", "tiles", "addresses"]))
def test_the_engine(case: Case, execution: str):
    engine = cl.Engine(case.graph, case.sequence(), execution=execution, stream_bytes=40)
    check_engine(engine, case, lambda name, values: values if len(name) % 2 else iter(values))


@examples(4)
@given(st.data())
def test_gradients_against_finite_differences(data):
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_iterations=2, bounded=True))
        smooth, loss_of = weighted(case)
        loss, random = loss_of(lowered(case)), np.random.default_rng(1)
        direction = {k: random.normal(size=v.shape) for k, v in smooth.items()}
        step = 1e-5

        @jax.jit
        def moved_and_slope(smooth):
            moved = lambda step: loss({k: v + step * direction[k] for k, v in smooth.items()})  # noqa: E731
            return jax.lax.map(moved, step * np.array([1.0, -1.0, 2.0, -2.0])), jax.grad(loss)(smooth)

        moved, slope = jax.device_get(moved_and_slope(smooth))
        # Richardson: the error is of fourth order in the step.
        near, far = (moved[0] - moved[1]) / (2 * step), (moved[2] - moved[3]) / (4 * step)
        numeric = (4 * near - far) / 3
        exact = sum((slope[k] * direction[k]).sum() for k in smooth)
        np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-6)


@examples(3)
@given(cases(np.float32, max_iterations=2))
def test_vmap_and_scan(case: Case):
    run = lowered(case)
    assume(case.inputs)  # what is given nothing has no batch
    batch = {name: np.stack([value, value[::-1] if value.ndim else value]) for name, value in case.inputs.items()}
    jitted = jax.jit(run)
    apart = jax.device_get([jitted({name: value[k] for name, value in batch.items()}) for k in range(2)])
    scan = lambda batch: jax.lax.scan(lambda carry, values: (carry, run(values)), None, batch)[1]  # noqa: E731
    together, scanned = jax.device_get(at_once(jax.vmap(run), scan)(batch))
    for name in case.outputs:
        for k in range(2):
            np.testing.assert_allclose(together[name][k], apart[k][name], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(scanned[name][k], apart[k][name], rtol=1e-4, atol=1e-4)


@examples(10)
@given(cases(np.int32))
def test_edges_are_counted_exactly(case: Case):
    assert case.graph.num_edges == sum(1 for _ in case.graph.iter_edges())
    assert case.graph.num_vertices == sum(1 for _ in case.graph.iter_vertices())


@examples(10)
@given(cases(np.int32), st.data())
def test_writers_and_readers(case: Case, data):
    name = data.draw(st.sampled_from([v.name for v in case.graph.variables if v.size]))
    element = case.graph.variable(name).flatten()[data.draw(st.integers(0, case.graph.variable(name).size - 1))]
    number = int(element.elements())

    def touching(kinds):
        return {
            (v.family, v.number)
            for v in case.graph.iter_vertices()
            for f in v.family.fields
            if f.kind in kinds and f.tensor is not None and number in np.ravel(v.fields[f.name].elements())
        }

    assert {(v.family, v.number) for v in case.graph.writers(element)} == touching({"out", "inout"})
    assert {(v.family, v.number) for v in case.graph.readers(element)} == touching({"in", "inout"})


@examples(4)
@given(cases(np.float32))
def test_lowering_is_deterministic(case: Case):
    first, second = lowered(case), lowered(case)
    # A custom derivative rule prints as its function, and every trace has one of its own.
    text = [re.sub(r"0x[0-9a-f]+", "", str(run.jaxpr)) for run in (first, second)]
    assert text[0] == text[1]
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.slow
@examples(1000)
@given(cases(np.int32, max_iterations=4))
def test_integers_exactly_at_length(case: Case):
    assert_same(jax.jit(lowered(case))(case.inputs), interpreted(case))


@pytest.mark.slow
@examples(1000)
@given(st.sampled_from(MOSTLY_WIDE).flatmap(cases))
def test_floats_very_often(case: Case):
    assert_close(jax.jit(lowered(case))(case.inputs), interpreted(case), 1e-5)


@pytest.mark.slow
@examples(500)
@given(cases(np.int32), st.sampled_from(["fused", "tiles", "addresses"]))
def test_the_engine_very_often(case: Case, execution: str):
    check_engine(cl.Engine(case.graph, case.sequence(), execution=execution, stream_bytes=40), case)
