"""Attention as operations: beside `jax.nn.dot_product_attention` and Equinox's heads, their gradients, mistakes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.ops_cases import TARGET, Case, array, check

CASES = {
    "heads": ((2, 5, 3, 4), (2, 5, 3, 4), None, None, {}),
    "other keys": ((1, 3, 2, 4), (1, 7, 2, 4), None, None, {"scale": 0.7}),
    "causal": ((2, 5, 2, 3), (2, 5, 2, 3), None, None, {"is_causal": True}),
    "bias and mask": ((2, 5, 2, 3), (2, 4, 2, 3), (1, 2, 5, 4), (2, 1, 1, 4), {}),
    "all": ((2, 3, 4, 3), (2, 4, 2, 3), (2, 4, 3, 4), (1, 1, 3, 4), {"is_causal": True}),
    "groups": ((1, 3, 6, 2), (1, 4, 2, 2), None, None, {}),
    "one for all": ((5, 4, 3), (5, 1, 3), None, (1, 5, 5), {}),
    "one": ((1, 1, 1, 1), (1, 1, 1, 1), None, None, {}),
}


def operands(name, dtype=jnp.float32):
    queries, keys, bias, mask, options = CASES[name]
    given = [array(queries, dtype), array(keys, dtype, 1), array(keys, dtype, 2)]
    given += [array(bias, jnp.float32, 3)] if bias else []
    given += [array(mask, jnp.bool_, 4)] if mask else []
    return given, bias is not None, mask is not None, options


def compare(name, dtype, tolerance, **ways):
    """See that an attention and its gradient are those of JAX."""
    given, has_bias, has_mask, options = operands(name, dtype)

    def apart(others):
        left = list(others)
        return left.pop(0) if has_bias else None, left.pop(0) if has_mask else None

    def ours(graph, g, query, key, value, *others):
        own = (query, key, value, *apart(others))
        slopes = cl.ops.dot_product_attention_gradient(graph, g, *own, **options)
        return cl.ops.dot_product_attention(graph, *own, **options), slopes[: 3 + has_bias]

    def plain(g, query, key, value, *others):
        bias, mask = apart(others)
        smooth = (query, key, value, *([bias] if has_bias else []))

        def run(query, key, value, bias=None):
            if dtype == jnp.float16:  # in which it does not run on a CPU
                query, key, value = (own.astype(jnp.float32) for own in (query, key, value))
            return jax.nn.dot_product_attention(query, key, value, bias, mask, **options).astype(dtype)

        return run(*smooth), jax.vjp(run, *smooth)[1](g)

    case = Case(ours, plain, (array(given[0].shape, dtype, 5), *given), tolerance, slopes=False)
    check(case, **ways)


@pytest.mark.parametrize("name", CASES)
def test_beside_jax(name):
    alone = name == "one for all"
    compare(name, jnp.float32, 1e-5, interpreted=alone, on_tiles=alone)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=lambda dtype: dtype.__name__)
def test_dtypes(dtype):
    compare("heads", dtype, 2e-2)


def test_slopes_by_jax_itself():
    given, *_ = operands("all")
    check(
        Case(
            lambda graph, *own: cl.ops.dot_product_attention(graph, *own, is_causal=True, grain=6),
            lambda *own: jax.nn.dot_product_attention(*own, is_causal=True),
            tuple(given),
        )
    )


# --- mistakes ---------------------------------------------------------------------------------------------

SIZES = {"q": (2, 3, 4, 5), "k": (2, 6, 2, 5), "odd": (2, 6, 3, 5), "other": (2, 6, 4), "b": (4, 3, 5)}

MISTAKES = {
    "operands of ops.dot_product_attention do not fit": lambda own, q, k, odd, other, b: own(q, odd, odd),
    "do not fit each other": lambda own, q, k, odd, other, b: own(q, k, other),
    "mask of ops.dot_product_attention is not of truth": lambda own, q, k, odd, other, b: own(q, k, k, None, b),
    "bias of ops.dot_product_attention does not broadcast": lambda own, q, k, odd, other, b: own(q, k, k, b),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_mistakes(told):
    graph = cl.Graph(TARGET)
    tensors = {name: graph.add_variable(name, shape) for name, shape in SIZES.items()}
    with pytest.raises(OperationError, match=told) as caught:
        MISTAKES[told](lambda *own: cl.ops.dot_product_attention(graph, *own), **tensors)
    assert caught.value.line is not None
    assert not graph.num_vertices


def test_a_cotangent_of_another_shape():
    graph = cl.Graph(TARGET)
    q, k = graph.add_variable("q", SIZES["q"]), graph.add_variable("k", SIZES["k"])
    with pytest.raises(OperationError, match="is not as the result"):
        cl.ops.dot_product_attention_gradient(graph, k, q, k, k)
