"""GPT-2 small written in JAX and traced: what its training step takes to trace, to profile and to run.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): layers of causal attention and of a
perceptron with layer norms before them, embeddings that are the last product's weights too, no dropout. A step is
descent with momentum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process, peak_bytes
from benchmarks.harness import Comparison, Measurement, Row, benchmark

TRACE_LIMIT, PROFILE_LIMIT, LIMIT_GIB = 30.0, 240.0, 8.0
"""Seconds to trace and to profile a step, and what the process may hold."""

TOLERANCE = {"float32": 1e-4, "float16": 0.05}
"""As in `Comparison`; of float16, sums of thousands of slopes in another order."""

CHIPS = {"float32": 10, "float16": 6}
"""How many a step needs in each dtype."""

RATE, MOMENTUM = 1e-3, 0.9

Parameters = dict[str, Any]


class Size(NamedTuple):
    """How large a model is."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_257
    tokens: int = 128


SMALL = Size()


def init_parameters(size: Size, dtype: str, key: jax.Array) -> Parameters:
    """Arrays, drawn as GPT-2's are."""
    keys = iter(jax.random.split(key, 2 + 4 * size.layers))

    def draw(*shape: int, deviation: float = 0.02) -> jax.Array:
        return (deviation * jax.random.normal(next(keys), shape)).astype(dtype)

    def norm() -> Parameters:
        return {"scale": jnp.ones(size.width, dtype), "bias": jnp.zeros(size.width, dtype)}

    def dense(inputs: int, outputs: int, deviation: float = 0.02) -> Parameters:
        return {"w": draw(inputs, outputs, deviation=deviation), "b": jnp.zeros(outputs, dtype)}

    def layer() -> Parameters:
        deep = 0.02 / math.sqrt(2 * size.layers)
        return {
            "before attention": norm(),
            "to heads": dense(size.width, 3 * size.width),
            "from heads": dense(size.width, size.width, deep),
            "before perceptron": norm(),
            "in": dense(size.width, 4 * size.width),
            "out": dense(4 * size.width, size.width, deep),
        }

    return {
        "tokens": draw(size.vocabulary, size.width),
        "positions": draw(size.tokens, size.width),
        "layers": [layer() for _ in range(size.layers)],
        "last": norm(),
    }


def _dense(x: jax.Array, own: Parameters) -> jax.Array:
    return x @ own["w"] + own["b"]


def _norm(x: jax.Array, own: Parameters) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * own["scale"] + own["bias"]


def _attention(x: jax.Array, own: Parameters, heads: int) -> jax.Array:
    tokens, width = x.shape
    query, key, value = (part.reshape(tokens, heads, -1) for part in jnp.split(_dense(x, own["to heads"]), 3, axis=-1))
    scores = jnp.einsum("qhd,khd->hqk", query, key) / math.sqrt(width // heads)
    masked = jnp.where(jnp.tri(tokens, dtype=bool), scores, jnp.finfo(x.dtype).min)
    found = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(masked, axis=-1), value)
    return _dense(found.reshape(tokens, width), own["from heads"])


@partial(jax.jit, static_argnames="heads")
def _layer(x: jax.Array, own: Parameters, heads: int) -> jax.Array:
    """A layer: one function of the graph, which is called for each."""
    x = x + _attention(_norm(x, own["before attention"]), own, heads)
    inside = jax.nn.gelu(_dense(_norm(x, own["before perceptron"]), own["in"]), approximate=True)
    return x + _dense(inside, own["out"])


def loss(parameters: Parameters, sequence: jax.Array, heads: int) -> jax.Array:
    """The mean cross entropy of what follows each token of a sequence of (tokens + 1,) integers."""
    given, wanted = sequence[:-1], sequence[1:]
    x = parameters["tokens"][given] + parameters["positions"]
    for own in parameters["layers"]:
        x = _layer(x, own, heads)
    logits = _norm(x, parameters["last"]) @ parameters["tokens"].T
    own = jnp.take_along_axis(logits, wanted[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - own).mean()


def train_step(
    parameters: Parameters, velocities: Parameters, sequence: jax.Array, heads: int
) -> tuple[Parameters, Parameters, jax.Array]:
    """One step of descent with momentum."""
    value, slopes = jax.value_and_grad(loss)(parameters, sequence, heads)
    velocities = jax.tree.map(lambda own, slope: MOMENTUM * own + slope, velocities, slopes)
    return jax.tree.map(lambda own, velocity: own - RATE * velocity, parameters, velocities), velocities, value


def step_arguments(size: Size, dtype: str, key: jax.Array) -> tuple[Any, ...]:
    """Parameters, velocities and a sequence of tokens."""
    of_parameters, of_tokens = jax.random.split(key)
    parameters = init_parameters(size, dtype, of_parameters)
    sequence = jax.random.randint(of_tokens, (size.tokens + 1,), 0, size.vocabulary)
    return parameters, jax.tree.map(jnp.zeros_like, parameters), sequence


def draw_arguments(size: Size, dtype: str, random: np.random.Generator) -> tuple[Any, ...]:
    """What a step takes."""
    return step_arguments(size, dtype, jax.random.key(int(random.integers(2**31))))


def traced_step(size: Size, dtype: str, num_chips: int) -> cl.Traced:
    """The training step as a graph of vertices; new parameters take the place of the old ones."""
    examples = jax.eval_shape(partial(step_arguments, size, dtype), jax.random.key(0))
    step = partial(train_step, heads=size.heads)
    return cl.trace(step, *examples, target=cl.IPU(num_chips=num_chips), donate_argnums=(0, 1))


def seconds_to_trace(size: Size, dtype: str, num_chips: int) -> float:
    """From the step to its graph."""
    start = time.perf_counter()
    traced_step(size, dtype, num_chips)
    return time.perf_counter() - start


def cost_of_profile(size: Size, dtype: str, num_chips: int) -> tuple[float, float, int]:
    """Seconds from the graph to its profile, GiB that the process held at the most in all, and bytes out of memory."""
    traced = traced_step(size, dtype, num_chips)
    start = time.perf_counter()
    profile = traced.profile(allow_out_of_memory=True)
    seconds = time.perf_counter() - start
    over = profile.memory_by_tile - profile.target.bytes_per_tile
    return seconds, peak_bytes() / 2**30, int(np.maximum(over, 0).max())


def _trace(size: Size, dtype: str, num_chips: int, row: str) -> Row:
    seconds = in_fresh_process(seconds_to_trace, size, dtype, num_chips)
    return Row(row, seconds, None, seconds / TRACE_LIMIT, 1.0, f"to {TRACE_LIMIT:.0f} s")


def _profile(size: Size, dtype: str, num_chips: int, row: str) -> Row:
    seconds, peak, over = in_fresh_process(cost_of_profile, size, dtype, num_chips)
    note = f"to {PROFILE_LIMIT:.0f} s, {peak:.1f} GiB; {num_chips} chips, by {over:,} bytes a tile out of memory"
    return Row(row, seconds, None, seconds / PROFILE_LIMIT, 1.0, note, peak_ratio=peak / LIMIT_GIB, peak_bar=1.0)


@benchmark
def gpt2(size: Size = SMALL, chips: Mapping[str, int] = CHIPS) -> Generator[Comparison | Measurement | Row, Row, None]:
    """A training step of GPT-2 small on 128 tokens: traced, profiled on several chips, and run."""
    size = Size(*size)
    for dtype, num_chips in chips.items():
        name = f"gpt2/{dtype}"
        yield Measurement(f"{name}/trace", partial(_trace, size, dtype, num_chips))
        yield Measurement(f"{name}/profile", partial(_profile, size, dtype, num_chips))
        step = partial(train_step, heads=size.heads)
        yield Comparison(
            f"{name}/step",
            ours=jax.jit(lambda *own, step=step: cl.trace(step, *own)(*own)),
            plain=jax.jit(step),
            arguments=partial(draw_arguments, size, dtype),
            bar=1.1,
            tolerance=TOLERANCE[dtype],
        )
