"""Counters: values of the forward pass that are made of the counters of loops and of constants, made again in the
backward pass.

The backward pass knows which iteration it is: it goes through the same iterations. So the variable in which a `Repeat`
counts is not saved, nor one to which every iteration of a loop adds the same integer, nor the value that one vertex
made of such variables and of constants, as the place of a row in a scan that goes backwards, or a number of a known
array at that place. Rows that are taken or put at such places are known to be one an iteration, in the backward pass as
in the forward pass.

A row that a loop takes at such a place of what it does not change, or of what is saved anyway, is taken again: saved,
it would be a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.jaxprs.primitives import MOVING, is_understood
from codelet.programs.program import Execute
from codelet.tracing.statics import restored
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_variable, new_vertices, variable_of
from lowering.adjoint.counting import counted_from
from lowering.adjoint.programs import writes_of
from lowering.adjoint.sums import of_other_variables
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.steps import CopyStep, ExecuteStep, RepeatStep, Step
from lowering.plan.walk import bodies

if TYPE_CHECKING:
    from lowering.adjoint.saved import Body


SMALL = 64
"""Elements; what is larger is saved."""


class Counters:
    """The counters of loops in the backward pass.

    Attributes:
        graph: where it is made.
        certain: the elements that have a value after the forward pass, whatever it has chosen.
        saved: the variable with elements of a value that is made before a step of a body, if these are saved already.
        found: the variable with a value that is made before a step of a body; None where it is of something else, too.
    """

    def __init__(
        self,
        graph: Graph,
        certain: ElementSet,
        saved: Callable[[Body, int, Variable, Elements], Variable | None],
    ):
        self.graph, self.certain, self.saved = graph, certain, saved
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
        loop, counted = body.loop, _count(body, variable)
        if loop is None or counted is None:
            return None
        first, step = counted
        if counted == (0, 1) and variable.dtype == loop.back.dtype:
            return variable_of(loop.back)
        fields = {"turn": loop.back, "first": first, "step": step, "dtype": str(variable.dtype)}
        counting, held = new_vertices(self.graph, "count", counted_from, **fields)
        body.prelude.append(counting)
        return variable_of(held)

    def _of(
        self, body: Body, number: int, variable: Variable, later: ElementSet, read: set[Variable] | None
    ) -> Variable | None:
        """The value that a vertex made of counters and constants, or vertices took at such places of what is there."""
        families = _makers(body.steps[number - 1], variable)
        made = list(dict.fromkeys(v for family in families for field in family.outputs for v in field.variables))
        is_small = len(families) == 1 and families[0].num_vertices == 1 and all(own.size <= SMALL for own in made)
        is_taken = bool(families) and all(map(_only_moves, families))
        if not is_small and not is_taken:
            return None
        operands = [(field, family.axes) for family in families for field in family.inputs]
        sources = list(dict.fromkeys(variable for field, _ in operands for variable in field.variables))
        taken = ElementSet.of_views((field.tensor, axes) for field, axes in operands if field.tensor is not None)
        # A loop's own steps are among the later ones: what none of them writes is the same in all of its iterations.
        may_be_there = is_taken and read is not None and body.loop is not None
        kept = {v for v in sources if may_be_there and later.of(v).first is None and self.certain.of(v).is_all}
        held: dict[Variable, Variable] = {}
        for source in sources:
            if source not in kept and source.value is None:
                at = body.made(number - 1, source)
                own = self.value(*at, source, later, read)
                if own is None and is_taken:
                    own = self.saved(*at, source, taken.of(source))
                if own is None:
                    return None
                held[source] = own
        if read is not None:
            read |= kept
        new = {own: new_variable(self.graph, own.name, own) for own in made}
        self.found |= {
            (body, number, own): new[own] for own in made if _makers(body.steps[number - 1], own) == families
        }
        self._run(body, families, held | new)
        return new[variable]

    def _run(self, body: Body, families: Sequence[Family], others: dict[Variable, Variable]) -> None:
        """Run vertices again, with other variables in the place of theirs."""
        name = families[0].compute_set.name
        compute_set = self.graph.add_compute_set(self.graph.free_name(name))
        for family in families:
            fields = {name: of_other_variables(own, others) for name, own in _views(family).items()}
            with restored(family.codelet.settings):
                self.graph.add_vertex(
                    compute_set, family.codelet.codelet, tile=family.tile, **family.codelet.static, **fields
                )
        body.prelude.append(Execute(compute_set))


def _count(body: Body, variable: Variable) -> tuple[int, int] | None:
    """What a variable is in the first iteration of the loop that a body is of, and how much more in each following one;
    None where it does not count them.
    """
    loop = body.loop
    if loop is None:
        return None
    if isinstance(loop.step, RepeatStep) and loop.step.index is variable:
        return (loop.step.first, 1) if isinstance(loop.step.first, int) else None
    *others, steps = bodies(loop.step)
    writers = [k for k, own in enumerate(steps) if variable in writes_of([own])]
    if body.around is None or len(writers) != 1 or any(variable in writes_of(own) for own in others):
        return None
    first, step = _first_value(*body.around, variable), _added(steps, writers[0], variable)
    return None if first is None or step is None else (_in_32_bits(first), _in_32_bits(step))


def _in_32_bits(number: int) -> int:
    """An integer of 32 bits that is the same modulo 2 ** 32."""
    return (number + 2**31) % 2**32 - 2**31


def _first_value(around: Body, number: int, variable: Variable) -> int | None:
    """The integer that a variable of one element has before a step, where it is copied there from a constant."""
    body, number = around.made(number, variable)
    copied = _copied(body.steps[number - 1], variable) if number else None
    value = None if copied is None else copied.value
    return int(value.reshape(())) if value is not None and _is_counter(variable) else None


def _added(steps: Sequence[Step], number: int, variable: Variable) -> int | None:
    """What is added to a variable of one element where a step writes it, once in an iteration."""
    copied = _copied(steps[number], variable)
    makers = [] if copied is None else [k for k, own in enumerate(steps) if copied in writes_of([own])]
    if copied is None or len(makers) != 1 or makers[0] > number or not _is_counter(variable):
        return None
    families = _makers(steps[makers[0]], copied)
    if len(families) != 1 or copied.dtype != variable.dtype:
        return None
    (family,) = families
    jaxpr, views = family.codelet.jaxpr.jaxpr, _views(family)
    out = next(k for k, own in enumerate(family.outputs) if views[own.name].source is copied)
    counts = [var for var, own in zip(jaxpr.invars, family.inputs, strict=True) if views[own.name].source is variable]
    eqn = next((own for own in jaxpr.eqns if jaxpr.outvars[out] in own.outvars), None)
    if eqn is None or not is_understood(eqn, "add", "sub") or len(counts) != 1:
        return None
    match eqn.invars:
        case [var, jax_core.Literal() as added] if var is counts[0]:
            return int(added.val) if eqn.primitive.name == "add" else -int(added.val)
        case [jax_core.Literal() as added, var] if var is counts[0] and eqn.primitive.name == "add":
            return int(added.val)
    return None


def _is_counter(variable: Variable) -> bool:
    """Whether a variable is an integer that counts as one of 32 bits does, and wraps around as that does."""
    return variable.size == 1 and np.issubdtype(variable.dtype, np.integer) and variable.dtype.itemsize <= 4


def _copied(step: Step, variable: Variable) -> Variable | None:
    """The variable that a step copies to all of another, and nothing else."""
    own = step.whole_variables if isinstance(step, CopyStep) else None
    return own[0] if own is not None and own[1] is variable else None


def _makers(step: Step, variable: Variable) -> Sequence[Family]:
    """The vertices of a step that make all of a variable, of other variables and nothing else; none where it is made in
    another way.
    """
    made, found = ElementSet(), list[Family]()
    for family in step.families if isinstance(step, ExecuteStep) else ():
        if not any(variable in field.variables for field in family.outputs):
            continue
        views = _views(family)
        if family.rows or family.codelet.has_effects or len(views) < len(family.fields) or not family.inputs:
            return ()
        if any(own.kind == "inout" for own in family.fields):
            return ()
        for own in family.outputs:
            made.add(views[own.name], family.axes)
        found.append(family)
    return found if made.of(variable).is_all else ()


def _views(family: Family) -> dict[str, Tensor]:
    """The tensors of a family's fields; none of vertex state."""
    return {own.name: own.tensor for own in family.fields if own.tensor is not None}


def _only_moves(family: Family) -> bool:
    """Whether vertices only move elements, no more than their results have."""
    return all(is_understood(eqn, "dynamic_slice", "gather", *MOVING) for eqn in family.codelet.jaxpr.eqns)
