"""Symbols: what was written stays, whatever it simplifies to; operators are NumPy's; ranges depend on other symbols."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from tests.examples import examples, few
from tests.strategies import nested, positions


@cl.codelet
def add(a, b):
    return a + b


@cl.codelet
def total(a):
    return jnp.sum(a)


def rows_of(index, *symbols):
    """The values of an index over the axes of all symbols."""
    axes = tuple(axis for symbol in symbols for axis in symbol.axes)
    return index.values(tuple(dict.fromkeys(axes))).tolist()


# --- symbols that cancel ------------------------------------------------------------------------------------

I, J = cl.grid(4, 3)
TABLE = cl.table([5, 2, 7, 7])

CANCELLING = {
    "a factor of zero": lambda: 0 * I,
    "a factor of zero of a sum": lambda: (7 - I) * 0,
    "a quotient": lambda: I // 4,
    "a remainder": lambda: I % 1,
    "a whole remainder": lambda: (8 * I + 3) % 4,
    "a difference": lambda: I - I + 2,
    "a difference of tables": lambda: TABLE[I] - TABLE[I],
    "a factor of zero of a table": lambda: 0 * TABLE[I],
    "a quotient of a table": lambda: TABLE[I] // 10,
    "a remainder of a table": lambda: TABLE[I] % 1,
    "a remainder of a product": lambda: (I * J * 4) % 4,
    "a table at a fixed position": lambda: TABLE[0 * I],
    "a row of a ragged table": lambda: cl.table([1, 2, 3], offsets=[0, 2, 3])[I // 4],
    "a product with what is fixed": lambda: (1 + 0 * I) * 3,
    "a divisor that is fixed": lambda: 9 // (2 + 0 * I),
    "bits": lambda: (I & 0) + ((2 * I) & 1),
    "a shift": lambda: I >> 3,
    "a shift of a number": lambda: 1 << (I // 4),
    "the lesser": lambda: cl.minimum(I - 3, 5) - I + 3,
    "a choice that is no choice": lambda: cl.where(I >= 0, 1, 2),
    "a choice between equals": lambda: cl.where(I > 2, 1, 1),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_a_symbol_that_cancels_stays(name):
    index = CANCELLING[name]()
    assert I.axes[0] in index.axes
    assert I.axes[0] in (-index + 1).broadcast_to((2, *index.shape)).axes
    assert len(np.unique(index.values(index.axes).reshape(4, -1), axis=0)) == 1
    assert I.axes[0] not in index.keys or "table" in index.text()


VIEWS = {
    "an empty slice": lambda x, i: x[i, 0:0],
    "an empty slice that moves": lambda x, i: x[0, i:i],
    "a start": lambda x, i: x[0, 0 * i : 3],
    "a stop": lambda x, i: x[0, : 3 + 0 * i],
    "a step": lambda x, i: x[0, :: 1 + 0 * i],
    "a position": lambda x, i: x[i // 4],
    "a position of a repeated dimension": lambda x, i: x[0].broadcast_to((4, 5))[i],
    "a fixed row": lambda x, i: x[0, cl.table([1, 2, 3], offsets=[0, 2, 3])[i // 4]],
    "a reshaped view": lambda x, i: x[0 * i].reshape(5, 1),
    "an empty reshaped view": lambda x, i: x[0 * i, :0].reshape(0, 1),
    "a padded view": lambda x, i: x[0 * i].pad(1),
    "a joined view": lambda x, i: cl.concatenate([x[0 * i], x[1]]),
    "a transposed view": lambda x, i: x[0 * i].expand(0).T,
    "beside a ragged dimension": lambda x, i: x[0 * i, 0:5],
}


@few("name", VIEWS, quick=["an empty slice", "a position", "a padded view"])
def test_views_keep_the_symbols_that_cancel(name):
    graph = cl.Graph()
    x, i = graph.add_variable("x", (4, 5)), cl.grid(4)
    view = VIEWS[name](x, i)
    assert view.axes == i.axes
    made = graph.add_vertex("a", total, a=view)
    assert made.shape == (4,)
    assert graph.num_vertices == 4
    assert not graph.families[0].fields[0].tensor.index.symbols  # type: ignore[union-attr]
    values = {"x": np.arange(20.0, dtype=np.float32).reshape(4, 5)}
    expected = cl.interpret(graph, values=values, outputs=["a/out"])["a/out"]
    run = cl.lower(graph, inputs=[x], outputs=[made])
    np.testing.assert_allclose(run(values)["a/out"], expected)


def test_a_ragged_view_keeps_a_symbol_that_cancels_beside_its_rows():
    graph = cl.Graph()
    x, (i, j) = graph.add_variable("x", (6,)), cl.grid(3, 2)
    rows = cl.table([0, 1, 2, 3], offsets=[0, 2, 3, 4])
    for view in (x[0 * j + i :], x[rows[i + j // 2]], x[i : 2 * i + 0 * j]):
        assert view.axes[:1] == i.axes
    made = graph.add_vertex("a", total, a=x[rows[i + 0 * j]])
    assert made.shape == (3, 2)
    assert graph.num_vertices == 6


def heads(n_kv, by_loops=False):
    """What grouped attention is made of: of n_heads heads some share a key."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    k, q = graph.add_variable("k", (n_kv, 3)), graph.add_variable("q", (8,))
    y = graph.add_variable("y", (8,))
    weigh = cl.codelet(lambda k, q: k.sum() * q)
    for h in range(8) if by_loops else [cl.grid(8)]:
        graph.add_vertex("a", weigh, k=k[h * n_kv // 8], q=q[h], out=y[h], tile=h * n_kv // 8)
    return cl.lower(graph, inputs=[k, q], outputs=[y])


@pytest.mark.parametrize("n_kv", [1, 2, 8])
def test_a_key_for_some_heads_is_a_symbolic_index_whatever_their_number(n_kv):
    assert str(heads(n_kv).jaxpr) == str(heads(n_kv, by_loops=True).jaxpr)
    h = cl.grid(8)
    graph = cl.Graph()
    k = graph.add_variable("k", (n_kv, 3))
    made = graph.add_vertex("only keys", total, a=k[h * n_kv // 8])
    assert made.shape == (8,)


def test_races_of_symbols_that_cancel_are_told_as_those_of_loops():
    def build(symbols):
        graph = cl.Graph()
        x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (8,))
        for i, j in symbols:
            graph.add_vertex("a", add, a=x[i], b=x[i], out=y[i + (7 - j) * 0])
        cl.lower(graph, inputs=[x], outputs=[y])

    for symbols in ([cl.grid(8, 2)], itertools.product(range(8), range(2))):
        with pytest.raises(cl.WriteRaceError, match="two vertices of compute set 'a' write y"):
            build(symbols)


def test_tiles_and_state_bring_the_symbols_that_cancel():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, i = graph.add_variable("x", (8,)), cl.grid(4)
    given = cl.codelet(lambda a, site: a + site)
    assert graph.add_vertex("a", total, a=x, tile=i // 4).shape == (4,)
    assert graph.add_vertex("b", given, a=x[0], site=i % 1).shape == (4,)
    assert [family.num_vertices for family in graph.families] == [4, 4]
    graph.set_tile_mapping(x[i + 4], 0 * i)
    graph.set_tile_mapping(x[i], i * 0 + 3)
    assert graph.element_tiles[:8].tolist() == [3] * 4 + [0] * 4


# --- operators -----------------------------------------------------------------------------------------------

SYMBOLS = {"i": np.arange(1, 6, 2)[:, None], "j": np.arange(4)[None, :]}
NUMPYS = {
    "cl.minimum(i, j + 1)": lambda i, j: np.minimum(i, j + 1),
    "cl.maximum(i, 2)": lambda i, j: np.maximum(i, 2) + 0 * j,
    "cl.minimum(i, 9) + j": lambda i, j: i + j,
    "cl.where(i < j, i, 4 - j)": lambda i, j: np.where(i < j, i, 4 - j),
    "cl.where((i > 1) & ~(j == 2), 1, j)": lambda i, j: np.where((i > 1) & ~(j == 2), 1, j),
    "cl.where((i != 3) ^ (j >= 2) | (j <= 0), i, 0)": lambda i, j: np.where((i != 3) ^ (j >= 2) | (j <= 0), i, 0),
    "cl.where((i > 0) & True, i, j)": lambda i, j: i + 0 * j,
    "i ^ j": lambda i, j: i ^ j,
    "i | j": lambda i, j: i | j,
    "i & j": lambda i, j: i & j,
    "(i - 9) & 6": lambda i, j: ((i - 9) & 6) + 0 * j,
    "(i - 9) & 7": lambda i, j: ((i - 9) & 7) + 0 * j,
    "6 ^ i | 1 & j": lambda i, j: 6 ^ i | 1 & j,
    "i << 2 << j": lambda i, j: i << 2 << j,
    "1 << i": lambda i, j: (1 << i) + 0 * j,
    "(i - 4) >> j": lambda i, j: (i - 4) >> j,
    "-9 >> i": lambda i, j: (-9 >> i) + 0 * j,
    "~i + +j": lambda i, j: ~i + j,
    "abs(i - 3) + j": lambda i, j: abs(i - 3) + j,
    "sum(divmod(5 * i + j, 4))": lambda i, j: sum(divmod(5 * i + j, 4)),
    "np.array(7) - i + j": lambda i, j: 7 - i + j,
    "np.minimum(i, j)": lambda i, j: np.minimum(i, j),
    "np.int32(2) * i ^ j": lambda i, j: 2 * i ^ j,
    "jnp.int32(2) * i ^ j": lambda i, j: 2 * i ^ j,
}


@pytest.mark.parametrize("text", NUMPYS)
def test_operators_on_symbols_are_numpys(text):
    i, j = cl.grid(range(1, 6, 2), 4)
    index = eval(text, {"i": i, "j": j, "cl": cl, "np": np, "jnp": jnp})
    np.testing.assert_array_equal(index.values(i.axes + j.axes), NUMPYS[text](**SYMBOLS))


def test_what_is_regular_stays_affine():
    i = cl.grid(16)
    for index in (i << 3, 5 * (i & 15), (8 * i) >> 2, cl.minimum(i, 20), cl.maximum(i, -1), cl.where(i < 99, 3 * i, 0)):
        assert not index.tables
        assert index.keys == i.axes


def test_choosing_among_plain_numbers_gives_one():
    assert (cl.minimum(3, 5), cl.maximum(np.int64(3), 5), cl.where(True, 3, 5), cl.where(3 > 5, 3, 5)) == (3, 5, 3, 5)
    assert all(type(n) is int for n in (cl.minimum(3, 5), cl.maximum(np.int64(3), 5), cl.where(True, 3, 5)))


def test_a_condition_is_a_truth_value_of_the_vertex():
    graph = cl.Graph()
    x, i = graph.add_variable("x", (4,)), cl.grid(4)
    y = graph.add_vertex("a", cl.codelet(lambda a, edge: jnp.where(~edge, a, -a)), a=x[i], edge=(i == 0) | (i == 3))
    values = {"x": np.arange(1.0, 5, dtype=np.float32)}
    assert cl.interpret(graph, values=values, outputs=["a/out"])["a/out"].tolist() == [-1, 2, 3, -4]
    assert cl.lower(graph, inputs=[x], outputs=[y])(values)["a/out"].tolist() == [-1, 2, 3, -4]


# --- ranges that depend on symbols ---------------------------------------------------------------------------

NESTS = {
    "below the diagonal": (lambda r: [(i, j) for i in r(4) for j in r(i)], lambda i: (cl.grid(i),)),
    "above the diagonal": (
        lambda r: [(i, j) for i in r(4) for j in r(i + 1, 4)],
        lambda i: (cl.grid(slice(i + 1, 4)),),
    ),
    "backwards by two": (
        lambda r: [(i, j) for i in r(4) for j in r(2 * i, -1, -2)],
        lambda i: (cl.grid(slice(2 * i, -1, -2)),),
    ),
    "by a table": (
        lambda r: [(i, j) for i in r(4) for j in r([2, 0, 3, 1][i])],
        lambda i: (cl.grid(cl.table([2, 0, 3, 1])[i]),),
    ),
    "a window": (lambda r: [(i, j) for i in r(4) for j in r(i, i + 3)], lambda i: (cl.grid(slice(i, i + 3)),)),
    "never": (lambda r: [(i, j) for i in r(4) for j in r(-i)], lambda i: (cl.grid(-i),)),
    "three deep": (
        lambda r: [(i, j, k) for i in r(4) for j in r(i) for k in r(j, i)],
        lambda i: (j := cl.grid(i), cl.grid(slice(j, i))),
    ),
    "two of one": (
        lambda r: [(i, j, k) for i in r(4) for j in r(i) for k in r(i + 1)],
        lambda i: (cl.grid(i), cl.grid(i + 1)),
    ),
    "fixed": (lambda r: [(i, j) for i in r(4) for j in r(3)], lambda i: (cl.grid(3 + 0 * i),)),
}


@pytest.mark.parametrize("name", NESTS)
def test_a_symbol_runs_over_a_range_that_depends_on_another(name):
    loops, make = NESTS[name]
    numbers = loops(range)
    i = cl.grid(4)
    symbols = (i, *make(i))

    def build(wanted):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x = graph.add_variable("x", (512,))
        y = graph.add_variable("y", (512,))
        for one in wanted:
            number = sum(8**k * symbol for k, symbol in enumerate(one))
            graph.add_vertex("a", add, a=x[one[0]], b=x[one[-1] + 0], out=y[number], tile=one[0])
        return graph, cl.lower(graph, inputs=[x, y], outputs=[y])

    (looped, by_loops), (graph, by_symbols) = build(numbers), build([symbols])
    assert graph.num_vertices == len(numbers) == looped.num_vertices
    described = [
        sorted(str([v.tile, *(e[1:] for e in v.iter_edges())]) for v in g.iter_vertices()) for g in (graph, looped)
    ]
    assert described[0] == described[1]
    assert graph.num_edges == looped.num_edges
    assert str(by_symbols.jaxpr) == str(by_loops.jaxpr)
    only_last = cl.Graph()
    made = only_last.add_vertex("a", total, a=only_last.add_variable("x", (512,))[symbols[-1]])
    chained = [n for n in range(4) for _ in range(n + 1)] if name == "two of one" else numbers
    assert only_last.num_vertices == len(chained)
    assert made.size == len(chained)


def test_vertices_of_a_dependent_range_are_found_and_print():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5,)), graph.add_variable("y", (5, 10))
    i = cl.grid(5)
    j = cl.grid(slice(2 * i, 2 * i + 3, 2))
    graph.add_vertex("pairs", add, a=x[i], b=x[j // 3], out=y[i, j % 10])
    assert graph.vertex("pairs", i=3, j=8).symbols == {"i": 3, "j": 8}
    assert graph.vertex("pairs", 7) == graph.vertex("pairs", i=3, j=8)
    assert "at i=3, j=8" in repr(graph.vertex("pairs", 7))
    assert "10 vertices over (i, j): 10" in str(graph)
    assert "in    a: float32[] = x at i" in str(graph)
    with pytest.raises(cl.NotInGraphError, match="has no such vertex"):
        graph.vertex("pairs", i=3, j=7)


def test_a_dependent_range_takes_every_kind_of_field_and_has_gradients():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, rows = graph.add_variable("x", (5, 3)), cl.table([0, 1, 1, 2, 4, 3], offsets=[0, 2, 2, 3, 5, 6])
    i, h = cl.grid(5, 2)
    j = cl.grid(i)
    weight = np.arange(20, dtype=np.float32).reshape(2, 10)
    mix = cl.codelet(lambda a, row, b, site, weight, first: (a * b).sum() + row.sum() * weight + site + first)
    y = graph.add_vertex(
        "a",
        mix,
        a=cl.concatenate([x[i], x[j, :1]]),
        b=x[j].pad((0, 1), value=2),
        row=x[rows[i], 1],
        site=i - j,
        weight=weight,
        first=j == 0,
        tile=(i + j + h) % 8,
    )
    assert y.shape == (2, 10)
    values = {"x": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    run = cl.lower(graph, inputs=[x], outputs=[y])
    expected = cl.interpret(graph, values=values, outputs=["a/out"])["a/out"]
    jitted = jax.jit(run)
    np.testing.assert_allclose(jitted(values)["a/out"], expected, rtol=1e-5)
    engine = cl.Engine(graph, execution="tiles")
    engine.write(values)
    engine.run()
    np.testing.assert_allclose(engine.read(y), expected, rtol=1e-5)
    # The program is of second degree: its central differences are its slopes.
    step = np.ones_like(values["x"])
    high, low = (np.asarray(jitted({"x": values["x"] + sign * step})["a/out"]).sum() for sign in (1, -1))
    slope = jax.jit(jax.grad(lambda v: run({"x": v})["a/out"].sum()))(values["x"])
    np.testing.assert_allclose((slope * step).sum(), (high - low) / 2, rtol=1e-4)


@pytest.mark.slow
def test_a_dependent_range_of_millions_is_columns():
    i = cl.grid(3000)
    j = cl.grid(i)
    assert (i - j).bounds() == (1, 2999)
    graph = cl.Graph()
    x = graph.add_variable("x", (3000,))
    graph.add_vertex(
        "a", add, a=x[i], b=x[i - 1 - j], out=graph.add_variable("y", (3000 * 2999 // 2,))[i * (i - 1) // 2 + j]
    )
    assert graph.num_vertices == 3000 * 2999 // 2


@examples(60)
@given(st.data())
def test_loops_and_symbols_view_the_same(data):
    """Of any positions and nests: the same elements, vertex by vertex."""
    extents, by_loops, by_symbols = data.draw(nested())
    graph = cl.Graph()
    x = graph.add_variable("x", (7, 5))
    row, column = data.draw(positions(extents, 7)), data.draw(positions(extents, 4))
    symbols = by_symbols()
    view = x[row(symbols), slice(column(symbols), column(symbols) + 2)]
    place = sum(symbols, 0)
    made = graph.add_vertex("a", cl.codelet(lambda a, site: a.sum() + site), a=view, site=place)
    numbers = list(by_loops())
    assert graph.num_vertices == len(numbers)
    expected = [x[row(n), slice(column(n), column(n) + 2)].elements().tolist() for n in numbers]
    found = [vertex.fields["a"].elements().tolist() for vertex in graph.iter_vertices()]
    assert sorted(found) == sorted(expected)
    assert sorted(vertex.fields["site"] for vertex in graph.iter_vertices()) == sorted(map(sum, numbers))
    assert made.size == len(numbers)


# --- names ---------------------------------------------------------------------------------------------------


def test_symbols_have_the_names_they_are_given():
    graph = cl.Graph()
    x = graph.add_variable("x", (64, 8))
    r, p = cl.grid(row=range(0, 64, 2), part=8)
    assert repr(r + 8 * p) == "Index(row + 8*part)"
    assert repr(x[r, p]) == "Tensor(float32[] of x: 8*row + part)"
    graph.add_vertex("a", total, a=x[r, p])
    assert "32 x part: 8" in str(graph)
    assert graph.vertex("a", row=4, part=3).symbols == {"row": 4, "part": 3}
    with pytest.raises(cl.OutOfBoundsError, match=r"given:    Index\(2 \+ row\), which takes values 2 to 64"):
        x[r + 2]
    run = cl.lower(graph, inputs=[x], outputs=[graph.variable("a/out")])
    assert "x at 8*row + part" in str(run.plan)
    assert repr(cl.grid(row=3)) == "Index(row)"
    first, second, third = cl.grid(2, a=3, b=cl.grid(n=2))
    assert (repr(second), first.axes[0].extent) == ("Index(a)", 2)
    assert repr(third + second) == "Index(a + b)"


def test_names_within_a_family_are_told_apart():
    graph = cl.Graph()
    x, i, other = graph.add_variable("x", (4,)), cl.grid(i=2), cl.grid(i=2)
    graph.add_vertex("a", add, a=x[i], b=x[other])
    assert "over i: 2 x i_2: 2" in str(graph)
