"""The host: streams take the time of its link, beside what runs meanwhile where they are buffered."""

import numpy as np
import pytest

import codelet as cl
from lowering.machine.step_cycles import total_cycles

ROOM = 600  # elements: 2,400 bytes, 400 cycles of the link


def chip(**changes):
    """Four tiles that start vertices, messages and streams at once."""
    nothing = {"launch_cycles": 0, "exchange_overhead_cycles": 0, "host_overhead_cycles": 0, "route": None}
    return cl.IPU(**{"num_tiles": 4, **nothing, **changes})


def takes(cycles):
    @cl.codelet(cycles=lambda x: cycles)
    def busy(x):
        return {"x": x}

    return busy


def streaming(program, *, depth=1, work=10, target=None, sent=1, size=ROOM):
    """A stream into x and one out of it, and what is busy on tile 0 for six times `work` cycles."""
    graph = cl.Graph(target or chip())
    x, n = graph.add_variable("x", (size,)), graph.add_variable("n", (), "int32")
    z = graph.add_variable("z", (size,))
    receive = cl.Copy(graph.add_input_stream("feed", (size,), buffering_depth=depth), x)
    send = cl.Copy(x, graph.add_output_stream("sent", (size,), buffering_depth=sent))
    with graph.record() as body:
        graph.add_vertex("busy", takes(work), x=z, tile=0)
    graph.set_tile_mapping(x[: size // 2], 0)
    graph.set_tile_mapping(x[size // 2 :], 3)
    graph.set_tile_mapping(z, 0)
    graph.set_tile_mapping(n, 0)
    return cl.Engine(graph, program(receive, body, send, n))


def test_a_stream_takes_as_long_as_the_slower_of_host_and_tiles():
    profile = streaming(lambda receive, body, send, n: [receive, cl.Repeat(3, send)]).profile()
    first, last = profile.steps
    # 2,400 bytes at 6 a cycle; each of two tiles exchanges 1,200 of them in 300 cycles at the same time.
    assert (first.host_cycles, first.exchange_cycles, first.sync_cycles) == (400, 0, 90)
    assert (last.host_cycles, last.exchange_cycles, last.sync_cycles) == (3 * 400, 0, 3 * 90)
    assert profile.host_cycles == 1600
    assert profile.notes == ("streams count for the time of the host's link; what the host itself takes is left out",)
    assert profile.total_cycles == 1600 + 4 * 90
    assert profile.step_frame["host_cycles"].tolist() == [400, 1200]
    assert "host" in str(profile.summary()).split("Cycles")[1]
    pytest.importorskip("matplotlib").use("Agg")
    assert "host" in [tick.get_text() for tick in profile.plot("timeline").get_yticklabels()]
    # With a link of a megabyte a cycle the tiles decide: 300 words, under way to row 1 of the chip, and the overhead.
    fast = cl.IPU(num_tiles=4, host_bytes_per_cycle=1e6)
    (step,) = streaming(lambda receive, body, send, n: receive, target=fast).profile().steps
    assert (step.host_cycles, step.exchange_cycles) == (1500 + 100 + 300 + 52 + 2, 0)
    assert step.fitted_cycles == 1500
    # Two chips have a link each.
    two = chip(num_chips=2, host_bytes_per_cycle=2)
    (step,) = streaming(lambda receive, body, send, n: receive, target=two).profile().steps
    assert (step.host_cycles, step.external_sync_cycles) == (1200 // 2, 0)


@pytest.mark.parametrize("work", [1, 20, 1000])
def test_buffered_streams_pass_while_the_loop_does_something_else(work):
    loop = lambda receive, body, send, n: cl.Repeat(5, [receive, body])  # noqa: E731
    alone, buffered = (streaming(loop, depth=depth, work=work).profile() for depth in (1, 2))
    rest = (alone.total_cycles - alone.host_cycles) // 5
    assert alone.host_cycles == 5 * 400
    # The first turn takes the sum of both, each later one what takes longer.
    assert buffered.total_cycles == rest + 400 + 4 * max(rest, 400)
    assert buffered.host_cycles == 400 + 4 * max(0, 400 - rest)
    assert buffered.compute_cycles == alone.compute_cycles
    for profile in (alone, buffered):
        assert profile.total_cycles == sum(step.total_cycles for step in profile.steps)
        assert profile.total_cycles == profile.host_cycles + sum(
            profile.cycles_of(kind) for kind in ("sync", "exchange", "compute")
        )
        blocks = [event for event in profile.chrome_trace()["traceEvents"] if event["ph"] == "X"]
        assert sum(event["args"]["cycles"] for event in blocks) == profile.total_cycles
    # What placing by cycles looks at is the same.
    engine = streaming(loop, depth=2, work=work)
    assert total_cycles(engine.machine().exchange) == buffered.total_cycles


def test_streams_of_one_loop_share_what_else_it_does():
    both = lambda receive, body, send, n: cl.Repeat(3, [receive, body, send])  # noqa: E731
    alone = streaming(both, work=100).profile()
    rest = (alone.total_cycles - alone.host_cycles) // 3
    assert 400 < rest == 2 * 90 + 600 < 800
    profile = streaming(both, depth=2, sent=3, work=100).profile()
    assert profile.total_cycles == rest + 800 + 2 * max(rest, 800)
    one = streaming(both, sent=2, work=100).profile()
    assert one.total_cycles == rest + 800 + 2 * (400 + max(rest, 400))


def test_nothing_passes_ahead_without_a_loop_of_several_turns():
    for program in (
        lambda receive, body, send, n: [receive, body, send],
        lambda receive, body, send, n: cl.Repeat(1, [receive, body, send]),
        lambda receive, body, send, n: [receive, cl.Repeat(7, body), send],
    ):
        profiles = [streaming(program, depth=depth, sent=depth).profile() for depth in (1, 4)]
        assert profiles[0].total_cycles == profiles[1].total_cycles
        assert all(step.hidden_cycles == 0 for step in profiles[1].steps)


def test_the_innermost_loop_of_several_turns_is_the_one_that_goes_on():
    # Inside of a loop of one turn, of a choice, and around a loop that does more.
    around = lambda receive, body, send, n: cl.Repeat(  # noqa: E731
        2, cl.Repeat(4, [cl.Repeat(1, send), cl.Repeat(3, body)])
    )
    alone, buffered = (streaming(around, sent=depth).profile() for depth in (1, 2))
    rest = (alone.total_cycles - alone.host_cycles) // 8
    assert buffered.total_cycles == 2 * (rest + 400 + 3 * max(rest, 400))
    # A loop on a condition, whose condition is a loop itself: what runs in it counts, and nothing around it.
    nested = lambda receive, body, send, n: cl.RepeatWhile(  # noqa: E731
        cl.RepeatWhile([], n, send, trip_count=3, max_iterations=3), n, body, trip_count=2, max_iterations=2
    )
    profile = streaming(nested, sent=2).profile()
    (sends,) = [step for step in profile.steps if step.name.startswith("send")]
    assert sends.iterations == 9
    assert sends.hidden_cycles == 3 * 2 * 90  # the sync is all that each turn does besides


def test_buffering_changes_no_value():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    for depth in (1, 3):
        engine = streaming(lambda receive, body, send, n: [], depth=depth, sent=depth, size=6)
        graph = engine.graph
        feed, sent = graph.streams
        program = cl.Repeat(4, [cl.Copy(feed, graph.variable("x")), cl.Copy(graph.variable("x"), sent)])
        np.testing.assert_array_equal(
            cl.interpret(graph, values={"feed": values}, outputs=["sent"], program=program)["sent"], values
        )
    assert "input stream feed: float32[6], 3 values buffered" in str(graph)
