"""Slice once: a slice of a slice is one slice, and one that lies in a part of what is joined is a slice of that part.

XLA does so as well; but what a slice is of tells other rules what it is, and in a gradient each slice is a pad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import slice_


@dataclass(frozen=True)
class _OneSlice:
    """A slice of an array that has elements: along each dimension from where to where, in which steps."""

    array: Atomic
    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]

    def of_slice(self, other: _OneSlice) -> _OneSlice:
        """This slice of another, of what that is of."""
        starts = tuple(a + b * s for a, b, s in zip(other.starts, self.starts, other.strides, strict=True))
        strides = tuple(a * b for a, b in zip(other.strides, self.strides, strict=True))
        counts = (-(-(b - a) // s) for a, b, s in zip(self.starts, self.limits, self.strides, strict=True))
        # One more than the last element, so that none lies beyond the other's limit.
        limits = tuple(a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, strides, strict=True))
        return _OneSlice(other.array, starts, limits, strides)

    def of_part(self, parts: Sequence[Atomic], dimension: int) -> _OneSlice | None:
        """This slice of what is joined of parts, of one of these; None where it is of several."""
        begin = 0
        for part in parts:
            end = begin + part.aval.shape[dimension]  # type: ignore[attr-defined]
            if begin <= self.starts[dimension] and self.limits[dimension] <= end:
                moved = lambda own, by=begin: tuple(n - by * (d == dimension) for d, n in enumerate(own))  # noqa: E731
                return _OneSlice(part, moved(self.starts), moved(self.limits), self.strides)
            begin = end
        return None


def _as_slice(eqn: jax_core.JaxprEqn) -> _OneSlice:
    starts, limits, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
    return _OneSlice(eqn.invars[0], tuple(starts), tuple(limits), tuple(strides or (1,) * len(starts)))


def _root(eqn: jax_core.JaxprEqn, makers: Mapping[Any, jax_core.JaxprEqn]) -> _OneSlice | None:
    """A slice, of what it is a slice of in the end; None where that is its operand."""
    first = own = _as_slice(eqn)
    while isinstance(own.array, jax_core.Var):
        maker, after = makers.get(own.array), None
        if maker is not None and is_understood(maker, "slice"):
            after = own.of_slice(_as_slice(maker))
        elif maker is not None and is_understood(maker, "concatenate"):
            after = own.of_part(maker.invars, maker.params["dimension"])
        if after is None:
            break
        own = after
    return None if own is first else own


def slice_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that slices once what it sliced several times in a row, in the bodies of loops as well."""
    if not any(eqn.primitive.name == "slice" or bodies_of(eqn) for eqn in closed.jaxpr.eqns):
        return closed
    makers = {var: eqn for eqn in closed.jaxpr.eqns for var in eqn.outvars}
    # Where a slice without elements would start may lie beyond the end of what it is of.
    slices = (eqn for eqn in closed.jaxpr.eqns if is_understood(eqn, "slice") and 0 not in eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]
    found = {id(eqn): own for eqn in slices if (own := _root(eqn, makers)) is not None}

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = found.get(id(eqn))
        if own is None:
            return builder.equation(with_bodies(eqn, slice_once), operands)
        strides = own.strides if any(step != 1 for step in own.strides) else None
        return builder.traced(lambda array: [slice_(array, own.starts, own.limits, strides)], operands)

    return rebuild(closed, run, sources=lambda eqn: [found[id(eqn)].array] if id(eqn) in found else eqn.invars)
