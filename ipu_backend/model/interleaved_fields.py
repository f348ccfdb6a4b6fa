"""Which fields of a vertex must lie in interleaved memory: what the matrix unit loads as weights, and what it gives.

In come a codelet's jaxpr and how its vertices run; out come names of fields. A field counts where the unit reads or
writes it as it is, or as a view of it: what is computed first, or copied, is the vertex's own affair. What a product
within a loop of the codelet reads is not counted.

Source: PopLibs, lib/poplin/codelets/ConvPartial1x1Out.cpp: weights that are loaded 128 bits at a time are of
interleaved memory alone, and so is what the vertex writes; the field it slides over may lie anywhere. PopLibs loads so
where its option use128BitConvUnitLoad says, as this model does always.
"""

from __future__ import annotations

from typing import Any

from jax.extend import core as jax_core

from codelet.tracing.traced_codelet import TracedCodelet
from ipu_backend.model.costs import Mode
from ipu_backend.model.equations import inlined
from ipu_backend.model.product_rules import weights_of

_VIEWS = ("reshape", "squeeze", "expand_dims", "copy", "stop_gradient")
"""Primitives whose result is all of their operand, seen another way."""


def fields_in_interleaved_memory(traced: TracedCodelet, mode: Mode) -> tuple[str, ...]:
    """The fields of a codelet that must lie in interleaved memory, in their order."""
    if mode.compiled:  # which never uses the matrix unit
        return ()
    jaxpr = traced.jaxpr.jaxpr
    names: dict[Any, Any] = {}
    views: dict[Any, Any] = {}  # what a value is another view of
    asked: set[Any] = set()

    def origin(atom: Any) -> Any:
        return None if isinstance(atom, jax_core.Literal) else views.get(atom, atom)

    for eqn in inlined(jaxpr, names):
        if eqn.primitive in _VIEWS:
            views[eqn.results[0]] = origin(eqn.operands[0])
        elif (operand := weights_of(eqn, mode)) is not None:
            asked |= {origin(eqn.operands[operand]), eqn.results[0]}
    read = {name for name, own in zip(traced.inputs, jaxpr.invars, strict=True) if own in asked}
    results = [own if isinstance(own, jax_core.Literal) else names.get(own, own) for own in jaxpr.outvars]
    written = {name for name, own in zip(traced.outputs, results, strict=True) if origin(own) in asked}
    return tuple(name for name in traced.field_names if name in read | written)
