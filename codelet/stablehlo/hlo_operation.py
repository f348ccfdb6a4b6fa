"""Operations of StableHLO, as the functions of `operations/` see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codelet.errors import ModelError
from codelet.stablehlo import attributes as read

Region = Callable[..., list[Any]]
"""A region as a function of the values of its arguments; it sees those around it.

It returns what it ends with, or of `wanted=` what these values of it are.
"""


class HloOperation:
    """An operation.

    Attributes:
        name: without the dialect.
        regions: as functions.
        call: from the name of a function of the module and operands to its results.
        value_of: from a value of MLIR's, of this or an outer block, to its meaning; None where that is not known.
        blocks: the operations of each region, as MLIR has them.
    """

    def __init__(
        self,
        operation: Any,
        regions: Sequence[Region],
        call: Callable[..., list[Any]],
        value_of: Callable[[Any], Any],
    ):
        self._own, self.regions, self.call, self.value_of = operation, regions, call, value_of
        self.name = str(operation.name)
        self.blocks = [list(region.blocks[0].operations) if len(region.blocks) else [] for region in operation.regions]
        self.arguments = [
            list(region.blocks[0].arguments) if len(region.blocks) else [] for region in operation.regions
        ]

    def made_by(self, k: int) -> tuple[str, int]:
        """The operation that gives an operand, and its dimension where it has one; "" and -1 of an argument."""
        owner = self._own.operands[k].owner
        if not hasattr(owner, "name"):
            return "", -1
        dimension = owner.attributes.get("iota_dimension")
        return str(owner.name), -1 if dimension is None else read.number(dimension)

    def is_read(self, k: int) -> bool:
        """Whether anything reads a result."""
        return any(True for _ in self._own.results[k].uses)

    def constant(self) -> np.ndarray:
        """The elements of a constant."""
        return read.constant_of(self._own)

    def has(self, name: str) -> bool:
        """Whether there is an attribute."""
        return name in self._own.attributes

    def attribute(self, name: str) -> Any:
        """An attribute, as MLIR has it."""
        return self._own.attributes[name]

    def numbers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Integers; others where they are left out."""
        return read.numbers(self.attribute(name)) if self.has(name) else tuple(default)

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Pairs of numbers; zeros where they are left out."""
        return read.pairs(self.attribute(name)) if self.has(name) else ((0, 0),) * count

    def number(self, name: str, default: int = 0) -> int:
        """An integer, or a boolean."""
        return read.number(self.attribute(name)) if self.has(name) else default

    def word(self, name: str, default: str = "") -> str:
        """A word of a closed list."""
        return read.word(self.attribute(name)) if self.has(name) else default

    def text(self, name: str, default: str = "") -> str:
        """A string, or the name of a function."""
        return str(self.attribute(name)).strip('"@') if self.has(name) else default

    def shape(self, k: int = 0) -> tuple[int, ...]:
        """The shape of a result."""
        return read.shape_of(self._own.results[k].type)

    def dtype(self, k: int = 0) -> np.dtype:
        """The dtype of a result."""
        return read.element_of(self._own.results[k].type)

    @property
    def num_results(self) -> int:
        """How many results there are."""
        return len(self._own.results)

    def error(self, what: str, *, given: Any, expected: str) -> ModelError:
        """An error that names the operation."""
        return ModelError(f"{self.name}: {what}", given=given, expected=expected)
