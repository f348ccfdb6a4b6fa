"""Units: steps that the backward pass runs again, from their first values, before it goes back through them.

Values that they overwrite themselves are saved as they run again, for one time; their first values are kept by whoever
is around them, and put back where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codelet.programs.copies import Copy
from codelet.views.tensor import whole_view
from lowering.adjoint.forward import forward_program
from lowering.adjoint.saved import Body, parts
from lowering.check.initialized import read_before_written
from lowering.plan.elements import ElementSet
from lowering.plan.steps import CallStep
from lowering.plan.walk import all_reads

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward


def go_back_again(back: Backward, body: Body, number: int, step: CallStep) -> None:
    """Run the steps of a unit again, and go back through them."""
    inner = Body(step.function.body, (body, number), None, is_again=True)
    body.children[number] = (inner,)
    outer = back.later, back.frame, back.frames, back.is_again
    back.later, back.frame, back.frames, back.is_again = ElementSet(), None, {}, lambda function: False
    programs = back.inside(inner)
    back.later, back.frame, back.frames, back.is_again = outer
    if not programs:
        return
    later, alone = back.later | back.written(step), back.alone(inner.steps)
    needed = ElementSet.of_views((touch.tensor, touch.axes) for _, touch in all_reads(alone.steps))
    for variable in sorted(read_before_written(alone, ()), key=lambda own: own.number):
        held = back.value(body, number, variable, needed.of(variable), later)
        if held is not variable:
            pairs = parts(whole_view(held), whole_view(variable), needed.of(variable))
            back.sums.programs += [Copy(a.reshape(b.shape), b) for a, b in pairs]
    back.disturbed.update(step.writes)
    back.sums.programs += [*back.saved.settle(inner), forward_program(back.plan, inner), *inner.prelude, *programs]
