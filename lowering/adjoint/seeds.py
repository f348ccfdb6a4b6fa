"""Seeds: the cotangent that a backward pass begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from codelet.programs.copies import Copy
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_tensor, variable_of
from lowering.adjoint.fields import is_injective
from lowering.arrays import SMALL
from lowering.plan.walk import all_steps, bodies

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward


def begin(back: Backward, of: Tensor, cotangent: object) -> None:
    """Begin with the cotangent of the differentiated tensor: a tensor, or numbers."""
    if isinstance(cotangent, (int, np.ndarray)) and _is_made_once(back, of):
        numbers = np.broadcast_to(np.asarray(cotangent, of.dtype), of.shape)
        made = back.graph.add_constant(back.graph.free_name(of.source.name), numbers)  # type: ignore[union-attr]
        back.cotangents[variable_of(of)] = variable_of(made)
        back.present = back.flows.elements(of)
        return
    target = back.cotangents_of(of)
    if is_injective(of.index) and isinstance(of.source, Variable):
        back.sums.programs.append(Copy(cotangent, target))  # type: ignore[arg-type]
        back.present = back.flows.elements(of)
    else:
        given = new_tensor(back.graph, "cotangent", of.shape, of.dtype)
        back.sums.programs.append(Copy(cotangent, given))  # type: ignore[arg-type]
        back.contribute("cotangent", given, of)


def _is_made_once(back: Backward, of: Tensor) -> bool:
    """Whether a tensor is all of a small variable that one step of the program writes and none reads.

    Then nothing is added to its cotangents.
    """
    variable = of.source
    if not of.is_whole_variable or of.size > SMALL or variable in back.asked:
        return False
    touches = [touch for step in all_steps(back.plan.steps) for touch in step.touches()]
    own = [touch.mode for touch in touches if variable in touch.variables]
    return own == ["write"] and any(variable in step.writes for step in back.plan.steps if not bodies(step))
