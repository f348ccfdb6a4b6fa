"""Programs beside one another by `cl.equal`: rules on jaxprs and passes before and after themselves, and cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import pytest
from jax.core import Tracer
from jax.extend import core as jax_core

import codelet as cl
from codelet.frontends import passes
from codelet.programs.program import Program
from lowering import pipeline
from lowering.equality.answer import Equality
from lowering.equality.compare import compared
from lowering.equality.sides import OfGraph, Side, function_side, jaxpr_side
from lowering.fast.compute_sets import choose_kernels
from lowering.fast.steps import emit
from lowering.jaxprs import simplify
from lowering.plan.collect import collect
from lowering.plan.plan import Plan
from lowering.plan.steps import AbortStep, PrintStep
from lowering.plan.streams import fed_types
from lowering.plan.walk import all_steps
from tests.strategies import Case


def _functions_of(module: Any, rooms: tuple[str, ...], apart: tuple[str, ...]) -> list[str]:
    own = {name: made.__module__ for name, made in vars(module).items() if callable(made)}
    return sorted(name for name, room in own.items() if room.startswith(rooms) and name not in apart)


RULES = _functions_of(simplify, ("lowering.jaxprs", "codelet.jaxprs"), ("trace_simplified", "inline"))
"""Rules on jaxprs, by their names in `lowering/jaxprs/simplify.py`."""

FRONT = _functions_of(passes, ("codelet.frontends.passes.",), ())
"""Passes of the front end, by their names in `codelet/frontends/passes`."""

PLANS = ("prune", "copy_few_zeros", "rotate", "join")
"""Passes on plans before kernels are chosen, by their names in `lowering/pipeline.py`."""


@dataclass
class Proved:
    """What was compared: how often each pass changed something, and what nothing can be said of, with the reason."""

    equal: Counter[str] = field(default_factory=Counter)
    undecided: list[tuple[str, str]] = field(default_factory=list)

    def settle(self, what: str, found: Equality) -> None:
        """Count an answer.

        Raises:
            AssertionError: two programs are different.
        """
        assert found.verdict != "different", f"{what}: {found}"
        if found.verdict == "equal":
            self.equal[what] += 1
        else:
            self.undecided.append((what, found.reason or ""))

    def jaxprs(self, what: str, before: Any, after: Any) -> None:
        """Compare two jaxprs."""
        held = {
            id(own): jax.ShapeDtypeStruct(own.shape, own.dtype)
            for closed in (before, after)
            for own in closed.consts
            if isinstance(own, Tracer)
        }
        one, other = (_with_inputs_for(closed, held) for closed in (before, after))
        structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in one.in_avals]
        self.settle(what, compared(jaxpr_side(one), jaxpr_side(other), structs))


def _with_inputs_for(closed: Any, held: dict[int, Any]) -> Any:
    """A jaxpr with inputs more, for constants by their identities: values of a trace around it."""
    if not held:
        return closed

    def run(*given: Any) -> list[Any]:
        values = dict(zip(held, given[len(given) - len(held) :], strict=True))
        consts = [values.get(id(own), own) for own in closed.consts]
        return jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, consts))(*given[: len(given) - len(held)])

    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    return jax.make_jaxpr(run)(*structs, *held.values())


def _emitted(plan: Plan) -> Any:
    """The jaxpr of a plan, before any rule on it."""
    structs = [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in plan.inputs]
    return jax.make_jaxpr(emit(choose_kernels(plan)))(*structs, *fed_types(plan))


@contextmanager
def every_pass_proved() -> Iterator[Proved]:
    """Where whatever is lowered or traced is compared after each pass, where that changed something, with before."""
    proved = Proved()

    def of_jaxprs(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def run(closed: Any, *others: Any, **named: Any) -> Any:
            made = change(closed, *others, **named)
            if made is not closed:
                proved.jaxprs(name, closed, made)
            return made

        return run

    def of_plans(name: str, change: Callable[[Plan], Plan]) -> Callable[[Plan], Plan]:
        def run(plan: Plan) -> Plan:
            made = change(plan)
            if made is not plan:
                proved.jaxprs(name, _emitted(plan), _emitted(replace(made, inputs=plan.inputs)))
            return made

        return run

    with pytest.MonkeyPatch.context() as patch:
        for module, names, wrap in (
            (simplify, RULES, of_jaxprs),
            (passes, FRONT, of_jaxprs),
            (pipeline, PLANS, of_plans),
        ):
            for name in names:
                patch.setattr(module, name, wrap(name, getattr(module, name)))
        yield proved


# --- cases --------------------------------------------------------------------------------------------------


def named_side(case: Case, run: Callable[[dict[str, Any]], dict[str, Any]]) -> Side:
    """What runs a case, as a side: of its inputs by name, to its outputs."""
    return function_side("second", lambda values: [run(values)[name] for name in case.outputs], (structs_of(case),))


def structs_of(case: Case) -> dict[str, jax.ShapeDtypeStruct]:
    """The types of a case's inputs, by name, in order."""
    return {name: jax.ShapeDtypeStruct(own.shape, own.dtype) for name, own in sorted(case.inputs.items())}


def meaning_of(case: Case, program: Program | None = None) -> OfGraph:
    """A case by the meaning of its graph."""
    names, tensors = tuple(structs_of(case)), tuple(map(case.graph.variable, case.outputs))
    tree = jax.tree.structure([0] * len(tensors))
    return OfGraph(case.graph, case.sequence() if program is None else program, names, tensors, tree)


def examples_of(case: Case) -> tuple[dict[str, Any]]:
    """A case's inputs: integers as they are, of floats the types alone."""
    return ({name: own if own.dtype.kind in "biu" else structs_of(case)[name] for name, own in case.inputs.items()},)


def prove(proved: Proved, what: str, case: Case, run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Compare what runs a case with the meaning of its graph."""
    proved.settle(what, compared(meaning_of(case), named_side(case, run), examples_of(case)))


def has_sides(case: Case) -> bool:
    """Whether a case does nothing but compute: it has no streams, prints nothing and never aborts."""
    steps = all_steps(collect(case.graph, case.sequence(), (), ()).steps)
    return not case.graph.streams and not any(isinstance(step, (AbortStep, PrintStep)) for step in steps)


def on_engine(case: Case, execution: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A case as an engine's function, in one of its executions."""
    engine = cl.Engine(case.graph, case.sequence(), execution=execution)
    return engine.function(inputs=list(case.inputs), outputs=case.outputs)
