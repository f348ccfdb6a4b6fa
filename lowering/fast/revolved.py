"""Revolved: a scan whose derivative runs its turns again by the binomial schedule (`lowering/plan/revolve.py`).

In come a turn, what it begins with and what it is fed. Out comes what `lax.scan` gives. The forward pass keeps the
states that the schedule says, in rows of one array for each that is carried; the backward pass is one loop over the
turns, last to first: it goes from snapshot to snapshot, and takes the derivative of one turn at a time. It has JAX's
rule for reverse mode alone, and no derivative of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from lowering.jaxprs.simplify import trace_simplified
from lowering.plan.revolve import Schedule, schedule

_Arrays = list[jax.Array]


class _JaxprLoop(NamedTuple):
    """A loop whose turns are one jaxpr.

    Attributes:
        jaxpr: from what it reads all the time, its state, and what a turn is fed, to its state and what it sends.
        num_state: arrays of the state.
        schedule: of its turns.
    """

    jaxpr: jax_core.Jaxpr
    num_state: int
    schedule: Schedule

    def turn(self, held: Sequence[Any], state: Sequence[Any], row: Sequence[Any]) -> tuple[_Arrays, _Arrays]:
        """One turn: its state after it, and what it sends."""
        closed = jax_core.ClosedJaxpr(self.jaxpr, list(held))
        made = jax_core.jaxpr_as_fun(closed)(*state, *row)
        return list(made[: self.num_state]), list(made[self.num_state :])


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)


def _floats(arrays: Sequence[Any]) -> _Arrays:
    return [own for own in arrays if _is_float(own)]


def _filled(arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
    """Arrays with others in the places of those of floats."""
    left = iter(floats)
    return [next(left) if _is_float(own) else own for own in arrays]


def _slopes(arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
    """Cotangents of arrays, given those of the ones of floats."""
    left = iter(floats)
    return [next(left) if _is_float(own) else np.zeros(own.shape, jax.dtypes.float0) for own in arrays]


def _row(arrays: Sequence[Any], number: Any) -> _Arrays:
    return [lax.dynamic_index_in_dim(own, number, 0, keepdims=False) for own in arrays]


def _put(arrays: Sequence[Any], rows: Sequence[Any], number: Any) -> _Arrays:
    return [lax.dynamic_update_index_in_dim(a, b, number, 0) for a, b in zip(arrays, rows, strict=True)]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(loop: _JaxprLoop, held: _Arrays, state: _Arrays, fed: _Arrays) -> tuple[_Arrays, _Arrays]:
    return lax.scan(lambda state, row: loop.turn(held, state, row), state, fed, length=loop.schedule.turns)


def _forward(loop: _JaxprLoop, held: _Arrays, state: _Arrays, fed: _Arrays) -> Any:
    """Run the turns, and keep states on the way."""
    plan = loop.schedule
    starts = [turn for turn, _ in plan.kept]
    firsts, slots = jnp.asarray(starts), jnp.asarray([slot for _, slot in plan.kept])
    ends = jnp.asarray([*starts[1:], plan.turns])
    kept = [jnp.zeros((plan.snapshots, *own.shape), own.dtype) for own in state]
    kinds = jax.eval_shape(lambda: loop.turn(held, state, _row(fed, 0))[1])
    sent = [jnp.zeros((plan.turns, *own.shape), own.dtype) for own in kinds]

    def turn(number: Any, at: tuple[_Arrays, _Arrays]) -> tuple[_Arrays, _Arrays]:
        state, made = loop.turn(held, at[0], _row(fed, number))
        return state, _put(at[1], made, number)

    def part(number: Any, at: tuple[_Arrays, _Arrays, _Arrays]) -> tuple[_Arrays, _Arrays, _Arrays]:
        state, sent, kept = at
        kept = _put(kept, state, slots[number])
        return *lax.fori_loop(firsts[number], ends[number], turn, (state, sent)), kept

    state, sent, kept = lax.fori_loop(0, len(starts), part, (state, sent, kept))
    return (state, sent), (held, fed, kept)


def _backward(loop: _JaxprLoop, residuals: Any, slopes: Any) -> Any:
    """Go back through the turns."""
    held, fed, kept = residuals
    of_state, of_sent = (_floats(own) for own in slopes)
    plan = loop.schedule
    sources, firsts, aheads, targets = (jnp.asarray(own) for own in plan.moves)

    def ahead(kept: _Arrays, move: Any) -> _Arrays:
        """The state behind the turns of a move."""
        one = lambda j, state: loop.turn(held, state, _row(fed, firsts[move] + j))[0]  # noqa: E731
        return lax.fori_loop(0, aheads[move], one, _row(kept, sources[move]))

    def keep(at: tuple[Any, _Arrays]) -> tuple[Any, _Arrays]:
        move, kept = at
        return move + 1, _put(kept, ahead(kept, move), targets[move])

    def back(number: Any, at: Any) -> Any:
        move, kept, of_state, of_held, of_fed = at
        move, kept = lax.while_loop(lambda own: targets[own[0]] >= 0, keep, (move, kept))
        state, turn = ahead(kept, move), plan.turns - 1 - number
        row = _row(fed, turn)

        def floats(*own: _Arrays) -> tuple[_Arrays, _Arrays]:
            given = (_filled(a, b) for a, b in zip((held, state, row), own, strict=True))
            made, sent = loop.turn(*given)
            return _floats(made), _floats(sent)

        _, pull = jax.vjp(floats, *map(_floats, (held, state, row)))
        by_held, by_state, by_row = pull((of_state, _row(of_sent, turn)))
        return move + 1, kept, by_state, list(map(jnp.add, of_held, by_held)), _put(of_fed, by_row, turn)

    nothing = [jnp.zeros_like(own) for own in _floats(held)], [jnp.zeros_like(own) for own in _floats(fed)]
    at = jnp.zeros((), jnp.int32), kept, of_state, *nothing
    _, _, by_state, by_held, by_fed = lax.fori_loop(0, plan.turns, back, at)
    first = [own[0] for own in kept]
    return _slopes(held, by_held), _slopes(first, by_state), _slopes(fed, by_fed)


_run.defvjp(_forward, _backward)


def revolved_scan(turn: Callable[..., Any], start: Any, fed: Any, count: int, snapshots: int) -> Any:
    """A scan whose derivative keeps at most so many states at once.

    Args:
        turn: from what is carried and what is fed to a turn to what is carried and sent on.
        start: what is carried, a pytree.
        fed: to each of the turns, a pytree of arrays with them as leading dimension.
        count: the turns, one at least.
        snapshots: the most states at once.
    """
    some = jax.tree.map(lambda own: own[0], fed)
    closed = trace_simplified(turn, start, some)
    state, kinds = jax.tree.flatten(start)
    sends = jax.tree.structure(jax.eval_shape(turn, start, some)[1])
    loop = _JaxprLoop(closed.jaxpr, len(state), schedule(count, snapshots))
    state, sent = _run(  # type: ignore[misc]
        loop, list(map(jnp.asarray, closed.consts)), state, jax.tree.leaves(fed)
    )
    return jax.tree.unflatten(kinds, state), jax.tree.unflatten(sends, sent)
