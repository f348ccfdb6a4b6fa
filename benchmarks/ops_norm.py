"""Batch, layer, group and root-mean-square norm as operations: forward, by JAX's gradient, and by their own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

EPS = 1e-5


def _normalized(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """As flax has it by default: the variance by the mean square."""
    mean, square = jnp.mean(x, axes, keepdims=True), jnp.mean(x * x, axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0) + EPS)


def _batch(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    return _normalized(x, (0, 2, 3)) * scale[:, None, None] + offset[:, None, None]


def _layer(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    return _normalized(x, (1,)) * scale + offset


def _group(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    wide = x.reshape(x.shape[0], 4, -1, *x.shape[2:])
    return _normalized(wide, (2, 3, 4)).reshape(x.shape) * scale[:, None, None] + offset[:, None, None]


def _root_mean_square(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + EPS) * scale


def _by_batch(graph: cl.Graph, x: cl.Tensor, scale: cl.Tensor, offset: cl.Tensor, cotangent: cl.Tensor) -> Any:
    y, mean, variance = cl.ops.batch_norm(graph, x, scale, offset)
    return y, cl.ops.batch_norm_gradient(graph, cotangent, x, scale, mean, variance)


def _by_layer(graph: cl.Graph, x: cl.Tensor, scale: cl.Tensor, offset: cl.Tensor, cotangent: cl.Tensor) -> Any:
    return cl.ops.layer_norm(graph, x, scale, offset), cl.ops.layer_norm_gradient(graph, cotangent, x, scale)


def _by_group(graph: cl.Graph, x: cl.Tensor, scale: cl.Tensor, offset: cl.Tensor, cotangent: cl.Tensor) -> Any:
    return cl.ops.group_norm(graph, x, 4, scale, offset), cl.ops.group_norm_gradient(graph, cotangent, x, 4, scale)


def _forward_of_batch(graph: cl.Graph, x: cl.Tensor, scale: cl.Tensor, offset: cl.Tensor) -> cl.Tensor:
    return cl.ops.batch_norm(graph, x, scale, offset)[0]


def _forward_of_group(graph: cl.Graph, x: cl.Tensor, scale: cl.Tensor, offset: cl.Tensor) -> cl.Tensor:
    return cl.ops.group_norm(graph, x, 4, scale, offset)


def _with_gradient(plain: Callable[..., jax.Array]) -> Callable[..., Any]:
    def run(x: jax.Array, scale: jax.Array, offset: jax.Array, cotangent: jax.Array) -> Any:
        y, pull = jax.vjp(plain, x, scale, offset)
        return y, pull(cotangent)

    return run


@benchmark
def ops_norm(
    field: tuple[int, int, int, int] = (8, 64, 56, 56),
    rows: tuple[int, int] = (2048, 768),
    lines: tuple[int, int] = (512, 1024),
) -> Generator[Comparison | Row, Row, None]:
    """Batch and group norm of 8 x 64 x 56 x 56, layer norm of 2048 rows of 768, root-mean-square of 512 of 1024."""
    cases = {
        "batch": (_forward_of_batch, _by_batch, _batch, field, field[1]),
        "layer": (cl.ops.layer_norm, _by_layer, _layer, rows, rows[1]),
        "group": (_forward_of_group, _by_group, _group, field, field[1]),
    }
    for name, (build, by_operation, plain, shape, channels) in cases.items():

        def arguments(
            random: np.random.Generator, shape: tuple[int, ...] = shape, channels: int = channels
        ) -> tuple[np.ndarray, ...]:
            return tuple(random.normal(size=own).astype(np.float32) for own in (shape, channels, channels))

        forward = Comparison(
            f"ops_norm/{name}",
            ours=jax.jit(cl.lower(build)),
            plain=jax.jit(plain),
            arguments=arguments,
            bar=1.2,
            tolerance=1e-4,
        )
        yield forward
        yield gradient_of(forward, bar=1.2)
        yield Comparison(
            f"ops_norm/{name}/gradient_operation",
            ours=jax.jit(cl.lower(by_operation)),
            plain=jax.jit(_with_gradient(plain)),
            arguments=lambda random, arguments=arguments: (*(own := arguments(random)), own[0][::-1].copy()),
            bar=1.2,
            tolerance=1e-4,
        )
    by_root = Comparison(
        "ops_norm/rms",
        ours=jax.jit(cl.lower(lambda graph, x, scale: cl.ops.rms_norm(graph, x, scale, eps=EPS))),
        plain=jax.jit(_root_mean_square),
        arguments=lambda random: tuple(random.standard_normal(own, np.float32) for own in (lines, lines[1:])),
        bar=1.2,
        tolerance=1e-4,
    )
    yield by_root
    yield gradient_of(by_root, bar=1.2)
