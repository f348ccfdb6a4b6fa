"""A right call of every public operation: what each of its arguments may be, from which wrong calls are made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl

TARGET = cl.IPU(num_tiles=4)


class Of:
    """A tensor that a call is given: its shape and dtype."""

    def __init__(self, *shape: int, dtype: Any = jnp.float32):
        self.shape, self.dtype = shape, dtype


I32, U32, F16 = jnp.int32, jnp.uint32, jnp.float16
X, ROW, KEY = Of(4, 6), Of(6), Of(2, dtype=U32)
PICTURE, WINDOW = Of(2, 5, 5, 3), (2, 2)
QUERY = Of(2, 4, 2, 8)  # batch, positions, heads, width
GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))
NHWC: Any = ("NHWC", "HWIO", "NHWC")

USUAL: dict[str, Any] = {
    "x": X,
    "cotangent": X,
    "result": X,
    "operand": X,
    "axis": 1,
    "channel_axis": 1,
    "keepdims": False,
    "reverse": False,
    "scale": ROW,
    "offset": ROW,
    "mean": ROW,
    "variance": ROW,
    "eps": 1e-5,
    "ddof": 0,
    "momentum": 0.9,
    "key": KEY,
    "shape": (4, 6),
    "dtype": jnp.float32,
    "rate": 0.5,
    "p": 0.5,
    "mode": "clip",
    "data": 3,
    "num": 2,
    "minval": 0.0,
    "maxval": 1.0,
    "stable": True,
    "descending": False,
    "num_keys": 1,
    "k": 2,
    "x_shape": (4, 6),
    "window_shape": WINDOW,
    "strides": (1, 1),
    "padding": "VALID",
    "count_include_pad": True,
    "unique_indices": False,
    "indices_are_sorted": False,
    "fill_value": 0.0,
    "op": "add",
    "is_causal": False,
    "mask": None,
    "bias": None,
    "preferred_element_type": jnp.float32,
    "partials": jnp.float32,
    "window_strides": (1, 1),
    "lhs_dilation": None,
    "rhs_dilation": None,
    "feature_group_count": 1,
    "batch_group_count": 1,
    "num_groups": 2,
    "num_heads": 2,
    "widths": 1,
    "padding_value": 0.0,
    "like": None,
    "padding_config": ((0, 1, 0), (1, 0, 0)),
    "rows": 8,
    "columns": 8,
    "summed": 16,
    "batch": 1,
    "count": 100,
    "kind": "sum",
    "window_dimensions": (2, 3),
    "base_dilation": None,
    "window_dilation": None,
    "biases": None,
    "allow_negative_indices": True,
    "start_indices": (1, 2),
    "slice_sizes": (2, 3),
    "update": Of(2, 3),
    "updates": Of(3, 6),
    "indices": Of(3, 1, dtype=I32),
    "low": 0.0,
    "high": 1.0,
    "of": "results",
    "predicate": Of(4, 6, dtype=jnp.bool_),
    "on_true": X,
    "on_false": X,
    "tensors": [X, X],
    "value": 1.5,
    "weight_ih": Of(24, 5),
    "weight_hh": Of(24, 6),
    "h": Of(3, 6),
    "c": Of(3, 6),
    "bias_n": None,
    "cotangent_h": Of(3, 6),
    "cotangent_c": Of(3, 6),
    "table": X,
    "average": ROW,
    "own": ROW,
    "function": jnp.sin,
    "positions": Of(4, 2, dtype=I32),
    "permutation": Of(4, 6, dtype=I32),
    "name": "own",
    "memory_fraction": 0.5,
    "grain": 4,
    "target": TARGET,
    "tangent": X,
}

TRUTHS = {"x": Of(4, 6, dtype=jnp.bool_)}
LSTM = {"x": Of(3, 5)}
PLACES = {"indices": Of(3, dtype=I32)}
POOL = {"x": PICTURE, "x_shape": PICTURE.shape, "axis": (1, 2), "cotangent": Of(2, 4, 4, 3)}
LABELS = {"logits": X, "labels": Of(4, dtype=I32), "cotangent": Of(4)}
LOOK_UP = {
    "start_indices": Of(3, 1, dtype=I32),
    "dimension_numbers": GATHER,
    "slice_sizes": (1, 6),
    "cotangent": Of(3, 6),
}
PUT = {"dimension_numbers": SCATTER}
CONV: dict[str, Any] = {
    "lhs": PICTURE,
    "rhs": Of(2, 2, 3, 4),
    "dimension_numbers": NHWC,
    "cotangent": Of(2, 4, 4, 4),
    "lhs_shape": PICTURE.shape,
    "rhs_shape": (2, 2, 3, 4),
}
ATTENTION = {"query": QUERY, "key": QUERY, "value": QUERY, "cotangent": QUERY, "scale": None}
GRU = {"x": Of(3, 5), "weight_ih": Of(18, 5), "weight_hh": Of(18, 6)}
HEADS = {
    **dict.fromkeys(("query", "key", "value", "cotangent"), Of(2, 4, 8)),
    "weights": [Of(8, 8)] * 4,
    "biases": [Of(8)] * 4,
}
PRODUCT = {"a": Of(4, 5), "b": Of(5, 6), "dimension_numbers": (((1,), (0,)), ((), ()))}
OPTIMISED = {
    **{name: [X, ROW] for name in ("parameters", "gradients", "velocity")},
    "state": [Of(dtype=I32), Of(2), [X, ROW], [X, ROW]],
    "learning_rate": 0.1,
}
REDUCED: dict[str, Any] = dict.fromkeys(("cotangent", "result"), Of(4))

CALLS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("all", "any"), TRUTHS),
    **dict.fromkeys(("avg_pool", "avg_pool_gradient", "max_pool", "max_pool_gradient", "plan_max_pool"), POOL),
    **dict.fromkeys(("cross_entropy", "cross_entropy_gradient"), LABELS),
    "cross_entropy_label_gradient": {**LABELS, "labels": X},
    **dict.fromkeys(("conv_general_dilated", "conv_input_gradient", "conv_kernel_gradient"), CONV),
    "plan_conv": {**CONV, "lhs": PICTURE.shape, "rhs": (2, 2, 3, 4)},
    **dict.fromkeys(("gather", "gather_gradient", "plan_gather"), LOOK_UP),
    **dict.fromkeys(("scatter", "scatter_gradient"), PUT),
    **dict.fromkeys(("dot_product_attention", "dot_product_attention_gradient"), ATTENTION),
    **dict.fromkeys(("lstm_cell", "lstm_cell_gradient"), LSTM),
    **dict.fromkeys(("gru_cell", "gru_cell_gradient"), GRU),
    **dict.fromkeys(("multi_head_attention", "multi_head_attention_gradient"), HEADS),
    **dict.fromkeys(("dot_general", "dot_general_gradient", "matmul", "matmul_gradient"), PRODUCT),
    **dict.fromkeys(("max_gradient", "mean_gradient", "prod_gradient", "sum_gradient", "var_gradient"), REDUCED),
    "logsumexp_gradient": REDUCED,
    **dict.fromkeys(("embedding", "take"), PLACES),
    "embedding_gradient": {"cotangent": Of(3, 6), "indices": Of(3, dtype=I32)},
    "take_gradient": {"cotangent": Of(4, 3), "indices": Of(3, dtype=I32)},
    "dynamic_slice_gradient": {"cotangent": Of(2, 3)},
    "concatenate_gradient": {"cotangent": Of(4, 12)},
    "lax_pad_gradient": {"cotangent": Of(5, 7)},
    "pad": {"mode": "constant", "value": 0},
    "running_average_gradient": {"cotangent": ROW},
    "select_n": {"which": Of(4, 6, dtype=jnp.bool_), "*cases": [X, X]},
    "select_n_gradient": {"which": Of(4, 6, dtype=jnp.bool_), "*cases": [X, X]},
    "map": {"*operands": [X]},
    "plan_map": {"*operands": [X]},
    "map_gradient": {"cotangents": X, "*operands": [X]},
    "plan_operation": {"operation": cl.ops.softmax, "*operands": [jax.ShapeDtypeStruct((4, 6), jnp.float32)]},
    "plan_draw": {"operation": "normal"},
    "plan_reduce": {"x": X, "operation": "sum"},
    "sort_together": {"operands": [X, X]},
    "top_k_gradient": {"cotangent": Of(4, 2)},
    "random_bits": {"dtype": U32},
    "adam_state": {"parameters": [X, ROW]},
    **dict.fromkeys(("sgd", "momentum", "adam", "adamw"), OPTIMISED),
    "reduce_window_tangent": {"kind": "max"},
    "bernoulli": {"mode": "low"},
}
"""What is other than usual, by operation; of parameters that take several, behind a star."""


def tensor_of(graph: cl.Graph, value: Any, name: str) -> Any:
    """A value with tensors of a graph in the place of what describes them."""
    if isinstance(value, Of):
        return graph.add_variable(f"given/{name}", value.shape, value.dtype)
    if isinstance(value, list):
        return [tensor_of(graph, own, f"{name}{k}") for k, own in enumerate(value)]
    return value


def given(operation: str) -> tuple[cl.Graph, list[Any], dict[str, Any]]:
    """A graph, and arguments for an operation by it: those that come by position, and by name."""
    graph, function = cl.Graph(TARGET), getattr(cl.ops, operation)
    own, positional, named = USUAL | CALLS.get(operation, {}), list[Any](), dict[str, Any]()
    for name, parameter in inspect.signature(function).parameters.items():
        value = graph if name == "graph" else tensor_of(graph, own.get(name, parameter.default), name)
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                positional += tensor_of(graph, own[f"*{name}"], name)
            case inspect.Parameter.VAR_KEYWORD:
                continue
            case inspect.Parameter.KEYWORD_ONLY:
                named[name] = value
            case _:
                positional.append(value)
    return graph, positional, named


WRONG: dict[str, Callable[[cl.Graph], Any]] = {
    "None": lambda graph: None,
    "true": lambda graph: True,
    "minus one": lambda graph: -1,
    "nought": lambda graph: 0,
    "a large number": lambda graph: 2**70,
    "a half": lambda graph: 0.5,
    "seven": lambda graph: 7,
    "nan": lambda graph: float("nan"),
    "infinity": lambda graph: float("inf"),
    "text": lambda graph: "a",
    "no text": lambda graph: "",
    "bytes": lambda graph: b"a",
    "an empty tuple": lambda graph: (),
    "a tuple": lambda graph: (1, "a"),
    "a tuple of none": lambda graph: (None, None),
    "a dict": lambda graph: {"a": 1},
    "an object": lambda graph: object(),
    "a class": lambda graph: int,
    "an array": lambda graph: np.ones((2, 2)),
    "an array of JAX": lambda graph: jnp.ones(3),
    "a function": lambda graph: len,
    "a function of nothing": lambda graph: lambda: 3,
    "a tensor of integers": lambda graph: graph.add_variable("wrong/whole", (5, 3), jnp.int32),
    "a tensor of nothing": lambda graph: graph.add_variable("wrong/empty", (0, 6)),
    "a number of a tensor": lambda graph: graph.add_variable("wrong/number", ()),
    "a tensor of another graph": lambda graph: cl.Graph().add_variable("x", (4, 6)),
    "a symbol": lambda graph: cl.grid(4),
    "a graph": lambda graph: cl.Graph(),
}
"""What an argument may be given that it hardly is."""
