"""By element: vertices that compute blocks as the vertices of their elements, so that no block lies across devices.

Where a block ends is what a grain says, or a plan for the machine's tiles. To devices, whose blocks end elsewhere, it
says nothing. Vertices of a graph that maps its elements to tiles stay as they are, since their tiles count.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from codelet.graphs.family import Family
from lowering.join.refine import refine
from lowering.plan.plan import Plan
from lowering.plan.steps import ExecuteStep, Step
from lowering.plan.walk import Rewriter


class _ByElement(Rewriter):
    """Refines the families of steps, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.family = functools.cache(_by_element)
        self.step = functools.cache(self._step)

    def _step(self, step: ExecuteStep) -> ExecuteStep:
        families = tuple(map(self.family, step.families))
        return step if families == step.families else replace(step, families=families)

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(self.step(step) if isinstance(step, ExecuteStep) else self.around(step) for step in steps)


def _by_element(family: Family) -> Family:
    return refine(family) or family


def by_element(plan: Plan) -> Plan:
    """The plan with families of elements in place of those of blocks, where these can be told."""
    if plan.graph.has_tile_mapping:
        return plan
    return replace(plan, steps=_ByElement().body(plan.steps))
