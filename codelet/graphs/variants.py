"""Variants: the static values that vertices of one codelet in one compute set differ in, of which many are slow.

For each of them there is a family, which is traced and compiled by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from types import FrameType

from codelet.errors import Line, StaticFamiliesWarning
from codelet.programs.compute_sets import ComputeSet
from codelet.tracing.codelets import Codelet
from codelet.tracing.traced_codelet import TracedCodelet

MANY_VARIANTS = 64
"""Families of one codelet in one compute set that differ in static values alone; beyond, a user is warned."""


def _many_text(traced: TracedCodelet, compute_set: ComputeSet, line: Line) -> str:
    """The warning for vertices with more different static values than `MANY_VARIANTS`."""
    own = ", ".join(f"{name}={value!r:.40}" for name, value in traced.static.items())
    fields, most = ", ".join([*traced.inputs, *traced.static]), MANY_VARIANTS
    return (
        f"the vertices of codelet {traced.name!r} in compute set {compute_set.name!r} have more than {most} static "
        f"values\n"
        f"  given:    {own}, and {most} others\n"
        f"  expected: few static values: for each a family of vertices is traced and compiled (2,000 take 42 s)\n"
        f"  fix:      a number that differs from vertex to vertex is vertex state (2,000 take 0.2 s): "
        f"def {traced.name}({fields}), and add_vertex(..., {next(iter(traced.static))}=...) as now\n"
        f"  at:       {line}"
    )


class Variants:
    """The variants of codelets that the vertices of a graph have."""

    def __init__(self) -> None:
        self._met: dict[tuple[ComputeSet, Codelet], set[Hashable]] = {}

    def note(self, compute_set: ComputeSet, traced: TracedCodelet, frame: FrameType) -> None:
        """Note the static values of vertices added in a frame, and warn where they have become many."""
        if not traced.static:
            return
        met = self._met.setdefault((compute_set, traced.codelet), set())
        if traced.variant in met:
            return
        met.add(traced.variant)
        if len(met) == MANY_VARIANTS + 1:
            text = _many_text(traced, compute_set, Line(frame.f_code, frame.f_lineno))
            place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
            warnings.warn_explicit(text, StaticFamiliesWarning, *place)
