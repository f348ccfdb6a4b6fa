"""Training steps whose backward pass is vertices of the graph: traced forward, differentiated, and then the update.

In comes a function of JAX with examples of its arguments: a loss. Its forward pass is traced, `cl.gradient` adds the
backward pass by its first argument, and for a network vertices go down the gradient, a stretch of a parameter each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import codelet as cl
from codelet.frontends.layers import layer_of
from codelet.frontends.traced import Traced
from codelet.graphs.graph import Graph
from codelet.models.training import Training, loss_and_state
from codelet.ops.blocks import add_blocks
from codelet.ops.turns import cut_row
from codelet.programs.program import Program
from codelet.views.sources import source_variables
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class Step:
    """What is built.

    Attributes:
        graph: its vertices.
        program: what runs when.
        inputs: what goes in, whole variables.
        outputs: what comes out, or is changed in its place.
    """

    graph: Graph
    program: Program
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


@cl.codelet
def descend(p, v, slope, *, rate=0.01, momentum=0.9):
    """A stretch of a parameter and of its velocity, one step on; see `codelet.models.training.train_step`."""
    after = momentum * v + slope
    return {"p": p - rate * after, "v": after}


def step_of(traced: Traced) -> Step:
    """A traced function as it is."""
    return Step(traced.graph, traced.program, traced.flat_inputs, traced.flat_outputs)


def network_loss(training: Training, inputs: jax.Array, labels: jax.Array) -> Any:
    """The loss of a batch and the statistics after it; the arguments are those of `train_step`."""
    return loss_and_state(training.parameters, training, inputs, labels)


def _floats(tree: Any) -> list[Tensor]:
    return [own for own in jax.tree.leaves(tree) if isinstance(own, Tensor) and jnp.issubdtype(own.dtype, jnp.inexact)]


def _layers(graph: Graph) -> Mapping[str, str]:
    """The layer of each variable, by name: that of the first compute set that has a field of it alone."""
    found: dict[str, str] = {}
    for family in graph.families:
        for own in family.fields:
            for variable in () if own.tensor is None else source_variables(own.tensor.source):
                found.setdefault(variable.name, layer_of(family.compute_set.name))
    return found


def with_gradient(traced: Traced) -> Step:
    """A traced function with the gradient of its first result, one number, by the floats of its first argument.

    Raises:
        ProgramError: a first result that is no single number of floats.
    """
    wrt = _floats(traced.inputs[0])
    found = cl.gradient(traced.graph, traced.flat_outputs[0], wrt, program=traced.program)
    program = cl.Sequence(found.forward, found.backward)
    return Step(traced.graph, program, traced.flat_inputs, (*traced.flat_outputs, *found))


def training_step(traced: Traced, grain: int | None = None) -> Step:
    """A training step of a network: its loss as it was traced, the gradient by its parameters, and the update of these.

    Args:
        traced: `network_loss`.
        grain: elements of an update's vertex, at most; of a tile when left off.
    """
    graph, training = traced.graph, traced.inputs[0]
    parameters, velocity = (jax.tree.leaves(own) for own in (training.parameters, training.velocity))
    found = cl.gradient(graph, traced.flat_outputs[0], parameters, program=traced.program)
    layers = _layers(graph)
    with graph.record() as update:
        for p, v in zip(parameters, velocity, strict=True):
            flat = {"p": p.flatten(), "v": v.flatten(), "slope": found[p].flatten()}
            fields = lambda own, flat=flat: {name: each[own.elements] for name, each in flat.items()}  # noqa: E731
            (variable,) = source_variables(p.source)
            # What is only given to functions is of the module that holds it.
            own_module = variable.name.removeprefix("training/parameters/").rpartition("/")[0] or variable.name
            with graph.scope(layers.get(variable.name) or own_module), graph.scope("update", unique=True):
                add_blocks(graph, "descend", descend, [cut_row(graph, p.size, grain)], fields)
    program = cl.Sequence(found.forward, found.backward, update)
    return Step(graph, program, traced.flat_inputs, (*traced.flat_outputs, *parameters, *velocity))
