"""Touches: what a step does with a view, said once, by the step itself; see `touches` of every kind of step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from codelet.errors import Line
from codelet.graphs.family import Family, Field
from codelet.views.grids import Axis
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view

Mode = Literal["read", "write", "update", "end"]


@dataclass(frozen=True, eq=False)
class Touch:
    """What a step does with a view.

    Attributes:
        mode: whether it reads the view, writes it, updates it, which is both, or ends the life of what it holds.
        tensor: the view.
        by: what an error calls the reader.
        line: the user's line that it is of.
        family: the vertices that do it, each at its place of their grid; None where no vertex does.
        field: that of the vertices.
    """

    mode: Mode
    tensor: Tensor
    by: Callable[[], str] = str
    line: Line | None = None
    family: Family | None = None
    field: Field | None = None

    @property
    def is_read(self) -> bool:
        """Whether elements are read."""
        return self.mode in ("read", "update")

    @property
    def is_written(self) -> bool:
        """Whether elements are written."""
        return self.mode in ("write", "update")

    @property
    def is_empty(self) -> bool:
        """Whether it touches nothing."""
        return not self.tensor.size or (self.family is not None and not self.family.num_vertices)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes over which the view is touched."""
        return () if self.family is None else self.family.axes

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that the view is of."""
        return source_variables(self.tensor.source)


def whole(mode: Mode, variable: Variable) -> Touch:
    """A touch of all of a variable."""
    return Touch(mode, whole_view(variable))


def wholly_written(touches: Iterable[Touch]) -> frozenset[Variable]:
    """The variables all of which the vertices of a step write: none of it twice, as is checked before."""
    counts: Counter[Variable] = Counter()
    for touch in touches:
        if touch.is_written and touch.family is not None and isinstance(touch.tensor.source, Variable):
            ragged = touch.tensor.rows is not None
            counts[touch.tensor.source] += 0 if ragged else touch.tensor.size * touch.family.num_vertices
    return frozenset(variable for variable, count in counts.items() if count == variable.size)
