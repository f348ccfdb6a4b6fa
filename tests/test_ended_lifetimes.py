"""Lifetimes where a program ends the life of a variable: what the host holds in all the others stays."""

import itertools

import numpy as np
import pytest

import codelet as cl
from lowering.machine.live_variables import lifetimes
from lowering.pipeline import plan_graph
from lowering.plan.timeline import without_calls
from tests.examples import few


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def is_positive(x):
    return x[0] > 0


def _graph():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    state = {name: graph.add_variable(name, (8,)) for name in ("kept", "other", "ended", "made")}
    with graph.record() as look:
        state["predicate"] = graph.add_vertex("look", is_positive, x=state["other"])
    # A variable that lives for a while, between, and so looks for a place.
    with graph.record() as busy:
        made = graph.add_vertex("one", double, x=state["other"])
        graph.add_vertex("two", double, x=made, out=state["ended"])
        state["made"] = made
    return graph, state, look, busy


def in_part(graph, kept, other, look):
    return cl.Copy(other[:3], kept[:3])


def in_part_by_vertices(graph, kept, other, look):
    with graph.record() as part:
        i = cl.grid(3)
        graph.add_vertex("part", double, x=other[i], out=kept[2 * i + 1])
    return part


def in_a_branch(graph, kept, other, look):
    return [look, cl.If(graph.variable("look/out"), cl.Copy(other, kept))]


def in_a_case(graph, kept, other, look):
    which = graph.add_variable("which", (), "int32")
    return [cl.Copy(7, which), cl.Switch(which, {1: cl.Copy(other, kept)})]


def in_no_turn(graph, kept, other, look):
    negative = graph.add_constant("negative", False)
    return cl.RepeatWhile(look, negative, cl.Copy(other, kept))


def in_a_patchwork(graph, kept, other, look):
    return cl.Copy(cl.concatenate([other, kept])[2:8], other[:6])


def written_through_a_patchwork(graph, kept, other, look):
    return cl.Copy(other[:3], cl.concatenate([other, kept])[7:10])


def through_a_function(graph, kept, other, look):
    with graph.record() as body:
        parameter = graph.add_variable("parameter", (3,))
        i = cl.grid(3)
        graph.add_vertex("in function", double, x=parameter[i], out=graph.add_variable("inner", (3,))[i])
    function = graph.add_function([body, cl.Copy(graph.variable("inner"), parameter)], [parameter])
    return [cl.Call(function, parameter=kept[2:5]), cl.Call(function, parameter=kept[4:7])]


def from_a_stream(graph, kept, other, look):
    return cl.Copy(graph.add_input_stream("feed", (2,)), kept[::4])


def all_of_it_or_none(graph, kept, other, look):
    return [look, cl.If(graph.variable("look/out"), cl.Copy(0.0, kept[:4]), cl.Copy(1.0, kept[4:]))]


WAYS = {
    way.__name__: way
    for way in (
        in_part,
        in_part_by_vertices,
        in_a_branch,
        in_a_case,
        in_no_turn,
        in_a_patchwork,
        written_through_a_patchwork,
        through_a_function,
        from_a_stream,
        all_of_it_or_none,
    )
}


def apart(memory, variables):
    """That no two variables which are there all the time share a byte of a tile."""
    for one, other in itertools.combinations(dict.fromkeys(map(memory.occupant, variables)), 2):
        both = (one.num_bytes > 0) & (other.num_bytes > 0)
        starts = np.maximum(one.addresses, other.addresses)
        ends = np.minimum(one.addresses + one.num_bytes, other.addresses + other.num_bytes)
        if (both & (ends > starts)).any():
            return False
    return True


@few("first", [True, False], quick=["True"])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_host_holds_stays(way, first):
    graph, state, look, busy = _graph()
    kept, other = state["kept"], state["other"]
    change = WAYS[way](graph, kept, other, look)
    program = [busy, change] if first else [change, busy]
    program = cl.Sequence([*program, cl.WriteUndef(state["made"]), cl.WriteUndef(state["ended"])])
    values = {"kept": np.arange(8, dtype=np.float32) + 1, "other": -np.arange(8, dtype=np.float32) - 3}
    fed = {"feed": np.array([[50.0, 51.0]], np.float32)} if way == "from_a_stream" else {}
    expected = cl.interpret(graph, values={**values, **fed}, outputs=[kept, other], program=program)
    for execution in ("fused", "tiles", "addresses"):
        engine = cl.Engine(graph, program, execution=execution)
        for stream in fed:
            engine.connect(stream, fed[stream])
        engine.write(values)
        engine.run()
        for name in ("kept", "other"):
            np.testing.assert_array_equal(engine.read(name), expected[name], err_msg=execution)
    machine = engine.machine()
    always = {v for own in machine.liveness.ranges if own.always for v in own.variables}
    assert {kept.source, other.source} <= always
    assert apart(machine.memory, [kept.source, other.source])
    assert state["ended"].source not in always


def test_what_is_written_whole_on_every_way_is_a_result():
    graph, state, look, busy = _graph()
    kept, other = state["kept"], state["other"]
    choice = cl.If(graph.variable("look/out"), cl.Copy(0.0, kept), [cl.Copy(1.0, kept[:4]), cl.Copy(2.0, kept[4:])])
    engine = cl.Engine(graph, [busy, look, choice, cl.WriteUndef(state["ended"])])
    held = lifetimes(without_calls(engine._programs["main"].plan))
    assert kept.source in held.results
    assert other.source in held.kept
    assert not held.given


def test_the_memory_of_an_engine_keeps_the_variables_of_all_its_programs():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    a, b, c = (graph.add_variable(name, (8,)) for name in "abc")
    passing = graph.add_variable("passing", (8,))
    first = [cl.Copy(a, passing), cl.Copy(passing, b), cl.WriteUndef(passing)]
    second = [cl.Copy(1.0, c[:4]), cl.Copy(b, a)]
    engine = cl.Engine(graph, {"first": first, "second": second}, execution="addresses")
    engine.write({"a": list(range(8)), "c": list(range(50, 58))})
    engine.run("first")
    engine.run("second")
    np.testing.assert_array_equal(engine.read(c), [1, 1, 1, 1, 54, 55, 56, 57])
    np.testing.assert_array_equal(engine.read(a), np.arange(8))
    memory = engine._machine.memory
    assert apart(memory, [a.source, b.source, c.source])
    assert "54" in str(engine.read_tile(1)) or "54" in str(engine.read_tile(0))


@few("ends", [False, True], quick=["True"])
def test_an_input_that_is_written_before_it_is_read_has_no_place_of_its_own(ends):
    """Neither what it was given nor what it holds afterwards is asked for, unless it is an output."""
    graph, state, _, busy = _graph()
    kept, other, made, short = state["kept"], state["other"], state["made"], graph.add_variable("short", (8,))
    later = [cl.Copy(other[::-1], kept), cl.Copy(kept[::-1], short)]
    program = cl.Sequence(busy, *later, *([cl.WriteUndef(made)] * ends))
    values = {"kept": np.arange(8, dtype=np.float32) + 1, "other": -np.arange(8, dtype=np.float32) - 3}
    values["short"] = values["kept"] + 50
    expected = cl.interpret(graph, values=values, outputs=[short, kept, state["ended"]], program=program)
    for execution in ("fused", "tiles", "addresses"):
        engine = cl.Engine(graph, program, execution=execution)
        for outputs in (["short"], ["short", "kept"], ["ended"]):
            run = engine.function(inputs=[*values], outputs=outputs)
            for name, own in run(values).items():
                np.testing.assert_array_equal(own, expected[name], err_msg=execution)
    inputs = [variable for variable in graph.sources if variable.name in values]
    is_always = {}
    for outputs in ([short], [short, kept]):
        held = lifetimes(without_calls(plan_graph(graph, program, inputs, outputs)))
        assert other.source in held.kept
        is_always[len(outputs)] = [own.source in held.kept | held.results for own in (kept, short)]
    assert is_always == {1: [False, True], 2: [True, True]}
