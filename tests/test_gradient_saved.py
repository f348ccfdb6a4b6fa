"""What a backward pass keeps of the forward pass: of every dtype, in loops, branches and functions of both."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from tests.examples import few
from tests.gradients import agree

X = np.linspace(0.1, 1.2, 5).astype(np.float32)


def is_that_of_jax(
    graph: cl.Graph, program: object, values: dict[str, Any], wrt: tuple[str, ...] = ("x",), **how: Any
) -> None:
    """See that the gradient of x is that of the lowered program, lowered and interpreted."""
    run = cl.lower(graph, inputs=[*values], outputs=["x"], program=program)
    slope = np.linspace(1, 2, 5).astype(np.float32)
    own = {name: values[name] for name in wrt}
    expected = jax.jit(jax.grad(lambda own: run({**values, **own})["x"] @ slope))(own)
    assert np.abs(expected["x"]).max() > 0
    found = cl.gradient(graph, of="x", wrt=[*wrt], program=program, cotangent=slope, **how)
    both = cl.Sequence(found.forward, found.backward)
    made = jax.jit(cl.lower(graph, both, inputs=[*values], outputs=[*found]))(values)
    simple = cl.interpret(graph, values=values, outputs=[*found], program=both)
    for name, value in expected.items():
        agree(made[found[name].source.name], np.asarray(value), name)
        agree(simple[found[name].source.name], np.asarray(value), name)


# --- dtypes ---------------------------------------------------------------------------------------------

DTYPES = [
    *("bool", "bfloat16", "uint8", "float8_e5m2", "complex64", "int4", "float16", "int8", "uint32", "int32", "uint16"),
    *("int16", "uint4", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
]


def _made(x: jax.Array, dtype: np.dtype) -> jax.Array:
    """A value of any dtype, which the adjoint of `_read` reads."""
    if dtype.kind == "b":
        return x > 0.5
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.clip(jnp.round(2 * x), 0, 1).astype(dtype)
    return (x + 1j * x * x if jnp.issubdtype(dtype, jnp.complexfloating) else x).astype(dtype)


def _read(m: jax.Array) -> jax.Array:
    if m.dtype == bool:
        return jnp.where(m, 2.0, 0.5)
    return jnp.real(m * m) if jnp.iscomplexobj(m) else m.astype(jnp.float32)


class Parts:
    """Vertices that make m of x, y of both, and x anew; and more that count."""

    def __init__(self, dtype: Any):
        graph = self.graph = cl.Graph(cl.IPU(num_tiles=4))
        dtype, i = jnp.dtype(dtype), cl.grid(5)
        x, y = (graph.add_variable(name, (5,)) for name in "xy")
        m = graph.add_variable("m", (5,), dtype)
        self.k, self.goes_on = graph.add_variable("k", (), "int32"), graph.add_variable("goes on", (), "bool")
        make = cl.codelet(lambda x: {"m": _made(x, dtype)})
        use = cl.codelet(lambda x, m: {"y": jnp.sin(x * _read(m)) + 0.1 * x})
        count, ask = cl.codelet(lambda k: {"k": k + 1}), cl.codelet(lambda k: k < 3)
        self.make = self.add(make, x=x[i], m=m[i])
        self.turn = [self.add(use, x=x[i], m=m[i], y=y[i]), self.add(cl.codelet(lambda y: 0.1 + y), y=y[i], out=x[i])]
        self.count, self.ask = self.add(count, k=self.k), self.add(ask, k=self.k, out=self.goes_on)

    def add(self, codelet: cl.Codelet, **fields: Any) -> cl.Program:
        name = self.graph.free_name("run")
        self.graph.add_vertex(name, codelet, **fields)
        return cl.Execute(self.graph.compute_sets[-1])


FORMS: dict[str, Callable[[Parts], Any]] = {
    "a loop": lambda own: cl.Repeat(3, [own.make, *own.turn]),
    "a loop that keeps its state at times": lambda own: [
        own.make,
        cl.Repeat(5, [*own.turn, own.make], recompute=2),
    ],
    "a loop with Revolve": lambda own: [own.make, cl.Repeat(5, [*own.turn, own.make], recompute=cl.Revolve(2))],
    "a loop on a condition": lambda own: [
        cl.Copy(0, own.k),
        cl.RepeatWhile(own.ask, own.goes_on, [own.make, *own.turn, own.count], max_iterations=4),
    ],
    "a branch": lambda own: [
        cl.Copy(1, own.k),
        own.ask,
        cl.If(own.goes_on, [own.make, *own.turn, own.make, *own.turn], [own.make, *own.turn]),
    ],
    "a loop on a condition in a branch": lambda own: [
        cl.Copy(1, own.k),
        own.ask,
        cl.If(
            own.goes_on,
            cl.RepeatWhile(own.ask, own.goes_on, [own.make, *own.turn, own.count], max_iterations=4),
            [own.make, *own.turn],
        ),
    ],
    "a branch in a loop": lambda own: cl.Repeat(
        3, [cl.Switch(own.k, {1: [own.make, *own.turn] * 2}, [own.make, *own.turn])], index=own.k
    ),
    "a loop in a branch": lambda own: [
        cl.Copy(1, own.k),
        own.ask,
        cl.If(own.goes_on, cl.Repeat(3, [own.make, *own.turn]), [own.make, *own.turn]),
    ],
}


@few(
    "form, dtype",
    product(FORMS, DTYPES),
    quick=["a loop that keeps its state at times, int4", "a branch, bool", "a branch in a loop, uint32"],
)
def test_a_value_of_any_dtype_is_kept(form: str, dtype: str):
    own = Parts(dtype)
    is_that_of_jax(own.graph, cl.Sequence(FORMS[form](own)), {"x": X})


@few(
    "form",
    ["a loop with Revolve", "a loop on a condition in a branch", "a branch"],
    quick=["a loop on a condition in a branch", "a branch"],
)
def test_a_mask_is_kept(form: str):
    own = Parts(bool)
    is_that_of_jax(own.graph, cl.Sequence(FORMS[form](own)), {"x": X})


# --- functions in branches ------------------------------------------------------------------------------


class Functions(Parts):
    """Functions that bend, that bend in place, and that call the first of these twice."""

    def __init__(self) -> None:
        super().__init__("float32")
        graph, i = self.graph, cl.grid(5)
        a, b, c, d, e = (graph.add_variable(name, (5,)) for name in "abcde")
        self.x, self.y, w = graph.variable("x"), graph.variable("y"), graph.add_variable("w", (5,))
        self.p = graph.add_variable("p", (), "bool")
        bend = self.add(cl.codelet(lambda a: jnp.sin(a) + 0.3), a=a[i], out=b[i])
        turn = self.add(cl.codelet(lambda c, w: {"c": c * jnp.cos(c + w)}), c=c[i], w=w[i])
        self.bend = graph.add_function(bend, [a, b], name="bend")
        self.turned = graph.add_function([turn, turn], [c], name="turn")
        both = [cl.Call(self.bend, a=d, b=e), cl.Call(self.bend, a=e, b=d)]
        self.again = graph.add_function(both, [d, e], name="again")
        self.twice = [cl.Call(self.bend, a=self.x, b=self.y), cl.Call(self.bend, a=self.y, b=self.x)]
        self.once = [cl.Call(self.turned, c=self.x)]
        self.nested = [cl.Call(self.again, d=self.x, e=self.y)]


CHOICES: dict[str, Callable[[Functions], Any]] = {
    "twice in a branch": lambda own: cl.If(own.p, own.twice, []),
    "in both branches": lambda own: cl.If(own.p, own.once * 2, [*own.twice, *own.once]),
    "in a branch, and behind it": lambda own: [cl.If(own.p, own.twice, []), *own.once, *own.twice],
    "functions of functions": lambda own: cl.If(own.p, own.nested * 2, [*own.nested, *own.once]),
    "in a branch of a branch": lambda own: cl.If(own.p, [cl.If(own.p, own.twice * 2, own.once), *own.once], own.twice),
    "in a loop in a branch": lambda own: cl.If(own.p, cl.Repeat(2, [*own.twice, *own.once]), own.once),
    "in a branch in a loop": lambda own: cl.Repeat(
        3, cl.Switch(own.k, {0: own.twice, 2: [*own.once, *own.nested]}, own.once * 2), index=own.k
    ),
    "in a branch in Revolve": lambda own: cl.Repeat(
        3, cl.If(own.p, [*own.twice, *own.once], own.once * 2), recompute=cl.Revolve(2)
    ),
}
AGAIN = [None, cl.Recompute.all(), cl.Recompute.every(1)]


@few(
    "choice, again",
    product(CHOICES, AGAIN),
    quick=["twice in a branch, None", "in both branches, every", "functions of functions, all"],
    ids=lambda own: getattr(own, "kind", own),
)
def test_a_function_that_is_called_again_in_a_branch(choice: str, again: cl.Recompute | None):
    for taken in (True, False):
        own = Functions()
        values = {"x": X, "y": X[::-1].copy(), "w": 0.5 - X, "p": np.bool_(taken)}
        program = cl.Sequence(CHOICES[choice](own))
        is_that_of_jax(own.graph, program, values, ("x", "w"), recompute=again)
