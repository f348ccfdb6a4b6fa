"""Masks in loops: booleans that a loop computes, turn by turn, which its derivatives read again."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import codelet as cl
from tests.bounded import squash


@cl.codelet
def is_above(site, turn):
    """Whether an integer is large, which no rounding turns."""
    return (site + turn) % 3 > 0


@cl.codelet
def kept_where(x, mask):
    return {"x": squash(jnp.where(mask, 2 * x, x * x + 1)).astype(x.dtype)}


@cl.codelet
def any_of(mask, x):
    return {"out": mask.any(), "x": jnp.where(mask.all(), x, -x)}


def masked(builder: Any) -> list[Any]:
    """A repeat whose body makes a mask and reads it, for elements or as the control of a choice."""
    draw, graph, number = builder.draw, builder.case.graph, next(builder.numbers)
    size = draw(st.integers(1, 4))
    names = {"site": (size, "int32"), "at": ((), "int32"), "mask": (size, "bool"), "some": ((), "bool")}
    site, turn, mask, some = (graph.add_variable(f"{name}{number}", *own) for name, own in names.items())
    builder.case.inputs[site.name] = builder.random.integers(0, 9, size).astype(np.int32)
    builder.case.inputs[turn.name] = np.asarray(0, np.int32)
    builder.case.inputs[mask.name], builder.case.inputs[some.name] = np.zeros(size, bool), np.asarray(False)
    held, other = builder.variable((size,)), builder.variable((size,))
    look, keep, reduce = (graph.add_compute_set(f"{name}{number}") for name in ("look", "keep", "any"))
    i = cl.grid(size)
    graph.add_vertex(look, is_above, site=site[i], turn=turn, out=mask[i])
    graph.add_vertex(keep, kept_where, x=held[i], mask=mask[i])
    graph.add_vertex(reduce, any_of, mask=mask, x=other, out=some)
    body: list[Any] = [look, keep]
    if draw(st.booleans()):
        choice = cl.If(some, *draw(st.permutations([cl.Copy(held, other), cl.Sequence(keep, keep)])))
        body = [look, reduce, choice, *draw(st.sampled_from([[], [keep]]))]
    body = draw(st.sampled_from([body, [*body[1:], body[0]]]))  # a mask of this turn, or of the one before
    count = draw(st.integers(1, 3))
    if draw(st.booleans()):
        return [cl.Repeat(count, body, index=turn)]
    return [cl.Repeat(1, [cl.Repeat(count, body, index=turn), cl.Copy(held[::-1], other)])]
