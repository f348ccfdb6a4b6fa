"""Columns as rows: what loops take columns of is made with these as its rows.

What is made by element is laid out as what it is made from, a transposed picture as the picture. A loop over the rows
of the one takes columns of the other, one element of each line of memory a turn: Deriche's recursions took 1.2 times as
long. In comes a jaxpr, out comes one whose loops are given such arrays transposed, of which `scan_rows.py` then scans
over the rows. XLA fuses the transpose with what makes the array by element, so that there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bind, bodies_of, scan_counts, scanned, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.jaxprs.parts import behind


def _column(eqn: jax_core.JaxprEqn) -> int | None:
    """The dimension, not the first, along which a slice takes one, and all else whole; None where there is none."""
    if not is_understood(eqn, "dynamic_slice"):
        return None
    shape, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]  # type: ignore[attr-defined]
    cut = [d for d, (n, size) in enumerate(zip(shape, sizes, strict=True)) if size != n]
    return cut[0] if len(cut) == 1 and cut[0] and sizes[cut[0]] == 1 else None


def _is_made_by_element(atom: Atomic, made: Makers) -> bool:
    """Whether a value is made by element, and perhaps reshaped since."""
    maker = behind(atom, made)[1] if isinstance(atom, jax_core.Var) else None
    return maker is not None and maker.primitive.name in ELEMENTWISE


def _columns(eqn: jax_core.JaxprEqn, made: Makers) -> dict[int, int]:
    """The constants of a scan, made by element, of which it only takes columns: along which dimension."""
    body, (first, _) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    found: dict[Any, int | None] = {}
    for var, atom in zip(body.invars[:first], eqn.invars[:first], strict=True):
        if _is_made_by_element(atom, made):
            found[var] = None
    for own in body.eqns:
        for k, atom in enumerate(own.invars):
            if isinstance(atom, jax_core.Var) and atom in found:
                column = _column(own) if k == 0 else None
                if column is None or found[atom] not in (None, column):
                    del found[atom]
                else:
                    found[atom] = column
    results = set(variables(body.outvars))
    return {
        k: d for k, var in enumerate(body.invars[:first]) if (d := found.get(var)) is not None and var not in results
    }


def _by_rows(eqn: jax_core.JaxprEqn, columns: Mapping[int, int]) -> Callable[..., list[Any]]:
    """A scan that is given some constants with their columns as rows."""
    body, (first, _) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    along = {body.invars[k]: d for k, d in columns.items()}

    def one(own: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
        d = along.get(own.invars[0]) if own.invars and isinstance(own.invars[0], jax_core.Var) else None
        if d is None:
            return bind(own, operands)
        array, *starts = operands
        row = lax.dynamic_slice_in_dim(array, starts[d], 1, 0, allow_negative_indices=False)
        return [jnp.moveaxis(row, 0, d)]

    def run(*inputs: Any) -> list[Any]:
        constants = [jnp.moveaxis(own, columns[k], 0) if k in columns else own for k, own in enumerate(inputs[:first])]
        return scanned(eqn, inputs, constants, one)

    return run


def columns_as_rows(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose loops take rows of what is made by element, rather than columns, in the bodies of loops as well."""
    if not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    made = Makers(closed.jaxpr.eqns)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        eqn = with_bodies(eqn, columns_as_rows)
        columns = _columns(eqn, made) if eqn.primitive.name == "scan" and not eqn.effects else {}
        return builder.traced(_by_rows(eqn, columns), operands) if columns else builder.equation(eqn, operands)

    return rebuild(closed, run)
