"""Whole contributions: those of the families of a compute set together, whatever the blocks of the forward pass.

In come the flows of a compute set's families. The families that these are blocks of (`whole_families.py`) contribute as
one product by each operand, as one convolution by image and by kernel, as sums at shifted places; and the rest is
stored by all members in one array, which one sum reads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from codelet.graphs.family import Family
from codelet.jaxprs.equations import needed
from codelet.programs.copies import Copy
from codelet.tracing.adjoints import AdjointCodelet, adjoint_of
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_tensor
from lowering.adjoint.flows import FamilyFlow
from lowering.adjoint.gathered import as_gathering
from lowering.adjoint.saved import Body
from lowering.adjoint.shifted import Contribution
from lowering.adjoint.taps import tapped
from lowering.adjoint.whole_convolutions import WholeConvolution, as_whole_convolution
from lowering.adjoint.whole_families import Whole, contributions_together, whole_families
from lowering.adjoint.whole_lookups import additions
from lowering.adjoint.whole_products import WholeProduct, as_whole_product
from lowering.plan.elements import ElementSet

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward

Held = dict[Family, dict[str, Tensor]]
"""Where families that are parts of whole ones hold what they contribute: by field, as their vertices write it."""


def contribute_as_wholes(
    back: Backward, body: Body, number: int, flows: Sequence[FamilyFlow], received: ElementSet, kept: ElementSet
) -> tuple[list[FamilyFlow], Held, list[Contribution]]:
    """The contributions of the families of a compute set as whole ones.

    Args:
        back: the backward pass.
        body: the body that their compute set is run in.
        number: the place of the step there.
        flows: the adjoint of each family.
        received: the elements to which all of them contribute.
        kept: the elements whose cotangents are still to be read when all of them have run.

    Returns:
        The rest of each; where those that are parts of whole ones hold it; and contributions.
    """
    left, held = {flow.family: flow for flow in flows}, Held()
    products, found = list[Contribution](), list[Contribution]()
    for whole in _wholes(back, flows):
        adjoints = {own: adjoint for own in whole.members if (adjoint := left[own].adjoint) is not None}
        fields = {own: [*adjoint.fields.contributions] for own, adjoint in adjoints.items()}
        flow = _flow_of(back, whole.family, adjoints[whole.members[0]])
        if flow.adjoint is None or not set().union(*fields.values()).issubset(flow.adjoint.fields.contributions):
            continue
        flow, contributions = _products(back, body, number, whole, flow)
        flow, more = back.contributions.linear(flow, back.present, received, kept)
        flow, by_taps = _by_taps(back, body, number, flow, received, kept)
        more += by_taps
        products += contributions
        found += more
        names = [] if flow.adjoint is None else [*flow.adjoint.fields.contributions]
        for family in whole.members:
            held[family] = {}
            if contributions or more:
                left[family] = left[family].of([name for name in names if name in fields[family]])
        by_all = [name for name in names if all(name in own for own in fields.values())]
        found += _held_together(back, whole, flow.of(by_all) if by_all != names else flow, held)
    found = [*_as_they_lie(back, products), *found]
    return [left[flow.family] for flow in flows], held, found


def _flow_of(back: Backward, family: Family, adjoint: AdjointCodelet) -> FamilyFlow:
    """The adjoint of a whole family, of whose members an adjoint goes back through."""
    touched = [back.flows.touched(family, family.by_name[own]) for own in adjoint.fields.cotangents]
    return back.flows.of_family(family, functools.reduce(ElementSet.__or__, touched))


def _by_taps(
    back: Backward, body: Body, number: int, flow: FamilyFlow, received: ElementSet, kept: ElementSet
) -> tuple[FamilyFlow, list[Contribution]]:
    """The contribution of a family of elements by each element that it takes of a window; and the rest of it.

    Vertices that store contributions read their operands once, write an element for each tap, and the sums read it
    again. It is made by the sums where these read no more, and compute at most twice as much.
    """
    if flow.adjoint is None or (by_tap := tapped(flow.family)) is None:
        return flow, []
    family, taps = by_tap
    own = _flow_of(back, family, flow.adjoint)
    made = back.contributions.by_elements(own, back.present, received, kept, lambda fields: True)
    by_field, left, found = {part.field: part for part in made}, [], []
    for name in flow.adjoint.fields.contributions:
        parts = [by_field[tap] for tap in taps.get(name, ()) if tap in by_field]
        reads = sum(own.num_reads for own in parts)
        if 0 < len(parts) == len(taps.get(name, ())) and reads <= 3 * len(parts):
            found += parts
        else:
            left.append(name)
    equations = [len(needed(part.adjoint.jaxpr.jaxpr)) for part in (*found, own) if part.adjoint is not None]
    if not found or sum(equations[:-1]) > 2 * equations[-1]:
        return flow, []

    @functools.cache
    def saved(name: str, is_result: bool) -> Tensor:
        """A field's value at all vertices, as the backward pass has it; one object, which is padded once."""
        tensor, later = family.by_name[name].tensor, back.later
        assert tensor is not None
        later = later if is_result else later | back.written(body.steps[number])
        held = back.given(body, number + is_result, tensor, family.axes, later)
        return Tensor(held.source, held.index.lifted(family.axes))

    for k, part in enumerate(found):
        assert part.adjoint is not None
        fields = part.adjoint.fields
        given = {own: saved(name, False) for name, own in fields.inputs.items()}
        given.update((own, saved(name, True)) for name, own in fields.results.items())
        found[k] = replace(part, given={**part.given, **given})
    return flow.of(left), found


def _wholes(back: Backward, flows: Sequence[FamilyFlow]) -> list[Whole]:
    """The whole families of a compute set: those that several are parts of, and those that were composed."""
    alike: dict[tuple[str, ...], list[Family]] = {}
    for flow in flows:
        if flow.adjoint is not None:
            alike.setdefault(tuple(flow.adjoint.fields.cotangents), []).append(flow.family)
    found = [own for families in alike.values() for own in whole_families(families)]
    return found + [Whole(flow.family, (flow.family,)) for flow in flows if flow.family in back.flows.composed]


def _products(
    back: Backward, body: Body, number: int, whole: Whole, flow: FamilyFlow
) -> tuple[FamilyFlow, list[Contribution]]:
    """The contribution of a whole family of several blocks that is a product by itself, and the rest of it."""
    adjoint, family = flow.adjoint, whole.family
    assert adjoint is not None
    left, found, convolution = [], [], as_whole_convolution(family)
    for name in adjoint.fields.contributions:
        product = as_whole_product(family, name) if len(whole.members) > 1 else None
        own = None
        if product is not None:
            own = _product(back, body, number, flow, name, product)
        elif convolution is not None and name in (convolution.image, convolution.kernel):
            own = _convolution(back, body, number, flow, name, convolution)
        if own is None:
            left.append(name)
        else:
            found.append(own)
    return flow.of(left) if found else flow, found


def _product(
    back: Backward, body: Body, number: int, flow: FamilyFlow, name: str, product: WholeProduct
) -> Contribution:
    """The contribution of a family through a field, as a product."""
    family, step = flow.family, flow.family.compute_set.name
    out, other, tensor = (family.by_name[own].tensor for own in (product.out, product.other, name))
    assert out is not None
    assert other is not None
    assert tensor is not None
    later = back.later | back.written(body.steps[number])
    slopes = product.slopes(back.cotangents_of(out))
    others = product.operand(back.given(body, number, other, family.axes, later))
    made = back.sums.product(f"{step}/{name}", slopes, others, product.dimension_numbers)
    return Contribution(step, name, {"": made}, product.places, tensor.source, flow.received[name])


def _convolution(
    back: Backward, body: Body, number: int, flow: FamilyFlow, name: str, convolution: WholeConvolution
) -> Contribution | None:
    """The contribution of a family through a field, as a convolution; None where it would be for more than is read."""
    out, operand = flow.family.by_name[convolution.out].tensor, convolution.operand(name)
    assert out is not None
    received = back.flows.elements(operand)
    if not flow.received[name].includes(received):
        return None
    step = flow.family.compute_set.name
    later = back.later | back.written(body.steps[number])
    slopes = convolution.slopes(back.cotangents_of(out))
    other = back.given(body, number, convolution.other(name), (), later)
    made = back.sums.recorded(f"{step}/{name}", lambda graph: convolution.contribution(graph, name, slopes, other))
    return Contribution(step, name, {"": made}, operand.index, operand.source, received)


def _as_they_lie(back: Backward, products: Sequence[Contribution]) -> list[Contribution]:
    """Products that contribute to the same elements as others, each brought to the order of that.

    Of several, for unequal parts of a summed dimension, one is made, where together they are for all of it.
    """
    by_field: dict[tuple[str, Source], list[Contribution]] = {}
    for own in products:
        by_field.setdefault((own.field, own.source), []).append(own)
    sources, found = [source for _, source in by_field], []
    for (name, source), parts in by_field.items():
        size = sum(own.places.size for own in parts)
        received = functools.reduce(ElementSet.__or__, [own.elements for own in parts])
        is_all = isinstance(source, Variable) and size == source.size and received.of(source).is_all
        if not is_all or (sources.count(source) == 1 and len(parts) == 1):
            found += parts
            continue
        assert isinstance(source, Variable)
        held = new_tensor(back.graph, parts[0].name, source.shape, source.dtype)
        for own in parts:
            back.sums.programs.append(Copy(own.values, Tensor(held.source, own.places)))
        found.append(Contribution(parts[0].step, name, {"": held}, held.index, source, received))
    return found


def _may_store_less(family: Family, name: str, adjoint: AdjointCodelet) -> bool:
    """Whether what a family contributes through a field may be gathered, or the updates of a look-up stored."""
    if as_gathering(family, name) is not None:
        return True
    alone = adjoint_of(family.codelet, [name], [*adjoint.fields.cotangents])
    return alone is not None and bool(additions(alone))


def _held_together(back: Backward, whole: Whole, flow: FamilyFlow, held: Held) -> list[Contribution]:
    """The contribution of a whole family that its members store: where, one array for all of them."""
    found, step, adjoint = [], whole.family.compute_set.name, flow.adjoint
    if adjoint is None:
        return found
    for name in adjoint.fields.contributions:
        tensor = whole.family.by_name[name].tensor
        assert tensor is not None
        own = None if flow.is_straight(name, back.present) else contributions_together(whole, name)
        if own is not None and not any(_may_store_less(family, name, adjoint) for family in whole.members):
            places, views = own
            array = new_tensor(back.graph, f"{step}/{name}", places.shape, tensor.dtype)
            for family, view in zip(whole.members, views, strict=True):
                held[family][name] = Tensor(array.source, view)
            found.append(Contribution(step, name, {"": array}, places, tensor.source, flow.received[name]))
    return found
