"""Stencils over a mesh: the core of every device's vertices reads what it has, edges alone read windows."""

import re
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.collectives import elements_carried
from benchmarks.mesh import OverMesh
from tests.at_once import at_once
from tests.examples import examples, few
from tests.meshes import mesh_of


@cl.codelet
def lean(a, b, c):
    """Three neighbours, none like another."""
    return a - 2 * b + c * c


class Stencil(NamedTuple):
    """Points of a field that are made of three neighbours each.

    Attributes:
        shape: of the field.
        firsts, lasts: the points, along each dimension.
        offsets: of the neighbours.
        cut: the dimension that is cut.
        devices: how many there are.
        steps: how often there and back.
    """

    shape: tuple[int, ...]
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    cut: int
    devices: int
    steps: int

    def placed(self, dtype: str) -> tuple[cl.Lowered, OverMesh]:
        """It on one device and over a mesh."""
        graph = cl.Graph()
        u, v = graph.add_variable("u", self.shape, dtype), graph.add_variable("v", self.shape, dtype)
        points = cl.grid(*map(range, self.firsts, self.lasts))
        points = points if isinstance(points, tuple) else (points,)
        with graph.record() as both:
            for name, source, target in (("there", u, v), ("back", v, u)):
                near = [source[tuple(p + by for p, by in zip(points, own, strict=True))] for own in self.offsets]
                graph.add_vertex(name, lean, **dict(zip("abc", near, strict=True)), out=target[points])
        program = cl.Sequence(cl.Copy(u, v), cl.Repeat(self.steps, both))
        cuts = {"u": self.cut, "v": self.cut}
        several = OverMesh(graph, ["u"], ["u", "v"], mesh_of(self.devices), cuts, program)
        return cl.lower(graph, program, inputs=["u"], outputs=["u", "v"]), several

    def values(self, kind: str) -> dict[str, np.ndarray]:
        """Of the field before: whole numbers of which all results fit, or small ones."""
        random = np.random.default_rng(0)
        if kind == "int32":
            return {"u": random.integers(-3, 4, self.shape).astype(kind)}
        return {"u": random.uniform(-0.5, 0.5, self.shape).astype(kind)}


@st.composite
def stencils(draw: st.DrawFn) -> Stencil:
    """Of any reach, in a box that ends anywhere, cut along any dimension, evenly or not."""
    rank, devices = draw(st.integers(1, 3)), draw(st.sampled_from([2, 3, 4, 8]))
    cut = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(4, 6)) for _ in range(rank)]
    shape[cut] = devices * draw(st.integers(3, 12)) - draw(st.integers(0, 2))
    reach = [2 if d == cut else 1 for d in range(rank)]
    offsets = tuple(tuple(draw(st.integers(-own, own)) for own in reach) for _ in range(3))
    low = [max(0, -min(own[d] for own in offsets)) for d in range(rank)]
    high = [shape[d] - max(0, *(own[d] for own in offsets)) for d in range(rank)]
    firsts = tuple(draw(st.integers(own, own + 1)) for own in low)
    lasts = tuple(draw(st.integers(own - 1, own)) for own in high)
    return Stencil(tuple(shape), firsts, lasts, offsets, cut, devices, draw(st.integers(1, 2)))


def check_integers(stencil: Stencil) -> None:
    one, several = stencil.placed("int32")
    values = stencil.values("int32")
    ours, expected = at_once(several.run, one)(values)
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def check_gradients(stencil: Stencil) -> None:
    with jax.enable_x64(True):
        one, several = stencil.placed("float64")
        weights = np.random.default_rng(1).normal(size=(2, *stencil.shape))

        def slope(run):
            return jax.grad(lambda values: sum((w * run(values)[k]).sum() for w, k in zip(weights, "uv", strict=True)))

        # Two programs: as one, XLA (jax 0.10.2) fails to translate a fusion of some of them.
        ours, expected = (jax.jit(slope(run))(stencil.values("float64")) for run in (several.run, one))
        np.testing.assert_allclose(ours["u"], expected["u"], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@examples(4)
@given(stencils())
def test_integers_exactly(stencil):
    check_integers(stencil)


@examples(2)
@given(stencils())
def test_gradients_are_those_of_one_device(stencil):
    check_gradients(stencil)


@pytest.mark.slow
@examples(100)
@given(stencils())
def test_integers_exactly_very_often(stencil):
    check_integers(stencil)


@pytest.mark.slow
@examples(25)
@given(stencils())
def test_gradients_are_those_of_one_device_very_often(stencil):
    check_gradients(stencil)


# --- what is compiled -------------------------------------------------------------------------------------


def loop_bodies(hlo: str) -> list[str]:
    """The text of each loop's body in a compiled program."""
    names = set(re.findall(r"\bbody=%?([\w.\-]+)", hlo))
    return [
        part for part in hlo.split("\n\n") if (found := re.match(r"\s*%?([\w.\-]+) \(", part)) and found[1] in names
    ]


@few("cut", [0, 1], quick=["0"])
def test_no_block_is_copied_and_no_device_branches(cut):
    size, devices = 64, 4
    offsets = ((-1, 0), (0, 1), (1, 0)) if cut == 0 else ((0, -1), (1, 0), (0, 1))
    stencil = Stencil((size, size), (1, 1), (size - 1, size - 1), offsets, cut, devices, 3)
    one, several = stencil.placed("float32")
    values = stencil.values("float32")
    np.testing.assert_allclose(several.run(values)["u"], one(values)["u"], rtol=1e-5, atol=1e-6)
    text = several.hlo(values)
    assert elements_carried(text) == several.crossing == 2 * 2 * (devices - 1) * (size - 2)
    assert " conditional(" not in text
    (body,) = loop_bodies(text)
    block = ",".join(str(size // devices if d == cut else size) for d in range(2))
    assert f"f32[{block}]" in body
    assert not re.search(rf"= f32\[{block}\]\S* copy\(", body)


@cl.codelet
def conduct(here, above, below, rate):
    """A point and its neighbours, at a rate of its own."""
    return here + rate * (above - 2 * here + below)


@pytest.mark.slow
def test_devices_read_their_own_of_a_constant_without_branches():
    size, devices = 64, 4
    rates = np.random.default_rng(1).uniform(0, 0.5, (size, size)).astype("f")
    graph = cl.Graph()
    u, v = graph.add_variable("u", (size, size)), graph.add_variable("v", (size, size))
    rate, (i, j) = graph.add_constant("rate", rates), cl.grid(range(1, size - 1), size)
    with graph.record() as both:
        for name, a, b in (("there", u, v), ("back", v, u)):
            graph.add_vertex(
                name, conduct, here=a[i, j], above=a[i - 1, j], below=a[i + 1, j], rate=rate[i, j], out=b[i, j]
            )
    program = cl.Sequence(cl.Copy(u, v), cl.Repeat(3, both))
    several = OverMesh(graph, ["u"], ["u"], mesh_of(devices), {"u": 0, "v": 0}, program)
    one = cl.lower(graph, program, inputs=["u"], outputs=["u"])
    values = {"u": np.random.default_rng(0).normal(size=(size, size)).astype("f")}
    assert " conditional(" not in several.hlo(values)

    def both_ways(run):
        return jax.value_and_grad(lambda values: (values["u"] * run(values)["u"]).sum())

    ours, expected = at_once(both_ways(several.run), both_ways(one))(values)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
