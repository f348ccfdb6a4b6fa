"""Control flow: branches, and loops whose number of iterations is known or bounded."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode, as_array, is_known, whole_dtype
from codelet.onnx.operator_table import operator

_UNROLLED = 32
"""So many turns are written out, of which each knows its number."""

_UNROLLED_SEQUENCES = 1024
"""So many where a sequence is carried: it grows, and a loop of JAX carries what keeps its type."""


@operator("If", is_folded=False, sees_constants=True)
def branch(node: OnnxNode, condition: Any) -> tuple[Any, ...]:
    """One of two graphs."""
    taken, other = node.attribute("then_branch"), node.attribute("else_branch")
    if is_known(condition):
        return tuple((taken if bool(condition.reshape(())) else other)())
    return tuple(lax.cond(jnp.reshape(condition, ()), lambda: _arrays(taken()), lambda: _arrays(other())))


def _arrays(values: Any) -> list[Any]:
    return [as_array(one) for one in values]


@operator("Loop", is_folded=False, sees_constants=True)
def loop(node: OnnxNode, most: Any = None, condition: Any = None, *carried: Any) -> tuple[Any, ...]:
    """A graph again and again: at most so often, as long as a condition holds."""
    body, count = node.attribute("body"), len(carried)
    known = bool(np.asarray(condition).reshape(())) if is_known(condition) else None
    goes, stops = condition is None or known is True, known is False
    number: Any = 0 if stops else most
    if is_known(number):
        number = int(np.reshape(number, ()))
    if number is None or isinstance(number, int):
        limit = _UNROLLED_SEQUENCES if any(isinstance(item, list) for item in carried) else _UNROLLED
        turns = limit if number is None else min(number, limit)
        if goes or turns <= 0:
            unrolled = _unrolled(body, turns, carried, count)
            if unrolled is not None and (unrolled[1] or turns == number):
                return unrolled[0]
            if number is not None and number > turns:
                return _scanned(node, body, number, carried, count)
    return _while(node, body, number, condition, carried, count)


def _unrolled(body: Any, number: int, carried: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], bool] | None:
    """Iterations written out, and whether they end by themselves; None where whether they go on depends on data."""
    if number <= 0:
        return (*carried, *_no_rows(body, carried, count)), True
    stacked: list[list[Any]] = []
    state: list[Any] = list(carried)
    for turn in range(number):
        goes, *rest = body(np.array(turn, np.int64), np.array(True), *state)
        if not is_known(goes):
            return None
        state = rest[:count]
        stacked = stacked or [[] for _ in rest[count:]]
        for item, row in zip(rest[count:], stacked, strict=True):
            row.append(item)
        if not bool(np.reshape(goes, ())):
            return (*state, *map(_stacked, stacked)), True
    return (*state, *map(_stacked, stacked)), False


def _no_rows(body: Any, carried: tuple[Any, ...], count: int) -> list[np.ndarray]:
    """The values of each iteration where there is no iteration, of the types that an iteration would give."""
    first = jnp.zeros((), whole_dtype())
    results = jax.eval_shape(lambda *item: _arrays(body(first, jnp.array(True), *item)), *_arrays(carried))
    return [np.zeros((0, *item.shape), item.dtype) for item in results[1 + count :]]


def _stacked(rows: list[Any]) -> Any:
    return np.stack(rows) if all(map(is_known, rows)) else jnp.stack(rows)


def _scanned(node: OnnxNode, body: Any, number: int, carried: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    def turn(state: Any, _: Any) -> Any:
        k, state = state
        goes, *rest = body(k, np.array(True), *state)
        if not is_known(goes):
            raise node.error(
                "it gives a value for each iteration, and stops by data",
                given="a condition that is computed",
                expected="a constant number of iterations",
            )
        return (k + 1, _arrays(rest[:count])), _arrays(rest[count:])

    start = jnp.zeros((), whole_dtype()), _arrays(carried)
    (_, state), stacked = lax.scan(turn, start, length=number)
    return (*state, *stacked)


def _while(
    node: OnnxNode, body: Any, number: Any, condition: Any, carried: tuple[Any, ...], count: int
) -> tuple[Any, ...]:
    shapes = jax.eval_shape(
        lambda *item: _arrays(body(jnp.zeros((), whole_dtype()), jnp.array(True), *item)), *_arrays(carried)
    )
    if len(shapes) > 1 + count:
        raise node.error(
            "it gives a value for each iteration, and how many there are depends on data",
            given="a condition, or a number of iterations, that is computed",
            expected="a constant number of iterations",
        )

    def goes(item: Any) -> Any:
        turn, still, _ = item
        return still if number is None else still & (turn < number)

    def step(item: Any) -> Any:
        turn, still, state = item
        still, *rest = body(turn, still, *state)
        return turn + 1, jnp.reshape(jnp.asarray(still), ()), _arrays(rest)

    number = None if number is None else jnp.reshape(jnp.asarray(number), ()).astype(whole_dtype())
    first = jnp.array(True) if condition is None else jnp.reshape(jnp.asarray(condition), ())
    _, _, state = lax.while_loop(goes, step, (jnp.zeros((), whole_dtype()), first, _arrays(carried)))
    return tuple(state)


@operator("Scan", is_folded=False, sees_constants=True)
def scan_of_batches(node: OnnxNode, lengths: Any, *operands: Any) -> tuple[Any, ...]:
    """A graph along sequences, of each of a batch."""
    if lengths is not None:
        raise node.error("sequences of several lengths", given="sequence_lens", expected="sequences of one length")
    several = node.attribute("num_scan_inputs")
    directions = node.attribute("directions") or [0] * several
    run = lambda *item: _along(node, item, several, directions, [0] * several, None, None)  # noqa: E731
    return jax.vmap(run)(*operands)


@operator("Scan", since=9, is_folded=False, sees_constants=True)
def scan(node: OnnxNode, *operands: Any) -> tuple[Any, ...]:
    """A graph along axes of its inputs, with a state."""
    several = node.attribute("num_scan_inputs")
    directions = node.attribute("scan_input_directions") or [0] * several
    axes = node.attribute("scan_input_axes") or [0] * several
    return _along(
        node,
        operands,
        several,
        directions,
        axes,
        node.attribute("scan_output_directions"),
        node.attribute("scan_output_axes"),
    )


def _along(
    node: OnnxNode, operands: Any, several: int, directions: Any, axes: Any, out_directions: Any, out_axes: Any
) -> tuple[Any, ...]:
    body, count = node.attribute("body"), len(operands) - several
    state, read = operands[:count], [jnp.moveaxis(x, axis, 0) for x, axis in zip(operands[count:], axes, strict=True)]
    read = [jnp.flip(x, 0) if back else x for x, back in zip(read, directions, strict=True)]

    def turn(item: Any, arguments: Any) -> Any:
        output = _arrays(body(*item, *arguments))
        return output[:count], output[count:]

    last, stacked = lax.scan(turn, _arrays(state), read)
    out_directions, out_axes = out_directions or [0] * len(stacked), out_axes or [0] * len(stacked)
    stacked = [jnp.flip(x, 0) if back else x for x, back in zip(stacked, out_directions, strict=True)]
    return (*last, *(jnp.moveaxis(x, 0, axis) for x, axis in zip(stacked, out_axes, strict=True)))
