"""Descriptions of what vertices compute, beside what they compute: each evaluated at every place of its axes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax.extend import core as jax_core

import codelet as cl
from codelet.graphs.descriptions import Description, Operand
from codelet.refused import Refused
from codelet.views.grids import Axis
from codelet.views.sources import Variable, assembled, source_elements, source_variables
from tests.strategies import cases

COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
COMBINE |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def positions(own: Operand, axes: Mapping[Axis, np.ndarray]) -> np.ndarray:
    """Where an operand is at each place of all axes: of the shape of these, and of a block; none may be a hole."""
    block = [n for key, n in sorted((k, n) for k, n in own.access.extents.items() if isinstance(k, int))]
    inner = np.ix_(*map(np.arange, block))
    places = {axis: at.reshape(*at.shape, *(1 for _ in block)) for axis, at in axes.items()} | dict(enumerate(inner))
    lead = np.broadcast_shapes(*(at.shape for at in axes.values()))
    flat = np.zeros((), np.int64)
    for line, extent in zip(own.access.lines, own.access.shape, strict=True):
        at, is_there = line.at(places)
        assert is_there.all()
        flat = flat * extent + at
    return np.broadcast_to(flat, (*lead, *block))


def written_by(found: Description) -> list[Variable]:
    """The variables that a description writes."""
    sources = [own.source for own in found.results if own.source is not None]
    return [*dict.fromkeys(variable for source in sources for variable in source_variables(source))]


def evaluate(found: Description, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a description says of variables that hold some values: what they hold then, of those that it writes."""
    axes = dict(zip(found.names, np.ix_(*(np.arange(axis.extent) for axis in found.names)), strict=True))

    def array(own: Operand) -> np.ndarray:
        at = positions(own, axes)
        if own.source is None:
            return at
        if isinstance(own.source, Variable):
            return values[own.source.name].reshape(-1)[at]
        held = lambda variable, numbers: values[variable.name].reshape(-1)[numbers]  # noqa: E731
        return assembled(own.source, own.source.dtype, held, lambda value: value)[at]

    element = jax_core.jaxpr_as_fun(found.element)
    for _ in axes:
        element = jax.vmap(element)
    kinds = [var.aval.dtype for var in found.element.jaxpr.invars]
    made = element(*(jnp.asarray(array(own)).astype(kind) for own, kind in zip(found.operands, kinds, strict=True)))
    parallel = [found.role(name) == "parallel" for name in found.axes]
    after = {own.name: np.array(values[own.name]) for own in written_by(found)}
    for own, result in zip(found.results, map(np.asarray, made), strict=True):
        at = positions(own, axes)
        if found.combine is not None:
            gone = tuple(d for d, is_parallel in enumerate(parallel) if not is_parallel)
            combine = COMBINE[found.combine].reduce
            at = at[tuple(slice(None) if is_parallel else 0 for is_parallel in parallel)]
            result = combine(result.astype(found.combined_in), gone) if gone else result
        assert own.source is not None
        numbers = source_elements(own.source)[at]
        for variable in source_variables(own.source):
            place = numbers - variable.first_element
            is_there = (place >= 0) & (place < variable.size)
            after[variable.name].reshape(-1)[place[is_there]] = np.broadcast_to(result, at.shape)[is_there]
    return after


def agree(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name, value in found.items():
        if np.issubdtype(value.dtype, np.inexact):
            np.testing.assert_allclose(value, expected[name], 2e-4, 2e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def drawn(graph: cl.Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for all variables of a graph; of integers and flags small ones."""
    random = np.random.default_rng(seed)
    kind = lambda own: random.uniform(-2, 2, own.shape) if own.dtype.kind in "fc" else random.integers(0, 2, own.shape)  # noqa: E731
    return {own.name: kind(own).astype(own.dtype) for own in graph.sources if own.value is None}


def constants(graph: cl.Graph) -> dict[str, np.ndarray]:
    return {own.name: own.value for own in graph.sources if own.value is not None}


def run_descriptions(graph: cl.Graph) -> int:
    """See that the descriptions of a graph, one after another, are what its compute sets compute; how many."""
    values, found = drawn(graph), cl.describe(graph)
    written = [own.name for each in found if isinstance(each, Description) for own in written_by(each)]
    expected = cl.interpret(graph, values=values, outputs=[*dict.fromkeys(written)])
    state = {**values, **constants(graph)}
    for each in found:
        assert isinstance(each, Description), each
        state.update(evaluate(each, state))
    agree({name: state[name] for name in written}, expected)
    return len(found)


def image(graph: cl.Graph, x: cl.Tensor, strides: int) -> cl.Tensor:
    return cl.ops.conv_general_dilated(
        graph, x.reshape((1, 3, 7, 11)), graph.add_variable("w", (2, 3, 3, 3)), strides, "SAME"
    )


OPERATIONS: dict[str, tuple[Any, int | None]] = {
    "product": (lambda g, x: cl.ops.matmul(g, x, x.transpose()), 1),
    "product in parts": (lambda g, x: cl.ops.matmul(g, x, x.transpose(), grain=8), 1),
    "sum": (lambda g, x: cl.ops.sum(g, x, 0), 1),
    "largest": (cl.ops.max, 1),
    "map": (lambda g, x: cl.ops.map(g, jnp.add, x, x[0]), 1),
    "map of all": (lambda g, x: cl.ops.map(g, jnp.tanh, x), 1),
    "map with two results": (lambda g, x: cl.ops.map(g, lambda a: (a + 1, -a), x), 1),
    "convolution": (functools.partial(image, strides=1), 1),
    "strided": (functools.partial(image, strides=2), 1),
    "norm": (lambda g, x: cl.ops.layer_norm(g, x, x[0], x[1]), None),
    "softmax": (cl.ops.softmax, None),
    "sort": (cl.ops.sort, None),
    "looked up": (lambda g, x: cl.ops.take(g, x, g.add_constant("at", [1, 2, 3]), 0), None),
    "attention": (lambda g, x: cl.ops.dot_product_attention(g, *[x.reshape((1, 21, 1, 11))] * 3), None),
}


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("name", OPERATIONS)
def test_descriptions_of_operations_are_what_they_compute(name, tiles):
    build, count = OPERATIONS[name]
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    build(graph, graph.add_variable("x", (21, 11)))
    assert run_descriptions(graph) == (count or len(cl.describe(graph)))


@given(cases(max_iterations=2))
def test_descriptions_of_drawn_compute_sets_are_what_they_compute(case):
    graph = case.graph
    values = drawn(graph)
    for compute_set in graph.compute_sets:
        found = [own for own in cl.describe(graph, [compute_set]) if isinstance(own, Description)]
        names = [own.name for each in found for own in written_by(each)]
        expected = cl.interpret(graph, values=values, outputs=names, program=compute_set) if names else {}
        before = {**values, **constants(graph)}
        after = dict(before)
        for each in found:  # all of which read what there was before
            assert str(each)
            for name, value in evaluate(each, before).items():
                after[name] = np.where(value != before[name], value, after[name])
        agree({name: after[name] for name in names}, expected)


# --- graphs by hand -----------------------------------------------------------------------------------------


@cl.codelet
def times(left, right):
    return jnp.sum(left * right, -1)


@cl.codelet
def gather_up(parts):
    return jnp.sum(parts, 0)


@cl.codelet
def slope(left, right, site):
    return left - right + site


@cl.codelet
def sort_block(x):
    return jnp.sort(x, 0)


def product(rows: int, inner: int, columns: int, row: int, part: int) -> cl.Graph:
    """A product by hand, in blocks of rows and of what is summed over, whatever is left over at the ends."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, w = graph.add_variable("x", (rows, inner)), graph.add_variable("w", (inner, columns))
    parts = [slice(k, min(inner, k + part)) for k in range(0, inner, part)]
    held = graph.add_variable("held", (len(parts), rows, columns))
    for first in range(0, rows, row):
        block = slice(first, min(rows, first + row))
        for k, some in enumerate(parts):
            left = x[block, some].reshape((block.stop - first, 1, some.stop - some.start))
            right = w[some].transpose().reshape((1, columns, some.stop - some.start))
            graph.add_vertex("parts", times, left=left, right=right, out=held[k, block])
    y = graph.add_variable("y", (rows, columns))
    i = cl.grid(i=rows)
    graph.add_vertex("all", gather_up, parts=held[:, i], out=y[i])
    return graph


@pytest.mark.parametrize("cut", [(8, 12, 5, 2, 3), (7, 11, 3, 2, 4), (5, 13, 2, 5, 13)])
def test_a_product_by_hand_is_one(cut):
    graph = product(*cut)
    (own,) = graph.operations
    rows, inner, columns, *_ = cut
    assert (own.kind, own.parent, own.parts, own.parameters) == ("product", None, [], {})
    assert [each.name for each in own.compute_sets] == ["parts", "all"]
    assert sum(own.num_vertices.values()) == graph.num_vertices
    of = lambda tensors: {name: tensor.source.name for name, tensor in tensors.items()}  # noqa: E731
    assert (of(own.operands), of(own.results)) == ({"left": "x", "right": "w"}, {"out": "y"})
    (found,) = own.descriptions
    assert isinstance(found, Description)
    assert sorted(found.axes.values()) == sorted([rows, inner, columns])
    assert sorted(found.role(name) for name in found.axes) == ["parallel", "parallel", "reduction"]
    assert (found.combine, found.combined_in) == ("sum", np.float32)
    assert run_descriptions(graph) == 1


def test_what_is_read_beside_is_not_left_out():
    graph = product(8, 12, 5, 2, 3)
    graph.add_vertex("beside", gather_up, parts=graph.variable("held")[:, 0], out=graph.add_variable("z", (5,)))
    assert [own.kind for own in graph.operations] == ["product", "reduction", "reduction"]
    assert [len(own.compute_sets) for own in graph.operations] == [1, 1, 1]
    assert run_descriptions(graph) == 3


def test_a_spoilt_product_is_not_one():
    graph = product(8, 12, 5, 2, 3)
    x = graph.variable("x")
    other = graph.add_variable("other", (2, 1, 3))
    graph.add_vertex(
        "parts", times, left=other, right=x[:5, :3].reshape((1, 5, 3)), out=graph.add_variable("more", (2, 5))
    )
    assert run_descriptions(graph) == 2
    again = product(8, 12, 5, 2, 3)
    x, held = again.variable("x"), again.variable("held")
    again.add_vertex("parts again", times, left=x[1, :3], right=x[0, :3], out=held[0, 0, 0])
    assert [own.kind for own in again.operations] == ["product", "product"]
    assert [[each.name for each in own.compute_sets] for own in again.operations] == [["parts", "all"], ["parts again"]]


def test_ragged_fields_have_no_description_and_say_why():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, y = graph.add_variable("x", (10,)), graph.add_variable("y", (4,))
    lengths = cl.table([1, 2, 3, 4])
    starts = cl.table([0, 1, 3, 6])
    i = cl.grid(4)
    graph.add_vertex("rows", gather_up, parts=x[starts[i] : starts[i] + lengths[i]], out=y[i])
    (found,) = cl.describe(graph)
    assert found == Refused("its fields have lengths of their own")
    assert graph.operations == ()


def test_descriptions_print():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    image(graph, graph.add_variable("x", (21, 11)), 2)
    (found,) = cl.describe(graph)
    assert isinstance(found, Description)
    assert found.kind == "convolution"
    assert [found.role(name) for name in found.axes].count("window") == 2
    assert str(found).startswith("out[0, ")
    stencil = cl.Graph(cl.IPU(num_tiles=4))
    u, v = stencil.add_variable("u", (9,)), stencil.add_variable("v", (9,))
    i = cl.grid(i=range(1, 8))
    stencil.add_vertex("step", slope, left=u[i - 1], right=u[i + 1], site=2 * i, out=v[i])
    assert [*map(str, cl.describe(stencil))] == ["out[1 + i] = slope(left[i], right[2 + i], 2 + 2*i)"]
    blocks = cl.Graph(cl.IPU(num_tiles=4))
    x = blocks.add_variable("x", (6, 4))
    i = cl.grid(i=3)
    blocks.add_vertex(
        "turn", sort_block, x=x[2 * i : 2 * i + 2], out=blocks.add_variable("y", (6, 4))[4 - 2 * i : 6 - 2 * i]
    )
    assert [*map(str, cl.describe(blocks))] == ["out[4 + f0 - 2*i, i1] = sort_block(x[f0 + 2*i, i1])"]


def test_names_of_axes_are_apart_whatever_the_grid_calls_them():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (3, 5)), graph.add_variable("y", (3, 5))
    i = cl.grid(i1=3)
    graph.add_vertex("step", slope, left=x[i], right=y[2 - i], site=i, out=graph.add_variable("z", (3, 5))[i])
    (found,) = cl.describe(graph)
    assert isinstance(found, Description)
    assert found.axes == {"i1": 3, "i2": 5}
    assert run_descriptions(graph) == 1
