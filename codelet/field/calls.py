"""Calls, loops and branches over the field: loops run as often as known numbers say, branches as known numbers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from codelet.field.algebra import chosen
from codelet.field.meanings import Field, NotUnderstood, all_residues, meaning, summed
from codelet.field.moves import piled, row
from codelet.field.values import Unknown, Value, residues
from codelet.jaxprs.equations import CALLS, scan_counts
from codelet.jaxprs.primitives import CUSTOM

MOST_TURNS = 1_000_000
"""Of a loop on a condition: it may have no end where nothing is rounded."""


PLAIN_CALLS = (
    *CALLS,
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "slices_together",
    "custom_vmap_call",
)
"""Primitives that call a jaxpr, and nothing else."""

T = TypeVar("T")
Run = Callable[[Any, Sequence[T]], Sequence[T]]
"""What gives the results of a jaxpr: over the field, or for each device of a mesh."""


def called(eqn: Any) -> Any:
    """The jaxpr that a call is of."""
    return next(eqn.params[name] for name in ("jaxpr", "call_jaxpr", "call") if name in eqn.params)


@meaning(" ".join(PLAIN_CALLS), every=True, degree=None, said="what it calls")
@meaning(" ".join(CUSTOM), every=True, degree=None, said="what it calls, not its rule")
def call(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    return field.run(called(eqn), operands)


@meaning("custom_linear_solve", every=True, degree=None, said="how it solves")
def linear_solve(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = operands[first : first + lengths.solve]
    return field.run(jaxprs.solve, [*consts, *operands[sum(lengths) :]])


def nothing(field: Field, var: Any) -> Value:
    """The stacked results of no iterations."""
    return field.known(np.zeros(var.aval.shape, var.aval.dtype))


def scanned(
    eqn: Any,
    operands: Sequence[T],
    run: Run[T],
    row: Callable[[T, int], T],
    stack: Callable[[list[T]], T],
    empty: Callable[[Any], T],
) -> list[T]:
    """The results of a scan, iteration by iteration, whatever it is of.

    Args:
        eqn: the scan.
        operands: of it.
        run: gives the results of its body.
        row: gives one row of an array that is scanned over.
        stack: puts the results of all iterations together.
        empty: stands for no iterations, given the variable.
    """
    params, (first, carried) = eqn.params, scan_counts(eqn)
    kept, held, over = operands[:first], list(operands[first : first + carried]), operands[first + carried :]
    turns, stacked = range(params["length"]), list[Sequence[T]]()
    for turn in reversed(turns) if params["reverse"] else turns:
        results = run(params["jaxpr"], [*kept, *held, *(row(own, turn) for own in over)])
        held = list(results[:carried])
        stacked.append(results[carried:])
    stacked = stacked[::-1] if params["reverse"] else stacked
    made = [
        stack([own[k] for own in stacked]) if stacked else empty(var) for k, var in enumerate(eqn.outvars[carried:])
    ]
    return [*held, *made]


def looped(eqn: Any, operands: Sequence[T], run: Run[T], goes_on: Callable[[T], bool]) -> list[T]:
    """The results of a loop on a condition, iteration by iteration, in any arithmetic, while the condition says so.

    Raises:
        NotUnderstood: it does not end.
    """
    params = eqn.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    given, kept, held = operands[:first], operands[first : first + second], list(operands[first + second :])
    for _ in range(MOST_TURNS):
        (says,) = run(params["cond_jaxpr"], [*given, *held])
        if not goes_on(says):
            return held
        held = list(run(params["body_jaxpr"], [*kept, *held]))
    raise NotUnderstood(eqn, f"it has not ended after {MOST_TURNS:,} turns")


@meaning("scan", every=True, degree=None, said="each of its turns")
def scan(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    stack = lambda rows: piled(field, rows, 0)  # noqa: E731
    return scanned(eqn, operands, field.run, row, stack, lambda var: nothing(field, var))


@meaning("while", every=True, degree=None, said="each of its turns, where its condition is known")
def while_(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    def goes_on(says: Value) -> bool:
        if isinstance(says, Unknown):
            raise NotUnderstood(eqn, "how often it runs depends on floats that are not known")
        return bool(np.asarray(says))

    return looped(eqn, operands, field.run, goes_on)


@meaning(
    "cond",
    every=True,
    degree=None,
    said="the branch that a known number chooses; of a boolean that is not known, as `select_n`",
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
