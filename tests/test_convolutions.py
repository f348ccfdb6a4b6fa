"""Windows: a dot over windows is a convolution, just where it is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.strategies import total


@cl.codelet
def inner(x, w):
    return jnp.vdot(x, w)


@cl.codelet
def multiply_and_add(x, w):
    return jnp.sum(x * w)


@cl.codelet
def squared_distance(x, w):
    return jnp.sum((x - w) ** 2)


def names(layer, *arrays):
    return [eqn.primitive.name for eqn in layer.at(*arrays).jaxpr.jaxpr.eqns]


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def layer(codelet, size=3, stride=1, dilation=1):
    """A two-dimensional convolution, one vertex for each value."""

    def build(graph, x, w):
        images, _, height, _ = x.shape
        span = dilation * (size - 1) + 1
        count = (height - span) // stride + 1
        n, o, i, j = cl.grid(images, len(w), count, count)
        window = [slice(stride * k, stride * k + span, dilation) for k in (i, j)]
        return graph.add_vertex("convolve", codelet, x=x[n, :, window[0], window[1]], w=w[o])

    return cl.lower(build)


@pytest.mark.parametrize("codelet", [inner, multiply_and_add])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_a_dot_over_windows_is_a_convolution(codelet, stride, dilation):
    x, w = normal(2, 3, 13, 13), normal(4, 3, 3, 3)
    ours = layer(codelet, stride=stride, dilation=dilation)
    plain = lambda x, w: lax.conv_general_dilated(x, w, (stride,) * 2, "VALID", rhs_dilation=(dilation,) * 2)  # noqa: E731
    found = names(ours, x, w)
    assert found.count("conv_general_dilated") == 1
    assert not set(found) & {"gather", "concatenate", "stack"}
    (value, slopes), (expected_value, expected) = at_once(with_slopes(ours), with_slopes(plain))(x, w)
    np.testing.assert_allclose(value, expected_value, rtol=1e-4, atol=1e-4)
    for slope, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("value", "folded"), [(0, True), (2, False)])
def test_zeros_around_are_the_convolutions_own(value, folded):
    def build(graph, x, w):
        padded = x.pad(((0, 0), (0, 0), (1, 2), (2, 0)), value=value)
        n, o, i, j = cl.grid(2, 4, 7, 6)
        return graph.add_vertex("convolve", inner, x=padded[n, :, i : i + 3, j : j + 3], w=w[o])

    x, w = normal(2, 3, 6, 6), normal(4, 3, 3, 3)
    ours = cl.lower(build)
    found = names(ours, x, w)
    assert found.count("conv_general_dilated") == 1
    assert ("pad" in found) is not folded

    def plain(x, w):
        around = jnp.pad(x, ((0, 0), (0, 0), (1, 2), (2, 0)), constant_values=value)
        return lax.conv_general_dilated(around, w, (1, 1), "VALID")

    (made, slopes), (expected, others) = at_once(with_slopes(ours), with_slopes(plain))(x, w)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    for slope, other in zip(slopes, others, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-3, atol=1e-3)


def test_another_codelet_over_windows_is_none():
    x, w = normal(1, 2, 6, 6), normal(2, 2, 3, 3)
    assert "conv_general_dilated" not in names(layer(squared_distance), x, w)


def test_windows_that_do_not_overlap_are_a_matrix_product():
    x, w = normal(1, 2, 9, 9), normal(2, 2, 3, 3)
    found = names(layer(inner, stride=3), x, w)
    assert "conv_general_dilated" not in found
    assert "dot_general" in found


@pytest.mark.parametrize("columns", [5, 6])
def test_columns_side_by_side_are_a_matrix_product(columns):
    """Each ends behind where the next begins, as windows that overlap do, but has no element in common with it."""
    graph = cl.Graph()
    a, w = graph.add_variable("a", (6, columns)), graph.add_variable("w", (6,))
    out = graph.add_variable("out", (columns,))
    flat = a.reshape(6 * columns)
    j = cl.grid(columns)
    graph.add_vertex("multiply", inner, x=flat[j : j + 5 * columns + 1 : columns], w=w, out=out[j])
    run = cl.lower(graph, inputs=[a, w], outputs=[out])
    found = [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]
    assert "conv_general_dilated" not in found
    assert "dot_general" in found
    x, v = normal(6, columns), normal(6)
    np.testing.assert_allclose(run.flat([x, v])[0], v @ x, rtol=1e-5)


def grouped(graph, x, w, *, apart):
    """A convolution in groups; `apart` where they are a dimension of the images of their own."""
    images, groups, filters = x.shape[0], *w.shape[:2]
    channels = w.shape[2]
    n, g, o, i, j = cl.grid(images, groups, filters, 5, 4)
    window = (slice(2 * i, 2 * i + 3), slice(j, j + 3))
    view = x[(n, g, slice(None), *window)] if apart else x[(n, slice(channels * g, channels * g + channels), *window)]
    return graph.add_vertex("convolve", inner, x=view, w=w[g, o])


@pytest.mark.parametrize(("channels", "filters", "apart"), [(2, 3, False), (2, 3, True), (1, 1, True), (1, 2, False)])
def test_a_kernel_for_each_group_of_channels_is_one_convolution(channels, filters, apart):
    x, w = normal(2, *((4, channels) if apart else (4 * channels,)), 11, 6), normal(4, filters, channels, 3, 3)
    lowered = cl.lower(grouped)
    eqns = lowered.at(x, w, apart=apart).jaxpr.jaxpr.eqns
    (one,) = [eqn for eqn in eqns if eqn.primitive.name == "conv_general_dilated"]
    assert one.params["feature_group_count"] == 4

    def plain(x, w):
        made = lax.conv_general_dilated(
            x.reshape(2, -1, 11, 6), w.reshape(-1, channels, 3, 3), (2, 1), "VALID", feature_group_count=4
        )
        return made.reshape(2, 4, filters, 5, 4)

    ours = lambda x, w: lowered(x, w, apart=apart)  # noqa: E731
    (value, slopes), (expected, others) = at_once(with_slopes(ours), with_slopes(plain))(x, w)
    for made, other in zip((value, *slopes), (expected, *others), strict=True):
        np.testing.assert_allclose(made, other, rtol=1e-3, atol=1e-3)


def test_a_kernel_that_moves_with_the_window_is_none():
    def build(graph, x, w):
        i = cl.grid(5)
        return graph.add_vertex("local", inner, x=x[i : i + 3], w=w[i])

    x, w = normal(7), normal(5, 3)
    ours = cl.lower(build)
    assert "conv_general_dilated" not in names(ours, x, w)
    np.testing.assert_allclose(jax.jit(ours)(x, w), [x[i : i + 3] @ w[i] for i in range(5)], rtol=1e-5)


def test_integers_are_not_convolved():
    x, w = np.arange(9, dtype=np.int32), np.arange(3, dtype=np.int32)
    ours = cl.lower(lambda graph, x, w: graph.add_vertex("sum", inner, x=x[(i := cl.grid(7)) : i + 3], w=w))
    assert "conv_general_dilated" not in names(ours, x, w)
    np.testing.assert_array_equal(jax.jit(ours)(x, w), np.correlate(x, w))


def test_a_window_alone_is_none():
    ours = cl.lower(lambda graph, x: graph.add_vertex("sum", total, x=x[(i := cl.grid(7)) : i + 3]))
    assert "conv_general_dilated" not in names(ours, normal(9))


@pytest.mark.slow
@examples(10)
@given(st.data())
def test_convolutions_mean_what_their_vertices_mean(data):
    """Any number of windows, batches and channels, in any order of dimensions of array, field and result."""
    draw = data.draw
    others = st.sampled_from(["window", "batch", "channel", "at", "group", "groups"])
    kinds = draw(st.permutations(["window", *draw(st.lists(others, max_size=3))]))
    sizes, items, field, axes, groups = [], [], [], [], []
    for kind in kinds:
        if kind == "window":
            n, k, s, d = (draw(st.integers(1, 3)) for _ in range(4))
            start = draw(st.integers(0, 2))
            sizes.append(start + (n - 1) * s + (k - 1) * d + 1 + draw(st.integers(0, 1)))
            axes.append(n)
            items.append(lambda i, start=start, s=s, d=d, k=k: slice(start + s * i, start + s * i + d * (k - 1) + 1, d))
            field.append(k)
        elif kind == "groups":  # each of some channels
            n, k, apart = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
            sizes.append(n * (k + apart))
            groups.append(len(axes))
            axes.append(n)
            items.append(lambda i, k=k, apart=apart: slice((k + apart) * i, (k + apart) * i + k))
            field.append(k)
        else:
            sizes.append(draw(st.integers(1, 3)))
            if kind in ("batch", "group"):
                groups += [len(axes)] * (kind == "group")
                axes.append(sizes[-1])
                items.append(lambda i: i)
            elif kind == "channel":
                items.append(slice(None))
                field.append(sizes[-1])
            else:
                items.append(draw(st.integers(0, sizes[-1] - 1)))
    kernels = draw(st.lists(st.integers(1, 3), max_size=1))
    widths = [(before := draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1 - before))) for n in sizes]
    bare = [n - sum(pair) for n, pair in zip(sizes, widths, strict=True)]
    graph = cl.Graph()
    shape = (*(axes[at] for at in groups), *kernels, *field)
    own, w = graph.add_variable("x", tuple(bare)), graph.add_variable("w", shape)
    x = own.pad(tuple(widths), value=draw(st.sampled_from([0, 0, 2])))
    symbols = cl.grid(*axes, *kernels, 1)
    remaining = iter(symbols)
    view = x[tuple(item(next(remaining)) if callable(item) else item for item in items)]
    chosen = (*(symbols[at] for at in groups), *([symbols[-2]] if kernels else []))
    codelet = draw(st.sampled_from([inner, multiply_and_add]))
    kernel = w[chosen] if chosen else w
    order = draw(st.permutations(range(view.ndim)))
    view, kernel = (own.transpose(order) if order else own for own in (view, kernel))
    if draw(st.booleans()):
        view, kernel = view.flatten(), kernel.flatten()
    places = draw(st.permutations(range(len(symbols))))
    y = graph.add_variable("y", tuple((*axes, *kernels, 1)[k] for k in places))
    graph.add_vertex("convolve", codelet, x=view, w=kernel, out=y[tuple(symbols[k] for k in places)])
    values = {"x": normal(*bare), "w": normal(*shape)}
    name = "y"
    result = jax.jit(cl.lower(graph, inputs=[own, w], outputs=[y]))(values)[name]
    np.testing.assert_allclose(result, cl.interpret(graph, values=values, outputs=[y])[name], rtol=1e-4, atol=1e-4)


# --- small windows, element by element ------------------------------------------------------------------


def _windowed(function, dtype: type = np.float32):
    """A function of windows of 2 x 3, moved over 5 x 6 numbers: its primitives, its values, and the interpreter's."""
    graph = cl.Graph()
    x = graph.add_variable("x", (5, 6), dtype)
    i, j = cl.grid(4, 4)
    y = graph.add_vertex("windows", cl.codelet(function), window=x[i : i + 2, j : j + 3])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    values = {"x": np.random.default_rng(0).integers(-9, 9, (5, 6)).astype(dtype)}
    ((name, expected),) = cl.interpret(graph, values=values, outputs=[y]).items()
    return {eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns}, jax.jit(run)(values)[name], expected


SMALL = {
    "a sum": lambda window: window.sum(),
    "a choice": lambda window: jnp.where(window[0, 1] > 2, window.max(), -window.T[1:].min()),
    "products": lambda window: (window * jnp.arange(3.0) + window[::-1] ** 2).prod(0).sum(),
    "joined": lambda window: jnp.concatenate([window[0], window[1, :1]]).reshape(2, 2).any(1).all() * window[1, 2],
}


@few("name", SMALL, quick=["a choice", "products"])
def test_small_windows_are_slices_computed_element_by_element(name):
    names, values, expected = _windowed(SMALL[name])
    assert not names & {"concatenate", "stack", "gather", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_bytes_in_windows_are_added_as_bytes():
    names, values, expected = _windowed(lambda window: jnp.sum(window, dtype=jnp.int8), np.int8)
    assert "convert_element_type" not in names
    np.testing.assert_array_equal(values, expected)
    assert values.dtype == np.int8


@pytest.mark.parametrize(
    "function",
    [
        lambda window: jnp.sort(window.ravel())[3],
        lambda window: window.argmax().astype(jnp.float32),
        lambda window: window.cumsum(1)[1, 2],
        lambda window: jax.nn.relu(window).sum(),
    ],
)
def test_codelets_that_do_more_with_windows_run_on_them_whole(function):
    _, values, expected = _windowed(function)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


# --- windows in padding -----------------------------------------------------------------------------------


@few("mode", ["constant", "edge", "wrap", "reflect"], quick=["constant"])
def test_windows_that_lie_wholly_in_padding(mode):
    graph, program = cl.Graph(), []
    x, plane = graph.add_variable("x", (4,)), graph.add_variable("plane", (2, 3))
    i, (n, m) = cl.grid(3), cl.grid(2, 3)
    outputs = []
    after, before = x.pad((0, 10), mode), x.pad((10, 0), mode)
    around = plane.pad(((9, 9), (9, 9)), mode)
    windows = [after[i + 6 : i + 9], after[i + 4 : i + 7], after[i + 3 : i + 6], before[i + 1 : i + 4]]
    corners = [
        around[n : n + 2, m : m + 3],
        around[n : n + 4 : 3, m + 14 : m + 19 : 2],
        around[n + 11 : n + 13, m : m + 3],
    ]
    channels = plane.pad(((0, 0), (0, 9)), mode)[:, i + 5 : i + 8]
    for view, kernel in (*((own, x[:3]) for own in windows), *((own, plane) for own in (*corners, channels))):
        outputs += [graph.add_vertex("inner", codelet, x=view, w=kernel) for codelet in (inner, multiply_and_add)]
    outputs.append(graph.add_vertex("total", total, x=after[i + 6 : i + 9]))
    outputs.append(graph.add_vertex("none", total, x=after[i + 6 : i + 6]))
    copied = graph.add_variable(f"copied {mode}", (2, 3))
    program.append(cl.Copy(around[:2, -3:], copied))
    outputs.append(copied)
    values = {"x": np.arange(1, 5, dtype=np.float32), "plane": np.asarray(normal(2, 3))}
    program = cl.Sequence(*program, graph.default_program)
    run = cl.lower(graph, program, inputs=[x, plane], outputs=outputs)
    results, slopes = at_once(run, jax.grad(lambda v: sum(jnp.sum(y) for y in run(v).values())))(values)
    for name, expected in cl.interpret(graph, values=values, outputs=outputs, program=program).items():
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-5)
    for name, slope in slopes.items():
        assert np.isfinite(slope).all(), name


# --- how precise they are ---------------------------------------------------------------------------------


def convolution_of(codelet, dtype=np.float32, length=3):
    ours = cl.lower(lambda graph, x, w: graph.add_vertex("sum", codelet, x=x[(i := cl.grid(7)) : i + length], w=w))
    closed = ours.at(jnp.zeros(6 + length, dtype), jnp.zeros(length, dtype)).jaxpr
    return [eqn.params for eqn in closed.jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"]


def test_precision_and_accumulation_survive():
    highest, high = lax.Precision.HIGHEST, lax.Precision.HIGH
    assert [p["precision"] for p in convolution_of(multiply_and_add)] == [(highest, highest)]
    assert [p["precision"] for p in convolution_of(inner)] == [None]
    (own,) = convolution_of(cl.codelet(lambda x, w: jnp.dot(x, w, precision=high)))
    assert own["precision"] == (high, high)
    (wide,) = convolution_of(cl.codelet(lambda x, w: jnp.dot(x, w, preferred_element_type=jnp.float32)), jnp.bfloat16)
    assert wide["preferred_element_type"] == np.float32
    algorithm = cl.codelet(lambda x, w: jnp.dot(x, w, precision=lax.DotAlgorithmPreset.F32_F32_F32))
    assert not convolution_of(algorithm)


def test_products_that_are_rounded_are_not_convolved():
    rounded = cl.codelet(lambda x, w: lax.reduce_sum(x * w, (0,)))
    assert convolution_of(rounded)
    assert not convolution_of(rounded, jnp.bfloat16)
    assert not convolution_of(multiply_and_add, jnp.bfloat16)  # whose sum is of float32, of rounded products
