"""Ragged fields: views, checks, and the ways in which they run."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.tracing.lengths import Symbol
from tests.at_once import at_once
from tests.bounded import bend
from tests.examples import examples, few
from tests.strategies import total

OFFSETS = [0, 2, 2, 5, 6, 9]
ENTRIES = [4, 2, 0, 1, 1, 3, 3, 2, 1]


def rows_of(tensor, symbol):
    """The elements that each vertex sees, by the graph's own small objects."""
    graph = tensor.graph
    kept = graph.add_variable("kept", (len(symbol.axes[0].values),))
    graph.add_vertex("look", total, x=tensor, out=kept[symbol])
    return [vertex.fields["x"].elements().tolist() for vertex in graph.iter_vertices()]


# --- views ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbolic", "plain"),
    [
        (lambda x, i: x[i:, 0], lambda x, i: x[i:, 0]),
        (lambda x, i: x[i, i:], lambda x, i: x[i, i:]),
        (lambda x, i: x[i:, i], lambda x, i: x[i:, i]),
        (lambda x, i: x[i][i:], lambda x, i: x[i][i:]),
        (lambda x, i: x[1, : 5 - i], lambda x, i: x[1, : 5 - i]),
        (lambda x, i: x[0, i * 6 // 5 : (i + 1) * 6 // 5], lambda x, i: x[0, i * 6 // 5 : (i + 1) * 6 // 5]),
        (lambda x, i: x[::-1][i::2, 1], lambda x, i: x[::-1][i::2, 1]),
        (lambda x, i: x[2, i::-1], lambda x, i: x[2, i::-1]),
        (lambda x, i: x[2, i:1], lambda x, i: x[2, i:1]),
        (lambda x, i: x.T[i:, i], lambda x, i: x.T[i:, i]),
        (lambda x, i: x[cl.table([3, 1, 0, 2, 4])[i], i:], lambda x, i: x[[3, 1, 0, 2, 4][i], i:]),
        (lambda x, i: x[:, i:].T[:, 1], lambda x, i: x[:, i:].T[:, 1]),
        (lambda x, i: x[i:, 1:3][:, 1], lambda x, i: x[i:, 2]),
        (lambda x, i: x[i:, :, None][:, 2, 0], lambda x, i: x[i:, 2]),
    ],
)
def test_slices_of_different_lengths(symbolic, plain):
    x = cl.Graph().add_variable("x", (5, 6))
    numbers, i = x.elements(), cl.grid(5)
    assert rows_of(symbolic(x, i), i) == [plain(numbers, k).tolist() for k in range(5)]


@pytest.mark.parametrize(
    ("symbolic", "plain"),
    [
        (lambda x, rows, i: x[rows[i], 2], lambda x, own, i: x[own, 2]),
        (lambda x, rows, i: x[i, rows[i]], lambda x, own, i: x[i, own]),
        (lambda x, rows, i: x[i][rows[i]], lambda x, own, i: x[i, own]),
        (lambda x, rows, i: x[rows[4 - i], i], lambda x, own, i: None),
        (
            lambda x, rows, i: x[:, 1][cl.table([1, 0, 3, 2, 4])[rows[i]]],
            lambda x, own, i: x[[[1, 0, 3, 2, 4][k] for k in own], 1],
        ),
    ],
)
def test_rows_of_a_table(symbolic, plain):
    x = cl.Graph().add_variable("x", (5, 6))
    numbers, i = x.elements(), cl.grid(5)
    rows = cl.table(ENTRIES, offsets=OFFSETS)
    own = [ENTRIES[a:b] for a, b in itertools.pairwise(OFFSETS)]
    wanted = [plain(numbers, own[k], k) for k in range(5)]
    if wanted[0] is None:
        wanted = [numbers[own[4 - k], k] for k in range(5)]
    assert rows_of(symbolic(x, rows, i), i) == [value.tolist() for value in wanted]


def test_a_row_by_its_number_is_an_index_array():
    x = cl.Graph().add_variable("x", (5,))
    rows = cl.table(ENTRIES, offsets=OFFSETS)
    assert x[rows[2]].elements().tolist() == [0, 1, 1]
    assert x[rows[1]].shape == (0,)
    assert repr(rows) == "table of 5 rows of 0 to 3, 9 in all"
    assert len(rows) == 5


def test_rows_over_two_symbols_beside_a_third():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4, 7)), graph.add_variable("y", (2, 3, 4))
    a, b, h = cl.grid(2, 3, 4)
    graph.add_vertex("sums", total, x=x[h, a : a + 2 * b + 1], out=y[a, b, h])
    values = np.arange(28.0, dtype=np.float32).reshape(4, 7)
    expected = [[[values[h, a : a + 2 * b + 1].sum() for h in range(4)] for b in range(3)] for a in range(2)]
    run = cl.lower(graph, inputs=[x], outputs=[y])
    np.testing.assert_allclose(run({"x": values})["y"], expected)
    np.testing.assert_allclose(cl.interpret(graph, values={"x": values}, outputs=[y])["y"], expected)
    assert graph.num_edges == sum(1 for _ in graph.iter_edges()) == 2 * 24


def _x():
    return cl.Graph().add_variable("x", (4, 6))


@pytest.mark.parametrize(
    ("view", "error", "says"),
    [
        (lambda x, i: x[i:, i:], cl.ViewError, "two lengths that depend on symbols"),
        (lambda x, i: x[i : i * i + 9], cl.OutOfBoundsError, "reaches outside dimension 0"),
        (lambda x, i: x[[0, 1], i:], cl.ViewError, "an index array beside a length"),
        (lambda x, i: x[i:].reshape(3, -1), cl.ViewError, "a ragged dimension is reshaped"),
        (lambda x, i: x[i:].flatten(), cl.ViewError, "reshaped first, and look up rows of that"),
        (lambda x, i: x[i:].pad(1), cl.ViewError, "is padded"),
        (lambda x, i: cl.concatenate([x[i:], x[i:]]), cl.ViewError, "is joined"),
        (lambda x, i: x[i:].broadcast_to((2, 10, 6)), cl.ViewError, "is broadcast"),
        (lambda x, i: x[i:][0], cl.ViewError, "expected: `:` for dimension 0"),
        (lambda x, i: x[i:].reverse(0), cl.ViewError, "expected: `:` for dimension 0"),
        (lambda x, i: x[i:][:, i], cl.ViewError, "by the ragged table or slice itself"),
        (lambda x, i: x[i:][:, i:], cl.ViewError, "numbers and slices"),
        (lambda x, i: x[i : i + 1 : i], cl.ViewError, "step must be a number"),
        (lambda x, i: x[cl.table([1], offsets=[0, 1])[i]], cl.OutOfBoundsError, "expected: 0 to 0"),
        (lambda x, i: x[cl.table([9], offsets=[0, 0, 1, 1, 1])[i]], cl.OutOfBoundsError, "outside dimension 0"),
        (lambda x, i: cl.table([1.5], offsets=[0, 1]), cl.SymbolError, "other than integers in one dimension"),
        (lambda x, i: cl.table([[1]], offsets=[0, 1]), cl.SymbolError, "one row after another"),
        (lambda x, i: cl.table([1], offsets=[0.0, 1]), cl.SymbolError, "not integers in one dimension"),
        (lambda x, i: cl.table([1, 2], offsets=[0, 2, 1]), cl.SymbolError, "never decrease"),
        (lambda x, i: cl.table([1, 2], offsets=[0, 3]), cl.SymbolError, "for 2 entries"),
        (lambda x, i: cl.table([1], offsets=[0, 1])[[0]], cl.ViewError, "not looked up by one position"),
    ],
)
def test_views_that_cannot_be(view, error, says):
    with pytest.raises(error) as caught:
        view(_x(), cl.grid(4))
    assert says in str(caught.value)
    assert "test_ragged.py" in str(caught.value)


# --- connecting -------------------------------------------------------------------------------------------


@cl.codelet
def largest(x):
    return jnp.max(x)


@cl.codelet
def halves(x):
    return x[: x.shape[0] // 2]


@cl.codelet
def every_other(x):
    return jnp.stack([x[k] for k in range(0, x.shape[0], 2)])


@cl.codelet
def spread(x):
    return x - jnp.mean(x)


def test_fields_that_do_not_fit():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5,)), graph.add_variable("y", (5,))
    i = cl.grid(5)
    rows = cl.table(ENTRIES, offsets=OFFSETS)
    with pytest.raises(cl.CodeletTraceError, match=r"float32\[0\]"):
        graph.add_vertex("a", largest, x=x[rows[i]], out=y[i])
    with pytest.raises(cl.FieldTypeError, match=r"a view float32\[n\]\s+expected: float32\[floordiv\(n, 2\)\]"):
        graph.add_vertex("b", halves, x=x[i:], out=y[i:])
    with pytest.raises(cl.CodeletTraceError, match="follows no length of its inputs"):
        graph.add_vertex("b", every_other, x=x[i:], out=y[i:])
    with pytest.raises(cl.MissingFieldError, match="whose length depends on the vertex"):
        graph.add_vertex("c", spread, x=x[i:])
    with pytest.raises(cl.FieldTypeError, match=r"a view float32\[\]\s+expected: float32\[n\]"):
        graph.add_vertex("d", spread, x=x[i:], out=y[i])
    with pytest.raises(cl.FieldTypeError, match="is given a ragged table itself"):
        graph.add_vertex("e", total, x=rows[i], out=y[i])
    with pytest.raises(cl.FieldTypeError, match=r"a view float32\[m\]"):
        graph.add_vertex("f", spread, x=x[i:], out=y[: i + 1])


def test_what_it_prints():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5,)), graph.add_variable("y", (5,))
    i = cl.grid(5)
    graph.add_vertex("sums", total, x=x[cl.table(ENTRIES, offsets=OFFSETS)[i]], out=y[i])
    assert str(graph.families[0]) == (
        "sums / total: 5 vertices over i: 5\n"
        "  in    x: float32[n] = x at table[9][f0], 5 rows of 0 to 3, 9 in all\n"
        "  out   out: float32[] = y at i"
    )
    assert "in    x: float32[n] = Tensor(float32[3] of x: table[3][f0])" in str(graph.vertex("sums", i=2))
    assert repr(x[i:]) == "Tensor(float32[n] of x: f0 + table[15][f0], n from 1 to 5)"
    assert str(x[i:].shape) == "(n,)"
    assert x[i:].shape == (15,)
    assert str(graph.add_variable("z", (5, 2))[i:].T.shape) == "(2, n)"
    assert graph.num_edges == 5 + 8  # 0 and 1 are the only neighbours
    assert [vertex.number for vertex in graph.readers(x[1])] == [2, 4]
    assert [vertex.number for vertex in graph.writers(y[3])] == [3]


# --- checks -----------------------------------------------------------------------------------------------


@cl.codelet
def copied(x):
    return x


@cl.codelet
def grown(x):
    return {"x": x + 1}


def test_races_through_rows():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (6,))
    i = cl.grid(3)
    graph.add_vertex("all", copied, x=x[i : 2 * i + 1], out=y[i : 2 * i + 1])
    with pytest.raises(cl.WriteRaceError) as caught:
        cl.lower(graph, inputs=[x], outputs=[y])
    assert "write y[2]" in str(caught.value)
    assert "at i=1" in str(caught.value)
    assert "at i=2" in str(caught.value)

    graph = cl.Graph()
    x = graph.add_variable("x", (6,))
    graph.add_vertex("own", grown, x=x[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2])
    run = cl.lower(graph, inputs=[x], outputs=[x])
    np.testing.assert_array_equal(run({"x": np.arange(6, dtype=np.float32)})["x"], np.arange(6) + 1.0)
    graph.add_vertex("own", total, x=x[i], out=graph.add_variable("y", (3,))[i])
    with pytest.raises(cl.ReadWriteRaceError, match=r"writes x\[0\], which another vertex of it reads"):
        cl.lower(graph, inputs=[x], outputs=[x])

    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (6,))
    rows = cl.table([0, 1, 1, 2], offsets=[0, 1, 3, 4])
    graph.add_vertex("twice", copied, x=x[rows[i]], out=y[rows[i]])
    with pytest.raises(cl.SelfAliasError, match=r"writes y\[1\] twice"):
        cl.lower(graph, inputs=[x], outputs=[y])

    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (3,))
    graph.add_vertex("sums", total, x=x[i : 2 * i + 1], out=y[i])
    with pytest.raises(cl.UninitializedReadError, match=r"x\[0\] is read by"):
        cl.lower(graph, inputs=[], outputs=[y])


def test_tiles_of_rows():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (10,))
    i = cl.grid(4)
    graph.set_tile_mapping(x[i * 10 // 4 : (i + 1) * 10 // 4], i + 1)
    assert graph.element_tiles[:10].tolist() == [1, 1, 2, 2, 2, 3, 3, 4, 4, 4]


# --- rules ------------------------------------------------------------------------------------------------

SEGMENTED = {
    "sum": lambda x, h, w: jnp.sum(x * w),
    "mean": lambda x, h, w: jnp.mean(x) * h,
    "dot": lambda x, h, w: jnp.dot(x, w) + h,
    "largest": lambda x, h, w: jnp.max(x + w, initial=-9.0),
    "least": lambda x, h, w: jnp.min(x, initial=9.0) * jnp.sum(w),
    "any": lambda x, h, w: jnp.where(jnp.any(x > 0.2), h, 2 * h) + jnp.all(w < 9),
    "own derivative": lambda x, h, w: jnp.sum(bend(x + h)) * jnp.mean(jax.nn.relu(w)),
    "places": lambda x, h, w: jnp.sum(x * jnp.arange(x.shape[0])),
    "variance": lambda x, h, w: jnp.var(jnp.concatenate([x[:, None], w[:, None]], 1), 0).sum(),
    "softmax": lambda x, h, w: jnp.dot(jax.nn.softmax(x), w),
    "by entry": lambda x, h, w: jnp.max(jnp.cumsum(jnp.stack([x, w, x * h], 1), 1), 0, initial=-9.0).sum(),
    "outer": lambda x, h, w: (jnp.stack([x, w]) @ jnp.stack([w, x, x], 1)).sum(),
}

BUCKETED = {
    "sorted": lambda x, h, w: jnp.dot(jnp.sort(x), w),
    "running": lambda x, h, w: jnp.cumsum(x * h)[-1] + jnp.sum(w),
    "product": lambda x, h, w: jnp.prod(x) * jnp.sum(w),
    "a loop": lambda x, h, w: sum((x[k] * w[-1 - k] for k in range(x.shape[0])), h),
    "the largest's place": lambda x, h, w: w[jnp.argmax(x)] * x[0],
    "all pairs": lambda x, h, w: jnp.sum(jnp.tanh(x[:, None] - w[None, :])),
    "neighbours": lambda x, h, w: jnp.sum((x[1:] - x[:-1]) ** 2) + jnp.sum(w),
}


def nodes(codelet, lengths, seed=0):
    """A graph of one vertex for each row, over permuted entries; and values for it."""
    random = np.random.default_rng(seed)
    count, size = len(lengths), int(np.sum(lengths))
    graph = cl.Graph()
    x, w, h = (graph.add_variable(name, (n,)) for name, n in (("x", size), ("w", size), ("h", count)))
    y = graph.add_variable("y", (count,))
    rows = cl.table(random.permutation(size), offsets=np.concatenate([[0], np.cumsum(lengths)]))
    i = cl.grid(count)
    graph.add_vertex("nodes", codelet, x=x[rows[i]], h=h[i], w=w[rows[i]], out=y[i])
    values = {name: random.normal(size=n).astype(np.float32) for name, n in (("x", size), ("w", size), ("h", count))}
    return cl.lower(graph, inputs=[x, w, h], outputs=[y]), values, rows


def equations(run):
    return [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]


@few(
    "name",
    [*SEGMENTED, *BUCKETED],
    quick=["softmax", "a loop"],
)
def test_values_and_gradients(name):
    function = (SEGMENTED | BUCKETED)[name]
    lengths = [2, 4, 1, 2]
    run, values, rows = nodes(cl.codelet(function), lengths)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    own = [rows.values.values()[a:b] for a, b in itertools.pairwise(ends)]

    def plain(values):
        x, w, h = values["x"], values["w"], values["h"]
        return jnp.stack([function(x[k], h[i], w[k]) for i, k in enumerate(own)])

    weights = np.random.default_rng(1).normal(size=len(lengths))

    def with_gradient(function):
        def pulled_back(values):
            value, pull_back = jax.vjp(function, values)
            return value, pull_back(weights.astype(value.dtype))[0]

        return pulled_back

    both = at_once(with_gradient(lambda values: run(values)["y"]), with_gradient(plain))
    (value, ours), (expected, theirs) = both(values)
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-5)
    for key in values:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=2e-4, atol=2e-5, err_msg=key)


@few("name", SEGMENTED, quick=["dot"])
def test_the_number_of_equations_does_not_depend_on_the_lengths(name):
    codelet = cl.codelet(SEGMENTED[name])
    few, many = (nodes(codelet, lengths)[0] for lengths in ([2, 3], range(1, 30)))
    assert equations(few) == equations(many)


@pytest.mark.slow
def test_what_caches_ask_of_lengths_by_chance_changes_nothing(monkeypatch):
    function = SEGMENTED["own derivative"]
    expected = equations(nodes(cl.codelet(function), range(1, 9))[0])
    for length in range(1, 9):
        jax.jit(jax.grad(lambda x: function(x, 1.0, x)))(np.ones(length, np.float32))  # so that caches know them all
    for length in (1, 5, 8):
        # A cache compares a key with those whose hash is the same: here every length with one of these.
        monkeypatch.setattr(Symbol, "__hash__", lambda self, length=length: hash(length))
        assert equations(nodes(cl.codelet(function), range(1, 9))[0]) == expected


def test_a_profiler_changes_nothing():
    function = SEGMENTED["own derivative"]
    expected = equations(nodes(cl.codelet(function), range(1, 9))[0])
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        found = equations(nodes(cl.codelet(function), range(1, 9))[0])
    finally:
        sys.setprofile(before)
    assert found == expected


@few("name", BUCKETED, quick=["sorted", "running", "product", "the largest's place", "all pairs", "neighbours"])
def test_other_codelets_run_once_for_each_length(name):
    codelet = cl.codelet(BUCKETED[name])
    few, same, many = (nodes(codelet, lengths)[0] for lengths in ([2, 3] * 2, [2, 3] * 5, [2, 3, 4, 5] * 2))
    assert len(equations(few)) == len(equations(same)) < len(equations(many))


def test_elements_that_are_only_reduced_are_read_in_memory_order():
    run, _, _ = nodes(cl.codelet(SEGMENTED["sum"]), [2, 5, 1])
    assert "gather" not in equations(run)
    # The message of a vertex is written in the order of the rows: the elements are looked up.
    graph = cl.Graph()
    x, y = graph.add_variable("x", (9,)), graph.add_variable("y", (9,))
    i = cl.grid(5)
    order = np.random.default_rng(0).permutation(9)
    graph.add_vertex(
        "all",
        spread,
        x=x[cl.table(order, offsets=[0, 2, 3, 5, 6, 9])[i]],
        out=y[cl.table(np.arange(9), offsets=[0, 2, 3, 5, 6, 9])[i]],
    )
    assert "gather" in equations(cl.lower(graph, inputs=[x], outputs=[y]))


def triangle(count, by_loops, codelet=total):
    """Rows of 1, 2, 3, ... elements, added by a symbol or one by one."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (count * (count + 1) // 2,)), graph.add_variable("y", (count,))
    row = lambda i: slice(i * (i + 1) // 2, (i + 1) * (i + 2) // 2)  # noqa: E731
    for i in range(count) if by_loops else [cl.grid(count)]:
        graph.add_vertex("rows", codelet, x=x[row(i)], out=y[i], tile=i % 7)
    return cl.lower(graph, inputs=[x], outputs=[y])


def test_rows_added_in_a_loop_lower_to_what_a_symbol_lowers_to():
    assert str(triangle(20, by_loops=True).jaxpr) == str(triangle(20, by_loops=False).jaxpr)
    (family,) = triangle(20, by_loops=True).families
    assert str(family).startswith("rows / total: 20 vertices added one at a time\n  in    x: float32[n]")
    few = triangle(3, by_loops=True).families
    assert [family.num_vertices for family in few] == [1, 1, 1]


def test_state_that_a_vertex_shares_with_its_row():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (3,))
    i = cl.grid(3)

    @cl.codelet
    def weighed(x, site, scale):
        return scale * jnp.sum(x) + site

    graph.add_vertex("sums", weighed, x=x[i:], site=2 * i + 1, scale=np.array([1.0, 2.0, 3.0]), out=y[i])
    values = np.arange(6, dtype=np.float32)
    expected = [(k + 1) * values[k:].sum() + 2 * k + 1 for k in range(3)]
    np.testing.assert_allclose(cl.lower(graph, inputs=[x], outputs=[y])({"x": values})["y"], expected)


def test_half_of_the_rows_empty_and_all_of_them():
    for lengths in ([0, 3, 0, 2], [0, 0]):
        run, values, _ = nodes(cl.codelet(SEGMENTED["sum"]), lengths)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        assert run(values)["y"].shape == (len(lengths),)
        assert not np.any(np.asarray(run(values)["y"])[np.diff(ends) == 0])


@examples(60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(1, 3), st.booleans())
def test_edges_are_counted_as_they_are_listed(lengths, across, first):
    random = np.random.default_rng(len(lengths))
    size = 7
    graph = cl.Graph()
    x = graph.add_variable("x", (across, size) if first else (size, across))
    rows = cl.table(random.integers(0, size, sum(lengths)), offsets=np.concatenate([[0], np.cumsum(lengths)]))
    i = cl.grid(len(lengths))
    y = graph.add_variable("y", (len(lengths),))
    graph.add_vertex("all", total, x=x[:, rows[i]] if first else x[rows[i]], out=y[i])
    assert graph.num_edges == sum(1 for _ in graph.iter_edges())


def test_a_million_messages_are_checked_within_seconds():
    random = np.random.default_rng(0)
    edges, count = 1_000_000, 100_000
    receivers = np.sort(random.integers(0, count, edges))
    graph = cl.Graph()
    x, y = graph.add_variable("x", (edges,)), graph.add_variable("y", (edges,))
    i = cl.grid(count)
    rows = cl.table(random.permutation(edges), offsets=np.searchsorted(receivers, np.arange(count + 1)))
    graph.add_vertex("all", copied, x=x[rows[i]], out=y[rows[i]])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    values = random.normal(size=edges).astype(np.float32)
    np.testing.assert_array_equal(run({"x": values})["y"], values)
