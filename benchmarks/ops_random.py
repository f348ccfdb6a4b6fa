"""Random numbers and dropout as operations, beside those of `jax.random`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark

KEY = jax.random.key_data(jax.random.key(3, impl="threefry2x32"))
BAR = 1.2


def _beside(name: str, ours: Callable[..., Any], plain: Callable[..., Any], *shapes: int) -> Comparison:
    def arguments(random: np.random.Generator) -> tuple[Any, ...]:
        return (np.asarray(KEY), *(random.standard_normal(size, np.float32) for size in shapes))

    return Comparison(f"ops_random/{name}", jax.jit(cl.lower(ours)), jax.jit(plain), arguments, BAR)


def _drop(key: Any, x: Any, rate: float) -> Any:
    kept = 1 - rate
    return jnp.where(jax.random.bernoulli(key, kept, x.shape), x / kept, 0)


def _slope(function: Callable[..., Any]) -> Callable[..., Any]:
    """What pulls a cotangent back to `x`."""
    return lambda key, x, g: jax.vjp(lambda x: function(key, x), x)[1](g)[0]


@benchmark
def ops_random(size: int = 4_000_000, rate: float = 0.1) -> Generator[Comparison | Row, Row, None]:
    """4,000,000 uniform and normal numbers, and dropout of as many elements with both forms of its gradient."""
    random, ops = jax.random, cl.ops
    uniform = lambda key: random.uniform(key, (size,))  # noqa: E731
    normal = lambda key: random.normal(key, (size,))  # noqa: E731
    dropped = lambda key, x: _drop(key, x, rate)  # noqa: E731
    drop = lambda graph, key, x: ops.dropout(graph, x, rate, key=key)  # noqa: E731
    yield _beside("uniform", lambda graph, key: ops.uniform(graph, (size,), key=key), uniform)
    yield _beside("uniform/fine", lambda graph, key: ops.uniform(graph, (size,), key=key, grain=1), uniform)
    yield _beside("normal", lambda graph, key: ops.normal(graph, (size,), key=key), normal)
    yield _beside("dropout", drop, dropped, size)
    slope = jax.jit(_slope(cl.lower(drop)))
    by_operation = jax.jit(cl.lower(lambda graph, key, x, g: ops.dropout_gradient(graph, g, rate, key=key)))
    for name, ours in (("gradient", slope), ("gradient_operation", by_operation)):
        own = _beside(f"dropout/{name}", drop, _slope(dropped), size, size)
        yield Comparison(own.name, ours, own.plain, own.arguments, BAR)
