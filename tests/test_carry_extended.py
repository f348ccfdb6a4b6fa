"""Loops that carry what each turn extends extended."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.jaxprs.equations import scan_counts
from lowering.jaxprs.carry_extended import carry_extended
from tests.examples import examples


def added(field):
    """The sum of a field of one element or three."""
    return field[0] + field[1] + field[2] if field.ndim else field


@cl.codelet
def mix(here, a, b, weight):
    """Of bytes another byte, and a number that both bytes and a weight make."""
    made = 3 * here + added(a) - 2 * added(b)
    return {"out": made & 7, "heat": weight * 0.5 + jnp.sin(weight) * made.astype(weight.dtype)}


@cl.codelet
def later(here, a):
    """A byte from another and what is around it."""
    return here ^ (added(a) + 1)


def carried_shapes(run):
    """The shapes that the loops of a lowered graph carry."""
    scans = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    counts = [scan_counts(eqn) for eqn in scans]
    carried = [eqn.invars[first : first + count] for eqn, (first, count) in zip(scans, counts, strict=True)]
    return [var.aval.shape for own in carried for var in own]


@st.composite
def turning(draw):
    """A graph whose turns read neighbours of bytes, its program, and its variables."""
    shape = tuple(draw(st.lists(st.integers(3, 6), min_size=1, max_size=2)))
    graph = cl.Graph()
    x, y = (graph.add_variable(name, shape, np.int8) for name in "xy")
    w, v = (graph.add_variable(name, shape) for name in "wv")
    symbols = cl.grid(*shape)
    symbols = symbols if isinstance(symbols, tuple) else (symbols,)
    widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
    mode = draw(st.sampled_from(["wrap", "edge", "reflect"]))

    def around(of):
        """What is somewhere in an array that is padded, one element or a window along the last dimension."""
        padded = of.pad(widths, mode)
        *first, last = (s + draw(st.integers(0, sum(w))) for s, w in zip(symbols, widths, strict=True))
        fits = draw(st.booleans()) and sum(widths[-1]) >= 2
        return padded[(*first, slice(symbols[-1], symbols[-1] + 3) if fits else last)]

    with graph.record() as step:
        fields = {"here": x[symbols], "a": around(x), "b": around(x), "weight": w[symbols]}
        graph.add_vertex("mix", mix, **fields, out=y[symbols], heat=v[symbols])
    body = [step, cl.Copy(v, w)]
    if draw(st.booleans()):
        with graph.record() as second:
            graph.add_vertex("later", later, here=y[symbols], a=around(y), out=x[symbols])
        body.append(second)
    else:
        body.append(cl.Copy(y, x))
    if draw(st.booleans()):
        body = [cl.Repeat(2, body)]
    return graph, cl.Repeat(draw(st.sampled_from([1, 2, 3, 3])), body), (x, y, w)


def agrees(made):
    """A loop does what `interpret` says, and its gradient is that of one that carries nothing extended."""
    graph, program, (x, y, w) = made
    random = np.random.default_rng(0)
    values = {"x": random.integers(0, 8, x.shape, np.int8), "w": random.normal(size=x.shape).astype(np.float32)}
    outputs = [x, y, w]
    expected = cl.interpret(graph, values, outputs, program=program)

    def lowered():
        return cl.lower(graph, program, inputs=[x, w], outputs=outputs)

    def both(run):
        loss = lambda weight: ((found := run({**values, "w": weight}))["w"].sum(), found)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, has_aux=True))(values["w"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowering.jaxprs.simplify.carry_extended", lambda closed: closed)
        (_, _), plain = both(lowered())
    run = lowered()
    (_, found), slope = both(run)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, plain, rtol=1e-5, atol=1e-5)
    assert str(carry_extended(run.jaxpr)) == str(run.jaxpr)


@examples(3)
@given(turning())
def test_loops_over_neighbours(made):
    agrees(made)


@pytest.mark.slow
@examples(150)
@given(turning())
def test_more_loops_over_neighbours(made):
    agrees(made)


@cl.codelet
def add_up(here, left, right):
    """The sum of three."""
    return here + left + right


@cl.codelet
def divided(here, left, right):
    """What takes long."""
    return (left + right) // (here + 1)


def repeat(mode="wrap", codelet=add_up, dtype: type = np.int8, steps=3):
    """Turns that read what is left and right of twelve elements."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, 12, dtype) for name in "xy")
    i = cl.grid(12)
    padded = x.pad((1, 2), mode)
    with graph.record() as step:
        graph.add_vertex("step", codelet, here=x[i], left=padded[i], right=padded[i + 3], out=y[i])
    return cl.lower(graph, cl.Repeat(steps, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x])


@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect"])
def test_is_carried_extended(mode):
    run, x = repeat(mode), np.arange(12, dtype=np.int8)
    assert carried_shapes(run) == [(15,)]
    expected = x
    for _ in range(3):
        padded = np.pad(expected, (1, 2), mode)
        expected = expected + padded[:12] + padded[3:]
    np.testing.assert_array_equal(run({"x": x})["x"], expected)


def test_what_is_costly_has_a_gradient_or_runs_once_is_not():
    assert carried_shapes(repeat(codelet=divided)) == [(12,)]
    assert carried_shapes(repeat(dtype=np.float32)) == [(12,)]
    assert (15,) not in carried_shapes(repeat(steps=1))


def test_what_is_read_whole_is_not():
    summed = cl.codelet(lambda whole: jnp.cumsum(whole, dtype=np.int8))
    graph = cl.Graph()
    x, y, sums = (graph.add_variable(name, 12, np.int8) for name in ("x", "y", "sums"))
    i = cl.grid(12)
    with graph.record() as step:
        graph.add_vertex("step", add_up, here=x[i], left=x[(i - 1) % 12], right=x[(i + 1) % 12], out=y[i])
        graph.add_vertex("sum", summed, whole=x, out=sums)
    run = cl.lower(graph, cl.Repeat(3, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x, sums])
    assert set(carried_shapes(run)) == {(12,)}
