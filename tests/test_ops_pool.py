"""Pooling as operations, and its gradients as operations: values, slopes, ties, what is told of mistakes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from codelet.errors import CodeletError
from tests.examples import few
from tests.ops_cases import Case, array, check


def sizes(shape, window, strides=None, padding: Any = "VALID", axis=None):
    return shape, window, strides, padding, axis


CASES = {
    "three by two": sizes((2, 7, 6, 2), (3, 3), (2, 2)),
    "padded": sizes((1, 2, 6, 5), (3, 2), (2, 1), ((1, 1), (0, 1)), (2, 3)),
    "windows apart": sizes((2, 7, 2), (2,), (3,)),
    "three dimensions": sizes((1, 3, 4, 3, 2), (2, 3, 2), None, "SAME"),
    "all": sizes((2, 4, 3, 2), (4, 5), (1, 1), ((0, 0), (1, 1))),
    "of one": sizes((1, 4, 1), (1,)),
    "nothing": sizes((1, 2, 3), (3,)),
}


def arguments_of(name):
    shape, window, strides, padding, axes = CASES[name]
    own = tuple(range(1, len(shape) - 1)) if axes is None else axes
    every, moved, pads = [1] * len(shape), [1] * len(shape), [(0, 0)] * len(shape)
    given = padding
    if isinstance(padding, str):
        given = lax.padtype_to_pads([shape[d] for d in own], window, strides or (1,) * len(own), padding)
    for d, k, s, pair in zip(own, window, strides or (1,) * len(own), given, strict=True):
        every[d], moved[d], pads[d] = k, s, pair
    return (window, strides, padding), {"axis": axes}, (tuple(every), tuple(moved), tuple(pads))


def largest(x, windows):
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else np.iinfo(x.dtype).min
    return lax.reduce_window(x, np.asarray(least, x.dtype)[()], lax.max, *windows)


def mean(x, windows, include):
    zero = np.zeros((), x.dtype)[()]
    counts = lax.reduce_window(np.ones(x.shape, x.dtype), zero, lax.add, *windows)
    return lax.reduce_window(x, zero, lax.add, *windows) / (np.prod(windows[0]) if include else counts)


def case_of(name, grain=None, dtype=jnp.float32, high=2):
    """All poolings and their gradients, of small integers so that there are ties."""
    given, options, windows = arguments_of(name)
    shape = CASES[name][0]
    x = jnp.round(array(shape, dtype, high=high))
    results = jax.eval_shape(lambda x: largest(x, windows), x).shape

    def build(graph, x, g):
        own = {"grain": grain, **options}
        found = [cl.ops.max_pool(graph, x, *given, **own), cl.ops.max_pool_gradient(graph, g, x, *given, **own)]
        for include in (True, False):
            found.append(cl.ops.avg_pool(graph, x, *given, count_include_pad=include, **own))
            found.append(cl.ops.avg_pool_gradient(graph, g, x.shape, *given, count_include_pad=include, **own))
        return found

    def plain(x, g):
        ways = [lambda x: largest(x, windows), lambda x: mean(x, windows, True), lambda x: mean(x, windows, False)]
        found = []
        for way in ways:
            value, pull = jax.vjp(way, x)
            found += [value, *pull(g)]
        return found

    return Case(build, plain, (x, array(results, dtype, seed=1)), slopes=False)


@few("name", CASES, quick=["windows apart", "of one", "nothing"])
def test_poolings_and_their_gradients(name):
    check(case_of(name), interpreted=name == "padded", on_tiles=name == "padded")


@few("grain", [7, 1], quick=["1"])
def test_grains(grain):
    check(case_of("padded", grain), interpreted=grain == 7)


@few("grain", [None, 1], quick=["1"])
def test_slopes_go_to_the_first_of_equal_elements(grain):
    given, options, windows = arguments_of("three by two")
    case = Case(
        lambda graph, x: (
            cl.ops.max_pool(graph, x, *given, grain=grain, **options),
            cl.ops.avg_pool(graph, x, *given, grain=grain, **options),
        ),
        lambda x: (largest(x, windows), mean(x, windows, True)),
        (jnp.round(array(CASES["three by two"][0], high=1, low=-1)),),
    )
    check(case)


@few("dtype", [jnp.float16, jnp.bfloat16], quick=["float16"])
def test_dtypes(dtype):
    check(case_of("windows apart", dtype=dtype))


def test_whole_numbers_and_what_is_none():
    windows = ((1, 3, 1), (1, 2, 1), ((0, 0), (1, 1), (0, 0)))
    build = lambda graph, x: cl.ops.max_pool(graph, x, (3,), (2,), ((1, 1),))  # noqa: E731
    check(Case(build, lambda x: largest(x, windows), (array((2, 9, 2), jnp.int32),)))
    x = array((2, 9, 2)).at[0, 3, 0].set(jnp.nan).at[1, 5, 1].set(-jnp.inf).at[1, 0].set(jnp.inf)
    check(Case(build, lambda x: largest(x, windows), (x,), slopes=False))


@pytest.mark.parametrize("target", [cl.IPU("mk2"), cl.IPU(num_tiles=32)], ids=["mk2", "32 tiles"])
def test_cycles_are_as_planned(target):
    graph = cl.Graph(target)
    x = graph.add_variable("x", (1, 16, 27, 27))
    plan = cl.ops.plan_max_pool(graph, x, (3, 3), (2, 2), axis=(2, 3))
    cl.ops.max_pool(graph, x, (3, 3), (2, 2), axis=(2, 3))
    assert plan.total_cycles == pytest.approx(cl.Engine(graph).profile().total_cycles, rel=0.1)


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "sizes": ((3, 3, 3), {}, "window_shape of ops.max_pool has not a size for each"),
    "a size": ((3, 0), {}, "window_shape of ops.max_pool does not fit"),
    "strides": ((3, 3), {"strides": (1,)}, "strides of ops.max_pool does not fit"),
    "axis": ((3, 3), {"axis": (1, 1)}, "axis of ops.max_pool does not fit"),
    "an axis": ((3, 3), {"axis": (1, 4)}, "an axis that there is not"),
    "padding": ((3, 3), {"padding": ((1, 1),)}, "padding of ops.max_pool does not fit"),
    "padding that cuts": ((3, 3), {"padding": ((-1, 1), (0, 0))}, "cuts elements off"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    window, options, told = MISTAKES[name]
    graph = cl.Graph()
    x = graph.add_variable("x", (1, 5, 5, 2))
    with pytest.raises(CodeletError) as caught:
        cl.ops.max_pool(graph, x, window, **options)
    assert told in str(caught.value)
    assert "expected:" in str(caught.value)
    assert __file__ in str(caught.value)
    assert not graph.num_vertices
