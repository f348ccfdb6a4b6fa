"""Checks of gradients against finite differences: the public function, and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from codelet.deprecated import old_order
from codelet.errors import GradientError, ProgramError, UninitializedReadError
from codelet.graphs.by_tensor import by_name
from codelet.graphs.graph import Graph
from codelet.hostdata import as_array
from codelet.interpret import check_names
from codelet.programs.copies import Stream
from codelet.programs.program import as_program
from codelet.programs.walk import check_program as check_form
from codelet.schema import is_whole
from codelet.tracing.codelets import Codelet
from codelet.views.sources import source_text, source_variables, type_text
from codelet.views.tensor import Tensor
from lowering.adjoint.arguments import (
    check_is_graph,
    differentiated_by,
    numbers_of,
    tensor_of_floats,
)
from lowering.gradient_check.families import Options, check_families, drawn, sites_of
from lowering.gradient_check.programs import check_program
from lowering.gradient_check.report import GradientCheck, number
from lowering.gradient_check.vertices import rules_in
from lowering.pipeline import plan_graph
from lowering.plan.timeline import without_calls


def _error(report: GradientCheck, ignored: Sequence[object]) -> GradientError:
    """The error for the first gradient that is wrong."""
    finding = report.wrong[0]
    found, vertex = finding.verdict, finding.vertex
    gradient, differences = number(found.slope), number(found.difference)
    more = f", and {len(report.wrong) - 1} more" if len(report.wrong) > 1 else ""
    if vertex is None:
        return GradientError(
            f"the gradient with respect to {finding.field} is wrong, while those of all checked vertices are right"
            + more,
            report,
            given=f"{finding.quantity} is {gradient}",
            expected=f"{differences}, to which differences of what the program computes converge",
            fix="vertices=... looks at more of each family; of a function with derivative=, see that its codelet "
            "computes what its body does",
        )
    codelet = vertex.family.codelet
    rules = " or ".join(f"jax.{rule}" for rule in rules_in(codelet))
    name = repr([*(getattr(own, "name", own) for own in ignored), codelet.name])
    mend = f"correct the {rules} in it" if rules else "see where it stops or replaces a gradient: jax.lax.stop_gradient"
    return GradientError(
        f"codelet {codelet.name!r} has a wrong gradient with respect to its field {finding.field!r}{more}",
        report,
        given=f"{finding.quantity} is {gradient}, at {vertex!r}",
        expected=f"{differences}, to which differences of what it computes converge",
        fix=f"{mend}; where it is meant to differ, ignore={name}",
        line=finding.line,
    )


def _options(graph: Graph, vertices: Any, directions: Any, seed: Any, rtol: Any, ignore: Any) -> Options:
    """The options, once they are seen to be fit."""
    many = "says how many are looked at"
    whole = (
        ("vertices", vertices, 1, many),
        ("directions", directions, 0, many),
        ("seed", seed, 0, "starts all that is drawn"),
    )
    for name, own, least, what in whole:
        if not is_whole(own, least):
            raise ProgramError(f"{name} {what}", given=f"{own!r:.80}", expected=f"an integer, {least} or more")
    if rtol is not None and not (isinstance(rtol, (int, float, np.floating)) and 0 < rtol < 1):
        raise ProgramError(
            "rtol says how far a gradient may be from the differences, of its size",
            given=f"{rtol!r:.80}",
            expected="a number between 0 and 1",
        )
    is_list = isinstance(ignore, Iterable) and not isinstance(ignore, (str, Codelet))
    ignored = tuple(ignore) if is_list else (None,)
    if not all(isinstance(own, (str, Codelet)) for own in ignored):
        raise ProgramError(
            "ignore names codelets", given=f"{ignore!r:.80}", expected="a list of codelets or their names"
        )
    names = list(dict.fromkeys(family.codelet.name for family in graph.families))
    for own in ignored:
        if isinstance(own, str) and own not in names:
            raise ProgramError("no vertex has a codelet of a name in `ignore`", given=own, expected=", ".join(names))
    return Options(int(vertices), int(seed), None if rtol is None else float(rtol), ignored)


@old_order(("of", "wrt", "values"), lambda second: isinstance(second, (Tensor, Stream, str)))
def check_gradient(
    graph: Graph,
    program: object = None,
    *,
    of: Tensor | str,
    wrt: Any,
    values: Mapping[Any, Any],
    cotangent: Any = None,
    vertices: int = 16,
    directions: int = 2,
    seed: int = 0,
    rtol: float | None = None,
    ignore: Sequence[Codelet | str] = (),
) -> GradientCheck:
    """Check the gradient of a tensor against finite differences, compute set by compute set.

    A sample of vertices of each family is checked, with the values of their first execution (in loops, the first
    iteration). Each differentiable field is moved along a direction, in float64. The adjoint of the codelet is compared
    with extrapolated differences at several steps, and with `jax.jvp` if the codelet has one. Different derivatives
    from the left and the right, as of relu at 0, are a kink. Differences that do not converge, as at a jump, are
    unstable. Neither counts as wrong. If no vertex is wrong, the gradient that `cl.gradient` gives is compared with
    differences of the whole program, in its dtypes.

    Args:
        graph: the graph of the program; nothing is added to it.
        program: the program to differentiate. Default: all compute sets in the order they were added, without those of
            gradients.
        of: the tensor to differentiate, with its value after the program.
        wrt: differentiate with respect to this, with its value before the program: a tensor, a variable by name, or a
            pytree of them, such as a list.
        values: an array for each variable with an initial value, by tensor or name; for each input stream its values,
            stacked along a first axis.
        cotangent: of `of`, numbers that broadcast to its shape. Default: 1 for a single number, else random.
        vertices: how many of each family are checked, at most.
        directions: along how many random directions the whole program is moved.
        seed: of all random numbers.
        rtol: the largest error, relative to the gradient. Default: 1e-5 in float64, 1e-2 in float32, 0.1 in 16 bits.
        ignore: codelets (or names) with intentionally different gradients, e.g. straight-through. If given, the
            whole-program check is skipped.

    Returns:
        A `cl.GradientCheck`, which prints.

    Raises:
        GradientError: a wrong gradient; its attribute `check` has all findings.
        ProgramError, ForeignGraphError, ArrayError, NotInGraphError: as of `cl.gradient` and `cl.interpret`.
        CodeletTraceError: JAX cannot differentiate a codelet.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> @jax.custom_vjp
    ... def square(x):
    ...     return x * x
    >>> square.defvjp(lambda x: (x * x, x), lambda x, g: (x * g,))     # twice that would be right
    >>> @cl.codelet
    ... def energy(x):
    ...     return jnp.sum(square(x))
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", (3, 2)), graph.add_variable("y", (3,))
    >>> i = cl.grid(3)
    >>> graph.add_vertex("energies", energy, x=x[i], out=y[i])
    >>> cl.check_gradient(graph, of=y, wrt=x, values={x: jnp.arange(1.0, 7).reshape(3, 2)})   # doctest: +ELLIPSIS
    Traceback (most recent call last):
    codelet.errors.GradientError: codelet 'energy' has a wrong gradient with respect to its field 'x', and 2 more
      given:    d out / d x[1] is 2, at vertex of energies / energy at i=0
      expected: 4, to which differences of what it computes converge
      fix:      correct the jax.custom_vjp in it; where it is meant to differ, ignore=['energy']
      at: ...
    """
    check_is_graph(graph)
    options = _options(graph, vertices, directions, seed, rtol, ignore)
    chosen = graph.default_program if program is None else as_program(program)
    check_form(chosen, graph)
    values = by_name(graph, values)
    check_names(graph, values)
    target = tensor_of_floats(graph, of, "the tensor of=")
    by = [*differentiated_by(graph, wrt).values()]
    weights = _weights(target, cotangent, seed)
    inputs = [variable for variable in graph.sources if variable.name in values]
    values = {**values, **{own.name: np.asarray(as_array(values[own.name], own)) for own in inputs}}
    keep = lambda step: step.function.derivative is not None  # noqa: E731
    try:
        plan = without_calls(plan_graph(graph, chosen, inputs, ()), keep)
    except UninitializedReadError as error:
        raise UninitializedReadError(
            error.problem,
            given=f"values of {', '.join(values) or 'nothing'}",
            expected="a value for each variable that is read before it is written",
            fix="values={name: array, ...}",
            line=error.line,
        ) from None
    variables = {variable for tensor in by for variable in source_variables(tensor.source)}
    sites = sites_of(plan, variables, source_variables(target.source), options)
    checked, findings = check_families(plan, sites, values, options)
    title = (
        f"gradient of {source_text(target.source)} with respect to {', '.join(source_text(own.source) for own in by)}"
    )
    if not any(own.kind == "wrong" for own in findings) and not ignore and directions:
        whole, more = check_program(graph, target, by, values, chosen, weights, directions, options)
        checked.append(whole)
        findings += more
    order = ("wrong", "kink", "unstable")
    report = GradientCheck(title, tuple(checked), tuple(sorted(findings, key=lambda own: order.index(own.kind))))
    if report.wrong:
        raise _error(report, ignore)
    return report


def _weights(target: Tensor, cotangent: Any, seed: int) -> np.ndarray:
    """The cotangent of the tensor that is differentiated."""
    if cotangent is None:
        random = np.random.default_rng(seed)
        return drawn(random, target.shape, target.dtype) if target.shape else np.ones((), target.dtype)
    expected = f"numbers that broadcast to {type_text(target.dtype, target.shape)}"
    return np.broadcast_to(numbers_of(target, cotangent, expected), target.shape)
