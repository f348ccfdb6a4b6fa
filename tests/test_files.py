"""`cl.save` and `cl.load`: what is read is what was written, to the bit, and goes on from where it was."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from benchmarks.traced_steps import draw_arguments, traced_step
from codelet.models.networks import NETWORKS
from codelet.saved.tree_forms import by_path
from tests.examples import examples
from tests.strategies import arrived, cases
from tests.test_saving import VALUES, Small

GOLDEN = Path(__file__).parent / "golden" / "files"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.codelet"


def again(path: Path, what):
    """What is read of a file of something."""
    cl.save(path, what)
    return cl.load(path)


def check_same(a, b) -> None:
    """See that pytrees of arrays are equal to the bit, dtypes among it."""
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        left, right = np.asarray(left), np.asarray(right)
        assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


# --- graphs and programs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return Small()


def test_a_graph_and_its_program_are_read_as_they_were(small, path):
    graph, program = again(path, (small.graph, small.program))
    assert (str(graph), str(program)) == (str(small.graph), str(small.program))
    assert [own.lines[0].written for own in graph.families] == [own.lines[0].written for own in small.graph.families]
    assert graph.target == small.graph.target
    ours = small.lower()
    theirs = cl.lower(graph, program, inputs=["x", "acc"], outputs=["inner/r/out", "x", "o"])
    assert str(theirs.jaxpr) == str(ours.jaxpr)
    assert str(theirs.plan) == str(ours.plan)
    check_same(ours(VALUES), theirs(VALUES))
    before, after = cl.Engine(small.graph, small.program), cl.Engine(graph, program)
    assert str(after.profile()) == str(before.profile())
    assert str(after.machine()) == str(before.machine())
    assert str(again(path, small.graph)) == str(small.graph)


def test_constraints_of_the_placement_are_kept(path):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y, z = (graph.add_variable(name, (12,)) for name in "xyz")
    i = cl.grid(6)
    graph.place(together=[x[slice(2 * i, 2 * i + 2)], y[slice(2 * i, 2 * i + 2)]], apart=[x[0:2], x[10:12], z])
    graph.add_vertex(
        "double", cl.codelet(lambda x: 2 * x), x=x[slice(2 * i, 2 * i + 2)], out=y[slice(2 * i, 2 * i + 2)]
    )
    read = again(path, graph)
    assert read.placement_constraints
    assert [str(own) for own in read.placement_constraints] == [str(own) for own in graph.placement_constraints]
    for ours, theirs in zip(graph.placement_constraints, read.placement_constraints, strict=True):
        for left, right in zip(ours.elements(), theirs.elements(), strict=True):
            np.testing.assert_array_equal(left, right)
    places = [cl.Engine(own).machine().placement for own in (graph, read)]
    np.testing.assert_array_equal(places[0].element_tiles, places[1].element_tiles)


def test_the_same_is_written_as_the_same_bytes(small, path):
    cl.save(path, (small.graph, small.program))
    before = path.read_bytes()
    again(path, (small.graph, small.program))
    assert path.read_bytes() == before
    cl.save(path, cl.load(path))
    cl.save(path, cl.load(path))
    assert str(cl.load(path)[0]) == str(small.graph)


WRITES = """
import sys, jax, jax.numpy as jnp, codelet as cl
from benchmarks.traced_steps import traced_step
traced = traced_step("mnist", 1, None)
cl.save(sys.argv[1], traced, planned=True)
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    for name in "ab":
        environment = {**os.environ, "PYTHONHASHSEED": str(ord(name))}
        subprocess.run([sys.executable, "-c", WRITES, str(tmp_path / name)], check=True, env=environment)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def _check_case(case, path: Path) -> None:
    program = case.sequence()
    before = cl.lower(case.graph, program, inputs=list(case.inputs), outputs=case.outputs)
    graph, read = again(path, (case.graph, program))
    assert (str(graph), str(read)) == (str(case.graph), str(program))
    after = cl.lower(graph, read, inputs=list(case.inputs), outputs=case.outputs)
    assert str(after.plan) == str(before.plan)
    assert str(after.jaxpr) == str(before.jaxpr)
    lowered = again(path, before)
    assert str(lowered.jaxpr) == str(before.jaxpr)


@examples(15)
@given(cases(np.float32))
def test_any_graph_is_read_as_it_was(tmp_path_factory, case):
    _check_case(case, tmp_path_factory.mktemp("any") / "x")


@examples(5)
@given(cases(np.int32))
def test_any_graph_of_integers_is_read_as_it_was(tmp_path_factory, case):
    _check_case(case, tmp_path_factory.mktemp("any") / "x")


@pytest.mark.slow
@examples(500)
@given(cases(np.float32))
def test_very_many_graphs_give_the_same_bits(tmp_path_factory, case):
    path = tmp_path_factory.mktemp("any") / "x"
    _check_case(case, path)
    before = cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
    check_same(arrived(dict(before(case.inputs))), arrived(dict(cl.load(path)(case.inputs))))


def test_symbols_print_as_they_did(path):
    graph, i = cl.Graph(cl.IPU(num_tiles=8)), cl.grid(4)
    j = cl.grid(i)  # whose positions are equal to a table that is another
    table = cl.table(np.repeat(np.arange(4), np.arange(4)))
    x = graph.add_variable("x", (4, 4))
    graph.add_vertex("a", cl.codelet(lambda x, k: x * k), x=x[i, j], k=table[i * (i - 1) // 2 + j], tile=j)
    assert str(again(path, graph)) == str(graph)


def test_a_graph_that_was_read_is_built_on(small, path):
    graph, _ = again(path, (small.graph, small.program))
    with pytest.raises(cl.DuplicateNameError, match=r"test_saving\.py"):
        graph.add_variable("x", ())
    i = cl.grid(4)
    y = graph.add_vertex("more", cl.codelet(lambda a: a + 1), a=graph.variable("x")[i])
    assert y.shape == (4, 6)
    assert graph.num_vertices == small.graph.num_vertices + 4
    for other in (copy.deepcopy(small.graph), pickle.loads(pickle.dumps(cl.load(path)[0]))):
        assert str(other) == str(small.graph)
    i = cl.grid(4)
    fields = {"x": graph.variable("x")[i], "y": graph.variable("x")[i]}
    with pytest.raises(cl.CodeletTraceError, match="read from a file that has no equations for these fields"):
        graph.add_vertex("other", small.graph and cl.load(path)[0].families[0].codelet.codelet, by=7, **fields)


def test_empty_things_are_read_as_they_were(path):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    assert str(again(path, graph)) == str(graph)
    x, nothing = graph.add_variable("x", (0, 3)), graph.add_constant("nothing", np.zeros((0,), np.int8))
    graph.add_constant("number", np.float16(2.5))
    graph.set_tile_mapping(x, 1)
    graph.add_vertex("none", cl.codelet(lambda x: x + 1), x=x[cl.grid(0)], out=x[cl.grid(0)])
    graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=nothing)
    other, program = again(path, (graph, []))
    assert (str(other), str(program)) == (str(graph), "")
    assert other.sources[2].value == graph.sources[2].value


DTYPES = ["bool", "int4", "int8", "uint16", "int32", "uint32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "float8_e4m3b11fnuz"])
def test_constants_of_every_dtype_keep_their_bits(path, dtype):
    values = np.arange(7).astype(jnp.dtype(dtype))
    graph = cl.Graph()
    graph.add_constant("c", values)
    graph.add_vertex("same", cl.codelet(lambda x: x), x=graph.variable("c"))
    other = again(path, graph)
    assert other.sources[0].value.dtype == values.dtype
    assert other.sources[0].value.tobytes() == values.tobytes()


def test_wide_dtypes_are_traced_as_they_were(path):
    with jax.enable_x64(True):
        graph = cl.Graph()
        x = graph.add_variable("x", (3,), "float64")
        graph.add_vertex("a", cl.codelet(lambda a: a * np.pi), a=x[cl.grid(3)])
        before = cl.lower(graph, inputs=["x"], outputs=["a/out"])
    after = again(path, before)
    assert str(after.jaxpr) == str(before.jaxpr)
    assert str(after.graph) == str(graph)


# --- codelets -----------------------------------------------------------------------------------------------


@jax.custom_jvp
def steep(x, k):
    return jnp.sin(x) * k


@steep.defjvp
def _steep(primals, tangents):
    (x, k), (dx, dk) = primals, tangents
    return steep(x, k), 3 * steep(x, k) * dx + dk  # by itself: its rule has no end


@jax.custom_vjp
def clipped(x, y):
    return jnp.clip(x, -1, 1) * y


clipped.defvjp(lambda x, y: (clipped(x, y), (x, y)), lambda saved, g: (7 * g * saved[1], g * saved[0]))


def looped(x):
    steps = jax.lax.scan(lambda carry, row: (carry + row, carry * row), x[0], x)
    return jax.lax.while_loop(lambda s: jnp.sum(s) < 10, lambda s: s * 2 + 1, jnp.abs(steps[0]))


def chosen(x):
    return jax.lax.switch(jnp.int32(x[0, 0] > 0), [lambda y: y * 2, lambda y: jnp.sort(y, 0)], x)


def drawn(x):
    key = jax.random.key(3)
    return x + jax.random.normal(key, x.shape) + jax.random.uniform(jax.random.fold_in(key, 1), x.shape)


def solved(x):
    square = x.T @ x + jnp.eye(x.shape[1])
    return jnp.linalg.solve(square, x.T).T + jax.checkpoint(jnp.sin)(x)


FUNCTIONS = {
    "own rule": lambda x: steep(x, 2 * x[:1]),
    "own backward rule": lambda x: clipped(x, x + 1),
    "loops": looped,
    "choices": chosen,
    "random": drawn,
    "linear algebra": solved,
    "activations": lambda x: jax.nn.relu(x) + jax.nn.softmax(x) + jax.nn.gelu(x) + jax.scipy.special.logsumexp(x),
    "windows": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "SAME"),
    "indices": lambda x: x.at[jnp.array([0, 2])].add(x[jnp.array([1, 1])]),
    "a constant": lambda x: x + np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_codelets_compute_and_differentiate_as_they_did(path, what):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, i = graph.add_variable("x", (5, 3, 4)), cl.grid(5)
    y = graph.add_vertex("f", cl.codelet(FUNCTIONS[what]), x=x[i])
    before = cl.lower(graph, inputs=[x], outputs=[y])
    after = again(path, before)
    value = {"x": jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 4)), jnp.float32)}
    check_same(jax.jit(before)(value), jax.jit(after)(value))

    def slope(run, order):
        differentiated = jax.jacfwd if what == "loops" else jax.grad

        def total(v):
            return jnp.sum(run({"x": v})["f/out"] ** 2)

        once = differentiated(total)
        return once if order == 1 else jax.jvp(once, (value["x"],), (value["x"],))[1]

    check_same(jax.jit(slope(before, 1))(value["x"]), jax.jit(slope(after, 1))(value["x"]))
    if what == "own rule":
        check_same(slope(before, 2), slope(after, 2))


def test_what_a_user_says_of_cycles_is_kept(path):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    kind = cl.codelet(lambda x, *, by: x * by, cycles=lambda x, by: 100 * x.size + by, workers=2)
    x, i = graph.add_variable("x", (4, 3)), cl.grid(4)
    graph.add_vertex("a", kind, x=x[i], by=7)
    graph.add_vertex("b", kind, x=x[i, :2], by=8)
    loop = cl.codelet(lambda x: jax.lax.while_loop(lambda s: s < 9, lambda s: s + 1, x), trip_count=lambda x: 5)
    graph.add_vertex("c", loop, x=x[i, 0])
    assert str(cl.Engine(again(path, graph)).profile()) == str(cl.Engine(graph).profile())


CALLBACK = cl.codelet(lambda x: (jax.debug.callback(print, x), x)[1])


def test_what_no_file_can_hold_is_told_with_its_line(path):
    graph = cl.Graph()
    graph.add_vertex("a", CALLBACK, x=graph.add_variable("x", ()))
    told = r"test_files\.py:\d+\) cannot be saved(.|\n)*the primitive debug_callback"
    with pytest.raises(cl.SavingError, match=told):
        cl.save(path, graph)
    assert not path.exists()
    for what in (3, graph.variable("x"), [graph], cl.lower(lambda graph, x: x), (graph, 3)):
        with pytest.raises((cl.SavingError, cl.ProgramError)):
            cl.save(path, what)


# --- operations ---------------------------------------------------------------------------------------------


def test_operations_are_remembered(path):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    a, b = graph.add_variable("a", (8, 6)), graph.add_variable("b", (6, 4))
    y = cl.ops.softmax(graph, cl.ops.matmul(graph, a, b))
    cl.ops.sort(graph, cl.ops.map(graph, jnp.sin, y))
    other = again(path, graph)
    folder = f"{Path(__file__).parents[1]}/"
    assert str(other.operations) == str(graph.operations).replace(folder, "")
    assert [own.kind for own in other.operations] == [own.kind for own in graph.operations]
    assert other.operations[0].operands["a"].graph is other
    of = lambda own: own.operations[1].results[""]  # noqa: E731
    gradients = [cl.gradient(own, of=of(own), wrt=["a", "b"], cotangent=1.0) for own in (graph, other)]
    runs = [
        cl.lower(own, [g.forward, g.backward], inputs=["a", "b"], outputs=[g["a"], g["b"]])
        for own, g in zip((graph, other), gradients, strict=True)
    ]
    values = {"a": np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6), "b": np.ones((6, 4), np.float32)}
    values["b"][1] = 0.5
    check_same(*(dict(jax.jit(run)(values)) for run in runs))


# --- traced functions ---------------------------------------------------------------------------------------


def network(parameters, x, *, scale=1.0):
    hidden = jax.nn.relu(x @ parameters["w"] + parameters["b"])
    return {"y": jax.nn.softmax(hidden * scale), "sums": (hidden.sum(), x.mean(0))}


PARAMETERS = {"w": jnp.arange(12.0).reshape(3, 4) / 7, "b": jnp.ones(4)}


def test_a_traced_function_is_called_as_it_was(path):
    x = jnp.linspace(-1, 1, 6).reshape(2, 3)
    before = cl.trace(network, PARAMETERS, x, kwargs={"scale": 2.0}, target=cl.IPU(num_tiles=4))
    after = again(path, before)
    assert isinstance(after, cl.Traced)
    check_same(before(PARAMETERS, x, scale=3.0), after(PARAMETERS, x, scale=3.0))
    assert jax.tree.structure(after(PARAMETERS, x, scale=1.0)) == jax.tree.structure(network(PARAMETERS, x))
    gradients = [jax.grad(lambda p, run=run: run(p, x, scale=2.0)["y"][0, 0])(PARAMETERS) for run in (before, after)]
    check_same(*gradients)
    assert str(after.jaxpr) == str(before.jaxpr)
    assert str(after.profile()) == str(before.profile())
    assert str(after) == str(before)
    assert str(cl.lower(after).jaxpr) == str(cl.lower(before).jaxpr)
    with pytest.raises(cl.ArrayError, match="have other paths"):
        after(PARAMETERS, x)
    with pytest.raises(cl.ArrayError, match="of another type"):
        after(PARAMETERS, x[:1], scale=1.0)
    engine = cl.Engine(after)
    engine.write(after.arrays(PARAMETERS, x, scale=2.0))
    engine.run()
    check_same(engine.read(after.outputs)["y"], cl.Engine(before) and before(PARAMETERS, x, scale=2.0)["y"])


@pytest.mark.parametrize(
    "name", [name if name == "mnist" else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_the_step_of_a_network_is_read_as_it_was(path, name):
    """What is compiled is the same text, which gives the same bits; profiles are compared where they take seconds."""
    before = traced_step(name, 1, None)
    after = again(path, before)
    assert str(after.graph) == str(before.graph)
    assert (after.graph.num_vertices, after.graph.num_edges) == (before.graph.num_vertices, before.graph.num_edges)
    here = f"{Path(cl.__file__).parents[1]}/"  # files say where lines are from there on
    assert str(after.graph.operations) == str(before.graph.operations).replace(here, "")
    assert str(after.lowered.jaxpr) == str(before.lowered.jaxpr)
    for left, right in zip(after.lowered.jaxpr.consts, before.lowered.jaxpr.consts, strict=True):
        check_same(left, right)
    if name in ("mnist", "strain", "alexnet"):
        profiles = [own.profile(allow_out_of_memory=True) for own in (after, before)]
        assert str(profiles[0]) == str(profiles[1])
        assert profiles[0].total_cycles == profiles[1].total_cycles
    if name in ("mnist", "strain"):
        arguments = draw_arguments(name, 1, np.random.default_rng(0))
        check_same(*(by_path(own(*arguments)) for own in (after, before)))


def test_functions_with_derivative_rules_are_joined_as_they_were(path):
    """Lowering traces what a block does for one element, which equations for blocks do not say."""
    graph = cl.Graph(cl.IPU(num_tiles=5))
    x = graph.add_variable("x", (44, 3))
    y = cl.ops.map(graph, jax.nn.relu, x)
    rows = graph.add_vertex("rows", cl.codelet(lambda x: jax.nn.silu(x) + 1), x=y[cl.grid(44)])
    after = again(path, graph)
    assert str(after.operations).count("relu(x0[elements, i1])") == 1
    before, found = (cl.lower(own, inputs=["x"], outputs=[rows.name]) for own in (graph, after))
    assert str(found.jaxpr) == str(before.jaxpr)
    assert str(found.plan) == str(before.plan)


class Pair(NamedTuple):
    first: Any
    second: Any
    third: Any = ()


def test_classes_come_back_as_dicts_of_their_fields_whatever_they_hold(path):
    function = lambda pair: Pair(None, Pair(pair.first + 1, [None, pair.second[0]]), {"a": None})  # noqa: E731
    given = Pair(jnp.arange(3.0), (jnp.ones(2), None))
    before = cl.trace(function, given, target=cl.IPU(num_tiles=4))
    found = again(path, before)({"first": given.first, "second": given.second, "third": ()})
    assert jax.tree.map(lambda leaf: leaf.tolist(), found) == {
        "first": None,
        "second": {"first": [1.0, 2.0, 3.0], "second": [None, [1.0, 1.0]], "2": ()},
        "third": {"a": None},
    }


def test_keys_and_plain_numbers_come_back_as_what_they_are(path):
    def noisy(key, x, k):
        return jax.random.split(key, 2), x * k, 2.0 * k

    key = jax.random.key(1)
    before = cl.trace(noisy, key, jnp.ones(3), 2.0)
    after = again(path, before)
    check_same(*(jax.random.key_data(run(key, jnp.ones(3), 4.0)[0]) for run in (before, after)))
    assert str(jax.typeof(after(key, jnp.ones(3), 4.0)[2])) == str(jax.typeof(before(key, jnp.ones(3), 4.0)[2]))


def test_a_lowered_function_with_other_tables(path):
    graph = cl.Graph()
    x, i = graph.add_variable("x", (4000,)), cl.grid(4000)
    c = graph.add_constant("c", np.random.default_rng(1).permutation(4000).astype(np.float32))
    y = graph.add_vertex("a", cl.codelet(lambda x, c: x * c), x=x[i], c=c[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    changed = jax.tree.map(lambda own: own + 1, run)
    after = again(path, changed)
    check_same(changed({"x": jnp.ones(4000)}), after({"x": jnp.ones(4000)}))


# --- engines ------------------------------------------------------------------------------------------------


@cl.codelet
def descend(w, x):
    return {"w": w - 0.1 * jnp.tanh(w * x)}


@pytest.mark.parametrize("execution", ["fused", "tiles"])
def test_an_engine_goes_on_where_it_stopped(path, execution):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    w, x, i = graph.add_variable("w", (6,)), graph.add_variable("x", (6,)), cl.grid(6)
    graph.add_variable("unused", (3,))
    batches, losses = graph.add_input_stream("batches", (6,)), graph.add_output_stream("losses", ())
    loss = graph.add_variable("loss", ())
    with graph.record() as step:
        graph.add_vertex("descend", descend, w=w[i], x=x[i], tile=i % 4)
        graph.add_vertex("squares", cl.codelet(lambda w: (w * w).sum()), w=w, out=loss)
    train = cl.Repeat(3, [cl.Copy(batches, x), step, cl.Copy(loss, losses)])
    engine = cl.Engine(graph, {"train": train, "reset": cl.Copy(0.5, w)}, execution=execution)
    engine.run("reset")
    values = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    engine.connect("batches", values[:6])
    engine.run("train")
    engine.write({"unused": [1, 2, 3]})
    other = again(path, engine)
    assert other.graph is not engine.graph
    for own in (engine, other):
        own.connect("batches", values[3:9])
        own.run("train")
        own.run("train")
    assert engine.state.keys() == other.state.keys()
    check_same(dict(engine.state), dict(other.state))
    check_same(engine.read("losses"), other.read("losses"))
    assert str(other.profile("train")) == str(engine.profile("train"))
    with pytest.raises(cl.ProgramError, match="several programs"):
        other.run()


def test_values_of_parts_of_variables_come_back(path):
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    engine = cl.Engine(graph, cl.Copy(x[:2], y[:2]), check_finite=True)
    engine.write({x[1:3]: [1.0, 2.0]})
    other = again(path, engine)
    assert other.check_finite
    assert np.ma.getmaskarray(other.state["x"]).tolist() == [True, False, False, True]
    assert other.read(x.graph and other.graph.variable("x")[1:3]).tolist() == [1.0, 2.0]
    with pytest.raises(cl.UninitializedReadError):
        other.run()


def test_an_engine_that_no_file_holds_is_told(path):
    graph = cl.Graph()
    graph.add_vertex("a", descend, w=graph.add_variable("w", ()), x=graph.add_variable("x", ()))
    mesh = jax.make_mesh((1,), ("d",), devices=jax.devices()[:1])
    with pytest.raises(cl.SavingError, match="over a mesh"):
        cl.save(path, cl.Engine(graph, mesh=mesh))
    with pytest.raises(cl.SavingError, match="places by a function"):
        cl.save(path, cl.Engine(graph, placement=lambda plan: None))
    with pytest.raises(cl.SavingError, match="over a mesh, or of an engine"):
        cl.save(path, cl.Engine(graph, execution="tiles").function(inputs=["w", "x"], outputs=["w"]))


def test_machines_are_read_by_their_numbers(path):
    four = cl.Machine(name="four", num_tiles=4, bytes_per_tile=2**16, clock_hertz=1e9, route=cl.Route(3, 1, 2))
    for target in (four, cl.IPU("bow", num_tiles=6), cl.IPU(num_chips=2), cl.IPU("mk1", sync_cycles=7)):
        other = again(path, cl.Graph(target)).target
        assert other == target
        assert type(other) is type(target)
        assert repr(other) == repr(target)


# --- other processes, other versions --------------------------------------------------------------------------

READ = """
import sys, numpy as np, codelet as cl
from codelet.programs.program import Program
loaded = cl.load(sys.argv[1])
run = cl.lower(*loaded, inputs=["x", "acc"], outputs=["inner/r/out", "x", "o"])
results = run({"x": np.ones((4, 6), np.float32), "acc": np.float32(1)})
np.savez(sys.argv[2], **{k.replace("/", "."): np.asarray(v) for k, v in results.items()})
cl.save(sys.argv[3], loaded)
"""


@pytest.mark.slow
@pytest.mark.parametrize("python", [sys.executable, os.environ.get("CODELET_OTHER_PYTHON", "")])
def test_another_process_reads_it(small, path, tmp_path, python):
    if not python:
        pytest.skip("CODELET_OTHER_PYTHON names a Python with another version of JAX")
    cl.save(path, (small.graph, small.program))
    arrays, back = tmp_path / "results.npz", tmp_path / "back.codelet"
    environment = {**os.environ, "PYTHONPATH": str(Path(cl.__file__).parents[1])}
    command = [python, "-c", READ, str(path), str(arrays), str(back)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not found.returncode, found.stderr
    results = small.lower()(VALUES)
    with np.load(arrays) as theirs:
        for name, value in results.items():
            np.testing.assert_allclose(theirs[name.replace("/", ".")], value, rtol=1e-6)
    graph, program = cl.load(back)
    assert str(graph) == str(small.graph)
    names = ["inner/r/out", "x", "o"]
    other = cl.lower(graph, program, inputs=["x", "acc"], outputs=names)
    assert cl.equal(small.lower(), other, VALUES)


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.codelet")), ids=lambda own: own.stem)
def test_files_of_every_earlier_format_are_read(golden):
    graph, program = cl.load(golden)
    expected = np.load(golden.with_suffix(".npz"))
    run = cl.lower(graph, program, inputs=["x", "acc"], outputs=["inner/r/out", "x", "o"])
    assert str(graph) == golden.with_suffix(".txt").read_text()
    results = run(VALUES)
    for name in ("inner/r/out", "x", "o"):
        np.testing.assert_allclose(results[name], expected[name.replace("/", ".")], rtol=1e-5)


def write_golden() -> None:
    """Write the golden file of the format that is written at present: once for each format, and never again."""
    from codelet.saved.archive import FORMAT

    GOLDEN.mkdir(parents=True, exist_ok=True)
    own, place = Small(), GOLDEN / f"format_{FORMAT}.codelet"
    assert not place.exists()
    cl.save(place, (own.graph, own.program))
    results: Any = {name.replace("/", "."): np.asarray(value) for name, value in own.lower()(VALUES).items()}
    np.savez(place.with_suffix(".npz"), **results)
    place.with_suffix(".txt").write_text(str(own.graph))


def test_there_is_a_golden_file_of_the_format():
    from codelet.saved.archive import FORMAT

    assert [own.stem for own in sorted(GOLDEN.glob("*.codelet"))] == [f"format_{k}" for k in range(1, FORMAT + 1)]
