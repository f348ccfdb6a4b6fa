"""Displays: how things show themselves in a notebook, and files that are there whole or not at all."""

import re
from html.parser import HTMLParser

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
