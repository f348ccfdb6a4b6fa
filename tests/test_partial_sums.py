"""Sums of partial convolutions are the whole convolution, wherever they read what the partial ones wrote."""

import itertools

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
from tests.test_phases import dilations, normal, plainly, transposed

inner = cl.codelet(lambda x, w: jnp.vdot(x, w))
wide = cl.codelet(lambda x, w: jnp.vdot(x, w, preferred_element_type=jnp.float32))
halved = cl.codelet(lambda x: x.sum().astype(jnp.float16))
double = cl.codelet(lambda x: {"x": 2 * x})


def convolved(graph, x, w, *, cut, stages=1, codelet=inner, last=total, groups=1):
    """A convolution with stride (2, 1), cut by some of "channels", "rows" and "columns"."""
    images, channels, height, width = x.shape
    filters, _, rows, columns = w.shape
    counts = {"channels": 3, "rows": rows, "columns": columns}
    block = channels // groups // counts["channels"] if "channels" in cut else channels // groups
    sizes = images, filters, (height - rows) // 2 + 1, width - columns + 1
    *cuts, n, f, i, j = cl.grid(*(counts[name] for name in cut), *sizes)
    p = dict(zip(cut, cuts, strict=True))
    first = p.get("channels", 0) * block
    group = f // (filters // groups) * (channels // groups) if groups > 1 else 0
    k, m = p.get("rows"), p.get("columns")
    x_part = x[
        n,
        group + first : group + first + block,
        slice(2 * i, 2 * i + rows) if k is None else 2 * i + k,
        slice(j, j + columns) if m is None else j + m,
    ]
    w_part = w[f, first : first + block, slice(None) if k is None else k, slice(None) if m is None else m]
    parts = graph.add_vertex("partial", codelet, x=x_part, w=w_part)
    number = int(np.prod([counts[name] for name in cut]))
    parts = parts.reshape((number, *sizes))
    for stage in range(stages - 1):
        k, n, f, i, j = cl.grid(number // 2, *sizes)
        parts = graph.add_vertex(f"groups {stage}", total, x=parts[2 * k : 2 * k + 2, n, f, i, j])
        number //= 2
    n, f, i, j = cl.grid(*sizes)
    return graph.add_vertex("sum", last, x=parts[:, n, f, i, j])


def whole(x, w, groups=1, **kind):
    return lax.conv_general_dilated(x, w, (2, 1), "VALID", feature_group_count=groups, **kind)


def products(lowered):
    """The primitives that multiply, of what runs."""
    names = [eqn.primitive.name for eqn in lowered.jaxpr.jaxpr.eqns]
    return [name for name in names if name in ("conv_general_dilated", "dot_general", "mul", "scan")]


CUTS = {
    "channels": {"cut": ("channels",)},
    "rows": {"cut": ("rows",)},
    "both": {"cut": ("rows", "channels")},
    "to elements of the kernel": {"cut": ("channels", "rows", "columns")},
    "two stages": {"cut": ("channels", "rows"), "stages": 2},
    "three stages": {"cut": ("channels", "rows"), "stages": 3},
    "groups": {"cut": ("rows", "channels"), "groups": 2},
}


@few("case", CUTS, quick=["rows"])
def test_a_sum_of_partial_convolutions_is_the_whole_one(case):
    groups = CUTS[case].get("groups", 1)
    x, w = normal(2, 6 * groups, 11, 5), normal(4, 6, 4, 3)
    lowered = cl.lower(convolved)
    ours = lambda x, w: lowered(x, w, **CUTS[case])  # noqa: E731
    assert products(lowered.at(x, w, **CUTS[case])) == ["conv_general_dilated"]
    (value, slopes), (expected, others) = at_once(with_slopes(ours), with_slopes(lambda x, w: whole(x, w, groups)))(
        x, w
    )
    for made, other in zip((value, *slopes), (expected, *others), strict=True):
        np.testing.assert_allclose(made, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("last", [total, halved])
def test_partial_sums_of_more_bits_than_the_inputs(last):
    x, w = normal(1, 6, 9, 5).astype(np.float16), normal(4, 6, 3, 3).astype(np.float16)
    lowered = cl.lower(convolved)
    sizes = {"cut": ("rows", "channels"), "codelet": wide, "last": last}
    run = lowered.at(x, w, **sizes)
    assert products(run) == ["conv_general_dilated"]
    (one,) = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"]
    assert one.params["preferred_element_type"] == np.float32
    made = jax.jit(lambda x, w: lowered(x, w, **sizes))(x, w)
    assert made.dtype == (np.float32 if last is total else np.float16)
    expected = whole(x, w, preferred_element_type=jnp.float32)
    np.testing.assert_allclose(made, expected, rtol=1e-5 if last is total else 1e-3, atol=1e-5)


def test_partial_sums_that_are_rounded_are_added_up_as_they_are():
    x, w = normal(1, 6, 9, 5).astype(np.float16), normal(4, 6, 3, 3).astype(np.float16)
    assert products(cl.lower(convolved).at(x, w, cut=("rows",))) != ["conv_general_dilated"]


def test_phases_cut_into_partial_sums_are_one_convolution():
    sizes = {"sides": (7, 8), "stride": 2, "low": 1}

    def build(graph, g, w):
        parts = graph.add_variable("parts", (3, g.shape[0], w.shape[1], *sizes["sides"]))
        with graph.record() as program:
            transposed(graph, g, w, into=parts, **sizes)
            n, c, i, j = cl.grid(*parts.shape[1:])
            out = graph.add_vertex("sum", total, x=parts[:, n, c, i, j])
        return out, program

    g, w = normal(2, 6, 4, 4), normal(6, 5, 3, 3)
    lowered = cl.lower(build)
    assert dilations(lowered.at(g, w)) == [(2, 2)]
    assert products(lowered.at(g, w)) == ["conv_general_dilated"]
    made, expected = at_once(lowered, lambda g, w: plainly(g, w, **sizes))(g, w)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def cut_unevenly(graph, x, w, *, channels, rows, groups=0):
    """A convolution cut in blocks of channels and of rows, with what is left over of either."""
    filters, count, height, width = w.shape
    cuts = [
        [slice(a, min(a + block, n)) for a in range(0, n, block)] for n, block in ((count, channels), (height, rows))
    ]
    sizes = x.shape[0], filters, x.shape[2] - height + 1, x.shape[3] - width + 1
    parts, partial = graph.add_variable("parts", (*map(len, cuts), *sizes)), graph.add_compute_set("partial")
    for p, own in enumerate(cuts[0]):
        for q, k in enumerate(cuts[1]):
            n, f, i, j = cl.grid(*sizes)
            window = x[n, own, i + k.start : i + k.stop, j : j + width]
            graph.add_vertex(partial, inner, x=window, w=w[f, own, k], out=parts[p, q, n, f, i, j])
    if groups:
        parts = parts.reshape((-1, *sizes))
        summed, some = graph.add_variable("sums", (-(-len(parts) // groups), *sizes)), graph.add_compute_set("groups")
        for g in range(len(summed)):
            n, f, i, j = cl.grid(*sizes)
            own = parts[groups * g : groups * g + groups, n, f, i, j]
            graph.add_vertex(some, total, x=own, out=summed[g, n, f, i, j])
        parts = summed.reshape((1, *summed.shape))
    n, f, i, j = cl.grid(*sizes)
    return graph.add_vertex("sum", total, x=parts[:, :, n, f, i, j])


@pytest.mark.parametrize("sizes", [(4, 5, 0), (7, 2, 0), (3, 2, 0), (4, 3, 2), (3, 2, 4), (3, 1, 2)])
def test_what_is_left_over_of_a_cut_is_part_of_the_whole(sizes):
    channels, rows, groups = sizes
    x, w = normal(2, 7, 8, 6), normal(4, 7, 5, 3)
    lowered = cl.lower(cut_unevenly)
    ours = lambda x, w: lowered(x, w, channels=channels, rows=rows, groups=groups)  # noqa: E731
    assert products(lowered.at(x, w, channels=channels, rows=rows, groups=groups)) == ["conv_general_dilated"]
    made, expected = at_once(ours, lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"))(x, w)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


bilinear = cl.codelet(lambda x, w: jnp.sum(x * w))


def multiplied_unevenly(graph, x, w, *, block, codelet=bilinear):
    """A product of matrices cut by what it sums over, with what is left over where no block divides that."""
    (rows, count), columns = x.shape, w.shape[1]
    starts = range(0, count, block)
    parts, partial = (
        graph.add_variable("parts", (len(starts), rows, columns), x.dtype),
        graph.add_compute_set("partial"),
    )
    i, j = cl.grid(rows, columns)
    for k, start in enumerate(starts):
        own = slice(start, min(start + block, count))
        graph.add_vertex(partial, codelet, x=x[i, own], w=w[own, j], out=parts[k, i, j])
    return graph.add_vertex("sum", total, x=parts[:, i, j])


@pytest.mark.parametrize("block", [4, 5, 10])
def test_partial_products_of_complex_numbers_are_the_whole_one(block):
    x, w = normal(3, 11) + 1j * normal(3, 11), normal(11, 5) + 1j * normal(11, 5)
    lowered = cl.lower(multiplied_unevenly)
    assert products(lowered.at(x, w, block=block)) == ["dot_general"]
    made, expected = at_once(lambda x, w: lowered(x, w, block=block), jnp.dot)(x, w)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    slopes = [jax.vjp(own, x, w)[1](x @ w) for own in (lambda x, w: lowered(x, w, block=block), jnp.dot)]
    for made, expected in zip(*slopes, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_products_with_conjugates_are_added_up_as_they_are():
    x, w = normal(3, 11) + 1j * normal(3, 11), normal(11, 5) + 1j * normal(11, 5)
    made = cl.lower(multiplied_unevenly)(x, w, block=4, codelet=inner)
    np.testing.assert_allclose(made, x.conj() @ w, rtol=1e-5, atol=1e-5)


def test_partial_convolutions_of_complex_numbers_mean_what_their_vertices_mean():
    x, w = normal(2, 6, 11, 5) + 1j * normal(2, 6, 11, 5), normal(4, 6, 4, 3) + 1j * normal(4, 6, 4, 3)
    made = cl.lower(convolved)(x, w, cut=("channels", "rows"), codelet=bilinear)
    np.testing.assert_allclose(made, whole(jnp.asarray(x), jnp.asarray(w)), rtol=1e-4, atol=1e-4)


# --- where they stay apart ------------------------------------------------------------------------------


def _graph(cut=("channels",)):
    graph = cl.Graph()
    x, w = graph.add_variable("x", (1, 6, 9, 5)), graph.add_variable("w", (4, 6, 3, 3))
    with graph.record() as both:
        made = convolved(graph, x, w, cut=cut)
    partial, last = both.compute_sets
    parts = next(v for v in graph.variables if v.name == "partial/out")
    return graph, x, w, graph.variable(parts.name), made, partial, last


def _agrees(graph, program, outputs, is_whole):
    inputs = [graph.variable("x"), graph.variable("w")]
    values = {"x": normal(1, 6, 9, 5), "w": normal(4, 6, 3, 3)}
    run = cl.lower(graph, program, inputs=inputs, outputs=outputs)
    text = str(run.plan)
    assert ("inner product" in text) is is_whole, text
    result = jax.jit(run)(values)
    for name, expected in cl.interpret(graph, values=values, outputs=outputs, program=program).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-3, atol=1e-3)


def _doubled(graph, tensor, name):
    with graph.record() as program:
        at = cl.grid(*tensor.shape)
        graph.add_vertex(name, double, x=tensor[at])
    return program


@few(
    "between",
    ["nothing", "x", "w", "partial/out", "sum/out", "y"],
    quick=["nothing", "w", "partial/out", "sum/out", "y"],
)
def test_what_is_written_between_is_respected(between):
    graph, _, _, _, made, partial, last = _graph()
    y = graph.add_variable("y", (3,))
    steps = [] if between == "nothing" else [_doubled(graph, graph.variable(between), "double")]
    first = [cl.Copy(1.0, made), cl.Copy(1.0, y)]
    program = cl.Sequence(*first, cl.Execute(partial), *steps, cl.Execute(last))
    # What no output needs is not run, and so changes nothing.
    outputs = [made, y] if between not in ("x", "w") else [made, y, graph.variable(between)]
    _agrees(graph, program, outputs, is_whole=between in ("nothing", "sum/out", "y"))


def test_partial_sums_that_are_read_elsewhere_are_added_up():
    graph, _, _, parts, made, _, _ = _graph()
    _agrees(graph, None, [made, parts], is_whole=False)


def test_what_a_loop_writes_is_read_in_its_next_turn():
    graph, x, _, parts, made, partial, last = _graph(("rows",))
    twice = _doubled(graph, x, "double")
    turn = cl.Sequence(cl.Execute(last), twice, cl.Execute(partial))
    _agrees(graph, cl.Sequence(cl.Copy(0.0, parts), cl.Repeat(3, turn)), [made], is_whole=False)
    turn = cl.Sequence(cl.Execute(partial), cl.Execute(last), twice)
    _agrees(graph, cl.Sequence(cl.Copy(0.0, made), cl.Repeat(3, turn)), [made, x], is_whole=True)


def test_a_sum_of_some_of_the_partial_sums_is_a_convolution_of_their_channels():
    graph, _, _, parts, _, partial, _ = _graph()
    n, f, i, j = cl.grid(*parts.shape[1:])
    with graph.record() as some:
        out = graph.add_vertex("some", total, x=parts[1:, n, f, i, j])
    _agrees(graph, cl.Sequence(cl.Execute(partial), some), [out], is_whole=True)
    with graph.record() as again:
        repeated = parts[:1].broadcast_to((2, *parts.shape[1:]))
        other = graph.add_vertex("again", total, x=repeated[:, n, f, i, j])
    _agrees(graph, cl.Sequence(cl.Execute(partial), again), [other], is_whole=False)


@pytest.mark.slow
@examples(6)
@given(st.data())
def test_sums_of_partial_convolutions_mean_what_their_vertices_mean(data):
    """Any dimensions, some of them cut, added up over any of their dimensions in any order and number of stages."""
    draw = data.draw
    kinds = ["window", *draw(st.lists(st.sampled_from(["window", "channel", "batch"]), max_size=2))]
    x_shape, w_shape, cuts, kept = [], [], [], []
    for kind in kinds:
        n, k, s = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
        parts = draw(st.sampled_from([p for p in range(1, k + 1) if k % p == 0])) if kind != "batch" else 1
        x_shape.append({"window": (n - 1) * s + k, "channel": k, "batch": n}[kind])
        w_shape += [] if kind == "batch" else [k]
        kept.append((kind, n if kind != "channel" else 1, k, s, parts))
        cuts.append(parts)
    graph = cl.Graph()
    filters = draw(st.integers(1, 2))
    x, w = graph.add_variable("x", tuple(x_shape)), graph.add_variable("w", (filters, *w_shape))
    symbols = cl.grid(*cuts, filters, *(n for _, n, *_ in kept), 1)
    ps, f, at = symbols[: len(cuts)], symbols[len(cuts)], symbols[len(cuts) + 1 : -1]
    x_items, w_items = [], []
    for (kind, _, k, s, parts), p, i in zip(kept, ps, at, strict=True):
        size = k // parts
        if kind == "batch":
            x_items.append(i)
            continue
        begin = s * i + p * size if kind == "window" else p * size
        x_items.append(slice(begin, begin + size))
        w_items.append(slice(p * size, p * size + size))
    order = draw(st.permutations(range(len(cuts))))
    shape = (*(cuts[k] for k in order), filters, *(n for _, n, *_ in kept))
    partial = graph.add_variable("parts", shape)
    out = partial[(*(ps[k] for k in order), f, *at)]
    graph.add_vertex("partial", inner, x=x[tuple(x_items)], w=w[(f, *w_items)], out=out)
    left = partial
    for stage in itertools.count():
        first = draw(st.integers(1, len(cuts))) if left.ndim == partial.ndim else left.ndim - filters_and(kept)
        own = cl.grid(*left.shape[first:])
        left = graph.add_vertex(f"sum {stage}", total, x=left[(*[slice(None)] * first, *own)])
        if left.ndim == filters_and(kept):
            break
    values = {"x": normal(*x_shape), "w": normal(filters, *w_shape)}
    result = jax.jit(cl.lower(graph, inputs=[x, w], outputs=[left]))(values)
    for name, expected in cl.interpret(graph, values=values, outputs=[left]).items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-4, atol=1e-4)


def filters_and(kept):
    """The number of dimensions of a result: of the filters, and of what each dimension of the image leaves."""
    return 1 + len(kept)
