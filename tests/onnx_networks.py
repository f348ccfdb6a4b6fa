"""The networks that the package of ONNX ships, with parameters of their own.

Their weights are constants of zeros or the like, so that what they give proves nothing. Here each of these constants is
an initializer of random numbers, small enough that nothing overflows.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def _shape(model: onnx.ModelProto, name: str) -> tuple[int, ...]:
    (shape,) = (own for own in model.graph.initializer if own.name == name)
    return tuple(onnx.numpy_helper.to_array(shape).tolist())


def network(name: str, *, with_softmax: bool = False) -> onnx.ModelProto:
    """A network with random parameters, up to what its softmax is of."""
    model, random = onnx.load(FOLDER / f"light_{name}.onnx"), np.random.default_rng(0)
    graph = model.graph
    readers: dict[str, tuple[str, int]] = {}
    renamed: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Unsqueeze":  # of a scale and an offset, after a normalization
            renamed[node.output[0]] = node.input[0]
        for place, operand in enumerate(node.input):
            readers[renamed.get(operand, operand)] = node.op_type, place
    nodes = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape, (operator, place) = _shape(model, node.input[0]), readers.get(node.output[0], ("", 0))
        values = random.standard_normal(shape, np.float32)
        if operator in ("Conv", "Gemm") and place == 1:
            inputs = shape[1] if operator == "Gemm" else math.prod(shape[1:])
            values *= np.float32(math.sqrt(2 / inputs))
        elif (operator == "BatchNormalization" and place in (1, 4)) or operator == "Mul":
            values = np.float32(1) + np.float32(0.1) * np.abs(values)
        else:
            values *= np.float32(0.1)
        graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))
    if nodes[-1].op_type == "Softmax" and not with_softmax:
        graph.output[0].name = nodes.pop().input[0]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {operand for node in nodes for operand in node.input}
    left = [own for own in graph.initializer if own.name in used]
    inputs = [own for own in graph.input if own.name in used and own.name not in {one.name for one in left}]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(left)
    graph.input.extend(inputs)
    model.ir_version = 8  # of which initializers need not be inputs as well
    return model
