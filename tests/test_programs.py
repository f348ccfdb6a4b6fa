"""Programs: how they print, what they refuse, their gradients, functions, aborts, streams, and values not there."""

import itertools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.errors import CodeletError
from lowering.pipeline import plan_graph
from lowering.plan.steps import SwitchStep
from tests.examples import few


def checked(run):
    """The plan of all that a graph and program say, before it is decided how it runs."""
    return plan_graph(run.graph, run.program, run.plan.inputs, run.plan.outputs)


@cl.codelet
def halve(x):
    return {"x": x / 2}


@cl.codelet
def is_big(x):
    return x > 1


@cl.codelet
def add(a, b):
    return {"a": a + b}


@cl.codelet
def one_more(n):
    return {"n": n + 1}


@cl.codelet
def bend(x, y):
    return {"y": jnp.sin(x) * y + 0.3 * x}


@cl.codelet
def bend_by(x, turn, s):
    return {"s": s * jnp.cos(x) + turn * x}


class Small:
    """A graph with a compute set for each codelet, and programs made of them."""

    def __init__(self, dtype="float32"):
        self.graph = graph = cl.Graph(cl.IPU(num_tiles=4))
        self.x, self.y = graph.add_variable("x", (2,), dtype), graph.add_variable("y", (2,), dtype)
        self.big, self.n = graph.add_variable("big", (), "bool"), graph.add_variable("n", (), "int32")
        self.turn = graph.add_variable("turn", (), "int32")
        i = cl.grid(2)
        graph.add_vertex("halve", halve, x=self.x[i])
        graph.add_vertex("look", is_big, x=self.x[0], out=self.big)
        graph.add_vertex("count", one_more, n=self.n)
        graph.add_vertex("bend", bend, x=self.x[i], y=self.y[i])
        self.halve, self.look, self.count, self.bend = graph.compute_sets
        self.shrink = cl.RepeatWhile(self.look, self.big, [self.halve, self.count])

    def lower(self, *program, inputs=("x", "y", "n"), outputs=("x", "y", "n")):
        return cl.lower(self.graph, cl.Sequence(*program), inputs=inputs, outputs=outputs)

    def engine(self, program=None, **options):
        engine = cl.Engine(self.graph, program, **options)
        engine.write({"x": [8.0, 1.0], "y": [1.0, 2.0], "n": 0})
        return engine


VALUES = {"x": np.asarray([8, 1], "f"), "y": np.asarray([1, 2], "f"), "n": 0}


def agree(graph, program, values, outputs):
    """A program's results when interpreted and when lowered, which are the same."""
    run = cl.lower(
        graph, program, inputs=[n for n in values if n not in {s.name for s in graph.streams}], outputs=outputs
    )
    sent = [stream.name for stream in graph.streams if not stream.is_input]
    expected = cl.interpret(graph, values=values, outputs=[*outputs, *sent], program=program)
    for name, value in jax.jit(run)(values).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6, err_msg=name)
    return expected


# --- in print -------------------------------------------------------------------------------------------


def one_of_each():
    s = Small()
    graph = s.graph
    a, b, rows = graph.add_variable("a", (2,)), graph.add_variable("b", (2,)), graph.add_variable("rows", (3, 2))
    i = cl.grid(2)
    graph.add_vertex("add", add, a=a[i], b=b[i])
    adding = graph.add_function(graph.compute_sets[-1], {"to": a, "what": b}, name="adding")
    feed, losses = graph.add_input_stream("feed", 2), graph.add_output_stream("losses", ())
    with graph.record() as recorded:
        graph.add_vertex("again", halve, x=s.x[i])
    program = cl.Sequence(
        s.halve,
        recorded,
        cl.Copy(s.x[::-1], s.y),
        cl.Repeat(3, [cl.Copy(feed, s.x), cl.Copy(s.x[0], losses)], index=s.turn),
        cl.RepeatWhile(s.look, s.big, [s.halve, s.count], max_iterations=9),
        cl.RepeatWhile((), s.big, s.look, until=True),
        cl.If(s.big, cl.If(s.n, s.halve)),
        cl.If(s.big, s.halve, s.count),
        cl.Switch(s.n, {0: s.halve, -2: [s.halve, s.look]}, cl.Print(s.x[0])),
        cl.Switch(s.n, {0: s.halve}),
        cl.Call(adding, to=rows[0], what=rows[2]),
        cl.Call(adding, to=s.y, what=rows[2]),
        cl.Print(s.x, "x is"),
        cl.AbortOn(s.big, "too big"),
        cl.WriteUndef(s.x),
    )
    return graph, program


def test_every_kind_of_program_prints():
    _, program = one_of_each()
    assert str(program) == (
        "Execute(halve)\n"
        "Execute(again)\n"
        "Copy(Tensor(float32[2] of x: 1 - f0) -> Tensor(float32[2] of y: f0))\n"
        "Repeat(3, index=Tensor(int32[] of turn: 0))\n"
        "  Copy(feed: input stream of float32[2] -> Tensor(float32[2] of x: f0))\n"
        "  Copy(Tensor(float32[] of x: 0) -> losses: output stream of float32[])\n"
        "RepeatWhile(Tensor(bool[] of big: 0), max_iterations=9)\n"
        "  condition\n"
        "    Execute(look)\n"
        "  body\n"
        "    Execute(halve)\n"
        "    Execute(count)\n"
        "RepeatWhile(Tensor(bool[] of big: 0), until=True)\n"
        "  condition\n"
        "  body\n"
        "    Execute(look)\n"
        "If(Tensor(bool[] of big: 0))\n"
        "  If(Tensor(int32[] of n: 0))\n"
        "    Execute(halve)\n"
        "If(Tensor(bool[] of big: 0))\n"
        "  Execute(halve)\n"
        "otherwise\n"
        "  Execute(count)\n"
        "Switch(Tensor(int32[] of n: 0))\n"
        "case 0\n"
        "  Execute(halve)\n"
        "case -2\n"
        "  Execute(halve)\n"
        "  Execute(look)\n"
        "default\n"
        "  Print(Tensor(float32[] of x: 0), 'x')\n"
        "Switch(Tensor(int32[] of n: 0))\n"
        "case 0\n"
        "  Execute(halve)\n"
        "Call(adding, to=Tensor(float32[2] of rows: f0), what=Tensor(float32[2] of rows: 4 + f0))\n"
        "Call(adding, to=Tensor(float32[2] of y: f0), what=Tensor(float32[2] of rows: 4 + f0))\n"
        "Print(Tensor(float32[2] of x: f0), 'x is')\n"
        "AbortOn(Tensor(bool[] of big: 0), 'too big')\n"
        "WriteUndef(Tensor(float32[2] of x: f0))"
    )


def test_a_graph_prints_its_streams_and_functions():
    graph, _ = one_of_each()
    assert str(graph) == (
        "graph of 10 vertices and 15 edges in 6 compute sets, for IPU('mk2', num_tiles=4)\n"
        "variable x: float32[2]\n"
        "variable y: float32[2]\n"
        "variable big: bool[]\n"
        "variable n: int32[]\n"
        "variable turn: int32[]\n"
        "variable a: float32[2]\n"
        "variable b: float32[2]\n"
        "variable rows: float32[3,2]\n"
        "input stream feed: float32[2]\n"
        "output stream losses: float32[]\n"
        "halve / halve: 2 vertices over i: 2\n"
        "  inout x: float32[] = x at i\n"
        "look / is_big: 1 vertex added one at a time\n"
        "  in    x: float32[] = x at 0\n"
        "  out   out: bool[] = big at 0\n"
        "count / one_more: 1 vertex added one at a time\n"
        "  inout n: int32[] = n at 0\n"
        "bend / bend: 2 vertices over i: 2\n"
        "  in    x: float32[] = x at i\n"
        "  inout y: float32[] = y at i\n"
        "add / add: 2 vertices over i: 2\n"
        "  inout a: float32[] = a at i\n"
        "  in    b: float32[] = b at i\n"
        "again / halve: 2 vertices over i: 2\n"
        "  inout x: float32[] = x at i\n"
        "function adding(to=Tensor(float32[2] of a: f0), what=Tensor(float32[2] of b: f0))\n"
        "  Execute(add)"
    )
    function, (feed, losses) = graph.functions[0], graph.streams
    assert repr(function) == "function adding(to, what)"
    assert (repr(feed), repr(losses)) == (
        "feed: input stream of float32[2]",
        "losses: output stream of float32[]",
    )


def test_a_plan_prints_every_kind_of_step_and_a_function_once():
    graph, program = one_of_each()
    plan = str(checked(cl.lower(graph, program, inputs=["x", "y", "n", "rows"], outputs=["rows"])))
    # The vertices apart, which other tests print.
    steps = "\n".join(row for row in plan.split("\n") if " / " not in row and " = " not in row)
    assert steps == (
        "inputs  x, y, n, rows\n"
        "streams feed, losses\n"
        "function adding(a, b) reads a, b writes a\n"
        "  execute add reads a, b writes a\n"
        "execute halve reads x writes x\n"
        "execute again reads x writes x\n"
        "copy Tensor(float32[2] of x: 1 - f0) -> Tensor(float32[2] of y: f0)\n"
        "repeat 3 counted by turn reads x writes x, turn\n"
        "  receive feed -> Tensor(float32[2] of x: f0)\n"
        "  send Tensor(float32[] of x: 0) -> losses\n"
        "while Tensor(bool[] of big: 0) at most 9 times reads x, big, n, <aborted> writes x, big, n, <aborted>\n"
        "  condition\n"
        "    execute look reads x writes big\n"
        "  body\n"
        "    execute halve reads x writes x\n"
        "    execute count reads n writes n\n"
        "until Tensor(bool[] of big: 0) reads x, big writes big\n"
        "  condition\n"
        "  body\n"
        "    execute look reads x writes big\n"
        "switch Tensor(bool[] of big: 0) reads x, big, n writes x\n"
        "  0\n"
        "  else\n"
        "    switch Tensor(int32[] of n: 0) reads x, n writes x\n"
        "      0\n"
        "      else\n"
        "        execute halve reads x writes x\n"
        "switch Tensor(bool[] of big: 0) reads x, big, n writes x, n\n"
        "  0\n"
        "    execute count reads n writes n\n"
        "  else\n"
        "    execute halve reads x writes x\n"
        "switch Tensor(int32[] of n: 0) reads x, n writes x, big\n"
        "  0\n"
        "    execute halve reads x writes x\n"
        "  -2\n"
        "    execute halve reads x writes x\n"
        "    execute look reads x writes big\n"
        "  else\n"
        "    print Tensor(float32[] of x: 0) as 'x'\n"
        "switch Tensor(int32[] of n: 0) reads x, n writes x\n"
        "  0\n"
        "    execute halve reads x writes x\n"
        "  else\n"
        "call adding(a=Tensor(float32[2] of rows: f0), b=Tensor(float32[2] of rows: 4 + f0)) reads rows writes rows\n"
        "call adding(a=Tensor(float32[2] of y: f0), b=Tensor(float32[2] of rows: 4 + f0)) reads y, rows writes y\n"
        "print Tensor(float32[2] of x: f0) as 'x is'\n"
        "abort on Tensor(bool[] of big: 0)\n"
        "undefine Tensor(float32[2] of x: f0)\n"
        "outputs Tensor(float32[3,2] of rows: 2*f0 + f1)"
    )


# --- what is refused ------------------------------------------------------------------------------------


def told(action, error, *words):
    """See that an action raises an error that says these words, and names a line of this file."""
    with pytest.raises(error) as caught:
        action()
    message = str(caught.value)
    for word in words:
        assert word in message, message
    line = message.split("  at:       ")[-1]
    assert "test_programs.py" in line, message
    return message


FOREIGN = cl.Graph()
FOREIGN_X = FOREIGN.add_variable("x", (2,))

MISTAKES = {
    "copy of no tensor": (
        lambda s: cl.Copy("x", s.x),
        ["neither a tensor nor numbers", "given:    'x'", "graph.variable(name)"],
    ),
    "copy of symbols": (
        lambda s: cl.Copy(s.x[cl.grid(2)], s.n),
        ["a copy depends on a symbol", "expected: a view without symbols", "name the whole range"],
    ),
    "copy of shapes": (
        lambda s: cl.Copy(s.x, s.y[:1]),
        ["the two sides of a copy differ", "given:    Tensor(float32[2] of x: f0) to Tensor(float32[1] of y: 0)"],
    ),
    "copy of dtypes": (lambda s: cl.Copy(s.n, s.big), ["differ", "expected: one shape and dtype"]),
    "copy to padding": (lambda s: cl.Copy(s.x, s.y.pad(1)[:2]), ["would write padding", "slice the padding off"]),
    "copy to an input": (lambda s: cl.Copy(s.x, s.feed), ["'feed' comes from the host: nothing is copied to it"]),
    "copy from an output": (lambda s: cl.Copy(s.sink, s.x), ["'sink' goes to the host: nothing comes"]),
    "copy between streams": (lambda s: cl.Copy(s.feed, s.sink), ["a copy goes from a stream to a stream"]),
    "repeat's count": (lambda s: cl.Repeat(-1, s.halve), ["count is not a number of times", "given:    -1"]),
    "repeat's index": (lambda s: cl.Repeat(3, s.halve, index=s.x), ["index cannot count", "of shape (), int32 say"]),
    "a body": (lambda s: cl.Repeat(3, "halve"), ["made of something else", "given:    halve", "compute sets"]),
    "a float as predicate": (
        lambda s: cl.RepeatWhile(s.look, s.x[0], s.halve),
        [
            "the predicate of a loop is not a boolean",
            "given:    Tensor(float32[] of x: 0)",
            "a codelet that compares",
        ],
    ),
    "max_iterations": (
        lambda s: cl.RepeatWhile(s.look, s.big, s.halve, max_iterations=0),
        ["max_iterations is not a number", "given:    0"],
    ),
    "a vector as predicate": (
        lambda s: cl.If(s.big.reshape(1), s.halve),
        ["predicate of an If", "of shape ()", "x[0]"],
    ),
    "a number as predicate": (lambda s: cl.If(True, s.halve), ["predicate of an If", "given:    True"]),  # type: ignore[arg-type]
    "a control": (lambda s: cl.Switch(s.x[0], {0: s.halve}), ["the control of a Switch is not"]),
    "cases in a list": (
        lambda s: cl.Switch(s.n, [s.halve]),  # type: ignore[arg-type]
        ["not numbered", "expected: {0: program, 1: program, ...}"],
    ),
    "cases with names": (lambda s: cl.Switch(s.n, {"a": s.halve}), ["the cases of a Switch are not numbered"]),  # type: ignore[arg-type]
    "call of a program": (
        lambda s: cl.Call(s.halve),
        ["other than a function is called", "expected: graph.add_function"],
    ),
    "arguments": (
        lambda s: cl.Call(s.function, a=s.x, c=s.x),
        ["are not the parameters of 'add'", "given:    a, c", "expected: a, b"],
    ),
    "an argument's shape": (
        lambda s: cl.Call(s.function, a=s.x, b=s.x[:1]),
        ["argument 'b' does not fit the parameter of 'add'", "given:    Tensor(float32[1]", "expected: float32[2]"],
    ),
    "an argument's symbol": (
        lambda s: cl.Call(s.function, a=s.x, b=s.rows[cl.grid(3)]),
        ["argument 'b' depends on a symbol"],
    ),
    "an argument that is a parameter": (
        lambda s: cl.Call(s.function, a=s.x, b=s.a),
        ["argument 'b' is a parameter of 'add' itself", "holds nothing between calls", "variables of their own"],
    ),
    "a view as parameter": (
        lambda s: s.graph.add_function(s.halve, {"x": s.x[:1]}),
        ["a parameter of a function is no variable", "given:    Tensor(float32[1]"],
    ),
    "a constant as parameter": (
        lambda s: s.graph.add_function(s.halve, [s.graph.add_constant("c", 1.0)]),
        ["a parameter of a function is no variable"],
    ),
    "two parameters of one variable": (
        lambda s: s.graph.add_function(s.halve, {"p": s.x, "q": s.x}),
        ["two parameters of a function are one variable", "given:    p, q"],
    ),
    "a print": (lambda s: cl.Print("x"), ["something other than a tensor is printed"]),  # type: ignore[arg-type]
    "a print's label": (lambda s: cl.Print(s.x, 3), ["the label of a print is not text", "given:    3"]),  # type: ignore[arg-type]
    "an abort's predicate": (lambda s: cl.AbortOn(s.x, "m"), ["the predicate of an abort is not a boolean"]),
    "an abort's message": (lambda s: cl.AbortOn(s.big, s.x), ["the message of an abort is not text"]),
    "undefined": (lambda s: cl.WriteUndef(3), ["something other than a tensor is made undefined"]),  # type: ignore[arg-type]
    "an undefined constant": (
        lambda s: cl.WriteUndef(s.graph.add_constant("c", [1.0])),
        ["a constant is made undefined", "expected: variables"],
    ),
}


class More(Small):
    """`Small` with streams and a function."""

    def __init__(self):
        super().__init__()
        graph, i = self.graph, cl.grid(2)
        self.a, self.b = graph.add_variable("a", (2,)), graph.add_variable("b", (2,))
        self.rows = graph.add_variable("rows", (3, 2))
        graph.add_vertex("work", add, a=self.a[i], b=self.b[i])
        self.function = graph.add_function(graph.compute_sets[-1], [self.a, self.b], name="add")
        self.feed, self.sink = graph.add_input_stream("feed", 2), graph.add_output_stream("sink", 2)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_programs_that_are_not_well_formed(mistake):
    make, words = MISTAKES[mistake]
    s = More()
    told(lambda: make(s), cl.ProgramError, *words)


FOREIGN_PROGRAMS = {
    "copy": lambda s: cl.Copy(FOREIGN_X, s.x),
    "argument": lambda s: cl.Call(s.function, a=s.x, b=FOREIGN_X),
    "program": lambda s: s.lower(cl.Print(FOREIGN_X)),
    "nested": lambda s: s.lower(cl.If(s.big, cl.Repeat(2, cl.WriteUndef(FOREIGN_X)))),
    "function": lambda s: cl.lower(FOREIGN, cl.Call(s.function, a=s.x, b=s.y), inputs=[], outputs=[]),
    "parameter": lambda s: s.graph.add_function(s.halve, {"x": FOREIGN_X}),
    "stream": lambda s: cl.Engine(FOREIGN, cl.Copy(s.feed, s.x)),
}


@pytest.mark.parametrize("where", FOREIGN_PROGRAMS)
def test_what_belongs_to_another_graph(where):
    s = More()
    told(lambda: FOREIGN_PROGRAMS[where](s), cl.ForeignGraphError)


def test_a_recording_is_closed_to_other_compute_sets():
    s = Small()
    with s.graph.record():
        told(lambda: s.graph.add_vertex(s.halve, halve, x=s.x[0]), cl.ProgramError, "outside the recording")


def test_a_written_constant_is_named():
    s = Small()
    c = s.graph.add_constant("c", [1.0, 2.0])
    told(lambda: s.lower(cl.If(s.n, cl.Copy(s.x, c))), cl.VariableError, "a program writes the constant 'c'")


def test_a_function_cannot_call_itself():
    s = More()
    # What is called must exist before its body: a call in it names something older.
    inner = cl.Call(s.function, a=s.x, b=s.y)
    outer = s.graph.add_function(inner)
    assert s.graph.functions == (s.function, outer)
    told(lambda: s.graph.add_function(cl.Call(outer), name="add"), cl.DuplicateNameError, "'add' is used twice")
    with pytest.raises(AttributeError):
        s.function.body = inner  # type: ignore[misc]


def test_a_name_for_two_parameters():
    graph = cl.Graph()
    with graph.scope("one"):
        first = graph.add_variable("x", ())
    with graph.scope("two"):
        second = graph.add_variable("x", ())
    told(lambda: graph.add_function((), [first, second]), cl.ProgramError, "two parameters of a function have one name")
    assert set(graph.add_function((), {"a": first, "b": second}).parameters) == {"a", "b"}


# --- choices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", [0, 1, 3, 44, 255])
def test_a_case_beyond_the_controls_dtype_is_never_met(control):
    graph = cl.Graph()
    x, u = graph.add_variable("x", (), "int32"), graph.add_variable("u", (), "uint8")
    bodies = [cl.Copy(graph.add_constant(f"c{k}", k), x) for k in range(4)]
    program = cl.Switch(u, {-1: bodies[0], 300: bodies[1], 2**40: bodies[1], 3: bodies[2]}, bodies[3])
    agree(graph, program, {"x": 9, "u": np.uint8(control)}, ["x"])


def test_a_truth_value_chooses():
    s = Small()
    big = cl.Switch(s.big, {0: s.halve, 1: s.count, 2: s.bend})
    for x in (0.5, 3.0):
        agree(s.graph, cl.Sequence(s.look, big), {**VALUES, "x": np.full(2, x, "f")}, ["x", "y", "n"])


@cl.codelet
def loud(n):
    jax.debug.print("saw {}", n)
    return {"n": n + 1}


@pytest.mark.parametrize("n", [0, 1, 7])
def test_effects_happen_in_the_case_that_runs(n, capfd):
    s = Small()
    s.graph.add_vertex("loud", loud, n=s.n)
    speak = s.graph.compute_sets[-1]
    program = cl.Switch(s.n, {0: speak, 1: [speak, cl.Print(s.n, "after {}")]}, cl.Print(s.y))
    run = s.lower(program, outputs=["x"])
    says = {0: ["saw 0"], 1: ["saw 1", "after {}: 2"], 7: ["y: [1. 2.]"]}[n]
    for function in (run, jax.jit(run)):
        function({**VALUES, "n": n})
        jax.effects_barrier()
        assert sorted(capfd.readouterr().out.splitlines()) == sorted(says)
    cl.interpret(s.graph, values={**VALUES, "n": n}, outputs=["x"], program=program)


def test_prints_in_loops_and_functions(capfd):
    s = Small()
    own = s.graph.add_variable("own", (2,))
    speak = s.graph.add_function(cl.Print(own, "own"), [own])
    s.graph.add_function(cl.Print(own, "never called"), [own])
    calls = [cl.Call(speak, own=view) for view in (s.x, s.y, s.x.reverse(0), s.y)]
    program = cl.Sequence(
        cl.Repeat(2, [cl.Print(s.turn), *calls], index=s.turn),
        cl.RepeatWhile(s.look, s.big, [s.halve, cl.Print(s.x[0])]),
    )
    expected = ["turn: 0", "turn: 1", *2 * ["own: [8. 1.]", "own: [1. 2.]", "own: [1. 8.]", "own: [1. 2.]"]]
    expected += ["x: 4.0", "x: 2.0", "x: 1.0"]
    run = s.lower(program, outputs=["n"])
    cl.interpret(s.graph, values=VALUES, outputs=["n"], program=program)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)
    for function in (run, jax.jit(run)):
        function(VALUES)
        jax.effects_barrier()
        assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)


# --- gradients --------------------------------------------------------------------------------------------


class Smooth(Small):
    """`Small` in float64, with a function, a counted compute set, and streams."""

    def __init__(self):
        super().__init__("float64")
        graph, i = self.graph, cl.grid(2)
        self.rows = graph.add_variable("rows", (4, 2), "float64")
        graph.add_vertex("bend by", bend_by, x=self.y[i], turn=self.turn, s=self.x[i])
        self.bend_by = graph.compute_sets[-1]
        p, q = graph.add_variable("p", (2,), "float64"), graph.add_variable("q", (2,), "float64")
        graph.add_vertex("bend p", bend, x=p[i], y=q[i])
        body = [graph.compute_sets[-1], cl.Copy(q[:1], self.y[1:])]
        self.function = graph.add_function(body, {"p": p, "q": q})
        self.pure = graph.add_function(graph.compute_sets[-1], {"p": p, "q": q})
        self.feed = graph.add_input_stream("feed", (2,), "float64")
        self.sink = graph.add_output_stream("sink", (2,), "float64")

    def bounded(self, *body, most=12):
        return cl.RepeatWhile(self.look, self.big, [self.halve, *body], max_iterations=most)

    def unbounded(self, *body):
        return cl.RepeatWhile(self.look, self.big, [self.halve, *body])

    def chain(self, function):
        return [cl.Call(function, p=self.rows[k], q=self.rows[k + 1]) for k in range(3)]


REVERSIBLE = {
    "repeat": lambda s: cl.Repeat(3, [s.bend_by, s.bend], index=s.turn),
    "if": lambda s: [cl.If(s.n, s.bend, s.halve), cl.If(s.n, cl.If(s.big, s.halve), s.bend)],
    "switch": lambda s: [cl.Switch(s.n, {2: s.bend, 3: s.halve}), cl.Switch(s.n, {0: s.halve}, s.bend)],
    "call": lambda s: [cl.Call(s.function, p=s.x, q=s.rows[1]), cl.Call(s.function, p=s.rows[1], q=s.x[::-1])],
    "chain": lambda s: s.chain(s.pure),
    "chain that stays": lambda s: [cl.Call(s.function, p=s.y, q=s.rows[k]) for k in range(3)],
    "streams": lambda s: cl.Repeat(2, [cl.Copy(s.feed, s.y), s.bend, cl.Copy(s.y, s.sink)]),
    "abort": lambda s: [s.bend, cl.AbortOn(s.turn, "never"), s.bend],
    "undefined": lambda s: [s.bend, cl.WriteUndef(s.x), cl.Copy(s.y, s.x), s.bend],
}
LOOPS = {
    "while": lambda s, loop: loop(s.bend),
    "until": lambda s, loop: [s.look, loop(s.bend, s.look)],
    "while in repeat": lambda s, loop: cl.Repeat(3, [loop(s.bend), s.bend, cl.Copy(s.y, s.x)]),
    "repeat in while": lambda s, loop: loop(cl.Repeat(2, [s.bend_by, s.bend], index=s.turn)),
    "while in switch": lambda s, loop: cl.Switch(s.n, {2: [s.bend, loop(s.bend)]}, s.halve),
    "switch in while": lambda s, loop: loop(s.count, cl.Switch(s.n, {3: s.bend}, s.halve)),
    "call in while": lambda s, loop: loop(cl.Call(s.function, p=s.x, q=s.rows[1]), *s.chain(s.pure)),
    "while in call": lambda s, loop: cl.Repeat(2, cl.Call(s.graph.add_function(loop(s.bend)))),
    "while in while": lambda s, loop: loop(loop(s.bend), cl.Copy(s.rows[0], s.x), s.bend, s.count, cl.If(s.n, s.halve)),
    "all": lambda s, loop: cl.Repeat(
        2,
        [
            cl.Copy(s.feed, s.x),
            cl.If(s.n, [*s.chain(s.pure), loop(s.bend, cl.Switch(s.n, {2: s.bend}))]),
            *s.chain(s.function),
            cl.Copy(s.y, s.sink),
        ],
        index=s.turn,
    ),
}


def slopes(make):
    """The slope of the loss of a program along a direction, by differences, in reverse and in forward mode."""
    s = Smooth()
    run = s.lower(make(s), inputs=["x", "y", "n", "rows", "turn", "big"], outputs=["x", "y", "rows"])
    random = np.random.default_rng(0)
    fixed = {"n": 2, "turn": 0, "big": False}
    smooth = {"x": [5.3, 0.7], "y": [0.4, -0.9], "rows": random.uniform(-1, 1, (4, 2))}
    if any(stream.is_input for stream in run.plan.streams):
        smooth["feed"] = [[3.3, 0.2], [-0.4, 2.6]]
    smooth = {name: jnp.asarray(value) for name, value in smooth.items()}
    loss = lambda values: sum((1 + k) * jnp.sin(v).sum() for k, v in enumerate(run({**fixed, **values}).values()))  # noqa: E731
    direction = {name: jnp.asarray(random.normal(size=value.shape)) for name, value in smooth.items()}

    def numeric(step=1e-4):
        moved = jax.jit(lambda t: loss({name: value + t * direction[name] for name, value in smooth.items()}))
        near, far = (moved(step) - moved(-step)) / (2 * step), (moved(2 * step) - moved(-2 * step)) / (4 * step)
        return (4 * near - far) / 3

    def reverse():
        slope = jax.jit(jax.grad(loss))(smooth)
        return sum((slope[name] * direction[name]).sum() for name in smooth)

    forward = lambda: jax.jit(lambda values, t: jax.jvp(loss, (values,), (t,))[1])(smooth, direction)  # noqa: E731
    return numeric, reverse, forward


@few("kind", REVERSIBLE, quick=["call"])
def test_gradients_in_both_modes(kind):
    with jax.enable_x64(True):
        numeric, reverse, forward = slopes(REVERSIBLE[kind])
        np.testing.assert_allclose(reverse(), numeric(), rtol=1e-7)
        np.testing.assert_allclose(forward(), numeric(), rtol=1e-7)


@few("kind", LOOPS, quick=["until"])
def test_gradients_through_loops_on_conditions(kind):
    with jax.enable_x64(True):
        numeric, reverse, _ = slopes(lambda s: LOOPS[kind](s, s.bounded))
        slope = numeric()
        np.testing.assert_allclose(reverse(), slope, rtol=1e-7)
        _, reverse, forward = slopes(lambda s: LOOPS[kind](s, s.unbounded))
        np.testing.assert_allclose(forward(), slope, rtol=1e-7)
        told(
            reverse,
            cl.ProgramError,
            "differentiated in reverse mode without a bound on its iterations",
            "given:    Tensor(bool[] of big: 0)",
            "expected: forward mode (jax.jvp, jax.jacfwd), or a bound",
            "fix:      RepeatWhile(..., max_iterations=...)",
            "slope = jax.jit(jax.grad(loss))(smooth)",
        )


@pytest.mark.slow
def test_a_loop_without_a_bound_under_every_other_transformation():
    s = Small()
    run = s.lower(s.shrink)
    batch = {"x": np.asarray([[8, 1], [1, 8], [3, 0]], "f"), "y": np.ones((3, 2), "f"), "n": np.zeros(3, np.int32)}
    np.testing.assert_array_equal(jax.vmap(run)(batch)["n"], [3, 0, 2])
    jacobian = jax.jacfwd(lambda x: run({**VALUES, "x": x})["x"])(VALUES["x"])
    np.testing.assert_array_equal(jacobian, np.eye(2) / 8)
    jacobian = jax.jit(jax.vmap(jax.jacfwd(lambda x: run({**VALUES, "x": x})["x"])))(batch["x"])
    np.testing.assert_array_equal(jacobian, np.eye(2) / np.asarray([8, 1, 4])[:, None, None])


def test_the_gradient_of_what_does_not_depend_on_the_loop():
    s = Small()
    run = s.lower(s.shrink, cl.Copy(s.y[::-1], s.y))
    slope = jax.grad(lambda y: run({**VALUES, "y": y})["y"][0])(VALUES["y"])
    np.testing.assert_array_equal(slope, [0, 1])


# --- functions --------------------------------------------------------------------------------------------


@cl.codelet
def mix(a, b, c):
    return {"c": a + 2 * b - c}


class Mixing:
    """A function of three parameters, of which it writes the last; and rows for its arguments."""

    def __init__(self, calls=6):
        self.graph = graph = cl.Graph()
        self.calls = calls
        own = {name: graph.add_variable(f"own {name}", (2,)) for name in "abc"}
        self.a, self.b, self.c = (graph.add_variable(name, (calls + 1, 2)) for name in "abc")
        self.total = graph.add_variable("total", (2,))
        i = cl.grid(2)
        graph.add_vertex("mix", mix, **{name: t[i] for name, t in own.items()})
        graph.add_vertex("add up", mix, a=own["a"][i], b=own["c"][i], c=self.total[i])
        self.mix, self.add_up = graph.compute_sets
        self.own = own

    def run(self, arguments, body=None):
        """The chain of calls, lowered, after it agrees with the interpreter."""
        function = self.graph.add_function(body or self.mix, self.own)
        self.program = cl.Sequence(*(cl.Call(function, **arguments(k)) for k in range(self.calls)))
        names = ["a", "b", "c", "total"]
        random = np.random.default_rng(0)
        values = {n: random.integers(-9, 9, self.graph.variable(n).shape).astype("f") for n in names}
        agree(self.graph, self.program, values, names)
        return cl.lower(self.graph, self.program, inputs=names, outputs=names)


def primitives(run):
    return [str(equation.primitive) for equation in run.jaxpr.eqns]


CHAINS = {
    "each its own": lambda m, k: {"a": m.a[k], "b": m.b[k], "c": m.c[k]},
    "backwards": lambda m, k: {"a": m.a[m.calls - k], "b": m.b[2 * k % 7], "c": m.c[m.calls - k]},
    "one for all": lambda m, k: {"a": m.a[0], "b": m.b[1], "c": m.c[k]},
    "one that is written": lambda m, k: {"a": m.a[k], "b": m.b[0], "c": m.c[0]},
    "from one to the next": lambda m, k: {"a": m.c[k], "b": m.b[k], "c": m.c[k + 1]},
    "of any variables": lambda m, k: {"a": [m.a, m.b][k % 2][k], "b": m.total, "c": m.c[k]},
}


@few("chain", CHAINS, quick=["each its own", "backwards", "one for all", "from one to the next", "of any variables"])
def test_calls_in_a_row_are_one_loop(chain):
    sizes = set()
    # Of several variables there is one concatenate more for each call, and backwards works for six.
    for calls in (6,) if chain in ("of any variables", "backwards") else (6, 13):
        m = Mixing(calls)
        run = m.run(lambda k: CHAINS[chain](m, k))
        assert primitives(run).count("scan") == 1
        assert "jit" not in primitives(run)
        sizes.add(len(run.jaxpr.eqns))
    assert len(sizes) == 1


DECOYS = {
    "an argument that an earlier call wrote two calls ago": lambda m, k: {
        "a": m.c[max(k - 1, 0)],
        "b": m.b[k],
        "c": m.c[k + 1],
    },
    "an argument that a later call writes": lambda m, k: {"a": m.c[6 - k], "b": m.b[k], "c": m.c[k]},
    "written rows that overlap": lambda m, k: {"a": m.a[k], "b": m.b[k], "c": m.c.flatten()[k : k + 2]},
    "a row written twice": lambda m, k: {"a": m.a[k], "b": m.b[k], "c": m.c[k % 5]},
    "a part of what is carried": lambda m, k: {"a": m.c.flatten()[1:3], "b": m.b[k], "c": m.c[0]},
    "one variable as two arguments": lambda m, k: {"a": m.c[k], "b": m.b[k], "c": m.c[k, ::-1]},
}


@few("decoy", DECOYS, quick=["an argument that an earlier call wrote two calls ago"])
def test_calls_that_meet_stay_calls(decoy):
    m = Mixing()
    run = m.run(lambda k: DECOYS[decoy](m, k))
    assert primitives(run).count("jit") == 6
    assert "scan" not in primitives(run)


def test_a_variable_that_the_body_writes_too():
    m = Mixing()
    arguments = lambda k: {"a": m.a[k], "b": m.b[k], "c": m.c[k]}  # noqa: E731
    assert primitives(m.run(arguments, [m.mix, m.add_up])).count("scan") == 1
    # Where it is an argument besides, in one of the calls, order matters.
    for decoy in ("a", "c"):
        m = Mixing()
        run = m.run(lambda k: {**arguments(k), decoy: m.total if k == 3 else arguments(k)[decoy]}, [m.mix, m.add_up])
        assert primitives(run).count("jit") == 6


def test_two_calls_are_no_loop():
    m = Mixing(2)
    assert primitives(m.run(lambda k: CHAINS["each its own"](m, k))).count("jit") == 2


def test_a_function_called_here_and_there_is_traced_once():
    @cl.codelet
    def watched(a, b):
        return {"a": jnp.tanh(a) + b}

    graph = cl.Graph()
    x, y = graph.add_variable("x", (2,)), graph.add_variable("y", (2,))
    p, q = graph.add_variable("p", (2,)), graph.add_variable("q", (2,))
    i = cl.grid(2)
    graph.add_vertex("work", watched, a=p[i], b=q[i])
    function = graph.add_function(graph.compute_sets[0], [p, q])
    before = graph.num_vertices
    swap = cl.Copy(cl.concatenate([x, y]), cl.concatenate([y, x]))
    program = cl.Sequence(
        cl.Call(function, p=x, q=y),
        swap,
        cl.Call(function, p=y, q=x),
        swap,
        cl.Repeat(2, [swap, cl.Call(function, p=x, q=x)]),
    )
    run = cl.lower(graph, program, inputs=[x, y], outputs=[x, y])
    assert graph.num_vertices == before == 2
    assert sum(family.num_vertices for family in run.families) == 2
    called = [e for e in run.jaxpr.eqns if str(e.primitive) == "jit"]
    (loop,) = (e for e in run.jaxpr.eqns if str(e.primitive) == "scan")
    called += [e for e in loop.params["jaxpr"].jaxpr.eqns if str(e.primitive) == "jit"]
    assert len(called) == 3
    assert len({id(e.params["jaxpr"].jaxpr) for e in called}) == 1
    assert str(run.jaxpr).count("tanh") == 1
    compiled = jax.jit(run).lower({"x": np.ones(2, "f"), "y": np.ones(2, "f")}).as_text()
    assert compiled.count("stablehlo.tanh") == 1
    agree(graph, program, {"x": np.asarray([1, 2], "f"), "y": np.asarray([3, 4], "f")}, ["x", "y"])


def test_functions_call_functions():
    s = More()
    twice = s.graph.add_function([cl.Call(s.function, a=s.x, b=s.y)] * 2)
    program = cl.Sequence(cl.Call(twice), s.halve, cl.Call(twice))
    expected = agree(s.graph, program, {"x": VALUES["x"], "y": VALUES["y"]}, ["x"])
    np.testing.assert_array_equal(expected["x"], [(8 + 2) / 2 + 2, (1 + 4) / 2 + 4])


def test_arguments_that_overlap_are_read_before_anything_is_written():
    s = More()
    row = s.rows.flatten()
    program = cl.Call(s.function, a=row[1:3], b=row[:2])
    rows = np.arange(6, dtype="f").reshape(3, 2)
    expected = agree(s.graph, program, {"rows": rows}, ["rows"])
    np.testing.assert_array_equal(expected["rows"].reshape(-1), [0, 1, 3, 3, 4, 5])


# --- recordings -------------------------------------------------------------------------------------------


def layer(graph, x, w):
    """A function that adds compute sets, as a user writes it."""
    row = cl.grid(w.shape[0])
    return graph.add_vertex("multiply", cl.codelet(lambda x, w: jnp.tanh(jnp.dot(x, w))), x=x, w=w[row])


def test_a_recording_is_the_body_of_a_repeat_and_of_a_call():
    graph = cl.Graph()
    x, w, v = graph.add_variable("x", (3,)), graph.add_variable("w", (3, 3)), graph.add_variable("v", (3, 3))
    own, matrix = graph.add_variable("own", (3,)), graph.add_variable("matrix", (3, 3))
    with graph.scope("looped"), graph.record() as looped:
        out = layer(graph, x, w)
    with graph.scope("called"), graph.record() as called:
        result = layer(graph, own, matrix)
    function = graph.add_function([called, cl.Copy(result, own)], [own, matrix], name="layer")
    assert str(looped) == "Execute(looped/multiply)"
    assert str(function).endswith(
        "\n"
        "  Execute(called/multiply)\n"
        "  Copy(Tensor(float32[3] of called/multiply/out: f0) -> Tensor(float32[3] of own: f0))"
    )
    program = cl.Sequence(
        cl.Repeat(3, [looped, cl.Copy(out, x)]), cl.Call(function, own=x, matrix=v), cl.Call(function, own=x, matrix=w)
    )
    random = np.random.default_rng(0)
    values = {n: random.normal(size=graph.variable(n).shape).astype("f") for n in "xwv"}
    results = agree(graph, program, values, ["x"])
    expected = values["x"]
    for matrix in [values["w"]] * 3 + [values["v"], values["w"]]:
        expected = np.tanh(matrix @ expected)
    np.testing.assert_allclose(results["x"], expected, rtol=1e-5)


def test_recordings_in_recordings_are_apart():
    s = Small()
    with s.graph.record() as outer:
        s.graph.add_compute_set("first")
        with s.graph.record() as inner:
            s.graph.add_compute_set("second")
        s.graph.add_compute_set("third")
    assert (str(outer), str(inner)) == ("Execute(first)\nExecute(third)", "Execute(second)")
    program = cl.If(s.n, outer, [inner, cl.RepeatWhile(inner, s.big, outer)])
    choice = checked(s.lower(program, inputs=["x", "y", "n", "big"])).steps[0]
    assert isinstance(choice, SwitchStep)
    assert [next(step.lines()).split()[1] for step in choice.branches[1]] == ["first", "third"]


# --- aborts -----------------------------------------------------------------------------------------------

PLACES = {
    "alone": lambda s, stop: stop,
    "in a repeat": lambda s, stop: cl.Repeat(3, [stop, s.halve]),
    "in a loop": lambda s, stop: cl.RepeatWhile(s.look, s.big, [s.halve, stop]),
    "in a bounded loop": lambda s, stop: cl.RepeatWhile(s.look, s.big, [s.halve, stop], max_iterations=9),
    "in a choice": lambda s, stop: [s.look, cl.Switch(s.big, {0: s.halve}, [s.halve, stop])],
    "in a function": lambda s, stop: cl.Call(s.graph.add_function([stop, s.halve])),
    "in a chain": lambda s, stop: [cl.Call(s.graph.add_function([s.halve, stop], name="stopping"))] * 4,
    "behind what it hides": lambda s, stop: [stop, cl.AbortOn(s.n, "the second"), s.halve],
}


@few(
    "place",
    PLACES,
    quick=["in a choice"],
)
def test_aborts_under_every_transformation(place):
    s = Small()
    run = s.lower(PLACES[place](s, cl.AbortOn(s.n, "n is set")))
    x = VALUES["x"]

    def result(n, x=x):
        return run({**VALUES, "n": n, "x": x})["x"].sum()

    def both(n):
        return jax.vmap(result)(jnp.asarray([0, n]))

    ways = [result, eqx.filter_jit(result), eqx.filter_jit(both)]
    if place != "in a loop":
        ways.append(eqx.filter_jit(lambda n: jax.grad(result, 1)(n, x)))
    if place in ("alone", "in a loop"):
        ways.append(lambda n: jax.jvp(lambda x: result(n, x), (x,), (x,)))
        ways.append(lambda n: jax.lax.scan(lambda c, n: (c, result(n)), 0, jnp.asarray([0, n])))
    for function in ways:
        jax.block_until_ready(function(jnp.int32(0)))
        with pytest.raises(Exception, match="the program aborted: n is set"):
            jax.block_until_ready(function(jnp.int32(1)))


def test_an_abort_is_told_though_nothing_comes_out():
    s = Small()
    run = s.lower(cl.AbortOn(s.n, "n is set"), outputs=[])
    assert run(VALUES) == {}
    with pytest.raises(Exception, match="n is set"):
        run({**VALUES, "n": 1})


def test_a_loop_beyond_its_max_steps():
    s = Small()
    program = cl.RepeatWhile(s.look, s.big, s.halve, max_iterations=3)
    agree(s.graph, program, VALUES, ["x"])
    beyond, says = {**VALUES, "x": np.full(2, 9, "f")}, "a loop over big went on beyond its max_iterations=3"
    with pytest.raises(Exception, match=says):
        s.lower(program)(beyond)
    told(lambda: cl.interpret(s.graph, values=beyond, outputs=["x"], program=program), cl.ProgramAbortedError, says)
    engine = s.engine(program)
    engine.write({"x": beyond["x"]})
    told(engine.run, cl.ProgramAbortedError, "the program aborted: " + says)
    np.testing.assert_array_equal(engine.read("x"), [9, 9])


def test_an_abort_keeps_the_state():
    s = Small()
    program = cl.Sequence(s.bend, s.count, cl.Repeat(3, [s.halve, cl.AbortOn(s.n, "no good")]))
    engine = s.engine(program)
    told(engine.run, cl.ProgramAbortedError, "the program aborted: no good")
    for name, value in VALUES.items():
        np.testing.assert_array_equal(engine.read(name), value)
    engine.write({"n": -1})
    engine.run()
    np.testing.assert_array_equal(engine.read("x"), [1, 0.125])
    assert engine.read("n") == 0
    told(engine.run, cl.ProgramAbortedError, "no good")
    np.testing.assert_array_equal(engine.read("x"), [1, 0.125])


def test_what_an_aborted_run_was_to_write_is_not_there():
    s = Small()
    z = s.graph.add_variable("z", (2,))
    engine = s.engine(cl.Sequence(cl.Copy(s.x, z), cl.AbortOn(s.n, "no")))
    engine.write({"n": 1})
    told(engine.run, cl.ProgramAbortedError)
    told(lambda: engine.read(z), cl.UninitializedReadError, "z[0] is read by the host")


# --- several programs -------------------------------------------------------------------------------------


def test_programs_share_one_state():
    compiled = []

    @cl.codelet
    def seen(x, w):
        return {"w": w + x}

    s = Small()
    w = s.graph.add_variable("w", (2,))
    i = cl.grid(2)
    s.graph.add_vertex("learn", seen, x=s.x[i], w=w[i])
    learn = s.graph.compute_sets[-1]
    engine = s.engine({"train": [learn, s.count], "predict": cl.Copy(w, s.y), "stop": cl.AbortOn(s.n, "stopped")})
    told(
        lambda: engine.run("predict"),
        cl.UninitializedReadError,
        "w[0] is read by a copy to Tensor(float32[2] of y: f0)",
    )
    engine.write({"w": [0.0, 1.0]})
    events = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for _ in range(3):
            engine.run("train")
            engine.run("predict")
            compiled.append([event for event in events if event.startswith("/jax/core/compile")])
            events.clear()
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    np.testing.assert_array_equal(engine.read("y"), [24, 4])
    assert compiled[0]
    assert compiled[1:] == [[], []]
    told(lambda: engine.run("stop"), cl.ProgramAbortedError, "stopped")
    told(
        lambda: engine.run("test"),
        cl.ProgramError,
        "no such program",
        "given:    test",
        "'train' or 'predict' or 'stop'",
    )
    told(engine.run, cl.ProgramError, "has several programs", "the name of one: 'train'")
    np.testing.assert_array_equal(engine.read("y"), [24, 4])
    run = engine.function(inputs=["w", "x", "n"], outputs=["w", "n"], program_name="train")
    np.testing.assert_array_equal(run({"w": [0, 0], **{k: VALUES[k] for k in "xn"}})["w"], [8, 1])


# --- streams ----------------------------------------------------------------------------------------------


class Fed(Small):
    """A loop that takes a value of `feed` in each turn, adds it up, and sends the sum so far."""

    def __init__(self, count=5):
        super().__init__()
        graph = self.graph
        self.feed, self.sums = graph.add_input_stream("feed", (2,)), graph.add_output_stream("sums", (2,))
        self.value, self.sum = graph.add_variable("value", (2,)), graph.add_variable("sum", (2,))
        i = cl.grid(2)
        graph.add_vertex("add up", add, a=self.sum[i], b=self.value[i])
        add_up = graph.compute_sets[-1]
        self.turn_body = cl.Sequence(cl.Copy(self.feed, self.value), add_up, cl.Copy(self.sum, self.sums))
        self.program = cl.Repeat(count, self.turn_body)

    def connected(self, values, program=None, **options):
        engine = cl.Engine(self.graph, program or self.program, **options)
        engine.write({"sum": np.zeros(2), "n": 0})
        engine.connect(self.feed, values)
        return engine


FEED = np.arange(40, dtype="f").reshape(20, 2)


def test_streams_are_stacked_in_the_pure_function():
    s = Fed()
    values = {"feed": FEED[:5], "sum": np.zeros(2, "f")}
    expected = agree(s.graph, s.program, values, ["sum"])
    np.testing.assert_array_equal(expected["sums"], FEED[:5].cumsum(0))
    run = cl.lower(s.graph, s.program, inputs=["sum", s.feed], outputs=["sum", "sums"])
    batch = {"feed": np.stack([FEED[:5], FEED[5:10]]), "sum": np.zeros((2, 2), "f")}
    np.testing.assert_array_equal(jax.vmap(run)(batch)["sums"][1], FEED[5:10].cumsum(0))
    told(
        lambda: run({**values, "feed": FEED[:4]}), cl.ArrayError, "'feed' has the wrong shape", "expected: float32[5,2]"
    )


def one_by_one(values):
    return (row for row in values)


SOURCES = [np.asarray, jnp.asarray, list, iter, one_by_one]


@few(
    "source, stream_bytes",
    itertools.product(SOURCES, [1, 16, 40, 64, 10**6]),
    quick=["iter, 16"],
    ids=lambda own: "array of JAX" if own is jnp.asarray else getattr(own, "__name__", str(own)),
)
def test_an_engine_feeds_a_stream(source, stream_bytes):
    s = Fed()
    engine = s.connected(source(FEED[:10]), stream_bytes=stream_bytes)
    for start in (0, 5):
        engine.run()
        np.testing.assert_array_equal(engine.read(s.sums), FEED.cumsum(0)[start : start + 5])
    np.testing.assert_array_equal(engine.read("sum"), FEED[:10].sum(0))
    assert engine.read("sums").dtype == np.float32


def test_an_output_stream_is_handed_on_or_kept():
    s, got = Fed(), []
    engine = s.connected(FEED, stream_bytes=32)
    np.testing.assert_array_equal(engine.read("sums"), np.zeros((0, 2)))
    engine.connect("sums", got.append)
    engine.run()
    np.testing.assert_array_equal(got, FEED[:5].cumsum(0))
    assert engine.read("sums").shape == (0, 2)


@few("stream_bytes, most", [(16, 1), (40, 2), (64, 4), (10**6, 7)], quick=["40, 2"])
def test_the_iterator_is_never_more_than_a_chunk_ahead(stream_bytes, most):
    s = Fed(7)
    given, handed = [], []

    def values():
        for k, row in enumerate(FEED):
            given.append(k)
            yield row

    def hand_on(value):
        handed.append(len(given))

    engine = s.connected(values(), stream_bytes=stream_bytes)
    engine.connect("sums", hand_on)
    engine.run()
    assert len(given) == 7
    # When the values of a chunk come out, no more than it took have been asked for.
    assert handed == [min(7, k // most * most + most) for k in range(7)]


@few("stream_bytes", [1, 16, 48, 100, 10**6], quick=["1", "16", "1000000"])
def test_repeats_in_repeats_take_values_in_order(stream_bytes):
    s = Fed()
    inner = cl.Sequence(cl.Repeat(3, s.turn_body), cl.Copy(s.feed, s.value), cl.Repeat(2, s.halve))
    program = cl.Sequence(cl.Copy(s.feed, s.x), cl.Repeat(4, [inner, s.count], index=s.turn), cl.Copy(s.x, s.sums))
    engine = s.connected(iter(FEED), program, stream_bytes=stream_bytes)
    engine.run()
    expected = cl.interpret(
        s.graph,
        values={"feed": FEED, "sum": np.zeros(2), "n": 0},
        outputs=["sum", "x", "n", "sums", "turn"],
        program=program,
    )
    for name, value in expected.items():
        np.testing.assert_allclose(engine.read(name), value, err_msg=name)


def test_a_stream_that_ends_early_says_at_which_step_and_keeps_the_state():
    s = Fed()
    for source in (np.asarray, iter):
        for stream_bytes in (32, 10**6):
            engine = s.connected(source(FEED[:7]), stream_bytes=stream_bytes)
            engine.run()
            told(
                engine.run,
                cl.StreamError,
                "stream 'feed' ended after 7 values, when step 7 was to take the next",
                "given:    7 values since it was connected",
                "expected: at least",
                "connect more values, or repeat fewer times",
            )
            np.testing.assert_array_equal(engine.read("sum"), FEED[:5].sum(0))


BAD_VALUES = {
    "shape of an array": (
        np.zeros((5, 3), "f"),
        cl.ArrayError,
        ["wrong shape", "given:    float32[5,3]", "float32[5,2]"],
    ),
    "dtype of an array": (np.zeros((5, 2), np.int32), cl.ArrayError, ["wrong dtype", "given:    int32[5,2]"]),
    "a number": (
        3,
        cl.StreamError,
        ["connected to something that gives no values", "given:    3", "an iterable of arrays"],
    ),
}


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_values_that_a_stream_does_not_take(bad):
    s = Fed()
    values, error, words = BAD_VALUES[bad]
    told(lambda: s.connected(values), error, *words)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [np.zeros(2, "f"), np.zeros(3, "f")],
            ["a value of stream 'feed' has the wrong shape", "given:    float32[3]"],
        ),
        ([np.zeros(2, "f"), np.zeros(2, np.int32)], ["wrong dtype", "given:    int32[2]", "expected: float32[2]"]),
    ],
)
def test_values_of_an_iterator_are_checked_as_they_come(values, words):
    s = Fed()
    engine = s.connected(iter(values))
    told(engine.run, cl.ArrayError, *words)
    np.testing.assert_array_equal(engine.read("sum"), [0, 0])


def test_what_an_engine_says_about_streams():
    s = Fed()
    engine = cl.Engine(s.graph, s.program)
    engine.write({"sum": [0, 0]})
    told(engine.run, cl.StreamError, "input stream 'feed' is not connected", "engine.connect('feed', values)")
    told(
        lambda: engine.connect("food", FEED),
        cl.NotInGraphError,
        "no such stream",
        "given:    food",
        "expected: feed, sums",
    )
    told(lambda: engine.connect("sums", FEED), cl.StreamError, "'sums' is connected to something that takes no values")
    told(lambda: engine.read("feed"), cl.StreamError, "'feed' is an input stream: there is nothing to read")
    told(lambda: engine.write({"feed": FEED}), cl.ArrayError, "'feed' is a stream", "engine.connect('feed', values)")
    other = cl.Graph().add_input_stream("feed", (2,))
    told(lambda: engine.connect(other, FEED), cl.NotInGraphError, "no such stream")


def test_how_many_values_are_copied_has_a_bound():
    s = Fed()
    inputs = ["sum", "x", "y", "n", "value"]
    words = [
        "depends on how often a loop without a bound runs",
        "known not to be exceeded",
        "max_iterations= for the loop",
    ]
    told(lambda: s.lower(cl.RepeatWhile(s.look, s.big, [s.halve, s.turn_body]), inputs=inputs), cl.ProgramError, *words)
    told(lambda: s.engine(cl.RepeatWhile([s.look, s.turn_body], s.big, s.halve)), cl.ProgramError, "values of stream")
    takes = cl.RepeatWhile(s.look, s.big, [s.halve, cl.Copy(s.feed, s.x)])
    told(lambda: s.lower(takes, inputs=inputs), cl.ProgramError, *words, "stream 'feed'", "cl.Engine runs it as it is")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_choice_may_take_more_values_one_way_than_another(n):
    s = Fed()
    switch = cl.Switch(s.n, {0: s.turn_body, 1: cl.Copy(s.sum, s.sums)}, [s.turn_body] * 2)
    program = cl.Repeat(2, switch)
    values = {"sum": np.zeros(2, "f"), "n": n, "x": VALUES["x"]}
    expected = cl.interpret(s.graph, values={**values, "feed": FEED[:4]}, outputs=["sum", "sums"], program=program)
    found = s.lower(program, inputs=["sum", "n", "x"], outputs=["sum"])({**values, "feed": FEED[:4]})
    np.testing.assert_allclose(found["sum"], expected["sum"], rtol=1e-6)
    assert int(found["feed"].count) == (2, 0, 4)[n]
    engine = s.connected(FEED[: (2, 0, 4)[n]], program)
    engine.write({"n": n, "x": VALUES["x"]})
    engine.run()
    np.testing.assert_allclose(engine.read("sum"), expected["sum"], rtol=1e-6)
    np.testing.assert_allclose(engine.read("sums"), expected["sums"], rtol=1e-6)


@few("n, stream_bytes", itertools.product([0, 1, 2], [1, 10**6]), quick=["1, 1"])
def test_a_choice_takes_as_many_values_whichever_way_it_goes(n, stream_bytes):
    s = Fed()
    twice = s.graph.add_function(s.turn_body)
    ways = {0: cl.Repeat(2, s.turn_body), 1: [s.turn_body, cl.Copy(s.feed, s.x), cl.Copy(s.x, s.sums)]}
    program = cl.Repeat(2, cl.Switch(s.n, ways, [cl.Call(twice)] * 2))
    values = {"feed": FEED[:4], "sum": np.zeros(2, "f"), "n": n, "x": VALUES["x"]}
    expected = agree(s.graph, program, values, ["sum"])
    engine = s.connected(FEED, program, stream_bytes=stream_bytes)
    engine.write({"n": n, "x": VALUES["x"]})
    engine.run()
    np.testing.assert_array_equal(engine.read("sum"), expected["sum"])
    np.testing.assert_array_equal(engine.read("sums"), expected["sums"])


def test_calls_in_a_row_are_fed_too():
    s = Fed()
    function = s.graph.add_function(s.turn_body)
    program = cl.Sequence(*[cl.Call(function)] * 5)
    agree(s.graph, program, {"feed": FEED[:5], "sum": np.zeros(2, "f")}, ["sum"])
    assert primitives(cl.lower(s.graph, program, inputs=["sum"], outputs=["sum"])).count("scan") == 1


# --- values that are not there ----------------------------------------------------------------------------

UNSET = {
    "an undefined variable": (
        lambda s: [cl.WriteUndef(s.x), s.halve],
        "x[0] is read by field 'x' of codelet 'halve' in compute set 'halve'",
    ),
    "an undefined element": (lambda s: [cl.WriteUndef(s.x[1:]), s.halve], "x[1] is read by field 'x'"),
    "in the second turn": (lambda s: cl.Repeat(2, [s.halve, cl.WriteUndef(s.x[1:])]), "x[1] is read by field 'x'"),
    "in the second turn of a loop": (
        lambda s: [s.look, cl.RepeatWhile((), s.big, [cl.Copy(s.x, s.z), cl.WriteUndef(s.x)])],
        "x[0] is read by a copy to Tensor(float32[2] of z: f0)",
    ),
    "by the first turn": (lambda s: cl.Repeat(2, [cl.Copy(s.z, s.x), cl.Copy(s.x, s.z)]), "z[0] is read by a copy"),
    "in one of two branches": (lambda s: [cl.If(s.n, cl.Copy(s.x, s.z)), cl.Copy(s.z, s.y)], "z[0] is read by a copy"),
    "undefined in one branch": (
        lambda s: [cl.Switch(s.n, {0: s.halve, 1: cl.WriteUndef(s.x)}, s.halve), s.halve],
        "x[0] is read by field 'x'",
    ),
    "where a loop may take no turn": (
        lambda s: [cl.RepeatWhile(s.look, s.big, [s.halve, cl.Copy(s.x, s.z)]), cl.Copy(s.z, s.y)],
        "z[0] is read by a copy",
    ),
    "where a repeat takes no turn": (lambda s: [cl.Repeat(0, cl.Copy(s.x, s.z)), cl.Copy(s.z, s.y)], "z[0] is read"),
    "the predicate of a loop": (
        lambda s: cl.RepeatWhile((), s.big, s.halve),
        "big[] is read by the predicate of a loop",
    ),
    "the predicate in the second turn": (
        lambda s: [s.look, cl.RepeatWhile((), s.big, [s.halve, cl.WriteUndef(s.big)])],
        "big[] is read by the predicate of a loop",
    ),
    "the predicate of a choice": (lambda s: cl.If(s.big, s.halve), "big[] is read by a choice between programs"),
    "the predicate of an abort": (lambda s: cl.AbortOn(s.big, "m"), "big[] is read by the predicate of an abort"),
    "what is printed": (lambda s: cl.Print(s.z[1]), "z[1] is read by a print"),
    "what is sent": (lambda s: cl.Copy(s.z, s.sink), "z[0] is read by a copy to stream 'sink'"),
    "an argument": (lambda s: cl.Call(s.function, a=s.x, b=s.z), "b[0] is read by field 'b' of codelet 'add'"),
    "a parameter after the call": (
        lambda s: [cl.Call(s.function, a=s.x, b=s.y), cl.Copy(s.a, s.x)],
        "a[0] is read by a copy",
    ),
    "a parameter in a later call": (
        lambda s: [cl.Call(s.counting, a=s.n), cl.WriteUndef(s.n), cl.Call(s.counting, a=s.n)],
        "own[] is read by field 'n' of codelet 'one_more'",
    ),
    "the index before a loop": (
        lambda s: [cl.Copy(s.turn, s.n), cl.Repeat(1, s.halve, index=s.turn)],
        "turn[] is read",
    ),
}


class Unset(More):
    """More variables that nobody has written, and functions."""

    def __init__(self):
        super().__init__()
        graph = self.graph
        self.z, inside = graph.add_variable("z", (2,)), graph.add_variable("inside", (2,))
        own = graph.add_variable("own", (), "int32")
        graph.add_vertex("count own", one_more, n=own)
        self.counting = graph.add_function(graph.compute_sets[-1], {"a": own})
        self.filling = graph.add_function(cl.Copy(self.x, inside), {"z": inside})


@pytest.mark.parametrize("where", UNSET)
def test_what_nobody_has_written_is_named_at_lowering_and_at_run(where):
    make, says = UNSET[where]
    s = Unset()
    program = cl.Sequence(make(s))
    how = ["is given a value from outside, or written by an earlier step", "engine.write({"]
    told(lambda: s.lower(program, outputs=["y"]), cl.UninitializedReadError, says, *how)
    told(s.engine(program).run, cl.UninitializedReadError, says, *how)
    if where not in ("in one of two branches", "undefined in one branch", "where a loop may take no turn"):
        values = {**VALUES, "n": 1}
        told(
            lambda: cl.interpret(s.graph, values=values, outputs=["y"], program=program),
            cl.UninitializedReadError,
            says.split(" by ")[0],
        )


SET = {
    "written in every branch": lambda s: [cl.If(s.n, cl.Copy(s.x, s.z), cl.Copy(s.y, s.z)), cl.Copy(s.z, s.y)],
    "written before every look": lambda s: [
        cl.RepeatWhile([s.look, cl.Copy(s.x, s.z)], s.big, s.halve),
        cl.Copy(s.z, s.y),
    ],
    "written in the turn before": lambda s: [
        cl.Repeat(2, [cl.Copy(s.x, s.z), cl.Copy(s.z, s.y), cl.WriteUndef(s.z)]),
        cl.Copy(s.y, s.z),
    ],
    "written again": lambda s: [cl.WriteUndef(s.x), cl.Copy(s.y, s.x), s.halve],
    "written through two parts": lambda s: [cl.Copy(s.x[:1], s.z[1:]), cl.Copy(s.x[1:], s.z[:1]), cl.Copy(s.z, s.y)],
    "undefined after its last use": lambda s: cl.Repeat(3, [cl.Copy(s.x, s.z), s.bend, cl.WriteUndef(s.z)]),
    "a part that is read by nobody": lambda s: [cl.WriteUndef(s.y[1:]), cl.Copy(s.y[:1], s.x[:1]), cl.Copy(s.x, s.y)],
    "an argument that the body only writes": lambda s: [cl.Call(s.filling, z=s.z), cl.Copy(s.z, s.y)],
}


@few("where", SET, quick=["an argument that the body only writes"])
def test_what_is_written_in_time_is_read(where):
    s = Unset()
    program = cl.Sequence(SET[where](s))
    expected = agree(s.graph, program, VALUES, ["y"])
    engine = s.engine(program)
    engine.run()
    np.testing.assert_allclose(engine.read("y"), expected["y"], rtol=1e-6)


def test_what_a_run_makes_undefined_is_so_for_the_next():
    s = Small()
    engine = s.engine(cl.Sequence(s.halve, cl.WriteUndef(s.x[:1])))
    engine.run()
    told(engine.run, cl.UninitializedReadError, "x[0] is read by field 'x' of codelet 'halve'")
    told(lambda: engine.read("x"), cl.UninitializedReadError, "x[0] is read by the host")
    engine.write({"x": [4, 4]})
    engine.run()


# --- whose line it is -------------------------------------------------------------------------------------


def test_a_line_inside_another_library_is_not_the_users():
    s = Small()
    run = s.lower(s.shrink)
    wrapped = eqx.filter_jit(eqx.filter_grad(lambda x: run({**VALUES, "x": x})["x"].sum()))
    message = told(lambda: wrapped(VALUES["x"]), CodeletError)
    assert not re.search("site-packages", message)
    told(lambda: jax.jit(lambda x: run({"x": x}))(VALUES["x"]), cl.ArrayError, "jax.jit(lambda x: run({")


def test_plain_numbers_are_inputs_under_jit_too():
    s = Small()
    run = s.lower(s.count)
    jitted = jax.jit(lambda x: run({**VALUES, "x": x, "n": 3})["n"])
    with jax.enable_x64(True):
        assert jitted(VALUES["x"]) == 4
    with pytest.raises(cl.ArrayError):
        run({**VALUES, "n": 2**40})
