"""Files of ONNX that were changed, in their bytes and in what they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

_NAMES = ("../x", "<script>", "", "x" * 5_000, "\N{SNOWMAN}", "weight")


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


def _changed_model(model: onnx.ModelProto, random: np.random.Generator) -> bytes:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph, way = changed.graph, random.integers(8)
    node = graph.node[int(random.integers(len(graph.node)))]
    tensor = graph.initializer[int(random.integers(len(graph.initializer)))]
    name = _NAMES[int(random.integers(len(_NAMES)))]
    if way == 0:
        node.input[int(random.integers(len(node.input)))] = name
    elif way == 1:
        node.op_type = name
    elif way == 2:
        tensor.dims[int(random.integers(len(tensor.dims)))] = int(random.choice([-1, 0, 7, 1 << 40, (1 << 62) + 1]))
    elif way == 3:
        tensor.data_type = int(random.integers(30))
    elif way == 4:
        changed.opset_import[0].version = int(random.choice([0, 1, 7, 13, 99, 1 << 40]))
    elif way == 5:
        inner = graph
        for depth in range(int(random.integers(1, 60))):
            branch = onnx.helper.make_node("If", ["x"], [f"z{depth}"])
            branch.attribute.append(onnx.helper.make_attribute("then_branch", onnx.GraphProto()))
            inner.node.append(branch)
            inner = inner.node[-1].attribute[0].g
    elif way == 6:
        node.name, graph.input[0].name = name, name
    else:
        del graph.node[int(random.integers(len(graph.node)))]
    return changed.SerializeToString()


def mutations(model: onnx.ModelProto, count: int) -> Iterator[bytes]:
    """So many changed files of a model, always the same ones."""
    data = model.SerializeToString()
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield _changed_bytes(data, random) if seed % 2 else _changed_model(model, random)
