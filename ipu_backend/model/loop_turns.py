"""How often a while loop turns, as far as its jaxpr shows it: one that counts by ones from a number up to a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from ipu_backend.model.equations import Equation


class Turns(NamedTuple):
    """The iterations of a loop.

    Attributes:
        number: how many.
        is_exact: whether it iterations so often; else at most so often, since it asks for something else too.
    """

    number: int
    is_exact: bool


def _number(atom: Any) -> int | None:
    value = np.asarray(atom.val if isinstance(atom, jax_core.Literal) else np.nan)
    return int(value) if not value.shape and value.dtype.kind in "iu" else None


def _asked(condition: jax_core.Jaxpr) -> Iterator[jax_core.JaxprEqn]:
    """The equations that a condition is the conjunction of."""
    makers = {result: eqn for eqn in condition.eqns for result in eqn.outvars}
    looked_at = list(condition.outvars)
    while looked_at:
        atom = looked_at.pop()
        maker = None if isinstance(atom, jax_core.Literal) else makers.get(atom)
        if maker is None:
            continue
        is_cast = maker.primitive.name == "convert_element_type" and maker.params["new_dtype"] == np.bool_
        if maker.primitive.name == "and" or is_cast:
            looked_at.extend(maker.invars)
        else:
            yield maker


def turns_of(eqn: Equation) -> Turns | None:
    """The iterations of a while loop that asks for `i < n`, where `i` counts by ones and both are known; else None."""
    condition, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
    first_carried, constants = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    given = [*eqn.operands[:first_carried], *eqn.operands[first_carried + constants :]]
    numbers = dict(zip(condition.invars, map(_number, given), strict=True))
    place = {atom: k - first_carried for k, atom in enumerate(condition.invars) if k >= first_carried}

    def known(atom: Any) -> int | None:
        """The number that a value is in every iteration."""
        if isinstance(atom, jax_core.Literal):
            return _number(atom)
        stays = atom not in place or body.outvars[place[atom]] is body.invars[constants + place[atom]]
        return numbers.get(atom) if stays else None

    def first_of(atom: Any) -> int | None:
        """The number from which a value counts by ones, iteration by iteration."""
        if isinstance(atom, jax_core.Literal) or atom not in place:
            return None
        own, new = body.invars[constants + place[atom]], body.outvars[place[atom]]
        steps = [step for step in body.eqns if step.primitive.name == "add" and step.outvars[0] is new]
        counts = any(a is own and _number(b) == 1 for step in steps for a, b in (step.invars, step.invars[::-1]))
        return numbers[atom] if counts else None

    asked, found = list(_asked(condition)), []
    for own in asked:
        if own.primitive.name == "lt":
            first, last = first_of(own.invars[0]), known(own.invars[1])
            if first is not None and last is not None:
                found.append(max(0, last - first))
    return Turns(min(found), is_exact=len(asked) == 1) if found else None
