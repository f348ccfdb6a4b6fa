"""Join: what vertices cut into blocks, phases and partial sums runs as what it was cut of.

Blocks and phases are put together in each compute set (`whole_steps.py`, `strided_phases.py`), partial sums over
several.

A product, a convolution or a reduction is cut by what it sums over: the vertices of one compute set write partial
sums, those of another add them up, in one stage or in several; so are greatest elements, of a row or of what is made of
it by element. In comes a plan, out comes one in which the families that add up reduce what the partial results were
made of (`compose.py`); what nobody reads any more is pruned. No jaxpr would say of slices of an image that all of them
together are windows of it.

What a variable holds is followed through the steps of one body: from the compute set that writes all that is read of
it, until a step writes it again, or writes what it was made of. Sums whose partial sums something else reads as well
stay, since the partial sums would be made beside the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.primitives import REDUCTIONS
from codelet.refused import Refused
from codelet.views.sources import Variable, source_variables
from lowering.fast.alike_steps import OncePerForm
from lowering.fast.convolutions import as_convolution
from lowering.fast.inputs import Inputs
from lowering.fast.prune import prune
from lowering.fast.small_windows import overlaps
from lowering.jaxprs.reduced_maps import SUM
from lowering.join.alike_families import join_alike
from lowering.join.compose import compose_parts
from lowering.join.reduced import ReducedFamily, as_reduced, wholes_of
from lowering.join.refine import by_result, of_results, refine
from lowering.join.strided_phases import join_phases
from lowering.join.whole_steps import join_blocks
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, ExecuteStep, Step
from lowering.plan.walk import Rewriter, all_reads, all_steps

Known = dict[Variable, tuple[ReducedFamily, ...]]
"""What variables hold, as far as it is known: reductions of what others hold still, of several parts of it."""


_MOST_PARTS = 16  # of what a variable holds: what is left over along four dimensions


def _sources(parts: Sequence[ReducedFamily]) -> set[Variable]:
    """What reductions are of."""
    return {variable for own in parts for factor in own.factors for variable in source_variables(factor.source)}


def _as_family(own: ReducedFamily) -> Family | None:
    """A reduction as a family, where windows of it that overlap are those of a convolution."""
    family = own.as_family
    if not own.is_product:
        return None if any(map(overlaps, family.fields)) else family
    why = as_convolution(family, Inputs([family]))
    return family if not isinstance(why, str) or not why else None


def _read_by(family: Family) -> set[Variable]:
    """The variables that a family reads."""
    return {variable for field in family.fields if field.is_read for variable in field.variables}


def _written_by(family: Family) -> set[Variable]:
    """The variables that a family writes."""
    return {variable for field in family.fields if field.is_written for variable in field.variables}


def _readers_of(plan: Plan) -> dict[Variable, set[Step | None]]:
    """The steps that read each variable; None for who reads the results."""
    found: dict[Variable, set[Step | None]] = {}
    for step, touch in all_reads(plan.steps):
        for variable in touch.variables:
            found.setdefault(variable, set()).add(step)
    for tensor in plan.outputs:
        for variable in source_variables(tensor.source):
            found.setdefault(variable, set()).add(None)
    return found


def _joined(step: ExecuteStep) -> ExecuteStep:
    """A compute set with its families put together: phases first, which go on in each other as parts may."""
    woven = join_phases(step)
    whole = join_blocks(woven)
    return woven if whole is woven else join_phases(whole)


def _reductions(jaxpr: jax_core.Jaxpr) -> set[str]:
    """What a jaxpr reduces by."""
    names = {eqn.primitive.name for eqn in jaxpr.eqns}
    found = {SUM} if names & {"dot_general", "conv_general_dilated"} else set()
    return found.union(
        names & REDUCTIONS.keys(), *(_reductions(inner) for eqn in jaxpr.eqns for inner in inner_jaxprs(eqn))
    )


def _adds_up(own: ReducedFamily) -> bool:
    """Whether it reduces what it reads as it is: perhaps what others reduced before."""
    return len(own.factors) == 1 and own.map.term is None


def _put_together(parts: Sequence[ReducedFamily]) -> list[ReducedFamily]:
    """Parts of what a variable holds, those made one that reduce as many elements: rows, and what is left of them."""
    alike: dict[tuple[int, ...], list[ReducedFamily]] = {}
    for own in parts:
        alike.setdefault(tuple(n for n in own.factors[0].shape if n != 1), []).append(own)
    found: list[ReducedFamily] = []
    for own in alike.values():
        wholes = (whole for whole in wholes_of(own) if isinstance(whole, ReducedFamily))
        whole = next(wholes, None) if len(own) > 1 else None
        found += own if whole is None else [whole]
    return found


class WholeReduction(NamedTuple):
    """What a family computes, and the families of the graph that it is made of."""

    reduced: ReducedFamily
    parts: tuple[Family, ...]


class Composing(Rewriter):
    """Composes the families of steps with those before them.

    Attributes:
        computed: of each compute set what its families compute, put together, and which of the graph they are; of
            those that reduce, as far back as they could be composed.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.joined = functools.cache(OncePerForm(_joined))
        self.reductions = functools.cache(_reductions)
        self.by_result = functools.cache(self._by_result)
        self.elements = functools.cache(self._elements)
        self.reduced = functools.cache(self._reduced)
        self.compose = functools.cache(compose_parts)
        self.family = functools.cache(_as_family)
        self.has_composed = self.has_joined = False
        self.instead: dict[Step, tuple[Family, ...]] = {}
        self.computed: dict[Step, dict[Family, WholeReduction | tuple[Family, ...]]] = {}
        self.beside: dict[Family, tuple[Family, ...]] = {}  # of families that stay what is known beside all else
        self.parts: dict[Variable, tuple[Family, ...]] = {}  # families of the graph that what is known is made of
        self.sources: dict[Variable, set[Variable]] = {}  # what that is of

    def _elements(self, family: Family) -> Family:
        """A family of blocks as one of their elements, where it may be one of reductions."""
        if len(family.codelet.outputs) != 1 or not self.reductions(family.codelet.jaxpr.jaxpr):
            return family
        return refine(family) or family

    def _reduced(self, family: Family) -> ReducedFamily | None:
        """A family as one of reductions of something."""
        names = self.reductions(family.codelet.jaxpr.jaxpr)
        found = as_reduced(self.elements(family), *names) if len(names) == 1 else None
        return found if isinstance(found, ReducedFamily) and found.factors else None

    def _by_result(self, family: Family) -> tuple[Family, ...]:
        """A family as one for each of its results, where that computes nothing again.

        Products are by themselves anyway; of what reduces the same elements XLA reads these once.
        """
        apart = by_result(family) if self.reductions(family.codelet.jaxpr.jaxpr) else (family,)
        known = [own for own in map(self.reduced, apart) if own is not None]
        forms = {tuple(n for n in own.extents.values() if n != 1) for own in known}
        are_alone = len(forms) == 1 or all(own.is_product for own in known)
        return apart if len(known) == len(apart) and are_alone else (family,)

    def sums_beside(self, families: Sequence[Family]) -> dict[Family, tuple[Family, ...]]:
        """Families of several results as the reductions among these, each by itself, and in the end the rest.

        Where blocks are uneven, what is left over writes partial sums beside other results, as a family of its own. Of
        reductions of which several families write a part, one that adds up elements as they are computes nothing again
        when it is whole. Nor does any where the rest are maps: those are one family of the same elements then. Whether
        all of these reductions will be composed is not known yet: where one is not, the others compute some maps again.
        """
        found: dict[Family, tuple[Family, ...]] = {}
        writers = self.written(families)
        for family in families:
            shared = [field for field in family.outputs if all(len(writers[v]) > 1 for v in field.variables)]
            results = family.codelet.outputs.keys()
            apart = by_result(family) if shared and len(results) > 1 else (family,)
            if len(apart) == 1:
                continue
            alone = dict(zip(results, apart, strict=True))
            sums = {field.name: own for field in shared if (own := self.reduced(alone[field.name])) is not None}
            if self.reductions(of_results(family, results - sums.keys()).codelet.jaxpr.jaxpr):
                sums = {name: own for name, own in sums.items() if _adds_up(own)}
            if sums:
                found[family] = (*(alone[name] for name in sums), of_results(family, results - sums.keys()))
        return found

    @functools.cached_property
    def readers(self) -> dict[Variable, set[Step | None]]:
        """The steps that read each variable; None for who reads the results."""
        return _readers_of(self.plan)

    def left(self, known: Known, step: Step) -> Known:
        """What is still known of variables after a step."""
        written = set(step.writes)
        return {v: own for v, own in known.items() if v not in written and written.isdisjoint(self.sources[v])}

    def composed(self, sums: ReducedFamily, known: Known, parts: tuple[Family, ...]) -> WholeReduction:
        """Sums of some parts, composed with what is known of what they add up, as far back as that goes."""
        while _adds_up(sums):
            source = sums.factors[0].source
            if not isinstance(source, Variable) or source not in known or len(self.readers[source]) > 1:
                break
            found = self.compose(sums, known[source])
            if isinstance(found, Refused):
                break
            if not found.is_product and found.num_terms > sum(own.num_terms for own in known[source]):
                break  # partial results that several sums read would be made for each
            sums, parts = found, (*self.parts[source], *parts)
        return WholeReduction(sums, parts)

    def whole(self, families: Mapping[Family, tuple[Family, ...]], known: Known) -> dict[Family, WholeReduction]:
        """What families compute, of what is known; of sums only where all that reads the same is sums.

        Args:
            families: those of a step, with what they stand for in the graph.
            known: before it.
        """
        found = {family: own for family in families if (own := self.reduced(family)) is not None}
        reads = {family: _read_by(family) for family in families}
        others = {v for family, own in reads.items() if family not in found or not _adds_up(found[family]) for v in own}
        return {
            family: self.composed(own, {} if reads[family] & others else known, families[family])
            for family, own in found.items()
        }

    def written(self, families: Sequence[Family]) -> dict[Variable, list[Family]]:
        """The families that write each variable."""
        found: dict[Variable, list[Family]] = {}
        for family in families:
            for variable in _written_by(family):
                found.setdefault(variable, []).append(family)
        return found

    def execute(self, step: ExecuteStep, known: Known) -> tuple[Step, Known]:
        """A compute set with its sums composed with what is known before it; and what is known after it."""
        made = self.joined(step)
        apart = {family: self.by_result(family) for family in made.families}
        stood_for = {one: made.parts.get(family, (family,)) for family, own in apart.items() for one in own}
        whole = self.whole(stood_for, known)
        self.computed[step] = {**stood_for, **whole}
        others = {family: own.reduced for family, own in whole.items() if own.reduced is not self.reduced(family)}
        composed = {family: one for family, own in others.items() if (one := self.family(own)) is not None}
        instead = {family: [composed[one] for one in own] for family, own in apart.items() if composed.keys() >= {*own}}
        families = tuple(one for family in made.families for one in instead.get(family, [family]))
        beside = self.sums_beside([family for family in made.families if len(apart[family]) == 1])
        self.has_joined |= len(made.families) < len(step.families)
        if instead:
            self.has_composed = True
            if len(instead) == len(made.families):
                self.instead[step] = families
            parts = {now: of for now, of in made.parts.items() if now in families}
            parts |= {composed[one]: tuple(dict.fromkeys(whole[one].parts)) for own in instead for one in apart[own]}
            made = flow_step(replace(made, families=families, parts=parts))
        known = self.left(known, made)
        for family, (*sums, _) in beside.items():
            reduced = {own: one for own in sums if (one := self.reduced(own)) is not None}
            whole |= {own: WholeReduction(one, stood_for[family]) for own, one in reduced.items()}
        self.beside |= beside
        written = self.written([own for family in stood_for for own in beside.get(family, (family,))])
        for variable, writers in written.items():
            if all(self.reduced(family) is not None for family in writers):
                refined = [self.elements(family) for family in writers]
                one = [family for family, _, _ in join_alike(refined)] if len(refined) > 1 else writers
                reduced = (whole[family].reduced if family in whole else self.reduced(family) for family in one)
                own = [found for found in reduced if found is not None]
                if any(map(_adds_up, own)):  # sums that are not composed: then none of them
                    own = [found for family in one if (found := self.reduced(family)) is not None]
                sources = _sources(own)
                if len(own) == len(one) <= _MOST_PARTS and sources.isdisjoint(made.writes):
                    known[variable], self.sources[variable] = tuple(_put_together(own)), sources
                    self.parts[variable] = tuple(part for family in writers for part in whole[family].parts)
        return made, known

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        known: Known = {}
        made: list[Step] = []
        for step in steps:
            if isinstance(step, ExecuteStep):
                one, known = self.execute(step, known)
                made.append(one)
            else:
                made.append(self.around(step))
                known = self.left(known, step)
        return tuple(made)


class _LeavingOut(Rewriter):
    """Leaves partial sums out that nobody reads any more, and puts the families together that wrote them."""

    def __init__(self, composing: Composing, plan: Plan) -> None:
        super().__init__()
        self.composing = composing
        calls = (step for step in all_steps(plan.steps) if isinstance(step, CallStep))
        self.read = {*_readers_of(plan), *(v for step in calls for v in step.function.parameters)}

    def left(self, family: Family) -> Family:
        """A family without its reductions that nobody reads."""
        *sums, _ = self.composing.beside.get(family, (family,))
        unread = [own for own in sums if self.read.isdisjoint(_written_by(own))]
        names = family.codelet.outputs.keys() - {name for own in unread for name in own.codelet.outputs}
        return of_results(family, names) if unread and names else family

    def execute(self, step: ExecuteStep) -> ExecuteStep:
        """A compute set without the partial sums that nobody reads."""
        was = {self.left(family): step.parts.get(family, (family,)) for family in step.families}
        if was.keys() == {*step.families}:
            return step
        made = self.composing.joined(flow_step(replace(step, families=tuple(was), parts={})))
        parts = {
            family: tuple(one for own in made.parts.get(family, (family,)) for one in was.get(own, (own,)))
            for family in made.families
        }
        return replace(made, parts={family: own for family, own in parts.items() if own != (family,)})

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(self.execute(step) if isinstance(step, ExecuteStep) else self.around(step) for step in steps)


def join(plan: Plan) -> Plan:
    """The plan with what was cut put together of what vertices compute of it."""
    composing = Composing(plan)
    made = replace(plan, steps=composing.body(plan.steps))
    if composing.has_composed and composing.beside:
        made = replace(made, steps=_LeavingOut(composing, made).body(made.steps))
    # What several families wrote a part of each, one may write all of, and no loop carries it then.
    return prune(made) if composing.has_composed or composing.has_joined else made


def composed_families(plan: Plan) -> dict[Step, tuple[Family, ...]]:
    """Of each compute set that adds up nothing but partial sums, the inner products that these are sums of."""
    composing = Composing(plan)
    composing.body(plan.steps)
    return composing.instead
