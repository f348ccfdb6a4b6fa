"""What `interpret` takes and refuses, and that codelets see in it what they see when lowered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl


def everywhere(graph, program, values, *names):
    """The values of variables and streams by `interpret`, which all other ways of running give as well."""
    expected = cl.interpret(graph, values=values, outputs=names, program=program)
    own = [v.name for v in graph.variables if v.name in values]
    got = [jax.jit(cl.lower(graph, program, inputs=own, outputs=names))(values)]
    for execution in ("fused", "tiles", "addresses"):
        engine = cl.Engine(graph, program, execution=execution)
        engine.write({each: values[each] for each in own})
        for stream in graph.streams:
            if stream.is_input:
                engine.connect(stream, values[stream.name])
        engine.run()
        got.append({name: engine.read(name) for name in names})
    for each in got:
        for name, value in expected.items():
            np.testing.assert_array_equal(each[name], value)
            assert each[name].dtype == value.dtype
            assert each[name].shape == value.shape
    return list(expected.values())


def test_state_is_of_the_same_kind_everywhere():
    """JAX arrays, of which those of plain numbers have a dtype that yields."""
    seen = []

    @cl.codelet
    def look(x, site, near, scale, s, flag):
        assert all(hasattr(value, "astype") and hasattr(value, "at") for value in (site, near, scale, s, flag))
        seen.append([(value.dtype.name, value.shape, value.weak_type) for value in (site, near, scale, s)])
        assert (x + site).dtype == (x + near).dtype == (x * scale).dtype == x.dtype == "bfloat16"
        moved = s.at[0].set(site.astype(jnp.int8)) + near.sum().astype(jnp.int8)
        return {"out": (x * scale + moved.sum() + flag).astype(jnp.float32)}

    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (3,), jnp.bfloat16), cl.grid(3)
    near = cl.table(np.arange(6).reshape(3, 2))[i]
    s = np.ones((3, 2), np.int8)
    y = graph.add_vertex("look", look, x=x[i], site=2 * i, near=near, scale=0.5, s=s, flag=True)
    values = {"x": np.asarray([1, 2, 3]).astype(jnp.bfloat16)}
    (got,) = everywhere(graph, None, values, y.name)
    assert len(set(map(str, seen))) == 1
    vertex = graph.vertex("look", i=1)
    assert vertex.run(values)["out"] == got[1]
    assert vertex.fields["site"] == 2
    assert isinstance(vertex.fields["site"], int)


def test_numbers_and_arrays_are_copied():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, n = graph.add_variable("x", (2, 3)), graph.add_variable("n", (4,), "int8")
    flag, half = graph.add_variable("flag", (), bool), graph.add_variable("half", (2,), jnp.bfloat16)
    sent = graph.add_output_stream("sent", (2,))
    program = [
        cl.Copy(0.5, x),
        cl.Copy([1, 2], x[:, 1]),
        cl.Copy(np.float32(7), x[0, :1]),
        cl.Repeat(2, [cl.Copy(0.5, x[1:]), cl.Copy(jnp.asarray([3.0]), sent), cl.Copy(x[:, 1], sent)]),
        cl.Copy(-128, n),
        cl.Copy(np.asarray([5, 6], np.int8), n[::-2]),
        cl.Copy(True, flag),
        cl.Copy(1, half),
    ]
    got = everywhere(graph, program, {}, "x", "n", "sent", "flag", "half")
    assert got[0].tolist() == [[7, 1, 0.5], [0.5, 0.5, 0.5]]
    assert got[1].tolist() == [-128, 6, -128, 5]
    assert got[2].tolist() == [[3, 3], [1, 0.5]] * 2
    assert got[3]
    assert got[4].tolist() == [1, 1]
    constants = [variable for variable in graph.sources if variable.value is not None]
    assert len(constants) == len({(v.dtype, v.shape, np.asarray(v.value).tobytes()) for v in constants}) == 8


def test_a_copied_number_lies_where_it_goes_first():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (2,))
    program = [cl.Copy(1.5, x), cl.Copy(1.5, y)]
    graph.set_tile_mapping(x, [3, 2, 1, 0])
    graph.set_tile_mapping(y, 2)
    constant = next(variable for variable in graph.sources if variable.value is not None)
    assert graph.element_tiles[constant.first_element] == 3
    exchange = cl.Engine(graph, program).machine().exchange
    assert exchange is not None
    assert everywhere(graph, program, {}, "y")[0].tolist() == [1.5, 1.5]


NOT_COPIED = {
    "a fraction to integers": (lambda g: cl.Copy(1.5, g.variable("n")), cl.ArrayError, "wrong dtype"),
    "a number too large": (lambda g: cl.Copy(200, g.variable("n")), cl.ArrayError, "int8"),
    "another dtype": (lambda g: cl.Copy(np.arange(4), g.variable("n")), cl.ArrayError, "convert it first"),
    "another shape": (lambda g: cl.Copy([1, 2, 3], g.variable("x")), cl.ProgramError, "broadcasts to float32[4]"),
    "a larger shape": (lambda g: cl.Copy(np.ones((2, 4)), g.variable("x")), cl.ProgramError, "broadcasts to"),
    "a ragged list": (lambda g: cl.Copy([[1], [2, 3]], g.variable("x")), cl.ProgramError, "neither a tensor nor"),
    "nothing": (lambda g: cl.Copy(None, g.variable("x")), cl.CodeletError, "x"),
    "to a number": (
        lambda g: cl.Copy(g.variable("x"), 0.0),  # type: ignore[arg-type]
        cl.ProgramError,
        "a copy is to a tensor or a stream",
    ),
    "to an input": (lambda g: cl.Copy(0.0, g.streams[0]), cl.ProgramError, "comes from the host"),
}


@pytest.mark.parametrize("mistake", NOT_COPIED)
def test_what_cannot_be_copied(mistake):
    graph = cl.Graph()
    graph.add_variable("x", (4,))
    graph.add_variable("n", (4,), "int8")
    graph.add_input_stream("s", ())
    make, error, words = NOT_COPIED[mistake]
    with pytest.raises(error) as caught:
        make(graph)
    assert words in str(caught.value)
    assert "test_meaning.py" in str(caught.value)


@pytest.mark.slow
def test_an_index_counts_as_far_as_its_dtype():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    program, lasts, expected = [], [], []
    for dtype in ("int8", "uint8", "uint32"):
        turn, last = graph.add_variable(f"turn {dtype}", (), dtype), graph.add_variable(f"last {dtype}", (3,), dtype)
        most = min(int(np.iinfo(dtype).max) + 1, 300)
        inner = cl.Repeat(most, cl.Copy(turn.reshape(1), last[:1]), index=turn)
        outer = [inner, cl.Copy(turn.reshape(1), last[1:2]), cl.Repeat(0, [], index=turn)]
        program += [cl.Repeat(2, outer, index=turn), cl.Repeat(2, cl.Copy(turn.reshape(1), last[2:]), index=turn)]
        lasts.append(f"last {dtype}")
        expected.append([most - 1, most - 1, 1])
        if most < 300:
            for make in (
                lambda turn=turn, most=most: cl.Repeat(most + 1, [], index=turn),
                lambda turn=turn: cl.Repeat(2, cl.Repeat(10**6, [], index=turn)),
            ):
                with pytest.raises(cl.ProgramError) as caught:
                    make()
                for word in ("cannot count so far", f"at most {most} iterations", "a wider dtype", "test_meaning.py"):
                    assert word in str(caught.value)
        for view in (last[0], last[:1], last):
            with pytest.raises(cl.ProgramError, match="cannot count"):
                cl.Repeat(2, [], index=view)
    assert [each.tolist() for each in everywhere(graph, program, {}, *lasts)] == expected


def test_interpret_takes_what_lower_takes_as_a_program():
    graph = cl.Graph()
    x = graph.add_variable("x", (2,))
    graph.add_vertex("double", cl.codelet(lambda x: {"x": 2 * x}), x=x)
    (double,) = graph.compute_sets
    for program, factor in (
        (None, 2),
        (double, 2),
        ([double, double], 4),
        (([double], (double, [double])), 8),
        ([], 1),
    ):
        assert cl.interpret(graph, values={"x": [1, 2]}, outputs=["x"], program=program)["x"].tolist() == [
            factor,
            2 * factor,
        ]
        run = cl.lower(graph, program, inputs=["x"], outputs=["x"])
        assert run({"x": [1, 2]})["x"].tolist() == [factor, 2 * factor]


OTHER = cl.Graph()
OTHER_X = OTHER.add_variable("x", (2,))

NOT_INTERPRETED = {
    "another shape": (
        lambda g, x: cl.interpret(g, values={"x": np.zeros(3)}, outputs=[x]),
        cl.ArrayError,
        "has the wrong shape",
    ),
    "another dtype": (
        lambda g, x: cl.interpret(g, values={"x": np.zeros(2, int)}, outputs=[x]),
        cl.ArrayError,
        "has the wrong dtype",
    ),
    "a stream's shape": (
        lambda g, x: cl.interpret(g, values={"x": np.zeros(2), "s": np.zeros(2)}, outputs=[x]),
        cl.ArrayError,
        "'s' has the wrong shape",
    ),
    "an unknown name": (lambda g, x: cl.interpret(g, values={"z": 0.0}, outputs=[x]), cl.NotInGraphError, "x, s"),
    "a name that is a number": (
        lambda g, x: cl.interpret(g, values={3: np.zeros(2)}, outputs=[x]),
        cl.NotInGraphError,
        "x, s",
    ),
    "a value for a constant": (
        lambda g, x: cl.interpret(g, values={"c": 0.0}, outputs=[x]),
        cl.ArrayError,
        "the constant 'c'",
    ),
    "a list of values": (
        lambda g, x: cl.interpret(g, values=[np.zeros(2)], outputs=[x]),  # type: ignore[arg-type]
        cl.ArrayError,
        "without names",
    ),
    "no array": (lambda g, x: cl.interpret(g, values={"x": "ab"}, outputs=[x]), cl.ArrayError, "is not an array"),
    "an output elsewhere": (
        lambda g, x: cl.interpret(g, values={}, outputs=[OTHER_X]),
        cl.ForeignGraphError,
        "another graph",
    ),
    "an unknown output": (
        lambda g, x: cl.interpret(g, values={}, outputs=["z"]),
        cl.NotInGraphError,
        "no variable 'z'",
    ),
    "a view by symbols as output": (
        lambda g, x: cl.interpret(g, values={}, outputs=[x[cl.grid(2)]]),
        cl.ProgramError,
        "name the whole range",
    ),
    "two values for one": (
        lambda g, x: cl.interpret(g, values={x: np.zeros(2), "x": np.zeros(2)}, outputs=[x]),
        cl.ArrayError,
        "two values are given for 'x'",
    ),
    "a value for something elsewhere": (
        lambda g, x: cl.interpret(g, values={OTHER_X: np.zeros(2)}, outputs=[x]),
        cl.ForeignGraphError,
        "something of another graph",
    ),
    "an input stream as output": (
        lambda g, x: cl.interpret(g, values={}, outputs=["s"]),
        cl.ProgramError,
        "output stream",
    ),
    "a number as output": (
        lambda g, x: cl.interpret(g, values={}, outputs=3),  # type: ignore[arg-type]
        cl.ProgramError,
        "the outputs are not a list",
    ),
    "a program elsewhere": (
        lambda g, x: cl.interpret(g, values={}, outputs=[x], program=cl.Copy(0.0, OTHER_X)),
        cl.ForeignGraphError,
        "another graph",
    ),
    "no program": (
        lambda g, x: cl.interpret(g, values={}, outputs=[x], program="all"),
        cl.ProgramError,
        "made of something else",
    ),
    "no graph": (
        lambda g, x: cl.interpret(lambda graph: x, values={}, outputs=[x]),  # type: ignore[arg-type]
        cl.ProgramError,
        "only a graph",
    ),
    "nothing written": (
        lambda g, x: cl.interpret(g, values={}, outputs=[x]),
        cl.UninitializedReadError,
        "x[0] is read by the caller",
    ),
    "a stream that ends": (
        lambda g, x: cl.interpret(
            g, values={"s": np.zeros(2)[:, None]}, outputs=[x], program=cl.Repeat(3, cl.Copy(g.streams[0], x[:1]))
        ),
        cl.StreamError,
        "no more values",
    ),
}


@pytest.mark.parametrize("mistake", NOT_INTERPRETED)
def test_what_cannot_be_interpreted(mistake):
    graph = cl.Graph()
    x, _, _ = graph.add_variable("x", (2,)), graph.add_constant("c", 1.0), graph.add_input_stream("s", (1,))
    make, error, words = NOT_INTERPRETED[mistake]
    with pytest.raises(error) as caught:
        make(graph, x)
    assert words in str(caught.value)
    assert "test_meaning.py" in str(caught.value)


def test_streams_of_empty_values():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    s, o = graph.add_input_stream("s", (0, 12)), graph.add_output_stream("o", (0, 12))
    x, n = graph.add_variable("x", (0, 12)), graph.add_variable("n", (), "int32")
    program = [cl.Repeat(3, [cl.Copy(s, x), cl.If(n, cl.Copy(x, o), cl.Copy(x, o))]), cl.Copy(x, o)]
    values = {"s": np.zeros((3, 0, 12), np.float32), "n": 1}
    assert everywhere(graph, program, values, "o")[0].shape == (4, 0, 12)
