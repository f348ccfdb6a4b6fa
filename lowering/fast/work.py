"""Work: what is moved for each compute set and copy of a plan, beside what its vertices touch.

In come a plan that was lowered and its jaxpr, whose equations say by their scope which step they were emitted for. Out
comes, for each, how many elements these read from memory and write there in all iterations of the loops around it, and
how many its vertices would, one at a time: both by one model (`codelet/jaxprs/moved.py`). That the first is at most a
few times the second is what keeps the work of a program that of its edges.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family
from codelet.jaxprs.equations import Makers
from codelet.jaxprs.moved import MOVES_NOTHING, moved
from codelet.jaxprs.primitives import is_understood
from codelet.views.sources import Patchwork, Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.fast.compute_sets import FusedStep
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, CopyStep, ExecuteStep, FunctionBody, RepeatStep, Step, handed_on
from lowering.plan.walk import bodies

MOST = 4
"""What is moved is at most so many times what vertices touch, and `FREE` elements more."""

FREE = 256
"""Elements that may be moved anyway: numbers that choose and count, positions."""


class Work(NamedTuple):
    """What is moved and touched for a step by all that it runs: elements read and written.

    Attributes:
        moved: by the equations that are emitted for it.
        touched: by its vertices, one at a time; by a copy, its elements once on either side.
        runs: how often it runs: in a loop once an iteration, as far as the number of iterations is known.
        joined: elements of patchworks that it reads, twice those that it writes, and positions of what does not lie in
            steps. Patchworks are put together of their variables, and cut into them again, whatever part of them
            vertices touch: one of the two reasons for which more may be moved.
        lent: what is touched to make what it alone reads, by steps of which something else is moved, and so on: a
            product and the sum of its parts run as one, in the place of the sum. The other reason.
    """

    moved: int
    touched: int
    runs: int = 1
    joined: int = 0
    lent: int = 0

    @property
    def _is_few(self) -> bool:
        return self.moved <= MOST * self.touched + FREE * self.runs

    @property
    def is_bounded(self) -> bool:
        """Whether as little is moved as the edges say."""
        return self.moved <= MOST * (self.touched + self.joined + self.lent) + FREE * self.runs

    def __str__(self) -> str:
        ratio = f" = {self.moved / self.touched:.2f}" if self.touched else ""
        beside = [
            f"{number:,} {what}"
            for number, what in ((self.joined, "of variables put together"), (self.lent, "for what it alone reads"))
            if number and not self._is_few
        ]
        runs = f" in {self.runs:,} runs" if self.runs > 1 else ""
        return f"{self.moved:,} / {self.touched:,}{ratio}{runs}{', beside ' + ' and '.join(beside) if beside else ''}"


def scope_of(step: ExecuteStep | CopyStep) -> str:
    """The scope of the equations that are emitted for a compute set or copy; all copies are one."""
    return step.name if isinstance(step, ExecuteStep) else "copies"


@functools.lru_cache(maxsize=4096)
def _by_codelet(closed: jax_core.ClosedJaxpr, owned: tuple[int, ...]) -> int:
    """What a vertex reads and writes: what is computed, and what it copies as it is."""
    makers = Makers(closed.jaxpr.eqns)
    stays = {var for k, var in enumerate(closed.jaxpr.invars) if k in owned}  # in one of the results
    copied = 0
    for var in closed.jaxpr.outvars:
        atom = var
        while isinstance(atom, jax_core.Var) and atom in makers and is_understood(makers[atom], *MOVES_NOTHING):
            atom = makers[atom].invars[0]
        if isinstance(atom, jax_core.Literal):
            continue
        if atom in stays:
            stays.remove(atom)
        elif atom in closed.jaxpr.invars:
            copied += 2 * math.prod(var.aval.shape)  # type: ignore[attr-defined]
    return moved(closed, owned=owned, turns=int).total() + copied


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


def _runs(steps: Sequence[Step]) -> dict[Step, int]:
    """How often each step runs, and those that it is made of, in order; loops on conditions run once."""

    @functools.cache
    def by_function(function: FunctionBody) -> dict[Step, int]:
        return within(function.body)

    def inside(step: Step) -> Iterator[dict[Step, int]]:
        yield from [by_function(step.function)] if isinstance(step, CallStep) else map(within, bodies(step))

    def within(steps: Sequence[Step]) -> dict[Step, int]:
        found: dict[Step, int] = {}
        for step in steps:
            found[step] = found.get(step, 0) + 1
            turns = step.count if isinstance(step, RepeatStep) else 1
            for own in inside(step):
                for part, times in own.items():
                    found[part] = found.get(part, 0) + turns * times
        return found

    return within(steps)


def _alone(plan: Plan, runs: Iterable[Step]) -> frozenset[Variable]:
    """The variables that one step writes and one reads, and that are neither given nor results."""
    leaves = [step for step in runs if not bodies(step)]
    writes: Counter[Variable] = Counter(variable for step in leaves for variable in dict.fromkeys(step.writes))
    reads: Counter[Variable] = Counter(variable for step in leaves for variable in dict.fromkeys(step.reads))
    given = {*plan.inputs, *(variable for tensor in plan.outputs for variable in source_variables(tensor.source))}
    return frozenset(own for own, times in writes.items() if times == reads[own] == 1 and own not in given)


def _by_scope(plan: Plan, runs: Mapping[Step, int], found: Mapping[str, int]) -> dict[str, Work]:
    """What is moved and touched, by scope.

    A step for which nothing is moved is computed within those that read what it writes, as stages of a sum are: what
    it touches, these touch.
    """
    made: dict[str, Work] = {}
    within: dict[Variable, int] = {}
    lent: dict[Variable, int] = {}
    alone = _alone(plan, runs)
    for step, times in runs.items():
        if isinstance(step, (ExecuteStep, CopyStep)):
            name, reads = scope_of(step), dict.fromkeys(step.reads)
            touched = times * _touched(step) + sum(within.get(variable, 0) for variable in reads)
            borrowed = sum(lent.get(variable, 0) for variable in reads)
            is_made = found[name] > 0
            within.update(dict.fromkeys(step.writes, 0 if is_made else touched))
            passed = borrowed + (touched if is_made else 0)
            lent.update((variable, passed) for variable in step.writes if variable in alone)
            own = Work(0, touched, times, times * _joined(step), borrowed)
            before = made.get(name, Work(0, 0, 0))
            made[name] = Work(found[name], *(one + other for one, other in zip(before[1:], own[1:], strict=True)))
    return made


def _around(plan: Plan, runs: Mapping[Step, int], jaxpr: jax_core.Jaxpr, found: int) -> Work:
    """What is moved, and may be, around steps: for the whole, and each time for each of its loops, branches and calls.

    Twice the elements of what is given and results, of streams among them, and of all variables that are touched; and
    each iteration of a loop, of what it carries.
    """
    held = sum(math.prod(atom.aval.shape) for atom in (*jaxpr.invars, *jaxpr.outvars))  # type: ignore[attr-defined]
    sizes = lambda *lists: held + sum(own.size for own in set(itertools.chain(*lists)))  # noqa: E731
    around = {step: times for step, times in runs.items() if not isinstance(step, (ExecuteStep, CopyStep))}
    variables = [variable for step in plan.steps for variable in (*step.reads, *step.writes)]
    touched = 2 * sizes(variables, plan.inputs)
    for step, times in around.items():
        touched += 2 * times * sizes(step.reads, step.writes)
        if isinstance(step, RepeatStep):
            touched += 2 * times * step.count * sum(variable.size for variable in handed_on(step))
    return Work(found, touched, 1 + sum(around.values()))


def work_of(plan: Plan, closed: jax_core.ClosedJaxpr) -> dict[str, Work]:
    """What is moved and touched for each compute set of a plan, and for all copies.

    Under "" is what is moved around steps, at the beginning and the end of loops, beside all that there is. Whoever
    calls keeps what is given, so that what writes a part of it copies the rest, once: that is not counted.

    Args:
        plan: what was emitted.
        closed: the jaxpr of it.
    """
    runs = _runs(plan.steps)
    longest = sorted({scope_of(step) for step in runs if isinstance(step, (ExecuteStep, CopyStep))}, key=len)[::-1]

    @functools.cache
    def name_in(stack: str) -> str:
        return next((name for name in longest if stack == name or stack.startswith(f"{name}/")), "")

    own = range(len(closed.jaxpr.invars))
    found = moved(closed, owned=own, turns=int, scope=lambda eqn: name_in(str(eqn.source_info.name_stack)))
    made = _by_scope(plan, runs, found)
    return made | ({"": _around(plan, runs, closed.jaxpr, found[""])} if found[""] else {})
