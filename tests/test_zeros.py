"""Zeros are copied to all of a variable, or not at all, where that comes to the same; and nothing else is changed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.sources import Variable
from lowering.fast import zeros
from lowering.fast.compute_sets import choose_kernels
from lowering.fast.prune import prune
from lowering.fast.steps import emit
from lowering.fast.zeros import copy_few_zeros
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, CopyStep, RepeatStep, Step
from lowering.plan.touch import Touch
from lowering.plan.walk import all_steps
from tests.examples import examples
from tests.paths import Paths, Place, State, States

SIZE = 6


@cl.codelet
def added(x, y):
    return x + y


@cl.codelet
def doubled(x):
    return {"x": x + x}


@st.composite
def plans(draw: Any) -> Plan:
    """A plan of zeros and other values copied to parts of variables in loops, choices and functions, never checked."""
    graph = cl.Graph()
    a, b, c = (graph.add_variable(name, (SIZE,)) for name in "abc")
    n = graph.add_variable("n", (), "int32")
    joined = cl.concatenate([a[2:], b[:2]])
    i, k = cl.grid(3), cl.grid(2)
    graph.add_vertex("added", added, x=a[i], y=b[i + 1], out=b[2 * i])
    graph.add_vertex("doubled", doubled, x=a[k + 3])
    thirds, more = [slice(2), slice(2, 4), slice(4, None)], [slice(1, 5, 3), slice(None)]
    parts = [own[part] for own in (a, b, c) for part in (*thirds, *more)]
    parts += [a[3], a[::-1][:2], joined[1:5], joined]
    none = [cl.Copy(np.float32(0), part) for part in parts]
    others = [cl.Copy(np.float32(value), part) for value in (-0.0, 1, 2) for part in parts]
    atoms = [*none * 3, *others, *[cl.Execute(own) for own in graph.compute_sets] * 4]
    atoms += [cl.Copy(b, a), cl.Copy(b[:2], a[4:]), cl.WriteUndef(a), cl.WriteUndef(b[1:])]
    for own in (a, b):
        puts = [cl.Copy(c[part], own[part]) for part in thirds]
        borders = [cl.Copy(np.float32(0), own[part]) for part in thirds]
        orders = [(puts[1], borders[0], borders[2]), (borders[2], puts[0], borders[1]), (puts[2], puts[0], borders[1])]
        atoms += [cl.Sequence(*order) for order in orders] * 4
    inside = cl.Sequence(cl.Copy(np.float32(0), c[:2]), cl.Copy(np.float32(3), c[4:]))
    atoms.append(cl.Call(graph.add_function(inside, {})))
    atom = st.sampled_from(atoms)

    def body(depth: int) -> list[Any]:
        return [program(depth + 1) for _ in range(draw(st.integers(1, 4)))]

    def program(depth: int) -> Any:
        kind = draw(st.sampled_from(["atom"] * 4 + ["repeat", "while", "if"] * (depth < 3)))
        if kind == "repeat":
            return cl.Repeat(draw(st.sampled_from([0, 1, 2, 3])), body(depth))
        if kind == "while":
            return cl.RepeatWhile(draw(atom), n, body(depth), max_iterations=2)
        return cl.If(n, body(depth), body(depth)) if kind == "if" else draw(atom)

    inputs = [n, *draw(st.sampled_from([(), (a,), (b, c)]))]
    variables = [v for v in graph.sources if v.name in {tensor.source.name for tensor in inputs}]
    return flow(collect(graph, cl.Sequence(*body(0), *body(0)), variables, [a, b, c]))


def elements(touch: Touch) -> set[int]:
    """The elements that a step touches."""
    return set(touch.tensor.elements(touch.axes).ravel().tolist())


class Other(Paths):
    """A state is the elements that hold something else than zero, as far as steps do not say that they are zero."""

    forward = True

    def own(self, step: Step, state: State) -> State:
        for touch in step.touches():
            if touch.is_written:
                state = state - elements(touch) if _writes_zeros(step) else state | elements(touch)
        return state

    def call(self, step: CallStep, place: Place, state: State) -> States:
        return {state}


def _writes_zeros(step: Step) -> bool:
    source = step.source.source if isinstance(step, CopyStep) else None
    value = source.value if isinstance(source, Variable) else None
    return value is not None and value.tobytes() == bytes(value.nbytes)


def values_of(plan: Plan, values: list[Any]) -> list[bytes]:
    """The bits of what a plan gives."""
    return [np.asarray(own).tobytes() for own in jax.jit(emit(choose_kernels(plan)))(*values)]


@examples(60)
@given(plans())
def test_zeros_are_left_out_where_every_path_has_them(plan):
    paths = Other()
    start = frozenset(e for v in plan.inputs for e in range(v.first_element, v.first_element + v.size))
    paths.steps(plan.steps, (), {start})
    calls = [step for step in all_steps(plan.steps) if isinstance(step, CallStep)]
    called = {variable for step in calls for variable in step.writes}
    copies = [step for step in all_steps(plan.steps) if isinstance(step, CopyStep)]
    asked = [own for own in copies if _writes_zeros(own) and not own.destination.is_whole_variable]
    idle = {own for own in asked if called.isdisjoint(own.writes)}
    for place, states in paths.reached.items():
        for touch in paths.at[place].touches():
            if touch.is_written and any(state & elements(touch) for state in states):
                idle.discard(paths.at[place])
    with pytest.MonkeyPatch.context() as patch:  # without copies to all of variables instead
        patch.setattr(zeros._FewerZeros, "filled", lambda *given: [])
        left = [step for step in all_steps(copy_few_zeros(plan).steps) if isinstance(step, CopyStep)]
    assert left == [own for own in copies if own not in idle]


@examples(8)
@given(plans(), st.integers(0, 1))
def test_values_are_as_before_bit_for_bit(plan, n):
    random = np.random.default_rng(0)
    values = [
        np.int32(n) if own.dtype == np.int32 else random.normal(size=own.shape).astype(own.dtype) for own in plan.inputs
    ]
    expected = values_of(plan, values)
    left = copy_few_zeros(prune(plan))
    assert values_of(left, values) == expected
    assert values_of(prune(left), values) == expected


# --- programs ----------------------------------------------------------------------------------------


@cl.codelet
def lean(x):
    return 0.5 * x[0] - 0.25 * x[1] + 0.125 * x[2]


@cl.codelet
def added_to(acc, x):
    return {"acc": acc + x}


def sizes(*program: Any, inputs: tuple[str, ...] = ("x",)) -> list[int]:
    """Of each copy of a program that is left when it is lowered how many elements it writes; values are checked.

    A step is a stencil from `x` to the middle of `y`, a sum adds `x` to `z`, and that to `x`.
    """
    graph = cl.Graph()
    x, y, z = (graph.add_variable(name, (SIZE,)) for name in "xyz")
    i, k = cl.grid(range(1, SIZE - 1)), cl.grid(SIZE)
    step, more, add = (graph.add_compute_set(name) for name in ("step", "more", "sum"))
    graph.add_vertex(step, lean, x=x[i - 1 : i + 2], out=y[i])
    graph.add_vertex(more, added_to, acc=z[k], x=x[k])
    graph.add_vertex(add, added_to, acc=x[k], x=z[k])
    zero, one = np.float32(0), np.float32(1)
    named = {
        "step": [cl.Execute(step)],
        "sum": [cl.Execute(more), cl.Execute(add)],
        "edges": [cl.Copy(zero, y[:1]), cl.Copy(zero, y[SIZE - 1 :])],
        "ones": [cl.Copy(one, y[:1])],
        "negative": [cl.Copy(-zero, y[:1])],
        "zeros": [cl.Copy(zero, y)],
        "part": [cl.Copy(x[3:5], z[1:3])],
        "rest": [cl.Copy(zero, z[:1]), cl.Copy(zero, z[3:])],
        "look": [cl.Copy(z[:1], y[1:2])],
    }
    made = [part for own in program for part in (named[own] if isinstance(own, str) else [own(named)])]
    random = np.random.default_rng(0)
    values = {name: random.normal(size=SIZE).astype("f") for name in inputs}
    run = cl.lower(graph, cl.Sequence(*made), inputs=list(inputs), outputs=["x", "y"])
    expected = cl.interpret(graph, cl.Sequence(*made), values=values, outputs=["x", "y"])
    for name, own in run(values).items():
        np.testing.assert_allclose(own, expected[name], rtol=1e-6)
        assert (np.signbit(own) == np.signbit(expected[name])).all()
    loops = [step for step in all_steps(run.plan.steps) if isinstance(step, RepeatStep)]
    is_carried = any(own.name == "z" for loop in loops for own in loop.carried or ())
    copies = [step.destination.size for step in all_steps(run.plan.steps) if isinstance(step, CopyStep)]
    return [*copies, *[-1] * is_carried]


def repeated(*names: str) -> Any:
    return lambda named: cl.Repeat(3, cl.Sequence(*(part for name in names for part in named[name])))


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (("step", "edges"), []),
        (("edges", "step", "edges"), []),
        ((repeated("step", "edges"),), []),
        ((repeated("edges", "step"), "edges"), []),
        (("zeros", "step", "edges"), [SIZE]),
        (("ones", "step", "edges"), [1, 1]),
        (("negative", "step", "edges"), [1, 1]),
        ((repeated("edges", "step", "ones"),), [SIZE, 1]),
    ],
)
def test_borders_that_hold_nothing_else_are_left_out(program, left):
    assert sizes(*program) == left


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (("step", "edges"), [SIZE]),
        (("edges", "step"), [SIZE]),
        ((repeated("edges", "step"),), [SIZE]),
        (("edges", "ones", "step"), [SIZE, 1]),
        (("ones", "edges", "step"), [SIZE, 1, 1]),
    ],
)
def test_inputs_are_made_of_zeros_first(program, left):
    assert sizes(*program, inputs=("x", "y")) == left


@pytest.mark.parametrize(
    ("turn", "left"),
    [
        (("part", "rest", "sum"), [SIZE, 2]),
        (("rest", "part", "sum"), [SIZE, 2]),
        (("part", "sum", "rest"), [2, 2, 1, 3, -1]),
        (("rest", "look", "part", "sum"), [2, 1, 3, 1, 2, -1]),
    ],
)
def test_loops_carry_nothing_of_which_all_but_a_part_is_zero(turn, left):
    assert sizes("zeros", "part", "rest", repeated(*turn))[1:] == left


def test_gradients_of_slices_write_no_borders():
    def loss(x):
        middle = x[1:-1, 1:-1] * x[:-2, 1:-1] - x[2:, 1:-1]
        return (middle[1:] * middle[:-1]).sum()

    x = np.random.default_rng(0).normal(size=(8, 7)).astype("f")
    traced = cl.trace(loss, jax.ShapeDtypeStruct(x.shape, x.dtype))
    made = cl.gradient(traced.graph, traced.program, of=traced.outputs, wrt=traced.inputs[0])
    program, slope = cl.Sequence(made.forward, made.backward), made[traced.inputs[0]]
    run = cl.lower(traced.graph, program, inputs=traced.flat_inputs, outputs=[slope])
    assert not [step for step in run.plan.steps if isinstance(step, CopyStep)]
    found = run({traced.inputs[0].source.name: x})
    np.testing.assert_allclose(found[slope], jax.grad(loss)(x), rtol=1e-5, atol=1e-6)
