"""Turns of loops: what a loop keeps for its gradient, and what it carries extended."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.moved import num_bytes
from lowering.fast.steps import emit
from lowering.pipeline import plan_fast, plan_graph
from tests.patterns.pattern import Closed, Drawn, Pattern, Program
from tests.patterns.places import WITHIN

# --- recompute -----------------------------------------------------------------------------------------------------

TURNS, WIDTH = 6, 5
ROWS = np.linspace(-1, 1, TURNS * WIDTH, dtype=np.float32).reshape(TURNS, WIDTH)
START, FIXED = np.linspace(0.1, 0.5, WIDTH, dtype=np.float32), np.linspace(0.5, 0.9, WIDTH, dtype=np.float32)


def scanned(turn: Any) -> Any:
    """A scan whose turn makes a state and a row of a state, a row and what is fixed."""

    def function(rows: Any, start: Any, fixed: Any) -> Any:
        return lax.scan(lambda state, row: turn(state, row, fixed), start, rows)

    return function


def kept(function: Any, *arguments: Any) -> int:
    """The bytes that a gradient keeps of a function, but for its arguments."""
    closed = jax.make_jaxpr(lambda *own: jax.tree.leaves(jax.vjp(function, *own)[1]))(*arguments).jaxpr
    results = {atom for atom in closed.outvars if isinstance(atom, jax_core.Var)} - {*closed.invars}
    return sum(num_bytes(var.aval) for var in results)


OPERATIONS = {
    "sin": lambda a, b: jnp.sin(a),
    "exp": lambda a, b: jnp.exp(-(a**2)),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "tanh": lambda a, b: jnp.tanh(a),
    "max": jnp.maximum,
    "sum": lambda a, b: a - b.mean(),
    "reverse": lambda a, b: a[::-1] * b,
    "sorted": lambda a, b: jnp.sort(a) + b,
    "sliced": lambda a, b: a * lax.dynamic_slice_in_dim(b, jnp.int32(a[0] > 0), 1),
}


@st.composite
def turns_of_operations(draw: Any) -> Program:
    """A loop whose turn is a few operations on its state, its row, what is fixed, and what it has made."""
    place = st.integers(0, 9)
    steps = draw(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), place, place), min_size=1))
    last, row_of = draw(place), draw(place)

    def turn(state: Any, row: Any, fixed: Any) -> Any:
        held = [state, row, fixed]
        for name, a, b in steps:
            held.append(OPERATIONS[name](held[a % len(held)], held[b % len(held)]))
        return held[-1 - last % len(steps)], held[row_of % len(held)]

    return Program(scanned(turn), (ROWS, START, FIXED), name=", ".join(name for name, _, _ in steps))


def no_more_is_kept(closed: Closed, program: Program) -> None:
    """A gradient keeps no more bytes of what the rule made than of the program."""
    plain = lambda *own: jax.tree.leaves(program.function(*own))  # noqa: E731
    assert kept(jax_core.jaxpr_as_fun(closed), *program.arguments) <= kept(plain, *program.arguments)


# --- carry_extended ------------------------------------------------------------------------------------------------


def added(field: Any) -> Any:
    """The sum of a field of one element or three."""
    return field[0] + field[1] + field[2] if field.ndim else field


@cl.codelet
def mix(here: Any, a: Any, b: Any, weight: Any) -> Any:
    """Of bytes another byte, and a number that both bytes and a weight make."""
    made = 3 * here + added(a) - 2 * added(b)
    return {"out": made & 7, "heat": weight * 0.5 + jnp.sin(weight) * made.astype(weight.dtype)}


@cl.codelet
def later(here: Any, a: Any) -> Any:
    """A byte from another and what is around it."""
    return here ^ (added(a) + 1)


@cl.codelet
def add_up(here: Any, left: Any, right: Any) -> Any:
    """The sum of three."""
    return here + left + right


@st.composite
def turns_over_neighbours(draw: Any) -> Any:
    """A graph whose turns read neighbours of bytes, its program, and its variables."""
    shape = tuple(draw(st.lists(st.integers(3, 6), min_size=1, max_size=2)))
    graph = cl.Graph()
    x, y = (graph.add_variable(name, shape, np.int8) for name in "xy")
    w, v = (graph.add_variable(name, shape) for name in "wv")
    symbols: Any = cl.grid(*shape)
    symbols = symbols if isinstance(symbols, tuple) else (symbols,)
    widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
    mode = draw(st.sampled_from(["wrap", "edge", "reflect"]))

    def around(of: Any) -> Any:
        """What is somewhere in an array that is padded, one element or a window along the last dimension."""
        padded = of.pad(widths, mode)
        *first, last = (s + draw(st.integers(0, sum(w))) for s, w in zip(symbols, widths, strict=True))
        fits = draw(st.booleans()) and sum(widths[-1]) >= 2
        return padded[(*first, slice(symbols[-1], symbols[-1] + 3) if fits else last)]

    with graph.record() as step:
        fields = {"here": x[symbols], "a": around(x), "b": around(x), "weight": w[symbols]}
        graph.add_vertex("mix", mix, **fields, out=y[symbols], heat=v[symbols])
    body: list[Any] = [step, cl.Copy(v, w)]
    if draw(st.booleans()):
        with graph.record() as second:
            graph.add_vertex("later", later, here=y[symbols], a=around(y), out=x[symbols])
        body.append(second)
    else:
        body.append(cl.Copy(y, x))
    if draw(st.booleans()):
        body = [cl.Repeat(2, body)]
    return graph, cl.Repeat(draw(st.sampled_from([1, 2, 3, 3])), body), (x, y, w)


@st.composite
def turns_over_rings(draw: Any) -> Any:
    """A graph whose turns read bytes that are left and right of each byte, its program, and its variables."""
    n, mode = draw(st.integers(5, 12)), draw(st.sampled_from(["wrap", "edge", "reflect"]))
    below, above = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    graph = cl.Graph()
    x, y = (graph.add_variable(name, n, np.int8) for name in "xy")
    w = graph.add_variable("w", n)
    i = cl.grid(n)
    around = x.pad((below, above), mode)
    with graph.record() as step:
        graph.add_vertex("step", add_up, here=x[i], left=around[i], right=around[i + below + above], out=y[i])
    return graph, cl.Repeat(draw(st.integers(2, 4)), [step, cl.Copy(y, x)]), (x, y, w)


def of_graph(drawn: Any) -> Program:
    """A graph as the function that is emitted of it, of a byte and a weight for each element."""
    graph, program, (x, _, w) = drawn
    inputs = [x.source, w.source]
    random = np.random.default_rng(0)
    values = random.integers(0, 8, x.shape, np.int8), random.normal(size=x.shape).astype(np.float32)
    return Program(emit(plan_fast(plan_graph(graph, program, inputs, [x, w]))), values)


PATTERN = Pattern(
    "turns",
    "A loop keeps no more for its gradient than it did, and carries what each turn extends extended.",
    {
        "turns_of_operations": Drawn(
            turns_of_operations(),
            ("recompute",),
            quick=6,
            slow=100,
            slopes=6,
            slow_slopes=100,
            tolerance=1e-5,
            forms={"recompute": no_more_is_kept},
        ),
        "turns_over_rings": Drawn(
            turns_over_rings().map(of_graph),
            ("carry_extended",),
            quick=4,
            slow=100,
            slopes=0,
            slow_slopes=0,
            first={"carry_extended": WITHIN},
            moves_no_more=False,
        ),
        "turns_over_neighbours": Drawn(
            turns_over_neighbours().map(of_graph),
            ("carry_extended",),
            quick=3,
            slow=150,
            slopes=1,
            tolerance=1e-5,
            first={"carry_extended": WITHIN},
            moves_no_more=False,
        ),
    },
    ("lattice_boltzmann/nine/gradient",),
)
