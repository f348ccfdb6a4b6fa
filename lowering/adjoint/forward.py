"""Forward: the program of the forward pass, which also saves the residuals of the backward pass."""

from __future__ import annotations

from codelet.programs.control import Repeat
from codelet.programs.functions import Call
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from lowering.adjoint.added import new_vertices, zeros
from lowering.adjoint.counting import one_more
from lowering.adjoint.programs import program_of
from lowering.adjoint.saved import Body
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, PrintStep, RepeatStep, StreamStep
from lowering.plan.walk import bodies


def forward_program(plan: Plan, body: Body, *, is_again: bool = False) -> Program:
    """The program of a body of the forward pass, with the values it saves; of one that runs again the values it saves
    then.

    A step that runs again prints nothing, and sends nothing to streams.
    """
    found: list[Program] = []
    is_again = is_again or body.is_again
    for number, step in enumerate(body.steps):
        found += body.before.get(number, [])
        if is_again and (isinstance(step, PrintStep) or (isinstance(step, StreamStep) and not step.stream.is_input)):
            continue
        if number in body.instead:
            found.append(body.instead[number])
            continue
        if number in body.calls:
            assert isinstance(step, CallStep)
            function = body.calls[number].forward(plan)
            found.append(Call(function, **dict(zip(function.parameters, step.arguments, strict=True))))
            continue
        children = body.children.get(number, ())
        if not children or children[0].is_again:  # which saves when it runs again
            children = [Body(own, (body, number)) for own in bodies(step)]
        inside = [forward_program(plan, own, is_again=is_again) for own in children]
        loop = children[-1].loop if children else None
        if loop is None or not loop.is_counted:
            found.append(program_of(plan, step, inside))
            continue
        if isinstance(loop.step, RepeatStep) and loop.step.index is None:
            found.append(Repeat(loop.step.count, inside[0], index=loop.turn))
            continue
        with plan.graph.scope(body.scope):
            count, _ = new_vertices(plan.graph, "count", one_more, turn=loop.turn)
        inside[-1] = ProgramSequence(inside[-1], count)
        found += [zeros(loop.turn), program_of(plan, step, inside)]
    return ProgramSequence(*found, *body.before.get(len(body.steps), []))
