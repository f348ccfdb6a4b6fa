"""The solver: what holds at every place of a program, from what each step does to it.

In come a question (an `Analysis`: which way it goes, what a step does to a fact, what holds where ways meet) and what
holds outside the program; out comes what reaches each step. Branches meet, loops go to a fixed point, functions are
gone through at each call. How control goes through a step is known from `control.py` alone.

What is asked of each element or variable for itself (`Elementwise`) takes time linear in the program, however deep its
loops are nested: all that some steps do then is to give some, and to leave some of the others. So any number of
iterations do what one iteration does, and it is found once for each body, from nothing and from everything.

Source: data-flow equations and their transfer functions, with meet over all paths: A. Aho, M. Lam, R. Sethi and
J. Ullman, Compilers (2006), chapters 9.2 and 9.3; summaries of functions: M. Sharir and A. Pnueli, 1981.
"""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from lowering.plan.control import OUTSIDE, control
from lowering.plan.steps import CallStep, Step
from lowering.plan.walk import bodies

Fact = TypeVar("Fact")


class Solution(NamedTuple, Generic[Fact]):
    """What holds within a step with bodies: what reaches each of its parts, by number, and what holds beyond it."""

    reaching: dict[int, Fact]
    beyond: Fact


class Analysis(ABC, Generic[Fact]):
    """A question that is asked of a program. A fact is what holds at a place; what meets is never changed.

    Attributes:
        forward: whether facts go the way that control goes, rather than against it.
        most_rounds: after so many rounds through a loop nothing changes any more.
    """

    forward: bool
    most_rounds = sys.maxsize

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    @abstractmethod
    def own(self, step: Step, fact: Fact) -> Fact:
        """What holds beyond what a step does itself; `fact`, which reaches it, may be changed."""

    @abstractmethod
    def meet(self, one: Fact, other: Fact) -> Fact:
        """What holds where two ways meet."""

    def same(self, one: Fact, other: Fact) -> bool:
        """Whether two facts are known to be the same."""
        return one == other

    def copied(self, fact: Fact) -> Fact:
        """A fact that may be changed."""
        return fact

    def enter(self, step: CallStep, fact: Fact) -> Fact:
        """What holds where a call begins, in the way that facts go, from what reaches it."""
        return fact

    def leave(self, step: CallStep, reached: Fact, fact: Fact) -> Fact:
        """What holds beyond a call, from what reaches it and what holds beyond its body, which may be changed."""
        return fact

    def look(self, step: Step, fact: Fact) -> None:
        """What is asked of what a step does itself, and of what reaches it."""

    def looks_into(self, step: CallStep, fact: Fact) -> bool:
        """Whether a function's body is to be looked at, with what reaches it."""
        return True

    def directed(self, steps: Sequence[Any]) -> Sequence[Any]:
        """Steps in the order in which facts go."""
        return steps if self.forward else steps[::-1]

    def through(self, step: Step, k: int, fact: Fact) -> Fact:
        """What holds beyond body `k` of a step: once for each fact."""
        key = (step.function if isinstance(step, CallStep) else (step, k)), fact
        if key not in self._known:
            self._known[key] = self.beyond(bodies(step)[k], fact)
        return self._known[key]

    def part(self, step: Step, body: int | None, fact: Fact) -> Fact:
        """What holds beyond a part of a step, which is one of its bodies or what it does itself."""
        return self.own(step, self.copied(fact)) if body is None else self.through(step, body, fact)

    def looked_at(self, step: Step, body: int | None, fact: Fact) -> Fact:
        """As `part`, of a part that is looked at."""
        if body is None:
            self.look(step, fact)
        elif not isinstance(step, CallStep) or self.looks_into(step, fact):
            return self.visit(bodies(step)[body], fact)
        return self.part(step, body, fact)

    def solve(self, step: Step, fact: Fact, part: Callable[[Step, int | None, Fact], Fact]) -> Solution[Fact]:
        """What holds within a step with bodies, and beyond it, by what holds beyond each part."""
        flow = control(step)
        order, ends = flow.forward if self.forward else flow.backward
        beyond = {OUTSIDE: self.enter(step, fact) if isinstance(step, CallStep) else fact}
        reaching: dict[int, Fact] = {}
        for _ in range(self.most_rounds if flow.is_loop else 1):
            changed = False
            for k, sources in order:
                reached = functools.reduce(self.meet, [beyond[j] for j in sources if j in beyond])
                if k not in reaching or not self.same(reaching[k], reached):
                    reaching[k], beyond[k] = reached, part(step, flow.parts[k].body, reached)
                    changed = True
            if not changed:
                break
        end = functools.reduce(self.meet, [beyond[j] for j in ends])
        return Solution(reaching, self.leave(step, fact, self.copied(end)) if isinstance(step, CallStep) else end)

    def beyond(self, steps: Sequence[Step], fact: Fact) -> Fact:
        """What holds beyond some steps."""
        fact = self.copied(fact)
        for step in self.directed(steps):
            fact = self.copied(self.solve(step, fact, self.part).beyond) if bodies(step) else self.own(step, fact)
        return fact

    def visit(self, steps: Sequence[Step], fact: Fact) -> Fact:
        """Look at what each of some steps does itself, in the order in which facts go; what holds beyond them."""
        fact = self.copied(fact)
        for step in self.directed(steps):
            if not bodies(step):
                self.look(step, fact)
                fact = self.own(step, fact)
            elif control(step).is_loop:
                solution = self.solve(step, fact, self.part)
                for k, part in self.directed([*enumerate(control(step).parts)]):
                    self.looked_at(step, part.body, solution.reaching[k])
                fact = self.copied(solution.beyond)
            else:
                fact = self.copied(self.solve(step, fact, self.looked_at).beyond)
        return fact


class Effect(NamedTuple, Generic[Fact]):
    """What some steps do to each element: `given` holds it beyond them in any case, of the others those of `left`."""

    given: Fact
    left: Fact

    def on(self, fact: Any) -> Any:
        """What holds beyond, where `fact` holds before."""
        return self.given | (fact & self.left)


class Elementwise(Analysis[Fact]):
    """A question that is asked of each element for itself. Facts are sets, or bits of numbers, with `&` and `|`.

    Attributes:
        nothing: the set that holds no element.
        everything: the set that holds all.
    """

    most_rounds = 2

    def __init__(self, nothing: Fact, everything: Fact):
        super().__init__()
        self.nothing, self.everything = nothing, everything

    def through(self, step: Step, k: int, fact: Fact) -> Fact:
        """What holds beyond a body, from what it does to each element where it is gone through again and again."""
        body = bodies(step)[k]
        if not isinstance(step, CallStep) and not control(step).is_loop:
            return self.beyond(body, fact)
        key = step.function if isinstance(step, CallStep) else (step, k)
        if key not in self._known:
            self._known[key] = Effect(self.beyond(body, self.nothing), self.beyond(body, self.everything))
        return self._known[key].on(fact)
