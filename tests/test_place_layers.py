"""Placement of AlexNet's layers by hand: a vertex for each output value of a convolution, chunks of 16 in dense ones.

Balance is what a step's tiles compute for on average, over the slowest: a placement that leaves tiles empty shows.
"""

import jax.numpy as jnp
import pytest

import codelet as cl
from ipu_backend.model.profile_plan import profile_machine
from lowering.machine.place import place_and_exchange
from lowering.machine.step_cycles import total_cycles
from lowering.pipeline import plan_engine, plan_machine

CONVOLUTIONS = {  # side and features of the input, side of the kernel, its stride, padding, and features of the output
    "conv1": (224, 4, 11, 4, 3, 64),
    "conv2": (27, 64, 5, 1, 2, 192),
    "conv3": (13, 192, 3, 1, 1, 384),
    "conv4": (13, 384, 3, 1, 1, 256),
    "conv5": (13, 256, 3, 1, 1, 256),
}
DENSE = {"fc6": (9216, 4096), "fc7": (4096, 4096), "fc8": (4096, 1000)}


@cl.codelet
def weigh(x, w):
    return jnp.sum(x * w)


@cl.codelet
def dot(x, w):
    return jnp.dot(x, w)


@cl.codelet
def add_up(parts):
    return jnp.maximum(jnp.sum(parts), 0)


def convolution(graph, side, features, kernel, stride, padding, made):
    x = graph.add_variable("x", (side, side, features)).pad(((padding, padding), (padding, padding), (0, 0)))
    w = graph.add_variable("w", (made, kernel, kernel, features))
    places = (side + 2 * padding - kernel) // stride + 1
    r, c, k = cl.grid(places, places, made)
    window = x[stride * r : stride * r + kernel, stride * c : stride * c + kernel]
    graph.add_vertex("convolve", weigh, x=window, w=w[k])


def dense(graph, inputs, outputs):
    x, w = graph.add_variable("x", (inputs,)), graph.add_variable("w", (outputs, inputs))
    row, p = cl.grid(outputs, inputs // 16)
    here = slice(16 * p, 16 * p + 16)
    parts = graph.add_vertex("multiply", dot, x=x[here], w=w[row, here])
    row = cl.grid(outputs)
    graph.add_vertex("add up", add_up, parts=parts[row])


def check_layer(build, *sizes, target=None):
    """A layer placed: by bytes its first step is balanced; as chosen it takes no more cycles than so or in order."""
    graph = cl.Graph(target or cl.IPU())
    build(graph, *sizes)
    plan = plan_engine(graph, graph.default_program)
    found, linear, by_bytes = (place_and_exchange(plan, way) for way in ("balanced", "linear", "bytes"))
    assert total_cycles(found) <= min(total_cycles(linear), total_cycles(by_bytes))
    # Blocks give up some of the balance for what they need not exchange.
    for placed, least in ((by_bytes, 0.95), (found, 0.9)):
        step = profile_machine(plan_machine(plan, placed.placement, allow_out_of_memory=True)).steps[0]
        assert step.balance >= least, step.balance
    return graph.num_vertices, step.balance, total_cycles(found), total_cycles(linear)


@pytest.mark.parametrize(
    ("build", "sizes"), [(convolution, (24, 4, 5, 2, 2, 16)), (convolution, (13, 8, 3, 1, 1, 32)), (dense, (512, 256))]
)
def test_small_layers_are_balanced(build, sizes):
    check_layer(build, *sizes, target=cl.IPU(num_tiles=16))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *DENSE])
def test_the_layers_of_alexnet_are_balanced(name):
    if name in CONVOLUTIONS:
        print(name, check_layer(convolution, *CONVOLUTIONS[name]))
    else:
        print(name, check_layer(dense, *DENSE[name]))
