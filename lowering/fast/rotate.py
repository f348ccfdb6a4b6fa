"""Rotate: loops pass arrays on by changing their places, where the program copies whole variables.

A stencil steps from `u` to the inner points of `v`, and copies `v` back:

    repeat n: step u -> v; copy v -> u          becomes         repeat n: step u -> v; rotate v -> u -> v

As written, the loop carries one array twice, and XLA copies it in each iteration. After the rotation `v` holds the
array that was `u`. It is as good to write into, as long as it agrees with the true `v` wherever the step does not
write; and nothing may read it before the step has. Longer chains rotate likewise, as in the wave
equation: copy u -> w; copy v -> u becomes rotate v -> u -> w -> v.

All of the chain agree outside what the step writes if they were equal before the loop, or after as many iterations as
the chain has copies: where the first is not known, these iterations run as they were written. So do some, if the rest
would not bring all arrays back to their places. Behind the loop `v` is copied from `u`; where nothing reads it, `prune`
takes that away. So every variable has the value that the program gives it, in all places but inside the rotated loop.

Measured in plain JAX on two CPU cores: a five-point stencil on 2048 x 2048 points, 100 iterations, 0.25 s copied and
0.15 s rotated; the wave equation on 1024 x 1024 points, 24 iterations, 34 ms and 14 ms. Rotating without taking as many
turns as one as bring the arrays back is slower than copying: 0.6 s. Variables that are written whole gain nothing from
it, and where gathers of two iterations fuse they lose (0.56 s against 4.8 s): they stay.

Known weaknesses: only copies of whole variables to whole variables, next to each other in a body, are seen; a second
step that writes `v`, or a repeat in the body that does, keeps the copies. The gradient of a rotated loop holds a few
arrays more, however many iterations there are (four in the stencil's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codelet.views.index import Index
from codelet.views.sources import Variable
from lowering.fast.prune import written_through
from lowering.fast.writes import InTurn, plan_writes
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.solver import Analysis
from lowering.plan.steps import CallStep, CopyStep, ExecuteStep, RepeatStep, RotateStep, Step

_MAX_TURNS = 4  # turns of a loop that are compiled as one; a guess: compilation grows with them

Equal = frozenset[frozenset[Variable]]
"""Pairs of variables that hold the same value."""


# --- variables that are equal ---------------------------------------------------------------------------


def _whole_copy(step: Step) -> tuple[Variable, Variable] | None:
    return step.whole_variables if isinstance(step, CopyStep) else None


def _without(equal: Equal, variables: Sequence[Variable]) -> Equal:
    return frozenset(pair for pair in equal if not pair & set(variables))


class _Equals(Analysis[Equal]):
    """What is equal after steps, given what is before."""

    forward = True

    def meet(self, one: Equal, other: Equal) -> Equal:
        return one & other

    def own(self, step: Step, fact: Equal) -> Equal:
        copied = _whole_copy(step)
        equal = _without(
            fact, [variable for touch in step.touches() if touch.is_written for variable in touch.variables]
        )
        if copied is None:
            return equal
        source, destination = copied
        others = {variable for pair in equal if source in pair for variable in pair}
        return equal | {frozenset((destination, variable)) for variable in (source, *others)}

    def enter(self, step: CallStep, fact: Equal) -> Equal:
        return _without(fact, step.function.parameters)

    def leave(self, step: CallStep, reached: Equal, fact: Equal) -> Equal:
        return _without(fact, (*step.writes, *step.function.parameters))


# --- chains of copies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CopyChain:
    """Copies next to each other in a body, `body[start:stop]`, that pass on the arrays of `variables`.

    The last step copies the first variable to the second, the one before it the second to the third.
    """

    start: int
    stop: int
    variables: tuple[Variable, ...]


def _chains(body: Sequence[Step], stop: int) -> list[_CopyChain]:
    """The chains of copies that end before `stop`, the longest first."""
    found: list[_CopyChain] = []
    variables: tuple[Variable, ...] = ()
    for start in reversed(range(stop)):
        copied = _whole_copy(body[start])
        if copied is None or copied[1] in variables or (variables and copied[0] is not variables[-1]):
            break
        variables = (*(variables or copied[:1]), copied[1])
        found.append(_CopyChain(start, stop, variables))
    return found[::-1]


def _count(index: Index) -> int:
    """How many elements an access map names that names none twice."""
    return math.prod((*index.shape, *(axis.extent for axis in index.axes)))


def _may_rotate(body: Sequence[Step], chain: _CopyChain, index: Variable | None) -> bool:
    """Whether a rotation does what the chain does, once its variables agree where the first is not written."""
    first, *others = chain.variables
    following = [*body[chain.stop :], *body[: chain.start]]  # as they run after the chain, in this turn and the next
    if index in chain.variables or any(variable in step.writes for step in following for variable in others):
        return False
    writers = [step for step in following if first in step.writes]
    writer = writers[0] if len(writers) == 1 else None
    if not isinstance(writer, (ExecuteStep, CopyStep)):
        return False
    if any(first in step.reads for step in following[: following.index(writer) + 1]):
        return False
    # One that is written whole, or joined from its parts, is not written in place.
    through = written_through(writer, first)
    if sum(map(_count, through)) == first.size:  # families that `grains` joins, too
        return False
    writes = plan_writes(first.shape, through)
    return bool(through) and isinstance(writes, InTurn) and writes.needs_old


def _rotated_body(step: RepeatStep) -> tuple[tuple[Step, ...], list[_CopyChain]]:
    """The body of a repeat with rotations for chains of copies, and the chains, the last first."""
    body, rotated = list(step.body), []
    stop = len(body)
    while stop:
        chain = next((chain for chain in _chains(body, stop) if _may_rotate(body, chain, step.index)), None)
        if chain is None:
            stop -= 1
            continue
        if math.lcm(*(len(other.variables) for other in (*rotated, chain))) <= _MAX_TURNS:
            body[chain.start : chain.stop] = [RotateStep(chain.variables)]
            rotated.append(chain)
        stop = chain.start
    return tuple(body), rotated


def _restored(body: Sequence[Step], chain: _CopyChain) -> list[Step]:
    """The copy that a loop needs behind it, where its last iteration leaves in the chain's first an array of old."""
    first, second = chain.variables[:2]
    if any(first in step.writes for step in body[chain.stop :]):
        return []
    copy = body[chain.stop - 1]
    assert isinstance(copy, CopyStep)
    return [CopyStep(copy.destination, copy.source, reads=(second,), writes=(first,))]


# --- loops ----------------------------------------------------------------------------------------------


def _rotate_repeat(step: RepeatStep, equal: Equal, entering: Equal, equals: _Equals) -> list[Step]:
    """A repeat whose iterations pass arrays on, with what has to run before and after it."""
    within = _rotate_steps(step.body, entering, equals)
    inner = step if within == step.body else flow_step(replace(step, body=within))
    assert isinstance(inner, RepeatStep)
    body, chains = _rotated_body(inner)
    if not chains or isinstance(step.first, Variable):
        return [inner]
    turns = math.lcm(*(len(chain.variables) for chain in chains))
    pairs = [frozenset((chain.variables[0], other)) for chain in chains for other in chain.variables[1:]]
    plain = 0 if equal.issuperset(pairs) else max(len(chain.variables) - 1 for chain in chains)
    plain += (step.count - plain) % turns
    if step.count - plain < 2 * turns:
        return [inner]
    before = [replace(inner, count=plain)] if plain else []
    rotated = replace(inner, body=body, count=step.count - plain, first=step.first + plain)
    behind = [copy for chain in chains for copy in _restored(inner.body, chain)]
    return [*before, flow_step(rotated), *behind]


def _rotate_steps(steps: tuple[Step, ...], equal: Equal, equals: _Equals) -> tuple[Step, ...]:
    rotated: list[Step] = []
    last = max((k for k, step in enumerate(steps) if isinstance(step, RepeatStep)), default=-1)
    for step in steps[: last + 1]:  # behind which nobody asks what is equal
        if isinstance(step, RepeatStep) and step.count:
            reaching, beyond = equals.solve(step, equal, equals.part)
            rotated += _rotate_repeat(step, equal, reaching[1], equals)
            equal = beyond
        else:
            rotated.append(step)
            equal = equals.beyond((step,), equal)
    return (*rotated, *steps[last + 1 :])


def rotate(plan: Plan) -> Plan:
    """The plan with copies in loops as rotations, where it comes to the same."""
    return replace(plan, steps=_rotate_steps(plan.steps, frozenset(), _Equals()))
