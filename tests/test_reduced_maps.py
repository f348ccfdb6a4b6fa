"""What is reduced in stages runs as one reduction: of an array, or of what is computed of several by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.refused import Refused
from lowering.jaxprs.reduced_maps import as_inner_product, reduced_map
from lowering.join.reduced import ReducedFamily, as_reduced, wholes_of
from lowering.join.refine import by_result
from lowering.plan.collect import collect
from lowering.plan.steps import ExecuteStep
from tests.at_once import at_once, with_slopes
from tests.examples import examples
from tests.same_jaxprs import equations

REDUCE = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min, "reduce_prod": jnp.prod}

TERMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "itself": lambda x, y, m: x,
    "square": lambda x, y, m: x * x,
    "product": lambda x, y, m: x * y,
    "less the row's": lambda x, y, m: jnp.exp(x - m),
    "weighted": lambda x, y, m: 2 * jnp.exp(0.1 * x - m) * y,
    "chosen": lambda x, y, m: jnp.where(x > m, y, 1),
    "converted": lambda x, y, m: x.astype(jnp.float16).astype(jnp.float32) + m,
}
"""Of an element of two arrays and one of each row."""


class Cut(NamedTuple):
    """A reduction of each row of a term, cut into blocks, the last perhaps shorter.

    Attributes:
        name: of the reduction.
        terms: what is reduced, by name; several by one vertex.
        shape: of the arrays, rows first.
        block: how many elements of a row a vertex reduces.
        rows: how many rows a vertex has, a part of all.
        is_turned: whether rows run along the first dimension.
        stages: of the reduction of the blocks' results.
    """

    name: str
    terms: tuple[str, ...]
    shape: tuple[int, int]
    block: int
    rows: int
    is_turned: bool
    stages: int

    @property
    def cuts(self) -> list[slice]:
        """The blocks of a row."""
        n = self.shape[1]
        return [slice(k, min(k + self.block, n)) for k in range(0, n, self.block)]

    def plain(self, x: Any, y: Any, m: Any) -> tuple[Any, ...]:
        """What it is of."""
        return tuple(REDUCE[self.name](TERMS[term](x, y, m[:, None]), 1) for term in self.terms)

    def build(self, graph: cl.Graph, x: cl.Tensor, y: cl.Tensor, m: cl.Tensor) -> list[cl.Tensor]:
        """It, cut."""
        reduce, axis = REDUCE[self.name], 0 if self.is_turned else 1
        terms = [TERMS[term] for term in self.terms]

        names = [f"out{k}" for k in range(len(terms))]

        def part(x: Any, y: Any, m: Any) -> dict[str, Any]:
            results = (reduce(term(x, y, m[None] if axis == 0 else m[:, None]), axis) for term in terms)
            return dict(zip(names, results, strict=True))

        def of_one(a: Any) -> dict[str, Any]:
            return {"out0": reduce(a, 0)}

        def of_two(a: Any, b: Any) -> dict[str, Any]:
            return {"out0": reduce(a, 0), "out1": reduce(b, 0)}

        codelet, of_fields = cl.codelet(part), cl.codelet((of_one, of_two)[len(terms) - 1])
        r, cuts = self.shape[0], self.cuts
        parts = [graph.add_variable(f"parts{name}", (len(cuts), r)) for name in names]
        for j, own in enumerate(cuts):
            for first in range(0, r, self.rows):
                at = slice(first, first + self.rows)
                where = (own, at) if self.is_turned else (at, own)
                written = {name: view[j, at] for name, view in zip(names, parts, strict=True)}
                graph.add_vertex("parts", codelet, x=x[where], y=y[where], m=m[at], **written)
        for stage in range(self.stages):
            count = parts[0].shape[0]
            halves = [slice(0, count)] if stage == self.stages - 1 else [slice(0, count // 2), slice(count // 2, count)]
            made = [graph.add_variable(f"stage{stage}{name}", (len(halves), r)) for name in names]
            i = cl.grid(r)
            for k, half in enumerate(halves):
                read = {field: view[half, i] for field, view in zip(of_fields.inputs, parts, strict=True)}
                written = {name: view[k, i] for name, view in zip(names, made, strict=True)}
                graph.add_vertex(f"stage {stage}", of_fields, **read, **written)
            parts = made
        return [view[0] for view in parts]

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Numbers without ties, near one: products of them stay so."""
        numbers = np.random.default_rng(0).permutation(np.linspace(0.8, 1.25, 2 * math.prod(self.shape)))
        x, y = numbers.astype(np.float32).reshape(2, *self.shape)
        return (x.T, y.T, x[:, 0] * 0.9) if self.is_turned else (x, y, x[:, 0] * 0.9)

    def of_arrays(self, x: Any, y: Any, m: Any) -> tuple[Any, ...]:
        """What it is of, of arrays as they lie."""
        return self.plain(x.T, y.T, m) if self.is_turned else self.plain(x, y, m)


@st.composite
def cuts(draw: Any) -> Cut:
    """Reductions that are cut in blocks of all lengths, of some rows each, in two to four stages."""
    rows, n = draw(st.integers(1, 4)), draw(st.integers(2, 13))
    return Cut(
        draw(st.sampled_from(sorted(REDUCE))),
        tuple(draw(st.lists(st.sampled_from(sorted(TERMS)), min_size=1, max_size=2, unique=True))),
        (rows, n),
        draw(st.integers(1, n - 1)),
        draw(st.sampled_from([k for k in range(1, rows + 1) if rows % k == 0])),
        draw(st.booleans()),
        draw(st.integers(1, 3)),
    )


def lowered(cut: Cut) -> Callable[..., tuple[Any, ...]]:
    run = cl.lower(lambda graph, x, y, m: cut.build(graph, x, y, m))
    return lambda *arrays: tuple(run(*arrays))


def reductions_of(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The equations that reduce something."""
    closed = jax.make_jaxpr(function)(*arrays)
    return [eqn for eqn in equations(closed) if eqn.primitive.name.startswith(("reduce_", "dot_general"))]


def interpreted(cut: Cut, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What vertices give, one by one."""
    graph = cl.Graph()
    inputs = [graph.add_variable(name, own.shape) for name, own in zip("xym", arrays, strict=True)]
    outputs = cut.build(graph, *inputs)
    names = [str(getattr(view.source, "name", "")) for view in outputs]
    found = cl.interpret(graph, values=dict(zip("xym", arrays, strict=True)), outputs=names)
    return [found[name][0] for name in names]


def check_one_reduction(cut):
    """See that a cut reduction runs as one for each term, and gives what vertices and plain JAX give."""
    arrays = cut.arrays()
    run = lowered(cut)
    assert len(reductions_of(run, *arrays)) <= len(cut.terms)
    for own, plain, one in zip(*at_once(run, cut.of_arrays)(*arrays), interpreted(cut, arrays), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-4)
        np.testing.assert_allclose(one, plain, rtol=1e-4)


@examples(12)
@given(cuts())
def test_it_is_one_reduction_of_the_same_value(cut):
    check_one_reduction(cut)


@pytest.mark.slow
@examples(300)
@given(cuts())
def test_many_are_one_reduction_of_the_same_value(cut):
    check_one_reduction(cut)


@examples(5)
@given(cuts())
def test_its_slopes_are_those_of_the_whole(cut):
    arrays = cut.arrays()
    of = lambda f: with_slopes(lambda *own: jnp.stack(f(*own)))  # noqa: E731
    for own, plain in zip(*map(jax.tree.leaves, at_once(of(lowered(cut)), of(cut.of_arrays))(*arrays)), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduction", [jnp.all, jnp.any, jnp.sum, jnp.max])
def test_whole_numbers_and_truth_values(reduction):
    is_truth = reduction in (jnp.all, jnp.any)
    x = np.random.default_rng(0).integers(0, 4, (3, 11)).astype(np.int32)
    x = x > 0 if is_truth else x

    def build(graph, x):
        parts, out = graph.add_variable("parts", (3, 3), x.dtype), graph.add_variable("out", (3,), x.dtype)
        i = cl.grid(3)
        for j, own in enumerate((slice(0, 4), slice(4, 8), slice(8, 11))):
            graph.add_vertex("blocks", cl.codelet(lambda x: reduction(x)), x=x[i, own], out=parts[i, j])
        graph.add_vertex("all", cl.codelet(lambda x: reduction(x)), x=parts[i], out=out[i])
        return out

    run = cl.lower(build)
    assert len(reductions_of(run, x)) == 1
    np.testing.assert_array_equal(run(x), reduction(x, 1))


@pytest.mark.filterwarnings("error:Explicitly requested dtype float64")
@pytest.mark.parametrize("allowed", [True, False])
def test_terms_of_as_many_bits_as_their_codelets_were_traced_with(allowed):
    graph = cl.Graph()
    part = cl.codelet(lambda x: jnp.sum(jnp.exp(x.astype(jnp.float64) * 1e-9)))
    last = cl.codelet(lambda total: ((total - 10) * 1e9).astype(jnp.float32))
    with jax.enable_x64(True):
        x, out = graph.add_variable("x", (10,), np.float32), graph.add_variable("out", (), np.float32)
        parts, whole = graph.add_variable("parts", (3,), np.float64), graph.add_variable("whole", (), np.float64)
        for k, own in enumerate((slice(0, 4), slice(4, 8), slice(8, 10))):
            graph.add_vertex("parts of x", part, x=x[own], out=parts[k])
        graph.add_vertex("all", cl.codelet(total), x=parts, out=whole)
        graph.add_vertex("last", last, total=whole, out=out)
    values = {"x": np.arange(10, dtype=np.float32)}
    with jax.enable_x64(allowed):
        run = cl.lower(graph, inputs=[x], outputs=[out])
        assert [eqn.primitive.name for eqn in equations(run.jaxpr)].count("reduce_sum") == 1
        np.testing.assert_allclose(jax.jit(run)(values)["out"], 45, rtol=1e-5)


# --- what stays ------------------------------------------------------------------------------------------


def total(x):
    return jnp.sum(x)


def exponentials(x, m):
    return jnp.sum(jnp.exp(x - m))


def staged(first, second, *, dtype=np.float32, more=lambda graph, x, parts: None, window=4, step=4):
    """The sum of sums of eight windows of a vector, of two codelets in turn; and what else there is."""

    def build(graph, x, m):
        parts, out = graph.add_variable("parts", (8,), dtype), graph.add_variable("out", (), dtype)
        for j in range(8):
            codelet = cl.codelet((first, second)[j % 2])
            edges = {"m": m[0]} if codelet.inputs == ("x", "m") else {}
            graph.add_vertex("windows", codelet, x=x[step * j : step * j + window], **edges, out=parts[j])
        other = more(graph, x, parts)
        graph.add_vertex("all", cl.codelet(total), x=parts, out=out)
        return [out, *([] if other is None else [other])]

    x = jnp.asarray(np.random.default_rng(0).normal(size=32), dtype)
    return cl.lower(build), x


def count(run, x):
    return len(reductions_of(run, x, x[:1]))


def test_what_is_one_is_one():
    run, x = staged(total, total)
    assert count(run, x) == 1
    run, x = staged(exponentials, exponentials)
    assert count(run, x) == 1


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        (total, exponentials, {}),  # blocks of other terms
        (exponentials, lambda x, m: jnp.sum(jnp.exp(x + m)), {}),
        (lambda x: jnp.max(x), lambda x: jnp.max(x), {}),  # greatest ones added up
        (total, total, {"dtype": np.float16}),  # rounded in between
        (total, total, {"more": lambda graph, x, parts: parts}),  # the parts are asked for
    ],
)
def test_what_is_not_one_reduction_stays(first, second, options):
    run, x = staged(first, second, **options)
    assert count(run, x) > 1


@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max])
def test_a_border_of_greatest_elements_is_no_window_among_zeros(reduce):
    """Of a product it is: what is outside is zero, which adds nothing; a greatest element may be less than zero."""
    graph = cl.Graph()
    x, w, out = graph.add_variable("x", (8,)), graph.add_variable("w", (3,)), graph.add_variable("out", (7,))
    codelet, i = cl.codelet(lambda x, w: reduce(x * w)), cl.grid(6)
    graph.add_vertex("a", codelet, x=x[i : i + 3], w=w, out=out[1 + i])
    graph.add_vertex("a", codelet, x=x[:2], w=w[1:], out=out[0])
    (step,) = collect(graph, cl.Execute(graph.compute_sets[0]), (), ()).steps
    assert isinstance(step, ExecuteStep)
    parts = [own for own in map(as_reduced, step.families) if isinstance(own, ReducedFamily)]
    assert len(parts) == 2
    assert any(isinstance(own, ReducedFamily) for own in wholes_of(parts)) == (reduce is jnp.sum)


def test_partial_results_that_several_sums_read_are_made_once():
    def build(graph, x):
        parts, out = graph.add_variable("parts", (8,)), graph.add_variable("out", (3,))
        i, j = cl.grid(8), cl.grid(3)
        graph.add_vertex("windows", cl.codelet(total), x=x[4 * i : 4 * i + 4], out=parts[i])
        graph.add_vertex("all", cl.codelet(total), x=parts, out=out[j])
        return out

    x = jnp.arange(32.0)
    run = cl.lower(build)
    np.testing.assert_array_equal(run(x), [x.sum()] * 3)
    assert str(run.at(x).plan).count("execute") == 2


def test_elements_that_several_windows_have_are_read_once():
    run, x = staged(total, total, window=9, step=3)
    (found, *_), plan = run(x, x[:1]), str(run.at(x, x[:1]).plan)
    np.testing.assert_allclose(found, sum(x[3 * j : 3 * j + 9].sum() for j in range(8)), rtol=1e-5)
    assert "execute windows" in plan  # and it is no sum of 72 elements


# --- codelets --------------------------------------------------------------------------------------------


def traced(function, **kinds):
    """A codelet of fields of some shapes and dtypes, as a graph traces it."""
    graph = cl.Graph()
    tensors = {name: graph.add_variable(name, shape, dtype) for name, (shape, dtype) in kinds.items()}
    graph.add_vertex("a", cl.codelet(function), **tensors)
    return graph.families[0].codelet


ROWS = ((3, 5), np.float32)


def test_terms_of_fields_by_their_dimensions():
    found = reduced_map(traced(lambda x, b: jnp.max(jnp.exp(x.T - b[:, None])), x=ROWS, b=((5,), np.float32)))
    assert not isinstance(found, Refused)
    assert (found.fields, found.shape, found.dims, found.name) == (("x", "b"), (5, 3), ((1, 0), (0,)), "reduce_max")
    found = reduced_map(traced(lambda x: jnp.sum(x.astype(jnp.float32)), x=((4,), np.float16)))
    assert not isinstance(found, Refused)
    assert found.term is not None
    assert found.reduced_in == np.float32
    assert isinstance(as_inner_product(traced(lambda x, y: jnp.sum(x * y), x=ROWS, y=ROWS)), tuple)


@pytest.mark.parametrize(
    ("function", "kinds", "why"),
    [
        (lambda x: jnp.sum(x, 1), {"x": ROWS}, "a block"),
        (lambda x: {"a": jnp.sum(x), "b": jnp.max(x)}, {"x": ROWS}, "several results"),
        (lambda x: jnp.sum(jnp.cumsum(x, 0)), {"x": ROWS}, "no function of its fields"),
        (lambda x: jnp.sum(x[:2]), {"x": ROWS}, "no function of its fields"),
        (lambda x: jnp.sum(jnp.broadcast_to(x, (4, 3, 5))), {"x": ROWS}, "several times"),
    ],
)
def test_what_is_no_reduced_map(function, kinds, why):
    found = reduced_map(traced(function, **kinds))
    assert isinstance(found, Refused)
    assert why in found.reason


def test_each_of_several_results_is_one():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3, 5)), graph.add_variable("y", (3,))
    i = cl.grid(3)
    codelet = cl.codelet(lambda x, y: {"a": jnp.sum(x), "b": jnp.max(x + y), "c": y + 1})
    graph.add_vertex("a", codelet, x=x[i], y=y[i])
    (family,) = graph.families
    apart = by_result(family)
    assert [list(own.codelet.inputs) for own in apart] == [["x"], ["x", "y"], ["y"]]
    assert [[field.name for field in own.fields] for own in apart] == [["x", "a"], ["x", "y", "b"], ["y", "c"]]
