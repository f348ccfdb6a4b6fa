"""Windows that a codelet only reduces are reduced a dimension at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few

REDUCTIONS = {
    "max": lambda x: x.max(),
    "min": lambda x: jnp.min(x),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "product": lambda x: x.prod(),
    "norm": lambda x: jnp.sqrt((x * x).sum() + 1),
    "range": lambda x: x.max() - 2 * x.min(),
    "of a function": lambda x: jnp.abs(x - 1).max() * jnp.exp(x).sum(),
}


def pooled(graph, x, *, name, sizes, strides, steps=None, pad=0, value=0.0):
    """A reduction of windows along the last dimensions of an array."""
    rank, lead = len(sizes), x.ndim - len(sizes)
    spread = steps or (1,) * rank
    around = x.pad(((0, 0),) * lead + ((pad, pad),) * rank, value=value)
    reaches = [step * (size - 1) + 1 for size, step in zip(sizes, spread, strict=True)]
    counts = [(n - r) // s + 1 for n, r, s in zip(around.shape[lead:], reaches, strides, strict=True)]
    symbols = cl.grid(*x.shape[:lead], *counts)
    kept = [symbols] if x.ndim == 1 else list(symbols)
    at = kept[lead:]
    windows = [slice(s * i, s * i + r, step) for s, i, r, step in zip(strides, at, reaches, spread, strict=True)]
    codelet = cl.codelet(REDUCTIONS[name])
    return graph.add_vertex("pool", codelet, x=around[(*kept[:lead], *windows)])


def plainly(x, *, name, sizes, strides, steps=None, pad=0, value=0.0):
    """The same by a gather of every window."""
    rank, lead = len(sizes), x.ndim - len(sizes)
    x = jnp.pad(x, ((0, 0),) * lead + ((pad, pad),) * rank, constant_values=value)
    for k, (size, stride, step) in enumerate(zip(sizes, strides, steps or (1,) * rank, strict=True)):
        count = (x.shape[lead + k] - step * (size - 1) - 1) // stride + 1
        x = jnp.take(x, stride * np.arange(count)[:, None] + step * np.arange(size), axis=lead + k)
        x = jnp.moveaxis(x, lead + k + 1, -1)
    function = REDUCTIONS[name]
    for _ in range(lead + rank):
        function = jax.vmap(function)
    return function(x)


def names(lowered, *arrays, **static):
    return [eqn.primitive.name for eqn in lowered.at(*arrays, **static).jaxpr.jaxpr.eqns]


CASES = {
    "3 by 2": {"sizes": (3, 3), "strides": (2, 2)},
    "2 by 2": {"sizes": (2, 2), "strides": (2, 2)},
    "overlapping": {"sizes": (5, 2), "strides": (1, 1)},
    "padded": {"sizes": (3, 3), "strides": (2, 2), "pad": 1, "value": -np.inf},
    "dilated": {"sizes": (3, 4), "strides": (1, 3), "steps": (2, 1)},
    "large": {"sizes": (7, 6), "strides": (1, 1)},
    "one dimension": {"sizes": (6,), "strides": (1,)},
}


@few("case", CASES, quick=["padded"])
def test_values_and_slopes_are_those_of_every_window(case):
    """Of integers, so that some tie: each of the greatest has the same share."""
    x = np.random.default_rng(0).integers(-2, 3, (2, 9, 10)).astype(np.float32)
    few = {"padded": ["max"], "3 by 2": ["max", "range", "norm", "mean"]}.get(case, ["max", "mean"])
    layers = {name: cl.lower(pooled) for name in few}
    for name, layer in layers.items():
        found = names(layer, x, name=name, **CASES[case])
        assert not {"stack", "gather", "reduce_max", "reduce_sum"} & set(found), found
    ours = [with_slopes(lambda x, n=name: layers[n](x, name=n, **CASES[case])) for name in few]
    theirs = [with_slopes(lambda x, n=name: plainly(x, name=n, **CASES[case])) for name in few]
    found = at_once(*ours, *theirs)(x)
    for made, expected in zip(found[: len(few)], found[len(few) :], strict=True):
        np.testing.assert_allclose(made[0], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(made[1][0], expected[1][0], rtol=1e-4, atol=1e-4)


def test_large_windows_take_few_steps():
    layer, x = cl.lower(pooled), np.zeros((2, 40, 40), np.float32)
    assert len(names(layer, x, name="sum", sizes=(16, 16), strides=(1, 1))) <= 2 * 4 * 3
    assert len(names(layer, x, name="sum", sizes=(31, 31), strides=(1, 1))) <= 2 * 9 * 3


def test_as_a_reduction_of_windows_by_jax():
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 8, 9)).astype(np.float32)
    sizes = {"name": "max", "sizes": (2, 3, 3), "strides": (1, 2, 1), "pad": 1, "value": -np.inf}
    layer = cl.lower(pooled)
    ours = lambda x: layer(x, **sizes)  # noqa: E731

    def plain(x):
        around = ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 3, 3), (1, 1, 1, 2, 1), around)

    (value, slopes), (expected, others) = at_once(with_slopes(ours), with_slopes(plain))(x)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_allclose(slopes[0], others[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: x.max(), np.int8),
        (lambda x: jnp.sum(x, dtype=jnp.int32), np.int8),
        (lambda x: x.sum(), np.float16),
        (lambda x: x.any(), np.bool_),
        (lambda x: (x > 1).all(), np.int32),
    ],
)
def test_dtypes(function, dtype):
    graph = cl.Graph()
    x = graph.add_variable("x", (9, 7), dtype)
    i, j = cl.grid(4, 5)
    y = graph.add_vertex("pool", cl.codelet(function), x=x[2 * i : 2 * i + 3, j : j + 3])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert "reduced a dimension at a time" in str(run.plan)
    values = {"x": np.random.default_rng(0).integers(0, 5, (9, 7)).astype(dtype)}
    ((name, expected),) = cl.interpret(graph, values=values, outputs=[y]).items()
    result = jax.jit(run)(values)[name]
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_windows_of_several_fields_and_a_field_that_is_none():
    graph = cl.Graph()
    x, y, scale = graph.add_variable("x", (9,)), graph.add_variable("y", (9,)), graph.add_variable("scale", (7,))
    i = cl.grid(7)
    codelet = cl.codelet(lambda a, b, s, c: s * a.max() + b.sum() * c.sum())
    made = graph.add_vertex("pool", codelet, a=x[i : i + 3], b=y[i : i + 2], s=scale[i], c=x[:4])
    run = cl.lower(graph, inputs=[x, y, scale], outputs=[made])
    values = {
        name: np.random.default_rng(k).normal(size=n).astype(np.float32)
        for k, (name, n) in enumerate((("x", 9), ("y", 9), ("scale", 7)))
    }
    ((name, expected),) = cl.interpret(graph, values=values, outputs=[made]).items()
    np.testing.assert_allclose(jax.jit(run)(values)[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@examples(6)
@given(st.data())
def test_window_reductions_mean_what_their_vertices_mean(data):
    draw = data.draw
    rank, lead = draw(st.integers(1, 3)), draw(st.integers(0, 1))
    sizes, strides, steps, shape = [], [], [], [2] * lead
    for _ in range(rank):
        sizes.append(draw(st.integers(1, 6 if rank == 1 else 3)))
        strides.append(draw(st.integers(1, 3)))
        steps.append(draw(st.integers(1, 2)))
        shape.append(steps[-1] * (sizes[-1] - 1) + 1 + strides[-1] * draw(st.integers(0, 2)) + draw(st.integers(0, 1)))
    pad = draw(st.integers(0, 1))
    graph = cl.Graph()
    x = graph.add_variable("x", tuple(shape))
    name = draw(st.sampled_from(sorted(REDUCTIONS)))
    made = pooled(
        graph,
        x,
        name=name,
        sizes=sizes,
        strides=strides,
        steps=steps,
        pad=pad,
        value=draw(st.sampled_from([0.0, -2.0])),
    )
    values = {"x": np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)}
    result = jax.jit(cl.lower(graph, inputs=[x], outputs=[made]))(values)
    for key, expected in cl.interpret(graph, values=values, outputs=[made]).items():
        np.testing.assert_allclose(result[key], expected, rtol=1e-4, atol=1e-4)
