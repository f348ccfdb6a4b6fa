"""Partial sums: what vertices cut into blocks, convolutions cut into phases or parts, is put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowering.fast.grains import join_blocks
from lowering.fast.phases import weave_phases
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, ExecuteStep, FunctionBody, Step, bodies, with_bodies


def _joined(step: ExecuteStep) -> ExecuteStep:
    """A compute set with its families put together: phases first, which go on in each other as parts may."""
    woven = weave_phases(step)
    whole = join_blocks(woven)
    return woven if whole is woven else weave_phases(whole)


class _Joining:
    """Joins the families of steps, each step and the body of each function once."""

    def __init__(self) -> None:
        self.made: dict[Step, Step] = {}
        self.functions: dict[FunctionBody, FunctionBody] = {}

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple([self.step(step) for step in steps])

    def function(self, function: FunctionBody) -> FunctionBody:
        if function not in self.functions:
            self.functions[function] = replace(function, body=self.body(function.body))
        return self.functions[function]

    def step(self, step: Step) -> Step:
        if step not in self.made:
            match step:
                case ExecuteStep():
                    made = _joined(step)
                case CallStep():
                    made = replace(step, function=self.function(step.function))
                case _:
                    made = with_bodies(step, [self.body(body) for body in bodies(step)])
            self.made[step] = made
        return self.made[step]


def join_products(plan: Plan) -> Plan:
    """The plan with products and convolutions put together of what vertices compute of them."""
    return replace(plan, steps=_Joining().body(plan.steps))
