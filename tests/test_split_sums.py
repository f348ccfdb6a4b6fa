"""Sums over what is cut: each device adds up what it has, and sums alone cross."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.collectives import collectives
from benchmarks.mesh import OverMesh
from tests.at_once import at_once
from tests.examples import examples
from tests.meshes import mesh_of


@cl.codelet
def scaled_total(parts, scale):
    """All of a field, times a number."""
    return jnp.sum(parts) * scale


@cl.codelet
def totals(parts, others, bias):
    """Of two fields, of one along some dimensions alone."""
    own, other = jnp.sum(parts, tuple(range(1, parts.ndim))), jnp.sum(others)
    return {"out": jnp.sum(own) - other + bias, "most": other * bias}


@cl.codelet
def product(parts, others, scale):
    """The sum of the products of two fields, scaled."""
    return scale - jnp.tensordot(parts, others, parts.ndim)


@cl.codelet
def rows_total(parts):
    """The sums of rows, of a field of two dimensions."""
    return jnp.sum(parts, 1)


@cl.codelet
def gathered(acc, parts):
    """A sum, added to what was there."""
    return {"acc": acc + jnp.sum(parts)}


@cl.codelet
def halved(x):
    """Half of each."""
    return x // 2 if jnp.issubdtype(x.dtype, jnp.integer) else x / 2


class Sums(NamedTuple):
    """Sums over some dimensions of a variable.

    Attributes:
        shape: of the variable: what vertices differ in, and what each adds up.
        order: the dimensions as they lie in the variable.
        grid: how many of them are the grid's; the others are added up.
        start, step: where along the dimension that is cut vertices begin, and how far apart they read.
        devices: how many there are.
        cuts: the dimension along which each variable is cut, by name; None for not at all.
        kind: what vertices do.
        turns: how often all of it is done; 0 for once, without a loop.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    grid: int
    start: int
    step: int
    devices: int
    cuts: dict[str, int | None]
    kind: str
    turns: int

    def build(self, dtype: str) -> tuple[cl.Graph, cl.Program, list[str]]:
        """The graph, what runs, and the names of what it reads; it writes `y`, and some `z`."""
        graph = cl.Graph()
        lying = tuple(self.shape[d] for d in self.order)
        p = graph.add_variable("p", lying, dtype)
        cells = self.shape[: self.grid]
        b = graph.add_variable("b", cells, dtype)
        y, z = (graph.add_variable(name, cells, dtype) for name in "yz")
        points = cl.grid(*cells)
        points = points if isinstance(points, tuple) else (points,)
        along = self.order.index(self.grid)  # the first dimension that is added up is the one that is cut
        at: list[Any] = [slice(None)] * len(lying)
        at[along] = slice(self.start, None, self.step)
        for d, point in enumerate(points):
            at[self.order.index(d)] = point
        parts, names = p[tuple(at)], ["p", "b"]
        with graph.record() as body:
            if self.kind == "one":
                graph.add_vertex("add up", scaled_total, parts=parts, scale=b[points], out=y[points])
            elif self.kind in ("two", "product"):
                q = graph.add_variable("q", lying, dtype)
                names.append("q")
                both = {"parts": parts, "others": q[tuple(at)]}
                if self.kind == "two":
                    graph.add_vertex("add up", totals, **both, bias=b[points], out=y[points], most=z[points])
                else:
                    graph.add_vertex("add up", product, **both, scale=b[points], out=y[points])
            else:
                graph.add_vertex("add up", gathered, acc=y[points], parts=parts)
                names.append("y")
            every = cl.grid(*lying)
            graph.add_vertex("halve", halved, x=p[every], out=p[every])
        program = cl.Repeat(self.turns, body) if self.turns else body
        return graph, program, names

    def placed(self, dtype: str) -> tuple[cl.Lowered, OverMesh, list[str], list[str]]:
        """It on one device and over a mesh; what it is given and what it gives."""
        graph, program, names = self.build(dtype)
        outputs = ["y", "z", "p"] if self.kind == "two" else ["y", "p"]
        one = cl.lower(graph, program, inputs=names, outputs=outputs)
        return one, OverMesh(graph, names, outputs, mesh_of(self.devices), self.cuts, program), names, outputs

    def values(self, names: list[str], dtype: str) -> dict[str, np.ndarray]:
        """Integers, or any."""
        random = np.random.default_rng(0)
        lying = tuple(self.shape[d] for d in self.order)
        shapes = {"p": lying, "q": lying, "b": self.shape[: self.grid], "y": self.shape[: self.grid]}
        if dtype == "int32":
            return {name: random.integers(-(2**30), 2**30, shapes[name]).astype(dtype) for name in names}
        return {name: random.normal(size=shapes[name]).astype(dtype) for name in names}


@st.composite
def sums(draw: st.DrawFn) -> Sums:
    """Of any rank, along any dimensions, cut evenly or not, with sums that lie anywhere."""
    devices, grid = draw(st.sampled_from([2, 3, 4, 8])), draw(st.integers(1, 2))
    step = draw(st.sampled_from([1, 1, 2]))
    summed = devices * draw(st.integers(1, 3)) * step - draw(st.integers(0, 1)) + devices
    others = draw(st.lists(st.integers(1, 3), max_size=1))
    cells = [draw(st.integers(1, 9)) for _ in range(grid)]
    shape = (*cells, summed, *others)
    order = tuple(draw(st.permutations(range(len(shape)))))
    along = order.index(grid)
    somewhere = st.sampled_from([None, *range(grid)])
    cuts = {"p": along, "q": draw(st.sampled_from([along, along, None])), "b": draw(somewhere)}
    cuts |= {"y": draw(somewhere), "z": draw(somewhere)}
    kind = draw(st.sampled_from(["one", "two", "product", "inout"]))
    return Sums(
        shape, order, grid, draw(st.integers(0, 1)), step, devices, cuts, kind, draw(st.sampled_from([0, 0, 3]))
    )


def check_integers(case: Sums) -> None:
    one, several, names, _ = case.placed("int32")
    values = case.values(names, "int32")
    expected = one(values)
    for name, value in several.run(values).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.slow
@examples(6)
@given(sums())
def test_sums_are_those_of_one_device(case: Sums):
    check_integers(case)


@pytest.mark.slow
@examples(150)
@given(sums())
def test_sums_are_those_of_one_device_very_often(case: Sums):
    check_integers(case)


def check_slopes(case: Sums) -> None:
    with jax.enable_x64(True):
        one, several, names, outputs = case.placed("float64")
        values, random = case.values(names, "float64"), np.random.default_rng(1)
        weights = {name: random.normal(size=own.shape) for name, own in jax.eval_shape(one, values).items()}

        def slope(run: Any) -> Any:
            return jax.grad(lambda given: sum((weights[name] * run(given)[name] ** 2).sum() for name in outputs))

        ours, expected = at_once(slope(several.run), slope(one))(values)
        for name, value in expected.items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.slow
@examples(3)
@given(sums())
def test_slopes_are_those_of_one_device(case: Sums):
    check_slopes(case)


@pytest.mark.slow
@examples(60)
@given(sums())
def test_slopes_are_those_of_one_device_very_often(case: Sums):
    check_slopes(case)


# --- what crosses -----------------------------------------------------------------------------------------


def crossing(case: Sums) -> dict[str, int]:
    """What leaves devices, by collective."""
    _, several, names, _ = case.placed("float32")
    found = collectives(several.hlo(case.values(names, "float32")))
    return {kind: own.elements for kind, own in found.items()}


ROWS = Sums((8, 5, 20), (0, 1, 2), 2, 0, 1, 4, {"p": 2}, "one", 0)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"all-reduce": 2 * 3 * 40}),
        ({"cuts": {"p": 2, "y": 0, "b": 0}}, {"reduce-scatter": 3 * 40}),
        # Of sums that are not cut evenly, blocks have room to spare; JAX puts them together for whoever takes them.
        ({"cuts": {"p": 2, "y": 1}}, {"reduce-scatter": 3 * 8 * 8, "all-gather": 3 * 8 * 8}),
        # In a loop too, where nothing is outside of what devices run.
        ({"turns": 3}, {"all-reduce": 2 * 3 * 40}),
        ({"kind": "inout", "turns": 3}, {"all-reduce": 2 * 3 * 40}),
        # Products of what is cut alike; and of what is cut with what all devices have.
        ({"kind": "product", "cuts": {"p": 2, "q": 2, "y": 0, "b": 0}}, {"reduce-scatter": 3 * 40}),
        ({"kind": "product"}, {"all-reduce": 2 * 3 * 40}),
    ],
)
def test_sums_alone_cross(changed, expected):
    assert crossing(ROWS._replace(**changed)) == expected


def test_a_sum_that_all_devices_have_costs_nothing_backward():
    """What is added up is outside of what each device runs, so that no slope is a sum over the devices once more."""
    _, several, names, _ = ROWS.placed("float32")

    def loss(values: dict[str, jax.Array]) -> jax.Array:
        return (several.run(values)["y"] ** 2).sum()

    values = {name: jnp.asarray(own) for name, own in ROWS.values(names, "float32").items()}
    whole = jax.NamedSharding(mesh_of(4), jax.P())
    text = jax.jit(jax.grad(loss)).lower(jax.device_put(values, whole)).compile().as_text() or ""
    found = {kind: own.elements for kind, own in collectives(text).items()}
    assert found.keys() <= {"all-reduce", "all-gather"}  # the slope of `p` is brought to whoever asked for it
    assert found["all-reduce"] == 2 * 3 * 40


def test_rows_of_sums_cross_and_no_more():
    graph = cl.Graph()
    p, y, i = graph.add_variable("p", (6, 4, 24)), graph.add_variable("y", (6, 4)), cl.grid(6)
    graph.add_vertex("add up", rows_total, parts=p[i], out=y[i])
    several = OverMesh(graph, ["p"], ["y"], mesh_of(3), {"p": 2, "y": 0})
    values = {"p": np.random.default_rng(0).normal(size=(6, 4, 24)).astype("f")}
    np.testing.assert_allclose(several.run(values)["y"], values["p"].sum(2), rtol=1e-5, atol=1e-5)
    assert {kind: own.elements for kind, own in collectives(several.hlo(values)).items()} == {"reduce-scatter": 2 * 24}


def test_few_elements_cross_as_they_are():
    """Where each device has one element of each sum, there is nothing to add up first."""
    case = ROWS._replace(shape=(8, 5, 4), cuts={"p": 2, "y": 0, "b": 0})
    assert "reduce-scatter" not in crossing(case)


def test_sums_print_as_what_crosses():
    _, several, _, _ = ROWS.placed("float32")
    (own,) = several.execution.inner.sums.values()
    assert repr(own) == "<Crossing to 4 devices: 240 elements cross by all_reduce, 240 carried>"
