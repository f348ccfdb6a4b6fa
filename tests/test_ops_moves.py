"""Arrays end to end, padded and reversed: values, slopes, mistakes."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import codelet as cl
from codelet.errors import CodeletError, OperationError
from tests.examples import few
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


@few("name", CONFIGS)
def test_pad(name):
    shape, config = CONFIGS[name]

    def build(graph, x, v):
        ops = cl.ops
        padded = ops.pad(graph, x, 1.5, config), ops.pad(graph, x, v, config)
        return [_doubled(graph, own) for own in padded], padded[0]

    def plain(x, v):
        padded = lax.pad(x, 1.5, config), lax.pad(x, v, config)
        return [2 * own for own in padded], padded[0]

    x, v = array(shape), jnp.array(0.5)
    check(Case(build, plain, (x, v)), interpreted=True, on_tiles=name == "between")
    g = array(jax.eval_shape(lambda x: lax.pad(x, 0.0, config), x).shape, seed=1)

    def gradient(graph, g, x, v):
        slopes = cl.ops.pad_gradient(graph, g, x, v, config)
        assert cl.ops.pad_gradient(graph, g, x, 0, config)[1] is None
        return slopes

    pulled = lambda g, x, v: jax.vjp(lambda x, v: lax.pad(x, v, config), x, v)[1](g)  # noqa: E731
    check(Case(gradient, pulled, (g, x, v), slopes=False))


@few("axis", [0, 1, None], every=2)
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
    cl.ops.pad(graph, cl.ops.reverse(graph, cl.ops.concatenate(graph, [x, x])), 0, [(1, -2, 3), (1, 1, 1)])
    assert graph.num_vertices == 0


MISTAKES = {
    "shapes": ("differ in dimension 0 alone", lambda ops, g, x, v: ops.concatenate(g, [x, x[:, :2]])),
    "nothing": ("a list of tensors", lambda ops, g, x, v: ops.concatenate(g, [])),
    "axis": ("axis of ops.concatenate", lambda ops, g, x, v: ops.concatenate(g, [x, x], 2)),
    "cotangent": ("not of its result's shape", lambda ops, g, x, v: ops.concatenate_gradient(g, x, [x, x])),
    "value": ("not one float32", lambda ops, g, x, v: ops.pad(g, x, x, [(0, 1, 0)] * 2)),
    "dtype": ("not one int32", lambda ops, g, x, v: ops.pad(g, v, 0.5, [])),
    "widths": (r"padding_config.*\(3, 4\)", lambda ops, g, x, v: ops.pad(g, x, 0, [(0, 1, 0)])),
    "between": ("between from 0", lambda ops, g, x, v: ops.pad(g, x, 0, [(0, 1, -1)] * 2)),
    "nothing left": ("something is left", lambda ops, g, x, v: ops.pad(g, x, 0, [(-2, -2, 0), (0, 0, 0)])),
    "padded": ("not of its result's shape", lambda ops, g, x, v: ops.pad_gradient(g, x, x, 0, [(0, 1, 0)] * 2)),
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
