"""Arrays end to end, padded and reversed: values, slopes, mistakes."""

from __future__ import annotations

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from benchmarks.traced_steps import lowered_vertices
from codelet.errors import CodeletError, OperationError
from codelet.jaxprs.rebuild import inline
from tests.examples import examples, few
from tests.ops_cases import TARGET, Case, array, check

CONFIGS = {
    "both ends": ((3, 4), [(1, 2, 0), (0, 3, 0)]),
    "cut off": ((5, 4), [(-1, 2, 0), (3, -2, 0)]),
    "between": ((3, 4), [(1, 0, 2), (0, 0, 1)]),
    "all of it": ((4, 3), [(-2, -1, 1), (2, -3, 3)]),
    "one": ((1,), [(2, 1, 5)]),
    "nothing": ((0, 2), [(1, 2, 3), (0, 0, 1)]),
    "beyond": ((2,), [(-4, 5, 0)]),
}


def _doubled(graph, x):
    return cl.ops.map(graph, lambda x: 2 * x, x)


@few("name", CONFIGS, quick=["both ends", "one", "nothing", "beyond"])
def test_pad(name):
    shape, config = CONFIGS[name]

    def build(graph, x, v):
        ops = cl.ops
        padded = ops.lax_pad(graph, x, 1.5, config), ops.lax_pad(graph, x, v, config)
        return [_doubled(graph, own) for own in padded], padded[0]

    def plain(x, v):
        padded = lax.pad(x, 1.5, config), lax.pad(x, v, config)
        return [2 * own for own in padded], padded[0]

    x, v = array(shape), jnp.array(0.5)
    check(Case(build, plain, (x, v)), interpreted=True, on_tiles=name == "between")
    g = array(jax.eval_shape(lambda x: lax.pad(x, 0.0, config), x).shape, seed=1)

    def gradient(graph, g, x, v):
        slopes = cl.ops.lax_pad_gradient(graph, g, x, v, config)
        assert cl.ops.lax_pad_gradient(graph, g, x, 0, config)[1] is None
        return slopes

    pulled = lambda g, x, v: jax.vjp(lambda x, v: lax.pad(x, v, config), x, v)[1](g)  # noqa: E731
    check(Case(gradient, pulled, (g, x, v), slopes=False))


@st.composite
def chains(draw):
    """The shape of an array, and what is done to it in a row: pads, and what else leaves elements apart."""
    shape = own = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    done = []
    for name in draw(
        st.lists(st.sampled_from(["pad", "pad", "turn", "back", "thin", "twice"]), min_size=1, max_size=4)
    ):
        d = draw(st.integers(0, len(own) - 1))
        config = [(draw(st.integers(-2, 3)), draw(st.integers(-2, 3)), draw(st.integers(0, 2))) for _ in own]
        value = draw(st.sampled_from([0.0, 1.5]))
        step = {
            "pad": lambda ops, x, config=config, value=value: ops.lax_pad(x, value, config),
            "turn": lambda ops, x: x.transpose(tuple(range(x.ndim))[::-1]),
            "back": lambda ops, x, d=d: ops.reverse(x, d),
            "thin": lambda ops, x, d=d: x[(slice(None),) * d + (slice(None, None, 2),)],
            "twice": lambda ops, x, d=d: ops.concatenate([x, x], d),
        }[name]
        try:
            after = jax.eval_shape(lambda x, step=step: step(_Plain, x), jax.ShapeDtypeStruct(own, jnp.float32)).shape
        except (TypeError, ValueError):  # pads that leave less than nothing
            continue
        if 0 < math.prod(after) < 400:
            own = after
            done.append(step)
    return shape, done


class _Plain:
    """Moves of arrays, by JAX."""

    lax_pad = staticmethod(lambda x, value, config: lax.pad(x, jnp.asarray(value, x.dtype), config))
    reverse = staticmethod(lambda x, d: lax.rev(x, (d,)))
    concatenate = staticmethod(lax.concatenate)


class _Moves:
    """The same moves, of tensors of a graph."""

    def __init__(self, graph):
        self.lax_pad, self.reverse, self.concatenate = (
            functools.partial(own, graph) for own in (cl.ops.lax_pad, cl.ops.reverse, cl.ops.concatenate)
        )


@examples(3)
@given(st.lists(chains(), min_size=12, max_size=12))
def test_moves_in_a_row(drawn):
    def moved(ops, arrays):
        return [
            functools.reduce(lambda x, step: step(ops, x), done, x) for x, (_, done) in zip(arrays, drawn, strict=True)
        ]

    def build(graph, *arrays):
        return [_doubled(graph, x) for x in moved(_Moves(graph), arrays)]

    arrays = tuple(array(shape, seed=k) for k, (shape, _) in enumerate(drawn))
    case = Case(build, lambda *arrays: [2 * x for x in moved(_Plain, arrays)], arrays)
    check(case, interpreted=True)


@few("config", [(0, 1, 1), (1, 0, 1), (0, 0, 1), (1, 1, 1), (2, -1, 2), (-1, 1, 3)], quick=["(0, 1, 1)"])
def test_what_is_between_elements_is_padded_at_once(config):
    """Of a hundred elements, which were not at the ends of a row of themselves and as many others."""

    def function(x):
        return lax.pad(jnp.concatenate([x[:1], 2 * x[1:]]), 0.0, [config]) * 3

    x = array((100,))
    run = cl.trace(function, x)
    for made in (run.lowered, lowered_vertices(run)):
        assert len(inline(made.jaxpr).jaxpr.eqns) < 20
    np.testing.assert_allclose(jax.jit(run)(x), function(x), rtol=1e-6)


@few("axis", [0, 1, None], quick=["1", "None"])
def test_concatenate(axis):
    extents = (2, 3, 1) if axis != 1 else (3, 3, 3)
    dtypes = jnp.float32, jnp.int32, jnp.float16
    parts = [array((n, 4), dtype, seed=k) for k, (n, dtype) in enumerate(zip(extents, dtypes, strict=True))]

    def build(graph, *parts):
        return cl.ops.concatenate(graph, parts, axis), cl.ops.concatenate(graph, (parts[0], parts[0]), axis)

    def plain(*parts):
        return jnp.concatenate(parts, axis), jnp.concatenate((parts[0], parts[0]), axis)

    check(Case(build, plain, tuple(parts)), interpreted=True, on_tiles=axis == 0)
    g = array(plain(*parts)[0].shape, seed=7)
    gradient = lambda graph, g, *parts: cl.ops.concatenate_gradient(graph, g, parts, axis)  # noqa: E731

    def pulled(g, *parts):
        joined = lambda first, last: jnp.concatenate((first, parts[1], last), axis)  # noqa: E731
        first, last = jax.vjp(joined, parts[0], parts[2])[1](g)
        return first, None, last

    check(Case(gradient, pulled, (g, *parts), slopes=False))


def test_reverse():
    axes = None, 0, (0, -1), ()
    build = lambda graph, x: [_doubled(graph, cl.ops.reverse(graph, x, axis)) for axis in axes]  # noqa: E731
    check(Case(build, lambda x: [2 * jnp.flip(x, axis) for axis in axes], (array((3, 4, 2)),)), on_tiles=True)


def test_moves_take_no_vertex():
    graph = cl.Graph(TARGET)
    x = graph.add_variable("x", (3, 4))
    cl.ops.lax_pad(graph, cl.ops.reverse(graph, cl.ops.concatenate(graph, [x, x])), 0, [(1, -2, 3), (1, 1, 1)])
    assert graph.num_vertices == 0


MISTAKES = {
    "shapes": ("differ in dimension 0 alone", lambda ops, g, x, v: ops.concatenate(g, [x, x[:, :2]])),
    "nothing": ("a list of tensors", lambda ops, g, x, v: ops.concatenate(g, [])),
    "axis": ("axis of ops.concatenate", lambda ops, g, x, v: ops.concatenate(g, [x, x], 2)),
    "cotangent": ("not of its result's shape", lambda ops, g, x, v: ops.concatenate_gradient(g, x, [x, x])),
    "value": ("not one float32", lambda ops, g, x, v: ops.lax_pad(g, x, x, [(0, 1, 0)] * 2)),
    "dtype": ("not one int32", lambda ops, g, x, v: ops.lax_pad(g, v, 0.5, [])),
    "widths": (r"padding_config.*\(3, 4\)", lambda ops, g, x, v: ops.lax_pad(g, x, 0, [(0, 1, 0)])),
    "between": ("between from 0", lambda ops, g, x, v: ops.lax_pad(g, x, 0, [(0, 1, -1)] * 2)),
    "nothing left": ("something is left", lambda ops, g, x, v: ops.lax_pad(g, x, 0, [(-2, -2, 0), (0, 0, 0)])),
    "padded": ("not of its result's shape", lambda ops, g, x, v: ops.lax_pad_gradient(g, x, x, 0, [(0, 1, 0)] * 2)),
    "reversed": ("axis of ops.reverse", lambda ops, g, x, v: ops.reverse(g, x, 5)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    text, make = MISTAKES[name]
    graph = cl.Graph(TARGET)
    x, v = graph.add_variable("x", (3, 4)), graph.add_variable("v", (), jnp.int32)
    with pytest.raises(CodeletError) as caught:
        make(cl.ops, graph, x, v)
    assert caught.type is OperationError
    assert re.search(text, str(caught.value), re.DOTALL), caught.value
