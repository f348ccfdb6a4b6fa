"""Codelets: what may be one, what its fields are, and how it is traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.tracing.field_types import FieldType
from tests.examples import few

FLOATS = FieldType((4,), np.dtype(np.float32))
NUMBER = FieldType((), np.dtype(np.float32))


@cl.codelet
def weigh(x, w, *, power=1):
    return jnp.sum(x * w**power)


def test_a_codelet_is_still_a_function():
    assert weigh(jnp.arange(3.0), 2.0) == 6
    assert weigh.__wrapped__.__name__ == weigh.name == "weigh"  # type: ignore[attr-defined]
    assert repr(weigh) == "codelet weigh(x, w, *, power)"


def test_it_is_traced_once_for_each_combination():
    traces = []

    @cl.codelet
    def seen(x, *, k):
        traces.append(k)
        return x + k

    first = seen.specialise({"x": FLOATS}, {"k": 1})
    assert seen.specialise({"x": FLOATS}, {"k": 1}) is first
    assert seen.specialise({"x": FLOATS}, {"k": 2}) is not first
    assert seen.specialise({"x": NUMBER}, {"k": 1}) is not first
    # 1 and 1.0 are equal, but the second makes floats of integers.
    assert seen.specialise({"x": FLOATS}, {"k": 1.0}) is not first
    assert traces == [1, 2, 1, 1.0]


def test_its_trace_prints():
    @cl.codelet
    def axpy(x, y, *, a):
        return {"y": a * x + y}

    assert str(axpy.specialise({"x": FLOATS, "y": FLOATS}, {"a": 2.0})) == (
        "codelet axpy(x: float32[4], y: float32[4], a=2.0) -> y: float32[4]\n"
        "{ lambda ; a:f32[4] b:f32[4]. let\n"
        "    c:f32[4] = mul 2.0:f32[] a\n"
        "    d:f32[4] = add c b\n"
        "  in (d,) }"
    )
    assert "mul 2.0" in str(axpy)


def test_outputs_are_named_and_in_out_by_name():
    @cl.codelet
    def several(x, w, out):
        return {"w": w + x, "sum": x + out}

    traced = several.specialise({"x": NUMBER, "w": NUMBER, "out": NUMBER})
    assert traced.field_names == ("x", "w", "out", "sum")

    @cl.codelet
    def in_place(out):
        return out + 1

    assert list(in_place.specialise({"out": NUMBER}).outputs) == ["out"]


def test_derivative_rules_of_ones_own_survive():
    @jax.custom_vjp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))

    @jax.custom_jvp
    def safe_log(x):
        return jnp.log(x)

    safe_log.defjvp(lambda p, t: (jnp.log(p[0]), jnp.where(p[0] > 1, t[0], 7 * t[0])))

    @cl.codelet
    def rounded(x):
        return straight_through(x) + safe_log(x)

    def layer(graph, x):
        return graph.add_vertex("round", rounded, x=x[cl.grid(3)])

    slope = jax.grad(lambda x: cl.lower(layer)(x).sum())(jnp.array([0.4, 1.6, 2.5]))
    np.testing.assert_allclose(slope, [8.0, 2.0, 2.0])


def test_debug_print_prints_per_vertex(capfd):
    @cl.codelet
    def tell(x):
        jax.debug.print("saw {}", x)
        return x

    layer = cl.lower(lambda graph, x: graph.add_vertex("tell", tell, x=x[cl.grid(3)]))
    jax.block_until_ready(jax.jit(layer)(jnp.arange(3.0)))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "saw 0.0", "saw 1.0", "saw 2.0"]


def test_a_random_key_is_wrapped_inside():
    @cl.codelet
    def draw(seed, site):
        key = jax.random.fold_in(jax.random.wrap_key_data(seed), site)
        return jax.random.uniform(key)

    def noise(graph, seed):
        i = cl.grid(5)
        return graph.add_vertex("draw", draw, seed=seed, site=3 * i)

    key = jax.random.key(7)
    expected = [jax.random.uniform(jax.random.fold_in(key, 3 * i)) for i in range(5)]
    np.testing.assert_array_equal(jax.jit(cl.lower(noise))(jax.random.key_data(key)), expected)


@few("x64", [False, True], quick=["False", "True"])
def test_python_numbers_are_returned_as_arrays_of_their_default_dtype(x64):
    returned = {"half": 0.5, "two": 2, "yes": True, "i": 1j, "np": np.float32(3), "array": np.arange(2), "weak": None}

    @cl.codelet
    def several(x):
        return {**returned, "weak": jnp.asarray(2.0) * 1, "x": x}

    with jax.enable_x64(x64):
        graph = cl.Graph()
        x = graph.add_variable("x", (3,))
        made: Any = graph.add_vertex("a", several, x=x[cl.grid(3)])
        values = {"x": np.arange(3, dtype=np.float32)}
        run = cl.lower(graph, inputs=[x], outputs=list(made.values()))
        assert not any(aval.weak_type for aval in run.jaxpr.out_avals)
        found, meant = (
            jax.device_get(jax.jit(run)(values)),
            cl.interpret(graph, values=values, outputs=list(made.values())),
        )
        called = graph.vertex("a", 1).run(values)
        for name, tensor in made.items():
            expected = jnp.asarray(2.0 if name == "weak" else returned[name])
            full = f"a/{name}"
            assert tensor.dtype == found[full].dtype == meant[full].dtype == called[name].dtype == expected.dtype
            for value in (found[full][1], meant[full][1], called[name]):
                np.testing.assert_array_equal(value, expected)


def test_numbers_are_weak_and_arrays_are_not():
    @cl.codelet
    def scale(x, s):
        return x * s

    graph = cl.Graph()
    x = graph.add_variable("x", (4,), "float16")
    i = cl.grid(4)
    assert graph.add_vertex("weak", scale, x=x[i], s=0.5).dtype == np.float16
    assert graph.add_vertex("strong", scale, x=x[i], s=np.ones(4, np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda tile: tile, "a parameter named 'tile'"),
        (lambda *x: x, r"has the parameter \*x"),
        (lambda x, **more: x, "has the parameter"),
        (lambda x=1: x, "has a default for its field 'x'"),
    ],
)
def test_what_cannot_be_a_codelet(function, says):
    with pytest.raises(cl.CodeletDefinitionError, match=says):
        cl.codelet(function)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: jnp.dot(x, jnp.ones(3)), "fails for these fields: TypeError"),
        (lambda x: 1 if x[0] > 0 else 2, "fails for these fields: TracerBoolConversionError"),
        (lambda x: None, "returns something other than arrays"),
        (lambda x: (x, x), "returns something other than arrays"),
        (lambda x: (x,), "returns something other than arrays"),
        (lambda x: {"a": {"b": x}}, "returns something other than arrays"),
        (lambda x: {"x": x[:2]}, "changes the type of its in-out field 'x'"),
        (lambda x: {"tile": x}, "returns a field it may not have"),
        (lambda x: {}, "returns something other than arrays"),
    ],
)
def test_what_does_not_trace(function, says):
    with pytest.raises(cl.CodeletTraceError, match=says) as caught:
        cl.codelet(function).specialise({"x": FLOATS})
    assert "test_codelets.py" in str(caught.value)


def test_functions_of_jax_are_codelets():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    y = graph.add_vertex("sin", cl.codelet(jnp.sin), x=x)
    z = graph.add_vertex("dot", cl.codelet(jnp.dot), a=x, b=y)
    seven = cl.codelet(jnp.exp, cycles=lambda x: 7)
    graph.add_vertex("exp", seven, x=z, out=x[0], tile=0)
    assert seven.hints.cycles is not None
    found = cl.interpret(graph, values={"x": np.ones(4)}, outputs=[x, y])
    np.testing.assert_allclose(found["sin/out"], np.sin(np.ones(4)), rtol=1e-6)


def test_a_captured_tracer_is_told():
    @jax.jit
    def outer(t):
        leaky = cl.codelet(lambda x: x + t)
        return cl.lower(lambda graph, x: graph.add_vertex("leak", leaky, x=x[0]))(jnp.ones(3))

    with pytest.raises(cl.CapturedTracerError, match="pass the value in as a field"):
        outer(1.0)


def test_static_values_must_be_given_and_hashable():
    needs = cl.codelet(lambda x, *, k: x)
    with pytest.raises(cl.MissingFieldError, match="no value for its static 'k'"):
        needs.specialise({"x": FLOATS})
    with pytest.raises(cl.FieldTypeError, match="cannot be hashed"):
        needs.specialise({"x": FLOATS}, {"k": [1]})  # type: ignore[dict-item]
