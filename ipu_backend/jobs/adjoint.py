"""Training steps whose backward pass is vertices of the graph: traced forward, differentiated, and then the update.

In comes a function of JAX with examples of its arguments: a loss. Its forward pass is traced, `cl.gradient` adds the
backward pass by its first argument, and for a network vertices go down the gradient: each takes what of a parameter a
vertex of the forward pass reads, so that a parameter stays on its tile from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.frontends.traced import Traced
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.models.training import Training, loss_and_state
from codelet.ops.blocks import add_blocks
from codelet.ops.turns import cut_row
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.walk import Touched
from codelet.tracing.codelets import codelet
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.jobs.layers import LayerNames
from lowering.adjoint.gradient import gradient


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


@codelet(workers=6, issue="assembly")
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


def _parts(graph: Graph, p: Tensor) -> list[tuple[Tensor, Any]]:
    """The parts of a parameter that the vertices take which read it first, and their tiles; none where parts meet."""
    (variable,) = source_variables(p.source)
    found: list[tuple[Family, Tensor]] = []
    for family in graph.families:
        if found and family.compute_set is not found[0][0].compute_set:
            break
        tensors = [own.tensor for own in family.fields if own.tensor is not None]
        found += [(family, own) for own in tensors if own.source is variable and own.rows is None]
    is_read = np.zeros(p.size, np.bool_)
    # As many as there are, and all of them: each once.
    if sum(family.num_vertices * view.size for family, view in found) == p.size:
        for family, view in found:
            is_read[view.elements(family.axes) - variable.first_element] = True
    return [(view, family.tile) for family, view in found] if is_read.all() else []


def _add_update(graph: Graph, own: Mapping[str, Tensor], grain: int | None) -> None:
    """Vertices that take a parameter and its velocity a step down its gradient."""
    parts = _parts(graph, own["p"])
    if parts and all(each.is_whole_variable for each in own.values()):
        for view, tile in parts:
            fields = {name: Tensor(each.source, view.index) for name, each in own.items()}
            graph.add_vertex("descend", descend, tile=tile, **fields)
        return
    flat = {name: each.flatten() for name, each in own.items()}
    fields_of = lambda block: {name: each[block.elements] for name, each in flat.items()}  # noqa: E731
    add_blocks(graph, "descend", descend, cut_row(graph, (own["p"].size,), grain), fields_of)


def with_gradient(traced: Traced) -> Step:
    """A traced function with the gradient of its first result, one number, by the floats of its first argument.

    Raises:
        ProgramError: a first result that is no single number of floats.
    """
    wrt = _floats(traced.inputs[0])
    found = gradient(traced.graph, traced.flat_outputs[0], wrt, program=traced.program)
    program = ProgramSequence(found.forward, found.backward)
    return Step(traced.graph, program, traced.flat_inputs, (*traced.flat_outputs, *found))


def _as_soon_as_may_be(program: Program, updates: Iterable[tuple[Program, set[Variable]]]) -> Program:
    """A program with each of some others run once nothing that it touches is touched any more.

    What such an update reads then need not be kept until all is done.
    """
    last: dict[Variable, int] = {}
    touched, programs = Touched(is_read=True), ProgramSequence(program).programs
    for number, own in enumerate(programs):
        last |= dict.fromkeys(touched.of(own), number)
    behind: dict[int, list[Program]] = {}
    for update, variables in updates:
        behind.setdefault(max((last.get(variable, -1) for variable in variables), default=-1), []).append(update)
    parts = [[own, *behind.get(number, [])] for number, own in enumerate(programs)]
    return ProgramSequence(*behind.get(-1, []), *(own for part in parts for own in part))


def training_step(traced: Traced, grain: int | None = None) -> Step:
    """A training step of a network: its loss as it was traced, the gradient by its parameters, and the update of these.

    Args:
        traced: `network_loss`.
        grain: elements of an update's vertex, at most, where a parameter is cut anew since vertices of the forward pass
            share what they read of it; of a tile when left off.
    """
    graph, training = traced.graph, traced.inputs[0]
    parameters, velocity = (jax.tree.leaves(own) for own in (training.parameters, training.velocity))
    found = gradient(graph, traced.flat_outputs[0], parameters, program=traced.program)
    layers = LayerNames.of(graph).variables
    updates: list[tuple[Program, set[Variable]]] = []
    for p, v in zip(parameters, velocity, strict=True):
        (variable,) = source_variables(p.source)
        # What is only given to functions is of the module that holds it.
        own_module = variable.name.removeprefix("training/parameters/").rpartition("/")[0] or variable.name
        layer = layers.get(variable.name) or own_module
        own = {"p": p, "v": v, "slope": found[p]}
        scopes = graph.scope("update"), graph.scope(layer), graph.scope("momentum", unique=True)
        with scopes[0], scopes[1], scopes[2], graph.record() as update:
            _add_update(graph, own, grain)
        updates.append((update, {variable for each in own.values() for variable in source_variables(each.source)}))
    program = ProgramSequence(found.forward, _as_soon_as_may_be(found.backward, updates))
    return Step(graph, program, traced.flat_inputs, (*traced.flat_outputs, *parameters, *velocity))
