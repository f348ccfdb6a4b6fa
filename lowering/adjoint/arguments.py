"""The arguments of `cl.gradient` and `cl.check_gradient`, checked before anything is added to a graph."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from codelet.errors import ForeignGraphError, ProgramError
from codelet.graphs.graph import Graph
from codelet.programs.copies import Stream
from codelet.views.sources import source_variables, type_text
from codelet.views.tensor import Tensor
from lowering.adjoint.flows import is_float
from lowering.adjoint.recompute import Recompute


def check_is_graph(graph: object) -> None:
    """See that it is a graph.

    Raises:
        ProgramError: something else.
    """
    if isinstance(graph, Graph):
        return
    is_traced = isinstance(getattr(graph, "graph", None), Graph)
    raise ProgramError(
        "a gradient is taken in something other than a graph",
        given=f"{graph!r:.80}",
        expected="a graph, as cl.Graph makes it",
        fix="its own graph and program: traced.graph, traced.program" if is_traced else None,
    )


def tensor_of_floats(graph: Graph, given: object, what: str) -> Tensor:
    """A tensor of floats, or a variable by its name."""
    tensor = graph.variable(given) if isinstance(given, str) else given
    if not isinstance(tensor, Tensor):
        raise ProgramError(
            f"{what} is not a tensor",
            given=f"{given!r:.80}",
            expected="a tensor of the graph, without symbols, or a variable's name",
            fix="the variable that its values are copied to or from" if isinstance(given, Stream) else None,
        )
    _check_is_of(graph, tensor, what, "a tensor of this graph")
    if not all(map(is_float, source_variables(tensor.source))):
        raise ProgramError(
            f"{what} is not of floats",
            given=tensor,
            expected="a tensor of a dtype with derivatives, as float32",
            fix="integers and booleans have none: leave it out, or hold it in a variable of floats",
        )
    return tensor


def _check_is_of(graph: Graph, tensor: Tensor, what: str, expected: str) -> None:
    if tensor.axes:
        raise ProgramError(
            f"{what} depends on a symbol",
            given=f"{tensor!r:.80}",
            expected="a view without symbols",
            fix="name the whole range: x, and not x[i]",
        )
    if tensor.graph is not graph:
        raise ForeignGraphError(f"{what} belongs to another graph", given=tensor, expected=expected)


def differentiated_by(graph: Graph, wrt: object) -> dict[Tensor | str, Tensor]:
    """The variables to differentiate with respect to: the tensor of each leaf of a pytree of tensors and names of
    variables.
    """
    leaves = jax.tree.leaves(wrt, is_leaf=lambda own: own is None)
    return {own: tensor_of_floats(graph, own, "a tensor in wrt=") for own in leaves}


def cotangent_of(of: Tensor, given: object) -> Any:
    """The cotangent of the differentiated tensor: a tensor or a stream of its type, or numbers that broadcast to it."""
    if given is None:
        if of.shape != ():
            raise ProgramError(
                "`of` is not a single number, and no cotangent is given",
                given=of,
                expected="a tensor of shape ()",
                fix="cotangent=..., of the same shape: a tensor, or numbers",
            )
        return 1
    expected = f"a tensor of {type_text(of.dtype, of.shape)}, or numbers that broadcast to that"
    own = of.graph.variable(given) if isinstance(given, str) else given
    if isinstance(own, Stream):
        return own
    if not isinstance(own, Tensor):
        return numbers_of(of, own, expected)
    _check_is_of(of.graph, own, "the cotangent", expected)
    if (own.shape, own.dtype) != (of.shape, of.dtype):
        problem = "the cotangent is not of the type of `of`"
        raise ProgramError(problem, given=own, expected=expected)
    return own


def numbers_of(of: Tensor, given: object, expected: str) -> np.ndarray:
    """Numbers that a user gives as a cotangent, of its dtype; they broadcast to its shape.

    Raises:
        ProgramError: numbers that do not fit, or none.
    """
    if isinstance(given, (Tracer, Tensor)):
        raise ProgramError(
            "the cotangent has no numbers yet",
            given=f"{given!r:.80}",
            expected=expected,
            fix="of cl.gradient it may be a variable, whose values are passed as an input",
        )
    try:
        found = np.asarray(given)
        is_complex = jnp.issubdtype(found.dtype, jnp.complexfloating)
        if is_complex and not jnp.issubdtype(of.dtype, jnp.complexfloating):
            raise ValueError
        found = found.astype(of.dtype)
        np.broadcast_to(found, of.shape)
    except (TypeError, ValueError):
        problem = "the cotangent does not fit `of`"
        raise ProgramError(problem, given=f"{given!r:.80}", expected=expected) from None
    return found


def check_is_policy(recompute: object) -> None:
    """Check that it says which values to recompute.

    Raises:
        ProgramError: something else.
    """
    if recompute is None or isinstance(recompute, Recompute):
        return
    name = getattr(recompute, "__name__", "")
    raise ProgramError(
        "recompute is no policy",
        given=f"{recompute!r:.80}",
        expected="cl.Recompute.all(), every(k), sqrt(), scopes(...) or bytes(n), or None",
        fix=f"call it: cl.Recompute.{name}(...)" if hasattr(Recompute, name or "-") else None,
    )
