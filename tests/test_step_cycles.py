"""Cycles of programs equal those of a machine that walks them: a clock for each tile, and who waits for whom."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.vertex_cycles import family_cycles
from codelet.superstep import PlacedVertices, tile_cycles
from codelet.target import VertexCycles
from ipu_backend.model.profile_plan import MemoryUse, profile_plan
from lowering.machine.exchange import plan_exchange
from lowering.machine.step_cycles import (
    MovingStep,
    StepTimes,
    least_cycles,
    moving_moments,
    step_traffic,
    total_cycles,
)
from lowering.plan.steps import CopyStep, ExecuteStep, RepeatStep, StreamStep, SwitchStep, UndefStep, WhileStep
from lowering.plan.timeline import timeline
from tests.examples import examples
from tests.placements import chains, placements, quiet

# --- a machine that walks -------------------------------------------------------------------------------


class Walk:
    """A clock for each tile, which goes on by what the tile computes, and from all together by what moves."""

    def __init__(self, exchange):
        self.exchange, self.placement = exchange, exchange.placement
        self.target = self.placement.plan.graph.target
        self.clocks = np.zeros(self.target.num_tiles, np.int64)

    def wait(self):
        self.clocks[:] = self.clocks.max()

    def move(self, traffic):
        if traffic is not None and not traffic.is_empty:
            self.wait()
            (sync, phase) = StepTimes({}, self.target).exchange(traffic)
            assert sync.cycles == self.target.sync_cycles
            self.clocks += sync.cycles + np.max(phase.by_tile)

    def send(self, moved):
        """To or from the host: the tiles' own exchange, unless the host takes longer; and what every copy takes."""
        tiles = StepTimes({}, self.target).exchange(moved.before)
        if tiles:
            self.wait()
            sync, phase = tiles
            slower = max(moved.host_cycles, int(np.max(phase.by_tile)))
            self.clocks += sync.cycles + self.target.host_overhead_cycles + slower

    def compute(self, step, moved):
        if isinstance(step, CopyStep):
            self.clocks += StepTimes({}, self.target).copy(moved.copied).by_tile
        elif isinstance(step, ExecuteStep):
            for tile in range(self.target.num_tiles):
                own = []
                for family in step.families:
                    tiles, cycles = self.placement.vertex_tiles[family], family_cycles(family, self.target)
                    here = np.flatnonzero(tiles == tile)
                    which = None if cycles.of_vertex is None else cycles.of_vertex[here]
                    own.append(PlacedVertices(tiles[here], type(cycles)(cycles.distinct, which)))
                if any(len(some.tiles) for some in own):
                    self.clocks[tile] += tile_cycles(own, self.target.num_tiles, self.target.num_workers)[tile]
                    self.clocks[tile] += self.target.launch_cycles

    def run(self, steps):
        for step in steps:
            if isinstance(step, MovingStep):
                moved = step_traffic(step, self.exchange)
                if isinstance(step, StreamStep):
                    self.send(moved)
                else:
                    self.move(moved.before)
                self.compute(step, moved)
                self.move(moved.after)
            elif not isinstance(step, UndefStep):
                self.wait()
                self.choose(step)
                self.wait()

    def choose(self, step):
        if isinstance(step, RepeatStep):
            for _ in range(step.count):
                self.run(step.body)
                self.wait()
        elif isinstance(step, WhileStep):
            for _ in range(step.counted_turns.number):
                for body in (step.condition, step.body):
                    self.run(body)
                    self.wait()
            self.run(step.condition)
        elif isinstance(step, SwitchStep):
            start, ends = self.clocks.copy(), []
            for branch in step.branches:
                self.clocks = start.copy()
                self.run(branch)
                ends.append(self.clocks.max())
            self.clocks[:] = max(ends)


def check_walked(placement):
    exchange = plan_exchange(placement)
    walk = Walk(exchange)
    walk.run(placement.plan.steps)
    assert total_cycles(exchange) == walk.clocks.max()
    assert least_cycles(placement.plan, placement.vertex_tiles) <= walk.clocks.max()
    # The profile of the same says the same, step by step.
    moments = list(moving_moments(timeline(placement.plan)))
    none = np.zeros(len(moments), np.int64)
    traffic = [step_traffic(moment.step, exchange) for moment in moments]  # type: ignore[arg-type]
    profile = profile_plan(placement.plan, placement.vertex_tiles, traffic, MemoryUse({}, none, none))
    assert profile.total_cycles == walk.clocks.max() == profile.step_frame["total_cycles"].sum()
    parts = profile.compute_cycles, profile.exchange_cycles, profile.sync_cycles, profile.host_cycles
    assert sum(parts) == profile.total_cycles
    assert 0 <= profile.launch_cycles <= min(profile.fitted_cycles, profile.compute_cycles)
    assert profile.sourced_cycles >= profile.exchange_cycles + profile.sync_cycles
    assert profile.guessed_cycles >= 0
    # In the trace no two blocks of a tile are at one time, nor of a kind, and the longest ends with the program.
    tracks = {}
    for event in profile.chrome_trace(range(profile.target.num_tiles))["traceEvents"]:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for blocks in tracks.values():
        assert all(later[0] >= end - 1e-6 for (_, end), later in itertools.pairwise(blocks))
    last = max((blocks[-1][1] for blocks in tracks.values()), default=0.0)
    assert last * 1e-6 * profile.target.clock_hertz == pytest.approx(profile.total_cycles)


@examples(10)
@given(st.one_of(placements(max_iterations=4), placements(loops=True), chains(), quiet(), quiet()))
def test_programs_take_what_a_machine_takes_that_walks_them(placement):
    check_walked(placement)


# --- rules, one by one ------------------------------------------------------------------------------------


@cl.codelet(cycles=lambda x, *, cycles: cycles)
def work(x, *, cycles):
    return {"x": x + 1}


def two_sets(between, target):
    """Two compute sets on two tiles, in which one tile and then the other takes longer; and what stands between."""
    graph = cl.Graph(target)
    x = graph.add_variable("x", (2,))
    graph.set_tile_mapping(x[0], 0)
    graph.set_tile_mapping(x[1], 1)
    unused = graph.add_variable("unused", (1,))
    graph.set_tile_mapping(unused, 0)
    sets = []
    for name, cycles in (("one", (100, 50)), ("two", (10, 70))):
        sets.append(graph.add_compute_set(name))
        for tile, own in enumerate(cycles):
            graph.add_vertex(sets[-1], work, x=x[tile : tile + 1], cycles=own, tile=tile)
    return cl.Engine(graph, [sets[0], *between(x, unused), sets[1]]).profile()


def test_tiles_wait_only_where_something_moves():
    target = cl.IPU(num_tiles=2, num_workers=1, launch_cycles=8)
    for between in (lambda x, unused: [], lambda x, unused: [cl.WriteUndef(unused)]):
        profile = two_sets(between, target)
        one, two = profile.steps
        # 118 of tile 0 against 136 of tile 1, which the second step takes over: 28 more.
        assert (one.compute_cycles, two.compute_cycles, profile.total_cycles) == (108, 28, 136)
        assert two.phases[0].slowest == 78
        assert two.launch_cycles == round(28 * 8 / 78)
        assert profile.sync_cycles == profile.exchange_cycles == 0
        blocks = {
            (event["pid"], event["tid"], event["name"].removeprefix("compute ")): (event["ts"], event["dur"])
            for event in profile.chrome_trace([0, 1])["traceEvents"]
            if event["ph"] == "X"
        }
        cycles = {key: tuple(round(1e-6 * t * target.clock_hertz) for t in span) for key, span in blocks.items()}
        assert cycles[1, 0, "one"] == (0, 108)
        assert cycles[1, 0, "two"] == (108, 18)
        assert cycles[1, 1, "one"] == (0, 58)
        assert cycles[1, 1, "two"] == (58, 78)
        assert cycles[0, 2, "two"] == (108, 28)
    moving = two_sets(lambda x, unused: [cl.Copy(x[:1], x[1:])], target)
    assert moving.compute_cycles == 108 + 0 + 78
    assert moving.sync_cycles == target.sync_cycles == 90
    assert moving.exchange_cycles == 100 + 1 + 52
    # A loop's end is taken for a place where all wait.
    looped = two_sets(lambda x, unused: [cl.Repeat(2, cl.WriteUndef(unused))], target)
    assert looped.total_cycles == 108 + 78


@pytest.mark.parametrize("turns", [None, 5])
def test_loops_end_rows_of_steps_and_guessed_turns_are_guesses(turns):
    """The last turn of one loop and the condition of the next are not one row, though no step stands between."""
    graph = cl.Graph(cl.IPU(num_tiles=2, num_workers=1, launch_cycles=8))
    x, p = graph.add_variable("x", (2,)), graph.add_variable("p", (), "int32")
    i = cl.grid(2)
    graph.set_tile_mapping(x[i], i)
    graph.set_tile_mapping(p, 0)
    sets = {}
    for cycles in (100, 30, 50):
        sets[cycles] = graph.add_compute_set(f"of {cycles}")
        graph.add_vertex(sets[cycles], work, x=x[cycles % 3 % 2 : cycles % 3 % 2 + 1], cycles=cycles)
    loops = [cl.RepeatWhile(sets[a], p, sets[b], trip_count=turns) for a, b in ((30, 100), (50, 30))]
    profile = cl.Engine(graph, loops).profile()
    count = 16 if turns is None else turns
    assert [(step.name, step.iterations) for step in profile.steps] == [
        ("of 30", count + 1), ("of 100", count), ("of 50", count + 1), ("of 30", count)
    ]  # fmt: skip
    assert profile.total_cycles == (count + 1) * (38 + 58) + count * (108 + 38)
    if turns is None:
        assert profile.guessed_cycles == profile.total_cycles
        assert profile.fitted_cycles == 0
        assert "provenance: 100.0% guessed" in str(profile)
    else:
        assert profile.guessed_cycles == 0
        assert profile.fitted_cycles == profile.launch_cycles == 8 * (4 * count + 2)


def exchanged(build, dtype="float32", **changes):
    """What one step moves before it computes."""
    graph = cl.Graph(cl.IPU(num_tiles=8, **changes))
    build(graph, dtype)
    engine = cl.Engine(graph)
    (own,) = engine.machine().exchange.steps.values()
    return own.before


@cl.codelet
def passed(x):
    return x


def scattered(graph, dtype):
    """A hundred elements, each after one that is not read, from tile 0 to tile 3."""
    x, y = graph.add_variable("x", (200,), dtype), graph.add_variable("y", (100,), dtype)
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 3)
    i = cl.grid(100)
    graph.add_vertex("set", passed, x=x[2 * i], out=y[i], tile=3)


def in_a_row(graph, dtype):
    """A hundred elements in a row from tile 0 to tile 3."""
    x, y = graph.add_variable("x", (100,), dtype), graph.add_variable("y", (100,), dtype)
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 3)
    graph.add_vertex("set", passed, x=x, out=y, tile=3)


def dealt(graph, dtype):
    """Neighbours to different tiles."""
    x, y = graph.add_variable("x", (4,), dtype), graph.add_variable("y", (4,), dtype)
    graph.set_tile_mapping(x, 0)
    i = cl.grid(4)
    graph.set_tile_mapping(y[i], 1 + i)
    graph.add_vertex("set", passed, x=x[i], out=y[i], tile=1 + i)


@pytest.mark.parametrize(
    ("build", "dtype", "words", "messages"),
    [
        (scattered, "float16", 100, 100),
        (scattered, "float32", 100, 100),
        (in_a_row, "float16", 50, 1),
        (in_a_row, "int8", 25, 1),
        (in_a_row, "float32", 100, 1),
        (dealt, "float16", 4, 4),
        (dealt, "int8", 4, 4),
    ],
)
def test_runs_move_as_whole_words(build, dtype, words, messages):
    moved = exchanged(build, dtype)
    assert moved.traffic.sent_words.tolist() == [words, *[0] * 7]
    assert moved.traffic.received_words.sum() == words
    assert moved.sent_messages[0] == moved.received_messages.sum() == messages


def test_long_runs_are_several_messages():
    moved = exchanged(in_a_row, max_message_words=30)
    assert moved.sent_messages.tolist() == [4, *[0] * 7]
    assert moved.received_messages.tolist() == [0, 0, 0, 4, *[0] * 4]


@pytest.mark.parametrize(
    ("tiles", "partner_sends", "paired"),
    [
        ([2, 3], False, True),
        ([2, 3, 6, 7], False, True),
        ([2, 3, 6], False, False),
        ([1], False, False),
        ([2], False, False),
        ([2, 3], True, False),
    ],
)
def test_what_whole_pairs_alone_receive_moves_at_twice_the_rate(tiles, partner_sends, paired):
    def build(graph, dtype):
        x, other = graph.add_variable("x", (64,)), graph.add_variable("other", (1,))
        y = graph.add_variable("y", (len(tiles), 64))
        graph.set_tile_mapping(x, 0)
        graph.set_tile_mapping(other, 1)
        i, to = cl.grid(len(tiles)), cl.table(tiles)
        graph.set_tile_mapping(y[i], to[i])
        sets = graph.add_compute_set("set")
        graph.add_vertex(sets, passed, x=x, out=y[i], tile=to[i])
        if partner_sends:
            z = graph.add_variable("z", (1,))
            graph.set_tile_mapping(z, 5)
            graph.add_vertex(sets, passed, x=other, out=z, tile=5)
        else:
            graph.add_vertex(sets, work, x=other, cycles=1, tile=1)

    for pairs in (False, True):
        moved = exchanged(build, paired_exchange=pairs, route=None)
        target = moved.placement.plan.graph.target
        (_, phase) = StepTimes({}, target).exchange(moved.traffic)
        expected = np.zeros(8, int)
        expected[[0, *tiles]] = 32 if paired and pairs else 64
        if partner_sends:
            expected[[1, 5]] = 1
        assert (phase.by_tile - target.exchange_overhead_cycles).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("copy", "in_rows", "strided"),
    [
        (lambda x, y: (x[:8], y[:8]), 8, 0),
        (lambda x, y: (x[7::-1], y[7::-1]), 8, 0),
        (lambda x, y: (x[7::-1], y[:8]), 0, 8),
        (lambda x, y: (x[:16:2], y[:8]), 0, 8),
        (lambda x, y: (x[:8], y[:16:2]), 0, 8),
        (lambda x, y: (x[:16].reshape(4, 4).T, y[:16].reshape(4, 4)), 0, 16),
        (lambda x, y: (x[0].broadcast_to((6,)), y[:6]), 0, 6),
        (lambda x, y: (x[:8].pad(((4, 4),)), y[:16]), 16, 0),
        (lambda x, y: (x[8:24], y[8:24]), 16, 0),
        (lambda x, y: (x[8:24], y), 0, 0),
    ],
)
def test_copies_within_tiles_are_in_rows_or_strided(copy, in_rows, strided):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y, z = graph.add_variable("x", (32,)), graph.add_variable("y", (32,)), graph.add_variable("z", (16,))
    graph.set_tile_mapping(x, np.arange(32) // 16)
    graph.set_tile_mapping(y, np.arange(32) // 16)
    graph.set_tile_mapping(z, 3)
    source, to = copy(x, y)
    exchange = cl.Engine(graph, cl.Copy(source, to if to is not y else z)).machine().exchange
    (step,) = exchange.steps
    assert isinstance(step, CopyStep)
    copied = step_traffic(step, exchange).copied
    assert copied is not None
    assert (int(copied.row_bytes.sum()), int(copied.strided_elements.sum())) == (4 * in_rows, strided)
    phase = StepTimes({}, graph.target).copy(copied)
    rows = [own // 4 for own in copied.row_bytes.tolist()]
    expected = [
        6 * ((23 + -(-row // 12)) * (row > 0) + (1 + 8 * -(-alone // 6)) * (alone > 0)) + 80 * (row + alone > 0)
        for row, alone in zip(rows, copied.strided_elements.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(phase.by_tile, expected)
    assert (phase.guessed > 0, phase.fitted > 0) == (in_rows > 0, in_rows + strided > 0)


class Supposed(cl.Machine):
    """A machine that says of each vertex what its cycles rest on."""

    def estimate_cycles(self, codelet):
        return VertexCycles(worker=60, supervisor=40, fitted=25, guessed=50, if_assembly=70)


def test_what_cycles_rest_on_is_told_by_step_and_in_all():
    target = Supposed(
        name="made up", num_tiles=4, bytes_per_tile=2**16, clock_hertz=1e9, launch_cycles=20, num_workers=2
    )
    graph = cl.Graph(target)
    x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (8,))
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 1)
    i = cl.grid(2)
    graph.add_vertex("set", passed, x=x[4 * i : 4 * i + 4], out=y[4 * i : 4 * i + 4], tile=1)
    profile = cl.Engine(graph, cl.Repeat(3, graph.compute_sets[0])).profile()
    (step,) = profile.steps
    # 20 of launch, two workers side by side at half the speed, 40 of the supervisor for each.
    assert step.compute_cycles == 3 * (20 + 2 * 60 + 2 * 40)
    assert step.launch_cycles == 3 * 20
    assert (step.fitted_cycles, step.guessed_cycles) == (3 * (20 + 50), 3 * 100)
    assert step.sourced_cycles == step.total_cycles - 3 * 170 == 3 * 50 + step.exchange_cycles
    assert (profile.fitted_cycles, profile.guessed_cycles) == (step.fitted_cycles, step.guessed_cycles)
    frame = profile.step_frame
    assert [frame[f"{name}_cycles"].tolist() for name in ("launch", "fitted", "guessed")] == [[60], [210], [300]]
    assert profile.codelet_frame["cycles"].tolist() == [600]
    assert profile.codelet_frame["if_assembly_cycles"].tolist() == [420]
    said = str(profile)
    assert "passed  600  100.0%          420" in said
    assert "of the 600 cycles on one worker 600 are theirs, which as assembly would be 420" in said
    total = profile.total_cycles
    assert f"{100 * 210 / total:.1f}% fitted, {100 * 300 / total:.1f}% guessed" in said
