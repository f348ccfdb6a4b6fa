"""A transformer block (Vaswani and others, 2017; normalization first), written as functions of a graph.

Run it with `python -m tutorials.programs.transformer`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


@cl.codelet
def normalize(x, scale):
    """A token's features, with mean 0 and variance 1, then scaled."""
    centred = x - jnp.mean(x)
    return scale * centred * jax.lax.rsqrt(jnp.mean(centred**2) + 1e-5)


@cl.codelet
def dot(x, w):
    """One feature of one token."""
    return jnp.dot(x, w)


@cl.codelet
def attend(q, k, v):
    """What one token of one head hears: all tokens' values, weighted by how well their keys fit its query."""
    return jax.nn.softmax(k @ q / np.sqrt(q.size)) @ v


@cl.codelet
def add(x, y):
    """The residual connection."""
    return x + y


@cl.codelet
def gelu(x):
    """The activation."""
    return jax.nn.gelu(x)


def dense(graph, name, x, w):
    """A vertex for each token and feature."""
    token, feature = cl.grid(x.shape[0], w.shape[1])
    return graph.add_vertex(name, dot, x=x[token], w=w[:, feature])


def everywhere(graph, name, codelet, *tensors):
    """A vertex for each element."""
    i, j = cl.grid(*tensors[0].shape)
    fields = dict(zip(codelet.inputs, (tensor[i, j] for tensor in tensors), strict=True))
    return graph.add_vertex(name, codelet, **fields)


def block(graph, x, weights, *, heads):
    """Attention, then two dense layers, each on normalized tokens and added to what came in."""
    tokens, features = x.shape
    token = cl.grid(tokens)
    normal = graph.add_vertex("normalize", normalize, x=x[token], scale=weights["scale"])
    q, k, v = (dense(graph, name, normal, weights[name]).reshape(tokens, heads, -1) for name in "qkv")
    head, token = cl.grid(heads, tokens)
    heard = graph.add_vertex("attend", attend, q=q[token, head], k=k[:, head], v=v[:, head])
    mixed = dense(graph, "mix", heard.transpose(1, 0, 2).reshape(tokens, features), weights["mix"])
    x = everywhere(graph, "add attention", add, x, mixed)
    token = cl.grid(tokens)
    normal = graph.add_vertex("normalize again", normalize, x=x[token], scale=weights["scale_2"])
    wide = everywhere(graph, "gelu", gelu, dense(graph, "widen", normal, weights["widen"]))
    return everywhere(graph, "add dense", add, x, dense(graph, "narrow", wide, weights["narrow"]))


def plain_block(x: jax.Array, weights: dict[str, jax.Array], heads: int) -> jax.Array:
    """The same on whole arrays."""

    def normal(x: jax.Array, scale: jax.Array) -> jax.Array:
        centred = x - x.mean(1, keepdims=True)
        return scale * centred * jax.lax.rsqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    tokens, features = x.shape
    calm = normal(x, weights["scale"])
    q, k, v = ((calm @ weights[name]).reshape(tokens, heads, -1) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", q, k) / np.sqrt(features // heads))
    x = x + jnp.einsum("hij,jhd->ihd", scores, v).reshape(tokens, features) @ weights["mix"]
    return x + jax.nn.gelu(normal(x, weights["scale_2"]) @ weights["widen"]) @ weights["narrow"]


layer = cl.lower(block)


def example(tokens: int, features: int, random: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Tokens, and weights by name."""
    draw = lambda *shape: random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))  # noqa: E731
    weights = {name: draw(features, features) for name in ("q", "k", "v", "mix")}
    weights |= {"widen": draw(features, 4 * features), "narrow": draw(4 * features, features)}
    weights |= {name: np.ones(features, np.float32) for name in ("scale", "scale_2")}
    return random.standard_normal((tokens, features), np.float32), weights


def twin(tokens: int = 256, features: int = 256, heads: int = 8) -> Comparison:
    """Both sides: the sum of the squares of what comes out, and its gradients by the tokens and the weights."""

    def differentiated(function):
        return jax.jit(jax.value_and_grad(lambda x, weights: jnp.sum(function(x, weights, heads=heads) ** 2), (0, 1)))

    return Comparison(
        "transformer",
        ours=differentiated(layer),
        plain=differentiated(plain_block),
        arguments=lambda random: example(tokens, features, random),
        tolerance=1e-4,
    )


if __name__ == "__main__":
    show(twin(), layer.at(*example(256, 256, np.random.default_rng(0)), heads=8).graph)
