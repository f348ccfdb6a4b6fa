"""Forms of steps: what two steps have in common between which tiles the same moves, by one placement or by several.

Layers of a network are alike, and mostly lie alike: what moves in one of their steps moves in those of the others. A
form names the variables of a step by their tiles, so that they may be others at other places of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from codelet.graphs.family import Family
from codelet.views.sources import Variable
from lowering.machine.placement import Placement
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.structure import array_key, tensor_key


class StepForms:
    """The forms of the steps of a placed plan.

    Args:
        placement: where everything lives.
    """

    def __init__(self, placement: Placement):
        self.placement = placement
        self._lying: dict[Variable, Hashable] = {}
        self._running: dict[Family, Hashable] = {}

    def _where(self, variable: Variable) -> Hashable:
        """How the elements of a variable lie on tiles."""
        if variable not in self._lying:
            own, order = self.placement.element_tiles.of_variable(variable), self.placement.orders.get(variable)
            columns = () if order is None else tuple(map(array_key, order))
            self._lying[variable] = variable.dtype.itemsize, array_key(own.tiles), array_key(own.stops), columns
        return self._lying[variable]

    def _namer(self) -> Callable[[Variable], Hashable]:
        """What names the variables of one step: by how they lie, and one that is there again as the same."""
        numbers: dict[Variable, int] = {}
        return lambda variable: (numbers.setdefault(variable, len(numbers)), self._where(variable))

    def of(self, step: ExecuteStep | CopyStep) -> Hashable:
        """The form of a step."""
        name = self._namer()
        if isinstance(step, CopyStep):
            return tensor_key(step.source, (), name), tensor_key(step.destination, (), name)
        return tuple(self._of_family(family, name) for family in step.families)

    def _of_family(self, family: Family, name: Callable[[Variable], Hashable]) -> Hashable:
        if family not in self._running:
            self._running[family] = array_key(self.placement.vertex_tiles[family])
        fields = ((field.kind, tensor_key(field.tensor, family.axes, name)) for field in family.fields)
        return family.extents, self._running[family], tuple(fields)
