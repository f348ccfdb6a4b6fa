"""Files of ONNX that were changed, in their bytes and in what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx

_NAMES = ("../x", "<script>", "", "x" * 5_000, "\N{SNOWMAN}", "weight")
_NUMBERS = (-(1 << 62), -3, -1, 0, 1, 2, 7, 1 << 31, 1 << 40, (1 << 62) + 1)


def _chosen(random: np.random.Generator, several: Sequence) -> int:
    return int(random.integers(len(several)))


def _changed_bytes(data: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        place = int(random.integers(len(changed)))
        way = random.integers(4)
        if way == 0:
            changed[place] ^= 1 << int(random.integers(8))
        elif way == 1:
            del changed[place : place + int(random.integers(1, 20))]
        elif way == 2:
            changed[place:place] = random.bytes(int(random.integers(1, 20)))
        else:
            changed = changed[: place + 1]
        if not changed:
            return b""
    return bytes(changed)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _change_numbers(node: onnx.NodeProto, random: np.random.Generator) -> None:
    """A number in an attribute becomes another, or there is one attribute less."""
    if not node.attribute:
        return
    attribute = node.attribute[_chosen(random, node.attribute)]
    number = int(random.choice(_NUMBERS))
    if attribute.ints:
        attribute.ints[_chosen(random, attribute.ints)] = number
    elif attribute.HasField("i"):
        attribute.i = number
    else:
        node.attribute.remove(attribute)


def _change_array(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """An element of a known array of integers, on which shapes depend, becomes another."""
    whole = [array for array in model.graph.initializer if array.data_type == onnx.TensorProto.INT64]
    whole += [
        attribute.t
        for node in _all_nodes(model.graph)
        for attribute in node.attribute
        if attribute.HasField("t") and attribute.t.data_type == onnx.TensorProto.INT64
    ]
    if not whole:
        return
    array = whole[_chosen(random, whole)]
    values = onnx.numpy_helper.to_array(array).copy()
    if values.size:
        values.reshape(-1)[int(random.integers(values.size))] = int(random.choice(_NUMBERS))
    array.CopyFrom(onnx.numpy_helper.from_array(values, array.name))


def _nest(graph: onnx.GraphProto, depth: int) -> None:
    """Branches within branches."""
    for level in range(depth):
        branch = onnx.helper.make_node("If", ["x"], [f"z{level}"])
        branch.attribute.append(onnx.helper.make_attribute("then_branch", onnx.GraphProto()))
        graph.node.append(branch)
        graph = graph.node[-1].attribute[0].g


def _changed_model(model: onnx.ModelProto, random: np.random.Generator) -> bytes:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph, way = changed.graph, random.integers(12)
    nodes = list(_all_nodes(graph))
    node, name = nodes[_chosen(random, nodes)], _NAMES[_chosen(random, _NAMES)]
    tensor = graph.initializer[_chosen(random, graph.initializer)] if graph.initializer else None
    if way == 0 and node.input:
        node.input[_chosen(random, node.input)] = name
    elif way == 1:
        node.op_type = name if random.integers(2) else nodes[_chosen(random, nodes)].op_type
    elif way == 2 and tensor is not None and tensor.dims:
        tensor.dims[_chosen(random, tensor.dims)] = int(random.choice([-1, 0, 7, 1 << 40, (1 << 62) + 1]))
    elif way == 3 and tensor is not None:
        tensor.data_type = int(random.integers(30))
    elif way == 4:
        changed.opset_import[0].version = int(random.choice([0, 1, 7, 13, 17, 99, 1 << 40]))
    elif way == 5:
        _nest(graph, int(random.integers(1, 60)))
    elif way == 6:
        node.name, graph.input[0].name = name, name
    elif way == 7:
        del graph.node[_chosen(random, graph.node)]
    elif way == 8:
        extents = graph.input[0].type.tensor_type.shape.dim
        if extents:
            extents[_chosen(random, extents)].dim_value = int(random.choice(_NUMBERS))
    elif way == 9:
        _change_array(changed, random)
    else:
        _change_numbers(node, random)
    return changed.SerializeToString()


def mutations(models: Sequence[onnx.ModelProto], count: int) -> Iterator[bytes]:
    """So many changed files of some models, always the same ones."""
    data = [model.SerializeToString() for model in models]
    for seed in range(count):
        random, which = np.random.default_rng(seed), seed // 3 % len(models)
        yield _changed_model(models[which], random) if seed % 3 else _changed_bytes(data[which], random)
