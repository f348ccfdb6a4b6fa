"""Checks: the library's results from a program beside the program, where `check="equal"` asks for it."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import NotEqualError, ProgramError, UndecidedWarning
from codelet.frontends.traced import Traced
from codelet.frontends.values import data_type, unwrapped, wrapped
from codelet.graphs.graph import Graph
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.check.initialized import read_before_written
from lowering.equality.answer import Equality
from lowering.equality.compare import compared
from lowering.equality.sides import EffectsError, OfGraph, function_side
from lowering.lower import Lowered
from lowering.mesh.replicas import Replicas
from lowering.pipeline import compile_plan, plan_graph
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.timeline import without_calls

CHECK = "equal"
"""The one word that `check=` takes."""


_GRADIENT, _OF_JAX = "the gradient by vertices", "JAX's of the lowered program"


def for_word(check: object) -> ModuleType | None:
    """This module, where `check=` asks for it, and None where nothing is to be checked.

    Raises:
        ProgramError: another word.
    """
    if check not in (None, CHECK):
        raise ProgramError("check is no check", given=f"check={check!r:.80}", expected=f'None or "{CHECK}"')
    return None if check is None else sys.modules[__name__]


def settle(found: Equality, what: str, beside: str) -> None:
    """See that an answer is no mistake.

    Args:
        found: the answer.
        what: the result.
        beside: the program that it was compared with.

    Raises:
        NotEqualError: the two are different.

    Warns:
        UndecidedWarning: nothing can be said.
    """
    if found.verdict == "different":
        raise NotEqualError(
            f"{what} is not equal to {beside}",
            given=str(found.witness),
            expected="the same values, but for rounding",
            fix="a rule of the library, or one that you added, is wrong; please report it",
        )
    if found.verdict == "undecided":
        warnings.warn(f"{what} may not be equal to {beside}: {found}", UndecidedWarning, stacklevel=4)


@contextlib.contextmanager
def _undecided(what: str, beside: str) -> Iterator[None]:
    """Where a program does something else than to compute, nothing is said."""
    try:
        yield
    except EffectsError as error:
        settle(Equality("undecided", reason=error.problem), what, beside)


def check_lowered(made: Lowered, replicas: Replicas | None) -> Lowered:
    """A lowered graph, which is equal to the graph by its meaning.

    Args:
        made: the lowered graph.
        replicas: of it.
    """
    plan, what, beside = made.plan, "what is lowered", "its graph"
    if plan.streams or replicas is not None:
        reason = "it has replicas" if replicas is not None else "it has streams"
        settle(Equality("undecided", reason=reason), what, beside)
        return made
    structs = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in plan.inputs]
    assert plan.program is not None
    with _undecided(what, beside):
        run = function_side("second", lambda *given: list(made.flat(given)), structs)
        wanted = _by_meaning(plan.graph, plan.program, plan.inputs, plan.outputs)
        settle(compared(wanted, run, structs), what, beside)
    return made


def _by_meaning(graph: Graph, program: Program, inputs: Sequence[Variable], outputs: Sequence[Tensor]) -> OfGraph:
    names = tuple(own.name for own in inputs)
    return OfGraph(graph, program, names, tuple(outputs), jax.tree.structure([0] * len(outputs)))


def check_traced(traced: Traced) -> None:
    """See that a traced function is equal to the function: by the meaning of its graph, and as it is lowered."""
    for what, compare in comparisons_of(traced).items():
        with _undecided(what, "the function"):
            settle(compare(), what, "the function")


def comparisons_of(traced: Traced) -> dict[str, Callable[[], Equality]]:
    """Compares a traced function with the library's results from it, by name."""
    closed = traced.jaxpr
    sources = [own.source for own in traced.flat_inputs if isinstance(own.source, Variable)]  # all of them
    structs = [jax.ShapeDtypeStruct(*data_type(aval)) for aval in closed.in_avals]

    def function(*given: Any) -> list[Any]:
        arrays = [wrapped(own, aval) for own, aval in zip(given, closed.in_avals, strict=True)]
        return [unwrapped(own) for own in jax_core.jaxpr_as_fun(closed)(*arrays)]

    wanted = functools.cache(lambda: function_side("first", function, structs))

    def of_graph() -> Equality:
        return compared(wanted(), _by_meaning(traced.graph, traced.program, sources, traced.flat_outputs), structs)

    def of_lowered() -> Equality:
        run = function_side("second", lambda *given: list(traced.lowered.flat(given)), structs)
        return compared(wanted(), run, structs)

    return {"the graph of a trace": of_graph, "what a trace is lowered to": of_lowered}


def compared_gradient(graph: Graph, program: Program, found: Any, cotangent: Any) -> Equality:
    """Whether a gradient by vertices is equal to JAX's of the lowered program.

    Args:
        graph: of the program.
        program: the differentiated program.
        found: the gradient.
        cotangent: of the differentiated tensor: a tensor, a stream or numbers.

    Raises:
        EffectsError: the program does something else than to compute.
    """
    if graph.streams:
        return Equality("undecided", reason="its graph has streams")
    plan = without_calls(flow(collect(graph, program, (), ())), lambda step: step.function.derivative is not None)
    by = [*found.tensors]
    views = [found.of, *by, *([cotangent] if isinstance(cotangent, Tensor) else [])]
    needed = {*read_before_written(plan, ()), *(own for view in views for own in source_variables(view.source))}
    inputs = [own for own in graph.sources if own in needed and own.value is None]
    wrt = {own: k for k, own in enumerate(inputs) if any(own in source_variables(view.source) for view in by)}
    # What is emitted, before the lowering gives it slopes of its own: JAX's are what ours are held against.
    run = jax_core.jaxpr_as_fun(compile_plan(plan_graph(graph, program, inputs, [found.of])))

    def gradients(*given: Any) -> list[Any]:
        def differentiated(arrays: Sequence[Any]) -> Any:
            every = list(given)
            for k, array in zip(wrt.values(), arrays, strict=True):
                every[k] = array
            return run(*every)[0]

        value, pull = jax.vjp(differentiated, [given[k] for k in wrt.values()])
        if isinstance(cotangent, Tensor):
            seed = _viewed(cotangent, dict(zip(inputs, given, strict=True)))
        else:
            seed = jnp.broadcast_to(jnp.asarray(cotangent, value.dtype), value.shape)
        made = dict(zip(wrt, pull(seed)[0], strict=True))
        return [_viewed(own, made) for own in by]

    structs = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in inputs]
    wanted = function_side("first", gradients, structs)
    made = _by_meaning(graph, ProgramSequence(found.forward, found.backward), inputs, [*found])
    return compared(wanted, made, structs)


def check_gradient(graph: Graph, program: Program, found: Any, cotangent: Any) -> None:
    """See that a gradient by vertices is equal to JAX's of the lowered program; arguments as of `compared_gradient`."""
    with _undecided(_GRADIENT, _OF_JAX):
        settle(compared_gradient(graph, program, found, cotangent), _GRADIENT, _OF_JAX)


def _viewed(tensor: Tensor, arrays: Mapping[Variable, Any]) -> Any:
    """A tensor of the values of its variables, in JAX; zero where it is padding."""
    elements, made = tensor.elements(), jnp.zeros(tensor.shape, tensor.dtype)
    for own in source_variables(tensor.source):
        places = elements - own.first_element
        inside = (places >= 0) & (places < own.size)
        taken = jnp.reshape(arrays[own], -1)[np.where(inside, places, 0)] if own in arrays else 0
        made = jnp.where(inside, taken, made)
    return made
