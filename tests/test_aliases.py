"""What copies and calls write names every element once; everything else about overlaps is well defined."""

import itertools

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import codelet as cl
from lowering.pipeline import plan_engine
from tests.drawn_views import viewed
from tests.examples import examples


@cl.codelet
def trade(p, q):
    return {"p": q + 1, "q": 2 * p}


@cl.codelet
def take(p, q):
    return {"p": p + 10 * q}


def functions(graph, size=2):
    """A function that writes both of its parameters, and one that writes one and reads the other."""
    made = []
    for name, codelet in [("trade", trade), ("take", take)]:
        p, q = (graph.add_variable(f"{name} {k}", (size,)) for k in "pq")
        i = cl.grid(size)
        graph.add_vertex(name, codelet, p=p[i], q=q[i])
        made.append(graph.add_function(graph.compute_sets[-1], {"p": p, "q": q}, name=f"to {name}"))
    return made


def same_everywhere(graph, program, values, outputs):
    """What `interpret` gives, which every execution of the engine gives as well."""
    expected = cl.interpret(graph, values=values, outputs=outputs, program=program)
    for execution in ("fused", "tiles", "addresses"):
        engine = cl.Engine(graph, program, execution=execution)
        engine.write(values)
        engine.run()
        for name in outputs:
            np.testing.assert_array_equal(engine.read(name), expected[name], err_msg=f"{execution}: {name}")
    return expected


ALIASED = {
    "a broadcast view": (lambda g, x, s: cl.Copy(g.variable("y"), x[:1].broadcast_to((2,))), "x[0] twice"),
    "a table with an entry twice": (lambda g, x, s: cl.Copy(g.variable("y"), x[[1, 1]]), "x[1] twice"),
    "a joined view": (lambda g, x, s: cl.Copy(g.variable("z"), cl.concatenate([x[1:3], x[:2]])), "x[1] twice"),
    "a number to a broadcast view": (lambda g, x, s: cl.Copy(0.0, x[2:3].broadcast_to((3,))), "x[2] twice"),
    "from a stream": (lambda g, x, s: cl.Copy(s, x[:1].broadcast_to((2,))), "x[0] twice"),
    "in a loop and a choice": (
        lambda g, x, s: cl.Repeat(3, cl.If(g.variable("n"), cl.Copy(g.variable("y"), x[[3, 3]]))),
        "x[3] twice",
    ),
    "one variable for two parameters": (
        lambda g, x, s: cl.Call(g.functions[0], p=x[:2], q=x[:2]),
        "through two parameters, 'trade p' and 'trade q'",
    ),
    "parts that overlap": (lambda g, x, s: cl.Call(g.functions[0], p=x[:2], q=x[1:3]), "x[1] through two parameters"),
    "parts that overlap in part of a table": (
        lambda g, x, s: cl.Call(g.functions[0], p=x[[3, 0]], q=x[2:4]),
        "x[3] through two parameters",
    ),
    "an argument that names an element twice": (
        lambda g, x, s: cl.Call(g.functions[1], p=x[:1].broadcast_to((2,)), q=g.variable("y")),
        "x[0] twice through parameter 'take p'",
    ),
    "in a function": (
        lambda g, x, s: cl.Call(g.add_function(cl.Call(g.functions[0], p=x[:2], q=x[1:3]), {})),
        "x[1] through two parameters",
    ),
}


@pytest.mark.parametrize("mistake", ALIASED)
def test_what_is_written_twice_is_told(mistake):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, _, _ = graph.add_variable("x", (4,)), graph.add_variable("y", (2,)), graph.add_variable("z", (4,))
    graph.add_variable("n", (), "int32")
    stream = graph.add_input_stream("stream", (2,))
    functions(graph)
    make, words = ALIASED[mistake]
    program = make(graph, x, stream)
    values = {"x": np.zeros(4), "y": np.zeros(2), "z": np.zeros(4), "n": 1, "stream": np.zeros((1, 2))}
    with pytest.raises(cl.SelfAliasError):
        cl.interpret(graph, values=values, outputs=["x"], program=program)
    for run in (
        lambda: cl.lower(graph, program, inputs=["x", "y", "z", "n"], outputs=["x"]),
        lambda: cl.Engine(graph, program),
    ):
        with pytest.raises(cl.SelfAliasError) as caught:
            run()
        message = str(caught.value)
        assert words in message, message
        assert "expected:" in message, message
        assert "lambda g, x, s:" in message, message  # the line that made the copy or the call


def test_arguments_that_overlap_are_well_defined_where_one_is_only_read():
    """They are copied first: what is read is what was there before the call."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x", (4,))
    both, one = functions(graph)
    program = cl.Sequence(
        cl.Call(one, p=x[:2], q=x[1:3]),
        cl.Call(one, p=x[2:], q=x[[2, 2]]),
        cl.Call(one, p=x[1:3], q=x[2:0:-1]),
        cl.Call(both, p=x[::2], q=x[1::2]),
    )
    got = same_everywhere(graph, program, {"x": np.arange(1.0, 5.0)}, ["x"])["x"]
    x = np.arange(1.0, 5.0)
    x[:2] += 10 * x[1:3]
    x[2:] += 10 * x[[2, 2]]
    x[1:3] += 10 * x[2:0:-1].copy()
    x[::2], x[1::2] = x[1::2] + 1, 2 * x[::2]
    np.testing.assert_array_equal(got, x)


@pytest.mark.slow
@hypothesis.given(viewed())
@examples(60)
def test_copies_are_checked_exactly(case):
    tensor, numbers = case
    hypothesis.assume(not (numbers < 0).any())  # padding is refused when the copy is made
    program = cl.Copy(0.0, tensor)
    elements = tensor.elements().reshape(-1)
    if len(np.unique(elements)) == len(elements):
        plan_engine(tensor.graph, program)
    else:
        with pytest.raises(cl.SelfAliasError):
            plan_engine(tensor.graph, program)


@st.composite
def arguments(draw):
    """A view of two elements of `x`, or of `x` and `y` joined."""
    start, step = draw(st.integers(0, 3)), draw(st.integers(-3, 3))
    other = start + step if 0 <= start + step < 4 else start
    kind = draw(st.sampled_from(["slice", "table", "joined"]))

    def view(x, y):
        if kind == "joined":
            return cl.concatenate([x[start : start + 1], y[other : other + 1]])
        if kind == "slice" and other > start:
            return x[start : other + 1 : other - start]
        return x[np.asarray([start, other])]

    return view


@hypothesis.given(arguments(), arguments(), st.booleans())
@examples(25)
def test_calls_are_checked_exactly(first, second, both_are_written):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    function = functions(graph)[0 if both_are_written else 1]
    p, q = first(x, y), second(x, y)
    program = cl.Call(function, p=p, q=q)
    written = [p, q] if both_are_written else [p]
    elements = list(itertools.chain(*(tensor.elements().tolist() for tensor in written)))
    values = {"x": np.arange(4.0), "y": 10 + np.arange(4.0)}
    if len(set(elements)) < len(elements):
        for run in (
            lambda: plan_engine(graph, program),
            lambda: cl.interpret(graph, values=values, outputs=["x"], program=program),
        ):
            with pytest.raises(cl.SelfAliasError):
                run()
        return
    run = cl.lower(graph, program, inputs=[x, y], outputs=[x, y])
    expected = cl.interpret(graph, values=values, outputs=["x", "y"], program=program)
    for name, got in run({name: jnp.asarray(value, "float32") for name, value in values.items()}).items():
        np.testing.assert_array_equal(got, expected[name])
