"""Attention as an operation, beside `jax.nn.dot_product_attention`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

BAR = 1.2


@benchmark
def ops_attention(
    batch: int = 4, length: int = 256, heads: int = 8, size: int = 64
) -> Generator[Comparison | Row, Row, None]:
    """4 times 256 tokens with 8 heads of 64, and both forms of the gradient; with a causal mask as well."""

    def arrays(count: int) -> Any:
        return lambda random: tuple(random.standard_normal((count, batch, length, heads, size), np.float32))

    for name, is_causal in (("ops_attention", False), ("ops_attention/causal", True)):

        def plain(query: Any, key: Any, value: Any, is_causal: bool = is_causal) -> Any:
            return jax.nn.dot_product_attention(query, key, value, is_causal=is_causal)

        def ours(graph: cl.Graph, query: Any, key: Any, value: Any, is_causal: bool = is_causal) -> Any:
            return cl.ops.dot_product_attention(graph, query, key, value, is_causal=is_causal)

        def slopes(graph: cl.Graph, g: Any, query: Any, key: Any, value: Any, is_causal: bool = is_causal) -> Any:
            return cl.ops.dot_product_attention_gradient(graph, g, query, key, value, is_causal=is_causal)[:3]

        def pulled(g: Any, query: Any, key: Any, value: Any, plain: Any = plain) -> Any:
            return jax.vjp(plain, query, key, value)[1](g)

        forward = Comparison(name, jax.jit(cl.lower(ours)), jax.jit(plain), arrays(3), BAR)
        yield forward
        yield gradient_of(forward, BAR)
        by_operation = replace(
            forward,
            name=f"{name}/gradient_operation",
            ours=jax.jit(cl.lower(slopes)),
            plain=jax.jit(pulled),
            arguments=arrays(4),
        )
        yield by_operation
