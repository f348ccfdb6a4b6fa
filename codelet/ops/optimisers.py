"""Optimisers: parameters taken a step down their gradients, where they lie, all of them in one compute set.

Parameters, gradients and an optimiser's state are pytrees of tensors alike. A step changes parameters and memory in
place, as optax's optimisers of the same names would; how often a step was taken is counted in a compute set before. The
state is 0 before the first step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_dtype
from codelet.ops.elementwise import map_in_place
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.schema import checked
from codelet.schema import is_number
from codelet.views.tensor import Tensor


class AdamState(NamedTuple):
    """The state of Adam, as tensors of a graph or as arrays: all 0 before the first step.

    Attributes:
        count: how many steps were taken: int32 of shape ().
        corrections: the divisors of averages that began at 0: float32 of shape (2,).
        mean: the running average of the gradients, of the parameters' structure and shapes.
        square: of their squares.
    """

    count: Any
    corrections: Any
    mean: Any
    square: Any


def descend(p, gradient, rate):
    """A parameter one step down its gradient."""
    return (p - (rate * gradient).astype(p.dtype),)


def descend_with_momentum(p, velocity, gradient, rate, momentum, *, nesterov):
    """A parameter and its velocity after a step."""
    after = momentum * velocity + gradient
    slope = momentum * after + gradient if nesterov else after
    return p - (rate * slope).astype(p.dtype), after.astype(velocity.dtype)


def count_step(count, first, second, *, b1, b2):
    """The steps with this one, and the divisors of averages after so many."""
    after = count + 1
    steps = after.astype(first.dtype)
    return after, 1 - b1**steps, 1 - b2**steps


def descend_by_adam(p, mean, square, gradient, first, second, rate, *, b1, b2, eps, weight_decay):
    """A parameter and the averages of its gradients and of their squares after a step."""
    own = gradient.astype(mean.dtype)
    mean = b1 * mean + (1 - b1) * own
    square = b2 * square + (1 - b2) * own * own
    slope = (mean / first) / (jnp.sqrt(square / second) + eps)
    if weight_decay:
        slope = slope + weight_decay * p
    return p - (rate * slope).astype(p.dtype), mean.astype(own.dtype), square.astype(own.dtype)


def _alike(name: str, graph: Graph, **trees: Any) -> list[tuple[Tensor, ...]]:
    """The leaves of pytrees side by side.

    Raises:
        OperationError: pytrees or leaves that are not alike.
    """
    first, *others = trees
    leaves, structure = jax.tree.flatten(trees[first])
    columns = {first: leaves}
    for other in others:
        columns[other], own = jax.tree.flatten(trees[other])
        if own != structure:
            raise OperationError(
                f"{other} of ops.{name} is not in the structure of {first}",
                given=f"{own!s:.200}",
                expected=f"{structure!s:.200}",
            )
    for k, row in enumerate(zip(*columns.values(), strict=True)):
        named = {f"{column} {k}": own for column, own in zip(columns, row, strict=True)}
        check_tensors(name, graph, **named)
        check_floating(name, **named)
        for column, own in zip(columns, row, strict=True):
            if own.shape != row[0].shape:
                raise OperationError(
                    f"{column} of ops.{name} is not of the shapes of {first}",
                    given=own,
                    expected=f"like {row[0]}",
                )
    return list(zip(*columns.values(), strict=True))


def _rate(name: str, graph: Graph, learning_rate: Any) -> Any:
    """A learning rate, a number or a tensor of one.

    Raises:
        OperationError: something else.
    """
    if isinstance(learning_rate, Tensor):
        check_tensors(name, graph, learning_rate=learning_rate)
        if learning_rate.shape != ():
            raise OperationError(f"learning_rate of ops.{name} is not one number", given=learning_rate, expected="()")
    elif not is_number(learning_rate):
        raise OperationError(
            f"learning_rate of ops.{name} is no number",
            given=repr(learning_rate),
            expected="a number, or a tensor of shape () for one that changes",
        )
    return learning_rate


@checked
def sgd(
    graph: Graph,
    parameters: Any,
    gradients: Any,
    *,
    learning_rate: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "sgd",
) -> None:
    """Take parameters a step down their gradients, in place, as `optax.sgd`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        parameters: a pytree of tensors, which are changed.
        gradients: by them, a pytree alike.
        learning_rate: a number, or a tensor of shape () for one that changes.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: pytrees that are not alike, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def step(graph, parameters, gradients):
    ...     cl.ops.sgd(graph, parameters, gradients, learning_rate=0.5)
    ...     return parameters
    >>> cl.lower(step)({"w": jnp.ones(2)}, {"w": jnp.array([1.0, 2.0])})["w"]
    Array([0.5, 0. ], dtype=float32)
    """
    rate = _rate(name, graph, learning_rate)
    rows = _alike(name, graph, parameters=parameters, gradients=gradients)
    own = [(*row, rate) for row in rows if row[0].size]
    map_in_place(graph, descend, own, 1, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def momentum(
    graph: Graph,
    parameters: Any,
    gradients: Any,
    velocity: Any,
    *,
    learning_rate: Any,
    momentum: float = 0.9,
    nesterov: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "momentum",
) -> None:
    """Take parameters a step down their gradients with momentum, in place, as `optax.sgd` with it.

    Args:
        graph: where its compute set is added, in a scope of its name.
        parameters: a pytree of tensors, which are changed.
        gradients: by them, a pytree alike.
        velocity: a pytree alike, which is changed: 0 before the first step.
        learning_rate: a number, or a tensor of shape () for one that changes.
        momentum: how much of the velocity a step keeps.
        nesterov: whether the step looks ahead along the velocity.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: pytrees that are not alike, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def step(graph, w, slope, velocity):
    ...     cl.ops.momentum(graph, w, slope, velocity, learning_rate=0.5)
    ...     return w, velocity
    >>> cl.lower(step)(jnp.ones(2), jnp.array([1.0, 2.0]), jnp.ones(2))[1]
    Array([1.9, 2.9], dtype=float32)
    """
    rate = _rate(name, graph, learning_rate)
    rows = _alike(name, graph, parameters=parameters, velocity=velocity, gradients=gradients)
    own = [(*row, rate, momentum) for row in rows if row[0].size]
    function = functools.partial(descend_with_momentum, nesterov=nesterov)
    map_in_place(graph, function, own, 2, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def adam_state(graph: Graph, parameters: Any, *, dtype: Any = None, name: str = "adam_state") -> AdamState:
    """Variables for the state of `adam` and `adamw`; the host writes 0 to all of them before the first step.

    Args:
        graph: where they are added, in a scope of their name.
        parameters: a pytree of tensors.
        dtype: of the averages; that of each parameter, but float32 for one of 16 bits, when left off.
        name: of the scope.

    Raises:
        OperationError: a pytree without tensors, or something that is no dtype.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> parameters = graph.add_variables("parameters", {"w": jax.ShapeDtypeStruct((2, 3), "float32")})
    >>> cl.ops.adam_state(graph, parameters).mean["w"].shape
    (2, 3)
    """
    check_tensors(name, graph, **{f"parameter {k}": p for k, p in enumerate(jax.tree.leaves(parameters))})
    own = None if dtype is None else checked_dtype(name, "dtype", dtype)

    def average(p: Tensor) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(p.shape, jnp.promote_types(p.dtype, jnp.float32) if own is None else own)

    averages = jax.tree.map(average, parameters)
    with graph.scope(name, unique=True):
        return AdamState(
            graph.add_variable("count", (), jnp.int32),
            graph.add_variable("corrections", (2,)),
            graph.add_variables("mean", averages),
            graph.add_variables("square", averages),
        )


def _adam(
    graph: Graph,
    parameters: Any,
    gradients: Any,
    state: AdamState,
    learning_rate: Any,
    numbers: dict[str, float],
    options: dict[str, Any],
) -> None:
    name = options["name"]
    rate = _rate(name, graph, learning_rate)
    if not isinstance(state, Sequence) or len(state) != 4:
        raise OperationError(
            f"state of ops.{name} is invalid",
            given=f"{state!r:.80}",
            expected="what ops.adam_state(graph, parameters) makes",
        )
    count, corrections, mean, square = state
    check_tensors(name, graph, count=count, corrections=corrections)
    rows = _alike(name, graph, parameters=parameters, mean=mean, square=square, gradients=gradients)
    averages = {key: numbers[key] for key in ("b1", "b2")}
    function = functools.partial(descend_by_adam, **numbers)
    with graph.scope(name, unique=True):
        first, second = corrections[0], corrections[1]
        map_in_place(graph, functools.partial(count_step, **averages), [(count, first, second)], 3, name="count")
        own = [(*row, first, second, rate) for row in rows if row[0].size]
        map_in_place(graph, function, own, 3, **{**options, "name": "update"})


@checked
def adam(
    graph: Graph,
    parameters: Any,
    gradients: Any,
    state: AdamState,
    *,
    learning_rate: Any,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "adam",
) -> None:
    """Take parameters a step of Adam, in place, as `optax.adam`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        parameters: a pytree of tensors, which are changed.
        gradients: by them, a pytree alike.
        state: the result of `adam_state` for them, which is changed.
        learning_rate: a number, or a tensor of shape () for one that changes.
        b1: the share of the average of the gradients that a step keeps.
        b2: the share of the average of their squares that a step keeps.
        eps: is added to the root of the averaged squares.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: pytrees that are not alike, or numbers that are not of floating point.

    Source: D. Kingma and J. Ba, Adam: a method for stochastic optimization (2015), algorithm 1.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> graph = cl.Graph()
    >>> w, slope = graph.add_variable("w", (2,)), graph.add_variable("slope", (2,))
    >>> state = cl.ops.adam_state(graph, w)
    >>> cl.ops.adam(graph, w, slope, state, learning_rate=0.5)
    >>> engine = cl.Engine(graph)
    >>> engine.write({w: [1.0, 1.0], slope: [3.0, -7.0]})
    >>> engine.write(state, 0)
    >>> engine.run()
    >>> engine.read(w).round(3)
    array([0.5, 1.5], dtype=float32)
    """
    numbers = {"b1": b1, "b2": b2, "eps": eps, "weight_decay": 0.0}
    options = {"grain": grain, "memory_fraction": memory_fraction, "name": name}
    _adam(graph, parameters, gradients, state, learning_rate, numbers, options)


@checked
def adamw(
    graph: Graph,
    parameters: Any,
    gradients: Any,
    state: AdamState,
    *,
    learning_rate: Any,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-4,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "adamw",
) -> None:
    """Take parameters a step of Adam with decay of weights, in place, as `optax.adamw`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        parameters: a pytree of tensors, which are changed.
        gradients: by them, a pytree alike.
        state: the result of `adam_state` for them, which is changed.
        learning_rate: a number, or a tensor of shape () for one that changes.
        b1: the share of the average of the gradients that a step keeps.
        b2: the share of the average of their squares that a step keeps.
        eps: is added to the root of the averaged squares.
        weight_decay: this times a parameter is added to its direction of descent.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: pytrees that are not alike, or numbers that are not of floating point.

    Source: I. Loshchilov and F. Hutter, Decoupled weight decay regularization (2019), algorithm 2.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> w, slope = graph.add_variable("w", (2,)), graph.add_variable("slope", (2,))
    >>> cl.ops.adamw(graph, w, slope, cl.ops.adam_state(graph, w), learning_rate=0.5)
    """
    numbers = {"b1": b1, "b2": b2, "eps": eps, "weight_decay": weight_decay}
    options = {"grain": grain, "memory_fraction": memory_fraction, "name": name}
    _adam(graph, parameters, gradients, state, learning_rate, numbers, options)
