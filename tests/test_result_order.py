"""Windows read in the order in which results lie, and phases put together whose strides divide no extent.

Both at once: vertices make each phase of a variable of other dimensions of windows of an array, as gradients of
poolings do. What that means `interpret` says, one vertex at a time.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from lowering.fast.result_order import order_of_results
from tests.at_once import at_once
from tests.examples import examples


@cl.codelet
def looked_at(x, *, by):
    """The first of the elements of a window that is not below the last, and which phase that is of."""
    flat = x.reshape(-1)
    chosen = flat[-1]
    for k in reversed(range(flat.shape[0] - 1)):
        chosen = jnp.where(flat[k] >= flat[-1], flat[k], chosen)
    return 10 * chosen + by


@cl.codelet
def pooled(x, *, by):
    return 10 * lax.reduce_window(x, -np.inf, lax.max, x.shape, x.shape, "VALID").reshape(()) + by


@cl.codelet
def added(x, *, by):
    return 10 * x.sum() + by


CODELETS = (looked_at, pooled, added)


def primitives(closed: Any) -> list[str]:
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


class Phased:
    """A graph that makes every phase of `y` of windows of `x`, which has the same dimensions in another order."""

    def __init__(self, draw: Any) -> None:
        rank = draw(st.integers(1, 3))
        self.order = draw(st.permutations(range(rank)))
        self.strides = [draw(st.integers(1, 5 - rank)) for _ in range(rank)] if rank < 3 else [1, 2, 2]
        self.shape = [draw(st.integers(1, 8 - 2 * rank)) for _ in range(rank)]
        self.size = draw(st.integers(1, 3))
        self.codelet = draw(st.sampled_from(CODELETS))
        self.left_out = draw(st.sampled_from([None, None, 0]))
        self.graph = cl.Graph(cl.IPU(num_tiles=4))
        apart = draw(st.integers(1, 3))
        inner = [apart * (n - 1) + self.size for n in self.shape]
        self.x = self.graph.add_variable("x", tuple(inner[d] for d in self.order))
        self.y = self.graph.add_variable("y", tuple(self.shape))
        self.step = self.graph.add_compute_set("phases")
        for number, starts in enumerate(np.ndindex(*self.strides)):
            counts = [-(-(n - s) // t) for n, s, t in zip(self.shape, starts, self.strides, strict=True)]
            if number == self.left_out or min(counts) < 1:
                continue
            i = cl.grid(*counts) if rank > 1 else [cl.grid(*counts)]
            at = [s + t * own for s, t, own in zip(starts, self.strides, i, strict=True)]
            windows = [slice(apart * own, apart * own + self.size) for own in at]
            self.graph.add_vertex(
                self.step,
                self.codelet,
                x=self.x[tuple(windows[d] for d in self.order)],
                out=self.y[tuple(at)],
                by=number,
            )
        self.is_whole = self.left_out is None
        random = np.random.default_rng(draw(st.integers(0, 99)))
        self.values = {
            "x": random.integers(-4, 5, self.x.shape).astype(np.float32),
            "y": random.integers(-4, 5, self.y.shape).astype(np.float32),
        }


phased = st.composite(lambda draw: Phased(draw))()


@pytest.mark.slow
@examples(2, phases=[Phase.generate])
@given(st.lists(phased, min_size=6, max_size=6))
def test_values_and_slopes_of_all_phases(drawn):
    runs = [cl.lower(own.graph, inputs=["x", "y"], outputs=["y"]) for own in drawn]
    lines = [cl.Engine(own.graph).function(inputs=["x", "y"], outputs=["y"]) for own in drawn[:1]]
    weights = [np.arange(1.0, own.y.size + 1, dtype=np.float32).reshape(own.y.shape) for own in drawn]

    def weighed(run: Any, k: int) -> Any:
        return lambda all_values: (run(all_values[k])["y"] * weights[k]).sum()

    def both(run: Any, k: int) -> Any:
        return lambda all_values: (run(all_values[k])["y"], jax.grad(weighed(run, k))(all_values)[k])

    made = at_once(*(both(run, k) for k, run in enumerate(runs)), *(both(run, k) for k, run in enumerate(lines)))(
        [own.values for own in drawn]
    )
    for own, run, (value, _) in zip(drawn, runs, made, strict=False):
        np.testing.assert_array_equal(value, cl.interpret(own.graph, values=own.values, outputs=["y"])["y"])
        if own.is_whole:
            assert "scatter" not in primitives(run.jaxpr), str(run.plan)
    for (_, slopes), (value, others), (expected, _) in zip(made, made[len(drawn) :], made, strict=False):
        np.testing.assert_array_equal(value, expected)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), slopes, others)


# --- what is decided --------------------------------------------------------------------------------------


def maxima(graph: cl.Graph, x: cl.Tensor, *, codelet: cl.Codelet, swapped: bool) -> cl.Tensor:
    """Something of each four places of (channel, place), as (place, channel) where they are swapped."""
    channels, places = x.shape[0], x.shape[1] // 4
    y = graph.add_variable("y", (places, channels) if swapped else (channels, places))
    i, c = cl.grid(places, channels)
    graph.add_vertex("pool", codelet, x=x[c, 4 * i : 4 * i + 4], out=y[i, c] if swapped else y[c, i], by=0)
    return y


@pytest.mark.parametrize("codelet", CODELETS)
def test_windows_are_read_as_results_lie_where_that_is_another_order(codelet):
    x = jnp.asarray(np.random.default_rng(0).integers(-4, 5, (3, 22)), jnp.float32)
    lowered = cl.lower(maxima)
    names = {swapped: primitives(lowered.at(x, codelet=codelet, swapped=swapped).jaxpr) for swapped in (False, True)}
    assert "transpose" not in names[False]
    if codelet is not added:  # of a sum of what lies side by side XLA's order is the one in memory
        assert names[True].count("transpose") == 1
        assert names[True][0] == "transpose"
    plain, swapped = at_once(*(lambda x, s=s: lowered(x, codelet=codelet, swapped=s) for s in (False, True)))(x)
    np.testing.assert_array_equal(swapped, plain.T)


def test_an_order_is_told_of_windows_alone():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3, 8)), graph.add_variable("y", (4, 3))
    both = graph.add_variable("both", (4, 3))
    i, c = cl.grid(4, 3)

    def order(out, view):
        graph.add_vertex(f"step {len(graph.compute_sets)}", looked_at, x=view, out=out, by=0)
        family = graph.families[-1]
        return order_of_results(family, family.by_name["x"])

    assert order(y[i, c], x[c, 2 * i : 2 * i + 2]) == (1, 0)
    assert order(both.reshape(3, 4)[c, i], x[c, 2 * i : 2 * i + 2]) is None  # the order that they have
    assert order(both[i, c], x[c, i : i + 1]) is None  # no windows
    assert order(both[i, c], x[cl.table([0, 2, 1])[c], 2 * i : 2 * i + 2]) is None  # by a table


def test_what_lies_beyond_is_cut_off():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4, 3)), graph.add_variable("y", (10, 3))
    step = graph.add_compute_set("phases")
    for phase, count in enumerate((3, 3, 2, 2)):
        i, c = cl.grid(count, 3)
        graph.add_vertex(step, looked_at, x=x[i, c : c + 1], out=y[phase + 4 * i, c], by=phase)
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert "joined of 4 parts" in str(run.plan)
    assert not set(primitives(run.jaxpr)) & {"scatter", "dynamic_update_slice"}
    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = (10 * given[:3, None] + np.arange(4)[:, None]).reshape(12, 3)[:10]
    np.testing.assert_array_equal(jax.jit(run)({"x": given})["y"], expected)
