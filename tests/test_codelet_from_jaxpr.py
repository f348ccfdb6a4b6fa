"""Codelets made of jaxprs: they run, cost, copy and print as those of functions do, and are refused where these are."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

import codelet as cl
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet, _by_identity
from codelet.tracing.field_types import FieldType
from codelet.tracing.lengths import fresh_lengths
from codelet.tracing.trace_ragged import trace_ragged
from ipu_backend.model.cost import codelet_cycles
from tests.examples import few

THREE, NUMBER = jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.float32)


def jaxpr_of(function, *types):
    return jax.make_jaxpr(function)(*types)


def learn(w, g, rate):
    return {"w": w - rate * g, "size": jnp.sum(g * g)}


def learning() -> JaxprCodelet:
    jaxpr = jaxpr_of(lambda *given: list(learn(*given).values()), THREE, THREE, NUMBER)
    return cl.codelet_from_jaxpr(jaxpr, ["w", "g", "rate"], ["w", "size"], name="learn")


def learned(kind: cl.Codelet, rate: object = 0.5) -> cl.Graph:
    """A graph of families and of single vertices, with an in-out field and vertex state."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    w, g, i = graph.add_variable("w", (4, 3)), graph.add_variable("g", (4, 3)), cl.grid(4)
    graph.add_vertex("all", kind, w=w[i], g=g[i], rate=rate, size=graph.add_variable("size", (4,))[3 - i], tile=i)
    sizes = graph.add_variable("sizes", (4,))
    for k in range(4):
        graph.add_vertex("each", kind, w=g[k], g=w[3 - k], rate=k, size=sizes[k], tile=k)
    return graph


VALUES = {"w": np.arange(12, dtype=np.float32).reshape(4, 3), "g": np.linspace(-1, 1, 12, dtype=np.float32)}
VALUES["g"] = VALUES["g"].reshape(4, 3)
OUTPUTS = ["w", "g", "size", "sizes"]


@few("rate", [0.5, 2, np.float32(0.25), np.linspace(0, 1, 4, dtype=np.float32)], quick=["2"])
def test_it_is_what_the_function_is(rate):
    ours, theirs = learned(learning(), rate), learned(cl.codelet(learn), rate)
    assert (ours.num_vertices, ours.num_edges) == (theirs.num_vertices, theirs.num_edges)
    meant = cl.interpret(theirs, values=VALUES, outputs=OUTPUTS)
    found = [
        cl.interpret(ours, values=VALUES, outputs=OUTPUTS),
        cl.lower(ours, inputs=["w", "g"], outputs=OUTPUTS)(VALUES),
    ]
    for execution in ("fused", "tiles", "addresses") if np.ndim(rate) else ():
        engine = cl.Engine(ours, execution=execution)
        engine.write(VALUES)
        engine.run()
        found.append({name: engine.read(name) for name in OUTPUTS})
    for results in found:
        for name in OUTPUTS:
            np.testing.assert_allclose(results[name], meant[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.vertex("each", 2).run(VALUES)["size"], np.sum(VALUES["w"][1] ** 2))


def test_it_costs_what_the_function_costs():
    ours, theirs = (learned(kind, np.float32(0.5)) for kind in (learning(), cl.codelet(learn)))
    # What the trace is of does not matter: the same equations are the same program.
    ours_first, theirs_first = ours.families[0].codelet, theirs.families[0].codelet
    assert str(ours_first) == str(theirs_first)
    assert codelet_cycles(ours_first, cl.IPU()) == codelet_cycles(theirs_first, cl.IPU())
    mine, other = cl.Engine(ours).profile(), cl.Engine(theirs).profile()
    assert mine.total_cycles == other.total_cycles
    assert str(mine.summary()) == str(other.summary())
    known = cl.codelet_from_jaxpr(learning().jaxprs[0], ["w", "g", "rate"], ["w", "size"], cycles=lambda w, g, rate: 7)
    assert codelet_cycles(learned(known).families[0].codelet, cl.IPU()).worker == 7


def test_it_is_not_traced_again_where_it_fits():
    kind = learning()
    types = {"w": FieldType((3,), np.dtype("f4")), "g": FieldType((3,), np.dtype("f4"))}
    traced = kind.specialise({**types, "rate": FieldType((), np.dtype("f4"))})
    assert traced.jaxpr is kind.jaxprs[0]
    plain = kind.specialise({**types, "rate": FieldType((), np.dtype("i4"), weak=True)})
    assert "convert_element_type" in str(plain.jaxpr)
    assert repr(kind) == "codelet learn(w, g, rate)"
    assert str(kind).startswith("codelet learn(w: float32[3], g: float32[3], rate: float32[]) -> w: float32[3], size:")
    assert cl.codelet_from_jaxpr(jaxpr_of(jnp.sin, NUMBER), "x").name == "sin"
    double = cl.codelet_from_jaxpr(jaxpr_of(lambda x: x + x, NUMBER), ["x"])
    assert float(double(2)) == float(double(x=2.0)) == 4
    assert cl.codelet(lambda y: double(y) + 1)(3.0) == 7


@pytest.mark.slow
def test_a_length_that_depends_on_the_vertex_has_a_jaxpr_each():
    def scaled(x):
        return x * x.shape[0]

    def built(kind):
        graph, i = cl.Graph(cl.IPU(num_tiles=4)), cl.grid(3)
        x, rows = graph.add_variable("x", (6,)), cl.table([5, 0, 1, 2, 4, 3], offsets=[0, 1, 3, 6])
        graph.add_vertex("a", kind, x=x[rows[i]], out=graph.add_variable("y", (6,))[rows[i]])
        return graph

    jaxprs = [jaxpr_of(scaled, jax.ShapeDtypeStruct((n,), np.float32)) for n in (1, 2, 3)]
    graph, x = built(cl.codelet_from_jaxpr(jaxprs, ["x"], name="scaled")), np.arange(1.0, 7, dtype=np.float32)
    meant = cl.interpret(built(cl.codelet(scaled)), values={"x": x}, outputs=["y"])["y"]
    np.testing.assert_array_equal(cl.interpret(graph, values={"x": x}, outputs=["y"])["y"], meant)
    run = cl.lower(graph, inputs=["x"], outputs=["y"])
    np.testing.assert_array_equal(run({"x": x})["y"], meant)
    np.testing.assert_array_equal(jax.grad(lambda x: run({"x": x})["y"].sum())(x), meant / x)
    assert cl.Engine(graph).profile().total_cycles == cl.Engine(built(cl.codelet(scaled))).profile().total_cycles
    with pytest.raises(
        cl.CodeletTraceError, match=r"no jaxpr for these fields(.|\n)*x: float32\[3\](.|\n)* or x: floa"
    ):
        built(cl.codelet_from_jaxpr(jaxprs[:2], ["x"]))


@pytest.mark.slow
def test_equations_of_a_function_as_vertices():
    """What a front end does: a vertex for each equation of any JAX function."""

    def function(x, y):
        z = jnp.sin(x) * y
        return jnp.dot(z, jnp.where(y > 0, x, 2.0)) - jnp.max(z)

    x0, y0 = jnp.linspace(-1, 1, 5), jnp.linspace(2, -2, 5)
    jaxpr, graph = jax.make_jaxpr(function)(x0, y0).jaxpr, cl.Graph()
    tensors = {var: graph.add_variable(n, v.shape) for var, n, v in zip(jaxpr.invars, "xy", (x0, y0), strict=True)}
    for k, eqn in enumerate(jaxpr.eqns):
        operands = list(dict.fromkeys(atom for atom in eqn.invars if not isinstance(atom, jax_core.Literal)))
        one = jax_core.Jaxpr((), operands, eqn.outvars, [eqn], eqn.effects, debug_info=jaxpr.debug_info)
        fields = {f"x{n}": tensors[var] for n, var in enumerate(operands)}
        kind = cl.codelet_from_jaxpr(jax_core.ClosedJaxpr(one, ()), list(fields), name=eqn.primitive.name)
        tensors[eqn.outvars[0]] = graph.add_vertex(f"{k}", kind, **fields)
    result = tensors[jaxpr.outvars[0]]
    run = cl.lower(graph, inputs=["x", "y"], outputs=[result])
    values = {"x": x0, "y": y0}
    for found in (run(values), cl.interpret(graph, values=values, outputs=[result])):
        np.testing.assert_allclose(next(iter(found.values())), function(x0, y0), rtol=1e-5)
    slope = jax.grad(lambda x: next(iter(run({"x": x, "y": y0}).values())))(x0)
    np.testing.assert_allclose(slope, jax.grad(function)(x0, y0), rtol=1e-5)


# --- copies and files -----------------------------------------------------------------------------------


def saved(value):
    return pickle.loads(pickle.dumps(value))


WRITTEN = {
    "scan": lambda x: jax.lax.scan(lambda c, y: (jnp.where(c > 0, c, y * 2.0), c + y), x[0], x),
    "while": lambda x: jax.lax.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + 1, c[1] * 2), (0.0, x)),
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda x: x + 1, jnp.sin, x),
    "constants": lambda x: x[np.array([0, 2])] + np.arange(2) * np.float32(2),
    "random": lambda x: x + jax.random.uniform(jax.random.wrap_key_data(jnp.array([0, 1], jnp.uint32))),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)),
    "other functions": lambda x: (jax.checkpoint(jnp.sin)(x), jnp.split(x, 3), jax.nn.softmax(x), x.at[1].add(2)),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("what", WRITTEN)
def test_a_jaxpr_is_read_as_it_was_written(what, x64):
    with jax.enable_x64(x64):
        jaxpr = jaxpr_of(WRITTEN[what], jnp.arange(1.0, 4))
    outputs = [f"out{k}" for k in range(len(jaxpr.out_avals))]
    kind = cl.codelet_from_jaxpr(jaxpr, ["x"], outputs, name=what)
    twin = cl.codelet_from_jaxpr(jaxpr, ["x"], outputs, name=what)
    assert saved((twin, kind)) == (twin, kind)
    assert copy.deepcopy(kind) is kind
    written = pickle.dumps(kind)
    _by_identity.clear()  # as in another process
    read = pickle.loads(written)
    assert read is not kind
    assert (read.name, list(read.inputs), read.outputs) == (what, ["x"], tuple(outputs))
    assert str(read.jaxprs[0]) == str(jaxpr)
    assert read.jaxprs[0].in_avals == jaxpr.in_avals
    assert read.jaxprs[0].out_avals == jaxpr.out_avals
    for ours, theirs in zip(read.jaxprs[0].consts, jaxpr.consts, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_graphs_of_them_come_back():
    graph = learned(learning())
    for way in (copy.deepcopy, saved):
        again = way(graph)
        assert str(again) == str(graph)
        assert again.families[0].codelet is graph.families[0].codelet
        assert str(way(cl.lower(graph, inputs=["w", "g"], outputs=OUTPUTS)).plan)


@pytest.mark.parametrize("what", ["a print", "cycles"])
def test_what_cannot_be_written_is_told(what):
    function = {"a print": lambda x: (jax.debug.print("{}", x), x)[1], "cycles": jnp.sin}[what]
    cycles = (lambda x: 7) if what == "cycles" else None
    kind = cl.codelet_from_jaxpr(jaxpr_of(function, NUMBER), ["x"], name="odd", cycles=cycles)
    expected = {"a print": "the primitive debug_print", "cycles": "the cycles of"}
    with pytest.raises(cl.SavingError, match=expected[what]) as caught:
        pickle.dumps(kind)
    mend = {"a print": "without a callback to Python", "cycles": "at the top of a module"}
    assert mend[what] in str(caught.value)


def test_a_derivative_rule_is_written():
    kind = cl.codelet_from_jaxpr(jaxpr_of(jax.nn.relu, NUMBER), ["x"], name="relu")
    data = pickle.dumps(kind)
    _by_identity.clear()  # as in another process
    again = pickle.loads(data)
    assert again is not kind
    assert [float(jax.grad(lambda x: again(x))(jnp.float32(x))) for x in (-1.0, 0.0, 2.0)] == [0.0, 0.0, 1.0]


def test_cycles_that_capture_are_those_of_the_time():
    by = 3
    jaxpr = jaxpr_of(jnp.sin, NUMBER)
    kind = cl.codelet_from_jaxpr(jaxpr, ["x"], cycles=lambda x: by)
    graph = cl.Graph()
    x, i = graph.add_variable("x", (2,)), cl.grid(2)
    graph.add_vertex("a", kind, x=x[i])
    by = 5
    graph.add_vertex("b", kind, x=x[i])
    assert [codelet_cycles(family.codelet, cl.IPU()).worker for family in graph.families] == [3, 5]


# --- mistakes -----------------------------------------------------------------------------------------


def _traced_constant():
    def outer(y):
        return cl.codelet_from_jaxpr(jax.make_jaxpr(lambda x: x + y)(1.0), ["x"])

    jax.jit(outer)(2.0)


SIN, LEARN = jaxpr_of(jnp.sin, THREE), learning()

MISTAKES = {
    "a function": (lambda: cl.codelet_from_jaxpr(jnp.sin, ["x"]), "no jaxpr(.|\n)*make_jaxpr(.|\n)*cl.codelet"),  # type: ignore
    "no jaxprs": (lambda: cl.codelet_from_jaxpr([], ["x"]), "no jaxpr(.|\n)*an empty list"),
    "too many names": (lambda: cl.codelet_from_jaxpr(SIN, ["x", "y"]), "inputs of codelet 'sin'(.|\n)*1 name"),
    "too few results": (lambda: cl.codelet_from_jaxpr(SIN, ["x"], []), "outputs of codelet 'sin'"),
    "no parameter": (lambda: cl.codelet_from_jaxpr(SIN, ["x[0]"]), r"another name than 'x\[0\]'"),
    "a tile": (lambda: cl.codelet_from_jaxpr(SIN, ["tile"]), "another name than 'tile'"),
    "no name": (lambda: cl.codelet_from_jaxpr(SIN, ["x"], name=3), "name of a codelet"),  # type: ignore
    "cycles": (lambda: cl.codelet_from_jaxpr(SIN, ["x"], cycles=3), "cycles are not a function"),  # type: ignore
    "twice": (lambda: cl.codelet_from_jaxpr([SIN, SIN], ["x"]), r"several jaxprs(.|\n)*x: float32\[3\]"),
    "nothing": (lambda: cl.codelet_from_jaxpr(jaxpr_of(lambda x: (), THREE), ["x"], []), "returns nothing"),
    "in and out": (
        lambda: cl.codelet_from_jaxpr(jaxpr_of(jnp.sum, THREE), ["x"], ["x"]),
        r"in-out field 'x'(.|\n)*float32\[3\] in, float32\[\] out",
    ),
    "a key": (
        lambda: cl.codelet_from_jaxpr(jaxpr_of(jax.random.uniform, jax.random.key(0)), ["key"]),
        "'key' is no array(.|\n)*wrap_key_data",
    ),
    "a symbol": (
        lambda: cl.codelet_from_jaxpr(
            jaxpr_of(jnp.sin, jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)), ["x"]
        ),
        "'x' is no array of a known shape",
    ),
    "a traced constant": (_traced_constant, "value of the jax transformation"),
    "another shape": (lambda: learned_wrongly(w=(3,), g=(2,)), r"no jaxpr for(.|\n)*g: float32\[2\](.|\n)*one jaxpr"),
    "another dtype": (lambda: learned_wrongly(g=np.ones(3, np.int32)), "no jaxpr for"),
    "a fraction": (
        lambda: cl.codelet_from_jaxpr(jaxpr_of(jnp.abs, jax.ShapeDtypeStruct((), np.int32)), ["x"])(0.5),
        r"x: float32\[\]~(.|\n)*x: int32\[\]",
    ),
    "a field": (lambda: learned_wrongly(v=(3,)), "no field 'v'"),
    "a result": (lambda: learned_wrongly(size=(2,)), "what codelet 'learn' returns does not fit"),
}
if SIN.jaxpr is not SIN:  # from JAX 0.12 on a jaxpr holds its constants: there are no open ones
    MISTAKES["an open jaxpr"] = (
        lambda: cl.codelet_from_jaxpr(SIN.jaxpr, ["x"]),
        r"other than a jaxpr(.|\n)*ClosedJaxpr\(jaxpr",
    )  # type: ignore


def learned_wrongly(**shapes):
    graph, given = cl.Graph(), {"w": (3,), "g": (3,), "rate": 1.0, **shapes}
    made = {n: graph.add_variable(n, s) if isinstance(s, tuple) else s for n, s in given.items()}
    graph.add_vertex("a", LEARN, **made)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(mistake):
    make, expected = MISTAKES[mistake]
    with pytest.raises(cl.CodeletError, match=expected) as caught:
        make()
    assert "expected:" in str(caught.value)
    assert "test_codelet_from_jaxpr.py" in str(caught.value)


@pytest.mark.parametrize("at", [0, 1])
def test_of_two_dimensions_without_elements_one_is_as_long_as_the_row(at):
    n, *_ = fresh_lengths()
    shape = (n, 0) if at == 0 else (0, n)
    empty = jaxpr_of(lambda a: 2 * a, jax.ShapeDtypeStruct((0, 0), np.float32))
    kind = cl.codelet_from_jaxpr(empty, ["a"])
    traced = trace_ragged(kind, {"a": FieldType(shape, np.dtype(np.float32))}, {}, [{n: 0}])
    assert traced.outputs["out"].shape == shape
