"""Contributions: all that a step gives to cotangents, each in the form that suits it.

In come contributions, and which elements have a cotangent. Out come sums (`sums.py`, `shifted.py`), and which elements
have one then. A dimension along which contributions are the same is reduced first. Those whose places are affine are
collected, variable by variable, and summed together as far as that costs less; one that nobody else touches is copied,
or added. Any other is listed by the elements that receive it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from codelet.tracing.adjoints import AdjointFields, adjoint_of
from codelet.views.sources import Patchwork, Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_tensor, variable_of
from lowering.adjoint.fields import dropped_dimensions, is_injective, places_of
from lowering.adjoint.flows import FamilyFlow, Flows
from lowering.adjoint.shifted import Contribution, Shifted, ShiftedBox, boxes, elements_of, grouped, located
from lowering.adjoint.sum_vertices import summed
from lowering.adjoint.sums import Sums, of_other_variables
from lowering.plan.elements import Elements, ElementSet


def _first(given: Contribution) -> Contribution:
    """A contribution at the first position along all dimensions that do not tell elements apart."""
    dropped = dropped_dimensions(given.places)
    items = tuple(0 if d in dropped else slice(None) for d in range(given.places.ndim))
    own = {name: tensor[items] for name, tensor in given.given.items()}
    return replace(given, given=own, places=given.places[items])


class Contributions:
    """Adds contributions to cotangents.

    Attributes:
        sums: by which.
        flows: which elements have cotangents where.
        cotangent: the variable that holds those of another.
    """

    def __init__(self, sums: Sums, flows: Flows, cotangent: Callable[[Variable], Variable]):
        self.sums, self.flows, self.cotangent = sums, flows, cotangent

    def held(self, given: Contribution) -> dict[Variable, Tensor]:
        """The cotangents of the variables that a contribution is for."""
        own = (v for v in source_variables(given.source) if v in self.flows.varied)
        return {variable: whole_view(self.cotangent(variable)) for variable in own}

    def elements(self, group: Sequence[ShiftedBox], target: Shifted) -> ElementSet:
        """The elements that sums are for."""
        found, variable = Elements.nothing(target.variable.size), target.variable
        for box in group:
            index = elements_of(box, target.view).index
            found = found | Elements.of_view(index, (), variable.size, variable.name)
        return ElementSet({variable: found})

    def linear(
        self, flow: FamilyFlow, present: ElementSet, received: ElementSet, kept: ElementSet
    ) -> tuple[FamilyFlow, list[Contribution]]:
        """The contributions of a family that depend on nothing but cotangents, and the rest of it.

        It is summed over cotangents where that reads no more than to hold it would read and write.

        Args:
            flow: the adjoint of the family.
            present: the elements that have a cotangent.
            received: the elements to which the families of the compute set contribute.
            kept: the elements whose cotangents are still to be read.
        """
        size = lambda name: math.prod(flow.family.by_name[name].type.shape)  # noqa: E731
        is_worth = lambda fields: not fields.primals and sum(map(size, fields.cotangents)) <= 2  # noqa: E731
        found = self.by_elements(flow, present, received, kept, is_worth)
        names = {own.field for own in found}
        left = () if flow.adjoint is None else [own for own in flow.adjoint.fields.contributions if own not in names]
        return flow.of(left) if found else flow, found

    def by_elements(
        self,
        flow: FamilyFlow,
        present: ElementSet,
        received: ElementSet,
        kept: ElementSet,
        is_worth: Callable[[AdjointFields], bool],
    ) -> list[Contribution]:
        """The contributions of a family through fields of one element, as sums at shifted places can make them.

        Arguments as of `linear`, and whether one is worth it, by the fields of the adjoint.

        Returns:
            Contributions. Their values of the forward pass are where the forward pass has them.
        """
        family, adjoint, found = flow.family, flow.adjoint, list[Contribution]()

        @functools.cache
        def view(name: str, is_slope: bool) -> Tensor | None:
            """The elements read of a field or of its cotangents, over all vertices; one object, which is
            padded once.
            """
            tensor = family.by_name[name].tensor
            if tensor is None or tensor.rows is not None:
                return None
            if is_slope:
                tensor = of_other_variables(tensor, {v: self.cotangent(v) for v in source_variables(tensor.source)})
            return Tensor(tensor.source, tensor.index.lifted(family.axes))

        for name in () if adjoint is None or family.rows else adjoint.fields.contributions:
            assert adjoint is not None
            tensor = family.by_name[name].tensor
            of = adjoint_of(family.codelet, [name], [*adjoint.fields.cotangents])
            assert tensor is not None
            if of is None:  # a rule that asks which of its operands move gives it something beside others alone
                continue
            slopes, primals = of.fields.cotangents, of.fields.primals
            read = (self.flows.touched(family, family.by_name[own]) for own in slopes)
            is_apart = (functools.reduce(ElementSet.__or__, read, ElementSet()) & received).is_empty
            is_small = tensor.size == 1 and name not in slopes and is_worth(of.fields)
            if not is_small or not is_apart or flow.is_straight(name, present):
                continue
            places = places_of(family, tensor).reshape(family.extents)
            if primals and (dropped_dimensions(places) or not of.is_zero_at_zeros):
                continue
            views = {own: view(name, False) for name, own in primals.items()}
            views.update((own, view(name, True)) for name, own in slopes.items())
            given = {own: held for own, held in views.items() if held is not None}
            if len(given) < len(views):
                continue
            made = Contribution(family.compute_set.name, name, given, places, tensor.source, flow.received[name], of)
            if self._is_shifted(located(_first(made), self.held(made)), kept):
                found.append(made)
        return found

    def _is_shifted(self, places: Sequence[Shifted] | None, kept: ElementSet) -> bool:
        """Whether a contribution can be summed at shifted places, and no element is touched that is kept."""
        for own in places or ():
            made = boxes([own])
            if made is None or not self._may_be([own], made, kept):
                return False
        return places is not None

    def add(self, given: Iterable[Contribution], present: ElementSet, kept: ElementSet) -> ElementSet:
        """Add contributions of one step.

        Args:
            given: the contributions.
            present: the elements that have a cotangent.
            kept: those whose cotangents are still to be read.

        Returns:
            The elements that have one then.
        """
        shifted: dict[Variable, list[Shifted]] = {}
        others = []
        for own in given:
            if own.elements.is_empty or not own.places.size:
                continue
            few = self._reduced(own)
            places = located(few, self.held(few))
            if places is None or not self._is_shifted(places, kept):
                others.append(few)
                continue
            for part in places:
                shifted.setdefault(part.variable, []).append(part)
        step = self.sums.num_workers
        for parts in shifted.values():
            for members, made in grouped(parts, step, lambda members, made: self._may_be(members, made, kept)):
                present = self._summed(members, made, present)
        for own in others:
            present = self._alone(own, present, kept)
        return present

    def _may_be(self, members: Sequence[Shifted], made: Sequence[ShiftedBox], kept: ElementSet) -> bool:
        """Whether sums touch no element that is still to be read, but for those that they are for."""
        extra = self.elements(made, members[0])
        for own in members:
            extra = extra - own.contribution.elements
        return (extra & kept).is_empty

    def _reduced(self, given: Contribution) -> Contribution:
        """A contribution summed over all dimensions that do not tell elements apart."""
        dropped = dropped_dimensions(given.places)
        if not dropped:
            return given
        own = {name: self.sums.reduced(given.name, tensor, dropped) for name, tensor in given.given.items()}
        items = tuple(0 if d in dropped else slice(None) for d in range(given.places.ndim))
        return replace(given, given=own, places=given.places[items])

    def _summed(self, members: Sequence[Shifted], made: Sequence[ShiftedBox], present: ElementSet) -> ElementSet:
        """Sum contributions together; one alone that no two dimensions share is copied, or added."""
        first, variable = members[0].contribution, members[0].variable
        is_alone = len(members) == 1 and first.adjoint is None and isinstance(first.source, Variable)
        if is_alone and is_injective(first.places):
            return self._alone(first, present, ElementSet())
        region = self.elements(made, members[0]).of(variable)
        held = present.of(variable)
        is_added = (region & held).first is not None
        if is_added:
            self.sums.zero(self.cotangent(variable), region - held)
        name = f"{first.name if len(members) == 1 else f'{first.step}/{variable.name}'}/sum"
        self.sums.run_all(name, summed(made, members[0].view, self.sums.num_workers, is_added))
        return present | ElementSet({variable: region})

    def _alone(self, given: Contribution, present: ElementSet, kept: ElementSet) -> ElementSet:
        """Add one contribution to a source: by itself, or, for the elements of a patchwork, to all of that first."""
        name, values, places, source = given.name, given.values, given.places, given.source
        if isinstance(source, Variable):
            if source not in self.flows.varied:
                return present
            now = self.sums.add(name, values, places, self.cotangent(source), present.of(source), kept.of(source))
            return present | ElementSet({source: now})
        assert isinstance(source, Patchwork)
        joined = variable_of(new_tensor(self.sums.graph, f"{name}/joined", source.shape, source.dtype))
        nothing = Elements.nothing(joined.size)
        held = self.sums.add(name, values, places, joined, nothing, nothing)
        for patch in source.patches:
            if patch.variable is not None and patch.variable in self.flows.varied:
                own = Elements.of_view(patch.places, (), joined.size, joined.name)
                if (own & held).first is not None:
                    self.sums.zero(joined, own - held)
                    held = held | own
                    of = {"": Tensor(joined, patch.places)}
                    part = Contribution(given.step, given.field, of, patch.index, patch.variable, given.elements)
                    present = self._alone(part, present, kept)
        return present
