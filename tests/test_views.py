"""Views are NumPy's: any chain of them on the numbers of a variable's elements equals NumPy's own."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.vertices import gather
from codelet.views.sources import source_variables
from tests.drawn_dtypes import OF_WORDS
from tests.drawn_views import padded_numbers, viewed
from tests.examples import examples


def check_views(pair):
    """See that a tensor is the view that NumPy makes of the numbers of elements."""
    tensor, array = pair
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(tensor.elements(), array.clip(-1))
    # What is padding holds its value: seen through arrays that hold the numbers themselves.
    arrays = {own.first_element: np.arange(own.size) + own.first_element for own in tensor.graph.sources}
    values = gather({k: own.astype(tensor.dtype) for k, own in arrays.items()}, tensor)
    np.testing.assert_array_equal(np.where(array < 0, -1 - values, values), array)


@examples(100)
@given(viewed())
def test_any_chain_of_views_is_numpys(pair):
    check_views(pair)


@pytest.mark.slow
@examples(2000)
@given(viewed())
def test_very_many_chains_of_views_are_numpys(pair):
    check_views(pair)


def check_read(pair):
    """See that an engine reads what its variables hold through a view, padding of it too."""
    tensor, array = pair
    variables = tensor.graph.sources
    numbers = np.arange(max(own.first_element + own.size for own in variables) + 1) * 3 % 2  # by numbers of elements
    held = {own: numbers[own.first_element : own.first_element + own.size] for own in variables}
    engine = cl.Engine(tensor.graph, cl.Sequence())
    engine.write({own.name: values.reshape(own.shape).astype(tensor.dtype) for own, values in held.items()})
    found = np.asarray(engine.read(tensor))
    assert found.dtype == tensor.dtype
    expected = np.where(array < 0, -1 - array, numbers[array.clip(-1)]).astype(tensor.dtype)
    np.testing.assert_array_equal(found.astype(np.complex64), expected.astype(np.complex64))


@examples(40)
@given(st.sampled_from(OF_WORDS).flatmap(viewed))
def test_engines_read_views_of_every_dtype(pair):
    check_read(pair)


@pytest.mark.slow
@examples(1000)
@given(st.sampled_from(OF_WORDS).flatmap(viewed))
def test_engines_read_very_many_views_of_every_dtype(pair):
    check_read(pair)


@st.composite
def expressions(draw, depth=3):
    """An index expression over i and j, as source text."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["i", "j", "t[i]", "u[i, j]", str(draw(st.integers(-3, 7)))]))
    left, right = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    operator = draw(st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "0 *", "min", "max", "if"]))
    if operator in ("min", "max"):
        return f"{operator}imum({left}, {right})"
    if operator == "if":
        comparison = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        return f"where({left} {comparison} {right}, {draw(expressions(depth=depth - 1))}, {left})"
    if operator in ("//", "%", "<<", ">>"):
        right = str(draw(st.integers(1, 6)))
    return f"({left} - {left} + 0 * {right})" if operator == "0 *" else f"({left} {operator} {right})"


def check_expression(text, extents, step):
    """See that an index expression is the numbers that NumPy computes of it."""
    random = np.random.default_rng(0)
    t, u = random.integers(0, 9, 40), random.integers(0, 9, (40, 5))
    ranges = [range(0, extents[0] * step, step), range(extents[1])]
    i, j = cl.grid(*ranges)
    chosen = {name: getattr(cl, name) for name in ("minimum", "maximum", "where")}
    symbolic = eval(text, {"i": i, "j": j, "t": cl.table(t), "u": cl.table(u), **chosen})
    rows, columns = (np.asarray(r) for r in ranges)
    chosen = {name: getattr(np, name) for name in chosen}
    numeric = eval(text, {"i": rows[:, None], "j": columns[None, :], "t": t, "u": u, **chosen})
    if not isinstance(symbolic, cl.Index):
        assert symbolic == numeric
        return
    axes = (i.axes[0], j.axes[0])
    expected = np.broadcast_to(numeric, tuple(map(len, ranges)))
    assert symbolic.axes == tuple(
        axis for axis, name in zip(axes, "ij", strict=True) if re.search(rf"\b{name}\b", text)
    )
    np.testing.assert_array_equal(symbolic.values(axes), expected)
    assert symbolic.bounds() == (expected.min(), expected.max())


over_two_axes = given(expressions(), st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(1, 3))


@examples(150)
@over_two_axes
def test_index_expressions_are_numpys(text, extents, step):
    check_expression(text, extents, step)


@pytest.mark.slow
@examples(2000)
@over_two_axes
def test_very_many_index_expressions_are_numpys(text, extents, step):
    check_expression(text, extents, step)


@examples(100)
@given(viewed(), st.integers(1, 5), st.integers(1, 40))
def test_blocks_are_the_values_in_order(pair, extent, limit):
    tensor, _ = pair
    i, j = cl.grid(extent, 3)
    index = tensor.index + 5 * i + (i * j)
    whole = index.values((i.axes[0], j.axes[0])).reshape(3 * extent, *index.shape)
    blocks = list(index.blocks((i.axes[0], j.axes[0]), limit))
    starts = [start for start, _ in blocks]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), whole)
    assert starts == list(np.cumsum([0, *(len(block) for _, block in blocks[:-1])]))


def test_symbols_index_a_view_as_loops_would():
    graph = cl.Graph()
    w = graph.add_variable("w", (6, 8)).T.reshape(4, 12)
    row, part = cl.grid(range(1, 4), 3)
    field = w[row, 4 * part : 4 * part + 4]
    numbers = np.arange(48).reshape(6, 8).T.reshape(4, 12)
    expected = [[numbers[r, 4 * p : 4 * p + 4] for p in range(3)] for r in range(1, 4)]
    np.testing.assert_array_equal(field.elements(field.axes), expected)


def test_a_table_with_more_axes_than_symbols_gathers_a_field():
    graph = cl.Graph()
    x = graph.add_variable("x", (10, 2))
    near = np.array([[1, 5, 9], [0, 0, 2]])
    i = cl.grid(2)
    field = x[cl.table(near)[i], 1]
    assert field.shape == (3,)
    np.testing.assert_array_equal(field.elements(i.axes), near * 2 + 1)


def test_the_length_of_a_slice_between_two_equal_tables_is_known():
    graph = cl.Graph()
    x, starts = graph.add_variable("x", (20,)), np.array([3, 9, 0])
    i = cl.grid(3)
    field = x[cl.table(starts)[i] : cl.table(starts)[i] + 4]
    np.testing.assert_array_equal(field.elements(i.axes), starts[:, None] + np.arange(4))


def test_remainder_wraps_and_a_symbol_does_not():
    graph = cl.Graph()
    x = graph.add_variable("x", (5,))
    i = cl.grid(5)
    np.testing.assert_array_equal(x[(i - 1) % 5].elements(i.axes), [4, 0, 1, 2, 3])
    with pytest.raises(cl.OutOfBoundsError, match="reaches outside dimension 0") as caught:
        x[i - 1]
    assert "-1 to 3" in str(caught.value)
    assert "use `%` to wrap around" in str(caught.value)


@pytest.mark.parametrize("use", [bool, int, float, len, lambda i: i == 0 or 1, lambda i: min(i, 3), lambda i: range(i)])
def test_a_symbol_is_no_number(use):
    i = cl.grid(4)
    with pytest.raises(cl.SymbolError, match="while the graph is built"):
        use(i)


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect"])
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
@pytest.mark.parametrize("widths", [(7, 9), (0, 11), (4, 0), 6])
def test_padding_wider_than_the_dimension_is_numpys(mode, extent, widths):
    x = cl.Graph().add_variable("x", (extent,))
    np.testing.assert_array_equal(x.pad(widths, mode).elements(), padded_numbers(np.arange(extent), widths, mode))


def test_symbols_index_a_padded_tensor_and_are_padded_as_loops_would():
    graph = cl.Graph()
    x = graph.add_variable("x", (2, 4, 5))
    oy, ox = cl.grid(4, range(0, 5, 2))
    window = x.pad(((0, 0), (1, 1), (1, 1)))[:, oy : oy + 3, ox : ox + 3]
    numbers = np.arange(40).reshape(2, 4, 5)
    padded = padded_numbers(numbers, ((0, 0), (1, 1), (1, 1)), "constant")
    expected = [[padded[:, i : i + 3, j : j + 3] for j in range(0, 5, 2)] for i in range(4)]
    np.testing.assert_array_equal(window.elements(window.axes), expected)
    # The other way round: what depends on symbols is padded.
    for mode in ("constant", "edge", "wrap", "reflect"):
        row = x[1, oy, ox : ox + 1].pad((1, 2), mode)
        expected = [[padded_numbers(numbers[1, i, j : j + 1], (1, 2), mode) for j in range(0, 5, 2)] for i in range(4)]
        np.testing.assert_array_equal(row.elements(row.axes), expected)


def test_pads_and_joins_nest():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (2,)), graph.add_variable("y", (3,))
    inner = x.pad(1)
    np.testing.assert_array_equal(inner.pad((0, 1), value=2).elements(), [-1, 0, 1, -1, -1])
    np.testing.assert_array_equal(cl.concatenate([inner, y]).elements(), [-1, 0, 1, -1, 3, 4, 5])
    np.testing.assert_array_equal(cl.concatenate([x, y]).pad(1).elements(), [-1, 0, 1, 3, 4, 5, -1])
    assert repr(cl.concatenate([inner, y])) == "Tensor(float32[7] of pad(concat(x, y), 0.0): f0)"
    assert x.pad(0) is x


def test_views_of_two_graphs_do_not_join():
    a, b = cl.Graph().add_variable("a", (2,)), cl.Graph().add_variable("b", (2,))
    with pytest.raises(cl.ForeignGraphError):
        cl.concatenate([a, b])


@pytest.mark.parametrize(
    ("view", "error", "says"),
    [
        (lambda x: x[4], cl.OutOfBoundsError, "expected: 0 to 3"),
        (lambda x: x[-5], cl.OutOfBoundsError, "given:    -5"),
        (lambda x: x[[0, 4]], cl.OutOfBoundsError, "reaches outside dimension 0"),
        (lambda x: x[0, 0, 0], cl.OutOfBoundsError, "more indices than dimensions"),
        (lambda x: x[1.5], cl.ViewError, "cannot be indexed with float"),
        (lambda x: x["a"], cl.ViewError, "cannot be indexed with str"),
        (lambda x: x[..., ...], cl.ViewError, "more than one ellipsis"),
        (lambda x: x[cl.grid(4) :, cl.grid(6) :], cl.ViewError, "lengths that depend on symbols"),
        (lambda x: x.reshape(5, 5), cl.ViewError, "changes the number of elements"),
        (lambda x: x.transpose(0, 0), cl.ViewError, "does not name each dimension once"),
        (lambda x: x.broadcast_to((5, 6)), cl.ViewError, "cannot be broadcast"),
        (lambda x: x.squeeze(0), cl.ViewError, "more than one element"),
        (lambda x: x.reverse(2), cl.ViewError, "a dimension does not exist"),
        (lambda x: cl.concatenate([x, x[0]]), cl.ViewError, "do not fit together"),
        (lambda x: cl.concatenate([]), cl.ViewError, "nothing to join"),
        (lambda x: x.pad(-1), cl.ViewError, "negative width"),
        (lambda x: x.pad(((0, 1), (0, -1)), "edge"), cl.ViewError, "cut elements off by slicing"),
        (lambda x: x.pad((1, 2, 3)), cl.ViewError, "expected: non-negative integers: 2 pairs (before, after)"),
        (lambda x: x.pad(0.5), cl.ViewError, "not integers"),
        (lambda x: x.pad(cl.grid(2)), cl.ViewError, "do not fit a tensor of shape (4, 6)"),
        (lambda x: x.pad(0, "symmetric"), cl.ViewError, "expected: 'constant' or 'edge' or 'wrap' or 'reflect'"),
        (lambda x: x.pad(1, "edge", 2), cl.ViewError, "mode 'edge' is given a value"),
        (lambda x: x[:0].pad(1, "wrap"), cl.ViewError, "empty dimension"),
        (lambda x: x.pad(1, value=1j), cl.FieldTypeError, "expected: a number of dtype float32"),
        (lambda x: x.pad(1, value=1e40), cl.FieldTypeError, "given:    value=1e+40"),
        (lambda x: x.pad(1, value=[1, 2]), cl.FieldTypeError, "the dtype cannot hold"),
        (lambda x: x.pad(1, value=cl.grid(2)), cl.FieldTypeError, "the dtype cannot hold"),
    ],
)
def test_views_that_cannot_be(view, error, says):
    x = cl.Graph().add_variable("x", (4, 6))
    with pytest.raises(error) as caught:
        view(x)
    assert says in str(caught.value)
    assert "test_views.py" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        ("float32", float("-inf"), -np.inf),
        ("float32", float("nan"), np.nan),
        ("int32", 3.0, 3),
        ("int32", 0.5, None),
        ("int32", float("nan"), None),
        ("int32", 2**31, None),
        ("uint8", -1, None),
        ("uint32", 2**32 - 1, 2**32 - 1),
        ("bool", True, True),
        ("bool", 2, None),
        ("complex64", 1j, 1j),
        ("bfloat16", 0.5, 0.5),
        ("bfloat16", 1e39, None),
    ],
)
def test_padding_holds_what_the_dtype_holds(dtype, value, held):
    x = cl.Graph().add_variable("x", (2,), dtype)
    if held is None:
        with pytest.raises(cl.FieldTypeError, match="cannot hold"):
            x.pad(1, value=value)
        return
    returned = cl.lower(lambda graph, x: x.pad((1, 0), value=value))(np.ones(2, x.dtype))
    np.testing.assert_array_equal(np.asarray(returned), np.array([held, 1, 1], x.dtype))
    assert returned.dtype == x.dtype


def test_joins_of_joins_are_one_join():
    graph = cl.Graph()
    x, y, z = (graph.add_variable(name, (n, 2)) for name, n in (("x", 3), ("y", 1), ("z", 2)))
    grown = cl.concatenate([cl.concatenate([x, y]), z, cl.concatenate([y, x])])
    assert repr(grown) == "Tensor(float32[10,2] of concat(x, y, z, y, x): 2*f0 + f1)"
    assert [variable.name for variable in source_variables(grown.source)] == ["x", "y", "z"]
    # So are those along another dimension, and what is seen of one of which a part is joined, beside padding.
    wide = cl.concatenate([cl.concatenate([x, x], 1), cl.concatenate([y, y], 1)])
    assert str(wide.source) == "concat(x, x, y, y)"
    part, padded = cl.concatenate([x, y])[1:], z.pad(((1, 0), (0, 0)))
    mixed = cl.concatenate([part, padded])
    assert str(mixed.source) == "pad(concat(x, y, z), 0.0)"
    assert (mixed.source.has_padding, grown.source.has_padding) == (True, False)
    numbers = [view.elements() for view in (x, y, z)]
    np.testing.assert_array_equal(grown.elements(), np.concatenate([*numbers, numbers[1], numbers[0]]))
    below = [np.concatenate(numbers[:2])[1:], np.full((1, 2), -1), numbers[2]]
    np.testing.assert_array_equal(mixed.elements(), np.concatenate(below))
