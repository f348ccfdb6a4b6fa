"""Loops and branches."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo import attributes
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


def _constant(value: Any, makers: dict[Any, Any], outside: Any) -> int | None:
    """An integer that a region reads, from within or from around it."""
    maker = makers.get(value)
    if maker is not None and str(maker.name) == "stablehlo.constant":
        result = attributes.dense(maker.attributes["value"])
    else:
        result = outside(value)
    if isinstance(result, np.ndarray) and result.ndim == 0 and jnp.issubdtype(result.dtype, jnp.integer):
        return int(result)
    return None


def _turns(item: HloOperation, operands: Any) -> int | None:
    """How often a loop runs, where a counter says so before it does; None where none does."""
    condition, body = ([one.operation for one in block] for block in item.blocks)
    in_condition = {result: one for one in condition for result in one.results}
    in_body = {result: one for one in body for result in one.results}
    asked = in_condition.get(condition[-1].operands[0])
    if asked is None or str(asked.name) != "stablehlo.compare":
        return None
    if attributes.direction_of(asked) != "LT" or asked.operands[0] not in item.arguments[0]:
        return None
    number = item.arguments[0].index(asked.operands[0])
    limit = _constant(asked.operands[1], in_condition, item.value_of)
    if limit is None and asked.operands[1] in item.arguments[0]:  # carried along unchanged
        k = item.arguments[0].index(asked.operands[1])
        unchanged = body[-1].operands[k] == item.arguments[1][k]
        limit = int(operands[k]) if unchanged and isinstance(operands[k], np.ndarray) else None
    start = operands[number]
    step = in_body.get(body[-1].operands[number])
    if (
        limit is None
        or step is None
        or str(step.name) != "stablehlo.add"
        or not isinstance(start, np.ndarray)
        or start.ndim
    ):
        return None
    sides = list(step.operands)
    if item.arguments[1][number] not in sides:
        return None
    sides.remove(item.arguments[1][number])
    by = _constant(sides[0], in_body, item.value_of)
    if by is None or by <= 0:
        return None
    return max(0, -(-(limit - int(start)) // by))


@computes("stablehlo.while", keeps_constants=True)
def while_loop(operation: HloOperation, *operands: Any) -> Any:
    """A region as long as a condition holds; so often as its counter says, where there is one."""
    condition, body = operation.regions
    turns = _turns(operation, operands)
    state = tuple(map(jnp.asarray, operands))
    if turns is None:
        return tuple(lax.while_loop(lambda s: condition(*s)[0], lambda s: tuple(map(jnp.asarray, body(*s))), state))
    turn = lambda s, _: (tuple(map(jnp.asarray, body(*s))), None)  # noqa: E731
    result, _ = lax.scan(turn, state, length=turns)
    return tuple(result)


@computes("stablehlo.case")
def case(operation: HloOperation, which: Any) -> Any:
    """One of several regions, by its number; the last for any other."""
    branches = [lambda region=region: tuple(map(jnp.asarray, region())) for region in operation.regions]
    last = len(branches) - 1
    return tuple(lax.switch(jnp.where((which < 0) | (which > last), last, which), branches))


@computes("stablehlo.if")
def branch(operation: HloOperation, which: Any) -> Any:
    """One of two regions."""
    taken, other = (lambda region=region: tuple(map(jnp.asarray, region())) for region in operation.regions)
    return tuple(lax.cond(which, taken, other))
