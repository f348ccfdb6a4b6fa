"""Attention with many heads: projections to queries, keys and values, their attention, a projection of the result.

As `equinox.nn.MultiheadAttention` has it, whose `Linear` layers' weights are taken: (outputs, inputs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_same_dtype, check_tensors
from codelet.ops.attention import dot_product_attention, dot_product_attention_gradient
from codelet.ops.dot_general import dot_general, dot_general_gradient
from codelet.ops.elementwise import map as map_of
from codelet.ops.reduce import sum as sum_of
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor

Four = Sequence[Tensor | None]
"""What projections have: those of queries, keys, values, and of the output."""

_NAMES = ("query", "key", "value", "output")


class _Projection:
    """Vectors times the transpose of a weight, with a bias where there is one."""

    def __init__(self, graph: Graph, name: str, weight: Tensor, bias: Tensor | None):
        self.graph, self.name, self.weight, self.bias = graph, name, weight, bias

    def _numbers(self, x: Tensor) -> Any:
        return ((x.ndim - 1,), (1,)), ((), ())

    def of(self, x: Tensor) -> Tensor:
        """Vectors projected."""
        out = dot_general(self.graph, x, self.weight, self._numbers(x), name=f"project_{self.name}")
        return out if self.bias is None else map_of(self.graph, jnp.add, out, self.bias, name=f"bias_{self.name}")

    def slopes(self, cotangent: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients by vectors, weight and bias."""
        name = f"{self.name}_gradients"
        by_x, by_weight = dot_general_gradient(self.graph, cotangent, x, self.weight, self._numbers(x), name=name)
        if self.bias is None:
            return by_x, by_weight, None
        return by_x, by_weight, sum_of(self.graph, cotangent, range(x.ndim - 1), name=f"by_bias_of_{self.name}")


def _projections(
    operation: str, graph: Graph, inputs: Sequence[Tensor], weights: Four, biases: Four, num_heads: Any
) -> list[_Projection]:
    """The four projections.

    Raises:
        OperationError: inputs, weights or biases that do not fit.
    """
    if any(not isinstance(own, Sequence) or len(own) != 4 for own in (weights, biases)):
        raise OperationError(
            f"ops.{operation} is not given four weights and four biases",
            given=f"{weights!r:.60} and {biases!r:.60}",
            expected=f"those of {', '.join(_NAMES)}; None for no bias",
        )
    tensors: dict[str, Any] = dict(zip(_NAMES, inputs, strict=False))
    tensors |= {f"weight of {name}": weight for name, weight in zip(_NAMES, weights, strict=True)}
    named = zip(_NAMES, biases, strict=True)
    tensors |= {f"bias of {name}": bias for name, bias in named if bias is not None}
    check_tensors(operation, graph, **tensors)
    check_same_dtype(operation, **tensors)
    made, heads = [], {}
    for name, weight, bias in zip(_NAMES, weights, biases, strict=True):
        assert weight is not None
        x = tensors.get(name)
        fits = weight.ndim == 2 and (bias is None or bias.shape == weight.shape[:1])
        fits = fits and (x is None or (x.ndim in (2, 3) and x.shape[-1] == weight.shape[1]))
        if not fits:
            raise OperationError(
                f"the projection of {name} of ops.{operation} does not fit",
                given=f"weight {weight.shape}, bias {None if bias is None else bias.shape}"
                + ("" if x is None else f", of {x.shape}"),
                expected="a weight (outputs, inputs), a bias (outputs,), and vectors (..., tokens, inputs)",
            )
        heads[name] = weight.shape[1 if name == "output" else 0]
        made.append(_Projection(graph, name, weight, bias))
    if not isinstance(num_heads, int) or num_heads < 1 or len(set(heads.values())) > 1 or heads["query"] % num_heads:
        raise OperationError(
            f"the heads of ops.{operation} are not of one size",
            given=f"{num_heads} heads of {heads}",
            expected="as many outputs for queries, keys and values as inputs of the output, divided by num_heads",
        )
    return made


def _in_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape((*x.shape[:-1], num_heads, x.shape[-1] // num_heads))


def _merged(heads: Tensor) -> Tensor:
    return heads.reshape((*heads.shape[:-2], heads.shape[-2] * heads.shape[-1]))


@checked
def multi_head_attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Four,
    biases: Four = (None, None, None, None),
    *,
    num_heads: int,
    mask: Tensor | None = None,
    is_causal: bool = False,
    name: str = "multi_head_attention",
) -> Tensor:
    """Attention with many heads, as `equinox.nn.MultiheadAttention`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        query: (..., tokens, inputs).
        key: (..., keys, inputs).
        value: (..., keys, inputs).
        weights: of the projections of query, key and value and of the output, each (outputs, inputs).
        biases: of the same, each (outputs,) or None.
        num_heads: into which the projections are divided.
        mask: which keys a query sees; of bool, broadcasts to (heads, tokens, keys).
        is_causal: whether a query sees no keys beyond its position.
        name: of the scope.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> x, w = jnp.ones((5, 8)), jnp.ones((8, 8))
    >>> def layer(graph, x, w):
    ...     return cl.ops.multi_head_attention(graph, x, x, x, [w, w, w, w], num_heads=2)
    >>> cl.lower(layer)(x, w).shape
    (5, 8)
    """
    *three, output = _projections(name, graph, (query, key, value), weights, biases, num_heads)
    with graph.scope(name, unique=True):
        pairs = zip(three, (query, key, value), strict=True)
        q, k, v = (_in_heads(own.of(x), num_heads) for own, x in pairs)
        heads = dot_product_attention(graph, q, k, v, None, mask, is_causal=is_causal, name="attention")
        return output.of(_merged(heads))


class MultiHeadAttentionGradient(NamedTuple):
    """The gradients of `multi_head_attention`, each of the shape and dtype of its operand.

    Attributes:
        inputs: by query, key and value.
        weights: by the four weights.
        biases: by the four biases; None for each that is none.
    """

    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]


@checked
def multi_head_attention_gradient(
    graph: Graph,
    cotangent: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Four,
    biases: Four = (None, None, None, None),
    *,
    num_heads: int,
    mask: Tensor | None = None,
    is_causal: bool = False,
    name: str = "multi_head_attention_gradient",
) -> MultiHeadAttentionGradient:
    """The gradients of `multi_head_attention`, for which its projections are made anew.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        query: (..., tokens, inputs).
        key: (..., keys, inputs).
        value: (..., keys, inputs).
        weights: of the projections of query, key and value and of the output, each (outputs, inputs).
        biases: of the same, each (outputs,) or None.
        num_heads: into which the projections are divided.
        mask: which keys a query sees; of bool, broadcasts to (heads, tokens, keys).
        is_causal: whether a query sees no keys beyond its position.
        name: of the scope.

    Returns:
        The gradients by query, key and value, by the four weights, and by the four biases; None by a bias that is None.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> g, x, w = (graph.add_variable(name, shape) for name, shape in [("g", (4, 8)), ("x", (4, 8)), ("w", (8, 8))])
    >>> slopes = cl.ops.multi_head_attention_gradient(graph, g, x, x, x, [w] * 4, num_heads=2)
    >>> slopes.inputs[0].shape, len(slopes.weights)
    ((4, 8), 4)
    """
    *three, output = _projections(name, graph, (query, key, value), weights, biases, num_heads)
    inputs = (query, key, value)
    with graph.scope(name, unique=True):
        q, k, v = (_in_heads(own.of(x), num_heads) for own, x in zip(three, inputs, strict=True))
        options: dict[str, Any] = {"is_causal": is_causal}
        heads = dot_product_attention(graph, q, k, v, None, mask, **options, name="attention")
        slope, by_output, by_last = output.slopes(cotangent, _merged(heads))
        by_heads = dot_product_attention_gradient(graph, _in_heads(slope, num_heads), q, k, v, None, mask, **options)
        found = []
        for own, x, by_head in zip(three, inputs, by_heads, strict=False):
            assert by_head is not None
            found.append(own.slopes(_merged(by_head), x))
    by_inputs, by_weights, by_biases = zip(*found, strict=True)
    return MultiHeadAttentionGradient(by_inputs, (*by_weights, by_output), (*by_biases, by_last))
