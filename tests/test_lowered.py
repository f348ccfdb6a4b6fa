"""The backbone: a lowered graph means what the interpreter says it means."""

import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.plan.collect import collect
from lowering.plan.steps import StreamStep
from lowering.plan.walk import all_steps
from tests.at_once import at_once
from tests.examples import examples
from tests.strategies import Case, arrived, cases


def lowered(case: Case):
    return cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)


def interpreted(case: Case):
    """What comes out, of the streams too that the program sends to; nothing comes of others."""
    steps = all_steps(collect(case.graph, case.sequence(), (), ()).steps)
    streams = dict.fromkeys(step.stream for step in steps if isinstance(step, StreamStep))
    sent = [stream.name for stream in streams if not stream.is_input]
    return cl.interpret(case.graph, case.inputs, [*case.outputs, *sent], case.sequence())


def assert_close(result, expected, rtol):
    result = arrived(result)
    for name, value in expected.items():
        scale = 1 + np.abs(value).sum()
        np.testing.assert_allclose(result[name], value, rtol=0, atol=rtol * scale, err_msg=name)


@examples(4)
@given(cases(np.float32))
def test_floats(case: Case):
    assert_close(jax.jit(lowered(case))(case.inputs), interpreted(case), 1e-5)


@examples(7)
@given(cases(np.int32))
def test_integers_exactly(case: Case):
    results = arrived(jax.jit(lowered(case))(case.inputs))
    for name, value in interpreted(case).items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(2)
@given(cases(np.int32))
def test_without_jit(case: Case):
    """One operation after another, each compiled by itself: slow, and the same jaxpr."""
    results = arrived(lowered(case)(case.inputs))
    for name, value in interpreted(case).items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(6)
@given(cases(np.int32, max_steps=2, loops=True))
def test_loops_that_pass_variables_on(case: Case):
    results = arrived(jax.jit(lowered(case))(case.inputs))
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(4)
@given(cases(np.int32))
def test_the_engine(case: Case):
    engine = cl.Engine(case.graph, case.sequence(), stream_bytes=40)
    streams = {stream.name for stream in case.graph.streams}
    engine.write({name: value for name, value in case.inputs.items() if name not in streams})
    for name in streams & case.inputs.keys():
        engine.connect(name, case.inputs[name] if len(name) % 2 else iter(case.inputs[name]))
    engine.run()
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(engine.read(name), value, err_msg=name)


@examples(4)
@given(st.data())
def test_gradients_against_finite_differences(data):
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_steps=2, bounded=True))
        run = lowered(case)
        random = np.random.default_rng(0)
        smooth = {k: v for k, v in case.inputs.items() if v.dtype.kind == "f"}
        rest = {k: v for k, v in case.inputs.items() if k not in smooth}
        weights = {v.name: random.normal(size=v.shape) for v in case.graph.variables}

        def loss(values):
            results = run({**values, **rest})
            return sum((weights[k] * results[k]).sum() for k in case.outputs if results[k].dtype.kind == "f")

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
@given(cases(np.float32, max_steps=2))
def test_vmap_and_scan(case: Case):
    run = lowered(case)
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
    assert case.graph.num_edges == sum(1 for _ in case.graph.edges())
    assert case.graph.num_vertices == sum(1 for _ in case.graph.vertices())


@examples(10)
@given(cases(np.int32), st.data())
def test_writers_and_readers(case: Case, data):
    name = data.draw(st.sampled_from([v.name for v in case.graph.variables if v.size]))
    element = case.graph.variable(name).flatten()[data.draw(st.integers(0, case.graph.variable(name).size - 1))]
    number = int(element.elements())

    def touching(kinds):
        return {
            (v.family, v.number)
            for v in case.graph.vertices()
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
@given(cases(np.int32, max_steps=4))
def test_integers_exactly_at_length(case: Case):
    results = arrived(jax.jit(lowered(case))(case.inputs))
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)
