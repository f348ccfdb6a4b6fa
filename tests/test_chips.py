"""Several chips: what moves between them, over which links, and how long that takes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.machine.chips import external_exchange_cycles, external_sync_cycles
from tests.test_place import double, total

LINK = 128 * 2**30 * 0.85 / 8  # bytes a second
CLOCK = 1.33e9


def links_taken(sender, receiver):
    """The route by hand: of the ways of each chip, those that what it sends goes over."""
    if sender // 2 == receiver // 2:
        return [(sender, "pair")]
    taken = []
    if sender % 2 != receiver % 2:
        taken.append((sender, "across"))
        sender ^= 1
    while sender != receiver:
        taken.append((sender, "up" if sender < receiver else "down"))
        sender += 2 if sender < receiver else -2
    return taken


@given(st.sampled_from([2, 4, 8]), st.integers(0, 2**16))
def test_the_busiest_link_decides(chips, seed):
    target = cl.IPU(num_tiles=2 * chips, num_chips=chips)
    moved = np.random.default_rng(seed).integers(0, 10**6, (chips, chips))
    moved[np.random.default_rng(seed + 1).random((chips, chips)) < 0.5] = 0
    loads = {}
    for sender in range(chips):
        for receiver in range(chips):
            for link in links_taken(sender, receiver) if sender != receiver else ():
                loads[link] = loads.get(link, 0) + int(moved[sender, receiver])
    seconds = max((own / (LINK * (4 if way == "pair" else 2)) for (_, way), own in loads.items()), default=0)
    assert abs(external_exchange_cycles(moved, target) - math.ceil(seconds * CLOCK)) <= 1


def test_chips_of_an_odd_number_go_round_what_is_not_there():
    target = cl.IPU(num_tiles=6, num_chips=3)
    moved = np.zeros((3, 3), np.int64)
    moved[2, 1] = 10**6  # down to chip 0, and across
    assert external_exchange_cycles(moved, target) == math.ceil(10**6 / (2 * LINK) * CLOCK)
    assert external_exchange_cycles(np.zeros((3, 3), np.int64), target) == 0


@pytest.mark.parametrize(("chips", "cycles"), [(2, 40), (3, 40), (4, 80), (8, 120), (16, 200)])
def test_a_sync_goes_one_hop_in_a_pair_and_one_for_two_pairs(chips, cycles):
    assert external_sync_cycles(cl.IPU(num_chips=chips)) == cycles


def spread(chips, tile_of_vertex, elements):
    """On each chip a tile with a variable; and a vertex that sums all of them, on some tile."""
    graph = cl.Graph(cl.IPU(num_tiles=4 * chips, num_chips=chips))
    x = graph.add_variable("x", (chips, elements))
    chip = cl.grid(chips)
    graph.set_tile_mapping(x[chip], 4 * chip)
    y = graph.add_variable("y", ())
    graph.add_vertex("sum", total, x=x.reshape(-1), out=y, tile=tile_of_vertex)
    graph.set_tile_mapping(y, tile_of_vertex)
    return cl.Engine(graph).profile()


def test_two_chips_to_the_cycle():
    profile = spread(2, 4, 40_000)
    (step,) = profile.steps
    # 160,000 bytes go from chip 0 to chip 1, over the four links of the pair: 160,000 / 4 / 14.6e9 s.
    assert step.external_exchange_cycles == math.ceil(160_000 / 4 / LINK * CLOCK) == 3644
    assert step.external_sync_cycles == 40
    assert step.host_cycles == 0
    assert step.sync_cycles == 90
    # The words count at the tile that receives them as if they came from its own chip.
    assert step.exchange_cycles == 100 + 40_000 + 52
    assert step.total_cycles == step.compute_cycles + 3644 + 40 + 90 + step.exchange_cycles


def test_eight_chips_to_the_cycle():
    profile = spread(8, 4 * 5 + 1, 10_000)
    (step,) = profile.steps
    # To chip 5: from 1 and 3 up; from 7 down; from 4 to its other; from 0 and 2 across and up with those of 1 and 3;
    # from 6 across to 7 and down. The busiest are the links up from 3: what comes from 0, 1, 2 and 3, over two links.
    assert step.external_exchange_cycles == math.ceil(4 * 40_000 / 2 / LINK * CLOCK)
    assert step.external_sync_cycles == 120
    assert profile.external_exchange_cycles == step.external_exchange_cycles
    frame = profile.step_frame
    assert frame["external_sync_cycles"].tolist() == [120]
    summary = str(profile.summary())
    assert "external exchange" in summary
    assert "external sync" in summary
    assert "host" not in summary.split("Cycles")[1]
    tracks = [e["args"]["name"] for e in profile.chrome_trace()["traceEvents"] if e["name"] == "thread_name"]
    assert tracks == ["sync", "external sync", "exchange", "external exchange", "compute"]
    blocks = [event for event in profile.chrome_trace()["traceEvents"] if event["ph"] == "X"]
    assert sum(event["args"]["cycles"] for event in blocks) == profile.total_cycles
    pytest.importorskip("matplotlib").use("Agg")
    profile.plot("timeline")


def test_an_element_goes_once_to_each_chip_however_many_of_its_tiles_read_it():
    graph = cl.Graph(cl.IPU(num_tiles=12, num_chips=3))
    x, i = graph.add_variable("x", (1000,)), cl.grid(12)
    y = graph.add_variable("y", (12,))
    graph.add_vertex("sum", total, x=x, out=y[i], tile=i)  # by every tile of every chip
    graph.set_tile_mapping(x, 1)
    graph.set_tile_mapping(y[i], 11 - i)  # 4 bytes of each from chip 0 to 2, from 2 to 0; those of chip 1 stay there
    engine = cl.Engine(graph)
    (step,) = engine.machine().exchange.steps.values()
    assert step.before.traffic.bytes_between.tolist() == [[0, 4000, 4000], [0, 0, 0], [0, 0, 0]]
    assert step.after.traffic.bytes_between.tolist() == [[0, 0, 16], [0, 0, 0], [16, 0, 0]]
    (own,) = engine.profile().steps
    assert own.external_sync_cycles == 2 * 40  # before and after


def test_nothing_is_counted_between_chips_where_nothing_crosses():
    for target in (cl.IPU(num_tiles=8), cl.IPU(num_tiles=8, num_chips=2)):
        graph = cl.Graph(target)
        x, i = graph.add_variable("x", (8,)), cl.grid(8)
        y = graph.add_vertex("double", double, x=x[i ^ 1], tile=i)  # the other of a pair of tiles
        graph.set_tile_mapping(x[i], i)
        graph.set_tile_mapping(y[i], i)
        engine = cl.Engine(graph)
        (moved,) = engine.machine().exchange.steps.values()
        assert moved.before.received_bytes.any()
        assert moved.before.traffic.bytes_between is None
        profile = engine.profile()
        assert profile.external_sync_cycles == profile.external_exchange_cycles == 0
        assert "external" not in str(profile)
