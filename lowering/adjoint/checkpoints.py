"""Checkpoints: loops whose state is kept after every so many iterations, as loops of loops.

In come steps. Out come the same with each `Repeat(n, body, recompute=k)` as a loop of about n / k iterations. Each of
these is one loop of k iterations: a unit that the backward pass runs again, from the state that it began with, before
it goes back through it. Its values are kept for k iterations, and the state n / k times. A loop that keeps so many
states at once stays one (`revolved.py`), and counts its iterations by itself.

Source: A. Griewank and A. Walther, Evaluating Derivatives (2008), chapter 12: multilevel checkpointing, of two levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from codelet.graphs.graph import Graph
from codelet.programs.control import Revolve
from codelet.programs.copies import Copy
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_tensor, new_vertices, zeros
from lowering.adjoint.counting import goes_on, one_more
from lowering.adjoint.fed import fed_before, steps_of
from lowering.adjoint.programs import writes_of
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow, flow_step, ordered
from lowering.plan.steps import CallStep, CopyStep, FunctionBody, RepeatStep, Step, WhileStep
from lowering.plan.walk import bodies, has_effects, with_bodies


def unit(steps: Sequence[Step]) -> CallStep:
    """Steps that the backward pass runs again before it goes back through them, as a function without a name."""
    body = tuple(steps)
    reads = tuple(dict.fromkeys(variable for step in body for variable in step.reads))
    writes = tuple(dict.fromkeys(variable for step in body for variable in step.writes))
    made = flow_step(CallStep(FunctionBody("", (), body, reads=reads, writes=writes), ()))
    assert isinstance(made, CallStep)
    return made


_LARGE = 2**18
"""Bytes of what all turns of a loop on a condition may write, from which on its turns run again."""


def with_checkpoints(
    graph: Graph,
    steps: Sequence[Step],
    varied: Set[Variable],
    functions: dict[FunctionBody, FunctionBody] | None = None,
) -> tuple[Step, ...]:
    """Steps with loops of units in the place of loops that are kept every so many iterations.

    Args:
        graph: where the counters of iterations are added.
        steps: they, with calls.
        varied: the variables that depend on those that the gradient is with respect to.
        functions: those of the functions called that have been gone through, each once.
    """
    found: list[Step] = []
    made = {} if functions is None else functions
    for step in steps:
        if isinstance(step, CallStep) and step.function.derivative is None:
            own = step.function
            if own not in made:
                body = with_checkpoints(graph, own.body, varied, made)
                writes = ordered(v for part in body for v in part.writes)
                made[own] = replace(
                    own, body=body, reads=ordered(v for part in body for v in part.reads), writes=writes
                )
            step = flow_step(replace(step, function=made[own]))
        elif bodies(step) and not isinstance(step, CallStep):
            step = flow_step(with_bodies(step, [with_checkpoints(graph, body, varied, made) for body in bodies(step)]))
        if isinstance(step, WhileStep) and not varied.isdisjoint(step.writes) and _is_large(step):
            found += _in_stretches(graph, step)
        elif not isinstance(step, RepeatStep) or step.recompute is None:
            found.append(step)
        elif step.count < 2:
            found.append(replace(step, recompute=None))  # of one turn all is kept
        else:
            found += _in_units(graph, step, step.recompute)
    return tuple(found)


def _in_units(graph: Graph, step: RepeatStep, every: int | Revolve) -> list[Step]:
    if step.index is not None and step.index in writes_of(step.body):
        return [replace(step, recompute=None)]  # what else counts by it would count on
    fed, step = fed_before(graph, step)
    before, body = [*fed], step.body
    if step.index is not None:
        counted, count = _counted(graph, step.index)
        before, body = [*before, *counted], (*count, *body)
    if isinstance(every, Revolve):
        return [*before, flow_step(replace(step, body=body, index=None))]
    several, left = divmod(step.count, every)
    turns = [flow_step(replace(step, count=own, body=body, index=None, recompute=None)) for own in (every, left)]
    loop = flow_step(replace(step, count=several, body=(unit(turns[:1]),), index=None, recompute=None))
    return [*before, *([loop] if several else []), *(turns[1:] if left else [])]


def _is_large(step: WhileStep) -> bool:
    """Whether the iterations of a loop on a condition, which only give variables values, write much."""
    most = step.max_iterations or 0
    return (
        most > 1
        and not has_effects(step)
        and most * sum(own.size * own.dtype.itemsize for own in step.writes) >= _LARGE
    )


def _in_stretches(graph: Graph, step: WhileStep) -> list[Step]:
    """A loop on a condition as a loop of units, each so many iterations of it: the first those that remain."""
    assert step.max_iterations is not None
    most = math.isqrt(step.max_iterations)
    several = -(-step.max_iterations // most)
    turn = new_tensor(graph, "saved/turn of a stretch", (), "int32")
    count, _ = new_vertices(graph, "saved/next turn", one_more, turn=turn)
    fields = {"predicate": step.predicate, "turn": turn, "until": step.until, "turns": most}
    look, is_left = new_vertices(graph, "saved/look", goes_on, **fields)
    looking, counting, again = (steps_of(graph, [own]) for own in (look, count, zeros(turn)))
    one, all_of_them = (None, None) if step.turns is None else (min(step.turns, most), -(-step.turns // most))
    body = (*step.body, *step.condition, *counting)
    inner = replace(step, condition=looking, predicate=is_left, body=body, until=False, max_iterations=most, turns=one)
    stretch = unit([flow_step(inner), *again])
    outer = replace(step, condition=(), body=(stretch,), max_iterations=several, turns=all_of_them)
    first = steps_of(graph, [Copy(several * most - step.max_iterations, turn)])
    return [*step.condition, *first, flow_step(outer)]


def _counted(graph: Graph, index: Variable) -> tuple[list[Step], tuple[Step, ...]]:
    """The steps before a loop, and at the beginning of each iteration, by which a variable counts the iterations from
    0.
    """
    turn = whole_view(index)
    before = graph.copied_constant(np.asarray(-1).astype(index.dtype), turn)
    count, _ = new_vertices(graph, "saved/next turn", one_more, turn=turn)
    counting = flow(collect(graph, count, (), ())).steps
    return [flow_step(CopyStep(Tensor(before.source, before.index), turn))], counting
