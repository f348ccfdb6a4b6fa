"""The profile: the time of tiles, of exchanges, of plans; as text, columns, traces and figures."""

import json
import pickle
import sys
from dataclasses import replace

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.superstep import Copied, PlacedVertices, Traffic, copy_cycles, exchange_cycles, tile_cycles
from codelet.target import FamilyCycles, VertexCycles
from ipu_backend.jobs.matvec import dot_vertex_cycles, estimate_matvec, search_matvec
from ipu_backend.model.machine import Route, TargetError
from ipu_backend.model.profile import Profile
from ipu_backend.model.profile_plan import MemoryUse, profile_plan
from ipu_backend.model.step_profile import FigureError
from lowering.machine.step_cycles import StepTraffic, moving_moments
from lowering.pipeline import plan_engine
from lowering.plan.timeline import timeline
from tests.examples import few

mpl.use("Agg")

# --- the time of a tile -----------------------------------------------------------------------------------


def dealt_one_by_one(cycles, num_workers):
    loads = [0] * num_workers
    for each in sorted(cycles, reverse=True):
        loads[loads.index(min(loads))] += each
    return num_workers * max(loads)


@st.composite
def placed_vertices(draw):
    num_tiles = draw(st.integers(1, 4))
    groups = []
    for _ in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 40))
        kinds = st.builds(
            VertexCycles, st.integers(0, 30), st.sampled_from([0, 0, 7]), st.sampled_from([False, False, True])
        )
        distinct = tuple(draw(st.lists(kinds, min_size=1, max_size=5, unique=True)))
        random = np.random.default_rng(draw(st.integers(0, 2**16)))
        tiles = random.integers(0, num_tiles, count).astype(np.int32)
        alike = draw(st.booleans())
        of_vertex = None if alike else random.integers(0, len(distinct), count).astype(np.int32)
        groups.append(PlacedVertices(tiles, FamilyCycles(distinct, of_vertex)))
    return groups, num_tiles, draw(st.integers(1, 7))


@pytest.mark.slow
@given(placed_vertices())
def test_vertices_are_dealt_to_workers_longest_first(case):
    groups, num_tiles, num_workers = case
    found = tile_cycles(groups, num_tiles, num_workers)
    for tile in range(num_tiles):
        own = [(c, g) for g in groups for c in (g.tiles == tile).nonzero()[0].tolist()]
        own = [g.cycles.distinct[0 if g.cycles.of_vertex is None else g.cycles.of_vertex[c]] for c, g in own]
        together = sum(v.supervisor + num_workers * v.worker * v.shared for v in own)
        assert found[tile] == together + dealt_one_by_one([v.worker for v in own if not v.shared], num_workers)


@given(st.integers(0, 100), st.integers(0, 50), st.integers(1, 8))
def test_equal_vertices_by_the_closed_form(count, each, num_workers):
    group = PlacedVertices(np.zeros(count, np.int32), FamilyCycles((VertexCycles(each),)))
    assert tile_cycles([group], 1, num_workers) == [-(-count // num_workers) * num_workers * each]


def test_many_different_cycles_are_counted_by_sorting():
    random = np.random.default_rng(0)
    cycles, tiles = random.integers(1, 10**9, 300), random.integers(0, 1472, 300).astype(np.int32)
    distinct, of_vertex = np.unique(cycles, return_inverse=True)
    found = tile_cycles(
        [PlacedVertices(tiles, FamilyCycles(tuple(map(VertexCycles, distinct.tolist())), of_vertex.astype(np.int32)))],
        1472,
        6,
    )
    for tile in np.unique(tiles):
        assert found[tile] == dealt_one_by_one(cycles[tiles == tile].tolist(), 6)


# --- the time of an exchange --------------------------------------------------------------------------------


PLAIN = {"sync_cycles": 0, "exchange_overhead_cycles": 0, "launch_cycles": 0, "route": None, "paired_exchange": False}
"""A machine on which nothing but computing and words takes time, as Poplar's tutorials reckon."""


def words(*numbers):
    return np.array(numbers, np.int64)


def test_the_busiest_tile_decides_and_rounds_up():
    traffic = Traffic(words(3, 0, 1, 0), words(0, 5, 0, 0))
    for changes, expected in (({}, [3, 5, 1, 0]), ({"exchange_bytes_per_cycle": 8}, [2, 3, 1, 0])):
        target = cl.IPU(num_tiles=4, **PLAIN, **changes)
        assert exchange_cycles(traffic, target, target.arrival_cycles()).tolist() == expected


def test_what_goes_to_pairs_moves_at_twice_the_rate():
    target = cl.IPU(num_tiles=4, **PLAIN)
    traffic = Traffic(words(10, 12, 0, 0), words(0, 0, 12, 0), words(10, 10, 0, 0), words(0, 0, 10, 0))
    assert exchange_cycles(traffic, target, target.arrival_cycles()).tolist() == [5, 7, 7, 0]


def test_what_is_received_has_been_under_way():
    """Pairs of tiles lie along columns, there and back."""
    target = cl.IPU(num_tiles=12, route=Route(cycles=50, row_cycles=2, rows=3))
    assert target.arrival_cycles().tolist() == [50, 50, 52, 52, 54, 54, 54, 54, 52, 52, 50, 50]
    traffic = Traffic(words(*[0] * 4, 7, *[0] * 7), words(7, *[0] * 11))
    assert exchange_cycles(traffic, target, target.arrival_cycles()).tolist() == [7, 0, 0, 0, 61, *[0] * 7]
    assert cl.IPU().arrival_cycles().max() == 52 + 2 * 22
    assert cl.IPU("mk1").arrival_cycles().max() == 52 + 2 * 18
    assert cl.IPU(num_chips=2).arrival_cycles()[1472] == 52


def test_copies_within_a_tile():
    """In rows 8 bytes at a time, or 8 cycles an element."""
    copied = Copied(words(0, 1, 480, 0, 480), words(0, 0, 0, 7, 6))
    assert copy_cycles(copied, 6).tolist() == [0, 6 * 24, 6 * 33, 6 * (1 + 8 * 2), 6 * (33 + 1 + 8)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sync_cycles": -1}, "sync_cycles is not an integer from 0"),
        ({"num_workers": 0}, "num_workers is not an integer from 1"),
        ({"num_tiles": 1.5}, "num_tiles is not an integer from 1"),
        ({"paired_exchange": 1}, "paired_exchange is neither True nor False"),
        ({"clock_hertz": True}, "clock_hertz is not a number from 1"),
        ({"route": (52, 2, 0)}, "rows of a route is not an integer from 1\n  given:    0"),
        ({"route": (-1, 2, 23)}, "cycles of a route is not an integer from 0"),
    ],
)
def test_numbers_no_machine_has(changes, said):
    with pytest.raises(TargetError, match=said):
        cl.IPU(**{name: Route(*own) if name == "route" else own for name, own in changes.items()})
    assert cl.IPU(sync_cycles=0).sync_cycles == 0


# --- Poplar's matrix-vector tutorial --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chip", "splits", "parts", "total", "worst"),
    [("mk2", 7, (3696, 143, 49, 108), 3996, 53807), ("mk1", 5, (4410, 200, 45, 96), 4751, 64373)],
)
def test_the_tutorials_search(chip, splits, parts, total, worst):
    found = search_matvec(10000, 1000, cl.IPU(chip))
    assert found[0] == (splits, *parts) == estimate_matvec(10000, 1000, splits, cl.IPU(chip))
    assert (found[0].total_cycles, found[-1].total_cycles) == (total, worst)
    assert len(found) == 999


@cl.codelet(cycles=lambda x, w: dot_vertex_cycles(x.size))
def dot(x, w):
    return jnp.dot(x, w)


@cl.codelet(cycles=lambda x: dot_vertex_cycles(x.size))
def total(x):
    return jnp.sum(x)


def no_memory(num_steps, num_tiles):
    none = np.zeros(num_steps, np.int64)
    return MemoryUse({"variables": np.zeros(num_tiles, np.int64)}, none, none)


def tiles_of(plan):
    return {family: family.tile.values(family.axes).reshape(-1).astype(np.int32) for family in plan.families}


@few(
    "chip, splits, span, block, block_of_sums, expected",
    [("mk2", 7, 210, 48, 7, (3696, 143, 49, 108)), ("mk1", 5, 243, 42, 9, (4410, 200, 45, 96))],
    quick=["mk1, 5, 243, 42, 9, (4410, 200, 45, 96)"],
)
def test_the_tutorials_graph(chip, splits, span, block, block_of_sums, expected):
    rows, columns = 10000, 1000
    graph = cl.Graph(cl.IPU(chip, **PLAIN))
    x, w = graph.add_variable("x", (columns,)), graph.add_variable("w", (rows, columns))
    part, y = graph.add_variable("part", (rows, splits)), graph.add_variable("y", (rows,))
    row, p = cl.grid(rows, splits)
    here = slice(p * columns // splits, (p + 1) * columns // splits)
    graph.add_vertex("multiply", dot, x=x[here], w=w[row, here], out=part[row, p], tile=p * span + row // block)
    row = cl.grid(rows)
    graph.add_vertex("add up", total, x=part[row], out=y[row], tile=row // block_of_sums)

    plan = plan_engine(graph, graph.default_program)
    num_tiles = graph.target.num_tiles
    tile = np.arange(num_tiles)
    used = tile < splits * span
    vector = np.where(used, -(-columns // splits), 0)
    sums = np.where(tile < -(-rows // block_of_sums), splits * block_of_sums, 0)
    traffic = [
        StepTraffic(Traffic(vector, np.where(tile < columns, 1, 0))),
        StepTraffic(Traffic(sums, np.where(used, block, 0))),
    ]
    profile = profile_plan(plan, tiles_of(plan), traffic, no_memory(2, num_tiles))
    first, second = profile.steps
    found = (first.compute_cycles, first.exchange_cycles, second.exchange_cycles, second.compute_cycles)
    assert found == expected
    assert profile.total_cycles == sum(expected)
    assert (profile.num_vertices, profile.num_edges) == (graph.num_vertices, graph.num_edges)
    assert list(profile.cycles_by_codelet) == ["dot", "total"]
    assert profile.cycles_by_codelet["total"] == rows * dot_vertex_cycles(splits)


# --- a small profile, whole ----------------------------------------------------------------------------------


@cl.codelet(cycles=lambda x: 10 * x.size)
def halve(x):
    return {"x": x / 2}


def small_profile() -> tuple[cl.Graph, Profile]:
    graph = cl.Graph(cl.IPU(num_tiles=4, bytes_per_tile=1000, clock_hertz=1e9, sync_cycles=50))
    x, w, y = graph.add_variable("x", (8,)), graph.add_variable("w", (8,)), graph.add_variable("y", (1,))
    with graph.record() as body:
        i = cl.grid(4)
        graph.add_vertex("halve", halve, x=x[2 * i : 2 * i + 2], tile=i // 2)
    graph.add_vertex("sum", dot, x=x, w=w, out=y[0], tile=3)
    program = cl.Sequence(cl.Repeat(10, body), cl.Copy(x, w), graph.compute_sets[-1])
    plan = plan_engine(graph, program)
    assert [(type(moment.step).__name__, moment.turns) for moment in moving_moments(timeline(plan))] == [
        ("ExecuteStep", 10),
        ("CopyStep", 1),
        ("ExecuteStep", 1),
    ]
    traffic = [
        StepTraffic(),
        StepTraffic(
            Traffic(words(4, 4, 0, 0), words(4, 0, 0, 0), words(4, 4, 0, 0), words(4, 0, 0, 0)),
            None,
            Copied(words(0, 48, 0, 0), words(0, 0, 0, 0)),
            32,
        ),
        StepTraffic(
            Traffic(words(0, 0, 0, 8), words(4, 4, 0, 0)), Traffic(words(0, 1, 0, 0), words(0, 0, 0, 1)), None, 36
        ),
    ]
    memory = MemoryUse(
        {"variables": words(32, 32, 0, 4), "code": words(100, 100, 0, 80)}, words(32, 64, 68), words(36, 4, 0)
    )
    return graph, profile_plan(plan, tiles_of(plan), traffic, memory)


GOLDEN = """\
Target
  IPU('mk2', num_tiles=4, bytes_per_tile=1000, clock_hertz=1000000000.0, sync_cycles=50): 4 tiles of 1,000 bytes, \
6 workers each, 1 GHz
Graph
  vertices      5
  edges         7
  variables     3
  compute sets  2
Memory, in bytes
  348 of 4,000 (8.7%)
  no live ranges were planned: all variables keep their memory
             variables  code  total  of a tile
  all tiles         68   280    348
  tile 0            32   100    132      13.2%
  tile 1            32   100    132      13.2%
  tile 3             4    80     84       8.4%
  tile 2             0     0      0       0.0%
Cycles
  2,977 (3.0 us), tile balance 46.2%
  provenance: 62.9% published or given, 32.2% fitted, 4.8% guessed
               turns  exchange before  compute  exchange after  sync   total  launch  fitted  guessed  balance
  halve           10                0    2,000               0     0   2,000     800     800        0    50.0%
  copy x -> w      1              154      224               0    50     428      80      80      144    25.0%
  sum              1              162      134             153   100     549      80      80        0    25.0%
  all steps                       316    2,358             153   150   2,977     960     960      144
                                10.6%    79.2%            5.1%  5.0%  100.0%   32.2%   32.2%     4.8%
Cycles on one worker, by codelet
  halve  800  98.9%
  dot      9   1.1%
"""


def test_its_numbers():
    graph, profile = small_profile()
    halving, copying, adding = profile.steps
    # two vertices of 20 cycles on each of two tiles, ten turns, in which nothing moves
    assert halving.compute_cycles == 10 * (80 + 6 * 20)
    assert (halving.exchange_cycles, halving.sync_cycles) == (0, 0)
    assert halving.balance == 0.5
    # what goes to whole pairs takes half the time; on tiles 0 and 1 it arrives after 52 cycles
    assert (copying.name, copying.exchange_cycles, copying.sync_cycles) == ("copy x -> w", 100 + 52 + 2, 50)
    assert copying.compute_cycles == 80 + 6 * 24
    # what it writes elsewhere moves after it, with a sync of its own
    assert (adding.exchange_before_cycles, adding.exchange_after_cycles) == (100 + 54 + 8, 100 + 52 + 1)
    assert (adding.exchange_cycles, adding.compute_cycles, adding.sync_cycles) == (315, 80 + 6 * 9, 2 * 50)
    assert profile.total_cycles == sum(step.total_cycles for step in profile.steps) == 2000 + 428 + 549
    # launches are a fit, and how a tile copies is a guess
    assert [step.launch_cycles for step in profile.steps] == [step.fitted_cycles for step in profile.steps]
    assert [step.launch_cycles for step in profile.steps] == [800, 80, 80]
    assert [step.guessed_cycles for step in profile.steps] == [0, 6 * 24, 0]
    assert profile.sourced_cycles + profile.fitted_cycles + profile.guessed_cycles == profile.total_cycles
    assert profile.launch_cycles == profile.fitted_cycles == 960
    assert profile.total_cycles == profile.compute_cycles + profile.exchange_cycles + profile.sync_cycles
    assert profile.cycles_by_codelet == {"halve": 800, "dot": 9}
    assert profile.memory_by_tile.tolist() == [132, 132, 0, 84]
    assert profile.memory_by_kind == {"variables": 68, "code": 280}
    assert profile.fullest_tiles() == [0, 1, 3, 2]
    assert profile.tile_balance == pytest.approx((2000 + 2000 + 224 + 134) / 4 / (2000 + 224 + 134))
    assert (profile.num_vertices, profile.num_edges) == (graph.num_vertices, graph.num_edges)
    assert (profile.num_variables, profile.num_compute_sets) == (3, 2)
    assert profile.seconds == pytest.approx(profile.total_cycles / 1e9)


def test_two_exchanges_take_their_time_one_after_the_other():
    """What a vertex reads moves before it computes, what it writes after: 256 floats each, and a sync each."""

    @cl.codelet
    def twice(x):
        return 2 * x

    graph = cl.Graph()
    x, y = graph.add_variable("x", (256,)), graph.add_variable("y", (256,))
    for tensor in (x, y):
        graph.set_tile_mapping(tensor, 0)
    graph.add_vertex("twice", twice, x=x, out=y, tile=2)
    (step,) = cl.Engine(graph).profile().steps
    # To tile 2, of the second row of pairs, and back to tile 0.
    assert (step.exchange_before_cycles, step.exchange_after_cycles) == (100 + 54 + 256, 100 + 52 + 256)
    assert step.sync_cycles == 2 * graph.target.sync_cycles == 2 * 90
    assert [phase.kind for phase in step.phases] == ["sync", "exchange", "compute", "sync", "exchange"]
    assert step.received_bytes == 2 * 4 * 256


def test_of_a_choice_the_longest_branch_counts():
    """And of choices inside of choices, those in branches that count."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, p = graph.add_variable("x", (8,)), graph.add_variable("p", (), "int32")
    programs = {}
    for name, size in (("short", 1), ("long", 8), ("middle", 4)):
        with graph.record() as programs[name]:
            graph.add_vertex(name, halve, x=x[:size])
    inner = cl.Switch(p, {0: programs["short"], 1: programs["long"]})
    engine = cl.Engine(graph, [cl.If(p, cl.Repeat(2, inner), programs["middle"]), programs["short"]])
    profile = engine.profile()
    assert [(step.name, step.iterations) for step in profile.steps] == [
        ("middle", 0), ("short", 0), ("long", 2), ("short", 1)
    ]  # fmt: skip
    assert profile.total_cycles == sum(step.total_cycles for step in profile.steps)
    assert profile.compute_cycles == 6 * (2 * 80 + 10) + 3 * 80
    assert profile.cycles_by_codelet == {"halve": 170}
    assert "note: of the branches of an If or Switch the one that takes longest counts" in str(profile)
    assert profile.step_frame["iterations"].tolist() == [0, 0, 2, 1]
    blocks = [event for event in profile.chrome_trace()["traceEvents"] if event["ph"] == "X"]
    assert sum(event["args"]["cycles"] for event in blocks) == profile.total_cycles


@pytest.mark.parametrize(
    ("given", "turns", "said"),
    [
        (
            {"trip_count": 5, "max_iterations": 9},
            5,
            "the RepeatWhile over p counts for 5 iterations, as its trip_count= says",
        ),
        ({"max_iterations": np.int64(9)}, 9, "the RepeatWhile over p counts for 9 iterations, its max_iterations"),
        ({}, 16, "the RepeatWhile over p counts for 16 iterations, a guess: RepeatWhile(..., trip_count=) says it"),
        ({"trip_count": 1}, 1, "the RepeatWhile over p counts for 1 iteration, as its trip_count= says"),
        ({"trip_count": 0}, 0, "the RepeatWhile over p counts for 0 iterations, as its trip_count= says"),
    ],
)
def test_a_loop_on_a_condition_counts_for_its_turns(given, turns, said):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, p = graph.add_variable("x", (8,)), graph.add_variable("p", (), "int32")
    programs = {}
    for name, size in (("look", 1), ("work", 8)):
        with graph.record() as programs[name]:
            graph.add_vertex(name, halve, x=x[:size])
    plain = cl.RepeatWhile(programs["look"], p, programs["work"], max_iterations=given.get("max_iterations"))
    loop = cl.RepeatWhile(programs["look"], p, programs["work"], **given)
    assert str(loop) == str(plain)
    profile = cl.Engine(graph, cl.Repeat(2, loop)).profile()
    assert [(step.name, step.iterations) for step in profile.steps] == [("look", 2 * (turns + 1)), ("work", 2 * turns)]
    assert profile.compute_cycles == (80 + 6 * 10) * 2 * (turns + 1) + (80 + 6 * 80) * 2 * turns
    assert profile.notes[0] == said
    assert f"note: {said}" in str(profile)
    # Values are the same, and so is the loop in another process.
    given_values = {"x": np.full(8, 8.0), "p": 0}
    for program in (loop, pickle.loads(pickle.dumps((graph, loop)))[1]):
        own = next(iter([program.predicate.graph]))
        assert program.trip_count == given.get("trip_count")
        found = cl.interpret(own, values=given_values, outputs=[own.variable("x")], program=program)["x"]
        assert found.tolist() == [4.0] + 7 * [8.0]


def test_its_summary_prints(capsys):
    _, profile = small_profile()
    print(profile.summary())
    assert capsys.readouterr().out == GOLDEN
    assert repr(profile.summary()) + "\n" == GOLDEN  # the last line of a cell


def test_its_frames_have_columns_of_one_length():
    _, profile = small_profile()
    for frame, rows in ((profile.step_frame, 3), (profile.tile_frame, 4), (profile.codelet_frame, 2)):
        assert all(isinstance(column, np.ndarray) and column.shape == (rows,) for column in frame.values())
    assert profile.step_frame["total_cycles"].sum() == profile.total_cycles
    assert profile.tile_frame["code_bytes"].tolist() == [100, 100, 0, 80]
    kinds = {"not always live": profile.memory["code"], "variables, always live": profile.memory["code"]}
    columns = list(replace(profile, memory=kinds).tile_frame)
    assert columns[2:4] == ["not_always_live_bytes", "variables_always_live_bytes"]


def test_its_trace_opens_in_perfetto(tmp_path):
    _, profile = small_profile()
    profile.write_trace(tmp_path / "trace.json", tiles=[1, 3])
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {(0, 0): "sync", (0, 1): "exchange", (0, 2): "compute", (1, 1): "tile 1", (1, 3): "tile 3"}
    blocks = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in blocks} == named.keys()
    assert all(e["dur"] > 0 for e in blocks)
    steps = [e for e in blocks if e["pid"] == 0]
    assert sum(e["dur"] for e in steps) == pytest.approx(profile.total_cycles / 1e3)  # microseconds at 1 GHz
    # One after the other, and no two at once on a track.
    ends = [e["ts"] + e["dur"] for e in steps]
    assert all(later["ts"] == pytest.approx(end) for later, end in zip(steps[1:], ends[:-1], strict=True))
    with pytest.raises(cl.TileError, match=r"given: *4\n *expected: 0 to 3"):
        profile.chrome_trace([4])


@pytest.mark.parametrize("figure", ["memory", "live", "timeline", "balance"])
def test_its_figures(figure):
    import matplotlib.pyplot as plt

    _, profile = small_profile()
    axes = profile.plot(figure)
    assert axes.get_title()
    assert axes.get_xlabel()
    axes.figure.canvas.draw()
    assert profile.plot(figure, axes) is axes
    plt.close(axes.figure)


def test_who_sends_to_whom():
    import matplotlib.pyplot as plt

    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (4,)), cl.grid(4)
    graph.set_tile_mapping(x, 1)
    y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i)
    graph.set_tile_mapping(y, np.arange(4))
    profile = cl.Engine(graph, cl.Repeat(10, graph.default_program)).profile()
    axes = profile.plot("traffic")
    sent = np.asarray(axes.images[0].get_array())
    assert np.array_equal(sent != 0, [[False] * 4, [True, False, True, True], [False] * 4, [False] * 4])
    assert np.array_equal(sent[1, [0, 2, 3]], [40, 40, 40])  # bytes of ten iterations
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tile that receives", "tile that sends")
    plt.close(axes.figure)


def test_figures_that_cannot_be_drawn(monkeypatch):
    _, profile = small_profile()
    with pytest.raises(FigureError, match="expected: memory, live, timeline, balance"):
        profile.plot("pie")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(cl.MissingExtraError, match=r"pip install 'codelet-graphs\[figures\]'"):
        profile.plot("memory")
