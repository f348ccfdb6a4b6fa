"""Keyword arguments of traced functions, which are called as the functions are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl

X = jnp.arange(4.0)


def affine(x: Any, scale: Any = 1.0, *, shift: Any = 0.0) -> Any:
    return x * scale + shift


def test_keywords_are_traced_and_given_as_such():
    traced = cl.trace(affine, X, kwargs={"scale": 2.0, "shift": jnp.ones(4)})
    np.testing.assert_array_equal(traced(X, scale=3.0, shift=X), affine(X, scale=3.0, shift=X))
    np.testing.assert_array_equal(jax.jit(traced)(X, shift=X, scale=3.0), affine(X, 3.0, shift=X))
    assert [own.name for own in traced.flat_inputs] == ["x", "scale", "shift"]
    assert traced.inputs[1].keys() == {"scale", "shift"}
    assert set(traced.arrays(X, scale=1.0, shift=X)) == set(traced.flat_inputs)


def test_an_argument_is_one_by_position_or_by_keyword():
    """As of the function itself, whichever way it was traced."""
    by_keyword, by_position = cl.trace(affine, X, kwargs={"scale": 2.0}), cl.trace(affine, X, 2.0)
    for traced in (by_keyword, by_position):
        for result in (traced(X, 3.0), traced(X, scale=3.0), traced(x=X, scale=3.0), traced(X, 3.0, shift=0.0)):
            np.testing.assert_array_equal(result, 3 * X)
        np.testing.assert_array_equal(traced(X), X)  # by its default


def test_slopes_go_by_keyword():
    traced = cl.trace(affine, X, kwargs={"scale": 2.0})
    slope = jax.grad(lambda scale, run: jnp.sum(run(X, scale=scale) ** 2))
    np.testing.assert_allclose(slope(3.0, traced), slope(3.0, affine), rtol=1e-6)


def test_options_of_the_trace_stay_apart():
    def machine(target, *, grain, kwargs):
        return target + grain["own"] * kwargs

    kwargs = {"grain": {"own": 3.0}, "kwargs": X}
    traced = cl.trace(machine, X, kwargs=kwargs, target=cl.IPU(num_tiles=4), grain=2)
    np.testing.assert_array_equal(traced(X, **kwargs), machine(X, **kwargs))
    assert [own.name for own in traced.flat_inputs] == ["target", "grain/own", "kwargs"]
    assert traced.graph.target.num_tiles == 4


def test_functions_that_take_any_arguments():
    def anything(*values, **named):
        return sum(values) + sum(named.values())

    traced = cl.trace(anything, X, X, kwargs={"a": 1.0, "b": 2.0})
    np.testing.assert_array_equal(traced(X, 2 * X, b=2.0, a=3.0), 3 * X + 5)


def test_static_keywords_are_as_they_were_traced():
    def reduce(x, *, how):
        return getattr(jnp, how)(x)

    traced = cl.trace(reduce, X, kwargs={"how": "max"})
    assert traced(X, how="max") == 3.0
    with pytest.raises(cl.ArrayError, match="static value") as caught:
        traced(X, how="min")
    assert "how: " in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "kwargs", "text"),
    [
        ((X,), {"shift": 1.0}, "that it was traced without.*given:    shift=1.0.*its default, 0.0"),
        ((X,), {"scale": X}, "of another type.*scale: float32\\[4\\]"),
        ((X,), {"other": 1.0}, "of another structure"),
        ((), {}, "of another structure"),
    ],
)
def test_wrong_keywords_are_told(arguments, kwargs, text):
    traced = cl.trace(affine, X, kwargs={"scale": 2.0})
    with pytest.raises(cl.ArrayError, match=f"(?s){text}"):
        traced(*arguments, **kwargs)


@pytest.mark.parametrize("kwargs", [3, [("scale", 1.0)], {1: 2.0}])
def test_kwargs_are_a_mapping_by_name(kwargs):
    with pytest.raises(cl.TraceError, match=r"(?s)no mapping by name.*scale"):
        cl.trace(affine, X, kwargs=kwargs)
