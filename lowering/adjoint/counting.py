"""Counting: codelets that count the iterations of loops, forwards and backwards."""

from __future__ import annotations

import jax

from codelet.tracing.codelets import codelet


@codelet
def one_more(turn):
    """One iteration more."""
    return {"turn": turn + 1}


@codelet
def from_the_end(turn, *, turns):
    """The place of an iteration, of so many, where they are gone through backwards."""
    return turns - 1 - turn


@codelet
def counted_from(turn, *, first, step, dtype):
    """The number of an iteration where the first has another than zero, or they go by steps or are of another dtype."""
    return ((turn if step == 1 else turn * step) + first).astype(dtype)


@codelet
def one_less(turn):
    """One iteration less."""
    return {"turn": turn - 1}


@codelet
def is_left(turn):
    """Whether an iteration is left."""
    return turn > 0


@codelet
def goes_on(predicate, turn, *, until, turns):
    """Whether a loop goes on, and so many iterations are not over."""
    return ((predicate != 0) != until) & (turn < turns)


@codelet
def next_move(table, move):
    """The next column of (3, moves): from where, how far, and to where."""
    column = jax.lax.dynamic_index_in_dim(table, move + 1, 1, keepdims=False)
    return {"move": move + 1, "source": column[0], "ahead": column[1], "target": column[2]}


@codelet
def place_of(outer, inner, *, turns):
    """The place of an iteration among those of all iterations of the loop around it."""
    return outer * turns + inner
