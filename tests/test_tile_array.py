"""The tile array: any placement gives the values of the interpreter, and no tile sees another's row."""

import itertools
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from codelet.errors import ProgramError, TileError
from ipu_backend.executions.tile_addresses import Addresses, compile_addresses
from ipu_backend.executions.tile_array import TileArray, bring, compute
from ipu_backend.executions.tile_layout import Layouts
from ipu_backend.executions.tile_receiving import Bringing
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.exchange import Exchange, plan_exchange
from lowering.machine.place import place
from lowering.machine.placement import Placement, num_elements
from lowering.pipeline import plan_graph, plan_machine
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import without_calls
from lowering.plan.walk import all_steps
from tests.at_once import at_once
from tests.drawn_dtypes import MOSTLY_WIDE
from tests.examples import examples
from tests.placements import TILES, plan_of
from tests.strategies import Case, and_its_sum, arrived, as_dtype, backwards, cases, each_alone, running
from tests.ways import assert_close, assert_same, check_engine, check_slopes, interpreted, lowered

pytestmark = pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")  # of floats the machine has not


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
        return Placement(
            plan,
            TILES,
            ElementTiles.of(plan, elements),
            {family: some(family.num_vertices) for family in plan.families},
        )

    return placed


PLACES = st.one_of(
    st.sampled_from(["balanced", "linear"]),
    st.builds(at_random, st.integers(0, 999), st.integers(1, TILES), sorted_tiles=st.booleans()),
)


def engine_of(case: Case, where, execution="tiles") -> cl.Engine:
    return cl.Engine(case.graph, case.sequence(), execution=execution, placement=where, stream_bytes=40)


def function_of(case: Case, where, execution="tiles"):
    return engine_of(case, where, execution).function(inputs=list(case.inputs), outputs=case.outputs)


@examples(3)
@given(cases(np.int32), PLACES)
def test_integers_exactly(case: Case, where):
    assert_same(jax.jit(function_of(case, where))(case.inputs), interpreted(case))


@examples(2)
@given(st.sampled_from(MOSTLY_WIDE).flatmap(cases), PLACES)
def test_floats(case: Case, where):
    assert_close(jax.jit(function_of(case, where))(case.inputs), interpreted(case), 1e-5)


@examples(3)
@given(cases(np.int32), PLACES)
def test_the_engine(case: Case, where):
    check_engine(engine_of(case, where), case)


@examples(2)
@given(st.data())
def test_gradients_are_those_of_fused(data):
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_iterations=2, bounded=True))
        check_slopes(case, function_of(case, data.draw(PLACES)), lowered(case))


def pairs(elements, senders, receivers) -> np.ndarray:
    """What goes from one tile to another, as rows, sorted, each once."""
    rows = np.stack([elements, senders, receivers], 1).reshape(-1, 3).astype(np.int64)
    return np.unique(rows[rows[:, 1] != rows[:, 2]], axis=0)


def located(placement: Placement, variables, positions) -> tuple[np.ndarray, np.ndarray]:
    """The elements at positions in the arrays of some variables end to end, and the tiles of their rows."""
    base, elements, tiles = 0, np.full(positions.shape, -1), np.full(positions.shape, -1)
    for variable in variables:
        words = Layouts(placement).loading(variable)
        here = (positions >= base) & (positions < base + words.count)
        elements[here] = variable.first_element + words.positions.reshape(-1)[positions[here] - base]
        tiles[here] = placement.tiles[(positions[here] - base) // max(1, words.shape[1])]
        base += words.count
    return elements, tiles


def received(placement: Placement, own) -> np.ndarray:
    """What a table brings to tiles from the rows of others."""
    if own.words is None:
        return np.zeros((0, 3), np.int64)
    positions = own.words.positions
    elements, senders = located(placement, own.variables, positions)
    receivers = np.broadcast_to(own.tiles[:, None], positions.shape)
    return pairs(*(each[own.words.real] for each in (elements, senders, receivers)))


def arriving(placement: Placement, own) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the words of a variable come from, of those that are its elements: positions, elements, and their tiles."""
    words = Layouts(placement).loading(own.variable)
    receivers = np.broadcast_to(placement.tiles[:, None], words.shape)[words.real]
    return own.words.positions[words.real], own.variable.first_element + words.positions[words.real], receivers


def sent(placement: Placement, own, batches) -> np.ndarray:
    """What a table takes from results of tiles to the rows of others."""
    rows = []
    for k, name, _ in own.results:
        lanes, shape = batches[k].lanes, batches[k].batch.codelet.outputs[name].shape
        rows.append(np.repeat(lanes.tiles, np.prod([*lanes.lengths, *shape], dtype=int)))
    by_result = np.concatenate(rows)
    positions, elements, receivers = arriving(placement, own.putting)
    computed = positions < len(by_result)
    return pairs(elements[computed], by_result[positions[computed]], receivers[computed])


def copied(placement: Placement, copy) -> np.ndarray:
    """What a table of a copy takes from the rows of some tiles to those of others."""
    if isinstance(copy.source, Bringing):
        return received(placement, copy.source)
    rows = []
    for own in copy.puttings:
        positions, _, receivers = arriving(placement, own)
        elements, senders = located(placement, copy.source.variables, positions)
        rows.append(pairs(elements[elements >= 0], senders[elements >= 0], receivers[elements >= 0]))
    return np.unique(np.concatenate(rows), axis=0)


def placement_of(case: Case, where: Any) -> Placement:
    """Where everything of a case's plan lives, by one of `PLACES`."""
    plan = without_calls(plan_of(case))
    return where(plan) if callable(where) else place(plan, where)  # type: ignore[return-value]


@examples(8)
@given(cases(np.float32), PLACES)
def test_the_exchange_moves_exactly_the_planned_pairs(case: Case, where):
    placement = placement_of(case, where)
    array = TileArray(plan_exchange(placement))
    for step, planned in array.exchange.steps.items():
        if isinstance(step, ExecuteStep):
            tables = array.compute_set(step)
            before = [received(placement, own) for own in tables.bringings]
            after = [sent(placement, own, tables.batches) for own in tables.storings]
            for parts, transfer in ((before, planned.before), (after, planned.after)):
                every = np.concatenate([*parts, np.zeros((0, 3), np.int64)])
                np.testing.assert_array_equal(np.unique(every, axis=0), pairs(*transfer.moves()))
        elif isinstance(step, CopyStep) and step.source.size:
            np.testing.assert_array_equal(copied(placement, array.copy_set(step)), pairs(*planned.before.moves()))


@examples(3)
@given(cases(np.int32, max_iterations=2), PLACES, st.integers(0, 99))
def test_a_tile_computes_from_its_own_row_alone(case: Case, where, seed: int):
    placement = placement_of(case, where)
    random, array = np.random.default_rng(seed), TileArray(Exchange(placement))
    for step in all_steps(placement.plan.steps):
        if not isinstance(step, ExecuteStep):
            continue
        tables = array.compute_set(step)
        held = [
            [random.integers(-9, 9, array.layouts.of(v).shape).astype(v.dtype) for v in own.variables]
            for own in tables.bringings
        ]
        bring_all = jax.jit(lambda held: [bring(own, a) for own, a in zip(tables.bringings, held, strict=True)])
        brought = jax.device_get(bring_all(held))
        computed = at_once(*(partial(compute, batch) for batch in tables.batches))
        everything = computed(brought)
        for number, batch in enumerate(tables.batches):
            row = int(random.integers(len(batch.lanes.tiles)))
            of_step = row if batch.rows is None else int(batch.rows[row])
            others = [np.full_like(own, 77) for own in brought]
            for other, own in zip(others, brought, strict=True):
                other[of_step] = own[of_step]
            for name, value in computed(others)[number].items():
                np.testing.assert_array_equal(value[row], everything[number][name][row], err_msg=name)


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
    values = {"a": np.arange(1, 8, dtype=np.float32), "b": np.arange(2, 9, dtype=np.float32)}
    name = y.name
    slope = jax.jit(jax.grad(lambda v: run(v)[name].sum()))(values)
    np.testing.assert_allclose(slope["a"], 1 / values["b"], rtol=1e-6)
    np.testing.assert_allclose(slope["b"], -values["a"] / values["b"] ** 2, rtol=1e-6)


def test_several_programs_share_one_placement():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b, c = (graph.add_variable(name, (8,)) for name in "abc")
    k = cl.grid(8)
    with graph.record() as one:
        graph.add_vertex("first", divide, a=a[k], b=b[k], out=c[k])
    with graph.record() as two:
        graph.add_vertex("second", divide, a=c[k], b=a[k], out=b[k])
    engine = cl.Engine(graph, {"one": one, "two": two}, execution="tiles")
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


# --- addresses ----------------------------------------------------------------------------------------


@examples(3)
@given(cases(np.int32), PLACES)
def test_addresses_hold_what_is_live(case: Case, where):
    results = arrived(jax.jit(function_of(case, where, "addresses"))(case.inputs))
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(3)
@given(st.sampled_from(MOSTLY_WIDE).flatmap(cases), PLACES)
def test_addresses_hold_what_is_live_in_floats(case: Case, where):
    assert_close(jax.jit(function_of(case, where, "addresses"))(case.inputs), interpreted(case), 1e-5)


def chain(count: int = 3) -> Any:
    """A chain of variables on two tiles, of which only the ends are kept: its graph and the ends."""
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = y = graph.add_variable("x", (8,))
    k = cl.grid(8)
    for number in range(count):
        y = graph.add_vertex(f"step {number}", divide, a=x[k], b=y[7 - k], tile=k // 4)
    return graph, x, y


def test_a_wrong_plan_of_memory_shows():
    graph, x, y = chain()
    plan = plan_graph(graph, graph.default_program, (x.source,), [y])
    machine = plan_machine(plan)
    given, expected = np.arange(1, 9, dtype=np.float32), cl.lower(graph, inputs=[x], outputs=[y])
    run = lambda planned: jax.jit(jax_core.jaxpr_as_fun(compile_addresses(plan, planned)))(given)[0]  # noqa: E731
    np.testing.assert_allclose(run(machine), jax.jit(expected)({"x": given})[y.name], rtol=1e-6)
    # What two steps pass on is said to end before it is read.
    occupants = [
        replace(own, moments=np.arange(3) == 0) if own.moments is not None and own.variables else own
        for own in machine.memory.occupants
    ]
    early = replace(machine, memory=replace(machine.memory, occupants=tuple(occupants)))
    assert np.isnan(run(early)).all()
    # An exchange buffer lies where a variable is that is kept.
    (kept,) = [own for own in machine.memory.occupants if x.source in own.variables]
    occupants = [
        replace(own, addresses=kept.addresses) if own.kind == "exchange buffers" else own
        for own in machine.memory.occupants
    ]
    over = replace(machine, memory=replace(machine.memory, occupants=tuple(occupants)))
    assert np.isnan(run(over)).any()


def links() -> Any:
    """Variables each made of the one before on the same tiles, by codelets that need what they would overwrite."""
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, sums, y = graph.add_variable("x", (4, 3)), graph.add_variable("sums", (4,)), graph.add_variable("y", (4, 3))
    i, now = cl.grid(4), x
    for number, kind in enumerate((each_alone, backwards, each_alone, and_its_sum, running)):
        new = graph.add_variable(f"link{number}", (4, 3))
        more = {"sum": sums[i]} if kind is and_its_sum else {}
        graph.add_vertex(f"step {number}", kind, x=now[i], out=new[i], **more)
        now = new
    graph.add_vertex("last", each_alone, x=now[i], out=y[i])
    return graph, x, y, sums


def test_a_wrong_sharing_of_memory_shows(monkeypatch):
    """Only results whose elements need one element each lie where their input lay; else addresses give other values."""

    def run():
        graph, x, y, sums = links()
        function = cl.Engine(graph, execution="addresses").function(inputs=[x], outputs=[y, sums])
        return jax.jit(function)({"x": given})

    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph, x, y, sums = links()
    expected = cl.interpret(graph, values={"x": given}, outputs=[y, sums])
    for name, value in run().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6)
    shared = [
        [v.name for v in own.variables] for own in cl.Engine(graph).machine(host_visible=[x, y, sums]).liveness.ranges
    ]
    assert shared == [["x"], ["sums"], ["y"], ["link0"], ["link1", "link2"], ["link3"], ["link4"]]
    monkeypatch.setattr("lowering.machine.liveness.may_overwrite", lambda *_: True)
    for name, value in run().items():
        assert not np.allclose(value, expected[name]), name


def test_words_beside_a_freed_one_keep_their_values():
    """Of a word of eight bytes only a half may be free."""
    with jax.enable_x64(True):
        graph = cl.Graph(cl.IPU(num_tiles=1))
        x, y = graph.add_variable("x", (3,), "float64"), graph.add_variable("y", (3,), "float64")
        odd = graph.add_variable("odd", (1,), "float32")
        i = cl.grid(3)
        # Four bytes, then words of eight bytes that do not begin where one of memory does; and buffers between.
        short = graph.add_vertex("narrow", as_dtype, x=x[i], to="float32")
        wide = graph.add_vertex("wide", as_dtype, x=short[2 - i], to="float64")
        graph.add_vertex("turn", backwards, x=wide, out=y)
        program = cl.Sequence(cl.Copy(x[:1], y[:1]), graph.default_program)
        engine = cl.Engine(graph, program, execution="addresses")
        values = {"x": np.array([1.0, 2.0, 3.0]), "odd": np.ones(1, np.float32)}
        for outputs in ([y], [y, odd], [y, x, odd], [short, y, odd]):
            results = jax.jit(engine.function(inputs=[x, odd], outputs=outputs))(values)
            for name, value in cl.interpret(graph, values=values, outputs=outputs, program=program).items():
                np.testing.assert_array_equal(results[name], value)
        # Poison covers what is wholly free: words of which any byte is another's are left.
        machine = engine.machine()
        execution = Addresses(machine)
        for dtype in execution.memories:
            for start, size in itertools.product(range(0, 40, 4), range(0, 24, 4)):
                own = replace(machine.memory.occupants[0], addresses=np.array([start]), num_bytes=np.array([size]))
                words = execution.words_in(own, dtype)
                ends = [(w * dtype.itemsize, (w + 1) * dtype.itemsize) for w in range(20)]
                assert words.tolist() == [w for w, (a, b) in enumerate(ends) if a >= start and b <= start + size]


@examples(3)
@given(st.sampled_from([np.float64, np.int64]), PLACES, st.data())
def test_addresses_of_words_of_eight_bytes(dtype, where, data):
    with jax.enable_x64(True):
        case = data.draw(cases(dtype, max_iterations=2))
        results = arrived(jax.jit(function_of(case, where, "addresses"))(case.inputs))
        assert_close(results, interpreted(case), 1e-9)


@cl.codelet
def sums_of(a, b, c):
    return a.sum() + b.sum() + c.sum()


def test_padding_of_every_dtype_beside_another():
    """Values of one dtype that another does not hold: infinity, and more than eight bits."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    kinds = {"a": ("float32", np.inf), "b": ("int8", -3), "c": ("bool", True), "d": ("uint8", 200)}
    views = {name: graph.add_variable(name, (5,), dtype).pad(1, "constant", v) for name, (dtype, v) in kinds.items()}
    i = cl.grid(5)
    near = {name: view[i : i + 3] for name, view in views.items()}
    first = graph.add_vertex("one", sums_of, a=near["a"], b=near["b"], c=near["c"], tile=i % 2)
    second = graph.add_vertex("one", sums_of, a=near["d"], b=near["b"], c=near["d"], tile=i % 3)
    values = {name: np.arange(5).astype(dtype) for name, (dtype, _) in kinds.items()}
    expected = cl.interpret(graph, values=values, outputs=[first, second])
    for execution in ("tiles", "addresses"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            run = cl.Engine(graph, execution=execution).function(inputs=list(kinds), outputs=[first, second])
            for name, value in jax.jit(run)(values).items():
                np.testing.assert_array_equal(value, expected[name])


def test_fields_without_elements_and_families_without_vertices():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, rows = graph.add_variable("x", (6,)), graph.add_variable("rows", (6, 0))
    i, j, none = cl.grid(3), cl.grid(6), cl.grid(0)
    table = cl.table(np.array([0, 1, 2, 3]), offsets=[0, 1, 3, 4])
    outputs = [
        graph.add_vertex("a", and_its_sum, x=rows[table[i]], out=graph.add_variable("e", (6, 0))[table[i]], tile=i),
        graph.add_vertex("a", backwards, x=rows[j], tile=j % 2),
        graph.add_vertex("a", and_its_sum, x=x[none : none + 1], tile=3)["out"],
        graph.add_vertex("a", each_alone, x=x[j : j + 1], tile=j // 4),
    ]
    graph_outputs = [own for own in outputs if isinstance(own, cl.Tensor)]
    values = {"x": np.arange(6.0, dtype=np.float32), "rows": np.zeros((6, 0), np.float32)}
    expected = cl.interpret(graph, values=values, outputs=graph_outputs)
    for execution in ("tiles", "addresses"):
        run = cl.Engine(graph, execution=execution).function(inputs=[x, rows], outputs=graph_outputs)
        for name, value in jax.jit(run)(values).items():
            np.testing.assert_array_equal(value, expected[name])


def test_the_engine_runs_addresses():
    graph, x, y = chain()
    engine = cl.Engine(graph, execution="addresses")
    given = np.arange(1, 9, dtype=np.float32)
    engine.write({"x": given})
    engine.run()
    np.testing.assert_allclose(engine.read(y), cl.lower(graph, inputs=[x], outputs=[y])({"x": given})[y.name])


# --- looking at a tile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["fused", "tiles", "addresses"])
def test_a_tile_shows_its_memory_by_address(execution):
    graph, x, y = chain(1)
    graph.set_tile_mapping(x, np.arange(8) // 4)
    graph.set_tile_mapping(y, np.arange(8) // 4)
    engine = cl.Engine(graph, execution=execution)
    engine.write({"x": np.arange(1.0, 9.0)})
    before = engine.read_tile(1)
    assert before[y.name].values is None
    assert "step 0/out (variables): 4 elements, no value yet" in str(before)
    engine.run()
    tile = engine.read_tile(1)
    assert tile["x"].elements.tolist() == [4, 5, 6, 7]
    assert tile["x"].values.tolist() == [5, 6, 7, 8]
    np.testing.assert_array_equal(tile[y.name].values, engine.read(y)[4:])
    assert str(tile).split("\n")[:2] == [
        f"tile 1: {tile.bytes_used:,} of 638,976 bytes",
        "         0 to       16  x (variables): 4 elements, 5.0 6.0 7.0 8.0",
    ]
    with pytest.raises(TileError, match=r"there is no such tile\n  given: +2\n  expected: +a number from 0 to 1"):
        engine.read_tile(2)


@pytest.mark.parametrize(
    ("sizes", "num_tiles", "grain"), [((5, 9, 4), 7, 1), ((3, 20, 5), 8, 6), ((3, 4, 6), 3, 1)], ids=str
)
def test_what_follows_in_a_variable_need_not_on_a_tile(sizes, num_tiles, grain):
    """Sums of partial products read stretches that run over the ends of lines, of which a tile has a narrower box."""
    rows, summed, columns = sizes
    random = np.random.default_rng(0)
    a, b = (random.normal(size=shape).astype("f") for shape in ((rows, summed), (summed, columns)))
    graph = cl.Graph(cl.IPU(num_tiles=num_tiles))
    x, w = graph.add_constant("x", a), graph.add_constant("w", b)
    y = cl.ops.matmul(graph, x, w, grain=grain)
    engine = cl.Engine(graph, execution="tiles")
    engine.run()
    np.testing.assert_allclose(engine.read(y), a @ b, rtol=1e-4, atol=1e-4)


def test_a_view_of_no_elements_in_the_place_of_another():
    @cl.codelet
    def shift(x, y):
        return x + y

    graph = cl.Graph(cl.IPU(num_tiles=8))
    shift_by, empty = graph.add_variable("by", (1,)), graph.add_variable("empty", (1, 0))
    made = graph.add_vertex("shift", shift, x=empty, y=shift_by[0])
    engine = cl.Engine(graph, execution="addresses")
    engine.write({"by": np.ones(1, np.float32)})
    engine.run()
    assert engine.read(made.name).shape == (1, 0)
    function = engine.function(inputs=["by"], outputs=["by"])
    assert function({"by": np.ones(1, np.float32)})["by"] == 1
