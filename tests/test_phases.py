"""Phases of a strided convolution's gradient by its input, written as vertices, are one convolution again."""

import itertools

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

inner = cl.codelet(lambda g, w: jnp.vdot(g, w))
zero = cl.codelet(lambda: jnp.zeros(()))
one = cl.codelet(lambda: jnp.ones(()))


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def phases_along(side, size, stride, low, dilation=1):
    """For each phase along a dimension: which taps it has, where its window begins, and how many positions there are.

    The window begins at `start` plus the position; `step` apart are its elements, and `jump` apart its taps.
    """
    found = []
    jump, step = stride // np.gcd(stride, dilation), dilation // np.gcd(stride, dilation)
    for q in range(min(stride, side)):
        taps = [k for k in range(size) if (q + low - dilation * k) % stride == 0]
        start = (q + low - dilation * taps[-1]) // stride if taps else 0
        found.append((q, taps, start, -(-(side - q) // stride)))
    return found, int(jump), int(step)


def transposed(graph, g, w, *, sides, stride, low, dilation=1, wrong="", zeros=zero, into=None):
    """The gradient of a convolution by its input: one family for each phase; or partial sums of it."""
    rank, count = len(sides), g.shape[1]
    wide = w.shape[2] * dilation + stride
    padded = g.pad(((0, 0), (0, 0), *[(wide, wide)] * rank))
    result = graph.add_variable("dx", (g.shape[0], w.shape[1], *sides)) if into is None else into
    parts, gradient = () if into is None else into.shape[:1], graph.add_compute_set("gradient")
    along = [phases_along(side, size, stride, low, dilation) for side, size in zip(sides, w.shape[2:], strict=True)]
    for number, phase in enumerate(itertools.product(*(found for found, _, _ in along))):
        symbols = cl.grid(*parts, g.shape[0], w.shape[1], *(n for *_, n in phase))
        *part, image, channel = symbols[: 2 + len(parts)]
        at = symbols[2 + len(parts) :]
        out = result[(*part, image, channel, *(q + stride * a for (q, *_), a in zip(phase, at, strict=True)))]
        if not all(taps for _, taps, _, _ in phase):
            graph.add_vertex(gradient, zeros, out=out)
            continue
        windows, own = [], []
        for (_, taps, start, _), a, (_, jump, step) in zip(phase, at, along, strict=True):
            moved = start + wide + (wrong == "window" and number == 1)
            windows.append(slice(moved + a, moved + a + step * (len(taps) - 1) + 1, step))
            own.append(slice(taps[0], taps[-1] + 1, jump))
        kernel = w[(slice(None), channel, *own)]
        flips = (slice(None), *[slice(None, None, 1 if wrong == "order" else -1)] * rank)
        size = count // parts[0] if parts else count - (wrong == "channels" and number == 0)
        first = part[0] * size if parts else 0
        channels = slice(first, first + size)
        fields = {"g": padded[(image, channels, *windows)], "w": kernel[flips][channels]}
        graph.add_vertex(gradient, inner, **fields, out=out)
    return result


def plainly(g, w, *, sides, stride, low, dilation=1):
    """The same by JAX."""
    x = jnp.zeros((g.shape[0], w.shape[1], *sides), g.dtype)

    def forward(x):
        high = [
            stride * (n - 1) + dilation * (k - 1) + 1 - side - low
            for n, k, side in zip(g.shape[2:], w.shape[2:], sides, strict=True)
        ]
        around = [(low, own) for own in high]
        return lax.conv_general_dilated(x, w, [stride] * len(sides), around, rhs_dilation=[dilation] * len(sides))

    return jax.vjp(forward, x)[1](g)[0]


def dilations(lowered):
    return [
        eqn.params["lhs_dilation"]
        for eqn in lowered.jaxpr.jaxpr.eqns
        if eqn.primitive.name == "conv_general_dilated" and max(eqn.params["lhs_dilation"]) > 1
    ]


CASES = {
    "3 by 2": ((7, 8), 3, 2, 1, 1),
    "7 by 2": ((9, 11), 7, 2, 3, 1),
    "11 by 4": ((21, 18), 11, 4, 2, 1),
    "1 by 2": ((6, 5), 1, 2, 0, 1),
    "2 by 4": ((9, 8), 2, 4, 0, 1),
    "dilated": ((9, 8), 3, 2, 1, 3),
    "by what divides it": ((9, 8), 3, 2, 0, 2),
    "one dimension": ((11,), 5, 3, 1, 1),
    "three dimensions": ((4, 5, 4), 3, 2, 1, 1),
}


@few("case", CASES, quick=["by what divides it"])
def test_phases_are_one_convolution(case):
    sides, size, stride, low, dilation = CASES[case]
    reach = dilation * (size - 1) + 1
    outs = [(side + 2 * low - reach) // stride + 1 for side in sides]
    g, w = normal(2, 4, *outs), normal(4, 3, *[size] * len(sides))
    sizes = {"sides": sides, "stride": stride, "low": low, "dilation": dilation}
    lowered = cl.lower(transposed)
    assert dilations(lowered.at(g, w, **sizes)) == [(stride,) * len(sides)]
    ours, plain = (lambda g, w, run=run: run(g, w, **sizes) for run in (lowered, plainly))
    (value, slopes), (expected, others) = at_once(with_slopes(ours), with_slopes(plain))(g, w)
    for made, other in zip((value, *slopes), (expected, *others), strict=True):
        np.testing.assert_allclose(made, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wrong", ["window", "order", "channels", "fill"])
def test_what_are_not_the_phases_of_one_convolution_stay_apart(wrong):
    graph = cl.Graph()
    size = {"fill": 1, "order": 4}.get(wrong, 3)  # of 3 taps the other order is that of the kernel reversed
    g, w = graph.add_variable("g", (1, 2, 4, 4)), graph.add_variable("w", (2, 3, size, size))
    zeros = one if wrong == "fill" else zero
    made = transposed(graph, g, w, sides=(7, 7), stride=2, low=size // 2, wrong=wrong, zeros=zeros)
    run = cl.lower(graph, inputs=[g, w], outputs=[made])
    assert not dilations(run)
    values = {"g": normal(1, 2, 4, 4), "w": normal(2, 3, size, size)}
    expected = cl.interpret(graph, values=values, outputs=[made])["dx"]
    np.testing.assert_allclose(jax.jit(run)(values)["dx"], expected, rtol=1e-4, atol=1e-4)


def test_a_view_among_zeros_is_a_dilated_one():
    def build(graph, g, w):
        spread = g.expand(3).expand(5).pad(((0, 0), (0, 0), (0, 0), (0, 2), (0, 0), (0, 1))).reshape(2, 3, 12, 8)
        around = spread.pad(((0, 0), (0, 0), (1, 2), (0, 1)))
        n, o, i, j = cl.grid(2, 5, 12, 7)
        return graph.add_vertex("convolve", inner, g=around[n, :, i + 1 : i + 4, j : j + 3], w=w[o])

    g, w = normal(2, 3, 4, 4), normal(5, 3, 3, 3)
    lowered = cl.lower(build)
    assert dilations(lowered.at(g, w)) == [(3, 2)]

    def plain(g, w):
        spread = lax.pad(g, 0.0, [(0, 0, 0), (0, 0, 0), (0, 4, 2), (0, 2, 1)])
        return lax.conv_general_dilated(spread, w, (1, 1), "VALID")

    (value, slopes), (expected, others) = at_once(with_slopes(lowered), with_slopes(plain))(g, w)
    assert value.shape == expected.shape
    for made, other in zip((value, *slopes), (expected, *others), strict=True):
        np.testing.assert_allclose(made, other, rtol=1e-3, atol=1e-4)


@examples(6)
@given(st.data())
def test_phases_mean_what_their_vertices_mean(data):
    draw = data.draw
    rank, stride, dilation = draw(st.integers(1, 2)), draw(st.integers(2, 4)), draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 4))] * rank
    low = draw(st.integers(0, dilation * (sizes[0] - 1)))
    sides = tuple(draw(st.integers(max(1, dilation * (sizes[0] - 1) + 1 - low), 9)) for _ in range(rank))
    outs = [(side + low - dilation * (sizes[0] - 1) - 1) // stride + 1 for side in sides]
    images, filters, channels = (draw(st.integers(1, 2)) for _ in range(3))
    graph = cl.Graph()
    g = graph.add_variable("g", (images, filters, *outs))
    w = graph.add_variable("w", (filters, channels, *sizes))
    wrong = draw(st.sampled_from(["", "", "window", "order"]))
    made = transposed(graph, g, w, sides=sides, stride=stride, low=low, dilation=dilation, wrong=wrong)
    values = {"g": normal(*g.shape), "w": normal(*w.shape)}
    result = jax.jit(cl.lower(graph, inputs=[g, w], outputs=[made]))(values)["dx"]
    np.testing.assert_allclose(result, cl.interpret(graph, values=values, outputs=[made])["dx"], rtol=1e-4, atol=1e-4)
