"""Lowered graphs and functions as JAX and Equinox see them; programs; the engine."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.examples import few
from tests.strategies import dot, total


@cl.codelet
def scale(x, *, by):
    return by * x


@cl.codelet
def look_up(x):
    return x


def dense(graph, x, w, *, chunk=2):
    row, p = cl.grid(w.shape[0], w.shape[1] // chunk)
    part = graph.add_vertex(
        "multiply", dot, x=x[chunk * p : chunk * p + chunk], w=w[row, chunk * p : chunk * p + chunk]
    )
    row = cl.grid(w.shape[0])
    return graph.add_vertex("add up", total, x=part[row])


X, W = jnp.arange(6.0), jnp.arange(24.0).reshape(4, 6)


def test_a_function_is_lowered():
    layer = cl.lower(dense)
    np.testing.assert_allclose(layer(X, W), W @ X)
    np.testing.assert_allclose(layer(X, W, chunk=3), W @ X)
    np.testing.assert_allclose(jax.grad(lambda w: layer(X, w).sum())(W), np.broadcast_to(X, (4, 6)))
    assert layer.at(X, W).graph.num_vertices == 16
    assert layer.at(X, W, chunk=3).graph.num_vertices == 12


def test_pytrees_go_in_and_out():
    def model(graph, inputs, parameters):
        hidden = dense(graph, inputs["x"], parameters[0])
        with graph.scope("second"):
            out = dense(graph, hidden, parameters[1])
        return {"out": out, "all": (hidden, inputs["x"])}

    layer = cl.lower(model)
    second = jnp.ones((3, 4))
    results = layer({"x": X}, [W, second])
    np.testing.assert_allclose(results["out"], second @ (W @ X))
    np.testing.assert_allclose(results["all"][0], W @ X)
    np.testing.assert_allclose(results["all"][1], X)
    names = [v.name for v in layer.at({"x": X}, [W, second]).graph.variables]
    assert names[:3] == ["inputs/x", "parameters/0", "parameters/1"]


def test_a_function_is_built_once_for_each_kind_of_arguments():
    builds = []

    def build(graph, x):
        builds.append(x.shape)
        return graph.add_vertex("double", scale, x=x[cl.grid(*x.shape)], by=2)

    layer = cl.lower(build)
    for size in (3, 3, 4):
        layer(jnp.ones(size))
    jax.jit(layer)(jnp.ones(3))
    layer(jnp.ones(3, "int32"))
    assert builds == [(3,), (4,), (3,)]


def test_equal_layers_do_not_retrace():
    traces = []

    def step(layer, x):
        traces.append(1)
        return layer(x, W)

    class Model(eqx.Module):
        layer: cl.Lowered
        weight: jax.Array

        def __call__(self, x):
            traces.append(1)
            return self.layer({"x": x, "w": self.weight})["y"]

    def graph_of():
        graph = cl.Graph()
        x, w = graph.add_variable("x", (6,)), graph.add_variable("w", (4, 6))
        i = cl.grid(4)
        y = graph.add_variable("y", (4,))
        graph.add_vertex("dots", dot, x=x, w=w[i], out=y[i])
        return cl.lower(graph, inputs=[x, w], outputs=[y])

    jitted = jax.jit(step, static_argnums=0)
    np.testing.assert_allclose(jitted(cl.lower(dense), X), W @ X)
    np.testing.assert_allclose(jitted(cl.lower(dense), X), W @ X)
    assert len(traces) == 1
    call = eqx.filter_jit(lambda model, x: model(x))
    for _ in range(2):
        np.testing.assert_allclose(call(Model(graph_of(), W), X), W @ X)
    assert len(traces) == 2
    assert graph_of() == graph_of()
    assert hash(graph_of()) == hash(graph_of())
    for _ in range(2):
        jax.jit(graph_of())({"x": X, "w": W})


def other_graph(change):
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5,)), graph.add_variable("y", (4,))
    i = cl.grid(4)
    table = cl.table([1, 2, 0, 4 if change == "table" else 3])
    graph.add_vertex(
        "set", scale, x=x[table[i]], out=y[3 - i if change == "map" else i], by=3 if change == "static" else 2
    )
    return cl.lower(graph, inputs=[x], outputs=[y])


@pytest.mark.parametrize("change", ["table", "map", "static"])
def test_unequal_graphs_are_unequal(change):
    assert other_graph(None) == other_graph(None)
    assert other_graph(None) != other_graph(change)


def test_tables_are_arguments_of_what_is_compiled():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (1000,)), graph.add_variable("y", (5000,))
    entries = np.random.default_rng(0).integers(0, 1000, 5000)
    i = cl.grid(5000)
    graph.add_vertex("look", look_up, x=x[cl.table(entries)[i]], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    values = np.arange(1000, dtype=np.float32)
    assert [leaf.shape for leaf in jax.tree.leaves(run)] == [(5000,)]
    lowered = jax.jit(lambda run, x: run({"x": x})["y"]).lower(run, values)
    assert "@main(%arg0: tensor<5000xi32>" in lowered.as_text()
    assert 'dense<"0x' not in lowered.as_text()
    np.testing.assert_array_equal(eqx.filter_jit(run)({"x": values})["y"], entries)
    np.testing.assert_array_equal(jax.jit(run)({"x": values})["y"], entries)
    engine = cl.Engine(graph)
    engine.write({"x": values})
    engine.run()
    np.testing.assert_array_equal(engine.read(y), entries)


def test_a_lowered_graph_prints():
    run = cl.lower(dense).at(X, W)
    assert str(run.plan) == (
        "platform  cpu\n"
        "inputs  x, w\n"
        "execute add up reads x, w writes add up/out\n"
        "  add up / inner product: 4 vertices over row: 4\n"
        "    in    left: float32[6] = x at f0\n"
        "    in    right: float32[6] = w at 6*row + f0\n"
        "    out   out: float32[] = add up/out at row\n"
        "    made of 12 vertices over row: 4 x p: 3\n"
        "    made of 4 vertices over row: 4\n"
        "    runs under vmap over row\n"
        "      reads left: x, as it lies\n"
        "      reads right: w, as it lies\n"
        "  writes add up/out: all of it\n"
        "moved / touched in add up: 34 / 76 = 0.45\n"
        "outputs Tensor(float32[4] of add up/out: f0)"
    )
    assert [str(family).split("\n")[0] for family in run.families] == [
        "multiply / dot: 12 vertices over row: 4 x p: 3",
        "add up / total: 4 vertices over row: 4",
    ]
    assert repr(run) == "<Lowered: x: float32[6], w: float32[4,6] -> add up/out>"
    assert "jaxpr" in run._repr_html_()
    assert "built for 0 kinds" in cl.lower(dense)._repr_html_()


# --- programs ---------------------------------------------------------------------------------------------


def test_programs_print():
    graph = cl.Graph()
    x, t = graph.add_variable("x", (4,)), graph.add_variable("t", (), "int32")
    graph.add_vertex("grow", scale, x=x[cl.grid(4)], out=x[cl.grid(4)], by=2)
    (grow,) = graph.compute_sets
    program = cl.Sequence(cl.Copy(x[:2], x[2:]), cl.Repeat(3, [grow, cl.Repeat(2, grow)], index=t), grow)
    assert str(program) == (
        "Copy(Tensor(float32[2] of x: f0) -> Tensor(float32[2] of x: 2 + f0))\n"
        "Repeat(3, index=Tensor(int32[] of t: 0))\n"
        "  Execute(grow)\n"
        "  Repeat(2)\n"
        "    Execute(grow)\n"
        "Execute(grow)"
    )


def test_a_repeat_counts_for_its_codelets():
    @cl.codelet
    def add_turn(s, turn):
        return {"s": s + turn}

    graph = cl.Graph()
    s, turn = graph.add_variable("s", (3,), "int32"), graph.add_variable("turn", (), "int32")
    i = cl.grid(3)
    graph.add_vertex("add", add_turn, s=s[i], turn=turn)
    run = cl.lower(graph, cl.Repeat(5, graph.compute_sets[0], index=turn), inputs=[s], outputs=[s, turn])
    results = jax.jit(run)({"s": np.arange(3, dtype=np.int32)})
    np.testing.assert_array_equal(results["s"], [10, 11, 12])
    assert results["turn"] == 4


def test_repeat_differentiates_in_reverse():
    graph = cl.Graph()
    x = graph.add_variable("x", (2,))
    i = cl.grid(2)
    graph.add_vertex("grow", scale, x=x[i], out=x[i], by=3.0)
    run = cl.lower(graph, cl.Repeat(4, graph.compute_sets[0]), inputs=[x], outputs=[x])
    np.testing.assert_allclose(jax.grad(lambda x: run({"x": x})["x"].sum())(jnp.ones(2)), [81.0, 81.0])


def test_lowering_takes_a_snapshot():
    graph = cl.Graph()
    x = graph.add_variable("x", (2,))
    i = cl.grid(2)
    graph.add_vertex("grow", scale, x=x[i], out=x[i], by=3.0)
    run, engine = cl.lower(graph, inputs=[x], outputs=[x]), cl.Engine(graph)
    graph.add_vertex("more", scale, x=x[i], out=x[i], by=100.0)
    late = graph.add_variable("late", (2,))
    engine.write({"x": np.ones(2, np.float32)})
    engine.run()
    np.testing.assert_array_equal(run({"x": np.ones(2, np.float32)})["x"], [3, 3])
    np.testing.assert_array_equal(engine.read(x), [3, 3])
    with pytest.raises(cl.NotInGraphError, match="added after the engine was made"):
        engine.read(late)


# --- what goes in -----------------------------------------------------------------------------------------


def simple():
    graph = cl.Graph()
    x, n = graph.add_variable("x", (3,)), graph.add_variable("n", (), "int32")
    i = cl.grid(3)
    y = graph.add_vertex("grow", scale, x=x[i], by=3.0)
    return graph, x, n, y


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, r"expected: \['x', 'n'\]"),
        ({"x": np.ones(3), "n": 1, "z": 2}, "not those the graph was lowered for"),
        ([1], "given:    list"),
        ({"x": np.ones(4), "n": 1}, r"given:    float32\[4\]"),
        ({"x": np.ones(3), "n": 1.5}, "wrong dtype"),
        ({"x": np.ones(3, np.int32), "n": 1}, "convert it first"),
        ({"x": np.ones(3), "n": 2**40}, "does not fit its dtype"),
        ({"x": "text", "n": 1}, "is not an array"),
    ],
)
def test_wrong_inputs_are_told(values, says):
    graph, x, n, y = simple()
    run = cl.lower(graph, inputs=[x, n], outputs=[y, n])
    with pytest.raises(cl.ArrayError, match=says):
        run(values)


def test_plain_numbers_convert_as_jax_converts_them():
    graph, x, n, y = simple()
    run = cl.lower(graph, inputs=[x, n], outputs=[y, n])
    results = run({"x": [1, 2, 3], "n": 7})
    np.testing.assert_array_equal(results["grow/out"], [3, 6, 9])
    assert results["n"].dtype == np.int32


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (lambda g, x, n, y: {}, cl.ProgramError, "without saying what goes in and out"),
        (
            lambda g, x, n, y: {"inputs": [x[:2]], "outputs": [y]},
            cl.ProgramError,
            "an input is not a variable",
        ),
        (lambda g, x, n, y: {"inputs": ["q"], "outputs": [y]}, cl.NotInGraphError, "no variable 'q'"),
        (
            lambda g, x, n, y: {"inputs": [], "outputs": [y]},
            cl.UninitializedReadError,
            r"x\[0\] is read by field 'x'",
        ),
        (lambda g, x, n, y: {"inputs": [x], "outputs": [n]}, cl.UninitializedReadError, "read by the caller"),
        (
            lambda g, x, n, y: {"inputs": [cl.Graph().add_variable("x", (3,))], "outputs": [y]},
            cl.ForeignGraphError,
            "an input belongs to another graph",
        ),
        (
            lambda g, x, n, y: {"inputs": [g.add_constant("c", 1)], "outputs": [y]},
            cl.ProgramError,
            "is a constant",
        ),
    ],
)
def test_wrong_lowerings_are_told(arguments, error, says):
    made = simple()
    with pytest.raises(error, match=says):
        cl.lower(made[0], **arguments(*made))
    with pytest.raises(cl.ProgramError, match="only a graph, or a function"):
        cl.lower(3)


@pytest.mark.parametrize(
    "returns", [lambda g, x: 3, lambda g, x: x[cl.grid(2)], lambda g, x: cl.Graph().add_variable("z", ())]
)
def test_what_a_function_may_return(returns):
    with pytest.raises((cl.FieldTypeError, cl.ForeignGraphError), match="returns"):
        cl.lower(returns)(X)


# --- the engine -------------------------------------------------------------------------------------------


def test_the_engine_keeps_state_between_runs():
    graph = cl.Graph()
    x, once = graph.add_variable("x", (2,)), graph.add_variable("once", (2,))
    i = cl.grid(2)
    graph.add_vertex("grow", scale, x=x[i], out=x[i], by=2.0)
    engine = cl.Engine(graph)
    given = jnp.ones(2)
    engine.write({"x": given})
    for _ in range(3):
        engine.run()
    np.testing.assert_array_equal(engine.read("x"), [8, 8])
    np.testing.assert_array_equal(given, [1, 1])
    with pytest.raises(cl.UninitializedReadError, match=r"once\[0\] is read by the host"):
        engine.read(once)
    function = engine.function(inputs=[x], outputs=[x])
    np.testing.assert_array_equal(function({"x": given})["x"], [2, 2])
    np.testing.assert_array_equal(engine.read("x"), [8, 8])


def test_the_engine_sees_what_the_host_has_not_written():
    graph, _, _, y = simple()
    engine = cl.Engine(graph)
    with pytest.raises(cl.UninitializedReadError, match=r"x\[0\] is read by field 'x' of codelet 'scale'"):
        engine.run()
    engine.write({"x": [1, 2, 3]})
    engine.run()
    np.testing.assert_array_equal(engine.read(y), [3, 6, 9])


def test_a_variable_written_in_part_is_read_when_the_rest_is_given():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    graph.add_vertex("set", scale, x=graph.add_constant("c", [5.0])[0], out=x[2], by=1)
    engine = cl.Engine(graph)
    engine.run()
    with pytest.raises(cl.UninitializedReadError, match=r"x\[0\]"):
        engine.read(x)
    engine.write({"x": [1, 1, 1, 1]})
    engine.run()
    np.testing.assert_array_equal(engine.read(x), [1, 1, 5, 1])


def test_finiteness_is_checked_where_it_is_asked_for():
    graph = cl.Graph()
    x = graph.add_variable("x", (3,))
    log = cl.codelet(lambda x: {"x": jnp.log(x)})
    graph.add_vertex("log", log, x=x[cl.grid(3)])
    engine = cl.Engine(graph, check_finite=True)
    with pytest.raises(cl.NotFiniteError, match=r"nan at \[1\]"):
        engine.write({"x": [1.0, np.nan, 2.0]})
    engine.write({"x": [1.0, -1.0, 2.0]})
    engine.run()
    with pytest.raises(cl.NotFiniteError, match="the variable 'x' holds"):
        engine.read(x)


def test_a_race_is_found_when_the_engine_is_made():
    graph, x, _, _ = simple()
    graph.add_vertex("race", scale, x=x[cl.grid(3)], out=x[0], by=1.0)
    with pytest.raises(cl.WriteRaceError):
        cl.Engine(graph)
    with pytest.raises(cl.ArrayError, match="cannot write the constant"):
        graph = cl.Graph()
        graph.add_constant("c", 1.0)
        cl.Engine(graph).write({"c": 2.0})


def slopes(function):
    return jax.grad(lambda x: function(x).sum())


@few("transform", [jax.jit, jax.vmap, slopes], quick=["slopes"])
def test_a_function_is_built_under_any_transformation(transform):
    """What is known while the graph is built stays known, although JAX is tracing."""

    @cl.codelet
    def combine(x, s, c):
        return x * s + c[0] - c[1]

    def build(graph, x):
        c = graph.add_constant("c", np.arange(100.0))
        i = cl.grid(4)
        order = jnp.array([3, 1, 2, 0])
        return graph.add_vertex("set", combine, x=x[cl.table(order)[i]], s=np.arange(4.0), c=c[i : i + 2])

    def plain(x):
        return x[np.array([3, 1, 2, 0])] * np.arange(4.0) - 1

    x = jnp.array([[1.0, 2, 3, 4], [4, 5, 6, 7]])
    x = x if transform is jax.vmap else x[0]
    np.testing.assert_allclose(transform(cl.lower(build))(x), transform(plain)(x))


@pytest.mark.parametrize("size", [16, 1 << 15])
def test_calls_in_a_row_are_a_loop_unless_that_copies_much(size):
    @cl.codelet
    def twice(x):
        return 2 * x

    graph = cl.Graph()
    x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (size,))
    with graph.record() as body:
        i = cl.grid(size)
        graph.add_vertex("double", twice, x=x[i], out=y[i])
    function = graph.add_function(body, {"x": x, "y": y})
    given = [graph.add_variable(f"given{k}", (size,)) for k in range(4)]
    made = [graph.add_variable(f"made{k}", (size,)) for k in range(4)]
    program = [cl.Call(function, x=a, y=b) for a, b in zip(given, made, strict=True)]
    run = cl.lower(graph, program, inputs=given, outputs=made)
    assert ("scan" in {eqn.primitive.name for eqn in run.jaxpr.eqns}) is (size == 16)
    values = {f"given{k}": np.full(size, k, np.float32) for k in range(4)}
    assert [float(run(values)[f"made{k}"][-1]) for k in range(4)] == [0, 2, 4, 6]
