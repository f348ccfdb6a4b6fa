"""References: arrays that are changed in place (`jax.new_ref`), which a graph has none of.

In comes a traced jaxpr; nothing comes out, but an error at the line where a reference is made or used first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core as jax_core

from codelet.errors import TraceError, at_line
from codelet.frontends.labels import line_of
from codelet.frontends.rules import RULES
from codelet.jaxprs.equations import inner_jaxprs


def _reference(atoms: Sequence[Any]) -> Any:
    """The first of some values that is a reference; None if none is."""
    return next((atom for atom in atoms if hasattr(atom.aval, "inner_aval")), None)


def check_no_references(jaxpr: jax_core.Jaxpr) -> None:
    """See that no equation changes an array in place, nor one in the bodies of those that rules take apart.

    A vertex that runs an equation whole may do so within itself.

    Raises:
        TraceError: it does.
    """
    for eqn in jaxpr.eqns:
        found = _reference([*eqn.outvars, *eqn.invars])
        if found is not None:
            with at_line(line_of(eqn)):
                raise TraceError(
                    f"{eqn.primitive.name!r} is of a reference, and vertices change no arrays in place",
                    given=str(found.aval),
                    expected="functions that return what they make",
                    fix="x.at[index].set(value) in place of reference[index] = value",
                )
        if eqn.primitive.name in RULES:
            for inner in inner_jaxprs(eqn):
                check_no_references(inner)
