"""Recompute: residuals of the forward pass that are recomputed in the backward pass instead of saved.

In come a policy, and the backward pass of each step. Out comes the backward pass, with recomputed steps of the forward
pass in it (`again.py`).

The steps of a program are partitioned into segments. Values that cross from one segment to the next are saved. Before
the backward pass of a segment, those of its steps run again that compute its residuals. For a number of bytes
segments are nested, as deep as necessary (`stages.py`, `budget.py`).

Source: T. Chen, B. Xu, C. Zhang and C. Guestrin, Training Deep Nets with Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate, groupby, islice, pairwise
from typing import Literal, NamedTuple, get_args

from codelet.deprecated import old_arguments, old_attribute
from codelet.errors import ProgramError
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.tensor_steps import WriteUndef
from codelet.schema import is_whole
from codelet.views.sources import Variable
from codelet.views.tensor import whole_view
from lowering.adjoint.again import Chain, Event, Segment, Turn
from lowering.adjoint.budget import Peaks, cheapest_within, cycles_of
from lowering.adjoint.fed import has_streams
from lowering.adjoint.programs import program_of, without_calls_or_idle_copies
from lowering.adjoint.stages import crossing, num_bytes
from lowering.check.initialized import read_before_written
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, ExecuteStep, FunctionBody, Step
from lowering.plan.walk import all_steps

Kind = Literal["all", "every", "sqrt", "scopes", "bytes"]


@dataclass(frozen=True)
class Recompute:
    """Which residuals of a forward pass the backward pass recomputes instead of saving: memory for cycles.

    Made by `Recompute.all()`, `every(k)`, `sqrt()`, `scopes(...)` and `bytes(n)`.

    Attributes:
        kind: how the steps are partitioned into segments.
        compute_sets: of `every`: how many are in a segment.
        patterns: of `scopes`: for the names of scopes, in which `*` matches anything.
        budget: of `bytes`: the number of bytes.

    >>> import codelet as cl, jax.numpy as jnp
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x, i = graph.add_variable("x", (64,)), cl.grid(64)
    >>> y = x
    >>> for layer in range(9):
    ...     y = graph.add_vertex(f"sin{layer}", cl.codelet(lambda y: jnp.sin(jnp.sin(y))), y=y[i])
    >>> def most_bytes(**options):
    ...     found = cl.gradient(graph, of=y, wrt=x, cotangent=1.0, **options)
    ...     engine = cl.Engine(graph, cl.Sequence(found.forward, found.backward))
    ...     profile = engine.profile(host_visible=[x, found[x]])
    ...     return int(profile.memory_by_tile.max()), profile.total_cycles
    >>> (bytes_kept, cycles_kept), (bytes_again, cycles_again) = most_bytes(), most_bytes(recompute=cl.Recompute.sqrt())
    >>> bytes_again < bytes_kept, cycles_again > cycles_kept
    (True, True)
    """

    kind: Kind
    compute_sets: int = 0
    patterns: tuple[str, ...] = ()
    budget: int = 0
    steps = old_attribute("Recompute.steps", "compute_sets")

    def __post_init__(self) -> None:
        if self.kind not in (kinds := get_args(Kind)):
            raise ProgramError("nothing is made again in such a way", given=repr(self.kind), expected=", ".join(kinds))

    @staticmethod
    def all() -> Recompute:
        """Save nothing that compute sets make: the backward pass recomputes the whole forward pass.

        >>> import codelet as cl
        >>> cl.Recompute.all().kind
        'all'
        """
        return Recompute("all")

    @staticmethod
    @old_arguments(steps="compute_sets")
    def every(compute_sets: int) -> Recompute:
        """Save the state after every `compute_sets` compute sets, and recompute the others.

        Args:
            compute_sets: how many compute sets a segment has.

        Raises:
            ProgramError: not a positive integer.

        >>> import codelet as cl
        >>> cl.Recompute.every(4).compute_sets
        4
        """
        if not is_whole(compute_sets, 1):
            raise ProgramError(
                "a forward pass cannot be kept so often",
                given=repr(compute_sets),
                expected="a positive number of steps",
            )
        return Recompute("every", int(compute_sets))

    @staticmethod
    def sqrt() -> Recompute:
        """Save the state between the segments that need the least memory: about the square root of n of n equal layers.

        >>> import codelet as cl
        >>> cl.Recompute.sqrt().kind
        'sqrt'
        """
        return Recompute("sqrt")

    @staticmethod
    def scopes(*patterns: str) -> Recompute:
        """Recompute each scope of the graph whose name matches a pattern, as one segment.

        Args:
            patterns: for names of scopes, in which `*` matches anything.

        Raises:
            ProgramError: no pattern, or one that is not a name.

        >>> import codelet as cl
        >>> cl.Recompute.scopes("block*", "head").patterns
        ('block*', 'head')
        """
        if not patterns or not all(isinstance(own, str) for own in patterns):
            raise ProgramError(
                "scopes that are made again are named by patterns",
                given=f"{patterns!r:.80}",
                expected="names, in which * stands for anything: cl.Recompute.scopes('layer*', 'head')",
            )
        return Recompute("scopes", patterns=patterns)

    @staticmethod
    def bytes(budget: int) -> Recompute:
        """Recompute as little as a memory budget allows.

        Args:
            budget: the most bytes, over all tiles, of variables that are live at the same time and not always live.
                This is `machine.liveness.most_bytes_at_times` of the plan of `cl.Sequence(found.forward,
                found.backward)`, with the gradients as its outputs, whatever its inputs are. Exchange buffers are not
                counted.

        Raises:
            ProgramError: not a positive integer; by `cl.gradient`, fewer bytes than possible, with the least possible.

        >>> import codelet as cl
        >>> cl.Recompute.bytes(2**20).budget
        1048576
        """
        if not is_whole(budget, 0):
            raise ProgramError("a budget is not a number of bytes", given=repr(budget), expected="an integer")
        return Recompute("bytes", budget=int(budget))


def _scope(patterns: Collection[str], step: Step) -> str | None:
    """The outermost scope that matches a pattern and that a compute set is of."""
    if not isinstance(step, ExecuteStep):
        return None
    parts = step.name.split("/")
    names = ("/".join(parts[:k]) for k in range(1, len(parts)))
    return next((name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)), None)


def runs_again(policy: Recompute | None, function: FunctionBody) -> bool:
    """True if a function that is called repeatedly is recomputed before its backward pass.

    All policies do so, except those that name other scopes. For a number of bytes it does not, nor does a function that
    copies from streams or to them.
    """
    if policy is None or policy.kind == "bytes" or has_streams(function):
        return False
    sets = [step for step in all_steps(function.body) if isinstance(step, ExecuteStep)]
    return policy.kind != "scopes" or bool(sets and all(_scope(policy.patterns, step) for step in sets))


def segments_of(policy: Recompute, chain: Chain) -> list[Segment]:
    """The segments of a program's steps, in order, by a policy that states where they are."""
    steps, count = chain.steps, len(chain.steps)
    if policy.kind == "all":
        return [Segment(0, count, True)]
    if policy.kind == "scopes":
        found = list(_of_scopes(policy.patterns, steps))
        called = [step.function for step in all_steps(steps) if isinstance(step, CallStep)]
        if not any(own.is_again for own in found) and not any(runs_again(policy, own) for own in called):
            inside = (step for own in dict.fromkeys(called) for step in all_steps(own.body))
            names = (step.name for step in (*steps, *inside) if isinstance(step, ExecuteStep))
            raise ProgramError(
                "no compute set of the program is in a scope that is to be made again",
                given=", ".join(policy.patterns),
                expected=f"patterns for scopes of what runs outside of loops: {', '.join(islice(names, 8))}",
            )
        return found
    if policy.kind == "every":
        ran = accumulate(isinstance(step, ExecuteStep) for step in steps)
        cuts = [k for k, number in enumerate(ran) if isinstance(steps[k], ExecuteStep) and number > 1]
        ends = cuts[policy.compute_sets - 1 :: policy.compute_sets]
    else:
        ends = _cheapest(chain)
    # What the last segment makes is there still.
    places = [0, *ends, count]
    return [Segment(a, b, b < count) for a, b in pairwise(places)]


def _of_scopes(patterns: Collection[str], steps: Sequence[Step]) -> Iterator[Segment]:
    first = 0
    for name, group in groupby(steps, lambda step: _scope(patterns, step)):
        end = first + len(list(group))
        yield Segment(first, end, name is not None)
        first = end


def _cheapest(chain: Chain) -> list[int]:
    """The partition of steps for which saved values, and residuals of the largest segment, need the least memory
    together.
    """
    count = len(chain.steps)
    across = [num_bytes(own) for own in crossing(chain)]
    sizes = [0, *accumulate(num_bytes(own) for own in chain.writes)]
    best: tuple[int, list[int]] = sizes[-1], []
    for parts in range(2, count + 1):
        cuts: list[int] = []
        for part in range(1, parts):
            low = (cuts[-1] if cuts else 0) + 1
            aim = next(k for k, size in enumerate(sizes) if size * parts >= sizes[-1] * part)
            near = range(max(low, aim - count // (2 * parts)), min(count, aim + count // (2 * parts) + 1))
            if near:
                cuts.append(min(near, key=lambda k: (across[k], abs(k - aim))))
        ends = [0, *cuts, count]
        largest = max(sizes[b] - sizes[a] for a, b in pairwise(ends))
        best = min(best, (sum(across[k] for k in cuts) + largest, cuts))
    return best[1]


class BackwardStep(NamedTuple):
    """The backward pass of one step.

    Attributes:
        programs: its programs.
        needed: the variables of the forward pass that it reads in place.
    """

    programs: Sequence[Program]
    needed: frozenset[Variable]


def in_order(
    policy: Recompute | None,
    plan: Plan,
    pieces: Sequence[BackwardStep],
    before: Program,
    after: Program,
    keep: Collection[Variable],
) -> list[Program]:
    """The backward pass: that of each step, after the segments that are recomputed for it.

    Args:
        policy: which residuals are recomputed.
        plan: the forward pass.
        pieces: the backward pass of each of its steps.
        before: the program before these, the forward pass included.
        after: the program after them.
        keep: the variables whose values all of it must preserve.

    Raises:
        ProgramError: a number of bytes that is too small.
    """
    steps = plan.steps
    if policy is None or not pieces:
        return [program for own in reversed(pieces) for program in own.programs]
    alone = replace(plan, steps=without_calls_or_idle_copies(plan, steps))
    chain = Chain(steps, [own.needed for own in pieces], read_before_written(alone, ()))

    def program(turn: Turn) -> ProgramSequence:
        if turn.is_back:
            return ProgramSequence(*pieces[turn.number].programs)
        return ProgramSequence(*map(WriteUndef, map(whole_view, turn.ended)), program_of(plan, steps[turn.number], ()))

    if policy.kind == "bytes":
        back = [ProgramSequence(*own.programs) for own in pieces]
        cycles = [cycles_of(step, plan.graph) for step in steps]
        peaks = Peaks(plan.graph, steps, before, back, after, keep)
        turns = cheapest_within(policy.budget, chain, cycles, peaks)
    else:
        segments = segments_of(policy, chain)
        events = [event for own in reversed(segments) for event in _events(own)]
        turns = chain.turns(events, chain.makeable(segments))
    return [*map(program, turns)]


def _events(segment: Segment) -> list[Event]:
    first, end, is_again = segment
    return [*([Event(first, end, False)] if is_again else []), Event(first, end, True)]
