"""Emission: operands are views, whatever the access map; sums of dots are one product; nothing grows."""

import math
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.affine import Table
from codelet.views.digits import radices
from codelet.views.grids import Grid
from codelet.views.index import Index
from codelet.views.integers import affine_length, common_divisor, narrowed
from lowering import arrays
from lowering.fast.reads import plan_read
from lowering.fast.writes import plan_write
from lowering.plan.collect import normalize_family
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.strategies import dot, total


@st.composite
def access_maps(draw, injective=False):
    """A shape, and an access map into an array of that shape."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    size = math.prod(shape)
    axes = Grid([range(draw(st.integers(1, 4))) for _ in range(draw(st.integers(0, 2)))]).axes
    field = tuple(draw(st.lists(st.integers(1, 4), max_size=2)))
    keys = [*axes, *range(len(field))]
    strides = {key: draw(st.integers(-12, 12)) for key in keys}
    chosen = draw(st.sets(st.sampled_from(keys), max_size=2)) if keys else set()
    tables = ()
    random = np.random.default_rng(draw(st.integers(0, 999)))
    if chosen:
        order = tuple(key for key in keys if key in chosen)
        extents = [key.extent if not isinstance(key, int) else field[key] for key in order]
        values = random.integers(-3, 4, extents, draw(st.sampled_from([np.int32, np.int64])))
        factor, scale = (draw(st.sampled_from([1, 2, shape[-1]])) for _ in range(2))
        tables = (Table(order, values * factor, draw(st.sampled_from([scale, -scale]))),)
    symbols = tuple((axis, strides[axis]) for axis in axes if strides[axis])
    index = Index(0, field, tuple(strides[d] for d in range(len(field))), symbols, tables)
    low, high = index.bounds() or (0, 0)
    if high - low >= size:
        shape = (high - low + 1 + draw(st.integers(0, 3)), *shape[1:])
        size = math.prod(shape)
    index = index + (draw(st.integers(0, size - 1 - (high - low))) - low)
    return shape, index, axes


def extents_of(keys, index):
    return [index.extent(key) for key in keys]


@examples(30)
@given(access_maps())
def test_reading_through_any_access_map(drawn):
    shape, index, axes = drawn
    order = (*axes, *range(index.ndim))

    @jax.jit  # one compilation for all that is read
    def reading(array):
        read = plan_read(shape, index)
        return arrays.arranged(read.of(array), read.keys, order, extents_of(order, index))

    full = reading(np.arange(math.prod(shape), dtype=np.int32).reshape(shape))
    np.testing.assert_array_equal(full, index.values(axes))


@pytest.mark.slow
@examples(30)
@given(access_maps())
def test_writing_through_any_injective_access_map(drawn):
    shape, index, axes = drawn
    order = (*axes, *range(index.ndim))
    positions = index.values(axes)
    if len(np.unique(positions)) < positions.size:
        return
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    values = np.arange(-1000, positions.size - 1000, dtype=np.int32).reshape(positions.shape)
    write = plan_write(shape, index)

    @jax.jit
    def writing(array, values):
        return write.into(None if write.is_whole else array, shape, values, order)

    expected = array.reshape(-1).copy()
    expected[positions.reshape(-1)] = values.reshape(-1)
    np.testing.assert_array_equal(writing(array, values), expected.reshape(shape))


@pytest.mark.parametrize(
    ("shape", "start", "stop", "box"),
    [
        ((6, 5), 5, 25, ((6, 1, 4), (5, 0, 5))),
        ((6, 5), 6, 9, ((6, 1, 1), (5, 1, 3))),
        ((6, 5), 4, 25, ((30, 4, 21),)),
        ((3, 4, 5), 20, 60, ((3, 1, 2), (4, 0, 4), (5, 0, 5))),
        ((3, 4, 5), 25, 35, ((3, 1, 1), (4, 1, 2), (5, 0, 5))),
        ((3, 4, 5), 5, 25, ((60, 5, 20),)),
        ((1, 6, 5, 1), 5, 25, ((1, 0, 1), (6, 1, 4), (5, 0, 5), (1, 0, 1))),
    ],
)
def test_a_run_of_whole_rows_is_a_box_of_the_array(shape, start, stop, box):
    """However vertices cut it: by a divisor here, so that their edges keep to no dimension."""
    size = next(n for n in (4, 3, 2, 1) if (stop - start) % n == 0)
    view = cl.Graph().add_variable("x", (math.prod(shape),))
    i = cl.grid((stop - start) // size)
    write = plan_write(shape, view[start + size * i : start + size * i + size].index)
    assert write.radices is not None
    assert tuple(map(tuple, write.radices)) == box


def primitives(run):
    names = set()

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            names.add(eqn.primitive.name)
            for value in eqn.params.values():
                if hasattr(value, "jaxpr"):
                    visit(value.jaxpr)

    visit(run.jaxpr.jaxpr)
    return names


@cl.codelet
def stencil(c, n, s, w, e):
    return c + 0.1 * (n + s + w + e - 4 * c)


@cl.codelet
def window_sum(x):
    return jnp.sum(x * jnp.arange(x.size))


def chunked(rows, columns, chunk, spy=False, turns=None, by_loops=False):
    """A matrix-vector product of chunks, its partials maybe read by something else too."""
    graph = cl.Graph()
    x, w = graph.add_variable("x", (columns,)), graph.add_variable("w", (rows, columns))
    part, y = graph.add_variable("part", (rows, columns // chunk)), graph.add_variable("y", (rows,))
    places = (
        [(r, p) for r in range(rows) for p in range(columns // chunk)]
        if by_loops
        else [cl.grid(rows, columns // chunk)]
    )
    for row, p in places:
        field = slice(chunk * p, chunk * p + chunk)
        graph.add_vertex("multiply", dot, x=x[field], w=w[row, field], out=part[row, p])
    for row in range(rows) if by_loops else [cl.grid(rows)]:
        graph.add_vertex("add up", total, x=part[row], out=y[row])
    outputs = [y, part] if spy else [y]
    program = None if turns is None else cl.Repeat(turns, list(graph.compute_sets))
    return cl.lower(graph, program, inputs=[x, w], outputs=outputs)


VALUES = {"x": np.linspace(-1, 1, 24, dtype=np.float32), "w": np.random.default_rng(0).normal(size=(5, 24)).astype("f")}


@pytest.mark.parametrize("chunk", [1, 2, 8])
def test_sums_of_dots_become_one_product(chunk):
    run = chunked(5, 24, chunk)
    text = str(run.jaxpr)
    assert "reduce_sum" not in text
    assert text.count("dot_general") == 1
    ours, plain = with_slopes(lambda v: run(v)["y"]), with_slopes(lambda v: v["w"] @ v["x"])
    (value, (slope,)), (_, (expected,)) = at_once(ours, plain)(VALUES)
    np.testing.assert_allclose(value, VALUES["w"] @ VALUES["x"], rtol=1e-5)
    np.testing.assert_allclose(slope["w"], expected["w"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(slope["x"], expected["x"], rtol=1e-4, atol=1e-5)


def test_partials_that_are_read_elsewhere_are_kept():
    run = chunked(5, 24, 4, spy=True)
    assert "reduce_sum" in str(run.jaxpr)
    results = jax.device_get(jax.jit(run)(VALUES))
    np.testing.assert_allclose(results["part"].sum(1), results["y"], rtol=1e-5)


def test_products_form_inside_loops_too():
    run = chunked(5, 24, 4, turns=3)
    # The partials do not outlive a turn: no loop carries them.
    assert "reduce_sum" not in str(run.jaxpr)
    np.testing.assert_allclose(jax.jit(run)(VALUES)["y"], VALUES["w"] @ VALUES["x"], rtol=1e-5)


def test_loops_and_symbols_lower_to_the_same_jaxpr():
    assert str(chunked(5, 24, 4).jaxpr) == str(chunked(5, 24, 4, by_loops=True).jaxpr)


@few("size", [8, 64], quick=["8"])
def test_affine_reads_need_no_gather_and_do_not_grow(size):
    graph = cl.Graph()
    u, v = graph.add_variable("u", (size, size)), graph.add_variable("v", (size, size))
    i, j = cl.grid(range(1, size - 1), range(1, size - 1))
    graph.add_vertex(
        "heat", stencil, c=u[i, j], n=u[i - 1, j], s=u[i + 1, j], w=u[i, j - 1], e=u[i, j + 1], out=v[i, j]
    )
    run = cl.lower(graph, inputs=[u, v], outputs=[v])
    assert not primitives(run) & {"gather", "scatter", "concatenate"}
    assert len(run.jaxpr.jaxpr.eqns) == 13
    values = np.random.default_rng(0).normal(size=(size, size)).astype("f")
    inner = values[1:-1, 1:-1]
    around = values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:]
    expected = values.copy()
    expected[1:-1, 1:-1] = inner + 0.1 * (around - 4 * inner)
    np.testing.assert_allclose(run({"u": values, "v": values})["v"], expected, rtol=1e-5)


@pytest.mark.parametrize("size", [6, 40])
def test_a_padded_read_is_one_pad(size):
    graph = cl.Graph()
    x = graph.add_variable("x", (2, size, size))
    oy, ox = cl.grid(size, size)
    window = x.pad(((0, 0), (1, 1), (1, 1)), value=0.5)[:, oy : oy + 3, ox : ox + 3]
    y = graph.add_vertex("windows", total, x=window)
    run = cl.lower(graph, inputs=[x], outputs=[y])
    names = [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]
    assert names.count("pad") == 1
    assert not set(names) & {"gather", "concatenate", "scatter"}
    assert len(names) == 37  # a slice for each of 18 elements, added up in the shape that these have
    values = np.random.default_rng(0).normal(size=(2, size, size)).astype("f")
    padded = np.pad(values, ((0, 0), (1, 1), (1, 1)), constant_values=0.5)
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).sum((0, 3, 4))
    np.testing.assert_allclose(next(iter(jax.jit(run)({"x": values}).values())), expected, rtol=1e-4, atol=1e-4)


def test_padding_may_be_returned_and_has_no_gradient():
    layer = cl.lower(lambda graph, x: {"constant": x.pad(1, value=2), "reflect": x.pad((0, 3), "reflect")})
    results = layer(np.arange(3.0))
    np.testing.assert_array_equal(results["constant"], [2, 0, 1, 2, 2])
    np.testing.assert_array_equal(results["reflect"], [0, 1, 2, 1, 0, 1])
    slope = jax.grad(lambda x: layer(x)["constant"].sum() + layer(x)["reflect"].sum())(jnp.arange(3.0))
    np.testing.assert_array_equal(slope, [3, 4, 2])


def test_a_view_that_names_elements_twice_is_written_once():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    i = cl.grid(4)
    graph.add_vertex("set", total, x=y[i], out=cl.concatenate([x, x.reverse(0)])[i])
    run = cl.lower(graph, inputs=[y], outputs=[x])
    np.testing.assert_array_equal(run({"y": np.arange(4.0)})["x"], np.arange(4))


def test_wrap_around_is_slices_of_the_array_extended():
    graph = cl.Graph()
    u = graph.add_variable("u", (32, 16))
    i, j = cl.grid(32, 16)
    v = graph.add_vertex("shift", total, x=u[(i + 1) % 32, (j - 1) % 16])
    run = cl.lower(graph, inputs=[u], outputs=[v])
    assert not jax.tree.leaves(run)
    assert {eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns} == {"slice", "concatenate"}
    values = np.arange(512, dtype=np.float32).reshape(32, 16)
    expected = np.roll(np.roll(values, -1, 0), 1, 1)
    np.testing.assert_array_equal(next(iter(jax.jit(run)({"u": values}).values())), expected)


def test_equations_do_not_grow_with_windows():
    def equations(width):
        graph = cl.Graph()
        x = graph.add_variable("x", (2000,))
        i = cl.grid(1000)
        y = graph.add_vertex("windows", window_sum, x=x[i : i + width])
        run = cl.lower(graph, inputs=[x], outputs=[y])
        values = np.random.default_rng(0).normal(size=2000).astype("f")
        windows = np.lib.stride_tricks.sliding_window_view(values, width)[:1000]
        np.testing.assert_allclose(
            next(iter(jax.jit(run)({"x": values}).values())), windows @ np.arange(width), rtol=1e-3, atol=1e-2
        )
        return len(run.jaxpr.jaxpr.eqns)

    assert equations(100) == equations(900) < 20


def patches(starts, size=12, twice=False):
    """Families that each read and write a part of 4 elements, by a static value of its own."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (size,))
    scale = cl.codelet(lambda x, *, by: by * x)
    for k, start in enumerate(starts):
        i = cl.grid(4)
        graph.add_vertex("scale", scale, x=x[start - twice * (k > 0) + i], out=y[start + i], by=k + 1.0)
    return cl.lower(graph, inputs=[x, y], outputs=[y])


def test_parts_are_read_by_one_split_and_written_by_one_concatenate():
    values = {"x": np.arange(12.0), "y": -np.ones(12)}
    run = patches([8, 0, 4])
    names = [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]
    assert sorted(names) == ["concatenate", "mul", "mul", "mul", "split"]
    np.testing.assert_array_equal(run(values)["y"], np.arange(12.0) * np.repeat([2, 3, 1], 4))
    slope = jax.grad(lambda x: (run({**values, "x": x})["y"] * jnp.arange(12.0)).sum())(jnp.ones(12))
    np.testing.assert_array_equal(slope, np.arange(12.0) * np.repeat([2, 3, 1], 4))


def test_parts_with_a_gap_keep_what_is_between():
    run = patches([8, 0])
    assert primitives(run) >= {"concatenate", "split"}
    expected = [0, 2, 4, 6, -1, -1, -1, -1, 8, 9, 10, 11]
    np.testing.assert_array_equal(run({"x": np.arange(12.0), "y": -np.ones(12)})["y"], expected)


def test_parts_that_overlap_are_not_split():
    run = patches([0, 4, 8], twice=True)
    assert "split" not in primitives(run)
    expected = [0, 1, 2, 3, 6, 8, 10, 12, 21, 24, 27, 30]
    np.testing.assert_array_equal(run({"x": np.arange(12.0), "y": np.zeros(12)})["y"], expected)


def checkerboard(rows, columns, kinds=2):
    """Sites of one colour in even rows and in odd rows; with one kind, only those in even rows."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (rows, columns)), graph.add_variable("y", (rows, columns))
    for row in range(kinds):
        i, j = cl.grid(range(row, rows, 2), range(row, columns, 2))
        graph.add_vertex("black", total, x=x[i, j], out=y[i, j])
    return cl.lower(graph, inputs=[x, y], outputs=[y])


def test_strided_writes_that_interleave_are_stacked():
    run = checkerboard(8, 6)
    assert "concatenate" in primitives(run)
    assert not primitives(run) & {"dynamic_update_slice", "scatter"}
    random = np.random.default_rng(0)
    values = {name: random.normal(size=(8, 6)).astype("f") for name in "xy"}
    black = np.add.outer(np.arange(8) % 2, np.arange(6) % 2) != 1
    weights = random.normal(size=(8, 6)).astype("f")
    results, slopes = at_once(run, jax.grad(lambda values: (run(values)["y"] * weights).sum()))(values)
    np.testing.assert_array_equal(results["y"], np.where(black, values["x"], values["y"]))
    np.testing.assert_array_equal(slopes["x"], np.where(black, weights, 0))
    np.testing.assert_array_equal(slopes["y"], np.where(black, 0, weights))


def test_strided_writes_that_fill_a_variable_need_no_old_value():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (12,)), graph.add_variable("y", (12,))
    for k in (2, 0, 1):
        i = cl.grid(range(k, 12, 3))
        graph.add_vertex("third", total, x=x[11 - i], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert not primitives(run) & {"dynamic_update_slice", "scatter"}
    np.testing.assert_array_equal(run({"x": np.arange(12.0)})["y"], np.arange(12.0)[::-1])


@pytest.mark.parametrize(("shape", "kinds"), [((8, 6), 1), ((7, 6), 2)])
def test_one_strided_write_and_those_without_a_reshape_are_not_stacked(shape, kinds):
    run = checkerboard(*shape, kinds=kinds)
    assert "concatenate" not in primitives(run)
    values = {"x": np.arange(shape[0] * shape[1], dtype="f").reshape(shape), "y": -np.ones(shape, "f")}
    written = np.add.outer(np.arange(shape[0]) % 2, np.arange(shape[1]) % 2) != 1
    written[1::2] &= kinds == 2
    np.testing.assert_array_equal(jax.jit(run)(values)["y"], np.where(written, values["x"], values["y"]))


# --- normal form ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=12), st.sampled_from([1, 6, 2**29]), st.integers(1, 4))
def test_what_is_found_out_about_tables_block_by_block(numbers, factor, block):
    values = np.asarray(numbers) * factor
    low = int(values.min())
    steps = np.diff(values)
    with mock.patch("codelet.views.integers._BLOCK", block):
        assert common_divisor(values, low) == np.gcd.reduce(values - low)
        length = affine_length(values)
    assert (steps[: length - 1] == steps[:1]).all()
    assert length == len(values) or steps[length - 1] != steps[0]
    narrow = narrowed(values)
    fits = values.min() >= -(2**31) and values.max() < 2**31
    assert narrow.dtype == (np.int32 if fits else np.int64)
    np.testing.assert_array_equal(narrow, values)


def test_state_and_constants_keep_64_bits_under_x64():
    @cl.codelet
    def add(a, k, t):
        return a + k + t

    with jax.enable_x64(True):
        graph, i = cl.Graph(), cl.grid(100)
        order = np.random.default_rng(0).permutation(100)
        a = graph.add_constant("a", np.arange(100))
        y = graph.add_variable("y", (100,), "int64")
        wide = cl.table(order * 10**8 - 3 * 10**9)[i] * 3
        graph.add_vertex("set", add, a=a[i], k=7 * i - 3 * 10**9, t=wide, out=y[i])
        found = cl.lower(graph, inputs=[], outputs=[y])({})["y"]
    expected = np.arange(100) + 7 * np.arange(100) - 3 * 10**9 + (order * 10**8 - 3 * 10**9) * 3
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[0, 1, 2, 3]], [4]),
        ([[5, 5, 5]], [3]),
        ([[0, 1, 10, 11, 20, 21]], [3, 2]),
        ([[0, 0, 1, 1], [0, 1, 0, 1]], [2, 2]),
        ([[0, 1, 2, 4, 5, 6, 3, 4, 5]], [3, 3]),
        ([[3, 1, 4, 1, 5]], [5]),
        ([[0, 1, 0, 1, 7, 8, 7, 8]], [2, 2, 2]),
        ([[7]], []),
    ],
)
def test_the_axes_of_loops_are_found_again(columns, expected):
    assert radices([np.asarray(column) for column in columns]) == expected


def test_a_family_prints_in_normal_form():
    graph = cl.Graph()
    x = graph.add_variable("x", (4, 3, 1, 10))
    y = graph.add_variable("y", (10, 12))
    i, j, k, m = cl.grid(4, 3, 1, 10)
    graph.add_vertex("move", total, x=x[i, j, k, m], out=y[9 - m, 3 * i + j])
    (family,) = graph.families
    assert str(normalize_family(family)) == (
        "move / total: 120 vertices over m: 10 x i*j: 12\n"
        "  in    x: float32[] = x at m + 10*i*j\n"
        "  out   out: float32[] = y at 108 - 12*m + i*j"
    )


def test_a_quotient_becomes_an_axis():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (12,))
    i = cl.grid(12)
    graph.add_vertex("spread", total, x=x[i // 4], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert re.search(r"x at i\.0$", str(run.families[0]), re.M)
    assert "gather" not in primitives(run)
    np.testing.assert_array_equal(run({"x": np.arange(3.0)})["y"], np.repeat(np.arange(3), 4))


@pytest.mark.parametrize("alone", [True, False])
def test_a_run_that_two_axes_write_from_an_odd_place_on_is_a_box(alone):
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3, 2)), graph.add_variable("y", (7,))
    i, j = cl.grid(2, 3)
    step, twice = graph.add_compute_set("step"), cl.codelet(lambda x: 2 * x)
    graph.add_vertex(step, twice, x=x[j, i], out=y[1 + 3 * i + j])
    if not alone:
        graph.add_vertex(step, twice, x=x[0, 0], out=y[0])
    run = cl.lower(graph, inputs=[x, y], outputs=[y])
    assert "scatter" not in str(run.jaxpr)
    values = {"x": np.arange(6.0).reshape(3, 2), "y": -np.ones(7)}
    np.testing.assert_array_equal(run(values)["y"], cl.interpret(graph, values=values, outputs=["y"])["y"])


@pytest.mark.parametrize(("row", "size", "count", "start"), [(16, 6, 2, 0), (17, 5, 3, 2), (13, 3, 4, 0)])
def test_blocks_that_leave_some_of_every_row_are_a_box_of_it(row, size, count, start):
    """Rows of two arrays, cut by what divides no row: an array of three dimensions, of which two are one variable's."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, (3, 2 * row)) for name in "xy")
    step, own = graph.add_compute_set("step"), cl.grid(3, 2, count)
    at = own[1] * row + own[2] * size + start
    graph.add_vertex(step, cl.codelet(lambda x: 2 * x), x=x[own[0], at : at + size], out=y[own[0], at : at + size])
    run = cl.lower(graph, inputs=[x, y], outputs=[y])
    assert "scatter" not in str(run.jaxpr)
    assert "gather" not in str(run.jaxpr)
    values = {"x": np.arange(6.0 * row).reshape(3, -1), "y": -np.ones((3, 2 * row))}
    np.testing.assert_array_equal(run(values)["y"], cl.interpret(graph, values=values, outputs=["y"])["y"])
