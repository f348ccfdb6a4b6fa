"""Control flow: the adjoints of loops and branches, whose bodies are gone back through one by one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from codelet.errors import ProgramError
from codelet.programs.control import Repeat, RepeatWhile, Switch
from codelet.programs.copies import Copy
from codelet.views.sources import source_text
from lowering.adjoint.added import new_tensor, new_vertices
from lowering.adjoint.counting import from_the_end, is_left, one_less
from lowering.adjoint.saved import Body, Loop
from lowering.plan.elements import ElementSet
from lowering.plan.steps import RepeatStep, SwitchStep, WhileStep
from lowering.plan.walk import bodies

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward


def _bodies(back: Backward, body: Body, number: int, loop: Loop | None) -> tuple[Body, ...]:
    """The bodies of a step."""
    if number not in body.children:
        made = (Body(own, (body, number), loop) for own in bodies(body.steps[number]))
        body.children[number] = tuple(made)
    return body.children[number]


def go_back_through_repeat(back: Backward, body: Body, number: int, step: RepeatStep) -> None:
    """Go back through a loop."""
    around = back.flows.around(step, back.present)
    back.fill(around)
    back.later = back.later | back.written(step)
    (inner,) = _bodies(back, body, number, Loop(back.graph, step, step.count))
    programs = back.inside(inner, around)
    back.present = around  # and zeros, of which no turn but the last knows
    loop = inner.loop
    assert loop is not None
    if not programs:
        return
    turn = None
    if loop.is_counted:
        turn = new_tensor(back.graph, "turn", (), "int32")
        fields = {"turn": turn, "out": loop.back, "turns": step.count}
        placing, _ = new_vertices(back.graph, "from the end", from_the_end, **fields)
        programs = [placing, *inner.prelude, *programs]
    back.sums.programs.append(Repeat(step.count, programs, index=turn))


def go_back_through_while(back: Backward, body: Body, number: int, step: WhileStep) -> None:
    """Go back through a loop on a condition, as many iterations as ran."""
    back.later = back.later | back.written(step)
    most = step.max_iterations or 0
    condition, inner = _bodies(back, body, number, Loop(back.graph, step, most + 1))
    loop, outer = inner.loop, back.sums.programs
    assert loop is not None
    last = back.inside(condition)
    before = back.present
    around = back.flows.around(step, before)
    back.sums.programs = []
    back.fill(around)
    filled, back.sums.programs = back.sums.programs, outer
    turn = [*back.inside(inner), *condition.prelude, *back.inside(condition, around)]
    back.present = around
    if not last and not turn:
        return
    if step.max_iterations is None:
        raise ProgramError(
            "a loop without a bound is differentiated: values that its iterations overwrite must be saved",
            given=f"RepeatWhile over {source_text(step.predicate.source)}",
            expected="a bound on the number of iterations",
            fix="cl.RepeatWhile(..., max_iterations=...), or cl.Repeat",
            line=step.line,
        )
    count = back.saved.count_of(body, number, loop)
    look, left = new_vertices(back.graph, "look", is_left, turn=loop.back)
    less, _ = new_vertices(back.graph, "less", one_less, turn=loop.back)
    backwards = [less, *inner.prelude, *turn]
    outer += [Copy(count, loop.back), *condition.prelude, *last, *filled]
    outer.append(RepeatWhile(look, left, backwards, max_iterations=most))


def go_back_through_switch(back: Backward, body: Body, number: int, step: SwitchStep) -> None:
    """Go back through a choice."""
    present, later, made = back.present, back.later, []
    for own in _bodies(back, body, number, None):
        back.present, back.later = present, later
        made.append((own, back.inside(own), back.present))
    after = functools.reduce(ElementSet.__or__, [own for _, _, own in made])
    programs, outer = [], back.sums.programs
    for own, inside, left in made:
        back.sums.programs, back.present = [], left
        back.fill(after)
        programs.append([*own.prelude, *inside, *back.sums.programs])
    back.sums.programs, back.present, back.later = outer, after, later
    if any(programs):
        control = back.given(body, number, step.control, (), later | back.written(step))
        back.sums.programs.append(Switch(control, dict(zip(step.values, programs, strict=False)), programs[-1]))
