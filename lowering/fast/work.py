"""Work: what is moved for each compute set and copy of a plan, beside what its vertices touch.

In come a plan that was lowered and its jaxpr, whose equations say by their scope which step they were emitted for. Out
comes, for each, how many elements these read from memory and write there each time that it runs, and how many its
vertices would, one at a time: both by one model (`codelet/jaxprs/moved.py`). That the first is at most a few times the
second is what keeps the work of a program that of its edges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family
from codelet.jaxprs.moved import MOVES_NOTHING, moved
from codelet.jaxprs.primitives import is_understood
from codelet.views.sources import Patchwork, Variable
from codelet.views.tensor import Tensor
from lowering.fast.compute_sets import FusedStep
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.walk import all_steps

MOST = 4
"""What is moved is at most so many times what vertices touch, and `FREE` elements more."""

FREE = 256
"""Elements that may be moved anyway: numbers that choose and count, positions."""


class Work(NamedTuple):
    """What is moved and touched for a step, each time that it runs: elements read and written.

    Attributes:
        moved: by the equations that are emitted for it.
        touched: by its vertices, one at a time; by a copy, its elements once on either side.
        joined: elements of patchworks that it reads, twice those that it writes, and positions of what does not lie in
            steps. Patchworks are put together of their variables, and cut into them again, whatever part of them
            vertices touch: the one reason for which more may be moved.
    """

    moved: int
    touched: int
    joined: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether as little is moved as the edges say."""
        return self.moved <= MOST * (self.touched + self.joined) + FREE

    def __str__(self) -> str:
        ratio = f" = {self.moved / self.touched:.2f}" if self.touched else ""
        joined = (
            f", beside {self.joined:,} of variables put together" if self.moved > MOST * self.touched + FREE else ""
        )
        return f"{self.moved:,} / {self.touched:,}{ratio}{joined if self.joined else ''}"


def scope_of(step: ExecuteStep | CopyStep) -> str:
    """The scope of the equations that are emitted for a compute set or copy; all copies are one."""
    return step.name if isinstance(step, ExecuteStep) else "copies"


@functools.lru_cache(maxsize=4096)
def _by_codelet(closed: jax_core.ClosedJaxpr, owned: tuple[int, ...]) -> int:
    """What a vertex reads and writes: what is computed, and what it copies as it is."""
    makers = {var: eqn for eqn in closed.jaxpr.eqns for var in eqn.outvars}
    given = {var for k, var in enumerate(closed.jaxpr.invars) if k not in owned}
    copied = 0
    for var in closed.jaxpr.outvars:
        atom = var
        while isinstance(atom, jax_core.Var) and atom in makers and is_understood(makers[atom], *MOVES_NOTHING):
            atom = makers[atom].invars[0]
        if isinstance(atom, jax_core.Var) and atom in given:
            copied += 2 * math.prod(var.aval.shape)  # type: ignore[attr-defined]
    return moved(closed, owned=owned).total() + copied


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


def _tensors(step: ExecuteStep | CopyStep) -> Iterator[Tensor]:
    """All that a step reads and writes."""
    if isinstance(step, CopyStep):
        yield from (step.source, step.destination)
    else:
        fields = (field for family in _families(step) for field in family.fields)
        yield from (field.tensor for field in fields if field.tensor is not None)


def _put_together(source: Patchwork) -> int:
    """The elements of a patchwork, and positions of those that lie nowhere in steps."""
    return sum(
        patch.places.size * (1 + sum(not own.is_strided for own in (patch.index, patch.places)))
        for patch in source.patches
    )


def _joined(step: ExecuteStep | CopyStep) -> int:
    """What all patchworks that a step reads or writes are put together of, and cut into again where it writes some."""
    sources = {id(tensor.source): tensor.source for tensor in _tensors(step)}
    written = {id(touch.tensor.source) for touch in step.touches() if touch.is_written}
    both = [(own, 1 + (id(own) in written)) for own in sources.values() if isinstance(own, Patchwork)]
    return sum(times * _put_together(own) for own, times in both)


def _touched(step: ExecuteStep | CopyStep) -> int:
    """What vertices or a copy read and write."""
    return 2 * step.source.size if isinstance(step, CopyStep) else sum(map(_by_family, _families(step)))


def _by_scope(steps: Sequence[Step], found: Mapping[str, int]) -> dict[str, Work]:
    """What is moved and touched, by scope.

    A step for which nothing is moved is computed within those that read what it writes, as stages of a sum are: what
    it touches, these touch.
    """
    made: dict[str, Work] = {}
    within: dict[Variable, int] = {}
    for step in all_steps(steps):
        if isinstance(step, (ExecuteStep, CopyStep)):
            name = scope_of(step)
            touched = _touched(step) + sum(within.get(variable, 0) for variable in dict.fromkeys(step.reads))
            within.update(dict.fromkeys(step.writes, 0 if found[name] else touched))
            before = made.get(name, Work(found[name], 0))
            made[name] = Work(before.moved, before.touched + touched, before.joined + _joined(step))
    return made


def _around(plan: Plan, jaxpr: jax_core.Jaxpr) -> int:
    """Twice the elements of all variables and streams, for the whole and for each of its loops, choices and calls."""
    variables = {variable for step in plan.steps for variable in (*step.reads, *step.writes)} | {*plan.inputs}
    bodies = sum(not isinstance(step, (ExecuteStep, CopyStep)) for step in all_steps(plan.steps))
    held = sum(math.prod(atom.aval.shape) for atom in (*jaxpr.invars, *jaxpr.outvars))  # type: ignore[attr-defined]
    return 2 * (1 + bodies) * (held + sum(variable.size for variable in variables))


def work_of(plan: Plan, closed: jax_core.ClosedJaxpr) -> dict[str, Work]:
    """What is moved and touched for each compute set of a plan, and for all copies.

    Under "" is what is moved around steps, at the beginning and the end of loops, beside all that there is.

    Args:
        plan: what was emitted.
        closed: the jaxpr of it.
    """
    steps = (step for step in all_steps(plan.steps) if isinstance(step, (ExecuteStep, CopyStep)))
    longest = sorted(set(map(scope_of, steps)), key=len, reverse=True)

    @functools.cache
    def name_in(stack: str) -> str:
        return next((name for name in longest if stack == name or stack.startswith(f"{name}/")), "")

    found = moved(closed, scope=lambda eqn: name_in(str(eqn.source_info.name_stack)))
    made = _by_scope(plan.steps, found)
    return made | ({"": Work(found[""], _around(plan, closed.jaxpr))} if found[""] else {})
