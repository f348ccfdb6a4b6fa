"""Strided phases: the families that write the phases of a strided convolution's gradient are one convolution.

The gradient with respect to the input of a convolution with stride s is written as one family for each phase of the
positions: at the positions `s*a + q` only every s-th tap of the kernel meets an element of the output. Run by
themselves, s x s small convolutions interleave what they make, 1.5 to 3 times as slow as one. Together they are one
convolution of the whole kernel with the output among zeros, s - 1 of them between its elements: in what they are all of
(`reduced.py`), the output has a divisor. Phases that no tap meets write zero.

Where an infinity or a NaN is in the kernel, one convolution may multiply it by the zeros in between; vertices do not.

Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016: transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codelet.graphs.family import Family
from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.sources import Variable
from lowering.fast.convolutions import Convolution, as_convolution
from lowering.fast.inputs import Inputs
from lowering.join.reduced import ReducedFamily, as_reduced, wholes_of
from lowering.join.refine import refine
from lowering.plan.collect import normalize_family
from lowering.plan.dataflow import flow_step
from lowering.plan.steps import ExecuteStep


def _may_be_phase(family: Family) -> bool:
    """Whether what a family writes, a block or an element of it each, may be apart along a dimension."""
    fields = [field for field in family.fields if field.is_written]
    if len(fields) != 1 or fields[0].tensor is None:
        return False
    source, index = fields[0].tensor.source, fields[0].tensor.index
    if index.tables or index.is_empty:
        return True
    access = Access.of(index, source.shape)
    is_spread = (terms and min(term.grain for term in terms) > 1 for _, terms in access.dimensions)
    return access.shape != source.shape or any(is_spread)


def _one_convolution(families: Sequence[Family], variable: Variable) -> Family | Refused:
    """Families that write a variable as one convolution."""
    if not any(map(_may_be_phase, families)):
        return Refused("they write no phases")
    elements = [refine(family) or family for family in families]
    elements = [family if family.tile is None else normalize_family(replace(family, tile=None)) for family in elements]
    known = [as_reduced(family) for family in elements]
    parts = [own for own in known if isinstance(own, ReducedFamily)]
    if len(parts) < len(known):
        return next(own for own in known if isinstance(own, Refused))
    sums, zeros = [own for own in parts if own.is_product], [own for own in parts if not own.factors]
    if len(sums) + len(zeros) < len(parts) or not sums or sum(own.num_results for own in parts) != variable.size:
        return Refused("they are not all that is written, or no products")
    refused = Refused("they are phases of no convolution")
    for whole in wholes_of(sums, zeros):
        if isinstance(whole, Refused):
            refused = whole
            continue
        family = whole.as_family
        if isinstance(as_convolution(family, Inputs([family])), Convolution):
            return family
    return refused


def join_phases(step: ExecuteStep) -> ExecuteStep:
    """A compute set with phases put together."""
    writers: dict[Variable, list[Family]] = {}
    for family in step.families:
        for field in family.fields:
            if field.is_written and field.tensor is not None and isinstance(field.tensor.source, Variable):
                writers.setdefault(field.tensor.source, []).append(family)
    families = list(step.families)
    for variable, phases in writers.items():
        one = _one_convolution(phases, variable) if len(phases) > 1 else Refused("it is alone")
        if isinstance(one, Family):
            families = [family for family in families if family not in phases] + [one]
    return step if len(families) == len(step.families) else flow_step(replace(step, families=tuple(families)))  # type: ignore[return-value]
