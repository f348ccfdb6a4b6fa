"""One training step of the main job on the tile array, and steps of a stencil, beside the same fused.

The network's vertices, with a mapping to tiles that fills most of the machine: the dot products of a chunk of the
inputs and a block of rows are on one tile, with their weights; a layer with few weights is split by images as
well; sums and activations are spread evenly. Every tile that needs an image's chunk has a copy of it: multicast
costs little on the machine, and most of the time here.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from functools import partial
from typing import Any, Literal

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.heat import heat_steps
from benchmarks.mnist_step import training_arguments
from codelet.models.mnist import SIZES, Layer, dot, network, relu, total
from ipu_backend.jobs.mnist import make_optimizer, make_step, slope_of

CHUNK = 16


def dense_on_tiles(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, b: cl.Tensor, *, last: bool) -> cl.Tensor:
    """A fully connected layer as `codelet.models.mnist` makes it, with a tile for every vertex and element but x's."""
    (batch, inputs), outputs, num_tiles = x.shape, len(w), graph.target.num_tiles
    parts = inputs // CHUNK
    block = -(-outputs * parts // num_tiles)
    blocks = -(-outputs // block)
    most = max(1, num_tiles // (parts * blocks))
    groups = max(n for n in range(1, batch + 1) if batch % n == 0 and n <= most)

    image, row, part = cl.grid(batch, outputs, parts)
    here = slice(CHUNK * part, CHUNK * part + CHUNK)
    tile = (part * blocks + row // block) * groups + image // (batch // groups)
    partials = graph.add_vertex("multiply", dot, x=x[image, here], w=w[row, here], tile=tile)
    graph.set_tile_mapping(partials[image, row, part], tile)
    graph.set_tile_mapping(w[row, here], (part * blocks + row // block) * groups)

    image, row = cl.grid(batch, outputs)
    tile = (image * outputs + row) // -(-batch * outputs // num_tiles)
    y = graph.add_vertex("add up", total, partials=partials[image, row], bias=b[row], tile=tile)
    graph.set_tile_mapping(y[image, row], tile)
    graph.set_tile_mapping(b[row], row)
    if not last:
        y = graph.add_vertex("activate", relu, x=y[image, row], tile=tile)
        graph.set_tile_mapping(y[image, row], tile)
    return y


def network_on_tiles(batch: int) -> cl.Lowered:
    """The network as a function of `x`, `w1`, `b1` and so on, to `y`'s variable, that runs on tiles."""
    graph = cl.Graph(cl.IPU())
    x = image_tensor = graph.add_variable("x", (batch, SIZES[0]))
    image, part = cl.grid(batch, SIZES[0] // CHUNK)
    graph.set_tile_mapping(
        x[image, CHUNK * part : CHUNK * part + CHUNK], (image * (SIZES[0] // CHUNK) + part) % graph.target.num_tiles
    )
    names = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(SIZES), 1):
        names += [f"w{number}", f"b{number}"]
        w, b = graph.add_variable(names[-2], (outputs, inputs)), graph.add_variable(names[-1], (outputs,))
        with graph.scope(f"layer {number}"):
            x = dense_on_tiles(graph, x, w, b, last=number == len(SIZES) - 1)
    return cl.Engine(graph, execution="tiles").function(inputs=[image_tensor, *names], outputs=[x])


@benchmark
def tile_array(batch: int = 32, side: int = 1024, steps: int = 20) -> Generator[Comparison | Row, Row, None]:
    """A training step of `codelet mnist` on 1,280 tiles, and a stencil on tiles as it is placed, beside fused."""
    optimizer = make_optimizer(1000)

    def step(run: cl.Lowered, *arguments: Any) -> Any:
        def apply(images: jax.Array, layers: list[Layer]) -> jax.Array:
            named = {f"{name}{k}": array for k, own in enumerate(layers, 1) for name, array in own._asdict().items()}
            (logits,) = run({"x": images, **named}).values()
            return logits

        return make_step(slope_of(apply), optimizer)(*arguments)

    yield Comparison(
        "tile_array",
        ours=jax.jit(step),
        plain=make_step(slope_of(cl.lower(network)), optimizer),
        arguments=partial(training_arguments, optimizer, batch),
        bar=20,
        note="of fused",
        # As in `mnist_step`: Adam's first step divides each slope by its own size, and its rounding with it.
        tolerance=1e-4,
        ours_held=lambda: (network_on_tiles(batch),),
    )

    def heat_on(execution: Literal["fused", "tiles"]) -> cl.Lowered:
        return cl.Engine(*heat_steps(side, steps), execution=execution).function(inputs=["u"], outputs=["u"])

    def square(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.standard_normal((side, side), np.float32),)

    fused = heat_on("fused")
    yield Comparison(
        "tile_array/heat",
        ours=jax.jit(lambda lowered, u: lowered({"u": u})["u"]),
        plain=jax.jit(lambda u: fused({"u": u})["u"]),
        arguments=square,
        bar=40,
        note="of fused",
        ours_held=lambda: (heat_on("tiles"),),
    )
