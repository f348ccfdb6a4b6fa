"""Loops and choices: `scan` as a `Repeat`, `while` as a `RepeatWhile`, `cond` as a `Switch`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type
from codelet.jaxprs.equations import scan_counts
from codelet.ops.turns import put_turn, take_turn
from codelet.programs.control import Repeat, RepeatWhile, Switch
from codelet.views.sources import source_variables
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _variables(walk: Walk, name: str, operands: Sequence[Value]) -> list[Tensor]:
    """Variables that hold values to begin with."""
    made = [walk.graph.add_variable(f"{name}{k}", own.shape, own.dtype) for k, own in enumerate(operands)]
    for own, variable in zip(operands, made, strict=True):
        walk.copy(own, variable)
    return made


def _carry(walk: Walk, results: Sequence[Value], variables: Sequence[Tensor]) -> None:
    """Copy the results of an iteration to the carry of the next one, all at once."""
    held = {own.source for own in variables}
    pairs = [(a, b) for a, b in zip(results, variables, strict=True) if a is not b]
    waiting = []
    for result, variable in pairs:
        others = held - {variable.source}
        if isinstance(result, Tensor) and others & set(source_variables(result.source)):
            kept = walk.graph.add_variable(walk.graph.free_name("kept"), result.shape, result.dtype)
            walk.copy(result, kept)
            waiting.append((kept, variable))
        else:
            waiting.append((result, variable))
    for result, variable in waiting:
        walk.copy(result, variable)


def from_the_end(length, k):
    """The place of an iteration of so many in an array that is read backwards."""
    return length - 1 - k


def choice(last, k):
    """Which branch a number chooses."""
    return jnp.clip(k, 0, last)


@rule("scan", by="`Repeat`")
def scan(
    walk: Walk,
    *operands: Value,
    jaxpr: jax_core.ClosedJaxpr,
    length: int,
    reverse: bool,
    unroll: Any,
    linear: Any = None,
    num_consts: Any = None,
    num_carry: Any = None,
    ft_in: Any = None,
    ft_out: Any = None,
    _split_transpose: Any = None,
) -> Any:
    """A loop with a count: its carry, the arrays it scans over, and those it stacks."""
    constants, carried = scan_counts(walk.equation)
    if length == 0:  # no turn takes a row, of which there is none
        stacked = [data_type(var.aval) for var in walk.equation.outvars[carried:]]
        return [*operands[constants : constants + carried], *(np.zeros(*own) for own in stacked)]
    body = jaxpr.jaxpr
    paths = walk.paths_of(body.invars[:constants])
    with walk.graph.scope("scan", unique=True):
        shared, start, stacks = (
            operands[:constants],
            operands[constants : constants + carried],
            operands[constants + carried :],
        )
        state = _variables(walk, "carry", start)
        made = [walk.variable_of(var.aval, f"stacked{k}") for k, var in enumerate(walk.equation.outvars[carried:])]
        turn = walk.graph.add_variable("turn", (), "int32")
        taken = [walk.tensor(own) for own in stacks]
        for variable in made:
            walk.copy(np.broadcast_to(np.zeros((), variable.dtype), variable.shape), variable)
        with walk.body() as steps:
            place: Tensor = turn
            with walk.recording():
                if reverse and (taken or made):
                    place = ops.map(walk.graph, functools.partial(from_the_end, length), turn, name="backwards")
            with walk.recording():
                rows = [take_turn(walk.graph, own, place, walk.grain) for own in taken]
            results = walk.closed(jaxpr, [*shared, *state, *rows], paths)
            with walk.recording():
                for own, variable in zip(results[carried:], made, strict=True):
                    put_turn(walk.graph, walk.tensor(own), variable, place, walk.grain)
            _carry(walk, results[:carried], state)
        walk.run(Repeat(length, steps, index=turn))
    return [*state, *made]


@rule("while", by="`RepeatWhile`")
def while_(
    walk: Walk,
    *operands: Value,
    cond_jaxpr: jax_core.ClosedJaxpr,
    body_jaxpr: jax_core.ClosedJaxpr,
    cond_nconsts: int,
    body_nconsts: int,
) -> Any:
    """A loop on a condition."""
    of_condition, of_body = operands[:cond_nconsts], operands[cond_nconsts : cond_nconsts + body_nconsts]
    with walk.graph.scope("while", unique=True):
        state = _variables(walk, "carry", operands[cond_nconsts + body_nconsts :])
        holds = walk.graph.add_variable("holds", (), bool)
        with walk.body() as condition:
            (found,) = walk.closed(cond_jaxpr, [*of_condition, *state])
            each = found if found.shape else None  # `vmap` makes many loops one, which runs while any of them does
            if each is not None:
                with walk.recording():
                    found = ops.any(walk.graph, walk.tensor(each), grain=walk.grain)
            walk.copy(found, holds)
        with walk.body() as body:
            paths = walk.paths_of(body_jaxpr.jaxpr.invars[:body_nconsts], cond_nconsts)
            results = walk.closed(body_jaxpr, [*of_body, *state], paths)
            if each is not None:
                results = [_where(walk, each, a, b) for a, b in zip(results, state, strict=True)]
            _carry(walk, results, state)
        walk.run(RepeatWhile(condition, holds, body))
    return state


def _where(walk: Walk, holds: Value, value: Value, other: Tensor) -> Tensor:
    """A value in those of many loops that run on, and another in those that are at their end."""
    spread = walk.tensor(holds).reshape((*holds.shape, *(1,) * (other.ndim - holds.ndim))).broadcast_to(other.shape)
    with walk.recording():
        return ops.select(walk.graph, spread, walk.tensor(value), other, grain=walk.grain)


@rule("cond", by="`Switch`; the branch alone where it is known")
def cond(
    walk: Walk,
    chosen: Value,
    *operands: Value,
    branches: tuple[jax_core.ClosedJaxpr, ...],
    branches_platforms: Any = None,
) -> Any:
    """One of several branches; the last for a number beyond it, the first for one before."""
    if isinstance(chosen, np.ndarray):
        branch = branches[min(max(int(chosen), 0), len(branches) - 1)]
        return walk.closed(branch, operands, walk.paths_of(branch.jaxpr.invars, 1))
    with walk.graph.scope("cond", unique=True):
        made = [walk.variable_of(var.aval, f"out{k}") for k, var in enumerate(walk.equation.outvars)]
        control = walk.tensor(chosen)
        cases: list[Any] = []
        for branch in branches:
            with walk.body() as steps:
                results = walk.closed(branch, operands, walk.paths_of(branch.jaxpr.invars, 1))
                for own, variable in zip(results, made, strict=True):
                    walk.copy(own, variable)
            cases.append(steps)
        last = len(branches) - 1
        if control.dtype != bool and last > 0:
            with walk.recording():
                control = ops.map(walk.graph, functools.partial(choice, last), control, name="choose")
        walk.run(Switch(control, dict(enumerate(cases[:-1])), cases[-1]))
    return made
