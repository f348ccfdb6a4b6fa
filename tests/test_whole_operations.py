"""Gradients of operations as a whole: JAX's own, on drawn graphs of operations and of vertices by hand.

Read from outside an operation, what it keeps to itself has the adjoints of vertices; so has one whose vertices are no
longer those that it added.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.ops_gradients import OPERATIONS
from codelet.ops.gradient_rules import RULES
from tests.examples import examples, few


@cl.codelet
def bend(x, y):
    return jnp.tanh(x) * y + 0.1 * x


@cl.codelet
def weigh(x, w):
    return jnp.sum(x * w)


def total(graph: cl.Graph, x: cl.Tensor, name: str = "total") -> cl.Tensor:
    """A sum with weights that are all different, so that no two elements have one cotangent."""
    weights = graph.add_constant(graph.free_name(f"{name} by"), np.cos(np.arange(x.size)) + 1.5, x.dtype)
    return graph.add_vertex(graph.free_name(name), weigh, x=x.flatten(), w=weights)


def by_hand(graph: cl.Graph, x: cl.Tensor, y: cl.Tensor) -> cl.Tensor:
    """Elements with those of another array of the same size."""
    i = cl.grid(x.size)
    flat = graph.add_vertex(graph.free_name("bend"), bend, x=x.flatten()[i], y=y.flatten()[i])
    return flat.reshape(x.shape)


def has_rule(graph: cl.Graph, name: str) -> bool:
    """Whether a gradient was added by a rule of an operation of that name: its scopes tell."""
    return any(own.name.startswith("backward/") and name in own.name.split("/") for own in graph.compute_sets)


def slopes(
    graph: cl.Graph, of: cl.Tensor, by: list[cl.Tensor], values: dict[str, Any], program: Any = None, **how: Any
):
    """The gradients as vertices make them, and as JAX makes them of the lowered forward pass."""
    forward = cl.lower(graph, program, inputs=by, outputs=[of])
    arrays = [values[own.name] for own in by]
    wanted = jax.grad(lambda *own: forward.flat(own)[0], argnums=tuple(range(len(by))))(*arrays)
    found = cl.gradient(graph, of=of, wrt=by, program=program, **how)
    both = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=by, outputs=list(found))
    return both.flat(arrays), wanted


def see_equal(made: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """See that gradients are equal."""
    for own, theirs in zip(made, wanted, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=tolerance, atol=tolerance)


def variable(graph: cl.Graph, values: dict[str, Any], name: str, *shape: int, dtype: Any = "float64") -> cl.Tensor:
    """A variable, and a value for it."""
    random = np.random.default_rng(len(values))
    values[name] = np.asarray(random.normal(size=shape), dtype)
    return graph.add_variable(name, shape, dtype)


# --- each rule ---------------------------------------------------------------------------------------------


def _product(graph, x, w):
    return cl.ops.dot_general(graph, x, w, (((1,), (0,)), ((), ())), grain=8)


def _transposed(graph, x, w):
    return cl.ops.dot_general(graph, w, x, (((1,), (1,)), ((), ())))


def _batched(graph, x, w):
    own = x.reshape((2, x.shape[0] // 2, x.shape[1]))
    return cl.ops.dot_general(graph, own, own, (((2,), (2,)), ((0,), (0,))))


def _convolved(graph, x, w):
    return cl.ops.conv_general_dilated(
        graph, x.reshape((1, 2, 2, -1)), w.reshape((3, 2, 2, -1))[..., :3], (1, 2), "SAME"
    )


def _softmax(graph, x, w):
    return cl.ops.softmax(graph, x)


def _columns(graph, x, w):
    return cl.ops.log_softmax(graph, x, 0)


def _looked_up(graph, x, w):
    return cl.ops.take(graph, x, graph.add_constant(graph.free_name("at"), np.array([3, -1, 0, 3, 9])), 0)


def _clipped(graph, x, w):
    return cl.ops.take(graph, x, graph.add_constant(graph.free_name("at"), np.array([[3, -1], [7, 9]])), 1, mode="clip")


def _mapped(graph, x, w):
    return cl.ops.map(graph, lambda x, w: jnp.sin(x) * w, x, w[:, 0])


def _greatest(graph, x, w):
    return cl.ops.max(graph, x, 1, keepdims=True)


def _least(graph, x, w):
    return cl.ops.min(graph, x, 0)


def _variance(graph, x, w):
    return cl.ops.var(graph, x, ddof=1)


def _logarithm(graph, x, w):
    return cl.ops.logsumexp(graph, x, 1, keepdims=True)


def _picked(graph, x, w):
    return cl.ops.top_k(graph, x, 2)[0]


def _averaged(graph, x, w):
    return cl.ops.avg_pool(graph, x.reshape((1, 4, 12, 1)), (2, 3), 2, "SAME", count_include_pad=False)


def _rows_normalized(graph, x, w):
    return cl.ops.layer_norm(graph, x.reshape((12, 4)), w[:4, 0], w[:4, 1], eps=1e-3)


def _by_root(graph, x, w):
    return cl.ops.rms_norm(graph, x.reshape((12, 4)), w[:4, 0])


def _groups_normalized(graph, x, w):
    return cl.ops.group_norm(graph, x.reshape((2, 4, 6)), 2, w[:4, 0], w[:4, 1])


def _channels_normalized(graph, x, w):
    return cl.ops.batch_norm(graph, x, w[:, 0], w[:, 1])[0]


def _normalized_as_told(graph, x, w):
    return cl.ops.batch_norm_inference(graph, x, *(w[:, k] for k in range(4)), eps=25.0)


PRODUCTS = [_product, _transposed, _batched, _convolved]
ROWS = [_softmax, _columns, _greatest, _least, _variance, _logarithm, _picked, _averaged]
NORMS = [_rows_normalized, _by_root, _groups_normalized, _channels_normalized, _normalized_as_told]
FORMS = [*PRODUCTS, *ROWS, *NORMS, _looked_up, _clipped, _mapped]


@pytest.fixture
def ruled(monkeypatch):
    """What rules have given, which apply though they take more cycles."""
    monkeypatch.setattr("codelet.ops.gradient_rules.MANY", 0)
    monkeypatch.setattr("codelet.ops.gradient_rules.gradient_pays", lambda *given, **options: True)
    given: list[Any] = []

    def noted(rule: Any) -> Any:
        return lambda graph, call: given.append(rule(graph, call)) or given[-1]

    monkeypatch.setattr("codelet.ops.gradient_rules.RULES", {of: noted(rule) for of, rule in RULES.items()})
    return given


@few("form", FORMS, quick=["_product", "_batched", "_looked_up", "_mapped", "_greatest", "_groups_normalized"])
def test_a_rule_gives_jaxs_gradient(form, ruled):
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x, w = variable(graph, values, "x", 4, 12), variable(graph, values, "w", 12, 5)
        if form is _transposed:
            w = variable(graph, values, "v", 7, 12)
        of = total(graph, form(graph, x, w))
        made, wanted = slopes(graph, of, [x, w], values)
        see_equal(made, wanted)
        assert len(ruled) == 1
        assert ruled[0]


@few("dtype", ["float16", "bfloat16", "float32", "complex64"], quick=["bfloat16"])
def test_rules_in_other_dtypes(dtype):
    graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
    x, w = (variable(graph, values, name, *shape, dtype=dtype) for name, shape in (("x", (4, 12)), ("w", (12, 5))))
    y = cl.ops.matmul(graph, x, w)
    y = y if dtype == "complex64" else cl.ops.softmax(graph, y)
    c = graph.add_constant("c", np.cos(np.arange(20)).reshape(4, 5), dtype)
    found = cl.gradient(graph, of=y, wrt=[x, w], cotangent=c)
    both = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[x, w], outputs=list(found))
    forward = cl.lower(graph, inputs=[x, w], outputs=[y])
    _, pull = jax.vjp(lambda *own: forward.flat(own)[0], values["x"], values["w"])
    wanted = pull(jnp.asarray(np.cos(np.arange(20)).reshape(4, 5), dtype))
    tolerance = {"float16": 5e-3, "bfloat16": 4e-2}.get(dtype, 1e-5)
    for own, theirs in zip(both.flat([values["x"], values["w"]]), wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(own, complex), np.asarray(theirs, complex), rtol=tolerance, atol=tolerance
        )


# --- where it does not apply --------------------------------------------------------------------------------


def _product_in_parts() -> tuple[cl.Graph, dict[str, Any], list[cl.Tensor], cl.Tensor, cl.Tensor]:
    """A product whose sums are cut, its operands, its result, and the partial sums that it keeps to itself."""
    graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
    x, w = variable(graph, values, "x", 4, 12), variable(graph, values, "w", 12, 5)
    out = _product(graph, x, w)
    return graph, values, [x, w], out, graph.variable("dot_general/out of multiply")


def test_a_product_is_gone_back_through_as_a_whole():
    with jax.enable_x64(True):
        graph, values, by, out, _ = _product_in_parts()
        see_equal(*slopes(graph, total(graph, out), by, values))
        assert has_rule(graph, "by_a")
        assert has_rule(graph, "by_b")


def test_what_is_not_asked_for_is_not_made():
    with jax.enable_x64(True):
        graph, _, (_, w), out, _ = _product_in_parts()
        cl.gradient(graph, of=total(graph, out), wrt=[w])
        assert has_rule(graph, "by_b")
        assert not has_rule(graph, "by_a")


def test_what_it_keeps_is_read_from_outside():
    with jax.enable_x64(True):
        graph, values, by, out, partials = _product_in_parts()
        both = by_hand(graph, out, partials[0])
        see_equal(*slopes(graph, total(graph, both), by, values))
        assert not has_rule(graph, "by_a")


def test_what_it_keeps_is_differentiated():
    with jax.enable_x64(True):
        graph, values, by, _, partials = _product_in_parts()
        of = total(graph, partials)
        made, wanted = slopes(graph, of, by, values)
        see_equal(made, wanted)
        assert not has_rule(graph, "by_a")


def test_vertices_that_were_added_to_it_count():
    @cl.codelet
    def third(x):
        return 3 * x

    with jax.enable_x64(True):
        graph, values, by, out, _ = _product_in_parts()
        more = graph.add_variable("more", (12,), "float64")
        i = cl.grid(12)
        graph.add_vertex(graph.compute_sets[0], third, x=by[0][1, i], out=more[i])
        of = total(graph, cl.concatenate([out.flatten(), more]))
        see_equal(*slopes(graph, of, by, values))
        assert not has_rule(graph, "by_a")


@pytest.mark.parametrize("part", [slice(0, 2), slice(None, None, -1)])
def test_a_part_of_a_result_is_read(part):
    with jax.enable_x64(True):
        graph, values, by, out, _ = _product_in_parts()
        see_equal(*slopes(graph, total(graph, out[part, 1:]), by, values))


def test_what_says_where_results_lie_has_no_gradient():
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x, w = variable(graph, values, "x", 4, 5), variable(graph, values, "w", 5, 3)
        like = by_hand(graph, x[:, :3], x[:, 2:])
        y = cl.ops.dot_general(graph, x, w, (((1,), (0,)), ((), ())), like=like)
        see_equal(*slopes(graph, total(graph, by_hand(graph, y, like)), [x, w], values))
        assert has_rule(graph, "by_b")


def test_an_operand_is_a_view_of_what_others_read():
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x = variable(graph, values, "x", 6, 6)
        y = cl.ops.matmul(graph, x[::-1], x.transpose())
        y = cl.ops.matmul(graph, y[:3], cl.concatenate([x[:2], y[2:]]))
        see_equal(*slopes(graph, total(graph, by_hand(graph, y, x[:3])), [x], values))


def test_in_loops_choices_and_functions():
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x, w = variable(graph, values, "x", 4, 4), variable(graph, values, "w", 4, 4)
        with graph.record() as turn:
            y = cl.ops.softmax(graph, _product(graph, x, w))
        body = cl.Sequence(turn, cl.Copy(y, x))
        given, left = (graph.add_variable(name, (4, 4), "float64") for name in ("given", "left"))
        with graph.record() as once:
            made = cl.ops.matmul(graph, given, w)
        function = graph.add_function(cl.Sequence(once, cl.Copy(made, left)), {"x": given, "y": left}, name="multiply")
        kept = graph.add_variable("kept", (4, 4), "float64")
        with graph.record() as last:
            of = total(graph, cl.concatenate([x.flatten(), kept.flatten()]))
        program = cl.Sequence(
            cl.Repeat(3, body), cl.Call(function, x=x, y=kept), cl.Call(function, x=kept, y=kept), last
        )
        see_equal(*slopes(graph, of, [x, w], values, program))


@few("how", ["all", "sqrt"], quick=["sqrt"])
def test_what_is_made_again(how):
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x, w = variable(graph, values, "x", 4, 4), variable(graph, values, "w", 4, 4)
        y = x
        for _ in range(4):
            y = by_hand(graph, cl.ops.softmax(graph, cl.ops.matmul(graph, y, w)), w)
        see_equal(*slopes(graph, total(graph, y), [x, w], values, recompute=getattr(cl.Recompute, how)()))


def test_a_users_rule_is_taken():
    def rule(graph, call):
        g, x = call.cotangents["out"], call.value("x")
        return {"x": cl.ops.map(graph, lambda g, x: 3 * g * x * x, g, x, name="cubed slopes")}

    @cl.operation(gradient=rule)
    def cubed(graph, x, *, keep=None):
        return {"out": cl.ops.map(graph, lambda x: x**3, x), "none": keep}

    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=6)), dict[str, Any]()
        x = variable(graph, values, "x", 4, 3)
        see_equal(*slopes(graph, total(graph, cubed(graph, x)["out"]), [x], values))
        assert has_rule(graph, "cubed slopes")


# --- drawn --------------------------------------------------------------------------------------------------

STEPS = ["product", "softmax", "columns", "rows", "map", "scaled", "hand", "turned", "kept", "sum", "part", "pool"]


@st.composite
def drawn(draw) -> tuple[cl.Graph, dict[str, Any], list[cl.Tensor], cl.Tensor]:
    """A graph of operations and of vertices by hand, some of which read what operations keep to themselves."""
    graph, values = cl.Graph(cl.IPU(num_tiles=draw(st.integers(1, 7)))), dict[str, Any]()
    side = draw(st.sampled_from([1, 2, 3, 5, 7]))
    x = variable(graph, values, "x", draw(st.integers(1, 6)), side)
    by, every = [x], [x]
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5)):
        x = every[draw(st.integers(0, len(every) - 1))]
        if step == "product":
            w = variable(graph, values, f"w{len(by)}", x.shape[1], draw(st.integers(1, 6)))
            by.append(w)
            y = cl.ops.dot_general(graph, x, w, (((1,), (0,)), ((), ())), grain=draw(st.sampled_from([1, 4, None])))
        elif step == "softmax":
            y = cl.ops.softmax(graph, x)
        elif step == "columns":
            y = cl.ops.log_softmax(graph, x, 0)
        elif step == "rows":
            at = draw(st.lists(st.integers(-x.shape[0], x.shape[0]), min_size=1, max_size=5))
            mode = draw(st.sampled_from(["clip", "wrap"]))
            y = cl.ops.take(graph, x, graph.add_constant(graph.free_name("at"), np.array(at)), 0, mode=mode)
        elif step == "map":
            other = every[draw(st.integers(0, len(every) - 1))]
            y = cl.ops.map(graph, lambda x, y: x * jnp.sin(y), x, other[:1, :1])
        elif step == "scaled":
            y = cl.ops.map(graph, lambda x, y: x * y, x, x[:1])
        elif step == "hand":
            y = by_hand(graph, x, x[::-1])
        elif step == "turned":
            y = x.transpose()
        elif step == "sum":
            y = cl.ops.sum(graph, x, draw(st.integers(0, 1)), keepdims=True)
        elif step == "pool":
            window, strides = (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
            around = [(k, draw(st.integers(0, k))) for k in (draw(st.integers(0, n - 1)) for n in window)]
            fits = all(size + sum(own) >= n for size, own, n in zip(x.shape, around, window, strict=True))
            y = cl.ops.max_pool(graph, x, window, strides, around, axis=(0, 1)) if fits else x
        elif step == "part":
            y = x[draw(st.integers(0, x.shape[0] - 1)) :, ::-1]
        else:
            kept = [v for v in graph.sources if v.name.endswith("partials") and v.dtype == x.dtype]
            y = graph.variable(kept[-1].name).flatten().reshape((1, -1)) if kept else x
        every.append(y)
    of = total(graph, cl.concatenate([own.flatten() for own in every[-2:]]))
    return graph, values, by, of


def _see_drawn(case) -> None:
    graph, values, by, of = case
    see_equal(*slopes(graph, of, by, values), tolerance=1e-8)


@examples(6)
@given(st.data())
def test_drawn_graphs_of_operations_and_vertices(data):
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr("codelet.ops.gradient_rules.MANY", 0)
            patch.setattr("codelet.ops.gradient_rules.gradient_pays", lambda *given, **options: True)
            patch.setattr("codelet.ops.gradient_rules.max_pool_gradient_pays", lambda *given, **options: True)
        _see_drawn(data.draw(drawn()))


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_many_drawn_graphs_of_operations_and_vertices(data):
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr("codelet.ops.gradient_rules.MANY", 0)
            patch.setattr("codelet.ops.gradient_rules.gradient_pays", lambda *given, **options: True)
            patch.setattr("codelet.ops.gradient_rules.max_pool_gradient_pays", lambda *given, **options: True)
        _see_drawn(data.draw(drawn()))


# --- what drawn graphs have shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [slice(None), slice(1, None)])
def test_sums_at_views_that_differ_in_tables_alone(first):
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=2)), dict[str, Any]()
        x = variable(graph, values, "x", 3, 2)
        turned = x[first, ::-1]
        of = total(graph, cl.concatenate([turned.flatten(), turned.transpose().flatten()]))
        see_equal(*slopes(graph, of, [x], values))


def test_two_lists_of_updates_that_are_parts_of_one_array():
    with jax.enable_x64(True):
        graph, values = cl.Graph(cl.IPU(num_tiles=1)), dict[str, Any]()
        x = variable(graph, values, "x", 1, 2)
        rows = [graph.add_constant(name, np.zeros(2, int)) for name in ("at", "then")]
        both = [cl.ops.take(graph, x, at, 0, mode="clip", grain=1).flatten() for at in rows]
        see_equal(*slopes(graph, total(graph, cl.concatenate(both)), [x], values))


@pytest.mark.parametrize(
    ("gradients", "told"),
    [
        (lambda graph, call: {}, "one by x, or None"),
        (lambda graph, call: {"x": call.cotangents[0]}, r"a tensor of float32\[4\]"),
        (lambda graph, call: {"x": 1.0}, r"a tensor of float32\[4\]"),
    ],
)
def test_a_rule_that_gives_something_else_is_told(gradients, told):
    @cl.operation(gradient=gradients)
    def doubled(graph, x):
        return cl.ops.map(graph, lambda x: 2 * x, x)

    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = graph.add_variable("x", (4,))
    with pytest.raises(cl.OperationError, match=told):
        cl.gradient(graph, of=doubled(graph, x), wrt=[x], cotangent=1.0)


def test_a_rule_may_say_that_a_gradient_is_zero():
    @cl.operation(gradient=lambda graph, call: {"x": None})
    def stopped(graph, x):
        return cl.ops.map(graph, lambda x: 2 * x, x)

    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = graph.add_variable("x", (4,))
    found = cl.gradient(graph, of=stopped(graph, x), wrt=[x], cotangent=1.0)
    made = cl.interpret(
        graph,
        values={"x": np.ones(4, np.float32)},
        outputs=[found[x]],
        program=cl.Sequence(found.forward, found.backward),
    )
    np.testing.assert_array_equal(made["backward/x"], 0)


# --- cycles -----------------------------------------------------------------------------------------------------


def backward_cycles(build: Any, shapes: Any, tiles: int) -> int:
    """Cycles of the backward pass of operations alone."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    by = [graph.add_variable(f"x{k}", shape) for k, shape in enumerate(shapes)]
    out = build(graph, *by)
    cotangent = graph.add_variable("cotangent", out.shape)
    found = cl.gradient(graph, of=out, wrt=by, cotangent=cotangent)
    engine = cl.Engine(graph, found.backward)
    return engine.profile(host_visible=[*by, *found, cotangent], allow_out_of_memory=True).total_cycles


def many_tokens(graph: cl.Graph, table: cl.Tensor) -> cl.Tensor:
    """Rows of a table by many more indices than it has rows: each tile would go through all of them."""
    return cl.ops.embedding(graph, table, graph.add_constant("ids", np.arange(4_096) % 500))


CYCLES = {
    f"{name}, {tiles}": (own.build, own.shapes, tiles) for name, own in OPERATIONS.items() for tiles in (1472, 64)
}
CYCLES |= {f"{form.__name__}, 4": (form, [(4, 12), (12, 5)], 4) for form in NORMS}
CYCLES["small product, 16"] = cl.ops.matmul, [(16, 48), (48, 8)], 16
CYCLES["many tokens, 1472"] = many_tokens, [(8_000, 64)], 1472

MORE = {"gelu, 64": 1.02, "_by_root, 4": 1.07}
"""Where the whole takes more: its slopes are summed by vertices of their own, of few and short rows at least."""


@few("name", CYCLES, quick=["small product, 16"])
def test_the_whole_takes_no_more_cycles_than_the_vertices(name, monkeypatch):
    build, shapes, tiles = CYCLES[name]
    whole = backward_cycles(build, shapes, tiles)
    monkeypatch.setattr("codelet.ops.gradient_rules.RULES", {})
    assert whole <= MORE.get(name, 1.0) * backward_cycles(build, shapes, tiles)
