"""Counters: values of the forward pass that are made of the counters of loops and of constants, made again in the
backward pass.

The backward pass knows which iteration it is: it goes through the same iterations. So the variable in which a `Repeat`
counts is not saved, nor is the value that one vertex made of such variables, as the place of a row in a scan that goes
backwards. Rows that are taken or put at such places are known to be one an iteration, in the backward pass as in the
forward pass. A row that a loop takes at such a place from what it does not change is taken again: saved, all rows would
be a copy of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.jaxprs.primitives import MOVING, is_understood
from codelet.programs.program import Execute
from codelet.tracing.statics import restored
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_variable, new_vertices, variable_of
from lowering.adjoint.counting import counted_from
from lowering.adjoint.sums import of_other_variables
from lowering.plan.elements import ElementSet
from lowering.plan.steps import ExecuteStep, RepeatStep

if TYPE_CHECKING:
    from lowering.adjoint.saved import Body


SMALL = 64
"""Elements; what is larger is saved."""


class Counters:
    """The counters of loops in the backward pass.

    Attributes:
        graph: where it is made.
        certain: the elements that have a value after the forward pass, whatever it has chosen.
        found: the variable with a value that is made before a step of a body; None where it is of something else, too.
    """

    def __init__(self, graph: Graph, certain: ElementSet):
        self.graph, self.certain = graph, certain
        self.found: dict[tuple[Body, int, Variable], Variable | None] = {}

    def value(
        self, body: Body, number: int, variable: Variable, later: ElementSet, read: set[Variable] | None
    ) -> Variable | None:
        """The variable with a value that the step before a place of a body made, or that a body begins with.

        None where it is made of something else than counters, or the forward pass runs again before it is read.

        Args:
            body: the body.
            number: the place.
            variable: whose value.
            later: the elements that are written later in the forward pass than the value is read.
            read: where the variables of the forward pass go that are read in place; None where none may be.
        """
        key = body, number, variable
        if key not in self.found:
            is_first = number == 0
            made = None if body.is_again else self._counted(body, variable) if is_first else self._of(*key, later, read)
            self.found[key] = made
        return self.found[key]

    def _counted(self, body: Body, variable: Variable) -> Variable | None:
        """The counter of a loop's iterations in the backward pass; None where it does not count."""
        loop = body.loop
        if loop is None or not isinstance(loop.step, RepeatStep) or loop.step.index is not variable:
            return None
        first = loop.step.first
        if not isinstance(first, int):
            return None
        if first == 0 and variable.dtype == loop.back.dtype:
            return variable_of(loop.back)
        fields = {"turn": loop.back, "first": first, "dtype": str(variable.dtype)}
        counting, held = new_vertices(self.graph, "count", counted_from, **fields)
        body.prelude.append(counting)
        return variable_of(held)

    def _of(
        self, body: Body, number: int, variable: Variable, later: ElementSet, read: set[Variable] | None
    ) -> Variable | None:
        """The value that one vertex made of counters, or that vertices took at such places of what is there still."""
        families = _makers(body, number, variable)
        is_small = len(families) == 1 and families[0].num_vertices == 1 and variable.size <= SMALL
        is_taken = bool(families) and all(map(_only_moves, families))
        if not is_small and not is_taken:
            return None
        sources = list(dict.fromkeys(v for family in families for v in _read(family)))
        # A loop's own steps are among the later ones: what none of them writes is the same in all of its iterations.
        may_be_there = is_taken and read is not None and body.loop is not None
        kept = {v for v in sources if may_be_there and later.of(v).first is None and self.certain.of(v).is_all}
        held: dict[Variable, Variable] = {}
        for source in sources:
            if source not in kept:
                own = self.value(*body.made(number - 1, source), source, later, read)
                if own is None:
                    return None
                held[source] = own
        if read is not None:
            read |= kept
        return self._again(body, families, variable, held)

    def _again(
        self, body: Body, families: Sequence[Family], variable: Variable, held: dict[Variable, Variable]
    ) -> Variable:
        """The variable that vertices make in the place of another, of other variables than they did."""
        name = families[0].compute_set.name
        compute_set = self.graph.add_compute_set(self.graph.free_name(name))
        made = new_variable(self.graph, variable.name, variable)
        for family in families:
            views = {name: of_other_variables(own, held | {variable: made}) for name, own in _views(family).items()}
            with restored(family.codelet.settings):
                self.graph.add_vertex(
                    compute_set, family.codelet.codelet, tile=family.tile, **family.codelet.static, **views
                )
        body.prelude.append(Execute(compute_set))
        return made


def _makers(body: Body, number: int, variable: Variable) -> Sequence[Family]:
    """The vertices of the step before a place that make all of a variable, of other variables and nothing else; none
    where it is made in another way.
    """
    step, made, found = body.steps[number - 1], ElementSet(), list[Family]()
    for family in step.families if isinstance(step, ExecuteStep) else ():
        views, outs = _views(family), [own.name for own in family.fields if own.is_written]
        if all(variable not in source_variables(views[name].source) for name in outs):
            continue
        is_plain = not family.rows and not family.codelet.has_effects and len(views) == len(family.fields) > 1
        if not is_plain or len(outs) != 1 or any(own.kind == "inout" for own in family.fields):
            return ()
        made.add(views[outs[0]], family.axes)
        found.append(family)
    return found if made.of(variable).is_all else ()


def _views(family: Family) -> dict[str, Tensor]:
    """The tensors of a family's fields; none of vertex state."""
    return {own.name: own.tensor for own in family.fields if own.tensor is not None}


def _read(family: Family) -> Iterator[Variable]:
    """The variables that vertices read."""
    for field in family.inputs:
        if field.tensor is not None:
            yield from source_variables(field.tensor.source)


def _only_moves(family: Family) -> bool:
    """Whether vertices only move elements, no more than their results have."""
    return all(is_understood(eqn, "dynamic_slice", "gather", *MOVING) for eqn in family.codelet.jaxpr.eqns)
