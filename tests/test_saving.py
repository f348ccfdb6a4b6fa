"""Copies and pickles: graphs, programs and plans come back as they were, and what cannot says what to do."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from tests.at_once import at_once
from tests.examples import examples, few
from tests.ragged_codelets import row_order, row_sum
from tests.strategies import accumulate, cases, shift_all

double = cl.codelet(lambda a: 2 * a)  # without a name of its own, but found by one


@cl.codelet(cycles=lambda x: 7)
def counted_by_hand(x):
    return x + 1


class Kept:
    @cl.codelet
    @staticmethod
    def within(x):
        return x - 1


def negate(x):
    return -x


@cl.lower
def layer(graph, x, *, by):
    i = cl.grid(*x.shape)
    return graph.add_vertex("a", shift_all, x=x[i], y=x[i], by=by)


def saved(value):
    return pickle.loads(pickle.dumps(value))


class Small:
    """A graph of most kinds of things, and a program."""

    def __init__(self):
        self.graph = g = cl.Graph(cl.IPU(num_tiles=8))
        self.x, c = g.add_variable("x", (4, 6)), g.add_constant("c", np.arange(6.0))
        i, rows = cl.grid(4), cl.table([3, 1, 0, 2, 2, 1], offsets=[0, 2, 2, 5, 6])
        self.y = g.add_vertex("a", shift_all, x=self.x[i], y=c, by=(1.0,), tile=i)
        for k in range(4):
            g.add_vertex("b", shift_all, x=self.y[k], y=c[k], out=self.x[k], tile=k)
        with g.scope("inner"):
            self.z = g.add_vertex("r", row_sum, x=c[rows[i]], y=c[i], tile=i)
        split = cl.table([5, 1, 0, 2, 4, 3], offsets=[0, 2, 2, 5, 6])
        o, sums = g.add_variable("o", (6,)), g.add_variable("sums", (4,))
        g.add_vertex("order", row_order, x=c[split[i]], y=c[i], out=o[split[i]], sum=sums[i], tile=i)
        with g.record() as step:
            g.add_vertex("s", accumulate, x=self.z, acc=g.add_variable("acc", ()), tile=0)
        sent = g.add_output_stream("sent", ())
        self.program = cl.Sequence(*g.compute_sets[:4], cl.Repeat(2, step), cl.Copy(g.variable("acc"), sent))

    def lower(self):
        return cl.lower(self.graph, self.program, inputs=["x", "acc"], outputs=["inner/r/out", "x", "o"])


VALUES = {"x": np.ones((4, 6), np.float32), "acc": np.float32(1)}


@pytest.fixture(scope="module")
def small():
    return Small()


@pytest.mark.parametrize("way", [copy.deepcopy, saved])
def test_a_graph_and_its_program_come_back(small, way):
    other = way(small)
    assert str(other.graph) == str(small.graph)
    assert str(other.program) == str(small.program)
    assert other.graph is not small.graph
    assert other.y.graph is other.graph
    assert [f.lines[0].written for f in other.graph.families] == [f.lines[0].written for f in small.graph.families]
    assert {f.codelet.codelet for f in other.graph.families} == {f.codelet.codelet for f in small.graph.families}
    ours, theirs = small.lower(), other.lower()
    assert str(theirs.jaxpr) == str(ours.jaxpr)
    assert theirs == ours or way is saved  # which traces `row_order` for each length anew


@pytest.mark.parametrize("way", [copy.deepcopy, saved])
def test_a_copy_is_built_on_by_itself(small, way):
    before = str(small.graph)
    other = way(small)
    with pytest.raises(cl.DuplicateNameError, match=r"test_saving\.py"):
        other.graph.add_variable("x", ())
    y = other.graph.add_vertex("more", shift_all, x=other.x[(i := cl.grid(4))], y=other.z[i])
    for k in range(4):
        other.graph.add_vertex("b", shift_all, x=other.y[k], y=other.z[k], out=other.x[k], tile=k)
    assert y.graph is other.graph
    assert other.graph.num_vertices == small.graph.num_vertices + 8
    assert str(small.graph) == before
    with pytest.raises(cl.ForeignGraphError):
        other.graph.add_vertex("foreign", shift_all, x=small.x, y=small.x)


def test_symbols_work_in_copies():
    graph, i = cl.Graph(), cl.grid(3)
    x = graph.add_variable("x", (3,))
    twin = copy.deepcopy(x)
    assert twin.graph.add_vertex("a", double, a=twin[i]).shape == (3,)
    (read, symbol), (again, other) = saved((x, i)), saved((x, cl.grid(2)))
    assert read.graph.add_vertex("a", double, a=read[symbol]).shape == (3,)
    assert again.graph.add_vertex("a", double, a=again[other + symbol // 2]).shape == (3, 2)


@few("way", [copy.deepcopy, saved], quick=["saved"])
def test_plans_and_functions_come_back(small, way):
    run = small.lower()
    assert str(way(run.plan)) == str(run.plan)
    other = way(run)
    assert (other is run) == (way is copy.deepcopy)
    expected, results = at_once(run, other)(VALUES)
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value)
    engine = cl.Engine(small.graph, small.program)
    machine, profile = engine.machine(), engine.profile()
    assert str(way(machine)) == str(machine)
    assert str(way(machine.placement)) == str(machine.placement)
    assert way(profile).total_cycles == profile.total_cycles
    vertex = small.graph.vertex("b", 2)
    assert str(way(vertex)) == str(vertex)


def test_a_codelet_is_its_name():
    for codelet in (double, counted_by_hand, shift_all, Kept.within):
        assert saved(codelet) is codelet
        assert copy.deepcopy(codelet) is codelet
    other = saved(cl.codelet(negate))
    assert other.function is negate
    assert saved(layer) is layer
    traced = layer.at(np.ones(3, np.float32), by=2.0).families[0].codelet
    assert saved(traced) is traced


def test_what_has_no_name_is_told():
    def local(x):
        return x

    for codelet in (cl.codelet(lambda x: x), cl.codelet(local)):
        assert copy.deepcopy(codelet) is codelet
        for value in (codelet, cl.lower(local)):
            with pytest.raises(cl.SavingError, match=r"define it there, with `def`") as caught:
                saved(value)
            assert isinstance(caught.value, pickle.PicklingError)
            assert "test_saving.py" in str(caught.value)


def test_a_graph_of_codelets_without_names_is_its_equations():
    by = 3.0
    codelet = cl.codelet(lambda x, *, k: jax.nn.relu(x * by) + k, cycles=lambda x, k: 10 * x.size + k, workers=2)
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (4, 3)), cl.grid(4)
    y = graph.add_vertex("a", codelet, x=x[i], k=1)
    z = graph.add_vertex("b", codelet, x=x[i, 0], k=2)
    again, view = saved((graph, y))
    assert str(again) == str(graph)
    assert view.graph is again
    first, second = (family.codelet.codelet for family in again.families)
    assert first is second
    assert str(cl.Engine(again).profile()) == str(cl.Engine(graph).profile())
    runs = [cl.lower(own, inputs=["x"], outputs=[y.name, z.name]) for own in (graph, again)]
    values = {"x": jnp.linspace(-1, 1, 12).reshape(4, 3)}
    slopes = [jax.grad(lambda v, run=run: run({"x": v})["a/out"].sum())(values["x"]) for run in runs]
    np.testing.assert_array_equal(*slopes)
    np.testing.assert_array_equal(*(run(values)["b/out"] for run in runs))
    with pytest.raises(cl.CodeletTraceError, match="has no equations for these fields"):
        again.add_vertex("c", first, x=again.variable("x"), k=1)
    callback = cl.codelet(lambda x: (jax.debug.callback(print, x), x)[1])
    graph.add_vertex("c", callback, x=x[i])
    with pytest.raises(cl.SavingError, match="the primitive debug_callback"):
        saved(graph)


def test_a_traced_function_comes_back():
    traced = cl.trace(lambda p, x: {"y": jnp.tanh(p["w"] * x)}, {"w": jnp.ones(3)}, jnp.ones(3))
    again = saved(traced)
    assert isinstance(again, cl.Traced)
    assert (
        again({"w": jnp.arange(3.0)}, jnp.ones(3))["y"].tolist()
        == traced({"w": jnp.arange(3.0)}, jnp.ones(3))["y"].tolist()
    )
    assert str(copy.deepcopy(traced).graph) == str(traced.graph)


def test_a_pickle_of_another_version_is_refused(monkeypatch):
    data = pickle.dumps(cl.Graph())
    assert pickle.loads(data).num_vertices == 0
    monkeypatch.setattr("codelet.graphs.graph.VERSION", "99.0")
    with pytest.raises(cl.SavingError, match=r"written by another version(.|\n)*cl.save"):
        pickle.loads(data)


def test_a_function_of_an_engine_is_told():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = graph.add_variable("x", (2,))
    graph.add_vertex("a", double, a=x[(i := cl.grid(2))], out=graph.add_variable("y", (2,))[i])
    run = cl.Engine(graph, execution="tiles").function(inputs=[x], outputs=["y"])
    with pytest.raises(cl.SavingError, match="pickle the graph and the program"):
        saved(run)


def test_a_codelet_is_traced_with_the_settings_it_had():
    with jax.enable_x64(True):
        graph = cl.Graph()
        x = graph.add_variable("x", (3,), "float64")
        graph.add_vertex("a", double, a=x[cl.grid(3)])
        again = saved(graph)
        run = cl.lower(again, inputs=["x"], outputs=["a/out"])
        assert run({"x": np.ones(3)})["a/out"].dtype == np.float64
    assert str(saved(graph)) == str(graph)
    assert saved(graph.families[0].codelet) is graph.families[0].codelet


@examples(6)
@given(cases(np.int32))
def test_any_graph_comes_back(case):
    before = cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
    for way in (copy.deepcopy, saved):
        graph, program = way((case.graph, case.sequence()))
        assert str(graph) == str(case.graph)
        after = cl.lower(graph, program, inputs=list(case.inputs), outputs=case.outputs)
        assert str(after.jaxpr) == str(before.jaxpr)
        # Where lengths are told apart, each lowering traces anew.
        assert after == before or any(family.codelet.apart for family in before.families)


def _halve(x):
    return x / 2


IN_A_DICT = {"halves": {"codelet": cl.codelet(_halve)}}


def test_a_codelet_that_a_dict_of_its_module_holds_is_found_there():
    own = IN_A_DICT["halves"]["codelet"]
    assert saved(own) is own
    graph = cl.Graph()
    cl.ops.max_pool(graph, graph.add_variable("x", (1, 3, 3, 1)), (2, 2), (1, 1))
    assert saved(graph).families[0].codelet == graph.families[0].codelet


SCRIPT = """
import pickle, sys, numpy as np
with open(sys.argv[1], "rb") as file:
    graph, run = pickle.load(file)
values = {"x": np.ones((4, 6), np.float32), "acc": np.float32(1)}
print(graph.families[0].lines[0])
print(float(run(values)["inner/r/out"].sum()))
"""


@pytest.mark.slow
def test_another_process_reads_it(small, tmp_path):
    run = small.lower()
    with (tmp_path / "graph").open("wb") as file:
        pickle.dump((small.graph, run), file)
    found = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "graph")], capture_output=True, text=True)
    assert not found.returncode, found.stderr
    line, total = found.stdout.strip().split("\n")
    assert line == small.graph.families[0].lines[0].written
    assert float(total) == float(jnp.sum(run(VALUES)["inner/r/out"]))
