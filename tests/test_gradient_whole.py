"""Gradients as graphs: blocks, and what is left over where no block divides an extent, gone back through as one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

import codelet as cl
from lowering.jaxprs.repeat_less import repeat_less
from tests.examples import examples
from tests.gradients import agree

TARGET = cl.IPU(num_tiles=8)


def _gradient(loss: Callable[..., Any], *values: np.ndarray) -> tuple[cl.Lowered, list[np.ndarray], list[np.ndarray]]:
    """The gradient of a traced function by its arguments: as it is lowered, as interpreted, and what it gives."""
    traced = cl.trace(loss, *values, target=TARGET)
    found = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    both = cl.Sequence(found.forward, found.backward)
    outputs = [found[own] for own in traced.inputs]
    lowered = cl.lower(traced.graph, both, inputs=list(traced.inputs), outputs=outputs)
    given = dict(zip((own.source.name for own in traced.inputs), values, strict=True))
    interpreted = cl.interpret(traced.graph, values=given, outputs=outputs, program=both)
    return lowered, list(jax.jit(lowered.flat)(list(values))), [*interpreted.values()]


def _compare(loss: Callable[..., Any], *shapes: tuple[int, ...]) -> Counter[str]:
    """Gradients beside JAX's and finite differences in float64; how many equations there are of each primitive."""
    random = np.random.default_rng(0)
    values = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    lowered, fast, interpreted = _gradient(loss, *values)
    expected = jax.jit(jax.grad(loss, tuple(range(len(values)))))(*values)
    for k, (own, one, other) in enumerate(zip(expected, fast, interpreted, strict=True)):
        agree(one, own, f"argument {k}, lowered")
        agree(other, own, f"argument {k}, interpreted")
    with jax.enable_x64(True):
        ways = [random.uniform(-1, 1, shape) for shape in shapes]
        at = lambda t: loss(*(value.astype(np.float64) + t * way for value, way in zip(values, ways, strict=True)))  # noqa: E731
        difference = float(at(1e-5) - at(-1e-5)) / 2e-5
    slope = sum(
        float(np.vdot(own.astype(np.float64), way)) for own, way in zip(map(np.asarray, fast), ways, strict=True)
    )
    assert math.isclose(slope, difference, rel_tol=2e-4, abs_tol=1e-3)
    return Counter(eqn.primitive.name for eqn in lowered.jaxpr.jaxpr.eqns)


def _weighted(x: Any) -> jax.Array:
    return jnp.sum(x * x * jnp.cos(jnp.arange(x.size).reshape(x.shape) * 0.1))


class TestMaps:
    """Maps in blocks: the contributions of all blocks, and of what is left over, are summed once."""

    @pytest.mark.parametrize("shape", [pytest.param((1003,), marks=pytest.mark.slow), (37, 41)])
    def test_a_mean_of_neighbours_is_one_of_cotangents(self, shape: tuple[int, ...]):
        def loss(x: jax.Array) -> jax.Array:
            near = [x[(..., slice(k, x.shape[-1] - 2 + k))] for k in range(3)]
            return _weighted(sum(near) / 3)

        made = _compare(loss, shape)
        assert not made.keys() & {"scatter", "scatter-add", "gather"}

    @pytest.mark.slow
    def test_products_of_neighbours_are_held_together(self):
        def loss(x: jax.Array) -> jax.Array:
            inner = jnp.where(x[1:] * x[:-1] > 0, 0.0, x[1:] - x[:-1])
            return _weighted(inner[1:] * inner[:-1] + x[1:-1] * x[2:])

        made = _compare(loss, (43, 29))
        assert not made.keys() & {"scatter", "scatter-add", "gather"}

    @pytest.mark.parametrize("shape", [(31, 41), pytest.param((1, 7), marks=pytest.mark.slow)])
    @pytest.mark.parametrize("way", ["weighted", "multiplied", "of both"])
    def test_what_is_left_over_may_not_read_all_that_the_blocks_read(self, way: str, shape: tuple[int, int]):
        """The last element has a constant for its neighbour, to which nothing is contributed."""

        def loss(x: jax.Array, y: jax.Array) -> jax.Array:
            ends = jnp.ones((1, shape[1]))
            above, own, below = (jnp.concatenate([ends, x, ends])[k : k + shape[0]] for k in range(3))
            if way == "weighted":
                return _weighted(2 * above - 3 * own + 2 * below)
            return _weighted(above * own * below if way == "multiplied" else above * y - 3 * own + below * below)

        made = _compare(loss, shape, shape)
        assert not made.keys() & {"scatter", "scatter-add", "gather"}

    def test_contributions_to_a_part_of_what_is_read_are_summed_at_once(self):
        """Neither blocks nor what is left over hold any, nor all that they are parts of."""

        def loss(x: jax.Array) -> jax.Array:
            ends = jnp.ones((1, 41))
            own = jnp.concatenate([ends, x, ends])
            return _weighted((2 * own[:-2] - 3 * own[1:-1] + 2 * own[2:]) @ jnp.ones((41, 3)))

        traced = cl.trace(loss, np.ones((31, 41), np.float32), target=TARGET)
        before = {variable.name for variable in traced.graph.variables}
        cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
        made = {variable.name for variable in traced.graph.variables} - before
        assert made
        assert not [name for name in made if "joined" in name or "/map/x" in name]


class TestProducts:
    """Products that no blocks divide: one product for the gradient by each operand."""

    @pytest.mark.slow
    def test_each_operand_has_one_product(self):
        made = _compare(lambda a, b: _weighted(a @ b), (67, 33), (33, 53))
        assert not made.keys() & {"scatter", "scatter-add", "gather"}
        assert made["dot_general"] <= 5  # of what is left over along what is summed over, one more for each operand

    @pytest.mark.slow
    def test_of_one_operand_alone(self):
        b = np.random.default_rng(1).uniform(-1, 1, (33, 53)).astype(np.float32)
        _compare(lambda a: _weighted(a @ b), (67, 33))

    @pytest.mark.parametrize("shape", [(71, 31), pytest.param((97, 45), marks=pytest.mark.slow)])
    def test_an_operand_that_is_both(self, shape: tuple[int, int]):
        made = _compare(lambda a: _weighted(a.T @ a), shape)
        assert not made.keys() & {"scatter", "scatter-add", "gather"}

    @pytest.mark.slow
    def test_with_a_batch(self):
        _compare(lambda a, b: _weighted(jnp.einsum("bij,bjk->bik", a, b)), (3, 37, 19), (3, 19, 23))

    @pytest.mark.slow
    def test_in_a_loop(self):
        def loss(a: jax.Array, b: jax.Array) -> jax.Array:
            return _weighted(lax.fori_loop(0, 3, lambda _, own: jnp.tanh(a @ own), b))

        _compare(loss, (37, 37), (37, 23))


class TestConvolutions:
    """Convolutions in patches and parts of the kernel: one convolution for the gradient by each operand."""

    @pytest.mark.parametrize("stride", [1, 2])
    @pytest.mark.parametrize(
        ("numbers", "image", "kernel"),
        [
            (("NHWC", "HWIO", "NHWC"), (2, 11, 12, 5), (3, 3, 5, 7)),
            pytest.param(("NCHW", "OIHW", "NCHW"), (2, 5, 11, 12), (7, 5, 3, 3), marks=pytest.mark.slow),
            pytest.param(("NWC", "WIO", "NWC"), (3, 29, 4), (5, 4, 6), marks=pytest.mark.slow),
        ],
    )
    def test_each_operand_has_one(self, stride: int, numbers: Any, image: tuple[int, ...], kernel: tuple[int, ...]):
        strides = (stride,) * (len(image) - 2)

        def loss(x: jax.Array, w: jax.Array) -> jax.Array:
            return _weighted(lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers))

        made = _compare(loss, image, kernel)
        assert made["conv_general_dilated"] <= 4
        assert "scatter-add" not in made

    def test_that_skips_elements_and_dilates(self):
        def loss(x: jax.Array, w: jax.Array) -> jax.Array:
            return _weighted(lax.conv_general_dilated(x, w, (3, 1), [(0, 1), (2, -1)], rhs_dilation=(1, 2)))

        _compare(loss, (2, 4, 14, 11), (5, 4, 2, 3))

    @pytest.mark.slow
    def test_of_groups(self):
        def loss(x: jax.Array, w: jax.Array) -> jax.Array:
            return _weighted(lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=2))

        _compare(loss, (2, 4, 9, 7), (6, 2, 3, 3))


class TestRepeatLess:
    """Parts of what is repeated: by evaluation."""

    @pytest.mark.slow
    @examples(30)
    @given(st.data())
    def test_it_gives_the_same(self, data: st.DataObject):
        shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), label="shape")
        places = sorted(data.draw(st.permutations(range(len(shape) + 1)), label="places")[: len(shape)])
        d = next(k for k in range(len(shape) + 1) if k not in places)
        count = data.draw(st.integers(2, 6), label="count")
        whole = [count if k == d else shape[places.index(k)] for k in range(len(shape) + 1)]
        order = data.draw(st.permutations(range(len(whole))), label="order")
        along = data.draw(st.integers(0, len(whole) - 1), label="along")
        is_split = data.draw(st.booleans(), label="split")
        extent = whole[order[along]]
        start = data.draw(st.integers(0, extent - 1), label="start")
        stop = data.draw(st.integers(start + 1, extent), label="stop")
        step = data.draw(st.integers(1, 2), label="step")

        def function(x: jax.Array) -> Any:
            repeated = lax.transpose(lax.broadcast_in_dim(x, whole, places), order)
            if is_split:
                return lax.split(repeated, (start, extent - start), along)
            return lax.slice_in_dim(repeated, start, stop, step, along)

        x = jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)
        closed = jax.make_jaxpr(function)(x)
        made = repeat_less(closed)
        for own, expected in zip(jaxpr_as_fun(made)(x), jaxpr_as_fun(closed)(x), strict=True):
            np.testing.assert_array_equal(own, expected)
        if order[along] == d and not is_split and (start, stop, step) != (0, extent, 1):
            assert all(eqn.primitive.name != "slice" for eqn in made.jaxpr.eqns)
