"""The tile array: any placement gives the values of the interpreter, and no tile sees another's row."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import codelet as cl
from lowering.place import Placement, num_elements
from lowering.plan import Plan
from tests.placements import TILES
from tests.strategies import Case, cases
from tests.test_lowered import assert_close, interpreted


def at_random(seed: int, tiles: int = TILES, *, sorted_tiles: bool = False):
    """A placement of all elements and vertices on tiles drawn at random, or in ranges of random lengths."""

    def placed(plan: Plan) -> Placement:
        random = np.random.default_rng(seed)

        def some(count: int) -> np.ndarray:
            drawn = random.integers(0, tiles, count).astype(np.int32)
            return np.sort(drawn) if sorted_tiles else drawn

        elements = np.full(num_elements(plan), -1, np.int32)
        for variable in plan.variables:
            elements[variable.first_element : variable.first_element + variable.size] = some(variable.size)
        return Placement(plan, TILES, elements, {family: some(family.num_vertices) for family in plan.families})

    return placed


PLACES = st.one_of(
    st.sampled_from(["balanced", "linear"]),
    st.builds(at_random, st.integers(0, 999), st.integers(1, TILES), sorted_tiles=st.booleans()),
)


def engine_of(case: Case, where) -> cl.Engine:
    return cl.Engine(case.graph, case.sequence(), execution="tiles", placement=where, stream_bytes=40)


def function_of(case: Case, where):
    return engine_of(case, where).function(inputs=list(case.inputs), outputs=case.outputs)


@settings(max_examples=60)
@given(cases(np.int32), PLACES)
def test_integers_exactly(case: Case, where):
    expected, run = interpreted(case), function_of(case, where)
    results = jax.jit(run)(case.inputs)
    for name, value in expected.items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@settings(max_examples=40)
@given(cases(np.float32), PLACES)
def test_floats(case: Case, where):
    assert_close(function_of(case, where)(case.inputs), interpreted(case), 1e-5)


@settings(max_examples=30)
@given(cases(np.int32), PLACES)
def test_the_engine(case: Case, where):
    engine = engine_of(case, where)
    streams = {stream.name for stream in case.graph.streams}
    engine.write({name: value for name, value in case.inputs.items() if name not in streams})
    for name in streams & case.inputs.keys():
        engine.connect(name, case.inputs[name])
    engine.run()
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(engine.read(name), value, err_msg=name)
