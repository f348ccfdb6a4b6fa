"""What a vertex takes, from the codelet's jaxpr.

In comes a jaxpr, and how the vertex runs; out comes what it takes of each worker, and of the supervisor. One rule per
JAX primitive (`cycle_rules.py`), composed so:

- Neighbouring elementwise equations of one shape share a loop (`fusing.py`), which takes what `fused_loops.py` says.
- One element needs no loop and pays no base. A reduction of what a loop computes is part of the loop.
- What changes no value but only where it is looked for (a reshape, a slice, a broadcast) is free; what leaves
  the codelet so, or is returned as it came, pays for a copy. What is known before the vertex runs is free.
- Every other equation pays its form, base and all, so that a codelet of one equation takes exactly what PopLibs says. A
  codelet that pays no base enters and leaves in `ENTRY_CYCLES`.
- A `scan` pays its body once an iteration; a `while` the iterations that the user gives, or that its jaxpr shows, or
  `WHILE_TURNS`; a `cond` its longest branch.
- What the machine does not compute in is converted where it is read and where it is written: once in a loop, whose
  operations keep what they compute between them.
- A codelet of one equation that is one of PopLibs' vertices is taken for assembly, any other for compiled C++,
  unless its author says.

Known weaknesses: the base of a second loop counts the vertex's entry again; an update in place (`x.at[i].set`)
pays for the elements updated alone, as if the array it updates were never needed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.primitives import SCATTERS
from codelet.tracing.hints import GUESSED_TURNS
from ipu_backend.model import (  # noqa: F401 - whose rules join the table
    elementwise_rules,
    library_rules,
    moving_rules,
    product_rules,
    reduction_rules,
)
from ipu_backend.model.costs import FREE, Cost, Mode, either, guessed, sourced
from ipu_backend.model.cycle_rules import MOVING, cycle_rules, rule
from ipu_backend.model.dtypes import computed_in, guess_text, is_float8
from ipu_backend.model.equations import Equation, inlined, size_of
from ipu_backend.model.folded import folded
from ipu_backend.model.fusing import Fusion
from ipu_backend.model.loop_turns import turns_of
from ipu_backend.model.moving_rules import copy_out, run_of_view
from ipu_backend.model.rows import IN_SOFTWARE, Conversion, Loop

ENTRY_CYCLES = 5
"""To enter and leave a vertex that pays no other base: what the codelets of Poplar's matrix-vector tutorial pay."""

WHILE_TURNS = GUESSED_TURNS
"""The turns of a loop whose number nobody knows before it runs."""

TURN_CYCLES = 6
"""To go round a loop over equations once, and to take a branch: a guess, six instructions."""

UNKNOWN_CYCLES = 100
"""For each element that a primitive without a rule reads or returns: a guess on the high side."""

OTHERWISE = "give the codelet cycles= to count others"
"""How a user mends what nobody knows."""


# --- loops and choices ---------------------------------------------------------------------------------


def _turn_cost(body: jax_core.Jaxpr, carried: Sequence[Any], mode: Mode) -> Cost:
    """What an iteration of a loop takes, given what becomes of each result that is an operand of the next iteration.

    One that does not change stays where it is; one that does is not taken to be in place, since nothing else is.
    """
    unchanged = [own if own is result else None for own, result in zip(carried, body.outvars, strict=False)]
    return body_cycles(body, mode, unchanged).cost


@rule("scan")
def _scan(eqn: Equation, mode: Mode) -> Cost:
    body = eqn.jaxprs[0]
    same = lambda outer, inner: sum(a.aval.ndim == b.aval.ndim for a, b in zip(outer, inner, strict=True))  # noqa: E731
    carried = same(eqn.results, body.outvars)  # by their shapes, since releases of JAX name the numbers differently
    first = same(eqn.operands, body.invars) - carried
    return (_turn_cost(body, body.invars[first : first + carried], mode) + guessed(TURN_CYCLES)) * eqn.params["length"]


@rule("while")
def _while(eqn: Equation, mode: Mode) -> Cost:
    condition, body = (eqn.params[name].jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    carried = body.invars[eqn.params["body_nconsts"] :]
    turn = body_cycles(condition, mode).cost + _turn_cost(body, carried, mode) + guessed(TURN_CYCLES)
    if mode.turns is not None:
        return turn * mode.turns
    known = turns_of(eqn)
    if known is not None and known.is_exact:
        return turn * known.number
    turns, how = (
        (WHILE_TURNS, f"{WHILE_TURNS} are") if known is None else (known.number, f"at most {known.number}, which are")
    )
    mode.tell(
        f"a while loop runs for a number of turns that is not known: {how} counted; cl.codelet(trip_count=...) says it"
    )
    found = turn * turns
    return replace(found, fitted=0, guessed=found.counted)


@rule("cond")
def _cond(eqn: Equation, mode: Mode) -> Cost:
    branches = [body_cycles(branch, mode).cost for branch in eqn.jaxprs]
    return guessed(TURN_CYCLES) + max(branches, key=lambda cost: cost.counted)


# --- equations ----------------------------------------------------------------------------------------

_BODIES = ("scan", "while", "cond")
"""Primitives whose own equations are counted, one by one."""

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
"""Primitives that a loop accumulates which computes their operand."""

_PRODUCTS = ("dot_general", "conv_general_dilated")


def _unknown(eqn: Equation, mode: Mode) -> Cost:
    elements = sum(math.prod(getattr(atom.aval, "shape", ())) for atom in (*eqn.operands, *eqn.results))
    mode.tell(
        f"no rule says how many cycles the primitive {eqn.primitive!r} takes: {UNKNOWN_CYCLES} are counted for "
        f"each element it reads and returns; {OTHERWISE}"
    )
    return guessed(UNKNOWN_CYCLES * elements)


def _conversion(atom: Any, mode: Mode) -> Conversion | None:
    """How a value is converted when it is read or written; None for one of a dtype that the machine computes in."""
    dtype = getattr(atom.aval, "dtype", None)
    if dtype is None or computed_in(dtype) == dtype:
        return None
    return mode.machine.tables.float8 if is_float8(dtype) else IN_SOFTWARE


def _with_conversions(cost: Cost, eqn: Equation, mode: Mode) -> Cost:
    """What an equation takes, what it reads and writes converted; products take float8 as it is where a unit does."""
    updates = size_of(eqn.operands[2]) if eqn.primitive in SCATTERS else None  # the others stay as they are
    for is_read, atoms in ((True, eqn.operands), (False, eqn.results)):
        for atom in atoms:
            size = size_of(atom) if updates is None else min(updates, size_of(atom))
            own, share = _conversion(atom, mode), mode.share(size)
            if own is None or (eqn.primitive in _PRODUCTS and not own.is_guess):
                continue
            cycles = own.read_cycles(share) if is_read else own.written_cycles(share)
            cost += guessed(cycles) if own.is_guess else sourced(cycles)
    return cost


def _cost(eqn: Equation, mode: Mode) -> Cost | Loop:
    """What an equation takes by its rule, and what it takes to convert what the machine does not compute in."""
    found = mode.machine.tables.rules.get(eqn.primitive) or cycle_rules.get(eqn.primitive, _unknown)
    cost = found(eqn, mode)
    if not cost or eqn.primitive in MOVING or eqn.primitive in _BODIES:
        return cost
    for atom in (*eqn.operands, *eqn.results):
        text = guess_text(atom.aval.dtype, mode.machine.tables.has_float8) if hasattr(atom.aval, "dtype") else None
        if text is not None:
            mode.tell(f"{text}; {OTHERWISE}")
    return cost if isinstance(cost, Loop) else _with_conversions(cost, eqn, mode)


# --- jaxprs -------------------------------------------------------------------------------------------


class BodyCycles(NamedTuple):
    """What the equations of a jaxpr take.

    Attributes:
        cost: the vertex's entry aside.
        paid_base: whether any of them has paid a vertex's base.
        is_vertex: whether it is no more than one vertex of a library.
    """

    cost: Cost
    paid_base: bool
    is_vertex: bool


def body_cycles(jaxpr: jax_core.Jaxpr, mode: Mode, over: Sequence[Any] = ()) -> BodyCycles:
    """What the equations of a jaxpr take, the vertex's entry aside.

    Whoever writes assembly writes what the compiler would where that is faster: it never takes more than compiled,
    but where it is one vertex of a library, which takes what it takes.

    Args:
        jaxpr: of what.
        mode: how the vertex runs.
        over: for each result in order the operand that it is written over, or None; left off for none.
    """
    own = _of_mode(jaxpr, mode, over)
    if mode.compiled or own.is_vertex:
        return own
    causes: dict[str, None] = {}
    compiled = _of_mode(jaxpr, replace(mode, compiled=True, causes=causes), over)
    alone = lambda cost: cost.supervisor + mode.machine.num_workers * cost.worker  # noqa: E731
    dearer = alone(compiled.cost) >= alone(own.cost)
    if not causes and own[1:] == compiled[1:]:
        return own._replace(cost=either(dearer, own.cost, compiled.cost))
    if dearer:
        return own
    mode.causes.update(causes)
    return compiled


def _of_mode(jaxpr: jax_core.Jaxpr, mode: Mode, over: Sequence[Any]) -> BodyCycles:
    total, paid_base, parts, is_vertex = FREE, False, 0, True
    fusion, tables = Fusion(), mode.machine.tables
    names: dict[Any, Any] = {}
    runs: dict[Any, int] = {}  # of what is a view, how many of its elements lie side by side

    def run_in(atom: Any) -> int:
        return max(1, size_of(atom)) if isinstance(atom, jax_core.Literal) else runs.get(atom, max(1, size_of(atom)))

    equations = inlined(jaxpr, names)
    for eqn in folded(equations, jaxpr.outvars, names) if tables.folds else equations:
        if eqn.operands and eqn.results and size_of(eqn.results[0]) == 1 and all(map(fusion.is_constant, eqn.operands)):
            fusion.constants.update(eqn.results)
            continue
        if eqn.primitive in _REDUCTIONS and eqn.primitive not in tables.rules and fusion.accumulate(eqn):
            continue
        cost = _cost(eqn, mode)
        if isinstance(cost, Loop):
            fusion.join(eqn, cost, lambda atom: _conversion(atom, mode))
        elif cost:
            fusion.apart(eqn)
            total, paid_base, parts = total + cost, True, parts + 1
        elif eqn.operands:
            fusion.look(eqn)
            runs.update((result, min(run_of_view(eqn), run_in(eqn.operands[0]))) for result in eqn.results)

    outside = [atom if isinstance(atom, jax_core.Literal) else names.get(atom, atom) for atom in jaxpr.outvars]
    leaving = list(zip(map(fusion.whole, outside), (*over, *[None] * (len(outside) - len(over))), strict=True))
    fusion.read.update(own for own in map(fusion.origin, outside) if not isinstance(own, jax_core.Literal))
    for loop in fusion.loops:
        stored = fusion.stored(loop)
        in_place = any(own in loop.reads and found in stored for found, own in leaving if own is not None)
        total += loop.cost(stored, in_place, mode)
        paid_base |= loop.size > 1
        is_vertex &= loop.is_vertex
        parts += 1

    for found, own in leaving:
        if found is not own and (isinstance(found, jax_core.Literal) or found not in fusion.computed):
            total += copy_out(found, run_in(found), is_number=fusion.is_number(found), mode=mode)
            paid_base |= size_of(found) > 1
            parts += 1
    return BodyCycles(total, paid_base, is_vertex and parts <= 1 and not total.guessed)


def _entered(body: BodyCycles) -> Cost:
    return body.cost if body.paid_base else sourced(ENTRY_CYCLES) + body.cost


class JaxprCycles(NamedTuple):
    """What a vertex that runs a jaxpr takes, and what it would as assembly, where it is but supposed to be compiled.

    `mode` is how it runs, once that is decided.
    """

    cost: Cost
    if_assembly: Cost | None
    mode: Mode


def jaxpr_cycles(jaxpr: jax_core.Jaxpr, mode: Mode, over: Sequence[Any] = (), *, supposes: bool = False) -> JaxprCycles:
    """What a vertex that runs a jaxpr takes.

    Args:
        jaxpr: what it runs.
        mode: how; `compiled` does not count where it is to be supposed.
        over: for each result in order the operand that it is written over, or None; left off for none.
        supposes: whether to take one of a library's vertices for assembly, and anything else for compiled.
    """
    if not supposes:
        return JaxprCycles(_entered(body_cycles(jaxpr, mode, over)), None, mode)
    in_assembly, in_cpp = (replace(mode, compiled=compiled) for compiled in (False, True))
    body = body_cycles(jaxpr, in_assembly, over)
    as_assembly = _entered(body)
    if body.is_vertex:
        return JaxprCycles(as_assembly, None, in_assembly)
    compiled = _entered(body_cycles(jaxpr, in_cpp, over))
    return JaxprCycles(compiled, None if compiled.counted == as_assembly.counted else as_assembly, in_cpp)


def jaxpr_cost(jaxpr: jax_core.ClosedJaxpr, mode: Mode) -> Cost:
    """What a vertex that runs a jaxpr takes.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> jaxpr_cost(jax.make_jaxpr(jnp.dot)(jnp.ones(16), jnp.ones(16)), Mode(cl.IPU())).worker
    73
    """
    return jaxpr_cycles(jaxpr.jaxpr, mode).cost
