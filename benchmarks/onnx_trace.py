"""What it costs to load a network of ONNX and to trace it into a graph, beside tracing it as Equinox has it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator
from typing import Any

import equinox as eqx
import jax
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from codelet.models.networks import NETWORKS
from codelet.models.training import AXIS

SIZES = {"small": ((1,), (4,), 5, (1, 3, 12, 12)), "resnet50": ((3, 4, 6, 3), (64, 128, 256, 512), 1000, None)}
"""Residual networks by name: repeats and widths of stages, classes, and the shape of a batch where it is small."""


def _network(name: str) -> tuple[Any, Any, tuple[int, ...]]:
    """A residual network, its statistics, and the shape of a batch."""
    resnet = importlib.import_module("codelet.models.resnet").resnet
    repeats, widths, classes, shape = SIZES[name]
    network, state = resnet(jax.random.key(0), repeats, bottleneck=True, classes=classes, widths=widths)
    return network, state, shape or (1, *NETWORKS[name].shape)


def seconds_to_load_and_trace(name: str) -> float:
    """CPU seconds from the bytes of a file of ONNX to a graph."""
    network, state, shape = _network(name)
    data = importlib.import_module("benchmarks.onnx_of_models").of_resnet(network, state, shape).SerializeToString()
    start = time.process_time()
    model = cl.onnx.load(data)
    cl.trace(model, model.parameters, *model.inputs.values())
    return time.process_time() - start


def seconds_to_trace(name: str) -> float:
    """CPU seconds from a network of Equinox, for inference, to a graph; blocks of one shape are one function."""
    network, state, shape = _network(name)
    parameters, rest = eqx.partition((eqx.nn.inference_mode(network), state), eqx.is_inexact_array)

    def logits(parameters: Any, pictures: Any) -> Any:
        network, state = eqx.combine(parameters, rest)
        return jax.vmap(network, axis_name=AXIS, in_axes=(0, None), out_axes=(0, None))(pictures, state)[0]

    start = time.process_time()
    cl.trace(logits, parameters, jax.ShapeDtypeStruct(shape, np.float32))
    return time.process_time() - start


@benchmark
def onnx_trace(network: str = "resnet50", rounds: int = 5) -> Generator[Comparison | Row, Row, None]:
    """Loading and tracing a residual network of ONNX, beside tracing it, each in a process of its own, in turn."""
    loaded, traced = [], []
    for _ in range(rounds):
        loaded.append(in_fresh_process(seconds_to_load_and_trace, network))
        traced.append(in_fresh_process(seconds_to_trace, network))
    ours, beside = float(np.median(loaded)), float(np.median(traced))
    yield Row("onnx_trace", ours, None, ours / beside, 1.3, f"to {beside:.2f} s of tracing it in Equinox")
