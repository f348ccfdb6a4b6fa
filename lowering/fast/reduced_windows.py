"""Reduced windows: a codelet that only reduces a window of an array, as one on what was reduced before it runs.

A codelet may compute something of each element of the window first, and anything of what it reduced: the mean, the root
of the sum of squares, the range. In comes a family, out comes how it runs: `window_reductions.py` reduces all windows,
the rest of the codelet runs under `vmap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.jaxprs.equations import bind, evaluate
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import inline, struct
from codelet.refused import Refused
from codelet.views.access import Access
from lowering.fast.inputs import Input, Inputs
from lowering.fast.moving_windows import axis_of, inside_of, moving_windows
from lowering.fast.reads import MAX_STACKED_SLICES, as_it_lies
from lowering.fast.small_windows import is_small_window, overlaps
from lowering.fast.sources import Viewed
from lowering.fast.vmapped import Vmapped, vmapped
from lowering.fast.window_reductions import ReducedWindows

# --- codelets that reduce their windows -------------------------------------------------------------------


class _FieldReduction(NamedTuple):
    """An equation that reduces all of a field: of which, what is computed of its elements before, and how."""

    field: int
    mapped: tuple[jax_core.JaxprEqn, ...]
    eqn: jax_core.JaxprEqn


def _reductions(jaxpr: jax_core.Jaxpr, windows: Sequence[bool]) -> list[_FieldReduction] | None:
    """How some inputs of a jaxpr are reduced; None where it does anything else with one."""
    known: dict[Any, tuple[int, tuple[jax_core.JaxprEqn, ...]]] = {
        var: (k, ()) for k, (var, is_window) in enumerate(zip(jaxpr.invars, windows, strict=True)) if is_window
    }
    found = []
    for eqn in jaxpr.eqns:
        given = [known[atom] for atom in eqn.invars if not isinstance(atom, jax_core.Literal) and atom in known]
        if not given:
            continue
        others = [atom for atom in eqn.invars if isinstance(atom, jax_core.Literal) or atom not in known]
        if not all(isinstance(atom, jax_core.Literal) and not np.shape(atom.val) for atom in others):
            return None
        if is_understood(eqn, *REDUCTIONS) and eqn.outvars[0].aval.size == 1:  # type: ignore[attr-defined]
            found.append(_FieldReduction(*given[0], eqn))
        elif is_understood(eqn, *ELEMENTWISE) and len({field for field, _ in given}) == 1:
            before = dict.fromkeys(one for _, mapped in given for one in mapped)
            known[eqn.outvars[0]] = given[0][0], (*before, eqn)
        else:
            return None
    return None if any(atom in known for atom in jaxpr.outvars if not isinstance(atom, jax_core.Literal)) else found


def _rest(
    closed: jax_core.ClosedJaxpr, windows: Sequence[bool], found: Sequence[_FieldReduction]
) -> jax_core.ClosedJaxpr:
    """A jaxpr with, in the place of each input that is a window, what is reduced of it."""
    jaxpr = closed.jaxpr
    inside = {eqn for reduction in found for eqn in reduction.mapped}
    structs = []
    for k, (var, is_window) in enumerate(zip(jaxpr.invars, windows, strict=True)):
        own = [reduction.eqn.outvars[0] for reduction in found if reduction.field == k]
        structs += [struct(out).update(shape=()) for out in own] if is_window else [struct(var)]

    def run(*inputs: Any) -> list[Any]:
        given, results, arrays = iter(inputs), {}, []
        for k, is_window in enumerate(windows):
            if is_window:
                results.update({reduction.eqn: next(given) for reduction in found if reduction.field == k})
            arrays.append(None if is_window else next(given))

        def one(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
            if eqn in results:
                return [jnp.reshape(results[eqn], eqn.outvars[0].aval.shape)]  # type: ignore[attr-defined]
            return [None] if eqn in inside else bind(eqn, operands)

        return evaluate(closed, arrays, one)

    return jax.make_jaxpr(run)(*structs)


# --- the rule ---------------------------------------------------------------------------------------------


def _overlapping(field: Field) -> Access | None:
    """How windows move that overlap, or lie side by side along several dimensions and are small; None for others."""
    tensor = field.tensor
    if field.kind != "in" or tensor is None or tensor.size < 2 or tuple(tensor.shape) != tuple(field.type.shape):
        return None
    windows = moving_windows(tensor)
    if isinstance(windows, Refused) or windows.reversed_keys:
        return None
    inside = [(line, own[0]) for line in windows.lines if (own := inside_of(line)) is not None]
    keys = {key for _, key in inside}
    moving = [line for line, _ in inside if axis_of(line) is not None]
    if len(moving) < len(keys) or keys != {d for d, n in enumerate(tensor.shape) if n > 1}:
        return None
    is_small = len(moving) > 1 and tensor.size <= MAX_STACKED_SLICES
    return windows if is_small or overlaps(field) else None


def as_windows_reduced(family: Family, inputs: Inputs) -> Vmapped | str:
    """A family whose codelet only reduces its windows, under `vmap` on what is reduced; or why it is none."""
    accesses = [None if inputs.is_piece(field) else _overlapping(field) for field in family.inputs]
    windows = [own is not None for own in accesses]
    if not any(windows):
        return ""
    closed = inline(family.codelet.jaxpr)
    found = None if closed.jaxpr.effects else _reductions(closed.jaxpr, windows)
    if found is None:  # small windows are the next rule's
        own = [field for field, is_window in zip(family.inputs, windows, strict=True) if is_window]
        return "" if all(map(is_small_window, own)) else "the codelet does more with its windows than reduce them"
    each: list[tuple[Input | ReducedWindows, ...]] = []
    for k, (field, own) in enumerate(zip(family.inputs, accesses, strict=True)):
        if own is None:
            each.append((inputs.of(field, family.axes),))
            continue
        assert field.tensor is not None
        source = field.tensor.source
        view = Viewed(source, as_it_lies(source.shape), source.dtype)
        each.append(
            tuple(
                ReducedWindows(view, own, one.mapped, one.eqn.primitive.name, one.eqn.outvars[0].aval.dtype)  # type: ignore[attr-defined]
                for one in found
                if one.field == k
            )
        )
    return vmapped(family, tuple(each), _rest(closed, windows, found), "reduced a dimension at a time")
