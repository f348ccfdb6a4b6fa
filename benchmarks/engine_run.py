"""What a run of an engine takes in Python beyond the function that it runs: streams that are read and written."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import repeat
from typing import Any

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Measurement, Row, benchmark
from ipu_backend.jobs.timing import time_in_turn

LIMIT_SECONDS = 30e-6


@cl.codelet
def twice(x):
    """So little that calling takes all of the time."""
    return 2 * x


def _beyond_the_function(name: str, elements: int, seconds: float) -> Row:
    """A run of an engine with a stream in and one out, beside the lowered function of the same, jitted."""
    graph, i = cl.Graph(), cl.grid(elements)
    x, y = graph.add_variable("x", (elements,)), graph.add_variable("y", (elements,))
    given, taken = graph.add_input_stream("given", (elements,)), graph.add_output_stream("taken", (elements,))
    graph.add_vertex("twice", twice, x=x[i], out=y[i])
    engine = cl.Engine(graph, cl.Sequence(cl.Copy(given, x), graph.compute_sets[0], cl.Copy(y, taken)))
    values, last = np.ones(elements, np.float32), list[Any]([None])
    engine.connect("given", repeat(values))
    engine.connect("taken", lambda value: last.__setitem__(0, value))
    run = jax.jit(engine.function(inputs=[given], outputs=[taken]).flat)
    alone = lambda: [np.asarray(own) for own in jax.tree.leaves(run([values[None]]))]  # noqa: E731
    ours, theirs = time_in_turn([engine.run, alone], seconds=seconds)
    assert (last[0] == 2).all(), "the same run"
    beyond = max(0.0, ours - theirs)
    note = f"beyond {1e6 * theirs:.0f} us of the function, to {1e6 * LIMIT_SECONDS:.0f} us"
    return Row(name, ours, None, beyond / LIMIT_SECONDS, 1.0, note)


@benchmark
def engine_run(elements: int = 64, timed: float = 2.0) -> Generator[Measurement | Row, Row, None]:
    """A run of an engine from Python, with streams: what it takes beyond the compiled function, median of 1,000."""
    yield Measurement("engine_run", partial(_beyond_the_function, elements=elements, seconds=timed))
