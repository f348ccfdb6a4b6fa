"""The networks that the package of ONNX ships, with parameters of their own.

Their weights are constants of zeros or the like, so that what they give proves nothing. Here each of these constants is
an initializer of random numbers, small enough that nothing overflows.

    python -m benchmarks.onnx_networks    # the table of docs/howto/models.md, each network in a process of its own
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

import codelet as cl
from benchmarks.fresh import in_fresh_process, peak_bytes

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


class Cost(NamedTuple):
    """What a network costs on the machine, and what it costs to know that.

    Attributes:
        parameters, vertices, compute_sets: how many there are.
        cycles: of one picture.
        tile_bytes: that tiles hold, of all that they have.
        full_tiles: that need more than they have.
        seconds: of CPU time: to load and trace, to profile, to draw.
        peak: bytes of the process, at most.
    """

    parameters: int
    vertices: int
    compute_sets: int
    cycles: int
    tile_bytes: int
    full_tiles: int
    seconds: tuple[float, ...]
    peak: int


def cost(name: str) -> Cost:
    """Load, trace, profile and draw a network."""
    data = network(name).SerializeToString()
    times = [time.process_time()]
    model = cl.onnx.load(data)
    traced = cl.trace(model, model.parameters, *model.inputs.values())
    times.append(time.process_time())
    profile = traced.profile(allow_out_of_memory=True)
    times.append(time.process_time())
    with tempfile.TemporaryDirectory() as directory:
        cl.draw(traced, path=Path(directory, "network.png"), size=1024)
    times.append(time.process_time())
    graph, held = traced.graph, sum(profile.memory.values())
    return Cost(
        sum(array.size for array in model.parameters.values()),
        graph.num_vertices,
        len(graph.compute_sets),
        profile.total_cycles,
        int(np.sum(held)),
        int(np.sum(held > profile.target.bytes_per_tile)),
        (times[1] - times[0], times[2] - times[1], times[3] - times[2]),
        peak_bytes(),
    )


def main() -> None:
    """Print the table."""
    print("| network | parameters | vertices | compute sets | cycles | memory | load, trace | profile | draw | peak |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in NETWORKS:
        own = in_fresh_process(cost, name)
        times = " | ".join(f"{one:.1f} s" for one in own.seconds)
        full = f", {own.full_tiles} tiles too full" if own.full_tiles else ""
        print(
            f"| {name} | {own.parameters:,} | {own.vertices:,} | {own.compute_sets} | {own.cycles:,} | "
            f"{own.tile_bytes / 1e6:.0f} MB{full} | {times} | {own.peak / 1e9:.1f} GB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
