"""Counts of n-grams in rows of tokens, which are integers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.shapes import checked_shape


def _pools(node: OnnxNode) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each length that counts, its n-grams in rows, and the number of each."""
    pool, starts = np.asarray(node.attribute("pool_int64s"), np.int64), list(node.attribute("ngram_counts"))
    first, result = 0, []
    for length, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        rows = pool[start:stop].reshape(-1, length)
        if node.attribute("min_gram_length") <= length <= node.attribute("max_gram_length"):
            result.append((rows, np.arange(first, first + len(rows))))
        first += len(rows)
    return result


def _counts(x: Any, rows: np.ndarray, skip: int) -> Any:
    """How often each n-gram is in each row of tokens, its tokens so far apart."""
    count = max(0, x.shape[1] - (rows.shape[1] - 1) * skip)
    hit: Any = True
    for k, token in enumerate(rows.T):
        hit = hit & (x[:, k * skip : k * skip + count, None] == token.astype(x.dtype))
    return jnp.sum(hit, 1)


@operator("TfIdfVectorizer")
def tf_idf(node: OnnxNode, x: Any) -> Any:
    """How often each n-gram of a pool is in each row of tokens, or whether, with the n-gram's weight."""
    if node.attribute("pool_int64s") is None:
        raise node.error("its tokens are strings", given="pool_strings", expected="pool_int64s")
    places, weights = np.asarray(node.attribute("ngram_indexes")), node.attribute("weights")
    tokens = jnp.reshape(x, (-1, x.shape[-1] if x.ndim else 1))
    result = jnp.zeros(checked_shape(node, (tokens.shape[0], int(max(places)) + 1)), np.float32)
    for rows, numbers in _pools(node):
        fits = np.all(rows.astype(x.dtype) == rows, 1)  # others are in no array of this dtype
        rows, numbers = rows[fits], numbers[fits]
        skips = 1 if rows.shape[1] == 1 else min(node.attribute("max_skip_count") + 1, max(1, tokens.shape[1]))
        counts = sum(_counts(tokens, rows, skip) for skip in range(1, skips + 1))
        share = jnp.asarray(counts > 0 if node.attribute("mode") == "IDF" else counts, np.float32)
        if node.attribute("mode") != "TF" and weights:
            share = share * np.asarray(weights, np.float32)[numbers]
        result = result.at[:, places[numbers]].add(share)
    return jnp.reshape(result, (*x.shape[:-1], result.shape[1]))
