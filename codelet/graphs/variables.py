"""Variables: the state and the constants of a graph, and the numbers of their elements."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from codelet.errors import NotInGraphError
from codelet.programs.copies import Stream
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


class Variables:
    """The variables and constants of a graph.

    Attributes:
        by_name: in the order in which they were added.
        num_elements: of all of them, with the number that is left out behind each.
        copied: constants for numbers that programs copy, by these, each with its first destination.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Variable] = {}
        self.num_elements = 0
        self.copied: dict[tuple[object, ...], tuple[Tensor, Tensor | Stream]] = {}

    def add(
        self,
        graph: Graph,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        value: np.ndarray | None,
        *,
        is_aside: bool = False,
    ) -> Tensor:
        """A new variable, or a constant of this value; all of it is returned."""
        variable = Variable(graph, name, shape, dtype, len(self.by_name), self.num_elements, value, is_aside)
        self.by_name[name] = variable
        self.num_elements += variable.size + 1
        return whole_view(variable)

    def of_numbers(self, value: np.ndarray, destination: Tensor | Stream, made: Callable[[], Tensor]) -> Tensor:
        """The constant for numbers that a program copies: that of equal ones, or a new one, which is then made."""
        key = (value.dtype.name, value.shape, value.tobytes())
        if key not in self.copied:
            self.copied[key] = made(), destination
        return self.copied[key][0]

    def in_order(self) -> tuple[Variable, ...]:
        """All of them, in the order in which they were added."""
        return tuple(self.by_name.values())

    def locate(self, element: int) -> tuple[Variable, int]:
        """The variable of an element, by the graph's number for it, and its flat position there."""
        variables = self.in_order()
        found = variables[bisect.bisect_right(variables, element, key=lambda variable: variable.first_element) - 1]
        return found, element - found.first_element

    def element_text(self, element: int) -> str:
        """An element as the user would write it: `y[3, 2]`."""
        found, position = self.locate(element)
        where = ", ".join(map(str, np.unravel_index(position, found.shape)))
        return f"{found.name}[{where}]"

    def whole(self, name: str) -> Tensor:
        """A view of all of a variable, by its full name.

        Raises:
            NotInGraphError: a name no variable has.
        """
        found = self.by_name.get(name) if isinstance(name, str) else None
        if found is None:
            raise NotInGraphError(
                f"the graph has no variable {name!r:.80}",
                given=f"{name!r:.80}",
                expected=", ".join(self.by_name) or "none: it has no variables",
            )
        return whole_view(found)
