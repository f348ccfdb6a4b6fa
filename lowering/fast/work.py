"""Work: what is moved for each compute set and copy of a plan, beside what its vertices touch.

In come a plan that was lowered and its jaxpr, whose equations say by their scope which step they were emitted for. Out
comes, for each, how many elements these read from memory and write there each time that it runs, and how many its
vertices would, one at a time: both by one model (`codelet/jaxprs/moved.py`). That the first is at most a few times the
second is what keeps the work of a program that of its edges.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family
from codelet.jaxprs.moved import moved
from lowering.fast.compute_sets import FusedStep
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.walk import all_steps

MOST = 4
"""What is moved is at most so many times what vertices touch, and `FREE` elements more."""

FREE = 4096
"""Elements that may be moved anyway: a table of positions, say."""


class Work(NamedTuple):
    """What is moved and touched for a step, each time that it runs: elements read and written."""

    moved: int
    touched: int

    @property
    def is_bounded(self) -> bool:
        """Whether as little is moved as the edges say."""
        return self.moved <= MOST * self.touched + FREE

    def __str__(self) -> str:
        ratio = f" = {self.moved / self.touched:.2f}" if self.touched else ""
        return f"{self.moved:,} / {self.touched:,}{ratio}"


def scope_of(step: ExecuteStep | CopyStep) -> str:
    """The scope of the equations that are emitted for a compute set or copy; all copies are one."""
    return step.name if isinstance(step, ExecuteStep) else "copies"


@functools.lru_cache(maxsize=4096)
def _by_codelet(closed: jax_core.ClosedJaxpr, owned: tuple[int, ...]) -> int:
    """What a vertex reads and writes."""
    return moved(closed, owned=owned).total()


def _by_family(family: Family) -> int:
    """What the vertices of a family read and write, one at a time."""
    if family.rows:
        return count_edges(family)
    names = enumerate(family.codelet.inputs)
    owned = tuple(k for k, name in names if name in family.by_name and family.by_name[name].is_written)
    return family.num_vertices * _by_codelet(family.codelet.jaxpr, owned)


def _families(step: ExecuteStep) -> Iterator[Family]:
    """The families of the graph that a compute set runs, of which those may be made that run."""
    parts = step.parts if isinstance(step, FusedStep) else {}
    open_ = list(step.families)
    while open_:
        family = open_.pop()
        if family in parts:
            open_ += parts[family]
        else:
            yield family


def _touched(steps: Sequence[Step]) -> Counter[str]:
    """What vertices and copies read and write, by scope."""
    found: Counter[str] = Counter()
    for step in all_steps(steps):
        if isinstance(step, ExecuteStep):
            found[scope_of(step)] += sum(map(_by_family, _families(step)))
        elif isinstance(step, CopyStep):
            found[scope_of(step)] += 2 * step.source.size
    return found


def work_of(plan: Plan, closed: jax_core.ClosedJaxpr) -> dict[str, Work]:
    """What is moved and touched for each compute set of a plan, and for all copies.

    Under "" is what is moved around steps, at the beginning and the end of loops, beside all that there is.

    Args:
        plan: what was emitted.
        closed: the jaxpr of it.
    """
    touched = _touched(plan.steps)
    longest = sorted(touched, key=len, reverse=True)

    @functools.cache
    def name_in(stack: str) -> str:
        return next((name for name in longest if stack == name or stack.startswith(f"{name}/")), "")

    found = moved(closed, scope=lambda eqn: name_in(str(eqn.source_info.name_stack)))
    variables = {variable for step in plan.steps for variable in (*step.reads, *step.writes)} | {*plan.inputs}
    touched[""] = 2 * sum(variable.size for variable in variables)
    return {name: Work(found[name], touched[name]) for name in touched if name or found[name]}
