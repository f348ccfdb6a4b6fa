"""Sorting by a comparison, and the greatest of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from codelet.stablehlo.attributes import direction_of
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes


class SortKey(NamedTuple):
    """The comparison: the number of an operand, and whether the greater comes first."""

    operand: int
    is_falling: bool


def _number(value: Any, arguments: Any, makers: dict[Any, Any]) -> tuple[int, int] | None:
    """The operand that a value is of, and which of the two that are compared; None where it is of several.

    Numbers that JAX makes of floating-point ones before it compares them, as zero of both its signs, are the same key.
    """
    seen, todo = set(), [value]
    while todo:
        operation = todo.pop()
        if operation in arguments:
            seen.add(arguments.index(operation))
        elif operation in makers:
            todo += list(makers[operation].operands)
    return divmod(seen.pop(), 2) if len(seen) == 1 else None


def _keys(item: HloOperation) -> list[SortKey] | None:
    """The keys of a comparison, the first first; None where it is another one than of keys in order."""
    arguments, block = item.arguments[0], [one.operation for one in item.blocks[0]]
    makers = {result: one for one in block for result in one.results}

    def compared(one: Any, directions: tuple[str, ...]) -> SortKey | None:
        if str(one.name) != "stablehlo.compare":
            return None
        how = direction_of(one)
        sides = [_number(side, arguments, makers) for side in one.operands]
        if how not in directions or None in sides or sides[0][0] != sides[1][0] or sides[0][1] == sides[1][1]:  # type: ignore[index]
            return None
        return SortKey(sides[0][0], (how in ("GT", "GE")) != (sides[0][1] == 1))  # type: ignore[index]

    def of(value: Any) -> list[SortKey] | None:
        one = makers.get(value)
        if one is None:
            return None
        first = compared(one, ("LT", "GT"))
        if first is not None:
            return [first]
        if str(one.name) == "stablehlo.select":  # equal: by the rest; else by this
            same, rest, this = (makers.get(operand) for operand in one.operands)
            if same is None or this is None or compared(same, ("EQ",)) is None:
                return None
            own_key, others_value = compared(this, ("LT", "GT")), of(one.operands[1])
            return None if own_key is None or others_value is None else [own_key, *others_value]
        if str(one.name) == "stablehlo.or":
            for this, both in (one.operands, list(one.operands)[::-1]):
                own_key, inner = compared(makers[this], ("LT", "GT")) if this in makers else None, makers.get(both)
                if own_key is None or inner is None or str(inner.name) != "stablehlo.and":
                    continue
                for same, rest in (inner.operands, list(inner.operands)[::-1]):
                    others_value = of(rest)
                    if same in makers and compared(makers[same], ("EQ",)) is not None and others_value is not None:
                        return [own_key, *others_value]
        return None

    return of(block[-1].operands[0])


def _falling(x: Any) -> Any:
    """Numbers in the opposite order."""
    return -x if jnp.issubdtype(x.dtype, jnp.floating) else lax.bitwise_not(x)


@computes("stablehlo.sort")
def sort(operation: HloOperation, *operands: Any) -> Any:
    """Sorted along a dimension, by one operand or by several."""
    keys = _keys(operation)
    if keys is None:
        raise operation.error(
            "it compares in another way than by keys in order",
            given="a comparison of its own",
            expected="less, or greater, of one operand after another",
        )
    dimension = operation.number("dimension", -1) % operands[0].ndim
    by = [_falling(operands[key.operand]) if key.is_falling else operands[key.operand] for key in keys]
    output = lax.sort(
        (*by, *operands), dimension=dimension, is_stable=bool(operation.number("is_stable")), num_keys=len(by)
    )
    return tuple(output[len(by) :])


@computes("chlo.top_k")
def top_k(operation: HloOperation, x: Any) -> Any:
    """The greatest of each row, and where they are."""
    return tuple(lax.top_k(x, operation.number("k")))
