"""The tile array: any placement gives the values of the interpreter, and no tile sees another's row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import codelet as cl
from codelet.errors import ProgramError
from ipu_backend.tile_array import TileArray, bring, compute
from lowering.exchange import plan_exchange
from lowering.place import Placement, num_elements
from lowering.plan import CopyStep, ExecuteStep, Plan, all_steps
from tests.placements import TILES, placements
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


@settings(max_examples=30)
@given(st.data())
def test_gradients_are_those_of_fused(data):
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_steps=2))
        fused = cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
        tiles = function_of(case, data.draw(PLACES))
        random = np.random.default_rng(0)
        smooth = {k: jnp.asarray(v) for k, v in case.inputs.items() if v.dtype.kind == "f"}
        rest = {k: v for k, v in case.inputs.items() if k not in smooth}
        weights = {v.name: random.normal(size=v.shape) for v in case.graph.variables}

        def slope(run):
            def loss(values):
                results = run({**values, **rest})
                return sum((weights[k] * results[k]).sum() for k in case.outputs if results[k].dtype.kind == "f")

            return jax.jit(jax.grad(loss))(smooth)

        ours, expected = slope(tiles), slope(fused)
        for name, value in expected.items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


def pairs(moves) -> np.ndarray:
    """Moves as rows, sorted."""
    rows = np.stack([moves.elements, moves.senders, moves.receivers], 1)
    return rows[np.lexsort(rows.T[::-1])]


@settings(max_examples=40)
@given(placements())
def test_the_exchange_moves_exactly_the_planned_pairs(placement: Placement):
    array = TileArray(placement)
    for step, planned in plan_exchange(placement).steps.items():
        if isinstance(step, ExecuteStep):
            tables = array.compute_set(step)
            for parts, transfer in ((tables.bringings, planned.before), (tables.storings, planned.after)):
                moved = [pairs(part.moves(placement)) for part in parts]
                every = np.concatenate([*moved, np.zeros((0, 3), np.int64)])
                np.testing.assert_array_equal(every[np.lexsort(every.T[::-1])], pairs(transfer.moves()))
        elif isinstance(step, CopyStep) and step.source.size:
            # Two elements of a tile may be copies of one, which arrives once.
            moved = np.unique(pairs(array.copy_set(step).moves()), axis=0)
            np.testing.assert_array_equal(moved, pairs(planned.before.moves()))


@settings(max_examples=30)
@given(placements(max_steps=2), st.integers(0, 99))
def test_a_tile_computes_from_its_own_row_alone(placement: Placement, seed: int):
    random, array = np.random.default_rng(seed), TileArray(placement)
    for step in all_steps(placement.plan.steps):
        if not isinstance(step, ExecuteStep):
            continue
        tables = array.compute_set(step)
        held = [
            [random.integers(-9, 9, array.layouts.of(v).shape).astype(v.dtype) for v in own.variables]
            for own in tables.bringings
        ]
        brought = [
            bring(own, [jnp.asarray(a) for a in arrays]) for own, arrays in zip(tables.bringings, held, strict=True)
        ]
        for batch in tables.batches:
            everything = compute(batch, brought)
            row = int(random.integers(len(batch.lanes.tiles)))
            of_step = row if batch.rows is None else int(batch.rows[row])
            others = [jnp.full_like(own, 77).at[of_step].set(own[of_step]) for own in brought]
            for name, value in compute(batch, others).items():
                np.testing.assert_array_equal(value[row], everything[name][row], err_msg=name)


@cl.codelet
def divide(a, b):
    return a / b


def test_nothing_is_computed_from_what_is_on_no_tile():
    # Two tiles, of five vertices and of two: the lanes that are no vertices must not spoil a gradient.
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b = graph.add_variable("a", (7,)), graph.add_variable("b", (7,))
    k = cl.grid(7)
    y = graph.add_vertex("divide", divide, a=a[k], b=b[k], tile=k // 5)
    run = cl.Engine(graph, execution="tiles").function(inputs=[a, b], outputs=[y])
    values = {"a": jnp.arange(1.0, 8.0), "b": jnp.arange(2.0, 9.0)}
    name = y.source.name
    slope = jax.grad(lambda v: run(v)[name].sum())(values)
    np.testing.assert_allclose(slope["a"], 1 / values["b"], rtol=1e-6)
    np.testing.assert_allclose(slope["b"], -values["a"] / values["b"] ** 2, rtol=1e-6)


def test_several_programs_share_one_placement():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b, c = (graph.add_variable(name, (8,)) for name in "abc")
    k = cl.grid(8)
    graph.add_vertex("first", divide, a=a[k], b=b[k], out=c[k])
    graph.add_vertex("second", divide, a=c[k], b=a[k], out=b[k])
    programs = {"one": cl.Execute(graph.add_compute_set("first")), "two": cl.Execute(graph.add_compute_set("second"))}
    engine = cl.Engine(graph, programs, execution="tiles")
    first, second = np.arange(1, 9, dtype=np.float32), np.arange(2, 10, dtype=np.float32)
    engine.write({"a": first, "b": second})
    engine.run("one")
    engine.run("two")
    np.testing.assert_allclose(engine.read(b), 1 / second, rtol=1e-6)
    np.testing.assert_array_equal(engine.read(a), first)


def test_functions_of_equal_placements_are_equal():
    def made(tile):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        a = graph.add_variable("a", (8,))
        k = cl.grid(8)
        y = graph.add_vertex("divide", divide, a=a[k], b=a[k], tile=tile(k))
        return cl.Engine(graph, execution="tiles").function(inputs=[a], outputs=[y])

    assert made(lambda k: k % 4) == made(lambda k: k % 4)
    assert made(lambda k: k % 4) != made(lambda k: k // 2)


def test_vertices_that_print_speak_once(capfd):
    @cl.codelet
    def speak(a):
        jax.debug.print("vertex {}", a)
        return a

    graph = cl.Graph(cl.IPU(num_tiles=4))
    a = graph.add_variable("a", (7,))
    k = cl.grid(7)
    graph.add_vertex("speak", speak, a=a[k], tile=k // 5)
    engine = cl.Engine(graph, execution="tiles")
    engine.write({"a": np.arange(7.0)})
    engine.run()
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.splitlines()) == [f"vertex {k}.0" for k in range(7)]


def test_an_execution_that_there_is_not():
    graph = cl.Graph()
    graph.add_variable("a", (7,))
    with pytest.raises(ProgramError, match=r"there is no such execution\n  given: +execution='cells'"):
        cl.Engine(graph, execution="cells")
