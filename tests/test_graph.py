"""The graph: what is added, what it is called, what is refused, and how it looks from inside."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.strategies import dot, total


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def place(site, scale):
    return site * scale


def matvec(by_loops=False):
    graph = cl.Graph(cl.IPU(num_tiles=16))
    x, w = graph.add_variable("x", (6,)), graph.add_variable("w", (2, 6))
    part, y = graph.add_variable("part", (2, 3)), graph.add_variable("y", (2,))
    multiply = graph.add_compute_set("multiply")
    add_up = graph.add_compute_set("add up")
    if by_loops:
        for row in range(2):
            for p in range(3):
                field = slice(2 * p, 2 * p + 2)
                graph.add_vertex(multiply, dot, x=x[field], w=w[row, field], out=part[row, p], tile=3 * row + p)
        for row in range(2):
            graph.add_vertex(add_up, total, x=part[row], out=y[row])
        return graph
    row, p = cl.grid(2, 3)
    field = slice(2 * p, 2 * p + 2)
    graph.add_vertex(multiply, dot, x=x[field], w=w[row, field], out=part[row, p], tile=3 * row + p)
    row = cl.grid(2)
    graph.add_vertex(add_up, total, x=part[row], out=y[row])
    return graph


SUMMARY = """\
graph of 8 vertices and 22 edges in 2 compute sets, for IPU('mk2', num_tiles=16)
variable x: float32[6]
variable w: float32[2,6]
variable part: float32[2,3]
variable y: float32[2]
multiply / dot: 6 vertices over row: 2 x p: 3
  in    x: float32[2] = x at 2*p + f0
  in    w: float32[2] = w at 6*row + 2*p + f0
  out   out: float32[] = part at 3*row + p
  tile = 3*row + p
add up / total: 2 vertices over row: 2
  in    x: float32[3] = part at 3*row + f0
  out   out: float32[] = y at row"""


def test_a_graph_prints():
    graph = matvec()
    assert str(graph) == SUMMARY
    assert "8 vertices, 22 edges" in graph._repr_html_()
    assert "&lt;" not in graph._repr_html_().split("<pre>")[0]


def test_loops_and_symbols_make_the_same_vertices():
    def described(graph):
        return [
            (
                v.family.compute_set.name,
                v.family.codelet.name,
                str(v.fields),
                v.tile,
                [e[1:] for e in v.iter_edges()],
            )
            for v in graph.iter_vertices()
        ]

    assert str(described(matvec())) == str(described(matvec(by_loops=True)))
    assert matvec(by_loops=True).num_edges == 22


def test_a_vertex_prints_runs_and_is_found():
    graph = matvec()
    vertex = graph.vertex("multiply", row=1, p=2)
    text = str(vertex)
    assert "vertex of multiply / dot at row=1, p=2" in text
    assert "in    w: float32[2] = Tensor(float32[2] of w: 10 + f0)" in text
    assert "tile  5" in text
    assert "test_graph.py" in text
    values = {"x": np.arange(6.0), "w": np.ones((2, 6))}
    assert vertex.run(values)["out"] == 9
    assert graph.vertex("multiply", 5) == vertex
    assert graph.writers(graph.variable("part")[1, 2]) == [vertex]
    assert [v.symbols for v in graph.readers(graph.variable("x")[3:5])] == [
        {"row": 0, "p": 1},
        {"row": 0, "p": 2},
        {"row": 1, "p": 1},
        {"row": 1, "p": 2},
    ]
    with pytest.raises(cl.NotInGraphError, match="no such vertex"):
        graph.vertex("multiply", row=2, p=0)
    with pytest.raises(cl.NotInGraphError, match="6 vertices over row: 2 x p: 3"):
        graph.vertex("multiply", row=1)
    with pytest.raises(cl.NotInGraphError, match="reads 'w'"):
        vertex.run({"x": np.arange(6.0)})


def test_a_grid_over_ranges_is_named_by_its_values():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (9,)), graph.add_variable("y", (9,))
    i = cl.grid(range(1, 9, 3))
    graph.add_vertex("copy", double, x=x[i], out=y[i])
    assert [v.symbols["i"] for v in graph.iter_vertices()] == [1, 4, 7]
    assert graph.vertex("copy", i=4).fields["x"].index.constant == 4


def test_an_axis_no_field_uses_still_multiplies_the_vertices():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    i, _ = cl.grid(4, 3)
    graph.add_vertex("many", double, x=x[i], out=graph.add_variable("y", (4,))[i])
    assert graph.num_vertices == 12
    with pytest.raises(cl.WriteRaceError):
        cl.lower(graph, inputs=[x], outputs=["y"])


def test_outputs_left_off_are_made():
    @cl.codelet
    def split(x):
        return {"low": x[:2], "high": x[2:].sum()}

    graph = cl.Graph()
    x = graph.add_variable("x", (3, 5, 4))
    i, j = cl.grid(3, range(1, 5, 2))
    with graph.scope("layer"):
        y = graph.add_vertex("double", double, x=x[i, j])
        made: Any = graph.add_vertex("split", split, x=x[i, j])
    assert y.shape == (3, 2, 4)
    assert {name: tensor.shape for name, tensor in made.items()} == {"low": (3, 2, 2), "high": (3, 2)}
    assert [v.name for v in graph.variables] == [
        "x",
        "layer/double/out",
        "layer/split/low",
        "layer/split/high",
    ]
    again = graph.add_vertex("twice", double, x=y[0, 0, 0])
    assert again.shape == ()
    assert graph.add_vertex("twice", double, x=y[0, 0, 1], out=again) is None


def test_recording_makes_a_program_of_what_is_added():
    graph = cl.Graph()
    x = graph.add_variable("x", (3,))
    i = cl.grid(3)
    with graph.record() as step:
        graph.add_vertex("once", double, x=x[i], out=x[i])
        with graph.record() as inner:
            graph.add_vertex("within", double, x=x[i], out=x[i])
    assert str(cl.Repeat(2, step)) == "Repeat(2)\n  Execute(once)"
    assert str(inner) == "Execute(within)"
    run = cl.lower(graph, cl.Sequence(cl.Repeat(3, step), inner), inputs=[x], outputs=[x])
    np.testing.assert_array_equal(run({"x": np.ones(3, np.float32)})["x"], [16, 16, 16])
    with graph.record(), pytest.raises(cl.ProgramError, match="made outside the recording"):
        graph.add_vertex("once", double, x=x[0], out=x[0])


def test_vertex_state_needs_no_edges():
    graph = cl.Graph()
    i, _j = cl.grid(2, 3)
    out = graph.add_vertex("set", place, site=10 * i + _j, scale=np.arange(6.0).reshape(2, 3))
    assert graph.num_edges == 6
    result = cl.lower(graph, inputs=[], outputs=[out])({})
    np.testing.assert_array_equal(next(iter(result.values())), [[0, 1, 4], [30, 44, 60]])


def test_constants_hold_their_values_and_are_not_written():
    graph = cl.Graph()
    c = graph.add_constant("c", [1, 2, 3])
    assert (c.dtype, c.shape) == (np.int32, (3,))
    with pytest.raises(cl.FieldTypeError, match="would write the constant 'c'"):
        graph.add_vertex("set", double, x=c[0], out=c[1])
    graph.add_variable("x", (3,), "int32")
    with pytest.raises(cl.VariableError, match="writes the constant 'c'"):
        cl.lower(graph, cl.Copy(graph.variable("x"), c), inputs=["x"], outputs=["x"])


def test_dtypes_follow_jax():
    graph = cl.Graph()
    assert graph.add_variable("a", (2,), np.float64).dtype == np.float32
    assert graph.add_constant("b", np.arange(3)).dtype == np.int32
    assert graph.add_variable("c", 3, jnp.bfloat16).dtype == jnp.bfloat16


def convolved(by_loops=False):
    """Windows of a padded picture."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (2, 4, 5)), graph.add_variable("y", (4, 5))
    padded = x.pad(((0, 0), (1, 1), (1, 1)))
    for oy, ox in [(i, j) for i in range(4) for j in range(5)] if by_loops else [cl.grid(4, 5)]:
        graph.add_vertex("windows", total, x=padded[:, oy : oy + 3, ox : ox + 3], out=y[oy, ox])
    return graph


def test_padding_has_no_edges():
    graph = convolved()
    # A run for each row of each window that lies in the picture, and one for each output.
    rows = [sum(0 <= oy + k < 4 for k in (-1, 0, 1)) for oy in range(4)]
    assert graph.num_edges == 2 * 5 * sum(rows) + 20
    assert convolved(by_loops=True).num_edges == graph.num_edges == sum(1 for _ in graph.iter_edges())
    corner = graph.vertex("windows", oy=0, ox=0)
    assert [e[1:] for e in corner.iter_edges()] == [
        ("x", graph.variable("x").source, start, 2) for start in (0, 5, 20, 25)
    ] + [("out", graph.variable("y").source, 0, 1)]
    assert len(graph.readers(graph.variable("x")[0, 0, 0])) == 4
    assert graph.readers(graph.variable("x").pad(1)[0]) == []
    assert str(graph.families[0]).split("\n")[1] == (
        "  in    x: float32[2,3,3] = pad(x, 0.0) at 7*oy + ox + 42*f0 + 7*f1 + f2"
    )
    values = np.arange(40.0).reshape(2, 4, 5)
    assert corner.run({"x": values})["out"] == values[:, :2, :2].sum()


def test_a_run_ends_at_padding_and_starts_at_the_first_element():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))  # its first element has number 0, one more than padding has
    graph.add_vertex("sum", total, x=cl.concatenate([x.pad(1), x[2:].pad((0, 1)), x[:0].pad(2)]), out=x[0])
    edges = list(graph.iter_edges())
    assert [(e.start, e.length) for e in edges] == [(0, 4), (2, 2), (0, 1)]
    assert graph.num_edges == 3
    graph.add_vertex("nothing", total, x=x.pad(2)[:2], out=x[1])
    assert [e.field for e in graph.vertex("nothing", 0).iter_edges()] == ["out"]


@pytest.mark.parametrize("edge", [0, 1, 2])
def test_edges_through_padding_are_those_of_each_vertex(edge):
    """Rows that begin, end or lie in padding, that go on in the next row, and blocks of one array of several shapes."""
    graph = cl.Graph()
    x, z = graph.add_variable("x", (7, 6)), graph.add_variable("z", (2, 6))
    sums = cl.codelet(lambda x: x.sum())
    padded = x.pad([(edge, edge), (edge, 0)])
    rows, columns = padded.shape
    for k, (top, left) in enumerate([(0, 0), (3, 2), (rows - 3, columns - 3), (1, 0)]):
        graph.add_vertex(f"corner{k}", sums, x=padded[top : top + 3, left : left + 3])
    i, j = cl.grid(rows - 1, columns - 2)
    graph.add_vertex("window", sums, x=padded[i : i + 2, j : j + 3])
    joined = cl.concatenate([x, z, x[3:5]])
    k = cl.grid(joined.shape[0] - 2)
    graph.add_vertex("joined", sums, x=joined[k : k + 3])
    graph.add_vertex("every other", sums, x=joined[k : k + 3, ::2])
    assert graph.num_edges == sum(1 for _ in graph.iter_edges())


def test_padding_needs_no_value_and_has_no_tile():
    graph = convolved()
    graph.set_tile_mapping(graph.variable("x").pad(1)[1:-1, 1:-1, 1:-1], 3)
    assert graph.element_tiles[:42].tolist() == [3] * 40 + [-1, -1]
    graph = convolved()
    x = graph.variable("x")
    half = cl.Copy(graph.add_constant("c", np.ones((2, 2, 5), "f")), x[:, :2])
    with pytest.raises(cl.UninitializedReadError, match=r"x\[0, 2, 0\] is read by field 'x'"):
        cl.lower(graph, cl.Sequence(half, graph.compute_sets[0]), inputs=[], outputs=["y"])
    with pytest.raises(cl.UninitializedReadError, match=r"x\[0, 2, 0\]"):
        cl.interpret(graph, values={}, outputs=["y"], program=cl.Sequence(half, graph.compute_sets[0]))


def test_graphs_that_pad_differently_differ():
    lowered = [
        cl.lower(lambda graph, x, pad=pad: pad(x)).at(np.zeros(3, "f"))
        for pad in (
            lambda x: x.pad(1),
            lambda x: x.pad(1, value=1),
            lambda x: x.pad((2, 0)),
            lambda x: x.pad(1, value=float("nan")),
        )
    ]
    assert len(set(lowered)) == 4
    again = cl.lower(lambda graph, x: x.pad(1, value=float("nan"))).at(np.zeros(3, "f"))
    assert again == lowered[3]


def test_no_vertex_added_one_at_a_time_writes_padding():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (3,)).pad(1)
    for k in range(3):
        graph.add_vertex("set", double, x=x[k], out=y[k + 1])
    with pytest.raises(cl.FieldTypeError, match="field 'out' of codelet 'double' would write padding"):
        graph.add_vertex("set", double, x=x[0], out=y[4])
    with pytest.raises(cl.FieldTypeError, match="would write padding"):
        graph.add_vertex("set", double, x=x[0], out=y[0])
    run = cl.lower(graph, inputs=[x], outputs=["y"])
    np.testing.assert_array_equal(run({"x": np.ones(3)})["y"], [2, 2, 2])


def refusals():
    """A mistake of each kind, the error it gets, and what the error says."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    other = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    elsewhere = other.add_variable("z", (4,))
    multiply = graph.add_compute_set("multiply")
    i, padded = cl.grid(4), x.pad((0, 1))
    add: Any = graph.add_vertex
    wrong: Any = "ipu"
    return {
        "unknown field": (
            lambda: add(multiply, dot, x=x, w=y, z=y),
            cl.UnknownFieldError,
            "expected: x, w, out",
        ),
        "missing field": (
            lambda: add(multiply, dot, x=x),
            cl.MissingFieldError,
            "given nothing for its field 'w'",
        ),
        "shapes": (
            lambda: add(multiply, dot, x=x, w=y[:3]),
            cl.CodeletTraceError,
            "x: float32[4], w: float32[3]",
        ),
        "output shape": (
            lambda: add(multiply, dot, x=x, w=y, out=y[:2]),
            cl.FieldTypeError,
            "expected: float32[]",
        ),
        "output": (lambda: add(multiply, dot, x=x, w=y, out=3), cl.FieldTypeError, "expected: a tensor"),
        "in-out": (
            lambda: add(multiply, cl.codelet(lambda out: out), out=3),
            cl.FieldTypeError,
            "in-out field 'out'",
        ),
        "padding as output": (
            lambda: add(multiply, double, x=x[i], out=padded[i + 1]),
            cl.FieldTypeError,
            "field 'out' of codelet 'double' would write padding",
        ),
        "padding as in-out": (
            lambda: add(multiply, cl.codelet(lambda out: out), out=cl.concatenate([padded, y])),
            cl.FieldTypeError,
            "write to the tensor that was padded, or slice the padding off",
        ),
        "copy to padding": (lambda: cl.Copy(y, padded[1:]), cl.ProgramError, "a copy would write padding"),
        "mapping of padding": (
            lambda: graph.set_tile_mapping(padded, 1),
            cl.TileError,
            "a tile mapping names padding",
        ),
        "text": (
            lambda: add(multiply, double, x="no"),
            cl.FieldTypeError,
            "expected: a tensor, an index expression",
        ),
        "state shape": (
            lambda: add(multiply, place, site=i, scale=np.ones(3)),
            cl.FieldTypeError,
            "given:    shape (3,)",
        ),
        "large number": (lambda: add(multiply, double, x=2**40), cl.FieldTypeError, "too large for int32"),
        "no codelet": (lambda: add(multiply, jnp.dot, x=x, w=y), cl.FieldTypeError, "decorate it"),
        "no compute set": (lambda: add(3, dot, x=x, w=y), cl.FieldTypeError, "a compute set, or a name"),
        "foreign tensor": (lambda: add(multiply, double, x=elsewhere[0]), cl.ForeignGraphError, "field 'x'"),
        "foreign set": (
            lambda: add(other.add_compute_set("there"), double, x=x[0]),
            cl.ForeignGraphError,
            "compute set of another graph",
        ),
        "tile": (lambda: add(multiply, double, x=x[0], out=y[0], tile=4), cl.TileError, "expected: 0 to 3"),
        "symbolic tile": (
            lambda: add(multiply, double, x=x[i], out=y[i], tile=i + 1),
            cl.TileError,
            "`i % 4` deals them out",
        ),
        "tile array": (
            lambda: add(multiply, double, x=x[i], out=y[i], tile=np.zeros(3, int)),
            cl.TileError,
            "expected: shape (4,)",
        ),
        "tile word": (
            lambda: add(multiply, double, x=x[0], tile="a"),
            cl.TileError,
            "a tile is not an integer",
        ),
        "tile fraction": (
            lambda: add(multiply, double, x=x[i], out=y[i], tile=i / 2),
            cl.SymbolError,
            "`//` rounds down",
        ),
        "mapping": (lambda: graph.set_tile_mapping(x, [1, 2]), cl.TileError, "does not fit its tensor"),
        "mapping by another symbol": (
            lambda: graph.set_tile_mapping(x, i),
            cl.TileError,
            "graph.set_tile_mapping(x[i], i // 4)",
        ),
        "name": (lambda: graph.add_variable("x", (2,)), cl.DuplicateNameError, "'x' is used twice"),
        "no name": (lambda: graph.add_variable("", (2,)), cl.VariableError, "not a name"),
        "shape": (lambda: graph.add_variable("s", (2, -1)), cl.VariableError, "is not a shape"),
        "elements": (lambda: graph.add_variable("s", (2**31, 2**31)), cl.VariableError, "fewer than 2**62 elements"),
        "dtype": (lambda: graph.add_variable("s", (2,), "text"), cl.VariableError, "not one of JAX's"),
        "value": (lambda: graph.add_constant("s", object()), cl.VariableError, "is not an array"),
        "grid": (lambda: cl.grid(-1), cl.SymbolError, "a size that is not a count"),
        "table": (lambda: cl.table([0.5]), cl.SymbolError, "other than integers"),
        "division": (lambda: i // 0, cl.SymbolError, "positive integer"),
        "copy shapes": (lambda: cl.Copy(x, y[:2]), cl.ProgramError, "expected: one shape and dtype"),
        "copy symbols": (lambda: cl.Copy(x[i], y[i]), cl.ProgramError, "depends on a symbol"),
        "copy graphs": (lambda: cl.Copy(x, elsewhere), cl.ForeignGraphError, "joins two graphs"),
        "count": (lambda: cl.Repeat(-1, multiply), cl.ProgramError, "non-negative"),
        "counter": (lambda: cl.Repeat(1, multiply, index=x), cl.ProgramError, "cannot count"),
        "program": (lambda: cl.Sequence(3), cl.ProgramError, "programs and compute sets"),
        "target": (lambda: cl.Graph(wrong), cl.VariableError, "not a machine"),
        "chip": (lambda: cl.IPU("mk9"), cl.CodeletError, "expected: mk1, mk2, bow"),
    }


@pytest.mark.parametrize("name", refusals())
def test_mistakes_are_told(name):
    mistake, error, says = refusals()[name]
    with pytest.raises(error) as caught:
        mistake()
    assert caught.type is error or error is cl.CodeletError
    assert says in str(caught.value)
    assert "test_graph.py" in str(caught.value), "the user's line is named"


def test_the_same_line_run_twice_gets_a_hint():
    graph = cl.Graph()
    with pytest.raises(cl.DuplicateNameError, match="the same line ran twice, as a notebook cell does"):
        for _ in range(2):
            graph.add_variable("x", (2,))


def test_tiles_are_mapped_by_view():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (2, 4))
    row, k = cl.grid(2, 4)
    graph.set_tile_mapping(x[row, k], 4 * row + k)
    graph.set_tile_mapping(x[1], [7, 6, 5, 4])
    assert graph.element_tiles[:8].tolist() == [0, 1, 2, 3, 7, 6, 5, 4]


def test_a_million_single_vertices_are_columns():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (30_000,)), graph.add_variable("y", (30_000,))
    compute_set = graph.add_compute_set("set")
    for i in range(30_000):
        graph.add_vertex(compute_set, double, x=x[i], out=y[29_999 - i])
    assert len(graph.families) == 1
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert len(run.jaxpr.jaxpr.eqns) <= 4
    values = np.arange(30_000, dtype=np.float32)
    np.testing.assert_array_equal(run({"x": values})["y"], 2 * values[::-1])


def test_a_symbol_over_a_range_prints_by_its_values():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (12,)), graph.add_variable("y", (12,))
    _ = cl.grid(range(1, 11, 3))
    i = _
    graph.add_vertex("set", total, x=x[i - 1 : i + 2], out=y[2 * i // 2])
    assert str(graph.families[0]) == (
        "set / total: 4 vertices over i: 4\n  in    x: float32[3] = x at -1 + i + f0\n  out   out: float32[] = y at i"
    )


def test_vertices_added_one_at_a_time_are_numbered():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    for k in range(4):
        graph.add_vertex("sums", total, x=x[k:], out=y[k])
    assert graph.families[2].num_vertices == 1
    assert str(graph.families[2]).startswith(
        "sums / total: 1 vertex added one at a time\n  in    x: float32[2] = x at 2 + f0"
    )
    assert repr(graph.vertex("sums", 2)) == "vertex of sums / total at number 2"
    assert repr(next(graph.vertex("sums", 2).iter_edges())) == (
        "edge of x[2:4] to field 'x' of vertex of sums / total at number 2"
    )
    assert repr(cl.concatenate([x, y])) == "Tensor(float32[8] of concat(x, y): f0)"


def test_numbers_too_large_are_found_in_columns_too():
    graph = cl.Graph()
    y = graph.add_variable("y", (3,), "int32")
    for k in range(3):
        graph.add_vertex("set", double, x=2**20 * 2 ** (10 * k), out=y[k])
    with pytest.raises(cl.FieldTypeError, match="numbers too large for int32") as caught:
        cl.lower(graph, inputs=[], outputs=[y])
    assert "test_graph.py" in str(caught.value)


def test_a_refused_vertex_leaves_nothing_behind():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    for k in range(4):
        if k % 2 == 0:
            with pytest.raises(cl.TileError):
                graph.add_vertex("double", double, x=x[k], out=y[k], tile=5)
        graph.add_vertex("double", double, x=x[k], out=y[k], tile=k % 2)
    assert graph.num_vertices == 4
    assert len(graph.families) == 1
    with pytest.raises(cl.FieldTypeError, match="cannot be hashed"):
        graph.add_vertex("more", cl.codelet(lambda x, *, k: x), x=x[0], out=y[0], k=[1])
