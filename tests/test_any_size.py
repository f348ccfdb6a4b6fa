"""Codelets for any size: what is said of one that was not traced is what its trace says."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.ops.block_planning import add_up
from codelet.ops.convolved import convolve, multiply_windows
from codelet.ops.element_functions import element_function, value_codelets
from codelet.ops.pooling_codelets import CODELETS
from codelet.ops.prices import VertexCosts
from codelet.ops.product_planning import product_block
from codelet.tracing.any_size import OfSizes, _outline
from codelet.tracing.field_types import FieldType
from tests.examples import examples, few

MACHINE = cl.IPU()
SUMMED: dict[str, Any] = {"partials": "float32", "dtype": "float32"}


@cl.codelet
def scaled_rows(x, scale):
    return jnp.tanh(x) * scale[:, None] + jax.nn.relu(x).sum(axis=1, keepdims=True)


@cl.codelet
def mean_of_rows(x):
    return x.mean(axis=1)  # the extent is a number in every trace


@cl.codelet
def by_parity(x):
    return jnp.sin(x) if x.shape[0] % 2 else jnp.cos(x) * x


@cl.codelet
def as_square(x):
    return x @ x.T if x.shape[0] == 6 else x.sum() * jnp.ones(2)


@cl.codelet
def halved(x):
    """Its jaxprs lie in a tuple with names, of JAX's own."""
    return jax.lax.custom_linear_solve(lambda own: own + own, x, lambda _, right: right / 2, symmetric=True)


WINDOW: dict[str, Any] = {"window": (2, 2), "numbers": (3, 2, 1, 0)}
MATRIX: dict[str, Any] = {"numbers": (((1,), (0,)), ((), ())), **SUMMED}

CASES: list[tuple[cl.Codelet, list[list[tuple[int, ...]]], dict[str, Any]]] = [
    (product_block.shared, [[(n, k), (k, m)] for n, k, m in np.ndindex(9, 7, 8)], MATRIX),
    (add_up, [[(n, m)] for n, m in np.ndindex(9, 7)], {"dtype": "float32"}),
    (
        convolve.shared,
        [[(1, c, n, n + 2), (m, c, 3, 1)] for c, n, m in [(1, 5, 1), (8, 5, 1), (8, 9, 4), (3, 3, 3), (8, 6, 8)] * 2],
        {"strides": (2, 1), "dilations": (1, 1), **SUMMED},
    ),
    (multiply_windows.shared, [[(n, c, 3), (m, c, 3)] for n, c, m in np.ndindex(5, 9, 6)], SUMMED),
    (CODELETS["slopes_of_chosen"].worker, [[(n, m), (n, m)] for n, m in np.ndindex(9, 9) if n > 1 < m], WINDOW),
    (
        CODELETS["first_greatest"].worker,
        [[(n, m)] for n, m in np.ndindex(12, 11) if n > 3 < m],
        {"window": (3, 3), "strides": (2, 2)},
    ),
    (scaled_rows, [[(n, m), (n,)] for n, m in np.ndindex(6, 7)], {}),
    (mean_of_rows, [[(n, m)] for n, m in np.ndindex(6, 7)], {}),
    (by_parity, [[(n,)] for n in range(20)], {}),
    (as_square, [[(n, 3)] for n in range(10)], {}),
    (halved, [[(n,)] for n in range(20)], {}),
]


@few("codelet, sizes, static", CASES, ids=lambda own: getattr(own, "name", ""), quick=["convolve, , "])
def test_what_is_said_of_other_sizes_is_what_their_traces_say(
    codelet: cl.Codelet, sizes: list[list[tuple[int, ...]]], static: dict[str, Any]
) -> None:
    """The types that come out, the equations, and the cycles; zero and one among the sizes."""
    for shapes in sizes[:: max(1, len(sizes) // 24)]:
        dtypes = [np.dtype(np.int32 if name == "chosen" else np.float32) for name in codelet.inputs]
        types = {
            name: FieldType(shape, dtype) for name, shape, dtype in zip(codelet.inputs, shapes, dtypes, strict=True)
        }
        try:
            expected = codelet.specialise(types, static)
        except cl.CodeletTraceError:
            continue
        found = OfSizes(codelet, static).traced(types)
        assert (found.inputs, found.outputs) == (expected.inputs, expected.outputs)
        assert _outline(found.jaxpr.jaxpr) == _outline(expected.jaxpr.jaxpr)
        assert MACHINE.estimate_cycles(found) == MACHINE.estimate_cycles(expected)


def test_few_sizes_are_traced() -> None:
    """Of the library's codelets; a user's may do another thing at every size, and is traced at each."""

    @cl.codelet
    def by_size(x):
        return x * {5: 2.0, 9: 3.0}.get(x.shape[0], 1.0)

    total, own = cl.codelet(add_up.function, workers=3), by_size
    for n in range(2, 40):
        kind = FieldType((n,), np.dtype(np.float32))
        assert OfSizes(own).traced({"x": kind}) is own.specialise({"x": kind})
        OfSizes(total, {"dtype": "float32"}).traced({"partials": kind._replace(shape=(n, n + 3))})
    assert len(total._traced) <= 4


ELEMENT_FUNCTIONS: dict[str, Any] = {
    "sum": lambda a, b: a + b,
    "bent": lambda a, b: jax.nn.gelu(a + b) * b,
    "chosen": lambda a, b: jnp.where(a > 0, b * 2, jax.nn.softplus(a)),
    "looked up": lambda a, b: jnp.arange(5.0)[jnp.clip(a.astype(int), 0, 4)] * b,
    "rounded": lambda a, b: (a.astype(jnp.float16) * b).astype(jnp.float32),
    "ordered": lambda a, b: jnp.sort(jnp.stack([a, b]))[0],
    "in turns": lambda a, b: jax.lax.fori_loop(0, 3, lambda k, x: x * a + k, b),
    "branches": lambda a, b: jax.lax.cond(a > 0, lambda: b, lambda: a),
    "several": lambda a, b: (a * b, a - b),
}


@few("name", ELEMENT_FUNCTIONS, quick=["bent", "ordered"])
def test_blocks_of_elements_are_traced_once(name: str) -> None:
    """Whatever their sizes are, ones among them; and what is said of each is what its trace says."""
    graph = cl.Graph()
    operands = [graph.add_variable(f"x{k}", (2,)) for k in range(2)]
    codelet = value_codelets(element_function("map", ELEMENT_FUNCTIONS[name], operands)).worker
    every = [own for size in range(3) for own in itertools.combinations(range(2), size)]
    for dimensions in itertools.product(every, repeat=2):
        if not any(dimensions):
            continue
        static = {"dimensions": dimensions}
        for sizes in ((1, 1), (4, 4), (2, 3), (1, 7), (8, 1), (64, 5)):
            shapes = [tuple(sizes[d] for d in own) for own in dimensions]
            types = {f"x{k}": FieldType(shape, np.dtype(np.float32)) for k, shape in enumerate(shapes)}
            before = len(codelet._traced)
            found = OfSizes(codelet, static).traced(types)
            assert len(codelet._traced) == before
            expected = codelet.specialise(types, static)
            assert (found.inputs, found.outputs) == (expected.inputs, expected.outputs)
            assert _outline(found.jaxpr.jaxpr) == _outline(expected.jaxpr.jaxpr)
            assert MACHINE.estimate_cycles(found) == MACHINE.estimate_cycles(expected)


SIZES = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 16, 24, 40, 64, 100])


def _drawn(draw: Any, codelet: cl.Codelet, sizes: list[list[tuple[int, ...]]]) -> list[list[tuple[int, ...]]]:
    """Shapes like some that a codelet has, of other sizes: what is one size in all of these is one in those drawn."""
    places = [(k, d) for k, shape in enumerate(sizes[0]) for d in range(len(shape))]
    groups = {place: tuple(own[place[0]][place[1]] for own in sizes) for place in places}
    least = {group: min(group) for group in groups.values()}
    found = []
    for _ in range(draw(st.integers(5, 30))):
        new = {
            group: max(low, draw(st.sampled_from([1, 2, 3, 4, 6, 7, 8, 16, 24, 40, 64, 100])))
            for group, low in least.items()
        }
        found.append([tuple(new[groups[k, d]] for d in range(len(own))) for k, own in enumerate(sizes[0])])
    return found


OF_LIBRARY = [case for case in CASES if case[0].function.__module__.startswith("codelet")]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("case", OF_LIBRARY, ids=lambda case: case[0].name)
@examples(3)
@given(data=st.data())
def test_cycles_of_many_sizes_at_once_are_those_of_each_traced_alone(
    case: tuple[cl.Codelet, list[list[tuple[int, ...]]], dict[str, Any]], dtype: Any, data: st.DataObject
) -> None:
    codelet, sizes, static = case
    shapes = _drawn(data.draw, codelet, sizes)
    names, columns = list(codelet.inputs), [np.array(own, np.int64).T for own in zip(*shapes, strict=True)]
    inputs = {name: (tuple(own), dtype) for name, own in zip(names, columns, strict=True)}
    made: Any = VertexCosts(MACHINE, codelet, **static).of(inputs)
    for k, own in enumerate(shapes):
        types = {name: FieldType(shape, np.dtype(dtype)) for name, shape in zip(names, own, strict=True)}
        alone = MACHINE.estimate_cycles(codelet.specialise(types, codelet.static_values(static)[0]))
        assert (made.worker[k], made.supervisor[k], made.shared) == (alone.worker, alone.supervisor, alone.shared), own


@examples(4)
@given(st.lists(st.tuples(*[st.integers(1, 300)] * 2), min_size=4, max_size=40), st.data())
def test_cycles_of_maps_of_many_sizes_are_those_of_each_traced_alone(sizes: list[tuple[int, int]], data: Any) -> None:
    function = data.draw(
        st.sampled_from(
            [lambda x, y: x / (1 + y * y), lambda x, y: jnp.where(x > 0, jnp.exp(y), x), lambda x, y: x + y]
        )
    )
    graph = cl.Graph()
    operands = [graph.add_variable(f"x{k}", (2,)) for k in range(2)]
    for codelet in value_codelets(element_function("map", function, operands)):
        static = {"dimensions": ((0, 1), (1,))}
        columns = np.array(sizes, np.int64).T
        made: Any = VertexCosts(MACHINE, codelet, **static).of(
            {"x0": (tuple(columns), np.float32), "x1": ((columns[1],), np.float32)}
        )
        for k, (rows, columns_of_row) in enumerate(sizes):
            shapes = {"x0": (rows, columns_of_row), "x1": (columns_of_row,)}
            types = {name: FieldType(shape, np.dtype(np.float32)) for name, shape in shapes.items()}
            alone = MACHINE.estimate_cycles(codelet.specialise(types, codelet.static_values(static)[0]))
            assert (made.worker[k], made.supervisor[k]) == (alone.worker, alone.supervisor)
