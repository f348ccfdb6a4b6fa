"""Sorting by a comparison, and the greatest of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo.attributes import by_name, constant_of, direction_of, element_of, word
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes
from codelet.stablehlo.operations.element_wise import in_total_order


class SortKey(NamedTuple):
    """What elements are compared by.

    Attributes:
        value: of the comparison's block, of the first of both elements or the second.
        operand: the number of the operand that it is, where lax.sort compares that as the block does; else None.
        is_falling: whether the greater comes first.
        is_total: whether all bits count, so that -0 comes before 0 and NaNs are told apart by their sign.
    """

    value: Any
    operand: int | None
    is_falling: bool
    is_total: bool


_NOTHING: frozenset[int] = frozenset()


class _SortBlock:
    """The comparison of a sort: what each value of its block is a function of.

    Args:
        item: the sort.
    """

    def __init__(self, item: HloOperation):
        self._item, self._arguments = item, item.arguments[0]
        self.operations = [operation.operation for operation in item.blocks[0]]
        self._numbers: dict[Any, int] = {}
        self._known: dict[Any, tuple[int, int, frozenset[int]]] = {}
        for k, argument in enumerate(self._arguments):
            number, side = divmod(k, 2)
            self._known[argument] = (self._number(number, side), self._number(number, 1 - side), frozenset((side,)))
        self.makers = {result: operation for operation in self.operations for result in operation.results}
        for operation in self.operations[:-1]:
            self._enter(operation)

    def _number(self, *what: Any) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _enter(self, operation: Any) -> None:
        has_regions = len(list(operation.regions)) > 0  # such an operation is like no other
        about = (
            operation if has_regions else str(operation.name),
            *((name, str(value)) for name, value in by_name(operation.attributes).items()),
            *(str(result.type) for result in operation.results),
        )
        operands = [self._of(operand) for operand in operation.operands]
        sides = frozenset().union(*(operand[2] for operand in operands))
        for k, result in enumerate(operation.results):
            here, there = (self._number(*about, k, *(operand[side] for operand in operands)) for side in (0, 1))
            self._known[result] = here, there, sides

    def _of(self, value: Any) -> tuple[int, int, frozenset[int]]:
        """Numbers for the function that a value is, and for that with both elements exchanged; which it is of."""
        if value not in self._known:  # of an outer block
            number = self._number("outer", value)
            self._known[value] = number, number, _NOTHING
        return self._known[value]

    def _is_constant(self, value: Any, constant: float) -> bool:
        operation = self.makers.get(value)
        if operation is None:
            found = self._item.value_of(value)
        else:
            found = constant_of(operation) if str(operation.name) == "stablehlo.constant" else None
        return isinstance(found, np.ndarray) and np.array_equal(found, np.full_like(found, constant), equal_nan=True)

    def _choice(self, value: Any, direction: str, constant: float) -> tuple[Any, Any, Any] | None:
        """What is compared where a value is a constant if that holds, and the value if not; None of any other value."""
        operation = self.makers.get(value)
        if operation is None or str(operation.name) != "stablehlo.select":
            return None
        which, chosen, rest = operation.operands
        test = self.makers.get(which)
        if test is None or str(test.name) != "stablehlo.compare" or not self._is_constant(chosen, constant):
            return None
        if direction_of(test) != direction or _is_total(test):
            return None
        return *test.operands, rest

    def _made_canonical(self, value: Any) -> Any:
        """The argument of which a value is that with one zero and one NaN, as JAX compares numbers; or None."""
        outer = self._choice(value, "NE", np.nan)
        inner = None if outer is None else self._choice(outer[2], "EQ", 0.0)
        if outer is None or inner is None:
            return None
        (argument, again, _), (compared, zero, rest) = outer, inner
        is_canonical = argument in self._arguments and argument == again == compared == rest
        return argument if is_canonical and self._is_constant(zero, 0.0) else None

    def key(self, operation: Any) -> SortKey | None:
        """What a comparison compares, if that is the same function of one element and of the other."""
        if operation is None or str(operation.name) != "stablehlo.compare":
            return None
        if direction_of(operation) not in ("LT", "GT"):
            return None
        left, right = map(self._of, operation.operands)
        if left[0] != right[1] or len(left[2]) != 1 or left[2] == right[2]:
            return None
        value, (side,) = operation.operands[0], left[2]
        is_falling, is_total = (direction_of(operation) == "GT") != (side == 1), _is_total(operation)
        operand = value if value in self._arguments and not is_total else None
        if operand is None and is_total and not is_falling:
            operand = self._made_canonical(value)
        return SortKey(value, None if operand is None else self._arguments.index(operand) // 2, is_falling, is_total)

    def _numbers_of(self, comparison: Any) -> set[int]:
        return {self._of(operand)[0] for operand in comparison.operands}

    def is_tie(self, value: Any, operation: Any) -> bool:
        """Whether a value says that both elements are the same to a comparison."""
        same, numbers = self.makers.get(value), self._numbers_of(operation)
        if same is None or str(same.name) != "stablehlo.compare" or direction_of(same) != "EQ":
            return False
        return self._numbers_of(same) == numbers and _is_total(same) == _is_total(operation)


def _is_total(comparison: Any) -> bool:
    kind = comparison.attributes.get("compare_type")
    if kind is None or word(kind) != "TOTALORDER":
        return False
    return bool(jnp.issubdtype(element_of(comparison.operands[0].type), jnp.floating))


def _keys(item: HloOperation) -> list[SortKey] | None:
    """The keys of a comparison, the first first; None where it is another one than of keys in order."""
    block = _SortBlock(item)

    def of(value: Any) -> list[SortKey] | None:
        operation = block.makers.get(value)
        first = block.key(operation)
        if first is not None:
            return [first]
        if operation is None:
            return None
        if str(operation.name) == "stablehlo.select":  # equal: by the rest; else by this
            same, rest, this = operation.operands
            return _followed(block, of, this, same, rest)
        if str(operation.name) == "stablehlo.or":
            for this, both in (operation.operands, list(operation.operands)[::-1]):
                inner = block.makers.get(both)
                if inner is not None and str(inner.name) == "stablehlo.and":
                    for same, rest in (inner.operands, list(inner.operands)[::-1]):
                        found = _followed(block, of, this, same, rest)
                        if found is not None:
                            return found
        return None

    return of(block.operations[-1].operands[0])


def _followed(
    block: _SortBlock, of: Callable[[Any], list[SortKey] | None], this: Any, same: Any, rest: Any
) -> list[SortKey] | None:
    """A key and those after it: `this` compares by it, `same` tells a tie, `rest` what decides then."""
    maker = block.makers.get(this)
    key = block.key(maker)
    others = of(rest) if key is not None and block.is_tie(same, maker) else None
    return None if key is None or others is None else [key, *others]


def _falling(x: Any) -> Any:
    """Numbers in the opposite order."""
    return -x if jnp.issubdtype(x.dtype, jnp.inexact) else lax.bitwise_not(x)


def _column(operation: HloOperation, key: SortKey, operands: Sequence[Any]) -> Any:
    """What elements are sorted by, as lax.sort sorts."""
    if key.operand is not None:
        column = operands[key.operand]
    else:

        def of_element(*elements: Any) -> Any:
            both = [element for element in elements for _ in range(2)]
            return operation.regions[0](*both, wanted=[key.value])[0]  # type: ignore[call-arg]

        flat = jax.vmap(of_element)(*(jnp.asarray(x).reshape(-1) for x in operands))
        column = jnp.asarray(flat).reshape(jnp.shape(operands[0]))
        column = in_total_order(column) if key.is_total else column
    return _falling(column) if key.is_falling else column


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
    by = [_column(operation, key, operands) for key in keys]
    output = lax.sort(
        (*by, *operands), dimension=dimension, is_stable=bool(operation.number("is_stable")), num_keys=len(by)
    )
    return tuple(output[len(by) :])


@computes("chlo.top_k")
def top_k(operation: HloOperation, x: Any) -> Any:
    """The greatest of each row, and where they are."""
    return tuple(lax.top_k(x, operation.number("k")))
