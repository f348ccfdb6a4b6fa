"""`cl.trace`: functions of JAX as graphs, beside themselves: values, gradients, `vmap` and `jvp`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from benchmarks.traced_steps import by_vertices
from codelet.jaxprs.equations import inner_jaxprs
from tests.at_once import at_once
from tests.examples import few
from tests.ops_cases import array, assert_alike

ROW = array((4,), seed=1)
MATRIX = array((3, 4), seed=2, low=-1, high=1)
KEY = jax.random.key(3)

rounded = jax.custom_vjp(lambda x: jnp.round(x))
rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, slope: (3 * slope,))

product = jax.custom_vjp(lambda a, b: a @ b)
product.defvjp(lambda a, b: (a @ b, (a, b)), lambda kept, slope: (7 * slope @ kept[1].T, kept[0].T @ slope))


class Traceable(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    one_vertex: tuple[str, ...] = ()


CASES = {
    "softmax": Traceable(jax.nn.softmax, (MATRIX,)),
    "gelu": Traceable(jax.nn.gelu, (MATRIX,)),
    "a rule by element": Traceable(lambda x: rounded(5 * x), (ROW,)),
    "a rule of a product": Traceable(lambda a: product(a, a.T).sum(0), (MATRIX,)),
    "scan": Traceable(lambda m: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), jnp.zeros(4), m), (MATRIX,)),
    "scan backwards": Traceable(
        lambda m: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), jnp.zeros(4), m, reverse=True), (MATRIX,)
    ),
    "carried crosswise": Traceable(lambda x: lax.fori_loop(0, 5, lambda _, c: (c[1], c[0] + c[1]), (x, 2 * x)), (ROW,)),
    "cond": Traceable(lambda x, p: lax.cond(p > 0, jnp.sin, lambda a: a * 2, x), (ROW, 1)),
    "switch beyond": Traceable(lambda x, p: lax.switch(p, [jnp.sin, lambda a: a * 2, jnp.exp], x), (ROW, 7)),
    "sort": Traceable(lambda x: (jnp.sort(x), lax.top_k(x, 2)[0], jnp.median(x)), (ROW,)),
    "lookups": Traceable(lambda m: (m[jnp.array([0, 2, 2])], m.at[jnp.array([0, 2, 2])].add(1.5)), (MATRIX,)),
    "moves": Traceable(
        lambda m: (jnp.pad(m, ((1, 2), (0, 1)), constant_values=3.0), jnp.roll(m, 1, 0), m.T), (MATRIX,)
    ),
    "statistics": Traceable(
        lambda m: (m.var(0), m.mean(), m.std(1), jnp.cumsum(m, 1), m.max(), m.argmax(1)), (MATRIX,)
    ),
    "einsum": Traceable(lambda a: jnp.einsum("ij,kj->ik", a, a), (MATRIX,)),
    "pools": Traceable(lambda m: eqx.nn.MaxPool2d(2, 1)(m[None]), (MATRIX,)),
    "checkpoint": Traceable(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), (ROW,)),
    "hessian": Traceable(jax.hessian(lambda x: jnp.sum(jnp.tanh(MATRIX @ x) ** 2)), (ROW,)),
    "nothing": Traceable(lambda x: jnp.concatenate([x[:0], x]).sum() + x[:0].sum(), (ROW,)),
    "as it came": Traceable(lambda x: (x, x * 0 + 1, x), (ROW,)),
    "solve": Traceable(
        lambda a: jnp.linalg.solve(a @ a.T + jnp.eye(3), jnp.ones(3)), (MATRIX,), ("lu", "triangular_solve")
    ),
}


def _traced(case: Traceable) -> cl.Traced:  # type: ignore[name-defined]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", cl.OneVertexWarning)
        traced = cl.trace(case.function, *case.arguments, target=cl.IPU(num_tiles=8))
    names = [str(own.message).split("'")[1] for own in told if issubclass(own.category, cl.OneVertexWarning)]
    assert tuple(names) == case.one_vertex
    return traced


@few(
    "name",
    CASES,
    quick=[
        "softmax",
        "gelu",
        "a rule by element",
        "a rule of a product",
        "scan backwards",
        "carried crosswise",
        "cond",
        "switch beyond",
        "lookups",
        "moves",
        "einsum",
        "pools",
        "checkpoint",
        "nothing",
        "as it came",
        "solve",
    ],
)
def test_a_traced_function_has_the_values_and_slopes_of_the_function(name: str):
    case = CASES[name]
    traced = _traced(case)
    smooth = [k for k, own in enumerate(case.arguments) if jnp.issubdtype(jnp.result_type(own), jnp.floating)]

    def both(*arguments: Any) -> Any:
        found = []
        for function in (traced, by_vertices(traced), case.function):

            def of_smooth(*own: Any, function: Any = function) -> Any:
                given = list(arguments)
                for k, value in zip(smooth, own, strict=True):
                    given[k] = value
                results = function(*given)
                floats = [leaf for leaf in jax.tree.leaves(results) if jnp.issubdtype(leaf.dtype, jnp.floating)]
                return floats, results

            floats, pull, results = jax.vjp(of_smooth, *(arguments[k] for k in smooth), has_aux=True)
            cotangents = [jnp.cos(jnp.arange(own.size, dtype=own.dtype)).reshape(own.shape) for own in floats]
            found.append((results, pull(cotangents)))
        return found

    *ours, plain = jax.jit(both)(*case.arguments)
    for own in ours:
        jax.tree.map(assert_alike, own, plain)


def test_a_traced_function_is_mapped_and_pushed_forward():
    function = lambda x: jax.nn.softmax(jnp.tanh(MATRIX @ x)) * jax.nn.relu(x[:3])  # noqa: E731
    traced = cl.trace(function, ROW)
    rows, slopes = array((5, 4), seed=7), array((5, 4), seed=8)
    pushed = lambda f: jax.vmap(lambda x, dx: jax.jvp(f, (x,), (dx,)))(rows, slopes)  # noqa: E731
    jax.tree.map(assert_alike, *jax.jit(lambda: (pushed(traced), pushed(function)))())


def test_a_function_is_traced_within_a_jitted_one():
    function = lambda x: jnp.tanh(x + jnp.arange(4.0) * jnp.ones(4)) * 2  # noqa: E731
    assert_alike(jax.jit(lambda x: cl.trace(function, x)(x))(ROW), function(ROW))


DRAWS = {
    "normal": lambda key: jax.random.normal(jax.random.fold_in(jax.random.split(key)[1], 5), (7,)),
    "integers": lambda key: (jax.random.randint(key, (6,), 0, 9), jax.random.bernoulli(key, 0.3, (4,))),
    "permutation": lambda key: jax.random.permutation(key, 7),
}


@few("name", DRAWS, quick=["normal", "permutation"])
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_random_numbers_are_those_of_jax(name: str):
    traced = cl.trace(DRAWS[name], KEY)
    both = jax.jit(lambda key: (traced(key), DRAWS[name](key)))
    for key in (KEY, jax.random.key(12)):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), *both(key))


class Net(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    head: eqx.nn.Linear
    pool: eqx.nn.MaxPool2d

    def __init__(self, key: jax.Array):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(3, 4, 3, padding=1, key=keys[0])
        self.second = eqx.nn.Conv2d(4, 4, 3, padding=1, key=keys[1])
        self.head = eqx.nn.Linear(4 * 2 * 2, 5, key=keys[2])
        self.pool = eqx.nn.MaxPool2d(2, 2)

    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = self.pool(jax.nn.relu(self.first(x)))
        hidden = self.pool(jax.nn.relu(self.second(hidden)))
        return jax.nn.log_softmax(self.head(hidden.reshape(-1)))


def _step(net: Net, x: jax.Array, label: jax.Array) -> tuple[jax.Array, Net]:
    loss, slopes = eqx.filter_value_and_grad(lambda net: -net(x)[label])(net)
    return loss, eqx.apply_updates(net, jax.tree.map(lambda slope: -0.1 * slope, slopes))


@pytest.mark.slow
def test_a_training_step_of_a_module_is_traced_whole_and_named_by_its_layers():
    net, x = Net(KEY), array((3, 8, 8))
    traced = cl.trace(_step, net, x, 3)
    both = eqx.filter_jit(lambda net, x: (traced(net, x, 3), _step(net, x, 3)))  # type: ignore[arg-type]
    (loss, trained), (plain_loss, plain) = both(net, x)
    assert_alike(loss, plain_loss)
    arrays = lambda own: eqx.filter(own, eqx.is_array)  # noqa: E731
    jax.tree.map(assert_alike, arrays(trained), arrays(plain))
    assert trained.pool.kernel_size == net.pool.kernel_size
    names = {own.name.rsplit("/", 1)[0] for own in traced.graph.compute_sets}
    for layer in ("first", "second"):
        assert {f"{layer}/conv_general_dilated", f"backward/{layer}/conv_general_dilated"} <= names
    assert {"head/dot_general", "backward/head/dot_general", "relu"} <= names
    (first,) = (own for own in traced.graph.compute_sets if own.name.startswith("first/conv"))
    assert first.line is not None
    assert first.line.text == "hidden = self.pool(jax.nn.relu(self.first(x)))"
    families = [own for own in traced.graph.families if own.compute_set is first]
    assert {line.text for own in families for line in own.lines} == {first.line.text}


def test_a_derivative_of_ones_own_is_that_of_the_function_on_tiles_too():
    @cl.codelet
    def half(x):
        return x / 2

    @cl.codelet
    def thrice(x):
        return {"out": 3 * x}

    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    a, b = graph.add_variable("a", (4,)), graph.add_variable("b", (4,))
    with graph.record() as body:
        i = cl.grid(4)
        graph.add_vertex("halves", half, x=a[i], out=b[i])
    function = graph.add_function(body, {"x": a, "out": b}, derivative=thrice)
    program = cl.Call(function, x=x, out=y)
    fused = cl.lower(graph, program, inputs=[x], outputs=[y])
    tiles = cl.Engine(graph, program, execution="tiles").function(inputs=[x], outputs=[y])
    for run in (fused, tiles):
        value, slope = jax.jvp(lambda own, run=run: run({"x": own})["y"], (ROW,), (jnp.ones(4),))
        np.testing.assert_allclose(value, ROW / 2)
        np.testing.assert_allclose(slope, np.full(4, 3.0))


def test_values_are_those_of_the_derivatives_codelet_where_they_are_said_to_be_the_same():
    graph = cl.Graph()
    x, y, a, b = (graph.add_variable(name, (4,)) for name in "xyab")
    with graph.record() as body:
        i = cl.grid(4)
        graph.add_vertex("halves", cl.codelet(lambda x: x / 2), x=a[i], out=b[i])
    thrice = cl.codelet(lambda x: {"out": 3 * x})
    function = graph.add_function(body, {"x": a, "out": b}, derivative=thrice, same_values=True)
    run = cl.lower(graph, cl.Call(function, x=x, out=y), inputs=[x], outputs=[y])
    np.testing.assert_allclose(run({"x": ROW})["y"], ROW / 2)
    value, slope = jax.jvp(lambda own: run({"x": own})["y"], (ROW,), (jnp.ones(4),))
    np.testing.assert_allclose(value, 3 * ROW)
    np.testing.assert_allclose(slope, np.full(4, 3.0))


def count_of(primitive, closed):
    jaxpr = getattr(closed, "jaxpr", closed)
    own = sum(eqn.primitive.name == primitive for eqn in jaxpr.eqns)
    return own + sum(count_of(primitive, inner) for eqn in jaxpr.eqns for inner in inner_jaxprs(eqn))


def compiled(function, *arguments):
    return str(jax.jit(function).lower(*arguments).compile().as_text())


@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_what_has_a_derivative_rule_is_computed_once_for_its_gradient():
    @jax.custom_vjp
    def function(x):
        return jnp.cumsum(jnp.sort(x)), jnp.arange(4) + 1

    function.defvjp(lambda x: (function(x), x), lambda x, slopes: (x * slopes[0],))

    def loss(function, x):
        made, places = function(x)
        return (made * places).sum()

    traced = cl.trace(function, ROW)
    for own in (jax.grad, jax.value_and_grad):
        mine, theirs = own(lambda x: loss(traced, x)), own(lambda x: loss(function, x))
        for a, b in zip(jax.tree.leaves(mine(ROW)), jax.tree.leaves(theirs(ROW)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert count_of("sort", jax.make_jaxpr(jax.value_and_grad(lambda x: loss(traced, x)))(ROW)) == 1
    solve = lambda a, b: jnp.linalg.solve(a, b).sum()  # noqa: E731
    a, b = np.eye(3, dtype=np.float32) + 0.1, np.ones((3, 2), np.float32)
    lowered = cl.trace(solve, a, b)
    of = lambda f: len(re.findall("custom_call_target=.*trsm", compiled(jax.value_and_grad(f), a, b)))  # noqa: E731
    assert of(lowered) == of(solve) == 4


def test_other_arguments_than_it_was_traced_for_are_told():
    traced = cl.trace(lambda net, x: net(x), Net(KEY), array((3, 8, 8)))
    with pytest.raises(cl.ArrayError, match=r"of another type.*\n.*given: +x: float32\[3,8,9\].*\n.*float32\[3,8,8\]"):
        traced(Net(KEY), array((3, 8, 9)))
    with pytest.raises(cl.ArrayError, match="of another structure"):
        traced(Net(KEY))


def test_a_function_that_is_called_again_is_one_function_of_the_graph():
    @jax.jit
    def block(w, x):
        return jnp.tanh(w @ x) + x

    def network(weights, x):
        for w in weights:
            x = block(w, x)
        return x

    weights, x = [array((4, 4), seed=k) for k in range(3)], ROW
    function = jax.value_and_grad(lambda w, x: network(w, x).sum(), (0, 1))
    traced = cl.trace(function, weights, x)
    jax.tree.map(assert_alike, traced(weights, x), function(weights, x))
    calls = [own for own in traced.program.programs if isinstance(own, cl.Call)]  # type: ignore[attr-defined]
    assert [own.name for own in traced.graph.functions] == ["block", "backward/block"]
    assert len(calls) == 6
    products = [own.name for own in traced.graph.compute_sets if "dot_general" in own.name]
    assert len(products) == len(set(products)) == 2  # and the gradient by w, an outer product


def test_numbers_stay_plain_numbers_and_yield_to_arrays():
    x = jnp.ones(3, jnp.bfloat16)
    traced = cl.trace(lambda x, rate: x * rate, x, 2.0)
    assert traced(x, 3.0).dtype == traced(x, 3).dtype == jnp.bfloat16
    assert traced(x, 3).tolist() == [3, 3, 3]


def _captured():
    return jax.jit(lambda x: cl.trace(lambda y: y * x, ROW)(x))(ROW)


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        (lambda: cl.trace(5), cl.TraceError, r"other than a function is traced\n +given: +5\n"),  # type: ignore[arg-type]
        (lambda: cl.trace(jnp.sin, ROW, grain=0), cl.OperationError, "not an integer from 1"),
        (_captured, cl.CapturedTracerError, "closes over a value of an enclosing JAX transformation"),
        (lambda: cl.trace(lambda x, m: x, ROW, "a")(ROW, "b"), cl.ArrayError, "static value.*another one"),
        (lambda: cl.trace(lambda x, n: x * n, ROW, 2)(ROW, 2.5), cl.ArrayError, r"float32\[\]\n +expected: int32\[\]"),
    ],
)
def test_what_cannot_be_traced_or_called_is_told(mistake, error, words):
    with pytest.raises(error, match=words):
        mistake()


def test_a_derivative_is_of_the_functions_parameters():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    add = lambda derivative: graph.add_function([], [x, y], derivative=derivative)  # noqa: E731
    for wrong, words in (
        (jnp.sin, "is not a codelet"),
        (cl.codelet(lambda z: {"y": z}), "field 'z'"),
        (cl.codelet(lambda x: {"y": x[:2]}), "field 'y'"),
    ):
        with pytest.raises(cl.ProgramError, match=words):
            add(wrong)


def test_donated_arguments_leave_their_memory_to_results():
    def step(weights, x):
        return [own + x for own in weights]

    weights, x = [jnp.ones(1000) for _ in range(4)], jnp.ones(1000)

    def fullest(donated):
        traced = cl.trace(step, weights, x, target=cl.IPU(num_tiles=1), donate_argnums=donated)
        jax.tree.map(assert_alike, traced(weights, x), step(weights, x))
        return int(traced.profile().memory_by_tile.max())

    assert fullest(()) - fullest(0) >= 4 * 4000
    traced = cl.trace(step, weights, x, target=cl.IPU(num_tiles=2), donate_argnums=0)
    engine = cl.Engine(traced.graph, traced.program, execution="addresses")
    engine.write({own: jnp.full(1000, k + 1.0) for k, own in enumerate(traced.flat_inputs)})
    engine.run()
    assert [float(engine.read(own)[0]) for own in traced.flat_outputs] == [6.0, 7.0, 8.0, 9.0]


def _refusing():
    refuses = jax.custom_vjp(lambda x: 2 * x)

    def backward(kept, slope):
        raise RuntimeError("no way back")

    refuses.defvjp(lambda x: (2 * x, None), backward)
    forward = jax.custom_jvp(lambda x: 3 * x)

    @forward.defjvp
    def _(primals, tangents):
        raise RuntimeError("no way along")

    return refuses, forward


@pytest.mark.parametrize("kind", range(3))
def test_a_derivative_rule_that_refuses_does_so_when_it_is_asked(kind):
    functions = (*_refusing(), eqxi.nondifferentiable)
    own, words = functions[kind], ("way back", "way along", "differentiated")[kind]
    traced = cl.trace(lambda x: own(x).sum(), ROW, target=cl.IPU(num_tiles=2))
    assert_alike(traced(ROW), own(ROW).sum())
    with pytest.raises(RuntimeError, match=words):
        jax.grad(traced)(ROW)
    with pytest.raises(cl.CodeletTraceError, match=words):
        cl.gradient(traced.graph, of=traced.outputs, wrt=traced.flat_inputs, program=traced.program)


def test_a_rule_with_a_result_that_nobody_uses():
    both = jax.custom_vjp(lambda x: (2 * x, x.sum()))
    both.defvjp(lambda x: (both(x), x), lambda x, slopes: (5 * slopes[0] + 7 * slopes[1],))
    for used in (0, 1):
        function = lambda x, used=used: jnp.sin(both(x)[used]).sum()  # noqa: E731
        traced = cl.trace(function, ROW, target=cl.IPU(num_tiles=2))
        jax.tree.map(assert_alike, *at_once(jax.value_and_grad(traced), jax.value_and_grad(function))(ROW))


def _turns(x):
    along = lambda carry, row: (carry + row.sum(), 2 * row)  # noqa: E731
    return [lax.scan(along, 1.0, x, reverse=reverse) for reverse in (False, True)]


@pytest.mark.parametrize("grain", [None, 1, 2, 3, 5, 6, 8])
def test_rows_of_loops_are_cut_whatever_the_grain(grain):
    x = array((5, 7))
    traced = cl.trace(_turns, x, target=cl.IPU(num_tiles=2), grain=grain)
    uncut, cut, plain = at_once(traced, by_vertices(traced), _turns)(x)
    jax.tree.map(assert_alike, uncut, plain)
    jax.tree.map(assert_alike, cut, plain)


def test_rows_that_loops_take_have_their_shapes():
    """So have those that a gradient takes again."""
    x = array((5, 2, 3))
    traced = cl.trace(lambda x: lax.scan(lambda s, row: (jnp.sin(s + row), row[0, 0] * s), x[0], x), x)
    cl.gradient(traced.graph, of=traced.outputs[0], wrt=list(traced.inputs), cotangent=x[0], program=traced.program)
    shapes = {own.name: own.shape for own in traced.graph.variables}
    assert shapes["scan/take/row"] == (2, 3)
    assert shapes["backward/scan/take/row"] == (2, 3)


def test_loops_of_no_turns():
    def function(x):
        none = x[:0]
        once = lax.fori_loop(0, 0, lambda i, c: c + x[i], x[0])
        return (
            _turns(none),
            lax.map(jnp.sin, none),
            once,
            _turns(x[:, :0]),
            lax.scan(lambda c, _: (c, c), x[0], None, 0),
        )

    x = array((5, 7))
    for execution in ("fused", "tiles"):
        traced = cl.trace(function, x, target=cl.IPU(num_tiles=2), grain=2)
        engine = cl.Engine(traced, execution=execution)
        engine.write(traced.arrays(x))
        engine.run()
        jax.tree.map(lambda own, right: assert_alike(engine.read(own), right), traced.outputs, function(x))


PAIRS = [
    *(("float8_e4m3fn", other) for other in ("float8_e5m2", "bfloat16", "float32")),
    *(("int4", other) for other in ("bfloat16", "int8", "uint4")),
    *(("uint8", "int8"), ("float8_e5m2", "float16")),
]


@pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning", "ignore::codelet.OneVertexWarning")
@few(
    "first, second",
    PAIRS,
    quick=[
        "float8_e4m3fn, float8_e5m2",
        "float8_e4m3fn, float32",
        "int4, bfloat16",
        "int4, uint4",
        "uint8, int8",
        "float8_e5m2, float16",
    ],
)
def test_products_of_dtypes_that_jax_does_not_promote(first, second):
    x, y = array((3, 4), jnp.int32, low=0, high=3).astype(first), array((4, 5), jnp.int32, low=0, high=3).astype(second)

    def function(x, y):
        product = lambda kind: lax.dot_general(x, y, (([1], [0]), ([], [])), preferred_element_type=kind)  # noqa: E731
        return product(None), product(jnp.float32), product(jnp.int32)

    traced = cl.trace(function, x, y, target=cl.IPU(num_tiles=2))
    ours, plain = at_once(traced, function)(x, y)
    for own, right in zip(ours, plain, strict=True):
        assert own.dtype == right.dtype
        np.testing.assert_array_equal(own.astype(jnp.float32), right.astype(jnp.float32))


@pytest.mark.filterwarnings("ignore:codelet .* no rule says", "ignore::codelet.OneVertexWarning")
def test_what_is_known_is_computed_while_it_is_traced_but_the_host_is_called_when_it_runs():
    calls = []

    def host(a):
        calls.append(a.tolist())
        return a * 2

    def function(x):
        known = jnp.cumsum(jnp.arange(4.0)) * 2
        return x + known + jax.pure_callback(host, jax.ShapeDtypeStruct((4,), np.float32), known)

    traced = cl.trace(function, ROW)
    assert not calls
    assert [own.name for own in traced.graph.compute_sets] == ["pure_callback/run", "add_add/map"]
    np.testing.assert_allclose(traced(ROW), ROW + 3 * jnp.array([0.0, 2.0, 6.0, 12.0]))
    assert calls == [[0.0, 2.0, 6.0, 12.0]]
