"""Descriptions: the function by which vertices compute each element, over named axes, whatever blocks they were cut
into.

A description has the axes, the elements read and written at each place of them, and the function of the elements that
are read. It also has the operation that combines elements along axes on which no result moves. It stands for no vertex:
it is found in vertices, and printed as an equation:
`out[rows, columns] = sum over summed of a[rows, summed] * b[summed, columns]`.

Source: the generic operation of MLIR's linalg, https://mlir.llvm.org/docs/Dialects/Linalg/.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jax.extend import core as jax_core

from codelet.display import in_one_line
from codelet.programs.compute_sets import ComputeSet
from codelet.views.access import Access
from codelet.views.grids import Axis, Key
from codelet.views.line import Line
from codelet.views.sources import Source

Role = Literal["parallel", "reduction", "window"]


@dataclass(frozen=True, eq=False)
class Operand:
    """The elements that are read, or written, at each place of some axes.

    Attributes:
        name: of the field.
        source: the variable, or the patchwork, that it is an element or a block of; None for a number that a vertex
            has, which is the position along one dimension.
        access: where in it, along each of its dimensions, or of these with neighbours made one; over the axes, and over
            the dimensions of a block, by number.
    """

    name: str
    source: Source | None
    access: Access

    @property
    def is_element(self) -> bool:
        """Whether it is one element, no block."""
        return not any(isinstance(key, int) for key in self.access.extents)

    def _place(self, line: Line, extent: int, called: Mapping[Key, str]) -> str:
        """Where it is along a dimension, in print: all of it, or the line."""
        is_all = not line.start and not line.tables and line.divisor == 1 and len(line.steps) == 1
        key, step = line.steps[0] if is_all else (None, 0)
        is_all = isinstance(key, int) and step == 1 and self.access.extents[key] == extent
        return ":" if is_all else line.text(called)

    def text(self, names: Mapping[Axis, str]) -> str:
        """It in print: `a[rows, summed]`."""
        called = {**names, **{key: f"f{key}" for key in self.access.extents if isinstance(key, int)}}
        lines = zip(self.access.lines, self.access.shape, strict=True)
        places = ", ".join(self._place(line, extent, called) for line, extent in lines)
        if self.source is None:
            return places
        return f"{self.name}[{places}]" if places else self.name


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """The function of vertices for each element; see the module's docstring.

    Attributes:
        compute_sets: those whose vertices compute it, in order. Of several, the elements that the last one writes of
            those that the first one read, partial results between them left out.
        names: of the axes.
        operands: the elements read.
        results: the elements written.
        element: the function of an element of each operand, or of a block.
        combine: how the elements along axes on which no result moves become one: "sum", "max"; None without any.
        combined_in: the dtype of that.
        called: the name of the function, in print.
    """

    compute_sets: tuple[ComputeSet, ...]
    names: Mapping[Axis, str]
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    element: jax_core.ClosedJaxpr
    combine: str | None = None
    combined_in: np.dtype | None = None
    called: str = ""

    @property
    def axes(self) -> dict[str, int]:
        """The extent of each axis, by its name."""
        return {name: axis.extent for axis, name in self.names.items()}

    @functools.cached_property
    def _roles(self) -> dict[str, Role]:
        parallel = {key for own in self.results for line in own.access.lines for key in line.keys}
        slid = [
            {key for line in own.access.lines if line.keys & parallel for key in line.keys} for own in self.operands
        ]

        def role(axis: Axis) -> Role:
            if axis in parallel:
                return "parallel"
            slides = [axis in keys for keys in slid]
            return "window" if any(slides) and (len(slides) == 1 or not all(slides)) else "reduction"

        return {name: role(axis) for axis, name in self.names.items()}

    def role(self, name: str) -> Role:
        """The kind of an axis: one that results move along, or one that is reduced.

        It is a window's where it moves along a dimension of an operand together with an axis that results move along.
        Along another operand, if there is one, it does not.
        """
        return self._roles[name]

    @property
    def _steps(self) -> list[str]:
        """The primitives that make an element, but for casts."""
        names = [eqn.primitive.name for eqn in self.element.jaxpr.eqns]
        return [name for name in names if name != "convert_element_type"]

    @property
    def _multiplies(self) -> bool:
        """Whether it makes products of two operands."""
        return len(self.operands) == 2 and self._steps == ["mul"]

    @property
    def kind(self) -> str:
        """Its kind, by its axes and by its function: "product", "convolution", "reduction", "map" or "blocks"."""
        if not all(own.is_element for own in (*self.operands, *self.results)):
            return "blocks"
        if self.combine is None:
            return "map"
        if not self._multiplies or self.combine != "sum":
            return "reduction"
        return "convolution" if "window" in map(self.role, self.axes) else "product"

    def __repr__(self) -> str:
        return in_one_line(self, "Description")

    def __str__(self) -> str:
        read = [own.text(self.names) for own in self.operands]
        if self.combine is not None and not self._steps and len(read) == 1:
            made = read[0]
        elif self._multiplies:
            made = " * ".join(read)
        else:
            made = f"{self.called}({', '.join(read)})"
        reduced = [name for name in self.axes if self.role(name) != "parallel"]
        if self.combine is not None and reduced:
            made = f"{self.combine} over {', '.join(reduced)} of {made}"
        return f"{', '.join(own.text(self.names) for own in self.results)} = {made}"
