"""Cells of recurrent networks: `lstm_cell` and `gru_cell`, and their gradients.

Gates, their order and their formulas are those of `equinox.nn.LSTMCell` and `equinox.nn.GRUCell`; the cells are of
Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997), and Cho et al., "Learning Phrase Representations using RNN
Encoder-Decoder" (2014). A cell is two matrix products and one compute set for all of its gates.

A program repeats a cell over a sequence, here from a stream:

    with graph.record() as step:
        new_h, new_c = cl.ops.lstm_cell(graph, x, h, c, weight_ih, weight_hh, bias)
    program = cl.Repeat(length, [cl.Copy(sequence, x), step, cl.Copy(new_h, h), cl.Copy(new_c, c)])
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_same_dtype, check_tensors, checked_grain
from codelet.ops.block_planning import plan_work
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.dot_general import dot_general
from codelet.ops.elementwise import map as map_of
from codelet.ops.homes import home_of
from codelet.ops.pairs import Pair, both
from codelet.ops.partials import add_planned
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.reduce import sum as sum_of
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor

# --- the gates ----------------------------------------------------------------------------------------------


def _lstm(by_x, by_h, bias, c):
    i, f, g, o = jnp.moveaxis(by_x + by_h + bias, 1, 0)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(by_x, by_h, bias, bias_n, h):
    reset, update, new = jnp.moveaxis(by_x + bias, 1, 0)
    reset_h, update_h, new_h = jnp.moveaxis(by_h, 1, 0)
    reset, update = jax.nn.sigmoid(reset + reset_h), jax.nn.sigmoid(update + update_h)
    new = jnp.tanh(new + reset * (new_h + bias_n))
    return new + update * (h - new)


@both
def lstm_gates(by_x, by_h, bias, c):
    """The gates of a block of cells, from their inputs from x and from h, of shape (batch, 4, cells); the
    new h and c.
    """
    h, c = _lstm(by_x, by_h, bias, c)
    return {"new_h": h, "new_c": c}


@both
def lstm_gates_slope(cotangent_h, cotangent_c, by_x, by_h, bias, c):
    """The gradients with respect to the sum that goes into the gates, and by c."""
    _, pull = jax.vjp(lambda by_x, c: _lstm(by_x, by_h, bias, c), by_x, c)
    by_gates, by_c = pull((cotangent_h, cotangent_c))
    return {"by_gates": by_gates, "by_c": by_c}


@both
def gru_gates(by_x, by_h, bias, bias_n, h):
    """The gates of a block of cells, from their inputs from x and from h, of shape (batch, 3, cells); the new h."""
    return {"new_h": _gru(by_x, by_h, bias, bias_n, h)}


@both
def gru_gates_slope(cotangent_h, by_x, by_h, bias, bias_n, h):
    """The gradients with respect to the inputs of the gates from x and from h, and by h itself."""
    _, pull = jax.vjp(lambda by_x, by_h, h: _gru(by_x, by_h, bias, bias_n, h), by_x, by_h, h)
    from_x, from_h, direct = pull(cotangent_h)
    return {"from_x": from_x, "from_h": from_h, "direct": direct}


_KINDS = {"gates": (0, 1, 2), "state": (0, 2), "bias": (1, 2), "cells": (2,)}
"""Of batch, gates and cells, which dimensions a field has."""


class _Cell:
    """The sizes of a cell, and the function of all of its gates."""

    def __init__(self, graph: Graph, x: Tensor, h: Tensor, count: int, grain: int | None, memory_fraction: float):
        self.graph, self.count, self.dtype = graph, count, x.dtype
        self.shape = h.shape
        self.batch, self.cells = math.prod(h.shape[:-1]), h.shape[-1]
        self.grain, self.memory_fraction = grain, memory_fraction

    def sizes(self, kind: str) -> tuple[int, ...]:
        """The shape of a field."""
        return tuple((self.batch, self.count, self.cells)[d] for d in _KINDS[kind])

    def rows(self, tensor: Tensor) -> Tensor:
        """Vectors for all of a batch as a matrix."""
        return tensor.reshape((self.batch, tensor.shape[-1]))

    def product(self, vectors: Tensor, weight: Tensor, name: str) -> Tensor:
        """Vectors times the transpose of a weight: the inputs of the gates, (batch, gates, cells)."""
        out = dot_general(self.graph, self.rows(vectors), weight, (((1,), (1,)), ((), ())), name=name)
        return out.reshape(self.sizes("gates"))

    def biases(self, name: str, bias: Tensor | None, kind: str) -> Tensor:
        """A bias, or none as zeros."""
        if bias is None:
            return self.graph.add_constant(f"no {name}", np.zeros((), self.dtype)).broadcast_to(self.sizes(kind))
        return bias.reshape(self.sizes(kind))

    def add(
        self,
        name: str,
        codelets: Pair,
        fields: Mapping[str, tuple[str, Tensor]],
        results: Mapping[str, str],
    ) -> list[Tensor]:
        """The vertices of all gates, block by block; each has all gates of its cells."""
        axes = (
            Axis("batch", self.batch, "kept"),
            Axis("gates", self.count, "whole"),
            Axis("cells", self.cells, "kept"),
        )
        tensors = {field: tensor.reshape(self.sizes(kind)) for field, (kind, tensor) in fields.items()}
        own = tuple(
            Field(field, _KINDS[kind], self.dtype, home_of(tensors[field])) for field, (kind, _) in fields.items()
        )
        made = tuple(Result(out, _KINDS[kind], self.dtype, self.dtype) for out, kind in results.items())
        outputs = {out: self.graph.add_variable(out, self.sizes(kind), self.dtype) for out, kind in results.items()}
        if self.batch * self.cells:
            work = Work(name, axes, own, made, *codelets)
            plan = plan_work(self.graph.target, work, self.grain, self.memory_fraction)
            add_planned(self.graph, work, plan, tensors, outputs)
        return list(outputs.values())

    def slopes(self, name: str, by_gates: Tensor, vectors: Tensor, weight: Tensor) -> tuple[Any, Any]:
        """The gradients by vectors and by the weight that they were multiplied with."""
        flat = by_gates.reshape((self.batch, self.count * self.cells))
        by_vectors = dot_general(self.graph, flat, weight, (((1,), (0,)), ((), ())), name=f"by_{name}")
        numbers = (((0,), (0,)), ((), ()))
        by_weight = dot_general(self.graph, flat, self.rows(vectors), numbers, name=f"by_weight_of_{name}")
        return by_vectors.reshape(vectors.shape), by_weight

    def by_bias(self, by_gates: Tensor, name: str) -> Tensor:
        """The gradient with respect to a bias: summed over the batch."""
        return sum_of(self.graph, by_gates, 0, name=name).flatten()


def _checked(
    operation: str,
    graph: Graph,
    count: int,
    x: Tensor,
    states: Mapping[str, Tensor],
    weight_ih: Tensor,
    weight_hh: Tensor,
    biases: Mapping[str, Tensor | None],
    grain: Any,
    memory_fraction: float,
) -> _Cell:
    """A cell whose operands fit.

    Raises:
        OperationError: they do not.
    """
    given = {name: bias for name, bias in biases.items() if bias is not None}
    tensors = {"x": x, **states, "weight_ih": weight_ih, "weight_hh": weight_hh, **given}
    check_tensors(operation, graph, **tensors)
    check_floating(operation, **tensors)
    check_same_dtype(operation, **tensors)
    h = next(iter(states.values()))
    cells, inputs = (h.shape or (0,))[-1], (x.shape or (0,))[-1]
    expected = {
        "x": (*h.shape[:-1], inputs),
        **dict.fromkeys(states, h.shape or (cells,)),
        "weight_ih": (count * cells, inputs),
        "weight_hh": (count * cells, cells),
        "bias": (count * cells,),
        "bias_n": (cells,),
    }
    for name, tensor in tensors.items():
        if tensor.shape != expected[name]:
            raise OperationError(
                f"{name} of ops.{operation} does not fit the cell",
                given=tensor,
                expected=f"shape {expected[name]}: {count} gates of {cells} cells, by the shape of h",
            )
    return _Cell(graph, x, h, count, checked_grain(operation, grain), memory_fraction)


# --- operations ---------------------------------------------------------------------------------------------


class LSTMState(NamedTuple):
    """The results of `lstm_cell`.

    Attributes:
        h: the new hidden states, of shape (..., cells).
        c: the new memories, in the same shape.
    """

    h: Tensor
    c: Tensor


@checked
def lstm_cell(
    graph: Graph,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "lstm_cell",
) -> LSTMState:
    """A step of a long short-term memory, as `equinox.nn.LSTMCell`: gates i, f, g, o.

    i, f, g, o are the quarters of weight_ih x + weight_hh h + bias; the new c is sigmoid(f) c + sigmoid(i) tanh(g), the
    new h is sigmoid(o) tanh(new c).

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: inputs, of shape (..., inputs).
        h: hidden states, (..., cells).
        c: memories, in the same shape.
        weight_ih: (4 cells, inputs).
        weight_hh: (4 cells, cells).
        bias: (4 cells,); default: none.
        grain: about how many elements a vertex of the gates has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan of the gates may use.
        name: of the scope.

    Returns:
        The new h and c.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> x, h, w, u = jnp.ones((2, 3)), jnp.ones((2, 5)), jnp.ones((20, 3)), jnp.ones((20, 5))
    >>> new_h, new_c = cl.lower(cl.ops.lstm_cell)(x, h, h, w, u)
    >>> new_h.shape, new_c.shape
    ((2, 5), (2, 5))
    """
    states = {"h": h, "c": c}
    cell = _checked(name, graph, 4, x, states, weight_ih, weight_hh, {"bias": bias}, grain, memory_fraction)
    with graph.scope(name, unique=True):
        new_h, new_c = cell.add("gates", lstm_gates, _lstm_fields(cell, x, h, c, weight_ih, weight_hh, bias), _LSTM)
    return LSTMState(new_h.reshape(h.shape), new_c.reshape(h.shape))


_LSTM = {"new_h": "state", "new_c": "state"}

_Fields = dict[str, tuple[str, Tensor]]


def _lstm_fields(
    cell: _Cell,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
) -> _Fields:
    """The fields of the vertices of all gates, with the products that go into them."""
    return {
        "by_x": ("gates", cell.product(x, weight_ih, "multiply_x")),
        "by_h": ("gates", cell.product(h, weight_hh, "multiply_h")),
        "bias": ("bias", cell.biases("bias", bias, "bias")),
        "c": ("state", c),
    }


class LSTMCellGradient(NamedTuple):
    """The gradients of `lstm_cell`, each of the shape and dtype of its operand.

    Attributes:
        x: by the inputs.
        h: by the hidden states.
        c: by the memories.
        weight_ih: by the weights of the inputs.
        weight_hh: by the weights of the hidden states.
        bias: by the biases; None where there are none.
    """

    x: Tensor
    h: Tensor
    c: Tensor
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor | None


@checked
def lstm_cell_gradient(
    graph: Graph,
    cotangent_h: Tensor,
    cotangent_c: Tensor,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "lstm_cell_gradient",
) -> LSTMCellGradient:
    """The gradients of `lstm_cell` by x, h, c and its weights, as `jax.vjp` gives them; the products are made anew.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent_h: of the new h, (..., cells).
        cotangent_c: of the new c, (..., cells).
        x: inputs, of shape (..., inputs).
        h: hidden states, (..., cells).
        c: memories, in the same shape.
        weight_ih: (4 cells, inputs).
        weight_hh: (4 cells, cells).
        bias: (4 cells,); default: none.
        grain: about how many elements a vertex of the gates has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan of the gates may use.
        name: of the scope.

    Returns:
        The gradients by x, h, c, weight_ih, weight_hh and bias; each of its shape and dtype; None by a
            bias that is None.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, h = graph.add_variable("x", (2, 3)), graph.add_variable("h", (2, 5))
    >>> w, u = graph.add_variable("w", (20, 3)), graph.add_variable("u", (20, 5))
    >>> cl.ops.lstm_cell_gradient(graph, h, h, x, h, h, w, u).weight_ih.shape
    (20, 3)
    """
    states = {"h": h, "c": c, "cotangent_h": cotangent_h, "cotangent_c": cotangent_c}
    cell = _checked(name, graph, 4, x, states, weight_ih, weight_hh, {"bias": bias}, grain, memory_fraction)
    with graph.scope(name, unique=True):
        cotangents: _Fields = {"cotangent_h": ("state", cotangent_h), "cotangent_c": ("state", cotangent_c)}
        fields = {**cotangents, **_lstm_fields(cell, x, h, c, weight_ih, weight_hh, bias)}
        by_gates, by_c = cell.add("gates", lstm_gates_slope, fields, {"by_gates": "gates", "by_c": "state"})
        by_x, by_ih = cell.slopes("x", by_gates, x, weight_ih)
        by_h, by_hh = cell.slopes("h", by_gates, h, weight_hh)
        by_bias = None if bias is None else cell.by_bias(by_gates, "by_bias")
    return LSTMCellGradient(by_x, by_h, by_c.reshape(c.shape), by_ih, by_hh, by_bias)


@checked
def gru_cell(
    graph: Graph,
    x: Tensor,
    h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    bias_n: Tensor | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "gru_cell",
) -> Tensor:
    """A step of a gated recurrent unit, as `equinox.nn.GRUCell`: a reset gate, an update gate, and the new state.

    With thirds i of weight_ih x + bias and k of weight_hh h: r = sigmoid(i1 + k1), z = sigmoid(i2 + k2),
    n = tanh(i3 + r (k3 + bias_n)), and the new h is n + z (h - n).

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: inputs, of shape (..., inputs).
        h: hidden states, (..., cells).
        weight_ih: (3 cells, inputs).
        weight_hh: (3 cells, cells).
        bias: (3 cells,); default: none.
        bias_n: (cells,), of the new state; default: none.
        grain: about how many elements a vertex of the gates has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan of the gates may use.
        name: of the scope.

    Returns:
        The new h.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, h = graph.add_variable("x", (2, 3)), graph.add_variable("h", (2, 5))
    >>> w, u = graph.add_variable("w", (15, 3)), graph.add_variable("u", (15, 5))
    >>> cl.ops.gru_cell(graph, x, h, w, u).shape
    (2, 5)
    """
    biases = {"bias": bias, "bias_n": bias_n}
    cell = _checked(name, graph, 3, x, {"h": h}, weight_ih, weight_hh, biases, grain, memory_fraction)
    with graph.scope(name, unique=True):
        fields = _gru_fields(cell, x, h, weight_ih, weight_hh, bias, bias_n)
        (new_h,) = cell.add("gates", gru_gates, fields, {"new_h": "state"})
    return new_h.reshape(h.shape)


def _gru_fields(
    cell: _Cell,
    x: Tensor,
    h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    bias_n: Tensor | None,
) -> _Fields:
    """The fields of the vertices of all gates, with the products that go into them."""
    return {
        "by_x": ("gates", cell.product(x, weight_ih, "multiply_x")),
        "by_h": ("gates", cell.product(h, weight_hh, "multiply_h")),
        "bias": ("bias", cell.biases("bias", bias, "bias")),
        "bias_n": ("cells", cell.biases("bias_n", bias_n, "cells")),
        "h": ("state", h),
    }


class GRUCellGradient(NamedTuple):
    """The gradients of `gru_cell`, each of the shape and dtype of its operand.

    Attributes:
        x: by the inputs.
        h: by the hidden states.
        weight_ih: by the weights of the inputs.
        weight_hh: by the weights of the hidden states.
        bias: by the biases; None where there are none.
        bias_n: by the biases of the new values; None where there are none.
    """

    x: Tensor
    h: Tensor
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor | None
    bias_n: Tensor | None


@checked
def gru_cell_gradient(
    graph: Graph,
    cotangent_h: Tensor,
    x: Tensor,
    h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    bias_n: Tensor | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "gru_cell_gradient",
) -> GRUCellGradient:
    """The gradients of `gru_cell` by x, h and its weights, as `jax.vjp` gives them; the products are made anew.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent_h: of the new h, (..., cells).
        x: inputs, of shape (..., inputs).
        h: hidden states, (..., cells).
        weight_ih: (3 cells, inputs).
        weight_hh: (3 cells, cells).
        bias: (3 cells,); default: none.
        bias_n: (cells,), of the new values; default: none.
        grain: about how many elements a vertex of the gates has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan of the gates may use.
        name: of the scope.

    Returns:
        The gradients by x, h, weight_ih, weight_hh, bias and bias_n; each of its shape and dtype; None by
            a bias that is None.

    Raises:
        OperationError: shapes or dtypes that do not fit.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, h = graph.add_variable("x", (2, 3)), graph.add_variable("h", (2, 5))
    >>> w, u = graph.add_variable("w", (15, 3)), graph.add_variable("u", (15, 5))
    >>> cl.ops.gru_cell_gradient(graph, h, x, h, w, u).weight_ih.shape
    (15, 3)
    """
    biases, states = {"bias": bias, "bias_n": bias_n}, {"h": h, "cotangent_h": cotangent_h}
    cell = _checked(name, graph, 3, x, states, weight_ih, weight_hh, biases, grain, memory_fraction)
    with graph.scope(name, unique=True):
        fields = _gru_fields(cell, x, h, weight_ih, weight_hh, bias, bias_n)
        fields = {"cotangent_h": ("state", cotangent_h), **fields}
        results = {"from_x": "gates", "from_h": "gates", "direct": "state"}
        from_x, from_h, direct = cell.add("gates", gru_gates_slope, fields, results)
        by_x, by_ih = cell.slopes("x", from_x, x, weight_ih)
        through, by_hh = cell.slopes("h", from_h, h, weight_hh)
        by_h = map_of(graph, jnp.add, direct.reshape(h.shape), through, name="add")
        by_bias = None if bias is None else cell.by_bias(from_x, "by_bias")
        by_n = None if bias_n is None else cell.by_bias(from_h[:, 2], "by_bias_n")
    return GRUCellGradient(by_x, by_h, by_ih, by_hh, by_bias, by_n)
