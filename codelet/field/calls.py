"""Calls, loops and choices over the field: loops run as often as known numbers say, choices as known numbers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field.algebra import chosen
from codelet.field.meanings import Field, NotUnderstood, all_residues, meaning, summed
from codelet.field.moves import piled
from codelet.field.values import Unknown, Value, moved, residues
from codelet.jaxprs.equations import CALLS, scan_counts
from codelet.jaxprs.primitives import CUSTOM

MOST_TURNS = 1_000_000
"""Of a loop on a condition: it may have no end where nothing is rounded."""


PLAIN_CALLS = (*CALLS, "closed_call", "core_call", "remat", "remat2", "checkpoint")
"""Primitives that call a jaxpr, and nothing else."""


@meaning(" ".join(PLAIN_CALLS), every=True, degree=None, said="what it calls")
def call(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    return field.run(eqn.params["jaxpr"], operands)


@meaning(" ".join(CUSTOM), every=True, degree=None, said="what it calls, not its rule")
def custom(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    return field.run(eqn.params["call_jaxpr"], operands)


@meaning("custom_linear_solve", every=True, degree=None, said="how it solves")
def linear_solve(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = operands[first : first + lengths.solve]
    return field.run(jaxprs.solve, [*consts, *operands[sum(lengths) :]])


@meaning("scan", every=True, degree=None, said="each of its turns")
def scan(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    params, (first, carried) = eqn.params, scan_counts(eqn)
    kept, held, over = operands[:first], list(operands[first : first + carried]), operands[first + carried :]
    length, stacked = params["length"], []
    for turn in reversed(range(length)) if params["reverse"] else range(length):
        rows = [moved(own, lambda array, lead, k=turn: array[(slice(None),) * lead + (k,)]) for own in over]
        results = field.run(params["jaxpr"], [*kept, *held, *rows])
        held = list(results[:carried])
        stacked.append(results[carried:])
    stacked = stacked[::-1] if params["reverse"] else stacked
    made = [
        piled(field, [own[k] for own in stacked], 0)
        if stacked
        else field.known(np.zeros(var.aval.shape, var.aval.dtype))
        for k, var in enumerate(eqn.outvars[carried:])
    ]
    return [*held, *made]


@meaning("while", every=True, degree=None, said="each of its turns, where its condition is known")
def while_(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    params = eqn.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    given, kept, held = operands[:first], operands[first : first + second], list(operands[first + second :])
    for _ in range(MOST_TURNS):
        (goes_on,) = field.run(params["cond_jaxpr"], [*given, *held])
        if isinstance(goes_on, Unknown):
            raise NotUnderstood(eqn, "how often it runs depends on floats that are not known")
        if not np.asarray(goes_on):
            return held
        held = list(field.run(params["body_jaxpr"], [*kept, *held]))
    raise NotUnderstood(eqn, f"it has not ended after {MOST_TURNS:,} turns")


@meaning(
    "cond",
    every=True,
    degree=None,
    said="the branch that a known number chooses; of a truth value that is not known, as `select_n`",
)
def cond(field: Field, eqn: Any, which: Value, *operands: Value) -> Sequence[Value]:
    branches = eqn.params["branches"]
    if not isinstance(which, Unknown):
        return field.run(branches[min(max(int(np.asarray(which)), 0), len(branches) - 1)], operands)
    if len(branches) != 2:
        raise NotUnderstood(eqn, "which of several branches it takes depends on floats that are not known")
    if eqn.effects:
        raise NotUnderstood(eqn, "a branch has effects")
    bit, made = residues(which, field.draws), list[Value]()
    for pair in zip(*(field.run(branch, operands) for branch in branches), strict=True):
        degrees = [own.degree for own in (which, *pair) if isinstance(own, Unknown)]
        no, yes = all_residues(field, pair)
        made.append(Unknown(chosen(bit, no, yes, pair[0].dtype), pair[0].dtype).of_degree(summed(eqn, degrees)))
    return made
