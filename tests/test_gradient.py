"""Gradients as graphs: what the vertices of a backward pass compute, beside what JAX gives for the lowered program."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import codelet as cl
from tests import strategies as s
from tests.at_once import at_once
from tests.drawn_dtypes import MOSTLY_WIDE
from tests.examples import examples, few
from tests.gradients import agree, compare, ends

pytestmark = pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")  # of floats the machine has not


def slopes(case: s.Case, of: str, wrt: list[str], cotangent: np.ndarray) -> dict[str, np.ndarray]:
    """JAX's gradient of the lowered program."""
    graph = case.graph
    run = cl.lower(graph, inputs=[*case.inputs], outputs=[of], program=case.sequence())
    fixed = {name: value for name, value in case.inputs.items() if name not in wrt}

    def product(own):
        return jnp.vdot(run({**fixed, **own})[of], cotangent)

    return jax.jit(jax.grad(product))({name: case.inputs[name] for name in wrt})


AGAIN = [None, None, cl.Recompute.all(), cl.Recompute.every(1), cl.Recompute.every(2), cl.Recompute.sqrt()]
"""What may be made again."""


class TestGenerated:
    @pytest.mark.slow
    @examples(1000)
    @given(st.data())
    def test_many(self, data):
        self.check(data)

    @examples(6)
    @given(st.data())
    def test_it_is_that_of_the_lowered_program(self, data):
        self.check(data)

    @pytest.mark.slow
    @examples(500)
    @given(st.data())
    def test_many_of_ragged_codelets(self, data):
        self.check(data, ragged=True)

    @examples(3)
    @given(st.data())
    def test_of_ragged_codelets(self, data):
        self.check(data, ragged=True)

    def check(self, data: Any, ragged: bool = False) -> None:
        dtype = data.draw(st.sampled_from(MOSTLY_WIDE))
        case = data.draw(s.cases(dtype, bounded=True, ragged=ragged))
        of, wrt = ends(data.draw, case, dtype)
        shape = case.graph.variable(of).shape
        cotangent = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
        expected = slopes(case, of, wrt, cotangent)
        again = data.draw(st.sampled_from(AGAIN))
        found = cl.gradient(case.graph, of=of, wrt=wrt, program=case.sequence(), cotangent=cotangent, recompute=again)
        program = cl.Sequence(found.forward, found.backward)
        names = {name: own.source.name for name, own in zip(wrt, found, strict=True)}
        run = cl.lower(case.graph, inputs=[*case.inputs], outputs=[*names.values()], program=program)
        made = jax.jit(run)(case.inputs)
        event("zero" if not any(np.any(own) for own in expected.values()) else "not zero")
        for name in wrt:
            agree(made[names[name]], expected[name], name)


@jax.custom_vjp
def by_itself_at_three(x):
    return 2 * x


by_itself_at_three.defvjp(lambda x: (2 * x, x), lambda x, slope: (slope * x if len(x) == 3 else slope,))

OF_ROWS = {
    "product": lambda x: jnp.prod(x),
    "products of pairs": lambda x: jnp.prod(x[:, None] + x[None, :]),
    "running product": lambda x: jnp.cumprod(x).sum(),
    "running largest": lambda x: jax.lax.cummax(x).sum(),
    "a scan": lambda x: jax.lax.scan(lambda c, a: (c * a, c), 1.0, x)[0],
    "a loop to the length": lambda x: jax.lax.fori_loop(0, len(x), lambda k, c: c * x[k], 1.0),
    "turned by one": lambda x: jnp.dot(jnp.roll(x, 1), x),
    "a rule that reads at one length alone": lambda x: jnp.sum(by_itself_at_three(x)),
}
"""Codelets of ragged fields, of whose derivatives JAX has most at no length that is a symbol."""


BY_LENGTHS = {
    "a sum": lambda x, z, k, y: jnp.sum(x) * z.shape[0] + y,
    "a factor": lambda x, z, k, y: y * (x.shape[0] - 2.0 * z.shape[0]),
    "a factor at one length": lambda x, z, k, y: y * (2.0 if x.shape[0] == 3 else 1.0),
    "a factor of integers": lambda x, z, k, y: y * jnp.ones(k.shape).sum(),
    "a loop to the length": lambda x, z, k, y: jax.lax.fori_loop(0, len(z), lambda _, c: 2 * c, y),
    "the last, if any": lambda x, z, k, y: y + x[len(x) - 1] if len(x) else 2 * y,
    "what is updated": lambda x, z, k, y: {"x": -x, "out": y * x.shape[0]},
}
"""Codelets whose derivatives are made of lengths, and of no element of the rows that have these lengths."""


class TestRagged:
    @few("lengths", [[2, 3], range(1, 8), [2, 4, 1, 2]], quick=["(2, 3)"])
    def test_what_has_a_derivative_at_numbers_alone(self, lengths):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        ends = np.concatenate([[0], np.cumsum(lengths)])
        x = graph.add_variable("x", (int(ends[-1]),))
        order = np.random.default_rng(0).permutation(x.size)
        rows, i = cl.table(order, offsets=ends), cl.grid(len(lengths))
        y = [graph.add_vertex(name, cl.codelet(function), x=x[rows[i]]) for name, function in OF_ROWS.items()]
        found = cl.gradient(graph, of=cl.ops.sum(graph, cl.concatenate([own[:] for own in y])), wrt=[x])
        run = cl.lower(graph, [found.forward, found.backward], inputs=[x], outputs=[found[x]])
        value = np.random.default_rng(1).uniform(0.5, 1.5, x.size).astype(np.float32)

        def plain(value):
            own = [value[order[a:b]] for a, b in itertools.pairwise(ends)]
            return sum(function(row) for row in own for function in OF_ROWS.values())

        ours, expected = at_once(lambda v: run({"x": v})[found[x].source.name], jax.grad(plain))(value)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)

    @few("lengths", [[3, 0], [1], [3], [0], [2, 0, 4, 1, 3, 6, 5]], quick=["(3, 0)", "(1)", "(0)"])
    def test_what_depends_on_lengths_alone(self, lengths):
        graph, count, i = cl.Graph(cl.IPU(num_tiles=4)), len(lengths), cl.grid(len(lengths))
        ends = {"x": np.cumsum([0, *lengths]), "z": np.cumsum([0, *lengths[::-1]]), "k": np.cumsum([0, *lengths])}
        ends = {name: own.tolist() for name, own in ends.items()}
        rows = {name: cl.table(np.arange(own[-1]), offsets=own) for name, own in ends.items()}
        given, outs = [], []
        for name, function in BY_LENGTHS.items():
            own = {field: graph.add_variable(f"{name}/{field}", (ends[field][-1],)) for field in "xz"}
            own["k"] = graph.add_variable(f"{name}/k", (ends["k"][-1],), "int8")
            own["y"] = graph.add_variable(f"{name}/y", (count,))
            fields = {field: variable[rows[field][i] if field in rows else i] for field, variable in own.items()}
            outs.append(graph.add_vertex(name, cl.codelet(function), **fields))
            given += own.values()
        random = np.random.default_rng(0)
        values = {own.name: random.integers(1, 4, own.shape).astype(own.dtype) for own in given}
        wrt = [name for name in values if not name.endswith("/k")]
        found = cl.gradient(graph, of=cl.concatenate([own[:] for own in outs]), wrt=wrt, cotangent=1.0)
        both = cl.Sequence(found.forward, found.backward)

        def plain(values):
            total = 0.0
            for (name, function), k in itertools.product(BY_LENGTHS.items(), range(count)):
                parts = {field: values[f"{name}/{field}"][own[k] : own[k + 1]] for field, own in ends.items()}
                made = function(**parts, y=values[f"{name}/y"][k])
                total += made["out"] if isinstance(made, dict) else made
            return total

        run = cl.lower(graph, both, inputs=[*values], outputs=[*found])
        ours, expected = at_once(run, jax.grad(plain, allow_int=True))(values)
        simple = cl.interpret(graph, values=values, outputs=[*found], program=both)
        for name, own in zip(wrt, found, strict=True):
            agree(ours[own.source.name], expected[name], name)
            agree(simple[own.source.name], expected[name], name)


class TestFunctions:
    def test_one_whose_derivative_is_a_codelets(self):
        """What runs is the body, what is differentiated the codelet: here another function, so that it shows."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y = (graph.add_variable(name, (3,)) for name in "xy")
        a, b = (graph.add_variable(name, (3,)) for name in "ab")
        i = cl.grid(3)
        graph.add_vertex("body", cl.codelet(lambda a: 2 * a), a=a[i], out=b[i])
        derivative = cl.codelet(lambda a: {"b": jnp.sum(a) * a})
        function = graph.add_function(graph.compute_sets[-1], [a, b], derivative=derivative)
        program = [cl.Call(function, a=x, b=y), cl.Call(function, a=y, b=x)]
        found = cl.gradient(graph, of=x, wrt=[x], program=program, cotangent=[1.0, 2.0, 3.0])
        both = cl.Sequence(found.forward, found.backward)
        value = np.array([0.5, -1.0, 2.0], np.float32)
        expected = jax.grad(
            lambda v: cl.lower(graph, inputs=[x], outputs=[x], program=program)({"x": v})["x"] @ np.array([1.0, 2, 3])
        )(value)
        made = cl.interpret(graph, values={"x": value}, outputs=[found[x]], program=both)[found[x].source.name]
        np.testing.assert_allclose(made, expected, 1e-5)

    def test_one_whose_derivative_is_a_codelets_is_jitted_and_compared(self):
        def made():
            graph = cl.Graph()
            a, b = (graph.add_variable(name, (3,)) for name in "ab")
            graph.add_vertex("body", double, a=a, out=b)
            function = graph.add_function(graph.compute_sets[-1], [a, b], derivative=doubled)
            x = graph.add_variable("x", (3,))
            return cl.lower(graph, cl.Call(function, a=x, b=x), inputs=[x], outputs=[x])

        double, doubled = cl.codelet(lambda a: 2 * a), cl.codelet(lambda a: {"b": a + a})
        first, second = made(), made()
        assert first == second
        assert hash(first) == hash(second)
        assert jax.jit(first)({"x": jnp.ones(3)})["x"].tolist() == [2, 2, 2]


@cl.codelet
def scale(x, w):
    return x * w


@cl.codelet
def bend(x):
    return jnp.tanh(x)


@cl.codelet
def total(x):
    return jnp.sum(x)


def layers(count: int, bend: cl.Codelet = bend) -> tuple[cl.Graph, cl.Tensor, list[cl.Tensor]]:
    """A network of equal layers, and its loss."""
    graph = cl.Graph(cl.IPU(num_tiles=16))
    rows, wide = 64, 32
    h, weights = graph.add_variable("x", (rows, wide)), []
    for number in range(count):
        with graph.scope(f"layer{number}"):
            weights.append(graph.add_variable("w", (wide,)))
            i = cl.grid(rows)
            h = graph.add_vertex("scale", scale, x=h[i], w=weights[-1])
            i = cl.grid(rows)
            h = graph.add_vertex("bend", bend, x=h[i])
    i = cl.grid(rows)
    parts = graph.add_vertex("sum", total, x=h[i])
    return graph, graph.add_vertex("loss", total, x=parts), weights


class TestRecompute:
    def trained(self, again: cl.Recompute | None) -> tuple[int, int, list[np.ndarray], int]:
        """Bytes that are not always live, cycles, gradients, and vertices of layers with something made again."""
        graph, loss, weights = layers(36)
        found = cl.gradient(graph, of=loss, wrt=weights, recompute=again)
        engine = cl.Engine(graph, cl.Sequence(found.forward, found.backward))
        profile = engine.profile(host_visible=["x", *weights, *found])
        random = np.random.default_rng(0)
        engine.write({"x": random.normal(size=(64, 32)).astype(np.float32)})
        engine.write({f"layer{k}/w": random.uniform(0.5, 1.5, 32).astype(np.float32) for k in range(len(weights))})
        engine.run()
        gradients = [np.asarray(engine.read(own)) for own in found]
        return profile.memory_by_kind["not always live"], profile.total_cycles, gradients, graph.num_vertices

    @pytest.mark.slow
    def test_less_memory_for_a_little_more_work(self):
        memory, cycles, gradients, vertices = self.trained(None)
        for again, less, more in ((cl.Recompute.sqrt(), 2.4, 1.5), (cl.Recompute.every(12), 2.4, 1.5)):
            other_memory, other_cycles, others, other_vertices = self.trained(again)
            assert other_memory * less < memory
            assert cycles < other_cycles < more * cycles
            assert other_vertices == vertices
            for one, other in zip(gradients, others, strict=True):
                np.testing.assert_array_equal(one, other)

    def test_scopes_run_again_by_themselves(self):
        """What a layer passes on is there where the one behind it has just read it: it is not made again."""
        graph, loss, weights = layers(3, cl.codelet(lambda x: jnp.sin(x)))
        found = cl.gradient(graph, of=loss, wrt=weights, recompute=cl.Recompute.scopes("layer[01]"))
        lines = [line.split("(")[-1][:-1] for line in found.backward.lines() if "Execute" in line]
        forward = [line for line in lines if not line.startswith("backward")]
        assert forward == ["layer1/scale", "layer0/scale"]
        assert lines.index("layer1/scale") < lines.index("backward/layer1/bend") < lines.index("layer0/scale")

    def test_what_is_updated_in_place_is_not_made_again(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
        i = cl.grid(4)
        graph.add_vertex("grow", cl.codelet(lambda x: {"x": jnp.exp(x)}), x=x[i])
        i = cl.grid(4)
        graph.add_vertex("square", cl.codelet(lambda x: x * x), x=x[i], out=y[i])
        found = cl.gradient(graph, of=y, wrt=["x"], cotangent=np.ones(4), recompute=cl.Recompute.all())
        assert not [line for line in found.backward.lines() if line in ("Execute(grow)", "Execute(square)")]
        program = cl.Sequence(found.forward, found.backward)
        (made,) = found
        value = np.linspace(-1, 1, 4).astype(np.float32)
        slope = cl.interpret(graph, values={"x": value}, outputs=[made], program=program)[made.source.name]
        np.testing.assert_allclose(slope, 2 * np.exp(2 * value), 1e-5)

    def test_a_number_that_counts_no_steps(self):
        with pytest.raises(cl.ProgramError, match="a forward pass cannot be kept so often"):
            cl.Recompute.every(0)

    def test_a_budget_that_counts_no_bytes(self):
        with pytest.raises(cl.ProgramError, match="a budget is not a number of bytes"):
            cl.Recompute.bytes(-1)

    def test_what_is_read_and_then_overwritten_is_not_made_again(self):
        """The sine is of what x was: made again it would be of what x is."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y, z = (graph.add_variable(name, (4,)) for name in "xyz")
        i = cl.grid(4)
        graph.add_vertex("sine", cl.codelet(lambda a: jnp.sin(a)), a=x[i], out=y[i])
        i = cl.grid(4)
        graph.add_vertex("other", cl.codelet(lambda a: a + 1), a=z[i], out=x[i])
        i = cl.grid(4)
        graph.add_vertex("square", cl.codelet(lambda a, b: a * a + b), a=y[i], b=x[i], out=z[i])
        value = {name: np.linspace(-1, 1, 4).astype(np.float32) for name in "xz"}
        slopes, program = [], graph.default_program
        for again in (None, cl.Recompute.all()):
            found = cl.gradient(graph, of=z, wrt=["x", "z"], program=program, cotangent=np.ones(4), recompute=again)
            both = cl.Sequence(found.forward, found.backward)
            slopes.append([*cl.interpret(graph, values=value, outputs=[*found], program=both).values()])
        np.testing.assert_allclose(slopes[1], slopes[0], 1e-5)


class TestGathered:
    """Contributions of inner products, gathered, beside JAX's gradient and, in float64, differences."""

    @staticmethod
    def windows(stride: int, window: int, padding: int, side: int, twice: bool = False):
        """Dots of all windows of images, with padding around them, and filters."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x = graph.add_variable("x", (2, 2, side, side))
        w = graph.add_variable("w", (3, 2, window, window))
        padded = x.pad(((0, 0), (0, 0), (padding, padding), (padding, padding))) if padding else x
        count = (side + 2 * padding - window) // stride + 1
        y = graph.add_variable("y", (1 + twice, 2, 3, count, count))
        dot = cl.codelet(lambda x, w: jnp.vdot(x, w))
        for k in range(1 + twice):
            n, o, i, j = cl.grid(2, 3, count, count)
            here = padded[n, :, stride * i : stride * i + window, stride * j : stride * j + window]
            graph.add_vertex(f"dots {k}", dot, x=here, w=w[o], out=y[k, n, o, i, j])
        return graph, x, w, y

    @few(
        "stride, window, padding",
        [(1, 1, 0), (1, 3, 1), (2, 3, 0), (2, 3, 1), (3, 5, 2), (2, 2, 1), (4, 3, 2)],
        quick=["1, 1, 0", "2, 3, 1", "3, 5, 2"],
    )
    def test_windows(self, stride: int, window: int, padding: int):
        graph, x, w, y = self.windows(stride, window, padding, 6)
        compare(graph, y, [x, w], "as a convolution" if window > stride else None)

    def test_windows_that_are_read_twice(self):
        graph, x, w, y = self.windows(2, 3, 1, 5, twice=True)
        compare(graph, y, [x, w], "as a convolution")

    def test_products_of_matrices(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, w = graph.add_variable("x", (5, 12)), graph.add_variable("w", (7, 12))
        y = graph.add_variable("y", (5, 7, 3))
        i, j, k = cl.grid(5, 7, 3)
        here = slice(4 * k, 4 * k + 4)
        graph.add_vertex("dots", cl.codelet(lambda x, w: x @ w), x=x[i, here], w=w[j, here], out=y[i, j, k])
        compare(graph, y, [x, w], None)

    def test_two_parts_of_what_is_joined(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        a, b, w = (graph.add_variable(name, shape) for name, shape in (("a", (5,)), ("b", (6,)), ("w", (3,))))
        y = graph.add_variable("y", (9,))
        i = cl.grid(9)
        dot = cl.codelet(lambda x, w: jnp.vdot(x, w))
        graph.add_vertex("dots", dot, x=cl.concatenate([a, b])[i : i + 3], w=w, out=y[i])
        compare(graph, y, [a, b, w], None)

    @pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "twice"])
    def test_what_holds_an_element_twice(self, mode: str):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, w, y = (graph.add_variable(name, shape) for name, shape in (("x", (6,)), ("w", (3,)), ("y", (6,))))
        i = cl.grid(6)
        padded = cl.concatenate([x, x[2:]]) if mode == "twice" else x.pad(1, mode)
        graph.add_vertex("dots", cl.codelet(lambda x, w: jnp.vdot(x, w)), x=padded[i : i + 3], w=w, out=y[i])
        compare(graph, y, [x, w], None, by_tables=True)

    def test_beside_differences_in_float64(self):
        with jax.enable_x64(True):
            graph = cl.Graph(cl.IPU(num_tiles=8))
            x, w = graph.add_variable("x", (9,), "float64"), graph.add_variable("w", (3,), "float64")
            y = graph.add_variable("y", (4,), "float64")
            i = cl.grid(4)
            dot = cl.codelet(lambda x, w: jnp.vdot(x, w))
            graph.add_vertex("dots", dot, x=x[2 * i : 2 * i + 3], w=w, out=y[i])
            random = np.random.default_rng(0)
            values, way, cotangent = (
                {n: random.normal(size=k) for n, k in (("x", 9), ("w", 3), ("y", 4))} for _ in "abc"
            )
            plain = jax.jit(cl.lower(graph, inputs=[x, w], outputs=[y]))
            at = lambda t: np.vdot(plain({n: values[n] + t * way[n] for n in "xw"})["y"], cotangent["y"])  # noqa: E731
            found = cl.gradient(graph, of=y, wrt=[x, w], cotangent=cotangent["y"])
            run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[x, w], outputs=[*found])
            made = jax.jit(run)({n: values[n] for n in "xw"})
            slope = sum(np.vdot(made[found[own].source.name], way[own.name]) for own in (x, w))
            assert abs((at(1e-4) - at(-1e-4)) / 2e-4 - slope) < 1e-8 * max(1, abs(slope))


class TestListed:
    """Contributions by tables, beside JAX's gradient."""

    @staticmethod
    def dots(tables: np.ndarray, size: int) -> tuple[cl.Graph, cl.Tensor, cl.Tensor]:
        """Inner products of elements of one variable that two tables choose."""
        graph = cl.Graph(cl.IPU(num_tiles=2))
        x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (tables.shape[1],))
        v, (left, right) = cl.grid(tables.shape[1]), (cl.table(own) for own in tables)
        graph.add_vertex("dots", cl.codelet(lambda a, b: jnp.vdot(a, b)), a=x[left[v]], b=x[right[v]], out=y[v])
        return graph, x, y

    @few(
        "low, high, size",
        [(0, 300, 300), (40, 260, 300), (0, 3000, 3000), (7, 9, 20)],
        quick=["40, 260, 300", "7, 9, 20"],
    )
    def test_of_two_fields(self, low: int, high: int, size: int):
        tables = np.random.default_rng(0).integers(low, high, (2, 80, 3))
        graph, x, y = self.dots(tables, size)
        compare(graph, y, [x], None, by_tables=True)

    def test_what_is_read_of_most_elements_is_summed_at_all_of_them(self):
        tables = np.random.default_rng(0).integers(0, 300, (2, 200, 3))
        graph, x, y = self.dots(tables, 300)
        found = cl.gradient(graph, of=y, wrt=[x], cotangent=np.ones(200))
        lines = [line.strip() for line in found.backward.lines()]
        sums = [f"Execute(backward/dots/{name})" for name in ("a/sum", "b/sum")]
        assert [line for line in lines if "Execute" in line] == ["Execute(backward/dots)", *sums]
        assert not [line for line in lines if "Copy" in line and "of backward/x:" in line]

    def test_tables_that_are_read_again_are_held_once(self):
        tables = np.random.default_rng(0).integers(0, 300, (2, 200, 3))
        graph, x, y = self.dots(tables, 300)
        found = cl.gradient(graph, of=y, wrt=[x], cotangent=np.linspace(0, 1, 200))
        run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[x], outputs=[y, *found])
        # The cotangents, and the two, which say as well which element each contribution is for.
        assert len(jax.tree.leaves(run)) == 3

    def test_long_lists_are_summed_in_parts(self):
        graph = cl.Graph(cl.IPU(num_tiles=2))
        x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (1000,))
        where = np.where(np.arange(1000) % 7, 2, np.arange(1000) % 6)
        v = cl.grid(1000)
        graph.add_vertex("bend", cl.codelet(jnp.sin), x=x[cl.table(where)[v]], out=y[v])
        compare(graph, y, [x], None, by_tables=True)
        (longest,) = [own.size for own in graph.variables if own.name == "backward/bend/x/parts"]
        assert 6 < longest < 1000 // 32 + 6
