"""Calls: jitted functions, functions with derivative rules, and recomputation.

A function of the user's that is called several times with equal types is one function of the graph. Others are added
where they are called, in a scope of their name where the user wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.extend import core as jax_core

from codelet.frontends.labels import is_library, within
from codelet.frontends.rules import rule
from codelet.frontends.structure import dtype_of, shape_of
from codelet.frontends.values import Value, data_type, unwrapped, wrapped
from codelet.jaxprs.equations import CALLS, bind, with_every_result
from codelet.programs.functions import Call, Function
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def is_of_library(closed: jax_core.ClosedJaxpr) -> bool:
    """Whether a jitted function belongs to JAX or to another library."""
    place = closed.jaxpr.debug_info.func_src_info or ""
    filename = place.rpartition(" at ")[2].rpartition(":")[0]
    if filename.endswith("equinox/_jit.py"):  # `eqx.filter_jit`, around a function of the user's
        return False
    return not filename or is_library(filename)


@rule(*CALLS, by="what it is made of, or a call of a function")
def jit(
    walk: Walk,
    *operands: Value,
    jaxpr: jax_core.ClosedJaxpr,
    name: str,
    in_shardings: Any,
    out_shardings: Any,
    in_layouts: Any,
    out_layouts: Any,
    donated_invars: Any,
    ctx_mesh: Any,
    keep_unused: Any,
    inline: Any,
    compiler_options_kvs: Any,
) -> Any:
    """A jitted function."""
    if walk.functions.is_shared(jaxpr):
        return call(walk, walk.functions.function(walk, jaxpr, name), operands)
    paths = walk.paths_of(jaxpr.jaxpr.invars)
    if is_of_library(jaxpr):
        return walk.closed(jaxpr, operands, paths)
    with walk.graph.scope(name):
        return walk.closed(jaxpr, operands, within(paths))


@rule("remat2", "remat", "checkpoint", by="what it is made of")
def checkpoint(walk: Walk, *operands: Value, jaxpr: Any, prevent_cse: Any, differentiated: Any, policy: Any) -> Any:
    """Values that are recomputed in a backward pass; a program says itself which it keeps."""
    return walk.jaxpr(jaxpr, (), operands, walk.paths_of(jaxpr.invars))


@rule("closed_call", "core_call", "call", by="what it is made of")
def closed_call(walk: Walk, *operands: Value, call_jaxpr: Any, name: Any = None) -> Any:
    """A call."""
    if isinstance(call_jaxpr, jax_core.ClosedJaxpr):
        return walk.closed(call_jaxpr, operands, walk.paths_of(call_jaxpr.jaxpr.invars))
    return walk.jaxpr(call_jaxpr, (), operands, walk.paths_of(call_jaxpr.invars))


@rule("slices_together", by="what it is made of")
def slices_together(walk: Walk, array: Value, *, jaxpr: jax_core.ClosedJaxpr, places: Any, batch: int) -> Any:
    """Slices in the forward mode of a lowered graph."""
    return walk.closed(jaxpr, [array], walk.paths_of(jaxpr.jaxpr.invars))


@rule("composite", by="what it is made of")
def composite(
    walk: Walk, *operands: Value, name: str, attributes: Any, version: Any, jaxpr: Any = None, call_jaxpr: Any = None
) -> Any:
    """A function that some compilers know by its name. Releases of JAX name its jaxpr in two ways."""
    own = call_jaxpr if jaxpr is None else jaxpr
    with walk.graph.scope(name):
        return walk.closed(own, operands, walk.paths_of(own.jaxpr.invars))


@rule("custom_jvp_call", "custom_vjp_call", by="a function with the derivative that the user gave it")
def custom(
    walk: Walk,
    *operands: Value,
    call_jaxpr: Any,
    num_consts: Any,
    symbolic_zeros: Any,
    jvp_jaxpr_fun: Any = None,
    fwd_jaxpr_thunk: Any = None,
    bwd: Any = None,
    out_trees: Any = None,
) -> Any:
    """A function with a derivative rule."""
    function = add_function(
        walk, call_jaxpr, call_jaxpr.jaxpr.debug_info.func_name or "custom", _derivative(walk.equation)
    )
    return call(walk, function, operands)


@rule("custom_linear_solve", by="what solves, with the derivative of a solution")
def custom_linear_solve(walk: Walk, *operands: Value, const_lengths: Any, jaxprs: Any) -> Any:
    """A system of linear equations, and how it is solved."""
    first = const_lengths.matvec + const_lengths.vecmat
    constants = sum(const_lengths)
    dtypes = [dtype_of(var) for var in walk.equation.outvars]

    def solve(*given: Any) -> list[Any]:
        own = given[first : first + const_lengths.solve]
        results = jax_core.jaxpr_as_fun(jaxprs.solve)(*own, *given[constants:])
        return [own.astype(dtype) for own, dtype in zip(results, dtypes, strict=True)]

    structs = [jax.ShapeDtypeStruct(shape_of(atom), dtype_of(atom)) for atom in walk.equation.invars]
    closed = jax.make_jaxpr(solve)(*structs)
    return call(walk, add_function(walk, closed, "solve", _derivative(walk.equation)), operands)


def _derivative(eqn: jax_core.JaxprEqn) -> Codelet:
    """A codelet that an equation is, with the derivatives that it has, of all results, used or not."""
    eqn = with_every_result(eqn)

    def run(*held: Any) -> list[Any]:
        given = [wrapped(own, atom.aval) for own, atom in zip(held, eqn.invars, strict=True)]
        return list(map(unwrapped, bind(eqn, given)))

    structs = [jax.ShapeDtypeStruct(*data_type(atom.aval)) for atom in eqn.invars]
    inputs, outputs = _names(len(eqn.invars), len(eqn.outvars))
    return codelet_from_jaxpr(jax.make_jaxpr(run)(*structs), inputs, outputs, name="derivative")


# --- functions of the graph ------------------------------------------------------------------------------------


def _names(inputs: int, outputs: int) -> tuple[list[str], list[str]]:
    return [f"x{k}" for k in range(inputs)], [f"out{k}" for k in range(outputs)]


def add_function(
    walk: Walk,
    closed: jax_core.ClosedJaxpr,
    name: str,
    derivative: Any = None,
    build: Callable[[Sequence[Tensor]], Sequence[Value]] | None = None,
) -> Function:
    """A jaxpr as a function of the graph.

    Args:
        walk: where it is added.
        closed: its body.
        name: its printed name.
        derivative: a function that has its derivatives, when it is another.
        build: adds it in the place of the jaxpr's equations, from its arguments.
    """
    jaxpr = closed.jaxpr
    inputs, outputs = _names(len(jaxpr.invars), len(jaxpr.outvars))
    name = walk.graph.free_name(name)
    with walk.graph.scope(name), walk.body() as steps:
        given = [
            walk.graph.add_variable(own, *data_type(var.aval)) for own, var in zip(inputs, jaxpr.invars, strict=True)
        ]
        paths = within(walk.paths_of(jaxpr.invars))
        results = walk.closed(closed, given, paths) if build is None else build(given)
        made = []
        for own, var, result in zip(outputs, jaxpr.outvars, results, strict=True):
            made.append(walk.graph.add_variable(own, *data_type(var.aval)))
            walk.copy(result, made[-1])
    parameters = dict(zip((*inputs, *outputs), (*given, *made), strict=True))
    return walk.graph.add_function(steps, parameters, name=name, derivative=derivative, same_values=True)


def call(walk: Walk, function: Function, operands: Sequence[Value]) -> list[Tensor]:
    """Call a function of the graph."""
    results = [tensor for name, tensor in function.parameters.items() if name.startswith("out")]
    with walk.graph.scope(function.name.rpartition("/")[2] + "_call", unique=True):
        made = [walk.graph.add_variable(f"out{k}", own.shape, own.dtype) for k, own in enumerate(results)]
    arguments = {f"x{k}": walk.tensor(own) for k, own in enumerate(operands)}
    walk.run(Call(function, **arguments, **{f"out{k}": own for k, own in enumerate(made)}))
    return made
