"""Races are found exactly: the lowering refuses a compute set just when the interpreter does."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import codelet as cl
from lowering.pipeline import plan_engine
from tests.examples import examples
from tests.strategies import gather_up, readings, shift_all

RACES = (cl.WriteRaceError, cl.ReadWriteRaceError, cl.SelfAliasError)


@st.composite
def careless(draw):
    """A compute set that reads and writes anywhere in two variables, without care."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    tensors = [
        graph.add_variable("a", (draw(st.integers(2, 12)),), "int32"),
        graph.add_variable("b", (3, 4), "int32"),
    ]
    tensors.append(cl.concatenate([tensors[0], tensors[1].flatten()]))
    readable = [*tensors, tensors[1].pad(1), cl.concatenate([tensors[2].pad((0, 2)), tensors[0].pad(1, "edge")])]
    compute_set = graph.add_compute_set("set")
    for _ in range(draw(st.integers(1, 2))):
        extents = draw(st.lists(st.integers(1, 4), max_size=2))
        x = draw(readings(draw(st.sampled_from(readable)), extents))
        y = draw(readings(draw(st.sampled_from(readable)), extents))
        out = draw(readings(draw(st.sampled_from(tensors)), extents))
        if out.shape == x.shape and draw(st.booleans()):
            kind, fields = shift_all, {"x": x, "y": y, "out": out}
        else:
            point = readings(draw(st.sampled_from(tensors)).flatten(), extents)
            out = draw(point.filter(lambda recipe: recipe.shape == ()))
            kind, fields = gather_up, {"x": x, "y": y, "out": out}
        if draw(st.booleans()):
            for symbols in itertools.product(*map(range, extents)):
                graph.add_vertex(compute_set, kind, **{k: recipe.view(symbols) for k, recipe in fields.items()})
        else:
            symbols = cl.grid(*extents) if extents else ()
            symbols = (symbols,) if isinstance(symbols, cl.Index) else symbols
            tile = sum(symbols, 0) % 4 if extents else None
            graph.add_vertex(compute_set, kind, **{k: r.view(symbols) for k, r in fields.items()}, tile=tile)
    return graph


def outcome(run):
    try:
        run()
    except RACES as error:
        return type(error)
    return None


def check_refused(graph):
    """See that lowering refuses a graph just where the interpreter does."""
    values = {"a": np.zeros(graph.variable("a").shape, np.int32), "b": np.zeros((3, 4), np.int32)}
    expected = outcome(lambda: cl.interpret(graph, values=values, outputs=["a", "b"]))
    found = outcome(lambda: cl.lower(graph, inputs=["a", "b"], outputs=["a", "b"]))
    assert (found is None) == (expected is None)


@examples(30)
@given(careless())
def test_the_lowering_refuses_what_the_interpreter_refuses(graph):
    check_refused(graph)


@pytest.mark.slow
@examples(2000)
@given(careless())
def test_the_lowering_refuses_what_the_interpreter_refuses_of_very_many(graph):
    check_refused(graph)


@cl.codelet
def step(s, x, y):
    return {"s": s + x, "z": s + x * y}


@cl.codelet
def step_out(s, x, y):
    return {"t": s + x, "z": s + x * y}


@st.composite
def affine_views(draw, tensor, symbols):
    """An element of a flat tensor for each vertex: strides as of an array over the symbols, nearly so, or any."""
    order = draw(st.permutations(symbols))
    strides, weight = {}, 1
    for symbol in order:
        strides[symbol] = weight * draw(st.sampled_from([1, 1, 1, 1, -1, 0])) + draw(st.sampled_from([0] * 9 + [1]))
        weight *= symbol.axes[0].extent
    reach = {symbol: stride * (symbol.axes[0].extent - 1) for symbol, stride in strides.items()}
    low, high = sum(min(0, r) for r in reach.values()), sum(max(0, r) for r in reach.values())
    offset = draw(st.integers(-low, tensor.size - 1 - high))
    return tensor[sum((strides[symbol] * symbol for symbol in symbols), cl.Index(offset))]


@st.composite
def many_axes(draw):
    """One or two families over up to six axes, of five fields each, one of them in-out where drawn."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b, c = (graph.add_variable(name, (size,), "int32") for name, size in (("a", 130), ("b", 400), ("c", 130)))
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        extents = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6).filter(lambda n: np.prod(n) <= 96))
        symbols = cl.grid(*extents)
        symbols = (symbols,) if isinstance(symbols, cl.Index) else symbols
        views = {name: draw(affine_views(draw(st.sampled_from([a, b, c])), symbols)) for name in "sxy"}
        views["z"] = draw(affine_views(draw(st.sampled_from([a, b])), symbols))
        if draw(st.booleans()):
            graph.add_vertex("set", step, **views)
        else:
            graph.add_vertex("set", step_out, t=draw(affine_views(b, symbols)), **views)
    return graph


@examples(50)
@given(many_axes())
def test_families_over_up_to_six_axes_are_refused_as_the_interpreter_refuses_them(graph):
    values = {v.name: np.zeros(v.shape, np.int32) for v in graph.variables}
    expected = outcome(lambda: cl.interpret(graph, values=values, outputs=["a"]))
    found = outcome(lambda: plan_engine(graph, graph.default_program))
    assert (found is None) == (expected is None)
    if expected is cl.ReadWriteRaceError:
        assert found is expected


@st.composite
def dealt_by_tables(draw):
    """Several families that write elements dealt out by tables, each its share, but for a planted few."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b = (graph.add_variable(name, (24,), "int32") for name in "ab")
    left = list(draw(st.permutations(range(24))))
    for _ in range(draw(st.integers(2, 4))):
        vertices, each = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))
        count = vertices * each
        written, left = left[:count], left[count:]
        reads = list(written) if draw(st.booleans()) else [draw(st.sampled_from(left or written)) for _ in written]
        if draw(st.integers(0, 5)) == 0:
            written[draw(st.integers(0, count - 1))] = draw(st.integers(0, 23))
        table = lambda numbers, shape=(vertices, each): cl.table(np.array(numbers).reshape(shape))  # noqa: E731
        k = cl.grid(vertices)
        if draw(st.booleans()):
            x, out = a[table(reads)[k]], a[table(written)[k]]
        else:
            x, out = b[table(reads)[k]], (a if draw(st.booleans()) else b)[table(written)[k]]
        graph.add_vertex("set", copy_one, x=x, out=out)
    return graph


@examples(60)
@given(dealt_by_tables())
def test_families_that_write_by_tables_are_refused_as_the_interpreter_refuses_them(graph):
    values = {name: np.zeros(24, np.int32) for name in "ab"}
    expected = outcome(lambda: cl.interpret(graph, values=values, outputs=["a", "b"]))
    assert outcome(lambda: plan_engine(graph, graph.default_program)) is expected


@cl.codelet
def copy_one(x):
    return x


def two_variables(n=8):
    graph = cl.Graph()
    return graph, graph.add_variable("x", (n,)), graph.add_variable("y", (n,))


def test_a_write_race_names_both_vertices_and_the_line():
    graph, x, y = two_variables()
    i = cl.grid(8)
    graph.add_vertex("half", copy_one, x=x[i], out=y[i // 2])
    with pytest.raises(cl.WriteRaceError) as caught:
        cl.lower(graph, inputs=[x], outputs=[y])
    message = str(caught.value)
    assert "two vertices of compute set 'half' write y[0]" in message
    assert "at i=0" in message
    assert "at i=1" in message
    assert 'graph.add_vertex("half", copy_one' in message


def test_a_read_write_race_names_writer_and_reader():
    graph, x, _ = two_variables()
    i = cl.grid(7)
    graph.add_vertex("shift", copy_one, x=x[i], out=x[i + 1])
    with pytest.raises(cl.ReadWriteRaceError) as caught:
        cl.lower(graph, inputs=[x], outputs=[x])
    assert "writes x[1], which another vertex of it reads" in str(caught.value)
    assert "writer: vertex of shift / copy_one at i=0" in str(caught.value)
    assert "reader: vertex of shift / copy_one at i=1" in str(caught.value)


def test_an_aliased_output_names_the_element():
    graph, x, y = two_variables()
    graph.add_vertex("set", copy_one, x=x[:4], out=y[[0, 1, 1, 2]])
    with pytest.raises(cl.SelfAliasError, match=r"writes y\[1\] twice"):
        cl.lower(graph, inputs=[x, y], outputs=[y])


def test_two_outputs_of_one_vertex_do_not_share_an_element():
    @cl.codelet
    def both(x):
        return {"a": x, "b": x}

    graph, x, y = two_variables()
    graph.add_vertex("set", both, x=x[0], a=y[1], b=y[1])
    with pytest.raises(cl.SelfAliasError):
        cl.lower(graph, inputs=[x, y], outputs=[y])


def test_a_vertex_may_read_what_it_writes():
    graph, x, _ = two_variables()
    i = cl.grid(8)
    graph.add_vertex("in place", copy_one, x=x[i], out=x[i])
    values = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(cl.lower(graph, inputs=[x], outputs=[x])({"x": values})["x"], values)


# --- one fault in a graph that is otherwise right ---------------------------------------------------------


def _written(case):
    """A vertex, and an element that it writes."""
    fields = ((v, v.fields[f.name]) for v in case.graph.iter_vertices() for f in v.family.fields if f.is_written)
    found = [(vertex, tensor) for vertex, tensor in fields if tensor.size]
    assume(found)
    vertex, tensor = found[0]
    return vertex, tensor.flatten()[0]


def race(case):
    vertex, target = _written(case)
    source = case.graph.add_constant("one more", np.ones(1, target.dtype))
    case.graph.add_vertex(vertex.family.compute_set, copy_one, x=source[0], out=target)


def read_race(case):
    vertex, target = _written(case)
    case.graph.add_vertex(vertex.family.compute_set, copy_one, x=target, out=_spare(case, target.dtype)[0])


def alias(case):
    compute_set = case.graph.compute_sets[0]
    spare = _spare(case, np.int32)
    case.graph.add_vertex(
        compute_set, copy_one, x=case.graph.add_constant("two", np.ones(2, np.int32)), out=spare[[0, 0]]
    )


def _spare(case, dtype):
    case.inputs["spare"] = np.zeros(2, dtype)
    return case.graph.add_variable("spare", (2,), dtype)


def uninitialized(case):
    graph = case.graph
    graph.add_vertex(
        graph.compute_sets[0],
        copy_one,
        x=graph.add_variable("void", (3,), "int32")[2],
        out=_spare(case, np.int32)[0],
    )


def unknown_field(case):
    case.graph.add_vertex(case.graph.compute_sets[0], copy_one, x=1, z=2)


def missing_field(case):
    case.graph.add_vertex(case.graph.compute_sets[0], copy_one)


def wrong_type(case):
    spare = _spare(case, np.int32)
    case.graph.add_vertex(case.graph.compute_sets[0], copy_one, x=spare, out=spare[0])


def no_tile(case):
    case.graph.add_vertex(case.graph.compute_sets[0], copy_one, x=1, out=_spare(case, np.int32)[0], tile=8)


def name_twice(case):
    case.graph.add_variable(case.graph.variables[0].name, (1,))


def foreign(case):
    case.program.append(cl.Execute(cl.Graph().add_compute_set("elsewhere")))


def on_two_tiles(case):
    spare = _spare(case, np.int32)
    case.graph.place(together=[spare])
    case.graph.set_tile_mapping(spare, np.arange(2))


def wrong_array(case):
    case.inputs[next(iter(case.inputs))] = np.zeros((9, 9, 9), np.float32)


FAULTS = {
    race: cl.WriteRaceError,
    read_race: cl.ReadWriteRaceError,
    alias: cl.SelfAliasError,
    uninitialized: cl.UninitializedReadError,
    unknown_field: cl.UnknownFieldError,
    missing_field: cl.MissingFieldError,
    wrong_type: cl.FieldTypeError,
    no_tile: cl.TileError,
    name_twice: cl.DuplicateNameError,
    foreign: cl.ForeignGraphError,
    on_two_tiles: cl.PlacementError,
    wrong_array: cl.ArrayError,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@examples(3)
@given(data=st.data())
def test_one_fault_raises_its_own_error(fault, data):
    from tests.strategies import cases

    def has_vertices(case):
        executed = {step.compute_set for step in case.program if isinstance(step, cl.Execute)}
        return case.inputs and executed and case.graph.compute_sets[0] in executed

    case = data.draw(cases(np.int32).filter(has_vertices))
    cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
    with pytest.raises(FAULTS[fault]) as caught:
        fault(case)
        run = cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
        jax.block_until_ready(run(case.inputs))
    assert caught.type is FAULTS[fault]
