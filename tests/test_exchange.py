"""Exchange: bytes per tile equal those counted one vertex and one element at a time."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.fresh import in_fresh_process, peak_bytes
from codelet.views.sources import source_variables
from lowering.machine import exchange as exchange_module
from lowering.machine import region
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.exchange import Exchange, plan_exchange
from lowering.machine.place import place
from lowering.machine.placement import changes_between
from lowering.machine.touched import tile_pattern, touched_runs
from lowering.pipeline import plan_engine
from lowering.plan.runs import Runs, difference, intersection, overlaps, stretches, union
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline
from tests.examples import examples
from tests.placements import TILES, built, chains, placements, touched, vertices_of
from tests.test_place import double, engine_plan, gathered, total
from tests.test_scale import N, add_three, in_out, six_axes, stencil, wrapped

# --- runs ---------------------------------------------------------------------------------------------

SETS = st.sets(st.integers(0, 30))


def as_runs(numbers):
    ordered = np.array(sorted(numbers), np.int64)
    return union(ordered, ordered + 1)


@given(SETS, SETS)
def test_runs_are_sets(a, b):
    first, second = as_runs(a), as_runs(b)
    assert first.numbers().tolist() == sorted(a)
    assert intersection(first, second).numbers().tolist() == sorted(a & b)
    assert difference(first, second).numbers().tolist() == sorted(a - b)
    assert (first.stops[:-1] < first.starts[1:]).all()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6))), SETS)
def test_stretches_in_any_order_are_joined_and_cut(pairs, b):
    starts = np.array([start for start, _ in pairs], np.int64)
    stops = starts + np.array([length for _, length in pairs], np.int64)
    members = {n for start, length in pairs for n in range(start, start + length)}
    joined = union(starts, stops)
    assert joined.numbers().tolist() == sorted(members)
    assert (joined.stops[:-1] < joined.starts[1:]).all()
    found = overlaps(starts, stops, as_runs(b))
    for k in range(len(pairs)):
        own = [
            n
            for s, e in zip(found.starts[found.first == k], found.stops[found.first == k], strict=True)
            for n in range(s, e)
        ]
        assert own == [n for n in range(starts[k], stops[k]) if n in b]


@given(st.lists(st.integers(-1, 2), max_size=20))
def test_stretches_of_one_value(values):
    runs, found = stretches(np.array(values, np.int32))
    assert np.repeat(found, runs.lengths).tolist() == values
    assert (found[1:] != found[:-1]).all()


@examples(30)
@given(st.data())
def test_access_maps_are_taken_apart_exactly(data):
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4))
    grid = data.draw(st.integers(0, len(shape)))
    index = cl.Index(50, (), ())
    for d, extent in enumerate(shape):
        stride = data.draw(st.integers(-4, 6))
        part = cl.Index(0, tuple(shape), tuple(stride * (k == d) for k in range(len(shape))))
        if data.draw(st.integers(0, 4)) == 0:
            entries = np.array(data.draw(st.lists(st.integers(0, 9), min_size=extent, max_size=extent)))
            part = (
                part
                + cl.table(entries)[
                    part._scaled(0) + cl.Index(0, tuple(shape), tuple(int(k == d) for k in range(len(shape))))
                ]
            )
        index = index + part
    kind = data.draw(st.sampled_from(["any", "one", "blocks"]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    tiles = np.asarray(random.integers(0, 3, shape[:grid]))
    if kind == "one":
        tiles[...] = 1
    if kind == "blocks" and grid:
        tiles = np.broadcast_to((np.arange(shape[0]) // 2).reshape([-1, *[1] * (grid - 1)]), shape[:grid])
    runs = touched_runs(index.broadcast_to(tuple(shape)), tile_pattern(np.asarray(tiles, np.int32)), 1000)
    positions = np.broadcast_to(index.values(), shape)
    own = np.broadcast_to(tiles.reshape([*shape[:grid], *[1] * (len(shape) - grid)]), shape)
    assert runs.numbers().tolist() == sorted(set((own * 1000 + positions).reshape(-1).tolist()))


# --- bytes by brute force -----------------------------------------------------------------------------


def runs_counted(elements, are_joined):
    """Runs of elements whose neighbours are joined, as lists."""
    runs = []
    for element in sorted(elements):
        if runs and runs[-1][-1] == element - 1 and are_joined(element - 1, element):
            runs[-1].append(element)
        else:
            runs.append([element])
    return runs


def counted_transfer(placement, pairs, to_home):
    """What moves, from all pairs of an element and a tile that is not its home, one element at a time."""
    target, sizes, home = placement.plan.graph.target, {}, np.asarray(placement.element_tiles)
    for variable in placement.plan.variables:
        for element in range(variable.first_element, variable.first_element + variable.size):
            sizes[element] = variable.dtype.itemsize
    away = {(element, tile) for element, tile in pairs if home[element] != tile}
    ways = {(e, tile, int(home[e])) if to_home else (e, int(home[e]), tile) for e, tile in away}
    receivers, of_sender, of_receiver = {}, {}, {}
    for element, sender, receiver in ways:
        receivers.setdefault((element, sender), set()).add(receiver)
        of_sender.setdefault(sender, set()).add(element)
        of_receiver.setdefault(receiver, set()).add((element, sender))
    is_silent = {sender: target.paired_exchange and (sender ^ 1) not in of_sender for sender in of_sender}
    whole = {key: is_silent[key[1]] and {tile ^ 1 for tile in tiles} == tiles for key, tiles in receivers.items()}
    count = lambda: np.zeros(TILES, int)  # noqa: E731
    received, sent = ({name: count() for name in ("bytes", "words", "paired", "messages")} for _ in range(2))

    def add(to, tile, sender, elements):
        num_bytes = sum(sizes[element] for element in elements)
        words = -(-num_bytes // target.word_bytes)
        to["bytes"][tile] += num_bytes
        to["words"][tile] += words
        to["messages"][tile] += -(-words // target.max_message_words)
        if whole[elements[0], sender]:
            to["paired"][tile] += words

    for sender, elements in of_sender.items():
        own = {element: receivers[element, sender] for element in elements}
        alike = lambda a, b: own[a] & own[b] and whole[a, sender] == whole[b, sender]  # noqa: E731
        for run in runs_counted(elements, alike):
            add(sent, sender, sender, run)
    for receiver, those in of_receiver.items():
        for sender in {sender for _, sender in those}:
            elements = {element for element, own in those if own == sender}
            for run in runs_counted(elements, lambda a, b: whole[a, sender] == whole[b, sender]):
                add(received, receiver, sender, run)
    return away, received, sent


def check_transfer(placement, transfer, pairs, to_home):
    away, received, sent = counted_transfer(placement, pairs, to_home)
    traffic = transfer.traffic
    for found, counts in (
        (
            (transfer.received_bytes, traffic.received_words, traffic.received_paired, transfer.received_messages),
            received,
        ),
        ((transfer.sent_bytes, traffic.sent_words, traffic.sent_paired, transfer.sent_messages), sent),
    ):
        for own, expected in zip(
            found, (counts[name] for name in ("bytes", "words", "paired", "messages")), strict=True
        ):
            np.testing.assert_array_equal(0 if own is None else own, expected)
    moves = transfer.moves()
    tiles, homes = (moves.senders, moves.receivers) if to_home else (moves.receivers, moves.senders)
    assert set(zip(moves.elements.tolist(), tiles.tolist(), strict=True)) == away
    assert len(moves.elements) == len(away)
    np.testing.assert_array_equal(homes, placement.element_tiles[moves.elements])


@pytest.mark.slow
@examples(8)
@given(placements(), st.sampled_from([0, region._SHORT, 1 << 40]))
def test_bytes_per_tile_are_those_counted_one_by_one(placement, short):
    """In either way to count: by the ends of runs, or by flags of elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "_SHORT", short)
        exchange = plan_exchange(placement)
    for moment in timeline(placement.plan).moments:
        step, moved = moment.step, exchange.of(moment.step)
        read, written = set(), set()
        if isinstance(step, ExecuteStep):
            for family, number, tile in vertices_of(placement, step.families):
                read |= {(element, tile) for element in touched(family, number, written=False)}
                written |= {(element, tile) for element in touched(family, number, written=True)}
        elif isinstance(step, CopyStep):
            sources, to = step.source.elements().reshape(-1), step.destination.elements().reshape(-1)
            read = {
                (s, int(placement.element_tiles[d]))
                for s, d in zip(sources.tolist(), to.tolist(), strict=True)
                if s >= 0
            }
        check_transfer(placement, moved.before, read, False)
        check_transfer(placement, moved.after, written, True)


def facts(transfer):
    """All that is known of a transfer, as arrays."""
    own = (transfer.received_bytes, transfer.sent_bytes, transfer.received_messages, transfer.sent_messages)
    return [*own, *transfer.traffic, *transfer.touched, *transfer.away, *transfer.moves()]


def see_same(found, expected):
    """Whether transfers are the same in all that is known of them."""
    for own, other in zip(found, expected, strict=True):
        for a, b in zip(facts(own), facts(other), strict=True):
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b)


def both(exchange, step):
    """What moves before a step and after it."""
    return exchange.of(step).before, exchange.of(step).after


@examples(8)
@given(placements(), st.data())
def test_what_another_placement_leaves_where_it_is_moves_as_it_did(placement, data):
    plan, elements, vertices = placement.plan, np.array(placement.element_tiles), dict(placement.vertex_tiles)
    variables = data.draw(st.lists(st.sampled_from(plan.variables), max_size=2, unique=True))
    families = data.draw(st.lists(st.sampled_from(plan.families), max_size=1)) if plan.families else []
    for own in variables:
        elements[own.first_element :][: own.size] = (placement.tiles_of(own) + 1) % TILES
    for own in families:
        vertices[own] = (vertices[own] + 1) % TILES
    homes = ElementTiles.of(plan, elements)
    other = replace(placement, element_tiles=homes, vertex_tiles=vertices)
    changes = changes_between(placement, other)
    assert changes.variables == {own for own in variables if own.size}
    assert changes.families == {own for own in families if own.num_vertices}
    assert bool(changes) == bool(changes.variables or changes.families)
    third = replace(placement, element_tiles=homes)
    anew, second = plan_exchange(other), plan_exchange(third, plan_exchange(placement))
    found = plan_exchange(other, second)
    assert found.placement is other
    for moment in timeline(plan).moments:
        see_same(both(found, moment.step), both(anew, moment.step))


@examples(30)
@given(chains())
def test_what_is_known_of_steps_that_are_alike_is_what_moves_in_each(placement):
    exchange = plan_exchange(placement)
    for moment in timeline(placement.plan).moments:
        see_same(both(exchange, moment.step), both(Exchange(placement), moment.step))


def test_layers_that_lie_alike_are_planned_once():
    graph = built()
    x = graph.add_variable("x", (8,))
    for k in range(4):
        i = cl.grid(8)
        y = graph.add_vertex(graph.add_compute_set(f"layer{k}"), double, x=x[7 - i], tile=i)
        graph.set_tile_mapping(x[i], i)
        x = y
    placement = place(engine_plan(graph))
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        moved = exchange_module._moved
        patch.setattr(exchange_module, "_moved", lambda *own, **given: counted.append(own) or moved(*own, **given))
        exchange = plan_exchange(placement)
    assert len(counted) == 1 + 2  # of nothing; and before and after
    assert len({id(exchange.of(moment.step)) for moment in timeline(placement.plan).moments}) == 4


# --- rules, one by one --------------------------------------------------------------------------------


def moved(graph, program=None):
    placement = place(plan_engine(graph, program or graph.default_program))
    exchange = plan_exchange(placement)
    return [exchange.of(moment.step) for moment in timeline(placement.plan).moments]


@cl.codelet
def two_summed(x, y):
    return x + y


def parts_of(x, y):
    """The ends of ten elements in the middle of each of two variables."""
    starts = [x.source.first_element + 100, y.source.first_element + 700]
    return starts, [start + 10 for start in starts]


def test_an_element_that_many_vertices_of_a_tile_read_arrives_once():
    graph = built(4)
    x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (6,))
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 1)
    i = cl.grid(6)
    graph.add_vertex("set", total, x=x[:4], out=y[i], tile=1)
    (step,) = moved(graph)
    assert step.before.received_bytes.tolist() == [0, 16, 0, 0]
    assert step.before.sent_bytes.tolist() == [16, 0, 0, 0]
    assert not step.after.received_bytes.any()


def test_what_a_step_moves_is_counted_among_what_it_touches_however_large_the_graph():
    graph = built(4)
    graph.add_variable("other", (10**6,))
    x, y, z = (graph.add_variable(name, (1000,)) for name in "xyz")
    i = cl.grid(10)
    graph.add_vertex("add", two_summed, x=x[100 + i], y=y[700 + i], out=z[i])
    placement = place(plan_engine(graph, graph.default_program))
    touched = Runs(*(np.array([2 * len(placement.element_tiles) + own for own in ends]) for ends in parts_of(x, y)))
    variables = [own for tensor in (x, y, z) for own in source_variables(tensor.source)]
    found = region.Region(touched, variables, placement)
    assert found.num_elements == 11 + 11  # with a number after each that is no element
    assert found.variables == tuple(variables[:2])
    starts, stops, tiles = found.starts, found.stops, found.tiles
    assert (starts.tolist(), stops.tolist(), tiles.tolist()) == ([0, 11], [10, 21], [2, 2])
    np.testing.assert_array_equal(found.in_graph(starts, stops, tiles), touched)
    for step in moved(graph):
        assert step.before._region.num_elements <= 22
        assert step.after._region.num_elements <= 11


def test_multicast_is_sent_once_and_pairs_share_it():
    graph = built(4)
    x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (4,))
    graph.set_tile_mapping(x, 0)
    i = cl.grid(4)
    graph.set_tile_mapping(y[i], i)
    graph.add_vertex("set", total, x=x[:4], out=y[i], tile=i)
    (step,) = moved(graph)
    assert step.before.received_bytes.tolist() == [0, 16, 16, 16]
    assert not step.after.received_bytes.any()
    assert step.before.sent_bytes.tolist() == [16, 0, 0, 0]
    # Tiles 2 and 3 are a pair, tile 1 is alone.
    assert step.before.traffic.received_paired is None


def test_what_is_there_does_not_travel():
    graph = built(4)
    x = graph.add_variable("x", (4,))
    i = cl.grid(4)
    graph.set_tile_mapping(x[i], i)
    y = graph.add_vertex("set", double, x=x[i], tile=i)
    graph.set_tile_mapping(y[i], i)
    (step,) = moved(graph)
    assert not step.before.received_bytes.any()
    assert not step.after.received_bytes.any()


def test_copies_between_tiles_are_exchange():
    graph = built(4)
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (2, 4))
    graph.set_tile_mapping(x, 2)
    graph.set_tile_mapping(y[0], 1)
    graph.set_tile_mapping(y[1], 2)
    (step,) = moved(graph, cl.Copy(x.broadcast_to((2, 4)), y))
    assert step.before.received_bytes.tolist() == [0, 16, 0, 0]
    assert not step.after.received_bytes.any()


def test_dtypes_have_their_own_bytes():
    graph = built(2)
    x, n = graph.add_variable("x", (4,), "float16"), graph.add_variable("n", (4,), "int8")
    y = graph.add_variable("y", (), "float16")
    for tensor in (x, n, y):
        graph.set_tile_mapping(tensor, 0)

    @cl.codelet
    def both(x, n):
        return x.sum() + n.sum().astype(x.dtype)

    graph.add_vertex("set", both, x=x, n=n, out=y, tile=1)
    (step,) = moved(graph)
    assert step.before.received_bytes.tolist() == [0, 12]
    assert step.after.received_bytes.tolist() == [2, 0]


def test_printed():
    graph = built(4)
    x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (4,))
    i = cl.grid(4)
    graph.add_vertex("sums", total, x=x, out=y[i], tile=i)
    graph.set_tile_mapping(x, 0)
    graph.set_tile_mapping(y, 3)
    program = cl.Sequence(cl.Repeat(3, cl.Sequence(cl.Execute(graph.compute_sets[0]), cl.Copy(y, x[:4]))))
    assert str(plan_exchange(place(plan_engine(graph, program)))) == (
        "exchange between 4 tiles\n"
        "  0 repeat 3 (3 times)\n"
        "  1   execute sums (3 times)\n"
        "      before: 96 bytes received, at most 32 by tile 1; 32 sent, at most 32 by tile 0\n"
        "      after: 12 bytes received, at most 12 by tile 3; 12 sent, at most 4 by tile 0\n"
        "  2   copy Tensor(float32[4] of y: f0) -> Tensor(float32[4] of x: f0) (3 times)\n"
        "      before: 16 bytes received, at most 16 by tile 0; 16 sent, at most 16 by tile 3"
    )


# --- scale --------------------------------------------------------------------------------------------


def scattered(graph):
    """Every element and every vertex on another tile than its neighbours: no run is longer than one."""
    i = cl.grid(N)
    x, y, z = (graph.add_variable(name, (N + 2,)) for name in "xyz")
    graph.set_tile_mapping(x, 7 * np.arange(N + 2) % 1472)
    graph.set_tile_mapping(z, np.arange(N + 2) % 1472)
    graph.set_tile_mapping(y, np.arange(N + 2) * 1472 // (N + 2))
    graph.add_vertex("set", add_three, x=x[i], a=z[i + 1], b=z[i + 2], out=y[i], tile=3 * i % 1472)


def planned(build):
    """The seconds and the bytes that it takes to plan a graph, and what is received and sent around each step."""
    graph = cl.Graph()
    build(graph)
    plan = engine_plan(graph)
    start = os.times().user
    exchange = plan_exchange(place(plan))
    seconds = os.times().user - start
    moved = [own for step in exchange.steps.values() for own in (step.before, step.after)]
    return seconds, peak_bytes(), [(own.received_bytes.sum(), own.sent_bytes.sum()) for own in moved]


@pytest.mark.slow
@pytest.mark.parametrize("build", [stencil, six_axes, in_out, wrapped, gathered, scattered])
def test_ten_million_vertices_are_planned_in_half_a_minute_and_eight_gibibytes(build):
    seconds, peak, moved = in_fresh_process(planned, build)
    # 26 for the worst case, less than 12 for the others, if idle; a partition takes a minute on a fast machine.
    assert seconds < {scattered: 60, gathered: 120}.get(build, 30)
    assert peak < (4 if build is gathered else 8) * 2**30
    assert moved
    assert all(received >= sent for received, sent in moved)


@pytest.mark.slow
def test_runs_of_ten_million_vertices_are_few_where_tiles_are_contiguous():
    graph = cl.Graph()
    stencil(graph)
    plan = engine_plan(graph)
    (step,) = plan_exchange(place(plan)).steps.values()
    assert len(step.before.away.starts) < 2 * 1472
    assert isinstance(step.before.away, Runs)
