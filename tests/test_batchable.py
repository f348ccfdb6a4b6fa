"""Equations that JAX has no batching rule for, in codelets of several vertices, in every execution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from codelet.tracing.field_types import FieldType
from tests.examples import few
from tests.test_every_primitive import CASES

ONE = np.float32(1)


def turned(p, q):
    """Neither associative nor commutative."""
    return p * q + 0.3 * p


def lines(a):
    return jnp.stack([a, 2 * a, a + 1])


def smooth_window(a, *windows):
    return lax.reduce_window(a, a[0], turned, *windows)


@jax.custom_jvp
def with_a_rule(a):
    return lax.reduce(a, a[2], turned, (0,))


with_a_rule.defjvp(lambda primals, tangents: jax.jvp(lambda a: (a * a[2]).sum(), primals, tangents))

FUNCTIONS = {
    "a line": lambda a: lax.reduce(a, a[0], turned, (0,)),
    "a longer line": lambda a: lax.reduce(0.3 * jnp.tile(a, 5), a[0], turned, (0,)),
    "nothing": lambda a: lax.reduce(a[:0], a[1], turned, (0,)),
    "one": lambda a: lax.reduce(a[:1], a[1], turned, (0,)),
    "sums of one": lambda a: lax.reduce(lines(a)[:1], a[0], lax.add, (0,)),
    "several of one": lambda a: lax.reduce((a[:1], a[1:2]), (a[0], a[1]), lambda p, q: (p[0] * q[1], p[1]), (0,))[0],
    "no axes": lambda a: lax.reduce(a, a[1], turned, ()),
    "sums": lambda a: lax.reduce(lines(a), a[0], lax.add, (0,)),
    "largest": lambda a: lax.reduce(a[1:], a[0], lax.max, (0,)),
    "integers": lambda a: lax.reduce((8 * a).astype(int), (8 * a[0]).astype(int), lambda p, q: p ^ (q + p), (0,)) * ONE,
    "bools": lambda a: lax.reduce(a > 1, a[0] > 1, lambda p, q: ~p ^ q, (0,)) * ONE,
    "columns": lambda a: lax.reduce(lines(a), a[0], turned, (0,)),
    "rows": lambda a: lax.reduce(lines(a), a[0], turned, (1,)),
    "all": lambda a: lax.reduce(lines(a), a[0], turned, (1, 0)),
    "several": lambda a: lax.reduce((a, 2 * a), (a[0], a[1]), lambda p, q: (p[0] * q[0] + q[1], p[1] - q[0]), (0,))[0],
    "windows": lambda a: smooth_window(a, (2,), (1,), "VALID"),
    "sums of windows": lambda a: lax.reduce_window(a, a[0], lax.add, (2,), (2,), "SAME"),
    "padded windows": lambda a: smooth_window(a, (3,), (2,), ((1, 2),), (2,), (2,)),
    "boxes": lambda a: lax.reduce_window(lines(a), a[0], turned, (2, 3), (1, 2), ((1, 0), (-1, 2)), (2, 1), (1, 1)),
    "no windows": lambda a: lax.reduce_window(a[:0], a[0], turned, (2,), (1,), ((1, 1),)),
    "in a scan": lambda a: lax.scan(lambda c, x: (lax.reduce(a + x, c, turned, (0,)), c), 0.1 * a[1], a)[1],
    "in a branch": lambda a: lax.cond(a[0] > 1, lambda a, b: lax.reduce(a, b, turned, (0,)), lambda a, b: b, a, a[1]),
    "in a loop": lambda a: lax.fori_loop(0, 3, lambda k, c: 0.1 * lax.reduce(a, c, turned, (0,)), a[1]),
    "in a call": lambda a: jax.jit(lambda a, c: lax.reduce(a, c, turned, (0,)))(a, a[2]),
    "remade": lambda a: jax.checkpoint(lambda a, c: lax.reduce(a, c, turned, (0,)))(a, a[2]),
    "with a rule": with_a_rule,
    "composite": lambda a: lax.composite(lambda a: jnp.sin(a) * a, "tests.sine")(a),
    "updates": lambda a: lax.linalg.cholesky_update(jnp.diag(a) + jnp.triu(jnp.outer(a, a)), a - a[1]),
}
OTHERS = ("largest", "integers", "bools", "with a rule")
"""What differences say nothing of, or something else."""


def _of_all(names, x, dtype):
    """A graph with a vertex for each row and each of some functions, and what comes out by the functions' names."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    given = graph.add_variable("x", x.shape, dtype)
    made = {}
    for name in names:
        own = FUNCTIONS[name]
        made[name] = graph.add_vertex(name, cl.codelet(lambda a: own(a).astype(dtype)), a=given[cl.grid(len(x))])
    return graph, made


@pytest.fixture(scope="module")
def every():
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 5)).astype(np.float32)
    expected = {name: np.stack([function(jnp.asarray(row)) for row in x]) for name, function in FUNCTIONS.items()}
    return x, expected, *_of_all(FUNCTIONS, x, np.float32)


def _check(found, expected, made):
    for name, own in expected.items():
        np.testing.assert_allclose(found[made[name].source.name], own, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_interpret_runs_them_as_jax_does(every):
    x, expected, graph, made = every
    _check(cl.interpret(graph, values={"x": x}, outputs=[*made.values()]), expected, made)


@few("execution", ["fused", "tiles", "addresses"], quick=["fused", "tiles"])
def test_executions_run_them_as_jax_does(every, execution):
    x, expected, graph, made = every
    run = cl.Engine(graph, execution=execution).function(inputs=["x"], outputs=[*made.values()])
    _check(jax.jit(run)({"x": x}), expected, made)


def test_slopes_are_those_of_differences():
    names = [name for name in FUNCTIONS if name not in OTHERS]
    with jax.enable_x64(True):
        x = np.random.default_rng(1).uniform(0.5, 1.5, (2, 5))
        x[:, 0] = 1.3, 0.7  # on both sides of the branch
        graph, made = _of_all(names, x, np.float64)
        total = cl.ops.sum(graph, cl.concatenate([own.reshape(own.size) for own in made.values() if own.size]))
        found = cl.gradient(graph, of=total, wrt=["x"])
        run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=["x"], outputs=[*found])
        slopes = np.asarray(jax.jit(run)({"x": x})[next(iter(found)).source.name])
        # Not jitted: XLA loses beginnings where it makes one sum of two.
        plain = lambda x: sum(np.sum(FUNCTIONS[name](jnp.asarray(row))) for row in x for name in names)  # noqa: E731
        step = 1e-5
        ways = np.random.default_rng(2).normal(size=(1, *x.shape))
        differences = [(plain(x + step * way) - plain(x - step * way)) / (2 * step) for way in ways]
    np.testing.assert_allclose([np.vdot(slopes, way) for way in ways], differences, rtol=1e-5)


@pytest.mark.slow
def test_beginnings_of_rows_of_many_lengths():
    lengths = [0, 1, 2, 3, 5, 8, 20, 21]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = np.random.default_rng(2).uniform(0.5, 1.5, offsets[-1]).astype(np.float32)
    graph = cl.Graph(cl.IPU(num_tiles=4))
    given, first = graph.add_variable("x", x.shape), graph.add_variable("first", (len(lengths),))
    rows, i = cl.table(np.arange(len(x)), offsets=offsets), cl.grid(len(lengths))
    fold = cl.codelet(lambda a, b: lax.reduce(0.5 * a, b, turned, (0,)))
    made = graph.add_vertex("run", fold, a=given[rows[i]], b=first[i])
    values = {"x": x, "first": np.arange(1, 1 + len(lengths), dtype=np.float32)}
    expected = cl.interpret(graph, values=values, outputs=[made])["run/out"]
    for execution in ("fused", "tiles", "addresses"):
        run = cl.Engine(graph, execution=execution).function(inputs=["x", "first"], outputs=[made])
        np.testing.assert_allclose(jax.jit(run)(values)["run/out"], expected, rtol=1e-5)


def test_beginnings_that_no_input_decides_stay_as_they_are():
    def function(a):
        half = jnp.float32(0.5)
        outer = lax.reduce(a, 2 * half, turned, (0,))
        return lax.scan(lambda c, x: (c, lax.reduce(a * x, half, turned, (0,))), outer, a)[1]

    traced = cl.codelet(function).specialise({"a": FieldType((5,), np.dtype(np.float32))})
    assert str(traced.jaxpr).count(" reduce[") == 2


def _world(function, arguments, shared=()):
    names = [f"a{k}" for k in range(len(arguments))]
    graph = cl.Graph(cl.IPU(num_tiles=4))
    fields = {}
    for k, (name, own) in enumerate(zip(names, arguments, strict=True)):
        shape = own.shape if k in shared else (3, *own.shape)
        variable = graph.add_variable(name, shape, own.dtype)
        fields[name] = variable if k in shared else variable[cl.grid(3)]
    called = eval(f"lambda {', '.join(names)}: function({', '.join(names)})", {"function": function})
    called.__name__ = "called"
    return graph, graph.add_vertex("run", cl.codelet(called), **fields), names


def test_what_jax_cannot_batch_is_told():
    function, *arguments = CASES["rng_uniform"]
    graph, made, names = _world(function, arguments)
    message = r"codelet 'called' cannot run for several vertices at once\n *given: *primitive 'rng_uniform'"
    for execution in ("fused", "tiles", "addresses"):
        with pytest.raises(cl.CodeletTraceError, match=message):
            cl.Engine(graph, execution=execution).function(inputs=names, outputs=[made])
    function, *arguments = CASES["ragged_dot"]
    graph, made, names = _world(function, arguments, shared=(1,))
    with pytest.raises(cl.CodeletTraceError, match=r"primitive 'ragged_dot_general'; JAX says: ragged_dot vmap over"):
        cl.lower(graph, inputs=names, outputs=[made])


REFUSED = ("rng_uniform",)
"""What nothing is written for: its numbers differ at every run."""


@pytest.mark.slow
def test_every_function_of_lax_traces_to_what_jax_batches():
    """With every operand of its own for each vertex."""
    refused = []
    for name, (function, *arguments) in CASES.items():
        leaves, tree = jax.tree.flatten(arguments)
        if not leaves:
            continue
        parameters = [f"a{k}" for k in range(len(leaves))]
        spread = {"function": lambda *own, f=function, t=tree: f(*jax.tree.unflatten(t, own)), "jax": jax}
        listed = f"{{f'out{{k}}': own for k, own in enumerate(jax.tree.leaves(function({', '.join(parameters)})))}}"
        own = cl.codelet(eval(f"lambda {', '.join(parameters)}: {listed}", spread))
        kinds = {p: FieldType(leaf.shape, leaf.dtype) for p, leaf in zip(parameters, leaves, strict=True)}
        traced = own.specialise(kinds)
        structs = [jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype) for leaf in leaves]
        try:
            jax.eval_shape(jax.vmap(lambda *fields, traced=traced: traced.call(*fields)), *structs)
        except NotImplementedError:
            refused.append(name)
    assert tuple(refused) == REFUSED
