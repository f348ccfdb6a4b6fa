"""Gradients checked: right ones pass, wrong ones are named, kinks and jumps are told apart from both."""

from __future__ import annotations

import time
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import codelet as cl
from lowering.gradient_check.differences import judge, steps_for, tolerance
from lowering.gradient_check.families import spread_over
from tests import strategies as s
from tests.examples import examples, few

# --- generated ------------------------------------------------------------------------------------------


class TestRight:
    @examples(8)
    @given(st.data())
    def test_generated_graphs(self, data):
        self.see_that_it_passes(data)

    @pytest.mark.slow
    @examples(300)
    @given(st.data())
    def test_many_generated_graphs(self, data):
        self.see_that_it_passes(data)

    def see_that_it_passes(self, data):
        case = data.draw(s.cases(bounded=True))
        floats = [name for name in case.inputs if case.graph_dtype(name) == np.float32]
        outputs = [name for name in case.outputs if case.graph_dtype(name) == np.float32]
        if not floats or not outputs:
            return
        of = data.draw(st.sampled_from(outputs))
        wrt = data.draw(st.lists(st.sampled_from(floats), min_size=1, max_size=3, unique=True))
        before = str(case.graph)
        report = cl.check_gradient(case.graph, of=of, wrt=wrt, values=case.inputs, program=case.sequence())
        assert str(case.graph) == before
        kinds = {verdict.kind for own in report.checked for verdict in own.verdicts}
        event(", ".join(sorted(kinds)) or "nothing")
        for own in report.checked:
            if own.dtype == "float64":
                assert own.greatest_error < 1e-5

    @pytest.mark.slow
    @examples(4)
    @given(st.data())
    def test_generated_ragged_graphs(self, data):
        case = data.draw(s.cases(bounded=True, ragged=True))
        floats = [name for name in case.inputs if case.graph_dtype(name) == np.float32]
        outputs = [name for name in case.outputs if case.graph_dtype(name) == np.float32]
        if floats and outputs:
            of = data.draw(st.sampled_from(outputs))
            cl.check_gradient(case.graph, of=of, wrt=floats[:3], values=case.inputs, program=case.sequence())

    def test_all_of_a_family_that_is_small(self):
        report = check(cl.codelet(jnp.sin), [1.0, 2.0, 3.0])
        own, whole = report.checked
        assert (own.compute_set, own.codelet, own.count, own.total, own.dtype) == ("own", "sin", 3, 3, "float64")
        assert len(own.verdicts) == 3
        assert 0 < own.greatest_error < 1e-8
        assert (whole.compute_set, whole.count, whole.dtype) == ("the whole program", 2, "float32")
        assert 0 < whole.greatest_error < 1e-2
        assert report.findings == ()

    def test_integers_state_and_in_out_fields(self):
        @cl.codelet
        def step(x, acc, n, site, scale, *, power):
            assert n.dtype == site.dtype == jnp.int32
            return {"acc": acc * x**power + n * jnp.sum(x) * site * scale, "n": n + 1}

        graph = cl.Graph()
        x, acc = graph.add_variable("x", (5,)), graph.add_variable("acc", (5,))
        n = graph.add_variable("n", (5,), "int32")
        i = cl.grid(5)
        graph.add_vertex("step", step, x=x[i], acc=acc[i], n=n[i], site=2 * i, scale=0.5, power=3)
        values = {"x": np.linspace(-1, 1, 5, dtype=np.float32), "acc": np.ones(5, np.float32), "n": np.arange(5)}
        values["n"] = values["n"].astype(np.int32)
        report = cl.check_gradient(graph, of=acc, wrt=["x", acc], values=values)
        assert [len(own.verdicts) for own in report.checked] == [10, 2]

    def test_an_empty_family_and_what_is_not_on_the_way(self):
        """What the gradient does not go through is not looked at, though it be wrong."""
        graph = cl.Graph()
        x, y, z = (graph.add_variable(name, (3,)) for name in "xyz")
        i = cl.grid(3)
        graph.add_vertex("own", cl.codelet(jnp.sin), x=x[i], out=y[i])
        graph.add_vertex("aside", doubled_wrongly, x=x[i], out=z[i])
        graph.add_vertex("none", cl.codelet(jnp.sin), x=x[cl.grid(0)], out=y[cl.grid(0)])
        report = cl.check_gradient(
            graph, of=y, wrt=[x], values={"x": np.ones(3, np.float32)}, program=graph.compute_sets[:2]
        )
        assert [own.compute_set for own in report.checked] == ["own", "the whole program"]

    def test_loops_and_choices(self):
        """What runs in a loop is seen in its first turn, of what no turn runs that is told."""
        graph = cl.Graph()
        x, is_so = graph.add_variable("x", ()), graph.add_variable("is so", (), "bool")
        with graph.record() as turn:
            graph.add_vertex("turn", cl.codelet(lambda x: {"x": jnp.sin(2 * x)}), x=x)
        with graph.record() as other:
            graph.add_vertex("other", cl.codelet(lambda x: {"x": x * x}), x=x)
        program = [cl.Repeat(3, turn), cl.If(is_so, other, cl.Sequence())]
        values = {"x": np.float32(0.3), "is so": False}
        report = cl.check_gradient(graph, of=x, wrt=[x], values=values, program=program)
        rows = {own.compute_set: own for own in report.checked}
        assert rows["turn"].notes == ("values of the first iteration",)
        assert (rows["other"].count, rows["other"].notes) == (0, ("not run",))
        report = cl.check_gradient(graph, of=x, wrt=[x], values={**values, "is so": True}, program=program)
        assert [own.count for own in report.checked] == [1, 1, 2]

    def test_the_values_of_the_first_turn(self):
        """A kink at the start, which is elsewhere in the turns that follow."""
        graph = cl.Graph()
        x = graph.add_variable("x", ())
        with graph.record() as turn:
            graph.add_vertex("turn", cl.codelet(lambda x: {"x": jnp.abs(x) + 1}), x=x)
        report = cl.check_gradient(graph, of=x, wrt=[x], values={"x": np.float32(0)}, program=cl.Repeat(3, turn))
        assert [(own.kind, own.field) for own in report.kinks][:1] == [("kink", "x")]
        report = cl.check_gradient(graph, of=x, wrt=[x], values={"x": np.float32(-1)}, program=cl.Repeat(3, turn))
        assert not report.findings

    @pytest.mark.slow
    def test_streams(self):
        graph = cl.Graph()
        x, total = graph.add_variable("x", (2,)), graph.add_variable("total", (2,))
        w, feed = graph.add_variable("w", (2,)), graph.add_input_stream("feed", (2,))
        i = cl.grid(2)
        kind = cl.codelet(lambda x, w, total: {"total": total + jnp.tanh(x * w)})
        graph.add_vertex("add", kind, x=x[i], w=w[i], total=total[i])
        program = cl.Repeat(3, [cl.Copy(feed, x), graph.compute_sets[0]])
        values = {"feed": np.arange(6, dtype=np.float32).reshape(3, 2), "w": np.ones(2, np.float32)}
        report = cl.check_gradient(
            graph, of=total, wrt=[w], values={**values, "total": np.zeros(2, np.float32)}, program=program
        )
        assert [own.num("right") for own in report.checked] == [4, 2]

    def test_a_function_with_a_derivative(self):
        graph = cl.Graph()
        x, y, a, b = (graph.add_variable(name, ()) for name in "xyab")
        graph.add_vertex("body", cl.codelet(lambda a: jnp.sin(a)), a=a, out=b)
        own = cl.codelet(lambda a: {"b": jnp.sin(a)})
        function = graph.add_function(graph.compute_sets[-1], [a, b], derivative=own)
        report = cl.check_gradient(
            graph, of=y, wrt=[x], values={"x": np.float32(1)}, program=cl.Call(function, a=x, b=y)
        )
        assert [len(own.verdicts) for own in report.checked] == [1, 2]
        other = cl.codelet(lambda a: {"b": jnp.cos(a)})
        wrong = graph.add_function(graph.compute_sets[-1], [a, b], derivative=other)
        with pytest.raises(cl.GradientError) as error:
            cl.check_gradient(graph, of=y, wrt=[x], values={"x": np.float32(1)}, program=cl.Call(wrong, a=x, b=y))
        assert "the gradient with respect to x is wrong, while those of all checked vertices are right" in str(
            error.value
        )
        assert "of a function with derivative=, see that its codelet computes what its body does" in str(error.value)

    def test_64_bits(self):
        with jax.enable_x64(True):
            graph = cl.Graph()
            x, y = graph.add_variable("x", (4,), "float64"), graph.add_variable("y", (4,), "float64")
            graph.add_vertex("own", cl.codelet(jnp.exp), x=x, out=y)
            report = cl.check_gradient(graph, of=y, wrt=[x], values={"x": np.linspace(0, 1, 4)})
        assert [own.dtype for own in report.checked] == ["float64", "float64"]
        assert max(own.greatest_error for own in report.checked) < 1e-7

    def test_complex_numbers(self):
        graph = cl.Graph()
        x, y = graph.add_variable("x", (4,), "complex64"), graph.add_variable("y", (4,))
        graph.add_vertex("own", cl.codelet(lambda x: jnp.abs(x * x + 1j * x)), x=x, out=y)
        values = {"x": np.array([1, 2j, 1 + 1j, -0.5 - 2j], np.complex64)}
        assert not cl.check_gradient(graph, of=y, wrt=[x], values=values).findings

    def test_a_part_of_a_variable_and_padding(self):
        graph = cl.Graph()
        x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (6,))
        padded = cl.concatenate([x[1:4], x[2:5]]).pad(1)
        i = cl.grid(6)
        graph.add_vertex("own", cl.codelet(lambda x: jnp.sum(x**3)), x=padded[i : i + 3], out=y[i])
        values = {"x": np.linspace(-1, 1, 6, dtype=np.float32)}
        report = cl.check_gradient(graph, of=y[2:], wrt=[x[1:3], padded], values=values, cotangent=np.ones(4))
        assert not report.findings

    @pytest.mark.slow
    def test_millions_of_vertices(self):
        graph = cl.Graph()
        count = 1_000_000
        x, y, z = graph.add_variable("x", (count,)), graph.add_variable("y", (count,)), graph.add_variable("z", (1000,))
        i, j = cl.grid(count), cl.grid(1000)
        graph.add_vertex("squash", cl.codelet(jnp.tanh), x=x[i], out=y[i])
        graph.add_vertex("sum", cl.codelet(lambda x: jnp.sum(x**2)), x=y.reshape(1000, 1000)[j], out=z[j])
        start = time.perf_counter()
        report = cl.check_gradient(graph, of=z, wrt=[x], values={"x": np.linspace(-2, 2, count, dtype=np.float32)})
        assert [own.count for own in report.checked] == [16, 16, 2]
        assert time.perf_counter() - start < 20  # 3 s, of which most is compiling


# --- wrong ----------------------------------------------------------------------------------------------


def with_rule(function, backward):
    """A function of numbers with a derivative of its own, of what it is given and its cotangent."""
    own = jax.custom_vjp(function)
    own.defvjp(lambda *given: (function(*given), given), lambda given, g: backward(*given, g))
    return own


doubled_wrongly = cl.codelet(with_rule(lambda x: 2 * x, lambda x, g: (2.02 * g,)))


def check(codelet: cl.Codelet, *arrays, **options) -> cl.GradientCheck:
    """Check a codelet whose fields are numbers, at vertices with those of some arrays."""
    graph = cl.Graph()
    arrays = [np.asarray(array, np.float32) for array in arrays]
    count = len(arrays[0])
    i = cl.grid(count)
    fields = {name: graph.add_variable(name, array.shape) for name, array in zip(codelet.inputs, arrays, strict=True)}
    result = graph.add_variable("result", (count,))
    graph.add_vertex("own", codelet, **{name: own[i] for name, own in fields.items()}, out=result[i])
    values = dict(zip(fields, arrays, strict=True))
    return cl.check_gradient(graph, of=result, wrt=list(fields), values=values, **options)


def found(codelet: cl.Codelet, *arrays, **options) -> cl.GradientError:
    with pytest.raises(cl.GradientError) as error:
        check(codelet, *arrays, **options)
    return error.value


class TestWrong:
    def test_by_a_factor(self):
        error = found(doubled_wrongly, [1.0, 5.0])
        for finding in error.check.wrong:
            assert finding.field == "x"
            np.testing.assert_allclose(finding.verdict.slope / finding.verdict.difference, 1.01, 1e-6)
        one = error.check.wrong[0]
        assert (one.quantity, repr(one.vertex)) == ("d out / d x", "vertex of own / <lambda> at i=0")
        np.testing.assert_allclose([one.verdict.slope, one.verdict.difference], [2.02, 2], 1e-6)

    def test_what_it_says(self):
        message = str(found(doubled_wrongly, [1.0]))
        assert message.split("\n")[:4] == [
            "codelet '<lambda>' has a wrong gradient with respect to its field 'x'",
            "  given:    d out / d x is 2.02, at vertex of own / <lambda> at i=0",
            "  expected: 2, to which differences of what it computes converge",
            "  fix:      correct the jax.custom_vjp in it; where it is meant to differ, ignore=['<lambda>']",
        ]
        assert "graph.add_vertex" in message.split("\n")[4]

    def test_a_term_that_is_missing(self):
        own = cl.codelet(with_rule(lambda x: x * jnp.exp(x), lambda x, g: (g * jnp.exp(x),)))
        one = found(own, [0.5]).check.wrong[0]
        np.testing.assert_allclose([one.verdict.slope, one.verdict.difference], np.exp(0.5) * np.array([1, 1.5]), 1e-6)

    def test_the_sign_of_one_field(self):
        own = cl.codelet(with_rule(lambda x, y, z: x * y - z, lambda x, y, z, g: (g * y, g * x, g)))
        wrong = found(own, [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]).check.wrong
        assert [one.field for one in wrong] == ["z", "z"]
        assert wrong[0].quantity == "d out / d z"
        np.testing.assert_allclose([wrong[0].verdict.slope, wrong[0].verdict.difference], [1, -1], 1e-6)

    def test_at_the_values_of_one_vertex(self):
        own = cl.codelet(with_rule(lambda x: x * x, lambda x, g: (jnp.where(x > 100, x, 2 * x) * g,)))
        wrong = found(own, [1.0, 2.0, 101.0, 3.0]).check.wrong
        assert [repr(one.vertex) for one in wrong] == ["vertex of own / <lambda> at i=2"]
        np.testing.assert_allclose([wrong[0].verdict.slope, wrong[0].verdict.difference], [101, 202], 1e-6)

    def test_a_custom_jvp(self):
        @jax.custom_jvp
        def cube(x):
            return x**3

        cube.defjvp(lambda given, slopes: (cube(*given), 2 * given[0] ** 2 * slopes[0]))
        error = found(cl.codelet(lambda x: cube(x)), [2.0])
        assert "correct the jax.custom_jvp in it" in str(error)
        one = error.check.wrong[0]
        np.testing.assert_allclose([one.verdict.slope, one.verdict.difference], [8, 12], 1e-6)

    def test_one_element_of_many(self):
        """The element of the field and that of the result are named."""

        def backward(x, g):
            return (jnp.zeros_like(x).at[:, 1].set(g * jnp.array([1.0, 1.0, 1.5])),)

        own = cl.codelet(with_rule(lambda x: x[:, 1], backward))
        graph = cl.Graph()
        x, y = graph.add_variable("x", (3, 2)), graph.add_variable("y", (3,))
        graph.add_vertex("own", own, x=x, out=y)
        with pytest.raises(cl.GradientError, match=r"d out\[2\] / d x\[2, 1\] is 1.5,"):
            cl.check_gradient(graph, of=y, wrt=[x], values={"x": np.ones((3, 2), np.float32)})

    def test_a_gradient_that_is_stopped(self):
        own = cl.codelet(lambda x: jax.lax.stop_gradient(x) ** 2)
        error = found(own, [3.0])
        assert "given:    d out / d x is 0, at" in str(error)
        assert "see where it stops or replaces a gradient: jax.lax.stop_gradient" in str(error)
        assert not check(own, [3.0], ignore=[own]).checked
        assert not check(own, [3.0], ignore=["<lambda>"]).checked

    def test_a_gradient_that_is_no_number(self):
        """The root of what is not there: zero of a branch that is not taken, times infinity."""
        own = cl.codelet(lambda x: jnp.where(x > 0, jnp.sqrt(jnp.maximum(x, 0)), 0.0))
        one = found(own, [-1.0], directions=0).check.wrong[0]
        assert np.isnan(one.verdict.slope)
        assert one.verdict.difference == 0

    def test_one_that_makes_narrower_numbers(self):
        own = cl.codelet(with_rule(lambda x: 3 * x.astype(jnp.float32), lambda x, g: (3.3 * g.astype(x.dtype),)))
        error = found(own, [1.0])
        assert error.check.checked[0].dtype == "its own dtypes"
        np.testing.assert_allclose(error.check.wrong[0].verdict.difference, 3, 1e-2)
        right = cl.codelet(lambda x: jnp.sin(x.astype(jnp.float32)))
        assert not check(right, np.linspace(-2, 2, 9)).findings

    @pytest.mark.slow
    @given(st.integers(0, 10_000))
    @examples(2)
    def test_generated_functions(self, seed):
        """A codelet of random weights with a random fault in one field: found, and only there."""
        random = np.random.default_rng(seed)
        a, b = random.normal(size=(3, 2)), random.normal(size=(3, 4))
        fault, place, off = random.integers(2), random.integers(2), random.choice([0.01, -2, 1e-3])

        def function(x, y):
            return jnp.tanh(a @ x) * (b @ jnp.sin(y))

        def backward(x, y, g):
            made = list(jax.vjp(function, x, y)[1](g))
            made[fault] = made[fault].at[place].mul(1 + off)
            return tuple(made)

        graph = cl.Graph()
        x, y, z = (graph.add_variable(name, (5, n)) for name, n in (("x", 2), ("y", 4), ("z", 3)))
        i = cl.grid(5)
        values = {
            "x": random.normal(size=(5, 2)).astype(np.float32),
            "y": random.normal(size=(5, 4)).astype(np.float32),
        }
        graph.add_vertex("right", cl.codelet(function), x=x[i], y=y[i], out=z[i])
        assert not cl.check_gradient(graph, of=z, wrt=[x, y], values=values).findings
        graph.add_vertex("wrong", cl.codelet(with_rule(function, backward)), x=x[i], y=y[i], out=z[i])
        with pytest.raises(cl.GradientError) as error:
            cl.check_gradient(graph, of=z, wrt=[x, y], values=values, program=graph.compute_sets[1])
        wrong = error.value.check.wrong
        assert {one.field for one in wrong} == {"xy"[fault]}
        assert wrong[0].quantity.endswith(f"d {'xy'[fault]}[{place}]")
        assert len(wrong) == 4  # of five vertices, the first few


# --- neither --------------------------------------------------------------------------------------------


BENT = {
    "relu": jax.nn.relu,
    "abs": jnp.abs,
    "maximum": lambda x: jnp.maximum(x, 0),
    "clip": lambda x: jnp.clip(x, 0, 1),
    "square of a relu": lambda x: jnp.maximum(x, 0) ** 2 + x,
}
DISTANCES = [1e-9, 1e-7, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3, 1e-2]


class TestKinks:
    @few("name", [name for name in BENT if name != "square of a relu"], quick=["abs"])
    def test_at_one(self, name):
        report = check(cl.codelet(lambda x: BENT[name](x)), [-1.0, 0.0, 2.0])
        assert [(repr(own.vertex), own.field, own.kind) for own in report.findings if own.vertex is not None] == [
            ("vertex of own / <lambda> at i=1", "x", "kink")
        ]
        own = report.kinks[0].verdict
        assert abs(own.right - own.left) > 0.1

    @few(
        "distance, name",
        product(DISTANCES, ["relu", "abs", "square of a relu"]),
        quick=[f"{own}, abs" for own in DISTANCES] + ["1e-06, square of a relu", "1e-05, relu"],
    )
    def test_near_one(self, name, distance):
        """Never wrong, on neither side, whatever the size of a step is beside the distance."""
        report = check(cl.codelet(lambda x: BENT[name](x - 1)), 1 + np.array([-distance, distance]), directions=0)
        assert {own.kind for own in report.findings} <= {"kink"}

    def test_one_of_an_array_names_its_elements(self):
        own = cl.codelet(lambda x: jnp.sum(3 * jnp.abs(x)))
        report = check(own, [[1.0, 0.0, 2.0], [0.0, 3.0, 5.0]], directions=0)
        assert [one.quantity for one in report.kinks] == ["d out / d x[1]", "d out / d x[0]"]
        for one in report.kinks:
            np.testing.assert_allclose((one.verdict.left, one.verdict.right), (-3, 3), 1e-6)

    def test_a_kink_does_not_hide_what_is_wrong(self):
        own = cl.codelet(with_rule(jnp.abs, lambda x, g: (1.5 * jnp.sign(x) * g,)))
        error = found(own, [0.0, 1.0])
        assert [repr(one.vertex) for one in error.check.wrong] == ["vertex of own / abs at i=1"]
        assert [repr(one.vertex) for one in error.check.kinks] == ["vertex of own / abs at i=0"]


def drawn_by(x):
    """Numbers that depend on all digits of what is given."""
    seed = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32)
    return jax.random.normal(jax.random.key(seed)) * x


class TestUnstable:
    @pytest.mark.parametrize(
        "function", [jnp.floor, jnp.round, drawn_by, lambda x: x + jnp.sign(x), lambda x: jnp.where(x > 0, x + 1, x)]
    )
    def test_what_jumps_is_not_wrong(self, function):
        report = check(cl.codelet(lambda x: function(x)), [-1.0, -0.5, 0.0, 0.3, 1.0, 7.0], directions=0)
        assert not report.wrong

    def test_at_a_jump(self):
        report = check(cl.codelet(jnp.floor), [0.5, 3.0], directions=0)
        assert [(own.kind, repr(own.vertex)) for own in report.findings] == [
            ("unstable", "vertex of own / floor at i=1")
        ]
        assert str(report.findings[0]).endswith("by the gradient, differences do not converge")

    def test_sorted_elements(self):
        graph = cl.Graph()
        x, y = graph.add_variable("x", (3, 4)), graph.add_variable("y", (3, 4))
        i = cl.grid(3)
        graph.add_vertex("sort", cl.codelet(lambda x: jnp.sort(x) * jnp.arange(4.0)), x=x[i], out=y[i])
        values = {"x": np.array([[3, 1, 2, 0], [1, 1, 2, 2], [0, 0, 0, 0]], np.float32)}
        report = cl.check_gradient(graph, of=y, wrt=[x], values=values, directions=0)
        assert report.checked[0].num("right") >= 1
        assert not report.wrong


# --- by parts -------------------------------------------------------------------------------------------


class TestJudged:
    @pytest.mark.parametrize("eps", [2.0**-52, 2.0**-23])
    @given(st.floats(-3, 3), st.sampled_from([0.0, 0.05, -1.0]))
    def test_a_slope(self, eps, at, off):
        steps = steps_for(eps)
        dtype = np.float64 if eps < 1e-12 else np.float32
        values = np.sin(dtype(at) + steps.places.astype(dtype)).astype(dtype)
        slope = np.cos(at) + off
        own = judge(steps, values, slope, spread=abs(slope), noise=4 * eps, rtol=tolerance(eps))
        assert own.kind == ("wrong" if off else "right")

    def test_which_vertices(self):
        random = np.random.default_rng(0)
        assert spread_over(5, 16, random) == [0, 1, 2, 3, 4]
        for count in (17, 100, 10**6):
            chosen = spread_over(count, 16, random)
            assert (chosen[0], chosen[-1]) == (0, count - 1)
            assert len(chosen) == 16
            assert max(np.diff(chosen)) <= 2 * -(-count // 14)
        assert len(spread_over(100, 1, random)) == 1


class TestReport:
    def test_it_prints(self):
        report = check(cl.codelet(jax.nn.relu), [-1.0, 0.0, 2.0], directions=0)
        heading, heads, row, kink = str(report).split("\n")
        assert heading == "gradient of result with respect to x: right"
        assert " ".join(heads.split()) == "compute set codelet checked in greatest error kinks unstable wrong notes"
        assert row.split()[:7] == ["own", "relu", "3", "of", "3", "float64", row.split()[6]]
        assert row.split()[7:] == ["1", "0", "0"]
        assert kink == (
            "kink: vertex of own / relu at i=1: d out / d x is 0 by the gradient, 0 from the left, 1 from the right"
        )
        assert repr(report) == "<GradientCheck: gradient of result with respect to x: right>"
        assert "<table>" in report._repr_html_()
        assert "<summary>1 finding</summary>" in report._repr_html_()

    def test_numbers_that_are_none_confirm_nothing(self):
        report = check(cl.codelet(jax.nn.relu), [np.nan, np.nan], directions=0)
        assert str(report).startswith("gradient of result with respect to x: not to be told\n")

    def test_what_has_no_forward_derivative(self):
        own = cl.codelet(with_rule(lambda x: 2 * x, lambda x, g: (2 * g,)))
        assert check(own, [1.0]).checked[0].notes == ("no jax.jvp of a custom_vjp",)

    def test_the_same_again(self):
        one, other = (str(check(cl.codelet(jnp.sin), np.arange(50.0), seed=3)) for _ in range(2))
        assert one == other

    def test_prints_of_the_program_are_not_repeated(self, capfd):
        graph = cl.Graph()
        x = graph.add_variable("x", ())
        graph.add_vertex("own", cl.codelet(lambda x: {"x": x * x}), x=x)
        program = [cl.Print(x), cl.Repeat(2, [graph.compute_sets[0], cl.Print(x)])]
        cl.check_gradient(graph, of=x, wrt=[x], values={"x": np.float32(1)}, program=program)
        assert capfd.readouterr().out == ""
