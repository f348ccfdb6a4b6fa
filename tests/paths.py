"""All paths of a program, walked one by one: no meet, no summary, no fixed point. What analyses find is held to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lowering.plan.steps import CallStep, RepeatStep, Step, SwitchStep, WhileStep
from lowering.plan.walk import bodies

TURNS = 9
"""So many turns of a loop are walked: more than there are variables, so that one more tells nothing new."""

State = frozenset[Any]
"""What is known on one path at one place."""

States = set[State]
Place = tuple[Any, ...]


class Paths:
    """Walks paths, with what is known on each; a question says what a step itself does to a state.

    Attributes:
        forward: whether the walks go the way that control goes.
        reached: for every place of the text where a step does something itself the states that reach it.
        entered: for every list of steps the states that reach it.
        at: the step of each place.
    """

    forward: bool

    def __init__(self) -> None:
        self.reached: dict[Place, States] = defaultdict(set)
        self.entered: dict[Place, States] = defaultdict(set)
        self.at: dict[Place, Step] = {}

    def own(self, step: Step, state: State) -> State:
        """What is known behind what a step does itself."""
        raise NotImplementedError

    def call(self, step: CallStep, place: Place, state: State) -> States:
        """What is known behind a call."""
        raise AssertionError(step)

    def steps(self, steps: Sequence[Step], place: Place, states: States) -> States:
        self.entered[place] |= states
        for k, step in list(enumerate(steps))[:: 1 if self.forward else -1]:
            states = self.step(step, (*place, k), states)
        return states

    def step(self, step: Step, place: Place, states: States) -> States:
        found: States = set()

        def own(states: States) -> States:
            between = (*place, 0.5 if isinstance(step, WhileStep) else -0.5)
            self.at[between] = step
            self.reached[between] |= states
            return {self.own(step, state) for state in states}

        def body(k: int) -> Callable[[States], States]:
            return lambda states: self.steps(bodies(step)[k], (*place, k), states)

        def through(*ways: Callable[[States], States]) -> States:
            passed = states
            for way in ways if self.forward else reversed(ways):
                passed = way(passed)
            return passed

        match step:
            case RepeatStep(count=0):
                return states
            case RepeatStep():
                for _ in range(TURNS if step.count > 1 else 1):
                    states = through(own, body(0))
                    found |= states
                return found
            case WhileStep():
                for _ in range(TURNS):
                    states = through(body(0), own)
                    found |= states
                    states = body(1)(states)
                return found
            case SwitchStep():
                either = lambda states: {end for k in range(len(step.branches)) for end in body(k)(states)}  # noqa: E731
                return through(own, either)
            case CallStep():
                return {end for state in states for end in self.call(step, place, state)}
        return own(states)
