"""Gradients: the backward pass of a program, added to its graph.

In come a graph, a program, a tensor, and the tensors to differentiate with respect to. Out come the gradients, as
tensors of the graph, and two programs: the forward pass, which also saves residuals, and the backward pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from codelet.deprecated import old_order
from codelet.display import as_block, in_one_line
from codelet.errors import ForeignGraphError, ProgramError, at_line, user_line
from codelet.graphs.graph import Graph
from codelet.programs.copies import Copy, Stream
from codelet.programs.program import Program, as_program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.walk import check_program
from codelet.views.sources import source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_variable
from lowering.adjoint.arguments import (
    check_is_graph,
    check_is_policy,
    cotangent_of,
    differentiated_by,
    tensor_of_floats,
)
from lowering.adjoint.backward import Backward
from lowering.adjoint.checkpoints import with_checkpoints
from lowering.adjoint.fed import calls_of_kept_loops
from lowering.adjoint.flows import Flows, varied_variables
from lowering.adjoint.forward import forward_program
from lowering.adjoint.homes import map_to_tiles
from lowering.adjoint.programs import (
    called_once,
    has_derivative,
    parameters_of,
    with_open_calls,
    without_calls_or_idle_copies,
)
from lowering.adjoint.recompute import Recompute, in_order, runs_again
from lowering.adjoint.saved import Body, parts
from lowering.adjoint.seeds import begin
from lowering.check.check import check_graph
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.elements import ElementSet


@dataclass(frozen=True, eq=False, repr=False)
class Gradient:
    """The gradient of a tensor, as tensors and programs of its graph. Made by `cl.gradient`.

    Attributes:
        of: the tensor that is differentiated.
        tensors: the gradient with respect to each tensor, of the same shape, after the backward pass.
        forward: the program that was differentiated; it also saves the residuals of the backward pass.
        backward: computes the gradients; run it after `forward`. It preserves other variables, except recomputed ones
            that are written only inside a branch or loop.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    >>> graph.add_vertex("square", cl.codelet(lambda x: x * x), x=x, out=y)
    >>> found = cl.gradient(graph, of=y, wrt=[x])
    >>> found[x].name, found["x"] is found[x]
    ('backward/x', True)
    >>> print(found.backward)
    Execute(backward/square)
    """

    of: Tensor
    tensors: Mapping[Tensor, Tensor]
    forward: Program
    backward: Program

    def __getitem__(self, wrt: Any) -> Any:
        """The gradient with respect to a tensor, or to a variable by name; for a pytree of them, the same pytree of
        gradients.

        Args:
            wrt: one of the tensors in `wrt` of `cl.gradient`.

        Raises:
            ProgramError, ForeignGraphError, NotInGraphError: not one of these.
        """
        return jax.tree.map(self._by, wrt, is_leaf=lambda own: own is None)

    def _by(self, tensor: Any) -> Tensor:
        wanted = self.of.graph.variable(tensor) if isinstance(tensor, str) else tensor
        for own, made in self.tensors.items() if isinstance(wanted, Tensor) else ():
            is_alike = own.source is wanted.source and own.shape == wanted.shape
            if own is wanted or (is_alike and (own.index - wanted.index).bounds() in ((0, 0), None)):
                return made
        if isinstance(wanted, Tensor) and wanted.graph is not self.of.graph:
            raise ForeignGraphError(
                "the gradient with respect to a tensor of another graph was not asked for",
                given=wanted,
                expected="a tensor of the graph of the gradient",
            )
        raise ProgramError(
            "the gradient with respect to this tensor was not asked for",
            given=f"{tensor!r:.80}",
            expected=", ".join(map(str, self.tensors)),
            fix="cl.gradient(graph, of=..., wrt=...) with it in `wrt`; of a part of x, found[x][...]",
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tensors.values())

    def __repr__(self) -> str:
        return in_one_line(self)

    def __str__(self) -> str:
        rows = [f"gradient of {self.of}"]
        rows += [f"  by {tensor}: {own}" for tensor, own in self.tensors.items()]
        rows += ["forward", *("  " + line for line in self.forward.lines())]
        rows += ["backward", *("  " + line for line in self.backward.lines())]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        return as_block(self)


@old_order(("of", "wrt"), lambda second: isinstance(second, (Tensor, Stream, str)))
def gradient(
    graph: Graph,
    program: object = None,
    *,
    of: Tensor | str,
    wrt: Any,
    cotangent: object = None,
    recompute: Recompute | None = None,
    check: str | None = None,
) -> Gradient:
    """Add the backward pass of a program to its graph: the gradient of a tensor as vertices, edges and programs.

    Args:
        graph: the graph of the program; compute sets and variables are added in a scope `backward`.
        program: the program to differentiate. Default: all compute sets in the order they were added, without those of
            gradients.
        of: the tensor to differentiate, with its value after the program: one number, unless a cotangent is given.
        wrt: differentiate with respect to this tensor, with its value before the program: a tensor, a variable by name,
            or a pytree of them, such as a list.
        cotangent: of `of`: a tensor of its shape and dtype, a variable by name, or numbers that broadcast to it.
            Default: 1.
        recompute: which residuals the backward pass recomputes instead of saving: `cl.Recompute.sqrt()`, for example.
            Default: none.
        check: "equal", to check that the gradient is equal to JAX's of the lowered program; see `cl.equal`.

    Returns:
        A `cl.Gradient`: the gradients, of the shapes and dtypes of `wrt`, and the program to run instead:
            `cl.Sequence(found.forward, found.backward)`. If `of` does not depend on a tensor, its gradient is zero; so
            are all if the program does not write `of`.

    Raises:
        ProgramError, ForeignGraphError: tensors that are not of this graph or not floating-point, a cotangent that does
            not fit, an invalid policy.
        NotInGraphError: no variable has this name.
        CodeletTraceError: JAX cannot differentiate a codelet.
        NotEqualError: the check fails.

    Warns:
        UndecidedWarning: the check is inconclusive.

    Source: reverse accumulation, A. Griewank and A. Walther, Evaluating Derivatives (2008), chapter 3.

    >>> import codelet as cl, jax.numpy as jnp
    >>> @cl.codelet
    ... def square(x):
    ...     return x * x
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    >>> graph.add_vertex("square", square, x=x, out=y)
    >>> found = cl.gradient(graph, of=y, wrt=x)
    >>> program = cl.Sequence(found.forward, found.backward)
    >>> float(cl.interpret(graph, program, values={x: 3.0}, outputs=found[x])[found[x]])
    6.0
    """
    check_is_graph(graph)
    checks = None if check is None else importlib.import_module("lowering.equality.checks").for_word(check)
    chosen = graph.default_program if program is None else as_program(program)
    check_program(chosen, graph)
    target = tensor_of_floats(graph, of, "the tensor of=")
    by = differentiated_by(graph, wrt)
    check_is_policy(recompute)
    seed, num_before = cotangent_of(target, cotangent), len(graph.sources)
    plan = check_graph(flow(collect(graph, chosen, (), ())))
    is_only, parameters = called_once(plan), parameters_of(plan)
    is_fed = calls_of_kept_loops(plan)
    plan = with_open_calls(plan, lambda step: has_derivative(step) or not (is_only(step) or is_fed(step)))
    opened = parameters - parameters_of(plan)
    variables = {variable for own in by.values() for variable in source_variables(own.source)}
    varied = varied_variables(replace(plan, steps=without_calls_or_idle_copies(plan, plan.steps)), variables)
    with at_line(user_line()), graph.scope("backward", unique=True), graph.record(aside=True):
        steps = with_checkpoints(graph, plan.steps, varied)
        plan = replace(plan, steps=steps, variables=tuple(graph.sources))
        backward = Backward(plan, Flows(plan, varied), variables, lambda function: runs_again(recompute, function))
        outermost, pieces = Body(plan.steps), []
        if not varied.isdisjoint(source_variables(target.source)):
            begin(backward, target, seed)
            pieces = backward.pieces(outermost)
        first, backward.sums.programs = backward.sums.programs, []
        backward.fill(_elements(backward, by.values()))
        tensors = {own: backward.cotangents_of(tensor) for own, tensor in by.items()}
        before = backward.saved.settle(outermost)
        # What are parameters of functions that are called once holds nothing where these are called.
        is_changed = outermost.is_changed or bool(opened)
        forward = ProgramSequence(*before, forward_program(plan, outermost)) if is_changed else chosen
        kept = {
            own: new_variable(graph, f"kept/{own.name}", own)
            for own in sorted(backward.disturbed - parameters_of(plan), key=lambda own: own.number)
        }
        pairs = [
            pair
            for own, held in kept.items()
            for pair in parts(whole_view(own), whole_view(held), backward.saved.certain.of(own))
        ]
        first = [*(Copy(own, held) for own, held in pairs), *outermost.prelude, *first]
        last = [*backward.sums.programs, *(Copy(held, own) for own, held in pairs)]
        made = {variable for own in tensors.values() for variable in source_variables(own.source)}
        both = ProgramSequence(forward, *first), ProgramSequence(*last)
        back = ProgramSequence(*first, *in_order(recompute, plan, pieces, *both, made), *last)
        like = backward.likenesses() | {held: own for own, held in kept.items()}
        map_to_tiles(graph, graph.sources[num_before:], like, ProgramSequence(forward, back))
    made = {own if isinstance(own, Tensor) else by[own]: tensors[own] for own in by}
    found = Gradient(target, made, forward, back)
    if checks is not None:
        checks.check_gradient(graph, chosen, found, seed)
    return found


def _elements(backward: Backward, tensors: Any) -> ElementSet:
    found = ElementSet()
    for tensor in tensors:
        found = found | backward.flows.elements(tensor)
    return found
