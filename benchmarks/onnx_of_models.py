"""The networks of `codelet.models` as ONNX, for one batch, written by the package's helper."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import codelet as cl
from codelet.models.alexnet import AlexNet
from codelet.models.resnet import ResNet
from codelet.models.training import AXIS


class GraphWriter:
    """A graph that grows by nodes, which are named after their modules as PyTorch names them.

    Attributes:
        nodes, arrays: of the graph.
    """

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []

    def node(self, operator: str, module: str, *operands: Any, **attributes: Any) -> str:
        """Add a node of values, which have names, and arrays; return the name of its result."""
        name = f"{module}/{operator}_{len(self.nodes)}"
        names = []
        for k, operand in enumerate(operands):
            if not isinstance(operand, str):
                array = numpy_helper.from_array(np.asarray(operand), f"{name}.{k}")
                self.arrays.append(array)
                operand = array.name
            names.append(operand)
        self.nodes.append(helper.make_node(operator, names, [name], name=f"/{name}", **attributes))
        return name

    def conv(self, name: str, x: str, layer: eqx.nn.Conv2d) -> str:
        """A convolution of Equinox."""
        bias = [] if layer.bias is None else [np.asarray(layer.bias).reshape(-1)]
        pads = [side for ends in zip(*layer.padding, strict=True) for side in ends]
        return self.node("Conv", name, x, layer.weight, *bias, strides=layer.stride, pads=pads)

    def pool(self, name: str, x: str, layer: eqx.nn.MaxPool2d) -> str:
        """A pooling of Equinox."""
        pads = [side for ends in zip(*layer.padding, strict=True) for side in ends]
        return self.node("MaxPool", name, x, kernel_shape=layer.kernel_size, strides=layer.stride, pads=pads)

    def dense(self, name: str, x: str, layer: eqx.nn.Linear) -> str:
        """A dense layer of Equinox."""
        return self.node("Gemm", name, x, layer.weight, layer.bias, transB=1)

    def model(self, x: str, shape: tuple[int, ...], y: str, classes: Any) -> onnx.ModelProto:
        """The model from an input to a result."""
        kinds = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)
            for name, extents in ((x, shape), (y, (shape[0], classes)))
        ]
        graph = helper.make_graph(self.nodes, "network", kinds[:1], kinds[1:], self.arrays)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def of_alexnet(network: AlexNet, shape: tuple[int, ...]) -> onnx.ModelProto:
    """AlexNet.

    Args:
        network: with its parameters.
        shape: of a batch of pictures.
    """
    writer, x = GraphWriter(), "x"
    for k in range(1, 6):
        x = writer.node("Relu", f"relu{k}", writer.conv(f"conv{k}", x, getattr(network, f"conv{k}")))
        if k in (1, 2, 5):
            x = writer.pool(f"pool{k}", x, network.pool)
    x = writer.node("Flatten", "flatten", x)
    for k in (6, 7):
        x = writer.node("Relu", f"relu{k}", writer.dense(f"fc{k}", x, getattr(network, f"fc{k}")))
    y = writer.dense("fc8", x, network.fc8)
    return writer.model("x", shape, y, int(network.fc8.out_features))


def of_resnet(network: ResNet, state: list[eqx.nn.State], shape: tuple[int, ...]) -> onnx.ModelProto:
    """A residual network for inference, its batch norms by running statistics, divided by their weight as Equinox does.

    Args:
        network: with its parameters.
        state: the statistics of the stem and of each block.
        shape: of a batch of pictures.
    """
    writer = GraphWriter()

    def normalised(name: str, x: str, layer: Any, statistics: eqx.nn.State) -> str:
        norm, module = layer.norm, f"{name}/norm"
        x = writer.conv(f"{name}/conv", x, layer.conv)
        steps = int(statistics.get(norm.batch_counter))
        weight = np.float32(1 - norm.momentum**steps if steps else 1)
        running = [writer.node("Div", module, own, weight) for own in statistics.get(norm.batch_state_index)]
        return writer.node("BatchNormalization", module, x, norm.weight, norm.bias, *running, epsilon=norm.eps)

    def block(name: str, x: str, layers: Any, statistics: eqx.nn.State) -> str:
        short = x if layers.shortcut is None else normalised(f"{name}/shortcut", x, layers.shortcut, statistics)
        for k, layer in enumerate(layers.body[:-1], 1):
            x = writer.node("Relu", f"{name}/relu{k}", normalised(f"{name}/body{k}", x, layer, statistics))
        x = normalised(f"{name}/body{len(layers.body)}", x, layers.body[-1], statistics)
        return writer.node("Relu", name, writer.node("Add", name, x, short))

    stem, *statistics = state
    x = writer.node("Relu", "stem/relu", normalised("stem/first", "x", network.stem.first, stem))
    x = writer.pool("stem/pool", x, network.stem.pool)
    rest = iter(statistics)
    for stage, blocks in enumerate(network.stages, 1):
        for number, layers in enumerate(blocks, 1):
            x = block(f"stage{stage}/block{number}", x, layers, next(rest))
    x = writer.node("Flatten", "flatten", writer.node("GlobalAveragePool", "mean", x))
    return writer.model("x", shape, writer.dense("dense", x, network.dense), int(network.dense.out_features))


def beside_equinox(network: Any, state: list[eqx.nn.State] | None, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A network as Equinox computes it and as ONNX does: each a function of parameters and a batch, with parameters.

    Args:
        network: AlexNet, or a residual network.
        state: the statistics of a residual network.
        shape: of a batch of pictures.
    """
    parameters, rest = eqx.partition((eqx.nn.inference_mode(network), state), eqx.is_inexact_array)

    def logits(parameters: Any, pictures: Any) -> Any:
        each, state = eqx.combine(parameters, rest)
        with jax.disable_jit():  # blocks are no functions in the file either
            if state is None:
                return jax.vmap(each)(pictures)
            return jax.vmap(each, axis_name=AXIS, in_axes=(0, None), out_axes=(0, None))(pictures, state)[0]

    model = cl.onnx.load(of_alexnet(network, shape) if state is None else of_resnet(network, state, shape))
    return (logits, parameters), (lambda parameters, pictures: model(parameters, pictures)[0], model.parameters)


def with_drawn_statistics(
    state: list[eqx.nn.State], network: ResNet, random: np.random.Generator
) -> list[eqx.nn.State]:
    """Statistics of batch norms at random: those before the first step are zeros and ones."""
    blocks = [network.stem, *(layers for blocks in network.stages for layers in blocks)]
    is_norm = lambda item: isinstance(item, eqx.nn.BatchNorm)  # noqa: E731
    drawn = []
    for layers, statistics in zip(blocks, state, strict=True):
        for norm in filter(is_norm, jax.tree.leaves(layers, is_leaf=is_norm)):
            mean, variance = statistics.get(norm.batch_state_index)
            values = random.standard_normal(mean.shape, np.float32), random.uniform(0.5, 2, variance.shape)
            statistics = statistics.set(norm.batch_state_index, tuple(jnp.asarray(item, mean.dtype) for item in values))
        drawn.append(statistics)
    return drawn
