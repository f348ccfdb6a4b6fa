"""What the solver finds of a program is what a walk of all its paths finds: values, live variables, needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.sources import Variable, source_variables
from lowering.check.initialized import check_initialized, given_elements, read_before_written
from lowering.fast import prune as pruning
from lowering.machine.exchange import plan_exchange
from lowering.machine.live_variables import lifetimes
from lowering.machine.liveness import live_ranges
from lowering.machine.place import place as placed
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, ExecuteStep, FunctionBody, RepeatStep, Step, SwitchStep
from lowering.plan.timeline import timeline, without_calls
from lowering.plan.touch import Touch
from lowering.plan.walk import bodies, has_effects
from tests.examples import examples
from tests.paths import Paths, Place, State, States

# --- programs -----------------------------------------------------------------------------------------


@cl.codelet
def added(x, y):
    return x + y


@cl.codelet
def negated(x):
    return -x


NUMBERS = [st.integers(0, max(0, count - 1)) for count in range(30)]  # made once: hypothesis checks each that is made


@st.composite
def plans(draw: Any, least: int = 0) -> Plan:
    """A plan of copies, compute sets and ends of lives in loops, choices and functions, nothing of it checked.

    Repeats turn so many times at the `least`: one that never turns is looked into by some who look for what is written.
    """
    graph = cl.Graph(cl.IPU(num_tiles=2))
    a, b, c = (graph.add_variable(name, (2,)) for name in "abc")
    m, n = (graph.add_variable(name, (), "int32") for name in "mn")
    p, q = (graph.add_variable(name, (2,)) for name in "pq")
    whole, part, halves = (graph.add_compute_set(name) for name in ("whole", "part", "halves"))
    i = cl.grid(2)
    graph.add_vertex(whole, added, x=a[1 - i], y=b[i], out=c[i])
    graph.add_vertex(part, added, x=b[0], y=b[1], out=a[0])
    graph.add_vertex(part, added, x=c[0], y=c[1], out=b[1])
    graph.add_vertex(halves, added, x=c[0], y=c[0], out=a[1])
    graph.add_vertex(halves, negated, x=c[1], out=a[0])
    pairs = [(a, b), (b, c), (c, a), (b, a), (m, n), (n, m), (c[:1], b[1:]), (a[::-1], c), (2, b), (1, m)]
    ends = [cl.WriteUndef(a), cl.WriteUndef(b[:1]), cl.WriteUndef(c), cl.WriteUndef(m)]
    atoms = [
        *(cl.Copy(*pair) for pair in pairs),
        *[whole, part, halves] * 2,
        *ends,
        cl.AbortOn(n, "never"),
        cl.Print(c),
    ]
    pairs = [(p, q), (q, p), (p[:1], q[:1]), (c, p), (q, c), (q[1:], a[1:])]
    inside = [*(cl.Copy(*pair) for pair in pairs), part]

    def one_of(*options: Any) -> Any:
        return options[draw(NUMBERS[len(options)])]

    def some(own: Sequence[Any]) -> list[Any]:
        return [one_of(*own) for _ in range(one_of(1, 2, 3))]

    def body(depth: int) -> list[Any]:
        return [program(depth + 1) for _ in range(one_of(1, 2, 2, 3))]

    def program(depth: int) -> Any:
        inner = lambda: body(depth)  # noqa: E731
        kinds = [lambda: one_of(*atoms)] * 3 + [lambda: one_of(*calls)]
        composed = [
            lambda: cl.Repeat(one_of(least, 1, 2, 2, 3, 5), inner(), index=one_of(None, None, m, n)),
            lambda: cl.RepeatWhile(one_of([], one_of(*atoms)), one_of(m, n), inner(), max_iterations=one_of(None, 3)),
            lambda: cl.If(one_of(m, n), inner(), one_of([], inner())),
            lambda: cl.Switch(one_of(m, n), {0: inner(), 1: inner()}),
        ]
        return one_of(*kinds, *[*composed[:2], *composed] * (depth < 3))()

    function = graph.add_function(some(inside), {"p": p, "q": q})
    calls = [cl.Call(function, p=x, q=c) for x in (a, b, a[::-1])]
    calls.append(cl.Call(graph.add_function(some([*atoms, *calls]), {})))
    given = one_of("abcmn", "abcmn", "an", "bcm", "")
    inputs = [variable for variable in graph.sources if variable.name in given]
    outputs = [graph.variable(name) for name in one_of("a", "c", "b", "ab")]
    return flow(collect(graph, cl.Sequence(*body(0)), inputs, outputs))


def elements(plan: Plan, touch: Touch) -> set[int]:
    """The elements that a step touches. The flag of aborts is of no graph, and has a value always."""
    return set() if touch.tensor.source is plan.abort else set(touch.tensor.elements(touch.axes).ravel().tolist())


def made_whole(plan: Plan, touches: Sequence[Touch]) -> set[Variable]:
    """The variables of which some touches write every element."""
    written = {element for touch in touches if touch.is_written for element in elements(plan, touch)}
    return {v for v in plan.variables if written.issuperset(range(v.first_element, v.first_element + v.size))}


# --- what has a value ---------------------------------------------------------------------------------


class Values(Paths):
    """A state is the elements that have a value."""

    forward = True

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def own(self, step: Step, state: State) -> State:
        for touch in step.touches():
            if touch.is_written:
                state |= elements(self.plan, touch)
            elif touch.mode == "end":
                state -= elements(self.plan, touch)
        return state

    def call(self, step: CallStep, place: Place, state: State) -> States:
        numbers = lambda tensor: tensor.elements().ravel().tolist()  # noqa: E731
        pairs = [
            (k, own, given)
            for k, (parameter, argument) in enumerate(zip(step.function.parameters, step.arguments, strict=True))
            for own, given in zip(numbers(self.plan.graph.variable(parameter.name)), numbers(argument), strict=True)
        ]
        parameters = {own for _, own, _ in pairs}
        within = (state - parameters) | {own for _, own, given in pairs if given in state}
        found = set()
        for end in self.steps(step.function.body, (*place, 0), {within}):
            back = [(own, given) for k, own, given in pairs if k in step.function.written]
            left = end - {given for _, given in back} | {given for own, given in back if own in end}
            found.add(left - parameters)
        return found

    def missing(self) -> set[int]:
        """The elements that are read somewhere though they have no value on some path to there."""
        found = set()
        for place, states in self.reached.items():
            for touch in self.at[place].touches():
                if touch.is_read:
                    found |= {element for state in states for element in elements(self.plan, touch) - state}
        return found


@examples(25)
@given(plans())
def test_what_has_a_value_is_what_every_path_gives_one(plan):
    given = {v for v in plan.variables if v.value is not None or v in plan.inputs}
    start = frozenset(e for v in given for e in range(v.first_element, v.first_element + v.size))
    paths = Values(plan)
    ends = paths.steps(plan.steps, (), {start})
    asked = {element for tensor in plan.outputs for element in tensor.elements().ravel().tolist()}
    if paths.missing() or any(asked - end for end in ends):
        with pytest.raises(cl.UninitializedReadError):
            check_initialized(plan, given_elements(plan))
    else:
        after = check_initialized(plan, given_elements(plan))
        held = {
            v.first_element + k
            for v in plan.variables
            for k in after.flags(v).nonzero()[0].tolist()
            if v is not plan.abort
        }
        assert held == frozenset.intersection(*ends)
    flat = without_calls(plan)
    paths = Values(flat)
    paths.steps(flat.steps, (), {start})
    assert read_before_written(flat, given) == {plan.graph.locate(element)[0] for element in paths.missing()}


# --- what is live -------------------------------------------------------------------------------------


class Written(Paths):
    """A state is the variables that something has written."""

    forward = True

    def own(self, step: Step, state: State) -> State:
        return state | {v for touch in step.touches() if touch.is_written for v in touch.variables}


class Wanted(Paths):
    """A state is the variables that something reads before all of them is written anew, or ends."""

    forward = False

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def own(self, step: Step, state: State) -> State:
        touches = list(step.touches())
        ended = {touch.tensor.source for touch in touches if touch.mode == "end" and touch.tensor.is_whole_variable}
        read = {v for touch in touches if touch.is_read for v in touch.variables}
        return (state - made_whole(self.plan, touches) - ended) | read


@pytest.mark.slow
@examples(25)
@given(plans().map(without_calls))
def test_what_is_live_is_what_some_path_has_written_and_some_path_wants(plan):
    written, wanted = Written(), Wanted(plan)
    held = lifetimes(plan)
    written.steps(plan.steps, (), {held.given})
    wanted.steps(plan.steps, (), {held.results})
    live: list[State] = []
    for place in sorted(written.reached):
        step, some = written.at[place], frozenset().union
        has, wants = some(*written.reached[place]), some(*wanted.reached[place])
        touched = {v for touch in step.touches() if touch.mode != "end" for v in touch.variables}
        live.append((has & wanted.own(step, wants)) | (written.own(step, has) & wants) | touched)
    found = live_ranges(plan_exchange(placed(plan)))
    assert [moment.step for moment in timeline(plan).moments] == [
        written.at[place] for place in sorted(written.reached)
    ]
    shared = [own for own in found.ranges if not own.always]
    for own in shared:
        assert own.moments.tolist() == [not at.isdisjoint(own.variables) for at in live]
    passing = [v for own in shared for v in own.variables]
    always = {v for own in found.ranges if own.always for v in own.variables}
    assert always <= held.kept
    assert set().union(*live) - {plan.abort} <= always | set(passing)
    assert len(passing) == len(set(passing))


# --- what is needed -----------------------------------------------------------------------------------


class Needs(Paths):
    """A state is the variables that later steps need which are needed themselves; what a function has to do is common.

    Places in a function are its own, however it is called.
    """

    forward = False

    def __init__(self, plan: Plan, needed: dict[FunctionBody, frozenset[Variable]]):
        super().__init__()
        self.plan, self.needed = plan, needed

    def is_needed(self, step: Step, state: State) -> bool:
        return has_effects(step) or not state.isdisjoint(step.writes)

    def step(self, step: Step, place: Place, states: States) -> States:
        needed = {state for state in states if self.is_needed(step, state)}
        if needed:
            self.entered[*place, "after"] |= needed
        return (states - needed) | (super().step(step, place, needed) if needed else set())

    def own(self, step: Step, state: State) -> State:
        touches = list(step.touches())
        if isinstance(step, ExecuteStep):
            run = families(step, {state})
            touches = [touch for touch in touches if touch.family in run]
        return (state - made_whole(self.plan, touches)) | {
            v for touch in touches if touch.is_read for v in touch.variables
        }

    def call(self, step: CallStep, place: Place, state: State) -> States:
        function = step.function
        pairs = list(zip(function.parameters, step.arguments, strict=True))
        given = {own: set(source_variables(argument.source)) for own, argument in pairs}
        needed = self.needed.setdefault(function, frozenset())
        needed |= {v for v in function.writes if not given.get(v, {v}).isdisjoint(state)}
        self.needed[function] = needed
        made = {argument.source for own, argument in pairs if own in needed and argument.is_whole_variable}
        found = set()
        for start in self.steps(function.body, (function,), {needed}):
            read = {v for own in given if own in start for v in given[own]}
            found.add((state - needed - made) | (start - set(given)) | read)
        return found


def families(step: ExecuteStep, states: States) -> list[Any]:
    """The families of a step that write what some state needs."""
    wanted = frozenset().union(*states)
    writers = {touch.family for touch in step.touches() if touch.is_written and not wanted.isdisjoint(touch.variables)}
    return [family for family in step.families if family in writers]


def expected(paths: Needs, steps: Sequence[Step], place: Place) -> Iterator[Any]:
    """What should be left of steps: leaves as they are, of compute sets families, of others what is left within."""
    for k, step in enumerate(steps):
        at = (*place, k)
        after = paths.entered.get((*at, "after"))
        if not after:
            continue
        if isinstance(step, ExecuteStep):
            yield families(step, after)
        elif not bodies(step):
            yield step
        elif isinstance(step, CallStep):
            yield CallStep, list(expected(paths, step.function.body, (step.function,)))
        else:
            inside = [list(expected(paths, body, (*at, n))) for n, body in enumerate(bodies(step))]
            if isinstance(step, RepeatStep):
                last = frozenset().union(*paths.entered[*at, 0])
                counted = step.index in frozenset().union(*after, *paths.reached[*at, -0.5])
                if inside[0] or counted:
                    yield RepeatStep, last & set(step.writes), counted, *inside
            elif any(inside) or not isinstance(step, SwitchStep):
                yield type(step), *inside


def left(steps: Sequence[Step]) -> Iterator[Any]:
    """What is left of steps, in the same form."""
    for step in steps:
        if isinstance(step, ExecuteStep):
            yield list(step.families)
        elif not bodies(step):
            yield step
        else:
            inside = [list(left(body)) for body in bodies(step)]
            if isinstance(step, RepeatStep):
                yield RepeatStep, frozenset(step.carried or ()), step.index is not None, *inside
            else:
                yield type(step), *inside


@examples(30)
@given(plans(least=1))
def test_what_is_needed_is_what_some_path_needs(plan):
    outside = frozenset(v for tensor in plan.outputs for v in source_variables(tensor.source))
    outside |= frozenset() if plan.abort is None else {plan.abort}
    paths = Needs(plan, {})
    before = None
    while before != paths.needed:
        before = dict(paths.needed)
        paths = Needs(plan, paths.needed)
        paths.steps(plan.steps, (), {outside})
    with pytest.MonkeyPatch.context() as patch:  # without those copies to behind loops that make a smaller loop
        patch.setattr(pruning, "_copies_behind", lambda *given: [])
        assert list(left(pruning.prune(plan).steps)) == list(expected(paths, plan.steps, ()))


@examples(60)
@given(plans())
def test_what_is_pruned_reads_nothing_that_is_gone(plan):
    try:
        check_initialized(plan, given_elements(plan))
    except cl.UninitializedReadError:
        return
    pruned = pruning.prune(plan)
    check_initialized(pruned, given_elements(pruned))
