"""Variables that end, beside others that keep values of the host and are written in part, in a branch, or never."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import codelet as cl
from tests.rewriting import passed_on


def undefined(builder: Any) -> list[Any]:
    """A `WriteUndef` of a whole variable among writes to parts of others, in branches or not, and joins of them."""
    draw, graph = builder.draw, builder.case.graph
    size = draw(st.integers(2, 4))
    given, held, never, out = (builder.variable((size,)) for _ in range(4))
    shorts = [builder.short((size,)) for _ in range(draw(st.integers(1, 2)))]
    control = builder.number(draw(st.integers(0, 1)))

    def used(short: Any) -> list[Any]:
        step, i = graph.add_compute_set(f"use{next(builder.numbers)}"), cl.grid(size)
        graph.add_vertex(step, passed_on, x=short[i], out=out[size - 1 - i])
        return [cl.Copy(given, short), cl.Execute(step), cl.WriteUndef(short)]

    part = slice(draw(st.integers(0, 1)), draw(st.sampled_from([size - 1, size])))
    writes: dict[str, Any] = {
        "part": lambda: [cl.Copy(given[part], held[part])],
        "branch": lambda: [cl.If(control, *draw(st.permutations([cl.Copy(given, held), cl.Sequence()])))],
        "part in a branch": lambda: [cl.If(control, cl.Copy(given[part], held[part]))],
        "joined": lambda: [cl.Copy(cl.concatenate([held[1:], never[:1]]), out)],
        "joined to write": lambda: [cl.Copy(given, cl.concatenate([held[1:], out[:1]]))],
        "undefined in a branch": lambda: [
            cl.If(control, cl.Sequence(*used(shorts[-1])), cl.Copy(held, out)),
        ],
    }
    program: list[Any] = [*used(shorts[0])]
    for kind in draw(st.lists(st.sampled_from(sorted(writes)), min_size=1, max_size=3)):
        program = [*writes[kind](), *program] if draw(st.booleans()) else [*program, *writes[kind]()]
    return [*program, cl.Copy(held[::-1], given)] if draw(st.booleans()) else program
