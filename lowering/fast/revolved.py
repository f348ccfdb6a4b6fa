"""Revolved: a scan whose derivative runs its iterations again by the binomial schedule (`lowering/plan/revolve.py`).

In come an iteration, what it begins with and what it is fed. Out comes what `lax.scan` gives. The forward pass keeps
the states that the schedule says, in rows of one array for each that is carried; the backward pass is one loop over the
turns, last to first: it goes from snapshot to snapshot, and takes the derivative of one iteration at a time. It has
JAX's rule for reverse mode alone, and no derivative of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from lowering.fast.arrays_of_turns import Arrays, floats_of, put_row, row_of, slopes_of, with_floats
from lowering.jaxprs.simplify import trace_simplified
from lowering.plan.revolve import Schedule, schedule


class _JaxprLoop(NamedTuple):
    """A loop whose iterations are one jaxpr.

    Attributes:
        jaxpr: from what it reads all the time, its state, and what an iteration is fed, to its state and what it sends.
        num_state: arrays of the state.
        schedule: of its iterations.
    """

    jaxpr: jax_core.Jaxpr
    num_state: int
    schedule: Schedule

    def turn(self, held: Sequence[Any], state: Sequence[Any], row: Sequence[Any]) -> tuple[Arrays, Arrays]:
        """One turn: its state after it, and what it sends."""
        closed = jax_core.ClosedJaxpr(self.jaxpr, list(held))
        made = jax_core.jaxpr_as_fun(closed)(*state, *row)
        return list(made[: self.num_state]), list(made[self.num_state :])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(loop: _JaxprLoop, held: Arrays, state: Arrays, fed: Arrays) -> tuple[Arrays, Arrays]:
    return lax.scan(lambda state, row: loop.turn(held, state, row), state, fed, length=loop.schedule.turns)


def _forward(loop: _JaxprLoop, held: Arrays, state: Arrays, fed: Arrays) -> Any:
    """Run the iterations, and keep states on the way."""
    plan = loop.schedule
    starts = [turn for turn, _ in plan.kept]
    firsts, slots = jnp.asarray(starts), jnp.asarray([slot for _, slot in plan.kept])
    ends = jnp.asarray([*starts[1:], plan.turns])
    kept = [jnp.zeros((plan.snapshots, *own.shape), own.dtype) for own in state]
    kinds = jax.eval_shape(lambda: loop.turn(held, state, row_of(fed, 0))[1])
    sent = [jnp.zeros((plan.turns, *own.shape), own.dtype) for own in kinds]

    def turn(number: Any, at: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
        state, made = loop.turn(held, at[0], row_of(fed, number))
        return state, put_row(at[1], made, number)

    def part(number: Any, at: tuple[Arrays, Arrays, Arrays]) -> tuple[Arrays, Arrays, Arrays]:
        state, sent, kept = at
        kept = put_row(kept, state, slots[number])
        return *lax.fori_loop(firsts[number], ends[number], turn, (state, sent)), kept

    state, sent, kept = lax.fori_loop(0, len(starts), part, (state, sent, kept))
    return (state, sent), (held, fed, kept)


def _backward(loop: _JaxprLoop, residuals: Any, slopes: Any) -> Any:
    """Go back through the iterations."""
    held, fed, kept = residuals
    of_state, of_sent = (floats_of(own) for own in slopes)
    plan = loop.schedule
    sources, firsts, aheads, targets = (jnp.asarray(own) for own in plan.moves)

    def ahead(kept: Arrays, move: Any) -> Arrays:
        """The state behind the iterations of a move."""
        one = lambda j, state: loop.turn(held, state, row_of(fed, firsts[move] + j))[0]  # noqa: E731
        return lax.fori_loop(0, aheads[move], one, row_of(kept, sources[move]))

    def keep(at: tuple[Any, Arrays]) -> tuple[Any, Arrays]:
        move, kept = at
        return move + 1, put_row(kept, ahead(kept, move), targets[move])

    def back(number: Any, at: Any) -> Any:
        move, kept, of_state, of_held, of_fed = at
        move, kept = lax.while_loop(lambda own: targets[own[0]] >= 0, keep, (move, kept))
        state, turn = ahead(kept, move), plan.turns - 1 - number
        row = row_of(fed, turn)

        def floats(*own: Arrays) -> tuple[Arrays, Arrays]:
            given = (with_floats(a, b) for a, b in zip((held, state, row), own, strict=True))
            made, sent = loop.turn(*given)
            return floats_of(made), floats_of(sent)

        _, pull = jax.vjp(floats, *map(floats_of, (held, state, row)))
        by_held, by_state, by_row = pull((of_state, row_of(of_sent, turn)))
        return move + 1, kept, by_state, list(map(jnp.add, of_held, by_held)), put_row(of_fed, by_row, turn)

    nothing = [jnp.zeros_like(own) for own in floats_of(held)], [jnp.zeros_like(own) for own in floats_of(fed)]
    at = jnp.zeros((), jnp.int32), kept, of_state, *nothing
    _, _, by_state, by_held, by_fed = lax.fori_loop(0, plan.turns, back, at)
    first = [own[0] for own in kept]
    return slopes_of(held, by_held), slopes_of(first, by_state), slopes_of(fed, by_fed)


_run.defvjp(_forward, _backward)


def revolved_scan(turn: Callable[..., Any], start: Any, fed: Any, count: int, snapshots: int) -> Any:
    """A scan whose derivative keeps at most so many states at once.

    Args:
        turn: from what is carried and what is fed to an iteration to what is carried and sent on.
        start: what is carried, a pytree.
        fed: to each of the iterations, a pytree of arrays with them as leading dimension.
        count: the iterations, one at least.
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
