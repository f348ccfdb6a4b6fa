"""The machine as a whole: a program planned on tiles, and what the profile says of it."""

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.placement import Placement, num_elements
from tests.strategies import total


@cl.codelet(cycles=lambda x, w: 5 + (x.size + 1) // 2)
def multiply(x, w):
    return jnp.dot(x, w)


@cl.codelet(cycles=lambda partials: 5 + (partials.size + 1) // 2)
def add_up(partials):
    return jnp.sum(partials)


def matrix_vector(target, rows, columns, parts, tiles_of_part, block, block_of_sums):
    """Poplar's tutorial: rows times column parts on tiles, the vector spread linearly, sums in blocks of rows."""
    graph = cl.Graph(target)
    x, w = graph.add_variable("x", (columns,)), graph.add_variable("w", (rows, columns))
    partial, y = graph.add_variable("partial", (rows, parts)), graph.add_variable("y", (rows,))
    row, part, column = *cl.grid(rows, parts), cl.grid(columns)
    here = slice(part * columns // parts, (part + 1) * columns // parts)
    tile = part * tiles_of_part + row // block
    graph.add_vertex("multiply", multiply, x=x[here], w=w[row, here], out=partial[row, part], tile=tile)
    graph.set_tile_mapping(x[column], column % target.num_tiles)
    graph.set_tile_mapping(w[row, here], tile)
    graph.set_tile_mapping(partial[row, part], tile)
    row = cl.grid(rows)
    graph.add_vertex("add up", add_up, partials=partial[row], out=y[row], tile=row // block_of_sums)
    graph.set_tile_mapping(y[row], row // block_of_sums)
    return graph


PLAIN = {"sync_cycles": 0, "exchange_overhead_cycles": 0, "launch_cycles": 0, "route": None, "paired_exchange": False}
"""The machine of Poplar's tutorial: nothing but computing and words takes time."""


@pytest.mark.parametrize(
    ("chip", "parts", "sizes", "expected"),
    [
        ("mk2", 7, (210, 48, 7), (3696, 143, 49, 108)),
        ("mk1", 5, (243, 42, 9), (4410, 200, 45, 96)),
    ],
)
def test_the_matrix_vector_tutorial_to_the_cycle(chip, parts, sizes, expected):
    target = cl.IPU(chip, **PLAIN)
    profile = cl.Engine(matrix_vector(target, 10_000, 1_000, parts, *sizes)).profile()
    products, sums = profile.steps
    compute, exchange, exchange_of_sums, compute_of_sums = expected
    assert (products.compute_cycles, products.exchange_cycles) == (compute, exchange)
    assert (sums.exchange_cycles, sums.compute_cycles) == (exchange_of_sums, compute_of_sums)
    assert profile.total_cycles == sum(expected)


@pytest.mark.slow
def test_the_paired_bus_the_sync_and_the_routes_change_the_tutorial():
    build = lambda **changes: matrix_vector(cl.IPU(**PLAIN | changes), 10_000, 1_000, 7, 210, 48, 7)  # noqa: E731
    before, paired, synced, routed = (
        cl.Engine(build(**changes)).profile()
        for changes in (
            {},
            {"paired_exchange": True},
            {"sync_cycles": 90, "exchange_overhead_cycles": 100},
            {"route": cl.IPU().route},
        )
    )
    # A chunk of the vector goes to the tiles of a part, its last one alone: half of the parts are whole pairs.
    own, other = (profile.steps[0].phases[1].by_tile for profile in (paired, before))
    assert paired.steps[0].exchange_cycles == before.steps[0].exchange_cycles
    assert 0.4 * other.sum() < own.sum() <= other.sum()
    assert paired.compute_cycles == before.compute_cycles
    assert synced.total_cycles == before.total_cycles + 2 * (90 + 100)
    assert 2 * 52 < routed.total_cycles - before.total_cycles <= 2 * (52 + 44)


def test_a_program_of_every_kind_is_planned_and_profiled():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y, p = graph.add_variable("x", (16,)), graph.add_variable("y", (4,)), graph.add_variable("p", (), "int32")
    own = graph.add_variable("own", (16,))
    feed, sent = graph.add_input_stream("feed", (16,)), graph.add_output_stream("sent", (4,))
    i = cl.grid(4)
    sums = graph.add_compute_set("sums")
    graph.add_vertex(sums, total, x=own[4 * i : 4 * i + 4], out=y[i])
    function = graph.add_function(sums, [own])
    program = cl.Sequence(
        cl.Repeat(3, [cl.Copy(feed, x), cl.Call(function, own=x)]),
        cl.If(p, cl.Call(function, own=x), cl.Copy(x[:4], y)),
        cl.Switch(p, {1: cl.Copy(x[4:8], y)}),
        cl.RepeatWhile(cl.Sequence(), p, cl.Call(function, own=x), trip_count=5),
        cl.Copy(y, sent),
        cl.Print(y),
        cl.AbortOn(p, "no"),
        cl.WriteUndef(x),
    )
    engine = cl.Engine(graph, program)
    profile = engine.profile()
    names = [(step.name, step.iterations) for step in profile.steps]
    assert names == [
        ("receive feed -> x", 3),
        ("copy x -> own", 3),
        ("sums", 3),
        ("copy x -> y", 0),  # the branch of the If that takes less
        ("copy x -> own", 1),
        ("sums", 1),
        ("copy x -> y", 1),
        ("copy x -> own", 5),
        ("sums", 5),
        ("send y -> sent", 1),
    ]
    assert profile.num_vertices == 4
    assert profile.total_cycles == sum(step.total_cycles for step in profile.steps)
    assert "sums" in str(engine.machine())


def test_placement_changes_cycles_and_not_values():
    def build(tile):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x = graph.add_variable("x", (64,))
        i = cl.grid(8)
        y = graph.add_vertex("sums", total, x=x[8 * i : 8 * i + 8], tile=tile(i))
        return graph, y

    values = np.arange(64, dtype=np.float32)
    results, cycles = [], []
    for tile in (lambda i: i, lambda i: 0 * i):
        graph, y = build(tile)
        engine = cl.Engine(graph)
        engine.write({"x": values})
        engine.run()
        results.append(engine.read(y))
        cycles.append(engine.profile().steps[0].compute_cycles)
    np.testing.assert_array_equal(*results)
    launch = cl.IPU().launch_cycles
    assert cycles[1] - launch == 2 * (cycles[0] - launch)  # eight vertices on one tile of six workers


@cl.codelet
def double(x):
    return 2 * x


def small_engine(programs=None):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (64,))
    i = cl.grid(8)
    graph.add_vertex("sums", total, x=x[8 * i : 8 * i + 8])
    named = dict.fromkeys(programs, graph.compute_sets[0]) if programs else None
    return cl.Engine(graph, named)


def test_mistakes_in_asking_for_a_profile():
    with pytest.raises(cl.ProgramError, match=r"several programs\n  expected: the name of one: 'a' or 'b'"):
        small_engine(["a", "b"]).profile()
    with pytest.raises(
        cl.ProgramError, match=r"no such program\n  given:    train\n  expected: the name of one: 'main'"
    ):
        small_engine().profile("train")
    with pytest.raises(
        cl.ProgramError, match=r"given:    'auto'\n  expected: 'balanced', 'linear', 'bytes', 'rows', 'blocks', "
    ):
        small_engine().profile(placement="auto")  # type: ignore[arg-type]
    memory = small_engine().machine().memory
    for ask in (memory.tile_text, memory.largest_on):
        for tile in (-1, 8):
            with pytest.raises(cl.TileError, match=rf"given:    {tile}\n  expected: 0 to 7"):
                ask(tile)
    with pytest.raises(cl.TargetError, match=r"given:    8\n(.*\n)*  fix:      cl.IPU\(num_tiles=8\)"):
        cl.IPU(8)  # type: ignore[arg-type]


def test_a_machine_is_shown_on_a_line():
    machine = small_engine().machine()
    assert repr(machine) == (
        "<MachinePlan of <Graph: 8 vertices, 2 variables>: <Memory: at most 4,216 of 638,976 bytes on a tile>>"
    )
    assert repr(machine.placement) == "<Placement of <Graph: 8 vertices, 2 variables> on 8 tiles>"
    assert repr(machine.exchange) == "<Exchange of 1 step between 8 tiles>"
    assert repr(machine.liveness) == "<Liveness of 2 variables over 1 moment>"


def test_what_users_need_of_the_machine_is_in_codelet():
    assert isinstance(small_engine().profile(), cl.Profile)
    assert issubclass(cl.UnknownCyclesWarning, Warning)
    for error in (cl.CyclesError, cl.FigureError, cl.TargetError):
        assert issubclass(error, cl.CodeletError)


def test_what_the_host_does_not_keep_shares_memory():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = h = graph.add_variable("x", (64,))
    i = cl.grid(64)
    for k in range(4):
        h = graph.add_vertex(f"step {k}", double, x=h[63 - i])
    engine = cl.Engine(graph)
    everything, few = engine.profile(), engine.profile(host_visible=["x", h])
    assert few.total_cycles == everything.total_cycles
    assert few.memory_by_kind["variables, always live"] == 2 * 64 * 4
    assert few.memory_by_tile.sum() < everything.memory_by_tile.sum()
    assert engine.machine(host_visible=[x, h]).memory.bytes_by_tile.tolist() == few.memory_by_tile.tolist()
    with pytest.raises(cl.NotInGraphError):
        engine.profile(host_visible=["nothing"])


def test_what_has_no_tile_is_placed_beside_what_has():
    for part in (slice(0, 4), slice(0, 8)):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y = graph.add_variable("x", (8,)), graph.add_variable("y", ())
        graph.add_vertex("sum", total, x=x, out=y)
        graph.set_tile_mapping(x[part], 6)
        placement = cl.Engine(graph).machine().placement
        assert set(placement.tiles_of(x.source)[part].tolist()) == {6}
        assert 0 <= placement.tiles_of(y.source)[0] < 8


def test_a_profile_is_of_where_the_engine_places():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y = graph.add_variable("x", (64,)), graph.add_variable("y", (8,))
    i = cl.grid(8)
    graph.add_vertex("sums", total, x=x[8 * i : 8 * i + 8], out=y[i])
    seen = []

    def on_tile_3(plan):
        seen.append(plan)
        return Placement(
            plan,
            8,
            ElementTiles.of(plan, np.full(num_elements(plan), 3, np.int32)),
            {f: np.full(8, 3, np.int32) for f in plan.families},
        )

    for execution in ("fused", "tiles"):
        engine = cl.Engine(graph, execution=execution, placement=on_tile_3)
        assert np.flatnonzero(engine.profile().compute_by_tile).tolist() == [3]
        assert {*engine.machine().placement.tiles_of(x.source).tolist()} == {3}
        assert np.flatnonzero(engine.profile(placement="linear").compute_by_tile).tolist() == [0]
    assert np.flatnonzero(cl.Engine(graph).profile(placement=on_tile_3).compute_by_tile).tolist() == [3]
    assert len(seen) >= 4
    # Several programs live in one placement.
    with graph.record() as other:
        graph.add_vertex("double", double, x=y[i], out=graph.add_variable("z", (8,))[i])
    engine = cl.Engine(graph, {"one": graph.compute_sets[0], "two": other}, placement="linear")
    tiles = [engine.machine(name).placement.tiles_of(y.source) for name in ("one", "two")]
    np.testing.assert_array_equal(*tiles)


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        (lambda plan: None, cl.ProgramError, "returns no placement\n  given:    NoneType"),
        (
            lambda plan: Placement(plan, 8, ElementTiles.of(plan, np.zeros(80, np.int32)), {}),
            cl.ProgramError,
            "without a tile",
        ),
        (
            lambda plan: Placement(
                plan, 8, ElementTiles.of(plan, np.full(80, 8)), {f: np.zeros(8, np.int32) for f in plan.families}
            ),
            cl.TileError,
            "names a tile that does not exist\n  given:    8\n  expected: 0 to 7",
        ),
    ],
)
def test_functions_that_place_wrongly(how, error, said):
    with pytest.raises(error, match=said):
        small_engine().profile(placement=how)
    with pytest.raises(error, match=said):
        cl.Engine(small_engine().graph, execution="tiles", placement=how)
