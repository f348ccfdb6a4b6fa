"""Displays: how things show themselves in a notebook, and files that are there whole or not at all."""

import re
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.display import Text, as_table
from codelet.files import written_whole


class Balanced(HTMLParser):
    """Sees that what is opened is closed, and keeps what is read."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        assert not {name for name, _ in attrs} - {"style"}
        assert all(re.fullmatch(r"text-align:(left|right)", value or "") for _, value in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@cl.codelet
def double(x):
    return 2 * x


def test_what_shows_itself():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x <b>", (4,))
    graph.add_vertex("a & b", double, x=x[(i := cl.grid(4))], out=graph.add_variable("y", (5,))[i])
    program = cl.Repeat(3, [*graph.compute_sets, cl.Print(x)])
    engine = cl.Engine(graph, program)
    engine.write({x: np.ones(4)})
    engine.run()
    run = cl.lower(graph, inputs=[x, "y"], outputs=["y"])
    shown = {
        "graph": (graph, "a & b", "4 vertices, 8 edges"),
        "codelet": (double, "double"),
        "program": (program, "Repeat(3)", "x <b>"),
        "engine": (engine, "x <b>", "float32[4]", "all", "some", "Repeat(3)"),
        "plan": (run.plan, "plan of 1 steps, 4 vertices", "inputs  x <b>"),
        "lowered": (run, "plan", "jaxpr"),
        "machine": (engine.machine(), "placement", "memory"),
        "profile": (engine.profile(), "cycles on IPU", "a & b", "Memory, in bytes"),
        "tile": (engine.read_tile(0), "tile 0:", "x <b>"),
    }
    for name, (thing, *words) in shown.items():
        parser = Balanced()
        parser.feed(thing._repr_html_())
        assert not parser.open, name
        for word in words:
            assert word in parser.text, (name, parser.text)


def things_of_a_program():
    """Everything that a user may have in hand, of a graph with a thousand steps."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (4,)), cl.grid(4)
    y = graph.add_vertex("double", double, x=x[i])
    loss = graph.add_vertex("loss", cl.codelet(lambda y: (y * y).sum()), y=y)
    values, copy = graph.add_input_stream("values", (4,)), cl.Copy(x, graph.add_variable("z", (4,)))
    function = graph.add_function(copy, [x], name="move")
    with graph.record() as recorded:
        graph.add_vertex("again", double, x=x[i])
    total = cl.ops.sum(graph, x)
    engine, gradient = cl.Engine(graph), cl.gradient(graph, of=loss, wrt=x)
    lowered, traced = cl.lower(graph, inputs=x, outputs=[y, total]), cl.trace(jnp.sin, jnp.ones(3))
    profile, family = engine.profile(), graph.families[0]
    machine, checked = engine.machine(), cl.check_gradient(graph, of=loss, wrt=x, values={x: np.ones(4)})
    long = cl.Sequence([copy] * 1000)
    flag, picture = graph.add_variable("flag", (), bool), cl.draw(graph, size=256)
    yield from (graph, x, x[1:3], x.source, i, 2 * i + 1, i < 2, double, family, family.fields[0], family.codelet)
    yield from (graph.vertex("double", i=1), graph.vertex("double", i=1).line, values, function, copy, long, recorded)
    yield from (cl.Repeat(3, long), cl.If(flag, long, copy), cl.Call(function, x=y), cl.Sequence())
    yield from (gradient, gradient.backward, engine, machine, machine.placement, machine.liveness, profile)
    yield from (profile.steps[0], profile.steps[0].phases[0], profile.tables(), profile.vertex_tiles, profile.target)
    yield from (cl.compare(profile, profile), profile.show(), lowered, lowered.plan, lowered.program, traced, checked)
    yield from (lowered({x: np.ones(4)}), cl.jit(jnp.sin), graph.operations, graph.operations[0], cl.describe(graph))
    yield from (next(graph.iter_edges()), next(graph.iter_edge_blocks()), graph.diagram(), picture, picture.layout)
    yield from (cl.ops.plan_matmul(cl.IPU(), 64, 64, 64), cl.Checkpoints("somewhere"))
    yield cl.equal(lambda x: x + x, lambda x: 2 * x, np.ones(3, np.float32))


def test_no_repr_floods_the_screen_or_shows_an_address():
    for thing in things_of_a_program():
        shown = repr(thing)
        assert 0 < len(shown) <= 300, type(thing)
        assert shown.count("\n") <= 1, type(thing)
        assert " at 0x" not in shown + str(thing), type(thing)


def test_a_long_table_is_cut():
    assert as_table(("n",), [(k,) for k in range(50)]).count("<tr>") == 41
    assert "and 10 more" in as_table(("n",), [(k,) for k in range(50)])
    text = Text("two\nlines")
    assert (repr(text), str(text), f"{text}") == ("two\nlines",) * 3


def test_a_file_that_is_not_finished_is_not_there(tmp_path):
    path = tmp_path / "trace.json"
    with written_whole(path) as file:
        file.write("whole")
    mode = (tmp_path / "plain").touch() or (tmp_path / "plain").stat().st_mode
    assert path.stat().st_mode == mode
    with pytest.raises(KeyboardInterrupt), written_whole(str(path)) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "whole"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["plain", "trace.json"]
    message = r"a file cannot be written there\n.*\n.*a folder that is there"
    bad: list = [tmp_path / "nowhere" / "trace.json", tmp_path, "a\0b", 3]
    for path in bad:
        with pytest.raises(cl.FileError, match=message), written_whole(path):
            raise AssertionError
