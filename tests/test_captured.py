"""Numbers that a codelet's function captures: what they were when the vertex was added, wherever it runs."""

import functools
import pickle
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.tracing.traced_codelet import TracedCodelet
from tests.examples import few

FACTOR = 1.0


def times_factor(x):
    return FACTOR * x


@cl.codelet
def by_helper(x):
    return times_factor(x)


@cl.codelet
def by_global(x):
    return x * FACTOR


def _agree(graph, x, y, expected):
    """Every way to run says the same."""
    values = {x.name: np.arange(1, 1 + x.size, dtype=np.float32)}
    expected = np.asarray(expected, np.float32)
    vertices = [vertex.run(values)["out"] for vertex in graph.iter_vertices()]
    found = {
        "lowered": cl.lower(graph, inputs=[x], outputs=[y])(values)[y.name],
        "interpret": cl.interpret(graph, values=values, outputs=[y])[y.name],
        "vertices": np.stack(vertices).reshape(y.shape),
    }
    for way, result in found.items():
        np.testing.assert_array_equal(result, expected, way)


@pytest.fixture
def world():
    graph = cl.Graph()
    return graph, graph.add_variable("x", (3,)), graph.add_variable("y", (3,))


def test_a_codelet_for_each_number(world):
    graph, x, y = world
    for k in range(3):
        graph.add_vertex("a", cl.codelet(lambda a: k * a), a=x[k], out=y[k])
    _agree(graph, x, y, [0, 2, 6])


@pytest.mark.parametrize("by_symbols", [False, True], ids=["one at a time", "as families"])
def test_one_codelet_whose_number_changes(world, by_symbols):
    graph, x, y = world
    k = 0
    times = cl.codelet(lambda a: k * a)
    for k in range(3):
        i = cl.grid(range(k, k + 1)) if by_symbols else k
        graph.add_vertex("a", times, a=x[i], out=y[i])
    assert len(graph.families) == 3
    _agree(graph, x, y, [0, 2, 6])


def test_numbers_that_are_so_again_make_one_family(world):
    graph, x, y = world
    k = 0
    times = cl.codelet(lambda a: k * a)
    for k in (1, 2, 2.0, 1, -0.0, 0.0, 2):  # noqa: B007
        graph.add_vertex("a", times, a=x[0], out=y[0])
    assert [family.num_vertices for family in graph.families] == [2, 2, 1, 1, 1]


@pytest.mark.parametrize("codelet", [by_helper, by_global], ids=["through a helper", "itself"])
def test_a_global_that_changes(world, codelet, monkeypatch):
    graph, x, y = world
    for k, factor in enumerate([2.0, 3.0, 2.0]):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        graph.add_vertex("a", codelet, x=x[k], out=y[k])
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert [family.num_vertices for family in graph.families] == [2, 1]
    np.testing.assert_array_equal(cl.interpret(graph, values={"x": np.ones(3)}, outputs=[y])["y"], [2, 3, 2])
    np.testing.assert_array_equal(cl.lower(graph, inputs=[x], outputs=[y])({"x": np.ones(3)})["y"], [2, 3, 2])
    copied = pickle.loads(pickle.dumps(graph))  # as equations: what is found by name is another function by now
    np.testing.assert_array_equal(cl.interpret(copied, values={"x": np.ones(3)}, outputs=["y"])["y"], [2, 3, 2])
    np.testing.assert_array_equal(cl.lower(copied, inputs=["x"], outputs=["y"])({"x": np.ones(3)})["y"], [2, 3, 2])
    assert codelet(1.0) == 7.0


def _arrays(k):
    held = np.full((), k, np.float32)
    return cl.codelet(lambda a: held * a), lambda k: held.fill(k)


def _functions(k):
    def inner(a):
        return k * a

    def outer(a):
        return jax.vmap(inner)(a[None])[0]

    def change(new):
        nonlocal k
        k = new

    return cl.codelet(outer), change


def _partials(k):
    def inner(factor, a):
        return factor * k * a

    def change(new):
        nonlocal k
        k = new

    return cl.codelet(functools.partial(inner, 1)), change


def _codelets(k):
    inner = cl.codelet(lambda a: k * a)

    def change(new):
        nonlocal k
        k = new

    return cl.codelet(lambda a: inner(a)), change


@pytest.mark.parametrize("kind", [_arrays, _functions, _partials, _codelets])
def test_what_may_be_captured(world, kind):
    graph, x, y = world
    codelet, change = kind(2)
    for k in range(3):
        change(k + 2)
        graph.add_vertex("a", codelet, a=x[k], out=y[k])
    change(9)
    _agree(graph, x, y, [2, 6, 12])


@dataclass
class _Held:
    k: float | None = 2.0

    def times(self, a):
        return self.k * a

    __call__ = times


def _of_another_module(held):
    """A function whose globals are not those of this module."""
    home = {"held": held}
    exec("def times(a):\n    return a * held.k", home)
    return home["times"]


def _held(kind):
    """A codelet that uses what something holds, and what changes that; None takes it away."""
    listed, named, held, nested = [2.0], {"k": 2.0}, _Held(), ({"k": [np.array(2.0)]},)

    def in_list(k):
        listed[:] = [] if k is None else [k]

    def in_dict(k):
        named.pop("k", None) if k is None else named.update(k=k)

    def in_array(k):
        nested[0]["k"][:] = [] if k is None else [np.array(k)]

    def in_object(k):
        held.k = k

    return {
        "list": (lambda a: a * listed[0], in_list),
        "dict": (lambda a: a * named["k"], in_dict),
        "nested": (lambda a: a * nested[0]["k"][0], in_array),
        "object": (lambda a: a * held.k, in_object),
        "method": (held.times, in_object),
        "callable": (lambda a: held(a), in_object),
        "another module": ((lambda other: lambda a: other(a))(_of_another_module(held)), in_object),
        "tuple": ((lambda pair: lambda a: a * pair[1][0])((1, listed)), in_list),
        "partial": (functools.partial(lambda own, a: a * own[0], listed), in_list),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["list", "dict", "nested", "object", "method", "callable", "another module", "tuple", "partial"]
)
def test_what_changes_inside_of_what_is_captured_is_told(world, kind):
    """The lowered graph has what was there when it was traced; where the function would say otherwise, it is told."""
    graph, x, y = world
    function, change = _held(kind)
    i = cl.grid(3)
    graph.add_vertex("a", cl.codelet(function), a=x[i], out=y[i])
    given = {"x": np.full(3, 3.0, np.float32)}
    found = lambda: float(cl.interpret(graph, values=given, outputs=[y])["y"][0])  # noqa: E731
    assert found() == 6
    for k in (5.0, None):
        change(k)
        assert float(cl.lower(graph, inputs=[x], outputs=[y])({**given})["y"][0]) == 6
        with pytest.raises(cl.CodeletTraceError, match="uses a value that has changed since its vertices were added"):
            found()
    change(2.0)
    assert found() == 6


class _Shared:
    k = 2.0


ZERO_DIMENSIONAL = [lambda k, kind=kind: np.array(k, kind) for kind in (np.float32, np.float64, np.int32)]

EXECUTIONS = ("fused", "tiles", "addresses")


@pytest.mark.parametrize("ragged", [False, True], ids=["rows", "ragged"])
@pytest.mark.parametrize("held", ["dict", "class"])
@pytest.mark.parametrize("make", [float, *ZERO_DIMENSIONAL], ids=["float", "f32", "f64", "int"])
def test_what_changes_is_told_by_vertices_and_gradients_too(make, held, ragged, monkeypatch):
    """Before it changes all say one thing; then the lowered function still does, or whatever traces anew tells it."""
    named = {"k": make(2)}
    monkeypatch.setattr(_Shared, "k", make(2))
    function = {"dict": lambda a: (a * named["k"]).sum(), "class": lambda a: (a * _Shared.k).sum()}[held]
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (5,)), cl.grid(2)
    rows = cl.table(np.arange(5), offsets=[0, 2, 5])[i] if ragged else slice(2 * i, 2 * i + 2)
    y = graph.add_vertex("run", cl.codelet(function), a=x[rows])
    given = {"x": np.ones(5, np.float32)}
    found = lambda: cl.interpret(graph, values=given, outputs=[y])["run/out"].tolist()  # noqa: E731
    expected = [4, 6] if ragged else [4, 4]
    before = cl.lower(graph, inputs=[x], outputs=[y])
    assert found() == [float(own.run(given)["out"]) for own in graph.iter_vertices()] == expected
    own = named["k"]
    if isinstance(own, np.ndarray) and held == "dict":
        own[...] = 5
    else:
        named["k"] = _Shared.k = make(5)
    for run in (before, *(cl.Engine(graph, execution=e).function(inputs=[x], outputs=[y]) for e in EXECUTIONS)):
        assert run(given)["run/out"].tolist() == expected
    message = "uses a value that has changed since its vertices were added|computes something else when it is called"
    vertex = next(iter(graph.iter_vertices()))
    for tell in (found, lambda: vertex.run(given), lambda: cl.gradient(graph, of=y, wrt=[x], cotangent=1.0)):
        with pytest.raises(cl.CodeletTraceError, match=message):
            tell()
    if ragged:
        with pytest.raises(cl.CodeletTraceError, match=message):
            graph.add_vertex("more", graph.families[0].codelet.codelet, a=x[rows])


class _Table:
    def __init__(self, held):
        self.held = held

    def __call__(self, a):
        return a * a * self.held


def _doubled_by(table):
    return lambda carry, _: (carry * table(), None)


def _using(table):
    """Functions of JAX that use a table, some of which JAX remembers for as long as they live."""
    body = _doubled_by(table)
    return {
        "directly": lambda a: a * a * table(),
        "in a jit": lambda a: jax.jit(lambda a: a * a * table())(a),
        "in a loop": lambda a: jax.lax.scan(lambda carry, _: (carry * table(), None), a, None, 2)[0],
        "in a body": lambda a: jax.lax.scan(body, a, None, 2)[0],
    }


HELD = ["dict", "list in a tuple", "object", "method"]


@few(
    "dtype, held, how",
    product(["float64", "int64", "float32"], HELD, _using(None)),
    quick=["float64, dict, directly", "float32, object, directly"],
)
def test_an_array_that_is_written_to_is_told_whatever_jax_remembers(dtype, held, how):
    """JAX keeps what it converted of an array of 64 bits, here for an adjoint that was made before it changed."""
    array = np.arange(1, 4).astype(dtype)
    named, nested, own = {"k": array}, ([0.5, array],), _Table(array)
    tables = {"dict": lambda: named["k"], "list in a tuple": lambda: nested[0][1], "object": lambda: own.held}
    function = own if held == "method" else _using(tables[held])[how]
    graph = cl.Graph()
    x = graph.add_variable("x", (3,))
    y = graph.add_vertex("run", cl.codelet(function), a=x)
    found = cl.gradient(graph, of=y, wrt=[x], cotangent=1.0)
    both, given = cl.Sequence(found.forward, found.backward), {"x": np.ones(3, np.float32)}
    run = lambda: cl.interpret(graph, values=given, outputs=[y, *found], program=both)  # noqa: E731
    before = {name: own.tolist() for name, own in run().items()}
    array += 10
    lowered = cl.lower(graph, both, inputs=[x], outputs=[y, *found])(given)
    assert {name: own.tolist() for name, own in lowered.items()} == before
    for tell in (run, lambda: cl.gradient(graph, of=y, wrt=[x], cotangent=1.0)):
        with pytest.raises(cl.CodeletTraceError, match="uses a value that has changed since its vertices were added"):
            tell()
    array -= 10
    assert {name: own.tolist() for name, own in run().items()} == before


def test_what_prints_is_told_as_well(world):
    graph, x, y = world
    named, i = {"k": 2.0}, cl.grid(3)

    def printed(a):
        jax.debug.print("{}", a)
        return a * named["k"]

    graph.add_vertex("a", cl.codelet(printed), a=x[i], out=y[i])
    named["k"] = 5.0
    with pytest.raises(cl.CodeletTraceError, match="uses a value that has changed"):
        cl.interpret(graph, values={"x": np.ones(3)}, outputs=[y])


def test_constants_of_a_solve_are_copied(world):
    graph, x, y = world
    table = np.full(3, 2, np.float32)
    solve = lambda a: jax.lax.custom_linear_solve(lambda z: table * z, a, lambda f, b: b / table)  # noqa: E731
    graph.add_vertex("a", cl.codelet(solve), a=x, out=y)
    table[:] = 7
    np.testing.assert_array_equal(cl.lower(graph, inputs=[x], outputs=[y])({"x": np.ones(3)})["y"], [0.5] * 3)


def test_ragged_codelets_are_traced_as_they_were(world):
    """Lengths are traced for later than their vertices are added."""
    graph, x, _ = world
    rows, k = cl.table([0, 1, 2, 0, 1, 2], offsets=[0, 1, 3, 6]), 10.0
    y = graph.add_variable("z", (3,))
    total = cl.codelet(lambda a: k * a.sum() if a.shape[0] > 1 else a.sum())
    i = cl.grid(3)
    graph.add_vertex("a", total, a=x[rows[i]], out=y[i])
    k = 1.0
    _agree(graph, x, y, [1, 50, 60])


def test_cycles_are_of_the_time_of_adding():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x", (3,))
    y = graph.add_variable("y", (3,))
    for k in range(3):
        own = cl.codelet(lambda a: a, cycles=lambda a: 1000 * (k + 1))
        graph.add_vertex(f"set {k}", own, a=x[k], out=y[k])
    assert [graph.target.estimate_cycles(family.codelet).worker for family in graph.families] == [1000, 2000, 3000]


def test_turns_are_of_the_time_of_adding():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    for k in range(2):
        own = cl.codelet(lambda a: a, workers=6, issue="assembly", vectorised=True, trip_count=lambda a: 10 * (k + 1))
        graph.add_vertex(f"step {k}", own, a=x)
    hints = [family.codelet.codelet.hints for family in graph.families]
    assert [own.trip_count(a=None) for own in hints if callable(own.trip_count)] == [10, 20]
    assert [(own.workers, own.issue, own.vectorised) for own in hints] == [(6, "assembly", True)] * 2


def test_what_a_codelet_does_beside_is_still_done(world, capsys):
    graph, x, y = world
    seen, count = [], 0

    def noted(a):
        nonlocal count
        count += 1
        seen.append(a)
        print("met")
        return 2 * a

    i = cl.grid(3)
    graph.add_vertex("a", cl.codelet(noted), a=x[i], out=y[i])
    graph.vertex("a", 1).run({"x": np.ones(3)})
    assert len(seen) == count == 2
    assert capsys.readouterr().out == "met\nmet\n"


def test_codelets_that_capture_nothing_are_themselves():
    plain = cl.codelet(lambda a: jnp.tanh(a))
    assert plain.frozen() is plain
    assert not plain.captures


def _scale(k):
    return k * 2


@pytest.mark.parametrize(
    "function",
    [
        lambda k, a: a * k,
        lambda k, a: jnp.tanh(a) * _scale(k),
        functools.partial(lambda b, k, a: a * k * b, 3),
        lambda k, a: jax.nn.relu(a) + (k, "text")[0],
    ],
)
def test_what_cannot_change_is_not_called_again(world, function, monkeypatch):
    """Numbers, text and functions of libraries are as they were; a function of these alone is not traced to see it."""
    graph, x, y = world
    seen = []
    monkeypatch.setattr(
        TracedCodelet,
        "call",
        lambda traced, *inputs, call=TracedCodelet.call: seen.append(traced) or call(traced, *inputs),
    )
    own = functools.partial(function, 2)
    i = cl.grid(2)
    graph.add_vertex("a", cl.codelet(own), a=x[i], out=y[i])
    graph.add_vertex("b", cl.codelet(lambda a: own(a) + len(seen) * 0), a=x[2], out=y[2])
    given = {"x": np.ones(3, np.float32)}
    assert cl.interpret(graph, values=given, outputs=[y])["y"].tolist() == [function(2, np.float32(1))] * 3
    assert seen == [graph.families[1].codelet]


def test_vertices_inside_and_outside_x64_are_apart():
    """Each is traced under the setting that it was added with, also where one instruction adds both kinds."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (6,))
    square_root = cl.codelet(lambda a, n: a + (n * n // n).astype(jnp.float32))
    for k in range(6):
        with jax.enable_x64(k // 2 == 1):
            graph.add_vertex("a", square_root, a=x[k], n=2**20, out=y[k])
    with jax.enable_x64(True):
        graph.add_vertex("b", cl.codelet(lambda a, n: a * (n > 0)), a=x[0], n=2**40, out=graph.add_variable("z", ()))
    assert [family.num_vertices for family in graph.families] == [4, 2, 1]
    values, expected = {"x": np.zeros(6, np.float32)}, [0, 0, 2**20, 2**20, 0, 0]
    assert cl.interpret(graph, values=values, outputs=[y])["y"].tolist() == expected
    with jax.enable_x64(True):
        assert jax.jit(cl.lower(graph, inputs=[x], outputs=[y]))(values)["y"].tolist() == expected
