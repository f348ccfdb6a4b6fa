"""What jobs trace, and training steps whose backward pass is vertices of the graph: forward, backward, the update.

In comes a function of JAX with examples of its arguments: a loss. Its forward pass is traced, `cl.gradient` adds the
backward pass by its first argument, and for a network `cl.ops.momentum` goes down the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from codelet.frontends.trace import trace
from codelet.frontends.traced import Traced
from codelet.graphs.graph import Graph
from codelet.models.networks import NETWORKS
from codelet.models.training import Training, loss_and_state
from codelet.ops.optimisers import momentum
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.walk import Touched
from codelet.target import Target
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.jobs.found import find_function, telling_of
from ipu_backend.jobs.layers import LayerNames
from ipu_backend.jobs.stages import Stages
from ipu_backend.model.profile import Profile
from ipu_backend.running.engine import Engine
from lowering.adjoint.gradient import Gradient, gradient

_FEW = 2**14
"""Elements of a parameter up to which its gradient is kept to the end."""


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


def step_of(traced: Traced) -> Step:
    """A traced function as it is."""
    return Step(traced.graph, traced.program, traced.flat_inputs, traced.flat_outputs)


def network_loss(training: Training, inputs: jax.Array, labels: jax.Array) -> Any:
    """The loss of a batch and the statistics after it; the arguments are those of `train_step`."""
    return loss_and_state(training.parameters, training, inputs, labels)


def _floats(tree: Any) -> list[Tensor]:
    return [own for own in jax.tree.leaves(tree) if isinstance(own, Tensor) and jnp.issubdtype(own.dtype, jnp.inexact)]


def gradient_of(traced: Traced) -> Gradient:
    """The gradient of a traced function's first result, one number, by the floats of its first argument.

    Raises:
        ProgramError: a first result that is no single number of floats.
    """
    return gradient(traced.graph, traced.program, of=traced.flat_outputs[0], wrt=_floats(traced.inputs[0]))


def with_gradient(traced: Traced) -> Step:
    """A traced function with the gradient of its first result, one number, by the floats of its first argument.

    Raises:
        ProgramError: a first result that is no single number of floats.
    """
    found = gradient_of(traced)
    program = ProgramSequence(found.forward, found.backward)
    return Step(traced.graph, program, traced.flat_inputs, (*traced.flat_outputs, *found))


def _last_touched(program: Program, several: Sequence[Sequence[Tensor]]) -> list[int]:
    """The place of the last part of a program that touches any of some tensors, for each of several lists of these."""
    last: dict[Variable, int] = {}
    touched = Touched(is_read=True)
    for number, own in enumerate(ProgramSequence(program).programs):
        last |= dict.fromkeys(touched.of(own), number)
    return [max(last.get(own, -1) for tensor in some for own in source_variables(tensor.source)) for some in several]


def training_step(traced: Traced, grain: int | None = None) -> Step:
    """A training step of a network: its loss as it was traced, the gradient with respect to its parameters, and the
    update of these.

    A parameter is updated once nothing that its update touches is touched any more, so that its gradient need not be
    kept until all is done; those with few elements all together, in the end.

    Args:
        traced: `network_loss`.
        grain: elements of an update's vertex, at most; default: the planner chooses.
    """
    graph, training = traced.graph, traced.inputs[0]
    parameters, velocity = (jax.tree.leaves(own) for own in (training.parameters, training.velocity))
    found = gradient(graph, traced.program, of=traced.flat_outputs[0], wrt=parameters)
    parts = list(ProgramSequence(found.backward).programs)
    rows = [(p, found[p], v) for p, v in zip(parameters, velocity, strict=True)]
    places = _last_touched(found.backward, rows)
    groups = [(place, [row]) for row, place in zip(rows, places, strict=True) if row[0].size > _FEW]
    few = [row for row in rows if row[0].size <= _FEW]
    groups += [(max(places), few)] if few else []
    layers = LayerNames.of(graph).variables
    for place, own in sorted(groups, key=lambda group: -group[0]):
        layer = nullcontext()
        if len(own) == 1:
            (variable,) = source_variables(own[0][0].source)
            # What is only given to functions is of the module that holds it.
            module = variable.name.removeprefix("training/parameters/").rpartition("/")[0] or variable.name
            layer = graph.scope(layers.get(variable.name) or module)
        with graph.scope("update"), layer, graph.record() as update:
            momentum(graph, *map(list, zip(*own, strict=True)), learning_rate=0.01, grain=grain)
        parts.insert(place + 1, update)
    program = ProgramSequence(found.forward, *parts)
    return Step(graph, program, traced.flat_inputs, (*traced.flat_outputs, *parameters, *velocity))


def profile_of(step: Step) -> Profile:
    """What a step costs where what goes in and comes out keeps its memory; what tiles cannot hold is counted too."""
    engine = Engine(step.graph, step.program)
    return engine.profile(host_visible=[*step.inputs, *step.outputs], allow_out_of_memory=True)


def asked_step(
    name: str,
    stages: Stages,
    *,
    grain: int | None = None,
    batch: int | None = None,
    target: Target | None = None,
    adjoint: bool = False,
) -> tuple[Traced, Step]:
    """What a job is asked for: a network's training step or another function, traced, and what of it is built.

    Args:
        name: as `find_function` takes it.
        stages: of the job, "trace" among them, and with `adjoint` "differentiate".
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        target: the machine; default: an IPU.
        adjoint: trace the loss alone, and make the backward pass of its graph by `cl.gradient`; of another function
            than a network's, add that of its first result, one number, by its first argument.

    Raises:
        BuildError: a name that nothing has, or a function that cannot be traced.
        ProgramError: nothing that can be differentiated, where that is asked for.
    """
    function, *examples = find_function(name, batch)
    is_network = name in NETWORKS
    with stages.stage("trace"), telling_of(name):
        if is_network and adjoint:
            function = network_loss
        # A step's parameters are those that the step before has left: new ones take their place.
        donated = 0 if is_network and not adjoint else ()
        traced = trace(function, *examples, target=target, grain=grain, donate_argnums=donated)
    if not adjoint:
        return traced, step_of(traced)
    with stages.stage("differentiate"):
        return traced, training_step(traced, grain) if is_network else with_gradient(traced)


def stages_of(adjoint: bool, *following: str) -> Stages:
    """The stages of a job that begins with `asked_step`."""
    return Stages(["trace", *(["differentiate"] if adjoint else []), *following])
