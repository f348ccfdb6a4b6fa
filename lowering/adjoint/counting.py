"""Counting: codelets that count the turns of loops, forwards and backwards."""

from __future__ import annotations

import codelet as cl


@cl.codelet
def one_more(turn):
    """One turn more."""
    return {"turn": turn + 1}


@cl.codelet
def from_the_end(turn, *, turns):
    """The place of a turn, of so many, where they are gone through backwards."""
    return turns - 1 - turn


@cl.codelet
def one_less(turn):
    """One turn less."""
    return {"turn": turn - 1}


@cl.codelet
def is_left(turn):
    """Whether a turn is left."""
    return turn > 0


@cl.codelet
def place_of(outer, inner, *, turns):
    """The place of a turn among those of all turns of the loop around it."""
    return outer * turns + inner
