"""A language model written by hand, trained by an engine: operations, gradients as vertices, Adam, streams.

Two layers of causal attention and of a perceptron with layer norms before them, on tokens that are embedded with their
positions. The same is written in plain JAX, with optax's Adam.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import codelet as cl
from benchmarks.harness import Measurement, Row, benchmark
from ipu_backend.jobs.timing import time_in_turn

VOCABULARY, WIDTH, HIDDEN, HEADS = 256, 64, 256, 4
RATE = 1e-3

Parameters = dict[str, Any]


def init_parameters(random: np.random.Generator, tokens: int, layers: int = 2) -> Parameters:
    """Arrays of float32, drawn."""

    def draw(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.02).astype(np.float32)

    def norm() -> Parameters:
        return {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    def layer() -> Parameters:
        return {
            "before attention": norm(),
            "attention": {name: draw(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
            "before perceptron": norm(),
            "in": {"w": draw(WIDTH, HIDDEN), "b": np.zeros(HIDDEN, np.float32)},
            "out": {"w": draw(HIDDEN, WIDTH), "b": np.zeros(WIDTH, np.float32)},
        }

    return {
        "tokens": draw(VOCABULARY, WIDTH),
        "positions": draw(tokens, WIDTH),
        "layers": [layer() for _ in range(layers)],
        "last": norm(),
    }


def draw_batch(random: np.random.Generator, batch: int, tokens: int) -> np.ndarray:
    """Sequences of integers that count up by one or two: (batch, tokens + 1)."""
    starts, steps = random.integers(0, VOCABULARY, (batch, 1)), random.integers(1, 3, (batch, 1))
    return ((starts + steps * np.arange(tokens + 1)) % VOCABULARY).astype(np.int32)


# --- in plain JAX -----------------------------------------------------------------------------------------


def _plain_norm(x: jax.Array, own: Parameters) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * own["scale"] + own["bias"]


def _plain_attention(x: jax.Array, own: Parameters) -> jax.Array:
    heads = [(x @ own[name].T).reshape(*x.shape[:2], HEADS, -1) for name in ("query", "key", "value")]
    return jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape) @ own["output"].T


def plain_loss(parameters: Parameters, sequences: jax.Array) -> jax.Array:
    """The mean cross entropy of what follows each token."""
    given, wanted = sequences[:, :-1], sequences[:, 1:]
    x = parameters["tokens"][given] + parameters["positions"]
    for layer in parameters["layers"]:
        x = x + _plain_attention(_plain_norm(x, layer["before attention"]), layer["attention"])
        inside = jax.nn.gelu(_plain_norm(x, layer["before perceptron"]) @ layer["in"]["w"] + layer["in"]["b"])
        x = x + inside @ layer["out"]["w"] + layer["out"]["b"]
    logits = _plain_norm(x, parameters["last"]) @ parameters["tokens"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, wanted).mean()


def plain_step(parameters: Parameters, state: Any, sequences: jax.Array) -> tuple[Parameters, Any, jax.Array]:
    """A step of Adam: parameters, state and loss."""
    loss, slopes = jax.value_and_grad(plain_loss)(parameters, sequences)
    updates, state = optax.adam(RATE).update(slopes, state)
    return optax.apply_updates(parameters, updates), state, loss  # type: ignore[return-value]


# --- by hand ----------------------------------------------------------------------------------------------


def _norm(graph: cl.Graph, x: cl.Tensor, own: Parameters) -> cl.Tensor:
    return cl.ops.layer_norm(graph, x, own["scale"], own["bias"])


def _dense(graph: cl.Graph, x: cl.Tensor, own: Parameters) -> cl.Tensor:
    return cl.ops.dot_general(graph, x, own["w"], (((x.ndim - 1,), (0,)), ((), ())))


def _logits(graph: cl.Graph, parameters: Parameters, given: cl.Tensor) -> cl.Tensor:
    x = cl.ops.embedding(graph, parameters["tokens"], given)
    x = cl.ops.map(graph, jnp.add, x, parameters["positions"])
    for number, layer in enumerate(parameters["layers"]):
        with graph.scope(f"layer {number}"):
            own = _norm(graph, x, layer["before attention"])
            weights = [layer["attention"][name] for name in ("query", "key", "value", "output")]
            own = cl.ops.multi_head_attention(graph, own, own, own, weights, num_heads=HEADS, is_causal=True)
            x = cl.ops.map(graph, jnp.add, x, own)
            own = _dense(graph, _norm(graph, x, layer["before perceptron"]), layer["in"])
            own = cl.ops.map(graph, lambda x, b: jax.nn.gelu(x + b), own, layer["in"]["b"])
            own = _dense(graph, own, layer["out"])
            x = cl.ops.map(graph, lambda x, own, b: x + own + b, x, own, layer["out"]["b"])
    x = _norm(graph, x, parameters["last"])
    return cl.ops.dot_general(graph, x, parameters["tokens"], (((2,), (1,)), ((), ())))


def loss_of(graph: cl.Graph, parameters: Parameters, sequences: cl.Tensor) -> cl.Tensor:
    """The mean cross entropy of what follows each token, by operations."""
    logits = _logits(graph, parameters, sequences[:, :-1])
    return cl.ops.mean(graph, cl.ops.cross_entropy(graph, logits, sequences[:, 1:]))


class Trainer:
    """The model in an engine.

    Attributes:
        graph: its graph.
        parameters: its parameters, as tensors.
        state: of Adam.
        engine: runs a step, of sequences from the stream "sequences"; the stream "losses" takes the loss.
    """

    def __init__(self, parameters: Parameters, batch: int, tokens: int, steps: int = 1, target: Any = None):
        self.graph = graph = cl.Graph(target)
        self.parameters = graph.add_variables("parameters", parameters)
        given = graph.add_input_stream("sequences", (batch, tokens + 1), "int32")
        losses = graph.add_output_stream("losses", ())
        self.sequences = graph.add_variable("batch", (batch, tokens + 1), "int32")
        self.loss = loss_of(graph, self.parameters, self.sequences)
        self.found = cl.gradient(graph, of=self.loss, wrt=self.parameters)
        self.state = cl.ops.adam_state(graph, self.parameters)
        with graph.record(aside=True) as update:
            cl.ops.adam(graph, self.parameters, self.found[self.parameters], self.state, learning_rate=RATE)
        self.step = cl.Sequence(self.found.forward, self.found.backward, update)
        turn = cl.Sequence(cl.Copy(given, self.sequences), self.step, cl.Copy(self.loss, losses))
        self.engine = cl.Engine(graph, cl.Repeat(steps, turn))
        self.engine.write(self.parameters, parameters)
        self.engine.write(self.state, 0)


def _step_beside_plain(name: str, batch: int, tokens: int, tiles: int) -> Row:
    """A step in the engine beside plain JAX's."""
    random = np.random.default_rng(0)
    parameters, sequences = init_parameters(random, tokens), draw_batch(random, batch, tokens)
    trainer = Trainer(parameters, batch, tokens, target=cl.IPU(num_tiles=tiles))
    trainer.engine.connect("sequences", repeat(sequences))
    losses: list[float] = []
    trainer.engine.connect("losses", lambda loss: losses.append(float(loss)))
    step, state = jax.jit(plain_step), optax.adam(RATE).init(parameters)
    trainer.engine.run()
    loss = float(step(parameters, state, sequences)[2])
    assert abs(losses[0] - loss) < 1e-4 * loss, "the same step"
    plain = lambda: step(parameters, state, sequences)  # noqa: E731
    ours, theirs = time_in_turn([lambda: trainer.engine.run(wait=True), plain])
    return Row(name, ours, None, ours / theirs, 1.2, f"of {1e3 * theirs:.3f} ms, a step of plain JAX")


@benchmark
def language_model(
    batch: int = 8, tokens: int = 32, machines: Sequence[int] = (1_472, 64)
) -> Generator[Measurement | Row, Row, None]:
    """A training step of a language model of two layers by hand, through the engine, planned for two machines."""
    for tiles in machines:
        yield Measurement(
            f"language_model/{tiles}", partial(_step_beside_plain, batch=batch, tokens=tokens, tiles=tiles)
        )
