"""Attention: `dot_product_attention` as `jax.nn` has it, and its gradient.

Products of queries and keys, scaled and masked element by element; their softmax over the keys; and products of that
with the values (Vaswani et al., "Attention Is All You Need", 2017). Heads may share keys and values in groups (Ainslie
et al., "GQA", 2023). The gradient makes the weights of the attention anew from queries and keys.

Batch, queries, heads and their sizes are B, T, N and H, as in `jax.nn.dot_product_attention`; keys are S, their heads
K, of which each serves N / K heads of queries.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_same_dtype, check_tensors, checked_grain
from codelet.ops.choices import cast
from codelet.ops.dot_general import dot_general
from codelet.ops.elementwise import map as map_of
from codelet.ops.partials import sums_dtype
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.reduce import sum as sum_of
from codelet.ops.schema import checked
from codelet.ops.softmax import softmax, softmax_gradient
from codelet.views.tensor import Tensor

_MASKED = float(np.float32(-0.7) * np.finfo(np.float32).max)
"""What stands for what is masked: `jax.nn.dot_product_attention` has the same, so that a row of these is uniform."""


def _four(tensor: Tensor) -> Tensor:
    """With a dimension for the batch."""
    return tensor.reshape((1,) * (4 - tensor.ndim) + tensor.shape)


def masked(value, masks, otherwise, *, has_mask, is_causal):
    """An element, or another where it is masked."""
    left = list(masks)
    if has_mask:
        value = jnp.where(left.pop(0), value, otherwise)
    if is_causal:
        queries, keys = left
        value = jnp.where(queries >= keys, value, otherwise)
    return value


def weigh(product, *others, scale, has_bias, has_mask, is_causal):
    """A weight before the softmax, of the product of a query and a key, a bias and a mask."""
    own = product * scale
    if has_bias:
        own = (own + others[0]).astype(product.dtype)
    return masked(own, others[has_bias:], _MASKED, has_mask=has_mask, is_causal=is_causal)


def unweigh(slope, *masks, scale, has_mask, is_causal):
    """The slope by a product, of that by a weight before the softmax."""
    return masked(slope * scale, masks, 0.0, has_mask=has_mask, is_causal=is_causal)


def unmask(slope, *masks, has_mask, is_causal):
    """The slope by a bias."""
    return masked(slope, masks, 0.0, has_mask=has_mask, is_causal=is_causal)


class _Attention:
    """Operands of an attention, with a dimension for all common ones, and its codelets.

    Weights are of shape (B, K, T, groups, S), or (B, N, T, S) without groups.
    """

    def __init__(
        self,
        operation: str,
        graph: Graph,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
        scale: float | None,
        is_causal: bool,
        grain: int | None,
        memory_fraction: float,
    ):
        """Checked.

        Raises:
            OperationError: shapes or dtypes that do not fit.
        """
        given = {name: own for name, own in {"bias": bias, "mask": mask}.items() if own is not None}
        check_tensors(operation, graph, query=query, key=key, value=value, **given)
        check_floating(operation, query=query, **({"bias": bias} if bias is not None else {}))
        self.dtype = check_same_dtype(operation, query=query, key=key, value=value)
        self.operation, self.graph = operation, graph
        self.planned: Any = {"grain": checked_grain(operation, grain), "memory_fraction": memory_fraction}
        self.shape = query.shape
        self._check_shapes(query, key, value)
        self.query, self.key, self.value = _four(query), _four(key), _four(value)
        self.batch, self.length, self.heads, self.size = self.query.shape
        self.keys, self.key_heads = self.key.shape[1:3]
        self.groups = self.heads // self.key_heads
        self.query = self.grouped(self.query)
        self.scale = 1 / self.size**0.5 if scale is None else float(scale)
        if mask is not None and mask.dtype != np.bool_:
            raise OperationError(
                f"mask of ops.{operation} is not of booleans",
                given=mask,
                expected="bool: what takes part; numbers to be added are a bias",
            )
        self.bias, self.mask = (
            None if own is None else self._spread(name, own) for name, own in (("bias", bias), ("mask", mask))
        )
        self.is_causal = bool(is_causal)

    def _check_shapes(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        batch = query.shape[:-3]
        fits = query.ndim in (3, 4) and key.ndim == query.ndim and value.shape == key.shape
        fits = fits and key.shape[:-3] == batch and key.shape[-1] == query.shape[-1] and all(query.shape)
        if not fits or not all(key.shape) or query.shape[-2] % key.shape[-2]:
            raise OperationError(
                f"the operands of ops.{self.operation} do not fit each other",
                given=f"query {query.shape}, key {key.shape}, value {value.shape}",
                expected="(B, T, N, H) with (B, S, K, H) twice, or all without B; K divides N",
            )

    def grouped(self, tensor: Tensor) -> Tensor:
        """Of (B, T, N, H): the heads in groups, where there are any."""
        if self.groups == 1:
            return tensor
        return tensor.reshape((self.batch, self.length, self.key_heads, self.groups, self.size))

    def ungrouped(self, tensor: Tensor) -> Tensor:
        """Of (B, K, T, groups, H), as products make it: in the shape of the queries."""
        order = (0, 2, 1, *range(3, tensor.ndim))
        return tensor.transpose(order).reshape(self.shape)

    def of_keys(self, tensor: Tensor) -> Tensor:
        """Of (B, K, S, H), as products make it: in the shape of the keys."""
        shape = (*self.shape[:-3], self.keys, self.key_heads, self.size)
        return tensor.transpose((0, 2, 1, 3)).reshape(shape)

    def _spread(self, name: str, tensor: Tensor) -> Tensor:
        """A bias or mask that broadcasts to (B, N, T, S), with the dimensions of the weights."""
        shape = (self.batch, self.heads, self.length, self.keys)
        own = _four(tensor) if tensor.ndim <= 4 else tensor
        if own.ndim != 4 or any(a not in (1, b) for a, b in zip(own.shape, shape, strict=True)):
            raise OperationError(
                f"{name} of ops.{self.operation} does not broadcast to the weights",
                given=tensor,
                expected=f"(B, N, T, S): {shape}, or 1 for any of them",
            )
        if self.groups == 1:
            return own
        heads = (1, 1) if own.shape[1] == 1 else (self.key_heads, self.groups)
        return own.reshape((own.shape[0], *heads, *own.shape[2:])).transpose((0, 1, 3, 2, 4))

    # --- steps ---

    def product(self, a: Tensor, b: Tensor, contracted: Any, heads: Any, name: str, dtype: Any = None) -> Tensor:
        """A product for all batches and heads."""
        numbers = (contracted, ((0, heads[0]), (0, heads[1])))
        return dot_general(self.graph, a, b, numbers, preferred_element_type=dtype, **self.planned, name=name)

    def with_keys(self, heads: Tensor, keys: Tensor, name: str) -> Tensor:
        """Of operands like queries and like keys: products as weights are, in the dtype of the softmax."""
        return self.product(heads, keys, ((heads.ndim - 1,), (3,)), (2, 2), name, sums_dtype(self.dtype))

    def over_keys(self, weights: Tensor, keys: Tensor, name: str) -> Tensor:
        """Of operands like weights and like keys: sums over the keys, in the shape of the queries."""
        return self.ungrouped(self.product(weights, keys, ((weights.ndim - 1,), (1,)), (1, 2), name))

    def over_queries(self, weights: Tensor, heads: Tensor, name: str) -> Tensor:
        """Of operands like weights and like queries: sums over the queries, in the shape of the keys."""
        contracted = (tuple(range(2, weights.ndim - 1)), (1, 3)[: heads.ndim - 3])
        return self.of_keys(self.product(weights, heads, contracted, (1, 2), name))

    def masks(self) -> list[Tensor]:
        """The conditions for weights: a mask, and the positions of queries and keys."""
        found = [] if self.mask is None else [self.mask]
        if self.is_causal:
            queries = self.graph.add_constant("queries", np.arange(self.length, dtype=np.int32))
            keys = self.graph.add_constant("keys", np.arange(self.keys, dtype=np.int32))
            found += [queries.reshape((self.length, *([1] if self.groups == 1 else [1, 1]))), keys]
        return found

    @property
    def masking(self) -> dict[str, bool]:
        """How elements are masked."""
        return {"has_mask": self.mask is not None, "is_causal": self.is_causal}

    def weights(self, masks: Sequence[Tensor]) -> Tensor:
        """The softmax of the products of queries and keys."""
        own = functools.partial(weigh, scale=self.scale, has_bias=self.bias is not None, **self.masking)
        products = self.with_keys(self.query, self.key, "multiply_keys")
        others = [*([] if self.bias is None else [self.bias]), *masks]
        logits = map_of(self.graph, own, products, *others, **self.planned, name="weigh")
        if logits.dtype != np.float32:
            logits = cast(self.graph, logits, dtype=np.float32)
        return softmax(self.graph, logits, **self.planned)

    def by_products(self, by_logits: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """The gradient with respect to the products of queries and keys."""
        own = functools.partial(unweigh, scale=self.scale, **self.masking)
        return self.in_own(map_of(self.graph, own, by_logits, *masks, **self.planned, name="unweigh"))

    def by_bias(self, by_logits: Tensor, masks: Sequence[Tensor], bias: Tensor) -> Tensor:
        """The gradient with respect to the bias: summed where it is broadcast."""
        assert self.bias is not None
        if masks:
            own = functools.partial(unmask, **self.masking)
            by_logits = map_of(self.graph, own, by_logits, *masks, **self.planned, name="unmask")
        pairs = enumerate(zip(self.bias.shape, by_logits.shape, strict=True))
        axes = [d for d, (own, extent) in pairs if own != extent]
        if axes:
            by_logits = sum_of(self.graph, by_logits, axes, keepdims=True, **self.planned, name="by_bias")
        if by_logits.dtype != bias.dtype:
            by_logits = cast(self.graph, by_logits, dtype=bias.dtype)
        return (by_logits if self.groups == 1 else by_logits.transpose((0, 1, 3, 2, 4))).reshape(bias.shape)

    def in_own(self, tensor: Tensor) -> Tensor:
        """In the dtype of the operands."""
        return tensor if tensor.dtype == self.dtype else cast(self.graph, tensor, dtype=self.dtype)


# --- operations ---------------------------------------------------------------------------------------------


@checked
def dot_product_attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dot_product_attention",
) -> Tensor:
    """The attention of queries to keys, as `jax.nn.dot_product_attention`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        query: (B, T, N, H), or without B.
        key: (B, S, K, H); K divides N.
        value: in the same shape.
        bias: added to the products of queries and keys; broadcasts to (B, N, T, S).
        mask: which keys a query sees; of booleans, broadcasts to (B, N, T, S).
        scale: of the products; 1 / sqrt(H) when left off.
        is_causal: whether a query sees no keys beyond its position.
        grain: about how many multiply-adds, or elements, a vertex has; default: chosen by the planners.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The sums of values, in the shape of the queries.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> q, k = jnp.ones((1, 3, 2, 4)), jnp.ones((1, 5, 2, 4))
    >>> cl.lower(cl.ops.dot_product_attention)(q, k, k).shape
    (1, 3, 2, 4)
    """
    own = _Attention(name, graph, query, key, value, bias, mask, scale, is_causal, grain, memory_fraction)
    with graph.scope(name, unique=True):
        return own.over_keys(own.in_own(own.weights(own.masks())), own.value, "multiply_values")


class DotProductAttentionGradient(NamedTuple):
    """The gradients of `dot_product_attention`, each of the shape and dtype of its operand.

    Attributes:
        query: by the queries.
        key: by the keys.
        value: by the values.
        bias: by the bias; None where there is none.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None


@checked
def dot_product_attention_gradient(
    graph: Graph,
    cotangent: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dot_product_attention_gradient",
) -> DotProductAttentionGradient:
    """The gradients of `dot_product_attention` by query, key, value and bias; the weights are made anew.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, in the shape of the queries.
        query: (B, T, N, H), or without B.
        key: (B, S, K, H); K divides N.
        value: in the same shape.
        bias: added to the products of queries and keys; broadcasts to (B, N, T, S).
        mask: which keys a query sees; of bool, broadcasts to (B, N, T, S).
        scale: of the products; default: 1 / sqrt(H).
        is_causal: whether a query sees no keys beyond its position.
        grain: about how many multiply-adds, or elements, a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients by query, key, value and bias, each of its shape and dtype; None by a bias that is None.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> g, q, k, v = (graph.add_variable(name, (2, 4, 1, 8)) for name in "gqkv")
    >>> slopes = cl.ops.dot_product_attention_gradient(graph, g, q, k, v)
    >>> slopes.query.shape, slopes.bias
    ((2, 4, 1, 8), None)
    """
    own = _Attention(name, graph, query, key, value, bias, mask, scale, is_causal, grain, memory_fraction)
    check_tensors(name, graph, cotangent=cotangent)
    if (cotangent.shape, cotangent.dtype) != (query.shape, query.dtype):
        raise OperationError(
            f"the cotangent of ops.{name} is not as the result", given=cotangent, expected=f"{query.dtype}{query.shape}"
        )
    with graph.scope(name, unique=True):
        slope = own.grouped(_four(cotangent))
        masks = own.masks()
        weights = own.weights(masks)
        by_value = own.over_queries(own.in_own(weights), slope, "by_value")
        by_weights = own.with_keys(slope, own.value, "by_weights")
        if by_weights.dtype != weights.dtype:
            by_weights = cast(graph, by_weights, dtype=weights.dtype)
        by_logits = softmax_gradient(graph, by_weights, weights, **own.planned)
        by_products = own.by_products(by_logits, masks)
        by_query = own.over_keys(by_products, own.key, "by_query")
        by_key = own.over_queries(by_products, own.query, "by_key")
        by_bias = None if bias is None else own.by_bias(by_logits, masks, bias)
    return DotProductAttentionGradient(by_query, by_key, by_value, by_bias)
