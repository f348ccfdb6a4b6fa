"""Bounded: a loop on a condition whose derivative costs the iterations that ran, whatever their bound.

In come a condition, an iteration, its first state and a bound. Out comes the result of `lax.while_loop`. The forward
pass keeps the state at the beginning of every stretch of so many iterations, about the root of the bound; the backward
pass runs each stretch again, last to first, and keeps the residuals of each of its iterations, in rows that all
stretches share. It has JAX's rule for reverse mode alone; the backward pass has forward mode, as for products with a
Hessian.

Under `jax.vmap` the loops go on as long as any element of the batch does, and the others keep their states. Rows are
put at places that are the same for all.

Source: A. Griewank and A. Walther, Evaluating Derivatives (2008), chapter 12: multilevel checkpointing, of two levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend import core as jax_core

from codelet.jaxprs.equations import made_alike, needed
from lowering.fast.arrays_of_turns import Arrays, floats_of, put_row, row_of, slopes_of, with_floats
from lowering.jaxprs.simplify import trace_simplified
from lowering.jaxprs.slopes import with_slopes


@custom_vmap
def _most(number: Any) -> Any:
    """A number, or the largest of a batch."""
    return number


@_most.def_vmap
def _most_of_batch(size: int, is_batched: Sequence[bool], numbers: Any) -> tuple[Any, bool]:
    return _most(jnp.max(numbers, 0)), False


@custom_vmap
def _chosen(is_new: Any, new: Arrays, old: Arrays) -> Arrays:
    """New arrays: old ones for those elements of a batch for which they are not to be."""
    return new


@_chosen.def_vmap
def _chosen_of_batch(size: int, is_batched: Any, is_new: Any, new: Arrays, old: Arrays) -> tuple[Arrays, list[bool]]:
    if not is_batched[0]:
        return _chosen(is_new, new, old), is_batched[1]
    found = []
    for a, b, *of_batch in zip(new, old, *is_batched[1:], strict=True):
        choose = jax.vmap(jnp.where, (0, *(0 if own else None for own in of_batch)))
        found.append(choose(is_new, a, b))
    return found, [True] * len(found)


class _LoopOfJaxprs(NamedTuple):
    """A loop whose condition and whose iterations are jaxprs.

    Attributes:
        condition: from its constants, and the state, to whether another iteration runs.
        turns: likewise to the state after an iteration.
        most: how many iterations there may be.
    """

    condition: jax_core.Jaxpr
    turns: jax_core.Jaxpr
    most: int

    @property
    def stretch(self) -> int:
        """How many iterations the backward pass keeps at a time."""
        return max(1, math.isqrt(self.most))

    def goes_on(self, asked: Arrays, turns: Any, state: Arrays) -> Any:
        """Whether another iteration runs after so many."""
        (answer,) = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(self.condition, asked))(*state)
        return (turns < self.most) & answer

    def turn(self, constants: Arrays, state: Arrays, changed: Callable[..., Any] = lambda closed: closed) -> Arrays:
        """The state after one iteration."""
        return list(jax_core.jaxpr_as_fun(changed(jax_core.ClosedJaxpr(self.turns, constants)))(*state))


def _moving(jaxpr: jax_core.Jaxpr, state: Sequence[jax_core.Var]) -> set[jax_core.Var]:
    """The variables of a jaxpr that depend on some of its inputs."""
    found = set(state)
    for eqn in jaxpr.eqns:
        if any(own in found for own in eqn.invars if isinstance(own, jax_core.Var)):
            found.update(eqn.outvars)
    return found


class _DerivativeOfTurn:
    """An iteration that also gives its residuals, and the derivative.

    Attributes:
        fixed: the residuals that are the same in all iterations.
    """

    def __init__(self, loop: _LoopOfJaxprs, constants: Arrays, state: Arrays):
        kinds = list[Any]()

        def run(constants: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
            def floats(of_constants: Arrays, of_state: Arrays) -> tuple[Arrays, Arrays]:
                made = loop.turn(with_floats(constants, of_constants), with_floats(state, of_state), with_slopes)
                return floats_of(made), made

            _, pull, made = jax.vjp(floats, floats_of(constants), floats_of(state), has_aux=True)
            read, kind = jax.tree.flatten(pull)
            kinds.append(kind)
            return made, read

        forward = trace_simplified(run, constants, state)
        back = lambda read, slopes: jax.tree.unflatten(kinds[-1], read)(slopes)  # noqa: E731
        backward = trace_simplified(back, forward.out_avals[len(state) :], floats_of(state))
        self._forward, self._backward = map(jax_core.jaxpr_as_fun, (forward, backward))
        self._constants, self._num_floats = constants, len(floats_of(constants))
        self._num_state = len(state)
        moving, alike = _moving(forward.jaxpr, forward.jaxpr.invars[len(constants) :]), made_alike(forward.jaxpr)
        results = forward.jaxpr.outvars[len(state) :]
        read = [alike.get(own, own) if isinstance(own, jax_core.Var) else None for own in results]
        rows = list(dict.fromkeys(own for own in read if own in moving))
        self._rows = [read.index(own) for own in rows]
        self._row_of = [rows.index(own) if own in moving else None for own in read]
        fixed = [own for own, var in zip(results, read, strict=True) if var not in moving]
        quiet = [eqn for eqn in needed(forward.jaxpr, results=fixed) if not eqn.effects]
        alone = forward.jaxpr.replace(eqns=quiet, outvars=fixed)
        self.fixed = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(alone, forward.consts))(*constants, *state)

    def turn(self, state: Arrays) -> tuple[Arrays, Arrays]:
        """The state after an iteration, and the residuals that differ from iteration to iteration."""
        made = self._forward(*self._constants, *state)
        return list(made[: self._num_state]), [made[self._num_state + k] for k in self._rows]

    def back(self, read: Arrays, slopes: Arrays) -> tuple[Arrays, Arrays]:
        """The cotangents of an iteration's constants and of the state before it, of those after it."""
        fixed = iter(self.fixed)
        made = self._backward(*(next(fixed) if k is None else read[k] for k in self._row_of), *slopes)
        return list(made[: self._num_floats]), list(made[self._num_floats :])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(loop: _LoopOfJaxprs, asked: Arrays, constants: Arrays, state: Arrays) -> Arrays:
    start = jnp.zeros((), jnp.int32), state
    goes_on = lambda at: loop.goes_on(asked, *at)  # noqa: E731
    return lax.while_loop(goes_on, lambda at: (at[0] + 1, loop.turn(constants, at[1])), start)[1]


def _forward(loop: _LoopOfJaxprs, asked: Arrays, constants: Arrays, state: Arrays) -> Any:
    """Run the iterations, and keep the state at the beginning of each stretch."""

    def turn(at: Any) -> Any:
        number, turns, state, goes_on = at
        turns, *state = _chosen(goes_on, [turns + 1, *loop.turn(constants, state)], [turns, *state])
        return number + 1, turns, state, loop.goes_on(asked, turns, state)

    def stretch(at: Any) -> Any:
        states, number, *own = at
        states, end = put_row(states, own[1], number // loop.stretch), number + loop.stretch
        return states, *lax.while_loop(lambda at: (at[0] < end) & _most(at[3]), turn, (number, *own))

    none = jnp.zeros((), jnp.int32)
    states = [lax.broadcast(own, (-(-loop.most // loop.stretch),)) for own in state]
    start = states, none, none, state, loop.goes_on(asked, none, state)
    states, _, turns, state, _ = lax.while_loop(lambda at: _most(at[4]), stretch, start)
    return state, (asked, constants, turns, states)


def _backward(loop: _LoopOfJaxprs, residuals: Any, slopes: Any) -> Any:
    """Go back through the iterations that ran."""
    asked, constants, turns, states = residuals
    first = row_of(states, 0)
    derivative, total = _DerivativeOfTurn(loop, constants, first), _most(turns)
    kinds = jax.eval_shape(derivative.turn, first)[1]

    def stretch(number: Any, at: Any) -> Any:
        rows, *sums = at
        number = -(-total // loop.stretch) - 1 - number
        begin = number * loop.stretch
        end = jnp.minimum(begin + loop.stretch, total)

        def again(turn: Any, at: Any) -> Any:
            state, rows = at
            made, own = derivative.turn(state)
            return _chosen(turn < turns, made, state), put_row(rows, own, turn - begin)

        def back(place: Any, sums: Any) -> Any:
            turn = end - 1 - place
            by_constants, by_state = derivative.back(row_of(rows, turn - begin), sums[1])
            by_constants = list(map(jnp.add, sums[0], by_constants))
            chosen = _chosen(turn < turns, [*by_constants, *by_state], [*sums[0], *sums[1]])
            return chosen[: len(by_constants)], chosen[len(by_constants) :]

        _, rows = lax.fori_loop(begin, end, again, (row_of(states, number), rows))
        return rows, *lax.fori_loop(0, end - begin, back, tuple(sums))

    rows = [jnp.zeros((loop.stretch, *own.shape), own.dtype) for own in kinds]
    start = rows, [jnp.zeros_like(own) for own in floats_of(constants)], floats_of(slopes)
    _, by_constants, by_state = lax.fori_loop(0, -(-total // loop.stretch), stretch, start)
    of_asked = [jnp.zeros_like(own) for own in floats_of(asked)]
    return slopes_of(asked, of_asked), slopes_of(constants, by_constants), slopes_of(first, by_state)


_run.defvjp(_forward, _backward)


def bounded_while(goes_on: Callable[[Any], Any], turn: Callable[[Any], Any], start: Any, most: int) -> Any:
    """A loop on a condition, of at most so many iterations, that is differentiated in reverse mode.

    Args:
        goes_on: from the carry to whether another iteration runs.
        turn: from the carry to that after an iteration.
        start: the first carry, a pytree.
        most: how many iterations there may be.
    """
    carried = "carried" if most > 1 else "any"
    condition, turns = jax.make_jaxpr(goes_on)(start), trace_simplified(turn, start, inputs=carried)
    state, kinds = jax.tree.flatten(start)
    asked, constants = (list(map(jnp.asarray, own.consts)) for own in (condition, turns))
    made: Any = _run(_LoopOfJaxprs(condition.jaxpr, turns.jaxpr, most), asked, constants, state)
    return jax.tree.unflatten(kinds, made)
