"""Deep networks as graphs, written vertex by vertex, for what training keeps of them: equal layers, and a recurrence.

A layer is that of a transformer without its attention (A. Vaswani et al., Attention Is All You Need, 2017, section 3.3,
with the norm in front): `x + down(gelu(up(norm(x))))`, four times as wide inside. The recurrence is an LSTM (S.
Hochreiter and J. Schmidhuber, Long Short-Term Memory, 1997, with forget gates), unrolled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.views.sources import source_variables
from lowering.machine.liveness import Liveness
from lowering.pipeline import MachinePlan, plan_graph, plan_machine

TIMES = 4
"""How many times as wide as what it passes on a layer is inside."""


class Deep(NamedTuple):
    """A network.

    Attributes:
        graph: the graph.
        loss: a number.
        parameters: by which it is trained.
        inputs: what else goes in.
    """

    graph: cl.Graph
    loss: cl.Tensor
    parameters: list[cl.Tensor]
    inputs: list[cl.Tensor]

    def random(self) -> dict[str, np.ndarray]:
        """Values of parameters and inputs, by name."""
        draw = np.random.default_rng(0).normal
        return {
            own.source.name: (draw(size=own.shape) / max(1, own.shape[-1]) ** 0.5).astype(np.float32)  # type: ignore[union-attr]
            for own in (*self.inputs, *self.parameters)
        }


@cl.codelet
def dot(w, x):
    """A number of a dense layer."""
    return jnp.dot(w, x)


@cl.codelet
def normalize(x):
    """A row of mean 0 and variance 1."""
    centred = x - jnp.mean(x)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred) + 1e-5)


@cl.codelet
def gelu(x):
    """What neurons make of their sums."""
    return jax.nn.gelu(x)


@cl.codelet
def add(x, y):
    """What goes around a layer, and what goes through it."""
    return x + y


@cl.codelet
def squares(x):
    """The sum of the squares of a row."""
    return jnp.sum(x * x)


@cl.codelet
def total(x):
    """The sum of all rows."""
    return jnp.sum(x)


@cl.codelet
def gates(before, bias):
    """What the gates of a row are, from sums (4, width): input, forget, output and candidate."""
    before = before + bias
    return jnp.concatenate([jax.nn.sigmoid(before[:3]), jnp.tanh(before[3:])])


@cl.codelet
def cell(gates, c):
    """What a row remembers."""
    return gates[1] * c + gates[0] * gates[3]


@cl.codelet
def shown(gates, c):
    """What a row shows of what it remembers."""
    return gates[2] * jnp.tanh(c)


def _dense(graph: cl.Graph, name: str, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
    i, o = cl.grid(x.shape[0], w.shape[0])
    return graph.add_vertex(name, dot, x=x[i], w=w[o])


def _rows(graph: cl.Graph, name: str, codelet: cl.Codelet, **fields: cl.Tensor) -> cl.Tensor:
    i = cl.grid(next(iter(fields.values())).shape[0])
    return graph.add_vertex(name, codelet, **{own: tensor[i] for own, tensor in fields.items()})


def _loss(graph: cl.Graph, h: cl.Tensor) -> cl.Tensor:
    return graph.add_vertex("loss", total, x=_rows(graph, "squares", squares, x=h))


def layers(count: int, rows: int = 64, width: int = 16, tiles: int = 64) -> Deep:
    """Equal layers of a transformer's kind, without attention."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    x, parameters = graph.add_variable("x", (rows, width)), []
    h = x
    for number in range(count):
        with graph.scope(f"layer{number}"):
            parameters.append(graph.add_variable("w_up", (TIMES * width, width)))
            parameters.append(graph.add_variable("w_down", (width, TIMES * width)))
            normal = _rows(graph, "norm", normalize, x=h)
            inside = _rows(graph, "gelu", gelu, x=_dense(graph, "up", normal, parameters[-2]))
            h = _rows(graph, "add", add, x=h, y=_dense(graph, "down", inside, parameters[-1]))
    return Deep(graph, _loss(graph, h), parameters, [x])


def recurrent(steps: int, rows: int = 64, width: int = 16, tiles: int = 64) -> Deep:
    """An LSTM unrolled: a step reads a row of inputs, what was shown and what is remembered."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    x = graph.add_variable("x", (steps, rows, width))
    h, c = (graph.add_constant(name, np.zeros((rows, width), np.float32)) for name in ("h", "c"))
    w, bias = graph.add_variable("w", (4 * width, 2 * width)), graph.add_variable("bias", (4, width))
    for number in range(steps):
        with graph.scope(f"step{number}"):
            i, gate, o = cl.grid(rows, 4, width)
            both = cl.concatenate([x[number], h], 1)
            sums = graph.add_variable("sums", (rows, 4, width))
            graph.add_vertex("dots", dot, x=both[i], w=w[width * gate + o], out=sums[i, gate, o])
            i = cl.grid(rows)
            own = graph.add_vertex("gates", gates, before=sums[i], bias=bias)
            c = _rows(graph, "cell", cell, gates=own, c=c)
            h = _rows(graph, "shown", shown, gates=own, c=c)
    return Deep(graph, _loss(graph, h), [w, bias], [x])


def activation_bytes(liveness: Liveness) -> int:
    """The most bytes that are live at once only because a backward pass reads them.

    Those are variables of the forward pass that are not always live, at moments of the backward pass; what steps make
    that run again in it is among them. Cotangents are not.
    """
    moments = liveness.timeline.moments
    first = next(own.number for own in moments if own.name.startswith("execute backward/"))
    own = [one for one in liveness.ranges if not one.always]
    own = [one for one in own if not all(v.name.startswith("backward/") for v in one.variables)]
    return int(liveness.live_bytes(own).sum(axis=1)[first:].max(initial=0))


def plan_training(network: Deep, recompute: cl.Recompute | None = None) -> tuple[cl.Gradient, MachinePlan]:
    """The gradient of a network by its parameters, and the plan of forward and backward pass, placed in order."""
    graph, loss, parameters, inputs = network
    found = cl.gradient(graph, of=loss, wrt=parameters, recompute=recompute)
    given = [source_variables(own.source)[0] for own in (*inputs, *parameters)]
    plan = plan_graph(graph, cl.Sequence(found.forward, found.backward), given, [loss, *found])
    return found, plan_machine(plan, "linear", allow_out_of_memory=True)
