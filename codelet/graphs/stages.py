"""Stages: how the vertices of a compute set are cut from a grid of elements, and the axes that each field moves along.

In come cuts of named dimensions, and a function from the elements of a vertex to its fields. Out comes what a record of
an operation says of a compute set. These are its axes, how it is cut, and along which of them it reads and writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class Cut:
    """A dimension, cut over tiles, and on each tile over vertices.

    Attributes:
        name: of the dimension, in print.
        extent: of all of it, in elements.
        block: elements of a tile; the last has the rest.
        grain: elements of a vertex; divides `block`, or is all of it. The last vertex has the rest.
    """

    name: str
    extent: int
    block: int
    grain: int

    def __post_init__(self) -> None:
        assert 1 <= self.grain <= self.block <= max(1, self.extent), self
        assert self.block % self.grain == 0 or self.block >= self.extent, self

    @property
    def parts(self) -> int:
        """Over how many tiles it is cut."""
        return -(-self.extent // self.block)

    @property
    def vertices(self) -> int:
        """Into how many vertices it is cut."""
        return -(-self.extent // self.grain)

    @property
    def vertices_of_tile(self) -> int:
        """How many of them a tile has, that with the most."""
        return -(-self.block // self.grain)

    def __str__(self) -> str:
        whole = f"{self.name} {self.extent:,}"
        if self.parts == 1 and self.vertices == 1:
            return f"{whole} whole"
        cut = f"{whole} in {self.parts:,} x {self.block:,}"
        return cut if self.grain == self.block else f"{cut}, each in {self.vertices_of_tile:,} x {self.grain:,}"


class Block(NamedTuple):
    """The elements of a vertex along a dimension; both may depend on symbols.

    Attributes:
        number: of the vertex along the dimension.
        elements: a slice, whose length does not depend on symbols.
    """

    number: Any
    elements: slice


@dataclass(frozen=True, eq=False)
class Stage:
    """Vertices that make the blocks of a grid of elements.

    Attributes:
        codelet: makes a block, whatever its size.
        cuts: of the axes, which have names and extents.
        fields: from a `Block` for each axis to the fields of the vertex that makes it.
    """

    codelet: Codelet
    cuts: tuple[Cut, ...]
    fields: Callable[..., Mapping[str, Any]]

    def _tensors(self, *blocks: Block) -> dict[str, Tensor]:
        return {name: own for name, own in self.fields(*blocks).items() if isinstance(own, Tensor)}

    @functools.cached_property
    def along(self) -> dict[str, tuple[str, ...]]:
        """For each field that is connected the axes that it moves along, by their names.

        Along an axis on which no result moves, a vertex combines elements. Where a result has one number for each block
        along an axis, as partial sums have, it moves along that, too.
        """
        first = [Block(0, slice(0, cut.grain)) for cut in self.cuts]
        before = self._tensors(*first)
        found: dict[str, list[str]] = {name: [] for name in before}
        for d, cut in enumerate(self.cuts):
            if cut.extent < 2:
                continue
            is_whole = cut.grain >= cut.extent
            other = Block(0, slice(0, 1)) if is_whole else Block(1, slice(cut.grain, min(2 * cut.grain, cut.extent)))
            for name, own in self._tensors(*first[:d], other, *first[d + 1 :]).items():
                if own.shape != before[name].shape or (own.index.values(()) != before[name].index.values(())).any():
                    found[name].append(cut.name)
        return {name: tuple(axes) for name, axes in found.items()}

    def __str__(self) -> str:
        fields = ", ".join(f"{name}[{', '.join(axes)}]" for name, axes in self.along.items())
        cuts = "; ".join(map(str, self.cuts))
        return f"{self.codelet.name} of {fields}" + (f"; {cuts}" if cuts else "")
