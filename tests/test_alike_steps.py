"""Compute sets alike but for their variables are planned once and mean what each says; what differs is told apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.rebuild import Builder
from lowering.fast.alike_steps import names_of
from lowering.fast.writes import need_old, plan_writes
from lowering.jaxprs.traced_once import traced_once


@cl.codelet
def weighted(x, y, n, *, by=2.0):
    return jnp.sum(x) * by - y * n


SIZE = 6
VARIANTS = {
    "other static": {"by": 3.0},
    "other offset": {"start": 1},
    "other length": {"length": 3},
    "other step": {"step": 1},
    "other order of variables": {"order": "ba"},
    "one variable twice": {"order": "aa"},
    "concatenated": {"views": lambda a, b: (cl.concatenate([a[:12], b[:4]]), b)},
    "concatenated the other way": {"views": lambda a, b: (cl.concatenate([b[:12], a[:4]]), b)},
    "padded": {"views": lambda a, b: (a[:12].pad((2, 2)), b)},
    "padded with ones": {"views": lambda a, b: (a[:12].pad((2, 2), value=1.0), b)},
    "other state": {"shift": 1},
    "in two families": {"cut": 4},
    "a constant": {"constant": True},
}


def add(graph, name, a, b, order="ab", start=0, length=2, step=2, views=None, shift=0, cut=0, constant=False, by=2.0):
    """A compute set of weighted sums of windows."""
    out = graph.add_variable(f"{name} out", (SIZE,))
    held = {"a": a, "b": b}
    first, second = (held[own] for own in order)
    if views is not None:
        first, second = views(a, b)
    if constant:
        second = graph.add_constant(f"{name} constant", np.arange(16, dtype=np.float32))
    for i in [cl.grid(SIZE)] if not cut else [cl.grid(range(cut)), cl.grid(range(cut, SIZE))]:
        x = first[step * i + start : step * i + start + length]
        graph.add_vertex(name, weighted, x=x, y=second[i], n=i + shift, out=out[i], by=by)
    return out


@pytest.fixture(scope="module")
def graph_of_variants():
    """The same compute set of two pairs of variables, and each variant of it of the second pair; all lowered."""
    graph = cl.Graph()
    a, b, c, d = (graph.add_variable(name, (16,)) for name in "abcd")
    outputs = [add(graph, "plain", a, b), add(graph, "alike", c, d), add(graph, "alike again", d, a)]
    outputs += [add(graph, name, c, d, **how) for name, how in VARIANTS.items()]
    return graph, cl.lower(graph, inputs=[a, b, c, d], outputs=outputs), outputs


def test_all_mean_what_is_interpreted(graph_of_variants):
    graph, run, outputs = graph_of_variants
    values = {name: np.random.default_rng(k).normal(size=16).astype(np.float32) for k, name in enumerate("abcd")}
    made = jax.jit(run)(values)
    for name, expected in cl.interpret(graph, values=values, outputs=outputs).items():
        np.testing.assert_allclose(made[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_what_differs_has_another_form(graph_of_variants):
    _, run, _ = graph_of_variants
    names = {step.name: names_of(step) for step in run.plan.steps}
    assert names["a constant"] is None
    forms = {name: own.form for name, own in names.items() if own is not None}
    assert forms["alike"] == forms["plain"]
    assert forms["in two families"] == forms["plain"]  # put together before
    others = [forms[variant] for variant in VARIANTS if variant in forms and variant != "in two families"]
    assert len({forms["plain"], *others}) == 1 + len(others) == len(VARIANTS) - 1


def test_what_is_alike_is_decided_once_and_printed_by_its_own_names(graph_of_variants):
    _, run, _ = graph_of_variants
    steps = {step.name: step for step in run.plan.steps}
    assert steps["alike"].running is steps["plain"].running
    text = "\n".join(steps["alike"].lines())
    assert "reads x: c" in text
    assert "reads y: d" in text
    assert "writes alike out" in text


def test_stages_that_are_alike_are_composed():
    @cl.codelet
    def pair(x):
        return jnp.sum(x)

    graph = cl.Graph()
    held = first = graph.add_variable("x", (9,))
    for stage in range(3):
        made = graph.add_variable(f"stage {stage}", (9,))
        i, k = cl.grid(8), cl.grid(1)
        graph.add_vertex(f"sum {stage}", pair, x=held[i : i + 2], out=made[i])
        graph.add_vertex(f"sum {stage}", pair, x=held[k + 8 : k + 9], out=made[k + 8])
        held = made
    run = cl.lower(graph, inputs=[first], outputs=[held])
    x = np.arange(9.0, dtype=np.float32) ** 2
    expected = cl.interpret(graph, values={"x": x}, outputs=[held])["stage 2"]
    np.testing.assert_allclose(jax.jit(run)({"x": x})["stage 2"], expected, rtol=1e-6)


def test_calls_are_given_what_nothing_has_written_yet():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (8,))
    whole, made = graph.add_variable("given", (4,)), graph.add_variable("made", (4,))
    with graph.record() as body:
        graph.add_vertex("double", cl.codelet(lambda x: x * 2), x=whole[(i := cl.grid(4))], out=made[i])
    function = graph.add_function(body, {"given": whole, "made": made})
    program = [cl.Call(function, given=x, made=y[:4])]
    with pytest.raises(cl.UninitializedReadError, match=r"y\[4\]"):
        cl.lower(graph, program, inputs=[x], outputs=[y])
    run = cl.lower(graph, [*program, cl.Call(function, given=x, made=y[4:])], inputs=[x], outputs=[y])
    assert run({"x": np.arange(4, dtype=np.float32)})["y"].tolist() == [0, 2, 4, 6] * 2


# --- what is found once -------------------------------------------------------------------------------------


def test_functions_of_one_key_are_traced_once_for_each_kind_of_operands():
    builder = Builder([jax_core.Var(jax.typeof(jnp.ones(3)))])
    traces = []

    def shifted(array, number):
        traces.append(number)
        return [array * number]

    literals = [jax_core.Literal(np.float32(own), jax.typeof(np.float32(own))) for own in (0.0, -0.0, 0.0, 2.0, -0.0)]
    results = [traced_once(builder, "test of keys", shifted, [*builder.invars, own])[0] for own in literals]
    assert [str(own) for own in traces] == ["0.0", "-0.0", "2.0"]
    made = jax_core.jaxpr_as_fun(builder.closed(results))(jnp.ones(3))
    assert [np.signbit(own).any().item() for own in made] == [False, True, False, False, True]


def test_whether_something_is_left_is_told_of_each_access_map():
    graph = cl.Graph()
    x, i, j = graph.add_variable("x", (4, 6)), cl.grid(4), cl.grid(3)
    table = cl.table(np.array([2, 0, 1, 3]))
    views = [[x[i]], [x[i, j]], [x[i, 2 * j]], [x[i, 2 * j], x[i, 2 * j + 1]], [x[table[i]]], [x[i, :3], x[i, 3:]]]
    for own in views:
        indices = [view.index for view in own]
        assert need_old((4, 6), indices) == plan_writes((4, 6), indices).needs_old
    assert [need_old((4, 6), [view.index for view in own]) for own in views[:4]] == [False, True, True, False]
