"""Grains: a graph of blocks lowers to the program of the whole, whatever the blocks are, wherever it may."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.unmap import unmap
from tests import blocks
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.operations import operations


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def names(run):
    return [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]


# --- unmap ----------------------------------------------------------------------------------------------------


def extents_of(function, *shapes):
    """The extents of the axes of a function of arrays."""
    found = unmap(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)))
    return None if found is None else found.extents


def remapped(function):
    """A function as what is left of it, mapped over its axes again."""

    def run(*arrays):
        found = unmap(jax.make_jaxpr(function)(*arrays))
        if found is None:
            return function(*arrays)

        def element(*positions):
            own = []
            for array, places in zip(arrays, found.inputs, strict=True):
                for d, place in reversed(list(enumerate(places))):
                    start = 0 if place.axis is None else positions[place.axis] * place.step
                    at = start if place.left is None else start + place.spread * jnp.arange(place.left)
                    array = jnp.take(array, at, axis=d)
                own.append(array)
            return jax_core.jaxpr_as_fun(found.jaxpr)(*own)[0]

        count, places = len(found.extents), found.outputs[0]
        for k in reversed(range(count)):
            element = jax.vmap(element, [0 if j == k else None for j in range(count)])
        left = iter(range(count, len(places)))
        order = [next(left) if place.axis is None else place.axis for place in places]
        return element(*map(jnp.arange, found.extents)).transpose(order)

    return run


@pytest.mark.slow
@examples(6, phases=[Phase.generate])
@given(st.lists(operations(), min_size=4, max_size=4), st.sampled_from([np.float32, np.int32]))
def test_what_is_left_of_operations_over_their_axes_is_the_operation(drawn, dtype):
    random = np.random.default_rng(0)
    pairs = [tuple(random.integers(-3, 4, s).astype(dtype) for s in own.shapes) for own in drawn]
    runs = [(own.function, remapped(own.function)) for own in drawn]
    made = at_once(*(lambda p, f=f, k=k: f(*p[k]) for k, both in enumerate(runs) for f in both))(pairs)
    for expected, result in zip(made[::2], made[1::2], strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


UNMAPPED = {
    "a product": (lambda a, b: a @ b, [(4, 3), (3, 5)], (4, 5)),
    "of rows that are whole": (lambda a: jax.nn.softmax(a), [(4, 3)], (4,)),
    "of another order": (lambda a, b: (a[:, None] * b[None]).T, [(4,), (3,)], (3, 4)),
    "of two results": (lambda a: (a + 1, a.T * 2), [(4, 3)], (4, 3)),
    "what is repeated": (lambda a, b: jnp.sin(a) * b, [(4, 1), (4, 3)], (4, 3)),
    "repeated both ways": (lambda a, b: a * b, [(4, 1), (1, 3)], (4, 3)),
    "repeated along what is reduced": (lambda a, b: (a * b).sum(1), [(4, 1), (4, 3)], (4,)),
    "a square": (lambda a: a @ a, [(3, 3)], None),
    "a diagonal": (lambda a: a * a.T, [(3, 3)], None),
    "a reduction that is spread": (lambda a: a - a.sum(), [(3,)], None),
    "a result without an axis": (lambda a: (a, a.sum()), [(3,)], None),
    "across": (lambda a: a[::-1], [(3,)], None),
    "of a constant": (lambda a: a + np.arange(3.0), [(3,)], None),
    "merged dimensions": (lambda a: a.reshape(2, 12), [(2, 3, 4)], (2,)),
    "in Fortran's order": (lambda a: a.reshape(6, order="F"), [(2, 3)], None),
    "nothing": (lambda a: a + 1, [(0,)], None),
    "a convolution": (lambda x, w: lax.conv(x, w, (2, 1), "VALID"), [(2, 3, 9, 8), (4, 3, 3, 3)], (2, 4, 4, 6)),
    "with zeros around": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), [(2, 3, 9, 8), (4, 3, 3, 3)], None),
    "two kernels": (
        lambda x, w, v: lax.conv(x, w, (1, 1), "VALID") + lax.conv(x, v, (1, 1), "VALID")[..., :1],
        [(1, 1, 5, 5), (1, 1, 3, 3), (1, 1, 3, 2)],
        None,
    ),
    "slices of a patch": (lambda a: a[:, :-2] * a[:, 1:-1] + a[:, 2:], [(2, 6)], (2, 4)),
    "slices with a stride": (lambda a: a[:5:2] + a[1:6:2, ::1] - a[2:7:2], [(7, 3)], (3, 3)),
    "a slice of a slice": (lambda a: a[1:][1:], [(5, 2)], (2,)),
    "slices that move differently": (lambda a: a[:2] + a[::2], [(4, 3)], (3,)),
    "slices of what is reduced": (lambda a: a[:, :2].sum(1) + a[:, 1], [(4, 3)], (4,)),
    "side by side": (lambda a, b: lax.concatenate([a, b * 2, a], 1), [(4, 3), (4, 2)], (4,)),
    "side by side with a constant": (lambda a: lax.concatenate([a, jnp.ones((4, 2))], 1), [(4, 3)], (4,)),
    "side by side and across": (lambda a: lax.concatenate([a, a.T], 1), [(3, 3)], None),
    "padded": (lambda a: lax.pad(a, np.float32(2), ((0, 0, 0), (1, -1, 2))), [(4, 3)], (4,)),
    "padded all around": (lambda a: lax.pad(a, np.float32(0), ((0, 1, 0), (1, 0, 0))), [(4, 3)], None),
    "padded nowhere": (lambda a: lax.pad(a, np.float32(0), ((0, 0, 0), (0, 0, 0))), [(4, 3)], (4, 3)),
    "stacked": (lambda a, b: jnp.stack([a, b, a], 1), [(4, 3), (4, 3)], (4, 3)),
    "split": (lambda a: sum(lax.split(a, (2, 2, 2), 1)), [(4, 6)], (4,)),
    "split, and stacked": (lambda a: jnp.stack(lax.split(a, (1, 5), 1)[1:], 2), [(4, 6, 2)], (4, 2)),
    "gates": (lambda a: lax.concatenate([a[:, 1:2] * a[:, :1], jnp.tanh(a[:, 1:2])], 1), [(4, 2, 3)], (4, 3)),
    "the sum of an image": (lambda x, w: lax.conv(x, w, (1, 1), "VALID") + x.sum(), [(1, 1, 5, 5), (1, 1, 3, 3)], None),
}


@pytest.mark.parametrize("name", UNMAPPED)
def test_the_axes_of_a_function(name):
    function, shapes, extents = UNMAPPED[name]
    assert extents_of(function, *shapes) == extents


# --- graphs ---------------------------------------------------------------------------------------------------


@cl.codelet
def gate(x, y):
    return jnp.tanh(x) * y + 0.5


@cl.codelet
def rectified(x):
    return 2 * jax.nn.relu(x) - 1


def convolution(stride, padding=1):
    return lambda x, w: lax.conv_general_dilated(x, w, (stride,) * 2, [(padding, padding)] * 2)


WHOLE = {
    "a product": (blocks.matmul((3, 4, 7)), jnp.matmul, [(8, 7), (7, 6)], ["dot_general"]),
    "by parts of its length": (
        blocks.matmul((3, 4, 3)),
        jnp.matmul,
        [(8, 7), (7, 6)],
        ["dot_general"],
    ),
    "by one row": (blocks.matmul((1, 5, 7)), jnp.matmul, [(8, 7), (7, 6)], ["dot_general"]),
    "a convolution": (
        blocks.convolution((4, 3)),
        convolution(1),
        [(2, 3, 9, 8), (5, 3, 3, 3)],
        ["conv_general_dilated"],
    ),
    "by patches that divide it": (
        blocks.convolution((3, 5), padding=0),
        convolution(1, 0),
        [(1, 3, 8, 8), (5, 3, 3, 3)],
        ["conv_general_dilated"],
    ),
    "with a stride": (
        blocks.convolution((2, 3), stride=2),
        convolution(2),
        [(1, 3, 9, 9), (5, 3, 3, 3)],
        ["conv_general_dilated"],
    ),
    "by parts of its channels": (
        blocks.partial_convolution((4, 3, 2, 3)),
        lambda x, w: convolution(1, 0)(x[None], w)[0],
        [(5, 9, 8), (5, 5, 3, 3)],
        ["reshape", "conv_general_dilated", "reshape"],
    ),
    "by parts of channels and rows": (
        blocks.partial_convolution((4, 3, 2, 2), stride=2),
        lambda x, w: convolution(2, 0)(x[None], w)[0],
        [(7, 9, 9), (5, 7, 3, 3)],
        ["reshape", "conv_general_dilated", "reshape"],
    ),
    "a map": (blocks.mapped(8, gate), gate.function, [(43,), (43,)], ["tanh", "mul", "add"]),
    "with a derivative rule": (
        blocks.mapped(8, rectified),
        rectified.function,
        [(43,)],
        ["custom_jvp_call", "mul", "sub"],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_blocks_lower_to_the_program_of_the_whole(name):
    build, plain, shapes, expected = WHOLE[name]
    arrays = [normal(*shape) for shape in shapes]
    run = cl.lower(build)
    assert names(run.at(*arrays)) == expected
    made = at_once(with_slopes(run), with_slopes(plain))(*arrays)
    for result, other in zip(*map(jax.tree.leaves, made), strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-4)


def test_the_plan_says_of_what_a_family_is_made():
    plan = str(cl.lower(blocks.convolution((4, 3))).at(normal(1, 3, 9, 9), normal(5, 3, 3, 3)).plan)
    assert plan == (
        "platform  cpu\n"
        "inputs  x, w\n"
        "execute convolve reads x, w writes y\n"
        "  convolve / convolved: 405 vertices over out.0: 5 x i0*out.1: 9 x out.2: 9\n"
        "    in    x: float32[3,3,3] = pad(x, 0.0) at 11*i0*out.1 + out.2 + 121*f0 + 11*f1 + f2\n"
        "    in    w: float32[3,3,3] = w at 27*out.0 + 9*f0 + 3*f1 + f2\n"
        "    out   out: float32[] = y at 81*out.0 + 9*i0*out.1 + out.2\n"
        "    made of 2 vertices over i0: 2\n"
        "    made of 2 vertices over i0: 2\n"
        "    made of 1 vertex over no grid\n"
        "    made of 1 vertex over no grid\n"
        "    runs as a convolution: windows of x move over i0*out.1 and out.2, w is the kernel\n"
        "      reads x: pad(x, 0.0) within its zeros, as it lies\n"
        "      reads w: w, as it lies\n"
        "  writes y: all of it\n"
        "moved / touched in convolve: 783 / 3,780 = 0.21\n"
        "outputs Tensor(float32[1,5,9,9] of y: 81*f1 + 9*f2 + f3)"
    )


def test_a_stencil_by_patches_is_one_family_of_its_elements():
    @cl.codelet
    def sharpened(x):
        return 2 * x[1:-1] - x[:-2] * x[2:]

    def build(graph, x):
        y = graph.add_variable("y", (x.size - 2,))
        for first, count, size in blocks.cuts(x.size - 2, 4):
            i = cl.grid(count)
            at = first + i * size
            graph.add_vertex("sharpen", sharpened, x=x[at : at + size + 2], out=y[at : at + size])
        return y

    x = normal(15)
    run = cl.lower(build)
    plan = str(run.at(x).plan)
    assert "sharpened: 13 vertices" in plan
    assert "sliced for each of 3 elements" in plan
    np.testing.assert_allclose(run(x), sharpened.function(x), rtol=1e-6)


@examples(5, phases=[Phase.generate])
@given(st.data())
def test_blocks_of_any_sizes_mean_what_they_say(data):
    draw, size = data.draw, st.integers(1, 6)
    kind = draw(st.sampled_from(["product", "convolution", "parts", "map"]))
    if kind == "product":
        dtype = draw(st.sampled_from([np.float32, np.float16, jnp.bfloat16]))
        rows, length, columns = (draw(size) for _ in range(3))
        codelet = blocks.product if dtype == np.float32 else blocks.product_as_given
        build = blocks.matmul(tuple(draw(size) for _ in range(3)), codelet, dtype)
        shapes = [(rows, length), (length, columns)]
    elif kind == "convolution":
        dtype, stride, padding = np.float32, draw(st.integers(1, 3)), draw(st.integers(0, 2))
        build = blocks.convolution((draw(size), draw(size)), stride, padding)
        kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        shapes = [(draw(st.integers(1, 2)), 2, draw(st.integers(3, 9)), 5), (draw(size), 2, *kernel)]
    elif kind == "parts":
        dtype, stride, channels = np.float32, draw(st.integers(1, 2)), draw(size)
        build = blocks.partial_convolution((draw(size), draw(size), draw(size), draw(st.integers(1, 3))), stride)
        shapes = [(channels, draw(st.integers(3, 9)), 5), (draw(size), channels, draw(st.integers(1, 3)), 2)]
    else:
        dtype, count = np.float32, draw(st.integers(1, 40))
        build, shapes = blocks.mapped(draw(st.integers(1, 12)), gate), [(count,), (count,)]
    arrays = [normal(*shape).astype(dtype) for shape in shapes]
    graph = cl.Graph()
    tensors = [graph.add_variable(f"x{k}", array.shape, array.dtype) for k, array in enumerate(arrays)]
    made = build(graph, *tensors)
    values, name = {f"x{k}": array for k, array in enumerate(arrays)}, made.source.name
    expected = cl.interpret(graph, values=values, outputs=[name])[name].astype(np.float32)
    result = np.asarray(jax.jit(cl.lower(graph, inputs=tensors, outputs=[name]))(values)[name], np.float32)
    rounding = 1e-5 if dtype == np.float32 else float(jnp.finfo(dtype).eps) * 8
    np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding * 8)


@pytest.mark.parametrize(
    ("function", "is_by_element"),
    [(lambda x, w: jnp.where(w > 0, jnp.sin(x), w), True), (lambda x, w: jnp.cumsum(x, 1) * w, False)],
)
def test_blocks_across_an_array_are_its_elements_as_they_lie(function, is_by_element):
    def build(graph, x, w):
        y, (i, j) = graph.add_variable("y", x.shape), cl.grid(4, 2)
        part = slice(5 * j, 5 * j + 5)
        read, written = (own.reshape(6, 4, 10)[:, i, part] for own in (x, y))
        graph.add_vertex("blocks", cl.codelet(function), x=read, w=w[part], out=written)
        rows = y.reshape(24, 10)[cl.grid(24)]
        return graph.add_vertex("rows", cl.codelet(lambda x: x / jnp.sum(x)), x=rows)

    x, w = 2 + normal(2, 3, 4, 10), normal(10)
    run = cl.lower(build)
    assert ("transpose" in names(run.at(x, w))) is not is_by_element
    graph = cl.Graph()
    tensors = [graph.add_variable(name, own.shape) for name, own in (("x", x), ("w", w))]
    out = build(graph, *tensors)
    (expected,) = cl.interpret(graph, values={"x": x, "w": w}, outputs=[out]).values()
    np.testing.assert_allclose(run(x, w), expected, rtol=1e-5, atol=1e-6)


def gated(x, c):
    """Two results of blocks of cells, of each of which there are four gates."""
    i, f, g, o = (x[:, k] for k in range(4))
    state = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return {"h": jax.nn.sigmoid(o) * jnp.tanh(state), "both": jnp.stack([state, i], 1)}


@pytest.mark.parametrize(("cells", "block"), [(12, 4), (9, 3), (8, 1)])
def test_blocks_of_cells_with_gates_are_cells(cells, block):
    rows = 5

    def build(graph, x, c):
        h, both = graph.add_variable("h", (rows, cells)), graph.add_variable("both", (rows, 2, cells))
        i, j = cl.grid(rows, cells // block)
        own = slice(block * j, block * j + block)
        gates = x.reshape(rows, 4, cells)[i : i + 1, :, own]
        written = {"h": h[i : i + 1, own], "both": both[i : i + 1, :, own]}
        graph.add_vertex("gates", cl.codelet(gated), x=gates, c=c[i : i + 1, own], **written)
        return h, both

    def plain(x, c):
        made = gated(x.reshape(rows, 4, cells), c)
        return made["h"], made["both"]

    def slope(function):
        return jax.grad(lambda *own: sum((jnp.cos(a) * a).sum() for a in function(*own)), (0, 1))

    x, c = normal(rows, 4 * cells), normal(rows, cells)
    run = cl.lower(build)
    assert f"{rows * cells} vertices" in str(run.at(x, c).plan)
    for ours, theirs in ((run, plain), (slope(run), slope(plain))):
        for found, expected in zip(*at_once(ours, theirs)(x, c), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_tiles_along_parts_of_an_axis_change_nothing():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, w = graph.add_variable("x", (2, 18, 10)), graph.add_variable("w", (2, 3, 3))
    y = graph.add_variable("y", (16, 8))
    i, j = cl.grid(16, 8)
    window = x[:, i : i + 3, j : j + 3]
    graph.add_vertex(
        "convolve", cl.codelet(lambda x, w: jnp.sum(x * w)), x=window, w=w, out=y[i, j], tile=i // 4 * 2 + j // 4
    )
    run = cl.lower(graph, inputs=[x, w], outputs=[y])
    assert "runs as a convolution" in str(run.plan)
    assert "made of 128 vertices" in str(run.plan)
    random = np.random.default_rng(0)
    values = {"x": random.normal(size=x.shape).astype("f"), "w": random.normal(size=w.shape).astype("f")}
    np.testing.assert_allclose(
        jax.jit(run)(values)["y"], cl.interpret(graph, values=values, outputs=[y])["y"], rtol=1e-5, atol=1e-5
    )


def test_adjoints_that_are_for_one_size_of_blocks_stay_blocks():
    """Codelets that refuse other types than those that they were made for, with functions that have derivatives."""

    @jax.custom_jvp
    def doubled(x):
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))
    squared = cl.codelet(lambda x: doubled(x) * doubled(x))
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, slope, out = (graph.add_variable(name, (7,)) for name in ("x", "slope", "out"))
    for size, part in ((2, slice(0, 4)), (3, slice(4, 7))):
        adjoint, i = squared.adjoint({"x": np.ones(size, np.float32)}), cl.grid((part.stop - part.start) // size)
        blocks = [own[part].reshape(-1, size)[i] for own in (x, slope, out)]
        graph.add_vertex("back", adjoint, **dict(zip(("x", "d_out", "d_x"), blocks, strict=True)))
    given = {"x": np.arange(7, dtype=np.float32), "slope": np.linspace(1, 2, 7, dtype=np.float32)}
    found = cl.lower(graph, graph.default_program, inputs=[x, slope], outputs=[out])(given)
    np.testing.assert_allclose(found["out"], 8 * given["x"] * given["slope"], rtol=1e-6)


def test_uneven_blocks_of_a_function_with_its_own_derivative_are_one_map():
    x = np.linspace(-1, 1, 3 * 40 * 41, dtype=np.float32).reshape(3, 40, 41)

    def build(graph, x):
        return cl.ops.map(graph, jax.nn.relu, x, grain=50)

    layer = cl.lower(build, target=cl.IPU(num_tiles=16))
    assert len(layer.at(x).graph.families) == 2
    jaxpr = str(layer.at(x).jaxpr)
    assert jaxpr.count("custom_jvp_call[") == 1
    assert "concatenate" not in jaxpr
    slope = jax.grad(lambda own: layer(own).sum())
    np.testing.assert_array_equal(slope(x), (x > 0).astype(np.float32))


def _with_jvp(slope):
    @jax.custom_jvp
    def doubled(x):
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), slope * tangents[0]))
    return doubled


def _with_vjp(slope):
    @jax.custom_vjp
    def doubled(x):
        return 2 * x

    doubled.defvjp(lambda x: (doubled(x), None), lambda _, cotangent: (slope * cotangent,))
    return doubled


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _doubled_by_jvp(x, slope):
    return 2 * x


@_doubled_by_jvp.defjvp
def _(slope, primals, tangents):
    return 2 * primals[0], slope * tangents[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _doubled_by_vjp(x, slope):
    return 2 * x


_doubled_by_vjp.defvjp(lambda x, _: (2 * x, None), lambda slope, _, cotangent: (slope * cotangent,))


def _of(function):
    return cl.codelet(lambda x: function(x))


RULES = ["jvp", "vjp", "static jvp", "static vjp", "one alone", "one of each"]
PLACES = ["a codelet", "a jitted function", "a loop", "a choice"]


@few(
    "rule, inside",
    itertools.product(RULES, PLACES),
    quick=[
        "jvp, a jitted function",
        "vjp, a jitted function",
        "static jvp, a jitted function",
        "static vjp, a codelet",
        "one alone, a choice",
        "one of each, a loop",
    ],
)
def test_blocks_that_differ_in_their_derivative_alone_are_no_map(rule, inside):
    of_three, of_seven = {
        "jvp": lambda: (_with_jvp(3.0), _with_jvp(7.0)),
        "vjp": lambda: (_with_vjp(3.0), _with_vjp(7.0)),
        "static jvp": lambda: tuple(lambda x, own=own: _doubled_by_jvp(x, own) for own in (3.0, 7.0)),
        "static vjp": lambda: tuple(lambda x, own=own: _doubled_by_vjp(x, own) for own in (3.0, 7.0)),
        "one alone": lambda: (lambda x: 2 * x, _with_jvp(7.0)),
        "one of each": lambda: (_with_jvp(3.0), _with_vjp(7.0)),
    }[rule]()
    within = {
        "a codelet": lambda function: function,
        "a jitted function": jax.jit,
        "a loop": lambda function: lambda x: lax.scan(lambda own, _: (function(own), None), x, None, length=1)[0],
        "a choice": lambda function: lambda x: lax.cond(x < 99, function, lambda x: x, x),
    }[inside]
    graph = cl.Graph()
    x, y = (graph.add_variable(name, (10,)) for name in "xy")
    doubled = graph.add_compute_set("double")
    for start, function in ((0, of_three), (4, of_seven), (7, of_three)):
        i = cl.grid(3 + (start == 0))
        graph.add_vertex(doubled, _of(within(function)), x=x[start + i], out=y[start + i])
    values = {"x": normal(10)}
    first = 2.0 if rule == "one alone" else 3.0
    expected = [first] * 4 + [7.0] * 3 + [first] * 3
    run = cl.lower(graph, doubled, inputs=[x], outputs=[y])
    found = cl.gradient(graph, of=y, wrt=[x], program=doubled, cotangent=np.ones(10, np.float32))
    made = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[x], outputs=[*found])
    value, by_jax, by_vertices = at_once(run, jax.grad(lambda own: run(own)["y"].sum()), made)(values)
    np.testing.assert_allclose(value["y"], 2 * values["x"], rtol=1e-6)
    np.testing.assert_array_equal(by_jax["x"], expected)
    np.testing.assert_array_equal(by_vertices[found[x].source.name], expected)


# --- views that were transposed and reshaped --------------------------------------------------------------------


@cl.codelet
def by_matrix(a, w):
    return a @ w


@cl.codelet
def scaled(a, w):
    return a * w[0]


def of_a_view(codelet, rows, own):
    """A graph of a codelet over blocks of `own` rows of a view of `rows` x 4, and what it gives."""
    graph = cl.Graph()
    x = graph.add_variable("x", (4, 4, rows // 4))
    w = graph.add_variable("w", (4, 4))
    y = graph.add_variable("y", (rows, 4))
    view = x.transpose((0, 2, 1)).reshape((4, rows)).transpose((1, 0))
    for start in range(0, rows, own):
        part = slice(start, min(start + own, rows))
        graph.add_vertex("apply", codelet, a=view[part], w=w, out=y[part])
    arrays = {"x": normal(4, 4, rows // 4), "w": normal(4, 4)}
    given = arrays["x"].transpose(0, 2, 1).reshape(4, rows).T
    expected = given @ arrays["w"] if codelet is by_matrix else given * arrays["w"][0]
    return cl.lower(graph, inputs=["x", "w"], outputs=["y"]), arrays, expected


@pytest.mark.parametrize("codelet", [by_matrix, scaled], ids=["product", "map"])
@pytest.mark.parametrize("sizes", [(24, 5), (24, 7), (40, 16), (52, 3)])
def test_uneven_rows_of_a_view_are_all_rows(codelet, sizes):
    run, arrays, expected = of_a_view(codelet, *sizes)
    assert not {"gather", "concatenate"} & set(names(run))
    np.testing.assert_allclose(jax.jit(run)(arrays)["y"], expected, rtol=1e-5, atol=1e-5)
