"""Which plans an operation follows: an operation of several steps, each planned, has the sum of their plans.

Where vertices are added as planned, `follow` says so. `plan_operation` builds an operation in a separate graph, and
puts together the plans that were followed meanwhile: one way to ask for the plan of any operation.

A known weakness: the steps of an operation are planned in their order, each knowing where those before it have left
their results. The cheapest plan for one may cost the next more than it has saved. `var_gradient`, `max_gradient`,
`layer_norm_gradient` and `lstm_cell` of some tens of elements take up to a fifth more than by some given grains.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from codelet.graphs.graph import Graph
from codelet.hostdata import is_of_keys
from codelet.ops.planning import Plan
from codelet.ops.schema import checked
from codelet.target import Target

_FOLLOWED: ContextVar[list[Plan] | None] = ContextVar("followed", default=None)
"""The plans of what is built, in order; None where nobody asks."""


def follow(plan: Plan) -> Plan:
    """The plan itself, by which vertices are added now."""
    followed = _FOLLOWED.get()
    if followed is not None and plan.steps:
        followed.append(plan)
    return plan


@checked
def plan_operation(target: Target, operation: Callable[..., Any], *operands: Any, **options: Any) -> Plan:
    """The plan of any operation: of all that it does, one part after another. It prints.

    Args:
        target: the machine.
        operation: of `cl.ops`, or a function of a graph and tensors that calls some.
        operands: its positional arguments, with arrays or `jax.ShapeDtypeStruct`s where it takes tensors.
        options: its other arguments.

    Returns:
        The plan, whose `parts` are those of its operations.

    Raises:
        OperationError: a target that is no machine, or operands that the operation refuses.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> rows = jax.ShapeDtypeStruct((4, 100_000), jnp.float32)
    >>> plan = plan_operation(cl.IPU(), cl.ops.softmax, rows)
    >>> [part.steps[0].name.split(" in ")[0] for part in plan.parts]
    ['largest', 'sum exponentials', 'divide']
    """
    graph = Graph(target)
    leaves, tree = jax.tree.flatten((operands, options))
    is_operand = [isinstance(own, jax.ShapeDtypeStruct | jax.Array) and not is_of_keys(own.dtype) for own in leaves]
    given = [own for own, taken in zip(leaves, is_operand, strict=True) if taken]
    tensors = iter([graph.add_variable(f"operand {k}", own.shape, own.dtype) for k, own in enumerate(given)])
    built = [next(tensors) if taken else own for own, taken in zip(leaves, is_operand, strict=True)]
    arguments, keywords = jax.tree.unflatten(tree, built)
    parts: list[Plan] = []
    token = _FOLLOWED.set(parts)
    try:
        operation(graph, *arguments, **keywords)
    finally:
        _FOLLOWED.reset(token)
    types = ", ".join(f"{jnp.dtype(own.dtype)}{list(own.shape)}" for own in given)
    name = getattr(operation, "__name__", "an operation")
    return Plan(f"{name} of {types}", (), tuple(step for part in parts for step in part.steps), parts=tuple(parts))
