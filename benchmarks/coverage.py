"""How much of what was cut is joined: `python -m benchmarks.coverage [NAME ...]`.

Counted are compute sets of the library's operations at grains drawn at random, and of traced networks with their
gradients, that have several families of one codelet: whether they run as one, as fewer, or as they are, and why. The
others, of one family for each codelet, have nothing to be joined.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from lowering.join.join import join
from lowering.pipeline import plan_graph
from lowering.plan.plan import Plan
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps

DRAWS = 60
"""Of each operation."""

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def mlp() -> Program:
    """A step of a perceptron of two layers."""

    def loss(w: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jax.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3] - y) ** 2)

    def step(w: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w, x, y))

    w = [jnp.ones((64, 128)), jnp.ones(128), jnp.ones((128, 10)), jnp.ones(10)]
    return step, (w, jnp.ones((100, 64)), jnp.ones((100, 10)))


def convolutional() -> Program:
    """The gradient of a small convolutional network with pooling."""
    numbers = ("NCHW", "OIHW", "NCHW")

    def net(w: Any, x: jax.Array) -> jax.Array:
        h = jax.nn.relu(lax.conv_general_dilated(x, w[0], (2, 2), "SAME", dimension_numbers=numbers))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "VALID")
        h = jax.nn.relu(lax.conv_general_dilated(h, w[1], (1, 1), "SAME", dimension_numbers=numbers))
        return jnp.sum(h.mean((2, 3)) @ w[2])

    w = [jnp.ones((16, 3, 5, 5)), jnp.ones((24, 16, 3, 3)), jnp.ones((24, 10))]
    return jax.grad(net), (w, jnp.ones((2, 3, 32, 32)))


def grouped() -> Program:
    """The gradient of convolutions in groups, with strides and dilations, channels last."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def net(w: Any, x: jax.Array) -> jax.Array:
        h = jax.nn.silu(lax.conv_general_dilated(x, w[0], (1, 1), "SAME", dimension_numbers=numbers))
        h = lax.conv_general_dilated(h, w[1], (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=16)
        h = lax.conv_general_dilated(h, w[2], (1, 1), "VALID", rhs_dilation=(2, 2), dimension_numbers=numbers)
        return (h**2).sum()

    w = [jnp.ones((3, 3, 5, 16)), jnp.ones((3, 3, 1, 16)), jnp.ones((3, 3, 16, 12))]
    return jax.grad(net), (w, jnp.ones((3, 18, 18, 5)))


def heads() -> Program:
    """The gradient of heads of attention."""

    def net(w: Any, x: jax.Array) -> jax.Array:
        q, k, v = (jnp.einsum("btd,dhe->bhte", x, own) for own in w[:3])
        a = jax.nn.softmax(jnp.einsum("bhte,bhse->bhts", q, k))
        y = jnp.einsum("bhts,bhse,hed->btd", a, v, w[3])
        return jnp.log1p(jnp.exp(y @ w[4])).mean()

    w = [jnp.ones((36, 3, 12))] * 3 + [jnp.ones((3, 12, 36)), jnp.ones((36, 50))]
    return jax.grad(net), (w, jnp.ones((2, 29, 36)))


def lstm() -> Program:
    """The gradient of an LSTM."""

    def loss(w: Any, x: jax.Array) -> jax.Array:
        def turn(carry: Any, row: jax.Array) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(row @ w[0] + h @ w[1] + w[2], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((4, 24))
        return lax.scan(turn, (zero, zero), x)[1].sum()

    return jax.grad(loss), ([jnp.ones((20, 96)), jnp.ones((24, 96)), jnp.ones(96)], jnp.ones((7, 4, 20)))


NETWORKS = {"mlp": mlp, "convolutional": convolutional, "grouped": grouped, "heads": heads, "lstm": lstm}


def drawn(name: str, seed: int) -> Plan:
    """An operation of sizes, and cut by grains, drawn at random."""
    random = np.random.default_rng(seed)
    n = lambda low, high: int(random.integers(low, high + 1))  # noqa: E731
    graph = cl.Graph()
    if name == "matmul":
        a, b, c = n(2, 40), n(2, 40), n(2, 40)
        operands = graph.add_variable("a", (a, b)), graph.add_variable("b", (b, c))
        made, inputs = cl.ops.matmul(graph, *operands, grain=n(1, 200)), ["a", "b"]
    else:
        filters, channels, taps, stride = n(2, 5), n(2, 4), n(2, 4), n(1, 3)
        size = n(taps + 3, 18)
        image, kernel = (2, channels, size, size), (filters, channels, taps, taps)
        out = (size + 2 - taps) // stride + 1
        padding, grain, inputs = ((1, 1), (1, 1)), n(1, 2000), ["x", "w"]
        w = graph.add_variable("w", kernel)
        if name == "conv":
            x = graph.add_variable("x", image)
            made = cl.ops.conv_general_dilated(graph, x, w, (stride, stride), padding, grain=grain)
        else:
            x = graph.add_variable("x", (2, filters, out, out))
            made = cl.ops.conv_input_gradient(graph, x, w, image, (stride, stride), padding, grain=grain)
    sources: list[Any] = [graph.variable(name).source for name in inputs]
    return plan_graph(graph, cl.Sequence(*graph.compute_sets), sources, [made])


def traced(make: Callable[[], Program]) -> Plan:
    """The plan of a network that is traced."""
    function, arguments = make()
    made = cl.trace(function, *arguments)
    sources: list[Any] = [tensor.source for tensor in made.flat_inputs]
    return plan_graph(made.graph, made.program, sources, made.flat_outputs)


def verdicts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Of each compute set with several families of a codelet: what becomes of it, and why it is not one."""
    before = {step.name: step for step in all_steps(plan.steps) if isinstance(step, ExecuteStep)}
    after = {step.name: step for step in all_steps(join(plan).steps) if isinstance(step, ExecuteStep)}
    for name, step in before.items():
        count = len(step.families)
        codelets = len({family.codelet.codelet for family in step.families})
        if count == codelets:
            yield "of one family", ""
        elif name not in after:
            yield "composed with what reads it", ""
        elif len(after[name].families) <= codelets:
            yield "joined", ""
        else:
            reasons = sorted(set(after[name].apart.values())) or [
                "not tried: its codelets differ, or keep their blocks"
            ]
            yield ("in fewer" if len(after[name].families) < count else "apart"), "; ".join(reasons)


def main(argv: Sequence[str] | None = None) -> int:
    """Print what becomes of compute sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    operations = ("matmul", "conv", "conv_input_gradient")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operations and networks; all when none is named")
    arguments = parser.parse_args(argv)
    for name in arguments.names or [*operations, *NETWORKS]:
        plans = (drawn(name, seed) for seed in range(DRAWS)) if name in operations else [traced(NETWORKS[name])]
        counted: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for plan in plans:
            for verdict, reason in verdicts(plan):
                counted[verdict] += 1
                reasons.update([reason] * bool(reason))
        print(f"{name}: " + ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()))
        for reason, count in reasons.most_common():
            print(f"    {count} x {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
