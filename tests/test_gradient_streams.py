"""Gradients of programs with streams: what runs again finds the values that the first run took, and sends nothing."""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import numpy as np

import codelet as cl
from tests.examples import few


@cl.codelet
def grow(s, x):
    return {"s": s * x + 0.5 * s * s}


class Program:
    """A state that grows by what comes in, and is sent out after each time.

    Attributes:
        once: one time; what of it copies from a stream and to one is a function of its own in `call`.
    """

    def __init__(self) -> None:
        self.graph = graph = cl.Graph()
        self.s, x = graph.add_variable("s", ()), graph.add_variable("x", ())
        given, sent = graph.add_input_stream("given", ()), graph.add_output_stream("sent", ())
        graph.add_vertex("grow", grow, s=self.s, x=x)
        told = cl.Print(x, "took")
        self.once = cl.Sequence(cl.Copy(given, x), cl.Execute(graph.compute_sets[-1]), cl.Copy(self.s, sent), told)

    def call(self) -> Any:
        function = self.graph.add_function(self.once)
        return cl.Sequence(cl.Call(function), cl.Call(function))


CHECKPOINTS = [1, 2, 3, cl.Revolve(1), cl.Revolve(2)]

KEPT: dict[str, Callable[[Program, Any], Any]] = {
    "a loop": lambda own, kept: cl.Repeat(4, own.once, recompute=kept),
    "one turn": lambda own, kept: cl.Repeat(1, own.once, recompute=kept),
    "counted": lambda own, kept: cl.Repeat(
        4, own.once, index=own.graph.add_variable("turn", (), "int32"), recompute=kept
    ),
    "a loop in it": lambda own, kept: cl.Repeat(3, cl.Repeat(2, own.once), recompute=kept),
    "in a loop": lambda own, kept: cl.Repeat(2, cl.Sequence(own.once, cl.Repeat(3, own.once, recompute=kept))),
    "in one another": lambda own, kept: cl.Repeat(3, cl.Repeat(2, own.once, recompute=1), recompute=kept),
    "calls": lambda own, kept: cl.Repeat(3, own.call(), recompute=kept),
    "called": lambda own, kept: cl.Sequence(
        *[cl.Call(own.graph.add_function(cl.Repeat(2, own.once, recompute=kept)))] * 2
    ),
    "a choice": lambda own, kept: cl.Repeat(
        3, cl.If(own.graph.add_constant("which", True), own.once, own.once), recompute=kept
    ),
}

AGAIN = [cl.Recompute.all(), cl.Recompute.every(2), cl.Recompute.sqrt(), cl.Recompute.bytes(200)]

MADE_AGAIN: dict[str, Callable[[Program], Any]] = {
    "in a row": lambda own: cl.Sequence(own.once, own.once, own.once),
    "a loop": lambda own: cl.Repeat(3, own.once),
    "calls": lambda own: own.call(),
    "calls in a loop": lambda own: cl.Repeat(2, own.call()),
}


def check(own: Program, program: Any, recompute: cl.Recompute | None, capfd: Any) -> None:
    run = cl.lower(own.graph, program, inputs=["s"], outputs=["s"])
    (count,) = run.arguments[-1].shape
    given = np.linspace(0.5, 1, count, dtype=np.float32)

    def state(s: Any) -> tuple[Any, Any]:
        results = run({"s": s, "given": given})
        return results["s"], results["sent"]

    expected, sent = jax.block_until_ready(jax.jit(jax.grad(state, has_aux=True))(0.2))
    capfd.readouterr()
    found = cl.gradient(own.graph, of=own.s, wrt=["s"], program=program, recompute=recompute)
    both, name = cl.Sequence(found.forward, found.backward), found["s"].name
    after = jax.jit(cl.lower(own.graph, both, inputs=["s"], outputs=[name]))({"s": 0.2, "given": given})
    np.testing.assert_allclose(after[name], expected, rtol=1e-5)
    np.testing.assert_allclose(after["sent"], sent, rtol=1e-6)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("took") == count
    engine = cl.Engine(own.graph, both)
    engine.connect("given", given)
    engine.write({"s": 0.2})
    engine.run()
    np.testing.assert_allclose(engine.read(name), expected, rtol=1e-5)
    np.testing.assert_allclose(engine.read(own.graph.streams[1]), sent, rtol=1e-6)


@few(
    "program, kept",
    product(KEPT, CHECKPOINTS),
    quick=["one turn, 2", "counted, 2", "calls, Revolve(snapshots=1)", "called, 3"],
)
def test_loops_whose_turns_run_again(program, kept, capfd):
    own = Program()
    check(own, KEPT[program](own, kept), None, capfd)


@few(
    "program, recompute",
    product(MADE_AGAIN, AGAIN),
    quick=["calls, every"],
    ids=lambda own: getattr(own, "kind", own),
)
def test_what_is_made_again(program, recompute, capfd):
    own = Program()
    check(own, MADE_AGAIN[program](own), recompute, capfd)
