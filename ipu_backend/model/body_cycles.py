"""What a vertex takes, from the codelet's jaxpr.

In comes a jaxpr, and how the vertex runs; out comes what it takes of each worker, and of the supervisor. One rule per
JAX primitive (`cycle_rules.py`), composed so:

- Neighbouring elementwise equations of one shape are one loop, as in the codelets that PopLibs generates for
  its map expressions: the vertex's base is the largest of theirs, the operations' cycles add up, and loads,
  stores and the turn of the loop are paid once, as the operation that pays most for them.
- One element needs no loop and pays no base.
- What changes no value but only where it is looked for (a reshape, a slice, a broadcast) is free; what leaves
  the codelet so, or is returned as it came, pays for a copy.
- Every other equation pays its own form, base and all, so that a codelet of one equation takes exactly what
  PopLibs says. A codelet that pays no base enters and leaves in `ENTRY_CYCLES`.
- A `scan` pays its body once a turn; a `while` pays `WHILE_TURNS` turns; a `cond` its longest branch.

Known weaknesses: the base of a second loop counts the vertex's entry again; an update in place (`x.at[i].set`)
pays for the elements updated alone, as if the array it updates were never needed again.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from codelet.tracing.hints import GUESSED_TURNS
from ipu_backend.model import (  # noqa: F401 - whose rules join the table
    elementwise_rules,
    library_rules,
    moving_rules,
    product_rules,
    reduction_rules,
)
from ipu_backend.model.costs import FREE, Cost, Mode, UnknownCyclesWarning, ceil_div, guessed, sourced
from ipu_backend.model.cycle_rules import MOVING, cycle_rules, rule
from ipu_backend.model.equations import Equation, inlined, itemsize_of, size_of
from ipu_backend.model.poplibs import CONVERT_CYCLES, guess_text, vector_width
from ipu_backend.model.tables import Loop

ENTRY_CYCLES = 5
"""To enter and leave a vertex that pays no other base: what the codelets of Poplar's matrix-vector tutorial pay."""

WHILE_TURNS = GUESSED_TURNS
"""The turns of a loop whose number nobody knows before it runs."""

TURN_CYCLES = 6
"""To go round a loop over equations once, and to take a branch: a guess, six instructions."""

UNKNOWN_CYCLES = 100
"""For each element that a primitive without a rule reads or returns: a guess on the high side."""


# --- loops and choices ---------------------------------------------------------------------------------


@rule("scan")
def _scan(eqn: Equation, mode: Mode) -> Cost:
    return (body_cycles(eqn.jaxprs[0], mode).cost + guessed(TURN_CYCLES)) * eqn.params["length"]


@rule("while")
def _while(eqn: Equation, mode: Mode) -> Cost:
    warnings.warn(
        f"a while loop runs for a number of turns that is not known: {WHILE_TURNS} are counted; "
        "give the codelet cycles= to count others",
        UnknownCyclesWarning,
        stacklevel=1,
    )
    turn = sum((body_cycles(part, mode).cost for part in eqn.jaxprs), guessed(TURN_CYCLES))
    return turn * WHILE_TURNS


@rule("cond")
def _cond(eqn: Equation, mode: Mode) -> Cost:
    branches = [body_cycles(branch, mode).cost for branch in eqn.jaxprs]
    return guessed(TURN_CYCLES) + max(branches, key=lambda cost: cost.counted)


# --- equations ----------------------------------------------------------------------------------------


def _has_body(eqn: Equation) -> bool:
    """Whether an equation's own equations are counted, one by one."""
    return eqn.primitive in ("scan", "while", "cond")


def _unknown(eqn: Equation, mode: Mode) -> Cost:
    elements = sum(math.prod(getattr(atom.aval, "shape", ())) for atom in (*eqn.operands, *eqn.results))
    warnings.warn(
        f"no rule says how many cycles the primitive {eqn.primitive!r} takes: {UNKNOWN_CYCLES} are counted for "
        "each element it reads and returns; give the codelet cycles= to count others",
        UnknownCyclesWarning,
        stacklevel=1,
    )
    return guessed(UNKNOWN_CYCLES * elements)


def _cost(eqn: Equation, mode: Mode) -> Cost | Loop:
    """What an equation takes by its rule, and what it takes to convert what the machine does not compute in."""
    found = mode.machine.tables.rules.get(eqn.primitive) or cycle_rules.get(eqn.primitive, _unknown)
    cost = found(eqn, mode)
    if not cost or not eqn.converted or eqn.primitive in MOVING or _has_body(eqn):
        return cost
    for dtype in dict.fromkeys(atom.aval.dtype for atom in eqn.converted):
        said = f"{guess_text(dtype)}; give the codelet cycles= to count others"
        warnings.warn(said, UnknownCyclesWarning, stacklevel=1)
    if eqn.primitive == "convert_element_type":  # what it takes is what its rule counts
        return cost
    if isinstance(cost, Loop):
        elements = cost.elements or vector_width(eqn.dtype, mode.machine.vector_bytes)
        return cost._replace(cycles=cost.cycles + CONVERT_CYCLES * elements * len(eqn.converted))
    return cost + guessed(CONVERT_CYCLES * sum(map(size_of, eqn.converted)))


# --- jaxprs -------------------------------------------------------------------------------------------


class BodyCycles(NamedTuple):
    """What the equations of a jaxpr take, and whether any of them has paid a vertex's base."""

    cost: Cost
    paid_base: bool


class _Fused(NamedTuple):
    """Elementwise operations in one loop over `size` elements: the base, and the cycles of all turns."""

    size: int
    base: int = 0
    cycles: int = 0
    overhead: int = 0

    def joined_by(self, loop: Loop, width: int) -> _Fused:
        turns = loop.turns(self.size, width)
        base = loop.base if self.size > 1 else 0
        return _Fused(
            self.size,
            max(self.base, base),
            self.cycles + turns * loop.cycles,
            max(self.overhead, turns * loop.overhead),
        )


def body_cycles(jaxpr: jax_core.Jaxpr, mode: Mode) -> BodyCycles:
    """What the equations of a jaxpr take, the vertex's entry aside."""
    total, paid_base = FREE, False
    fused: dict[tuple[int, ...], _Fused] = {}
    origin: dict[Any, Any] = {}  # of what is free: what it is a view of
    computed: set[Any] = set()
    names: dict[Any, Any] = {}
    vector_bytes = mode.machine.vector_bytes

    def close() -> None:
        nonlocal total, paid_base
        for loop in fused.values():
            total += sourced(loop.base + loop.cycles + loop.overhead)
            paid_base |= loop.base > 0
        fused.clear()

    for eqn in inlined(jaxpr, names):
        cost = _cost(eqn, mode)
        if isinstance(cost, Loop):
            shape = eqn.results[0].aval.shape
            width = vector_width(eqn.dtype, vector_bytes)
            fused[shape] = fused.get(shape, _Fused(math.prod(shape))).joined_by(cost, width)
        elif cost:
            close()
            total += cost
            paid_base = True
        elif eqn.operands:
            origin.update(dict.fromkeys(eqn.results, eqn.operands[0]))
            continue
        computed.update(eqn.results)
    close()

    for atom in jaxpr.outvars:
        found = names.get(atom, atom) if not isinstance(atom, jax_core.Literal) else atom
        size = size_of(found)
        while not isinstance(found, jax_core.Literal) and found in origin and size_of(origin[found]) == size:
            found = origin[found]
        if isinstance(found, jax_core.Literal) or found not in computed:
            dtype = getattr(atom.aval, "dtype", np.float32)
            width = max(1, vector_bytes // itemsize_of(dtype))
            total += sourced(23 + ceil_div(size, width) if size > 1 else 2)
            paid_base |= size > 1
    return BodyCycles(total, paid_base)


def jaxpr_cost(jaxpr: jax_core.ClosedJaxpr, mode: Mode) -> Cost:
    """What a vertex that runs a jaxpr takes.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> jaxpr_cost(jax.make_jaxpr(jnp.dot)(jnp.ones(16), jnp.ones(16)), Mode(cl.IPU())).worker
    73
    """
    cost, paid_base = body_cycles(jaxpr.jaxpr, mode)
    return cost if paid_base else sourced(ENTRY_CYCLES) + cost
