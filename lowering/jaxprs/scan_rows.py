"""Scan rows: what a loop takes one row of an iteration is scanned over, and what it puts one row of is stacked.

In comes a jaxpr, out come scans that get and give rows as such, where they took and put them at a place that is the
number of the iteration. It is what makes their gradients linear: JAX's cotangent of an array of which an iteration
takes a row is an array of zeros with a row in it, added up in every iteration; of what is scanned over it is a row.

What a loop stacks that counts its iterations is no loop's: it is made behind it. Nor are rows that it is given, and
stacks as they are: an adjoint saves what a turn takes, and would hold another array of all rows.

An array is scanned over where all that an iteration does with it is to take its row, and stacked where all that an
iteration does is to put its row, or to take that row before it does. Rows are along the first dimension.

A loop that does nothing but change each row of one array by itself keeps that array, and has the slopes of the scan:
a scan reads one array and writes another, for which LLVM makes other code than for one. Of 0.5 times each row of
(40, 60, 60) and (400, 61, 67) it took 1.7 and 1.5 times as long, of (4000, 100) 0.7, with jax 0.10.2 on two cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import (
    Atomic,
    Makers,
    bind,
    bodies_of,
    computed,
    evaluate,
    inner_jaxprs,
    needed,
    scan_counts,
    scan_options,
    variables,
    with_bodies,
    with_inner,
)
from codelet.jaxprs.primitives import CUSTOM
from codelet.jaxprs.rebuild import Builder, Change, Run, each_once, rebuild
from lowering.arrays import reshape
from lowering.jaxprs.counted_rows import Affine, Counting, Rows, is_whole, shape_of
from lowering.jaxprs.parts import behind
from lowering.jaxprs.reshape_once import is_reshape

# --- what is made behind a loop -----------------------------------------------------------------------------------

Behind = Mapping[int, Callable[[Sequence[Any]], Any]]
"""Results of a loop by their places, as they are made of what it is given."""


def _in_order(at: Affine, kind: Any) -> Any:
    """What counts, stacked: an array of a number that is one more in every row, or one less."""
    step, first = at
    line = lax.iota(kind.dtype, kind.shape[0])
    if step < 0:
        line, first = lax.rev(line, (0,)), first - kind.shape[0] + 1
    return reshape(line + np.asarray(first, kind.dtype), kind.shape)


def _counts(eqn: jax_core.JaxprEqn, counting: Counting) -> Behind:
    """The results of a loop that count."""
    found = counting.counts(eqn).items()
    return {k: lambda _, at=at, kind=eqn.outvars[k].aval: _in_order(at, kind) for k, at in found}


def _as_given(eqn: jax_core.JaxprEqn) -> Behind:
    """The results of a scan that stack the rows of what it is given, as they are or reshaped."""
    if eqn.primitive.name != "scan" or eqn.effects:
        return {}
    body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    makers, given = Makers(body.eqns), {var: k for k, var in enumerate(body.invars) if k >= first + carried}
    roots = ((k, behind(atom, makers)[0]) for k, atom in enumerate(body.outvars) if k >= carried)
    found = {k: given[root] for k, root in roots if isinstance(root, jax_core.Var) and root in given}
    shapes = {k: shape_of(eqn.outvars[k]) for k in found}
    return {k: lambda inputs, own=own, shape=shapes[k]: reshape(inputs[own], shape) for k, own in found.items()}


def _without(eqn: jax_core.JaxprEqn, made_behind: Behind) -> Callable[..., list[Any]]:
    """The loop without some results, and these behind it."""
    closed, (first, carried) = eqn.params["jaxpr"], scan_counts(eqn)
    body = closed.jaxpr
    left = [k for k in range(len(body.outvars)) if k not in made_behind]
    kept = [k for k in left if k < carried]
    results = [body.outvars[k] for k in left]
    eqns = needed(body, results=results)
    state = [body.invars[first + k] for k in kept]
    given = (*body.constvars, *body.invars[:first], *state, *body.invars[first + carried :])

    def run(*inputs: Any) -> list[Any]:
        def turn(held: list[Any], fed: list[Any]) -> tuple[list[Any], list[Any]]:
            values = dict(zip(given, (*closed.consts, *inputs[:first], *held, *fed), strict=True))
            made = computed(eqns, values, results)
            return made[: len(kept)], made[len(kept) :]

        start, rows = [inputs[first + k] for k in kept], list(inputs[first + carried :])
        last, sent = lax.scan(turn, start, rows, **scan_options(eqn))
        made = dict(zip(left, (*last, *sent), strict=True))
        return [made[k] if k in made else made_behind[k](inputs) for k in range(len(eqn.outvars))]

    return run


# --- loops ------------------------------------------------------------------------------------------------------


def _goes_back(eqn: jax_core.JaxprEqn, rows: Mapping[int, Rows]) -> bool:
    """Whether the scan is to go from the last row to the first: in the direction in which the least is turned round."""
    first, carried = scan_counts(eqn)
    turned = {False: 0, True: 0}
    for atom in (*eqn.invars[first + carried :], *eqn.outvars[carried:]):
        turned[not eqn.params["reverse"]] += math.prod(atom.aval.shape)  # type: ignore[attr-defined]
    for k, row in rows.items():
        size = math.prod(eqn.invars[k].aval.shape)  # type: ignore[attr-defined]
        turned[row.at[0] > 0] += size * (bool(row.taken) + (row.put is not None))
    return turned[True] < turned[False] if turned[True] != turned[False] else eqn.params["reverse"]


def _written_alike(body: jax_core.Jaxpr, rows: Mapping[int, Rows]) -> dict[int, int]:
    """Of each array that rows are put in, the first of those in whose place the same is put."""
    makers = Makers(body.eqns)
    first: dict[Any, int] = {}
    found = {}
    for k, row in rows.items():
        if row.put is not None:
            atom = row.put.invars[1]
            while isinstance(atom, jax_core.Var) and atom in makers and is_reshape(makers[atom]):
                atom = makers[atom].invars[0]
            found[k] = first.setdefault(atom, k) if isinstance(atom, jax_core.Var) else k
    return found


def _scanned(eqn: jax_core.JaxprEqn, rows: Mapping[int, Rows]) -> Callable[..., list[Any]]:
    """The loop that scans over rows, and stacks them."""
    closed, (first, carried), params = eqn.params["jaxpr"], scan_counts(eqn), eqn.params
    body, length = closed.jaxpr, params["length"]
    taken = {id(own): k for k, row in rows.items() for own in row.taken}
    put = {id(row.put): k for k, row in rows.items() if row.put is not None}
    kept = [k for k in range(first, first + carried) if k not in rows]
    reverse = _goes_back(eqn, rows)
    turn_round = (lambda array: lax.rev(array, (0,))) if reverse != params["reverse"] else (lambda array: array)
    scanned = [k for k, row in rows.items() if row.taken]
    alike = _written_alike(body, rows)
    stacked = list(dict.fromkeys(alike.values()))
    results = [*(body.outvars[k - first] for k in (*kept, *stacked)), *body.outvars[carried:]]
    sources = lambda own: own.invars[2:] if id(own) in taken else own.invars[1:2] if id(own) in put else own.invars  # noqa: E731
    eqns = needed(body, sources, results)
    wanted = set(map(id, eqns))
    used = {*variables(results), *(var for own in eqns for var in variables(sources(own)))}
    fed = [k for k in range(first + carried, len(body.invars)) if body.invars[k] in used]

    def run(*inputs: Any) -> list[Any]:
        def turn(held: list[Any], given: tuple[list[Any], list[Any]]) -> tuple[list[Any], Any]:
            own_fed, own_rows = given
            row = dict(zip(scanned, own_rows, strict=True))
            written: dict[int, Any] = {}

            def one(own: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
                if id(own) in taken:
                    part = row[taken[id(own)]]
                    if not is_whole(own):
                        sizes = own.params["slice_sizes"][1:]
                        part = lax.dynamic_slice(part, operands[2:], sizes, allow_negative_indices=False)
                    return [reshape(part, shape_of(own.outvars[0]))]
                if id(own) not in wanted:
                    return [None] * len(own.outvars)
                if id(own) in put:
                    array: Any = body.invars[put[id(own)]].aval
                    written[put[id(own)]] = reshape(operands[1], array.shape[1:])
                    return [None]
                return bind(own, operands)

            known = dict(zip((*kept, *fed), (*held, *own_fed), strict=True))
            values = [*inputs[:first], *(known.get(k) for k in range(first, len(body.invars)))]
            made = evaluate(closed, values, one)
            return [made[k - first] for k in kept], ([written[k] for k in stacked], made[carried:])

        own = [rows[k].scanned(inputs[k], length, reverse=reverse) for k in scanned]
        last, (made, others) = lax.scan(
            turn,
            [inputs[k] for k in kept],
            ([turn_round(inputs[k]) for k in fed], own),
            length=length,
            reverse=reverse,
            unroll=params["unroll"],
        )
        lines = dict(zip(stacked, made, strict=True))
        after = dict(zip(kept, last, strict=True))
        for k, of in alike.items():
            line = reshape(lines[of], (length, *inputs[k].shape[1:]))
            after[k] = rows[k].written(inputs[k], line, length, reverse=reverse)
        return [*(after.get(k, inputs[k]) for k in range(first, first + carried)), *map(turn_round, others)]

    return run


def scan_rows(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose loops scan over rows, and stack them, in the bodies of loops as well."""
    if not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    inner = rebuild(closed, lambda builder, eqn, operands: builder.equation(with_bodies(eqn, scan_rows), operands))
    before = Counting(inner.jaxpr)

    def leaving(behind_of: Callable[[jax_core.JaxprEqn], Behind]) -> Run:
        def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
            found = behind_of(eqn)
            return builder.traced(_without(eqn, found), operands) if found else builder.equation(eqn, operands)

        return run

    uncounted = rebuild(inner, leaving(lambda eqn: _counts(eqn, before)))
    counting = before if uncounted is inner else Counting(uncounted.jaxpr)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = counting.own(eqn)
        rows = {k: row for k, row in counting.rows(eqn).items() if k != own}
        return builder.traced(_scanned(eqn, rows), operands) if rows else builder.equation(eqn, operands)

    return rebuild(rebuild(uncounted, run), leaving(_as_given))


# --- slopes -----------------------------------------------------------------------------------------------------


def _with_slopes_of_scan(eqn: jax_core.JaxprEqn, rows: Mapping[int, Rows], then: Change) -> Callable[..., list[Any]]:
    """The loop, with the slopes of the one that scans over its rows."""

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        scanned = then(jax.make_jaxpr(_scanned(eqn, rows))(*primals))
        return jax.jvp(jax_core.jaxpr_as_fun(scanned), tuple(primals), tuple(tangents))

    function = jax.custom_jvp(lambda *operands: bind(eqn, list(operands)))
    function.defjvp(rule)
    return function


def with_slopes_of_scans(closed: jax_core.ClosedJaxpr, then: Change) -> jax_core.ClosedJaxpr:
    """A jaxpr whose loops that change rows in place have the slopes of scans over these, in all that it calls as well.

    Functions with derivative rules stay as they are, and what runs on several devices.

    Args:
        closed: the jaxpr that is called.
        then: what else is done to a jaxpr before it is differentiated.
    """

    def whole(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        return then(with_slopes_of_scans(own, then))

    @each_once
    def changed(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        if not any(map(inner_jaxprs, own.jaxpr.eqns)):
            return own
        counting = Counting(own.jaxpr)

        def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
            if counting.own(eqn) is not None:
                return builder.traced(_with_slopes_of_scan(eqn, counting.rows(eqn), whole), operands)
            if eqn.primitive.name not in (*CUSTOM, "shard_map"):
                eqn = with_inner(eqn, lambda _, body: changed(body))
            return builder.equation(eqn, operands)

        return rebuild(own, run)

    return changed(closed)
