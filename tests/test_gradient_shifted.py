"""Gradients as graphs: contributions to one variable at shifted places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.examples import few
from tests.gradients import agree, compare


@cl.codelet
def softest(x):
    """No inner product: what an element contributes depends on all of the window."""
    return jnp.log(jnp.sum(jnp.exp(x)))


class TestShifted:
    """Contributions to one variable at shifted places: summed together, through no tables."""

    @staticmethod
    def sums(graph: cl.Graph) -> list[str]:
        """The compute sets of the backward pass."""
        return [own.name for own in graph.compute_sets if own.name.startswith("backward")]

    @staticmethod
    def stencil(kind: cl.Codelet, stride: int = 1, flat: bool = False) -> tuple[cl.Graph, cl.Tensor, cl.Tensor]:
        graph, side = cl.Graph(cl.IPU(num_tiles=8)), 8
        u, count = graph.add_variable("u", (side * side,) if flat else (side, side)), 6 // stride
        v, (p, q) = graph.add_variable("v", (count, count)), cl.grid(count, count)
        i, j = stride * p + 1, stride * q + 1
        at = (lambda i, j: u[side * i + j]) if flat else (lambda i, j: u[i, j])
        near = {
            "here": at(i, j),
            "north": at(i - 1, j),
            "south": at(i + 1, j),
            "west": at(i, j - 1),
            "east": at(i, j + 1),
        }
        graph.add_vertex("step", kind, **near, out=v[p, q])
        return graph, u, v

    @pytest.mark.parametrize("flat", [False, True])
    @pytest.mark.parametrize("stride", [1, 2])
    def test_a_stencil_with_constant_weights_is_a_stencil_over_cotangents(self, stride: int, flat: bool):
        diffuse = cl.codelet(lambda here, north, south, west, east: here + north + 2 * south - west + east / 3)
        graph, u, v = self.stencil(diffuse, stride, flat)
        before = len(graph.variables)
        compare(graph, v, [u], None)
        # Of every second point the one in the middle is read by one vertex alone, which writes straight.
        assert self.sums(graph) == [*["backward/step"] * (stride == 2), "backward/step/u/sum"]
        assert not [own.name for own in graph.variables[before:] if "step" in own.name]

    @pytest.mark.parametrize("stride", [1, 2])
    def test_any_other_is_one_sum_of_what_is_held(self, stride: int):
        bend = cl.codelet(lambda here, north, south, west, east: jnp.tanh(here * north + south) * west + east)
        graph, u, v = self.stencil(bend, stride)
        compare(graph, v, [u], None)
        assert self.sums(graph) == ["backward/step", "backward/step/u/sum"]

    @pytest.mark.parametrize(("stride", "window"), [(1, 3), (2, 3), (3, 5), pytest.param(1, 9, marks=pytest.mark.slow)])
    def test_windows_that_overlap(self, stride: int, window: int):
        graph, count = cl.Graph(cl.IPU(num_tiles=8)), 5
        x, y = graph.add_variable("x", (3, stride * count + window)), graph.add_variable("y", (3, count))
        n, i = cl.grid(3, count)
        graph.add_vertex("soften", softest, x=x[n, stride * i : stride * i + window], out=y[n, i])
        compare(graph, y, [x], None)
        assert self.sums(graph) == ["backward/soften", "backward/soften/x/sum"]

    def test_rows_whose_shifts_are_along_the_field(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        u, v = graph.add_variable("u", (6, 8)), graph.add_variable("v", (4, 6))
        i = cl.grid(range(1, 5))
        kind = cl.codelet(lambda north, south, west, east: north * south - west * east)
        inner = slice(1, 7)
        near = {"north": u[i - 1, inner], "south": u[i + 1, inner], "west": u[i, :6], "east": u[i, 2:]}
        graph.add_vertex("step", kind, **near, out=v[i - 1])
        compare(graph, v, [u], None)
        assert self.sums(graph) == ["backward/step", "backward/step/u/sum"]

    @pytest.mark.slow
    def test_a_part_that_is_much_smaller_is_added_by_itself(self):
        graph = cl.Graph(cl.IPU(num_tiles=1))
        x, y, z = (graph.add_variable(name, shape) for name, shape in (("x", (60, 12)), ("y", (60, 12)), ("z", (12,))))
        scale, bend = cl.codelet(lambda x: 3 * x), cl.codelet(jnp.sin)
        i, j, k = (*cl.grid(60, 12), cl.grid(12))
        graph.add_vertex("step", scale, x=x[i, j], out=y[i, j])
        graph.add_vertex("step", bend, x=x[17, k], out=z[k])
        total = graph.add_vertex("sum", cl.codelet(lambda y, z: jnp.sum(y) * jnp.sum(z)), y=y, z=z)
        compare(graph, total, [x], None)
        assert "backward/step/x/sum" not in self.sums(graph)

    @pytest.mark.slow
    def test_a_function_leaves_alone_what_others_contribute(self):
        """The corners, which the stencil does not read, have cotangents of a reader of their own when it is called."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        u, v, total = (graph.add_variable(name, shape) for name, shape in (("u", (5, 5)), ("v", (3, 3)), ("total", ())))
        a, b = graph.add_variable("a", (3, 3)), graph.add_variable("b", (3, 3))
        i, j = cl.grid(3, 3)
        cross = cl.codelet(lambda north, south, west, east: north + 2 * south - west + east / 3)
        near = {"north": u[i, j + 1], "south": u[i + 2, j + 1], "west": u[i + 1, j], "east": u[i + 1, j + 2]}
        graph.add_vertex("step", cross, **near, out=v[i, j])
        function = graph.add_function(graph.compute_sets[-1], [v])
        of = cl.codelet(lambda a, b, u: jnp.sum(a * b) + jnp.sum(u * u))
        graph.add_vertex("sum", of, a=a, b=b, u=u, out=total)
        program = [cl.Call(function, v=a), cl.Call(function, v=b), cl.Execute(graph.compute_sets[-1])]
        value = {"u": np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)}
        run = cl.lower(graph, inputs=[u], outputs=[total], program=program)
        expected = jax.jit(jax.grad(lambda own: run(own)["total"]))(value)["u"]
        found = cl.gradient(graph, of=total, wrt=[u], program=program)
        both = cl.Sequence(found.forward, found.backward)
        agree(cl.interpret(graph, values=value, outputs=[found[u]], program=both)[found[u].source.name], expected, "u")

    @few(
        "stride, window, pad",
        [(12, 13, 3), (12, 13, 0), (20, 24, 0), (20, 24, 3), (20, 47, 0), (20, 47, 3)],
        quick=["20, 24, 3"],
    )
    def test_large_patches_with_halos(self, stride: int, window: int, pad: int):
        """Their strides have hundreds of phases; borders cut the halos of the outer, and a margin is read by none."""
        graph, count, margin = cl.Graph(cl.IPU(num_tiles=8)), 3, 1
        side = stride * (count - 1) + window - 2 * pad + margin
        x, y = graph.add_variable("x", (2, side, side)), graph.add_variable("y", (2, count, count))
        near = x.pad(((0, 0), (pad, pad), (pad, pad))) if pad else x
        n, i, j = cl.grid(2, count, count)
        patch = near[n, stride * i : stride * i + window, stride * j : stride * j + window]
        graph.add_vertex("soften", softest, x=patch, out=y[n, i, j])
        lowered = compare(graph, y, [x], None)
        assert self.sums(graph) == ["backward/soften", "backward/soften/x/sum"]
        sums = [own for own in lowered.families if own.compute_set.name == "backward/soften/x/sum"]
        assert len(sums) <= 36
        assert sum(own.num_vertices for own in sums) < 2000

    def test_patches_of_some_channels_among_padding(self):
        graph, side = cl.Graph(cl.IPU(num_tiles=8)), 9
        x, y = graph.add_variable("x", (8, side, side)), graph.add_variable("y", (2, 3, 2))
        near = x.pad(((0, 0), (1, 1), (1, 1)))
        c, i, j = cl.grid(2, 3, 2)
        graph.add_vertex("soften", softest, x=near[4 * c : 4 * c + 4, i : i + 9, 3 * j : 3 * j + 8], out=y[c, i, j])
        lowered = compare(graph, y, [x], None)
        assert self.sums(graph) == ["backward/soften", "backward/soften/x/sum"]
        # At most three of the windows of nine elements that are one apart have an element in common, not nine.
        fields = [own for family in lowered.families if "/sum" in family.compute_set.name for own in family.fields]
        assert {own.type.shape[0] for own in fields if own.name == "x0"} == {3}
