"""Elementwise equations: each a map over the elements, and so are calls of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend import core as jax_core

from codelet import ops
from codelet.frontends.by_element import called
from codelet.frontends.element_functions import element_function
from codelet.frontends.structure import shape_of
from codelet.frontends.values import Value, number_of

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def add_by_element(walk: Walk, eqn: jax_core.JaxprEqn, given: Sequence[Value]) -> list[Value]:
    """Add an equation that is by element as a map over its elements.

    An operand that is known and one number everywhere is part of the codelet.
    """
    shape = np.broadcast_shapes(*(shape_of(var) for var in eqn.outvars))
    numbers: dict[int, np.generic] = {}
    operands: list[Any] = []
    for k, value in enumerate(given):
        number = number_of(value) if isinstance(value, np.ndarray) else None
        if number is None:
            operands.append(walk.tensor(value))
        else:
            numbers[k] = number
    function = element_function(eqn, numbers)
    if not operands:  # one number everywhere, and so is the result
        return [np.broadcast_to(np.asarray(own), shape) for own in function()]
    if np.broadcast_shapes(*(own.shape for own in operands)) != shape:  # a number has the rest of the shape
        operands[0] = operands[0].broadcast_to(shape)
    return list(ops.map(walk.graph, function, *operands, grain=walk.grain, name=called(eqn)))
