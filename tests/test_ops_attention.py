"""Attention as operations: beside `jax.nn.dot_product_attention` and Equinox's heads, their gradients, mistakes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
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


@few("name", CASES, quick=["bias and mask", "one"])
def test_beside_jax(name):
    alone = name == "one for all"
    compare(name, jnp.float32, 1e-5, interpreted=alone, on_tiles=alone)


@few("dtype", [jnp.float16, jnp.bfloat16], quick=["float16"])
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
    "mask of ops.dot_product_attention is not of booleans": lambda own, q, k, odd, other, b: own(q, k, k, None, b),
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


# --- with projections -------------------------------------------------------------------------------------


@few("batch, use_bias", [(None, True), (2, False)], quick=["2, False"])
def test_many_heads(batch, use_bias):
    biases = {f"use_{name}_bias": use_bias for name in ("query", "value", "output")}  # that by the key's is zero
    layer = eqx.nn.MultiheadAttention(2, 6, output_size=5, **biases, key=jax.random.key(0))
    layers = lambda own: [own.query_proj, own.key_proj, own.value_proj, own.output_proj]  # noqa: E731
    weights = [own.weight for own in layers(layer)]
    shifts = [own.bias for own in layers(layer) if own.bias is not None]

    def ours(graph, g, x, y, *own):
        q, v, o = own[4:] or [None] * 3
        given = (x, y, y, own[:4], [q, None, v, o])
        out = cl.ops.multi_head_attention(graph, *given, num_heads=2)
        (by_x, by_key, by_value), by_weights, by_biases = cl.ops.multi_head_attention_gradient(
            graph, g, *given, num_heads=2
        )
        return (
            out,
            by_x,
            cl.ops.map(graph, jnp.add, by_key, by_value),
            by_weights,
            tuple(own for own in by_biases if own is not None),
        )

    def plain(g, x, y, *own):
        def run(x, y, weights, biases):
            made = eqx.tree_at(lambda layer: [p.weight for p in layers(layer)], layer, list(weights))
            if use_bias:
                made = eqx.tree_at(
                    lambda layer: [p.bias for p in layers(layer) if p.bias is not None], made, list(biases)
                )
            return made(x, y, y) if batch is None else jax.vmap(made)(x, y, y)

        out, pull = jax.vjp(run, x, y, own[:4], own[4:])
        return out, *pull(g)

    lead = () if batch is None else (batch,)
    arguments = (array((*lead, 3, 5)), array((*lead, 3, 6), seed=1), array((*lead, 4, 6), seed=2), *weights, *shifts)
    check(Case(ours, plain, arguments, slopes=False))


def test_projections_that_do_not_fit():
    graph = cl.Graph(TARGET)
    x, w, u = (graph.add_variable(name, shape) for name, shape in {"x": (3, 6), "w": (4, 6), "u": (5, 5)}.items())
    for told, weights, heads in (
        ("projection of key of ops.multi_head_attention does not fit", [w, u, w, w], 2),
        ("heads of ops.multi_head_attention are not of one size", [w, w, w, w], 2),
        ("is not given four weights", [w, w, w], 2),
    ):
        with pytest.raises(OperationError, match=told):
            cl.ops.multi_head_attention(graph, x, x, x, weights, num_heads=heads)
    assert not graph.num_vertices
