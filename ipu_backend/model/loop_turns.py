"""How often a while loop turns, where its jaxpr shows it: one that counts by ones from a number up to a number."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core as jax_core

from ipu_backend.model.equations import Equation


def _number(atom: Any) -> int | None:
    value = np.asarray(atom.val if isinstance(atom, jax_core.Literal) else np.nan)
    return int(value) if not value.shape and value.dtype.kind in "iu" else None


def turns_of(eqn: Equation) -> int | None:
    """The turns of a while loop whose condition is `i < n`, where `i` counts by ones and both are known; else None."""
    condition, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
    conditions, constants = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carried = eqn.operands[conditions + constants :]
    inside = dict(zip(condition.invars, (*eqn.operands[:conditions], *carried), strict=True))
    if [asked.primitive.name for asked in condition.eqns] != ["lt"]:
        return None
    (asked,) = condition.eqns
    count, bound = asked.invars
    if condition.outvars != asked.outvars or count not in condition.invars[conditions:]:
        return None
    which = condition.invars.index(count) - conditions
    own = body.invars[constants + which]
    steps = [step for step in body.eqns if step.outvars == [body.outvars[which]] and step.primitive.name == "add"]
    if not steps or not any(a is own and _number(b) == 1 for a, b in (steps[0].invars, steps[0].invars[::-1])):
        return None
    stays = isinstance(bound, jax_core.Literal) or bound in condition.invars[:conditions]
    if bound in condition.invars[conditions:]:
        k = condition.invars.index(bound) - conditions
        stays = body.outvars[k] is body.invars[constants + k]
    first = _number(inside[count])
    last = _number(bound if isinstance(bound, jax_core.Literal) else inside.get(bound))
    return max(0, last - first) if stays and first is not None and last is not None else None
