"""Loops carry what outlives a turn, once, and pass arrays on without copies; what no output needs is not run."""

import re
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.jaxprs.equations import scan_counts
from lowering.fast.compute_sets import choose_kernels
from lowering.fast.steps import emit
from lowering.pipeline import plan_graph
from lowering.plan.steps import CallStep
from lowering.plan.walk import all_steps
from tests.at_once import at_once
from tests.examples import few
from tests.strategies import dot, total

SIZE = 6


@cl.codelet
def lean(x, y):
    return 0.5 * x[0] - 0.25 * x[1] * y + 0.125 * x[2]


@cl.codelet
def scaled(t, x, acc):
    return {"acc": acc - 0.5 * t * x}


@cl.codelet
def scale_by(x, *, by):
    return by * x


def steps_text(run):
    """The emitted plan, without its families and outputs, and with variables for views of all of them."""
    rows = re.sub(r"Tensor\(\S+ of (\w+): f0\)", r"\1", str(run.plan)).split("\n")[:-1]
    kept = (row.split(": reads ")[0] for row in rows if " / " not in row and " = " not in row)
    return "\n".join(row for row in kept if row.split()[0] not in ("runs", "not", "reads", "writes"))


def scans(run):
    """For every loop, inner ones after outer ones: its turns, its carried arrays, and the turns compiled as one."""
    found = []

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "scan":
                found.append((eqn.params["length"], scan_counts(eqn)[1], eqn.params["unroll"]))
                visit(eqn.params["jaxpr"].jaxpr)

    visit(run.jaxpr.jaxpr)
    return found


class Stencil:
    """A step from `u` (and `w`) to the inner points of `v`."""

    def __init__(self, source="u"):
        self.graph = graph = cl.Graph()
        self.u, self.v, self.w = (graph.add_variable(name, (SIZE,)) for name in "uvw")
        self.turn = graph.add_variable("turn", (), "int32")
        self.sum = graph.add_variable("sum", ())
        i = cl.grid(range(1, SIZE - 1))
        other = {"u": self.u, "v": self.v, "w": self.w}[source]
        graph.add_vertex("step", lean, x=self.u[i - 1 : i + 2], y=other[i], out=self.v[i])
        graph.add_vertex("watch", total, x=self.v, out=self.sum)
        self.step, self.watch = map(cl.Execute, graph.compute_sets)
        self.back = cl.Copy(self.v, self.u)

    def run(self, *program, outputs=("u",)):
        """The program lowered, its values those of the interpreter, its slopes those of the plan as it was written."""
        program = cl.Sequence(*program)
        run = cl.lower(self.graph, program, inputs=["u", "v", "w", "sum"], outputs=outputs)
        random = np.random.default_rng(0)
        whole = choose_kernels(plan_graph(self.graph, program, run.plan.inputs, run.plan.outputs))
        values = {v.name: random.uniform(-1, 1, v.shape).astype("f") for v in run.plan.inputs}
        expected = cl.interpret(self.graph, values=values, outputs=outputs, program=program)

        def slopes(function):
            return jax.grad(lambda arrays: sum(jnp.sin(3 * result).sum() for result in function(arrays)))

        called = lambda arrays: run(dict(zip(values, arrays, strict=True)))  # noqa: E731
        plain = slopes(lambda arrays: emit(whole)(*arrays))
        results, ours, theirs = at_once(called, slopes(run.flat), plain)(list(values.values()))
        for name in outputs:
            np.testing.assert_allclose(results[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
        for slope, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(slope, other, rtol=1e-5, atol=1e-6)
        return run


# --- rotations ------------------------------------------------------------------------------------------


def test_a_copy_back_is_a_change_of_places():
    s = Stencil()
    run = s.run(cl.Copy(s.u, s.v), cl.Repeat(8, cl.Sequence(s.step, s.back)))
    assert scans(run) == [(8, 2, 2)]
    assert steps_text(run) == (
        "platform  cpu\n"
        "inputs  u, v, w, sum\n"
        "copy u -> v\n"
        "repeat 8 reads u, v writes u, v carries u, v\n"
        "  execute step reads u writes v\n"
        "  rotate v -> u -> v"
    )


@few("count, known", product(range(8), [False, True]), quick=["0, False", "3, True"])
def test_any_number_of_turns(count, known):
    s = Stencil()
    before = [cl.Copy(s.u, s.v)] if known else []
    run = s.run(*before, cl.Repeat(count, cl.Sequence(s.step, s.back)), outputs=["u", "v"])
    # What makes no pair stays as it is, and the first turn where u and v may differ outside what the step writes.
    plain = {False: {5: 1, 6: 2, 7: 1}, True: {4: 0, 5: 1, 6: 0, 7: 1}}[known].get(count)
    if count == 0:
        assert scans(run) == []
    elif plain is None:
        assert scans(run) == [(count, 2, 1)]
    else:
        assert scans(run) == [*([(plain, 2, 1)] if plain else []), (count - plain, 2, 2)]


def test_what_is_written_whole_by_several_families_stays():
    """As by blocks, and what is left over where no block divides the extent."""
    graph = cl.Graph()
    u, v = graph.add_variable("u", (7,)), graph.add_variable("v", (7,))
    double = cl.codelet(lambda x: {"out": 2 * x})
    step = graph.add_compute_set("step")
    i = cl.grid(3)
    graph.add_vertex(step, double, x=u[2 * i : 2 * i + 2], out=v[2 * i : 2 * i + 2])
    graph.add_vertex(step, double, x=u[6:], out=v[6:])
    run = cl.lower(graph, cl.Repeat(9, cl.Sequence(cl.Execute(step), cl.Copy(v, u))), inputs=[u], outputs=[u])
    assert "rotate" not in steps_text(run)
    np.testing.assert_array_equal(run.flat([np.arange(7, dtype=np.float32)])[0], 512.0 * np.arange(7))


@pytest.mark.slow
def test_the_wave_equation_rotates_three_arrays():
    s = Stencil("w")
    turn = cl.Sequence(s.step, cl.Copy(s.u, s.w), s.back)
    assert scans(s.run(cl.Repeat(9, turn))) == [(3, 3, 1), (6, 3, 3)]
    before = [cl.Copy(s.v, s.u), cl.Copy(s.u, s.w)]
    run = s.run(*before, cl.Repeat(9, turn), outputs=["u", "v", "w"])
    assert scans(run) == [(9, 3, 3)]
    assert "  rotate v -> u -> w -> v" in steps_text(run)


def test_a_copy_at_the_start_of_a_turn_rotates_too():
    s = Stencil()
    run = s.run(cl.Repeat(9, cl.Sequence(s.back, s.step)), outputs=["u", "v"])
    assert scans(run) == [(1, 2, 1), (8, 2, 2)]


@pytest.mark.slow
def test_rotated_turns_are_counted_on():
    s = Stencil()
    counted = cl.Repeat(9, cl.Sequence(s.step, s.back), index=s.turn)
    assert "counted" not in steps_text(s.run(counted))
    i = cl.grid(SIZE)
    s.graph.add_vertex("count", scaled, t=s.turn, x=s.v[i], acc=s.w[i])
    body = cl.Sequence(s.step, s.graph.compute_sets[-1], s.back)
    run = s.run(cl.Repeat(9, body, index=s.turn), outputs=["u", "w", "turn"])
    assert "repeat 8 counted by turn from 1 " in steps_text(run)


@pytest.mark.slow
def test_loops_in_loops_rotate():
    s = Stencil()
    inner = cl.Repeat(6, cl.Sequence(s.step, s.back))
    run = s.run(cl.Copy(s.u, s.v), cl.Repeat(3, cl.Sequence(inner, s.watch)), outputs=["u", "sum"])
    assert (6, 2, 2) in scans(run)


@few(
    "where",
    ["v before the step", "v by the step", "u is written", "v is written twice", "whole"],
    quick=["u is written"],
)
def test_a_copy_stays_where_a_rotation_would_show(where):
    s = Stencil("v" if where == "v by the step" else "u")
    i = cl.grid(SIZE)
    s.graph.add_vertex("more", scaled, t=s.turn, x=s.v[i], acc=s.w[i])
    s.graph.add_vertex("whole", total, x=s.u[i], out=s.v[i])
    more, whole = map(cl.Execute, s.graph.compute_sets[-2:])
    body = {
        "v before the step": [more, s.step],
        "v by the step": [s.step],
        "u is written": [cl.Copy(s.w[:1], s.u[:1]), s.step],
        "v is written twice": [s.step, cl.Copy(s.w[:1], s.v[:1])],
        "whole": [whole],
    }[where]
    run = s.run(
        cl.Copy(s.u, s.v),
        cl.Repeat(8, cl.Sequence(*body, s.back), index=s.turn),
        outputs=["u", "v", "w"],
    )
    assert "rotate" not in steps_text(run)


@few("at_end", [False, True], quick=["True"])
def test_what_reads_the_copied_variable_after_the_step_sees_it(at_end):
    s = Stencil()
    body = [s.step, s.back, s.watch] if at_end else [s.step, s.watch, s.back]
    run = s.run(cl.Copy(s.u, s.v), cl.Repeat(8, cl.Sequence(*body)), outputs=["u", "sum"])
    # Behind the copy, `v` would be read with the array that was `u`.
    assert ("rotate" in steps_text(run)) == (not at_end)


def test_a_copy_of_a_part_stays():
    s = Stencil()
    run = s.run(cl.Repeat(8, cl.Sequence(s.step, cl.Copy(s.v[1:], s.u[1:]))))
    assert "rotate" not in steps_text(run)


# --- what is carried ------------------------------------------------------------------------------------


def chunks(turns):
    """A vector that is multiplied by a matrix in each turn, in chunks."""
    graph = cl.Graph()
    x, w, part = graph.add_variable("x", (8,)), graph.add_variable("w", (8, 8)), graph.add_variable("part", (8, 2))
    row, p = cl.grid(8, 2)
    graph.add_vertex("multiply", dot, x=x[4 * p : 4 * p + 4], w=w[row, 4 * p : 4 * p + 4], out=part[row, p])
    row = cl.grid(8)
    graph.add_vertex("add up", total, x=part[row], out=x[row])
    return graph, cl.Repeat(turns, list(graph.compute_sets))


def test_partial_sums_are_not_carried():
    graph, program = chunks(5)
    run = cl.lower(graph, program, inputs=["x", "w"], outputs=["x"])
    assert scans(run) == [(5, 1, 1)]
    assert "reduce_sum" not in str(run.jaxpr)
    values = {"x": np.ones(8, "f"), "w": np.random.default_rng(0).normal(size=(8, 8)).astype("f") / 3}
    expected = np.linalg.matrix_power(values["w"], 5) @ values["x"]
    np.testing.assert_allclose(jax.jit(run)(values)["x"], expected, rtol=1e-4)


def test_partial_sums_that_are_asked_for_come_out():
    graph, program = chunks(5)
    run = cl.lower(graph, program, inputs=["x", "w"], outputs=["part"])
    assert scans(run) == [(5, 2, 1)]
    values = {"x": np.ones(8, "f"), "w": np.eye(8, dtype="f")}
    np.testing.assert_array_equal(run(values)["part"].sum(1), np.ones(8))


@pytest.mark.parametrize("kind", ["all", "half", "choice"])
@pytest.mark.parametrize("is_parameter", [True, False])
def test_what_a_function_writes_is_carried_only_where_something_of_it_is_kept(kind, is_parameter):
    graph = cl.Graph()
    x, y, given, inner = (graph.add_variable(name, (SIZE,)) for name in ("x", "y", "given", "inner"))
    chosen, turn = graph.add_variable("chosen", (), np.int32), graph.add_variable("turn", (), np.int32)
    to = inner if is_parameter else y
    i, j = cl.grid(SIZE), cl.grid(SIZE // 2)
    half, add = graph.add_compute_set("half"), graph.add_compute_set("add")
    graph.add_vertex(half, scale_by, x=given[j], out=to[j], by=0.5)
    graph.add_vertex(add, scaled, t=y[SIZE - 1 - i], x=0.5, acc=x[i])
    body = {
        "all": [cl.Copy(given, to)],
        "half": [half],
        "choice": [cl.Copy(turn, chosen), cl.If(chosen, cl.Sequence(), cl.Copy(given, to))],
    }
    parameters = {"given": given, "inner": inner} if is_parameter else {"given": given}
    function = graph.add_function(body[kind], parameters)
    call = cl.Call(function, **{"given": x, "inner": y} if is_parameter else {"given": x})
    program = [cl.Copy(x, y), cl.Repeat(4, [call, add], index=turn)]
    run = cl.lower(graph, program, inputs=[x], outputs=[x])
    assert [carried for _, carried, _ in scans(run)] == [1 if kind == "all" else 2]
    values = {"x": np.arange(1, 1 + SIZE, dtype=np.float32)}
    expected = cl.interpret(graph, values=values, outputs=[x], program=program)["x"]
    np.testing.assert_allclose(at_once(run)(values)[0]["x"], expected, rtol=1e-6)


def test_parts_that_are_written_apart_are_not_carried():
    graph = cl.Graph()
    x, half = graph.add_variable("x", (8,)), graph.add_variable("half", (8,))
    for k in (0, 4):
        i = cl.grid(4)
        graph.add_vertex("halve", scale_by, x=x[i + k], out=half[i + k], by=0.5 + k)
    i = cl.grid(8)
    graph.add_vertex("back", total, x=half[7 - i], out=x[i])
    program = cl.Repeat(5, list(graph.compute_sets))
    assert scans(cl.lower(graph, program, inputs=[x], outputs=[x])) == [(5, 1, 1)]


PARTLY_WRITTEN = {
    "written": (range(2, 10), range(2, 10), (), 1),
    "shifted": (range(1, 11), range(2, 10), (), 1),
    "read before": (range(2, 10), range(2, 10), ("before",), 2),
    "read behind": (range(2, 10), range(2, 10), ("behind",), 2),
    "more is read": (range(2, 10), range(1, 10), (), 2),
    "asked for": (range(2, 10), range(2, 10), ("output",), 2),
    "few": (range(2, 7), range(2, 7), (), 2),
    "added to": (range(2, 10), range(2, 10), ("add",), 2),
}
"""Which elements of twelve a turn writes, which it reads, what else there is, and how many arrays the loop carries."""


@few("name", list(PARTLY_WRITTEN), quick=["written", "more is read", "few"])
def test_what_is_written_before_all_that_is_read_of_it_is_not_carried(name):
    written, read, more, carried = PARTLY_WRITTEN[name]
    graph = cl.Graph()
    x, y, z = (graph.add_variable(own, (12,)) for own in ("x", "y", "z"))
    i, j = cl.grid(written), cl.grid(read)
    graph.add_vertex("halve", scale_by, x=x[i], out=y[i], by=0.5)
    graph.add_vertex("back", scaled, t=x[j], x=y[j], acc=x[j])
    graph.add_vertex("look", scaled, t=0.5, x=y[j], acc=x[j])
    graph.add_vertex("add", scaled, t=0.5, x=x[i], acc=y[i])
    graph.add_vertex("behind", scaled, t=0.5, x=y[j], acc=z[j])
    halve, back, look, add, behind = map(cl.Execute, graph.compute_sets)
    body = [*[look] * ("before" in more), *[add if "add" in more else halve], back]
    program = cl.Sequence(cl.Repeat(5, body), *[behind] * ("behind" in more))
    outputs = ["x", "z", *["y"] * ("output" in more)]
    run = cl.lower(graph, program, inputs=[x, y, z], outputs=outputs)
    assert [own for _, own, _ in scans(run)] == [carried]
    values = {own: np.random.default_rng(n).random(12, np.float32) for n, own in enumerate("xyz")}
    expected = cl.interpret(graph, program, values=values, outputs=outputs)
    found = at_once(run)(values)[0]
    for own in outputs:
        np.testing.assert_allclose(found[own], expected[own], rtol=1e-6)


def test_what_ends_a_turn_equal_is_copied_behind_the_loop():
    s = Stencil()
    i = cl.grid(SIZE)
    s.graph.add_vertex("whole", total, x=s.u[SIZE - 1 - i], out=s.v[i])
    run = s.run(cl.Repeat(5, cl.Sequence(s.graph.compute_sets[-1], s.back)), outputs=["u", "v"])
    assert scans(run) == [(5, 1, 1)]
    run = s.run(cl.Repeat(5, cl.Sequence(s.step, cl.Copy(s.v, s.w))), outputs=["w"])
    assert scans(run) == [(5, 1, 1)]


# --- what is run ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_no_output_needs_is_not_run():
    s = Stencil()
    i = cl.grid(SIZE)
    s.graph.add_vertex("own", scaled, t=s.turn, x=s.w[i], acc=s.w[i])
    own = s.graph.compute_sets[-1]
    # `w` feeds itself alone, and the first `sum` is overwritten before anything reads it.
    program = [s.watch, cl.Repeat(4, cl.Sequence(s.step, own), index=s.turn), cl.Copy(s.w, s.v), s.watch]
    run = s.run(*program, s.step, outputs=["sum"])
    assert "own" in str(run.plan)
    run = s.run(*program[:2], s.watch, cl.Repeat(3, own), outputs=["sum"])
    assert steps_text(run) == (
        "platform  cpu\n"
        "inputs  u, v, w, sum\n"
        "repeat 4 reads u writes v carries v\n"
        "  execute step reads u writes v\n"
        "execute watch reads v writes sum"
    )
    assert "without own / scaled, which no output needs" in str(run.plan)


def test_a_family_without_use_leaves_its_compute_set():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    i = cl.grid(4)
    y = graph.add_vertex("both", total, x=x[i])
    graph.add_vertex("both", lean, x=x[:3], y=x[0])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert [family.codelet.name for family in run.plan.families] == ["total"]
    assert len(run.families) == 2


def test_effects_happen_though_no_output_needs_them(capfd):
    @cl.codelet
    def spy(x):
        jax.debug.print("saw {}", x)
        return x

    graph = cl.Graph()
    x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    graph.add_vertex("look", spy, x=x, out=y)
    run = cl.lower(graph, cl.Repeat(3, graph.compute_sets[0]), inputs=[x], outputs=[x])
    for function in (run, jax.jit(run)):
        assert function({"x": 2.0})["x"] == 2
        jax.effects_barrier()
        assert capfd.readouterr().out == "saw 2.0\n" * 3


def test_what_no_output_needs_is_checked_and_named():
    s = Stencil()
    run = s.run(cl.Repeat(8, cl.Sequence(s.step, s.watch, s.back)))
    assert [family.codelet.name for family in run.families] == ["lean", "total"]
    assert [row for row in str(run.plan).split("\n") if "watch" in row] == [
        "without watch / total, which no output needs"
    ]
    with pytest.raises(cl.errors.UninitializedReadError):
        cl.lower(s.graph, s.watch, inputs=["u"], outputs=["u"])


def test_what_a_stream_brings_anew_in_each_turn_is_not_carried():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    feed = graph.add_input_stream("feed", (4,))
    step = graph.add_compute_set("step")
    i = cl.grid(4)

    @cl.codelet
    def gather(x, y):
        return {"y": y + x}

    graph.add_vertex(step, gather, x=x[i], y=y[i])
    run = cl.lower(graph, cl.Repeat(3, [cl.Copy(feed, x), step]), inputs=[y], outputs=[y])
    (scan,) = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert scan_counts(scan)[1] == 1
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run({"y": np.ones(4, np.float32), "feed": values})["y"], 1 + values.sum(0))


def test_a_loop_of_one_turn_needs_nothing_for_the_next():
    s = Stencil()
    run = s.run(cl.Repeat(1, [s.back, cl.Copy(s.w, s.v)]), outputs=["u"])
    assert steps_text(run) == "platform  cpu\ninputs  u, v, w, sum\ncopy v -> u"


def test_a_function_is_one_though_calls_within_others_need_less_of_it():
    graph = cl.Graph()
    a, b, x, y, z = (graph.add_variable(name, (2,)) for name in "abxyz")
    inner = graph.add_function([cl.Copy(x, a), cl.Copy(y, b)], {})
    outer = graph.add_function([cl.Call(inner), cl.Copy(a, z)], {})
    program = [cl.Call(inner), cl.Copy(b, x), cl.Copy(a, y), cl.Call(outer)]
    run = cl.lower(graph, program, inputs=[x, y], outputs=[z])
    calls = [step for step in all_steps(run.plan.steps) if isinstance(step, CallStep)]
    assert len({step.function for step in calls}) == 2
    assert calls[0].reads == calls[1].reads
    values = {"x": np.array([1.0, 2.0], np.float32), "y": np.array([3.0, 4.0], np.float32)}
    np.testing.assert_array_equal(run(values)["z"], [3.0, 4.0])
